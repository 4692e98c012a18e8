#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes wire.txt, packets as scapy builds them, one `name hex` a line, for tests/native/wire_*_test.c; and the seeds of fuzz_wire
and fuzz_tcp_opts.

Run it again after a change here; the tests know the names.
"""

import pathlib

from scapy.contrib.igmp import IGMP
from scapy.contrib.igmpv3 import IGMPv3, IGMPv3gr, IGMPv3mq, IGMPv3mr
from scapy.layers import inet, inet6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
A4, B4, G4 = "10.99.0.1", "10.99.0.2", "239.1.2.3"
A6, B6, G6 = "fd00:99::1", "fd00:99::2", "ff15::1:3"
LL6 = "fe80::1"


def ether(payload: Packet) -> Packet:
    return Ether(src=A, dst=B) / payload


def ip4(**kw: object) -> Packet:
    return inet.IP(src=A4, dst=B4, **kw)


def ip6(**kw: object) -> Packet:
    return inet6.IPv6(src=A6, dst=B6, **kw)


UDP = inet.UDP(sport=40000, dport=9000) / Raw(b"payload of a datagram")
RA_OPT = inet.IPOption_Router_Alert()
TS = ("Timestamp", (0x01020304, 0xF0E0D0C0))
NOP = ("NOP", None)


def tcp(*options: tuple[str, object], **kw: object) -> Packet:
    return inet.TCP(**{"sport": 40000, "dport": 80, "seq": 0x11223344, "ack": 0x55667788, "options": list(options)} | kw)


packets: dict[str, Packet] = {
    "eth_udp4": ether(ip4(id=7, ttl=9, tos=0x2E, flags="DF") / UDP),
    "eth_vlan": Ether(src=A, dst=B) / Dot1Q(vlan=100, prio=5) / ip4() / UDP,
    "eth_qinq": Ether(src=A, dst=B) / Dot1AD(vlan=200) / Dot1Q(vlan=100) / ip4() / UDP,
    "arp_request": ARP(op=1, hwsrc=A, psrc=A4, hwdst="00:00:00:00:00:00", pdst=B4),
    "arp_reply": ARP(op=2, hwsrc=B, psrc=B4, hwdst=A, pdst=A4),
    "ip4_frag_first": ip4(id=0x1234, flags="MF", frag=0, proto=17) / Raw(bytes(64)),
    "ip4_frag_last": ip4(id=0x1234, frag=8, proto=17) / Raw(bytes(10)),
    "ip4_router_alert": ip4(options=[RA_OPT]) / UDP,
    "ip4_rr_ts": ip4(options=[inet.IPOption_RR(routers=["0.0.0.0"] * 3), inet.IPOption_Timestamp(flg=1)]) / UDP,
    "ip4_lsrr_left": ip4(options=[inet.IPOption_LSRR(routers=["1.2.3.4"], pointer=4)]) / UDP,
    "ip4_ssrr_done": ip4(options=[inet.IPOption_SSRR(routers=["1.2.3.4"], pointer=8)]) / UDP,
    "ip6_udp": ip6(tc=0x2E, fl=0xABCDE, hlim=9) / UDP,
    "ip6_hbh_ra": ip6() / inet6.IPv6ExtHdrHopByHop(options=[inet6.RouterAlert()]) / inet6.ICMPv6MLReport2(),
    "ip6_chain": ip6()
    / inet6.IPv6ExtHdrHopByHop(options=[inet6.PadN(optdata=b"\0" * 4)])
    / inet6.IPv6ExtHdrDestOpt(options=[inet6.PadN(optdata=b"\0" * 12)])
    / inet6.IPv6ExtHdrRouting(type=0, addresses=[], segleft=0)
    / UDP,
    "ip6_routing_left": ip6() / inet6.IPv6ExtHdrRouting(type=0, addresses=[B6], segleft=1) / UDP,
    "ip6_frag_first": ip6() / inet6.IPv6ExtHdrFragment(nh=17, offset=0, m=1, id=0xCAFE) / Raw(bytes(64)),
    "ip6_frag_last": ip6() / inet6.IPv6ExtHdrDestOpt() / inet6.IPv6ExtHdrFragment(nh=17, offset=8, m=0, id=0xCAFE) / Raw(bytes(9)),
    "ip6_frag_atomic": ip6() / inet6.IPv6ExtHdrFragment(offset=0, m=0, id=1) / UDP,
    "ip6_unknown_skip": ip6() / inet6.IPv6ExtHdrDestOpt(options=[inet6.HBHOptUnknown(otype=0x1E, optdata=b"ab")]) / UDP,
    "ip6_unknown_drop": ip6() / inet6.IPv6ExtHdrDestOpt(options=[inet6.HBHOptUnknown(otype=0x5E, optdata=b"ab")]) / UDP,
    "ip6_unknown_icmp": ip6() / inet6.IPv6ExtHdrDestOpt(options=[inet6.HBHOptUnknown(otype=0x9E, optdata=b"ab")]) / UDP,
    "ip6_unknown_unicast": ip6() / inet6.IPv6ExtHdrDestOpt(options=[inet6.HBHOptUnknown(otype=0xDE, optdata=b"ab")]) / UDP,
    "ip6_jumbo": ip6() / inet6.IPv6ExtHdrHopByHop(options=[inet6.Jumbo(jumboplen=100000)]) / UDP,
    "ip6_none": ip6(nh=59),
    "icmp4_echo": inet.ICMP(type=8, id=0x77, seq=5) / Raw(b"ping"),
    "icmp4_port": inet.ICMP(type=3, code=3) / ip4(id=7) / UDP,
    "icmp4_frag_needed": inet.ICMP(type=3, code=4, nexthopmtu=1300) / ip4(len=1500, flags="DF") / inet.UDP(sport=1, dport=2, len=1480),
    "icmp4_later_fragment": inet.ICMP(type=11, code=1) / ip4(frag=3, proto=17) / Raw(bytes(16)),
    "icmp6_echo": ip6() / inet6.ICMPv6EchoRequest(id=0x77, seq=5, data=b"ping"),
    "icmp6_too_big": ip6() / inet6.ICMPv6PacketTooBig(mtu=1400) / ip6() / UDP,
    "icmp6_port_ext": ip6() / inet6.ICMPv6DestUnreach(code=4) / ip6() / inet6.IPv6ExtHdrDestOpt() / UDP,
    "nd_ns": inet6.IPv6(src=A6, dst="ff02::1:ff00:2", hlim=255) / inet6.ICMPv6ND_NS(tgt=B6) / inet6.ICMPv6NDOptSrcLLAddr(lladdr=A),
    "nd_ns_dad": inet6.IPv6(src="::", dst="ff02::1:ff00:2", hlim=255) / inet6.ICMPv6ND_NS(tgt=B6),
    "nd_na": ip6(hlim=255) / inet6.ICMPv6ND_NA(R=0, S=1, O=1, tgt=A6) / inet6.ICMPv6NDOptDstLLAddr(lladdr=A),
    "nd_rs": inet6.IPv6(src=LL6, dst="ff02::2", hlim=255) / inet6.ICMPv6ND_RS() / inet6.ICMPv6NDOptSrcLLAddr(lladdr=A),
    "nd_ra": inet6.IPv6(src=LL6, dst="ff02::1", hlim=255)
    / inet6.ICMPv6ND_RA(chlim=64, M=1, O=0, prf=0, routerlifetime=1800, reachabletime=30000, retranstimer=1000)
    / inet6.ICMPv6NDOptSrcLLAddr(lladdr=B)
    / inet6.ICMPv6NDOptMTU(mtu=1480)
    / inet6.ICMPv6NDOptPrefixInfo(prefixlen=64, L=1, A=0, validlifetime=7200, preferredlifetime=3600, prefix="fd00:99::")
    / inet6.ICMPv6NDOptUnknown(type=200, len=1, data=b"abcdef"),
    "mld1_query": inet6.IPv6(src=LL6, dst=G6, hlim=1) / inet6.ICMPv6MLQuery(mladdr=G6, mrd=1500),
    "mld1_report": inet6.IPv6(src=LL6, dst=G6, hlim=1) / inet6.ICMPv6MLReport(mladdr=G6),
    "mld2_query": inet6.IPv6(src=LL6, dst=G6, hlim=1) / inet6.ICMPv6MLQuery2(mladdr=G6, mrd=0x9234, sources=[A6, B6]),
    "mld2_report": inet6.IPv6(src=LL6, dst="ff02::16", hlim=1)
    / inet6.ICMPv6MLReport2(
        records=[
            inet6.ICMPv6MLDMultAddrRec(rtype=4, dst=G6),
            inet6.ICMPv6MLDMultAddrRec(rtype=5, dst="ff15::9", sources=[A6, B6]),
        ]
    ),
    "igmp1_query": IGMP(type=0x11, mrcode=0, gaddr="0.0.0.0"),
    "igmp2_query": IGMP(type=0x11, mrcode=20, gaddr=G4),
    "igmp2_report": IGMP(type=0x16, mrcode=0, gaddr=G4),
    "igmp2_leave": IGMP(type=0x17, mrcode=0, gaddr=G4),
    "igmp3_query": IGMPv3(type=0x11, mrcode=0x9A) / IGMPv3mq(gaddr=G4, srcaddrs=[A4, B4]),
    "igmp3_report": IGMPv3(type=0x22)
    / IGMPv3mr(records=[IGMPv3gr(rtype=4, maddr=G4), IGMPv3gr(rtype=5, maddr="239.9.9.9", srcaddrs=[A4, B4])]),
    "tcp_syn": tcp(("MSS", 1460), ("SAckOK", b""), TS, NOP, ("WScale", 7), flags="S", window=64240),
    "tcp_syn_no_ts": tcp(("MSS", 1440), NOP, NOP, ("SAckOK", b""), NOP, ("WScale", 20), flags="SEC"),
    "tcp_plain": tcp(flags="PA", window=501, urgptr=7) / Raw(b"data"),
    "tcp_ts": tcp(NOP, NOP, TS, flags="A"),
    "tcp_sack": tcp(NOP, NOP, TS, NOP, NOP, ("SAck", (1000, 2000, 3000, 4000, 0xFFFFFFF0, 16)), flags="A"),
    "tcp_sack4": tcp(NOP, NOP, ("SAck", (1, 2, 3, 4, 5, 6, 7, 8)), flags="A"),
    "tcp_unknown": tcp((253, b"\xf9\x89abcd"), ("EOL", None), flags="S"),
}

# What fuzz_wire.c does with a seed (its first byte) by the packet's kind, and where the message starts in the packet.
TARGETS = {"eth": (0, 0), "arp": (1, 0), "ip4": (2, 0), "ip6": (3, 0), "icmp4": (4, 0), "icmp6": (5, 40), "nd": (5, 40)}
TARGETS |= {"mld1": (5, 40), "mld2": (5, 40), "igmp1": (6, 0), "igmp2": (6, 0), "igmp3": (6, 0)}

here = pathlib.Path(__file__).parent
corpus = here.parent / "fuzz" / "corpus"
seeds, tcp_seeds = corpus / "fuzz_wire", corpus / "fuzz_tcp_opts"
seeds.mkdir(parents=True, exist_ok=True)
tcp_seeds.mkdir(parents=True, exist_ok=True)
with open(here / "wire.txt", "w") as file:
    for name, packet in packets.items():
        data = bytes(packet)
        kind = name.split("_")[0]
        print(name, data.hex(), file=file)
        if kind == "tcp":
            (tcp_seeds / name).write_bytes(data)
            continue
        target, offset = TARGETS[kind]
        (seeds / name).write_bytes(bytes([target]) + data[offset:])
(seeds / "reports").write_bytes(bytes([7, 40, 0, 3, 16]))
