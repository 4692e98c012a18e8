"""The priority in VLAN tags: by SO_PRIORITY and IP_TOS through the interface's map, or by the traffic class alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import softnic_env
from actor import Actor
from verbs_peer import Peer

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.layers.inet import TCP, UDP
    from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
    from scapy.layers.l2 import ARP, Dot1Q, Ether
    from scapy.packet import Packet

ENGINE, PEER, ALL = "02:53:4e:00:00:00", "02:53:4e:00:00:01", "ff:ff:ff:ff:ff:ff"
ENGINES, PEERS = {4: "10.86.0.1", 6: "fd86::1"}, {4: "10.86.0.2", 6: "fd86::2"}
VLAN = 66
SOCKET = "s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, kind)\ns.settimeout(0.0)"


@contextmanager
def ends(fabric: str, egress: str) -> Iterator[tuple[Actor, Peer]]:
    interface = f"softnic:fabric={fabric},port=0,addr={ENGINES[4]}/24,addr={ENGINES[6]}/64,vlan={VLAN}{egress}"
    with Peer(fabric, 1) as peer, Actor([interface]) as engine:
        peer.flow(("EthSpec", {"dst_mac": PEER}))
        peer.flow(("EthSpec", {"dst_mac": ALL}))
        peer.flow(kind="MC_DEFAULT")
        yield engine, peer


def tag(peer: Peer, layer: type[Packet]) -> tuple[int, int]:
    """VLAN and priority of the next frame with that layer; answers for our addresses on the way."""
    head = Ether(src=PEER, dst=ENGINE) / Dot1Q(vlan=VLAN)
    while True:
        received = peer.receive(1)
        assert received, "no frame came"
        frame = Ether(received[0].frame)
        if layer in frame:
            return frame[Dot1Q].vlan, frame[Dot1Q].prio
        if ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst == PEERS[4]:
            peer.send(bytes(head / ARP(op=2, hwsrc=PEER, psrc=PEERS[4], hwdst=ENGINE, pdst=frame[ARP].psrc)))
        if ICMPv6ND_NS in frame and frame[ICMPv6ND_NS].tgt == PEERS[6]:
            answer = ICMPv6ND_NA(tgt=PEERS[6], R=0, S=1, O=1) / ICMPv6NDOptDstLLAddr(lladdr=PEER)
            peer.send(bytes(head / IPv6(src=PEERS[6], dst=frame[IPv6].src, hlim=255) / answer))


def datagram(engine: Actor, peer: Peer, family: int) -> tuple[int, int]:
    engine("s.sendto(b'x', to)", to=(PEERS[family], 9))
    return tag(peer, UDP)


@pytest.mark.parametrize("family", [4, 6])
def test_by_the_map(fabric: str, family: int) -> None:
    with ends(fabric, ",egress=0:1,egress=3:5,egress=6:7") as (engine, peer):
        engine(SOCKET, family=family, kind=2)
        assert datagram(engine, peer, family) == (VLAN, 1)
        engine("s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)")
        assert datagram(engine, peer, family) == (VLAN, 5)
        # Not in the map.
        engine("s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 2)")
        assert datagram(engine, peer, family) == (VLAN, 0)
        if family == 4:
            # Linux gives it the priority 6.
            engine("s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)")
            assert engine("s.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)") == 6
            assert datagram(engine, peer, family) == (VLAN, 7)
        engine("s.close()")
        engine(
            SOCKET + "\ns.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)\ns.connect_ex((host, 9))",
            family=family,
            kind=1,
            host=PEERS[family],
        )
        assert tag(peer, TCP) == (VLAN, 5)
        engine("s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 0)")
        # The SYN again, by what holds now; it may have been sent once more before that.
        while (seen := tag(peer, TCP)) == (VLAN, 5):
            pass
        assert seen == (VLAN, 1)
        engine("s.close()")


@pytest.mark.parametrize("family", [4, 6])
def test_by_the_traffic_class(fabric: str, family: int) -> None:
    with ends(fabric, ",egress=tos,egress=5:2") as (engine, peer):
        engine(SOCKET, family=family, kind=2)
        level, name = ("IPPROTO_IP", "IP_TOS") if family == 4 else ("IPPROTO_IPV6", "IPV6_TCLASS")
        for tos in (0, 0x20, 0x6C, 0xA0, 0xE0):
            engine(f"s.setsockopt(socket.{level}, socket.{name}, tos)", tos=tos)
            assert datagram(engine, peer, family) == (VLAN, tos >> 5)
        # A priority that the map names comes first.
        engine("s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 5)")
        assert datagram(engine, peer, family) == (VLAN, 2)
        engine("s.close()")


def test_settings_that_are_none() -> None:
    for value in ("8", "16:1", "1:8", "a:b", ":", "tos:1"):
        with (
            Actor([f"softnic:fabric=none,port=0,addr=10.86.0.1/24,vlan=5,egress={value}"]) as engine,
            pytest.raises(OSError, match="egress"),
        ):
            engine("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('10.86.0.1', 0))")
