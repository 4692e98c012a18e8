"""Whose peers are to be told, and of which connections: those of a process that asked for it and died without closing them.

A connection has a rule of its own, or it is in the process's statistics file, which came along when it asked. The file is its user's work
and may be anything: it is in memory, so that reading never waits, it is read by a thread, with bounds, and what it says is believed only
of ports that the process held. Nobody is told before the kernel says that the process is dead: a connection to the daemon may end for
other reasons.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import select
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._links import Links
from ._log import Log
from ._protocol import Flow, is_loopback, is_peer
from ._reset import MOST, Resets
from ._tc import Owner
from ._types import Process

if TYPE_CHECKING:
    from ..stats._schema import Type

__all__ = ["Crashes", "connections", "in_memory"]

DYING_S = 5.0  # a process that hung up and lives is none that crashed
LOOK_S = 0.02
CLOSE_S = 2.0
DYING_MOST = 64  # of a user
BYTES_MOST = 256 << 20
ENTRIES_MOST = 1 << 18
AT_ONCE = 256  # objects in memory as values, of which each may have thousands
LIVE = {"ESTABLISHED", "SYN-RECEIVED", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT"}
FIELDS = {"state": "enum", "local_addr": "addr", "local_port": "port", "remote_addr": "addr", "remote_port": "port"}

Ports = set[tuple[bytes, int, int]]


def in_memory(fd: int) -> str:
    """ "" when the descriptor is of a file in memory, else why not.

    Seals are what such files alone have, and the kernel knows them by itself. Asking for anything else comes second: a file system that a
    user serves would answer when it likes.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return "it is not in memory (tmpfs)"
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > BYTES_MOST:
        return "it is no file, or too large"
    return ""


def _connection(kind: Type, raw: tuple[object, ...]) -> Flow | None:
    state, local, port, remote, peer_port = (kind.value(raw, name) for name in FIELDS)
    packed = [getattr(address, "packed", b"") for address in (local, remote)]
    if state not in LIVE or len(packed[0]) != len(packed[1]):
        return None
    if not isinstance(port, int) or not isinstance(peer_port, int) or not (0 < port < 65536 and 0 < peer_port < 65536):
        return None
    return Flow(0, socket.IPPROTO_TCP, packed[0], port, packed[1], peer_port)


def connections(fd: int, owner: Owner, most: int = MOST) -> list[Flow]:
    """The TCP connections in a statistics file, if it is that process's, at most so many. Any exception: it makes no sense."""
    from ..stats._file import StatsFile  # a daemon that starts has rules to remove first

    file = StatsFile("its statistics file", fd)
    try:
        if file.head.start_ticks != owner.start:
            return []
        kind = next(each for each in file.types if each.name == "tcp")
        if any(kind.fields[name].kind != wanted for name, wanted in FIELDS.items()):
            return []
        entries = itertools.islice(file.entries(), ENTRIES_MOST)
        wanted = list(itertools.islice((entry for entry in entries if entry.type is kind), most))
        parts = (wanted[at : at + AT_ONCE] for at in range(0, len(wanted), AT_ONCE))
        found = (_connection(kind, raw) for part in parts for raw in file.objects(part).values() if raw is not None)
        return [flow for flow in found if flow]
    finally:
        file.close()


@dataclass(slots=True)
class _Crash:
    """What a process leaves; the descriptors are its own."""

    owner: Owner
    uid: int
    pidfd: int
    file: int
    flows: list[Flow]
    held: Ports
    until: float

    def close(self) -> None:
        for fd in (self.pidfd, self.file):
            if fd >= 0:
                os.close(fd)
        self.pidfd = self.file = -1


