"""Datagram transports: asyncio's and uvloop's are the oracle for ours; where the two differ, uvloop's."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket as std
from collections.abc import AsyncIterator
from typing import Any

import pytest
from loops import Datagrams, Side, case, side, until

__all__ = ["side"]


@contextlib.asynccontextmanager
async def endpoint(side: Side, make: Any = Datagrams, **options: Any) -> AsyncIterator[Any]:
    """The protocol of an endpoint, which is closed in the end and hears of that once."""
    if not options:
        options = {"local_addr": (side.host, 0)}
    transport, protocol = await side.loop.create_datagram_endpoint(make, **options)
    try:
        assert protocol.transport is transport
        yield protocol
    finally:
        transport.close()
        transport.close()
        await until(lambda: protocol.lost)
        await asyncio.sleep(0)
        assert protocol.lost == 1 and transport.is_closing()


def name(protocol: Any) -> Any:
    return protocol.transport.get_extra_info("sockname")


@case
async def test_there_and_back(side: Side) -> None:
    async with endpoint(side) as first, endpoint(side) as second:
        if side.ours:
            assert (type(first.transport).__name__ == "DatagramTransport") == side.offloaded
        first.transport.sendto(b"hello", name(second))
        await until(lambda: second.got)
        assert second.got == [(b"hello", name(first))]
        second.transport.sendto(b"and back", second.got[0][1])
        await until(lambda: first.got)
        assert first.got == [(b"and back", name(second))]


@case
async def test_connected(side: Side) -> None:
    async with endpoint(side) as first, endpoint(side, remote_addr=name(first)[:2]) as second:
        assert second.transport.get_extra_info("peername") == name(first)
        second.transport.sendto(b"one")
        second.transport.sendto(b"two", name(first))
        await until(lambda: len(first.got) == 2)
        assert first.got == [(b"one", name(second)), (b"two", name(second))]
        with pytest.raises(ValueError, match="Invalid address: must be None or"):
            second.transport.sendto(b"three", (side.host, 9))


@case
async def test_both_addresses(side: Side) -> None:
    async with endpoint(side) as first:
        async with endpoint(side, local_addr=(side.hosts[1], 0), remote_addr=name(first)[:2]) as second:
            second.transport.sendto(b"x")
            await until(lambda: first.got)
            assert first.got[0][1][0] == side.hosts[1]


@pytest.mark.parametrize("data", [b"x", bytearray(b"yy"), memoryview(b"zzz")], ids=["bytes", "bytearray", "memoryview"])
@case
async def test_data(side: Side, data: Any) -> None:
    async with endpoint(side) as first:
        first.transport.sendto(data, name(first))
        await until(lambda: first.got)
        assert first.got == [(bytes(data), name(first))] and type(first.got[0][0]) is bytes


@case
async def test_nothing_is_not_sent(side: Side) -> None:
    async with endpoint(side) as first:
        first.transport.sendto(b"", name(first))
        first.transport.sendto(b"x", name(first))
        await until(lambda: first.got)
        assert first.got == [(b"x", name(first))]


@case
async def test_order_of_many(side: Side) -> None:
    async with endpoint(side) as first, endpoint(side) as second:
        for turn in range(20):
            for i in range(20):
                first.transport.sendto(b"%d" % (20 * turn + i), name(second))
            await until(lambda turn=turn: len(second.got) == 20 * (turn + 1))
        assert [data for data, _ in second.got] == [b"%d" % i for i in range(400)]


@case
async def test_large(side: Side) -> None:
    async with endpoint(side) as first, endpoint(side) as second:
        first.transport.sendto(b"x" * 1400, name(second))
        first.transport.sendto(b"y" * 20_000, name(second))
        await until(lambda: len(second.got) == 2)
        assert [len(data) for data, _ in second.got] == [1400, 20_000]
        first.transport.sendto(b"z" * 70_000, name(second))
        await until(lambda: first.errors)
        assert isinstance(first.errors[0], OSError) and first.errors[0].errno == errno.EMSGSIZE
        assert first.transport.get_write_buffer_size() == 0


@case
async def test_refused(side: Side) -> None:
    async with endpoint(side) as first:
        gone = name(first)
    async with endpoint(side, remote_addr=gone[:2]) as second:
        second.transport.sendto(b"anybody?")
        await until(lambda: second.errors)
        assert isinstance(second.errors[0], ConnectionRefusedError)
        assert not second.transport.is_closing()


@case
async def test_wrong_addresses(side: Side) -> None:
    async with endpoint(side) as first:
        if side.like_uvloop:  # asyncio asks the socket, and that a name server
            for wrong in (("localhost", 9), ("::1", 9)):
                with pytest.raises(ValueError, match="DNS lookup is required"):
                    first.transport.sendto(b"x", wrong)
            with pytest.raises(ValueError):
                first.transport.sendto(b"x", (side.host, 9, 0))
            for wrong in ([side.host, 9], (None, 9)):
                with pytest.raises(TypeError):
                    first.transport.sendto(b"x", wrong)
        with pytest.raises(TypeError):
            first.transport.sendto("text", name(first))
        first.transport.sendto(b"goes on", name(first))
        await until(lambda: first.got)


@case
async def test_after_close(side: Side) -> None:
    async with endpoint(side) as first:
        first.transport.close()
        assert first.transport.is_closing()
        for _ in range(3):
            first.transport.sendto(b"too late", name(first))
        await until(lambda: first.lost)
        first.transport.abort()
        assert not first.errors and not first.got


@case
async def test_abort(side: Side) -> None:
    async with endpoint(side) as first:
        first.transport.abort()
        await until(lambda: first.lost)


@case
async def test_error_in_datagram_received(side: Side) -> None:
    class Bad(Datagrams):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"bad":
                raise ZeroDivisionError

    async with endpoint(side, Bad) as first:
        first.transport.sendto(b"bad", name(first))
        await until(lambda: first.got)
        if not side.like_uvloop:
            side.contexts.clear()
            return  # asyncio closes the transport
        assert isinstance(side.expect_context()["exception"], ZeroDivisionError)
        first.transport.sendto(b"good", name(first))
        await until(lambda: len(first.got) == 2)


@case
async def test_extra_info(side: Side) -> None:
    async with endpoint(side, local_addr=(side.host, 0), allow_broadcast=True) as first:
        sock = first.transport.get_extra_info("socket")
        assert sock.family == std.AF_INET and sock.type == std.SOCK_DGRAM
        assert sock.getsockopt(std.SOL_SOCKET, std.SO_BROADCAST)
        assert sock.getsockname() == name(first) and name(first)[0] == side.host
        assert first.transport.get_extra_info("peername") is None
        assert first.transport.get_protocol() is first


@case
async def test_reuse_port(side: Side) -> None:
    async with endpoint(side, local_addr=(side.host, 0), reuse_port=True) as first:
        async with endpoint(side, local_addr=name(first)[:2], reuse_port=True) as second:
            assert name(first) == name(second)
        if side.name != "uvloop":  # which leaves its handle behind
            with pytest.raises(OSError):
                await side.loop.create_datagram_endpoint(Datagrams, local_addr=name(first)[:2])


@case
async def test_of_a_socket(side: Side) -> None:
    sock = side.socket(std.SOCK_DGRAM)
    sock.bind((side.host, 0))
    async with endpoint(side, sock=sock) as first:
        first.transport.sendto(b"x", name(first))
        await until(lambda: first.got)
    assert sock.fileno() == -1


@case
async def test_arguments(side: Side) -> None:
    make = side.loop.create_datagram_endpoint
    with side.socket() as stream, side.socket(std.SOCK_DGRAM) as sock:
        for options in (
            {"sock": stream},
            {"sock": sock, "local_addr": (side.host, 0)},
            {"sock": sock, "remote_addr": (side.host, 9)},
            {"sock": sock, "family": std.AF_INET},
            {"sock": sock, "reuse_port": True},
            {"sock": sock, "allow_broadcast": True},
            {},
            {"local_addr": (side.host, 0), "reuse_address": True},
        ):
            with pytest.raises((ValueError, TypeError)):
                await make(Datagrams, **options)
    for wrong in ({"local_addr": side.host}, {"remote_addr": (side.host,)}):
        with pytest.raises((TypeError, ValueError)):
            await make(Datagrams, **wrong)


@case
async def test_no_address_yet(side: Side) -> None:
    """Bound by the first datagram that it sends."""
    async with endpoint(side) as first, endpoint(side, family=std.AF_INET) as second:
        second.transport.sendto(b"x", name(first))
        await until(lambda: first.got)
        first.transport.sendto(b"y", first.got[0][1])
        await until(lambda: second.got)
        assert second.got[0] == (b"y", name(first))


@pytest.mark.parametrize("side", ["asyncio", "uvloop", "fd-softnic", "busy-softnic"], indirect=True)
def test_ipv6(side: Side) -> None:
    async def run() -> None:
        async with endpoint(over) as first, endpoint(over) as second:
            first.transport.sendto(b"hello", name(second))
            await until(lambda: second.got)
            assert second.got == [(b"hello", name(first))] and len(name(first)) == 4

    over = Side(side.name, 6)
    over.run(run())
