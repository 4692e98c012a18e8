"""AF_XDP over a veth pair as the wire of `pyvma bench compare`. The kernel's rows run over the same pair: no ring is attached then, since
only the processes of the other rows attach one, for as long as they live."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from ._bench_wire import End, Wire
from ._veth import VethPair

PORTS = (9000, 9001)


class XdpWire(Wire):
    """One pair of namespaces for the whole comparison."""

    name = "xdp"
    # The receiving end of a veth has a queue of 256 frames, acknowledgements included, and drops what finds it full.
    window = 192
    kernel_peer = True

    def __init__(self) -> None:
        self.pair = VethPair()

    def __enter__(self) -> XdpWire:
        self.pair.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.pair.__exit__(kind, value, trace)

    def fresh(self) -> None:
        """The processes of a row take their rings with them."""

    def ends(self, stack: str) -> tuple[End, End]:
        return (self.pair.hosts[0], PORTS[0]), (self.pair.hosts[1], PORTS[1])

    def interface(self, number: int) -> str:
        return f"xdp:device={self.pair.device}"

    def raw(self, number: int) -> dict[str, Any]:
        return {"library": "xdp", "device": self.pair.device, "peer_mac": self.pair.macs[1 - number]}

    def inside(self, number: int) -> Sequence[str]:
        return self.pair.inside(number)
