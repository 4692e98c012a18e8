"""TLS over the transports, both roles: asyncio's and uvloop's are the oracle for ours."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from loops import Buffered, Echo, Recorder, Side, case, side, tls_contexts, until

__all__ = ["side"]
NAME = "localhost"


@contextlib.asynccontextmanager
async def pair(side: Side, client: Callable[[], Any] = Recorder, server: Callable[[], Any] = Recorder) -> AsyncIterator[Any]:
    """Protocols of a client and of the server's end of its connection."""
    server_tls, client_tls = tls_contexts()
    async with side.server(server, ssl=server_tls) as (port, made):
        _, first = await side.loop.create_connection(client, side.host, port, ssl=client_tls, server_hostname=NAME)
        await until(lambda: made and made[0].transport)
        try:
            yield first, made[0]
        finally:
            for protocol in (first, made[0]):
                protocol.transport.abort()
                await until(lambda protocol=protocol: protocol.lost)


@pytest.mark.parametrize("size", [1, 1000, 100_000, 3_000_000])
@case
async def test_echo(side: Side, size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size))
    async with pair(side, server=Echo) as (client, server):
        client.transport.write(data)
        await until(lambda: len(client.data) == size)
        assert client.data == data == server.data


@case
async def test_close(side: Side) -> None:
    async with pair(side) as (client, server):
        client.transport.write(b"last words" * 10_000)
        client.transport.close()
        assert client.transport.is_closing()
        await until(lambda: client.lost and server.lost)
        assert server.data == b"last words" * 10_000
        assert server.events == ["made", "data", "eof", "lost"]
        assert client.error is None and server.error is None


@case
async def test_extra_info(side: Side) -> None:
    async with pair(side) as (client, server):
        info = client.transport.get_extra_info
        assert isinstance(info("sslcontext"), ssl.SSLContext) and isinstance(info("ssl_object"), ssl.SSLObject)
        assert info("peercert")["subject"] and info("cipher")[0] and info("compression") is None
        assert info("peername") == server.transport.get_extra_info("sockname")
        assert info("socket").getpeername() == info("peername")
        assert not client.transport.can_write_eof()
        with pytest.raises(NotImplementedError):
            client.transport.write_eof()


@case
async def test_wrong_types(side: Side) -> None:
    async with pair(side, server=Echo) as (client, _):
        for wrong in ("text", 5, [1]):
            with pytest.raises(TypeError):
                client.transport.write(wrong)
        client.transport.writelines([b"a", bytearray(b"b"), memoryview(b"c")])
        await until(lambda: client.data == b"abc")


@case
async def test_flow_control(side: Side) -> None:
    async with pair(side) as (client, server):
        server.transport.pause_reading()
        for _ in range(16):
            client.transport.write(b"x" * 1_000_000)
        assert client.events[:2] == ["made", "pause"] and client.transport.get_write_buffer_size() > 0
        server.transport.resume_reading()
        await until(lambda: len(server.data) == 16_000_000 and client.events[-1] == "resume")


@case
async def test_buffered_protocol(side: Side) -> None:
    if not side.like_uvloop:
        return  # asyncio of some releases stops when the buffer is smaller than what came
    async with pair(side, server=Buffered) as (client, server):
        client.transport.write(bytes(range(256)) * 1000)
        await until(lambda: server.data == bytes(range(256)) * 1000)


@case
async def test_a_certificate_that_is_not_known(side: Side) -> None:
    server_tls, _ = tls_contexts()
    async with side.server(ssl=server_tls) as (port, made):
        with pytest.raises(ssl.SSLCertVerificationError):
            await side.loop.create_connection(Recorder, side.host, port, ssl=True, server_hostname=NAME)
        with pytest.raises(ssl.SSLCertVerificationError):
            await side.loop.create_connection(Recorder, side.host, port, ssl=tls_contexts()[1], server_hostname="example.org")
        await asyncio.sleep(0.01)
        assert all(not protocol.transport for protocol in made)
    if not side.like_uvloop:
        side.contexts.clear()


@case
async def test_a_peer_that_says_nothing(side: Side) -> None:
    async with side.server() as (port, made):
        with pytest.raises(ConnectionAbortedError, match="SSL handshake is taking longer than"):
            await side.loop.create_connection(
                Recorder, side.host, port, ssl=tls_contexts()[1], server_hostname=NAME, ssl_handshake_timeout=0.05
            )
        await until(lambda: made and made[0].lost)