class Crashes:
    """Of all processes. All methods but `_work` are the loop's."""

    def __init__(self, log: Log, links: Links) -> None:
        self.resets = Resets(log)
        self._log = log
        self._links = links
        self._dying: list[_Crash] = []
        self._counts: dict[int, int] = {}  # by user: of those that are dying or being read
        self._jobs: deque[_Crash] = deque()
        self._done: deque[tuple[_Crash, list[Flow], str]] = deque()
        self._more = threading.Event()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._later: dict[int, deque[_Crash]] = {}  # by user, of whom a file is being read: the others
        self._stop = False
        self._thread = threading.Thread(target=self._work, name="crashes", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable: a file was read."""
        return self._bell

    def close(self) -> None:
        """Nobody is told any more."""
        self._stop = True
        self._more.set()
        self._thread.join(CLOSE_S)
        waiting = itertools.chain.from_iterable(self._later.values())
        for crash in (*self._dying, *self._jobs, *waiting, *(done[0] for done in list(self._done))):
            crash.close()
        os.close(self._bell)
        self.resets.close()

    # ---- what is known

    def take(self, process: Process, fd: int) -> str:
        """The file of a process, of which a copy is kept. "" or why not."""
        why = in_memory(fd)
        if not why:
            before, process.file = process.file, os.dup(fd)
            if before >= 0:
                os.close(before)
        return why

    def died(self, process: Process) -> None:
        """It is gone, or has hung up: whether it is dead will be seen."""
        count = self._counts.get(process.uid, 0)
        if count >= DYING_MOST:
            self._log.limited(("crashes", process.uid), f"user {process.uid}: too many processes die at once, peers are not told")
            return
        pidfd = os.dup(process.pidfd)  # it may fail: nothing is taken from the process before
        self._counts[process.uid] = count + 1
        flows = [
            flow for flow in {*process.flows, *process.lost, *process.said.values()} if flow.whole and flow.proto == socket.IPPROTO_TCP
        ]
        held = {*process.held, *(flow.port_key for flow in process.lost)}
        file, process.file = process.file, -1
        until = time.monotonic() + DYING_S
        self._dying.append(_Crash(process.owner, process.uid, pidfd, file, flows, held, until))

    def _end(self, crash: _Crash) -> None:
        crash.close()
        count = self._counts.pop(crash.uid) - 1
        if count:
            self._counts[crash.uid] = count

    # ---- in turn

    def due(self) -> float | None:
        """In how many seconds `turn` is to be called; None: no need."""
        return LOOK_S if self._dying else self.resets.due()

    def turn(self) -> None:
        """Who is dead by now, and what is to be sent."""
        if self._dying:
            self._look()
        self.resets.turn()

    def _look(self) -> None:
        poll = select.poll()
        for crash in self._dying:
            poll.register(crash.pidfd, select.POLLIN)
        dead = {fd for fd, _ in poll.poll(0)}
        now, waiting = time.monotonic(), []
        for crash in self._dying:
            if crash.pidfd in dead:
                self._tell(crash, crash.flows)
                if crash.file >= 0:
                    self._read_later(crash)
                else:
                    self._end(crash)
            elif now >= crash.until:
                self._end(crash)
            else:
                waiting.append(crash)
        self._dying = waiting

    def _tell(self, crash: _Crash, flows: Iterable[Flow]) -> None:
        self.resets.begin(crash.uid, (flow for flow in flows if self._may(crash, flow)))

    def _may(self, crash: _Crash, flow: Flow) -> bool:
        """Is it a connection of this host with another one, and, but for root, of a port that the process held?"""
        if len(flow.dst) != len(flow.src) or not (0 < flow.dst_port < 65536 and 0 < flow.src_port < 65536):
            return False
        if crash.uid and flow.port_key not in crash.held:
            return False
        if not is_peer(flow.src) or is_loopback(flow.src) or self._links.is_own(flow.src) or self._links.is_broadcast(flow.src):
            return False
        return self._links.is_own(flow.dst)

    # ---- the files

    def _read_later(self, crash: _Crash) -> None:
        """One of a user at a time: whose files take long makes nobody else wait for more than one."""
        if crash.uid in self._later:
            self._later[crash.uid].append(crash)
            return
        self._later[crash.uid] = deque()
        self._jobs.append(crash)
        self._more.set()

    def _taken(self) -> Iterator[_Crash]:
        while not self._stop:
            self._more.wait()
            self._more.clear()
            while self._jobs and not self._stop:
                yield self._jobs.popleft()

    def _work(self) -> None:
        """The thread: whatever is wrong with a file is that user's affair."""
        for crash in self._taken():
            found: list[Flow] = []
            wrong = ""
            try:
                found = connections(crash.file, crash.owner)
            except Exception as error:
                wrong = f"{error!s:.200}" or type(error).__name__
            self._done.append((crash, found, wrong))
            with contextlib.suppress(OSError):  # nobody listens any more
                os.eventfd_write(self._bell, 1)

    def read(self) -> None:
        """What the thread has found."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        while self._done:
            crash, found, wrong = self._done.popleft()
            if wrong:
                self._log.refusal(("crashes", crash.uid), f"process {crash.owner.pid} of user {crash.uid} died, and {wrong}")
            self._tell(crash, found)
            self._end(crash)
            waiting = self._later.pop(crash.uid)
            if waiting:
                self._read_later(waiting.popleft())
                self._later[crash.uid] = waiting
