"""Where a case of the transports' contract runs: a loop and an address, and what protocols were told."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import socket as std
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import test
import uvloop
from lab import HOSTS4, HOSTS6

LIMIT_S = 30.0
WHERE = ("asyncio", "uvloop", "fd-loopback", "busy-loopback", "fd-softnic", "busy-softnic")
Case = Callable[..., Awaitable[None]]


class Side:
    """A loop whose sockets lie at `hosts`. Exceptions that nobody expected fail the case when it is over."""

    def __init__(self, name: str, version: int = 4) -> None:
        self.name = name
        self.ours = name.startswith(("fd-", "busy-"))
        self.offloaded = name.endswith("softnic")
        self.like_uvloop = name != "asyncio"
        loopback, nic = (("127.0.0.1", "127.0.0.1"), HOSTS4) if version == 4 else (("::1", "::1"), HOSTS6)
        self.hosts = nic if self.offloaded else loopback
        self.host = self.hosts[0]
        self.contexts: list[dict[str, Any]] = []
        self.loop = self._new_loop()
        self.loop.set_exception_handler(lambda _, context: self.contexts.append(context))

    def _new_loop(self) -> Any:
        if self.ours:
            import pyvma.asyncio

            return pyvma.asyncio.EventLoop(mode=self.name.partition("-")[0])
        return uvloop.new_event_loop() if self.name == "uvloop" else asyncio.SelectorEventLoop()

    def run(self, coro: Any) -> None:
        loop = self.loop
        try:
            loop.run_until_complete(asyncio.wait_for(coro, LIMIT_S))
            loop.run_until_complete(self._settle())
            gc.collect()
            loop.run_until_complete(self._settle())
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(self._settle())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
        assert not self.contexts, self.contexts

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def expect_context(self) -> dict[str, Any]:
        """What the exception handler was told, once, before now."""
        assert len(self.contexts) == 1, self.contexts
        return self.contexts.pop()

    def socket(self, kind: int = std.SOCK_STREAM) -> Any:
        """A socket such as a program of this side would make."""
        family = std.AF_INET6 if ":" in self.host else std.AF_INET
        if self.ours:
            from pyvma import socket as ours

            return ours.socket(family, kind)
        return std.socket(family, kind)

    async def connected_pair(self) -> tuple[Any, Any]:
        """Two sockets that are connected, non-blocking."""
        with self.socket() as listener:
            listener.bind((self.host, 0))
            listener.listen()
            listener.setblocking(False)
            first = self.socket()
            first.setblocking(False)
            accepting = asyncio.ensure_future(self.loop.sock_accept(listener))
            try:
                await self.loop.sock_connect(first, listener.getsockname())
                second, _ = await asyncio.shield(accepting)
            except BaseException:
                first.close()
                if not accepting.cancel() and not accepting.cancelled():
                    accepting.result()[0].close()
                raise
        return first, second

    @contextlib.asynccontextmanager
    async def server(self, factory: Callable[[], Any] | None = None, **options: Any) -> Any:
        """(port, the protocols of connections)."""
        made: list[Any] = []

        def make() -> Any:
            made.append((factory or Recorder)())
            return made[-1]

        server = await self.loop.create_server(make, self.host, 0, **options)
        try:
            yield server.sockets[0].getsockname()[1], made
        finally:
            server.close()

    @contextlib.asynccontextmanager
    async def pair(self, client: Callable[[], Any] | None = None, server: Callable[[], Any] | None = None) -> Any:
        """Protocols of a client and of the server's end of its connection; what is left of it is aborted in the end."""
        async with self.server(server) as (port, made):
            transport, first = await self.loop.create_connection(client or Recorder, self.host, port)
            if self.ours:
                assert (type(transport).__name__ == "StreamTransport") == self.offloaded
            await until(lambda: made and made[0].transport)
            try:
                yield first, made[0]
            finally:
                for protocol in (first, made[0]):
                    if not protocol.lost:
                        protocol.transport.abort()
                        await until(lambda protocol=protocol: protocol.lost)


async def until(condition: Callable[[], Any]) -> None:
    """Until it holds; the case's own limit ends what never does."""
    while not condition():
        await asyncio.sleep(0.001)


class Recorder(asyncio.Protocol):
    """Writes down what it is told: "made", "data", "eof", "pause", "resume" and "lost", runs of "data" as one."""

    keep_open = False

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.transport: Any = None
        self.lost = False
        self.error: BaseException | None = None

    def note(self, event: str) -> None:
        if event != "data" or self.events[-1:] != ["data"]:
            self.events.append(event)

    def connection_made(self, transport: Any) -> None:
        self.note("made")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.note("data")
        assert type(data) is bytes
        self.data += data

    def eof_received(self) -> bool:
        self.note("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.note("lost")
        assert not self.lost, "connection_lost() twice"
        self.lost, self.error = True, exc


class HalfOpen(Recorder):
    """Goes on writing after the peer's end."""

    keep_open = True


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class Buffered(asyncio.BufferedProtocol):
    """A Recorder with a buffer of its own."""

    size = 1000

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.transport: Any = None
        self.lost = False
        self.error: BaseException | None = None
        self.buffer = bytearray(self.size)

    def connection_made(self, transport: Any) -> None:
        self.events.append("made")
        self.transport = transport

    def get_buffer(self, sizehint: int) -> Any:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= self.size
        self.data += self.buffer[:nbytes]

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        self.events.append("lost")
        self.lost, self.error = True, exc


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.lost = 0
        self.paused: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.paused.append("pause")

    def resume_writing(self) -> None:
        self.paused.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost += 1


def case(function: Case) -> Callable[..., None]:
    """A case that is a coroutine of its `side`'s loop."""

    @functools.wraps(function)
    def run(side: Side, **others: Any) -> None:
        side.run(function(side, **others))

    return run


@pytest.fixture(params=WHERE)
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    made = Side(request.param)
    yield made
    if not made.loop.is_closed():
        made.loop.close()


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Server and client; the client knows the server as "localhost", by an authority that CPython's own tests use."""
    folder = Path(test.__file__).parent
    folder = folder if (folder / "keycert3.pem").exists() else folder / "certdata"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "keycert3.pem")
    client = ssl.create_default_context(cafile=str(folder / "pycacert.pem"))
    return server, client
