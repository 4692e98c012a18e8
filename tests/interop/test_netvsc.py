"""NetVSC end to end: a guest whose VF, the software NIC, is plugged out and in beneath connections to a kernel peer; pyvmad redirects what
comes by the synthetic interface meanwhile.
"""

from __future__ import annotations

import bisect
import itertools
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from actor import Actor
from exchange import ASK, ECHO, wait_for
from lab import LONG
from netns import usable
from netvsc import HERE, THERE, Guest, before_others, guest, guest_without_rdma, open_files
from transfer import Transfer

import pyvma.stats
from pyvma._cli import run
from pyvma.ring import softnic

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

BIND = "s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM); s.settimeout(20); s.bind((host, 0))"
SWITCHES = 200 if LONG else 5
SIZE = 2 << 30 if LONG else 8 << 20
PACE_S = 0.001
FINE_S = 0.0005
REST_S = 0.05


@pytest.fixture(scope="module")
def machine() -> Iterator[Guest]:
    with guest() as found, found.daemon():
        yield found


@pytest.fixture
def app(machine: Guest) -> Iterator[Actor]:
    with Actor([machine.interface], netns=machine.here.name, env=machine.environment) as actor:
        try:
            yield actor
        finally:
            if machine.plugged:
                machine.plug_out()


@pytest.fixture
def peer(machine: Guest) -> Iterator[Actor]:
    with Actor(netns=machine.there.name) as actor:
        yield actor


class Program(Protocol):
    """What works over the guest's interface: an actor, or a program under the preload library."""

    process: subprocess.Popen[bytes]


def legs(app: Program) -> list[dict[str, Any]]:
    """Rings of the application that are legs, as its statistics show them."""
    with pyvma.stats.attach(app.process.pid) as process:
        snapshot = process.snapshot()
        return [dict(ring) for ring in snapshot.rings if ring.figure("master")]


def vf_sends(app: Program) -> bool:
    return any(leg["active"] and not leg["name"].startswith("tap:") for leg in legs(app))


def plug_in(machine: Guest, app: Program, order: random.Random | None = None) -> None:
    machine.plug_in(order)
    wait_for("the VF's leg", lambda: vf_sends(app))
    machine.datapath("tap0")


def plug_out(machine: Guest, app: Program, order: random.Random | None = None, rest_s: float = 0.0) -> None:
    """`rest_s`: nobody looks meanwhile."""
    machine.plug_out(order)
    time.sleep(rest_s)
    wait_for("the TAP alone", lambda: [leg["name"].startswith("tap:") for leg in legs(app)] == [True])


@pytest.mark.parametrize("family", [4, 6])
def test_datagrams_by_either_leg(machine: Guest, app: Actor, peer: Actor, family: int) -> None:
    """The same sockets, first without a VF, then over one, then without again; each leg counts what went by it."""
    datagrams_by_either_leg(machine, app, peer, family)


def test_a_vf_without_rdma() -> None:
    """The same over AF_XDP rings of the VF's interface; a transfer goes on while it comes and goes."""
    with guest_without_rdma() as machine, machine.daemon(), Actor(netns=machine.there.name) as peer:
        with Actor([machine.interface], netns=machine.here.name, env=machine.environment) as app:
            for family in (4, 6):
                datagrams_by_either_leg(machine, app, peer, family)
            transfer = Transfer(app, peer, THERE[4])
            for _ in range(SWITCHES):
                plug_in(machine, app)
                time.sleep(0.05)
                plug_out(machine, app)
            assert app("t.offload.state") == "offloaded"
            transfer.end()


