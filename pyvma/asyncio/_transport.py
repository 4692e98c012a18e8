"""What the transports of offloaded sockets share: their life, flow control, extra info. What happens in which order is as in uvloop."""

from __future__ import annotations

import asyncio
import asyncio.trsock
import contextvars
import errno
import logging
import os
import select
import warnings
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._endpoints import Endpoints
    from ._server import Server

IN, OUT = select.EPOLLIN, select.EPOLLOUT
LOST_WRITES_LOGGED = 5
_HIGH_WATER = 64 * 1024

logger = logging.getLogger("asyncio")


class TransportSocket(asyncio.trsock.TransportSocket):
    """What get_extra_info("socket") shows: the socket's names and options, and what became of it, not its data."""

    __slots__ = ()
    _sock: Any

    @property
    def offload(self) -> Any:
        """As `pyvma.socket.socket.offload`."""
        return self._sock.offload

    @property
    def stats(self) -> dict[str, int]:
        """As `pyvma.socket.socket.stats`."""
        found: dict[str, int] = self._sock.stats
        return found

    def __repr__(self) -> str:
        return repr(self._sock)  # asyncio's would ask for the fd, which has a price


def limits(high: int | None, low: int | None, default: int = _HIGH_WATER) -> tuple[int, int]:
    """The water marks (high, low) that set_write_buffer_limits(high, low) means."""
    if high is None:
        high = default if low is None else 4 * low
    if low is None:
        low = high // 4
    if not high >= low >= 0:
        raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
    return high, low


