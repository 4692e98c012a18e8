"""What a file shows at one moment, and what happened between two of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ._error import StatsError
from ._file import Head, StatsFile
from ._schema import ADDABLE, Type, Value

__all__ = ["Record", "Snapshot", "delta", "take", "totals"]


class Record(Mapping[str, Value]):
    """One object: a mapping of its fields' names to values, also as attributes. See :class:`Field` for the values' types.

    `schema` describes it. `place` is where it is in the file, which links name; (place, generation) is its identity: another object that
    takes the same place has another generation.
    """

    __slots__ = ("_raw", "_snapshot", "generation", "place", "schema")

    def __init__(self, schema: Type, place: int, generation: int, raw: tuple[Any, ...], snapshot: Snapshot) -> None:
        self.schema = schema
        self.place = place
        self.generation = generation
        self._raw = raw
        self._snapshot = snapshot

    def __getitem__(self, name: str) -> Value:
        return self.schema.value(self._raw, name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.schema.value(self._raw, name)
        except KeyError:
            raise AttributeError(f"{self.schema.name} has no field {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.schema.fields)

    def __len__(self) -> int:
        return len(self.schema.fields)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self.schema.name} {dict(self)!r}>"

    def figure(self, name: str, default: int = 0) -> int:
        """An integer field; `default` where the file has no such field, or it is empty."""
        value = self.get(name)
        return value if isinstance(value, int) else default

    def linked(self, name: str) -> Record | None:
        """The object that a link field names; of several in one place that of the type `name`. None: there is none."""
        target = self.get(name)
        return self._snapshot.find(target, name) if isinstance(target, int) and target else None

    def counters(self) -> dict[str, int]:
        """The fields that only grow."""
        return {name: self._raw[self.schema.index(name)] for name, found in self.schema.fields.items() if found.kind in ADDABLE}

    def _since(self, before: Record | None, snapshot: Snapshot) -> Record:
        """The same with counters from `before` on."""
        raw = list(self._raw)
        found = self.schema.fields.items()
        counters = {self.schema.index(name): field.size for name, field in found if field.kind in ADDABLE}
        if before is not None:
            for index, size in counters.items():
                raw[index] = _grown(before._raw[index], raw[index], size)
        return Record(self.schema, self.place, self.generation, tuple(raw), snapshot)


def _grown(was: int, now: int, size: int) -> int:
    """A counter that went back was zeroed and counts from there; but short ones begin again after their greatest value."""
    if now >= was:
        return now - was
    wrapped = (now - was) % (1 << 8 * size)
    return wrapped if size < 8 and wrapped < 1 << 8 * size - 1 else now


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All objects at a moment: `taken_ns` by CLOCK_MONOTONIC, in the middle of the reading, which lasted `reading_ns`.

    `objects` holds the records by the name of their type, in the directory's order. `changing` counts entries that changed while they
    were read and are left out, `head.hidden` objects that the process had no room to show. `interval_ns` is 0, or that of
    :func:`delta`, whose counters are of the interval.
    """

    head: Head
    types: tuple[Type, ...]
    objects: dict[str, list[Record]]
    taken_ns: int
    reading_ns: int
    changing: int
    interval_ns: int
    _places: dict[int, list[Record]]

    def of(self, name: str) -> list[Record]:
        """The records of a type; none where the file does not know it."""
        return self.objects.get(name, [])

    def find(self, place: int, kind: str | None = None) -> Record | None:
        """The object of a place; of several in one place that of the type `kind`, or else the first."""
        there = self._places.get(place, [])
        for record in there:
            if record.schema.name == kind:
                return record
        return there[0] if there else None

    def type(self, name: str) -> Type | None:
        """The type of that name, with its fields' units and texts."""
        return next((item for item in self.types if item.name == name), None)

    @property
    def engine(self) -> Record | None:
        """The engine; None: the process shows none."""
        return next(iter(self.of("engine")), None)

    @property
    def sockets(self) -> list[Record]:
        """One a socket, also those left to the kernel; `linked("transport")` is its half in the stack, `linked("kernel")` the kernel's."""
        return self.of("socket")

    @property
    def rings(self) -> list[Record]:
        """One an interface."""
        return self.of("ring")

    @property
    def pools(self) -> list[Record]:
        """Buffer pools."""
        return self.of("pool")

    @property
    def epolls(self) -> list[Record]:
        """Groups that wait for sockets: poll, select, epoll, asyncio."""
        return self.of("epoll")

    @property
    def memberships(self) -> list[Record]:
        """A socket's multicast groups."""
        return self.of("membership")

    @property
    def interval_s(self) -> float:
        """Of a delta: the seconds that it covers, as measured. Otherwise 0."""
        return self.interval_ns / 1e9

    def per_second(self, record: Record, name: str) -> float:
        """Of a delta: a counter's rate. StatsError: this is no delta."""
        if not self.interval_ns:
            raise StatsError("rates are of a delta of two snapshots")
        return record.figure(name) * 1e9 / self.interval_ns