def datagrams_by_either_leg(machine: Guest, app: Actor, peer: Actor, family: int) -> None:
    sizes = [0, 1, 100, 1400]
    for actor, hosts in ((app, HERE), (peer, THERE)):
        actor(BIND, family=family, host=hosts[family])
    here = (HERE[family], app("s.getsockname()[1]"))
    assert app("s.offload.state") == "offloaded"
    assert machine.rules() >= 1
    (tap,) = legs(app)
    plug_outs, sent = tap["vf_plugouts"], tap["tx_packets"]

    def talk() -> None:
        app.start(ECHO, sizes=sizes)
        peer(ASK, sizes=sizes, to=here)
        app.finish()

    talk()
    (tap,) = legs(app)
    assert tap["name"].startswith("tap:") and tap["tap_fd"] > 0 and tap["tap_device"] and tap["rx_packets"] >= len(sizes)
    plug_in(machine, app)
    wait_for("the datapath", lambda: f"{machine.mac} dev tap0" in machine.switch.run("bridge", "fdb", "show"))
    talk()
    by_name = {leg["name"].split(":")[0]: leg for leg in legs(app)}
    vf = by_name["verbs" if machine.rdma else "xdp"]
    assert vf["rx_packets"] == vf["tx_packets"] == len(sizes)
    assert vf["master"] == by_name["tap"]["master"]
    plug_out(machine, app)
    wait_for("the datapath", lambda: f"{machine.mac} dev s_syn" in machine.switch.run("bridge", "fdb", "show"))
    talk()
    (tap,) = legs(app)
    assert tap["vf_plugouts"] == plug_outs + 1 and tap["tx_packets"] == sent + 2 * len(sizes)
    stats = app("s.stats")
    assert (stats["rx_datagrams"], stats["tx_datagrams"]) == (3 * len(sizes), 3 * len(sizes))
    assert (stats["kernel_rx_datagrams"], stats["kernel_tx_datagrams"]) == (0, 0)
    app("s.close()")
    wait_for("the rules to go", lambda: machine.rules() == 0)


