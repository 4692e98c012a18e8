"""What the engine's long segments are on the wire, beside what it sends by segments of its own: the software NIC with and without
segmentation, pyverbs as the receiver, scapy to take the frames apart."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import softnic_env
from actor import Actor
from verbs_peer import Peer

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.layers.inet import IP, TCP
    from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
    from scapy.layers.l2 import ARP, Dot1Q, Ether
    from scapy.packet import Packet

ENGINE, PEER = "02:53:4e:00:00:00", "02:53:4e:00:00:01"
ENGINES, PEERS = {4: "10.87.0.1", 6: "fd87::1"}, {4: "10.87.0.2", 6: "fd87::2"}
ALL = "ff:ff:ff:ff:ff:ff"
PORT, ISS, WINDOW = 7000, 0x7FFF_F000, 60_000
DATA = random.Random(7).randbytes(45_123)
# Neither comes again in the other run: where the counts begin, and what a device may count up where nobody is to fragment (RFC 6864 4.1).
NOT_COMPARED = {"IP": {"id", "chksum"}, "TCP": {"seq", "ack", "chksum", "sport", "options"}, "IPv6": {"fl"}}


@dataclass
class Wire:
    """The peer's side of one connection, by hand."""

    peer: Peer
    family: int
    vlan: int
    timestamps: bool
    port: int = 0
    isn: int = 0
    got: dict[int, Packet] = field(default_factory=dict)

    def send(self, payload: Packet) -> None:
        head = Ether(src=PEER, dst=ENGINE)
        assert self.peer.send(bytes((head / Dot1Q(vlan=self.vlan) if self.vlan else head) / payload)) == 0

    def segment(self, flags: str, seq: int, ack: int, syn: bool = False) -> None:
        options: list[tuple[str, Any]] = [("MSS", 1460 if self.family == 4 else 1440), ("WScale", 7), ("SAckOK", b"")] if syn else []
        if self.timestamps:
            options.append(("Timestamp", (1000, 0)))
        head = IP if self.family == 4 else IPv6
        tcp = TCP(sport=PORT, dport=self.port, flags=flags, seq=seq, ack=ack & 0xFFFF_FFFF, window=WINDOW, options=options)
        self.send(head(src=PEERS[self.family], dst=ENGINES[self.family]) / tcp)

    def get(self) -> Packet:
        """The next TCP segment; answers for our addresses on the way."""
        while True:
            received = self.peer.receive(1)
            assert received, "no segment came"
            frame = Ether(received[0].frame)
            if TCP in frame:
                return frame
            if ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst == PEERS[4]:
                self.send(ARP(op=2, hwsrc=PEER, psrc=PEERS[4], hwdst=ENGINE, pdst=frame[ARP].psrc))
            if ICMPv6ND_NS in frame and frame[ICMPv6ND_NS].tgt == PEERS[6]:
                answer = ICMPv6ND_NA(tgt=PEERS[6], R=0, S=1, O=1) / ICMPv6NDOptDstLLAddr(lladdr=PEER)
                self.send(IPv6(src=PEERS[6], dst=frame[IPv6].src, hlim=255) / answer)

    def open(self, engine: Actor) -> None:
        engine.start(
            "s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM)\ns.settimeout(60)\ns.connect(to)",
            family=self.family,
            to=(PEERS[self.family], PORT),
        )
        syn = self.get()[TCP]
        assert syn.flags == "S"
        self.port, self.isn = syn.sport, syn.seq
        self.segment("SA", ISS, self.isn + 1, syn=True)
        engine.finish()

    def collect(self) -> list[Packet]:
        """Data segments in order of the stream, each once; all are acknowledged at once."""
        upto = 0
        while upto < len(DATA):
            frame = self.get()
            size = len(payload_of(frame))
            if not size:
                continue
            self.got.setdefault((frame[TCP].seq - self.isn - 1) & 0xFFFF_FFFF, frame)
            while upto in self.got:
                upto += len(payload_of(self.got[upto]))
            self.segment("A", ISS + 1, self.isn + 1 + upto)
        return [self.got[at] for at in sorted(self.got)]


