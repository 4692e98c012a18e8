"""pyvmad in a namespace of its own: what `tc` shows, where packets land, what is refused, and what is left when somebody is killed."""

from __future__ import annotations

import contextlib
import random
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from actor import Actor
from daemon import CONNECT, DROP, PROGRAM, Daemon, asker, daemon, ours, qdiscs
from exchange import wait_for
from lab import LONG
from netns import Namespace, usable
from veth import ENGINE, KERNEL

from pyvma.daemon import Connection
from pyvma.daemon import _protocol as protocol

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

ROUNDS = 100 if LONG else 5
FLOWS = 2000
SEED = 20261122
SOMEBODY = 20000 + secrets.randbelow(40000)
Lab = tuple[Namespace, Namespace, Daemon]


@pytest.fixture
def lab(pair: tuple[Namespace, Namespace]) -> Iterator[Lab]:
    with daemon(pair[0]) as running:
        yield *pair, running
        wait_for("the end of all rules", lambda: not ours(pair[0], "v0"))


def add(actor: Actor, call: str) -> None:
    """A flow and the socket that proves it, which the actor keeps."""
    actor(f"s = bound(dst, port, proto); held[dst, port, proto] = s; c.call(p.FLOW_ADD, {call}, (s.fileno(),))")


# ---- tc


def test_exactly_these_rules(lab: Lab) -> None:
    here, _, running = lab
    with asker(here, running.path) as app:
        number, name, _ = app("number, name, fds = tap(index); number, name, fds")
        add_to = "flow(dst, port, proto, src, sport, number)"
        for dst, port, proto, src, sport in (
            (ENGINE[4], 0x1388, 17, "", 0),
            (ENGINE[4], 0x1388, 17, KERNEL[4], 7),
            (ENGINE[4], 0x2388, 6, "", 0),
            (ENGINE[6], 0x1389, 6, "", 0),
            (ENGINE[6], 0x1389, 6, KERNEL[6], 9),
        ):
            app("dst, port, proto, src, sport = given", given=(dst, port, proto, src, sport))
            if (dst, port, proto) in app("list(held)"):
                app(f"c.call(p.FLOW_ADD, {add_to})")  # the port is proved already
            else:
                add(app, add_to)
        assert qdiscs(here, "v0") == ["clsact"]
        text = "\n".join(ours(here, "v0"))
        text = re.sub(r" cookie [0-9a-f]+| (skip_hw|not_in_hw)|order \d+ ", "", text).replace(name, "TAP")
        assert text.splitlines() == [
            "filter protocol ip pref 7401 u32 chain 0",
            "filter protocol ip pref 7401 u32 chain 0 fh 1: ht divisor 256",
            *(
                f"filter protocol ip pref 7401 u32 chain 0 fh 1:88:{node} key ht 1 bkt 88 terminal flowid match 05000000/0f000000 at 0 "
                f"match 00000000/00003fff at 4 match 00{proto}0000/00ff0000 at 8 match {ports} at 20{source} "
                "action order 1: mirred (Egress Redirect to device TAP) stolen"
                for node, proto, ports, source in (
                    ("2", "11", "00071388/ffffffff", " match 0a4e0002/ffffffff at 12"),
                    ("800", "11", "00001388/0000ffff", ""),
                    ("802", "06", "00002388/0000ffff", ""),
                )
            ),
            "filter protocol ip pref 7401 u32 chain 0 fh 7ff: ht divisor 1",
            "filter protocol ip pref 7401 u32 chain 0 fh 800: ht divisor 1",
            "filter protocol ip pref 7401 u32 chain 0 fh 800::1 key ht 800 bkt 0 link 1: match 0a4e0001/ffffffff at 16 "
            "hash mask 000000ff at 20",
            "filter protocol ipv6 pref 7402 u32 chain 0",
            "filter protocol ipv6 pref 7402 u32 chain 0 fh 2: ht divisor 256",
            *(
                f"filter protocol ipv6 pref 7402 u32 chain 0 fh 2:89:{node} key ht 2 bkt 89 terminal flowid match 00000600/0000ff00 at 4 "
                f"match {ports} at 40{source} action order 1: mirred (Egress Redirect to device TAP) stolen"
                for node, ports, source in (
                    (
                        "2",
                        "00091389/ffffffff",
                        " match fd780000/ffffffff at 8 match 00000000/ffffffff at 12 match 00000000/ffffffff at 16 "
                        "match 00000002/ffffffff at 20",
                    ),
                    ("800", "00001389/0000ffff", ""),
                )
            ),
            "filter protocol ipv6 pref 7402 u32 chain 0 fh 801: ht divisor 1",
            "filter protocol ipv6 pref 7402 u32 chain 0 fh 801::2 key ht 801 bkt 0 link 2: match fd780000/ffffffff at 24 "
            "match 00000000/ffffffff at 28 match 00000000/ffffffff at 32 match 00000001/ffffffff at 36 hash mask 000000ff at 40",
        ]
        egress = "\n".join(ours(here, name))
        assert egress.count("(Egress Redirect to device lo)") == 3  # two addresses and the link-local one
        assert egress.count("match 00000000/00000000 at 0 action order 1: mirred (Egress Redirect to device v0) stolen") == 1
        status = running.status()
        assert [(each["name"], each["rules"], each["tables"], each["own_qdisc"]) for each in status["interfaces"]] == [("v0", 5, 2, 1)]
        (process,) = status["processes"]
        assert (process["flows"], process["taps"]) == (5, [{"name": name, "ifindex": number, "serves": "v0"}])
        # Deleted one by one: nothing is left, not the qdisc either.
        for body in app("[flow(d, q, t, tap=number) for d, q, t in held]"):
            app("c.call(p.FLOW_DEL, body)", body=body)
        assert len(ours(here, "v0")) == 11
    wait_for("the qdisc's end", lambda: not qdiscs(here, "v0"))


