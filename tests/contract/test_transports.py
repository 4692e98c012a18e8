"""Stream transports: asyncio's and uvloop's are the oracle for ours, over the kernel and over a ring; where the two differ, uvloop's."""

from __future__ import annotations

import asyncio
import contextvars
import socket as std
import struct
from collections.abc import Callable
from typing import Any

import pytest
from loops import Buffered, Echo, HalfOpen, Recorder, Side, case, side, until

__all__ = ["side"]
BIG = 16 << 20  # more than any socket's buffers take


# ---- data ----


@case
async def test_order_of_callbacks(side: Side) -> None:
    async with side.pair() as (client, server):
        client.transport.write(b"hello")
        client.transport.close()
        await until(lambda: server.lost and client.lost)
        assert server.events == ["made", "data", "eof", "lost"]
        assert client.events == ["made", "lost"]
        assert server.data == b"hello"
        assert client.error is None and server.error is None


@pytest.mark.parametrize("size", [1, 64, 1461, 65536, 3_000_000])
@case
async def test_echo(side: Side, size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size))
    async with side.pair(server=Echo) as (client, _):
        client.transport.write(data)
        await until(lambda: len(client.data) == size)
        assert client.data == data


@case
async def test_many_small_messages(side: Side) -> None:
    async with side.pair(server=Echo) as (client, _):
        for i in range(300):
            client.transport.write(b"%07d\n" % i)
            await until(lambda i=i: len(client.data) == 8 * (i + 1))
        assert client.data.split() == [b"%07d" % i for i in range(300)]


@case
async def test_both_ways_at_once(side: Side) -> None:
    async with side.pair() as (client, server):
        client.transport.write(b"a" * 2_000_000)
        server.transport.write(b"b" * 2_000_000)
        await until(lambda: len(client.data) == len(server.data) == 2_000_000)
        assert set(client.data) == {ord("b")} and set(server.data) == {ord("a")}


@case
async def test_write_in_connection_made(side: Side) -> None:
    class Greeter(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.write(b"welcome")

    async with side.pair(server=Greeter) as (client, _):
        await until(lambda: client.data == b"welcome")


@case
async def test_close_flushes(side: Side) -> None:
    async with side.pair() as (client, server):
        client.transport.write(b"x" * BIG)
        assert client.transport.get_write_buffer_size() > 0
        client.transport.close()
        assert not client.lost
        await until(lambda: server.lost and client.lost)
        assert len(server.data) == BIG
        assert client.events == ["made", "pause", "resume", "lost"] and client.error is None


@pytest.mark.parametrize(
    "make",
    [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data)).cast("I")],
    ids=["bytes", "bytearray", "memoryview", "ints"],
)
@case
async def test_write_takes_buffers(side: Side, make: Callable[[bytes], Any]) -> None:
    if not side.like_uvloop and not isinstance(make, type):
        return  # asyncio before 3.12 counts items, not bytes
    async with side.pair() as (client, server):
        client.transport.write(make(bytes(range(64))))
        await until(lambda: len(server.data) == 64)
        client.transport.write(make(b"x" * BIG))
        client.transport.write(make(b"y" * 64))
        await until(lambda: len(server.data) == BIG + 128)
        assert server.data[:64] == bytes(range(64)) and server.data.endswith(b"y" * 64)


@pytest.mark.parametrize("wrong", ["text", 5, ["list"], object()], ids=lambda wrong: type(wrong).__name__)
@case
async def test_write_takes_nothing_else(side: Side, wrong: Any) -> None:
    async with side.pair() as (client, server):
        with pytest.raises(TypeError):
            client.transport.write(wrong)
        client.transport.write(b"goes on")
        await until(lambda: server.data == b"goes on")


@case
async def test_write_nothing(side: Side) -> None:
    async with side.pair() as (client, server):
        for nothing in (b"", bytearray(), memoryview(b"")):
            client.transport.write(nothing)
        client.transport.writelines([])
        client.transport.writelines([b"", b""])
        assert client.transport.get_write_buffer_size() == 0
        client.transport.write(b".")
        await until(lambda: server.data == b".")


@case
async def test_writelines(side: Side) -> None:
    async with side.pair() as (client, server):
        client.transport.writelines([b"a", bytearray(b"b"), memoryview(b"cc"), b"", b"d"])
        client.transport.writelines(b"%d" % i for i in range(10))
        await until(lambda: server.data == b"abccd0123456789")