def picture(app: Program) -> dict[str, dict[str, str]]:
    """The rings of pyvma-stats' full view, by their heading without its number; each is its lines."""
    command = [sys.executable, "-m", "pyvma", "stats", "-p", str(app.process.pid), "-v", "3", "-c", "1"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    parts = [part.strip().splitlines() for part in text.split("=" * 54)]
    rings = [(lines[0].split("=")[0], lines[1:]) for lines in parts if lines and lines[0].startswith("RING_")]
    assert len({name for name, _ in rings}) == len(rings)
    return {name: {key: value.strip() for key, _, value in (line.partition(":") for line in lines)} for name, lines in rings}


def offloaded(ring: dict[str, str], way: str) -> tuple[int, int]:
    """Kilobytes and packets."""
    kilobytes, packets = ring[f"{way} Offload"].split()[:3:2]
    return int(kilobytes), int(packets)


def test_statistics_show_where_traffic_goes(machine: Guest, app: Actor, peer: Actor) -> None:
    """A TAP and a VF under one master; kilobytes and packets move from one to the other, and plug-outs count."""
    count, sizes = 20, [1400] * 20
    for actor, hosts in ((app, HERE), (peer, THERE)):
        actor(BIND, family=4, host=hosts[4])
    here = (HERE[4], app("s.getsockname()[1]"))

    def talk() -> dict[str, dict[str, str]]:
        app.start(ECHO, sizes=sizes)
        peer(ASK, sizes=sizes, to=here)
        app.finish()
        return picture(app)

    first = talk()
    assert set(first) == {"RING_BOND", "RING_TAP"}
    tap = first["RING_TAP"]
    assert int(tap["Tap fd"]) > 2 and tap["Tap Device"] and tap["VF Plugouts"] == "0"
    assert offloaded(tap, "Tx")[0] >= count * 1400 // 1000 and offloaded(tap, "Tx")[1] >= count <= offloaded(tap, "Rx")[1]
    plug_in(machine, app)
    wait_for("the datapath", lambda: f"{machine.mac} dev tap0" in machine.switch.run("bridge", "fdb", "show"))
    second = talk()
    assert set(second) == {"RING_BOND", "RING_TAP", "RING_ETH"}
    tap, vf = second["RING_TAP"], second["RING_ETH"]
    assert tap["Master"].split(",")[0] == vf["Master"].split(",")[0] == second["RING_BOND"]["Master of"]
    assert vf["Master"].endswith(", active")
    assert [offloaded(tap, way) for way in ("Tx", "Rx")] == [offloaded(first["RING_TAP"], way) for way in ("Tx", "Rx")]
    for way in ("Tx", "Rx"):
        kilobytes, packets = offloaded(vf, way)
        assert packets == count and kilobytes >= count * 1400 // 1000
    plug_out(machine, app)
    wait_for("the datapath", lambda: f"{machine.mac} dev s_syn" in machine.switch.run("bridge", "fdb", "show"))
    third = talk()
    assert set(third) == {"RING_BOND", "RING_TAP"}
    assert third["RING_TAP"]["VF Plugouts"] == "1"
    assert offloaded(third["RING_TAP"], "Tx")[1] == offloaded(tap, "Tx")[1] + count
    app("s.close()")
    wait_for("the rules to go", lambda: machine.rules() == 0)


GROUPS = {4: "239.8.1.1", 6: "ff15::81"}
JOIN = """
g = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
g.settimeout(20)
g.bind(("0.0.0.0" if family == 4 else "::", 0))
if family == 4:
    g.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(host))
else:
    g.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index))
g.getsockname()[1]
"""
TELL = """
t = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
if family == 4:
    t.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))
else:
    t.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
for number in range(first, first + 20):
    t.sendto(b"%d" % number, (group, port))
t.close()
"""


@pytest.mark.parametrize("family", [4, 6])
def test_groups_by_either_leg(machine: Guest, app: Actor, peer: Actor, family: int) -> None:
    """A member hears each datagram once, whichever leg it comes by. The host floods groups to the datapath in force."""
    indices = {actor: actor(f"socket.if_nametoindex({name!r})") for actor, name in ((app, "syn0"), (peer, "p0"))}
    port = app(JOIN, family=family, group=GROUPS[family], host=HERE[4], index=indices[app])
    assert app("g.offload.state") == "offloaded"
    first = 0

    def tell(way: str) -> None:
        nonlocal first
        for device in ("s_syn", "tap0"):
            machine.switch.run("bridge", "link", "set", "dev", device, "mcast_flood", "on" if device == way else "off")
        peer(TELL, family=family, group=GROUPS[family], host=THERE[4], index=indices[peer], port=port, first=first)
        assert app("[int(g.recv(100)) for _ in range(20)]") == list(range(first, first + 20))
        first += 20

    try:
        tell("s_syn")
        for _ in range(3):
            plug_in(machine, app)
            tell("tap0")
            (vf,) = (leg for leg in legs(app) if leg["name"].startswith("verbs:"))
            assert vf["rx_packets"] >= 20
            plug_out(machine, app)
            tell("s_syn")
        assert app("s = g.stats; (s['rx_datagrams'], s['kernel_rx_datagrams'])") == (first, 0)
    finally:
        for device in ("s_syn", "tap0"):
            machine.switch.run("bridge", "link", "set", "dev", device, "mcast_flood", "on")
        app("g.close()")


class Span(NamedTuple):
    """What was done at these moments, and at what others it was over."""

    what: str
    moments: list[int]
    others: list[int]


class Moments(NamedTuple):
    """When nothing was done, and when the VF was plugged in and out: what the host, the ends and the test's own looking do otherwise."""

    calm: list[int]
    ins: list[int]
    outs: list[int]

    def spans(self) -> list[Span]:
        return [Span("calm", self.calm, self.calm), Span("plug-out", self.outs, self.ins), Span("plug-in", self.ins, self.outs)]


def switch(machine: Guest, app: Program, order: random.Random, *, rest_s: float = 0.0, look: Callable[[], None] = lambda: None) -> Moments:
    """First nothing, then the VF in and out, `SWITCHES` times each at random moments; `look` when it is out."""
    found = Moments([], [], [])
    for _ in range(SWITCHES):
        time.sleep(order.uniform(0.04, 0.2))
        found.calm.append(time.monotonic_ns())
        machine.datapath("s_syn")
        time.sleep(rest_s)
        assert not vf_sends(app)
    look()
    time.sleep(0.2)
    for _ in range(SWITCHES):
        time.sleep(order.uniform(0.02, 0.15))
        found.ins.append(time.monotonic_ns())
        plug_in(machine, app, order)
        time.sleep(order.uniform(0.02, 0.15))
        found.outs.append(time.monotonic_ns())
        plug_out(machine, app, order, rest_s)
        look()
    return found


def gaps(times: list[int], span: Span) -> list[float]:
    """For each moment the longest time without a datagram in the 200 ms from then on, or until the next of the others, in ms, sorted."""
    found = []
    for moment in span.moments:
        end = min((other for other in span.others if other > moment), default=moment + 200_000_000)
        near = times[max(0, bisect.bisect(times, moment) - 1) : bisect.bisect(times, min(end, moment + 200_000_000)) + 1]
        found.append(max(((b - a) / 1e6 for a, b in itertools.pairwise(near)), default=float("inf")))
    return sorted(found)


def share(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, int(len(values) * part))]


