"""Sockets with receive queues of their own (`ring_logic_rx`, `pyvma.ring.place`): datagrams that scapy builds and pyverbs sends come by
the queue of their socket's key, all of them and in their order however often it moves; streams and the kernel's interfaces likewise."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import softnic_env
from actor import Actor
from exchange import wait_for
from netns import Namespace, usable
from uplink import PORT, uplink
from verbs_peer import Peer

pytestmark = pytest.mark.skipif(bool(softnic_env.reason("pyverbs", "scapy")), reason=softnic_env.reason("pyverbs", "scapy"))

if not softnic_env.reason("pyverbs", "scapy"):
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

HERE, ALSO, THERE = "10.97.0.1", "10.97.0.3", "10.97.0.2"
HERE6, THERE6 = "fd97::1", "fd97::2"
SENDER, ENGINE = "02:53:4e:00:00:00", "02:53:4e:00:00:01"
GROUP = "239.97.0.7"
SETUP = """
import threading
import pyvma, pyvma.ring as ring
def bound(host=host, port=0, key=None, reuse=False):
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    if reuse: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if key is not None: ring.place(s, key)
    s.bind((host, port))
    return s
def queues(*sockets): return [[p.queue for p in ring.places(s)] for s in sockets]
def ports(*sockets): return [s.getsockname()[1] for s in sockets]
def came(s): return int.from_bytes(s.recv(2000)[:4], 'big'), s.getsockopt(socket.SOL_SOCKET, 49)
def elsewhere(what):
    got = []
    t = threading.Thread(target=lambda: got.append(what()))
    t.start(); t.join()
    return got[0]
"""
COLLECT = """
import pyvma.select as select
got = []
while len(got) < count:
    for s in select.select(found, [], [], 20)[0]:
        number, queue = came(s)
        got.append((number, found.index(s), queue))
sorted(got)
"""
READ = "import os, pyvma.stats as stats\nwith stats.attach(os.getpid()) as p: found = p.snapshot().of('rxq')\n"


def frame(port: int, number: int, dst: str = HERE, sport: int = 999) -> bytes:
    head = IPv6(src=THERE6, dst=dst) if ":" in dst else IP(src=THERE, dst=dst)
    mac = ENGINE if dst != GROUP else "01:00:5e:61:00:07"
    return bytes(Ether(src=SENDER, dst=mac) / head / UDP(sport=sport, dport=port) / Raw(number.to_bytes(4, "big") + bytes(number % 900)))


@contextmanager
def engine_of(fabric: str, logic: int, limit: int = 0, rx_queues: int = 1, more: dict[str, str] | None = None) -> Iterator[Actor]:
    interface = f"softnic:fabric={fabric},port=1,addr={HERE}/24,addr={ALSO}/24,addr={HERE6}/64,name=sn0"
    env = {"PYVMA_RING_LOGIC_RX": str(logic), "PYVMA_RING_LIMIT": str(limit), "PYVMA_RX_QUEUES": str(rx_queues)}
    with Actor([interface], env=env | (more or {})) as engine:
        engine(SETUP, host=HERE)
        yield engine


@pytest.fixture
def sender(fabric: str) -> Iterator[Peer]:
    with Peer(fabric, 0) as peer:
        yield peer


def by_which(sender: Peer, engine: Actor, name: str, dst: str = HERE) -> int:
    """The queue's number by which a datagram for the socket comes, as SO_INCOMING_CPU tells it."""
    port = engine(f"{name}.getsockname()[1]")
    assert sender.send(frame(port, 7, dst)) == 0
    number, queue = engine(f"came({name})")
    assert number == 7
    return int(queue)


# ---- by the setting


def test_each_socket_has_its_queue(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 10) as engine:
        assert engine("a, b, c = bound(), bound(), bound(host6)\nqueues(a, b, c)", host6=HERE6) == [[1], [2], [3]]
        assert [by_which(sender, engine, s, d) for s, d in (("a", HERE), ("b", HERE), ("c", HERE6))] == [1, 2, 3]
        assert engine("ring.places(a)[0].by, ring.places(a)[0].interface, ring.places(a)[0].shared") == ("socket", "sn0", 1)
        # What one leaves is the next one's.
        assert engine("b.close()\nb = bound()\nqueues(b)") == [[2]]
        assert by_which(sender, engine, "b") == 2
        # Its flow alone, once it is connected.
        assert engine("a.connect((there, 999))\nqueues(a)", there=THERE) == [[1]]
        assert by_which(sender, engine, "a") == 1


