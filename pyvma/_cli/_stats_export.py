"""Snapshots for programs.

JSON: {"pid", "program", "version", "state": "live" | "stopped" | "dead", "started_ns": since 1970, "taken_ns": by CLOCK_MONOTONIC,
"interval_s": 0 or what the counters are divided by, "hidden": objects that the process had no room to show, "changing": objects left out
because they changed, "totals": {kind: {counter: sum}}, "objects": {kind: [{"id", field: value, ...}]}}. Kinds, fields and units:
docs/reference/statistics.md. A link is the `id` of another object, 0: none. With rates, counters are a second's, and not whole numbers.

CSV: a header, then a line an object; of all kinds, each table after a line "# kind" and before an empty one.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from . import UserError

if TYPE_CHECKING:
    from ..stats import Record, Snapshot


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _rate(snapshot: Snapshot, value: int) -> float | int:
    return value * 1e9 / snapshot.interval_ns if snapshot.interval_ns else value


def _values(snapshot: Snapshot, record: Record) -> dict[str, Any]:
    counters = record.counters()
    return {
        "id": record.place,
        **{name: _rate(snapshot, counters[name]) if name in counters else _plain(value) for name, value in record.items()},
    }


def as_object(snapshot: Snapshot, state: str) -> dict[str, Any]:
    """What is printed as JSON."""
    from ..stats import totals

    head = snapshot.head
    sums = {kind: {name: _rate(snapshot, value) for name, value in found.items()} for kind, found in totals(snapshot).items()}
    return {
        "pid": head.pid,
        "program": head.program,
        "version": head.version,
        "state": state,
        "started_ns": head.started_ns,
        "taken_ns": snapshot.taken_ns,
        "interval_s": snapshot.interval_s,
        "hidden": head.hidden,
        "changing": snapshot.changing,
        "totals": sums,
        "objects": {kind: [_values(snapshot, record) for record in records] for kind, records in snapshot.objects.items()},
    }


def as_json(snapshot: Snapshot, state: str, indent: int | None = None) -> str:
    """One JSON object."""
    return json.dumps(as_object(snapshot, state), indent=indent)


def as_csv(snapshot: Snapshot, kind: str) -> str:
    """The table of one kind of objects, or of all where `kind` is empty. UserError: the process knows no such kind."""
    out = io.StringIO()
    types = [item for item in snapshot.types if not kind or item.name == kind]
    if not types:
        raise UserError(f"--csv: no {kind}; there are {', '.join(item.name for item in snapshot.types)}")
    for found in types:
        if not kind:
            out.write(f"# {found.name}\n")
        table = csv.writer(out, lineterminator="\n")
        table.writerow(["id", *found.fields])
        table.writerows(_values(snapshot, record).values() for record in snapshot.of(found.name))
        if not kind:
            out.write("\n")
    return out.getvalue()