def told_gap(times: list[int], span: Span) -> str:
    found = gaps(times, span)
    return f"{span.what} p50 {share(found, 0.5):.1f} p99 {share(found, 0.99):.1f} max {found[-1]:.1f}"


def received(actor: Actor) -> int:
    """Frames that came by VFs so far."""
    with pyvma.stats.attach(actor.process.pid) as process:
        found = process.snapshot().rings
        whole = sum(ring.figure("rx_packets") for ring in found if not ring.figure("master"))
        return whole - sum(ring.figure("rx_packets") for ring in found if str(ring["name"]).startswith("tap:"))


def in_use(app: Program) -> tuple[int, int]:
    """Rings, and packets that are not in their pools."""
    with pyvma.stats.attach(app.process.pid) as process:
        snapshot = process.snapshot()
        return len(snapshot.rings), sum(pool.figure("total") - pool.figure("free") for pool in snapshot.of("pool"))


def dropped_inside(bond: dict[str, Any], sock: dict[str, int]) -> dict[str, int]:
    """What the application's own counters say, as `Guest.drops` has it: what a device gave back when it went, and what had no room."""
    return {
        **{f"out bond: {name}": bond[name] for name in ("tx_lost", "tx_errors")},
        **{f"in bond: {name}": bond[name] for name in ("rx_no_buf", "rx_errors", "rx_backup")},
        "in socket: rx_dropped": sock["rx_dropped"],
    }


def start_work(app: Actor, peer: Actor) -> Transfer:
    """Streams both ways, a transfer and an echo, each in a thread of its own at either end."""
    transfer = Transfer(app, peer, THERE[4], size=SIZE)
    port = app(
        "import pyvma.asyncio, queue\nports = queue.Queue()\n"
        "serving = Work(asyncio_serve, pyvma.asyncio.run, host, ports.put, stop)\nports.get(timeout=20)",
        host=HERE[4],
    )
    peer(
        "e = socket.create_connection((host, port), timeout=60)\nask_stop = threading.Event()\nasking = Work(echo_ask, e, ask_stop)",
        host=HERE[4],
        port=port,
    )
    ports = {}
    for name, actor, host in (("app", app, HERE), ("peer", peer, THERE)):
        ports[name] = actor(
            "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nu.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)\n"
            "u.bind((host, 0))\nhears = threading.Event()\nhearing = Work(udp_receive, u, hears)\n"
            "v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nv.bind((host, 0))\nu.getsockname()[1]",
            host=host[4],
        )
    app("told = threading.Event()\ntelling = Work(udp_send, v, to, pause, told)", to=(THERE[4], ports["peer"]), pause=PACE_S)
    peer("told = threading.Event()\ntelling = Work(udp_send, v, to, pause, told)", to=(HERE[4], ports["app"]), pause=PACE_S)
    return transfer


