"""The loop itself: uvloop's, with one set of offloaded sockets that its own epoll watches by the set's fd.

Everything of this package that waits for an offloaded socket does so by `EventLoop._watch` and `_unwatch`. A turn is one native call that
runs the engine and says which sockets are ready, and then the target of each.

fd mode. The set's fd is among uvloop's, and readable when a ring has received something: uvloop sleeps, and its thread is the one that is
woken. A turn ends by arming the rings and looking once more, so nothing is missed between the last look and the sleep. The engine's own
thread keeps the timers meanwhile, and takes the rings over when the loop is away for long.

Busy mode. A turn spins for a moment, without the GIL, unless callbacks wait, and then stands in line again behind them; what uvloop
watches ends the spin, too. While no offloaded socket is watched the loop sleeps as uvloop does.
"""

from __future__ import annotations

import asyncio as _asyncio
import collections
import contextvars
import gc
import os
import select as _select
import socket as _std
import weakref
from collections.abc import Callable
from typing import Any

from .. import _config
from .._native import is_started, lib, start
from .._native._calls import Poller
from ..socket import socket as _our_socket
from ._endpoints import Endpoints, Target
from ._sock_calls import SockCalls

_SPIN_NS = 50_000  # of one turn in busy mode: what uvloop's timers and fds may be late
_MODES = ("fd", "busy")
_READ, _WRITE = _select.EPOLLIN, _select.EPOLLOUT
_BROKEN = _select.EPOLLERR | _select.EPOLLHUP

_loops: weakref.WeakSet[EventLoop] = weakref.WeakSet()


class _Readers:
    """What add_reader() and add_writer() have of one socket. `key`: the socket, or the fd of one that has no object here."""

    __slots__ = ("key", "reader", "writer")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.reader: _asyncio.Handle | None = None
        self.writer: _asyncio.Handle | None = None

    def events(self) -> int:
        return (_READ if self.reader is not None else 0) | (_WRITE if self.writer is not None else 0)

    def ready(self, bits: int) -> None:
        if bits & (_READ | _BROKEN) and self.reader is not None:
            self.reader._run()
        if bits & (_WRITE | _BROKEN) and self.writer is not None:
            self.writer._run()


def _ready_queue(loop: Any) -> collections.deque[Any] | None:
    """uvloop's queue of callbacks that wait, which it does not show: the deque that a callback of ours turns up in."""
    handle = loop.call_soon(int)
    found = [item for item in gc.get_referents(loop) if type(item) is collections.deque and len(item) == 1 and item[0] is handle]
    handle.cancel()
    return found[0] if len(found) == 1 else None


def _choose_mode(mode: str | None) -> str:
    if mode is None:
        mode = _config.value_of("asyncio_mode")
    if mode not in _MODES:
        raise ValueError(f"mode must be 'fd' or 'busy', not {mode!r}")
    return mode