@case
async def test_writelines_of_much(side: Side) -> None:
    pieces = [bytes([i & 0xFF]) * (1 + i * 37 % 9000) for i in range(3000)]
    async with side.pair() as (client, server):
        client.transport.writelines(pieces)
        client.transport.writelines(pieces)
        await until(lambda: len(server.data) == 2 * sum(map(len, pieces)))
        assert server.data == b"".join(pieces) * 2


@case
async def test_writes_behind_a_backlog_keep_their_order(side: Side) -> None:
    async with side.pair() as (client, server):
        server.transport.pause_reading()
        parts = [b"first" * BIG, *(b"%05d" % i for i in range(5000))]
        parts[0] = parts[0][:BIG]
        for part in parts:
            client.transport.write(part)
        server.transport.resume_reading()
        total = sum(map(len, parts))
        await until(lambda: len(server.data) == total)
        assert server.data == b"".join(parts)


# ---- flow control ----


@case
async def test_water_marks(side: Side) -> None:
    async with side.pair() as (client, server):
        server.transport.pause_reading()
        client.transport.write(b"x" * BIG)
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() > client.transport.get_write_buffer_limits()[1]
        client.transport.write(b"x" * 1000)
        assert client.events == ["made", "pause"]
        server.transport.resume_reading()
        await until(lambda: "resume" in client.events)
        assert client.transport.get_write_buffer_size() <= client.transport.get_write_buffer_limits()[0]
        await until(lambda: len(server.data) == BIG + 1000)
        assert client.events == ["made", "pause", "resume"]
        assert client.transport.get_write_buffer_size() == 0


@case
async def test_no_pause_below_the_mark(side: Side) -> None:
    async with side.pair() as (client, server):
        client.transport.set_write_buffer_limits(high=2 * BIG)
        server.transport.pause_reading()
        client.transport.write(b"x" * BIG)
        assert client.transport.get_write_buffer_size() > 0 and client.events == ["made"]
        client.transport.set_write_buffer_limits(high=1)
        assert client.events[:2] in (["made"], ["made", "pause"])  # asyncio looks only when something is written
        client.transport.write(b"x")
        assert client.events == ["made", "pause"]
        server.transport.resume_reading()
        await until(lambda: client.events == ["made", "pause", "resume"])


@case
async def test_high_water_of_nothing(side: Side) -> None:
    async with side.pair() as (client, server):
        client.transport.set_write_buffer_limits(high=0)
        assert client.transport.get_write_buffer_limits() == (0, 0)
        client.transport.write(b"x")
        assert client.events == ["made"]  # it went at once
        server.transport.pause_reading()
        client.transport.write(b"x" * BIG)
        assert client.events == ["made", "pause"]
        server.transport.resume_reading()
        await until(lambda: client.events == ["made", "pause", "resume"])
        assert client.transport.get_write_buffer_size() == 0


@case
async def test_limits(side: Side) -> None:
    async with side.pair() as (client, _):
        transport = client.transport
        assert transport.get_write_buffer_limits()[1] == 64 * 1024
        transport.set_write_buffer_limits(high=1000)
        assert transport.get_write_buffer_limits() == (250, 1000)
        transport.set_write_buffer_limits(low=100)
        assert transport.get_write_buffer_limits() == (100, 400)
        transport.set_write_buffer_limits(high=10, low=10)
        assert transport.get_write_buffer_limits() == (10, 10)
        for wrong in ({"high": 1, "low": 2}, {"high": -1}, {"low": -1}):
            with pytest.raises(ValueError):
                transport.set_write_buffer_limits(**wrong)
        assert transport.get_write_buffer_limits() == (10, 10)


@case
async def test_error_in_pause_writing_is_reported(side: Side) -> None:
    class Bad(Recorder):
        def pause_writing(self) -> None:
            raise ZeroDivisionError

    async with side.pair(client=Bad) as (client, server):
        client.transport.write(b"x" * BIG)
        context = side.expect_context()
        assert isinstance(context["exception"], ZeroDivisionError)
        assert context["message"] == "protocol.pause_writing() failed"
        await until(lambda: len(server.data) == BIG)


# ---- reading ----


@case
async def test_pause_and_resume(side: Side) -> None:
    async with side.pair() as (client, server):
        assert server.transport.is_reading()
        server.transport.pause_reading()
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        client.transport.write(b"hello")
        await asyncio.sleep(0.02)
        assert server.events == ["made"]
        server.transport.resume_reading()
        server.transport.resume_reading()
        assert server.transport.is_reading()
        await until(lambda: server.data == b"hello")