@pytest.mark.timeout(600 if LONG else 120)
def test_traffic_outlives_the_vf(machine: Guest, app: Actor, peer: Actor) -> None:
    """TCP loses nothing and is not reset, UDP loses what was in flight, and nothing is left behind."""
    order = random.Random(7)
    app("b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nb.bind((host, 0))", host=HERE[4])
    plug_in(machine, app, order)
    plug_out(machine, app, order)
    device, dropped, taken = softnic.counters(machine.port), machine.drops(), received(app)
    before = in_use(app)
    transfer = start_work(app, peer)
    files, rules = [], []

    def look() -> None:
        files.append(open_files(app.process.pid))
        rules.append(machine.rules())

    moments = switch(machine, app, order, look=look)
    plug_in(machine, app, order)
    echoes = peer("ask_stop.set()\nasking.result()")
    sent = transfer.end(limit_s=300)
    told = {"app": app("told.set()\ntelling.result()"), "peer": peer("told.set()\ntelling.result()")}
    heard = {"app": app("hears.set()\nhearing.result()"), "peer": peer("hears.set()\nhearing.result()")}
    bond = app(
        "import pyvma.stats\nnext(dict(r) for r in pyvma.stats.own().rings if not r.figure('master'))",
    )
    came = received(app) - taken
    device = {name: value - device[name] for name, value in softnic.counters(machine.port).items()}
    dropped = +(machine.drops() - dropped)
    # What the fabric gave the device, and a device that went did not give the application.
    dropped["in VF: its queues when it went"] = device["rx_packets"] - came
    dropped.update(dropped_inside(bond, app("u.stats")))
    known = {way: sum(count for place, count in dropped.items() if place.startswith(f"{way} ")) for way in ("out", "in")}
    lost = {"out": told["app"] - heard["peer"]["seen"], "in": told["peer"] - heard["app"]["seen"]}
    places = ", ".join(f"{place} {count}" for place, count in sorted(dropped.items()) if count)
    print(
        f"\n{SWITCHES} plug-outs: TCP {sent} bytes, hash equal; {echoes['count']} echoes, longest {echoes['longest'] * 1e3:.1f} ms;"
        f" UDP out: sent {told['app']}, lost {lost['out']}, in: sent {told['peer']}, lost {lost['in']};"
        f" moved {bond['tx_moved']}, moves {bond['moves']}, plug-outs {bond['plug_outs']}; descriptors {min(files)} to {max(files)};"
        f"\ndropped, of all kinds: {places}"
    )
    for way, times in (("out", heard["peer"]["times"]), ("in", heard["app"]["times"])):
        print(f"longest gap {way}, in ms: {'; '.join(told_gap(times, span) for span in moments.spans())}")
    for side in heard.values():
        assert side["again"] == 0
    assert echoes["count"] > SWITCHES
    # Each datagram that is missing was dropped where it is counted, or was in the queues of a device that went.
    for way, count in lost.items():
        assert 0 <= count <= known[way], (way, places)
    assert bond["plug_outs"] == SWITCHES + 1
    assert max(files) - min(files) <= 4 and files[-1] <= files[0] + 2
    assert max(rules) == min(rules)
    plug_out(machine, app)
    app("for x in (u, v): x.close()\nserving.result()")
    wait_for(f"rings and packets as before, {before}", lambda: in_use(app) == before)
    app.close()
    wait_for("the rules to go", lambda: machine.rules() == 0)