def test_each_address_has_its_queue(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 1) as engine:
        assert engine("a, b, c, d = bound(), bound(also), bound(), bound('0.0.0.0')\nqueues(a, b, c)", also=ALSO) == [[1], [2], [1]]
        assert sorted(engine("queues(d)[0]")) == [1, 2]
        asked = (("a", HERE), ("b", ALSO), ("c", HERE), ("d", HERE), ("d", ALSO))
        assert [by_which(sender, engine, s, d) for s, d in asked] == [1, 2, 1, 1, 2]


def test_each_thread_has_its_queue(sender: Peer, fabric: str) -> None:
    """That in which the socket got its name, whoever uses it later."""
    with engine_of(fabric, 20) as engine:
        assert engine("a, b, c, d = bound(), elsewhere(bound), bound(), elsewhere(bound)\nqueues(a, b, c, d)") == [[1], [2], [1], [3]]
        assert [by_which(sender, engine, s) for s in "abcd"] == [1, 2, 1, 3]
        assert engine("elsewhere(lambda: b.getsockname() and queues(b))") == [[2]]


@pytest.mark.parametrize("logic", [30, 31])
def test_each_core_has_its_queue(sender: Peer, fabric: str, logic: int) -> None:
    with engine_of(fabric, logic) as engine:
        was = engine("sorted(os.sched_getaffinity(0))")
        if len(was) < 2:
            pytest.skip("one processor")
        if logic == 30:
            pinned = "def on(cpu):\n os.sched_setaffinity(0, {cpu})\n return bound()\n"
            made = "a, b, c = (elsewhere(lambda: on(cpu)) for cpu in (cpus[0], cpus[1], cpus[0]))"
            engine(f"{pinned}{made}", cpus=was)
            assert engine("queues(a, b, c)") == [[1], [2], [1]]
            assert engine("[ring.places(s)[0].key for s in (a, b, c)]") == [was[0], was[1], was[0]]
        else:
            # Threads are bound to cores in turn.
            both = "lambda: (bound(), bound(), os.sched_getaffinity(0))"
            first, second = (f"{name}, {name}2, {name}on = elsewhere({both})" for name in "ab")
            assert engine(f"{first}\n{second}\nqueues(a, a2, b, b2)") == [[1], [1], [2], [2]]
            assert engine("len(aon), len(bon), aon != bon") == (1, 1, True)
            assert engine("ring.places(a)[0].by, {ring.places(a)[0].key} == aon") == ("attached core", True)
        assert [by_which(sender, engine, s) for s in "ab"] == [1, 2]


def test_groups_are_led_there(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 10) as engine:
        join = "s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(host))"
        engine(f"x, s = bound(), bound('0.0.0.0')\n{join}", group=GROUP)
        assert sorted(engine("queues(s)[0]")) == [2, 2, 2]
        assert by_which(sender, engine, "s", GROUP) == 2
        engine(join.replace("ADD", "DROP"))
        assert engine("queues(s)") == [[2, 2]]


def test_a_reuseport_group_is_spread_over_its_members_queues(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 10, rx_queues=2) as engine:
        engine("found = [bound(reuse=True)]\nfound += [bound(port=ports(*found)[0], reuse=True) for _ in range(3)]")
        assert engine("queues(*found)") == [[1], [2], [3], [4]]
        assert engine("ring.places(found[0])[0].spread") == (1, 2, 3, 4)
        port = engine("ports(*found)[0]")
        first = engine("ring.interfaces()[0].queues")
        seen = []
        for _ in range(2):
            for number in range(64):
                assert sender.send(frame(port, number, sport=2000 + 7 * number)) == 0
            seen.append(engine(COLLECT, count=64))
        # A flow stays where it is, each member has the flows of its queue, and each queue has some.
        assert seen[0] == seen[1]
        assert all(queue - first + 1 == member + 1 for _, member, queue in seen[0])
        assert {member for _, member, _ in seen[0]} == {0, 1, 2, 3}
        # One leaves: its flows are the others'.
        engine("found.pop(1).close()")
        for number in range(64):
            assert sender.send(frame(port, number, sport=2000 + 7 * number)) == 0
        assert {queue - first + 1 for _, _, queue in engine(COLLECT, count=64)} == {1, 3, 4}


