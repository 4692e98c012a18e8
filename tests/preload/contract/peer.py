"""The kernel's side of the contract: services on the ports that contract.h names. Prints a line when they are there and ends with its
stdin."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections import deque
from collections.abc import Awaitable, Callable

ECHO, GREET, BYE, RESET, SILENT, KNOCK, URGENT = range(7001, 7008)
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Answer(asyncio.DatagramProtocol):
    """Echoes, or greets."""

    def __init__(self, text: bytes | None) -> None:
        self.text = text

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(data if self.text is None else self.text, addr)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    await echo(reader, writer)


async def bye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"bye")
    writer.write_eof()
    await reader.read()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def urgent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    raw: socket.socket = writer.get_extra_info("socket")
    with socket.socket(fileno=socket.dup(raw.fileno())) as sock:  # asyncio's has no flags
        sock.send(b"abc", 0)
        sock.send(b"!", socket.MSG_OOB)
    await echo(reader, writer)


async def silent(loop: asyncio.AbstractEventLoop, host: str) -> None:
    """Reads nothing, and has little room. Those that are not the last ones any more are closed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)  # what is accepted has it, too, and keeps it
        listener.bind((host, SILENT))
        listener.listen(1024)
        listener.setblocking(False)
        last: deque[socket.socket] = deque()
        while True:
            last.append((await loop.sock_accept(listener))[0])
            if len(last) > 8:
                last.popleft().close()


async def knock(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A port in a line: connects to it at the caller's address, and stays as long as the caller does."""
    host = writer.get_extra_info("peername")[0]
    back, there = await asyncio.open_connection(host, int(await reader.readline()))
    there.write(b"knock")
    echoing = asyncio.ensure_future(closing(echo)(back, there))
    await reader.read()
    echoing.cancel()
    there.close()


def closing(handler: Handler) -> Handler:
    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await handler(reader, writer)
        writer.close()

    return run


async def main(hosts: list[str]) -> None:
    loop = asyncio.get_running_loop()
    for host in hosts:
        for port, handler in ((ECHO, echo), (GREET, greet), (BYE, bye), (RESET, reset), (KNOCK, knock), (URGENT, urgent)):
            await asyncio.start_server(closing(handler), host, port, backlog=1024)
        for port, text in ((ECHO, None), (GREET, b"hello")):
            await loop.create_datagram_endpoint(lambda text=text: Answer(text), local_addr=(host, port))  # type: ignore[misc]
    quiet = [loop.create_task(silent(loop, host)) for host in hosts]
    await asyncio.sleep(0)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    for task in quiet:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