@pytest.mark.parametrize("kind", ["clsact", "ingress"])
def test_what_others_made_stays(lab: Lab, kind: str) -> None:
    here, _, running = lab
    here.run("tc", "qdisc", "add", "dev", "v0", *(["clsact"] if kind == "clsact" else ["ingress"]))
    parent = ["ingress"] if kind == "clsact" else ["parent", "ffff:"]
    rule = ["protocol", "ip", "u32", "match", "ip", "dport", "9", "0xffff", "flowid", "1:1"]

    def foreign() -> str:
        text = here.run("tc", "filter", "show", "dev", "v0", "ingress").replace("parent ffff: ", "")
        return "".join(part for part in re.split(r"(?m)^(?=filter )", text) if not re.search(r"pref 74\d\d ", part))

    try:
        here.run("tc", "filter", "add", "dev", "v0", *parent, "pref", "50", *rule)
        here.run("tc", "filter", "add", "dev", "v0", *parent, "pref", "51", "handle", "1:", "protocol", "ip", "u32", "divisor", "16")
        here.run("tc", "filter", "add", "dev", "v0", *parent, "pref", "60000", *rule)
        before = foreign()
        assert before.count("pref") >= 6
        with asker(here, running.path) as app:
            app("number, name, fds = tap(index)")
            add_flow = "flow(dst, port, proto, tap=number)"
            for family in (4, 6):
                app("dst, port, proto = given", given=(ENGINE[family], 5000, 17))
                add(app, add_flow)
            assert qdiscs(here, "v0") == [kind]
            assert foreign() == before
            # The foreign table has number 1: ours are others.
            assert not any("fh 1:" in text for text in ours(here, "v0"))
            running.stop(signal.SIGKILL)
            running.start()
            assert foreign() == before
            assert sum("terminal" in text for text in ours(here, "v0")) == 2
        wait_for("the end of our rules", lambda: not ours(here, "v0"))
        assert foreign() == before
        assert qdiscs(here, "v0") == [kind]
    finally:
        here.run("tc", "qdisc", "del", "dev", "v0", kind)


# ---- packets

SEND = """
for text, to in given:
    u = socket.socket(socket.AF_INET6 if ':' in to[0] else socket.AF_INET, socket.SOCK_DGRAM)
    if port:
        u.bind(('::' if ':' in to[0] else '', port))
    u.sendto(text, tuple(to))
    u.close()
"""


