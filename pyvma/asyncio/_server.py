"""Servers whose listeners are offloaded, the kernel's, or some of each."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket as _std
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._stream import StreamTransport
from ._transport import IN, TransportSocket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from ._endpoints import Endpoints

_RETRY_S = 1.0  # after the system ran out of something
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass
class Terms:
    """What a server does with each connection."""

    protocol_factory: Callable[[], Any]
    backlog: int
    ssl: ssl.SSLContext | None
    ssl_handshake_timeout: float | None
    ssl_shutdown_timeout: float | None

    def for_tls(self) -> dict[str, Any]:
        return {
            "ssl": self.ssl,
            "ssl_handshake_timeout": self.ssl_handshake_timeout,
            "ssl_shutdown_timeout": self.ssl_shutdown_timeout,
        }


class Listener:
    """One listening socket. One that is bound to all addresses also hands over connections of the kernel's: those are uvloop's."""

    def __init__(self, loop: Endpoints, server: Server, sock: Any, terms: Terms) -> None:
        self._loop = loop
        self._server = server
        self._sock = sock
        self._terms = terms
        self._context = contextvars.copy_context()
        self._retry: asyncio.TimerHandle | None = None
        self._shown: TransportSocket | None = None
        sock._io_refs += 1  # whoever made it may close it: it stays ours

    def shown(self) -> TransportSocket:
        if self._shown is None:
            self._shown = TransportSocket(self._sock)
        return self._shown

    def listen(self) -> bool:
        """False: the kernel listens, which only now was decided."""
        self._context = contextvars.copy_context()
        self._sock.listen(self._terms.backlog)
        if self._sock._sock is None:
            return False
        self._loop._watch(self._sock, IN, self._on_ready)
        return True

    def leave(self) -> Any:
        """Gives the socket away."""
        self._sock._io_refs -= 1
        return self._sock

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._loop._unwatch(self._sock)
        self._sock._io_refs = 0
        self._sock.close()

    def _on_ready(self, bits: int) -> None:
        for _ in range(max(self._terms.backlog, 1)):
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._report("accept() failed", error)
                if error.errno in _SHORTAGE:
                    self._loop._unwatch(self._sock)
                    self._retry = self._loop.call_later(_RETRY_S, self._again)
                return
            try:
                self._accept(sock)
            except (SystemExit, KeyboardInterrupt):
                sock.close()
                raise
            except BaseException as error:
                sock.close()
                self._report("Error on transport creation for incoming connection", error)
            if self._server._listeners is None:
                return

    def _again(self) -> None:
        self._retry = None
        self._loop._watch(self._sock, IN, self._on_ready)

    def _report(self, message: str, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error, "socket": self.shown()})

    def _accept(self, sock: Any) -> None:
        loop, terms = self._loop, self._terms
        if sock._sock is None:
            theirs = _std.socket(sock.family, sock.type, sock.proto, fileno=sock.detach())
            self._context.run(loop.create_task, self._accept_kernel(theirs))
            return
        protocol = self._context.run(terms.protocol_factory)
        if terms.ssl is not None:
            waiter = loop.create_future()
            protocol = loop._tls(protocol, waiter, terms.for_tls(), server_side=True)
        transport = StreamTransport(loop, sock, protocol, self._context)
        transport._server = self._server
        self._server._attach()
        if terms.ssl is not None:
            waiter.add_done_callback(lambda done: transport._force_close(error) if (error := done.exception()) else None)
        transport._begin()

    async def _accept_kernel(self, sock: _std.socket) -> None:
        terms = self._terms
        try:
            await self._loop._accept_kernel(terms.protocol_factory, sock, terms.for_tls())
        except OSError:  # of the peer's making; uvloop's servers say nothing, either
            sock.close()
        except BaseException:
            sock.close()
            raise


class Server(asyncio.AbstractServer):
    """As the servers of asyncio."""

    def __init__(self, loop: Endpoints, terms: Terms) -> None:
        self._loop = loop
        self._terms = terms
        self._listeners: list[Any] | None = []  # ours, and servers of uvloop's
        self._serving = False
        self._active = 0  # connections
        self._waiters: list[asyncio.Future[None]] = []
        self._forever: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} sockets={self.sockets!r}>"

    def _attach(self) -> None:
        self._active += 1

    def _detach(self) -> None:
        self._active -= 1
        if not self._active and self._listeners is None:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def _ssl_context(self) -> ssl.SSLContext | None:  # asyncio's name, which programs know
        return self._terms.ssl

    def get_loop(self) -> Endpoints:
        """The loop."""
        return self._loop

    def _is_open(self) -> bool:
        return self._listeners is not None

    def is_serving(self) -> bool:
        """Whether connections are accepted."""
        return self._serving

    @property
    def sockets(self) -> list[Any]:
        """The listening sockets; none when closed."""
        shown: list[Any] = []
        for listener in self._listeners or ():
            if isinstance(listener, Listener):
                shown.append(listener.shown())
            else:
                shown.extend(listener.sockets)
        return shown

    def close(self) -> None:
        """Stops listening. Connections that are there go on."""
        listeners, self._listeners = self._listeners, None
        if listeners is None:
            return
        self._serving = False
        self._loop._servers_open.discard(self)
        for listener in listeners:
            listener.close()
        if not self._active:
            self._wake()

    async def start_serving(self) -> None:
        """Accepts connections from now on."""
        if self._serving or self._listeners is None:
            return
        self._serving = True
        listeners = self._listeners
        try:
            for i, listener in enumerate(listeners):
                if not isinstance(listener, Listener):
                    await listener.start_serving()
                elif not listener.listen():
                    listeners[i] = await self._loop._serve_kernel(listener.leave(), self._terms, start=True)
                if not self._is_open():  # closed meanwhile
                    listeners[i].close()
                    return
        except BaseException:
            self._serving = False
            raise

    async def serve_forever(self) -> None:
        """Accepts connections until it is cancelled, then closes."""
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if self._listeners is None:
            raise RuntimeError(f"server {self!r} is closed")
        self._forever = self._loop.create_future()
        try:
            await self.start_serving()
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    async def wait_closed(self) -> None:
        """Waits until the server is closed and its connections have ended; returns at once when it is closed already."""
        if self._listeners is None:
            return
        theirs = [listener.wait_closed() for listener in self._listeners if not isinstance(listener, Listener)]
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await asyncio.gather(waiter, *theirs)
