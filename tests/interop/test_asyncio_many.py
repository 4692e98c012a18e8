"""Connections by the thousand in one process, on one loop: opened, used and closed, and nothing of them is left."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from lab import LONG

COUNT = 10_000 if LONG else 1_000

PROGRAM = """
import asyncio, gc, json, os, resource, sys, time, tracemalloc
import pyvma, pyvma.asyncio, pyvma.socket as s

fabric, mode, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
pyvma.configure(interfaces=["softnic:fabric=" + fabric + ",port=%d,addr=10.67.0.%d/24,name=m%d" % (n, n + 1, n) for n in range(2)])
open_now = 0
LIMIT_S = 600

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        global open_now
        open_now += 1
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)
    def connection_lost(self, error):
        global open_now
        open_now -= 1

class Client(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.got = transport, bytearray()
        self.waiter = self.lost = None
    def data_received(self, data):
        self.got += data
        if len(self.got) == 64 and self.waiter is not None:
            self.waiter.set_result(None)
            self.waiter = None
    def connection_lost(self, error):
        if self.lost is not None:
            self.lost.set_result(error)

async def use(loop, client, number):
    client.got.clear()
    client.waiter = loop.create_future()
    message = (b"%d-" % number).ljust(64, b"x")
    client.transport.write(message)
    await client.waiter
    assert client.got == message

async def settle(condition):
    while not condition():
        await asyncio.sleep(0.01)

def objects():
    kinds = [type(item) for item in gc.get_objects()]
    return sum(kind in (Echo, Client, asyncio.Future, asyncio.Task) or str(kind.__module__).startswith("pyvma") for kind in kinds)

async def one_round(loop, server, count):
    name, marks = server.sockets[0].getsockname(), [time.monotonic()]
    clients = []
    for at in range(0, count, 100):
        made = [loop.create_connection(Client, *name, local_addr=("10.67.0.2", 0)) for _ in range(min(100, count - at))]
        clients += [client for _, client in await asyncio.gather(*made)]
    await settle(lambda: open_now == count)
    marks.append(time.monotonic())
    fds = len(os.listdir("/proc/self/fd"))
    for at in range(0, count, 500):
        await asyncio.gather(*(use(loop, client, at + i) for i, client in enumerate(clients[at : at + 500])))
    marks.append(time.monotonic())
    for client in clients:
        client.lost = loop.create_future()
        client.transport.close()
    await asyncio.gather(*(client.lost for client in clients))
    await settle(lambda: open_now == 0)
    marks.append(time.monotonic())
    return fds, [after - before for before, after in zip(marks, marks[1:])]

async def main():
    loop = asyncio.get_running_loop()
    failures = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    server = await loop.create_server(Echo, "10.67.0.1", 0, backlog=1024)
    await one_round(loop, server, count)  # caches fill
    gc.collect()
    before_objects = objects()
    before_fds = len(os.listdir("/proc/self/fd"))
    watches, carried = len(loop._watches), pyvma.counters()["tcp.opened_passive"]
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    fds, took = await one_round(loop, server, count)
    gc.collect()
    left = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    assert not failures, failures[:3]
    out = {
        "fds": [before_fds, fds, len(os.listdir("/proc/self/fd"))],
        "watches": [watches, len(loop._watches)],
        "left": left,
        "objects": [before_objects, objects()],
        "took": took,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "carried": pyvma.counters()["tcp.opened_passive"] - carried,
    }
    server.close()
    await server.wait_closed()
    print(json.dumps(out))

loop = pyvma.asyncio.new_event_loop(mode=mode)
loop.run_until_complete(asyncio.wait_for(main(), LIMIT_S))
loop.close()
"""


@pytest.mark.parametrize("mode", ["fd", "busy"])
def test_many_connections(mode: str, fabric: str, clean_env: dict[str, str]) -> None:
    """Both ends are in the process. What is left of them: no fd, no watch, no object."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, fabric, mode, str(COUNT)], env=clean_env, capture_output=True, text=True, timeout=660, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(f"{COUNT} connections, {mode}: {found}")
    before, during, after = found["fds"]
    assert during < before + 50, "a connection of the engine's has no fd"
    assert after < before + 5
    assert found["watches"][0] == found["watches"][1]
    assert found["objects"][0] == found["objects"][1]
    assert found["carried"] == COUNT
    assert found["left"] < 150_000 + 400 * COUNT, "the tables of dictionaries that were full, and no connection"
