"""Connections, servers, streams and files: the calls of the loop that make transports, against asyncio's and uvloop's."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import socket as std
import ssl
from pathlib import Path
from typing import Any

import pytest
from loops import Echo, Recorder, Side, case, side, until

__all__ = ["side"]


def port_of(server: Any, family: int = std.AF_INET) -> int:
    return next(sock.getsockname()[1] for sock in server.sockets if sock.family == family)


# ---- create_connection ----


@case
async def test_refused(side: Side) -> None:
    with side.socket() as sock:
        sock.bind((side.host, 0))
        port = sock.getsockname()[1]
        with pytest.raises(ConnectionRefusedError) as caught:
            await side.loop.create_connection(Recorder, side.host, port)
        assert caught.value.errno == errno.ECONNREFUSED


@case
async def test_local_addr(side: Side) -> None:
    local = side.hosts[1]
    async with side.server() as (port, made):
        transport, _ = await side.loop.create_connection(Recorder, side.host, port, local_addr=(local, 0))
        await until(lambda: made)
        assert transport.get_extra_info("sockname")[0] == local
        assert made[0].transport.get_extra_info("peername") == transport.get_extra_info("sockname")
        transport.close()
        await until(lambda: made[0].lost)


@case
async def test_local_addr_that_is_nobodys(side: Side) -> None:
    async with side.server() as (port, _):
        with pytest.raises(OSError) as caught:
            await side.loop.create_connection(Recorder, side.host, port, local_addr=("203.0.113.7", 0))
        assert "203.0.113.7" in str(caught.value) or caught.value.errno == errno.EADDRNOTAVAIL


@case
async def test_arguments_of_create_connection(side: Side) -> None:
    connect, host = side.loop.create_connection, side.host
    with side.socket() as sock, side.socket(std.SOCK_DGRAM) as datagrams:
        for arguments, options in (
            ((host, 1), {"sock": sock}),
            ((), {}),
            ((host, 1), {"server_hostname": "x"}),
            ((host, 1), {"ssl_handshake_timeout": 1}),
            ((host, 1), {"ssl_shutdown_timeout": 1}),
            ((), {"sock": datagrams}),
            ((), {"sock": sock, "ssl": True}),
        ):
            with pytest.raises(ValueError):
                await connect(Recorder, *arguments, **options)
    with pytest.raises((ValueError, TypeError)):
        await connect(Recorder, host, 1, local_addr=host)
    with pytest.raises(TypeError):
        await connect(Recorder, host, 1, nonsense=1)


@case
async def test_connected_socket(side: Side) -> None:
    first, second = await side.connected_pair()
    transport, protocol = await side.loop.create_connection(Echo, sock=first)
    await side.loop.sock_sendall(second, b"hello")
    assert await side.loop.sock_recv(second, 10) == b"hello"
    assert protocol.data == b"hello"
    transport.close()
    await until(lambda: protocol.lost)
    assert first.fileno() == -1
    assert await side.loop.sock_recv(second, 10) == b""
    second.close()


@case
async def test_connect_accepted_socket(side: Side) -> None:
    first, second = await side.connected_pair()
    transport, protocol = await side.loop.connect_accepted_socket(Echo, sock=first)
    assert protocol.events == ["made"] and protocol.transport is transport
    await side.loop.sock_sendall(second, b"hello")
    assert await side.loop.sock_recv(second, 10) == b"hello"
    second.close()
    await until(lambda: protocol.lost)
    assert protocol.events == ["made", "data", "eof", "lost"]


@case
async def test_arguments_of_connect_accepted_socket(side: Side) -> None:
    with side.socket() as sock, side.socket(std.SOCK_DGRAM) as datagrams:
        for options in ({"sock": datagrams}, {"sock": sock, "ssl_handshake_timeout": 1}, {"sock": sock, "ssl_shutdown_timeout": 1}):
            with pytest.raises(ValueError):
                await side.loop.connect_accepted_socket(Recorder, **options)
        if side.like_uvloop:  # asyncio begins, and leaves a transport behind
            with pytest.raises(TypeError):
                await side.loop.connect_accepted_socket(Recorder, sock=sock, ssl=object())


@case
async def test_a_second_address_answers(side: Side) -> None:
    """Names with several addresses, one after the other and in RFC 8305's manner."""
    if side.name == "uvloop":
        return  # asks its own resolver
    async with side.server(Echo) as (port, _):
        with side.socket() as closed:
            closed.bind((side.host, 0))

            async def resolve(host: Any, wanted: Any, **_: Any) -> list[Any]:
                assert host == "name"
                ports = (closed.getsockname()[1], port)
                return [(std.AF_INET, std.SOCK_STREAM, std.IPPROTO_TCP, "", (side.host, wanted or each)) for each in ports]

            side.loop.getaddrinfo = resolve
            for options in ({}, {"happy_eyeballs_delay": 5.0}, {"happy_eyeballs_delay": 0.001, "interleave": 2}):
                transport, protocol = await side.loop.create_connection(Recorder, "name", 0, **options)
                transport.write(b"hello")
                await until(lambda protocol=protocol: protocol.data == b"hello")
                transport.close()
            with pytest.raises(OSError):
                await side.loop.create_connection(Recorder, "name", closed.getsockname()[1])
            with pytest.raises(OSError):
                await side.loop.create_connection(Recorder, "name", closed.getsockname()[1], happy_eyeballs_delay=0.001)
        await until(lambda: not protocol.transport or protocol.lost)


