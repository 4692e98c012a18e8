"""Several receive queues of the engine: flows that scapy builds and pyverbs sends come by the queue that the published hash names, and
SO_INCOMING_CPU and SO_REUSEPORT groups follow it."""

from __future__ import annotations

import ipaddress
import socket as std
from collections.abc import Iterator

import pytest
import softnic_env
from actor import Actor
from verbs_peer import Peer

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.layers.inet import IP, TCP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import ARP, Ether
    from scapy.packet import Packet, Raw

QUEUES = 4
HERE = {4: "10.98.0.1", 6: "fd98::1"}
SENDER, ENGINE = "02:53:4e:00:00:00", "02:53:4e:00:00:01"
SO_INCOMING_CPU = 49
# "Verifying the RSS Hash Calculation", Microsoft's documentation of receive-side scaling: the key, and some of its table.
KEY = int(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa",
    16,
)
TABLE = [
    ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51CCC178),
    ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xC626B0EA),
    ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5C2B394A),
    ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x40207D3D),
]


def toeplitz(src: str, sport: int, dst: str, dport: int) -> int:
    data = ipaddress.ip_address(src).packed + ipaddress.ip_address(dst).packed + sport.to_bytes(2, "big") + dport.to_bytes(2, "big")
    bits, hashed = int.from_bytes(data, "big"), 0
    for at in range(len(data) * 8):
        if bits >> len(data) * 8 - 1 - at & 1:
            hashed ^= KEY >> 320 - 32 - at & 0xFFFFFFFF
    return hashed


def test_the_hash_is_the_published_one() -> None:
    for src, sport, dst, dport, hashed in TABLE:
        assert toeplitz(src, sport, dst, dport) == hashed


@pytest.fixture
def ends(fabric: str) -> Iterator[tuple[Peer, Actor]]:
    interface = f"softnic:fabric={fabric},port=1,addr={HERE[4]}/24,addr={HERE[6]}/64,name=sn0"
    with Peer(fabric, 0) as sender, Actor([interface], env={"PYVMA_RX_QUEUES": str(QUEUES)}) as engine:
        yield sender, engine


def flow(number: int, family: int, port: int) -> tuple[Packet, int]:
    """A datagram of a flow of its own, and the queue that it belongs to."""
    src = f"10.98.0.{2 + number % 50}" if family == 4 else f"fd98::{2 + number % 50:x}"
    sport = 1024 + number * 7
    head = IP(src=src, dst=HERE[4]) if family == 4 else IPv6(src=src, dst=HERE[6])
    frame = Ether(src=SENDER, dst=ENGINE) / head / UDP(sport=sport, dport=port) / Raw(number.to_bytes(4, "big"))
    return frame, toeplitz(src, sport, HERE[family], port) % QUEUES


SOCKETS = """
def sockets(family, count, cpus):
    found, port = [], 0
    for i in range(count):
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.settimeout(20)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if cpus: s.setsockopt(socket.SOL_SOCKET, 49, i)
        s.bind((host, port))
        port = s.getsockname()[1]
        found.append(s)
    return found, port
def who(count):
    got = []
    while len(got) < count:
        for i in select.select(found, [], [], 20)[0]: got.append((found.index(i), int.from_bytes(i.recv(100), 'big')))
    return sorted(got, key=lambda item: item[1])
import pyvma.select as select
"""


