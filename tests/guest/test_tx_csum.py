"""Checksums that are left to others (tests/interop/test_xdp_csum.py) where metadata of what is received are asked for, too."""

from __future__ import annotations

from actor import Actor
from veth import engine, namespaces


def test_behind_a_tag() -> None:
    with namespaces() as (here, there):
        there.ip("link", "add", "link", "v1", "name", "v1.5", "type", "vlan", "id", "5")
        there.ip("addr", "add", "10.85.0.2/24", "dev", "v1.5")
        there.ip("link", "set", "v1.5", "up")
        there.run("ethtool", "-K", "v1", "rxvlan", "off")
        with engine(here, ",mode=native,tx_csum=kernel,rx_metadata=auto,addr=10.85.0.1/24,vlan=5") as ours:
            with Actor(netns=there.name) as kernel:
                ours("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('10.85.0.1', 7))")
                kernel("k = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nk.settimeout(20)\nk.connect(('10.85.0.1', 7))")
                ours.start("data, peer = s.recvfrom(2000)\ns.sendto(data, peer)\ns.offload.state")
                kernel("k.send(b'tagged')")
                assert ours.finish() == "offloaded" and kernel("k.recv(100)") == b"tagged"