def _assemble(file: StatsFile, kept: list[tuple[Any, tuple[Any, ...]]], begun_ns: int, ended_ns: int, changing: int) -> Snapshot:
    objects: dict[str, list[Record]] = {}
    places: dict[int, list[Record]] = {}
    middle = (begun_ns + ended_ns) // 2
    snapshot = Snapshot(file.head, file.types, objects, middle, ended_ns - begun_ns, changing, 0, places)
    for entry, raw in kept:
        record = Record(entry.type, entry.offset, entry.seq, raw, snapshot)
        objects.setdefault(entry.type.name, []).append(record)
        places.setdefault(entry.offset, []).append(record)
    return snapshot


def take(file: StatsFile) -> Snapshot:
    """Reads everything. StatsError says what is wrong with the file."""
    begun = time.monotonic_ns()
    file.head = file.read_head()
    entries = sorted(file.entries(), key=lambda entry: entry.at)
    raws = file.objects(entries)
    same = file.unchanged(entries)
    ended = time.monotonic_ns()
    kept: list[tuple[Any, tuple[Any, ...]]] = []
    taken: set[tuple[str, int]] = set()
    for entry, unchanged in zip(entries, same, strict=True):
        raw = raws[entry.at]
        if not unchanged:
            continue
        if raw is None or entry.type is None:
            kind = entry.type.name if entry.type else "unknown type"
            raise file.error(f"its directory has an object ({kind}) at {entry.offset} of {file.head.valid}")
        if (identity := (entry.type.name, entry.offset)) not in taken:  # two entries for one object: the first counts
            taken.add(identity)
            kept.append((entry, raw))
    return _assemble(file, kept, begun, ended, same.count(False))


def delta(before: Snapshot, after: Snapshot) -> Snapshot:
    """What happened between two snapshots of one process: the objects of `after`, counters from `before` on, everything else as it is now.

    Objects that came in between count from 0. `interval_ns` is what really passed. StatsError: not of one process, or the wrong way round.
    """
    if (before.head.pid, before.head.start_ticks, before.head.boot_id) != (after.head.pid, after.head.start_ticks, after.head.boot_id):
        raise StatsError("a delta is of two snapshots of the same process")
    interval = after.taken_ns - before.taken_ns
    if interval <= 0:
        raise StatsError("a delta is from an earlier snapshot to a later one")
    objects: dict[str, list[Record]] = {}
    places: dict[int, list[Record]] = {}
    made = Snapshot(after.head, after.types, objects, after.taken_ns, after.reading_ns, after.changing, interval, places)
    for name, records in after.objects.items():
        was = {(record.place, record.generation): record for record in before.of(name)}
        for record in records:
            new = record._since(was.get((record.place, record.generation)), made)
            objects.setdefault(name, []).append(new)
            places.setdefault(new.place, []).append(new)
    return made


def totals(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Counters added up over the objects of each type: {"ring": {"rx_packets": 12, ...}, ...}. A type without objects has none."""
    found: dict[str, dict[str, int]] = {}
    for name, records in snapshot.objects.items():
        sums: dict[str, int] = {}
        for record in records:
            for field, value in record.counters().items():
                sums[field] = sums.get(field, 0) + value
        found[name] = sums
    return found
