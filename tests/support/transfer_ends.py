"""What both ends of the tests that take devices away do, with the standard library's sockets or ours: the modules are given."""

from __future__ import annotations

import asyncio
import hashlib
import struct
import threading
import time
from typing import Any

BLOCK = bytes(range(256)) * 256
HEAD = struct.Struct("!Q")


class Work:
    """A thread whose result or exception `result` gives."""

    def __init__(self, work: Any, *arguments: Any) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.work, self.arguments = work, arguments
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.value = self.work(*self.arguments)
        except BaseException as error:
            self.error = error

    def result(self, limit_s: float = 120.0) -> Any:
        """Waits for its end."""
        self.thread.join(limit_s)
        assert not self.thread.is_alive(), "it does not end"
        if self.error is not None:
            raise self.error
        return self.value


def tcp_send(sock: Any, size: int, stop: threading.Event, pause_s: float) -> tuple[int, str]:
    """At least so much, and until it is told to stop; the number of bytes and their hash."""
    digest, sent = hashlib.sha256(), 0
    while sent < size or not stop.is_set():
        part = sent.to_bytes(8, "big") + BLOCK[8:]
        sock.sendall(part)
        digest.update(part)
        sent += len(part)
        time.sleep(pause_s)
    sock.shutdown(1)
    assert sock.recv(10) == b"done"
    sock.close()
    return sent, digest.hexdigest()


def tcp_receive(sock: Any) -> tuple[int, str]:
    """To the end."""
    digest, got = hashlib.sha256(), 0
    while part := sock.recv(1 << 18):
        digest.update(part)
        got += len(part)
    sock.sendall(b"done")
    sock.close()
    return got, digest.hexdigest()


def udp_send(sock: Any, to: Any, pause_s: float, stop: threading.Event) -> int:
    """Numbered datagrams, so far apart; how many."""
    number = 0
    while not stop.is_set():
        sock.sendto(HEAD.pack(number) + bytes(100), to)
        number += 1
        time.sleep(pause_s)
    return number


def udp_receive(sock: Any, stop: threading.Event) -> dict[str, Any]:
    """Numbers once, again and out of order, and when each came; for a second after the end."""
    seen: set[int] = set()
    again = late = 0
    last = -1
    times: list[int] = []
    sock.settimeout(1.0)
    while True:
        try:
            (number,) = HEAD.unpack_from(sock.recv(2000))
        except TimeoutError:
            if stop.is_set():
                return {"seen": len(seen), "again": again, "late": late, "last": last, "times": times}
            continue
        again += number in seen
        late += number < last
        seen.add(number)
        last = max(last, number)
        times.append(time.monotonic_ns())


def echo_ask(sock: Any, stop: threading.Event) -> dict[str, Any]:
    """Asks an echo server one at a time; the number of answers, and the longest wait."""
    count, longest = 0, 0.0
    while not stop.is_set():
        asked = struct.pack("!I", count) * 250
        begin, got = time.monotonic(), b""
        sock.sendall(asked)
        while len(got) < len(asked):
            part = sock.recv(len(asked) - len(got))
            assert part, "the echo ended"
            got += part
        assert got == asked
        longest = max(longest, time.monotonic() - begin)
        count += 1
        time.sleep(0.002)
    sock.close()
    return {"count": count, "longest": longest}


def asyncio_serve(run: Any, host: str, ready: Any, stop: threading.Event) -> int:
    """An asyncio echo server on that loop; how many connections ended well."""
    ended = 0

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
        ended += 1

    async def main() -> None:
        server = await asyncio.start_server(echo, host, 0)
        ready(server.sockets[0].getsockname()[1])
        while not stop.is_set():
            await asyncio.sleep(0.05)
        server.close()

    run(main())
    return ended
