"""The loop itself: uvloop's, with one set of offloaded sockets that its own epoll watches by the set's fd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uvloop

from .._native import check, ffi, lib, start
from ..socket import socket as _our_socket

_ADD, _DEL, _MOD = 1, 2, 3
_MOST = 256

Target = Callable[[int], None]
"""What the loop calls with the EPOLL bits of a socket that is ready."""


class EventLoop(uvloop.Loop):
    """As uvloop.Loop, with offloaded sockets."""

    def __init__(self) -> None:
        super().__init__()
        self._set: Any = None
        self._watches: dict[int, tuple[Target, _our_socket]] = {}
        self._events: Any = ffi.new("struct pyvma_event[]", _MOST)

    def _open_set(self) -> Any:
        """The set, made for the first socket: a loop with none of ours is uvloop's and nothing else."""
        if self._set is None:
            start()
            out = ffi.new("pyvma_epoll **")
            check(lib.pyvma_epoll_open(out))
            self._set = out[0]
            super().add_reader(check(lib.pyvma_epoll_fileno(self._set)), self._turn)
        return self._set

    def _watch(self, sock: _our_socket, events: int, target: Target) -> None:
        """Has `target` called with EPOLL bits whenever an offloaded socket is ready for `events`, or in error; adds or changes."""
        opened = self._open_set()
        event = ffi.new("struct pyvma_event *", (events, id(sock)))
        op = _MOD if id(sock) in self._watches else _ADD
        check(lib.pyvma_epoll_ctl_sock(opened, op, sock._open_sock(), event))  # type: ignore[attr-defined]
        self._watches[id(sock)] = (target, sock)

    def _unwatch(self, sock: _our_socket) -> None:
        """Ends that. Must come before the socket is closed; nothing happens when it was not watched."""
        if self._watches.pop(id(sock), None) is not None:
            check(lib.pyvma_epoll_ctl_sock(self._set, _DEL, sock._open_sock(), ffi.NULL))  # type: ignore[attr-defined]

    def _turn(self) -> None:
        """One call finds out about every socket that is ready."""
        events = self._events
        for i in range(check(lib.pyvma_epoll_wait(self._set, events, _MOST, 0))):
            found = self._watches.get(events[i].data)
            if found is None:  # an earlier one of this turn ended it
                continue
            try:
                found[0](events[i].events)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": "exception while a ready socket was handled", "exception": error})

    def close(self) -> None:
        """As uvloop.Loop.close()."""
        if not self.is_closed() and not self.is_running() and self._set is not None:
            super().remove_reader(check(lib.pyvma_epoll_fileno(self._set)))
            lib.pyvma_epoll_close(self._set)
            self._set = None
            self._watches.clear()
        super().close()
