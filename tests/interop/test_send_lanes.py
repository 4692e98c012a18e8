"""Send queues of sockets' own over the software NIC (`ring_logic_tx`, `pyvma.ring.place` with `sending`): who has which, from several
threads, and that nothing is lost or overtaken. By which of the ring's queues each frame goes txlane_test shows."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from actor import Actor
from exchange import wait_for
from lab import softnic_reason

pytestmark = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there is a software NIC")

HERE, ALSO, THERE, PORT = "10.9.0.1", "10.9.0.3", "10.9.0.2", 7000
SETUP = """
import threading
import pyvma.ring as ring, pyvma.stats as stats
def udp(host=None):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(30)
    if host: s.bind((host, 0))
    return s
def said(s):
    s.sendto(b'', there)
    return s
def queue(s):
    found = [p.queue for p in ring.places(s, sending=True)]
    assert len(found) <= 1 and s.stats['tx_queue'] == sum(found)
    return found[0] if found else None
def elsewhere(what):
    got = []
    t = threading.Thread(target=lambda: got.append(what()))
    t.start(); t.join()
    return got[0]
ring.interfaces()
def in_use():
    with stats.attach(os.getpid()) as p: return [row.figure('tx_queues') for row in p.snapshot().of('ring')][0]
"""
# Each thread numbers the datagrams of two sockets and of a connection; the first 8 bytes name the thread. No more are out than the
# receiver has buffers for.
THREADS = """
def work(number):
    a, b = said(udp()), udp()
    b.connect(there)
    c = socket.create_connection((there[0], there[1] + 1), timeout=30)
    c.sendall(struct.pack('!Q', number))
    for i in range(count):
        a.sendto(struct.pack('!QQ', 2 * number, i).ljust(16 + 7 * i % 1400), there)
        b.send(struct.pack('!QQ', 2 * number + 1, i))
        c.sendall(struct.pack('!Q', i))
        if i % 32 == 31: b.recv(1)
    return a, b, c
made = [None] * threads
def run(number): made[number] = work(number)
for t in (running := [threading.Thread(target=run, args=(n,)) for n in range(threads)]): t.start()
for t in running: t.join()
[[queue(s) for s in of] for of in made]
"""
TAKE = """
def stream(c):
    data = c.makefile('rb').read(8 * (count + 1))
    return struct.unpack(f'!{count + 1}Q', data)
found = {}
streams = [None] * threads
def streaming():
    for i in range(threads): streams[i] = listener.accept()[0]
import threading
t = threading.Thread(target=streaming); t.start()
got = 0
while got < 2 * threads * count:
    data, address = sink.recvfrom(2000)
    if len(data) >= 16:
        who, number = struct.unpack('!QQ', data[:16])
        found.setdefault(who, []).append(number)
        got += 1
        if who % 2 and number % 32 == 31: sink.sendto(b'', address)
