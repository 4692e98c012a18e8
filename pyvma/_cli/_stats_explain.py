"""Why sockets are not offloaded, and where packets are lost, in plain words, with what to do about it.

Totals since the start, or with --interval what happens now.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from . import UserError
from ._help import seconds
from ._show import as_json

if TYPE_CHECKING:
    from ..stats import Process, Record, Snapshot

EXAMPLES = """examples:
  pyvma stats explain                    every process of this user
  pyvma stats explain -p 4711
  pyvma stats explain -p 4711 --interval 10    only what happens in ten seconds
  pyvma stats explain -p 4711 --json

exit status: 0 (also when there is something to explain), 1 (no such process: one line says it), 2 (options)
"""
SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-p", "--pid", type=int, default=argparse.SUPPRESS, metavar="PID", help="only this process (default: all)")
    parser.add_argument("-k", "--directory", default=argparse.SUPPRESS, metavar="DIRECTORY", help="where processes keep their files")
    parser.add_argument("--interval", type=seconds(0.01), default=argparse.SUPPRESS, metavar="S", help="look twice, so many seconds apart")
    parser.add_argument("--all", action="store_true", dest="explain_all", help="also what is counted and harmless")
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as JSON")


@dataclass
class Group:
    """Sockets that are the kernel's, or undecided, for one reason."""

    state: str
    reason: str
    remedy: str
    fds: list[int | None] = field(default_factory=list)


@dataclass
class Loss:
    """One counter that says something was lost, and on what."""

    where: str
    counter: str
    count: int
    share: float | None
    """Of what came or went there; None: that is not known."""
    cause: str
    remedy: str
    harmless: bool


@dataclass
class Explanation:
    """All about one process."""

    pid: int
    program: str
    sockets: int
    offloaded: int
    interval_s: float
    groups: list[Group]
    losses: list[Loss]
    notes: list[str]


def _remedy(reason: str) -> str:
    from ._stats_causes import REASONS

    return next((text for begins, text in REASONS if begins in reason), "`pyvma doctor` says what works here and what does not")


def _reason(item: Record) -> str:
    found = item.linked("reason")
    if found is not None and found.get("text"):
        return str(found["text"]).strip()
    if item.get("state") == "undecided":
        return "not decided yet: no bind, connect or send so far"
    return "the kernel serves this kind of socket"


def groups_of(snapshot: Snapshot) -> list[Group]:
    """Those sockets, the largest group first."""
    found: dict[tuple[str, str], Group] = {}
    for item in snapshot.sockets:
        state = str(item.get("state", "offloaded"))
        if state == "offloaded":
            continue
        reason = _reason(item)
        group = found.setdefault((state, reason), Group(state, reason, _remedy(reason)))
        fd = item.get("fd")
        group.fds.append(fd if isinstance(fd, int) else None)
    return sorted(found.values(), key=lambda group: -len(group.fds))


def _name(record: Record, owners: dict[int, Record], rings: dict[int, str]) -> str:
    kind = record.schema.name
    if kind == "ring":
        return f"ring {record.get('interface') or record.get('name') or '?'}"
    if kind == "pool":
        return f"buffers of {rings.get(record.place, '?')}"
    if kind in ("udp", "tcp"):
        owner = owners.get(record.place)
        fd = owner.get("fd") if owner is not None else None
        local = f"{record.get('local_addr')} port {record.figure('local_port')}"
        return f"{kind} socket{f' fd {fd}' if fd is not None else ''} ({local})"
    return {"net": "network layer", "udp_table": "UDP", "tcp_table": "TCP"}.get(kind, kind)


def _by_ring(snapshot: Snapshot, record: Record, counter: str) -> str:
    """Which rings brought what the network layer dropped, where there are several."""
    if record.schema.name != "net" or len(snapshot.rings) < 2:
        return ""
    told = [(ring.figure(counter), ring.get("interface")) for ring in snapshot.rings if counter in ring and ring.figure(counter)]
    return f" ({', '.join(f'{interface}: {count}' for count, interface in sorted(told, key=str))})" if told else ""