def test_what_a_member_prefers_itself(sender: Peer, fabric: str) -> None:
    """What the program says by SO_INCOMING_CPU goes before the member's place, whoever joins later, until it says that it prefers none."""
    with engine_of(fabric, 10, rx_queues=2) as engine:
        engine("found = [bound(reuse=True)]\nfound += [bound(port=ports(*found)[0], reuse=True)]")
        port, first = engine("ports(*found)[0], ring.interfaces()[0].queues")

        def members() -> dict[int, set[int]]:
            """Who gets something, by queue; one after the other, for a member tells the queue of the last that came."""
            got: dict[int, set[int]] = {}
            for number in range(64):
                assert sender.send(frame(port, number, sport=2000 + 7 * number)) == 0
                ((_, member, queue),) = engine(COLLECT, count=1)
                got.setdefault(queue - first + 1, set()).add(member)
            return got

        assert members() == {1: {0}, 2: {1}}
        # One that has nothing: nobody prefers the flows of the first queue then.
        engine("found[0].setsockopt(socket.SOL_SOCKET, 49, 99)")
        assert members() == {1: {0, 1}, 2: {1}}
        engine("found += [bound(port=ports(*found)[0], reuse=True)]")
        assert members() == {1: {0, 1, 2}, 2: {1}, 3: {2}}
        if os.geteuid() == 0:
            engine("found[1].setsockopt(socket.SOL_SOCKET, 33, 1 << 20)")  # SO_RCVBUFFORCE
            assert engine("found[1].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)") == 2 << 20
            assert members() == {1: {0, 1, 2}, 2: {1}, 3: {2}}
        engine("found[0].setsockopt(socket.SOL_SOCKET, 49, -1)")
        assert members() == {1: {0}, 2: {1}, 3: {2}}


def test_a_queue_is_free_when_the_device_leads_nobody_there(sender: Peer, fabric: str) -> None:
    """A member that leaves while a queue of the group's waits for buffers: the device leads others' flows to its queue for a while yet."""
    env = {"PYVMA_RX_DEPTH": "16", "PYVMA_PROGRESS": "0"}
    with engine_of(fabric, 10, more=env) as engine:
        engine("found = [bound(reuse=True)]\nfound += [bound(port=ports(*found)[0], reuse=True)]")
        port = engine("ports(*found)[0]")
        for number in range(40):
            assert sender.send(frame(port, number)) == 0
        engine("found[1].close()\ns = bound()")
        busy = engine("ring.places(found[0])[0].spread")
        assert busy == (1, 2)
        assert engine("queues(s)") == [[3]]
        engine("found[0].settimeout(0.2)\ntry:\n while True: found[0].recv(10)\nexcept TimeoutError: pass")
        assert engine("t = bound()\nqueues(t)") == [[2]]
        assert engine("ring.places(found[0])[0].spread") == (1,)


# ---- by the program


def test_keys(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 11) as engine:
        assert engine("a, b, c, d = bound(key=7), bound(key=2**64 - 1), bound(key=7), bound()\nqueues(a, b, c, d)") == [[1], [2], [1], []]
        assert [by_which(sender, engine, s) for s in "abcd"] == [1, 2, 1, 0]
        assert engine("ring.places(a)[0].key, ring.places(a)[0].by, ring.places(a)[0].cpu") == (7, "key", 1)
        # Nothing but a move changes a place.
        with pytest.raises(OSError) as raised:
            engine("ring.place(a, 8)")
        assert raised.value.errno == errno.EBUSY
        engine("ring.place(a, 7)")
        assert engine("ring.move(a, 2**64 - 1)\nring.move(d, 9)\nqueues(a, b, c, d)") == [[2], [2], [1], [3]]
        assert [by_which(sender, engine, s) for s in "abcd"] == [2, 2, 1, 3]
        assert engine("ring.move(c, None)\nqueues(c)") == [[]]
        assert by_which(sender, engine, "c") == 0
        assert engine("ring.move(c, 77)\nqueues(c)") == [[1]]
        assert by_which(sender, engine, "c") == 1