t.join()
found, sorted(stream(c) for c in streams)
"""


class Ends(NamedTuple):
    sender: Actor
    receiver: Actor


@contextmanager
def ends_of(logic: int, limit: int = 0) -> Iterator[Ends]:
    fabric = f"sl{secrets.token_hex(4)}"
    env = {"PYVMA_RING_LOGIC_TX": str(logic), "PYVMA_RING_LIMIT": str(limit)}
    here = f"softnic:fabric={fabric},port=0,addr={HERE}/24,addr={ALSO}/24,name=sn0"
    with Actor([here], env=env) as sender, Actor([f"softnic:fabric={fabric},port=1,addr={THERE}/24"]) as receiver:
        sender(SETUP)
        sender("there = (host, port)", host=THERE, port=PORT)
        receiver("sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); sink.settimeout(30)")
        receiver("sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23); sink.bind((host, port))", host=THERE, port=PORT)
        receiver("listener = socket.create_server((host, port)); listener.settimeout(30)", host=THERE, port=PORT + 1)
        yield Ends(sender, receiver)


def test_threads() -> None:
    threads, count = 4, 400
    with ends_of(20) as ends:
        assert ends.sender("in_use()") == 0
        ends.receiver.start(TAKE, threads=threads, count=count)
        queues = ends.sender(THREADS, threads=threads, count=count, limit_s=60)
        found, streams = ends.receiver.finish()
        assert {tuple(set(of)) for of in queues} == {(1,), (2,), (3,), (4,)}
        assert found == {who: list(range(count)) for who in range(2 * threads)}
        assert streams == [(number, *range(count)) for number in range(threads)]
        assert ends.sender("in_use()") == threads
        assert ends.sender("ring.places(made[0][0], sending=True)[0].by") == "thread"
        # It is that of its first datagram's thread, whoever uses it later, and is given back with the last of the thread's sockets.
        assert ends.sender("elsewhere(lambda: queue(said(made[0][0])))") == queues[0][0]
        ends.sender("for s in made[0]: s.close()")
        wait_for("queues that are given back", lambda: ends.sender("in_use()") == threads - 1)


def test_sockets_and_the_limit() -> None:
    with ends_of(10, limit=2) as ends:
        assert ends.sender("a, b, c = udp(), udp(), udp()\n[queue(s) for s in (a, b, c)]") == [None, None, None]
        assert ends.sender("[queue(said(s)) for s in (b, a, c)]") == [1, 2, None]
        # The third stays at the first queue; another one has what is free.
        assert ends.sender("b.close()\nd = udp()\n[queue(said(s)) for s in (c, d, a)]") == [None, 1, 2]
        # Those that are paced have theirs from the same device.
        ends.sender("c.setsockopt(socket.SOL_SOCKET, 47, struct.pack('@Q', 1_000_000)); None if said(c) else 0")
        assert ends.sender("c.pacing.by, c.stats['tx_queue'], in_use()") == ("device", 3, 3)
        with pytest.raises(OSError) as raised:
            ends.sender("a.close()\nring.move(c, 1, sending=True)")
        assert raised.value.errno == errno.EBUSY


def test_addresses() -> None:
    with ends_of(1) as ends:
        made = "a, b, c, d = udp(here), udp(also), udp(here), udp()"
        assert ends.sender(f"{made}\n[queue(said(s)) for s in (a, b, c, d)]", here=HERE, also=ALSO) == [1, 2, 1, 1]


@pytest.mark.parametrize("logic", [30, 31])
def test_cores(logic: int) -> None:
    with ends_of(logic) as ends:
        cpus = ends.sender("sorted(os.sched_getaffinity(0))")
        if len(cpus) < 2:
            pytest.skip("one processor")
        if logic == 30:
            pinned = "def on(cpu):\n os.sched_setaffinity(0, {cpu})\n return said(udp())\n"
            ends.sender(f"{pinned}a, b, c = (elsewhere(lambda: on(cpu)) for cpu in (cpus[0], cpus[1], cpus[0]))", cpus=cpus)
            assert ends.sender("[queue(s) for s in (a, b, c)]") == [1, 2, 1]
            assert ends.sender("[ring.places(s, sending=True)[0].key for s in (a, b, c)]") == [cpus[0], cpus[1], cpus[0]]
        else:
            both = "lambda: (said(udp()), said(udp()), os.sched_getaffinity(0))"
            ends.sender(f"a, a2, aon = elsewhere({both})\nb, b2, bon = elsewhere({both})")
            assert ends.sender("[queue(s) for s in (a, a2, b, b2)]") == [1, 1, 2, 2]
            assert ends.sender("len(aon), len(bon), aon != bon, {ring.places(a, sending=True)[0].key} == aon") == (1, 1, True, True)


def test_what_is_accepted() -> None:
    """Each connection has its queue from when it is accepted, and keeps its order."""
    with ends_of(10) as ends:
        ends.sender("listener = socket.create_server((here, port)); listener.settimeout(30)", here=HERE, port=PORT)
        ends.receiver("found = [socket.create_connection((here, port), timeout=30) for _ in range(3)]", here=HERE, port=PORT)
        assert ends.sender("found = [listener.accept()[0] for _ in range(3)]\n[queue(c) for c in found]") == [1, 2, 3]
        data = secrets.token_bytes(1 << 20)
        for number in (2, 0, 1):
            ends.receiver.start(f"found[{number}].makefile('rb').read({len(data)})")
            ends.sender(f"found[{number}].sendall(data)", data=data)
            assert ends.receiver.finish() == data
        assert ends.sender("[c.close() for c in found[:2]]\n[queue(c) for c in found[2:]]") == [3]
        ends.receiver("for c in found: c.close()")
        wait_for("queues that are given back", lambda: ends.sender("in_use()") == 1)


def test_moves() -> None:
    """By the program alone; nothing is overtaken."""
    count = 600
    with ends_of(11) as ends:
        assert ends.sender("s, t = said(udp()), said(udp())\nqueue(s), queue(t), in_use()") == (None, None, 0)
        ends.sender("ring.place(s, 7, sending=True); None if said(s) else 0")
        with pytest.raises(OSError) as raised:
            ends.sender("ring.place(s, 8, sending=True)")
        assert raised.value.errno == errno.EBUSY
        ends.sender("ring.place(s, 7, sending=True)")
        assert ends.sender("ring.move(t, 7, sending=True); said(t)\np = ring.places(t, sending=True)[0]; p.key, p.by, p.shared") == (
            7,
            "key",
            2,
        )
        assert ends.sender("queue(s), queue(t)") == (1, 1)
        assert ends.sender("ring.move(t, None, sending=True)\nqueue(said(t))") is None
        ends.receiver.start(
            "got = []\nwhile len(got) < count:\n data = sink.recv(2000)\n if len(data) == 1000: got.append(data)\n"
            "[struct.unpack('!I', p[:4])[0] for p in got]",
            count=count,
        )
        moves = ends.sender(
            "moves = 0\n"
            "for i in range(count):\n"
            " s.sendto(struct.pack('!I', i).ljust(1000), there)\n"
            " try:\n  ring.move(s, (7, 9, None, 11)[i % 4], sending=True); moves += 1\n"
            " except BlockingIOError: pass\n"
            "moves",
            count=count,
        )
        assert ends.receiver.finish() == list(range(count))
        assert moves > 0


def test_what_is_refused() -> None:
    with ends_of(0) as ends:
        with pytest.raises(OSError, match="any ring_logic_tx but 0") as raised:
            ends.sender("s = said(udp())\nring.move(s, 1, sending=True)")
        assert raised.value.errno == errno.EOPNOTSUPP
        assert ends.sender("queue(s), in_use()") == (None, 0)
    with ends_of(11) as ends:
        with pytest.raises(OSError) as raised:
            ends.sender("s = udp()\nring.place(s, 1, sending=True)")
        assert raised.value.errno in (errno.ENOTCONN, errno.EOPNOTSUPP)


def test_a_fork_leaves_the_queues() -> None:
    """A child gives back what it closes to nobody: the parent goes on by its queue."""
    with ends_of(10) as ends:
        assert ends.sender("s = said(udp())\nqueue(s)") == 1
        child = "pid = os.fork()\nif not pid:\n s.close()\n os._exit(0)\nos.waitpid(pid, 0)[1]"
        assert ends.sender(child) == 0
        ends.receiver.start("data = b''\nwhile not data: data = sink.recv(100)\ndata")
        assert ends.sender("s.sendto(b'still', there)\nqueue(s), in_use()") == (1, 1)
        assert ends.receiver.finish() == b"still"
