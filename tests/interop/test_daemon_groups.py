"""What is for a group or for all, and several processes that want it by pyvmad: each gets a copy."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from actor import Actor
from daemon import Daemon, asker, daemon, ours
from exchange import wait_for
from netns import Namespace, usable
from veth import ENGINE, namespaces

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

GROUP4, GROUP6, BROADCAST = "239.7.7.7", "ff15::7", "10.78.0.255"
Lab = tuple[Namespace, Actor, Daemon, list[Actor]]
JOIN = """
number, name, fds = tap(index)
socks = []
for to in groups:
    s = std.socket(std.AF_INET6 if ":" in to else std.AF_INET, std.SOCK_DGRAM)
    s.setsockopt(std.SOL_SOCKET, std.SO_REUSEADDR, 1)
    s.bind(("" if to.endswith("255") else to, 5000))
    if ":" in to:
        s.setsockopt(std.IPPROTO_IPV6, std.IPV6_JOIN_GROUP, struct.pack("=16si", std.inet_pton(std.AF_INET6, to), index))
    elif not to.endswith("255"):
        s.setsockopt(0, std.IP_ADD_MEMBERSHIP, struct.pack("=4s4si", std.inet_aton(to), bytes(4), index))
    socks.append(s)
def add(to, port=5000):
    return result(p.FLOW_ADD, flow(to, port, tap=number), socks[groups.index(to)].fileno())[0]
def ends(to, count):
    found = frames(fds[0], count, 5)
    return [frame[-3:] for frame in found]
"""
SEND = """
for to in groups:
    u = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
    u.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    u.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"v1")
    u.sendto(text, (to, 5000))
"""
GROUPS = [GROUP4, GROUP6, BROADCAST]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    with namespaces() as made:
        made[0].ip("addr", "add", "10.78.0.3/24", "brd", "10.78.0.255", "dev", "v0")
        made[1].ip("addr", "add", "10.78.0.4/24", "brd", "10.78.0.255", "dev", "v1")
        yield made


@pytest.fixture
def lab(pair: tuple[Namespace, Namespace]) -> Iterator[Lab]:
    here, there = pair
    with ExitStack() as stack:
        running = stack.enter_context(daemon(here))
        peer = stack.enter_context(Actor(netns=there.name))
        apps = [stack.enter_context(asker(here, running.path)) for _ in range(3)]
        for app in apps:
            app(JOIN, groups=GROUPS)
        yield here, peer, running, apps
        for app in apps:
            app.kill()
        wait_for("the end of all rules", lambda: not ours(here, "v0"))


def hear(peer: Actor, apps: list[Actor], text: bytes) -> list[list[bytes]]:
    peer(SEND, groups=GROUPS, text=text)
    return [app("ends('', 3)") for app in apps]


def targets(here: Namespace) -> list[int]:
    """How many actions each rule has."""
    return [text.count("(Egress Mirror") + text.count("(Egress Redirect") for text in ours(here, "v0") if "terminal" in text]


def test_each_process_gets_a_copy(lab: Lab) -> None:
    here, peer, running, apps = lab
    for number, app in enumerate(apps, 1):
        assert [app("add(to)", to=to) for to in GROUPS] == [0, 0, 0]
        assert [app("add(to)", to=to) for to in GROUPS] == [0, 0, 0]  # it has it
        assert targets(here) == [number] * 3
    assert hear(peer, apps, b"one") == [[b"one"] * 3] * 3
    # An address of the host's own is one process's.
    assert apps[0]("s = bound(host, 5001); result(p.FLOW_ADD, flow(host, 5001, tap=number), s.fileno())[0]", host=ENGINE[4]) == 0
    taken = "result(p.FLOW_ADD, flow(host, 5001, tap=number), socks[0].fileno())[0]"
    assert apps[1](taken, host=ENGINE[4]) == -17
    # A daemon that is started anew finds all of them.
    running.stop(signal.SIGKILL)
    apps[1].kill()
    running.start()
    wait_for("the end of one", lambda: sorted(targets(here)) == [1, 2, 2, 2])
    left = [apps[0], apps[2]]
    assert hear(peer, left, b"two") == [[b"two"] * 3] * 2
    left[0].kill()
    wait_for("the end of another", lambda: targets(here) == [1, 1, 1])
    assert hear(peer, left[1:], b"end") == [[b"end"] * 3]


def test_a_switch_that_fails_is_tried_again(lab: Lab) -> None:
    """Somebody has deleted the rule in the moment in which a process joins, and then the whole qdisc as one leaves."""
    here, peer, running, apps = lab
    assert running.process is not None
    assert [app("add(to)", to=to) for app in apps[:2] for to in GROUPS] == [0] * 6
    running.process.send_signal(signal.SIGSTOP)
    here.run("tc", "filter", "del", "dev", "v0", "ingress", "pref", "7401")
    for to in GROUPS:
        apps[2].start("add(to)", to=to)
        if to is GROUPS[0]:
            running.process.send_signal(signal.SIGCONT)
        assert apps[2].finish() == 0
    wait_for("the rules", lambda: targets(here) == [3, 3, 3])
    assert hear(peer, apps, b"abc") == [[b"abc"] * 3] * 3
    running.process.send_signal(signal.SIGSTOP)
    here.run("tc", "qdisc", "del", "dev", "v0", "clsact")
    apps[1].kill()
    running.process.send_signal(signal.SIGCONT)
    wait_for("the rules", lambda: targets(here) == [2, 2, 2])
    assert hear(peer, [apps[0], apps[2]], b"xyz") == [[b"xyz"] * 3] * 2


def test_those_that_flap(lab: Lab) -> None:
    """Joining and leaving in turn while one stays, which hears everything."""
    here, peer, _, apps = lab
    assert [apps[0]("add(to)", to=to) for to in GROUPS] == [0] * 3
    for number in range(20):
        assert [app("add(to)", to=to) for app in apps[1:] for to in GROUPS] == [0] * 6
        text = b"%03d" % number
        assert hear(peer, apps[:1], text) == [[text] * 3]
        for app in apps[1:]:
            app("[c.call(p.FLOW_DEL, flow(to, 5000, tap=number)) for to in groups]")
    assert targets(here) == [1, 1, 1]