@pytest.mark.parametrize("family", [4, 6])
def test_a_datagram_says_by_which_queue_it_came(ends: tuple[Peer, Actor], family: int) -> None:
    sender, engine = ends
    names = {"family": std.AF_INET if family == 4 else std.AF_INET6, "host": HERE[family]}
    engine("s = socket.socket(family, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))", **names)
    port = engine("s.getsockname()[1]")
    incoming = f"s.getsockopt(socket.SOL_SOCKET, {SO_INCOMING_CPU})"
    assert engine(incoming) == -1
    seen = set()
    for number in range(24):
        frame, queue = flow(number, family, port)
        assert sender.send(bytes(frame)) == 0
        assert int.from_bytes(engine("s.recv(100)"), "big") == number
        assert engine(incoming) == queue
        seen.add(queue)
    assert seen == set(range(QUEUES))


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("cpus", [False, True])
def test_groups_follow_the_queue(ends: tuple[Peer, Actor], family: int, cpus: bool) -> None:
    """Members that want a queue get its flows and no others; without a wish the flow's hash decides. A flow stays where it is."""
    sender, engine = ends
    names = {"family": std.AF_INET if family == 4 else std.AF_INET6, "host": HERE[family], "cpus": cpus}
    engine(SOCKETS, **names)
    port = engine(f"found, port = sockets(family, {QUEUES}, cpus)\nport")
    frames = [flow(number, family, port) for number in range(60)]
    placed = []
    for _ in range(2):
        for frame, _queue in frames:
            assert sender.send(bytes(frame)) == 0
        placed.append(engine(f"who({len(frames)})"))
    assert placed[0] == placed[1]
    members = [member for member, _ in placed[0]]
    if cpus:
        assert members == [queue for _, queue in frames]
    assert set(members) == set(range(QUEUES))


def test_a_listener_and_its_connections(ends: tuple[Peer, Actor]) -> None:
    """SYNs of 16 flows: each comes to the listener that wants its queue."""
    sender, engine = ends
    engine(
        "found, port = [], 0\n"
        "for i in range(4):\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)\n"
        "    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "    s.setsockopt(socket.SOL_SOCKET, 49, i)\n"
        "    s.bind((host, port)); s.listen(32); s.settimeout(20)\n"
        "    port = s.getsockname()[1]; found.append(s)",
        host=HERE[4],
    )
    port = engine("port")
    peer = "10.98.0.7"
    sender.flow(("EthSpec", {"dst_mac": SENDER}))
    arp = ARP(op=1, hwsrc=SENDER, psrc=peer, pdst=HERE[4])
    assert sender.send(bytes(Ether(src=SENDER, dst="ff:ff:ff:ff:ff:ff") / arp)) == 0
    for number in range(16):
        sport = 2000 + number * 13
        queue = toeplitz(peer, sport, HERE[4], port) % QUEUES
        head = Ether(src=SENDER, dst=ENGINE) / IP(src=peer, dst=HERE[4])
        assert sender.send(bytes(head / TCP(sport=sport, dport=port, flags="S", seq=100, window=1000))) == 0
        while True:
            (got,) = sender.receive(1)
            answer = Ether(got.frame)
            if TCP in answer and answer[TCP].dport == sport and answer[TCP].flags == "SA":
                break
        acknowledgement = TCP(sport=sport, dport=port, flags="A", seq=101, ack=answer[TCP].seq + 1, window=1000)
        assert sender.send(bytes(head / acknowledgement)) == 0
        code = "c, a = found[queue].accept()\nseen = a[1], c.getsockopt(socket.SOL_SOCKET, 49)\nc.close()\nseen"
        assert engine(code, queue=queue) == (sport, queue)


def test_a_device_without_spreading_has_one_queue(fabric: str) -> None:
    environment = {"PYVMA_RX_QUEUES": str(QUEUES), "PYVMA_SOFTNIC_OFF": "rss", "PYVMA_LOG_LEVEL": "info"}
    with Peer(fabric, 0) as sender, Actor([f"softnic:fabric={fabric},port=1,addr={HERE[4]}/24,name=sn0"], env=environment) as engine:
        assert engine("import pyvma.ring as ring\nring.interfaces()[0].queues") == 1
        engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))", host=HERE[4])
        frame, _ = flow(1, 4, engine("s.getsockname()[1]"))
        assert sender.send(bytes(frame)) == 0
        assert engine("s.recv(100)") == (1).to_bytes(4, "big")
        assert engine("s.getsockopt(socket.SOL_SOCKET, 49)") == -1
