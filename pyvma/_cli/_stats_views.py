"""The classic views but the full one: basic, extra, multicast groups, and all sockets as netstat lists them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._stats_rows import KB, Row, Way, endpoint, percent, printable, rows_of

if TYPE_CHECKING:
    from ..stats import Record, Snapshot

RULE = "-" * 79
HEADER_EVERY = 24
LABEL = 3
WIDTHS = (10, 7, 8, 7)  # packets, Kbyte, eagain, error
PERCENT = 6
QUEUE_WIDTHS = (7, 7, 7)
KERNEL_WIDTHS = (7, 7, 7, 7)


def title(snapshot: Snapshot, state: str) -> str:
    """The first line of every report."""
    head = snapshot.head
    interval = f", per second over {snapshot.interval_s:.3f} s" if snapshot.interval_ns else ""
    ended = "" if state == "live" else f", {state}"
    return f"{printable(head.program)} (pid {head.pid}{ended}{interval})"


def remarks(snapshot: Snapshot) -> list[str]:
    """What a reader of the figures must know about them."""
    found = []
    if snapshot.head.hidden:
        found.append(f"{snapshot.head.hidden} objects are not shown: the process had no room for them")
    if snapshot.changing:
        found.append(f"{snapshot.changing} objects were changing and are left out")
    return found


def figure(snapshot: Snapshot, value: int | None) -> str:
    """A count, or what of it falls to a second."""
    if value is None:
        return "-"
    return str(round(value * 1e9 / snapshot.interval_ns) if snapshot.interval_ns else value)


def share(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _way(snapshot: Snapshot, way: Way) -> list[str]:
    return [figure(snapshot, value) for value in (way.packets, way.kbytes, way.eagain, way.errors)]


def _cells(snapshot: Snapshot, row: Row, extra: bool) -> list[list[str]]:
    queue_max = row.queue_max // KB if row.queue_max is not None else None
    queue = [str(value) if value is not None else "-" for value in (row.queue_bytes and row.queue_bytes // KB, queue_max)]
    queue.append(figure(snapshot, row.dropped))
    fd = "-" if row.fd is None else str(row.fd)
    rx = [fd, "Rx:", *_way(snapshot, row.rx), share(row.hit_percent()), *(queue if extra else ()), *_way(snapshot, row.kernel_rx)]
    tx = ["", "Tx:", *_way(snapshot, row.tx), "", *([""] * 3 if extra else ()), *_way(snapshot, row.kernel_tx)]
    return [rx, tx]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _header(snapshot: Snapshot, widths: Sequence[int], extra: bool) -> list[str]:
    per = "/s" if snapshot.interval_ns else ""
    kinds = [f"{name}{per}" for name in ("pkt", "Kbyte", "eagain", "error")]
    names = ["fd", "", *kinds, "poll%", *(("cur", "max", f"drop{per}") if extra else ()), *kinds]
    groups = [("", 2), ("total offloaded", 5), *([("queue Kbyte", 3)] if extra else ()), ("total os", 4)]
    top, at = [], 0
    for name, columns in groups:
        width = sum(widths[at : at + columns]) + columns - 1
        top.append(f" {name} ".center(width, "-") if name else " " * width)
        at += columns
    return [" ".join(top), _line(names, widths)]


def iomux_name(record: Record) -> str:
    """epoll[7], or what else waits: poll and select have no fd that the program knows."""
    kind, fd = str(record.get("kind", "epoll")), record.get("fd")
    return kind + (f"[{fd}]" if fd is not None and kind not in ("poll", "select") else "")


def _iomux(snapshot: Snapshot, record: Record) -> str:
    per = "/s" if snapshot.interval_ns else ""
    ready = f"{figure(snapshot, record.figure('events_kernel'))}/{figure(snapshot, record.figure('events_offloaded'))}"
    polled = percent(record.figure("poll_hits"), record.figure("poll_misses"))
    parts = [f"Rx Ready:{ready} [os/offload]"]
    parts += [
        f"{name}:{figure(snapshot, record.figure(field))}"
        for name, field in (("Timeouts", "timeouts"), ("Errors", "errors"))
        if record.figure(field)
    ]
    parts += [f"Poll:{share(polled, 2)}%"] if polled is not None else []
    parts += [f"Polling CPU:{share(polling_cpu(snapshot, record), 2)}%"] if polling_cpu(snapshot, record) is not None else []
    return f"{iomux_name(record)}{per} " + " ".join(parts)


def polling_cpu(snapshot: Snapshot, record: Record) -> float | None:
    """How much of a CPU went into polling: of a delta's interval, or since the engine was started."""
    if "polling" not in record:
        return None
    spent = record.figure("polling")
    lasted = snapshot.interval_ns or snapshot.taken_ns - snapshot.head.started_monotonic_ns
    return min(100.0, 100.0 * spent / lasted) if lasted > 0 else None


