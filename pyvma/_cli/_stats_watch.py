"""What the full-screen view shows, without a screen: rows of processes, rings and sockets with rates, and their history."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..stats import Process, Record, Snapshot, StatsError, attach, delta, processes
from ._stats_causes import HARMLESS, is_loss

__all__ = ["PROCESSES", "RINGS", "SOCKETS", "Cell", "Column", "Row", "Watch", "details", "figure", "sorted_rows", "sparkline"]

HISTORY = 120
# Sockets beyond have no history of their own.
TRACKED = 4000
BARS = " ▁▂▃▄▅▆▇█"
SPARK = 12
# Where a process loses something, each loss in one place: what sockets lose is in their tables, and a pool that has no buffer is told by
# whoever asked.
LOSING = ("net", "udp_table", "tcp_table", "ring")
Cell = int | float | str | None


@dataclass(frozen=True)
class Column:
    """`rate`: a figure a second, shown short; `history`: a row's curve, by whose last value it is sorted."""

    name: str
    rate: bool = False
    number: bool = False
    history: bool = False


PROCESSES = (
    Column("pid", number=True), Column("program"), Column("state"), Column("sockets", number=True), Column("offloaded", number=True),
    Column("rx/s", rate=True), Column("tx/s", rate=True), Column("rx B/s", rate=True), Column("tx B/s", rate=True),
    Column("loss/s", rate=True), Column("rx+tx", history=True),
)  # fmt: skip
RINGS = (
    Column("interface"), Column("link"), Column("rx/s", rate=True), Column("rx B/s", rate=True), Column("tx/s", rate=True),
    Column("tx B/s", rate=True), Column("loss/s", rate=True), Column("rx total", number=True), Column("tx total", number=True),
    Column("ring"), Column("rx+tx", history=True),
)  # fmt: skip
SOCKETS = (
    Column("fd", number=True), Column("kind"), Column("local"), Column("remote"), Column("who"), Column("rx/s", rate=True),
    Column("tx/s", rate=True), Column("rx B/s", rate=True), Column("tx B/s", rate=True), Column("loss/s", rate=True),
    Column("queued", number=True), Column("rtt us", number=True), Column("rx+tx", history=True),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A line of a table: its cells by column, and what it is of."""

    key: str
    cells: tuple[Cell, ...]
    history: tuple[float, ...] = ()
    record: Record | None = None


@dataclass
class _Watched:
    process: Process
    last: Snapshot | None = None
    rates: Snapshot | None = None
    state: str = "live"
    why: str = ""
    round: int = 0
    history: dict[str, deque[float]] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)

    def remember(self, key: str, value: float) -> tuple[float, ...]:
        """A key's values, with this one once a round."""
        kept = self.history.get(key)
        if kept is None:
            if len(self.history) > TRACKED:
                return ()
            kept = self.history[key] = deque(maxlen=HISTORY)
        if self.told.get(key) != self.round:
            self.told[key] = self.round
            kept.append(value)
        return tuple(kept)

    def forget(self, alive: set[str]) -> None:
        """All but these."""
        for key in [key for key in self.history if key not in alive]:
            del self.history[key]
            self.told.pop(key, None)


def key_of(record: Record) -> str:
    """An object's, as long as it lives."""
    return f"{record.schema.name}-{record.place}-{record.generation}"


def sparkline(values: Sequence[float], width: int = SPARK) -> str:
    """The last values as bars, between nothing and the greatest of them."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    bars = "".join(BARS[0 if value <= 0 else max(1, min(8, math.ceil(value / top * 8)))] for value in shown)
    return bars.rjust(width)


def figure(value: float) -> str:
    """Short, with four figures at most: 12.3k."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{value:.0f}" if not unit and (value >= 100 or value == int(value)) else f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}P"


def sorted_rows(rows: list[Row], column: int, descending: bool, text: str = "") -> list[Row]:
    """By one column, those without a value last; only rows that have `text` in a cell."""
    wanted = text.lower()
    kept = [row for row in rows if not wanted or any(wanted in str(cell).lower() for cell in row.cells if cell is not None)]

    def value(row: Row) -> Any:
        cell = row.cells[column]
        return (1, 0.0, cell.lower()) if isinstance(cell, str) else (0, float(cell or 0), "")

    there = sorted((row for row in kept if row.cells[column] is not None), key=value, reverse=descending)
    return there + [row for row in kept if row.cells[column] is None]


