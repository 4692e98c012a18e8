"""AF_XDP with frames that fill several buffers: a veth pair with an MTU of 9000, the kernel at the other end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

import pytest
from actor import Actor
from exchange import RECEIVE_BYTES, SEND_BYTES
from netns import usable
from veth import ENGINE, Veth, namespaces, pair

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

MTU = 9000
# Around the ends of the first buffer, of the second and of the packet, whichever the headers before them; then what goes in fragments.
EDGES = (3798, 3826, 7638, 7666, 3908, 7816)
SIZES = [0, 1, 1472, *(edge + off for edge in EDGES for off in range(-20, 21)), 8951, 8952, 8953, 8971, 8972, 8973, 20000, 65507]
BULK = 6 << 20


@pytest.fixture(scope="module", params=["generic", "native"])
def net(request: pytest.FixtureRequest) -> Iterator[Veth]:
    with pair(request.param, mtu=MTU) as veth:
        yield veth


@pytest.mark.parametrize("family", [4, 6])
def test_datagrams_of_all_sizes(net: Veth, family: int) -> None:
    net.engine_serves(family, SIZES)
    assert net.engine("s.offload.text") == "xdp:v0"
    stats = net.engine("s.stats")
    # What fits a packet comes by the ring, fragments by the kernel.
    whole = sum(size <= MTU - (28 if family == 4 else 48) for size in SIZES)
    assert (stats["rx_datagrams"], stats["kernel_rx_datagrams"]) == (whole, len(SIZES) - whole)
    assert stats["tx_datagrams"] == len(SIZES)
    net.engine_asks(family, SIZES)


def frames(net: Veth, device: str) -> tuple[int, int]:
    """Packets and bytes that the kernel's end of the pair has received."""
    ns = net.there if device == "v1" else net.here
    found = [int(ns.run("cat", f"/sys/class/net/{device}/statistics/rx_{what}")) for what in ("packets", "bytes")]
    return found[0], found[1]


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
def test_bulk_each_way(net: Veth, family: int, engine_serves: bool) -> None:
    net.connect(family, engine_serves)
    for number, (sender, receiver) in enumerate(((net.engine, net.kernel), (net.kernel, net.engine))):
        before = frames(net, "v1")
        sender.start(SEND_BYTES, seed=number, size=BULK)
        assert receiver(RECEIVE_BYTES, size=BULK, limit_s=120) == hashlib.sha256(random.Random(number).randbytes(BULK)).hexdigest()
        sender.finish(120)
        after = frames(net, "v1")
        if sender is net.engine:
            # Segments as long as the path takes, though each buffer holds less than half of one.
            packets = after[0] - before[0]
            assert BULK / packets > 4096, (packets, after[1] - before[1])
    assert net.engine("s.stats['kernel_rx_bytes']") == 0
    net.engine("s.close()")
    net.kernel("s.close()")
    (net.engine if engine_serves else net.kernel)("l.close()")


def test_a_peer_with_a_smaller_segment_size(net: Veth) -> None:
    """What the peer says is the longest goes beyond no frame of ours."""
    port = net.kernel(
        "l = socket.socket(socket.AF_INET, socket.SOCK_STREAM)\nl.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 5000)\n"
        "l.bind((host, 0))\nl.listen()\nl.settimeout(60)\nl.getsockname()[1]",
        host=net.kernel_host[4],
    )
    net.engine(
        "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)\ns.settimeout(60)\ns.connect((host, port))",
        host=net.kernel_host[4],
        port=port,
    )
    net.kernel("s, peer = l.accept()\ns.settimeout(60)")
    net.engine.start(SEND_BYTES, seed=5, size=BULK)
    assert net.kernel(RECEIVE_BYTES, size=BULK, limit_s=120) == hashlib.sha256(random.Random(5).randbytes(BULK)).hexdigest()
    net.engine.finish(120)
    # What the kernel says it has received at a time: struct tcp_info, tcpi_rcv_mss.
    assert net.kernel("struct.unpack_from('I', s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 20)[0]") <= 5000
    net.engine("s.close()")
    net.kernel("s.close()\nl.close()")


def test_a_static_interface_answers_pings_and_takes_fragments() -> None:
    """With addresses of its own: fragments and echo requests of several buffers are the stack's."""
    with namespaces(MTU) as (here, there):
        mine = "10.78.0.9"
        with Actor([f"xdp:device=v0,addr={mine}/24"], netns=here.name) as engine, Actor(netns=there.name) as kernel:
            port = engine(
                "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(60)\n"
                "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)\ns.bind((host, 0))\ns.getsockname()[1]",
                host=mine,
            )
            sizes = [8972, 9000, 20000, 40000, 65507]
            engine.start("for size in sizes:\n    data, peer = s.recvfrom(70000)\n    assert s.sendto(data, peer) == size", sizes=sizes)
            kernel(
                "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(60)\n"
                "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)\n"
                "for size in sizes:\n"
                "    sent = os.urandom(size)\n    s.sendto(sent, to)\n    assert s.recvfrom(70000) == (sent, to), size",
                sizes=sizes,
                to=(mine, port),
            )
            engine.finish()
            assert engine("s.stats['kernel_rx_datagrams']") == 0
            assert "1 received" in there.run("ping", "-c", "1", "-W", "10", "-M", "do", "-s", "8972", mine)


def test_the_limit_is_told() -> None:
    with namespaces(16000) as (here, _), Actor(["xdp:device=v0"], netns=here.name) as engine:
        engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind((host, 0))", host=ENGINE[4])
        assert "AF_XDP carries at most 9216" in engine("s.offload.text")
