"""The asyncio server of `pyvma bench server -F asyncio`: `python -m pyvma._cli._bench_perf_async JSON`.

JSON: ends ([tcp, host, port] each), interface (pyvma's, null: kernel sockets and the standard loop), block, cpu (or null), reply. Messages
and the report are those of the C server.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys
import time
from typing import Any

from ._bench_peer import Seen

HEADER = struct.Struct("!QHI")
CLIENT, PONG, WARMUP = 1, 2, 4
LONGEST = (1 << 20) - 1
FORGOTTEN = 65536
"""Messages that are looked for at most, as in C."""


class Counts:
    """What the server has seen."""

    def __init__(self, reply: bool) -> None:
        self.reply, self.seen = reply, Seen()
        self.received = self.sent = self.malformed = self.connections = self.lost = 0
        self.start = self.end = 0.0

    def take(self, message: bytes, fresh: bool = False) -> bytes | None:
        """The answer to a message, None when there is none; `fresh`: a connection's first."""
        number, flags, size = HEADER.unpack_from(message)
        if not flags & CLIENT:
            return None
        if flags & WARMUP or (fresh and number == 1):
            # A client's first words.
            self.lost += len(self.seen.holes)
            self.seen = Seen()
        if flags & WARMUP:
            return None
        if number - self.seen.next > FORGOTTEN:
            # Nobody waits for so many: they are lost, as far as that is to be believed.
            self.lost += number - self.seen.next
            self.seen.next = number
        self.received += 1
        self.end = time.monotonic()
        self.start = self.start or self.end
        self.seen.add(number)
        if len(self.seen.holes) > FORGOTTEN:
            self.lost += len(self.seen.holes)
            self.seen.holes.clear()
        if not flags & PONG or not self.reply:
            return None
        self.sent += 1
        return HEADER.pack(number, flags & ~CLIENT, size) + message[HEADER.size :]

    def result(self) -> dict[str, Any]:
        """The C server's report."""
        seen = self.seen.result()
        seen["lost"] += self.lost
        counts = {"sent": self.sent, "received": self.received, "malformed": self.malformed, "connections": self.connections}
        return {"mode": "server", "style": "asyncio", **counts, **seen, "timeouts": 0, "seconds": self.end - self.start}


class Datagrams(asyncio.DatagramProtocol):
    """One endpoint of datagrams."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if len(data) < HEADER.size or HEADER.unpack_from(data)[2] != len(data):
            self.counts.malformed += 1
        elif answer := self.counts.take(data):
            self.transport.sendto(answer, address)

    def error_received(self, error: Exception) -> None:
        """The client has left."""


class Stream(asyncio.Protocol):
    """One connection: messages follow each other."""

    def __init__(self, counts: Counts) -> None:
        self.counts, self.rest, self.fresh = counts, b"", True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.counts.connections += 1

    def data_received(self, data: bytes) -> None:
        data, at, answers = self.rest + data, 0, []
        while len(data) - at >= HEADER.size:
            size = HEADER.unpack_from(data, at)[2]
            if not HEADER.size <= size <= LONGEST:
                self.counts.malformed += 1
                self.transport.abort()
                return
            if len(data) - at < size:
                break
            if answer := self.counts.take(data[at : at + size], self.fresh):
                answers.append(answer)
            self.fresh = False
            at += size
        self.rest = data[at:]
        if answers:
            self.transport.write(b"".join(answers))


def new_loop(task: dict[str, Any]) -> asyncio.AbstractEventLoop:
    """The standard one, or ours."""
    if task["interface"] is None and not task["ours"]:
        return asyncio.SelectorEventLoop()
    import pyvma

    if task["interface"]:
        pyvma.configure(interfaces=[task["interface"]])
    from ..asyncio import EventLoop

    ours: asyncio.AbstractEventLoop = EventLoop(mode="fd" if task["block"] else "busy")
    return ours


async def serve(task: dict[str, Any]) -> dict[str, Any]:
    """Until SIGTERM."""
    loop, ended, counts = asyncio.get_running_loop(), asyncio.Event(), Counts(task["reply"])
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    for tcp, host, port in task["ends"]:
        if tcp:
            await loop.create_server(lambda: Stream(counts), host, port, backlog=64)
        else:
            await loop.create_datagram_endpoint(lambda: Datagrams(counts), local_addr=(host, port))
    print(json.dumps({"ready": True}), flush=True)
    await ended.wait()
    return counts.result()


def main() -> None:
    task = json.loads(sys.argv[1])
    if task["cpu"] is not None:
        os.sched_setaffinity(0, {task["cpu"]})
    loop = new_loop(task)
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(serve(task))
    except OSError as error:
        sys.exit(str(error))
    print(json.dumps(result), flush=True)
    sys.stdout.flush()
    # Connections that are open end with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
