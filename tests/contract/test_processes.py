"""The contract's wire: two engines in two processes, on ports of one fabric."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from actor import Actor
from lab import softnic_reason

HOSTS = {4: ("10.9.8.1", "10.9.8.2"), 6: ("fd00:98::1", "fd00:98::2")}
GROUPS = {4: "239.3.2.1", 6: "ff15::3:21"}
OPEN = """
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.bind((host, 0))
assert s.offload, s.offload
s.getsockname()[1]
"""
COUNTERS = "import pyvma\npyvma.counters()"

pytestmark = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there")


@dataclass
class Wire:
    fabric: str
    a: Actor
    b: Actor


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    fabric = f"pt{secrets.token_hex(4)}"

    def interface(n: int) -> str:
        return f"softnic:fabric={fabric},port={n},addr={HOSTS[4][n]}/24,addr={HOSTS[6][n]}/64,name=sn{n}"

    with Actor([interface(0)]) as a, Actor([interface(1)]) as b:
        yield Wire(fabric, a, b)


@pytest.fixture(params=[4, 6])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def opened(wire: Wire, version: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """A fresh bound socket `s` in each process; their addresses."""
    found = [(host, actor(OPEN, host=host)) for actor, host in zip((wire.a, wire.b), HOSTS[version], strict=True)]
    return found[0], found[1]


@pytest.mark.parametrize("size", [0, 1, 64, 1472, 1473, 9000, 65000])
def test_there_and_back(wire: Wire, version: int, size: int) -> None:
    at_a, _ = opened(wire, version)
    before = wire.a(COUNTERS)
    wire.a.start("data, peer = s.recvfrom(70000)\ns.sendto(data, peer)")
    wire.b("sent = os.urandom(size)\ns.sendto(sent, to)\ndata, peer = s.recvfrom(70000)\nassert data == sent", size=size, to=at_a)
    assert wire.a.finish() == size
    assert wire.b("peer[:2]") == at_a
    after = wire.a(COUNTERS)
    assert after["ring.sn0.rx_packets"] > before["ring.sn0.rx_packets"]
    assert after["ring.sn0.tx_packets"] > before["ring.sn0.tx_packets"]
    assert after["udp.rx_datagrams"] == before["udp.rx_datagrams"] + 1


def test_refused(wire: Wire, version: int) -> None:
    at_a, _ = opened(wire, version)
    wire.a("s.close()")
    wire.b("s.connect(to)\ns.send(b'x')", to=at_a)
    with pytest.raises(ConnectionRefusedError):
        wire.b("s.recv(10)")


def test_readiness_from_the_wire(wire: Wire, version: int) -> None:
    at_a, _ = opened(wire, version)
    wire.a.start("select.select([s], [], [], 20)[0] == [s] and s.recv(10)")
    wire.b("s.sendto(b'wake up', to)", to=at_a)
    assert wire.a.finish() == b"wake up"


def test_sleeping_receiver(wire: Wire, version: int) -> None:
    """Longer without traffic than a call polls: the receiver sleeps and is woken, again and again."""
    at_a, _ = opened(wire, version)
    wire.a.start("got = []\nwhile len(got) < 20: got.append(s.recv(10))\nlen(got)")
    wire.b("for number in range(20):\n    s.sendto(b'%d' % number, to)\n    time.sleep(0.01)", to=at_a)
    assert wire.a.finish() == 20


def test_group_over_the_wire(wire: Wire, version: int) -> None:
    wire.a(
        """
import pyvma.ring
s = socket.socket(socket.AF_INET6 if ":" in group else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.bind(("", 0))
if ":" in group:
    index = struct.pack("@I", pyvma.ring.interfaces()[0].index)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + index)
else:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(host))
""",
        group=GROUPS[version],
        host=HOSTS[4][0],
    )
    port = wire.a("s.getsockname()[1]")
    wire.b(OPEN, host=HOSTS[version][1])
    wire.b(
        "import pyvma.ring\n"
        "if ':' in group:\n"
        "    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, pyvma.ring.interfaces()[0].index)\n"
        "else:\n"
        "    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))\n"
        "s.sendto(b'to all', (group, port))",
        group=GROUPS[version],
        host=HOSTS[4][1],
        port=port,
    )
    data, sender = wire.a("s.recvfrom(100)")
    assert (data, sender[:2]) == (b"to all", (HOSTS[version][1], wire.b("s.getsockname()[1]")))


def test_batches_over_the_wire(wire: Wire, version: int) -> None:
    """In rounds that fit any receive buffer."""
    at_a, _ = opened(wire, version)
    wire.b("s.connect(to)", to=at_a)
    for start in range(0, 500, 50):
        wire.b("sent = start\nwhile sent < start + 50: sent += s.send_batch([b'%d' % n for n in range(sent, start + 50)])", start=start)
        wire.a(
            "got = []\n"
            "while len(got) < 50:\n"
            "    with s.recv_batch(64) as batch:\n"
            "        got += [bytes(view) for view in batch]\n"
            "assert got == [b'%d' % n for n in range(start, start + 50)], got\n",
            start=start,
        )


def test_closing_wakes_the_waiting(wire: Wire, version: int) -> None:
    opened(wire, version)
    wire.a("s.settimeout(None)")
    wire.a(
        "import threading\n"
        "caught = []\n"
        "def wait():\n"
        "    try:\n        s.recv(10)\n    except OSError as error:\n        caught.append(error.errno)\n"
        "thread = threading.Thread(target=wait)\n"
        "thread.start()\n"
        "while not thread.is_alive(): pass\n"
        "time.sleep(0.05)\n"
        "s.close()\n"
        "thread.join(20)"
    )
    assert wire.a("(thread.is_alive(), caught)") == (False, [errno.EBADF])


def test_two_engines_on_one_port(wire: Wire, version: int) -> None:
    """Told apart by the flow rules of their addresses."""
    host = {4: "10.9.8.3", 6: "fd00:98::3"}[version]
    at_a, at_b = opened(wire, version)
    with Actor([f"softnic:fabric={wire.fabric},port=0,addr={host}/{24 if version == 4 else 64},name=sn0"]) as third:
        port = third(OPEN, host=host)
        for _ in range(20):
            wire.b("s.sendto(b'to the third', to)", to=(host, port))
            wire.b("s.sendto(b'to the first', to)", to=at_a)
            assert third("s.recv(20)") == b"to the third"
            assert wire.a("s.recv(20)") == b"to the first"
        third("s.sendto(b'from the third', to)", to=at_b)
        assert wire.b("s.recv(20)") == b"from the third"
        # And to each other, through the port that they share.
        third("s.sendto(b'next door', to)", to=at_a)
        assert wire.a("s.recv(20)") == b"next door"
        wire.a("s.sendto(b'and back', to)", to=(host, port))
        assert third("s.recv(20)") == b"and back"


SPIN = """
import signal
class EnoughError(Exception):
    pass
def handler(number, frame):
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise EnoughError
signal.signal(signal.SIGALRM, handler)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((host, 0))
seen = 0
for after in (0.00001, 0.0003, 0.001, 0.005, 0.1):
    try:
        signal.setitimer(signal.ITIMER_REAL, after, 0.1)
        s.recv(10)
    except EnoughError:
        seen += 1
(seen, bool(s.offload))
"""


@pytest.mark.parametrize("rx_poll", ["-1", "0", "1000"])
def test_signals_end_a_spinning_wait(fabric: str, rx_poll: str) -> None:
    """A wait that never sleeps is no reason to miss them."""
    with Actor([f"softnic:fabric={fabric},port=0,addr=10.9.7.1/24"], env={"PYVMA_RX_POLL": rx_poll}) as actor:
        assert actor(SPIN, host="10.9.7.1") == (5, True)


def test_a_forked_child_has_kernel_sockets(wire: Wire, version: int) -> None:
    opened(wire, version)
    wire.a(
        "r, w = os.pipe()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "        t.bind(('127.0.0.1', 0))\n"
        "        os.write(w, f'{t.offload.state} {t.offload}'.encode())\n"
        "    finally:\n"
        "        os._exit(0)\n"
        "os.close(w)\n"
        "told = os.read(r, 1000)\n"
        "os.close(r)\n"
        "os.waitpid(pid, 0)"
    )
    told = wire.a("told.decode()")
    assert told.startswith("kernel ")
    assert "fork" in told
    assert wire.a("s.offload.state") == "offloaded"
    at_a = (HOSTS[version][0], wire.a("s.getsockname()[1]"))
    wire.b("s.sendto(b'after', to)", to=at_a)
    assert wire.a("s.recv(10)") == b"after"


LENT = """
batch = s.recv_batch(4)
view = batch[0]
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    try:
        os.write(w, bytes(view) + b"|")
        batch.release()
        os.write(w, b"released")
    finally:
        os._exit(0)
os.close(w)
told = b""
while piece := os.read(r, 4000):
    told += piece
os.close(r)
status = os.waitpid(pid, 0)[1]
(told, status, bytes(view))
"""


def test_a_forked_child_reads_what_was_lent(wire: Wire, version: int) -> None:
    at_a, _ = opened(wire, version)
    data = bytes(range(256)) * 5
    wire.b("s.sendto(data, to)", data=data, to=at_a)
    assert wire.a(LENT) == (data + b"|released", 0, data)
    wire.a("batch.release()")
