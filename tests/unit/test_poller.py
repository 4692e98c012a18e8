"""The set of sockets of an event loop: pyvma._native._calls.Poller."""

from __future__ import annotations

import secrets
import subprocess
import sys

import pytest

PROGRAM = """
import collections, errno, gc, sys, weakref
import pyvma
pyvma.configure(interfaces=["softnic:fabric=FABRIC,port=0,addr=10.93.0.1/24", "softnic:fabric=FABRIC,port=1,addr=10.94.0.1/24"])
import pyvma.socket as socket
from pyvma._native._calls import Poller

IN, OUT = 1, 4
LONG = 10_000_000_000


def fail(exception):
    raise exception


def pair():
    a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    a.bind(("10.93.0.1", 0))
    b.bind(("10.93.0.1", 0))
    a.connect(b.getsockname())
    assert a.offload, a.offload
    assert b.offload, b.offload
    return a, b


"""

CASES = {
    "level": """
a, b = pair()
poller, seen = Poller(fail), []
poller.watch(b._handle, IN, seen.append)
assert poller.turn() == 0
a.send(b"x")
assert poller.turn(LONG) == 1 and seen == [IN]
assert poller.turn() == 1, "still ready"
b.recv(10)
assert poller.turn() == 0 and seen == [IN, IN]
poller.watch(b._handle, OUT, seen.append)
assert poller.turn() == 1 and seen[-1] == OUT
assert poller.unwatch(b._handle) and not poller.unwatch(b._handle)
assert poller.turn() == 0
""",
    "ended_by_another": """
a, b = pair()
c, d = pair()
poller, seen = Poller(fail), []
def end(which):
    def target(bits):
        seen.append(which)
        poller.unwatch(b._handle)
        poller.unwatch(d._handle)
    return target
poller.watch(b._handle, IN, end("b"))
poller.watch(d._handle, IN, end("d"))
for one in (a, c):
    one.send(b"x")
b.recv(1, socket.MSG_PEEK), d.recv(1, socket.MSG_PEEK)
poller.turn()
assert len(seen) == 1, seen
""",
    "raises": """
a, b = pair()
c, d = pair()
failed, seen = [], []
poller = Poller(failed.append)
def bad(bits):
    raise KeyError("x")
def worse(bits):
    raise SystemExit(7)
poller.watch(b._handle, IN, bad)
poller.watch(d._handle, IN, lambda bits: seen.append(d.recv(10)))
a.send(b"1"), c.send(b"2")
b.recv(1, socket.MSG_PEEK), d.recv(1, socket.MSG_PEEK)
for _ in range(4):
    poller.turn()
assert len(failed) == 4 and seen == [b"2"], (failed, seen)
assert isinstance(failed[0], KeyError) and failed[0].__traceback__
poller.watch(b._handle, IN, worse)
try:
    poller.turn()
except SystemExit:
    pass
else:
    raise SystemExit("SystemExit is told to somebody else")
poller = Poller(fail)
poller.watch(b._handle, IN, bad)
try:
    poller.turn()
except KeyError:
    pass
else:
    raise SystemExit("nobody hears of what was raised")
""",
    "ready": """
a, b = pair()
poller, ready, count = Poller(fail), collections.deque(), 0
def target(bits):
    global count
    count += 1
    b.recv(10)
    if count == 5:
        ready.append(1)
    a.send(b"x")
poller.watch(b._handle, IN, target)
a.send(b"x")
poller.turn(LONG, ready)
assert count == 5, "it goes on until something else waits"
poller.turn(LONG)
assert count == 6, "once without a queue"
""",
    "closed_inside": """
a, b = pair()
poller = Poller(fail)
def target(bits):
    b.close()
    poller.close()
poller.watch(b._handle, IN, target)
a.send(b"x")
assert poller.turn(LONG, collections.deque()) == 1
for call in (poller.turn, poller.loop_fd, lambda: poller.watch(a._handle, IN, print)):
    try:
        call()
    except ValueError:
        continue
    raise SystemExit("closed, and yet it answers")
poller.close()
""",
    "closed_socket": """
a, b = pair()
poller = Poller(fail)
handle = b._handle
poller.watch(handle, IN, print)
a.send(b"x")
b.close()
assert poller.turn() == 0
assert poller.unwatch(handle)
try:
    poller.watch(handle, IN, print)
except OSError as error:
    assert error.errno == errno.EBADF
else:
    raise SystemExit("watched what is closed")
""",
    "collected": """
class Loop:
    def __init__(self, sock):
        self.sock, self.poller = sock, Poller(self.fail)
        self.poller.watch(sock._handle, IN, self.target)
    def target(self, bits):
        pass
    def fail(self, exception):
        pass
a, b = pair()
loop = Loop(b)
gone = weakref.ref(loop)
del loop
gc.collect()
assert gone() is None
a.send(b"x")
assert b.recv(10) == b"x"
""",
    "many_at_once": """
# One doorbell for several answers: each arrives, whole and in order, and nothing stays behind when the turn has ended.
def streams():
    listener = socket.create_server(("10.93.0.1", 0))
    a = socket.create_connection(listener.getsockname())
    b, _ = listener.accept()
    listener.close()
    assert a.offload and b.offload
    return a, b
poller = Poller(fail)
def answer(sock):
    def target(bits):
        data = sock.recv(100)
        sock.send(data)
        if sock.type == socket.SOCK_DGRAM:
            sock.sendto(data + b"again", other[sock])
    return target
pairs = [pair() for _ in range(20)] + [streams() for _ in range(20)]
other = {b: a.getsockname() for a, b in pairs}
for a, b in pairs:
    if b.type == socket.SOCK_DGRAM:
        b.connect(a.getsockname())
    b.setblocking(False)
    poller.watch(b._handle, IN, answer(b))
for round in range(30):
    for number, (a, b) in enumerate(pairs):
        a.send(b"%d of %d" % (number, round))
    # All are there before the first one is told.
    for a, b in pairs:
        b.setblocking(True)
        b.recv(1, socket.MSG_PEEK)
        b.setblocking(False)
    assert poller.turn() == len(pairs)
    for number, (a, b) in enumerate(pairs):
        text = b"%d of %d" % (number, round)
        a.settimeout(60)
        got = a.recv(100)
        assert got == text, (got, text)
        if a.type == socket.SOCK_DGRAM:
            got = a.recv(100)
            assert got == text + b"again", got
""",
    "one_doorbell": """
# What a turn's streams answer leaves together: a read between two answers rings for neither.
import os, subprocess
import pyvma.stats
PEER = '''
import sys
import pyvma
pyvma.configure(interfaces=["softnic:fabric=FABRIC,port=2,addr=10.93.0.2/24"])
import pyvma.socket as socket
socks = [socket.create_connection(("10.93.0.1", int(sys.argv[1])), timeout=60) for _ in range(12)]
for number, sock in enumerate(socks):
    sock.sendall(b"%d" % number)
for number, sock in enumerate(socks):
    assert sock.recv(10) == b"%d" % number
'''
listener = socket.create_server(("10.93.0.1", 0))
peer = subprocess.Popen([sys.executable, "-c", PEER, str(listener.getsockname()[1])])
poller, socks = Poller(fail), [listener.accept()[0] for _ in range(12)]
for sock in socks:
    sock.recv(10, socket.MSG_PEEK)  # all have something before the first one is told
    sock.setblocking(False)
    poller.watch(sock._handle, IN, lambda bits, sock=sock: sock.send(sock.recv(10)))
with pyvma.stats.attach(os.getpid()) as own:
    def doorbells():
        return sum(int(ring.doorbells) for ring in own.snapshot().rings)
    before = doorbells()
    assert poller.turn() == len(socks)
    rung = doorbells() - before
assert 0 < rung < 6, rung
assert peer.wait(60) == 0
""",
    "by_number": """
a, b = pair()
poller, seen = Poller(fail), []
for _ in range(2):
    poller.watch(b.fileno(), IN, seen.append)
poller.watch(a.fileno(), OUT, seen.append)
assert poller.turn() == 1 and seen == [OUT]
a.send(b"x")
assert poller.unwatch(a.fileno()) and not poller.unwatch(a.fileno())
assert poller.turn(LONG) == 1 and seen == [OUT, IN]
try:
    poller.watch(-1, IN, print)
except ValueError:
    pass
else:
    raise SystemExit("no such number")
""",
    "two_pollers": """
a, b = pair()
one, other, seen = Poller(fail), Poller(fail), []
one.watch(b._handle, IN, lambda bits: seen.append("one"))
other.watch(b._handle, IN, lambda bits: seen.append("other"))
a.send(b"x")
assert one.turn(LONG) == 1 and other.turn(LONG) == 1 and seen == ["one", "other"]
one.close()
assert other.turn() == 1
assert other.unwatch(b._handle)
""",
    "bad_arguments": """
a, b = pair()
poller = Poller(fail)
for arguments in ((), (1.5, IN, print), (b, IN, print), (b._handle, "x", print), (b._handle, IN)):
    try:
        poller.watch(*arguments)
    except TypeError:
        continue
    raise SystemExit(f"{arguments} are taken")
try:
    poller.unwatch(b)
except TypeError:
    pass
else:
    raise SystemExit("a socket is taken for a handle")
""",
}


@pytest.mark.parametrize("case", CASES)
def test_poller(case: str) -> None:
    program = (PROGRAM + CASES[case]).replace("FABRIC", f"poller{secrets.token_hex(5)}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
