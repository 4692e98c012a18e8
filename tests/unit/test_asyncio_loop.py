"""The event loop: readers, writers and sock_* on offloaded sockets and the kernel's, in both modes; life, misuse, fork."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import os
import socket as std
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from lab import HOSTS4, HOSTS6, nobody

import pyvma.asyncio
import pyvma.socket

pytestmark = pytest.mark.usefixtures("engine")
LIMIT_S = 30.0
LOOPBACK = "127.0.0.1"


@pytest.fixture(params=["fd", "busy"])
def loop(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = pyvma.asyncio.new_event_loop(mode=request.param)
    failures: list[dict[str, Any]] = []
    made.set_exception_handler(lambda _, context: failures.append(context))
    yield made
    made.close()
    assert not failures


def run(loop: Any, main: Awaitable[Any]) -> Any:
    return loop.run_until_complete(asyncio.wait_for(main, LIMIT_S))


def opened(host: str, kind: int = std.SOCK_STREAM) -> Any:
    made = pyvma.socket.socket(std.AF_INET6 if ":" in host else std.AF_INET, kind)
    made.setblocking(False)
    return made


def bound(host: str, kind: int = std.SOCK_STREAM) -> Any:
    made = opened(host, kind)
    made.bind((host, 0))
    if kind == std.SOCK_STREAM:
        made.listen()
    return made


async def connected(loop: Any, host: str) -> tuple[Any, Any]:
    with bound(host) as listener:
        client = opened(host)
        accepting = asyncio.ensure_future(loop.sock_accept(listener))
        await loop.sock_connect(client, listener.getsockname())
        server, address = await accepting
        assert address == client.getsockname()
    assert bool(client.offload) == (host != LOOPBACK)
    return client, server


# ---- sock_* ----


@pytest.mark.parametrize("host", [HOSTS4[0], HOSTS6[1], LOOPBACK])
def test_streams(loop: Any, host: str) -> None:
    async def main() -> None:
        client, server = await connected(loop, host)
        with client, server:
            for _ in range(20):
                await loop.sock_sendall(client, b"request")
                assert await loop.sock_recv(server, 100) == b"request"
                await loop.sock_sendall(server, memoryview(bytearray(b"answer")))
                buffer = bytearray(100)
                assert await loop.sock_recv_into(client, buffer) == 6
                assert buffer[:6] == b"answer"
            data = os.urandom(1 << 20)
            sending = asyncio.ensure_future(loop.sock_sendall(client, data))
            received = bytearray()
            while len(received) < len(data):
                received += await loop.sock_recv(server, 1 << 16)
            await sending
            assert received == data
            client.shutdown(std.SHUT_WR)
            assert await loop.sock_recv(server, 10) == b""

    run(loop, main())


@pytest.mark.parametrize("host", [HOSTS4[0], HOSTS6[1], LOOPBACK])
def test_datagrams(loop: Any, host: str) -> None:
    async def main() -> None:
        with bound(host, std.SOCK_DGRAM) as one, bound(host, std.SOCK_DGRAM) as other:
            for _ in range(20):
                receiving = asyncio.ensure_future(loop.sock_recvfrom(one, 100))
                await asyncio.sleep(0)
                assert await loop.sock_sendto(other, b"hello", one.getsockname()) == 5
                assert await receiving == (b"hello", other.getsockname())
            buffer = bytearray(10)
            assert await loop.sock_sendto(one, b"back", other.getsockname()) == 4
            assert await loop.sock_recvfrom_into(other, buffer) == (4, one.getsockname())
            assert buffer[:4] == b"back"

    run(loop, main())


@pytest.mark.parametrize("host", [HOSTS4[0], LOOPBACK])
def test_connect_refused(loop: Any, host: str) -> None:
    async def main() -> None:
        with bound(host) as listener:
            name = listener.getsockname()
        with opened(host) as client, pytest.raises(ConnectionRefusedError):
            await loop.sock_connect(client, name)

    run(loop, main())


@pytest.mark.parametrize("host", [HOSTS4[0], LOOPBACK])
def test_sendfile(loop: Any, host: str) -> None:
    data = os.urandom(700_000)

    async def main() -> None:
        client, server = await connected(loop, host)
        received = bytearray()

        async def receive(size: int) -> bytes:
            received.clear()
            while len(received) < size:
                received.extend(await loop.sock_recv(server, 1 << 16))
            return bytes(received)

        with client, server, tempfile.TemporaryFile() as file:
            file.write(data)
            for offset, count in ((0, None), (1000, None), (5, 600_000), (0, 1)):
                expected = data[offset : None if count is None else offset + count]
                receiving = asyncio.ensure_future(receive(len(expected)))
                assert await loop.sock_sendfile(client, file, offset, count) == len(expected)
                assert await receiving == expected
                assert file.tell() == offset + len(expected)
            receiving = asyncio.ensure_future(receive(3))
            assert await loop.sock_sendfile(client, io.BytesIO(b"abc")) == 3
            assert await receiving == b"abc"
            for arguments, kind in (((-1,), ValueError), ((0, 0), ValueError), (("0",), TypeError), ((0, "1"), TypeError)):
                with pytest.raises(kind):
                    await loop.sock_sendfile(client, file, *arguments)
            with pytest.raises(asyncio.exceptions.SendfileNotAvailableError):
                await loop.sock_sendfile(client, io.BytesIO(b"abc"), fallback=False)

    run(loop, main())


@pytest.mark.parametrize("call", ["sock_recv", "sock_accept", "sock_recvfrom", "sock_sendall", "sock_connect"])
@pytest.mark.parametrize("debug", [False, True])
def test_cancelled(loop: Any, call: str, debug: bool) -> None:
    """What was cancelled is watched no more, and the socket does as before."""

    async def main() -> None:
        loop.set_debug(debug)
        host = HOSTS4[0]
        client, server = await connected(loop, host)
        with client, server, bound(host) as listener, bound(host, std.SOCK_DGRAM) as datagrams, opened(host) as late:
            calls: dict[str, Callable[[], Awaitable[Any]]] = {
                "sock_recv": lambda: loop.sock_recv(client, 10),
                "sock_accept": lambda: loop.sock_accept(listener),
                "sock_recvfrom": lambda: loop.sock_recvfrom(datagrams, 10),
                "sock_sendall": lambda: loop.sock_sendall(client, bytes(1 << 24)),
                "sock_connect": lambda: loop.sock_connect(late, (nobody(host), 9)),
            }
            for _ in range(3):
                task = asyncio.ensure_future(calls[call]())
                for _ in range(20):
                    await asyncio.sleep(0)
                assert loop._watches and not task.done()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert not loop._watches and not loop._readers
                if call == "sock_connect":
                    break
            if call == "sock_recv":
                await loop.sock_sendall(server, b"later")
                assert await loop.sock_recv(client, 10) == b"later"

    run(loop, main())


# ---- readers and writers ----


def test_readers_and_writers(loop: Any) -> None:
    async def main() -> None:
        client, server = await connected(loop, HOSTS4[0])
        seen: list[Any] = []
        with client, server:
            assert not loop.remove_reader(server) and not loop.remove_writer(server)
            loop.add_reader(server, seen.append, "old")
            loop.add_reader(server, lambda: seen.append(server.recv(10)))
            loop.add_writer(server, seen.append, "writable")
            while not seen:
                await asyncio.sleep(0.001)
            assert "writable" in seen and "old" not in seen
            assert loop.remove_writer(server) and not loop.remove_writer(server)
            seen.clear()
            client.send(b"one")
            while not seen:
                await asyncio.sleep(0.001)
            assert seen == [b"one"]
            assert loop.remove_reader(server) and not loop._watches
            client.send(b"two")
            await asyncio.sleep(0.01)
            assert seen == [b"one"]

    run(loop, main())


def test_readers_by_fd(loop: Any) -> None:
    """An fd and the object mean the same socket."""

    async def main() -> None:
        client, server = await connected(loop, HOSTS4[0])
        seen: list[Any] = []
        with client, server:
            number = server.fileno()
            loop.add_reader(number, seen.append, "fd")
            loop.add_reader(server, lambda: seen.append(server.recv(10)))
            client.send(b"x")
            while not seen:
                await asyncio.sleep(0.001)
            assert seen == [b"x"]
            assert loop.remove_reader(number) and not loop.remove_reader(server)
            loop.add_writer(number, seen.append, "w")
            while len(seen) < 2:
                await asyncio.sleep(0)
            assert loop.remove_writer(server) and not loop._watches

    run(loop, main())


def test_a_watched_socket_closes_late(loop: Any) -> None:
    """As on uvloop: close() of a socket that is watched comes into force when it is watched no more."""

    async def main() -> None:
        client, server = await connected(loop, HOSTS4[0])
        loop.add_reader(server, lambda: None)
        server.close()
        assert server._sock is not None
        loop.remove_reader(server)
        assert server._sock is None and not loop._watches
        with pytest.raises(ValueError):
            loop.add_reader(server, lambda: None)
        with pytest.raises(ValueError):
            loop.add_writer(server, lambda: None)
        client.close()

    run(loop, main())


def test_a_callback_that_fails(loop: Any) -> None:
    failures: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))

    async def main() -> None:
        client, server = await connected(loop, HOSTS4[0])

        def fail() -> None:
            loop.remove_writer(server)
            raise ZeroDivisionError

        with client, server:
            loop.add_writer(server, fail)
            while not failures:
                await asyncio.sleep(0.001)
        assert isinstance(failures[0]["exception"], ZeroDivisionError)

    run(loop, main())


def test_an_interrupt_ends_the_run(loop: Any) -> None:
    """KeyboardInterrupt from a callback comes out of run_forever(); the loop goes on when it is run again."""

    async def main() -> tuple[Any, Any]:
        return await connected(loop, HOSTS4[0])

    client, server = run(loop, main())

    def interrupt() -> None:
        loop.remove_writer(server)
        raise KeyboardInterrupt

    with client, server:
        loop.add_writer(server, interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()

        async def after() -> None:
            await loop.sock_sendall(client, b"after")
            assert await loop.sock_recv(server, 10) == b"after"

        run(loop, after())


# ---- the loop's life ----


def test_others_go_on(loop: Any) -> None:
    """Timers, threads, pipes and kernel sockets beside offloaded sockets that wait."""

    async def main() -> None:
        client, server = await connected(loop, HOSTS4[0])
        near, far = await connected(loop, LOOPBACK)
        with client, server, near, far:
            waiting = asyncio.ensure_future(loop.sock_recv(server, 10))
            for _ in range(5):
                await asyncio.sleep(0.002)
                assert await loop.run_in_executor(None, lambda: 7) == 7
                await loop.sock_sendall(near, b"k")
                assert await loop.sock_recv(far, 10) == b"k"
            process = await asyncio.create_subprocess_exec("echo", "out", stdout=subprocess.PIPE)
            assert (await process.communicate())[0] == b"out\n"
            threading.Thread(target=client.send, args=(b"from a thread",)).start()
            assert await waiting == b"from a thread"[:10]

    run(loop, main())


def test_many_loops_in_threads(loop: Any) -> None:
    """A loop a thread, all with offloaded sockets that talk to the first one's."""
    done: list[int] = []
    with bound(HOSTS4[0], std.SOCK_DGRAM) as echo:

        async def serve() -> None:
            while True:
                data, sender = await loop.sock_recvfrom(echo, 100)
                await loop.sock_sendto(echo, data, sender)

        def ask(number: int, mode: str) -> None:
            async def main() -> None:
                running: Any = asyncio.get_running_loop()
                with bound(HOSTS4[1], std.SOCK_DGRAM) as mine:
                    for i in range(50):
                        await running.sock_sendto(mine, b"%d" % i, echo.getsockname())
                        assert await running.sock_recvfrom(mine, 100) == (b"%d" % i, echo.getsockname())
                done.append(number)

            made = pyvma.asyncio.new_event_loop(mode=mode)
            try:
                made.run_until_complete(asyncio.wait_for(main(), LIMIT_S))
            finally:
                made.close()
                loop.call_soon_threadsafe(finished.set)

        threads = [threading.Thread(target=ask, args=(i, ("fd", "busy")[i % 2])) for i in range(3)]
        finished = asyncio.Event()

        async def main() -> None:
            serving = asyncio.ensure_future(serve())
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                finished.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(finished.wait(), 0.05)
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving

        run(loop, main())
        for thread in threads:
            thread.join()
        assert sorted(done) == [0, 1, 2]