def payload_of(frame: Packet) -> bytes:
    size = frame[IP].len - 20 if IP in frame else frame[IPv6].plen
    return bytes(frame[TCP].payload)[: size - frame[TCP].dataofs * 4]


def exchange(fabric: str, tso: bool, family: int, timestamps: bool, vlan: int) -> tuple[list[Packet], int, int]:
    """The frames of one stream, its first sequence number, and how many long segments the device was given."""
    interface = f"softnic:fabric={fabric},port=0,addr={ENGINES[4]}/24,addr={ENGINES[6]}/64" + (f",vlan={vlan}" if vlan else "")
    env = {} if tso else {"PYVMA_SOFTNIC_OFF": "tso"}
    with Peer(fabric, 1) as peer, Actor([interface], env=env) as engine:
        peer.flow(("EthSpec", {"dst_mac": PEER}))
        peer.flow(("EthSpec", {"dst_mac": ALL}))
        peer.flow(kind="MC_DEFAULT")
        wire = Wire(peer, family, vlan, timestamps)
        wire.open(engine)
        engine.start("s.sendall(data)", data=DATA)
        frames = wire.collect()
        engine.finish()
        counters: dict[str, int] = engine("import pyvma\npyvma.counters()")
        wire.segment("RA", ISS + 1, wire.isn + 1 + len(DATA))
        engine("s.close()")
        return frames, wire.isn, sum(value for name, value in counters.items() if name.endswith(".tso_packets"))


def described(frame: Packet, isn: int) -> dict[str, Any]:
    """Every field of every header, sequence numbers from the first on, and the options' kinds and echo; the payload."""
    out: dict[str, Any] = {"payload": payload_of(frame), "seq": (frame[TCP].seq - isn) & 0xFFFF_FFFF, "ack": frame[TCP].ack}
    for layer in (Ether, Dot1Q, IP, IPv6, TCP):
        if layer in frame:
            skipped = NOT_COMPARED.get(layer.__name__, set())
            out |= {f"{layer.__name__}.{name}": value for name, value in frame[layer].fields.items() if name not in skipped}
    out["TCP.flags"] = str(frame[TCP].flags)
    options: list[tuple[str, Any]] = frame[TCP].fields["options"]
    out["options"] = [(kind, value[1] if kind == "Timestamp" else value) for kind, value in options]
    return {name: str(value) if name != "payload" else value for name, value in out.items()}


def recomputed(frame: Packet) -> bytes:
    """The frame with every checksum and length made anew by scapy."""
    copy: Any = frame.copy()
    for layer, names in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (TCP, ("chksum",))):
        for name in names if layer in copy else ():
            delattr(copy[layer], name)
    return bytes(copy)


@pytest.mark.parametrize(
    ("family", "timestamps", "vlan"), [(4, True, 0), (4, False, 0), (6, True, 0), (6, False, 0), (4, True, 77), (6, True, 77)]
)
def test_the_same_frames_as_without(fabric: str, family: int, timestamps: bool, vlan: int) -> None:
    whole, isn, cut = exchange(fabric, True, family, timestamps, vlan)
    single, other_isn, none = exchange(fabric + "b", False, family, timestamps, vlan)
    assert cut > 1
    assert none == 0
    assert len(whole) == len(single)
    for one, other in zip(whole, single, strict=True):
        assert described(one, isn) == described(other, other_isn)
        assert recomputed(one) == bytes(one)
    assert b"".join(payload_of(frame) for frame in whole) == DATA
    # Full segments but for the last, which alone pushes.
    full = (1460 if family == 4 else 1440) - (12 if timestamps else 0)
    assert {len(payload_of(frame)) for frame in whole[:-1]} == {full}
    assert [bool(frame[TCP].flags & 8) for frame in whole] == [False] * (len(whole) - 1) + [True]