def losses_of(snapshot: Snapshot, everything: bool = False) -> list[Loss]:
    """What was lost, the most first; of the kinds whose sum a table keeps, those of the sockets are named beside it."""
    from ._stats_causes import BROKEN, HARMLESS, advice_for, is_loss, share_of

    owners = {half.place: item for item in snapshot.sockets if (half := item.linked("transport")) is not None}
    rings = {pool.place: str(ring.get("interface")) for ring in snapshot.rings if (pool := ring.linked("pool")) is not None}
    found = []
    for kind in snapshot.types:
        counters = [item for item in kind.fields.values() if is_loss(kind.name, item)]
        for record in snapshot.of(kind.name) if counters else ():
            for item in counters:
                count = record.figure(item.name)
                harmless = (kind.name, item.name) in HARMLESS
                if not count or (harmless and not everything):
                    continue
                advice = advice_for(kind.name, item.name)
                cause = advice.cause if advice else item.help
                remedy = advice.remedy if advice else BROKEN if item.name.startswith("rx_") else "nothing is known about it here"
                share = share_of(record, item.name)
                name = _name(record, owners, rings) + _by_ring(snapshot, record, item.name)
                found.append(Loss(name, item.name, count, share, cause, remedy, harmless))
    return sorted(found, key=lambda loss: -loss.count)


def _notes(snapshot: Snapshot, state: str) -> list[str]:
    notes = []
    if state == "stopped":
        notes.append("its engine was stopped: the figures are final, and new sockets are the kernel's")
    if snapshot.head.hidden:
        notes.append(f"{snapshot.head.hidden} objects are not shown: there was no room for them in the statistics directory")
    down = [ring for ring in snapshot.rings if not ring.get("link_up", True)]
    notes += [f"ring {ring.get('interface')}: its link is down, or its device is gone" for ring in down]
    for pool in snapshot.pools:
        total = pool.figure("total")
        if total and pool.figure("low_water") == 0:
            notes.append(f"a pool of {total} buffers was empty at least once: raise rx_bufs and buf_max")
    return notes


def explain(snapshot: Snapshot, state: str = "live", everything: bool = False) -> Explanation:
    """About one process, by a snapshot or a delta of two."""
    offloaded = sum(item.get("state", "offloaded") == "offloaded" for item in snapshot.sockets)
    return Explanation(
        snapshot.head.pid, snapshot.head.program, len(snapshot.sockets), offloaded, snapshot.interval_s, groups_of(snapshot),
        losses_of(snapshot, everything), _notes(snapshot, state),
    )  # fmt: skip


def _fds(fds: list[int | None]) -> str:
    known = sorted(fd for fd in fds if fd is not None)
    listed = ", ".join(map(str, known[:SHOWN]))
    more = len(fds) - min(len(known), SHOWN)
    return f"fd {listed}{f' and {more} more' if more else ''}" if known else f"{len(fds)} without an fd"


def _print(found: Explanation) -> None:
    over = f" in {found.interval_s:.1f} s" if found.interval_s else " since its start"
    print(f"process {found.pid} ({found.program}): {found.offloaded} of {found.sockets} sockets are offloaded")
    for note in found.notes:
        print(f"  note: {note}")
    for group in found.groups:
        print(f"  {len(group.fds)} {group.state}: {group.reason} ({_fds(group.fds)})")
        print(f"    -> {group.remedy}")
    if not found.losses:
        print(f"  nothing was lost{over}")
    for loss in found.losses:
        share = f", {loss.share:.3%} of what came by" if loss.share is not None else ""
        print(f"  {loss.where}: {loss.counter} {loss.count}{over}{share}{' (harmless)' if loss.harmless else ''}: {loss.cause}")
        print(f"    -> {loss.remedy}")


def _explained(which: list[int | str], directory: str | None, interval: float | None, everything: bool) -> list[Explanation]:
    """Each of them; of several, one that ends meanwhile or cannot be read is a line on stderr."""
    from ..stats import StatsError, attach, delta

    @contextlib.contextmanager
    def tolerant() -> Iterator[None]:
        try:
            yield
        except StatsError as error:
            if len(which) == 1:
                raise
            print(f"pyvma stats explain: {error}", file=sys.stderr)

    opened: list[tuple[Process, Snapshot | None]] = []
    found = []
    with contextlib.ExitStack() as files:
        for item in which:
            with tolerant():
                process = files.enter_context(attach(item, directory))
                opened.append((process, process.snapshot() if interval is not None else None))
        if interval is not None:
            time.sleep(interval)
        for process, before in opened:
            with tolerant():
                now = process.snapshot()
                found.append(explain(now if before is None else delta(before, now), process.state, everything))
    return found


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or UserError."""
    from ..stats import processes

    interval = arguments.interval
    pid, directory = arguments.pid, arguments.directory
    which: list[int | str] = [pid] if pid is not None else [item.path for item in processes(directory)]
    if not which:
        raise UserError("no process on pyvma")
    found = _explained(which, directory, interval, arguments.explain_all)
    if arguments.json:
        as_json([asdict(item) for item in found])
    else:
        for item in found:
            _print(item)
    return 0
