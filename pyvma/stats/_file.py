"""One statistics file: its head, its directory, the bytes of its objects (native/doc/stats-abi.md).

The file is read, not mapped: under a mapping a file that is cut short, or has a hole where its file system is full, ends the reader by
SIGBUS. A read takes the bytes out of the memory that the process works in, as a mapping would show them; it is made from whole pages
into whole pages, so that every field arrives as it was written.

Nothing in the file is believed. All work is bounded by the constants below, whatever it says.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from . import _schema
from ._error import StatsError
from ._schema import Type

__all__ = ["Entry", "Head", "StatsFile"]

MAGIC = b"PYVMASTT"
VERSION = 1
ORDER = 0x01020304
HEAD = struct.Struct("=8s4I10Q24x64s32s40sQ")
HEAD_BYTES = 4096
SEGMENT = struct.Struct("=QII")
ENTRY = struct.Struct("=IHHQ")
STATES = ("being made", "live", "stopped")

SCHEMA_BYTES_MAX = 4 << 20
ENTRIES_MAX = 1 << 22
OBJECTS_MAX = 1 << 20
OBJECTS_BYTES_MAX = 1 << 30  # of all objects together, what is read
UNPACKED_BYTES_MAX = 1 << 28  # and what of it becomes values
VALUES_MAX = 1 << 23
ENTRIES_A_READ = 16384
RUN_BYTES = 1 << 20  # what is read at once
RUN_GAP = 4096  # what is read in vain rather than by one more call
PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class Head:
    """The head of a file. `state` is "being made", "live" or "stopped"; `start_ticks` is field 22 of /proc/PID/stat; `started_ns` counts
    from 1970, `started_monotonic_ns` is the same moment by CLOCK_MONOTONIC; `hidden` counts objects for which there was no room; `base` is
    the address that the file has in the process."""

    state: str
    valid: int
    schema_offset: int
    schema_size: int
    directory: int
    pid: int
    start_ticks: int
    uid: int
    started_ns: int
    started_monotonic_ns: int
    hidden: int
    program: str
    version: str
    boot_id: str
    base: int


@dataclass(frozen=True)
class Entry:
    """An entry of the directory: `at` is where in the file, `raw` its bytes, `type` None for one that makes no sense."""

    at: int
    raw: bytes
    seq: int
    type: Type | None
    offset: int


def _text(data: bytes) -> str:
    return _schema.printable(data.partition(b"\0")[0].decode("utf-8", "replace"))


def _user(uid: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except (KeyError, OverflowError):
        return f"user {uid}"


class StatsFile:
    """An open file. Not for several threads at a time. Every method: StatsError says what is wrong with it."""

    def __init__(self, path: str, fd: int = -1) -> None:
        """`fd`: of the file that is meant, which stays the caller's; `path` is its name in errors then."""
        self.path = path
        self._room = mmap.mmap(-1, PAGE)
        self._fd = -1
        self._fd = self._open(path) if fd < 0 else self._checked(os.dup(fd))
        try:
            self.head = self.read_head()
            if self.head.schema_size > SCHEMA_BYTES_MAX:
                raise self.error(f"its schema is of {self.head.schema_size} bytes")
            try:
                self.types = _schema.parse(bytes(self.read(self.head.schema_offset, self.head.schema_size)), self.head.base)
            except StatsError as error:
                raise error if str(error).startswith(path) else self.error(str(error)) from None
        except BaseException:
            self.close()
            raise

    def error(self, text: str) -> StatsError:
        return StatsError(f"{self.path}: {text}")

    def _open(self, path: str) -> int:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
        except PermissionError:
            try:
                owner = _user(os.stat(path).st_uid)
            except OSError:
                owner = "another user"
            raise self.error(f"it is of {owner}: only that user and root may read it") from None
        except (OSError, ValueError) as error:
            raise self.error(getattr(error, "strerror", None) or str(error)) from None
        return self._checked(fd)

    def _checked(self, fd: int) -> int:
        self.owner = os.fstat(fd).st_uid
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise self.error("it is not a file")
        return fd

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        """Closes the file. What was read stays."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _bytes(self, offset: int, size: int) -> memoryview:
        """Bytes of the file, valid until the next call."""
        if self._fd < 0:
            raise self.error("it was closed")
        start = offset - offset % PAGE
        length = offset + size - start
        if len(self._room) < length:
            self._room = mmap.mmap(-1, length + -length % PAGE)
        view = memoryview(self._room)[:length]
        done = 0
        while done < length:
            try:
                n = os.preadv(self._fd, [view[done:]], start + done)
            except (OSError, OverflowError) as error:
                raise self.error(getattr(error, "strerror", None) or str(error)) from None
            if n == 0:
                raise self.error(f"it is cut short: {os.fstat(self._fd).st_size} bytes, {offset + size} are wanted")
            done += n
        return view[offset - start :]

    def read_head(self) -> Head:
        """The head as it is now."""
        size = os.fstat(self._fd).st_size if self._fd >= 0 else HEAD_BYTES
        if size < HEAD_BYTES:
            raise self.error(
                f"it is cut short: {size} bytes, the head alone has {HEAD_BYTES}" if size else "it is empty, perhaps being made"
            )
        raw = HEAD.unpack_from(self._bytes(0, HEAD_BYTES))
        magic, version, order, state = raw[:4]
        if magic != MAGIC:
            raise self.error("it is being made" if magic == bytes(8) else "it is not a statistics file of pyvma")
        if order != ORDER:
            swapped = order == int.from_bytes(ORDER.to_bytes(4, "little"), "big")
            raise self.error("it is of a machine with the other byte order" if swapped else f"its byte order is {order:#x}")
        if version != VERSION:
            raise self.error(f"its layout is of version {version}; this reader knows {VERSION}")
        if state >= len(STATES):
            raise self.error(f"its state is {state}")
        if state == 0:
            raise self.error("it is being made")
        valid, schema_offset, schema_size, directory, pid, ticks, uid, real, mono, hidden = raw[5:15]
        if valid > size:
            raise self.error(f"it is cut short: {size} bytes of {valid}")
        if uid != self.owner:
            raise self.error(f"it is of {_user(self.owner)} but says {_user(uid)}")
        for name, at, length in (("head", 0, HEAD_BYTES), ("schema", schema_offset, schema_size), ("directory", directory, SEGMENT.size)):
            if at + length > valid:
                raise self.error(f"its {name} is outside: {length} bytes at {at} of {valid}")
        program, pyvma, boot = (_text(item) for item in raw[15:18])
        return Head(
            STATES[state], valid, schema_offset, schema_size, directory, pid, ticks, uid, real, mono, hidden, program, pyvma, boot, raw[18]
        )

    def _check(self, what: str, offset: int, size: int) -> None:
        """It grows while it is read."""
        if offset + size > self.head.valid:
            self.head = self.read_head()
            if offset + size > self.head.valid:
                raise self.error(f"{what} is outside: {size} bytes at {offset} of {self.head.valid}")

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of the valid part, until the next call."""
        self._check("what is wanted", offset, size)
        return self._bytes(offset, size)

    def segments(self) -> Iterator[tuple[int, int]]:
        """The directory: where entries begin, and how many they are."""
        at = self.head.directory
        seen: set[int] = set()
        total = 0
        while at:
            if at in seen:
                raise self.error(f"its directory goes in a circle at {at}")
            if at % 8:
                raise self.error(f"its directory goes on at {at}, which is no multiple of 8")
            seen.add(at)
            self._check("a segment of its directory", at, SEGMENT.size)
            following, count, _ = SEGMENT.unpack_from(self._bytes(at, SEGMENT.size))
            total += count + 1
            if total > ENTRIES_MAX:
                raise self.error(f"its directory has more than {ENTRIES_MAX} entries")
            self._check("a segment of its directory", at, SEGMENT.size + count * ENTRY.size)
            yield at + SEGMENT.size, count
            at = following

    def _entries_at(self, at: int, count: int) -> Iterator[tuple[int, bytes]]:
        for first in range(0, count, ENTRIES_A_READ):
            n = min(ENTRIES_A_READ, count - first)
            start = at + first * ENTRY.size
            data = bytes(self._bytes(start, n * ENTRY.size))
            for i in range(0, len(data), ENTRY.size):
                yield start + i, data[i : i + ENTRY.size]

    def entries(self) -> Iterator[Entry]:
        """Every entry in use that was not changing."""
        types = self.types
        for at, count in self.segments():
            for place, raw in self._entries_at(at, count):
                seq, number, _, offset = ENTRY.unpack(raw)
                if number and not seq & 1:
                    yield Entry(place, raw, seq, types[number - 1] if number <= len(types) else None, offset)

    def unchanged(self, entries: list[Entry]) -> list[bool]:
        """For each, ordered by `at`: is it still the same?"""
        found: list[bool] = []
        i = 0
        while i < len(entries):
            first, last = entries[i].at, i
            while last + 1 < len(entries) and entries[last + 1].at - first < ENTRIES_A_READ * ENTRY.size:
                last += 1
            data = bytes(self._bytes(first, entries[last].at + ENTRY.size - first))
            found += [data[item.at - first : item.at - first + ENTRY.size] == item.raw for item in entries[i : last + 1]]
            i = last + 1
        return found

    def _runs(self, entries: list[Entry]) -> Iterator[tuple[int, list[tuple[Entry, Type]]]]:
        """Objects that lie close together, and the end of their bytes."""
        run: list[tuple[Entry, Type]] = []
        start = end = 0
        for item in sorted(entries, key=lambda item: item.offset):
            kind = item.type
            if kind is None:
                continue
            first, last = item.offset + kind.first, item.offset + kind.first + kind.extent
            if run and (first > end + RUN_GAP or max(end, last) - start > RUN_BYTES):
                yield end, run
                run = []
            if not run:
                start, end = first, last
            start, end = min(start, first), max(end, last)
            run.append((item, kind))
        if run:
            yield end, run

    def objects(self, entries: list[Entry]) -> dict[int, tuple[object, ...] | None]:
        """The raw values of the entries' objects, by the entry's `at`; None: its place makes no sense."""
        found: dict[int, tuple[object, ...] | None] = {item.at: None for item in entries}
        sound = [item for item in entries if self._sound(item)]
        if len(sound) > OBJECTS_MAX or sum(item.type.extent for item in sound if item.type) > OBJECTS_BYTES_MAX:
            raise self.error(f"it claims {len(sound)} objects; this reader takes {OBJECTS_MAX} of {OBJECTS_BYTES_MAX} bytes together")
        kinds = [item.type for item in sound if item.type]
        values, unpacked = sum(len(kind.fields) for kind in kinds), sum(kind.unpacked for kind in kinds)
        if values > VALUES_MAX or unpacked > UNPACKED_BYTES_MAX:
            raise self.error(f"it claims {values} values of {unpacked} bytes; this reader takes {VALUES_MAX} of {UNPACKED_BYTES_MAX}")
        for end, run in self._runs(sound):
            start = min(item.offset + kind.first for item, kind in run)
            data = self._bytes(start, end - start)
            for item, kind in run:
                found[item.at] = kind.unpack(data, item.offset + kind.first - start)
        return found

    def _sound(self, item: Entry) -> bool:
        if item.type is None or item.offset % 8 or item.offset < HEAD_BYTES:
            return False
        try:
            self._check("an object", item.offset, item.type.size)
        except StatsError:
            return False
        return True
