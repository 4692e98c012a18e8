"""Two programs that know only libibverbs, through Debian's pyverbs, exchange frames that scapy built."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import softnic_env
from verbs_peer import Peer, Received

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
    from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment, fragment6
    from scapy.layers.l2 import ARP, Dot1Q, Ether
    from scapy.packet import Raw

MAC = ["02:53:4e:00:00:00", "02:53:4e:00:00:01"]
ALL = "ff:ff:ff:ff:ff:ff"


def to_own_mac(peer: Peer, port: int) -> int:
    return peer.flow(("EthSpec", {"dst_mac": MAC[port]}))


@pytest.fixture
def pair(fabric: str) -> Iterator[list[Peer]]:
    """A peer on port 0 and one on port 1, each hearing what is addressed to its MAC."""
    with Peer(fabric, 0) as first, Peer(fabric, 1) as second:
        to_own_mac(first, 0)
        to_own_mac(second, 1)
        yield [first, second]


def ether(sender: int, **more: object) -> Ether:
    return Ether(src=MAC[sender], dst=MAC[1 - sender], **more)


def exchange(pair: list[Peer], sender: int, frame: Ether) -> Received:
    """Sends a frame; that it arrives alone and unchanged."""
    raw = bytes(frame)
    assert pair[sender].send(raw) == 0
    got = pair[1 - sender].receive(1)
    assert [item.frame for item in got] == [raw]
    assert got[0].qp_num == pair[1 - sender].info()["qp_num"]
    return got[0]


@pytest.mark.parametrize("sender", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 18, 64, 512, 1472])
def test_udp_over_ipv4(pair: list[Peer], sender: int, size: int) -> None:
    payload = (bytes(range(256)) * 6)[:size]
    got = exchange(pair, sender, ether(sender) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=4000, dport=5000) / Raw(payload))
    assert got.csum_ok


@pytest.mark.parametrize("sender", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 1452])
def test_udp_over_ipv6(pair: list[Peer], sender: int, size: int) -> None:
    exchange(pair, sender, ether(sender) / IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=4000, dport=5000) / Raw(b"x" * size))


@pytest.mark.parametrize("sender", [0, 1])
def test_vlan(pair: list[Peer], sender: int) -> None:
    exchange(pair, sender, ether(sender) / Dot1Q(vlan=77, prio=3) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / b"tagged")
    exchange(pair, sender, ether(sender) / Dot1Q(vlan=77) / IPv6(src="fd00::1", dst="fd00::2") / UDP() / b"tagged")


@pytest.mark.parametrize("sender", [0, 1])
def test_tcp_icmp_arp(pair: list[Peer], sender: int) -> None:
    assert exchange(pair, sender, ether(sender) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(flags="S") / b"x").csum_ok
    exchange(pair, sender, ether(sender) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP() / b"ping")
    exchange(pair, sender, ether(sender) / IPv6(src="fd00::1", dst="fd00::2") / ICMPv6EchoRequest(data=b"ping"))
    exchange(pair, sender, ether(sender) / ARP(op=2, hwsrc=MAC[sender], psrc="10.0.0.1", pdst="10.0.0.2"))


@pytest.mark.parametrize("sender", [0, 1])
def test_fragments(pair: list[Peer], sender: int) -> None:
    whole = ether(sender) / IP(src="10.0.0.1", dst="10.0.0.2", id=9) / UDP(sport=1, dport=2) / Raw(b"f" * 4000)
    for part in fragment(whole, 1000):
        assert not exchange(pair, sender, part).csum_ok
    whole6 = ether(sender) / IPv6(src="fd00::1", dst="fd00::2") / IPv6ExtHdrFragment(id=3) / UDP(sport=1, dport=2) / Raw(b"f" * 4000)
    for part in fragment6(whole6, 1280):
        exchange(pair, sender, part)


def test_checksums_both_ways(pair: list[Peer]) -> None:
    right = bytes(ether(0) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / b"some payload")
    # Asked for, the device fills in what the sender left zero.
    open_ = right[:24] + b"\0\0" + right[26:40] + b"\0\0" + right[42:]
    assert open_ != right
    assert pair[0].send(open_, csum=True) == 0
    assert [item[:2] for item in pair[1].receive(1)] == [(right, True)]
    # Not asked for, it leaves them, and the receiver is told that they are wrong.
    wrong = right[:40] + bytes([right[40] ^ 0x55]) + right[41:]
    assert pair[0].send(wrong) == 0
    assert [item[:2] for item in pair[1].receive(1)] == [(wrong, False)]


def test_multicast_and_broadcast(fabric: str) -> None:
    group4, group6 = "01:00:5e:01:02:03", "33:33:00:00:00:99"
    with Peer(fabric, 0) as sender, Peer(fabric, 1) as member, Peer(fabric, 2) as other, Peer(fabric, 2) as also:
        to_own_mac(sender, 0)
        for peer in (member, other, also):
            peer.flow(("EthSpec", {"dst_mac": ALL}))
        for peer in (member, also):
            peer.flow(("EthSpec", {"dst_mac": group4}))
        rule = member.flow(("EthSpec", {"dst_mac": group6}))
        to4 = bytes(Ether(src=MAC[0], dst=group4) / IP(src="10.0.0.1", dst="225.1.2.3") / UDP() / b"4")
        to6 = bytes(Ether(src=MAC[0], dst=group6) / IPv6(src="fd00::1", dst="ff05::99") / UDP() / b"6")
        toall = bytes(Ether(src=MAC[0], dst=ALL) / IP(src="10.0.0.1", dst="255.255.255.255") / UDP() / b"a")
        for frame in (to4, to6, toall):
            assert sender.send(frame) == 0
        # The frame for all comes last, so whatever a peer should not hear would stand before it.
        assert [item.frame for item in member.receive(3)] == [to4, to6, toall]
        assert [item.frame for item in also.receive(2)] == [to4, toall]
        assert [item.frame for item in other.receive(1)] == [toall]
        member.unflow(rule)
        for frame in (to6, toall):
            assert sender.send(frame) == 0
        assert [item.frame for item in member.receive(1)] == [toall]


def test_rules_of_pyverbs(fabric: str) -> None:
    """Several processes on one port, told apart by address and port alone."""
    udp, tcp = {"spec_type": "IBV_FLOW_SPEC_UDP"}, {"spec_type": "IBV_FLOW_SPEC_TCP"}
    with Peer(fabric, 0) as sender, Peer(fabric, 1) as a, Peer(fabric, 1) as b, Peer(fabric, 1) as c, Peer(fabric, 1) as rest:
        own = ("EthSpec", {"dst_mac": MAC[1]})
        a.flow(own, ("Ipv4ExtSpec", {"dst_ip": "10.0.0.2"}), ("TcpUdpSpec", {**udp, "dst_port": 1000}))
        b.flow(own, ("Ipv6Spec", {"src_ip": "fd00::1", "dst_ip": "fd00::2"}), ("TcpUdpSpec", {**udp, "dst_port": 1000}))
        c.flow(own, ("Ipv4ExtSpec", {"dst_ip": "10.0.0.2"}), ("TcpUdpSpec", {**tcp, "dst_port": 1000}))
        rest.flow(kind="ALL_DEFAULT")
        base = ether(0)
        frames = {
            a: [base / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=5, dport=1000)],
            b: [base / IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=5, dport=1000)],
            c: [base / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=5, dport=1000)],
            rest: [
                base / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=5, dport=1001),
                base / IP(src="10.0.0.1", dst="10.0.0.3") / UDP(sport=5, dport=1000),
                base / IPv6(src="fd00::1", dst="fd00::3") / UDP(sport=5, dport=1000),
                base / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1000, dport=5),
            ],
        }
        for some in frames.values():
            for frame in some:
                assert sender.send(bytes(frame)) == 0
        for peer, some in frames.items():
            assert [item.frame for item in peer.receive(len(some))] == [bytes(frame) for frame in some]
        # And nobody heard more than that.
        for peer in frames:
            assert peer.receive(1, seconds=0.0) == []


def test_loopback_on_one_port(fabric: str) -> None:
    """Two processes behind one MAC reach each other."""
    with Peer(fabric, 0) as client, Peer(fabric, 0) as server:
        server.flow(("EthSpec", {"dst_mac": MAC[0]}), ("Ipv4ExtSpec", {"dst_ip": "10.0.0.9"}))
        frame = bytes(Ether(src=MAC[0], dst=MAC[0]) / IP(src="10.0.0.8", dst="10.0.0.9") / UDP() / b"hello")
        assert client.send(frame) == 0
        assert [item.frame for item in server.receive(1)] == [frame]


def test_jumbo_frames_and_port_limits(fabric: str) -> None:
    with (
        Peer(fabric, 0, ",mtu=9000") as large,
        Peer(fabric, 1, ",mtu=9000") as also,
        Peer(fabric, 2, ",mtu=1500,mac=02:00:00:00:00:77") as small,
    ):
        assert (large.info()["mtu"], small.info()["mtu"]) == (9000, 1500)
        assert small.info()["gid"].endswith("0000:00ff:fe00:0077")
        to_own_mac(also, 1)
        small.flow(("EthSpec", {"dst_mac": "02:00:00:00:00:77"}))
        frame = bytes(ether(0) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / Raw(b"j" * 8972))
        assert large.send(frame) == 0
        assert [item.frame for item in also.receive(1)] == [frame]
        # A port takes nothing longer than its own MTU.
        assert large.send(bytes(Ether(src=MAC[0], dst="02:00:00:00:00:77") / IP() / UDP() / Raw(b"j" * 3000))) == 0
        fits = bytes(Ether(src=MAC[0], dst="02:00:00:00:00:77") / IP() / UDP() / Raw(b"j" * 1472))
        assert large.send(fits) == 0
        assert [item.frame for item in small.receive(1)] == [fits]
        # Nor sends it: IBV_WC_LOC_LEN_ERR.
        assert small.send(frame) == 1
