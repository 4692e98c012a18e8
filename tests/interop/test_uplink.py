"""Kernel programs as peers of the engine: the software NIC's uplink joins the fabric to a TAP device in a namespace of the test's.

On one side an engine of its own process, without the namespace and without any kernel network; on the other the Linux kernel with
Python sockets, socat, ping and traceroute.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from actor import Actor
from netns import Namespace, usable

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")

ENGINE4, KERNEL4 = "10.77.0.1", "10.77.0.2"
ENGINE6, KERNEL6 = "fd77::1", "fd77::2"
SIZES = [0, 1, 17, 18, 19, 1000, 1471, 1472, 1473, 2000, 8972, 20000, 65507]
WAIT_S = 30.0
DIRECTIONS = ["to the kernel", "to the engine"]


@dataclass
class Net:
    fabric: str
    ns: Namespace
    engine: Actor
    kernel: Actor


def wait_for(what: str, probe: Callable[[], bool], limit_s: float = WAIT_S) -> None:
    """Polls a callable until it is true."""
    deadline = time.monotonic() + limit_s
    while not probe():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s} s"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    fabric = f"t{secrets.token_hex(4)}"
    with Namespace() as ns:
        uplink = ns.popen(sys.executable, "-m", "pyvma", "softnic", "uplink", "--fabric", fabric, "--port", "9", "--dev", "tap0")
        try:
            wait_for("the TAP device", lambda: "tap0" in ns.run("ip", "-o", "link"))
            ns.ip("addr", "add", f"{KERNEL4}/24", "dev", "tap0")
            ns.ip("-6", "addr", "add", f"{KERNEL6}/64", "dev", "tap0", "nodad")
            ns.ip("link", "set", "tap0", "up")
            interface = f"softnic:fabric={fabric},port=0,addr={ENGINE4}/24,addr={ENGINE6}/64,name=sn0"
            with Actor([interface]) as engine, Actor(netns=ns.name) as kernel:
                yield Net(fabric, ns, engine, kernel)
        finally:
            uplink.terminate()
            uplink.wait(10)


def sockets(net: Net, family: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """A bound socket `s` on each side; their addresses."""
    names = {4: ("AF_INET", ENGINE4, KERNEL4), 6: ("AF_INET6", ENGINE6, KERNEL6)}[family]
    found = []
    for actor, host in ((net.engine, names[1]), (net.kernel, names[2])):
        actor(
            "s = socket.socket(getattr(socket, family), socket.SOCK_DGRAM)\ns.settimeout(20)\n"
            "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)\ns.bind((host, 0))",
            family=names[0],
            host=host,
        )
        found.append((host, actor("s.getsockname()[1]")))
    return found[0], found[1]


ECHO = """
for size in sizes:
    data, peer = s.recvfrom(70000)
    assert s.sendto(data, peer) == size == len(data)
"""
ASK = """
for size in sizes:
    sent = os.urandom(size)
    s.sendto(sent, to)
    data, peer = s.recvfrom(70000)
    assert data == sent and peer[:2] == tuple(to)
"""
ASK_CONNECTED = """
s.connect(to)
for size in sizes:
    sent = os.urandom(size)
    assert s.send(sent) == size
    assert s.recv(70000) == sent
"""


@pytest.mark.parametrize("family", [4, 6])
def test_engine_is_the_server(net: Net, family: int) -> None:
    engine, _ = sockets(net, family)
    net.engine.start(ECHO, sizes=SIZES)
    net.kernel(ASK, sizes=SIZES, to=engine)
    net.engine.finish()
    assert net.engine("s.offload.state") == "offloaded"


@pytest.mark.parametrize("family", [4, 6])
def test_engine_is_the_client(net: Net, family: int) -> None:
    _, kernel = sockets(net, family)
    net.kernel.start(ECHO, sizes=SIZES)
    net.engine(ASK_CONNECTED, sizes=SIZES, to=kernel)
    net.kernel.finish()


@pytest.mark.parametrize("host", [ENGINE4, ENGINE6])
@pytest.mark.parametrize("size", [0, 56, 1452, 8000, 60000])
def test_ping(net: Net, host: str, size: int) -> None:
    text = net.ns.run("ping", "-n", "-c", "3", "-i", "0.05", "-w", "20", "-s", str(size), host)
    assert " 0% packet loss" in text


@pytest.mark.parametrize("host", [ENGINE4, ENGINE6])
def test_traceroute(net: Net, host: str) -> None:
    lines = net.ns.run("traceroute", "-n", "-q", "1", "-m", "5", host, limit_s=60).splitlines()
    assert len(lines) == 2 and host in lines[1], lines


def test_socat_is_the_client(net: Net) -> None:
    engine, _ = sockets(net, 4)
    net.engine.start("data, peer = s.recvfrom(2000)\ns.sendto(data.upper(), peer)")
    command = ["ip", "netns", "exec", net.ns.name, "socat", "-t", "5", "-T", "5", "-", f"UDP4:{engine[0]}:{engine[1]}"]
    done = subprocess.run(command, input=b"from socat", capture_output=True, timeout=30)
    net.engine.finish()
    assert done.stdout == b"FROM SOCAT"


def test_socat_is_the_server(net: Net) -> None:
    process = net.ns.popen("socat", "-T", "20", "UDP6-RECVFROM:7070,fork", "EXEC:cat")
    try:
        wait_for("socat's port", lambda: ":7070" in net.ns.run("ss", "-lun"))
        net.engine("s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.connect((host, 7070))", host=KERNEL6)
        assert net.engine("s.send(b'to socat'); s.recv(100)") == b"to socat"
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_closed_port_refuses(net: Net, direction: str) -> None:
    engine, kernel = sockets(net, 4)
    sender, closed, there = (net.engine, net.kernel, kernel) if direction == "to the kernel" else (net.kernel, net.engine, engine)
    closed("s.close()")
    with pytest.raises(ConnectionRefusedError):
        sender("s.connect(to)\ns.send(b'anybody?')\ns.recv(10)", to=there)


JOIN4 = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.bind(('', port))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(local))
"""
SEND4 = """
t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
t.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(local))
t.sendto(data, (group, port))
t.close()
"""


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("size", [5, 4000])
def test_group4(net: Net, size: int, direction: str) -> None:
    ends = ((net.engine, ENGINE4), (net.kernel, KERNEL4))
    (sender, source), (receiver, sink) = ends if direction == "to the kernel" else ends[::-1]
    receiver(JOIN4, group="239.7.7.1", port=7001, local=sink)
    sender(SEND4, group="239.7.7.1", port=7001, local=source, data=b"g" * size)
    data, peer = receiver("s.recvfrom(9000)")
    assert data == b"g" * size and peer[0] == source
    receiver("s.close()")


