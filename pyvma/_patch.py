"""Sockets of the engine in a program as it is: `pyvma.patch()` sets them in the standard library's modules.

What is replaced, each in its module, so that `import socket`, `from socket import socket` and libraries get it:

    socket      socket.socket; everything else in the module makes its sockets by that name
    select      select.select, select.poll, select.epoll
    selectors   the selectors over those three, and DefaultSelector
    ssl         the class of the sockets that every SSLContext makes, those that are there already included
    asyncio     the policy of event loops; and uvloop.Loop, which servers ask for by name where uvloop is installed

It is for the start of a program: a module that has taken `socket.socket` by name before keeps the standard class, and its sockets stay
the kernel's. `patch()` warns of those. Whoever holds a function or selector of the standard library's loses nothing but time: they know
our sockets by `fileno()`.

Sockets that the kernel has to carry are the standard library's in all but name, so patching changes nothing for them.
"""

from __future__ import annotations

import abc
import contextlib
import importlib
import socket as _std
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["MODULES", "PatchWarning", "Patched", "patch", "unpatch"]

MODULES = ("socket", "select", "selectors", "ssl", "asyncio")
_NAMES = {
    "select": ("select", "poll", "epoll"),
    "selectors": ("SelectSelector", "PollSelector", "EpollSelector", "DefaultSelector"),
}
_BASE: Any = _std.socket
_lock = threading.Lock()


class PatchWarning(RuntimeWarning):
    """Something keeps using sockets of the standard library's."""


class _SocketType(abc.ABCMeta):
    """Of the class that stands in for `socket.socket`: every socket is an instance of it, as before, whoever made it.

    From ABCMeta, so that a program's class may have both a socket and an abstract class among its bases.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _BASE) if cls is _stand_in else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _BASE) if cls is _stand_in else super().__subclasscheck__(subclass)


_stand_in: Any = None


def _socket_class() -> Any:
    """The class that stands in, always the same one."""
    global _stand_in
    if _stand_in is None:
        from . import socket as ours

        space = {"__slots__": (), "__module__": ours.socket.__module__, "__doc__": ours.socket.__doc__}
        _stand_in = _SocketType("socket", (ours.socket,), space)
    return _stand_in


class _Change:
    """What was replaced, and how it is put back."""

    def __init__(self, name: str, *undo: Callable[[], None]) -> None:
        self.name, self._undo = name, undo

    def undo(self) -> None:
        for call in self._undo:
            call()


class Patched:
    """What one call of patch() did; as a context manager it undoes that at the end."""

    replaced: tuple[str, ...]
    """What this call replaced: "socket.socket", ...; nothing that was replaced before."""
    held: tuple[str, ...]
    """What has the standard library's socket class still: "module.name" of its names and of classes derived from it."""

    def __init__(self, changes: Sequence[_Change], held: Sequence[str]) -> None:
        self._changes = tuple(changes)
        self.replaced = tuple(change.name for change in changes)
        self.held = tuple(held)

    def undo(self) -> None:
        """Puts back what this call replaced. Sockets that are there stay what they are."""
        with _lock:
            for change in reversed(self._changes):
                if change in _changes:
                    _changes.remove(change)
                    change.undo()

    def __enter__(self) -> Patched:
        return self

    def __exit__(self, *args: object) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<pyvma.Patched replaced={list(self.replaced)} held={list(self.held)}>"


_changes: list[_Change] = []


def _set(owner: Any, name: str, value: Any, told: str) -> list[_Change]:
    """Sets an attribute, once. What somebody else has put in its place meanwhile is not taken away by the undoing."""
    before = getattr(owner, name)
    if before is value:
        return []

    def undo() -> None:
        if getattr(owner, name) is value:
            setattr(owner, name, before)

    setattr(owner, name, value)
    return [_Change(told, undo)]


def _patch_names(module: str) -> list[_Change]:
    theirs, ours = importlib.import_module(module), importlib.import_module(f"pyvma.{module}")
    return [change for name in _NAMES[module] for change in _set(theirs, name, getattr(ours, name), f"{module}.{name}")]