def test_closed_with_sockets_watched() -> None:
    for mode in ("fd", "busy"):
        loop = pyvma.asyncio.new_event_loop(mode=mode)
        client, server = run(loop, connected(loop, HOSTS4[0]))
        with client, server:
            loop.add_reader(server, print)
            loop.close()
            loop.close()
            assert server._io_refs == 0
            for method, arguments in (("add_reader", (server, print)), ("add_writer", (server, print)), ("call_soon", (print,))):
                with pytest.raises(RuntimeError, match="closed"):
                    getattr(loop, method)(*arguments)
            with pytest.raises(RuntimeError, match="closed"):
                loop._watch(server, 1, print)
            with pytest.raises(RuntimeError, match="closed"):
                loop.run_forever()
            client.send(b"x")
            server.setblocking(True)
            assert server.recv(1) == b"x"


def test_loops_are_freed() -> None:
    """A loop and what it watched leave nothing."""
    seen = []
    for mode in ("fd", "busy"):
        loop = pyvma.asyncio.new_event_loop(mode=mode)
        client, server = run(loop, connected(loop, HOSTS4[0]))
        loop.add_reader(server, print)
        loop.close()
        client.close()
        server.close()
        seen.append(weakref.ref(loop))
        del loop, client, server
    gc.collect()
    assert [ref() for ref in seen] == [None, None]


