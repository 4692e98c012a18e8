"""asyncio over the engine: an event loop on uvloop's whose sockets are offloaded wherever `pyvma.socket` would offload them.

    import pyvma.asyncio
    pyvma.asyncio.run(main())

Timers, signals, subprocesses, pipes, name resolution, executors and kernel sockets are uvloop's.
"""

from __future__ import annotations

import asyncio as _std
from collections.abc import Coroutine
from typing import Any, TypeVar

from ._loop import EventLoop

__all__ = ["EventLoop", "EventLoopPolicy", "new_event_loop", "run"]

_T = TypeVar("_T")


def new_event_loop(*, mode: str | None = None) -> EventLoop:
    """A loop, for `loop_factory` of asyncio.Runner and the like. `mode`: "fd" or "busy"; None: as configured."""
    return EventLoop(mode=mode)


class EventLoopPolicy(_std.DefaultEventLoopPolicy):  # type: ignore[misc, unused-ignore]
    """As asyncio's default policy, with loops of this package."""

    _loop_factory = staticmethod(new_event_loop)


def run(main: Coroutine[Any, Any, _T], *, debug: bool | None = None) -> _T:
    """As asyncio.run(), on a loop of this package."""
    if _std._get_running_loop() is not None:
        raise RuntimeError("pyvma.asyncio.run() cannot be called from a running event loop")
    loop = new_event_loop()
    try:
        _std.set_event_loop(loop)
        if debug is not None:
            loop.set_debug(debug)
        result: _T = loop.run_until_complete(main)
        return result
    finally:
        try:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            _std.set_event_loop(None)
            loop.close()


def _cancel_all(loop: EventLoop) -> None:
    tasks = _std.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(_std.gather(*tasks, return_exceptions=True)) if tasks else None
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler({"message": "unhandled exception during run() shutdown", "exception": error, "task": task})