def basic(snapshot: Snapshot, state: str, extra: bool = False, number: int = 0) -> str:
    """Views 1 and 2; the header comes back every so many lines of the rounds before."""
    cells = [line for row in rows_of(snapshot) for line in _cells(snapshot, row, extra)]
    least = [LABEL, LABEL, *WIDTHS, PERCENT, *(QUEUE_WIDTHS if extra else ()), *KERNEL_WIDTHS]
    names = 9 if snapshot.interval_ns else 0
    least = [max(width, names) if 2 <= i < 6 or i >= len(least) - 4 else width for i, width in enumerate(least)]
    widths = [max([width, *(len(line[i]) for line in cells)]) for i, width in enumerate(least)]
    lines = [title(snapshot, state)] if not number else []
    every = max(1, HEADER_EVERY // (len(cells) + len(snapshot.epolls) + 1))
    if number % every == 0:
        lines += _header(snapshot, widths, extra)
    lines += [_line(line, widths) for line in cells]
    lines += [_iomux(snapshot, record) for record in snapshot.epolls if record.figure("waits") or not snapshot.interval_ns]
    return "\n".join([*lines, RULE])


def groups(snapshot: Snapshot, state: str) -> str:
    """View 4: who is a member of which multicast group."""
    members: dict[Any, set[str]] = {}
    for row in rows_of(snapshot):
        for membership in row.groups:
            members.setdefault(membership.get("group"), set()).add("-" if row.fd is None else str(row.fd))
    lines = [title(snapshot, state)]
    if not members:
        return "\n".join([*lines, "no multicast memberships"])
    width = max(len("group"), *(len(str(group)) for group in members))
    lines.append(f"{'group':<{width}}  fds")
    ordered = sorted(members.items(), key=lambda item: (getattr(item[0], "version", 0), item[0]))
    lines += [f"{group!s:<{width}}  {' '.join(sorted(fds, key=lambda fd: (len(fd), fd)))}" for group, fds in ordered]
    return "\n".join(lines)


NETSTAT = ("Proto", "Offloaded", "Recv-Q", "Send-Q", "Local Address", "Foreign Address", "State", "Inode", "PID/Program name")
_RIGHT = {2, 3}


def _queues(stack: Record) -> tuple[int, int]:
    listener = stack.linked("listener") if stack.get("state") == "LISTEN" else None
    if listener is not None:
        return listener.figure("accept_queue"), listener.figure("backlog")
    if stack.schema.name == "udp":
        return stack.figure("rx_memory"), 0
    return stack.figure("rx_queue"), stack.figure("tx_queue")


def _netstat_row(stack: Record | None, offloaded: str, proto: str, inode: str, who: str, kernel: Sequence[str] | None) -> list[str]:
    if stack is not None:
        queues = [str(value) for value in _queues(stack)]
        state = str(stack.get("state", ""))
        return [proto, offloaded, *queues, endpoint(stack, "local"), endpoint(stack, "remote"), state, inode, who]
    return [proto, offloaded, *(kernel or ("-", "-", "-", "-", "")), inode, who]


def _netstat_rows(snapshot: Snapshot) -> list[list[str]]:
    from ._stats_proc import KernelSockets

    kernel = KernelSockets(snapshot.head.pid)
    who = f"{snapshot.head.pid}/{printable(snapshot.head.program)}"
    found, linked = [], set()
    for row in rows_of(snapshot):
        inode = kernel.inode(row.fd)
        stack = row.stack if row.offloaded else None
        if row.stack is not None:
            linked.add(row.stack.place)
        told = kernel.find(inode) if stack is None else None
        found.append(_netstat_row(stack, "Yes" if row.offloaded else "No", row.proto, inode or "-", who, told))
    for tcp in snapshot.of("tcp"):  # connections that no socket has, or not yet
        if tcp.place not in linked:
            proto = "tcp6" if getattr(tcp.get("local_addr"), "version", 4) == 6 else "tcp"
            found.append(_netstat_row(tcp, "Yes", proto, "-", who, None))
    return found


def netstat(snapshots: Sequence[Snapshot]) -> str:
    """View 5: the sockets of all processes."""
    rows = [list(NETSTAT), *(row for snapshot in snapshots for row in _netstat_rows(snapshot))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(NETSTAT))]
    lines = [
        " ".join(cell.rjust(width) if i in _RIGHT else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
