"""The statistics of live processes as metrics of Prometheus and OpenMetrics, for `prometheus_client` (the extra `pyvma[metrics]`).

    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector())
    prometheus_client.start_http_server(9716, registry=registry)

A field is `pyvma_<type>_<field>_<unit>`, a counter with `_total` behind it; the file's schema has the names, units and texts. Times are
seconds, those of the clock since 1970. Enums are state sets; addresses, numbers and texts are labels of `pyvma_<type>_info`.

Labels: `pid` and `program`; `interface` of a ring or a pool; `fd` and `object` (its place) of a socket and its parts. Series
of sockets, connections and epoll sets come only when they are asked for, and of so many of a process at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric, StateSetMetricFamily

from . import Head, Process, Record, Snapshot, StatsError, attach, processes
from ._schema import Field

__all__ = ["PER_SOCKET", "Collector", "family_name"]

PER_SOCKET = ("socket", "udp", "tcp", "listener", "membership", "epoll", "kernel")
# Only texts: those that sockets link to are labels of theirs.
LEFT_OUT = ("reason",)
SOCKETS_MAX = 1000
# To base units: the suffix, and what a value is divided by.
UNITS = {
    "ns": ("seconds", 10**9),
    "us": ("seconds", 10**6),
    "ms": ("seconds", 10**3),
    "s": ("seconds", 1),
    "KiB": ("bytes", 1 / 1024),
    "1/s": ("per_second", 1),
    "bytes/s": ("bytes_per_second", 1),
    "kbit/s": ("bytes_per_second", 1 / 125),
    "%": ("percent", 1),
}
LABELS = frozenset({"addr", "port", "mac", "text"})
# Numbers that stay: others, such as sequence numbers, would make new series all the time.
IDS = frozenset({"index", "protocol", "interface"})
# "For ever", or "not known".
GREATEST = frozenset({2**64 - 1, 2**63 - 1})
RESERVED = ("_total", "_count", "_sum", "_bucket", "_info", "_created")


def _unit(found: Field) -> tuple[str, float]:
    if found.kind == "time":
        return "timestamp_seconds", 10**9
    unit, scale = UNITS.get(found.unit, (found.unit, 1))
    return re.sub(r"[^a-z0-9]+", "_", unit.lower()).strip("_"), scale


def _clean(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def _label(text: str) -> str:
    """It does not begin with a digit, and names that begin with two underscores are Prometheus's own."""
    return re.sub(r"^(?=[0-9])|^__+", "_", _clean(text))


def family_name(kind: str, found: Field) -> str:
    """The metric's name, without the counter's `_total`."""
    unit, _ = _unit(found)
    name = f"pyvma_{_clean(kind)}_{_clean(found.name)}"
    if found.kind == "counter":
        name = name.removesuffix("_total")
    elif name.endswith(RESERVED) and not unit:
        name += "_value"
    # What is said once in the name is not said twice: rx_bytes in bytes. "us" in a name gives way to the base unit.
    if unit and not name.endswith(f"_{unit}"):
        name = name.removesuffix(f"_{found.unit}") + f"_{unit}"
    return name


@dataclass
class _Families:
    """Of all processes: a metric has to stand in one place, with every label once."""

    found: dict[str, Metric] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    seen: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)

    def get(self, make: type[Any], name: str, text: str, labels: list[str]) -> Any:
        if name not in self.found:
            # The help of a family is one line that ends in no escape of its own.
            self.found[name] = make(name, " ".join(text.split()) or name, labels=labels)
            self.labels[name] = labels
        family = self.found[name]
        return family if type(family) is make and self.labels[name] == labels else None

    def once(self, name: str, values: list[str]) -> bool:
        key = (name, tuple(values))
        new = key not in self.seen
        self.seen.add(key)
        return new

    def number(self, make: type[Any], name: str, text: str, labels: dict[str, str], value: float) -> None:
        family = self.get(make, name, text, list(labels))
        if family is not None and self.once(name, list(labels.values())):
            family.add_metric(list(labels.values()), value)


class _Places:
    """Whose the objects of a snapshot are: the sockets' halves, kernel's included, listeners and memberships; the rings' pools."""

    def __init__(self, snapshot: Snapshot, sockets: int) -> None:
        self.kept = {item.place for item in snapshot.sockets[:sockets]}
        self.epolls = {item.place for item in snapshot.epolls[:sockets]}
        self.sockets: dict[int, Record] = {}
        self.rings: dict[int, str] = {}
        for item in snapshot.sockets:
            half = item.linked("transport")
            listener = half.linked("listener") if half is not None else None
            for part in (half, listener, item.linked("kernel")):
                if part is not None:
                    self.sockets[part.place] = item
        for item in snapshot.memberships:
            udp = item.linked("udp")
            if udp is not None and udp.place in self.sockets:
                self.sockets[item.place] = self.sockets[udp.place]
        for ring in snapshot.rings:
            pool = ring.linked("pool")
            if pool is not None:
                self.rings[pool.place] = str(ring.get("interface"))
        for queue in snapshot.of("rxq"):
            of = queue.linked("ring")
            if of is not None:
                self.rings[queue.place] = str(of.get("interface"))

    def wanted(self, record: Record) -> bool:
        kind = record.schema.name
        if kind == "epoll":
            return record.place in self.epolls
        owner = record if kind == "socket" else self.sockets.get(record.place)
        return owner is not None and owner.place in self.kept

    def labels(self, record: Record, number: int) -> dict[str, str]:
        kind = record.schema.name
        if kind in PER_SOCKET:
            owner = self.sockets.get(record.place, record)
            fd = owner.get("fd")
            labels = {"fd": "" if fd is None else str(fd), "object": str(owner.place)}
            return labels | ({"membership": str(record.place)} if kind == "membership" else {})
        if kind in ("ring", "pool", "rxq"):
            labels = {"interface": str(record.get("interface") or self.rings.get(record.place) or number)}
            return labels | ({"queue": str(record.get("number"))} if kind == "rxq" else {})
        return {"number": str(number)}


