"""Frames of a live process, or of a device's port, as a stream of pcapng.

    with pyvma.capture.live(pid, Options(filter="udp port 53")) as capture, open("dns.pcapng", "wb") as file:
        ...
        capture.move(file)

The process is reached by its control socket (native/doc/capture.md), which is its user's and root's.
"""

from __future__ import annotations

import errno
import os
import select
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ._control import Control, folders
from ._native import check, engine_error, ffi, lib

__all__ = ["Capture", "InterfaceStats", "Options", "Process", "live", "processes", "sniff"]

STOP_S = 2.0
TRAILER_MAX = 4096


@dataclass(frozen=True)
class Options:
    """Which frames, and how much of them."""

    interface: str = ""
    """Of a process: only this one; else all, those that come later included."""
    snaplen: int = 0
    """Bytes kept of a frame; 0: all."""
    count: int = 0
    """Frames; 0: no end."""
    buffer_bytes: int = 8 << 20
    """Between writer and reader: what does not fit is lost and counted."""
    hw_stamps: bool = False
    """Have the process's devices stamp what they receive, from now until its engine stops; else stamps are theirs where they do already."""
    filter: str = ""
    """e.g. "udp and port 53"; see `pyvma capture --help`."""


@dataclass
class InterfaceStats:
    """Counts of one interface since the capture of it began."""

    name: str
    received: int
    """Frames that came by, both ways."""
    accepted: int
    """By the filter."""
    delivered: int
    """Into the stream."""
    dropped: int
    """Accepted, and the reader had left no room."""
    missed: int
    """That the device had no buffer for, where it tells."""


@dataclass
class Process:
    """A process that can be captured."""

    pid: int
    command: str
    version: str
    interfaces: list[str]


def processes() -> list[Process]:
    """The live processes of this user, or for root of all, that can be captured."""
    mine = os.geteuid()
    users = {mine, *(int(path.name) for path in Path("/run/user").glob("[0-9]*"))} if mine == 0 else {mine}
    users |= {int(path.name[6:]) for path in Path("/tmp").glob("pyvma-[0-9]*") if path.name[6:].isdecimal()} if mine == 0 else set()
    found = {}
    for folder in {folder for uid in users for folder in folders(uid)}:
        for path in folder.glob("[0-9]*") if os.access(folder, os.R_OK | os.X_OK) else ():
            try:
                control = Control(int(path.name))
            except (OSError, ValueError):
                continue
            try:
                values, _ = control.ask("hello")
                command = Path(f"/proc/{control.pid}/comm").read_text(errors="replace").strip()
            except OSError:
                continue
            finally:
                control.close()
            found[control.pid] = Process(control.pid, command, values.get("version", ""), values.get("interfaces", "").split())
    return [found[pid] for pid in sorted(found)]


# ---- captures ----------------------------------------------------------------------------------------------------------------