def test_misuse(loop: Any) -> None:
    async def main() -> None:
        client, server = await connected(loop, HOSTS4[0])
        with client, server:
            with pytest.raises(RuntimeError):
                loop.run_forever()
            with pytest.raises(RuntimeError):
                loop.close()
            loop.set_debug(True)
            client.setblocking(True)
            for call in (loop.sock_recv(client, 1), loop.sock_sendall(client, b"x"), loop.sock_accept(client)):
                with pytest.raises(ValueError, match="non-blocking"):
                    await call
            failed: list[BaseException] = []

            def elsewhere() -> None:
                try:
                    loop.call_soon(print)
                except BaseException as error:
                    failed.append(error)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            assert isinstance(failed[0], RuntimeError)
            loop.set_debug(False)

    run(loop, main())


def test_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="mode"):
        pyvma.asyncio.new_event_loop(mode="idle")
    for mode in ("fd", "busy"):
        loop = pyvma.asyncio.EventLoop(mode=mode)
        assert loop._mode == mode and loop._queue is not None
        loop.close()


def test_run_and_policy() -> None:
    async def main() -> Any:
        return asyncio.get_running_loop()

    assert isinstance(pyvma.asyncio.run(main()), pyvma.asyncio.EventLoop)
    assert isinstance(pyvma.asyncio.run(main(), debug=True), pyvma.asyncio.EventLoop)
    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=pyvma.asyncio.new_event_loop) as runner:
            assert isinstance(runner.run(main()), pyvma.asyncio.EventLoop)
    policy = pyvma.asyncio.EventLoopPolicy()
    loop = policy.new_event_loop()
    assert isinstance(loop, pyvma.asyncio.EventLoop)
    loop.close()

    async def nested() -> None:
        inner = main()
        try:
            with pytest.raises(RuntimeError):
                pyvma.asyncio.run(inner)
        finally:
            inner.close()

    pyvma.asyncio.run(nested())


