"""A drop-in for the standard library's `selectors`, over `pyvma.select`: offloaded sockets, kernel sockets and other fds at once."""

from __future__ import annotations

import selectors as _std
from selectors import *
from typing import Any

from . import select
from .socket import socket as _our_socket

globals().update({name: value for name, value in vars(_std).items() if not name.startswith("__") and name != "select"})
__all__ = [name for name in vars(_std) if not name.startswith("_")]


class _Numbers:
    """Keys are the sockets' numbers; nothing has to be shown to the kernel."""

    def _fileobj_lookup(self, fileobj: Any) -> int:
        if isinstance(fileobj, _our_socket):
            number: int = fileobj._number()  # type: ignore[attr-defined]
            if number >= 0:
                return number
        return super()._fileobj_lookup(fileobj)  # type: ignore[misc, no-any-return]


class SelectSelector(_Numbers, _std.SelectSelector):  # type: ignore[no-redef]
    """As `selectors.SelectSelector`."""

    _select = staticmethod(select.select)


class PollSelector(_Numbers, _std.PollSelector):  # type: ignore[no-redef]
    """As `selectors.PollSelector`."""

    _selector_cls = staticmethod(select.poll)


class EpollSelector(_Numbers, _std.EpollSelector):  # type: ignore[no-redef]
    """As `selectors.EpollSelector`."""

    _selector_cls = select.epoll


DefaultSelector = EpollSelector  # type: ignore[misc, assignment]
