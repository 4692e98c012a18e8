"""TCP segments as Ethernet frames, by hand: what an attacker sends, and what a capture of a kernel device saw.

For actors in the namespace of the device: `import tcp_frames` after `IMPORT` has run there.
"""

from __future__ import annotations

import ipaddress
import random
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

IMPORT = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport tcp_frames"

FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = (1 << bit for bit in range(8))
ETH_P_ALL = 3
PACKET_OUTGOING = 4
SEQ_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Segment:
    """`when` is CLOCK_MONOTONIC of the capture; `out` whether the kernel sent it."""

    src: str
    dst: str
    sport: int
    dport: int
    seq: int
    ack: int = 0
    flags: int = ACK
    window: int = 1024
    payload: bytes = b""
    tos: int = 0
    out: bool = False
    when: float = 0.0


def checksum(data: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) & ~1])) + (data[-1] << 8 if len(data) & 1 else 0)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(s: Segment) -> bytes:
    """The IP packet, checksums and all; a SYN says an MSS of 1460."""
    src, dst = ipaddress.ip_address(s.src), ipaddress.ip_address(s.dst)
    options = struct.pack("!BBH", 2, 4, 1460) if s.flags & SYN else b""
    offset = (20 + len(options)) << 10
    size = 20 + len(options) + len(s.payload)
    pseudo = src.packed + dst.packed + struct.pack("!II", size, socket.IPPROTO_TCP)

    def tcp(total: int) -> bytes:
        ports = struct.pack("!HHII", s.sport, s.dport, s.seq & SEQ_MASK, s.ack & SEQ_MASK)
        return ports + struct.pack("!HHHH", offset | s.flags, s.window, total, 0) + options + s.payload

    if src.version == 6:
        header = struct.pack("!IHBB", 6 << 28, size, socket.IPPROTO_TCP, 64) + src.packed + dst.packed
    else:
        header = struct.pack("!BBHHHBBH", 0x45, s.tos, 20 + size, 0, 0x4000, 64, socket.IPPROTO_TCP, 0) + src.packed + dst.packed
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return header + tcp(checksum(pseudo + tcp(0)))


def parse(frame: bytes, out: bool = False, when: float = 0.0) -> Segment | None:
    """What a frame without VLAN tag carries; None unless it is a whole TCP segment without IP options."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and frame[14:15] == b"\x45" and frame[23] == socket.IPPROTO_TCP:
        size, start, tos = struct.unpack_from("!H", frame, 16)[0] - 20, 34, frame[15]
        src, dst = frame[26:30], frame[30:34]
    elif kind == b"\x86\xdd" and frame[20] == socket.IPPROTO_TCP:
        size, start, tos = struct.unpack_from("!H", frame, 18)[0], 54, (struct.unpack_from("!H", frame, 14)[0] >> 4) & 0xFF
        src, dst = frame[22:38], frame[38:54]
    else:
        return None
    sport, dport, seq, ack, bits, window = struct.unpack_from("!HHIIHH", frame, start)
    payload = frame[start + (bits >> 12) * 4 : start + size]
    addresses = str(ipaddress.ip_address(src)), str(ipaddress.ip_address(dst))
    return Segment(*addresses, sport, dport, seq, ack, bits & 0xFF, window, payload, tos, out, when)


class Tap:
    """Sends and records on a kernel device. `peer_mac` is where frames that are sent go to."""

    def __init__(self, device: str, peer_mac: bytes = b"") -> None:
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.sock.bind((device, ETH_P_ALL))
        self.header = peer_mac + self.sock.getsockname()[4]
        self.seen: list[Segment] = []
        self.stopped = False
        self.thread: threading.Thread | None = None

    def send(self, s: Segment) -> None:
        kind = b"\x86\xdd" if ":" in s.src else b"\x08\x00"
        self.sock.send(self.header + kind + packet(s))

    def record(self, port: int) -> None:
        """Keeps the segments from or to this port that come from now on, until `stop`."""
        self.sock.settimeout(0)
        with suppress(BlockingIOError):
            while True:
                self.sock.recv(1)
        self.sock.settimeout(0.05)
        self.seen, self.stopped = [], False
        self.thread = threading.Thread(target=self._run, args=(port,), daemon=True)
        self.thread.start()

    def _run(self, port: int) -> None:
        # To the end of what was there when it was told to stop.
        while True:
            try:
                frame, address = self.sock.recvfrom(70000)
            except TimeoutError:
                if self.stopped:
                    return
                continue
            s = parse(frame, address[2] == PACKET_OUTGOING, time.monotonic())
            if s is not None and port in (s.sport, s.dport):
                self.seen.append(s)

    def stop(self) -> list[Segment]:
        """The end of recording, and what was recorded."""
        self.stopped = True
        if self.thread is not None:
            self.thread.join()
        return self.seen

    def flood(self, dst: str, port: int, count: int, network: str, seed: int) -> int:
        """SYNs from that many pairs of address and port of a network; how many the device took."""
        draw, base, sent = random.Random(seed), int(ipaddress.ip_network(network).network_address), 0
        kind = b"\x08\x00"
        for _ in range(count):
            src = str(ipaddress.ip_address(base + draw.randrange(1, 60000)))
            syn = packet(Segment(src, dst, draw.randrange(1024, 65536), port, draw.getrandbits(32), flags=SYN))
            for _ in range(1000):
                try:
                    self.sock.send(self.header + kind + syn)
                    sent += 1
                    break
                except OSError:
                    time.sleep(0.001)  # the device's queue is full
        return sent