def test_packets_land_in_the_right_tap(lab: Lab) -> None:
    here, there, running = lab
    with ExitStack() as stack, Actor(netns=there.name) as peer:
        apps = [stack.enter_context(asker(here, running.path)) for _ in range(2)]
        for i, app in enumerate(apps):
            app("number, name, fds = tap(index)")
            for family in (4, 6):
                for port in (7000 + i, 7256 + i):  # the same bucket
                    app("dst, port, proto = given", given=(ENGINE[family], port, 17))
                    add(app, "flow(dst, port, proto, tap=number)")
        # The flow of one peer goes to the second application, though the port is the first one's.
        apps[1](
            "e = std.socket(std.AF_INET, std.SOCK_DGRAM); e.setsockopt(std.SOL_SOCKET, std.SO_REUSEADDR, 1); e.bind((host, 7999)); "
            "c.call(p.FLOW_ADD, flow(host, 7999, 17, peer, 4000, number), (e.fileno(),))",
            host=ENGINE[4],
            peer=KERNEL[4],
        )
        for i in range(2):
            for family in (4, 6):
                given = [(f"{i} {family} {port}".encode(), (ENGINE[family], port)) for port in (7000 + i, 7256 + i)]
                peer(SEND, given=given, port=0)
        peer(SEND, given=[(b"of one peer", (ENGINE[4], 7999))], port=4000)
        peer(SEND, given=[(b"of another", (ENGINE[4], 7999))], port=4001)
        peer(SEND, given=[(b"whole" * 1000, (ENGINE[4], 7000))], port=0)  # in fragments
        assert sorted(frame[-8:] for frame in apps[0]("frames(fds[0], 4)")) == [b"0 4 7000", b"0 4 7256", b"0 6 7000", b"0 6 7256"]
        found = apps[1]("frames(fds[0], 5)")
        assert sorted(frame[-8:] for frame in found) == [b"1 4 7001", b"1 4 7257", b"1 6 7001", b"1 6 7257", b"one peer"]
        assert apps[1]("e.settimeout(20); e.recv(100)") == b"of another"  # the kernel's
        assert apps[0]("s = held[dst, 7000, 17]; s.settimeout(20); s.recv(9000)", dst=ENGINE[4]) == b"whole" * 1000
        assert apps[0]("frames(fds[0], 1, 0.2)") == []
        egress(apps[0], peer)


def egress(app: Actor, peer: Actor) -> None:
    """What is written into the TAP leaves by the interface; what is for the interface's own address goes to lo."""
    peer("r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind((host, 7500)); r.settimeout(20)", host=KERNEL[4])
    mac = peer("import fcntl; fcntl.ioctl(r.fileno(), 0x8927, b'v1'.ljust(40, bytes(1)))[18:24]")
    app(
        "def packet(src, dst, sport, dport, data):\n"
        "    udp = struct.pack('>HHHH', sport, dport, 8 + len(data), 0) + data\n"
        "    head = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, std.inet_aton(src), std.inet_aton(dst))\n"
        "    total = sum(struct.unpack('>10H', head))\n"
        "    total = (total & 0xffff) + (total >> 16)\n"
        "    total = (total & 0xffff) + (total >> 16)\n"
        "    return head[:10] + struct.pack('>H', ~total & 0xffff) + head[12:] + udp\n"
    )
    app(
        "os.write(fds[0], bytes(10) + mac + bytes(6) + b'\\x08\\0' + packet(host, to, 7000, 7500, b'out'))",
        mac=mac,
        host=ENGINE[4],
        to=KERNEL[4],
    )
    assert peer("r.recvfrom(100)") == (b"out", (ENGINE[4], 7000))
    app("k = std.socket(std.AF_PACKET, std.SOCK_RAW, std.htons(0x0800)); k.bind(('lo', 0)); k.settimeout(20)")
    app("os.write(fds[0], bytes(10) + mac + bytes(6) + b'\\x08\\0' + packet(to, host, 7500, 7000, b'to myself'))")
    assert app("k.recv(2000)")[-9:] == b"to myself"


# ---- rate