# ---- create_server ----


@case
async def test_life_of_a_server(side: Side) -> None:
    server = await side.loop.create_server(Echo, side.host, 0, start_serving=False)
    assert not server.is_serving() and len(server.sockets) == 1
    assert isinstance(repr(server), str) and server.get_loop() is side.loop
    port = port_of(server)
    with pytest.raises(ConnectionRefusedError):
        await side.loop.create_connection(Recorder, side.host, port)
    await server.start_serving()
    await server.start_serving()
    assert server.is_serving()
    transport, protocol = await side.loop.create_connection(Recorder, side.host, port)
    transport.write(b"one")
    await until(lambda: protocol.data == b"one")
    server.close()
    server.close()
    assert not server.is_serving() and not server.sockets
    with pytest.raises(ConnectionRefusedError):
        await side.loop.create_connection(Recorder, side.host, port)
    transport.write(b"two")  # connections live on
    await until(lambda: protocol.data == b"onetwo")
    transport.close()
    await server.wait_closed()
    await until(lambda: protocol.lost)


@case
async def test_wait_closed_waits_for_connections(side: Side) -> None:
    server = await side.loop.create_server(Recorder, side.host, 0)
    transport, protocol = await side.loop.create_connection(Recorder, side.host, port_of(server))
    waiting = asyncio.ensure_future(server.wait_closed())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    server.close()
    await asyncio.sleep(0.02)
    assert not waiting.done()
    transport.close()
    await waiting
    await until(lambda: protocol.lost)


@case
async def test_serve_forever(side: Side) -> None:
    server = await side.loop.create_server(Echo, side.host, 0, start_serving=False)
    serving = asyncio.ensure_future(server.serve_forever())
    await until(server.is_serving)
    with pytest.raises(RuntimeError, match="already being awaited"):
        await server.serve_forever()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert not server.is_serving()
    with pytest.raises(RuntimeError, match="is closed"):
        await server.serve_forever()


@case
async def test_server_as_a_context(side: Side) -> None:
    async with await side.loop.create_server(Echo, side.host, 0) as server:
        assert server.is_serving()
    assert not server.is_serving() and not server.sockets


@case
async def test_several_hosts(side: Side) -> None:
    hosts = [side.host, "127.0.0.1" if side.offloaded else "::1"]
    async with await side.loop.create_server(Echo, hosts, 0) as server:
        assert len(server.sockets) == 2
        for sock in server.sockets:
            transport, protocol = await side.loop.create_connection(Recorder, *sock.getsockname()[:2])
            transport.write(b"hello")
            await until(lambda protocol=protocol: protocol.data == b"hello")
            transport.close()
            await until(lambda protocol=protocol: protocol.lost)


@pytest.mark.parametrize("host", ["0.0.0.0", None, ""])
@case
async def test_wildcard(side: Side, host: str | None) -> None:
    made: list[Echo] = []
    async with await side.loop.create_server(lambda: made.append(Echo()) or made[-1], host, 0) as server:
        for there in {side.host, "127.0.0.1"}:
            transport, protocol = await side.loop.create_connection(Recorder, there, port_of(server))
            transport.write(b"hello")
            await until(lambda protocol=protocol: protocol.data == b"hello")
            assert transport.get_extra_info("peername")[0] == there
            transport.close()
            await until(lambda protocol=protocol: protocol.lost)
        await until(lambda: all(protocol.lost for protocol in made))


@case
async def test_port_in_use(side: Side) -> None:
    async with side.server() as (port, _):
        with pytest.raises(OSError) as caught:
            await side.loop.create_server(Recorder, side.host, port)
        assert caught.value.errno == errno.EADDRINUSE
        assert "error while attempting to bind on address" in str(caught.value)