class Collector:
    """All live processes of a directory (default: that of the setting `stats_dir`), or the one with `pid`, at the time of a scrape.

    `sockets`: so many sockets of a process get series of their own at most, the oldest ones; 0: none do.
    """

    def __init__(self, directory: str | None = None, pid: int | None = None, sockets: int = 0) -> None:
        self.directory = directory
        self.pid = pid
        self.sockets = sockets

    def collect(self) -> Iterator[Metric]:
        """The families; what cannot be read is counted in pyvma_exporter_unreadable_files."""
        families = _Families()
        broken = 0
        for path in self._paths():
            try:
                with attach(path, self.directory) as process:
                    self._process(families, process)
            except StatsError:
                broken += 1
        yield from families.found.values()
        yield GaugeMetricFamily("pyvma_exporter_unreadable_files", "statistics files that could not be read", value=broken)

    def _paths(self) -> Iterable[int | str]:
        if self.pid is not None:
            return [self.pid]
        try:
            return [item.path for item in processes(self.directory)]
        except StatsError:
            return []

    def _process(self, families: _Families, process: Process) -> None:
        state = process.state
        if state == "dead":
            return
        snapshot = process.snapshot()
        base = {"pid": str(process.pid), "program": process.program}
        told = families.get(InfoMetricFamily, "pyvma_process", "a process on pyvma", list(base))
        if told is not None and families.once("pyvma_process", list(base.values())):
            told.add_metric(list(base.values()), {"version": process.version, "state": state})
        gauges = {
            "start_timestamp_seconds": ("when its engine started", process.started_ns / 1e9),
            "hidden_objects": ("objects that there was no room to show", snapshot.head.hidden),
        }
        for name, (text, value) in gauges.items():
            families.number(GaugeMetricFamily, f"pyvma_process_{name}", text, base, value)
        places = _Places(snapshot, self.sockets)
        left_out = len(snapshot.sockets) - len(places.kept)
        families.number(GaugeMetricFamily, "pyvma_exporter_sockets_left_out", "sockets without series of their own", base, left_out)
        for kind in snapshot.types:
            records = snapshot.of(kind.name)
            families.number(GaugeMetricFamily, "pyvma_objects", "objects by their type", {**base, "type": kind.name}, len(records))
            if kind.name in PER_SOCKET:
                records = [record for record in records if places.wanted(record)]
            if kind.name not in LEFT_OUT:
                for number, record in enumerate(records):
                    self._record(families, snapshot.head, record, {**base, **places.labels(record, number)})

    @staticmethod
    def _record(families: _Families, head: Head, record: Record, labels: dict[str, str]) -> None:
        kind = record.schema
        told: dict[str, str] = {}
        for found in kind.fields.values():
            if found.kind in LABELS or found.name in IDS:
                value = record[found.name]
                if _label(found.name) not in labels:
                    told[_label(found.name)] = "" if value is None else str(value)
                continue
            name = family_name(kind.name, found)
            if found.kind == "enum":
                family = families.get(StateSetMetricFamily, name, found.help, list(labels))
                if family is not None and families.once(name, list(labels.values())):
                    now = record[found.name]
                    family.add_metric(list(labels.values()), {state: state == now for state in found.names})
            elif found.kind == "counter":
                families.number(CounterMetricFamily, name, found.help, labels, record.figure(found.name) / _unit(found)[1])
            elif found.kind == "time":
                at = record.figure(found.name)
                if at:
                    since = (head.started_ns + at - head.started_monotonic_ns) / 1e9
                    families.number(GaugeMetricFamily, name, found.help, labels, since)
            elif found.kind not in ("link", "id") and record.figure(found.name) not in GREATEST:
                families.number(GaugeMetricFamily, name, found.help, labels, record.figure(found.name) / _unit(found)[1])
        if "reason" in kind.fields:
            reason = record.linked("reason")
            told["reason"] = "" if reason is None else str(reason.get("text", ""))
        family = families.get(InfoMetricFamily, f"pyvma_{_clean(kind.name)}", kind.help, list(labels)) if told else None
        if family is not None and families.once(f"pyvma_{kind.name}_info", list(labels.values())):
            family.add_metric(list(labels.values()), told)
