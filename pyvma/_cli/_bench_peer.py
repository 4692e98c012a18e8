"""One of the two processes of a Python row of `pyvma bench compare`: `python -m pyvma._cli._bench_peer JSON`.

JSON: role ("server", "ping-pong" or "throughput"), stack ("pyvma" or "kernel"), tcp (one connection instead of datagrams), block, local
and remote ([host, port]; the socket is connected), size, seconds, batch, window, cpu (or null), interface and preset (pyvma; the latter
or null). Prints the same JSON as the C program of native/bench: a server `{"ready": true}` first, everybody the result at the end; a server
ends by SIGTERM, or with its connection.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import time
from socket import MSG_DONTWAIT
from struct import Struct
from typing import Any

from pyvma._cli._bench_hist import LADDER, pairs

HEADER = Struct(">QHI")
CLIENT, PONG = 1, 2
LOST_S = 1.0
# Bytes that one call reads of a stream, as the C program.
READ = 1 << 16


class StopError(Exception):
    """SIGTERM: the server's work is done."""


class LostError(Exception):
    """A reply has not come for LOST_S."""


def on_term(number: int, frame: Any) -> None:
    raise StopError


class Watch:
    """Raises LostError out of a receive that makes no progress. A timeout on the socket would cost another system call each time."""

    def __init__(self) -> None:
        signal.signal(signal.SIGALRM, self.tick)
        self.start()

    def start(self) -> None:
        self.count = self.seen = -1
        signal.setitimer(signal.ITIMER_REAL, LOST_S, LOST_S)

    def tick(self, number: int, frame: Any) -> None:
        if self.count == self.seen:
            raise LostError
        self.seen = self.count

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Seen:
    """Which of the numbers 1, 2, ... came."""

    def __init__(self) -> None:
        self.next = 1
        self.unique = self.duplicated = self.reordered = 0
        self.holes: set[int] = set()

    def add(self, number: int) -> None:
        if number >= self.next:
            self.holes.update(range(self.next, number))
            self.next = number + 1
        elif number in self.holes:
            self.holes.remove(number)
            self.reordered += 1
        else:
            # The first is asked until it is answered: what comes of it again was asked for again.
            self.duplicated += number > 1
            return
        self.unique += 1

    def run(self, first: int, count: int) -> bool:
        """The next `count` numbers in order from `first`: one step for all of them."""
        if first != self.next:
            return False
        self.next += count
        self.unique += count
        return True

    def result(self) -> dict[str, Any]:
        return {"unique": self.unique, "lost": len(self.holes), "duplicated": self.duplicated, "reordered": self.reordered}


def connection(socket: Any, task: dict[str, Any]) -> Any:
    """Connected to the server, or the one that a client made."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if task["role"] == "server":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(tuple(task["local"]))
        sock.listen()
        print(json.dumps({"ready": True}), flush=True)
        with sock as server:
            sock, _ = server.accept()
    else:
        sock.connect(tuple(task["remote"]))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if task["stack"] == "pyvma" and not sock.offload:
        sys.exit(f"the socket is not offloaded: {sock.offload}")
    return sock


def open_socket(task: dict[str, Any]) -> Any:
    if task["stack"] == "pyvma":
        import pyvma
        import pyvma.socket as socket

        preset = {"preset": task["preset"]} if task["preset"] else {}
        pyvma.configure(interfaces=[task["interface"]], rx_poll=0 if task["block"] else -1, **preset)
    else:
        import socket  # type: ignore[no-redef]
    if task["tcp"]:
        return connection(socket, task)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    sock.bind(tuple(task["local"]))
    sock.connect(tuple(task["remote"]))
    if task["stack"] == "pyvma" and not getattr(sock, "offload", False):
        sys.exit(f"the socket is not offloaded: {sock.offload}")  # type: ignore[attr-defined]
    return sock


def rest_of(sock: Any, task: dict[str, Any]) -> Any:
    """What is called when a receive has brought less than a message: waits for the rest of a stream's; a datagram has none."""
    recv_into, size = sock.recv_into, task["size"]

    def rest(buffer: bytearray, count: int) -> None:
        more = count
        while count < size:
            if not more:
                raise StopError if task["role"] == "server" else ConnectionResetError
            with contextlib.suppress(BlockingIOError):
                more = recv_into(memoryview(buffer)[count:])
                count += more

    return rest if task["tcp"] else lambda buffer, count: None


