"""Every kind of steering rule against frames that match it and frames that just do not, built by scapy and sent by pyverbs.

Each frame must land exactly where it should: at the rule's queue, or with the default rule, which stands for the kernel. The rules are
made twice: by pyverbs, as specifications, and by the engine's ring, from `pyvma.ring.FlowRule`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import softnic_env
from actor import Actor
from exchange import wait_for
from verbs_peer import Peer

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
    from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
    from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
    from scapy.layers.vxlan import VXLAN
    from scapy.packet import Packet, Raw
    from scapy.utils import rdpcap

SENDER, TARGET, OTHER = "02:53:4e:00:00:00", "02:53:4e:00:00:01", "02:53:4e:00:00:77"
INNER, INNER2 = "02:aa:00:00:00:01", "02:aa:00:00:00:02"
HERE = {4: "10.0.0.2", 6: "fd00::2"}
THERE = {4: "10.0.0.1", 6: "fd00::1"}
ELSE = {4: "10.0.0.3", 6: "fd00::3"}
DPORT, SPORT, TYPE = 2222, 1111, 0x88B5
PROTOCOLS = ["udp", "tcp"]


def packet(family: int = 4, protocol: str = "udp", *, mac: str = TARGET, **more: Any) -> Packet:
    """A frame to HERE and DPORT; what is named in `more` is otherwise."""
    head = Ether(src=SENDER, dst=mac)
    for tag in more.get("tags", ()):
        head = head / tag
    src, dst = more.get("src", THERE[family]), more.get("dst", HERE[family])
    if family == 4:
        flags = {"flags": more.get("flags", 0), "frag": more.get("frag", 0)}
        head = head / IP(src=src, dst=dst, tos=more.get("tos", 0), options=more.get("options", []), **flags)
    else:
        head = head / IPv6(src=src, dst=dst, tc=more.get("tos", 0), fl=more.get("label", 0))
    for extension in more.get("extensions", ()):
        head = head / extension
    ports = {"sport": more.get("sport", SPORT), "dport": more.get("dport", DPORT)}
    return head / (UDP(**ports) if protocol == "udp" else TCP(**ports)) / more.get("inside", Raw(b"p" * 24))


def tunnel(vni: int, inside: Packet | bytes, family: int = 4, **more: Any) -> Packet:
    """A frame inside another."""
    header = VXLAN(vni=vni, flags=more.pop("vxlan_flags", "Instance"))
    return packet(family, dport=more.pop("dport", 4789), inside=header / inside, **more)


def cut(frame: Packet, *layers: type[Packet], keep: int = 2) -> bytes:
    """The frame without what follows the first `keep` bytes of the last of these layers, each sought inside the one before."""
    at: Packet = frame
    for layer in layers:
        at = at.payload[layer]
    return bytes(frame)[: len(bytes(frame)) - len(bytes(at)) + keep]


@dataclass
class Case:
    """A rule, in both languages, and frames."""

    name: str
    rule: dict[str, Any]
    specs: list[tuple[str, dict[str, Any]]]
    hits: list[Packet | bytes]
    misses: list[Packet | bytes] = field(default_factory=list)


OWN = ("EthSpec", {"dst_mac": TARGET})


def ip_spec(family: int, **more: Any) -> tuple[str, dict[str, Any]]:
    if family == 4:
        return "Ipv4ExtSpec", more
    # This class wants to be told what to leave out.
    full = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
    source = {"src_ip_mask": full} if "src_ip" in more else {"src_ip": "::", "src_ip_mask": "::"}
    return "Ipv6Spec", {**source, **more, "dst_ip_mask": full}


def l4_spec(protocol: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return ("TcpUdpSpec", {"spec_type": f"IBV_FLOW_SPEC_{protocol.upper()}", **more})


def ethernet() -> Iterator[Case]:
    typed = Ether(src=SENDER, dst=TARGET, type=TYPE) / Raw(b"e" * 50)
    yield Case(
        "ethertype",
        {"ethertype": TYPE},
        [("EthSpec", {"dst_mac": TARGET, "ether_type": TYPE})],
        [typed, Ether(src=SENDER, dst=TARGET) / Dot1Q(vlan=5, type=TYPE) / Raw(b"e" * 50)],
        [
            Ether(src=SENDER, dst=TARGET, type=TYPE + 1) / Raw(b"e" * 50),
            Ether(src=SENDER, dst=OTHER, type=TYPE) / Raw(b"e" * 50),
            packet(),
        ],
    )
    arp = ARP(op=2, hwsrc=SENDER, psrc=THERE[4], pdst=HERE[4])
    yield Case(
        "mac",
        {"dst_mac": "03:00:00:00:00:09"},
        [("EthSpec", {"dst_mac": "03:00:00:00:00:09"})],
        [Ether(src=SENDER, dst="03:00:00:00:00:09") / arp, packet(mac="03:00:00:00:00:09"), packet(6, mac="03:00:00:00:00:09")],
        [packet(mac="03:00:00:00:00:08"), packet(mac="01:00:00:00:00:09"), packet()],
    )
    yield Case(
        "vlan",
        {"vlan": 100},
        [("EthSpec", {"dst_mac": TARGET, "vlan_tag": 100, "vlan_tag_mask": 0xFFF})],
        [packet(tags=[Dot1Q(vlan=100, prio=prio)]) for prio in (0, 7)] + [packet(6, tags=[Dot1Q(vlan=100), Dot1Q(vlan=7)])],
        [
            packet(tags=[Dot1Q(vlan=101)]),
            packet(tags=[Dot1Q(vlan=0)]),
            packet(tags=[Dot1AD(vlan=7), Dot1Q(vlan=100)]),
            packet(tags=[Dot1Q(vlan=100)], mac=OTHER),
            packet(),
        ],
    )


def addresses(family: int) -> Iterator[Case]:
    fragment = (
        [packet(flags="MF"), packet(frag=3)]
        if family == 4
        else [packet(6, extensions=[IPv6ExtHdrFragment(offset=offset, m=1, id=4)]) for offset in (0, 3)]
    )
    yield Case(
        f"address{family}",
        {"dst": HERE[family]},
        [OWN, ip_spec(family, dst_ip=HERE[family])],
        [packet(family), packet(family, "tcp"), packet(family, dport=9), packet(family, src=ELSE[family]), *fragment],
        [packet(family, dst=ELSE[family]), packet(family, mac=OTHER), packet(10 - family), packet(family, dst=THERE[family])],
    )
    name = "tos" if family == 4 else "traffic_class"
    yield Case(
        f"tos{family}",
        {"dst": HERE[family], "tos": 0x2A},
        [OWN, ip_spec(family, dst_ip=HERE[family], **{name: 0x2A})],
        [packet(family, tos=0x2A), packet(family, "tcp", tos=0x2A)],
        [packet(family, tos=0x2A ^ 1 << bit) for bit in range(8)] + [packet(family, tos=0x2A, dst=ELSE[family])],
    )
    yield Case(
        f"dscp{family}",
        {"dst": HERE[family], "protocol": "udp", "dst_port": DPORT, "tos": 0x28, "tos_mask": 0xFC},
        [OWN, ip_spec(family, dst_ip=HERE[family], **{name: 0x28, f"{name}_mask": 0xFC}), l4_spec("udp", dst_port=DPORT)],
        [packet(family, tos=tos) for tos in (0x28, 0x29, 0x2A, 0x2B)],
        [packet(family, tos=tos) for tos in (0x2C, 0x24, 0xA8, 0)] + [packet(family, tos=0x28, dport=DPORT + 1)],
    )
    if family == 6:
        yield Case(
            "label",
            {"dst": HERE[6], "flow_label": 0xABCDE},
            [OWN, ip_spec(6, dst_ip=HERE[6], flow_label=0xABCDE, flow_label_mask=0xFFFFF)],
            [packet(6, label=0xABCDE), packet(6, "tcp", label=0xABCDE, tos=0xFF)],
            [packet(6, label=0xABCDE ^ 1 << bit) for bit in (0, 7, 8, 15, 16, 19)] + [packet(6)],
        )


def tuples(family: int, protocol: str) -> Iterator[Case]:
    other = "tcp" if protocol == "udp" else "udp"
    same = packet(family, protocol)
    odd = (
        [packet(4, protocol, options=[IPOption_NOP()] * 4), packet(4, protocol, flags="DF")]
        if family == 4
        else [packet(6, protocol, extensions=[IPv6ExtHdrDestOpt()])]
    )
    fragments = (
        [packet(4, protocol, flags="MF"), packet(4, protocol, frag=3), packet(4, protocol, flags="MF", frag=3)]
        if family == 4
        else [packet(6, protocol, extensions=[IPv6ExtHdrFragment(offset=offset, m=1, id=4)]) for offset in (0, 3)]
    )
    # Of the header nothing but the source port is there.
    short = bytes(same)[: (34 if family == 4 else 54) + 2]
    misses = [
        packet(family, protocol, dst=ELSE[family]),
        packet(family, protocol, dport=DPORT + 1),
        packet(family, protocol, dport=SPORT, sport=DPORT),
        packet(family, other),
        packet(10 - family, protocol),
        packet(family, protocol, mac=OTHER),
        *fragments,
        short,
    ]
    three = {"dst": HERE[family], "protocol": protocol, "dst_port": DPORT}
    yield Case(
        f"three-{protocol}{family}",
        three,
        [OWN, ip_spec(family, dst_ip=HERE[family]), l4_spec(protocol, dst_port=DPORT)],
        [same, packet(family, protocol, sport=7), packet(family, protocol, src=ELSE[family]), *odd],
        misses,
    )
    yield Case(
        f"five-{protocol}{family}",
        {**three, "src": THERE[family], "src_port": SPORT},
        [OWN, ip_spec(family, dst_ip=HERE[family], src_ip=THERE[family]), l4_spec(protocol, dst_port=DPORT, src_port=SPORT)],
        [same, *odd],
        [*misses, packet(family, protocol, sport=SPORT + 1), packet(family, protocol, src=ELSE[family])],
    )


def inner(kind: str, family: int, protocol: str) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    if kind == "any":
        return {}, []
    mac = {"dst_mac": INNER}
    specs: list[tuple[str, dict[str, Any]]] = [("EthSpec", {**mac, "is_inner": 1})]
    if kind == "mac":
        return {"inner": mac}, specs
    rule = {**mac, "dst": HERE[family]}
    if kind == "address":
        return {"inner": rule}, [*specs, ip_spec(family, dst_ip=HERE[family], is_inner=1)]
    rule |= {"protocol": protocol, "dst_port": DPORT}
    if kind == "three":
        specs += [ip_spec(family, dst_ip=HERE[family], is_inner=1), l4_spec(protocol, dst_port=DPORT, is_inner=1)]
        return {"inner": rule}, specs
    rule |= {"src": THERE[family], "src_port": SPORT}
    specs.append(ip_spec(family, dst_ip=HERE[family], src_ip=THERE[family], is_inner=1))
    specs.append(l4_spec(protocol, dst_port=DPORT, src_port=SPORT, is_inner=1))
    return {"inner": rule}, specs


def inside(kind: str, family: int, protocol: str) -> tuple[list[Packet], list[Packet | bytes]]:
    """Frames inside a tunnel that the rule takes, and some that it does not."""
    same = packet(family, protocol, mac=INNER)
    by_kind = {
        "mac": (packet(10 - family, mac=INNER), packet(family, protocol, mac=INNER2)),
        "address": (packet(family, protocol, mac=INNER, dport=9), packet(family, protocol, mac=INNER, dst=ELSE[family])),
        "three": (packet(family, protocol, mac=INNER, sport=9), packet(family, protocol, mac=INNER, dport=9)),
        "five": (packet(family, protocol, mac=INNER, tos=4), packet(family, protocol, mac=INNER, sport=9)),
    }
    hits: list[Packet] = [same]
    misses: list[Packet | bytes] = []
    for step in ("mac", "address", "three", "five"):
        if kind == "any":
            break
        hit, miss = by_kind[step]
        misses.append(tunnel(7, miss))
        if step == kind:
            hits.append(hit)
            break
    if kind in ("three", "five"):
        fragment = packet(4, protocol, mac=INNER, flags="MF") if family == 4 else None
        misses += [tunnel(7, fragment)] if fragment else []
        misses.append(tunnel(7, packet(family, "tcp" if protocol == "udp" else "udp", mac=INNER)))
        misses.append(cut(tunnel(7, same), VXLAN, Ether, UDP if protocol == "udp" else TCP))
    return hits, misses


def tunnels(kind: str, outer: int, family: int, protocol: str) -> Case:
    rule, specs = inner(kind, family, protocol)
    hits, misses = inside(kind, family, protocol)
    same = hits[0]
    if outer == 6:
        misses = []  # they are in tunnels over IPv4, which would miss for that alone
    return Case(
        f"vxlan-{kind}-{protocol}{family}-over{outer}",
        {"dst": HERE[outer], "tunnel": "vxlan", "vni": 7, **rule},
        [OWN, ip_spec(outer, dst_ip=HERE[outer]), l4_spec("udp", dst_port=4789), ("vxlan_spec", {"vni": 7}), *specs],
        [tunnel(7, frame, outer) for frame in hits],
        [
            *misses,
            tunnel(6, same, outer),
            tunnel(7 << 8, same, outer),
            tunnel(7, same, outer, vxlan_flags=0),
            tunnel(7, same, outer, dport=4790),
            tunnel(7, same, outer, dst=ELSE[outer]),
            tunnel(7, same, outer, mac=OTHER),
            packet(outer, dport=4789, inside=Raw(b"")),
            cut(tunnel(7, same, outer), VXLAN, keep=7),
            same,
        ],
    )


def cases() -> list[Case]:
    found = [*ethernet()]
    for family in (4, 6):
        found += addresses(family)
        for protocol in PROTOCOLS:
            found += tuples(family, protocol)
    for kind in ("any", "mac", "address", "three", "five"):
        found.append(tunnels(kind, 4, 4, "udp"))
        found.append(tunnels(kind, 6, 6, "tcp"))
    found += [tunnels("five", 4, 6, "udp"), tunnels("three", 6, 4, "tcp")]
    return found


@pytest.fixture
def ends(fabric: str) -> Iterator[tuple[Peer, Peer]]:
    """Who sends, and who has what no rule takes."""
    with Peer(fabric, 0) as sender, Peer(fabric, 1) as rest:
        rest.flow(kind="ALL_DEFAULT")
        yield sender, rest


def send_all(sender: Peer, case: Case) -> tuple[list[bytes], list[bytes]]:
    """Sends the frames of a case in turn; what matches and what does not."""
    hits, misses = [bytes(frame) for frame in case.hits], [bytes(frame) for frame in case.misses]
    for i in range(max(len(hits), len(misses))):
        for frames in (hits, misses):
            if i < len(frames):
                assert sender.send(frames[i]) == 0
    return hits, misses


def test_rules_of_pyverbs(fabric: str, ends: tuple[Peer, Peer]) -> None:
    sender, rest = ends
    with Peer(fabric, 1) as target:
        for case in cases():
            rule = target.flow(*case.specs)
            hits, misses = send_all(sender, case)
            assert [item.frame for item in target.receive(len(hits))] == hits, case.name
            assert [item.frame for item in rest.receive(len(misses))] == misses, case.name
            target.unflow(rule)
        # Without a rule all is for the rest; and what came too often anywhere would stand before this.
        last = bytes(packet())
        assert sender.send(last) == 0
        assert [item.frame for item in rest.receive(1)] == [last]
        assert target.receive(1, 0.0) == []


def test_dropping_and_refusing_rules_of_pyverbs(fabric: str, ends: tuple[Peer, Peer]) -> None:
    sender, rest = ends
    with Peer(fabric, 1) as target:
        for case in (case for case in cases() if case.name in ("three-udp4", "five-tcp6", "vxlan-three-udp4-over4")):
            rule = target.flow(*case.specs, ("drop_spec", {}))
            _, misses = send_all(sender, case)
            assert [item.frame for item in rest.receive(len(misses))] == misses, case.name
            target.unflow(rule)
        assert target.receive(1, 0.0) == []
        assert rest.receive(1, 0.0) == []
        # NVGRE is GRE with a key.
        with pytest.raises(AssertionError, match="not supported"):
            target.flow(OWN, ("gre_spec", {}))


@pytest.mark.parametrize("queues", [1, 4])
def test_rules_of_the_engine(fabric: str, ends: tuple[Peer, Peer], queues: int, tmp_path: Path) -> None:
    """What reached the engine is in its capture, frame by frame."""
    sender, rest = ends
    file = tmp_path / "engine.pcapng"
    interface = f"softnic:fabric={fabric},port=1,addr=10.99.0.1/24,name=sn0"
    expected: list[bytes] = []
    with Actor([interface], env={"PYVMA_RX_QUEUES": str(queues), "PYVMA_PCAP_FILE": str(file)}) as engine:
        found = engine("import pyvma.ring as ring\nsn0 = ring.interfaces()[0]\n(sn0.queues, sn0.flow_kinds, sn0.flow_match)")
        assert found == (queues, ("all", "ether", "ip", "3-tuple", "5-tuple"), ("tos", "flow-label", "vxlan", "sniffer"))
        engine(
            "import pyvma\n"
            "def steer(rule):\n"
            "    if 'inner' in rule: rule['inner'] = ring.FlowRule(**rule['inner'])\n"
            "    return ring.steer(sn0.index, ring.FlowRule(**rule))\n"
        )
        for case in cases():
            engine("now = steer(rule); 0", rule=case.rule)
            hits, misses = send_all(sender, case)
            expected += hits
            assert [item.frame for item in rest.receive(len(misses))] == misses, case.name
            engine("now.close()")
        last = bytes(packet())
        assert sender.send(last) == 0
        assert [item.frame for item in rest.receive(1)] == [last]
        wait_for("all frames", lambda: engine("pyvma.counters()['ring.sn0.rx_packets']") >= len(expected))
        engine("pyvma.stop()")
    got = [bytes(frame) for frame in rdpcap(str(file)) if frame.src == SENDER]
    # Queues are read in turn: over several the order is each flow's own.
    assert sorted(got) == sorted(expected)
    if queues == 1:
        assert got == expected


def test_what_the_engine_refuses(fabric: str) -> None:
    with Actor([f"softnic:fabric={fabric},port=1,addr=10.99.0.1/24,name=sn0"]) as engine:
        engine("import pyvma.ring as ring\nsn0 = ring.interfaces()[0]")
        refuse = "ring.steer(index, ring.FlowRule(**rule))"
        for rule, index, number in (
            ({"dst": HERE[4], "tunnel": "geneve"}, None, errno.EOPNOTSUPP),
            ({"dst": HERE[4], "tunnel": "nvgre"}, None, errno.EOPNOTSUPP),
            ({"dst": HERE[4]}, 4321, errno.ENODEV),
            ({"dst": HERE[4], "flow_label": 1}, None, errno.EINVAL),
            ({"tos": 1}, None, errno.EINVAL),
            ({"dst": HERE[4], "dst_port": 5}, None, errno.EINVAL),
            ({"dst": HERE[4], "tunnel": "vxlan", "protocol": "tcp"}, None, errno.EINVAL),
            ({"vlan": 4095}, None, errno.EINVAL),
        ):
            with pytest.raises(OSError) as raised:
                engine(refuse, rule=rule, index=engine("sn0.index") if index is None else index)
            assert raised.value.errno == number, rule
            assert len(str(raised.value)) > 25, rule
        for wrong in ({"dst": HERE[4], "vni": 1}, {"dst": "nowhere"}, {"dst_mac": "1:2"}, {"dst": HERE[4], "tos": 256}):
            with pytest.raises(ValueError):
                engine(refuse, rule=wrong, index=engine("sn0.index"))


def test_a_rule_brings_frames_to_a_socket(fabric: str) -> None:
    """A socket of a tunnel's end hears the networks that were asked for."""
    with Peer(fabric, 0) as sender, Actor([f"softnic:fabric={fabric},port=1,addr=10.99.0.1/24,name=sn0"]) as engine:
        engine(
            "import pyvma.ring as ring\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('10.99.0.1', 4789))\n"
            "rule = ring.steer(ring.interfaces()[0].index, ring.FlowRule(dst='10.99.0.1', tunnel='vxlan', vni=7)); 0"
        )
        frame = tunnel(7, packet(mac=INNER), dst="10.99.0.1", src="10.99.0.9")
        assert sender.send(bytes(frame)) == 0
        data, peer = engine("s.recvfrom(2000)")
        assert data == bytes(frame[UDP].payload)
        assert peer == ("10.99.0.9", SPORT)
        engine("rule.close()\nrule.close()")