class Paced:
    """preload_apps/paced.c at one end of the guest's network."""

    def __init__(self, program: Path, machine: Guest, ends: tuple[str, str], env: dict[str, str]) -> None:
        namespace, here, there = (machine.here, *ends) if env else (machine.there, *ends)
        self.file = program.parent / f"{namespace.name}.paced"
        words = [str(program), "4", here, there, "7700", str(int(FINE_S * 1e9)), str(self.file)]
        command = ["ip", "netns", "exec", namespace.name, "env", *(f"{name}={value}" for name, value in env.items()), *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Tells it; `result` waits."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def result(self) -> tuple[list[int], list[tuple[int, int]]]:
        """When each was sent; number and time of each that came."""
        assert self.process.wait(30) == 0
        data = self.file.read_bytes()
        (count,) = struct.unpack_from("=Q", data)
        sent = list(struct.unpack_from(f"={count}Q", data, 8))
        return sent, list(struct.iter_unpack("=QQ", data[16 + 8 * count :]))

    def __enter__(self) -> Paced:
        return self

    def __exit__(self, *what: object) -> None:
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


@pytest.mark.skipif(not shutil.which("cc") or not run.library().exists(), reason="no compiler, or no preload library")
@pytest.mark.timeout(300 if LONG else 120)
def test_how_long_a_switch_takes(machine: Guest, tmp_path: Path) -> None:
    """Datagrams each half millisecond both ways between two programs in C, one under the preload library, and the longest time without one
    at each plug-out; beside it the same where nothing is switched. No datagram comes twice. The programs, and the host's half of the VF, go
    before whatever else the machine does; for its sake they sleep instead of spinning.
    """
    program = tmp_path / "paced"
    source = Path(__file__).with_name("preload_apps") / "paced.c"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-Wall", "-Werror", "-o", str(program), str(source), "-lpthread"], check=True, timeout=60)
    order = random.Random(11)
    env = {**machine.environment, "LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": machine.interface, "PYVMA_RX_POLL": "0"}
    with ExitStack() as stack:
        app = stack.enter_context(Paced(program, machine, (HERE[4], THERE[4]), env))
        peer = stack.enter_context(Paced(program, machine, (THERE[4], HERE[4]), {}))
        assert [leg["name"].startswith("tap:") for leg in legs(app)] == [True]
        stack.callback(lambda: machine.plug_out() if machine.plugged else None)
        assert machine.uplink
        first = stack.enter_context(before_others(*(part.process.pid for part in (app, peer, machine.bridge)), machine.uplink.pid))
        for end in (app, peer):
            end.begin()
        time.sleep(0.3)
        moments = switch(machine, app, order, rest_s=REST_S)
        time.sleep(0.3)
        for end in (app, peer):
            end.end()
        results = {"out": (app.result()[0], peer.result()[1]), "in": (peer.result()[0], app.result()[1])}
    print(f"\n{SWITCHES} plug-outs, a datagram each {FINE_S * 1e3:g} ms{', before all others (SCHED_FIFO)' if first else ''}:")
    for way, (sent, came) in results.items():
        numbers = [number for number, _ in came]
        late = sum(b < a for a, b in itertools.pairwise(numbers))
        print(f"{way}: sent {len(sent)}, lost {len(sent) - len(came)}, overtaken {late}; longest gap (and pause of the sender), in ms:")
        for span in moments.spans():
            print(f"    {told_gap([at for _, at in came], span)} ({told_gap(sent, span._replace(what='sender'))})")
        assert len(numbers) == len(set(numbers))
        assert 0 < len(numbers) <= len(sent)


def test_without_the_daemon(machine: Guest) -> None:
    """Nobody is at its socket: sockets are the kernel's, and say why."""
    environment = {**machine.environment, "PYVMA_DAEMON": str(machine.root / "nobody.sock")}
    with Actor([machine.interface], netns=machine.here.name, env=environment) as app:
        app(BIND, family=4, host=HERE[4])
        state, text = app("(s.offload.state, s.offload.text)")
    assert state == "kernel"
    assert "no TAP device" in text and "nobody.sock" in text
