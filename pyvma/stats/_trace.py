"""The flight recorder of a process: its last events, read from the file that it works in (native/doc/tracing.md).

    for event in pyvma.stats.trace(pid).events:
        print(event.when_ns, event.name, event.values)

The process may be live, stopped or dead; nothing is asked of it, and the native library is not needed. Nothing in a file is believed:
what cannot be is a :class:`StatsError`, and a record that changed while it was read is left out and counted.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._error import StatsError
from ._process import _boot_id, _start_ticks, default_directory

__all__ = ["Event", "Trace", "TraceFile", "trace", "traces"]

PREFIX = "pyvma-trace."
MAGIC = b"PYVMATRC"
VERSION = 1
ORDER = 0x01020304
HEAD = struct.Struct("=8s4I8Q2qQ64s32s40s")
EVENT = struct.Struct("=IIqQIIHBBHHII16s")
STATES = ("being made", "live", "stopped")
EVENTS_MAX = 1 << 20
SCHEMA_MAX = 1 << 20
TRIES = 3
PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}
_NAME = re.compile(re.escape(PREFIX) + r"([1-9][0-9]{0,9})(?:\.([0-9]{1,20}))?")


@dataclass(frozen=True)
class Event:
    """A record.

    `number` counts the engine's events from 0; `when_ns` is CLOCK_MONOTONIC and `realtime_ns` counts from 1970; `count` repetitions took
    `span_ns` from the first to the last. `id` tells sockets, connections and packets apart (0: none), `interface` is the engine's number
    (0: none), `protocol` "udp", "tcp", "" or a number. Ports that are not known are 0, and `peer` "". `values` are the event's own numbers,
    or their names.
    """

    number: int
    when_ns: int
    realtime_ns: int
    name: str
    thread: int
    count: int
    span_ns: int
    id: int
    interface: int
    protocol: str
    local_port: int
    remote_port: int
    peer: str
    values: dict[str, int | str]
    station: bool
    """Of a packet on its way, recorded while that is switched on."""

    def text(self) -> str:
        """One line, but for the time."""
        words = [self.name, *(f"{key}={value}" for key, value in self.values.items())]
        if self.protocol:
            words.append(self.protocol)
        if self.local_port or self.remote_port or self.peer:
            peer = f"[{self.peer}]" if ":" in self.peer else self.peer or "*"
            words.append(f":{self.local_port or '*'} - {peer}:{self.remote_port or '*'}")
        if self.interface:
            words.append(f"if={self.interface}")
        if self.id:
            words.append(f"id={self.id:x}")
        if self.count > 1:
            words.append(f"x{self.count} in {self.span_ns / 1e6:.3f} ms")
        return " ".join(words)


@dataclass(frozen=True)
class _Kind:
    name: str
    a: tuple[str, str]
    b: tuple[str, str]


@dataclass(frozen=True)
class Trace:
    """What a file held: who wrote it, and the events that were still there, oldest first.

    `state` is "live", "stopped" (it runs, its engine does not), "dead" or "being made"; `packets` says whether stations are recorded now;
    `lost` counts older events that newer ones have replaced, `torn` those that were being written.
    """

    path: str
    pid: int
    program: str
    version: str
    state: str
    started_ns: int
    monotonic_ns: int
    packets: bool
    lost: int
    torn: int
    events: list[Event]


class TraceFile:
    """An open file. Close it, or use `with`. Every method: StatsError says what is wrong with it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._fd = -1
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise self._error("it is no file")
        except OSError as error:
            raise self._error(error.strerror or str(error)) from None
        except BaseException:
            self.close()
            raise
        try:
            self._head()
            self._kinds, self._stations, self._lists = self._schema()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes it; what was read stays."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _error(self, text: str) -> StatsError:
        return StatsError(f"{self.path}: {text}")

    def _read(self, at: int, size: int, what: str) -> bytes:
        try:
            data = os.pread(self._fd, size, at)
        except (OSError, OverflowError, ValueError) as error:
            raise self._error(f"its {what} cannot be read: {error}") from None
        if len(data) != size:
            raise self._error(f"it is cut short: {what} at {at} are {size} bytes and {len(data)} are there")
        return data

    def _head(self) -> None:
        found = HEAD.unpack(self._read(0, HEAD.size, "head"))
        magic, version, order, state, event_size, events, events_at, schema_at, schema_size, head, pid, ticks, uid = found[:13]
        if magic != MAGIC:
            raise self._error("it is no flight recorder's")
        if order != ORDER:
            raise self._error("it is of a machine with another byte order")
        if version != VERSION:
            raise self._error(f"it is of version {version}, and this reads version {VERSION}")
        if state >= len(STATES):
            raise self._error(f"its state is {state}")
        if event_size != EVENT.size:
            raise self._error(f"its events are of {event_size} bytes")
        if not 0 < events <= EVENTS_MAX or events & (events - 1):
            raise self._error(f"it has room for {events} events")
        if schema_size > SCHEMA_MAX:
            raise self._error(f"its schema is of {schema_size} bytes")
        self.state = STATES[state]
        self.events, self._events_at, self._schema_at, self._schema_size, self.head = events, events_at, schema_at, schema_size, head
        self.pid, self._ticks, self.uid = pid, ticks, uid
        self.started_ns, self.monotonic_ns = found[13:15]
        self.packets = bool(found[15])
        self.program, self.version, self._boot = (_text(data) for data in found[16:])

    def _schema(self) -> tuple[list[_Kind], int, dict[str, dict[int, str]]]:
        data = self._read(self._schema_at, self._schema_size, "schema")
        try:
            found = json.loads(data)
            kinds = [_Kind(_word(item["name"]), _argument(item["a"]), _argument(item["b"])) for item in found["events"]]
            lists = {_word(name): dict(enumerate(map(_word, values))) for name, values in found["lists"].items()}
            lists["reason"] = {int(number): _word(name) for number, name in found["reasons"].items()}
            stations = int(found["stations"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise self._error(f"its schema is none: {type(error).__name__} {error}".replace("\n", " ")) from None
        lists["errno"] = dict(errno.errorcode)
        return kinds, stations, lists

    def _alive(self) -> bool:
        return self._boot == _boot_id() and 0 < self.pid < 1 << 32 and _start_ticks(self.pid) == self._ticks

    def _value(self, argument: tuple[str, str], number: int) -> int | str:
        return self._lists.get(argument[1], {}).get(number, number) if argument[1] else number

    def _event(self, number: int, raw: tuple[Any, ...]) -> Event:
        _, span_us, when_ns, ident, thread, count, kind, interface, protocol, lport, rport, a, b, peer = raw
        known = self._kinds[kind - 1] if 0 < kind <= len(self._kinds) else _Kind(f"event-{kind}", ("a", ""), ("b", ""))
        values = {argument[0]: self._value(argument, value) for argument, value in ((known.a, a), (known.b, b)) if argument[0]}
        return Event(
            number=number,
            when_ns=when_ns,
            realtime_ns=when_ns - self.monotonic_ns + self.started_ns,
            name=known.name,
            thread=thread,
            count=count,
            span_ns=span_us * 1000,
            id=ident,
            interface=interface,
            protocol=PROTOCOLS.get(protocol, str(protocol)) if protocol else "",
            local_port=lport,
            remote_port=rport,
            peer=_address(peer),
            values=values,
            station=kind >= self._stations,
        )

    def _records(self, first: int, last: int) -> dict[int, tuple[Any, ...]]:
        """Records that were the same in two readings and have their number; the others are read again, some times."""
        found: dict[int, tuple[Any, ...]] = {}
        for _ in range(TRIES):
            once, again = (self._read(self._events_at, self.events * EVENT.size, "events") for _ in range(2))
            for number in range(first, last):
                at = number % self.events * EVENT.size
                raw = once[at : at + EVENT.size]
                if number in found or raw != again[at : at + EVENT.size]:
                    continue
                record = EVENT.unpack(raw)
                if record[0] == ((number + 1) & 0xFFFFFFFF or 1):
                    found[number] = record
            if len(found) == last - first or self.state != "live":
                break
        return found

    def read(self, since: int = 0) -> Trace:
        """What is there now: events from number `since` on."""
        self._head()
        first = max(since, self.head - self.events, 0)
        found = self._records(first, self.head) if self.head > first else {}
        state = self.state if self._alive() else "dead"
        missing = max(self.head - first, 0) - len(found)
        return Trace(
            path=self.path,
            pid=self.pid,
            program=self.program,
            version=self.version,
            state=state,
            started_ns=self.started_ns,
            monotonic_ns=self.monotonic_ns,
            packets=self.packets,
            lost=max(first - since, 0),
            torn=missing,
            events=[self._event(number, raw) for number, raw in sorted(found.items())],
        )


def _text(data: bytes) -> str:
    text = data.partition(b"\0")[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return "".join(c if c.isprintable() else "?" for c in value)


def _argument(value: object) -> tuple[str, str]:
    name, _, names = _word(value).partition(":")
    return name, names


def _address(data: bytes) -> str:
    if not any(data):
        return ""
    found = ipaddress.IPv6Address(data)
    return str(found.ipv4_mapped or found)


def traces(directory: str | None = None) -> Iterator[Trace]:
    """The recorders of a directory (default: the setting `stats_dir`), those of dead processes too, by pid. Files that are none are
    passed over. StatsError: there is no such directory."""
    place = directory or default_directory()
    try:
        found = [(int(match[1]), int(match[2] or 0), name) for name in os.listdir(place) if (match := _NAME.fullmatch(name))]
    except OSError as error:
        raise StatsError(f"{place}: {error.strerror}") from None
    for _, _, name in sorted(found):
        try:
            with TraceFile(os.path.join(place, name)) as file:
                yield file.read()
        except StatsError:
            continue


def path_of(pid: int, directory: str | None = None) -> str:
    """The file of a process. StatsError: it has none, and why."""
    path = os.path.join(directory or default_directory(), f"{PREFIX}{pid}")
    if os.path.lexists(path):
        return path
    if _start_ticks(pid) is None:
        raise StatsError(f"there is no process {pid}, and it left no {path}")
    raise StatsError(f"process {pid} has no flight recorder: there is no {path}")


def trace(which: int | str | os.PathLike[str], directory: str | None = None) -> Trace:
    """The last events of a process by its pid, or of a file by its path. StatsError: there are none, or what is wrong with the file."""
    with TraceFile(path_of(which, directory) if isinstance(which, int) else which) as file:
        return file.read()
