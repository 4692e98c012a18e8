#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes tests/data/bond_hash.txt: frames and what Linux's bonding driver hashes them to, by policy; and the seeds of fuzz_ring_bond.

The frames are scapy's, and the hash is a second implementation, from the formulas of Documentation/networking/bonding.rst
(xmit_hash_policy) and what the driver's comments say of fragments, ICMP errors and tunnels; it works on scapy's layers, not on bytes.

A line: policy (0 to 4), hash (hexadecimal), frame (hexadecimal).
"""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path
from socket import AF_INET6, inet_pton

from scapy.all import (  # type: ignore[attr-defined]
    AH,
    ARP,
    ESP,
    GRE,
    ICMP,
    IP,
    SCTP,
    TCP,
    UDP,
    VXLAN,
    Dot1Q,
    Ether,
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    IPerror,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    Packet,
    Raw,
    TCPerror,
    UDPerror,
    raw,
)
from scapy.layers.inet6 import IPerror6
from scapy.utils import inet_aton

FILE = Path(__file__).resolve().parent / "bond_hash.txt"
SEEDS = FILE.parent.parent / "fuzz" / "corpus" / "fuzz_ring_bond"
NATIVE = sys.byteorder
IP_TYPES = (IP, IPv6)
WITH_PORTS = (TCP, UDP, SCTP, TCPerror, UDPerror)


def address_word(text: str) -> int:
    """The words of an address, combined, as the machine that hashes reads them."""
    octets = inet_pton(AF_INET6, text) if ":" in text else inet_aton(text)
    word = 0
    for (part,) in struct.iter_unpack("=I", octets):
        word ^= part
    return word


def addresses(ip: Packet) -> int:
    return address_word(ip.src) ^ address_word(ip.dst)


def is_fragment(ip: Packet) -> bool:
    return isinstance(ip, IP) and (ip.frag != 0 or "MF" in str(ip.flags))


def ports(layer: Packet) -> int:
    """The first four bytes of a transport that has ports, or of ESP; of AH its index."""
    if isinstance(layer, WITH_PORTS):
        return int.from_bytes(struct.pack("!HH", layer.sport, layer.dport), NATIVE)
    if isinstance(layer, ESP):
        return int.from_bytes(struct.pack("!I", layer.spi), NATIVE)
    if isinstance(layer, AH):
        return int.from_bytes(struct.pack("!I", layer.spi), NATIVE)
    return 0


def icmp_key(layer: Packet) -> int:
    """Type, code and identifier of an echo; 0: it is none."""
    if (isinstance(layer, ICMP) and layer.type in (0, 8, 13, 14)) or isinstance(layer, ICMPv6EchoRequest):
        ident = layer.id or 1
    else:
        return 0
    return int.from_bytes(bytes((layer.type, layer.code)) + ident.to_bytes(2, NATIVE), NATIVE)


def ethernet(frame: Packet, kind: int) -> int:
    return int(frame.dst[-2:], 16) ^ int(frame.src[-2:], 16) ^ kind


def plain(ip: Packet) -> tuple[int, int, int]:
    """Policies 1 and 2: addresses, ports, ICMP key of the packet, or of the one that an ICMP error tells of."""
    inner = ip.payload
    if is_fragment(ip):
        return addresses(ip), 0, 0
    if isinstance(inner, ICMP) and inner.type in (3, 4, 5, 11, 12):
        told = inner.payload
        return addresses(told), 0 if is_fragment(told) else ports(told.payload), 0
    if isinstance(inner, ICMPv6DestUnreach):
        told = inner.payload
        return addresses(told), ports(told.payload), 0
    return addresses(ip), ports(inner), icmp_key(inner)


def deep(layer: Packet) -> tuple[int, int, int]:
    """Policies 3 and 4: as far as the flow dissector looks."""
    found = 0
    while True:
        if isinstance(layer, IP_TYPES):
            found = addresses(layer)
            if is_fragment(layer):
                return found, 0, 0
        elif isinstance(layer, IPv6ExtHdrFragment):
            return found, 0, 0
        elif not isinstance(layer, (GRE, Ether, Dot1Q, IPv6ExtHdrHopByHop, IPv6ExtHdrDestOpt)):
            return found, ports(layer), icmp_key(layer)
        layer = layer.payload


def fold(word: int) -> int:
    word ^= word >> 16
    return word ^ word >> 8


def bond_hash(frame: Packet, policy: int) -> int:
    layer = frame.payload
    kind = frame.type
    if isinstance(layer, Dot1Q):
        kind, layer = layer.type, layer.payload
    eth = ethernet(frame, kind)
    if policy == 0:
        return eth
    if isinstance(layer, ARP):
        # The flow dissector knows it, and finds no addresses.
        return {1: eth, 2: eth, 3: fold(eth), 4: 0}[policy]
    if not isinstance(layer, IP_TYPES):
        return eth
    addrs, port, icmp = (plain if policy < 3 else deep)(layer)
    if policy in (2, 3):
        return fold(eth ^ addrs)
    return fold((icmp or port) ^ addrs) >> 1


def frames(rng: random.Random) -> list[Packet]:
    """One of each shape, with addresses and ports of its own."""

    def mac() -> str:
        return "02:" + ":".join(f"{rng.randrange(256):02x}" for _ in range(5))

    def ip(**fields: object) -> Packet:
        return IP(src=f"10.{rng.randrange(256)}.{rng.randrange(256)}.1", dst=f"172.16.{rng.randrange(256)}.9", **fields)

    def ip6(**fields: object) -> Packet:
        return IPv6(src=f"2001:db8::{rng.randrange(1, 65535):x}", dst=f"fd00:{rng.randrange(65535):x}::7", **fields)

    def l4() -> Packet:
        kind = rng.choice((TCP, UDP, SCTP))
        return kind(sport=rng.randrange(1, 65536), dport=rng.randrange(1, 65536))

    def eth() -> Packet:
        return Ether(dst=mac(), src=mac())

    data = Raw(b"x" * rng.randrange(8, 40))
    told = IPerror(src="10.1.2.3", dst="10.3.2.1", proto=17) / UDPerror(sport=rng.randrange(65536), dport=53)
    told6 = IPerror6(src="fd00::1", dst="fd00::2", nh=6) / TCPerror(sport=rng.randrange(65536), dport=443)
    return [
        eth() / ip() / l4() / data,
        eth() / ip6() / l4() / data,
        eth() / Dot1Q(vlan=rng.randrange(1, 4094)) / ip() / l4() / data,
        eth() / Dot1Q(vlan=rng.randrange(1, 4094)) / ip6() / l4() / data,
        eth() / ip(options=[b"\x01" * 4]) / l4() / data,
        eth() / ip(flags="MF") / UDP(sport=1, dport=2) / data,
        eth() / ip(frag=100, proto=17) / data,
        eth() / ip6() / IPv6ExtHdrFragment(offset=0, m=1, nh=17) / UDP(sport=1, dport=2) / data,
        eth() / ip6() / IPv6ExtHdrHopByHop() / l4() / data,
        eth() / ip6() / IPv6ExtHdrDestOpt() / l4() / data,
        eth() / ip() / ICMP(type=8, id=rng.choice((0, rng.randrange(65536)))) / data,
        eth() / ip() / ICMP(type=3, code=1) / told / data,
        eth() / ip6() / ICMPv6EchoRequest(id=rng.randrange(65536)) / data,
        eth() / ip6() / ICMPv6DestUnreach() / told6 / data,
        eth() / ip() / ESP(spi=rng.randrange(1 << 32), data=b"y" * 20),
        eth() / ip() / AH(spi=rng.randrange(1 << 32), nh=6) / data,
        eth() / ip() / ip() / l4() / data,
        eth() / ip() / ip6() / l4() / data,
        eth() / ip6() / ip() / l4() / data,
        eth() / ip() / GRE() / ip() / l4() / data,
        eth() / ip6() / GRE(key_present=1, key=5) / ip6() / l4() / data,
        eth() / ip() / GRE(chksum_present=1, seqnum_present=1, seqence_number=9) / ip() / l4() / data,
        eth() / ip() / GRE(proto=0x6558) / eth() / ip() / l4() / data,
        eth() / ip() / GRE(proto=0x6558) / eth() / Dot1Q(vlan=7) / ip6() / l4() / data,
        eth() / ip() / GRE() / ip(flags="MF") / UDP(sport=3, dport=4) / data,
        eth() / ip() / UDP(sport=rng.randrange(49152, 65536), dport=4789) / VXLAN(vni=3) / eth() / ip() / l4() / data,
        eth() / ARP(psrc="10.0.0.1", pdst="10.0.0.2"),
        Ether(dst=mac(), src=mac(), type=0x88B5) / data,
    ]


def main() -> int:
    rng = random.Random(20)
    lines = ["# Written by make_bond_hash.py; for little-endian machines."]
    for _ in range(12):
        for frame in frames(rng):
            octets = raw(frame)
            again = Ether(octets)
            lines += [f"{policy} {bond_hash(again, policy):08x} {octets.hex()}" for policy in range(5)]
    FILE.write_text("\n".join(lines) + "\n")
    SEEDS.mkdir(exist_ok=True)
    for number, frame in enumerate(frames(rng)):
        (SEEDS / f"shape{number:02}").write_bytes(raw(frame))
    print(f"{len(lines) - 1} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
