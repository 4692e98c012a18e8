"""Connections in the accept queue of a worker that leaves, over AF_XDP: whoever else has the listener gets them, as from the kernel."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from c_programs import LIMIT_S, inside
from netns import Namespace, usable
from preload_lab import counters_of, preloaded
from tcp_frames import IMPORT
from veth import ENGINE, KERNEL, namespaces

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
    pytest.mark.skipif(
        tuple(int(n) for n in platform.release().split("-")[0].split(".")[:2]) < (6, 9),
        reason="needs Linux 6.9: listeners that take connections",
    ),
]

PORT = 7530
SIZES = (0, 1, 100, 1448, 1449, 9000, 20000, 3000)  # sent before the worker leaves; the last but one also says that it was all

# What has come is taken in; the stack listens from then on.
TAKEN = """
import os, select, socket, sys
def taken(listener):
    listener.setblocking(False)
    try:
        return listener.accept()[0]
    except BlockingIOError:
        return None
"""

# A worker that serves one connection, has the others in its queue, and leaves: by close, or by the end of its process. Then its parent,
# which has the listener from before, answers each with its digest.
SERVER = (
    TAKEN
    + """
import hashlib
port, how, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
left, leaves = os.pipe()
pid = os.fork()
if not pid:
    taken(listener)
    print("ready", flush=True)
    listener.settimeout(30)
    first = listener.accept()[0]
    first.sendall(b"mine")
    select.select([listener], [], [])  # they are the stack's by now
    sys.stdin.readline()
    if how == "close":
        listener.close()
        os.write(leaves, b"x")
        sys.stdin.readline()
    sys.exit()
if how == "close":
    os.read(left, 1)
else:
    os.waitpid(pid, 0)
print("left", flush=True)
listener.settimeout(30)
while count:
    s, peer = listener.accept()
    s.settimeout(30)
    data = s.makefile("rb")
    size = int(data.readline())
    s.sendall(f"{peer[1]} {hashlib.sha256(data.read(size)).hexdigest()} {len(data.read())}".encode())
    s.close()
    count -= 1
"""
)

# What each sends: its size, the half of it before the worker leaves, the other half after that, and its end.
CLIENT = """
import hashlib, os, socket, sys
host, port, sizes = sys.argv[1], int(sys.argv[2]), [int(n) for n in sys.argv[3:]]
with socket.create_connection((host, port), 30) as first:
    assert first.recv(4) == b"mine"
    made = []
    for number, size in enumerate(sizes):
        data = os.urandom(size)
        s = socket.create_connection((host, port), 30)
        ends = number == len(sizes) - 2
        if size:
            s.sendall(b"%d\\n" % (2 * size * (1 - ends) + size * ends) + data)
        if ends:
            s.shutdown(socket.SHUT_WR)
        made.append((s, size, data, ends))
    print("sent", flush=True)
    sys.stdin.readline()
    for s, size, data, ends in made:
        if not ends:
            s.sendall((b"" if size else b"0\\n") + data)
            s.shutdown(socket.SHUT_WR)
            data += data
        said = b""
        while more := s.recv(1000):
            said += more
        assert said.decode() == f"{s.getsockname()[1]} {hashlib.sha256(data).hexdigest()} 0", (size, said)
print("ok", flush=True)
"""


@contextmanager
def running(ns: Namespace, env: dict[str, str], *command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(inside(ns, env, "python3", "-c", *command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def says(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout
    assert process.stdout.readline() == f"{line}\n"


@contextmanager
def started(ns: Namespace, env: dict[str, str], *command: str) -> Iterator[subprocess.Popen[str]]:
    with running(ns, env, *command) as process:
        says(process, "ready")
        yield process


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize(("how", "family"), [("close", 4), ("close", 6), ("exit", 4), ("exit", 6)])
def test_none_is_lost(tmp_path: Path, how: str, family: int) -> None:
    """With nothing, with a little and with much to read, ended by its peer or not: the parent has each, whole, from its peer's address."""
    counters = tmp_path / "counters"
    with (
        namespaces() as (here, there),
        started(here, preloaded(counters), SERVER, str(PORT), how, str(len(SIZES))) as server,
        running(there, {}, CLIENT, ENGINE[family], str(PORT), *map(str, SIZES)) as client,
    ):
        says(client, "sent")
        tell(server)
        says(server, "left")
        tell(client)
        says(client, "ok")
        tell(server)
        assert (server.wait(LIMIT_S), client.wait(LIMIT_S)) == (0, 0)
    found = counters_of(counters)
    assert (found["tcp.opened_passive"], found["tcp.handed_back"]) == (len(SIZES) + 1, len(SIZES))
    assert found.get("tcp.tx_resets", 0) == 0


