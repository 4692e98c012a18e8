"""A drop-in for the standard library's `select`, over offloaded sockets, kernel sockets and any other fd at once.

`epoll`, `poll` and `select` know offloaded sockets by their fds or objects, so nothing needs to be shown to the kernel: a wait polls the
rings itself, spins for the configured time, then sleeps. Events, arguments and errors are the standard library's.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select as _std
import threading
import time
from select import *
from typing import Any

from ._native import check, ffi, lib
from .socket import socket as _our_socket

globals().update({name: value for name, value in vars(_std).items() if not name.startswith("_")})
__all__ = sorted(name for name in vars(_std) if not name.startswith("_"))

# By name: pyvma.patch() sets ours in the module.
_std_epoll, _std_poll, _std_select = _std.epoll, _std.poll, _std.select
_ADD, _DEL, _MOD = 1, 2, 3
_MANY = 1022  # FD_SETSIZE - 1, what epoll.poll() asks for unless told
_UINT_MAX, _USHRT_MAX, _INT_MAX = 0xFFFFFFFF, 0xFFFF, 0x7FFFFFFF


def _positive(number: int) -> int:
    if number < 0:
        raise ValueError(f"file descriptor cannot be a negative integer ({number})")
    return number


def _number(fileobj: Any) -> int:
    """The fd of an int or of an object with fileno(); an offloaded socket's is not made to follow its readiness for that."""
    if isinstance(fileobj, _our_socket):
        return _positive(fileobj._number())  # type: ignore[attr-defined]
    number = fileobj if isinstance(fileobj, int) else None
    if number is None:
        try:
            method = fileobj.fileno
        except AttributeError:
            raise TypeError("argument must be an int, or have a fileno() method.") from None
        number = method()
        if not isinstance(number, int):
            raise TypeError("fileno() returned a non-integer")
    return _positive(number)