def _patch_socket() -> list[_Change]:
    # uvloop takes socket.socket by name, for sockets of its own: those are libuv's to run, and have to be the kernel's.
    with contextlib.suppress(ImportError):
        importlib.import_module("uvloop")
    ours = importlib.import_module("pyvma.socket")
    made = _set(_std, "socket", _socket_class(), "socket.socket")
    if not made:
        return []
    # multiprocessing knows by its exact class how to pass a socket on.
    reduction: Any = sys.modules.get("multiprocessing.reduction")
    if reduction is not None:
        reduction.register(_stand_in, reduction._reduce_socket)
    # What accept() makes is of the class that programs see.
    made += _set(ours, "_accepted", _stand_in, "")
    return [_Change("socket.socket", *(change.undo for change in made))]


def _patch_ssl() -> list[_Change]:
    theirs, ours = importlib.import_module("ssl"), importlib.import_module("pyvma.ssl")
    return _set(theirs.SSLContext, "sslsocket_class", ours.SSLSocket, "ssl.SSLContext.sslsocket_class")


def _patch_asyncio() -> list[_Change]:
    theirs, ours = importlib.import_module("asyncio"), importlib.import_module("pyvma.asyncio")
    # uvloop's own functions and policy make their loops by that name.
    made = _set(importlib.import_module("uvloop"), "Loop", ours.EventLoop, "uvloop.Loop")
    before = theirs.get_event_loop_policy()
    if isinstance(before, ours.EventLoopPolicy):
        return made
    policy = ours.EventLoopPolicy()

    def undo() -> None:
        if theirs.get_event_loop_policy() is policy:
            theirs.set_event_loop_policy(before)

    theirs.set_event_loop_policy(policy)
    return [*made, _Change("asyncio: the policy", undo)]


_STEPS: dict[str, Callable[[], list[_Change]]] = {
    "socket": _patch_socket,
    "select": lambda: _patch_names("select"),
    "selectors": lambda: _patch_names("selectors"),
    "ssl": _patch_ssl,
    "asyncio": _patch_asyncio,
}
# Standard modules that have the class by name and make no socket with it.
_HARMLESS = ("socket", "ssl")


def _held() -> list[str]:
    """Where the standard class of sockets is held by name or as a base, ours aside."""
    found = set()
    for name, module in list(sys.modules.items()):
        if name in _HARMLESS or name.partition(".")[0] == "pyvma":
            continue
        try:
            items = list(vars(module).items())
        except TypeError:  # not a module
            continue
        found |= {f"{name}.{item}" for item, value in items if value is _BASE}
    for derived in _BASE.__subclasses__():
        if derived.__module__ not in _HARMLESS and derived.__module__.partition(".")[0] != "pyvma":
            found.add(f"{derived.__module__}.{derived.__qualname__}")
    return sorted(found)


def patch(socket: bool = True, select: bool = True, selectors: bool = True, ssl: bool = True, asyncio: bool = True) -> Patched:
    """Sets pyvma's sockets in the standard library's modules, each unless it is told not to.

    Tells what it replaced: as the result, whose `undo()` or use as a context manager takes it back, and at level INFO to the logger
    "pyvma". A call that finds everything replaced changes nothing. PatchWarning names what was imported too early and goes on
    with the standard library's sockets. OSError is the engine's, when it cannot be had.
    """
    import logging

    wanted = dict(zip(MODULES, (socket, select, selectors, ssl, asyncio), strict=True))
    # Ours take what they need of the standard modules, all before the first is changed.
    for module in MODULES:
        if wanted[module]:
            importlib.import_module(f"pyvma.{module}")
    with _lock:
        made: list[_Change] = []
        try:
            for module in MODULES:
                if wanted[module]:
                    made += _STEPS[module]()
        except BaseException:
            for change in reversed(made):
                change.undo()
            raise
        _changes.extend(made)
    log = logging.getLogger("pyvma")
    for change in made:
        log.info("replaced %s", change.name)
    held = _held() if "socket.socket" in [change.name for change in made] else []
    if held:
        warnings.warn(
            f"sockets of the standard library's are still used by {', '.join(held)}: call pyvma.patch() before they are imported",
            PatchWarning,
            stacklevel=2,
        )
    return Patched(made, held)


def unpatch() -> None:
    """Puts back everything that patch() has replaced."""
    with _lock:
        while _changes:
            _changes.pop().undo()
