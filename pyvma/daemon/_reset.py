"""RST to the peers of a process that died with connections established.

What the peer expects next it tells in its answer to a SYN of the connection's own addresses and ports (a challenge ACK, RFC 9293
3.10.7.4 and RFC 5961 4); an RST with exactly that number ends the connection there (RFC 5961 3).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ._log import Log
from ._protocol import Flow

__all__ = ["Resets"]

TRIES = 3
INTERVAL_S = 1.0
LOOK_S = 0.05
MOST = 4096
IPV6_CHECKSUM = 7
SYN, RST, ACK = 0x02, 0x04, 0x10
SEGMENT = struct.Struct(">HHIIBBHHH")


@dataclass(slots=True)
class _Reset:
    flow: Flow
    sequence: int
    tries: int = 0
    due: float = 0.0


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def segment(flow: Flow, sequence: int, flags: int) -> bytes:
    """From the flow's destination, which is ours, to its source."""
    fields = [flow.dst_port, flow.src_port, sequence, 0, 5 << 4, flags, 1024, 0, 0]
    pseudo = flow.dst + flow.src + (struct.pack(">BBH", 0, 6, 20) if len(flow.dst) == 4 else struct.pack(">IHBB", 20, 0, 0, 6))
    fields[7] = _checksum(pseudo + SEGMENT.pack(*fields))
    return SEGMENT.pack(*fields)


class Resets:
    """Those that are under way."""

    def __init__(self, log: Log, interval_s: float = INTERVAL_S) -> None:
        self._log = log
        self._interval_s = interval_s
        self._open: dict[Flow, _Reset] = {}
        self._sockets: dict[bytes, socket.socket] = {}
        self.sent = 0

    def begin(self, flows: Iterable[Flow]) -> None:
        """After the flows' rules were deleted, or about to be in this turn."""
        for flow in flows:
            if len(self._open) < MOST and flow not in self._open:
                self._open[flow] = _Reset(flow, int.from_bytes(os.urandom(4), "big"))

    def due(self) -> float | None:
        """In how many seconds `turn` is to be called; None: no need."""
        return LOOK_S if self._open else None

    def _socket(self, address: bytes) -> socket.socket:
        """What comes to that address, and what goes from it."""
        sock = self._sockets.get(address)
        if sock is None:
            family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
            sock = socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_TCP)
            try:
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_CHECKSUM, 16)
                sock.bind((socket.inet_ntop(family, address), 0))
            except OSError:
                sock.close()
                raise
            self._sockets[address] = sock
        return sock

    def _send(self, flow: Flow, sequence: int, flags: int) -> None:
        with contextlib.suppress(OSError):  # the address may be gone, the way, too
            name = socket.inet_ntop(flow.family, flow.src)
            self._socket(flow.dst).sendto(segment(flow, sequence, flags), (name, 0))

    def turn(self) -> None:
        """Reads what peers answered, and sends what is due."""
        if not self._open:
            return
        for address in list(self._sockets):
            self._read(address)
        now = time.monotonic()
        for reset in list(self._open.values()):
            if now < reset.due:
                continue
            if reset.tries == TRIES:
                del self._open[reset.flow]
                continue
            reset.tries += 1
            reset.due = now + self._interval_s
            self._send(reset.flow, reset.sequence, SYN)
        if not self._open:
            self.close()

    def _read(self, address: bytes) -> None:
        sock = self._sockets[address]
        for _ in range(256):
            try:
                data, name = sock.recvfrom(256)
            except OSError:
                return
            at = (data[0] & 0xF) * 4 if len(address) == 4 and data else 0
            if len(data) < at + SEGMENT.size:
                continue
            src_port, dst_port, _, ack, _, flags, _, _, _ = SEGMENT.unpack_from(data, at)
            src = socket.inet_pton(sock.family, name[0].partition("%")[0])
            self._answered(address, dst_port, src, src_port, ack, flags)

    def _answered(self, dst: bytes, dst_port: int, src: bytes, src_port: int, ack: int, flags: int) -> None:
        for flow in [f for f in self._open if (f.dst, f.dst_port, f.src, f.src_port) == (dst, dst_port, src, src_port)]:
            if flags & ACK and not flags & (RST | SYN):
                self._send(flow, ack, RST)
                self.sent += 1
                self._log.info(f"{flow}: the process died, its peer is told")
            if flags & (ACK | RST):
                del self._open[flow]

    def close(self) -> None:
        """Nothing more is sent."""
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()
        self._open.clear()
