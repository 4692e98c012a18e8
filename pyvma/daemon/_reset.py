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
MOST = 4096  # connections of a user
SENT_MOST = 512  # in a turn
READ_MOST = 1024
IPV6_CHECKSUM = 7
SYN, RST, ACK = 0x02, 0x04, 0x10
SEGMENT = struct.Struct(">HHIIBBHHH")

Ends = tuple[bytes, int, bytes, int]


@dataclass(slots=True)
class _Reset:
    flow: Flow
    user: int
    sequence: int
    tries: int = 0
    due: float = 0.0


def _ends(flow: Flow) -> Ends:
    return flow.dst, flow.dst_port, flow.src, flow.src_port


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
        self._open: dict[Ends, _Reset] = {}
        self._counts: dict[int, int] = {}  # by user
        self._sockets: dict[bytes, socket.socket] = {}
        self.sent = 0

    def begin(self, user: int, flows: Iterable[Flow]) -> None:
        """After the flows' rules were deleted, or about to be in this turn. What is over the limit of the user's is left out."""
        for flow in flows:
            count = self._counts.get(user, 0)
            if count >= MOST:
                self._log.limited(("resets", user), f"user {user}: only {MOST} peers of dead processes are told at a time")
                return
            if _ends(flow) not in self._open:
                self._open[_ends(flow)] = _Reset(flow, user, int.from_bytes(os.urandom(4), "big"))
                self._counts[user] = count + 1

    def forget(self, flow: Flow) -> None:
        """There is a new connection with these ends, or the old one is settled."""
        reset = self._open.pop(_ends(flow), None)
        if reset:
            count = self._counts.pop(reset.user) - 1
            if count:
                self._counts[reset.user] = count

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
        now, sent = time.monotonic(), 0
        for reset in list(self._open.values()):
            if now < reset.due:
                continue
            if reset.tries == TRIES:
                self.forget(reset.flow)
                continue
            if sent == SENT_MOST:
                break
            sent += 1
            reset.tries += 1
            reset.due = now + self._interval_s
            self._send(reset.flow, reset.sequence, SYN)
        if not self._open:
            self.close()

    def _read(self, address: bytes) -> None:
        sock = self._sockets[address]
        for _ in range(READ_MOST):
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
        reset = self._open.get((dst, dst_port, src, src_port))
        if reset is None or not flags & (ACK | RST):
            return
        if flags & ACK and not flags & (RST | SYN):
            self._send(reset.flow, ack, RST)
            self.sent += 1
            self._log.limited(("reset", reset.user), f"{reset.flow}: the process died, its peer is told")
        self.forget(reset.flow)

    def close(self) -> None:
        """Nothing more is sent."""
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()
        self._open.clear()
        self._counts.clear()
