"""One process of `pyvma bench compare --api asyncio` and of `pyvma bench gil`: `python -m pyvma._cli._bench_loop_peer JSON`.

JSON: role ("echo", "http" or "ping-pong"), api (a row of the table; "kernel-py", "pyvma-py": sockets and no loop), tcp, local and remote
([host, port]), size, seconds, cpu (or null), interface (pyvma), spinner (a thread of pure Python beside the loop). A server prints
`{"ready": true}` and ends by SIGTERM.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from ._bench_peer import LOST_S, StopError, latency, on_term

SOCKETS = ("kernel-py", "pyvma-py")
BODY = b"Hello, World!"
REPLY = b"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


def new_loop(task: dict[str, Any]) -> asyncio.AbstractEventLoop:
    """The row's loop."""
    api = task["api"]
    if api == "asyncio":
        return asyncio.SelectorEventLoop()
    if api == "uvloop":
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    import pyvma

    pyvma.configure(interfaces=[task["interface"]])
    from ..asyncio import EventLoop

    ours: asyncio.AbstractEventLoop = EventLoop(mode=api.rpartition("-")[2])
    return ours


def check(transport: Any, task: dict[str, Any]) -> None:
    """A row of ours that is the kernel's would be a figure of something else."""
    # What get_extra_info() shows has the socket inside and none of its own attributes.
    sock = transport.get_extra_info("socket")
    if task["api"].startswith("pyvma") and not getattr(getattr(sock, "_sock", None), "offload", False):
        print("the socket is not offloaded", file=sys.stderr, flush=True)
        os._exit(1)


class Echo(asyncio.Protocol):
    """Everything comes back."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task

    def connection_made(self, transport: Any) -> None:
        check(transport, self.task)
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        self.write(data)


class EchoDatagram(asyncio.DatagramProtocol):
    """Everything goes back to where it came from."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task

    def connection_made(self, transport: Any) -> None:
        check(transport, self.task)
        self.sendto = transport.sendto

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.sendto(data, address)


class Http(asyncio.Protocol):
    """A server of one page with a real parser."""

    def __init__(self, task: dict[str, Any], parser: Any) -> None:
        self.task, self.parser = task, parser(self)
        self.headers: list[tuple[bytes, bytes]] = []

    def connection_made(self, transport: Any) -> None:
        check(transport, self.task)
        self.transport = transport

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_message_complete(self) -> None:
        self.headers.clear()
        self.transport.write(REPLY if self.parser.should_keep_alive() else REPLY.replace(b"Server", b"Connection: close\r\nServer"))

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)


class PingPong(asyncio.Protocol, asyncio.DatagramProtocol):
    """A message whenever the last one has come back."""

    def __init__(self, task: dict[str, Any], done: asyncio.Future[None]) -> None:
        self.task, self.done = task, done
        self.size: int = task["size"]
        self.message = b"x" * self.size
        self.have = self.timeouts = 0
        self.times: list[int] = []
        self.note, self.clock = self.times.append, time.perf_counter_ns

    def connection_made(self, transport: Any) -> None:
        check(transport, self.task)
        self.transport = transport
        self.send = transport.write if self.task["tcp"] else transport.sendto
        self.now = self.clock()
        self.end = self.now + int(self.task["seconds"] * 1e9)
        self.send(self.message)

    def data_received(self, data: bytes) -> None:
        self.have += len(data)
        if self.have >= self.size:
            self.have = 0
            self.next()

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.next()

    def next(self) -> None:
        then, self.now = self.now, self.clock()
        self.note(self.now - then)
        if self.now < self.end:
            self.send(self.message)
        elif not self.done.done():
            self.done.set_result(None)

    def error_received(self, error: Exception) -> None:
        """The server is not there yet: the message is lost."""

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionResetError("the server has left"))


async def repeat_lost(protocol: PingPong) -> None:
    """A datagram may be lost, and the exchange would be over."""
    seen = 0
    while True:
        await asyncio.sleep(LOST_S)
        if len(protocol.times) == seen:
            protocol.timeouts += 1
            protocol.send(protocol.message)
        seen = len(protocol.times)


async def ping_pong(task: dict[str, Any]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    protocol = PingPong(task, loop.create_future())
    if task["tcp"]:
        transport, _ = await loop.create_connection(lambda: protocol, *task["remote"])
    else:
        where = {"local_addr": tuple(task["local"]), "remote_addr": tuple(task["remote"])}
        transport, _ = await loop.create_datagram_endpoint(lambda: protocol, **where)  # type: ignore[assignment, arg-type]
    watcher = asyncio.ensure_future(repeat_lost(protocol)) if not task["tcp"] else None
    try:
        await protocol.done
    finally:
        if watcher:
            watcher.cancel()
        transport.close()
    times = protocol.times
    return {"received": len(times), "timeouts": protocol.timeouts} | latency(times[len(times) // 10 :])


def spin(stop: list[bool]) -> None:
    """A thread that always wants the GIL."""
    number = 0
    while not stop:
        number = (number * 31 + 7) % 1000003


def serve_sockets(task: dict[str, Any]) -> dict[str, Any]:
    """The echo server without a loop: of one connection, or of datagrams."""
    signal.signal(signal.SIGTERM, on_term)
    if task["api"] == "pyvma-py":
        import pyvma
        import pyvma.socket as socket

        pyvma.configure(interfaces=[task["interface"]])
    else:
        import socket  # type: ignore[no-redef]
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM if task["tcp"] else socket.SOCK_DGRAM)
    if task["tcp"]:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(tuple(task["local"]))
    if task["tcp"]:
        sock.listen()
    stop: list[bool] = []
    if task.get("spinner"):
        threading.Thread(target=spin, args=(stop,), daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    try:
        if task["tcp"]:
            sock, _ = sock.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if task["api"] == "pyvma-py" and not sock.offload:  # type: ignore[attr-defined]
            sys.exit("the socket is not offloaded")
        while task["tcp"]:
            sock.sendall(sock.recv(65536))
        while True:
            sock.sendto(*sock.recvfrom(65536))
    except (StopError, ConnectionError):
        stop.append(True)
    return {}


async def serve(task: dict[str, Any]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    stop: list[bool] = []
    local = tuple(task["local"])
    if task["tcp"]:
        if task["role"] == "http":
            import httptools

            server = await loop.create_server(lambda: Http(task, httptools.HttpRequestParser), *local, backlog=1024)
        else:
            server = await loop.create_server(lambda: Echo(task), *local, backlog=1024)
    else:
        server, _ = await loop.create_datagram_endpoint(lambda: EchoDatagram(task), local_addr=local)  # type: ignore[assignment]
    if task.get("spinner"):
        threading.Thread(target=spin, args=(stop,), daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    await ended.wait()
    stop.append(True)
    server.close()
    return {}


def main() -> None:
    task = json.loads(sys.argv[1])
    if task["cpu"] is not None and not task.get("spinner"):
        os.sched_setaffinity(0, {task["cpu"]})
    gc.disable()
    if task["api"] in SOCKETS:
        result = serve_sockets(task)
    else:
        loop = new_loop(task)
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete((ping_pong if task["role"] == "ping-pong" else serve)(task))
    print(json.dumps(result), flush=True)
    sys.stdout.flush()
    # What is left of a loop that was stopped in the middle of its work is nobody's concern.
    os._exit(0)


if __name__ == "__main__":
    main()
