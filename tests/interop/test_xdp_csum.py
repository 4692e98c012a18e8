"""Checksums of what an AF_XDP ring sends, left to the kernel and its devices by transmit metadata (Linux 6.11): what arrives at the other
end of a veth pair, and what of it still lacks its checksum there. With metadata of what is received, too: tests/guest."""

from __future__ import annotations

import os
import re
from functools import partial

import pytest
import veth
from actor import Actor
from netns import usable
from scapy.layers.inet import TCP, UDP
from scapy.layers.l2 import Ether
from veth import ENGINE, KERNEL, namespaces

KERNEL_HAS = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= (6, 11)
pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.skipif(not KERNEL_HAS, reason="no transmit metadata for checksums in copy mode before Linux 6.11: tools/guest.py has it"),
]
RING = "__import__('pyvma.ring').ring.interfaces()[0]"
SOL_PACKET, AUXDATA, CSUM_NOT_READY = 263, 8, 1 << 3
WATCH = f"""
w = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
w.bind(("v1", 3))
w.setsockopt({SOL_PACKET}, {AUXDATA}, 1)
w.settimeout(20)
def seen(peer):
    # Of each frame from that MAC: its bytes, and the status that the kernel has of it.
    out = []
    w.setblocking(False)
    while True:
        try:
            data, told, _, _ = w.recvmsg(70000, 1000)
        except BlockingIOError:
            w.settimeout(20)
            return out
        if data[6:12] == peer:
            out.append((data, int.from_bytes(told[0][2][:4], "little")))
"""


# Long segments go whole over veth, and not by the ring's queue.
engine = partial(veth.engine, env={"PYVMA_TSO": "0"})


def checked(data: bytes) -> bool:
    """Is the transport's checksum the one that it has to be?"""
    frame = Ether(data)
    layer = UDP if UDP in frame else TCP
    was = frame[layer].chksum
    del frame[layer].chksum
    return bool(Ether(bytes(frame))[layer].chksum == was)


def talk(ours: Actor, kernel: Actor, family: int) -> None:
    """Datagrams of some sizes, and a stream that is longer than a window, out of the engine; the kernel's answers come back."""
    socket_of = f"socket.socket(socket.{'AF_INET' if family == 4 else 'AF_INET6'}, socket."
    host = ENGINE[family]
    ours(f"s = {socket_of}SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 7))", host=host)
    kernel(f"k = {socket_of}SOCK_DGRAM)\nk.settimeout(20)\nk.connect((host, 7))", host=host)
    for size in (1, 64, 1400):
        ours.start("data, peer = s.recvfrom(2000)\ns.sendto(data, peer)\ns.offload.state")
        kernel("k.send(bytes(range(200)) * 7 if size == 1400 else bytes(size))", size=size)
        assert ours.finish() == "offloaded"
        assert len(kernel("k.recv(2000)")) == size
    ours("l = socket.create_server((host, 8), family=s.family)\nl.settimeout(20)", host=host)
    ours.start("c, _ = l.accept()\nc.settimeout(20)\nc.sendall(bytes(range(256)) * 800)\nc.offload.state")
    kernel("c = socket.create_connection((host, 8), timeout=20)\ngot = b''\nwhile len(got) < 204800: got += c.recv(65536)", host=host)
    assert ours.finish() == "offloaded"
    assert kernel("got == bytes(range(256)) * 800")
    ours("s.close(); c.close(); l.close()")
    kernel("k.close(); c.close()")


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize(
    ("csum", "by", "ready"),
    [("auto", "kernel", False), ("kernel", "kernel", False), ("software", "software", True), ("stack", "", True)],
)
def test_who_computes(csum: str, by: str, ready: bool, family: int) -> None:
    with namespaces() as (here, there), engine(here, f",tx_csum={csum}") as ours, Actor(netns=there.name) as kernel:
        ours("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((host, 9))", host=ENGINE[4])
        mode, note, bits, mac = ours(f"r = {RING}\nr.mode, r.note, r.tx_csum, r.mac")
        assert mode == "generic copy" + (f", checksums by {by}" if by else "")
        assert (note, sorted(bits)) == ("", ["tcp", "udp"] if by else [])
        kernel(WATCH)
        talk(ours, kernel, family)
        found = kernel("seen(mac)", mac=bytes.fromhex(mac.replace(":", "")))
        sums = [(data, status) for data, status in found if UDP in Ether(data) or TCP in Ether(data)]
        assert len([1 for data, _ in sums if UDP in Ether(data)]) == 3 and len(sums) > 20
        # What a virtual link leaves undone is begun: the pseudo-header is in the field.
        assert {bool(status & CSUM_NOT_READY) for _, status in sums} == {not ready}
        assert all(checked(data) for data, _ in sums) == ready


def test_a_device_that_computes_none() -> None:
    """Then auto leaves it to the stack, and the kernel does it itself where it is told to."""
    with namespaces() as (here, there):
        here.run("ethtool", "-K", "v0", "tx", "off")
        for csum, mode, note in (
            ("auto", "generic copy", "no tx_csum: the device computes none"),
            ("kernel", "generic copy, checksums by kernel", ""),
        ):
            with engine(here, f",tx_csum={csum}") as ours, Actor(netns=there.name) as kernel:
                kernel(WATCH)
                talk(ours, kernel, 4)
                assert ours(f"r = {RING}\nr.mode, r.note") == (mode, note)
                found = kernel("seen(mac)", mac=bytes.fromhex(ours(f"{RING}.mac").replace(":", "")))
                sums = [data for data, status in found if UDP in Ether(data) or TCP in Ether(data)]
                assert len(sums) > 20 and all(checked(data) for data in sums)


def test_native_mode() -> None:
    with namespaces() as (here, there), engine(here, ",mode=native,tx_csum=auto") as ours, Actor(netns=there.name) as kernel:
        talk(ours, kernel, 4)
        talk(ours, kernel, 6)
        assert ours(f"{RING}.mode") == "native copy, checksums by kernel"


def test_jumbo_frames_have_none() -> None:
    with namespaces(9000) as (here, there), engine(here, ",tx_csum=auto") as ours, Actor(netns=there.name) as kernel:
        talk(ours, kernel, 4)
        assert ours(f"r = {RING}\nr.tx_csum, r.note") == ((), "no tx_csum: frames of several buffers have none")


def test_pieces_of_a_datagram() -> None:
    """A checksum over several frames is the stack's; the frames without one pass as ever."""
    with namespaces() as (here, there), engine(here, ",tx_csum=auto") as ours, Actor(netns=there.name) as kernel:
        kernel("k = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nk.settimeout(20)\nk.bind((host, 7))", host=KERNEL[4])
        ours(
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind((mine, 7))\ns.connect((host, 7))", mine=ENGINE[4], host=KERNEL[4]
        )
        for size in (1473, 9000, 65507):
            assert ours("s.send((bytes(range(250)) * 263)[:size])", size=size) == size
            assert kernel("k.recv(70000) == (bytes(range(250)) * 263)[:size]", size=size)
