"""Rates that sockets are held to: `socket.pacing` and the values of its option."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any, NamedTuple

from ._native import check, ffi, lib


class PacedQueue(NamedTuple):
    """Who holds what a socket sends by one interface to its rate."""

    interface: str
    """The interface's name; empty for the kernel's."""
    by: str | None
    """"device", "software", "kernel"; None: nobody any more, and what waits leaves at line rate."""
    queue: int
    """The device's transmit queue; 0: none of the socket's own."""
    frames: int
    """That wait for their time, as far as is known."""
    bytes: int
    """Of those frames."""
    reason: str
    """Why not by the device."""


class Pacing(NamedTuple):
    """The rate that a socket is held to on each interface it sends by, and by whom; true while there is one."""

    rate: int | None
    """Bytes a second, of Ethernet frames without FCS; None: unlimited."""
    burst: int
    """Bytes that may leave at once; 0: what is usual."""
    packet: int
    """Bytes of a usual frame, as the device was told; 0: it was not."""
    by: str | None
    """"device", "software" or "kernel": the last of these that any interface has; None: unlimited, or nothing was sent yet."""
    reason: str
    """Why not, or not everywhere, by the device."""
    queues: tuple[PacedQueue, ...]
    """One for each interface."""

    def __bool__(self) -> bool:
        return self.rate is not None


_PACED_BY = {
    lib.PYVMA_PACING_NONE: None,
    lib.PYVMA_PACING_DEVICE: "device",
    lib.PYVMA_PACING_SOFTWARE: "software",
    lib.PYVMA_PACING_KERNEL: "kernel",
}
_PACING = struct.Struct("@QIHH")
_UNLIMITED = (0, (1 << 64) - 1)
SO_MAX_PACING_RATE = 47  # the standard library has no name for it
SOL_PYVMA = int(lib.PYVMA_SOL)
"""Level of the options below."""
SO_PACING = int(lib.PYVMA_SO_PACING)
"""A rate with a burst: `pack_pacing()` makes its value."""


def pack_pacing(rate: int, burst: int = 0, packet: int = 0) -> bytes:
    """The value of setsockopt(SOL_PYVMA, SO_PACING, ...): bytes a second (0: unlimited), bytes that may leave at once (0: what is usual),
    and bytes of a usual frame, for a device to plan with (0: unknown).
    """
    return _PACING.pack(rate, burst, packet, 0)


def _limited(rate: int) -> int | None:
    return None if rate in _UNLIMITED else rate


def of_kernel(plain: Any, why: str) -> Pacing:
    """Of a socket of the standard library's, closed ones included."""
    if plain.fileno() < 0:
        return Pacing(None, 0, 0, None, "closed", ())
    (rate,) = struct.unpack("@Q", plain.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8))
    limited = _limited(rate)
    return Pacing(limited, 0, 0, None if limited is None else "kernel", why, ())


def of_engine(sock: Any) -> Pacing:
    """Of a handle of the engine's."""
    row = ffi.new("struct pyvma_pacing_state *")
    queues: list[PacedQueue] = []
    while (code := lib.pyvma_sock_pacing(sock, len(queues), row)) == 0:
        name, reason = (ffi.string(text).decode(errors="replace") for text in (row.interface, row.reason))
        queues.append(PacedQueue(name, _PACED_BY[row.by], row.queue, row.frames, row.bytes, reason))
    if code != -errno.ENOENT:
        check(code)
    rate = _limited(row.pacing.rate)
    order = list(_PACED_BY.values())
    last = max(queues, key=lambda queue: order.index(queue.by), default=None)
    if last is None:
        return Pacing(rate, row.pacing.burst, row.pacing.packet, None, "nothing was sent yet" if rate is not None else "", ())
    return Pacing(rate, row.pacing.burst, row.pacing.packet, last.by, last.reason, tuple(queues))