@case
async def test_pause_in_connection_made(side: Side) -> None:
    class Paused(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            asyncio.get_running_loop().call_soon(transport.pause_reading)

    async with side.pair(server=Paused) as (client, server):
        await asyncio.sleep(0)
        client.transport.write(b"hello")
        await asyncio.sleep(0.02)
        assert server.events == ["made"]
        server.transport.resume_reading()
        await until(lambda: server.data == b"hello")


@case
async def test_pause_in_data_received(side: Side) -> None:
    class OneByOne(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.002, self.transport.resume_reading)

    async with side.pair(server=OneByOne) as (client, server):
        client.transport.write(b"z" * 1_000_000)
        await until(lambda: len(server.data) == 1_000_000)


@case
async def test_the_end_waits_while_paused(side: Side) -> None:
    async with side.pair() as (client, server):
        server.transport.pause_reading()
        client.transport.write(b"last")
        client.transport.close()
        await asyncio.sleep(0.02)
        assert server.events == ["made"]
        server.transport.resume_reading()
        await until(lambda: server.lost)
        assert server.events == ["made", "data", "eof", "lost"] and server.data == b"last"


@case
async def test_no_data_after_close(side: Side) -> None:
    class OneShot(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data[:1])
            assert len(self.data) == 1
            self.transport.close()

    async with side.pair(server=OneShot) as (client, server):
        client.transport.write(b"a" * 500_000)
        await until(lambda: server.lost)
        assert server.events == ["made", "data", "lost"] and server.data == b"a"


@case
async def test_error_in_data_received_ends_the_connection(side: Side) -> None:
    class Bad(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError

    async with side.pair(server=Bad) as (client, server):
        client.transport.write(b"x")
        await until(lambda: server.lost)
        context = side.expect_context()
        assert context["exception"] is server.error and isinstance(server.error, ZeroDivisionError)
        assert context["transport"] is server.transport


# ---- buffered protocols ----


@case
async def test_buffered(side: Side) -> None:
    async with side.pair(server=Buffered) as (client, server):
        client.transport.write(bytes(range(256)) * 1000)
        client.transport.close()
        await until(lambda: server.lost)
        assert server.data == bytes(range(256)) * 1000
        assert server.events == ["made", "eof", "lost"]


@case
async def test_a_buffer_of_one_byte(side: Side) -> None:
    class Tiny(Buffered):
        size = 1

    async with side.pair(server=Tiny) as (client, server):
        client.transport.write(b"0123456789" * 10)
        await until(lambda: server.data == b"0123456789" * 10)


@pytest.mark.parametrize("wrong", [bytearray(), b"read only", None, "text"], ids=["empty", "bytes", "none", "str"])
@case
async def test_wrong_buffers(side: Side, wrong: Any) -> None:
    class Bad(Buffered):
        def get_buffer(self, sizehint: int) -> Any:
            return wrong

    async with side.pair(server=Bad) as (client, server):
        client.transport.write(b"x")
        await until(lambda: server.lost)
        assert side.expect_context()["exception"] is server.error is not None


@pytest.mark.parametrize("method", ["get_buffer", "buffer_updated"])
@case
async def test_errors_of_buffered_protocols(side: Side, method: str) -> None:
    class Bad(Buffered):
        pass

    def fail(self: Any, n: int) -> Any:
        raise ZeroDivisionError

    setattr(Bad, method, fail)
    async with side.pair(server=Bad) as (client, server):
        client.transport.write(b"x")
        await until(lambda: server.lost)
        assert side.expect_context()["exception"] is server.error is not None


@case
async def test_set_protocol(side: Side) -> None:
    async with side.pair() as (client, server):
        transport = server.transport
        client.transport.write(b"one")
        await until(lambda: server.data == b"one")
        second, third = Buffered(), Recorder()
        second.transport = third.transport = transport
        transport.set_protocol(second)
        assert transport.get_protocol() is second and transport.is_reading()
        client.transport.write(b"two")
        await until(lambda: second.data == b"two")
        transport.pause_reading()
        transport.set_protocol(third)
        assert not transport.is_reading()
        client.transport.write(b"three")
        client.transport.close()
        transport.resume_reading()
        await until(lambda: third.lost)
        assert third.data == b"three" and third.events == ["data", "eof", "lost"]
        assert server.events == ["made", "data"] and not second.lost
        server.lost = True


# ---- the end ----


@case
async def test_half_close(side: Side) -> None:
    async with side.pair(server=HalfOpen) as (client, server):
        assert client.transport.can_write_eof()
        client.transport.write(b"question")
        client.transport.write_eof()
        client.transport.write_eof()
        await until(lambda: "eof" in server.events)
        assert not server.transport.is_closing() and not client.transport.is_closing()
        server.transport.write(b"answer" * 100_000)
        server.transport.close()
        await until(lambda: client.lost and server.lost)
        assert server.data == b"question" and client.data == b"answer" * 100_000
        assert client.events == ["made", "data", "eof", "lost"]
        assert server.events[-2:] == ["eof", "lost"] or server.events[-2:] == ["resume", "lost"]


@case
async def test_eof_waits_for_what_was_written(side: Side) -> None:
    async with side.pair(server=HalfOpen) as (client, server):
        client.transport.write(b"x" * BIG)
        client.transport.write_eof()
        await until(lambda: "eof" in server.events)
        assert len(server.data) == BIG


@case
async def test_write_after_eof(side: Side) -> None:
    async with side.pair(server=HalfOpen) as (client, _):
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match=r"Cannot call write\(\) after write_eof\(\)"):
            client.transport.write(b"x")
        with pytest.raises(RuntimeError, match=r"after write_eof\(\)"):
            client.transport.writelines([b"x"])


@case
async def test_error_in_eof_received(side: Side) -> None:
    class Bad(Recorder):
        def eof_received(self) -> bool:
            raise ZeroDivisionError

    async with side.pair(server=Bad) as (client, server):
        client.transport.write_eof()
        await until(lambda: server.lost)
        assert side.expect_context()["exception"] is server.error is not None


@case
async def test_writes_after_close(side: Side) -> None:
    async with side.pair() as (client, server):
        transport = client.transport
        transport.close()
        assert transport.is_closing()
        for _ in range(10):
            transport.write(b"too late")
        transport.writelines([b"too late"])
        await until(lambda: client.lost and server.lost)
        assert server.events == ["made", "eof", "lost"]
        if side.like_uvloop:
            for call in (
                lambda: transport.write(b"x"),
                lambda: transport.writelines([b"x"]),
                transport.write_eof,
                transport.set_write_buffer_limits,
            ):
                with pytest.raises(RuntimeError, match="the handler is closed"):
                    call()
        transport.close()
        transport.abort()
        transport.pause_reading()
        transport.resume_reading()


@case
async def test_lost_once(side: Side) -> None:
    async with side.pair() as (client, _server):
        transport = client.transport
        transport.close()
        transport.abort()
        transport.close()
        await until(lambda: client.lost)
        transport.abort()
        await asyncio.sleep(0.01)
        assert client.events == ["made", "lost"] and client.error is None


@case
async def test_abort_drops_what_was_written(side: Side) -> None:
    async with side.pair() as (client, server):
        server.transport.pause_reading()
        client.transport.write(b"x" * BIG)
        client.transport.abort()
        assert client.transport.is_closing()
        await until(lambda: client.lost)
        assert client.events == ["made", "pause", "lost"] and client.error is None
        # libuv drops its queue when it closes the handle, which may be after connection_lost. On loopback our loops have its transports.
        if type(client.transport).__module__.startswith("uvloop"):
            await until(lambda: client.transport.get_write_buffer_size() == 0)
        assert client.transport.get_write_buffer_size() == 0
        server.transport.resume_reading()
        await until(lambda: server.lost)
        assert len(server.data) < BIG


@pytest.mark.parametrize("ending", ["close", "abort"])
@case
async def test_end_in_connection_made(side: Side, ending: str) -> None:
    class Brief(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            getattr(transport, ending)()

    async with side.pair(client=Brief) as (client, server):
        await until(lambda: client.lost and server.lost)
        assert client.events == ["made", "lost"] and client.error is None
        assert server.events in (["made", "eof", "lost"], ["made", "lost"])


@case
async def test_error_in_connection_made(side: Side) -> None:
    class Bad(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            raise ZeroDivisionError

    async with side.pair(server=Bad) as (_client, _server):
        await until(lambda: side.contexts)
        assert isinstance(side.expect_context()["exception"], ZeroDivisionError)


@case
async def test_error_in_connection_lost(side: Side) -> None:
    class Bad(Recorder):
        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            raise ZeroDivisionError

    async with side.pair(server=Bad) as (client, server):
        client.transport.close()
        await until(lambda: server.lost)
        assert isinstance(side.expect_context()["exception"], ZeroDivisionError)


def reset(transport: Any) -> None:
    """The connection ends by RST."""
    transport.get_extra_info("socket").setsockopt(std.SOL_SOCKET, std.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


@case
async def test_reset_while_reading(side: Side) -> None:
    async with side.pair() as (client, server):
        reset(client.transport)
        await until(lambda: server.lost)
        assert isinstance(server.error, ConnectionResetError)
        assert server.events == ["made", "lost"]


@case
async def test_reset_with_a_backlog(side: Side) -> None:
    async with side.pair() as (client, server):
        server.transport.pause_reading()
        client.transport.pause_reading()
        client.transport.write(b"x" * BIG)
        reset(server.transport)
        await until(lambda: client.lost)
        assert isinstance(client.error, ConnectionResetError | BrokenPipeError)
        assert client.events == ["made", "pause", "lost"]


@case
async def test_reset_while_closing(side: Side) -> None:
    async with side.pair() as (client, server):
        server.transport.pause_reading()
        client.transport.write(b"x" * BIG)
        client.transport.close()
        await asyncio.sleep(0)
        assert not client.lost
        reset(server.transport)
        await until(lambda: client.lost)
        assert isinstance(client.error, ConnectionResetError | BrokenPipeError)


@case
async def test_write_to_one_who_is_gone(side: Side) -> None:
    async with side.pair(client=HalfOpen) as (client, server):
        server.transport.abort()
        await until(lambda: server.lost and "eof" in client.events)
        while not client.lost:
            client.transport.write(b"x")
            await asyncio.sleep(0.001)
        assert isinstance(client.error, ConnectionResetError | BrokenPipeError)


# ---- what there is to know ----


@case
async def test_extra_info(side: Side) -> None:
    async with side.pair() as (client, server):
        assert client.transport.get_extra_info("peername") == server.transport.get_extra_info("sockname")
        assert client.transport.get_extra_info("sockname") == server.transport.get_extra_info("peername")
        assert client.transport.get_extra_info("peername")[0] == side.host
        sock = client.transport.get_extra_info("socket")
        assert sock.family == std.AF_INET and sock.type == std.SOCK_STREAM
        assert sock.getsockname() == client.transport.get_extra_info("sockname")
        assert sock.getpeername() == client.transport.get_extra_info("peername")
        assert sock.getsockopt(std.IPPROTO_TCP, std.TCP_NODELAY)
        sock.setsockopt(std.SOL_SOCKET, std.SO_KEEPALIVE, 1)
        assert sock.getsockopt(std.SOL_SOCKET, std.SO_KEEPALIVE)
        with pytest.raises((TypeError, AttributeError)):
            sock.recv(1)
        with pytest.raises((TypeError, AttributeError)):
            sock.close()
        assert client.transport.get_extra_info("nothing") is None
        assert client.transport.get_extra_info("nothing", 5) == 5
        assert client.transport.get_extra_info("sslcontext") is None
        assert isinstance(repr(client.transport), str) and isinstance(repr(sock), str)
        names = client.transport.get_extra_info("sockname"), client.transport.get_extra_info("peername")
        client.transport.close()
        await until(lambda: client.lost)
        assert (client.transport.get_extra_info("sockname"), client.transport.get_extra_info("peername")) == names


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@case
async def test_context(side: Side) -> None:
    class Contexts(Recorder):
        def note(self, event: str) -> None:
            super().note(f"{event}:{variable.get()}")

    async def serve() -> Any:
        variable.set("server")
        return await side.loop.create_server(lambda: servers.append(Contexts()) or servers[-1], side.host, 0)

    async def connect() -> Any:
        variable.set("client")
        return await side.loop.create_connection(Contexts, *server.sockets[0].getsockname()[:2])

    servers: list[Contexts] = []
    server = await side.loop.create_task(serve())
    transport, client = await side.loop.create_task(connect())
    await until(lambda: servers and servers[0].transport)
    variable.set("somebody else")
    servers[0].transport.write(b"hello")
    await until(lambda: client.data)
    transport.write(b"x")
    transport.close()
    server.close()
    await until(lambda: client.lost and servers[0].lost)
    assert client.events[:2] == ["made:client", "data:client"]
    if side.like_uvloop:  # asyncio: as whoever calls close()
        assert client.events[2:] == ["lost:client"]
    assert servers[0].events == ["made:server", "data:server", "eof:server", "lost:server"]