def test_two_applications_with_many_flows(lab: Lab) -> None:
    here, there, running = lab
    with ExitStack() as stack, Actor(netns=there.name) as peer:
        apps = [stack.enter_context(asker(here, running.path)) for _ in range(2)]
        for i, app in enumerate(apps):
            app("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192)); number, name, fds = tap(index)")
            app("socks = [bound(host, first + k) for k in range(count)]", host=ENGINE[4], first=10000 + i * FLOWS, count=FLOWS)
        rates = {}
        for verb, code in (
            ("add", "sent = [c.send(p.FLOW_ADD, flow(host, first + k, tap=number), (socks[k].fileno(),)) for k in part]"),
            ("delete", "sent = [c.send(p.FLOW_DEL, flow(host, first + k, tap=number)) for k in part]"),
        ):
            began = time.monotonic()
            for app in apps:
                app.start(
                    "wrong = 0\n"
                    "for start in range(0, count, 64):\n"
                    "    part = range(start, min(start + 64, count))\n"
                    f"    {code}\n"
                    "    wrong += sum(c.receive().result != 0 for _ in sent)\n"
                    "wrong"
                )
            assert [app.finish() for app in apps] == [0, 0]
            rates[verb] = 2 * FLOWS / (time.monotonic() - began)
            if verb == "delete":
                break
            assert sum("terminal" in text for text in ours(here, "v0")) == 2 * FLOWS
            chance = random.Random(SEED)
            for i, app in enumerate(apps):
                ports = sorted(chance.sample(range(10000 + i * FLOWS, 10000 + (i + 1) * FLOWS), 20))
                peer(SEND, given=[(f"to {port}".encode(), (ENGINE[4], port)) for port in ports], port=0)
                assert sorted(frame[-8:].decode() for frame in app("frames(fds[0], 20)")) == [f"to {port}" for port in ports]
        print(f"two applications, {FLOWS} flows each: {rates['add']:.0f} rules/s added, {rates['delete']:.0f} rules/s deleted")
        wait_for("the end of all rules", lambda: not ours(here, "v0"))


# ---- refusals


def test_what_is_refused(lab: Lab) -> None:
    here, _, running = lab
    with asker(here, running.path) as app, asker(here, running.path) as other, asker(here, running.path) as stranger:
        stranger(DROP, user=SOMEBODY, groups=[])
        for actor in (app, other):
            actor("number, name, fds = tap(index)")
        app("dst, port, proto = given", given=(ENGINE[4], 6000, 17))
        add(app, "flow(dst, port, tap=number)")
        number = app("number")

        def refused(actor: Actor, code: str, **names: object) -> tuple[int, str]:
            found: tuple[int, str] = actor(code, host=ENGINE[4], peer=KERNEL[4], app_tap=number, **names)
            return found

        wrong = "result(p.FLOW_ADD, flow(host, {}, tap=number), {})".format
        assert refused(app, wrong(6001, "s.fileno()"))[0] == -13  # the socket has another port
        assert "not bound" in refused(app, wrong(6001, "s.fileno()"))[1]
        assert refused(app, "result(p.FLOW_ADD, flow(host, 6001, tap=number))")[1].endswith("no socket came with the request")
        assert refused(app, "t = bound(host, 6002, 6); result(p.FLOW_ADD, flow(host, 6002, tap=number), t.fileno())")[1].endswith(
            "protocol"
        )
        assert refused(app, "r, w = os.pipe(); result(p.FLOW_ADD, flow(host, 6001, tap=number), r)")[0] == -13
        assert refused(app, "u = bound('127.0.0.1', 6001); result(p.FLOW_ADD, flow(host, 6001, tap=number), u.fileno())")[0] == -13
        assert refused(app, "result(p.FLOW_ADD, flow('10.99.0.1', 6000, tap=number), s.fileno())")[1].endswith("not have this address")
        assert refused(app, "result(p.FLOW_ADD, flow(host, 6000, tap=number, ifindex=9999), s.fileno())")[0] == -19
        assert refused(app, "result(p.FLOW_ADD, flow(host, 6000, tap=0), s.fileno())")[0] == -13  # no XDP program
        assert refused(app, "result(p.FLOW_ADD, flow(host, 6000, tap=number))") == (0, "")  # it is there already
        # Of another process: the flow, the TAP, the end of the flow.
        shared = "q = std.socket(std.AF_INET, std.SOCK_DGRAM); q.setsockopt(std.SOL_SOCKET, std.SO_REUSEPORT, 1)"
        app(f"{shared}; q.bind((host, 6010)); c.call(p.FLOW_ADD, flow(host, 6010, tap=number), (q.fileno(),))", host=ENGINE[4])
        other(f"{shared}; q.bind((host, 6010))", host=ENGINE[4])
        assert refused(other, "result(p.FLOW_ADD, flow(host, 6010, tap=number), q.fileno())")[0] == -17
        assert refused(other, "result(p.FLOW_ADD, flow(host, 6010, 17, peer, 5, app_tap), q.fileno())")[0] == -13
        assert refused(other, "result(p.FLOW_DEL, flow(host, 6010, tap=app_tap))")[0] == -13
        assert refused(other, "result(p.FLOW_DEL, flow(host, 6020, tap=number))")[0] == -2
        # Of another namespace's socket.
        with Actor(netns=lab[1].name) as elsewhere:
            elsewhere("from pyvma.daemon import Connection, _protocol as p; c = Connection(path)", path=running.path)
            with pytest.raises(OSError, match="another network namespace"):
                elsewhere("c.call(p.TAP, p.TAP_ASK.pack(0, 1, 0))")
        # Who is in no group does not get in at all.
        with pytest.raises(PermissionError):
            stranger("Connection(path)", path=running.path)
        status = running.status()
        assert status["refusals"] >= 12
        assert sum("terminal" in text for text in ours(here, "v0")) == 2