class SocketTransport(asyncio.BaseTransport):
    """A transport that owns a non-blocking offloaded socket, which it closes in the end.

    A kind of transport has `_on_input`, which takes what has come, and `_flush`, which sends what waits.
    `context` is where the protocol's methods run. `server` counts its connections; `waiter` learns that connection_made() was called.
    """

    __slots__ = (
        "__weakref__",
        "_backlog",
        "_backlog_size",
        "_closed",
        "_closing",
        "_conn_lost",
        "_connected",
        "_context",
        "_events",
        "_high_water",
        "_loop",
        "_low_water",
        "_names",
        "_protocol",
        "_protocol_paused",
        "_reading",
        "_run",
        "_server",
        "_sock",
        "_sock_info",
        "_waiter",
    )

    _on_input: Callable[[int], None]

    def __init__(self, loop: Endpoints, sock: Any, context: contextvars.Context, waiter: asyncio.Future[Any] | None = None) -> None:
        self._closed = True  # until the socket is ours
        super().__init__()
        self._loop = loop
        self._sock = sock
        self._sock_info: TransportSocket | None = None
        self._names: dict[str, Any] = {}
        self._context = context
        self._run = context.run
        self._waiter = waiter
        self._server: Server | None = None
        self._protocol: Any = None
        self._connected = False  # connection_made() was called
        self._reading = False
        self._events = 0  # watched for
        self._conn_lost = 0  # connection_lost() is on its way; then also counts writes
        self._closing = False
        self._high_water, self._low_water = limits(None, None)
        self._protocol_paused = False
        self._backlog: deque[Any] = deque()  # what the socket did not take
        self._backlog_size = 0
        if id(sock) in loop._owners:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        loop._own(sock, self)
        sock._io_refs += 1  # whoever made it may close it: it stays ours
        self._closed = False

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} closed={self._closed} reading={self._reading} {id(self):#x}>"

    def __del__(self) -> None:
        if not self._closed:
            warnings.warn(f"unclosed resource {self!r}", ResourceWarning, stacklevel=2, source=self)
            self._close()

    def _ensure_alive(self) -> None:
        if self._closed:
            raise RuntimeError(f"unable to perform operation on {self!r}; the handler is closed")

    # ---- life ----

    def _begin(self) -> None:
        """connection_made() is called by the loop's next turn, and reading begins."""
        self._loop.call_soon(self._call_connection_made, context=self._context)

    def _wake_waiter(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            if self._closed:
                waiter.set_exception(RuntimeError("closed Transport handle and unset waiter"))
            else:
                waiter.set_result(True)

    def _call_connection_made(self) -> None:
        if self._closed:  # whoever waits was cancelled
            self._wake_waiter()
            return
        for name in ("sockname", "peername"):
            try:
                self._names[name] = getattr(self._sock, f"get{name}")()
            except OSError:  # gone already, or never connected
                continue
        self._connected = True
        try:
            self._protocol.connection_made(self)
            if not self._closing:
                self._start_reading()
        finally:
            self._wake_waiter()

    def _schedule_connection_lost(self, error: BaseException | None) -> None:
        self._loop.call_soon(self._call_connection_lost, error, context=self._context)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error or ConnectionAbortedError("closed before the connection was made"))
        if self._closed:
            return
        try:
            if self._connected:
                self._protocol.connection_lost(error)
        finally:
            self._clear_protocol()
            self._close()

    def _close(self) -> None:
        """Closes the socket now. Nobody is called."""
        if self._closed:
            return
        self._clear_backlog()
        self._closed = self._closing = True
        self._reading = False
        self._watch()
        self._loop._disown(self._sock)
        sock, server, self._server = self._sock, self._server, None
        try:
            sock._io_refs = 0  # ours is the only one that counted
            sock.close()
        finally:
            if server is not None:
                server._detach()

    def _force_close(self, error: BaseException | None) -> None:
        """The protocol loses the connection by the loop's next turn, whatever was still to be sent."""
        if self._conn_lost or self._closed:
            return
        self._closing = True
        self._reading = False
        self._conn_lost = 1
        self._clear_backlog()
        self._watch()
        self._schedule_connection_lost(error)

    def _fatal_error(self, error: BaseException, why: str = "") -> None:
        self._force_close(error)
        if isinstance(error, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, why or "error", exc_info=error)
            return
        message = f"Fatal error on transport {self.__class__.__name__}"
        self._loop.call_exception_handler(
            {
                "message": f"{message} ({why})" if why else message,
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )

    def _clear_protocol(self) -> None:
        self._protocol = None

    # ---- readiness ----

    def _flush(self) -> None:
        raise NotImplementedError

    def _watch(self) -> None:
        """Watches the socket for what is to be done with it; for nothing at all it is not watched."""
        events = (IN if self._reading else 0) | (OUT if self._backlog else 0)
        if events == self._events:
            return
        self._events = events
        if events:
            self._loop._watch(self._sock, events, self._on_events if events & OUT else self._on_input)
        else:
            self._loop._unwatch(self._sock)

    def _on_events(self, bits: int) -> None:
        if self._reading and bits & ~OUT:
            self._on_input(bits)
        if self._backlog and bits & ~IN:
            self._flush()

    def _clear_backlog(self) -> None:
        self._backlog.clear()
        self._backlog_size = 0

    def _start_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._watch()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._watch()

    # ---- flow control ----

    def _tell_writer(self, name: str) -> None:
        try:
            # A copy: this may be called by somebody who is inside the context already.
            self._context.copy().run(getattr(self._protocol, name))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.call_exception_handler(
                {"message": f"protocol.{name}() failed", "exception": error, "transport": self, "protocol": self._protocol}
            )

    def _maybe_pause_protocol(self) -> None:
        if self._backlog_size > self._high_water and not self._protocol_paused:
            self._protocol_paused = True
            self._tell_writer("pause_writing")

    def _maybe_resume_protocol(self) -> None:
        if self._protocol_paused and self._backlog_size <= self._low_water:
            self._protocol_paused = False
            self._tell_writer("resume_writing")

    # ---- as asyncio's transports ----

    def get_protocol(self) -> Any:
        """As BaseTransport.get_protocol(); None once the connection is lost."""
        return self._protocol

    def is_closing(self) -> bool:
        """As BaseTransport.is_closing()."""
        return self._closing

    def close(self) -> None:
        """As BaseTransport.close(): what was written is still sent."""
        if self._closing or self._closed:
            return
        self._closing = True
        self._stop_reading()
        if not self._backlog_size:
            self._conn_lost += 1
            self._clear_backlog()
            self._schedule_connection_lost(None)

    def abort(self) -> None:
        """As WriteTransport.abort()."""
        self._force_close(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As BaseTransport.get_extra_info(): "socket", "sockname", "peername"."""
        if name == "socket":
            if self._sock_info is None and not self._closed:
                self._sock_info = TransportSocket(self._sock)
            return self._sock_info
        return self._names.get(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and are not sent yet."""
        return self._backlog_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """(low, high), bytes."""
        return self._low_water, self._high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As WriteTransport.set_write_buffer_limits()."""
        self._ensure_alive()
        self._high_water, self._low_water = limits(high, low)
        self._maybe_pause_protocol()