@case
async def test_a_peer_that_goes_in_the_handshake(side: Side) -> None:
    class Rude(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.abort()

    async with side.server(Rude) as (port, made):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await side.loop.create_connection(Recorder, side.host, port, ssl=tls_contexts()[1], server_hostname=NAME)
        await until(lambda: made[0].lost)


@case
async def test_a_peer_without_tls(side: Side) -> None:
    server_tls, _ = tls_contexts()
    async with side.server(ssl=server_tls) as (port, made):
        transport, protocol = await side.loop.create_connection(Recorder, side.host, port)
        transport.write(b"GET / HTTP/1.0\r\n\r\n" * 10)
        await until(lambda: protocol.lost)
        assert made[0].transport is None
    if not side.like_uvloop:
        side.contexts.clear()


@case
async def test_alpn_and_names(side: Side) -> None:
    server_tls, client_tls = tls_contexts()
    names: list[str | None] = []
    server_tls.sni_callback = lambda sock, name, context: names.append(name)
    server_tls.set_alpn_protocols(["h2", "http/1.1"])
    client_tls.set_alpn_protocols(["http/1.1"])
    async with side.server(ssl=server_tls) as (port, _):
        transport, protocol = await side.loop.create_connection(Recorder, side.host, port, ssl=client_tls, server_hostname=NAME)
        assert names == [NAME]
        assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        transport.abort()
        await until(lambda: protocol.lost)


@case
async def test_accepted_socket(side: Side) -> None:
    server_tls, client_tls = tls_contexts()
    first, second = await side.connected_pair()
    (near, client), (far, _) = await asyncio.gather(
        side.loop.create_connection(Recorder, sock=first, ssl=client_tls, server_hostname=NAME),
        side.loop.connect_accepted_socket(Echo, sock=second, ssl=server_tls),
    )
    near.write(b"hello")
    await until(lambda: client.data == b"hello")
    near.close()
    await until(lambda: client.lost)
    far.abort()


async def upgrade(side: Side, server: Any, server_tls: Any) -> None:
    secure = Echo()
    secure.transport = await side.loop.start_tls(server.transport, secure, server_tls, server_side=True)
    server.secure = secure


@case
async def test_start_tls(side: Side) -> None:
    server_tls, client_tls = tls_contexts()

    class Plain(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.pause_reading()
            self.transport.write(b"ready")
            self.task = asyncio.ensure_future(upgrade(side, self, server_tls))

    async with side.pair(server=Plain) as (client, server):
        client.transport.write(b"STARTTLS")
        await until(lambda: client.data == b"ready")
        plain, secure = client.transport, Recorder()
        secure.transport = await side.loop.start_tls(plain, secure, client_tls, server_hostname=NAME)
        await server.task
        secure.transport.write(b"secret")
        await until(lambda: secure.data == b"secret")
        assert secure.transport.get_extra_info("ssl_object") is not None
        secure.transport.abort()
        await until(lambda: secure.lost and server.secure.lost)
        client.lost = server.lost = True


@case
async def test_start_tls_behind_a_backlog(side: Side) -> None:
    """The protocol that was told to pause is told to go on; TLS is paused in its place until the backlog is gone."""
    server_tls, client_tls = tls_contexts()
    size = 8 << 20

    class Plain(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.pause_reading()
            self.transport.write(bytes(size))
            assert self.transport.get_write_buffer_size() > self.transport.get_write_buffer_limits()[1]
            self.task = asyncio.ensure_future(upgrade(side, self, server_tls))

    async with side.pair(server=Plain) as (client, server):
        client.transport.write(b"STARTTLS")
        await until(lambda: len(client.data) == size)
        secure = Recorder()
        secure.transport = await side.loop.start_tls(client.transport, secure, client_tls, server_hostname=NAME)
        await server.task
        if side.offloaded:
            assert server.events == ["made", "pause", "resume"]
            assert not side.contexts
        side.contexts.clear()  # the transports of asyncio and uvloop tell TLS to go on that was never told to pause
        secure.transport.write(b"secret")
        await until(lambda: secure.data == b"secret")
        secure.transport.abort()
        await until(lambda: secure.lost and server.secure.lost)
        client.lost = server.lost = True


@case
async def test_streams(side: Side) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        done.set()

    server_tls, client_tls = tls_contexts()
    done = asyncio.Event()
    async with await asyncio.start_server(serve, side.host, 0, ssl=server_tls) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(side.host, port, ssl=client_tls, server_hostname=NAME)
        writer.write(b"hello\n")
        assert await reader.read() == b"HELLO\n"
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        await done.wait()
