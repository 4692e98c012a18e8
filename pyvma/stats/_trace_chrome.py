"""A trace as JSON of the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.

One track a socket or connection, one an interface, one for the rest. A connection's states are slices; recoveries from loss are slices
beside them; everything else, drops first, is an instant. Times are microseconds since the engine's start.
"""

from __future__ import annotations

from typing import Any

from ._trace import Event, Trace

__all__ = ["chrome"]

ENGINE = 0
INTERFACES = 1  # and its number
SOCKETS = 1000
_CLOSED = ("CLOSE",)
_CALM = ("open", "disorder")
_PACKETS = ("ring_in", "posted", "completed")


class _Tracks:
    """Whose events go where. An address that is a socket's again after it was closed is another socket's."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {ENGINE: "engine"}
        self.by_id: dict[int, int] = {}
        self.next = SOCKETS

    def of(self, event: Event) -> int:
        if not event.id or event.name in _PACKETS:
            if not event.interface:
                return ENGINE
            track = INTERFACES + event.interface
            self.names[track] = f"interface {event.interface}"
            return track
        opened = event.name == "socket" and event.values.get("what") == "opened"
        if opened or event.id not in self.by_id:
            self.by_id[event.id] = self.next
            self.names[self.next] = f"{event.protocol or 'socket'} {event.id:x}"
            self.next += 1
        track = self.by_id[event.id]
        if event.local_port:
            peer = f"[{event.peer}]" if ":" in event.peer else event.peer
            self.names[track] = f"{event.protocol} :{event.local_port}" + (f" - {peer}:{event.remote_port}" if peer else "")
        if event.name == "socket" and event.values.get("what") == "closed":
            del self.by_id[event.id]
        return track


class _Writer:
    def __init__(self, found: Trace) -> None:
        self.pid = found.pid
        self.zero = min([found.monotonic_ns, *(event.when_ns for event in found.events)])
        self.end = max((event.when_ns + event.span_ns for event in found.events), default=self.zero)
        self.tracks = _Tracks()
        self.out: list[dict[str, Any]] = []
        self.state: dict[int, tuple[str, int]] = {}  # of a track: which, since when
        self.recovery: dict[int, tuple[str, int]] = {}  # of a track: its name and number
        self.recoveries = 0

    def us(self, ns: int) -> float:
        return (ns - self.zero) / 1000

    def add(self, phase: str, name: str, when_ns: int, track: int, **more: Any) -> None:
        self.out.append({"ph": phase, "name": name, "ts": self.us(when_ns), "pid": self.pid, "tid": track, **more})

    def instant(self, event: Event, track: int) -> None:
        name = event.name
        if name == "drop":
            name = f"drop {event.values.get('reason')}"
        elif name in ("socket", "ring", "engine"):
            name = f"{name} {event.values.get('what')}"
        arguments: dict[str, Any] = {**event.values, "thread": event.thread, "count": event.count}
        if event.id:
            arguments["id"] = f"{event.id:x}"
        kind = "packet" if event.station else event.name
        if event.count > 1:  # no slice: it might reach across the end of a state's
            arguments["span_us"] = event.span_ns / 1000
        self.add("i", name, event.when_ns, track, s="t", cat=kind, args=arguments)

    def end_state(self, track: int, when_ns: int) -> None:
        name, since = self.state.pop(track, ("", 0))
        if name and name not in _CLOSED:
            self.add("X", name, since, track, dur=max(when_ns - since, 0) / 1000, cat="tcp_state")

    def tcp_state(self, event: Event, track: int) -> None:
        if track not in self.state and event.values.get("old") not in (*_CLOSED, "-"):
            self.state[track] = (str(event.values["old"]), self.zero)  # what it was when the recorder's memory begins
        self.end_state(track, event.when_ns)
        self.state[track] = (str(event.values["new"]), event.when_ns)

    def end_recovery(self, track: int, when_ns: int) -> None:
        if track in self.recovery:
            name, number = self.recovery.pop(track)
            self.add("e", name, when_ns, track, cat="recovery", id=number)

    def begin_recovery(self, event: Event, track: int) -> None:
        self.end_recovery(track, event.when_ns)
        if event.values.get("new") in _CALM:
            return
        self.recoveries += 1
        name = f"{event.values.get('new')} {self.tracks.names[track]}"
        self.recovery[track] = (name, self.recoveries)
        self.add("b", name, event.when_ns, track, cat="recovery", id=self.recoveries)

    def event(self, event: Event) -> None:
        track = self.tracks.of(event)
        if event.name == "tcp_state":
            self.tcp_state(event, track)
        elif event.name == "recovery":
            self.begin_recovery(event, track)
        else:
            self.instant(event, track)
        if event.name == "socket" and event.values.get("what") == "closed":
            self.end_state(track, event.when_ns)
            self.end_recovery(track, event.when_ns)

    def names(self, program: str) -> None:
        self.out.append({"ph": "M", "name": "process_name", "pid": self.pid, "args": {"name": f"{program} (pyvma)"}})
        for track, name in self.tracks.names.items():
            self.out.append({"ph": "M", "name": "thread_name", "pid": self.pid, "tid": track, "args": {"name": name}})
            self.out.append({"ph": "M", "name": "thread_sort_index", "pid": self.pid, "tid": track, "args": {"sort_index": track}})


def chrome(found: Trace) -> dict[str, Any]:
    """The document, for `json.dump`."""
    writer = _Writer(found)
    for event in found.events:
        writer.event(event)
    for track in [*writer.state]:
        writer.end_state(track, writer.end)
    for track in [*writer.recovery]:
        writer.end_recovery(track, writer.end)
    writer.names(found.program)
    writer.out.sort(key=lambda item: item.get("ts", -1.0))
    return {
        "traceEvents": writer.out,
        "displayTimeUnit": "ns",
        "otherData": {
            "program": found.program,
            "pid": found.pid,
            "pyvma": found.version,
            "state": found.state,
            "started_ns": found.started_ns,
            "lost": found.lost,
        },
    }