# The kernel's queue is full, by connections of the same host; what the stack's has besides does not fit.
FULL = (
    TAKEN
    + """
port, host = int(sys.argv[1]), sys.argv[2]
listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=3)
left, leaves = os.pipe()
if not os.fork():
    taken(listener)
    print("ready", flush=True)
    sys.stdin.readline()
    first = taken(listener)
    local = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    listener.close()
    os.write(leaves, b"x")
    os._exit(0)
os.read(left, 1)
os.wait()
listener.settimeout(1)
had = 0
try:
    while True:
        had += listener.accept()[1][0] != "::ffff:127.0.0.1"
except TimeoutError:
    print(had, flush=True)
"""
)

WAITING = """
import socket, sys
made = [socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) for _ in range(4)]
print("sent", flush=True)
sys.stdin.readline()
reset = 0
for s in made[1:]:
    s.settimeout(0.5)
    try:
        s.recv(1)
    except ConnectionResetError:
        reset += 1
    except TimeoutError:
        pass
print(reset, flush=True)
"""


def test_a_queue_that_is_full(tmp_path: Path) -> None:
    """Who does not fit hears so at once."""
    with (
        namespaces() as (here, there),
        started(here, preloaded(tmp_path / "counters"), FULL, str(PORT), KERNEL[4]) as server,
        running(there, {}, WAITING, ENGINE[4], str(PORT)) as client,
    ):
        assert server.stdout and client.stdout
        says(client, "sent")
        tell(server)
        had = int(server.stdout.readline())
        tell(client)
        reset = int(client.stdout.readline())
    assert (had + reset, reset > 0) == (3, True), (had, reset)


# A listener that is passed on and kept: the received number leads to the kernel's, as that of another process would.
PASSED = (
    TAKEN
    + """
listener = socket.create_server(("", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
taken(listener)
print("ready", flush=True)
sys.stdin.readline()
listener.settimeout(30)
listener.accept()[0].sendall(b"one")
here, there = socket.socketpair()
socket.send_fds(here, [b"x"], [listener.fileno()])
received = socket.socket(fileno=socket.recv_fds(there, 1, 1)[1][0])
received.settimeout(30)
received.accept()[0].sendall(b"two")
print("passed", flush=True)
received.accept()[0].sendall(b"three")
listener.accept()[0].sendall(b"four")
"""
)

CONNECTS = """
import socket, sys
def connected():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])), 30).makefile()
made = [connected(), connected()]
print("sent", flush=True)
sys.stdin.readline()
made += [connected(), connected()]
print(*[s.read() for s in made], flush=True)
"""


@pytest.mark.parametrize("family", [4, 6])
def test_a_listener_that_is_passed_on(tmp_path: Path, family: int) -> None:
    """By SCM_RIGHTS: what waits in the queue, and what comes later, is of whoever has it."""
    counters = tmp_path / "counters"
    with (
        namespaces() as (here, there),
        started(here, preloaded(counters), PASSED, str(PORT)) as server,
        running(there, {}, CONNECTS, ENGINE[family], str(PORT)) as client,
    ):
        says(client, "sent")
        tell(server)
        says(server, "passed")
        tell(client)
        says(client, "one two three four")
        assert server.wait(LIMIT_S) == 0
    found = counters_of(counters)
    assert (found["tcp.opened_passive"], found["tcp.handed_back"], found.get("tcp.tx_resets", 0)) == (2, 1, 0)


