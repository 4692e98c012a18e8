"""Flight recorders' files made from native/doc/tracing.md alone, and the rules of the Trace Event Format."""

from __future__ import annotations

import itertools
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stats_file import start_ticks

HEAD_BYTES = 4096
EVENT_BYTES = 64
SCHEMA = {
    "events": [
        {"name": "drop", "a": "reason:reason", "b": "bytes", "help": ""},
        {"name": "tcp_state", "a": "old:state", "b": "new:state", "help": ""},
        {"name": "recovery", "a": "old:recovery", "b": "new:recovery", "help": ""},
        {"name": "socket", "a": "what:socket", "b": "fd", "help": ""},
        {"name": "error", "a": "errno:errno", "b": "", "help": ""},
        {"name": "queued", "a": "bytes", "b": "", "help": ""},
    ],
    "stations": 6,
    "lists": {
        "state": ["-", "ESTABLISHED", "SYN_SENT", "CLOSE"],
        "recovery": ["open", "disorder", "cwr", "recovery", "loss"],
        "socket": ["opened", "closed"],
    },
    "reasons": {"257": "udp.rx_no_port"},
}


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Maker:
    """A file of `room` events; `add` writes the next one, over the oldest when it is full."""

    def __init__(self, room: int = 8, **head: Any) -> None:
        self.room = room
        self.schema = json.dumps(SCHEMA).encode()
        self.records: dict[int, bytes] = {}
        self.count = 0
        self.head: dict[str, Any] = {
            "magic": b"PYVMATRC",
            "version": 1,
            "order": 0x01020304,
            "state": 1,
            "event_size": EVENT_BYTES,
            "events": room,
            "events_at": 8192,
            "schema_at": HEAD_BYTES,
            "schema_size": len(self.schema),
            "head": None,
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
            "uid": os.getuid(),
            "realtime_ns": 1_700_000_000_000_000_000,
            "monotonic_ns": 5_000_000_000,
            "packets": 0,
            "program": b"maker",
            "pyvma": b"0.1.0",
            "boot_id": boot_id().encode(),
        } | head

    def add(self, kind: int, a: int = 0, b: int = 0, **more: Any) -> None:
        number = self.count
        self.count += 1
        fields: dict[str, Any] = {
            "seq": (number + 1) & 0xFFFFFFFF,
            "span_us": 0,
            "when_ns": 5_000_000_000 + number * 1000,
            "id": 0,
            "tid": 7,
            "count": 1,
            "iface": 0,
            "proto": 0,
            "lport": 0,
            "rport": 0,
            "peer": bytes(16),
        } | more
        order = ("seq", "span_us", "when_ns", "id", "tid", "count", "kind", "iface", "proto", "lport", "rport", "a", "b", "peer")
        fields |= {"kind": kind, "a": a, "b": b}
        self.records[number % self.room] = struct.pack("=IIqQIIHBBHHII16s", *(fields[name] for name in order))

    def bytes(self) -> bytes:
        values = [self.count if name == "head" and value is None else value for name, value in self.head.items()]
        head = struct.pack("=8s4I8Q2qQ64s32s40s", *values)
        out = bytearray(8192 + self.room * EVENT_BYTES)
        out[: len(head)] = head
        out[HEAD_BYTES : HEAD_BYTES + len(self.schema)] = self.schema
        for slot, record in self.records.items():
            out[8192 + slot * EVENT_BYTES : 8192 + (slot + 1) * EVENT_BYTES] = record
        return bytes(out)

    def write(self, folder: Path) -> Path:
        path = folder / f"pyvma-trace.{self.head['pid']}"
        path.write_bytes(self.bytes())
        return path


def check_trace_events(text: str) -> list[dict[str, Any]]:
    """Holds a document to the Trace Event Format (its JSON object form), and returns the events.

    Phases and what each needs; numbers for ts and dur; slices of a track nest; async ones of a category and number begin before they end.
    """
    document = json.loads(text)
    events: list[dict[str, Any]] = document["traceEvents"]
    assert document["displayTimeUnit"] in ("ms", "ns")
    open_async: dict[tuple[str, int], float] = {}
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        phase = event["ph"]
        assert isinstance(event["name"], str) and isinstance(event["pid"], int)
        assert phase in "XibeM", phase
        if phase == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index") and isinstance(event["args"], dict)
            continue
        assert isinstance(event["ts"], int | float) and event["ts"] >= 0 and isinstance(event["tid"], int)
        if phase == "i":
            assert event["s"] in "tpg"
        elif phase == "X":
            assert event["dur"] >= 0
            slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        else:
            key = (event["cat"], event["id"])
            assert isinstance(event["id"], int | str)
            if phase == "b":
                assert key not in open_async
                open_async[key] = event["ts"]
            else:
                assert event["ts"] >= open_async.pop(key)
    assert not open_async
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xibe"} <= named
    for found in slices.values():
        assert all(_nests(a, b) for a, b in _pairs(sorted(found, key=lambda item: (item[0], -item[1]))))
    return events


def _pairs(items: list[tuple[float, float]]) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    return itertools.pairwise(items)


def _nests(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Sorted by their start: apart from each other, or one within the other (to a nanosecond)."""
    return second[0] >= first[1] - 1e-3 or second[1] <= first[1] + 1e-3
