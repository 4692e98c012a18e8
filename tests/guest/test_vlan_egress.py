"""PCP in tags of what is sent: ours by `egress=` beside the kernel's VLAN device with the same egress-qos-map, for the same options of the
same kinds of sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from actor import Actor
from veth import namespaces

VLAN = 5
OURS = {4: "10.85.0.1", 6: "fd85::1"}
KERNELS = {4: "10.85.0.2", 6: "fd85::2"}
MAPS = [{}, {0: 1}, {0: 3, 2: 7, 4: 5, 6: 6}, {1: 0, 5: 2, 15: 4}]
# A tag is in the frame or, in struct tpacket_auxdata, beside it.
WATCH = """
w = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
w.bind(("v1", 3))
w.setsockopt(263, 8, 1)
w.settimeout(20)
def tag(text):
    # PCP and VLAN of the next frame that ends in it.
    while True:
        data, told, _, _ = w.recvmsg(2000, 1000)
        if not data.endswith(text):
            continue
        status, tci = struct.unpack_from("@I", told[0][2])[0], struct.unpack_from("@H", told[0][2], 16)[0]
        if not status & 0x10:
            kind, tci = struct.unpack_from("!HH", data, 12)
            assert kind == 0x8100, data
        return tci >> 13, tci & 0xfff
"""
SEND = """
s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
if tos is not None:
    s.setsockopt(*((socket.IPPROTO_IP, socket.IP_TOS) if family == 4 else (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)), tos)
if priority is not None:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
s.sendto(text, (host, 7))
s.close()
"""
CASES = [(None, priority) for priority in (*range(7), None)] + [(tos, None) for tos in (0, 0x08, 0x10, 0x18, 0x04, 0x1C, 0xB8, 0xE0)]
CASES += [(0x10, 3), (0x10, 0)]


@contextmanager
def both(egress: dict[int, int]) -> Iterator[tuple[Actor, Actor]]:
    with namespaces() as (here, there):
        qos = [f"{priority}:{pcp}" for priority, pcp in egress.items()]
        there.run("ethtool", "-K", "v1", "txvlan", "off")
        mapped = ["egress-qos-map", *qos] if qos else []
        there.ip("link", "add", "link", "v1", "name", "v1.5", "type", "vlan", "id", str(VLAN), *mapped)
        there.ip("addr", "add", f"{KERNELS[4]}/24", "dev", "v1.5")
        there.ip("addr", "add", f"{KERNELS[6]}/64", "dev", "v1.5", "nodad")
        there.ip("link", "set", "v1.5", "up")
        spec = f"xdp:device=v0,addr={OURS[4]}/24,addr={OURS[6]}/64,vlan={VLAN}" + "".join(f",egress={one}" for one in qos)
        with Actor([spec], netns=here.name) as ours, Actor(netns=there.name) as kernel:
            yield ours, kernel


@pytest.mark.parametrize("egress", MAPS, ids=str)
def test_as_the_kernel(egress: dict[int, int]) -> None:
    with both(egress) as (ours, kernel):
        kernel(WATCH)
        seen = {}
        for family in (4, 6):
            ours(f"k = socket.socket(socket.AF_INET{'' if family == 4 else '6'}, socket.SOCK_DGRAM)\nk.bind((host, 7))", host=OURS[family])
            assert ours("k.offload.state") == "offloaded"
            for number, (tos, priority) in enumerate(CASES):
                names = {"family": family, "tos": tos, "priority": priority}
                text = b"case %03d" % number
                ours(SEND, host=KERNELS[family], text=text + b" ours", **names)
                seen[family, tos, priority] = kernel("tag(text)", text=text + b" ours")
                kernel(SEND, host=OURS[family], text=text + b" kernel's", **names)
                assert seen[family, tos, priority] == kernel("tag(text)", text=text + b" kernel's"), names
        # Both speak of tags, and of different ones where the map has any.
        assert {vlan for _, vlan in seen.values()} == {VLAN}
        assert {pcp for pcp, _ in seen.values()} == {egress.get(priority, 0) for priority in range(7)}
