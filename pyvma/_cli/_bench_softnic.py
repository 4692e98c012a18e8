"""The software NIC as the wire of `pyvma bench compare`; the kernel's rows run over loopback."""

from __future__ import annotations

import secrets
from pathlib import Path
from types import TracebackType
from typing import Any

from . import UserError
from ._bench_run import free_ports
from ._bench_wire import End, Wire

HOSTS = ("10.99.0.1", "10.99.0.2")
PORTS = (9000, 9001)
LOOPBACK = "127.0.0.1"


def library() -> Path:
    """The software NIC's library. UserError says why there is none."""
    from ..ring import softnic

    try:
        return softnic.library()
    except FileNotFoundError as error:
        raise UserError(str(error)) from None


class SoftnicWire(Wire):
    """One fabric a row, with two ports, under a name that nobody else has."""

    name = "softnic"

    def __init__(self) -> None:
        self.fabric = ""
        self.fresh()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def _remove(self) -> None:
        """Peers that are killed leave their fabric behind."""
        from ..ring import softnic

        if self.fabric:
            softnic.remove(self.fabric)

    def fresh(self) -> None:
        self._remove()
        self.fabric = f"bench{secrets.token_hex(5)}"

    def ends(self, stack: str) -> tuple[End, End]:
        hosts, ports = ((LOOPBACK, LOOPBACK), free_ports(LOOPBACK)) if stack == "kernel" else (HOSTS, PORTS)
        return (hosts[0], ports[0]), (hosts[1], ports[1])

    def interface(self, number: int) -> str:
        return f"softnic:fabric={self.fabric},port={number},addr={HOSTS[number]}/24"

    def raw(self, number: int) -> dict[str, Any]:
        # Ports have the MAC of their number unless told otherwise.
        return {"library": library(), "device": f"{self.fabric}/{number}", "peer_mac": f"02:53:4e:00:00:{1 - number:02x}"}