# IP_ADD_SOURCE_MEMBERSHIP of linux/in.h, which `socket` exports from Python 3.12 on only: struct ip_mreq_source.
JOIN_SOURCE = "s.setsockopt(socket.IPPROTO_IP, 39, b''.join(map(socket.inet_aton, ('232.7.7.3', local, source))))"


def test_source_specific_group(net: Net) -> None:
    net.engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('', 7003))")
    net.engine(JOIN_SOURCE, local=ENGINE4, source="10.77.0.99")
    net.kernel(SEND4, group="232.7.7.3", port=7003, local=KERNEL4, data=b"from another source")
    net.engine(JOIN_SOURCE, local=ENGINE4, source=KERNEL4)
    net.kernel(SEND4, group="232.7.7.3", port=7003, local=KERNEL4, data=b"from the wanted source")
    assert net.engine("s.recv(100)") == b"from the wanted source"
    net.engine("s.close()")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_group6(net: Net, direction: str) -> None:
    kernel_index = net.kernel("socket.if_nametoindex('tap0')")
    engine_index = net.engine("import pyvma.ring\nnext(i.index for i in pyvma.ring.interfaces() if i.name == 'sn0')")
    ends = ((net.engine, engine_index), (net.kernel, kernel_index))
    (sender, out), (receiver, into) = ends if direction == "to the kernel" else ends[::-1]
    receiver(
        "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('::', 7006))\n"
        "member = socket.inet_pton(socket.AF_INET6, 'ff15::77') + struct.pack('@I', index)\n"
        "s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)",
        index=into,
    )
    sender(
        "t = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\nt.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)\n"
        "t.sendto(b'six', ('ff15::77', 7006))\nt.close()",
        index=out,
    )
    assert receiver("s.recv(100)") == b"six"
    receiver("s.close()")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_broadcast(net: Net, direction: str) -> None:
    sender, receiver = (net.engine, net.kernel) if direction == "to the kernel" else (net.kernel, net.engine)
    receiver("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('', 7008))")
    sender(
        "t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n"
        "t.sendto(b'all', ('10.77.0.255', 7008))\nt.close()"
    )
    assert receiver("s.recv(10)") == b"all"
    receiver("s.close()")


# A window of unacknowledged datagrams keeps below the smallest buffer on the way, so that every loss is a fault.
WINDOW = 128
SENDER = """
s.connect(to)
for first in range(0, count, window):
    for number in range(first, min(first + window, count)):
        s.send(pack(number))
    if first:
        assert unpack(s.recv(100))[0] == first - window
unpack(s.recv(100))[0] // window == (count - 1) // window
"""
RECEIVER = """
s.connect(to)
wrong = 0
for number in range(count):
    wrong += unpack(s.recv(100))[0] != number
    if number % window == window - 1 or number == count - 1:
        s.send(pack(number - number % window))
wrong
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_million_datagrams_in_order(net: Net, direction: str) -> None:
    engine, kernel = sockets(net, 4)
    ends = ((net.engine, engine), (net.kernel, kernel))
    (sender, source), (receiver, sink) = ends if direction == "to the kernel" else ends[::-1]
    common = {"count": 1_000_000, "window": WINDOW}
    for actor in (sender, receiver):
        actor("pack, unpack = struct.Struct('!Q50x').pack, struct.Struct('!Q50x').unpack")
    receiver.start(RECEIVER, to=source, **common)
    assert sender(SENDER, to=sink, limit_s=350, **common)
    assert receiver.finish() == 0
