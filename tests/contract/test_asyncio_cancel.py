"""Cancellation at every await: a scenario is run once for each point at which it waits, cancelled there, and has to leave nothing behind.

A scenario holds what it opened by `async with` or `finally`, as any program has to; what a call of the loop had begun when it was
cancelled is the loop's to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket as std
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from loops import Datagrams, Echo, Recorder, Side, tls_contexts, until

import pyvma
from pyvma import socket as ours
from pyvma.asyncio._transport import SocketTransport

MOST = 400  # awaits of a scenario


class Cut(Coroutine[Any, Any, Any]):
    """A coroutine whose task is cancelled where it waits for the `at`-th time: while it waits, or (`late`) when what it waits for is
    there and it has not heard of it. `count`: how often it waited."""

    def __init__(self, coro: Coroutine[Any, Any, Any], at: int, late: bool) -> None:
        self.coro, self.at, self.late = coro, at, late
        self.count = 0
        self.task: asyncio.Task[Any] | None = None

    def _cancel(self, *_: Any) -> None:
        assert self.task is not None
        self.task.cancel()

    def send(self, value: Any) -> Any:
        waited_for = self.coro.send(value)
        self.count += 1
        if self.count == self.at:
            if self.late and waited_for is not None:
                waited_for.add_done_callback(self._cancel)
            else:
                asyncio.get_running_loop().call_soon(self._cancel)
        return waited_for

    def throw(self, *error: Any) -> Any:
        self.count += 1
        return self.coro.throw(*error)

    def close(self) -> None:
        self.coro.close()

    def __await__(self) -> Any:
        return self


class Scene:
    """What scenarios work with: a loop, and servers that echo, plain and by TLS."""

    def __init__(self, side: Side, folder: Path) -> None:
        self.side, self.loop, self.host, self.folder = side, side.loop, side.host, folder
        self.made: list[Any] = []
        self.server_tls, self.client_tls = tls_contexts()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        def make() -> Any:
            self.made.append(Echo())
            return self.made[-1]

        plain = await self.loop.create_server(make, self.host, 0)
        tls = await self.loop.create_server(make, self.host, 0, ssl=self.server_tls)
        self.port, self.tls_port = (server.sockets[0].getsockname()[1] for server in (plain, tls))
        self.listening = len(self.loop._watches)
        self.listeners = [listener._sock for server in (plain, tls) for listener in server._listeners]
        self.tasks = len(asyncio.all_tasks(self.loop))
        try:
            yield
        finally:
            plain.close()
            tls.close()

    def busy(self) -> str:
        """What the loop still has to do."""
        found = {
            "watches": len(self.loop._watches) - self.listening,
            "readers": len(self.loop._readers),
            "transports": list(self.loop._owners.values()),
            "tasks": len(asyncio.all_tasks(self.loop)) - self.tasks,
            "lent": pyvma.counters()["engine.lent"],
            "peers": [protocol for protocol in self.made if protocol.transport and not protocol.lost],
        }
        return ", ".join(f"{name}: {what}" for name, what in found.items() if what)

    def left(self) -> str:
        """What nobody has closed."""
        gc.collect()
        found = [
            thing
            for thing in gc.get_objects()
            if (isinstance(thing, SocketTransport) and not thing._closed)
            or (isinstance(thing, ours.socket) and thing._sock is not None and thing not in self.listeners)
        ]
        return ", ".join(map(repr, found))

    async def settle(self) -> None:
        """The peers hear of it, too."""
        for _ in range(3000):
            if not self.busy():
                break
            await asyncio.sleep(0.001)
        assert not self.busy(), self.busy()
        self.made.clear()


# ---- scenarios ----


async def connect(scene: Scene) -> None:
    transport, _ = await scene.loop.create_connection(Recorder, scene.host, scene.port)
    transport.abort()


async def connect_by_tls(scene: Scene) -> None:
    transport, _ = await scene.loop.create_connection(
        Recorder, scene.host, scene.tls_port, ssl=scene.client_tls, server_hostname="localhost"
    )
    transport.abort()


async def streams(scene: Scene) -> None:
    reader, writer = await asyncio.open_connection(scene.host, scene.port)
    try:
        writer.write(b"one\ntwo\n" + b"x" * 100)
        await writer.drain()
        assert await reader.readline() == b"one\n"
        assert await reader.readuntil(b"\n") == b"two\n"
        assert await reader.readexactly(100) == b"x" * 100
        writer.write(b"more")
        assert len(await reader.read(1)) == 1
    finally:
        writer.close()
    await writer.wait_closed()


async def drain(scene: Scene) -> None:
    reader, writer = await asyncio.open_connection(scene.host, scene.port)
    try:
        for _ in range(3):
            writer.write(b"x" * 1_000_000)
            await writer.drain()
            await reader.readexactly(1_000_000)
    finally:
        writer.close()
    await writer.wait_closed()


async def streams_by_tls(scene: Scene) -> None:
    reader, writer = await asyncio.open_connection(scene.host, scene.tls_port, ssl=scene.client_tls, server_hostname="localhost")
    try:
        writer.write(b"x" * 300_000)
        await writer.drain()
        assert len(await reader.readexactly(300_000)) == 300_000
    finally:
        writer.close()
    await writer.wait_closed()


async def start_tls(scene: Scene) -> None:
    class Upgrade(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.pause_reading()
            self.transport.write(b"ready")
            task = asyncio.ensure_future(scene.loop.start_tls(self.transport, Echo(), scene.server_tls, server_side=True))
            task.add_done_callback(lambda task: task.cancelled() or task.exception())  # the client may be gone
            tasks.append(task)

    class Asking(Recorder):
        def data_received(self, data: bytes) -> None:
            ready.set()

    tasks: list[Any] = []
    ready = asyncio.Event()
    server = await scene.loop.create_server(Upgrade, scene.host, 0)
    try:
        transport, protocol = await scene.loop.create_connection(Asking, *server.sockets[0].getsockname())
        try:
            transport.write(b"go")
            await ready.wait()
            transport = await scene.loop.start_tls(transport, protocol, scene.client_tls, server_hostname="localhost")
        finally:
            transport.abort()
    finally:
        server.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def sock_calls(scene: Scene) -> None:
    with scene.side.socket() as sock:
        sock.setblocking(False)
        await scene.loop.sock_connect(sock, (scene.host, scene.port))
        await scene.loop.sock_sendall(sock, b"x" * 1000)
        got = len(await scene.loop.sock_recv(sock, 1000))
        while got < 1000:
            got += await scene.loop.sock_recv_into(sock, bytearray(1000))


async def sock_sendall_of_much(scene: Scene) -> None:
    with scene.side.socket() as sock:
        sock.setblocking(False)
        await scene.loop.sock_connect(sock, (scene.host, scene.port))
        sending = asyncio.ensure_future(scene.loop.sock_sendall(sock, b"x" * 8_000_000))
        try:
            got = 0
            while got < 8_000_000:
                got += len(await scene.loop.sock_recv(sock, 1 << 20))
            await sending
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending


async def sock_accept(scene: Scene) -> None:
    with scene.side.socket() as listener, scene.side.socket() as first:
        listener.bind((scene.host, 0))
        listener.listen()
        listener.setblocking(False)
        first.setblocking(False)
        connecting = asyncio.ensure_future(scene.loop.sock_connect(first, listener.getsockname()))
        try:
            second, _ = await scene.loop.sock_accept(listener)
            second.close()
            await connecting
        finally:
            connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await connecting


async def accepted_socket(scene: Scene) -> None:
    first, second = await scene.side.connected_pair()
    with second:
        transport = None
        try:
            transport, _ = await scene.loop.connect_accepted_socket(Recorder, sock=first)
        finally:
            first.close() if transport is None else transport.close()


async def serve(scene: Scene) -> None:
    async with await scene.loop.create_server(Echo, scene.host, 0) as server:
        transport, _ = await scene.loop.create_connection(Recorder, *server.sockets[0].getsockname())
        transport.close()
        await asyncio.sleep(0)
    await server.wait_closed()


async def datagrams(scene: Scene) -> None:
    first, heard = await scene.loop.create_datagram_endpoint(Datagrams, local_addr=(scene.host, 0))
    try:
        second, _ = await scene.loop.create_datagram_endpoint(Datagrams, remote_addr=first.get_extra_info("sockname"))
        try:
            second.sendto(b"hello")
            await until(lambda: heard.got)
        finally:
            second.close()
    finally:
        first.close()


async def sock_datagrams(scene: Scene) -> None:
    with scene.side.socket(std.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind((scene.host, 0))
        receiving = asyncio.ensure_future(scene.loop.sock_recvfrom(sock, 100))
        try:
            await asyncio.sleep(0)
            await scene.loop.sock_sendto(sock, b"hello", sock.getsockname())
            assert (await receiving)[0] == b"hello"
        finally:
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await receiving


async def send_file(scene: Scene) -> None:
    path = scene.folder / "file"
    if not path.exists():
        path.write_bytes(os.urandom(4_000_000))
    transport, _ = await scene.loop.create_connection(Recorder, scene.host, scene.port)
    try:
        with path.open("rb") as file:
            await scene.loop.sendfile(transport, file)
    finally:
        transport.abort()


async def timeout(scene: Scene) -> None:
    reader, writer = await asyncio.wait_for(asyncio.open_connection(scene.host, scene.port), 10)
    try:
        writer.write(b"x")
        assert await asyncio.wait_for(reader.readexactly(1), 10) == b"x"
    finally:
        writer.close()
    await asyncio.wait_for(writer.wait_closed(), 10)


SCENARIOS = (
    connect,
    connect_by_tls,
    streams,
    drain,
    streams_by_tls,
    start_tls,
    sock_calls,
    sock_sendall_of_much,
    sock_accept,
    accepted_socket,
    serve,
    datagrams,
    sock_datagrams,
    send_file,
    timeout,
)


@pytest.fixture(params=["fd-softnic", "busy-softnic"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(Side(request.param), tmp_path)


@pytest.mark.parametrize("late", [False, True], ids=["waiting", "done"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_await(scene: Scene, scenario: Callable[[Scene], Coroutine[Any, Any, None]], late: bool) -> None:
    async def once(at: int) -> int:
        cut = Cut(scenario(scene), at, late)
        cut.task = scene.loop.create_task(cut)
        with contextlib.suppress(asyncio.CancelledError):
            await cut.task
        await scene.settle()
        return cut.count

    async def all_of_them() -> None:
        async with scene.serving():
            assert await once(0) > 0  # undisturbed, it works
            # A scenario does not wait equally often each time: it is over when it was not reached.
            for at in range(1, MOST):
                if await once(at) < at:
                    assert not scene.left(), scene.left()
                    return
            raise AssertionError(f"more than {MOST} awaits")

    scene.side.run(all_of_them())