def _mask(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
    if not 0 <= value <= _UINT_MAX:
        raise OverflowError("unsigned int out of range")
    return value


def _nanoseconds(seconds: Any) -> int:
    """None and negative wait for ever: -1."""
    if seconds is None:
        return -1
    try:
        value = float(seconds)
    except TypeError:
        raise TypeError("timeout must be a number or None") from None
    if math.isnan(value):
        raise ValueError("Invalid value NaN (not a number)")
    if abs(value) > (1 << 63) / 1e9:
        raise OverflowError("timeout is too large")
    return -1 if value < 0 else math.ceil(value * 1e9)


class _Set:
    """A pyvma_epoll and buffers for what it tells."""

    def __init__(self, waits: int) -> None:
        out = ffi.new("pyvma_epoll **")
        check(lib.pyvma_epoll_open(out))
        self.pointer: Any = ffi.gc(out[0], lib.pyvma_epoll_close)
        lib.pyvma_epoll_waits(self.pointer, waits)
        self._buffers: list[Any] = []

    def close(self) -> None:
        pointer, self.pointer = self.pointer, None
        if pointer is not None:
            ffi.gc(pointer, None)
            lib.pyvma_epoll_close(pointer)

    def control(self, op: int, fd: int, mask: int = 0) -> None:
        event = ffi.new("struct pyvma_event *", (mask, fd))
        check(lib.pyvma_epoll_ctl(self.pointer, op, fd, event))

    def wait(self, timeout_ns: int, most: int) -> list[tuple[int, int]]:
        """(fd, events) of what is ready. A signal runs its handler, then the wait goes on (PEP 475)."""
        deadline = time.monotonic_ns() + timeout_ns if timeout_ns > 0 else 0
        # Taken from the list, so that threads that wait at once have one each.
        buffer = self._buffers.pop() if self._buffers else None
        if buffer is None or len(buffer) < most:
            buffer = ffi.new("struct pyvma_event[]", most)
        while True:
            n = lib.pyvma_epoll_wait(self.pointer, buffer, most, timeout_ns)
            if n != -errno.EINTR:
                break
            if deadline:
                timeout_ns = max(deadline - time.monotonic_ns(), 0)
        ready = [(buffer[i].data, buffer[i].events) for i in range(check(n))]
        self._buffers.append(buffer)
        return ready


class epoll:  # type: ignore[no-redef]
    """As `select.epoll`."""

    def __init__(self, sizehint: int = -1, flags: int = 0) -> None:
        if not isinstance(sizehint, int) or not isinstance(flags, int):
            raise TypeError("an integer is required")
        if sizehint != -1 and sizehint <= 0:
            raise ValueError("sizehint must be positive or -1")
        if flags & ~_std.EPOLL_CLOEXEC:
            raise OSError(errno.EINVAL, "invalid flags")
        self._set: _Set | None = _Set(lib.PYVMA_WAITS_EPOLL)

    @classmethod
    def fromfd(cls, fd: int) -> Any:
        """As select.epoll.fromfd(): an epoll fd of the kernel's, with the standard library's class."""
        return _std_epoll.fromfd(fd)

    def _open(self) -> _Set:
        if self._set is None:
            raise ValueError("I/O operation on closed epoll object")
        return self._set

    @property
    def closed(self) -> bool:
        """True if the epoll object is closed."""
        return self._set is None

    def close(self) -> None:
        """As select.epoll.close()."""
        taken, self._set = self._set, None
        if taken is not None:
            taken.close()

    def fileno(self) -> int:
        """An fd that is readable while something is ready, for sets within sets."""
        return check(lib.pyvma_epoll_fileno(self._open().pointer))

    def register(self, fd: Any, eventmask: int = _std.EPOLLIN | _std.EPOLLPRI | _std.EPOLLOUT) -> None:
        """As select.epoll.register(fd[, eventmask])."""
        self._open().control(_ADD, _number(fd), _mask(eventmask))

    def modify(self, fd: Any, eventmask: int) -> None:
        """As select.epoll.modify(fd, eventmask)."""
        self._open().control(_MOD, _number(fd), _mask(eventmask))

    def unregister(self, fd: Any) -> None:
        """As select.epoll.unregister(fd)."""
        self._open().control(_DEL, _number(fd))

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """As select.epoll.poll([timeout[, maxevents]]): seconds; (fd, events) of what is ready."""
        opened = self._open()
        timeout_ns = _nanoseconds(timeout)
        if not isinstance(maxevents, int):
            raise TypeError(f"'{type(maxevents).__name__}' object cannot be interpreted as an integer")
        if maxevents == -1:
            maxevents = _MANY
        elif maxevents < 1:
            raise ValueError(f"maxevents must be greater than 0, got {maxevents}")
        return opened.wait(timeout_ns, maxevents)

    def __enter__(self) -> Any:
        self._open()
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()


class _Poller:
    """What `poll` and `select` share: sockets of this package in a set, everything else with the kernel's poll as well.

    Only the kernel's poll says what is to be said of files and of numbers that are no fds; the set, which is there once a socket of
    this package is, has the others so that one wait is for all.
    """

    def __init__(self, waits: int) -> None:
        self._waits = waits
        self._set: _Set | None = None
        self._kernel = _std_poll()
        self.masks: dict[int, int] = {}
        self.ours: set[int] = set()

    def _watch(self, fd: int, mask: int) -> bool:
        """Puts an fd into the set; whether the set will tell of it: it does not of files, which are always ready, nor of closed ones."""
        assert self._set is not None
        for op in (_ADD, _MOD):
            try:
                self._set.control(op, fd, mask)
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EPERM):
                    return False
                if error.errno != errno.EEXIST:
                    raise
            else:
                return True
        return True

    def add(self, fd: int, mask: int, ours: bool) -> None:
        """Adds or changes."""
        if fd in self.masks and (fd in self.ours) != ours:
            self.remove(fd)
        if ours and self._set is None:
            self._set = _Set(self._waits)
            for other, bits in self.masks.items():
                self._watch(other, bits)
        told = self._set is not None and self._watch(fd, mask)
        if ours and told:
            self.ours.add(fd)
        else:
            self._kernel.register(fd, mask)
        self.masks[fd] = mask

    def remove(self, fd: int) -> None:
        del self.masks[fd]
        if self._set is not None:
            with contextlib.suppress(OSError):  # closed meanwhile
                self._set.control(_DEL, fd)
        if fd in self.ours:
            self.ours.remove(fd)
        else:
            self._kernel.unregister(fd)

    def wait(self, timeout_ns: int) -> list[tuple[int, int]]:
        deadline = time.monotonic_ns() + timeout_ns
        while True:
            left = -1 if timeout_ns < 0 else max(deadline - time.monotonic_ns(), 0) if timeout_ns else 0
            if self._set is None or not self.ours:
                return self._kernel.poll(None if left < 0 else math.ceil(left / 1e6))
            ready = self._kernel.poll(0) if len(self.ours) < len(self.masks) else []
            told = self._set.wait(0 if ready else left, len(self.masks))
            ready += [item for item in told if item[0] in self.ours]
            if ready or left == 0:
                return ready