@case
async def test_reuse_port(side: Side) -> None:
    first = await side.loop.create_server(Echo, side.host, 0, reuse_port=True)
    second = await side.loop.create_server(Echo, side.host, port_of(first), reuse_port=True)
    protocols = []
    for _ in range(8):
        transport, protocol = await side.loop.create_connection(Recorder, side.host, port_of(first))
        transport.write(b"x")
        protocols.append(protocol)
    await until(lambda: all(protocol.data == b"x" for protocol in protocols))
    for protocol in protocols:
        protocol.transport.close()
    await until(lambda: all(protocol.lost for protocol in protocols))
    first.close()
    second.close()


@pytest.mark.parametrize("listening", [False, True])
@case
async def test_server_of_a_socket(side: Side, listening: bool) -> None:
    sock = side.socket()
    sock.bind((side.host, 0))
    if listening:
        sock.listen()
    async with await side.loop.create_server(Echo, sock=sock) as server:
        transport, protocol = await side.loop.create_connection(Recorder, side.host, port_of(server))
        transport.write(b"hello")
        await until(lambda: protocol.data == b"hello")
        transport.close()
        await until(lambda: protocol.lost)
    assert sock.fileno() == -1


@case
async def test_arguments_of_create_server(side: Side) -> None:
    serve, host = side.loop.create_server, side.host
    with side.socket() as sock, side.socket(std.SOCK_DGRAM) as datagrams:
        for options in (
            {"host": host, "port": 0, "sock": sock},
            {},
            {"sock": datagrams},
            {"host": host, "port": 0, "ssl_handshake_timeout": 1},
            {"host": host, "port": 0, "ssl_shutdown_timeout": 1},
        ):
            with pytest.raises(ValueError):
                await serve(Recorder, **options)
    with pytest.raises(TypeError):
        await serve(Recorder, host, 0, ssl=True)
    if side.ours:  # the others leave the socket behind
        with pytest.raises(TypeError):
            await serve(Recorder, host, 0, backlog="many")


@case
async def test_error_in_the_factory(side: Side) -> None:
    if not side.offloaded:
        return  # uvloop reports it, keeps the connection that it took, and takes no other; asyncio says nothing
    first = True

    def factory() -> Any:
        nonlocal first
        if first:
            first = False
            raise ZeroDivisionError
        return Echo()

    server = await side.loop.create_server(factory, side.host, 0)
    unlucky, lost = await side.loop.create_connection(Recorder, side.host, port_of(server))
    await until(lambda: side.contexts and lost.lost)
    assert isinstance(side.expect_context()["exception"], ZeroDivisionError)
    unlucky.abort()
    transport, protocol = await side.loop.create_connection(Recorder, side.host, port_of(server))
    transport.write(b"hello")
    await until(lambda: protocol.data == b"hello")
    transport.close()
    server.close()
    await until(lambda: protocol.lost)


@case
async def test_many_connections(side: Side) -> None:
    async with side.server(Echo) as (port, made):
        pairs = await asyncio.gather(*(side.loop.create_connection(Recorder, side.host, port) for _ in range(100)))
        for i, (transport, _) in enumerate(pairs):
            transport.write(b"%d" % i)
        await until(lambda: all(protocol.data == b"%d" % i for i, (_, protocol) in enumerate(pairs)))
        for transport, _ in pairs:
            transport.close()
        await until(lambda: len(made) == 100 and all(protocol.lost for protocol in (*made, *(p for _, p in pairs))))


@pytest.mark.parametrize("side", ["asyncio", "uvloop", "fd-softnic", "busy-softnic"], indirect=True)
def test_ipv6(side: Side) -> None:
    async def run() -> None:
        async with over.server(Echo) as (port, _):
            transport, protocol = await over.loop.create_connection(Recorder, over.host, port)
            assert transport.get_extra_info("peername")[:2] == (over.host, port)
            assert len(transport.get_extra_info("sockname")) == 4
            transport.write(b"hello" * 100_000)
            await until(lambda: len(protocol.data) == 500_000)
            transport.close()
            await until(lambda: protocol.lost)

    over = Side(side.name, 6)
    over.run(run())


@case
async def test_who_owns_a_socket(side: Side) -> None:
    first, second = await side.connected_pair()
    transport, protocol = await side.loop.create_connection(Recorder, sock=first)
    for call in (side.loop.add_reader, side.loop.add_writer):
        with pytest.raises(RuntimeError, match="is used by transport"):
            call(first, print)
    with pytest.raises(RuntimeError, match="is used by transport"):
        await side.loop.sock_recv(first, 1)
    transport.close()
    await until(lambda: protocol.lost)
    second.close()


# ---- streams ----