def _losses(record: Record) -> int:
    kind = record.schema.name
    return sum(
        record.figure(found.name)
        for found in record.schema.fields.values()
        if found.kind == "counter" and is_loss(kind, found) and (kind, found.name) not in HARMLESS
    )


def _endpoint(record: Record | None, side: str) -> str:
    if record is None or not record.figure(f"{side}_port"):
        return "-"
    address = str(record.get(f"{side}_addr"))
    return f"{'*' if address in ('::', '0.0.0.0') else address}:{record.figure(f'{side}_port')}"


class Watch:
    """Live processes: all of a directory, or one. `update` looks again; the rest tells what was found then."""

    def __init__(self, directory: str | None = None, pid: int | None = None) -> None:
        self.directory = directory
        self.pid = pid
        self.trouble = ""
        self._watched: dict[int, _Watched] = {}

    def close(self) -> None:
        """Closes the files."""
        for watched in self._watched.values():
            watched.process.close()
        self._watched.clear()

    def update(self) -> None:
        """Takes a snapshot of each process; new ones come, those that have ended stay for a round, marked as dead."""
        self.trouble = ""
        for pid in [pid for pid, watched in self._watched.items() if watched.state == "dead"]:
            self._watched.pop(pid).process.close()
        self._find()
        for watched in self._watched.values():
            try:
                now = watched.process.snapshot()
                watched.state = watched.process.state
            except StatsError as error:
                watched.state, watched.why = "dead", str(error)
                continue
            try:
                watched.rates = delta(watched.last, now) if watched.last is not None else None
            except StatsError:
                watched.rates = None
            watched.last = now
            watched.round += 1
            watched.forget({key_of(record) for record in (*now.sockets, *now.rings)} | {"process"})

    def _find(self) -> None:
        try:
            found: list[int | str] = [self.pid] if self.pid is not None else [item.path for item in processes(self.directory)]
        except StatsError as error:
            self.trouble = str(error)
            return
        known: set[int | str] = {watched.process.path for watched in self._watched.values()} | set(self._watched)
        for which in found:
            if which in known:
                continue
            with suppress(StatsError):
                process = attach(which, self.directory)
                if process.state == "dead" or process.pid in self._watched:
                    process.close()
                else:
                    self._watched[process.pid] = _Watched(process)

    def state(self, pid: int) -> str:
        """ "live", "stopped", "dead", or "gone"."""
        watched = self._watched.get(pid)
        return watched.state if watched is not None else "gone"

    def snapshot(self, pid: int) -> tuple[Snapshot, Snapshot | None] | None:
        """Totals and, from the second round on, rates; None: nothing is known of that process."""
        watched = self._watched.get(pid)
        return (watched.last, watched.rates) if watched is not None and watched.last is not None else None

    def find(self, pid: int, key: str) -> tuple[Record, Record | None, tuple[float, ...]] | None:
        """One object: totals, rates, history."""
        taken = self.snapshot(pid)
        if taken is None:
            return None
        kind = key.partition("-")[0]
        total = next((record for record in taken[0].of(kind) if key_of(record) == key), None)
        if total is None:
            return None
        rates = None if taken[1] is None else next((record for record in taken[1].of(kind) if key_of(record) == key), None)
        return total, rates, tuple(self._watched[pid].history.get(key, ()))

    def processes(self) -> list[Row]:
        """A row a process, in the columns PROCESSES."""
        rows = []
        for pid, watched in sorted(self._watched.items()):
            last, rates = watched.last, watched.rates
            if last is None:
                continue
            sums = [0.0] * 5
            if rates is not None:
                # What the sockets moved: rings do not see what a process sends to itself.
                for table in (*rates.of("udp_table"), *rates.of("tcp_table")):
                    unit = "segments" if table.schema.name == "tcp_table" else "datagrams"
                    for i, name in enumerate((f"rx_{unit}", f"tx_{unit}", "rx_bytes", "tx_bytes")):
                        sums[i] += rates.per_second(table, name)
                sums[4] = sum(_losses(record) for kind in LOSING for record in rates.of(kind)) / rates.interval_s
            offloaded = sum(item.get("state") == "offloaded" for item in last.sockets)
            history = watched.remember("process", sums[0] + sums[1]) if rates is not None else ()
            cells = (
                pid,
                watched.process.program or "?",
                watched.state,
                len(last.sockets),
                offloaded,
                *sums,
                history[-1] if history else None,
            )
            rows.append(Row(str(pid), cells, history))
        return rows

    def rings(self, pid: int) -> list[Row]:
        """A row a ring of a process, in the columns RINGS."""
        taken = self.snapshot(pid)
        if taken is None:
            return []
        last, rates = taken
        moved = {key_of(ring): ring for ring in rates.rings} if rates is not None else {}
        rows = []
        for ring in last.rings:
            key = key_of(ring)
            change = moved.get(key)
            figures = [self._rate(rates, change, name) for name in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")]
            lost = _losses(change) / rates.interval_s if change is not None and rates is not None else None
            history = self._watched[pid].remember(key, (figures[0] or 0) + (figures[2] or 0)) if change is not None else ()
            link = "up" if ring.get("link_up", True) else "down"
            totals = (ring.figure("rx_packets"), ring.figure("tx_packets"))
            name = str(ring.get("interface") or ring.get("name") or "?")
            cells = (name, link, *figures, lost, *totals, str(ring.get("name", "")), history[-1] if history else None)
            rows.append(Row(key, cells, history, ring))
        return rows

    @staticmethod
    def _rate(rates: Snapshot | None, record: Record | None, name: str) -> float | None:
        return rates.per_second(record, name) if rates is not None and record is not None else None

    def sockets(self, pid: int) -> list[Row]:
        """A row a socket of a process, in the columns SOCKETS."""
        taken = self.snapshot(pid)
        if taken is None:
            return []
        last, rates = taken
        moved = {key_of(item): item for item in rates.sockets} if rates is not None else {}
        return [self._socket(pid, item, moved.get(key_of(item)), rates) for item in last.sockets]

    def _socket(self, pid: int, item: Record, change: Record | None, rates: Snapshot | None) -> Row:
        half = item.linked("transport")
        kind = str(item.get("type", "?"))
        queued: int | None = None
        rtt: int | None = None
        if half is not None and half.schema.name == "tcp":
            kind = f"tcp {half.get('state', '')}"
            queued = half.figure("rx_queue")
            rtt = half.figure("srtt") // 1000 or None
        elif half is not None:
            kind, queued = "udp", half.figure("queued")
        figures: list[float | None] = [None] * 5
        if change is not None and rates is not None:
            figures = self._moved(change, rates.interval_s)
        key = key_of(item)
        history = self._watched[pid].remember(key, (figures[0] or 0) + (figures[1] or 0)) if change is not None else ()
        fd = item.get("fd")
        cells = (
            fd if isinstance(fd, int) else None, kind, _endpoint(half, "local"), _endpoint(half, "remote"), str(item.get("state", "?")),
            *figures, queued, rtt, history[-1] if history else None,
        )  # fmt: skip
        return Row(key, cells, history, item)

    @staticmethod
    def _moved(change: Record, seconds: float) -> list[float | None]:
        """Packets and bytes both ways by stack and kernel together, and losses, a second."""
        half, kernel = change.linked("transport"), change.linked("kernel")
        sums = [kernel.figure(name) if kernel is not None else 0 for name in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")]
        lost = 0
        if half is not None:
            unit = "segments" if half.schema.name == "tcp" else "datagrams"
            for i, name in enumerate((f"rx_{unit}", f"tx_{unit}", "rx_bytes", "tx_bytes")):
                sums[i] += half.figure(name)
            lost = _losses(half)
        return [value / seconds for value in (*sums, lost)]


def _shown(value: Any, unit: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value} {unit}" if unit else str(value)


def details(total: Record, rates: Record | None, interval_s: float) -> list[tuple[str, str, str, str]]:
    """Every field of an object and its halves: name, value, a second, meaning."""
    rows = []
    parts = [(total, rates)]
    for link in ("transport", "pool", "reason", "listener"):
        for record, change in list(parts):
            half = record.linked(link)
            if half is not None and all(half.place != known.place for known, _ in parts):
                parts.append((half, change.linked(link) if change is not None else None))
    for record, change in parts:
        for name, found in record.schema.fields.items():
            if found.kind == "link":
                continue
            value: Any = record[name]
            if found.kind == "time":
                value = "never" if not value else f"{max(0.0, time.monotonic() - int(value) / 1e9):.1f} s ago"
            rate = ""
            if found.kind == "counter" and change is not None and interval_s > 0:
                rate = figure(change.figure(name) / interval_s)
            label = name if record is total else f"{record.schema.name}.{name}"
            rows.append((label, _shown(value, "" if found.kind == "time" else found.unit), rate, found.help))
    return rows
