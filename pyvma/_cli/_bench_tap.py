"""A TAP device as the wire of `pyvma bench compare`: the row's server is on its one end, and on the other is the kernel, whose sockets are
the client of every row. The kernel's own rows run over loopback."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from . import UserError
from ._bench_wire import End, Wire
from ._veth import ENDING, held_back, ip, leave

DEVICE = "tap0"
KERNEL, OURS = "10.98.1.1", "10.98.1.2"
# As the raw server has it: with a neighbour that never changes nobody asks in between.
MAC = "02:54:41:50:00:02"
LOOPBACK = "127.0.0.1"
PORTS = (9000, 9001)


class TapWire(Wire):
    """One namespace with the device, which stays while the servers of the rows come and go."""

    name = "tap"
    # The client's socket holds so many messages that it has not asked for yet.
    window = 192
    kernel_peer = True
    kernel_client = True

    def __init__(self) -> None:
        """UserError says why there can be none here."""
        if shutil.which("ip") is None:
            raise UserError("network namespaces need the program ip (package iproute2)")
        if os.geteuid() != 0:
            raise UserError("network namespaces need root")
        self.space = f"pyvma-{secrets.token_hex(4)}-t"
        self.before: dict[signal.Signals, Any] = {}

    def build(self) -> None:
        """Makes the namespace and the device."""
        ip("netns", "add", self.space)
        for command in (
            "link set lo up",
            f"tuntap add dev {DEVICE} mode tap vnet_hdr",
            f"link set {DEVICE} addrgenmode none",
            f"addr add {KERNEL}/24 dev {DEVICE}",
            f"link set {DEVICE} up",
            f"neigh add {OURS} lladdr {MAC} dev {DEVICE}",
        ):
            ip("-n", self.space, *command.split())

    def __enter__(self) -> TapWire:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, leave) for number in ENDING if number != signal.SIGINT}
        try:
            self.build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        with held_back():
            ip("netns", "del", self.space, check=False)
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def fresh(self) -> None:
        """The processes of a row let go of the device."""

    def ends(self, stack: str) -> tuple[End, End]:
        near, far = (LOOPBACK, LOOPBACK) if stack == "kernel" else (OURS, KERNEL)
        return (near, PORTS[0]), (far, PORTS[1])

    def interface(self, number: int) -> str:
        return f"tap:name={DEVICE},addr={OURS}/24,mac={MAC}"

    def raw(self, number: int) -> dict[str, Any]:
        return {"library": "tap", "device": DEVICE}

    def inside(self, number: int) -> Sequence[str]:
        return ["ip", "netns", "exec", self.space]