def receiver(sock: Any, task: dict[str, Any]) -> tuple[Any, Any]:
    """Waits for one datagram, or some bytes, asleep, inside the engine, or asking the kernel again and again; and rest_of()."""
    receive = sock.recv_into
    if task["block"] or task["stack"] == "pyvma":
        sock.setblocking(True)
        return receive, rest_of(sock, task)
    sock.setblocking(False)

    def poll(buffer: bytearray) -> int:
        while True:
            try:
                return int(receive(buffer))
            except (BlockingIOError, ConnectionRefusedError):
                continue

    return poll, rest_of(sock, task)


def latency(times: list[int]) -> dict[str, Any]:
    """Half round trips in microseconds from round trips in nanoseconds."""
    times.sort()
    count = len(times)
    if not count:
        return {}
    mean = sum(times) / count
    spread = (sum((value - mean) ** 2 for value in times) / count) ** 0.5
    figures: dict[str, Any] = {"observations": count, "avg_us": mean / 2000, "stddev_us": spread / 2000}
    figures |= {"min_us": times[0] / 2000, "max_us": times[-1] / 2000}
    for q in LADDER:
        rank = max(1, -(-count * round(q * 1000) // 100000))
        figures[f"p{q:g}_us"] = times[rank - 1] / 2000
    return figures


def handshake(sock: Any, receive: Any, rest: Any, size: int, watch: Watch) -> None:
    """Message 1, until it is answered."""
    out, into = bytearray(size), bytearray(size)
    HEADER.pack_into(out, 0, 1, CLIENT | PONG, size)
    for _ in range(20):
        try:
            sock.send(out)
            rest(into, receive(into))
        except (LostError, ConnectionRefusedError):
            continue
        if HEADER.unpack_from(into)[0] == 1:
            watch.count = 0
            return
    sys.exit("no answer from the server")


def ping_pong(sock: Any, task: dict[str, Any]) -> dict[str, Any]:
    size, send, clock, watch = task["size"], sock.send, time.perf_counter_ns, Watch()
    receive, rest = receiver(sock, task)
    handshake(sock, receive, rest, size, watch)
    out, into, seen, timeouts = bytearray(size), bytearray(size), Seen(), 0
    seen.add(1)
    times: list[int] = []
    note = times.append
    start = then = now = clock()
    end = start + int(task["seconds"] * 1e9)
    block = 0
    # Numbers 256 * block + low: within a block one byte changes. What is written down of a message is so while the next one is on its way.
    while now < end:
        HEADER.pack_into(out, 0, 256 * block, CLIENT | PONG, size)
        first = 2 if block == 0 else 0
        low = first
        try:
            for low in range(first, 256):
                out[7] = low
                send(out)
                watch.count = low
                if now != then:
                    note(now - then)
                if (count := receive(into)) != size:
                    rest(into, count)
                while into[7] != low:
                    seen.add(HEADER.unpack_from(into)[0])
                    rest(into, receive(into))
                then, now = now, clock()
                if now >= end:
                    break
            if not seen.run(256 * block + first, low - first + 1):
                for number in range(256 * block + first, 256 * block + low + 1):
                    seen.add(number)
        except LostError:
            timeouts += 1
            for number in range(256 * block + first, 256 * block + low):
                seen.add(number)
            # The reply may still come late. The rest of the block is not sent and nobody's loss.
            seen.holes.add(256 * block + low)
            seen.next = 256 * (block + 1)
            then = now = clock()
        block += 1
    watch.stop()
    if now != then:
        note(now - then)
    warm = len(times) // 10
    result = {"sent": seen.unique + len(seen.holes), "received": seen.unique + seen.duplicated, "timeouts": timeouts, "size": size}
    result |= seen.result() | {"seconds": (now - start) / 1e9} | latency(times[warm:])
    if task.get("histogram"):
        result["histogram_ns"] = pairs(value / 2 for value in times[warm:])
    return result


def batch_sender(sock: Any, task: dict[str, Any]) -> Any:
    """A function that sends messages first .. first+n-1 and returns how many left; one call for all where the stack has one."""
    size, batch, window = task["size"], task["batch"], task["window"]
    # Without a window only the last message of all asks for a reply.
    every = max(window // 8, 1) if window else 1 << 62
    buffers = [bytearray(size) for _ in range(batch)]
    pack = HEADER.pack_into

    def fill(first: int) -> None:
        number = first
        for buffer in buffers:
            pack(buffer, 0, number, CLIENT if number % every else CLIENT | PONG, size)
            number += 1

    if task["tcp"]:
        whole = bytearray(size * batch)
        sendall = sock.sendall

        def send_stream(first: int) -> Any:
            for at in range(batch):
                number = first + at
                pack(whole, at * size, number, CLIENT if number % every else CLIENT | PONG, size)
            sendall(whole)
            return batch

        return send_stream
    if task["stack"] == "pyvma":
        send_batch = sock.send_batch

        def send_all(first: int) -> int:
            fill(first)
            return int(send_batch(buffers))

        return send_all
    send = sock.send

    def send_each(first: int) -> int:
        fill(first)
        for count, buffer in enumerate(buffers):
            try:
                send(buffer)
            except BlockingIOError:
                return count
        return len(buffers)

    return send_each


class Replies:
    """The newest whole reply of a stream."""

    def __init__(self, sock: Any, size: int) -> None:
        self.recv, self.size, self.pending = sock.recv, size, bytearray()

    def now(self, into: bytearray) -> None:
        """Into the caller's buffer. BlockingIOError: none is whole."""
        self.pending += self.recv(65536, MSG_DONTWAIT)
        if not self.take(into):
            raise BlockingIOError

    def wait(self, into: bytearray) -> None:
        while not self.take(into):
            self.pending += self.recv(65536)

    def take(self, into: bytearray) -> bool:
        count = len(self.pending) // self.size
        if count:
            into[:] = self.pending[(count - 1) * self.size : count * self.size]
            del self.pending[: count * self.size]
        return count > 0


def throughput(sock: Any, task: dict[str, Any]) -> dict[str, Any]:
    size, window, batch, clock, watch = task["size"], task["window"], task["batch"], time.perf_counter_ns, Watch()
    handshake(sock, *receiver(sock, task), size, watch)
    watch.stop()
    send, receive, into = batch_sender(sock, task), sock.recv_into, bytearray(size)
    replies = Replies(sock, size)
    if task["tcp"]:
        receive = replies.now
        sock.setblocking(True)
    else:
        sock.setblocking(False)
    acked = sent = 1
    received = timeouts = 0
    start = now = moved = clock()
    end = start + int(task["seconds"] * 1e9)
    while now < end:
        now = clock()
        if window and sent - acked + batch > window:
            try:
                receive(into)
                acked = max(acked, HEADER.unpack_from(into)[0])
                received += 1
                moved = now
            except BlockingIOError:
                if now - moved > LOST_S * 1e9:
                    acked, moved = sent, now
                    timeouts += 1
            continue
        try:
            sent += send(sent + 1)
        except BlockingIOError:
            pass
    # The last message asks for a reply: when that is here, the receiver has seen all that will come.
    sent += 1
    sock.setblocking(True)
    if task["tcp"]:
        receive = replies.wait
    sock.sendall(HEADER.pack(sent, CLIENT | PONG, size).ljust(size, b"\0"))
    watch.start()
    with contextlib.suppress(LostError):
        while acked < sent:
            receive(into)
            acked = HEADER.unpack_from(into)[0]
            received += 1
    watch.stop()
    return {"sent": sent, "received": received, "timeouts": timeouts, "size": size, "seconds": (now - start) / 1e9}


def serve_single(sock: Any, task: dict[str, Any], seen: Seen, counts: dict[str, int]) -> None:
    size, send, read = task["size"], sock.send, HEADER.unpack_from
    receive, rest = receiver(sock, task)
    buffer = bytearray(size)
    first = following = seen.next
    asks, answer = PONG, 255 & ~CLIENT
    low = 0
    try:
        while True:
            if (count := receive(buffer)) != size:
                rest(buffer, count)
            # Of the numbers in a row one byte changes but for every 256th.
            if (low and buffer[7] == low) or (number := read(buffer)[0]) == following:
                following += 1
            else:
                seen.run(first, following - first)
                seen.add(number)
                first = following = seen.next
            low = following & 255
            if (flags := buffer[9]) & asks:
                buffer[9] = flags & answer
                send(buffer)
    finally:
        seen.run(first, following - first)


def serve_batch(sock: Any, task: dict[str, Any], seen: Seen, counts: dict[str, int]) -> None:
    size, batch, recv_batch, send, clock = task["size"], task["batch"], sock.recv_batch, sock.send, time.perf_counter_ns
    sock.setblocking(True)
    whole = bytearray(size * batch)
    view = memoryview(whole)
    buffers = [view[at : at + size] for at in range(0, size * batch, size)]
    # All headers of a batch by one call: number and flags of each.
    structs = [Struct(">" + f"QH{size - 10}x" * count) for count in range(batch + 1)]
    while True:
        count = len(recv_batch(buffers))
        counts["end"] = clock()
        if not counts["start"]:
            counts["start"] = counts["end"]
        fields = structs[count].unpack_from(whole)
        numbers = fields[::2]
        if numbers != tuple(range(numbers[0], numbers[0] + count)) or not seen.run(numbers[0], count):
            for number in numbers:
                seen.add(number)
        for at, flags in enumerate(fields[1::2]):
            if flags & PONG:
                buffers[at][9] = flags & ~CLIENT
                send(buffers[at])


def serve_stream(sock: Any, task: dict[str, Any], seen: Seen, counts: dict[str, int]) -> None:
    """Throughput over a connection: as much as is there by one call, all headers of that by another."""
    size, recv_into, sendall, clock = task["size"], sock.recv_into, sock.sendall, time.perf_counter_ns
    # Whole messages fill the buffer: none ever has to be moved to its front.
    most = max(4, min(1024, (256 << 10) // size))
    whole = bytearray(size * most)
    view = memoryview(whole)
    structs = [Struct(">" + f"QH{size - 10}x" * count) for count in range(most + 1)]
    sock.setblocking(True)
    head = tail = 0
    while True:
        n = recv_into(view[tail : tail + READ])
        if not n:
            raise StopError
        tail += n
        count = (tail - head) // size
        counts["end"] = clock()
        if not counts["start"]:
            counts["start"] = counts["end"]
        if count:
            fields = structs[count].unpack_from(whole, head)
            numbers = fields[::2]
            if numbers != tuple(range(numbers[0], numbers[0] + count)) or not seen.run(numbers[0], count):
                for number in numbers:
                    seen.add(number)
            for at, flags in enumerate(fields[1::2]):
                if flags & PONG:
                    first = head + at * size
                    whole[first + 9] = flags & ~CLIENT
                    sendall(view[first : first + size])
            head += count * size
        if head == tail:
            head = tail = 0


def serve_each(sock: Any, task: dict[str, Any], seen: Seen, counts: dict[str, int]) -> None:
    """Throughput without batches: the standard library has no call for more than one datagram."""
    size, send, clock = task["size"], sock.send, time.perf_counter_ns
    receive, _ = receiver(sock, task)
    buffer = bytearray(size)
    add, read = seen.run, HEADER.unpack_from
    while True:
        receive(buffer)
        number, flags, _ = read(buffer)
        if not add(number, 1):
            seen.add(number)
        if flags & PONG:
            counts["end"] = clock()
            if not counts["start"]:
                counts["start"] = counts["end"]
            buffer[9] = flags & ~CLIENT
            send(buffer)


def serve(sock: Any, task: dict[str, Any]) -> dict[str, Any]:
    signal.signal(signal.SIGTERM, on_term)
    seen, counts = Seen(), {"start": 0, "end": 0}
    if task["tcp"]:
        way = serve_single if task["batch"] == 1 else serve_stream
    else:
        print(json.dumps({"ready": True}), flush=True)
        way = serve_single if task["batch"] == 1 else serve_batch if task["stack"] == "pyvma" else serve_each
    try:
        while True:
            # The client leaves first, and the kernel says so.
            with contextlib.suppress(ConnectionRefusedError):
                way(sock, task, seen, counts)
    except StopError:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    seconds = (counts["end"] - counts["start"]) / 1e9
    return {"received": seen.unique + seen.duplicated, "size": task["size"], "seconds": seconds} | seen.result()


def main() -> None:
    task = json.loads(sys.argv[1])
    if task["cpu"] is not None:
        os.sched_setaffinity(0, {task["cpu"]})
    sock = open_socket(task)
    gc.disable()
    result = {"server": serve, "ping-pong": ping_pong, "throughput": throughput}[task["role"]](sock, task)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