def test_the_setting_and_the_program(sender: Peer, fabric: str) -> None:
    """The program's word goes before the setting's, and stays with the socket."""
    with engine_of(fabric, 20) as engine:
        engine("a, b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bound()\na.settimeout(20)\nring.place(a, None)\na.bind((host, 0))")
        assert engine("queues(a, b)") == [[], [1]]
        assert [by_which(sender, engine, s) for s in "ab"] == [0, 1]
        assert engine("ring.move(b, 5)\nring.places(b)[0].by") == "key"
        assert engine("b.connect((there, 999))\nring.places(b)[0].by, ring.places(b)[0].key", there=THERE) == ("key", 5)


@pytest.mark.parametrize("rx_queues", [1, 4])
def test_nothing_is_lost_or_overtaken(sender: Peer, fabric: str, rx_queues: int) -> None:
    """Nobody receives while the socket moves between all queues there are, with datagrams on each of them."""
    with engine_of(fabric, 11, rx_queues=rx_queues) as engine:
        port = engine("s, a, b = bound(), bound(key=1), bound(key=2)\nports(s)[0]")
        turns = ("ring.move(s, 1)", "ring.move(s, 3)", "ring.move(s, 2)", "ring.move(s, None)")
        for start in range(0, 600, 150):
            for number in range(start, start + 150):
                assert sender.send(frame(port, number)) == 0
                if number % 5 == 0:
                    engine(turns[number // 5 % len(turns)])
            assert engine("[came(s)[0] for _ in range(150)]") == list(range(start, start + 150))
        assert engine("pyvma.counters()['ring.sn0.rx_errors']") == 0


def test_keys_share_queues_at_the_limit_and_keep_them(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 11, limit=2) as engine:
        engine("found = [bound(key=key) for key in range(5)]")
        assert engine("queues(*found)") == [[1], [2], [1], [2], [1]]
        assert engine("[ring.places(s)[0].shared for s in found]") == [3, 2, 3, 2, 3]
        # A key that shares keeps its queue, whatever comes and goes, for as long as it has a socket.
        assert engine("more = bound(key=4)\nfound[0].close()\nfound[2].close()\nqueues(more, found[4])") == [[1], [1]]
        assert engine("last = bound(key=9)\nqueues(last)") == [[1]]
        engine("found[4].close()\nring.move(last, 4)")
        assert engine("queues(more, last)") == [[1], [1]]
        assert by_which(sender, engine, "last") == 1
        # A rule of the program's gets a queue of its own or none.
        rule = "ring.steer(ring.interfaces()[0].index, ring.FlowRule(dst=host, protocol='udp', dst_port=7))"
        with pytest.raises(OSError) as raised:
            engine(f"rule = {rule}\nrule.move()")
        assert raised.value.errno == errno.ENOSPC
        engine("more.close()\nlast.close()\nrule.move()")
        assert engine("rule.queue") == 1
        assert engine("again = bound(key=1)\nqueues(again)") == [[2]]


def test_a_rule_is_deleted_once(fabric: str) -> None:
    """A second deletion takes nothing from another rule that has the same queue."""
    with engine_of(fabric, 11) as engine:
        engine("from pyvma._native import lib\nindex = ring.interfaces()[0].index")
        engine("a, b = (ring.steer(index, ring.FlowRule(dst=host, protocol='udp', dst_port=port)) for port in (7, 8))")
        engine("a.move()\nb.move(a)\nrow = a._row\na.close()")
        assert engine("lib.pyvma_rule_del(row)") == -errno.ENOENT
        assert engine("s = bound(key=1)\nb.queue, queues(s)") == (1, [[2]])


def test_a_rule_and_a_socket_of_one_match(sender: Peer, fabric: str) -> None:
    """One of the two has a queue at a time: with both the device would bring each datagram twice."""
    with engine_of(fabric, 11) as engine:
        port = engine("s = bound(key=1)\nports(s)[0]")
        make = "rule = ring.steer(ring.interfaces()[0].index, ring.FlowRule(dst=host, protocol='udp', dst_port=port))"
        engine(make, port=port)
        for call in ("rule.move()", "ring.move(s, None)\nrule.move()\nring.move(s, 1)"):
            with pytest.raises(OSError) as raised:
                engine(call)
            assert raised.value.errno == errno.EEXIST, call
            assert by_which(sender, engine, "s") >= 0
            with pytest.raises(TimeoutError):
                engine("s.settimeout(0.1)\ns.recv(10)")
            engine("s.settimeout(20)")
        assert engine("rule.queue > 0, queues(s)") == (True, [[]])
        assert by_which(sender, engine, "s") == engine("rule.queue")
        engine("rule.close()\nring.move(s, 1)")
        assert len(engine("queues(s)[0]")) == 1
        assert by_which(sender, engine, "s") == engine("queues(s)[0][0]")


def test_what_is_refused(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 0) as engine:
        engine("s = bound()")
        with pytest.raises(OSError, match="any ring_logic_rx but 0") as raised:
            engine("ring.move(s, 1)")
        assert raised.value.errno == errno.EOPNOTSUPP
        assert by_which(sender, engine, "s") == -1  # one queue is none
        assert engine("ring.interfaces()[0].rx_queues") == 0
    with engine_of(fabric, 11) as engine:
        engine("s = bound(key=1)")
        for call, number in (
            ("ring.place(s, 2)", errno.EBUSY),
            ("k = bound('127.0.0.1')\nring.place(k, 1)", errno.EOPNOTSUPP),
            ("c = bound()\nc.close()\nring.place(c, 1)", errno.EBADF),
        ):
            with pytest.raises(OSError) as raised:
                engine(call)
            assert raised.value.errno == number, call
        with pytest.raises(ValueError, match="64 bits"):
            engine("ring.place(s, -1)")
        assert engine("queues(s)") == [[1]]
        assert by_which(sender, engine, "s") == 1
    with Actor([f"softnic:fabric={fabric},port=1,addr={HERE}/24"], env={"PYVMA_RING_LOGIC_RX": "5"}) as engine:
        with pytest.raises(OSError, match="0, 1, 10, 11, 20, 30 or 31"):
            engine("import pyvma.ring\npyvma.ring.interfaces()")


def test_fork_and_stop(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 10) as engine:
        engine("a, b = bound(), bound()")
        child = "pid = os.fork()\nif not pid:\n try: a.close(); b.close()\n finally: os._exit(0)\nos.waitpid(pid, 0)[1]"
        assert engine(child) == 0
        assert engine("queues(a, b)") == [[1], [2]]
        assert [by_which(sender, engine, s) for s in "ab"] == [1, 2]
        engine("pyvma.stop()\nqueues(a)")
        engine("a.close(); b.close()")


def test_the_queues_statistics(sender: Peer, fabric: str) -> None:
    with engine_of(fabric, 10) as engine:
        engine("a, b = bound(), bound()")
        assert [by_which(sender, engine, s) for s in "abb"] == [1, 2, 2]
        fields = "[(q['number'], q['queue'], q['packets'], q['bytes'], q['rules'], q.linked('ring')['interface']) for q in found]"
        size = len(frame(1, 7))
        assert engine(READ + fields) == [(1, 1, 1, size, 1, "sn0"), (2, 2, 2, 2 * size, 1, "sn0")]
        assert engine("[q['buffers'] <= q['depth'] for q in found]") == [True, True]
        # What was left stays open for a moment, and is closed when another is left after that.
        engine("c, d = bound(), bound()\nb.close()\ntime.sleep(0.02)\nd.close()")
        assert engine(READ + "[(q['number'], q['rules']) for q in found]") == [(1, 1), (3, 1), (4, 0)]
        assert engine("b, d = bound(), bound()\nqueues(b, d)") == [[4], [2]]


def test_a_device_without_a_hash_places_nothing(fabric: str) -> None:
    """The setting is no error, what the program asks for is one, and both say why."""
    interface = f"softnic:fabric={fabric},port=1,addr={HERE}/24,name=sn0"
    with Actor([interface], env={"PYVMA_RING_LOGIC_RX": "10", "PYVMA_SOFTNIC_OFF": "rss"}) as engine:
        engine(SETUP, host=HERE)
        engine("s = bound()")
        assert engine("ring.interfaces()[0].rx_queues") == 0
        (place,) = engine("ring.places(s)")
        assert place.queue == 0 and place.reason
        with pytest.raises(OSError, match="hash") as raised:
            engine("ring.move(s, 1)")
        assert raised.value.errno == errno.EOPNOTSUPP


@pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")
@pytest.mark.parametrize(("logic", "by"), [(20, "thread"), (31, "attached core")])
def test_a_ring_without_queues_places_nothing(logic: int, by: str) -> None:
    """Nor does it bind a thread to a core for the sake of a queue."""
    env = {"PYVMA_RING_LOGIC_RX": str(logic)}
    with Namespace() as ns, Actor([f"tap:name=tap0,addr={HERE}/24"], netns=ns.name, env=env) as engine:
        engine(SETUP, host=HERE)
        cores = engine("os.sched_getaffinity(0)")
        if logic == 31 and len(cores) < 2:
            pytest.skip("one processor")
        assert engine("s = bound()\ns.offload.state, ring.interfaces()[0].rx_queues") == ("offloaded", 0)
        assert engine("[(p.queue, p.by, bool(p.reason)) for p in ring.places(s)]") == [(0, by, True)]
        assert engine("os.sched_getaffinity(0)") == cores
        with pytest.raises(OSError, match="verbs and softnic rings do") as raised:
            engine("ring.move(s, 1)")
        assert raised.value.errno == errno.EOPNOTSUPP


# ---- streams, and interfaces of the kernel's

SERVE = """
ls = [socket.socket() for _ in range(2)]
for l in ls: l.settimeout(20); l.bind((host, 0)); l.listen()
"""
ACCEPT = "cs = [l.accept()[0] for l in ls]\n[c.settimeout(20) for c in cs]\n[c.sendall(c.recv(100)) for c in cs]"
TALK = "ss = [socket.create_connection((host, port), 20) for port in ports]\n[s.sendall(b'hello') for s in ss]"


def test_streams(fabric: str) -> None:
    """Listeners, what they accept and what connects: each connection comes by its own queue."""
    there = f"softnic:fabric={fabric},port=0,addr={THERE}/24,name=sn0"
    with engine_of(fabric, 10) as engine, Actor([there]) as peer:
        ports = engine(SERVE + "[l.getsockname()[1] for l in ls]")
        assert engine("queues(*ls)") == [[1], [2]]
        peer(TALK, host=HERE, ports=ports)
        engine(ACCEPT)
        assert peer("[s.recv(100) for s in ss]") == [b"hello"] * 2
        assert engine("queues(*cs)") == [[3], [4]]
        peer("[s.sendall(b'x' * 100000) for s in ss]")
        assert engine("[len(c.recv(100000)) > 0 for c in cs]") == [True] * 2
        assert engine("[c.getsockopt(socket.SOL_SOCKET, 49) for c in cs]") == [3, 4]
        port = peer("l = socket.socket()\nl.bind((host, 0))\nl.listen()\nl.getsockname()[1]", host=THERE)
        engine("o = socket.create_connection((there, port), 20)", there=THERE, port=port)
        assert engine("queues(o)") == [[5]]
        peer("c = l.accept()[0]\nc.sendall(b'y' * 50)")
        assert engine("o.recv(100)") == b"y" * 50
        assert engine("o.getsockopt(socket.SOL_SOCKET, 49)") == 5
        # A live connection moves with data on its way.
        peer.start("c.sendall(b''.join(bytes([i]) * 30000 for i in range(100)))")
        engine(
            "got, turn = b'', 0\n"
            "while len(got) < 3000000:\n"
            " got += o.recv(30000); turn += 1\n"
            " if turn % 5 == 0: ring.move(o, turn // 5 % 4 or None)"
        )
        peer.finish()
        assert engine("got == b''.join(bytes([i]) * 30000 for i in range(100))")
        assert engine("turn > 40")
        engine("[s.close() for s in (o, *cs, *ls)]")
        assert engine(READ + "[q['rules'] for q in found if q['rules']]") == []


@pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")
def test_on_an_interface_of_the_kernels() -> None:
    """Each datagram comes once, though the socket's own rule says the same, and the kernel keeps the rest; also while the socket moves."""
    own, theirs = "10.79.0.1", "10.79.0.2"
    with uplink({4: own, 6: "fd79::1"}) as (ns, fabric):
        peer_of = f"softnic:fabric={fabric},port=0,addr={theirs}/24,name=sn0"
        env = {"PYVMA_RING_LOGIC_RX": "11"}
        with Actor([f"softnic:fabric={fabric},port={PORT},netdev=tap0"], netns=ns.name, env=env) as host, Actor([peer_of]) as peer:
            host(SETUP, host=own)
            ports = host("a, b = bound(key=1), bound()\nports(a, b)")
            assert host("queues(a, b)") == [[1], []]
            peer("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))", host=theirs)
            send = "for i in range(n, n + 20): s.sendto(i.to_bytes(4, 'big'), (host, port))"
            peer(send.replace("20", "1"), n=7, host=own, port=ports[0])
            assert host("came(a)[0]") == 7
            for n, to in ((0, "2"), (20, "None"), (40, "1"), (60, "3")):
                peer(send, n=n, host=own, port=ports[0])
                host(f"ring.move(a, {to})")
            assert host("[came(a)[0] for _ in range(80)]") == list(range(80))
            # And while they come, no more of them at once than a queue has buffers.
            peer.start(
                "for i in range(3000):\n s.sendto(i.to_bytes(4, 'big'), (host, port))\n if i >= 100 and i % 50 == 49: s.recv(10)",
                host=own,
                port=ports[0],
            )
            host(
                "got, left = [], 0\n"
                "for i in range(60):\n"
                " ring.move(a, i % 4 or None)\n"
                " for _ in range(50):\n"
                "  data, peer = a.recvfrom(10)\n"
                "  got.append(int.from_bytes(data, 'big'))\n"
                " a.sendto(b'more', peer)"
            )
            peer.finish()
            assert host("sorted(got) == list(range(3000))")
            with pytest.raises(TimeoutError):
                host("a.settimeout(0.2)\na.recv(10)")
            peer(send, n=0, host=own, port=ports[1])
            assert host("[came(b)[0] for _ in range(20)]") == list(range(20))
            assert host("a.stats['kernel_rx_datagrams']") == 0


@pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")
def test_addresses_are_followed() -> None:
    """What comes to an address that the kernel gets later comes by the socket's queue, and of one that goes no rule stays in the device;
    also when nothing is left that could have a queue."""
    own, added, theirs = "10.79.0.1", "10.79.0.77", "10.79.0.2"
    with uplink({4: own, 6: "fd79::1"}) as (ns, fabric):
        peer_of = f"softnic:fabric={fabric},port=0,addr={theirs}/24,name=sn0"
        interfaces = [f"softnic:fabric={fabric},port={PORT},netdev=tap0", f"tap:name=tap1,addr={HERE}/24"]
        with Actor(interfaces, netns=ns.name, env={"PYVMA_RING_LOGIC_RX": "11"}) as host, Actor([peer_of]) as peer:
            host(SETUP, host=own)
            port = host("s = bound('0.0.0.0', key=1)\nports(s)[0]")
            assert host("queues(s)") == [[1]]
            ns.ip("addr", "add", f"{added}/24", "dev", "tap0")
            wait_for("the second rule", lambda: host("queues(s)") == [[1, 1]])
            peer("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind((host, 0))", host=theirs)
            for address in (own, added):
                first = host("ring.interfaces()[0].queues") - 1
                peer("s.sendto((7).to_bytes(4, 'big'), to)", to=(address, port))
                assert host("came(s)") == (7, first + 1)
            rules = READ + "[q['rules'] for q in found if q['number'] == 1]"
            assert host(rules) == [2]
            ns.ip("addr", "del", f"{added}/24", "dev", "tap0")
            wait_for("one rule less", lambda: host("queues(s)") == [[1]])
            assert host(rules) == [1]
            ns.ip("addr", "del", f"{own}/24", "dev", "tap0")
            wait_for("no rule", lambda: host("queues(s)") == [[0]])
            assert host(rules) in ([0], [])
            assert host("bool(ring.places(s)[0].reason)")