class Capture:
    """A capture that runs; a context manager. One thread at a time."""

    def __init__(self, handle: Any, control: Control | None) -> None:
        self._handle = handle
        self._control = control
        self._over = False
        self._pointer = ffi.new("const void **")

    def move(self, file: BinaryIO) -> int:
        """Writes what there is to a raw file; bytes, 0: nothing for the moment."""
        size = self._peek()
        if not size:
            return 0
        wrote = file.write(ffi.buffer(self._pointer[0], size))
        lib.pyvma_capture_take(self._handle, wrote or 0)
        return wrote or 0

    def read(self) -> bytes:
        """What there is; empty: nothing for the moment."""
        size = self._peek()
        data = bytes(ffi.buffer(self._pointer[0], size)) if size else b""
        lib.pyvma_capture_take(self._handle, size)
        return data

    def _peek(self) -> int:
        size: int = lib.pyvma_capture_peek(self._handle, self._pointer)
        if size < 0:
            raise engine_error(size)
        return size

    def wait(self, limit_s: float) -> None:
        """Sleeps until there may be something, or for so long; receives, where the frames are a device's."""
        if self._control is not None:
            poll = select.poll()
            poll.register(self._control.socket, select.POLLIN)
            if poll.poll(max(1, int(limit_s * 1000))):
                self._over = True  # nothing is said unasked: the process has ended
            return
        rc = lib.pyvma_capture_poll(self._handle, int(limit_s * 1e9))
        if rc < 0 and rc != -errno.EINTR:
            raise engine_error(rc)

    def ended(self) -> bool:
        """Whether nothing more will come: enough frames, or the process has ended. What there is can still be read."""
        return self._over or bool(lib.pyvma_capture_done(self._handle))

    def stop(self) -> None:
        """Ends it, with its counts brought up to date. What there is can still be read."""
        if self._control is None:
            lib.pyvma_capture_poll(self._handle, 0)  # what has come by now
            lib.pyvma_capture_stop(self._handle)
            return
        self._control.socket.settimeout(STOP_S)
        try:
            self._control.ask("stop")
        except OSError:
            pass  # a process that has ended, or hangs, has nothing to add
        self._control.close()

    def trailer(self) -> bytes:
        """The blocks of statistics that end a file."""
        room = ffi.new("char[]", TRAILER_MAX)
        size = check(lib.pyvma_capture_trailer(self._handle, room, TRAILER_MAX))
        return bytes(ffi.buffer(room, size))

    def stats(self) -> list[InterfaceStats]:
        """Counts by interface, so far."""
        found: list[InterfaceStats] = []
        row = ffi.new("struct pyvma_capture_stats *")
        while lib.pyvma_capture_stats(self._handle, len(found), row) == 0:
            delivered = row.accepted - row.dropped
            found.append(InterfaceStats(ffi.string(row.name).decode(), row.received, row.accepted, delivered, row.dropped, row.missed))
        return found

    def close(self) -> None:
        """Ends it and gives everything back."""
        if self._control is not None:
            self._control.close()
        if self._handle is not None:
            lib.pyvma_capture_detach(self._handle)
        self._handle = None

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def live(pid: int, options: Options | None = None) -> Capture:
    """Starts to capture a live process. OSError says what is in the way."""
    options = options or Options()
    control = Control(pid)
    values: dict[str, int | str] = {"snaplen": options.snaplen, "count": options.count, "bytes": options.buffer_bytes}
    if options.interface:
        values["iface"] = options.interface
    if options.filter:
        values["filter"] = options.filter
    if options.hw_stamps:
        values["stamps"] = 1
    try:
        _, fds = control.ask("capture", **values)
    except BaseException:
        control.close()
        raise
    handle = ffi.new("pyvma_capture **")
    try:
        rc = lib.pyvma_capture_attach(fds[0] if fds else -1, handle)
    finally:
        for fd in fds:
            os.close(fd)
    if rc < 0:
        control.close()
        raise engine_error(rc)
    return Capture(handle[0], control)


def _interface(device: str) -> str:
    """ "softnic:..." as it is, "mlx5_0/1" as the setting `interfaces` would have it."""
    if ":" in device:
        return device
    name, _, port = device.partition("/")
    return f"verbs:device={name}" + (f",port={port}" if port else "")


def sniff(device: str, options: Options | None = None) -> Capture:
    """Starts to capture a device's port by a sniffer rule: "softnic:fabric=F,port=0", "mlx5_0" or "mlx5_0/1"."""
    options = options or Options()
    text = ffi.new("char[]", options.filter.encode())
    given = ffi.new("struct pyvma_capture_options *", [options.buffer_bytes, options.snaplen, options.count, text])
    handle = ffi.new("pyvma_capture **")
    rc = lib.pyvma_capture_sniff(_interface(device).encode(), given, handle)
    if rc < 0:
        raise engine_error(rc)
    return Capture(handle[0], None)
