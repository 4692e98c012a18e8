"""The engine on one port of the software NIC, a program that knows only libibverbs (Debian's pyverbs) on another; scapy builds what that
one sends and takes apart what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import softnic_env
from actor import Actor
from verbs_peer import Peer

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.contrib.igmpv3 import IGMPv3mr
    from scapy.layers.inet import ICMP, IP, UDP, IPOption_NOP, defragment, fragment
    from scapy.layers.inet6 import (
        ICMPv6DestUnreach,
        ICMPv6MLReport2,
        ICMPv6ND_NA,
        ICMPv6ND_NS,
        ICMPv6NDOptDstLLAddr,
        IPv6,
        IPv6ExtHdrDestOpt,
        IPv6ExtHdrFragment,
        IPv6ExtHdrHopByHop,
        defragment6,
        fragment6,
    )
    from scapy.layers.l2 import ARP, Dot1Q, Ether
    from scapy.packet import Packet, Raw

ENGINE, PEER = "02:53:4e:00:00:00", "02:53:4e:00:00:01"
ENGINE4, PEER4, ENGINE6, PEER6 = "10.88.0.1", "10.88.0.2", "fd88::1", "fd88::2"
ALL = "ff:ff:ff:ff:ff:ff"
PORT, THERE = 5555, 6666


@dataclass
class Wire:
    engine: Actor
    peer: Peer
    vlan: int = 0

    def send(self, *frames: Packet) -> None:
        for frame in frames:
            assert self.peer.send(bytes(frame)) == 0

    def ether(self, dst: str = ENGINE) -> Packet:
        head = Ether(src=PEER, dst=dst)
        return head / Dot1Q(vlan=self.vlan) if self.vlan else head

    def get(self, *layers: type[Packet]) -> Packet:
        """The next frame that has all these layers; resolves our addresses for the engine on the way."""
        while True:
            got = self.peer.receive(1)
            assert got, f"no {layers} came"
            frame = Ether(got[0].frame)
            assert frame.src == ENGINE
            if self.vlan:
                assert frame[Dot1Q].vlan == self.vlan
            if all(layer in frame for layer in layers):
                return frame
            if ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst == PEER4:
                self.send(self.ether() / ARP(op=2, hwsrc=PEER, psrc=PEER4, hwdst=ENGINE, pdst=frame[ARP].psrc))
            if ICMPv6ND_NS in frame and frame[ICMPv6ND_NS].tgt == PEER6:
                answer = ICMPv6ND_NA(tgt=PEER6, R=0, S=1, O=1) / ICMPv6NDOptDstLLAddr(lladdr=PEER)
                self.send(self.ether() / IPv6(src=PEER6, dst=frame[IPv6].src, hlim=255) / answer)

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.engine("import pyvma\npyvma.counters()")
        return counters


def open_wire(fabric: str, engine: Actor, peer: Peer, vlan: int = 0) -> Wire:
    peer.flow(("EthSpec", {"dst_mac": PEER}))
    peer.flow(("EthSpec", {"dst_mac": ALL}))
    peer.flow(kind="MC_DEFAULT")
    for name, family, host in (("s", "AF_INET", ENGINE4), ("s6", "AF_INET6", ENGINE6)):
        code = f"{name} = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n{name}.settimeout(20)\n{name}.bind((host, port))"
        engine(code, host=host, port=PORT)
    return Wire(engine, peer, vlan)


def interface(fabric: str, more: str = "") -> list[str]:
    return [f"softnic:fabric={fabric},port=0,addr={ENGINE4}/24,addr={ENGINE6}/64,name=sn0{more}"]


@pytest.fixture
def wire(fabric: str) -> Iterator[Wire]:
    with Peer(fabric, 1) as peer, Actor(interface(fabric)) as engine:
        yield open_wire(fabric, engine, peer)


def recomputed(frame: Packet) -> bytes:
    """The frame with every checksum and length made anew by scapy."""
    copy = frame.copy()
    for layer, names in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (UDP, ("len", "chksum"))):
        if layer in copy:
            for name in names:
                delattr(copy[layer], name)
    return bytes(copy)


def datagram(family: int, payload: bytes) -> Packet:
    head = IP(src=PEER4, dst=ENGINE4) if family == 4 else IPv6(src=PEER6, dst=ENGINE6)
    return head / UDP(sport=THERE, dport=PORT) / Raw(payload)


SOCKET = {4: "s", 6: "s6"}
HOST = {4: PEER4, 6: PEER6}
SIZES = [0, 1, 18, 512, 1400]


@pytest.mark.parametrize("vlan", [0, 77])
@pytest.mark.parametrize("family", [4, 6])
def test_to_and_from_the_engine(fabric: str, family: int, vlan: int) -> None:
    with Peer(fabric, 1) as peer, Actor(interface(fabric, f",vlan={vlan}" if vlan else "")) as engine:
        wire = open_wire(fabric, engine, peer, vlan)
        for size in SIZES:
            payload = bytes(range(256)) * 6
            wire.send(wire.ether() / datagram(family, payload[:size]))
            data, sender = engine(f"{SOCKET[family]}.recvfrom(9000)")
            assert (data, sender[:2]) == (payload[:size], (HOST[family], THERE))
            engine(f"{SOCKET[family]}.sendto(data, to)", data=payload[:size], to=(HOST[family], THERE))
            frame = wire.get(UDP)
            assert bytes(frame[UDP].payload)[:size] == payload[:size]
            assert (frame[UDP].sport, frame[UDP].dport) == (PORT, THERE)
            assert recomputed(frame) == bytes(frame)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("family", [4, 6])
def test_fragments_to_the_engine(wire: Wire, family: int, reverse: bool) -> None:
    payload = bytes(i % 251 for i in range(20_000))
    if family == 4:
        whole = IP(src=PEER4, dst=ENGINE4, id=77) / UDP(sport=THERE, dport=PORT) / Raw(payload)
        pieces = fragment(whole, 1400)
    else:
        pieces = fragment6(IPv6(src=PEER6, dst=ENGINE6) / IPv6ExtHdrFragment(id=77) / UDP(sport=THERE, dport=PORT) / Raw(payload), 1400)
    assert len(pieces) > 10
    wire.send(*(wire.ether() / piece for piece in (pieces[::-1] if reverse else pieces)))
    assert wire.engine(f"{SOCKET[family]}.recv(30000)") == payload


@pytest.mark.parametrize("family", [4, 6])
def test_fragments_from_the_engine(wire: Wire, family: int) -> None:
    payload = bytes(i % 251 for i in range(5_000))
    wire.engine(f"{SOCKET[family]}.sendto(data, to)", data=payload, to=(HOST[family], THERE))
    layer = IP if family == 4 else IPv6ExtHdrFragment
    pieces = [wire.get(IP if family == 4 else IPv6, layer)]
    while pieces[-1][layer].flags & 1 if family == 4 else pieces[-1][layer].m:
        pieces.append(wire.get(layer))
    assert len(pieces) == 4
    if family == 4:
        whole = defragment([piece[IP] for piece in pieces])[0]
        whole = IP(bytes(whole))
    else:
        whole = IPv6(bytes(defragment6([piece[IPv6] for piece in pieces])))
    assert bytes(whole[UDP].payload) == payload
    assert recomputed(Ether() / whole) == bytes(Ether() / whole)


def test_options_and_extension_headers(wire: Wire) -> None:
    wire.send(wire.ether() / IP(src=PEER4, dst=ENGINE4, options=[IPOption_NOP()] * 4) / UDP(sport=THERE, dport=PORT) / b"options")
    assert wire.engine("s.recv(100)") == b"options"
    headers = IPv6(src=PEER6, dst=ENGINE6) / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt()
    wire.send(wire.ether() / headers / UDP(sport=THERE, dport=PORT) / b"headers")
    assert wire.engine("s6.recv(100)") == b"headers"


def test_group4(wire: Wire) -> None:
    wire.engine("s.close()\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('', port))", port=PORT)
    wire.engine("s.setsockopt(0, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.8.8.8') + socket.inet_aton(host))", host=ENGINE4)
    while not any(record.maddr == "239.8.8.8" for record in wire.get(IGMPv3mr)[IGMPv3mr].records):
        pass
    wire.send(wire.ether("01:00:5e:08:08:08") / IP(src=PEER4, dst="239.8.8.8") / UDP(sport=THERE, dport=PORT) / b"all")
    assert wire.engine("s.recvfrom(100)") == (b"all", (PEER4, THERE))
    wire.engine("s.setsockopt(0, socket.IP_MULTICAST_IF, socket.inet_aton(host)); s.sendto(b'out', ('239.9.9.9', 9))", host=ENGINE4)
    frame = wire.get(UDP)
    assert (frame.dst, frame[IP].dst, frame[IP].ttl) == ("01:00:5e:09:09:09", "239.9.9.9", 1)


def test_group6(wire: Wire) -> None:
    # With `s` on the port, the kernel too would refuse a dual-stack socket on it.
    wire.engine(
        "s.close()\ns6.close()\ns6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns6.settimeout(20)\ns6.bind(('::', port))", port=PORT
    )
    index = wire.engine("import pyvma.ring\nnext(i.index for i in pyvma.ring.interfaces() if i.name == 'sn0')")
    join = "s6.setsockopt(41, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, 'ff15::88') + struct.pack('@I', index))"
    wire.engine(join, index=index)
    while not any(record.dst == "ff15::88" for record in wire.get(ICMPv6MLReport2)[ICMPv6MLReport2].records):
        pass
    wire.send(wire.ether("33:33:00:00:00:88") / IPv6(src=PEER6, dst="ff15::88") / UDP(sport=THERE, dport=PORT) / b"all")
    assert wire.engine("s6.recv(100)") == b"all"


@pytest.mark.parametrize("family", [4, 6])
def test_nobody_there_is_said(wire: Wire, family: int) -> None:
    frame = datagram(family, b"anybody?")
    frame[UDP].dport = 9
    wire.send(wire.ether() / frame)
    if family == 4:
        answer = wire.get(ICMP)[ICMP]
        assert (answer.type, answer.code) == (3, 3)
    else:
        assert wire.get(ICMPv6DestUnreach)[ICMPv6DestUnreach].code == 4


def test_unreachable_refuses(wire: Wire) -> None:
    wire.engine("s.connect(to)\ns.send(b'?')", to=(PEER4, THERE))
    sent = wire.get(UDP)[IP]
    wire.send(wire.ether() / IP(src=PEER4, dst=ENGINE4) / ICMP(type=3, code=3) / sent)
    with pytest.raises(ConnectionRefusedError):
        wire.engine("s.recv(10)")


def test_fragmentation_needed_lowers_the_path_mtu(wire: Wire) -> None:
    wire.engine("s.setsockopt(0, 10, 2)\ns.connect(to)\ns.send(bytes(1400))", to=(PEER4, THERE))  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
    sent = wire.get(UDP)[IP]
    wire.send(wire.ether() / IP(src="10.88.0.254", dst=ENGINE4) / ICMP(type=3, code=4, nexthopmtu=1200) / sent)
    with pytest.raises(OSError, match="Message too long"):
        wire.engine("end = time.monotonic() + 20\nwhile time.monotonic() < end: s.send(bytes(1400)); time.sleep(0.01)")
    assert wire.engine("s.getsockopt(0, 14)") == 1200  # IP_MTU
    assert wire.engine("s.send(bytes(1172))") == 1172


def test_bad_frames_are_counted(wire: Wire) -> None:
    good = bytes(wire.ether() / datagram(4, b"x" * 100))
    bad_udp_sum = bytearray(good)
    bad_udp_sum[-1] ^= 1
    bad_ip_sum = bytearray(good)
    bad_ip_sum[22] ^= 1  # TTL
    long_udp = bytes(wire.ether() / IP(src=PEER4, dst=ENGINE4) / UDP(sport=THERE, dport=PORT, len=500, chksum=0) / Raw(b"x" * 50))
    frames = {
        "net.rx_short": good[:60],
        "udp.rx_bad_csum": bytes(bad_udp_sum),
        "net.rx_ip_csum": bytes(bad_ip_sum),
        "udp.rx_short": long_udp,
        "net.rx_ip_src": bytes(wire.ether() / IP(src="224.0.0.1", dst=ENGINE4) / UDP(sport=1, dport=PORT) / b"x"),
        "net.rx_proto": bytes(wire.ether() / IP(src=PEER4, dst=ENGINE4, proto=132) / Raw(b"x" * 40)),
        "net.rx_icmp_bad": bytes(wire.ether() / IP(src=PEER4, dst=ENGINE4) / ICMP(chksum=1) / Raw(b"x" * 40)),
    }
    before = wire.counters()
    for frame in frames.values():
        assert wire.peer.send(frame) == 0
    wire.send(wire.ether() / datagram(4, b"the end"))
    assert wire.engine("s.recv(200)") == b"the end"
    after = wire.counters()
    moved = {name: after[name] - before[name] for name in frames}
    assert moved == dict.fromkeys(frames, 1)