class _Poll:
    """As the objects of `select.poll()`."""

    _poller: _Poller
    _busy: Any

    def __new__(cls) -> Any:
        raise TypeError(f"cannot create '{cls.__module__}.{cls.__qualname__}' instances")

    def register(self, fd: Any, eventmask: int = _std.POLLIN | _std.POLLPRI | _std.POLLOUT) -> None:
        """As poll.register(fd[, eventmask])."""
        number = _number(fd)
        self._poller.add(number, _short(eventmask), lib.pyvma_is_sock(number) > 0)

    def modify(self, fd: Any, eventmask: int) -> None:
        """As poll.modify(fd, eventmask)."""
        number = _number(fd)
        if number not in self._poller.masks:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._poller.add(number, _short(eventmask), number in self._poller.ours)

    def unregister(self, fd: Any) -> None:
        """As poll.unregister(fd)."""
        self._poller.remove(_number(fd))

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """As poll.poll([timeout]): milliseconds; (fd, events) of what is ready."""
        if timeout is None or timeout < 0:
            timeout_ns = -1
        elif timeout > _INT_MAX:
            raise OverflowError("timeout is too large")
        else:
            timeout_ns = math.ceil(timeout * 1e6)
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("concurrent poll() invocation")
        try:
            return self._poller.wait(timeout_ns)
        finally:
            self._busy.release()


_Poll.__module__, _Poll.__name__, _Poll.__qualname__ = "select", "poll", "poll"


def poll() -> Any:  # type: ignore[no-redef]
    """As `select.poll()`."""
    made = object.__new__(_Poll)
    made._poller, made._busy = _Poller(lib.PYVMA_WAITS_POLL), threading.Lock()
    return made


def _short(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
    if value < 0:
        raise ValueError("value must be positive")
    if value > _USHRT_MAX:
        raise OverflowError("Python int too large for C unsigned short")
    return value


_local = threading.local()
_READ = _std.POLLIN | _std.POLLHUP | _std.POLLERR | _std.POLLRDHUP
_WRITE = _std.POLLOUT | _std.POLLERR
_EXCEPT = _std.POLLPRI


def _is_ours(item: Any) -> bool:
    return isinstance(item, _our_socket) or (isinstance(item, int) and item >= 0 and lib.pyvma_is_sock(item) > 0)


def select(rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /) -> Any:  # type: ignore[no-redef]
    """As select.select(): the objects of each list that are ready for reading, for writing, or in an exceptional condition."""
    try:
        lists = [list(items) for items in (rlist, wlist, xlist)]
    except TypeError:
        lists = []
    if not any(_is_ours(item) for items in lists for item in items):
        return _std_select(rlist, wlist, xlist, timeout)
    numbers = [[_number(item) for item in items] for items in lists]
    if timeout is not None:
        timeout_ns = _nanoseconds(timeout)
        if timeout_ns < 0:
            raise ValueError("timeout must be non-negative")
    else:
        timeout_ns = -1
    masks: dict[int, int] = {}
    for group, mask in zip(numbers, (_std.POLLIN, _std.POLLOUT, _std.POLLPRI), strict=True):
        for number in group:
            masks[number] = masks.get(number, 0) | mask
    ready = dict(_selected(masks, timeout_ns))
    if any(bits & _std.POLLNVAL for bits in ready.values()):
        raise OSError(errno.EBADF, "Bad file descriptor")
    return tuple(
        [item for item, number in zip(items, group, strict=True) if ready.get(number, 0) & bits]
        for items, group, bits in zip(lists, numbers, (_READ, _WRITE, _EXCEPT), strict=True)
    )


def _selected(masks: dict[int, int], timeout_ns: int) -> list[tuple[int, int]]:
    """By a poller that each thread keeps: a call that asks for what the last one did changes nothing in it."""
    poller: _Poller | None = getattr(_local, "poller", None)
    if poller is None:
        poller = _local.poller = _Poller(lib.PYVMA_WAITS_SELECT)
    _local.poller = None  # a signal's handler may select, too
    for number in [number for number in poller.masks if number not in masks]:
        poller.remove(number)
    for number, mask in masks.items():
        poller.add(number, mask, lib.pyvma_is_sock(number) > 0)
    try:
        return poller.wait(timeout_ns)
    finally:
        _local.poller = poller
