"""A verbs ring whose interface is the kernel's: the software NIC's uplink makes the kernel's `tap0` a port of the fabric, and an engine in
the kernel's namespace shares that port, as a process on a ConnectX host shares it with mlx5's netdev.

The peer is an engine of its own on another port, with an address in its settings and ARP of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from actor import Actor
from exchange import ASK, ECHO, wait_for
from netns import Namespace, usable
from uplink import PORT, uplink

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")

HOST = {4: "10.79.0.1", 6: "fd79::1"}
PEER = {4: "10.79.0.2", 6: "fd79::2"}
BIND = "s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM); s.settimeout(20); s.bind((host, 0))"
ADDRESSES = "import pyvma.ring\n[str(address.ip) for address in pyvma.ring.interfaces()[0].addresses]"
# Fragments are the kernel's: datagrams that come whole.
SIZES = [0, 1, 100, 1400]


@dataclass
class Net:
    ns: Namespace
    host: Actor
    peer: Actor


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with uplink(HOST) as (ns, fabric):
        own = f"softnic:fabric={fabric},port=0,addr={PEER[4]}/24,addr={PEER[6]}/64,name=sn0"
        with Actor([f"softnic:fabric={fabric},port={PORT},netdev=tap0"], netns=ns.name) as host, Actor([own]) as peer:
            yield Net(ns, host, peer)


def bind(net: Net, family: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """A bound socket `s` on either side; their addresses."""
    for actor, addresses in ((net.host, HOST), (net.peer, PEER)):
        actor(BIND, family=family, host=addresses[family])
    return (HOST[family], net.host("s.getsockname()[1]")), (PEER[family], net.peer("s.getsockname()[1]"))


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("server", ["host", "peer"])
def test_by_the_ring_in_both_directions(net: Net, family: int, server: str) -> None:
    host, peer = bind(net, family)
    answering, asking, to = (net.host, net.peer, host) if server == "host" else (net.peer, net.host, peer)
    answering.start(ECHO, sizes=SIZES)
    asking(ASK, sizes=SIZES, to=to)
    answering.finish()
    assert net.host("s.offload.state") == "offloaded"
    assert net.host("s.offload.text").startswith("softnic:")
    stats = net.host("s.stats")
    assert (stats["rx_datagrams"], stats["tx_datagrams"]) == (len(SIZES), len(SIZES))
    assert (stats["kernel_rx_datagrams"], stats["kernel_tx_datagrams"]) == (0, 0)


def test_the_rest_is_the_kernels(net: Net) -> None:
    """Ping, and a kernel program on another port of the same address, while a socket is offloaded."""
    host, _ = bind(net, 4)
    assert " 0% packet loss" in net.ns.run("ping", "-n", "-c", "3", "-i", "0.05", "-w", "20", PEER[4])
    with Actor(netns=net.ns.name) as kernel:
        kernel(BIND, family=4, host=HOST[4])
        port = kernel("s.getsockname()[1]")
        kernel.start(ECHO, sizes=SIZES)
        net.peer(ASK, sizes=SIZES, to=(HOST[4], port))
        kernel.finish()
    net.peer("s.sendto(b'still', to)", to=host)
    assert net.host("s.recv(10)") == b"still"


def test_addresses_are_followed(net: Net) -> None:
    added = "10.79.0.77"
    net.ns.ip("addr", "add", f"{added}/24", "dev", "tap0")
    _, peer = bind(net, 4)
    wait_for("the address", lambda: added in net.host(ADDRESSES))
    net.host(BIND, family=4, host=added)
    assert net.host("s.offload.state") == "offloaded"
    net.host("s.sendto(b'hello', to)", to=peer)
    assert net.peer("s.recvfrom(10)")[1][0] == added
    net.ns.ip("addr", "del", f"{added}/24", "dev", "tap0")
