"""Receive queues of their own for rules of the application's (`ring_logic_rx=11`): datagrams that scapy builds and pyverbs sends come by
the queue that their rule was led to, all of them and in their order however often it moves."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
import softnic_env
from actor import Actor
from verbs_peer import Peer

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

HERE, THERE = "10.97.0.1", "10.97.0.2"
SENDER, ENGINE = "02:53:4e:00:00:00", "02:53:4e:00:00:01"
SO_INCOMING_CPU = 49
LIMIT = 3
SETUP = """
import pyvma.ring as ring
def bound():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    s.bind((host, 0))
    return s, ring.steer(ring.interfaces()[0].index, ring.FlowRule(dst=host, protocol="udp", dst_port=s.getsockname()[1]))
found = [bound() for _ in range(4)]
sockets, rules = zip(*found)
"""


def frame(port: int, number: int) -> bytes:
    return bytes(
        Ether(src=SENDER, dst=ENGINE)
        / IP(src=THERE, dst=HERE)
        / UDP(sport=999, dport=port)
        / Raw(number.to_bytes(4, "big") + bytes(number % 900))
    )


@pytest.fixture
def ends(fabric: str, request: pytest.FixtureRequest) -> Iterator[tuple[Peer, Actor, list[int]]]:
    interface = f"softnic:fabric={fabric},port=1,addr={HERE}/24,name=sn0"
    env = {"PYVMA_RING_LOGIC_RX": "11", "PYVMA_RING_LIMIT": str(LIMIT), "PYVMA_RX_QUEUES": str(request.param)}
    with Peer(fabric, 0) as sender, Actor([interface], env=env) as engine:
        engine(SETUP, host=HERE)
        yield sender, engine, engine("[s.getsockname()[1] for s in sockets]")


one_or_four = pytest.mark.parametrize("ends", [1, 4], indirect=True)
one = pytest.mark.parametrize("ends", [1], indirect=True)


@one_or_four
def test_datagrams_come_by_the_queue_of_their_rule(ends: tuple[Peer, Actor, list[int]]) -> None:
    sender, engine, ports = ends
    first = engine("ring.interfaces()[0].queues")
    came = f"(sockets[i].recv(2000), sockets[i].getsockopt(socket.SOL_SOCKET, {SO_INCOMING_CPU}))"

    def by_which(i: int) -> int:
        assert sender.send(frame(ports[i], 7)) == 0
        data, queue = engine(came, i=i)
        assert data[:4] == (7).to_bytes(4, "big")
        return int(queue)

    assert by_which(0) < first
    assert engine("[rule.move() for rule in rules[:3]]\n[rule.queue for rule in rules]") == [1, 2, 3, 0]
    assert [by_which(i) - first + 1 for i in range(3)] == [1, 2, 3]
    assert by_which(3) < first
    assert engine("rules[0].move(rules[1])\n[rule.queue for rule in rules]") == [2, 2, 3, 0]
    assert [by_which(i) - first + 1 for i in range(3)] == [2, 2, 3]
    # The queue that nobody is led to any more is free for another.
    assert engine("rules[3].move()\nrules[3].queue") == 1
    assert by_which(3) == first
    engine("rules[1].close()")
    assert by_which(0) - first + 1 == 2
    engine("rules[0].move(0)")
    assert by_which(0) < first


@one_or_four
def test_nothing_is_lost_or_overtaken(ends: tuple[Peer, Actor, list[int]]) -> None:
    """Nobody receives while the rule moves between all queues there are, with datagrams on each of them."""
    sender, engine, ports = ends
    engine("rules[1].move()\nrules[2].move()")
    turns = ("rules[0].move()", "rules[0].move(rules[1])", "rules[0].move(rules[2])", "rules[0].move(0)")
    for start in range(0, 600, 150):
        for number in range(start, start + 150):
            assert sender.send(frame(ports[0], number)) == 0
            if number % 5 == 0:
                engine(turns[number // 5 % len(turns)])
        assert engine("[int.from_bytes(sockets[0].recv(2000)[:4], 'big') for _ in range(150)]") == list(range(start, start + 150))
    assert engine("import pyvma\npyvma.counters()['ring.sn0.rx_errors']") == 0


@one
def test_what_is_refused(ends: tuple[Peer, Actor, list[int]]) -> None:
    """With an error the rule leads where it led."""
    sender, engine, ports = ends
    engine("[rule.move() for rule in rules[:3]]")
    engine("whole = ring.steer(ring.interfaces()[0].index, ring.FlowRule(dst='10.97.0.99')); 0")
    for call, number in (
        ("rules[3].move()", errno.ENOSPC),
        ("rules[3].move(4)", errno.ENOENT),
        ("rules[3].move(63)", errno.ENOENT),
        ("rules[3].move(-2)", errno.ENOENT),
        ("rules[3].move(-1)", errno.ENOENT),
        ("rules[3].move(2**40)", errno.ENOENT),
        ("rules[2].close()\nrules[2].move()", errno.EBADF),
        ("rules[3].move(rules[2])", errno.EBADF),
        ("whole.move()", errno.EOPNOTSUPP),
    ):
        with pytest.raises(OSError) as raised:
            engine(call)
        assert raised.value.errno == number, call
    # Nothing was opened, or left open, for them.
    assert engine("rules[3].move()\nrules[3].queue") == 3
    assert sender.send(frame(ports[3], 1)) == 0
    assert engine("sockets[3].recv(2000)[:4]") == (1).to_bytes(4, "big")
    engine("import pyvma\n[s.close() for s in sockets]\npyvma.stop()")
    with pytest.raises(OSError) as raised:
        engine("rules[3].move(0)")
    assert raised.value.errno == errno.ENODEV


def test_a_rule_of_another_interface(fabric: str) -> None:
    """Its queue's number says nothing here."""
    names = [f"softnic:fabric={fabric},port={n},addr=10.97.{n}.1/24,name=sn{n}" for n in (1, 2)]
    with Actor(names, env={"PYVMA_RING_LOGIC_RX": "11"}) as engine:
        engine(
            "import pyvma.ring as ring\n"
            "by = [(i.index, ring.FlowRule(dst=str(i.addresses[0].ip), protocol='udp', dst_port=7)) for i in ring.interfaces()]\n"
            "rules = [ring.steer(*each) for each in by]\n"
            "[rule.move() for rule in rules]"
        )
        with pytest.raises(OSError) as raised:
            engine("rules[0].move(rules[1])")
        assert raised.value.errno == errno.EINVAL
        assert engine("rules[0].queue") == 1


def test_without_the_setting(fabric: str) -> None:
    with Actor([f"softnic:fabric={fabric},port=1,addr={HERE}/24,name=sn0"]) as engine:
        engine(SETUP, host=HERE)
        with pytest.raises(OSError, match="any ring_logic_rx but 0") as raised:
            engine("rules[0].move()")
        assert raised.value.errno == errno.EOPNOTSUPP
        assert engine("rules[0].queue") == 0