# Handshakes by hand, of which the last segment leaves when the worker says that it closes the listener.
BY_HAND = """
import socket, sys
host, mine, port, mac, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4]), int(sys.argv[5])
tap = tcp_frames.Tap("v1", mac)
tap.record(port)
bell = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
bell.bind(("", port + 1))
bell.settimeout(30)
with socket.create_connection((host, port), 30) as first:
    assert first.recv(4) == b"mine"
    for i in range(count):
        tap.send(tcp_frames.Segment(mine, host, 9000 + i, port, 1000, flags=tcp_frames.SYN))
    def answers():
        return {s.dport: s for s in list(tap.seen) if s.dst == mine and s.flags & tcp_frames.SYN}
    while len(answers()) < count:
        pass
    print("sent", flush=True)
    bell.recv(100)
    for sport, s in answers().items():
        tap.send(tcp_frames.Segment(mine, host, sport, port, 1001, s.seq + 1))
    print("ok", flush=True)
    sys.stdin.readline()
    print(*sorted({s.dport for s in tap.stop() if s.dst == mine and s.flags & tcp_frames.RST}), flush=True)
"""

# The same worker; it rings, and closes. The parent says whom it had.
RINGS = (
    TAKEN
    + """
port, host = int(sys.argv[1]), sys.argv[2]
listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
if not os.fork():
    taken(listener)
    listener.setblocking(True)
    print("ready", flush=True)
    first = listener.accept()[0]
    first.sendall(b"mine")
    sys.stdin.readline()
    taken(listener)
    bell = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bell.sendto(b"now", (host, port + 1))
    listener.close()
    print("left", flush=True)
    os._exit(0)
os.wait()
listener.settimeout(2)
had = []
try:
    while True:
        had.append(listener.accept()[1][1])
except TimeoutError:
    print(*sorted(had), flush=True)
"""
)


def test_handshakes_under_way(tmp_path: Path) -> None:
    """They are waited for, for a moment. On a machine that is busy that may be over before the last segment comes."""
    strange, count = "10.78.0.77", 4
    for attempt in range(5):
        counters = tmp_path / f"counters{attempt}"
        with namespaces() as (here, there):
            mac = there.run("cat", "/sys/class/net/v1/address").strip()
            here.ip("neigh", "add", strange, "lladdr", mac, "dev", "v0")
            ours = here.run("cat", "/sys/class/net/v0/address").strip().replace(":", "")
            with (
                started(here, preloaded(counters), RINGS, str(PORT), KERNEL[4]) as server,
                running(there, {}, f"{IMPORT}\n{BY_HAND}", ENGINE[4], strange, str(PORT), ours, str(count)) as client,
            ):
                assert server.stdout and client.stdout
                says(client, "sent")
                tell(server)
                says(client, "ok")
                says(server, "left")
                had = server.stdout.readline().split()
                tell(client)
                reset = client.stdout.readline().split()
        assert sorted(had + reset) == [str(9000 + i) for i in range(count)]
        if not reset:
            break
    assert not reset
    assert counters_of(counters)["tcp.handed_back"] == count


# Two listeners of one port in one process; when one has gone the other has all that comes.
TWO = (
    TAKEN
    + """
port = int(sys.argv[1])
def listener():
    l = socket.socket(socket.AF_INET)
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    l.bind(("", port))
    l.listen(64)
    return l
if not os.fork():  # from then on others may have them, too
    os._exit(0)
both = [listener(), listener()]
for l in both:
    taken(l)
print("ready", flush=True)
sys.stdin.readline()
both[0].close()
both[1].settimeout(30)
print("left", flush=True)
for _ in range(int(sys.argv[2])):
    both[1].accept()[0].sendall(b"mine")
"""
)

MANY = """
import socket, sys
for _ in range(int(sys.argv[3])):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as s:
        assert s.recv(4) == b"mine"
print("ok", flush=True)
"""


def test_another_listener_of_the_port(tmp_path: Path) -> None:
    """It is not shut out by what keeps new connections from the one that goes."""
    counters = tmp_path / "counters"
    with (
        namespaces() as (here, there),
        started(here, preloaded(counters), TWO, str(PORT), "10") as server,
    ):
        tell(server)
        says(server, "left")
        with running(there, {}, MANY, ENGINE[4], str(PORT), "10") as client:
            says(client, "ok")
        assert server.wait(LIMIT_S) == 0
    assert counters_of(counters)["tcp.opened_passive"] == 10
