"""What the software NIC does to frames on their way out, seen by programs that know only libibverbs; scapy says how they should look."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import softnic_env
from verbs_peer import DEPTH, Peer

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.layers.inet import IP, TCP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Dot1Q, Ether
    from scapy.packet import Packet, Raw

MAC = ["02:53:4e:00:00:00", "02:53:4e:00:00:01"]
STAMPS = [("Timestamp", (123456789, 987654321)), ("NOP", None), ("NOP", None)]


@pytest.fixture
def pair(fabric: str) -> Iterator[list[Peer]]:
    with Peer(fabric, 0) as first, Peer(fabric, 1) as second:
        second.flow(("EthSpec", {"dst_mac": MAC[1]}))
        yield [first, second]


def long_segment(version: int, options: list[object], vlan: bool) -> Packet:
    lower = Ether(src=MAC[0], dst=MAC[1])
    if vlan:
        lower /= Dot1Q(vlan=99, prio=5)
    if version == 4:
        lower /= IP(src="10.0.0.1", dst="10.0.0.2", id=0xFFFD, tos=0x2A, flags="DF", ttl=61)
    else:
        lower /= IPv6(src="fd00::1", dst="fd00::2", tc=0x2A, fl=0x12345, hlim=61)
    return lower / TCP(sport=1234, dport=80, seq=0xFFFFF000, ack=77, window=500, flags="FPACEU", urgptr=0, options=options)


def segments(packet: Packet, payload: bytes, mss: int) -> list[bytes]:
    """The frames that scapy makes of it, each built from its fields."""
    out = []
    for index, at in enumerate(range(0, len(payload), mss)):
        last = at + mss >= len(payload)
        one = packet.copy()
        if IP in one:
            one[IP].id = (packet[IP].id + index) & 0xFFFF
        one[TCP].seq = (packet[TCP].seq + at) & 0xFFFFFFFF
        one[TCP].flags = ("FP" if last else "") + "AEU" + ("C" if index == 0 else "")
        out.append(bytes(one / Raw(payload[at : at + mss])))
    return out


@pytest.mark.parametrize("vlan", [False, True], ids=["untagged", "tagged"])
@pytest.mark.parametrize("options", [[], STAMPS], ids=["plain", "stamps"])
@pytest.mark.parametrize("version", [4, 6])
def test_segmentation(pair: list[Peer], version: int, options: list[object], vlan: bool) -> None:
    packet = long_segment(version, options, vlan)
    header = bytes(packet)
    mss = 1500 - (20 if version == 4 else 40) - 20 - (12 if options else 0)
    for length in (1, mss, mss + 1, 5 * mss - 7, 30000):
        payload = (bytes(range(251)) * 120)[:length]
        assert pair[0].segment(header, payload, mss) == 0
        wanted = segments(packet, payload, mss)
        got = pair[1].receive(len(wanted))
        assert [item.frame for item in got] == wanted
        if version == 4:
            assert all(item.csum_ok for item in got)
    assert pair[1].receive(1, 0.1) == []


def test_segmentation_refused(pair: list[Peer]) -> None:
    """Frames longer than the MTU allows (LOC_LEN_ERR)."""
    assert pair[0].segment(bytes(long_segment(4, [], False)), b"x" * 3000, 1480) == 1
    assert pair[1].receive(1, 0.1) == []


def test_segmentation_of_udp(pair: list[Peer]) -> None:
    """Headers of another protocol (LOC_QP_OP_ERR)."""
    udp = Ether(src=MAC[0], dst=MAC[1]) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2)
    assert pair[0].segment(bytes(udp), b"x" * 3000, 1000) == 2
    assert pair[1].receive(1, 0.1) == []


@pytest.mark.parametrize("length", [60, 61, 1000, 1514])
def test_device_memory(pair: list[Peer], length: int) -> None:
    frame = bytes(Ether(src=MAC[0], dst=MAC[1], type=0x88B5) / Raw((bytes(range(256)) * 6)[: length - 14]))
    for offset in (0, 4, 2000):
        assert pair[0].from_device_memory(frame, offset) == 0
        assert [item.frame for item in pair[1].receive(1)] == [frame]


@pytest.mark.parametrize("mbit", [1, 10, 100, 1000, 2000])
def test_pacing(fabric: str, mbit: int) -> None:
    """Frames that wait behind one that left at 1 kbit/s, so that all of them are there when the rate is set."""
    with Peer(fabric, 0) as sender, Peer(fabric, 1) as receiver:
        receiver.watch(MAC[1])
        count, length = DEPTH - 4, 1250
        frame = bytes(Ether(src=MAC[0], dst=MAC[1], type=0x88B5) / Raw(bytes(length - 14)))
        sender.pace(1)
        sender.post(frame, count)
        sender.pace(mbit * 1000)
        assert sender.completions(count) == [0] * count
        got = receiver.watched(count)
        assert [item[0] for item in got] == [frame] * count
        # The device's own burst is two of the longest frames.
        first = 1 + 3036 // length
        gaps = [after[1] - before[1] for before, after in zip(got[first:], got[first + 1 :], strict=False)]
        assert gaps
        step = length * 8 * 1000 / mbit
        assert all(abs(gap - step) <= 1 for gap in gaps), (step, gaps)
        # Removed, it is gone.
        sender.pace(0)
        sender.post(frame, 4)
        assert sender.completions(4) == [0] * 4


def test_stripped_tags(fabric: str) -> None:
    with Peer(fabric, 0) as sender, Peer(fabric, 1) as receiver:
        receiver.watch(MAC[1], strip=True)
        inner = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / b"tagged"
        ether = Ether(src=MAC[0], dst=MAC[1])
        cases = [(77, 3), (4094, 0), (1, 7)]
        for vlan, prio in cases:
            assert sender.send(bytes(ether / Dot1Q(vlan=vlan, prio=prio) / inner)) == 0
        assert sender.send(bytes(ether / inner)) == 0
        got = receiver.watched(4)
        assert [item[0] for item in got] == [bytes(ether / inner)] * 4
        assert [item[2] for item in got] == [prio << 13 | vlan for vlan, prio in cases] + [0]