FORK = """
import asyncio, os, sys
import pyvma, pyvma.asyncio, pyvma.socket as s
pyvma.configure(interfaces=["softnic:fabric=" + sys.argv[1] + ",port=0,addr=10.66.0.1/24"])
loop = pyvma.asyncio.new_event_loop(mode=sys.argv[2])
def bound(kind, host):
    made = s.socket(s.AF_INET, kind); made.setblocking(False); made.bind((host, 0)); return made
a, b = bound(s.SOCK_DGRAM, "10.66.0.1"), bound(s.SOCK_DGRAM, "10.66.0.1")
async def exchange(loop, a, b):
    receiving = asyncio.ensure_future(loop.sock_recvfrom(a, 9))
    await asyncio.sleep(0)
    await loop.sock_sendto(b, b"x", a.getsockname())
    assert await asyncio.wait_for(receiving, 30) == (b"x", b.getsockname())
loop.run_until_complete(exchange(loop, a, b))
loop.add_reader(a, print)
pid = os.fork()
if not pid:
    try:
        for call in (lambda: loop.run_forever(), lambda: loop.add_reader(a, print), lambda: loop._watch(a, 1, print)):
            try:
                call()
            except RuntimeError as error:
                assert "before the fork" in str(error)
            else:
                raise AssertionError("it did not say so")
        loop.close()
        mine = pyvma.asyncio.new_event_loop(mode=sys.argv[2])
        c, d = bound(s.SOCK_DGRAM, "127.0.0.1"), bound(s.SOCK_DGRAM, "127.0.0.1")
        mine.run_until_complete(exchange(mine, c, d))
        mine.close()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
loop.remove_reader(a)
for _ in range(20):
    loop.run_until_complete(exchange(loop, a, b))
loop.close()
print("fine")
"""


@pytest.mark.parametrize("mode", ["fd", "busy"])
def test_fork(mode: str, fabric: str, clean_env: dict[str, str]) -> None:
    """The child's copy of the loop says what it is; the parent's goes on."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, fabric, mode], env=clean_env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and done.stdout.endswith("fine\n"), done.stderr
