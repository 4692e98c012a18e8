"""The full view: a block for each socket, set of sockets, ring and pool. What is all zero is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._stats_causes import DROPS
from ._stats_rows import KB, UNLIMITED, Row, Way, endpoint, percent, printable, rows_of
from ._stats_views import figure, iomux_name, polling_cpu, share, title

if TYPE_CHECKING:
    from ..stats import Record, Snapshot

BLOCK = "=" * 54
NAME = 21
MS = 1e6
STATES = {"offloaded": "Offloaded", "kernel": "Not offloaded", "undecided": "Not decided yet", "lost": "Lost: the engine was stopped"}


def _fact(name: str, text: str) -> str:
    return f"{name + ':':<{NAME}}{text}"


def _figures(snapshot: Snapshot, name: str, values: Sequence[int | None], labels: str, always: bool = False) -> list[str]:
    """name:   1 / 2 [kilobytes/packets]; figures that are not told are left out with their labels."""
    told = [(value, label) for value, label in zip(values, labels.split("/"), strict=True) if value is not None]
    if not always and not any(value for value, _ in told):
        return []
    text = " / ".join(figure(snapshot, value) for value, _ in told)
    per = " a second" if snapshot.interval_ns else ""
    return [_fact(name, f"{text} [{'/'.join(label for _, label in told)}{per}]")]


def _now(name: str, values: Sequence[int | None], labels: str) -> list[str]:
    told = [(value, label) for value, label in zip(values, labels.split("/"), strict=True) if value is not None]
    if not any(value for value, label in told if label != "limit"):
        return []
    return [_fact(name, f"{' / '.join(str(value) for value, _ in told)} [{'/'.join(label for _, label in told)}]")]


def _way(snapshot: Snapshot, name: str, way: Way) -> list[str]:
    return _figures(snapshot, name, (way.kbytes, way.packets, way.eagain, way.errors), "kilobytes/packets/eagains/errors")


def _ring_of(snapshot: Snapshot, stack: Record) -> str:
    """The interface whose ring a connected one sends by; empty: none, or the file does not say."""
    number = stack.figure("interface")
    found = [ring for ring in snapshot.rings if number and ring.figure("index") == number and not ring.figure("master")]
    return printable(found[0].get("interface", "?")) if found else ""


def _identity(snapshot: Snapshot, row: Row) -> list[str]:
    socket, stack = row.socket, row.stack
    blocking = "non-blocked" if socket.get("nonblocking") else "blocked"
    state = f", {stack.get('state')}" if stack is not None and stack.schema.name == "tcp" else ""
    lines = [f"- {row.proto.upper()}, {blocking}{state}"]
    held = STATES.get(str(socket.get("state")), str(socket.get("state")))
    lines.append(f"- {held}" + (f": {row.reason}" if row.reason else ""))
    if stack is not None:
        lines.append(f"- Local Address   = [{endpoint(stack, 'local')}]")
        if stack.figure("remote_port"):
            lines.append(f"- Foreign Address = [{endpoint(stack, 'remote')}]")
        if ring := _ring_of(snapshot, stack):
            lines.append(f"- Ring            = [{ring}]")
    lines += [f"- Member of       = [{membership.get('group')}]" for membership in row.groups]
    if socket.get("stamps", "none") != "none":
        lines.append(f"- Time stamps     = [{socket['stamps']}]")
    threads = [(name, socket.figure(f"{way}_thread")) for name, way in (("Rx", "rx"), ("Tx", "tx"))]
    if any(thread for _, thread in threads):
        lines.append("- Thread Id       " + ", ".join(f"{name}: {thread}" for name, thread in threads if thread))
    return lines


def _path(tcp: Record) -> list[str]:
    """Of a connection."""
    lines = []
    if tcp.figure("srtt"):
        least = tcp.figure("min_rtt")
        lines.append(
            _fact(
                "Round trip",
                f"{tcp.figure('srtt') / MS:.3f} / {tcp.figure('rttvar') / MS:.3f} / {'-' if least >= UNLIMITED else f'{least / MS:.3f}'}"
                " [smoothed/deviation/least, ms]",
            )
        )
    lines += _now("Cwnd", (tcp.figure("cwnd"), tcp.figure("ssthresh"), tcp.figure("in_flight")), "segments/ssthresh/in flight")
    return lines


def _socket(snapshot: Snapshot, row: Row) -> list[str]:
    lines = [BLOCK, f"\tFd=[{'-' if row.fd is None else row.fd}]", *_identity(snapshot, row)]
    stack = row.stack
    moved = [
        *_way(snapshot, "Tx Offload", row.tx),
        *_way(snapshot, "Tx OS info", row.kernel_tx),
        *_way(snapshot, "Rx Offload", row.rx),
        *_way(snapshot, "Rx OS info", row.kernel_rx),
    ]
    if row.queue_packets is not None:
        moved += _now("Rx byte", (row.queue_bytes, row.queue_max, row.limit), "cur/max/limit")
        moved += _now("Rx pkt", (row.queue_packets,), "cur")
        moved += _figures(snapshot, "Rx dropped", (row.dropped,), "packets")
    elif stack is not None:
        moved += _now("Rx byte", (row.queue_bytes, stack.figure("rx_out_of_order"), row.limit), "cur/out of order/limit")
        moved += _now("Tx byte", (stack.figure("tx_queue"), stack.figure("sndbuf")), "cur/limit")
    hits, misses = row.socket.figure("poll_hits"), row.socket.figure("poll_misses")
    if hits + misses:
        moved.append(
            _fact(
                "Rx poll",
                f"{figure(snapshot, misses)} / {figure(snapshot, hits + misses)} ({share(percent(hits, misses), 2)}%) [miss/total, hit]",
            )
        )
    if row.retransmits:
        moved.append(_fact("Retransmissions", figure(snapshot, row.retransmits)))
    if stack is not None and stack.schema.name == "tcp":
        moved += _path(stack)
    return lines + (["Rx and Tx were not active"] if row.idle() else moved)


def _iomux(snapshot: Snapshot, record: Record) -> list[str]:
    hits, misses = record.figure("poll_hits"), record.figure("poll_misses")
    lines = [BLOCK, f"\t{iomux_name(record)}"]
    if record.figure("thread"):
        lines.append(_fact("Thread Id", str(record.figure("thread"))))
    cpu = polling_cpu(snapshot, record)
    if cpu is not None:
        lines.append(_fact("Polling CPU", f"{share(cpu, 2)}%"))
    lines += _now("Members", (record.figure("kernel_fds"), record.figure("sockets")), "os/offload")
    lines += _figures(snapshot, "Rx fds ready", (record.figure("events_kernel"), record.figure("events_offloaded")), "os/offload")
    if hits + misses:
        text = f"{figure(snapshot, misses)} / {figure(snapshot, hits)} ({share(percent(hits, misses), 2)}%) [miss/hit]"
        lines.append(_fact("Polls", text))
    for name, field in (("Timeouts", "timeouts"), ("Errors", "errors")):
        if record.figure(field):
            lines.append(_fact(name, figure(snapshot, record.figure(field))))
    return lines


def _queue(snapshot: Snapshot, number: int, ring: Record) -> list[str]:
    """The completion queue of a ring."""
    lines = [BLOCK, f"\tCQ=[{number}]"]
    lines.append(_fact("Packets dropped", figure(snapshot, ring.figure("rx_no_buf"))))
    lines.append(_fact("Queue depth", f"{ring.figure('rx_depth')} / {ring.figure('tx_depth')} [rx/tx]"))
    lines.append(_fact("Drained max", str(ring.figure("rx_drained_max"))))
    pool = ring.linked("pool")
    if pool is not None:
        lines.append(_fact("Buffer pool size", str(pool.figure("free"))))
    return lines


def _beside(snapshot: Snapshot, ring: Record) -> list[str]:
    """Receive queues of sockets' own."""
    lines = []
    for queue in snapshot.of("rxq"):
        of = queue.linked("ring")
        if of is not None and of.place == ring.place:
            values = (queue.figure("bytes") // KB, queue.figure("packets"))
            lines += _figures(snapshot, f"Rx Queue {queue.get('number')}", values, "kilobytes/packets", always=True)
    return lines


def _is_tap(ring: Record) -> bool:
    return str(ring.get("name", "")).startswith("tap:")


def _is_bond(ring: Record) -> bool:
    """The ring of several legs, which have queues of their own."""
    return str(ring.get("name", "")).startswith("bond:")


def _ring(snapshot: Snapshot, number: int, ring: Record) -> list[str]:
    tap = _is_tap(ring)
    lines = [BLOCK, f"\t{'RING_TAP' if tap else 'RING_BOND' if _is_bond(ring) else 'RING_ETH'}=[{number}]"]
    if ring.get("interface"):
        lines.append(
            _fact(
                "Interface",
                f"{printable(ring['interface'])}, {printable(ring.get('name', ''))}" + ("" if ring.get("link_up", True) else ", down"),
            )
        )
    if ring.figure("master"):
        lines.append(_fact("Master", f"{ring.figure('master'):#x}" + (", active" if ring.get("active") else "")))
    elif _is_bond(ring):
        lines.append(_fact("Master of", f"{ring.place:#x}"))
    for name, way in (("Tx Offload", "tx"), ("Rx Offload", "rx")):
        values = (ring.figure(f"{way}_bytes") // KB, ring.figure(f"{way}_packets"))
        lines += _figures(snapshot, name, values, "kilobytes/packets", always=True)
    lines += _figures(snapshot, "Errors", (ring.figure("rx_errors"), ring.figure("tx_errors")), "rx/tx")
    drops = [(ring.figure(name), name) for name in DROPS if ring.figure(name)]
    if drops:
        lines += _figures(snapshot, "Rx dropped", [count for count, _ in drops], "/".join(name for _, name in drops))
    lines += _figures(snapshot, "Send queue full", (ring.figure("tx_full"),), "posts")
    if tap:
        lines.append(_fact("Rx Buffers", str(ring.figure("rx_buffers"))))
        lines.append(_fact("VF Plugouts", str(ring.figure("vf_plugouts"))))
        lines.append(_fact("Tap fd", str(ring.get("tap_fd", "-"))))
        lines.append(_fact("Tap Device", printable(ring.get("tap_device", "-"))))
    else:
        lines += _device(snapshot, ring) + _beside(snapshot, ring)
    if ring.figure("retransmits"):
        lines.append(_fact("Retransmissions", figure(snapshot, ring.figure("retransmits"))))
    return lines


def _device(snapshot: Snapshot, ring: Record) -> list[str]:
    asked = ring.figure("interrupts_asked") if "interrupts_asked" in ring else None
    lines = _figures(snapshot, "Interrupts", (asked, ring.figure("interrupts")), "requests/received")
    lines += _now("Moderation", (ring.figure("moderation_frames"), ring.figure("moderation_us")), "frames/usec")
    if ring.get("stamps", "off") != "off":
        lines.append(_fact("Time stamps", str(ring["stamps"])))
    if ring.figure("dm_alloc"):
        lines.append(_fact("Dev Mem Alloc", str(ring.figure("dm_alloc"))))
        values = (ring.figure("dm_bytes") // KB, ring.figure("dm_packets"), ring.figure("dm_oob"))
        lines += _figures(snapshot, "Dev Mem Stats", values, "kilobytes/packets/oob", always=True)
    return lines


def _pool(snapshot: Snapshot, number: int, pool: Record) -> list[str]:
    return [
        BLOCK,
        f"\tBUFFER_POOL=[{number}]",
        _fact("Size", f"{pool.figure('total')} / {pool.figure('free')} / {pool.figure('low_water')} [all/free/fewest free]"),
        _fact("No buffers error", figure(snapshot, pool.figure("exhausted"))),
    ]


def full(snapshot: Snapshot, state: str) -> str:
    """View 3."""
    lines = [title(snapshot, state)]
    for row in rows_of(snapshot):
        lines += _socket(snapshot, row)
    for record in snapshot.epolls:
        lines += _iomux(snapshot, record)
    for number, ring in enumerate(snapshot.rings):
        if not _is_tap(ring) and not _is_bond(ring):
            lines += _queue(snapshot, number, ring)
    for number, ring in enumerate(snapshot.rings):
        lines += _ring(snapshot, number, ring)
    for number, pool in enumerate(snapshot.pools):
        lines += _pool(snapshot, number, pool)
    return "\n".join([*lines, BLOCK])
