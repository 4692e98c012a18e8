"""A socket's figures as the classic views want them, out of its record and that of its half in the stack.

What the file does not have is None, and shown as "-".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..stats import Record, Snapshot

KB = 1024
UNLIMITED = (1 << 63) - 1


@dataclass
class Way:
    """One direction by one carrier. None: not told."""

    packets: int | None = None
    bytes: int | None = None
    eagain: int | None = None
    errors: int | None = None

    @property
    def kbytes(self) -> int | None:
        return None if self.bytes is None else self.bytes // KB

    def idle(self) -> bool:
        return not (self.packets or self.bytes or self.eagain or self.errors)


@dataclass
class Row:
    """A socket. `stack` is its udp or tcp, None for one that the kernel has alone."""

    socket: Record
    stack: Record | None
    proto: str
    rx: Way
    tx: Way
    kernel_rx: Way
    kernel_tx: Way
    queue_bytes: int | None = None
    queue_max: int | None = None
    queue_packets: int | None = None
    dropped: int | None = None
    limit: int | None = None
    retransmits: int = 0
    groups: list[Record] = field(default_factory=list)

    @property
    def fd(self) -> int | None:
        value = self.socket.get("fd")
        return value if isinstance(value, int) else None

    @property
    def offloaded(self) -> bool:
        return self.socket.get("state") == "offloaded"

    @property
    def reason(self) -> str:
        """Why it is the kernel's; empty when it is not, or nobody said."""
        linked = self.socket.linked("reason")
        return printable(linked.get("text")) if linked is not None and not self.offloaded else ""

    def hit_percent(self) -> float | None:
        return percent(self.socket.figure("poll_hits"), self.socket.figure("poll_misses"))

    def idle(self) -> bool:
        ways = (self.rx, self.tx, self.kernel_rx, self.kernel_tx)
        return all(way.idle() for way in ways) and not self.queue_bytes and not self.dropped


def percent(hits: int, misses: int) -> float | None:
    """Of all the hits; None: there was nothing."""
    return 100.0 * hits / (hits + misses) if hits + misses else None


def printable(value: Any) -> str:
    """Texts are what a program chose: nothing of them may steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(value))


def _sum(record: Record, *names: str) -> int:
    return sum(record.figure(name) for name in names)


def _told(socket: Record, name: str) -> int | None:
    return socket.figure(name) if name in socket else None


def _stack(socket: Record, way: str) -> Way:
    """What calls came to; packets and bytes are the transport's."""
    return Way(eagain=_told(socket, f"{way}_eagain"), errors=_told(socket, f"{way}_errors"))


def _kernel(socket: Record, way: str) -> Way:
    """Nothing is there before the first call that went to it."""
    kernel = socket.linked("kernel")
    if kernel is None:
        return Way(0, 0, 0, 0) if "kernel" in socket else Way()
    return Way(*(_told(kernel, f"{way}_{what}") for what in ("packets", "bytes", "eagain", "errors")))


def _udp(row: Row, udp: Record) -> None:
    """A datagram that came damaged is an error, too, though no call hears of it."""
    row.rx.packets, row.rx.bytes = udp.figure("rx_datagrams"), udp.figure("rx_bytes")
    row.rx.errors = (row.rx.errors or 0) + _sum(udp, "rx_bad_csum", "rx_short")
    row.tx.packets, row.tx.bytes = udp.figure("tx_datagrams"), udp.figure("tx_bytes")
    row.queue_packets, row.queue_bytes, row.queue_max = udp.figure("queued"), udp.figure("rx_memory"), udp.figure("rx_memory_max")
    row.dropped, row.limit = _sum(udp, "rx_queue_full", "rx_no_buf"), udp.figure("rcvbuf")


def _tcp(row: Row, tcp: Record) -> None:
    row.rx.packets, row.rx.bytes = tcp.figure("rx_data_segments"), tcp.figure("rx_bytes")
    row.tx.packets = tcp.figure("tx_data_segments")
    row.tx.bytes = max(0, tcp.figure("tx_bytes") - tcp.figure("retransmitted_bytes"))
    row.queue_bytes, row.limit = tcp.figure("rx_queue"), tcp.figure("rcvbuf")
    row.retransmits = tcp.figure("retransmits")


def _proto(socket: Record, stack: Record | None) -> str:
    kind = stack.schema.name if stack is not None else {"datagram": "udp", "stream": "tcp"}.get(str(socket.get("type")), "raw")
    return kind + ("6" if socket.get("family") == "inet6" else "")


def row_of(socket: Record, groups: dict[int, list[Record]]) -> Row:
    """The figures of one socket; `groups` by the place of their udp."""
    stack = socket.linked("transport")
    if stack is not None and stack.schema.name not in ("udp", "tcp"):
        stack = None
    ways = (_stack(socket, "rx"), _stack(socket, "tx"), _kernel(socket, "rx"), _kernel(socket, "tx"))
    row = Row(socket, stack, _proto(socket, stack), *ways)
    if stack is not None:
        (_udp if stack.schema.name == "udp" else _tcp)(row, stack)
        row.groups = groups.get(stack.place, [])
    return row


def rows_of(snapshot: Snapshot) -> list[Row]:
    """All sockets by fd; those that have none come last."""
    groups: dict[int, list[Record]] = {}
    for membership in snapshot.memberships:
        groups.setdefault(membership.figure("udp"), []).append(membership)
    found = [row_of(socket, groups) for socket in snapshot.sockets]
    return sorted(found, key=lambda row: (row.fd is None, row.fd or 0, row.socket.place))


def endpoint(record: Record, which: str) -> str:
    """ "10.0.0.1:80", "[fd00::1]:80", with * for any."""
    address, port = record.get(f"{which}_addr"), record.figure(f"{which}_port")
    unspecified = address is None or getattr(address, "is_unspecified", False)
    host = "*" if unspecified else f"[{address}]" if getattr(address, "version", 4) == 6 else str(address)
    return f"{host}:{port or '*'}"