def test_a_group_may_ask_but_not_for_others(pair: tuple[Namespace, Namespace]) -> None:
    here = pair[0]
    with daemon(here, "--group", "daemon") as running, asker(here, running.path) as root:
        root("number, name, fds = tap(index); s = std.socket(std.AF_INET, std.SOCK_DGRAM)")
        root("s.setsockopt(std.SOL_SOCKET, std.SO_REUSEADDR, 1); s.bind((host, 6100))", host=ENGINE[4])
        root("c.call(p.FLOW_ADD, flow(host, 6100, tap=number), (s.fileno(),))")
        with Actor(netns=here.name) as member:
            member("import socket as std; from pyvma.daemon import Connection, _protocol as p")
            member(DROP, user=SOMEBODY, groups=[1])
            member(CONNECT, path=running.path)
            member("number, name, fds = tap(index)")
            # The kernel lets two users share a port where both say so: the flows stay with the first.
            member("s = std.socket(std.AF_INET, std.SOCK_DGRAM); s.setsockopt(std.SOL_SOCKET, std.SO_REUSEADDR, 1)")
            member("s.bind((host, 6100))", host=ENGINE[4])
            found = member("result(p.FLOW_ADD, flow(host, 6100, 17, peer, 5, number), s.fileno())", peer=KERNEL[4])
            assert found[0] == -13
            assert "another user's process" in found[1]
            assert member("s = bound(host, 6101); result(p.FLOW_ADD, flow(host, 6101, tap=number), s.fileno())") == (0, "")
            assert [each["rules"] for each in running.status()["processes"] if each["uid"] == SOMEBODY] == [[f"v0 udp {ENGINE[4]}:6101"]]


