"""Kernel programs as peers of the engine: the software NIC's uplink joins the fabric to a TAP device in a namespace of the test's.

On one side an engine of its own process, without the namespace and without any kernel network; on the other the Linux kernel with
Python sockets, socat, ping and traceroute.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exchange import DIRECTIONS, JOIN4, JOIN6, JOIN_SOURCE, SEND4, SEND6, Ends, numbered, wait_for
from lab import LONG
from netns import usable
from uplink import ENGINE, KERNEL, pair

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")

SIZES = [0, 1, 17, 18, 19, 1000, 1471, 1472, 1473, 2000, 8972, 20000, 65507]


@pytest.fixture(scope="module")
def net() -> Iterator[Ends]:
    with pair() as ends:
        yield ends


@pytest.mark.parametrize("family", [4, 6])
def test_engine_is_the_server(net: Ends, family: int) -> None:
    net.engine_serves(family, SIZES)
    assert net.engine("s.offload.state") == "offloaded"


@pytest.mark.parametrize("family", [4, 6])
def test_engine_is_the_client(net: Ends, family: int) -> None:
    net.engine_asks(family, SIZES)


@pytest.mark.parametrize("host", [ENGINE[4], ENGINE[6]])
@pytest.mark.parametrize("size", [0, 56, 1452, 8000, 60000])
def test_ping(net: Ends, host: str, size: int) -> None:
    text = net.kernel_ns.run("ping", "-n", "-c", "3", "-i", "0.05", "-w", "20", "-s", str(size), host)
    assert " 0% packet loss" in text


@pytest.mark.parametrize("host", [ENGINE[4], ENGINE[6]])
def test_traceroute(net: Ends, host: str) -> None:
    lines = net.kernel_ns.run("traceroute", "-n", "-q", "1", "-m", "5", host, limit_s=60).splitlines()
    assert len(lines) == 2 and host in lines[1], lines


def test_socat_is_the_client(net: Ends) -> None:
    net.socat_asks()


def test_socat_is_the_server(net: Ends) -> None:
    net.socat_serves(7070)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_closed_port_refuses(net: Ends, direction: str) -> None:
    engine, kernel = net.sockets(4)
    sender, closed, there = (net.engine, net.kernel, kernel) if direction == "to the kernel" else (net.kernel, net.engine, engine)
    closed("s.close()")
    with pytest.raises(ConnectionRefusedError):
        sender("s.connect(to)\ns.send(b'anybody?')\ns.recv(10)", to=there)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("size", [5, 4000])
def test_group4(net: Ends, size: int, direction: str) -> None:
    (sender, source), (receiver, sink) = net.ordered(direction)
    receiver(JOIN4, group="239.7.7.1", port=7001, local=sink[4])
    sender(SEND4, group="239.7.7.1", port=7001, local=source[4], data=b"g" * size)
    data, peer = receiver("s.recvfrom(9000)")
    assert data == b"g" * size
    assert peer[0] == source[4]
    receiver("s.close()")


def test_source_specific_group(net: Ends) -> None:
    net.engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('', 7003))")
    net.engine(JOIN_SOURCE, group="232.7.7.3", local=ENGINE[4], source="10.77.0.99")
    filtered = net.engine("import pyvma\npyvma.counters()['udp.rx_filtered']")
    net.kernel(SEND4, group="232.7.7.3", port=7003, local=KERNEL[4], data=b"from another source")
    wait_for("it to be refused", lambda: net.engine("pyvma.counters()['udp.rx_filtered']") > filtered)
    net.engine(JOIN_SOURCE, group="232.7.7.3", local=ENGINE[4], source=KERNEL[4])
    net.kernel(SEND4, group="232.7.7.3", port=7003, local=KERNEL[4], data=b"from the wanted source")
    assert net.engine("s.recv(100)") == b"from the wanted source"
    net.engine("s.close()")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_group6(net: Ends, direction: str) -> None:
    kernel_index = net.kernel("socket.if_nametoindex('tap0')")
    engine_index = net.engine("import pyvma.ring\nnext(i.index for i in pyvma.ring.interfaces() if i.name == 'sn0')")
    ends = ((net.engine, engine_index), (net.kernel, kernel_index))
    (sender, out), (receiver, into) = ends if direction == "to the kernel" else ends[::-1]
    receiver(JOIN6, group="ff15::77", port=7006, index=into)
    sender(SEND6, group="ff15::77", port=7006, index=out, data=b"six")
    assert receiver("s.recv(100)") == b"six"
    receiver("s.close()")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_broadcast(net: Ends, direction: str) -> None:
    sender, receiver = (net.engine, net.kernel) if direction == "to the kernel" else (net.kernel, net.engine)
    receiver("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('', 7008))")
    sender(
        "t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n"
        "t.sendto(b'all', ('10.77.0.255', 7008))\nt.close()"
    )
    assert receiver("s.recv(10)") == b"all"
    receiver("s.close()")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_datagrams_in_order(net: Ends, direction: str) -> None:
    numbered(net, direction, 1_000_000 if LONG else 100_000, limit_s=350)
