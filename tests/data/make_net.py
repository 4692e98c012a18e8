#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes net.txt, frames as scapy builds them, one `name hex` a line, for tests/native/net_*_test.c; and the seeds of fuzz_net_rx.

`rx_*` go in, `tx_*` are what must come out. Run it again after a change here; the tests know the names.
The host under test is .1, its neighbour .2, a router .254 with a far host 192.0.2.9 / 2001:db8::9 behind it.
"""

import pathlib

from scapy.contrib.igmp import IGMP
from scapy.contrib.igmpv3 import IGMPv3, IGMPv3gr, IGMPv3mq, IGMPv3mr
from scapy.layers import inet, inet6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw, raw

US, PEER, ALL = "02:00:00:00:00:01", "02:00:00:00:00:02", "ff:ff:ff:ff:ff:ff"
US4, PEER4, FAR4, BC4, G4 = "10.0.0.1", "10.0.0.2", "192.0.2.9", "10.0.0.255", "239.1.2.3"
US6, PEER6, FAR6, G6 = "fd00::1", "fd00::2", "2001:db8::9", "ff15::1:3"
USLL, PEERLL = "fe80::ff:fe00:1", "fe80::ff:fe00:2"
SN6 = "ff02::1:ff00:1"
RA = inet.IPOption_Router_Alert()
DATA = b"what the datagram says"
ECHO = bytes(range(256)) * 2


def eth(dst: str = US) -> Packet:
    return Ether(src=PEER, dst=dst)


def in4(**kw: object) -> Packet:
    return inet.IP(**{"src": PEER4, "dst": US4, **kw})


def in6(**kw: object) -> Packet:
    return inet6.IPv6(**{"src": PEER6, "dst": US6, **kw})


def out4(**kw: object) -> Packet:
    return Ether(src=US, dst=PEER) / inet.IP(**{"src": US4, "dst": PEER4, "id": 0, "flags": "DF", **kw})


def out6(**kw: object) -> Packet:
    return Ether(src=US, dst=PEER) / inet6.IPv6(**{"src": US6, "dst": PEER6, **kw})


def gmac4(group: str) -> str:
    b = [int(x) for x in group.split(".")]
    return f"01:00:5e:{b[1] & 0x7F:02x}:{b[2]:02x}:{b[3]:02x}"


UDP = inet.UDP(sport=7000, dport=9000) / Raw(DATA)
OUR_UDP = inet.UDP(sport=9000, dport=7000) / Raw(DATA)
SENT4 = raw(inet.IP(src=US4, dst=FAR4, id=0, flags="DF") / OUR_UDP)
SENT6 = raw(inet6.IPv6(src=US6, dst=FAR6) / OUR_UDP)
LONG4 = raw(inet.IP(src=US4, dst=FAR4, id=0, flags="DF") / inet.UDP(sport=9000, dport=7000) / Raw(bytes(1400)))
LONG6 = raw(inet6.IPv6(src=US6, dst=FAR6) / inet.UDP(sport=9000, dport=7000) / Raw(bytes(1400)))

packets: dict[str, Packet] = {
    # delivered
    "rx_udp4": eth() / in4(tos=0x2E, ttl=9, flags="DF") / UDP,
    "rx_udp4_opts": eth() / in4(options=[RA, inet.IPOption_NOP()]) / UDP,
    "rx_udp4_vlan": eth() / Dot1Q(vlan=100, prio=5) / in4() / UDP,
    "rx_udp4_prio": eth() / Dot1Q(vlan=0, prio=5) / in4() / UDP,
    "rx_udp4_qinq": eth() / Dot1AD(vlan=7) / Dot1Q(vlan=100) / in4() / UDP,
    "rx_udp4_bcast": eth(ALL) / in4(dst="255.255.255.255") / UDP,
    "rx_udp4_subnet": eth(ALL) / in4(dst=BC4) / UDP,
    "rx_udp4_mcast": eth(gmac4(G4)) / in4(dst=G4) / UDP,
    "rx_udp4_nocsum": eth() / in4() / inet.UDP(sport=7000, dport=9000, chksum=0) / Raw(DATA),
    "rx_udp4_badcsum": eth() / in4() / inet.UDP(sport=7000, dport=9000, chksum=0x1234) / Raw(DATA),
    "rx_udp6": eth() / in6(tc=0x2E, hlim=9, fl=0xABCDE) / UDP,
    "rx_udp6_nocsum": eth() / in6() / inet.UDP(sport=7000, dport=9000, chksum=0) / Raw(DATA),
    "rx_udp6_ext": eth()
    / in6()
    / inet6.IPv6ExtHdrHopByHop(options=[inet6.PadN(optdata=b"\0" * 4)])
    / inet6.IPv6ExtHdrDestOpt(options=[inet6.PadN(optdata=b"\0" * 12)])
    / inet6.IPv6ExtHdrRouting(type=0, addresses=[], segleft=0)
    / UDP,
    "rx_udp6_atomic": eth() / in6() / inet6.IPv6ExtHdrFragment(nh=17, offset=0, m=0, id=5) / UDP,
    "rx_udp6_mcast": eth("33:33:00:01:00:03") / in6(dst=G6) / UDP,
    "rx_tcp4": eth() / in4() / inet.TCP(sport=7000, dport=9000),
    "rx_tcp6": eth() / in6() / inet.TCP(sport=7000, dport=9000),
    # dropped
    "rx_not_ours_mac": eth("02:00:00:00:00:99") / in4() / UDP,
    "rx_not_ours_ip": eth() / in4(dst="10.0.0.77") / UDP,
    "rx_not_ours_ip6": eth() / in6(dst="fd00::77") / UDP,
    "rx_ethertype": Ether(src=PEER, dst=US, type=0x88B5) / Raw(bytes(46)),
    "rx_version4": eth() / in4(version=5) / UDP,
    "rx_ihl4": eth() / in4(ihl=4) / UDP,
    "rx_csum4": eth() / in4(chksum=0x1234) / UDP,
    "rx_src_loop4": eth() / in4(src="127.0.0.1") / UDP,
    "rx_src_mcast4": eth() / in4(src=G4) / UDP,
    "rx_src_self4": eth() / in4(src=US4) / UDP,
    "rx_src_bcast4": eth() / in4(src=BC4) / UDP,
    "rx_src_mcast6": eth() / in6(src=G6) / UDP,
    "rx_src_self6": eth() / in6(src=US6) / UDP,
    "rx_src_loop6": eth() / in6(src="::1") / UDP,
    "rx_lsrr": eth() / in4(options=[inet.IPOption_LSRR(routers=["1.2.3.4"], pointer=4)]) / UDP,
    "rx_badopt4": eth() / in4(options=[inet.IPOption_RR(length=64, routers=["0.0.0.0"])]) / UDP,
    "rx_badopt6": eth() / in6() / inet6.IPv6ExtHdrDestOpt(options=[inet6.HBHOptUnknown(otype=0x80, optdata=b"ab")]) / UDP,
    "rx_badopt6_mcast": eth("33:33:00:00:00:01")
    / in6(dst="ff02::1")
    / inet6.IPv6ExtHdrDestOpt(options=[inet6.HBHOptUnknown(otype=0xC3, optdata=b"ab")])
    / UDP,
    "rx_proto4": eth() / in4(proto=99) / Raw(bytes(16)),
    "rx_proto6": eth() / in6(nh=99) / Raw(bytes(16)),
    "rx_proto6_ext": eth() / in6() / inet6.IPv6ExtHdrDestOpt(nh=99) / Raw(bytes(16)),
    # ICMP
    "rx_echo4": eth() / in4(tos=0x20, id=77) / inet.ICMP(type=8, id=3, seq=4) / Raw(ECHO),
    "tx_echo4": out4(tos=0x20, flags=0) / inet.ICMP(type=0, id=3, seq=4) / Raw(ECHO),
    "rx_echo4_bcast": eth(ALL) / in4(dst=BC4) / inet.ICMP(type=8, id=3, seq=4) / Raw(ECHO),
    "rx_echo4_badcsum": eth() / in4() / inet.ICMP(type=8, id=3, seq=4, chksum=1) / Raw(ECHO),
    "rx_echo6": eth() / in6(tc=0x20) / inet6.ICMPv6EchoRequest(id=3, seq=4, data=ECHO),
    "tx_echo6": out6(tc=0x20) / inet6.ICMPv6EchoReply(id=3, seq=4, data=ECHO),
    "rx_echo6_mcast": eth("33:33:00:00:00:01") / in6(dst="ff02::1") / inet6.ICMPv6EchoRequest(id=3, seq=4, data=ECHO),
    "tx_echo6_mcast": out6() / inet6.ICMPv6EchoReply(id=3, seq=4, data=ECHO),
    "rx_echo6_badcsum": eth() / in6() / inet6.ICMPv6EchoRequest(id=3, seq=4, cksum=1, data=ECHO),
    "tx_port4": out4(tos=0xC0, flags=0) / inet.ICMP(type=3, code=3) / Raw(raw(in4(tos=0x2E, ttl=9, flags="DF") / UDP)),
    "tx_port6": out6() / inet6.ICMPv6DestUnreach(code=4) / Raw(raw(in6(tc=0x2E, hlim=9, fl=0xABCDE) / UDP)),
    "tx_proto4": out4(tos=0xC0, flags=0) / inet.ICMP(type=3, code=2) / Raw(raw(in4(proto=99) / Raw(bytes(16)))),
    "tx_proto6": out6() / inet6.ICMPv6ParamProblem(code=1, ptr=6) / Raw(raw(in6(nh=99) / Raw(bytes(16)))),
    "tx_proto6_ext": out6() / inet6.ICMPv6ParamProblem(code=1, ptr=40) / Raw(raw(in6() / inet6.IPv6ExtHdrDestOpt(nh=99) / Raw(bytes(16)))),
    "tx_badopt6": out6()
    / inet6.ICMPv6ParamProblem(code=2, ptr=42)
    / Raw(raw(in6() / inet6.IPv6ExtHdrDestOpt(options=[inet6.HBHOptUnknown(otype=0x80, optdata=b"ab")]) / UDP)),
    **{f"rx_unreach4_{c}": eth() / in4(src="198.51.100.1") / inet.ICMP(type=3, code=c) / Raw(SENT4) for c in (*range(4), *range(5, 16))},
    "rx_unreach4_99": eth() / in4() / inet.ICMP(type=3, code=99) / Raw(SENT4),
    "rx_frag_needed": eth() / in4(src="198.51.100.1") / inet.ICMP(type=3, code=4, nexthopmtu=1300) / Raw(LONG4[:548]),
    "rx_frag_needed_small": eth() / in4(src="198.51.100.1") / inet.ICMP(type=3, code=4, nexthopmtu=300) / Raw(LONG4[:548]),
    "rx_frag_needed_fits": eth() / in4(src="198.51.100.1") / inet.ICMP(type=3, code=4, nexthopmtu=1480) / Raw(LONG4[:548]),
    "rx_ttl4": eth() / in4(src="198.51.100.1") / inet.ICMP(type=11, code=0) / Raw(SENT4),
    "rx_param4": eth() / in4(src="198.51.100.1") / inet.ICMP(type=12, code=0, ptr=1) / Raw(SENT4),
    "rx_quench4": eth() / in4(src="198.51.100.1") / inet.ICMP(type=4, code=0) / Raw(SENT4),
    "rx_error4_foreign": eth() / in4() / inet.ICMP(type=3, code=3) / Raw(raw(inet.IP(src="10.0.0.9", dst=FAR4) / OUR_UDP)),
    "rx_error4_short": eth() / in4() / inet.ICMP(type=3, code=3) / Raw(SENT4[:24]),
    **{
        f"rx_unreach6_{c}": eth() / in6(src="2001:db8::1") / inet6.ICMPv6DestUnreach(code=c) / Raw(SENT6) for c in (0, 1, 2, 3, 4, 5, 6, 77)
    },
    "rx_too_big": eth() / in6(src="2001:db8::1") / inet6.ICMPv6PacketTooBig(mtu=1300) / Raw(LONG6[:1232]),
    "rx_too_big_small": eth() / in6(src="2001:db8::1") / inet6.ICMPv6PacketTooBig(mtu=600) / Raw(LONG6[:1232]),
    "rx_too_big_fits": eth() / in6(src="2001:db8::1") / inet6.ICMPv6PacketTooBig(mtu=1480) / Raw(LONG6[:1232]),
    "rx_ttl6": eth() / in6(src="2001:db8::1") / inet6.ICMPv6TimeExceeded(code=0) / Raw(SENT6),
    "rx_param6": eth() / in6(src="2001:db8::1") / inet6.ICMPv6ParamProblem(code=0, ptr=4) / Raw(SENT6),
    "rx_error6_foreign": eth() / in6() / inet6.ICMPv6DestUnreach(code=4) / Raw(raw(inet6.IPv6(src="fd00::9", dst=FAR6) / OUR_UDP)),
    "rx_unreach4_icmp": eth() / in4() / inet.ICMP(type=3, code=1) / Raw(raw(inet.IP(src=US4, dst=FAR4) / inet.ICMP(type=8))),
    "rx_unreach6_icmp": eth()
    / in6()
    / inet6.ICMPv6DestUnreach(code=3)
    / Raw(raw(inet6.IPv6(src=US6, dst=FAR6) / inet6.ICMPv6EchoRequest())),
    "rx_echo_reply4": eth() / in4() / inet.ICMP(type=0, id=3, seq=4) / Raw(ECHO),
    "rx_echo_reply6": eth() / in6() / inet6.ICMPv6EchoReply(id=3, seq=4, data=ECHO),
    "rx_redirect4": eth() / in4() / inet.ICMP(type=5, code=1, gw="10.0.0.9") / Raw(SENT4),
    "rx_type6_100": eth() / in6() / inet6.ICMPv6Unknown(type=100, msgbody=bytes(4) + SENT6),
    "rx_type6_200": eth() / in6() / inet6.ICMPv6Unknown(type=200, msgbody=bytes(8)),
    "rx_icmp4_short": eth() / in4(proto=1) / Raw(b"\x08\x00\xf7\xff"),
    "rx_icmp6_short": eth() / in6(nh=58) / Raw(b"\x80\x00\x00\x00"),
    "rx_udp6_none": eth() / in6(nh=59),
    "rx_udp4_from_any": eth(ALL) / in4(src="0.0.0.0", dst="255.255.255.255") / UDP,
    "rx_tcp4_from_any": eth(ALL) / in4(src="0.0.0.0", dst="255.255.255.255") / inet.TCP(),
    "rx_dst_any4": eth() / in4(dst="0.0.0.0") / UDP,
    "rx_dst_any6": eth() / in6(dst="::") / UDP,
    "rx_version6": eth() / in6(version=7) / UDP,
    # ARP
    "rx_arp_request": eth(ALL) / ARP(op=1, hwsrc=PEER, psrc=PEER4, hwdst="00:00:00:00:00:00", pdst=US4),
    "tx_arp_reply": Ether(src=US, dst=PEER) / ARP(op=2, hwsrc=US, psrc=US4, hwdst=PEER, pdst=PEER4),
    "rx_arp_reply": eth() / ARP(op=2, hwsrc=PEER, psrc=PEER4, hwdst=US, pdst=US4),
    "rx_arp_reply_new_mac": Ether(src="02:00:00:00:00:22", dst=US) / ARP(op=2, hwsrc="02:00:00:00:00:22", psrc=PEER4, hwdst=US, pdst=US4),
    "tx_arp_request": Ether(src=US, dst=ALL) / ARP(op=1, hwsrc=US, psrc=US4, hwdst="00:00:00:00:00:00", pdst=PEER4),
    "tx_arp_probe_known": Ether(src=US, dst=PEER) / ARP(op=1, hwsrc=US, psrc=US4, hwdst="00:00:00:00:00:00", pdst=PEER4),
    "tx_arp_announce": Ether(src=US, dst=ALL) / ARP(op=1, hwsrc=US, psrc=US4, hwdst="00:00:00:00:00:00", pdst=US4),
    "rx_arp_probe": eth(ALL) / ARP(op=1, hwsrc=PEER, psrc="0.0.0.0", hwdst="00:00:00:00:00:00", pdst=US4),
    "tx_arp_probe_reply": Ether(src=US, dst=PEER) / ARP(op=2, hwsrc=US, psrc=US4, hwdst=PEER, pdst="0.0.0.0"),
    "rx_arp_conflict": eth(ALL) / ARP(op=1, hwsrc=PEER, psrc=US4, hwdst="00:00:00:00:00:00", pdst=US4),
    "rx_arp_offlink": eth(ALL) / ARP(op=1, hwsrc=PEER, psrc="172.16.0.9", hwdst="00:00:00:00:00:00", pdst=US4),
    "rx_arp_other": eth(ALL) / ARP(op=1, hwsrc=PEER, psrc=PEER4, hwdst="00:00:00:00:00:00", pdst="10.0.0.3"),
    "rx_arp_bad_op": eth(ALL) / ARP(op=9, hwsrc=PEER, psrc=PEER4, pdst=US4),
    "rx_arp_bad_src": eth(ALL) / ARP(op=1, hwsrc=PEER, psrc=BC4, pdst=US4),
    # ND
    "rx_ns": eth("33:33:ff:00:00:01") / in6(dst=SN6, hlim=255) / inet6.ICMPv6ND_NS(tgt=US6) / inet6.ICMPv6NDOptSrcLLAddr(lladdr=PEER),
    "tx_na": out6(hlim=255) / inet6.ICMPv6ND_NA(tgt=US6, R=0, S=1, O=1) / inet6.ICMPv6NDOptDstLLAddr(lladdr=US),
    "rx_ns_hops": eth("33:33:ff:00:00:01") / in6(dst=SN6, hlim=64) / inet6.ICMPv6ND_NS(tgt=US6) / inet6.ICMPv6NDOptSrcLLAddr(lladdr=PEER),
    "rx_ns_dad": eth("33:33:ff:00:00:01") / in6(src="::", dst=SN6, hlim=255) / inet6.ICMPv6ND_NS(tgt=US6),
    "rx_ns_dad_lla": eth("33:33:ff:00:00:01")
    / in6(src="::", dst=SN6, hlim=255)
    / inet6.ICMPv6ND_NS(tgt=US6)
    / inet6.ICMPv6NDOptSrcLLAddr(lladdr=PEER),
    "tx_na_dad": Ether(src=US, dst="33:33:00:00:00:01")
    / inet6.IPv6(src=US6, dst="ff02::1", hlim=255)
    / inet6.ICMPv6ND_NA(tgt=US6, R=0, S=0, O=1)
    / inet6.ICMPv6NDOptDstLLAddr(lladdr=US),
    "tx_ns": Ether(src=US, dst="33:33:ff:00:00:02")
    / inet6.IPv6(src=US6, dst="ff02::1:ff00:2", hlim=255)
    / inet6.ICMPv6ND_NS(tgt=PEER6)
    / inet6.ICMPv6NDOptSrcLLAddr(lladdr=US),
    "tx_ns_probe": out6(hlim=255) / inet6.ICMPv6ND_NS(tgt=PEER6) / inet6.ICMPv6NDOptSrcLLAddr(lladdr=US),
    "rx_na": eth() / in6(hlim=255) / inet6.ICMPv6ND_NA(tgt=PEER6, R=0, S=1, O=1) / inet6.ICMPv6NDOptDstLLAddr(lladdr=PEER),
    "rx_na_no_override": eth()
    / in6(hlim=255)
    / inet6.ICMPv6ND_NA(tgt=PEER6, R=0, S=1, O=0)
    / inet6.ICMPv6NDOptDstLLAddr(lladdr="02:00:00:00:00:22"),
    "rx_na_override": eth()
    / in6(hlim=255)
    / inet6.ICMPv6ND_NA(tgt=PEER6, R=0, S=0, O=1)
    / inet6.ICMPv6NDOptDstLLAddr(lladdr="02:00:00:00:00:22"),
    "rx_na_mcast_solicited": eth("33:33:00:00:00:01")
    / in6(dst="ff02::1", hlim=255)
    / inet6.ICMPv6ND_NA(tgt=PEER6, R=0, S=1, O=1)
    / inet6.ICMPv6NDOptDstLLAddr(lladdr=PEER),
    "rx_na_of_ours": eth("33:33:00:00:00:01")
    / in6(dst="ff02::1", hlim=255)
    / inet6.ICMPv6ND_NA(tgt=US6, R=0, S=0, O=1)
    / inet6.ICMPv6NDOptDstLLAddr(lladdr=PEER),
    "rx_na_bare": eth() / in6(hlim=255) / inet6.ICMPv6ND_NA(tgt=PEER6, R=0, S=1, O=0),
    "rx_ns_other": eth("33:33:ff:00:00:01") / in6(dst=SN6, hlim=255) / inet6.ICMPv6ND_NS(tgt="fd00::5:0:1"),
    "rx_ra": eth("33:33:00:00:00:01") / in6(src=PEERLL, dst="ff02::1", hlim=255) / inet6.ICMPv6ND_RA(),
    "rx_ra_global": eth("33:33:00:00:00:01") / in6(dst="ff02::1", hlim=255) / inet6.ICMPv6ND_RA(),
    # groups
    "rx_igmp_query3": eth("01:00:5e:00:00:01") / in4(dst="224.0.0.1", ttl=1, options=[RA]) / IGMPv3(type=0x11, mrcode=20) / IGMPv3mq(),
    "rx_igmp_query3_group": eth(gmac4(G4)) / in4(dst=G4, ttl=1, options=[RA]) / IGMPv3(type=0x11, mrcode=10) / IGMPv3mq(gaddr=G4),
    "rx_igmp_query2": eth("01:00:5e:00:00:01") / in4(dst="224.0.0.1", ttl=1, options=[RA]) / IGMP(type=0x11, mrcode=20),
    "rx_igmp_query1": eth("01:00:5e:00:00:01") / in4(dst="224.0.0.1", ttl=1) / IGMP(type=0x11, mrcode=0),
    "rx_igmp_report2": eth(gmac4(G4)) / in4(src="10.0.0.3", dst=G4, ttl=1, options=[RA]) / IGMP(type=0x16, gaddr=G4),
    "rx_igmp_badcsum": eth("01:00:5e:00:00:01") / in4(dst="224.0.0.1", ttl=1) / IGMP(type=0x11, mrcode=20, chksum=1),
    "rx_mld_query2": eth("33:33:00:00:00:01")
    / in6(src=PEERLL, dst="ff02::1", hlim=1)
    / inet6.IPv6ExtHdrHopByHop(options=[inet6.RouterAlert()])
    / inet6.ICMPv6MLQuery2(mrd=1000),
    "rx_mld_query1": eth("33:33:00:00:00:01")
    / in6(src=PEERLL, dst="ff02::1", hlim=1)
    / inet6.IPv6ExtHdrHopByHop(options=[inet6.RouterAlert()])
    / inet6.ICMPv6MLQuery(mrd=1000),
    "rx_mld_query_no_alert": eth("33:33:00:00:00:01") / in6(src=PEERLL, dst="ff02::1", hlim=1) / inet6.ICMPv6MLQuery2(mrd=1000),
    "rx_mld_report1": eth("33:33:00:01:00:03")
    / in6(src=PEERLL, dst=G6, hlim=1)
    / inet6.IPv6ExtHdrHopByHop(options=[inet6.RouterAlert()])
    / inet6.ICMPv6MLReport(mladdr=G6),
    # sending
    "tx_udp4": out4(tos=0x2E, ttl=9) / OUR_UDP,
    "tx_udp4_vlan": Ether(src=US, dst=PEER) / Dot1Q(vlan=100) / inet.IP(src=US4, dst=PEER4, id=0, flags="DF", tos=0x2E, ttl=9) / OUR_UDP,
    "tx_udp6": out6(tc=0x2E, hlim=9, fl=0xABCDE) / OUR_UDP,
    "tx_udp4_mcast": Ether(src=US, dst=gmac4(G4)) / inet.IP(src=US4, dst=G4, id=0, flags="DF", tos=0x2E, ttl=9) / OUR_UDP,
    "tx_udp4_bcast": Ether(src=US, dst=ALL) / inet.IP(src=US4, dst=BC4, id=0, flags="DF", tos=0x2E, ttl=9) / OUR_UDP,
    "tx_udp6_mcast": Ether(src=US, dst="33:33:00:01:00:03") / inet6.IPv6(src=US6, dst=G6, tc=0x2E, hlim=9, fl=0xABCDE) / OUR_UDP,
}


def reports() -> dict[str, Packet]:
    def igmp(dst: str, body: Packet) -> Packet:
        ip = inet.IP(src=US4, dst=dst, id=0, flags="DF", ttl=1, tos=0xC0, options=[RA])
        return Ether(src=US, dst=gmac4(dst)) / ip / body

    def igmp3(rtype: int, sources: list[str]) -> Packet:
        rec = IGMPv3gr(rtype=rtype, maddr=G4, srcaddrs=sources, numsrc=len(sources))
        return igmp("224.0.0.22", IGMPv3(type=0x22, mrcode=0) / IGMPv3mr(numgrp=1, records=[rec]))

    def mld(dst: str, mac: str, body: Packet) -> Packet:
        ip = inet6.IPv6(src=USLL, dst=dst, hlim=1)
        return Ether(src=US, dst=mac) / ip / inet6.IPv6ExtHdrHopByHop(options=[inet6.RouterAlert(), inet6.PadN()]) / body

    def mld2(rtype: int, sources: list[str]) -> Packet:
        rec = inet6.ICMPv6MLDMultAddrRec(rtype=rtype, dst=G6, sources=sources)
        return mld("ff02::16", "33:33:00:00:00:16", inet6.ICMPv6MLReport2(records=[rec]))

    return {
        "tx_igmp3_join": igmp3(4, []),
        "tx_igmp3_leave": igmp3(3, []),
        "tx_igmp3_source": igmp3(3, [PEER4]),
        "tx_igmp3_current": igmp3(2, []),
        "tx_igmp2_join": igmp(G4, IGMP(type=0x16, mrcode=0, gaddr=G4)),
        "tx_igmp2_leave": igmp("224.0.0.2", IGMP(type=0x17, mrcode=0, gaddr=G4)),
        "tx_igmp1_join": igmp(G4, IGMP(type=0x12, mrcode=0, gaddr=G4)),
        "tx_mld2_join": mld2(4, []),
        "tx_mld2_leave": mld2(3, []),
        "tx_mld2_source": mld2(3, [PEER6]),
        "tx_mld2_current": mld2(2, []),
        "tx_mld1_join": mld(G6, "33:33:00:01:00:03", inet6.ICMPv6MLReport(mladdr=G6)),
        "tx_mld1_leave": mld("ff02::2", "33:33:00:00:00:02", inet6.ICMPv6MLDone(mladdr=G6)),
    }


def fragments() -> dict[str, Packet]:
    big4 = in4(id=0x1234) / inet.UDP(sport=7000, dport=9000) / Raw(bytes(i % 251 for i in range(3000)))
    big6 = in6() / inet6.IPv6ExtHdrFragment(id=0xCAFE) / inet.UDP(sport=7000, dport=9000) / Raw(bytes(i % 251 for i in range(3000)))
    out = {f"rx_frag4_{i}": eth() / p for i, p in enumerate(inet.fragment(big4, 1000))}
    out |= {f"rx_frag6_{i}": eth() / p for i, p in enumerate(inet6.fragment6(big6, 1280))}
    mine4 = (
        inet.IP(src=US4, dst=PEER4, id=0x4321, tos=0x2E, ttl=9)
        / inet.UDP(sport=9000, dport=7000)
        / Raw(bytes(i % 251 for i in range(3000)))
    )
    mine6 = (
        inet6.IPv6(src=US6, dst=PEER6, tc=0x2E, hlim=9, fl=0xABCDE)
        / inet6.IPv6ExtHdrFragment(id=0xBEEF)
        / inet.UDP(sport=9000, dport=7000)
        / Raw(bytes(i % 251 for i in range(3000)))
    )
    out |= {f"tx_frag4_{i}": Ether(src=US, dst=PEER) / p for i, p in enumerate(inet.fragment(mine4, 1480))}
    out |= {f"tx_frag6_{i}": Ether(src=US, dst=PEER) / p for i, p in enumerate(inet6.fragment6(mine6, 1500))}
    return out


here = pathlib.Path(__file__).parent
frames = {name: raw(packet) for name, packet in (packets | reports() | fragments()).items()}
(here / "net.txt").write_text("".join(f"{name} {data.hex()}\n" for name, data in frames.items()))

# Steps of fuzz_net_rx.c: a datagram to the peer by IPv4 and IPv6, two groups, then a frame with its checksums mended; the fragments of
# one datagram together; some time.
seeds = here.parent / "fuzz" / "corpus" / "fuzz_net_rx"
seeds.mkdir(parents=True, exist_ok=True)
steps: dict[str, bytes] = {}
for name, data in frames.items():
    stem = name.rsplit("_", 1)[0]
    if name.startswith("tx_") or (stem.startswith("rx_unreach") and not name.endswith(("_1", "_icmp"))):
        continue
    name = stem if stem in ("rx_frag4", "rx_frag6") else name
    steps.setdefault(name, bytes([0, 1, 0, 0, 20, 1, 1, 1, 0, 20, 1, 2, 0, 2, 1]))
    steps[name] += bytes([3, 0xC0]) + len(data).to_bytes(2, "big") + data
for name, data in steps.items():
    (seeds / name).write_bytes(data + bytes([0, 2, 0]))