def test_malformed_messages_and_floods(lab: Lab) -> None:
    here, _, running = lab
    chance, began = random.Random(SEED), time.monotonic()
    with asker(here, running.path) as app:
        app("number, name, fds = tap(index)")
        app("dst, port, proto = given", given=(ENGINE[4], 6200, 17))
        add(app, "flow(dst, port, tap=number)")
        # Noise of every size, alone and behind a good header.
        for number in range(60 if not LONG else 2000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
                raw.connect(running.path)
                raw.settimeout(20)
                for _ in range(chance.randrange(1, 5)):
                    body = chance.randbytes(chance.choice((0, 1, 15, 16, 48, 64, 511, 600)))
                    if chance.random() < 0.7:
                        size = 16 + len(body)
                        body = protocol.HEAD.pack(protocol.MAGIC, 1, chance.randrange(12), size, number) + body
                    try:
                        raw.send(body)
                    except OSError:
                        break  # it was enough
        # A client that asks and never reads is not waited for, and one that floods is served in turns.
        with Connection(running.path) as flood:
            flood.socket.setblocking(False)
            sent, body = 0, app("flow(dst, port, tap=number)")
            with contextlib.suppress(BlockingIOError):
                while sent < 200_000:
                    flood.send(protocol.FLOW_DEL, body)
                    sent += 1
            assert sent > 100
            assert app("result(p.FLOW_ADD, flow(dst, port, tap=number))") == (0, "")
        wait_for("the end of the noise", lambda: len(running.status()["processes"]) == 1)
        assert running.process is not None and running.process.poll() is None
        lines = [line for line in running.text().splitlines() if "Traceback" in line or "Error" in line]
        assert lines == []
        status = running.status()
        assert status["refusals"] > 100
        assert status["not_logged"] > 0
        # Ten at once and two a second, not ten of each connection.
        assert running.text().count("\n") < 60 + 3 * (time.monotonic() - began)


# ---- death


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("victims", ["application", "daemon", "both"])
def test_kill_at_any_moment(lab: Lab, victims: str) -> None:
    here, _, running = lab
    chance = random.Random(SEED)
    longest = 0.0
    with asker(here, running.path) as stays:
        stays("number, name, fds = tap(index)")
        stays("dst, port, proto = given", given=(ENGINE[6], 6300, 6))
        add(stays, "flow(dst, port, proto, tap=number)")
        name = stays("name")
        for number in range(ROUNDS):
            with asker(here, running.path) as app:
                app("number, name, fds = tap(index)")
                app("socks = [bound(host, 20000 + k) for k in range(200)]", host=ENGINE[4])
                app.start(
                    "for n in range(10000):\n"
                    "    for k in range(200):\n"
                    "        c.send((p.FLOW_ADD, p.FLOW_DEL)[n % 2], flow(host, 20000 + k, tap=number), (socks[k].fileno(),))\n"
                    "        c.receive()\n"
                )
                time.sleep(chance.uniform(0.0, 0.1))
                if victims != "application":
                    running.stop(signal.SIGKILL)
                if victims != "daemon":
                    app.process.kill()
                    app.process.wait(20)
                began = time.monotonic()
                if victims != "application":
                    running.start()
                if victims == "daemon":
                    # The living one is taken over with what it had; its connection is gone.
                    owned = {each["pid"]: each for each in running.status()["processes"]}
                    left = sum("terminal" in text and "ht 1 bkt" in text for text in ours(here, "v0"))
                    assert sum(each["flows"] for each in owned.values()) == sum("terminal" in t for t in ours(here, "v0")), f"{left}"
                    app.process.kill()
                    app.process.wait(20)
                    began = time.monotonic()
                wait_for(
                    f"round {number}: the end of its rules", lambda: sum("terminal" in text for text in ours(here, "v0")) == 1, limit_s=30
                )
                longest = max(longest, time.monotonic() - began)
            assert any(f"device {name}" in text for text in ours(here, "v0")), "the living one's rule"
        print(f"{victims} killed {ROUNDS} times: rules without an owner gone within {longest * 1000:.0f} ms at most")


def test_a_daemon_that_finds_nothing_alive(pair: tuple[Namespace, Namespace]) -> None:
    here = pair[0]
    with daemon(here) as running:
        with asker(here, running.path) as app:
            app("number, name, fds = tap(index)")
            app("dst, port, proto = given", given=(ENGINE[4], 6400, 17))
            add(app, "flow(dst, port, tap=number)")
            running.stop(signal.SIGKILL)
        assert sum("terminal" in text for text in ours(here, "v0")) == 1
        told = here.run("sh", "-c", f"PYTHONSAFEPATH=1 {sys.executable} -c '{PROGRAM}' run --dry-run --socket {running.path}")
        assert re.search(rf"would remove udp {ENGINE[4]}:6400 of process \d+, which is no more", told)
        assert sum("terminal" in text for text in ours(here, "v0")) == 1
        running.start()
        wait_for("the end of it", partial(_empty, here))


def _empty(here: Namespace) -> bool:
    return not ours(here, "v0") and not qdiscs(here, "v0")