class EventLoop(SockCalls, Endpoints):
    """As uvloop.Loop, with offloaded sockets. `mode`: "fd", which sleeps when idle, or "busy", which spins; None: as configured."""

    def __init__(self, *, mode: str | None = None) -> None:
        self._mode = _choose_mode(mode)
        super().__init__()
        self._set: Poller | None = None
        self._fileno = -1  # of the set, when it is among uvloop's
        self._forked = False
        self._turning = False  # in busy mode: a turn stands in line
        self._alone = False  # and no other callback did
        self._backend = self._get_backend_id()
        self._watches: dict[int, tuple[Any, Any]] = {}  # what the set knows a socket by, and the socket
        self._readers: dict[Any, _Readers] = {}
        self._read_elsewhere: set[int] = set()  # fds that uvloop watches for add_reader()
        self._written_elsewhere: set[int] = set()
        self._context = contextvars.Context()
        queue = _ready_queue(self)
        if queue is None:
            self._mode = "fd"  # a spin must not keep callbacks waiting
        self._queue: collections.deque[Any] | tuple[None] = (None,) if queue is None else queue
        _loops.add(self)

    # ---- the set ----

    def _open_set(self) -> Poller:
        """The set, made for the first socket: a loop with none of ours is uvloop's and nothing else."""
        self._check_usable()
        if self._set is None:
            start()
            self._set = Poller(self._target_failed)
            if self._mode == "fd":
                self._fileno = self._set.loop_fd()
                super().add_reader(self._fileno, self._turn)
        return self._set

    def _target_failed(self, error: BaseException) -> None:
        self.call_exception_handler({"message": "exception while a ready socket was handled", "exception": error})

    def _close_set(self) -> None:
        taken, self._set = self._set, None
        if taken is not None:
            taken.close()
        self._watches.clear()
        readers, self._readers = self._readers, {}
        for entry in readers.values():
            _let_go(entry.key)

    def _check_usable(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        if self._forked:
            raise RuntimeError("this event loop was made before the fork, and its offloaded sockets are the parent's: make a new one")

    def _watch(self, sock: Any, events: int, target: Target) -> None:
        """Has `target` called with EPOLL bits whenever an offloaded socket is ready for `events`, or in error; adds or changes.

        Level-triggered. `sock` may be the fd of one. What a target raises goes to the exception handler.
        """
        if type(sock) is int:
            key = known = sock
        else:
            sock._open_sock()
            key, known = id(sock), sock._handle
        (self._set or self._open_set()).watch(known, events, target)
        self._watches[key] = (known, sock)
        if self._mode == "busy" and not self._turning:
            self._turning = True
            self._stand_in_line(self._spin)

    def _unwatch(self, sock: Any) -> None:
        """Ends that, also after the socket was closed; nothing happens when it was not watched."""
        found = self._watches.pop(sock if type(sock) is int else id(sock), None)
        if found is not None and not self._forked and self._set is not None:
            self._set.unwatch(found[0])

    def _turn(self) -> None:
        """The set's fd is readable. Ends when nothing is ready any more and the rings are armed, or stands in line behind callbacks."""
        poller = self._set
        if self._forked or poller is None:
            return
        done = False
        try:
            done = poller.rest(self._queue)
        except OSError:  # the engine's, which would come again at once
            done = True
            raise
        finally:
            if not done:
                self._stand_in_line(self._turn)

    def _spin(self) -> None:
        """Busy mode's turn."""
        self._turning = False
        poller, queue = self._set, self._queue
        if self._forked or poller is None or not self._watches:
            return
        self._turning = True
        try:
            poller.turn(_SPIN_NS if self._alone and not queue else 0, queue, self._backend)
        finally:
            # uvloop writes to kernel sockets after a whole round of callbacks: none of them shall wait for a spin.
            self._alone = not queue
            self._stand_in_line(self._spin)

    def _stand_in_line(self, turn: Callable[[], None]) -> None:
        if self._set is not None and not self.is_closed():
            self.call_soon(turn, context=self._context)

    # ---- who has a socket ----

    def _own(self, sock: Any, transport: Any) -> None:
        """Takes note that a socket is a transport's, for as long as that lives or until _disown()."""
        self._owners[id(sock)] = transport

    def _disown(self, sock: Any) -> None:
        self._owners.pop(id(sock), None)

    def _ensure_no_transport(self, sock: Any) -> None:
        owner = self._owners.get(id(sock))
        if owner is not None and not owner.is_closing():
            raise RuntimeError(f"File descriptor {sock._number()!r} is used by transport {owner!r}")

    # ---- readers and writers ----

    def _readers_of(self, fileobj: Any, make: bool) -> _Readers | None:
        """The entry of an offloaded socket or of an fd that leads to one; None: it is uvloop's, or there is none and none is made."""
        if isinstance(fileobj, _our_socket):
            if fileobj._sock is None:  # type: ignore[attr-defined]
                return None if make else self._readers.get(id(fileobj))  # closed meanwhile, or the kernel's
            number = _std.socket.fileno(fileobj)
            found = self._readers.get(id(fileobj)) or (self._readers.get(number) if number >= 0 else None)
            if found is None:
                self._ensure_no_transport(fileobj)
        elif type(fileobj) is int:
            if fileobj < 0 or not is_started() or lib.pyvma_is_sock(fileobj) <= 0:
                return self._readers.get(fileobj)
            found = self._readers.get(fileobj) or next((r for r in self._readers.values() if _number(r.key) == fileobj), None)
        else:
            return None
        if found is None and make:
            found = _Readers(fileobj)
        return found

    def _apply(self, entry: _Readers) -> None:
        key = entry.key if type(entry.key) is int else id(entry.key)
        events = entry.events()
        if events:
            self._watch(entry.key, events, entry.ready)
            if key not in self._readers:
                self._readers[key] = entry
                _hold(entry.key)
        elif self._readers.pop(key, None) is not None:
            self._unwatch(entry.key)
            _let_go(entry.key)

    def _add(self, fileobj: Any, which: str, callback: Callable[..., object], args: tuple[Any, ...]) -> bool:
        if self._forked or self.is_closed():
            self._check_usable()
        entry = self._readers_of(fileobj, True)
        if entry is None:
            return False
        old = getattr(entry, which)
        setattr(entry, which, _asyncio.Handle(callback, args, self, None))
        try:
            if old is None:
                self._apply(entry)
        except BaseException:
            setattr(entry, which, old)
            raise
        if old is not None:
            old.cancel()
        return True

    def _remove(self, fileobj: Any, which: str) -> bool | None:
        """None: it is uvloop's."""
        entry = self._readers_of(fileobj, False)
        if entry is None:
            return False if isinstance(fileobj, _our_socket) and fileobj._sock is not None else None  # type: ignore[attr-defined]
        old = getattr(entry, which)
        if old is None:
            return False
        old.cancel()
        setattr(entry, which, None)
        self._apply(entry)
        return True

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """As uvloop.Loop.add_reader()."""
        if not self._add(fd, "reader", callback, args):
            super().add_reader(fd, callback, *args)
            self._read_elsewhere.add(_fd_of(fd))

    def remove_reader(self, fd: Any) -> bool:
        """As uvloop.Loop.remove_reader(); and whether there was one, as asyncio has it."""
        done = self._remove(fd, "reader")
        if done is None:
            super().remove_reader(fd)
            done = _discard(self._read_elsewhere, _fd_of(fd))
        return done

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """As uvloop.Loop.add_writer()."""
        if not self._add(fd, "writer", callback, args):
            super().add_writer(fd, callback, *args)
            self._written_elsewhere.add(_fd_of(fd))

    def remove_writer(self, fd: Any) -> bool:
        """As uvloop.Loop.remove_writer(); and whether there was one, as asyncio has it."""
        done = self._remove(fd, "writer")
        if done is None:
            super().remove_writer(fd)
            done = _discard(self._written_elsewhere, _fd_of(fd))
        return done

    # ---- life ----

    def run_forever(self) -> None:
        """As uvloop.Loop.run_forever()."""
        self._check_usable()
        super().run_forever()

    def run_until_complete(self, future: Any) -> Any:
        """As uvloop.Loop.run_until_complete()."""
        self._check_usable()
        return super().run_until_complete(future)

    def close(self) -> None:
        """As uvloop.Loop.close()."""
        if self._forked:  # what uvloop would undo is the parent's
            return
        if not self.is_closed() and not self.is_running():
            self._close_owned()
        if not self.is_closed() and not self.is_running() and self._set is not None:
            if self._fileno >= 0:
                super().remove_reader(self._fileno)
                self._fileno = -1
            self._close_set()
        super().close()
        self._read_elsewhere.clear()
        self._written_elsewhere.clear()


def _number(key: Any) -> int:
    return -1 if type(key) is int else _std.socket.fileno(key)


def _fd_of(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


def _discard(numbers: set[int], number: int) -> bool:
    if number in numbers:
        numbers.remove(number)
        return True
    return False


def _hold(key: Any) -> None:
    """close() of a socket that is watched comes into force when it is watched no more: as uvloop has it."""
    if type(key) is not int:
        key._io_refs += 1


def _let_go(key: Any) -> None:
    if type(key) is not int:
        key._decref_socketios()


def _mark_forked() -> None:
    for loop in _loops:
        loop._forked = loop._forked or loop._set is not None
        loop._set = None


os.register_at_fork(after_in_child=_mark_forked)