@case
async def test_streams(side: Side) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.write_eof()
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(serve, side.host, 0, limit=1000) as server:
        reader, writer = await asyncio.open_connection(side.host, port_of(server))
        writer.writelines([b"one\n", b"two\n"])
        assert await reader.readline() == b"ONE\n"
        assert await reader.readuntil(b"O") == b"TWO"
        assert await reader.readexactly(1) == b"\n"
        writer.write(b"abc")
        writer.write_eof()
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await reader.readexactly(10)
        assert caught.value.partial == b"ABC"
        assert reader.at_eof() and await reader.read() == b""
        await ended.wait()
        writer.close()
        await writer.wait_closed()


@case
async def test_drain_waits_for_a_slow_reader(side: Side) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        nonlocal got
        while data := await reader.read(1 << 16):
            got += len(data)
        writer.close()

    got, gate, total = 0, asyncio.Event(), 16 << 20
    async with await asyncio.start_server(serve, side.host, 0) as server:
        _, writer = await asyncio.open_connection(side.host, port_of(server))
        writer.write(b"x" * total)
        draining = asyncio.ensure_future(writer.drain())
        await asyncio.sleep(0.05)
        assert not draining.done()
        gate.set()
        await draining
        writer.close()
        await writer.wait_closed()
        await until(lambda: got == total)


@case
async def test_two_readers_of_one_stream(side: Side) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, side.host, 0) as server:
        reader, writer = await asyncio.open_connection(side.host, port_of(server))
        waiting = asyncio.ensure_future(reader.readline())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already waiting for incoming data"):
            await reader.readline()
        writer.write_eof()
        assert await waiting == b""
        writer.close()
        await writer.wait_closed()


@case
async def test_stream_of_one_who_resets(side: Side) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with await asyncio.start_server(serve, side.host, 0) as server:
        reader, writer = await asyncio.open_connection(side.host, port_of(server))
        writer.write(b"x" * 100_000)
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"x" * 100_000)
                await writer.drain()
                await asyncio.sleep(0)
        with pytest.raises(ConnectionError):
            await reader.read(1)
        writer.close()


# ---- sendfile ----


@pytest.mark.parametrize(("offset", "count"), [(0, None), (0, 1000), (100_000, None), (1, 2_000_000), (3_000_000, 10), (2_999_990, 100)])
@case
async def test_sendfile(side: Side, tmp_path: Path, offset: int, count: int | None) -> None:
    if side.name == "uvloop":
        return  # has none
    data = os.urandom(3_000_000)
    path = tmp_path / "file"
    path.write_bytes(data)
    async with side.pair() as (client, server):
        client.transport.write(b"before")
        with path.open("rb") as file:
            wanted = data[offset:] if count is None else data[offset : offset + count]
            assert await side.loop.sendfile(client.transport, file, offset, count) == len(wanted)
            assert not wanted or file.tell() == offset + len(wanted)
        client.transport.write(b"after")
        await until(lambda: len(server.data) == len(wanted) + 11)
        assert server.data == b"before" + wanted + b"after"
        server.transport.write(b"back")
        await until(lambda: client.data == b"back")


@case
async def test_sendfile_of_what_is_no_file(side: Side) -> None:
    if side.name == "uvloop":
        return
    data = os.urandom(1_000_000)
    async with side.pair() as (client, server):
        assert await side.loop.sendfile(client.transport, io.BytesIO(data)) == len(data)
        await until(lambda: server.data == data)
        with pytest.raises(asyncio.SendfileNotAvailableError):
            await side.loop.sendfile(client.transport, io.BytesIO(data), fallback=False)
        for wrong in ({"offset": -1}, {"count": 0}, {"count": -1}):
            with pytest.raises(ValueError):
                await side.loop.sendfile(client.transport, io.BytesIO(data), **wrong)
        with pytest.raises(TypeError):
            await side.loop.sendfile(client.transport, io.BytesIO(data), count=1.5)
        client.transport.close()
        with pytest.raises(RuntimeError, match="Transport is closing"):
            await side.loop.sendfile(client.transport, io.BytesIO(data))


@case
async def test_sendfile_to_one_who_goes(side: Side, tmp_path: Path) -> None:
    if side.name == "uvloop":
        return
    path = tmp_path / "file"
    path.write_bytes(bytes(30_000_000))
    async with side.pair() as (client, server):
        with path.open("rb") as file:
            sending = asyncio.ensure_future(side.loop.sendfile(client.transport, file))
            await until(lambda: server.data)
            server.transport.abort()
            with pytest.raises(ConnectionError):
                await sending
        await until(lambda: client.lost)


@case
async def test_a_context_of_ssl_is_wanted(side: Side) -> None:
    async with side.pair() as (client, _):
        for wrong in (None, True, ssl):
            with pytest.raises(TypeError):
                await side.loop.start_tls(client.transport, client, wrong)
