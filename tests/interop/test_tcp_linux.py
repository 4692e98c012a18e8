"""The Linux kernel as TCP peer where things go wrong or are odd: closed and tiny windows, half-closed connections, resets, floods and blind
segments, another path MTU, options switched off, crossing SYNs, loss.

The kernel's end is in a namespace of the test's, behind the software NIC's uplink or at the other end of a veth pair with the engine on
AF_XDP, and is also the engine's gateway. Its device is where frames are recorded and forged; nftables there change what passes.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import tcp_frames
import veth
from actor import Actor
from exchange import Ends, wait_for
from netns import Namespace, usable
from tcp_frames import ACK, ECE, PSH, RST, SYN, Segment
from uplink import PORT, uplink

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")
needs_nft = pytest.mark.skipif(not shutil.which("nft"), reason="nft is not installed")

ENGINE = {4: "10.81.0.1", 6: "fd81::1"}
KERNEL = {4: "10.81.0.2", 6: "fd81::2"}
FAR = {4: "10.82.0.2", 6: "fd82::2"}  # behind the kernel
NEAR = {4: "10.82.0.1", 6: "fd82::1"}
LIMIT_S = 100.0
FLOOD = 100_000
OPT_TIMESTAMPS, OPT_SACK, OPT_WSCALE, OPT_ECN = 1, 2, 4, 8
WITHOUT = {"tcp_timestamps": OPT_TIMESTAMPS, "tcp_sack": OPT_SACK, "tcp_window_scaling": OPT_WSCALE}

LISTEN = """
l = socket.create_server((host, 0), family=socket.AF_INET if family == 4 else socket.AF_INET6)
l.settimeout(60)
l.getsockname()[1]
"""
CONNECT = "s = socket.create_connection((host, port), 60)"
ACCEPT = "s, _ = l.accept()\ns.settimeout(60)\nl.close()"
INFO = "s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 224)"
# Bytes that are told from their neighbours, and the digest of what went or came.
SEND = """
import hashlib, random
data = random.Random(seed).randbytes(size)
s.sendall(data)
hashlib.sha256(data).hexdigest()
"""
RECEIVE = """
import hashlib
digest, left = hashlib.sha256(), size
while left:
    part = s.recv(min(left, 1 << 18))
    assert part, left
    digest.update(part)
    left -= len(part)
digest.hexdigest()
"""
CLOSE = "s.close()"
# Fills the peer's window and the own buffer until nothing has gone for 0.2 s; how much went.
FILL = """
s.setblocking(False)
filled, quiet = 0, 0
while quiet < 20:
    try:
        filled += s.send(bytes(1 << 16))
        quiet = 0
    except BlockingIOError:
        quiet += 1
        time.sleep(0.01)
s.settimeout(60)
filled
"""


@dataclass
class Net(Ends):
    """Also: who records and forges on the kernel's device, and the fabric."""

    raw: Actor
    fabric: str  # empty: veth

    def connect(self, family: int, engine_serves: bool) -> int:
        """A connection, `s` at both ends; the server's port."""
        server, client, host = (
            (self.engine, self.kernel, self.engine_host) if engine_serves else (self.kernel, self.engine, self.kernel_host)
        )
        port: int = server(LISTEN, family=family, host=host[family])
        client(CONNECT, host=host[family], port=port)
        server(ACCEPT)
        assert self.engine("s.offload.state") == "offloaded"
        return port

    def close(self) -> None:
        self.engine(CLOSE)
        self.kernel(CLOSE)

    def ordered_by(self, engine_sends: bool) -> tuple[Actor, Actor]:
        return (self.engine, self.kernel) if engine_sends else (self.kernel, self.engine)

    def bulk(self, size: int) -> None:
        """Both ways at once."""
        for actor in (self.engine, self.kernel):
            actor("import threading\nsending = threading.Thread(target=s.sendall, args=(bytes(range(256)) * (size // 256),))", size=size)
            actor.start("sending.start()\n" + RECEIVE.replace("digest.hexdigest()", "sending.join()\ndigest.hexdigest()"))
        assert self.engine.finish(LIMIT_S) == self.kernel.finish(LIMIT_S)

    def one_way(self, engine_sends: bool, size: int, seed: int) -> None:
        sender, receiver = self.ordered_by(engine_sends)
        sender.start(SEND, seed=seed, size=size)
        came = receiver(RECEIVE, size=size, limit_s=LIMIT_S)
        assert sender.finish(LIMIT_S) == came

    @contextmanager
    def recorded(self, port: int) -> Iterator[list[Segment]]:
        """What passes the kernel's device; the list is filled when the block ends."""
        found: list[Segment] = []
        self.raw("tap.record(port)", port=port)
        try:
            yield found
        finally:
            found += self.raw("tap.stop()")

    @contextmanager
    def faults(self, loss: int = 0, reorder: int = 0, delay_ms: int = 0) -> Iterator[None]:
        """On both ways of the wire, in per cent of the frames; a veth only loses."""
        if not self.fabric:
            drop = f"numgen random mod 100 < {loss} drop"
            with self.rule("input", drop), self.rule("output", drop):
                yield
            return
        from pyvma.ring import softnic

        spec = f"loss={loss}%,reorder={reorder}%,delay={delay_ms}ms,seed=1"
        try:
            for number in (0, PORT):
                softnic.impair(f"{self.fabric}/{number}", spec)
            yield
        finally:
            for number in (0, PORT):
                softnic.impair(f"{self.fabric}/{number}", "")

    @contextmanager
    def rule(self, hook: str, text: str) -> Iterator[None]:
        """A rule of nftables in the kernel's namespace."""
        table = f"inet t{secrets.token_hex(4)}"
        chain = f"add chain {table} c {{ type filter hook {hook} priority 0; }}"
        self.kernel_ns.run("nft", f"add table {table}; {chain}; add rule {table} c {text}")
        try:
            yield
        finally:
            self.kernel_ns.run("nft", f"delete table {table}")

    @contextmanager
    def sysctl(self, name: str, value: str) -> Iterator[None]:
        before = self.kernel_ns.run("sysctl", "-n", name).strip()
        self.kernel_ns.run("sysctl", "-qw", f"{name}={value}")
        try:
            yield
        finally:
            self.kernel_ns.run("sysctl", "-qw", f"{name}={before}")

    def forge(self, *segments: Segment) -> None:
        self.raw("for segment in segments: tap.send(segment)", segments=segments)


@contextmanager
def between(engine: Actor, kernel_ns: Namespace, device: str, hosts: tuple[dict[int, str], dict[int, str]], fabric: str) -> Iterator[Net]:
    """Everything once the engine is there."""
    with Actor(netns=kernel_ns.name) as kernel, Actor(netns=kernel_ns.name) as raw:
        found = Net(engine, kernel, *hosts, kernel_ns, raw, fabric)
        found.connect(4, True)  # the kernel knows the engine's MAC from now on
        found.close()
        words = kernel_ns.ip("neigh", "show", hosts[0][4]).split()
        raw(tcp_frames.IMPORT)
        raw("tap = tcp_frames.Tap(device, mac)", device=device, mac=bytes.fromhex(words[words.index("lladdr") + 1].replace(":", "")))
        yield found


@pytest.fixture(scope="module", params=["uplink", "veth"])
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    if request.param == "uplink":
        with uplink(KERNEL) as (ns, fabric):
            interface = f"softnic:fabric={fabric},port=0,addr={ENGINE[4]}/24,addr={ENGINE[6]}/64,gw={KERNEL[4]},gw={KERNEL[6]},name=sn0"
            with Actor([interface]) as engine, between(engine, ns, "tap0", (ENGINE, KERNEL), fabric) as found:
                yield found
        return
    with veth.namespaces() as (here, there):
        for family, gateway in veth.KERNEL.items():
            here.ip(f"-{family}", "route", "add", "default", "via", gateway)
        hosts = (veth.ENGINE, veth.KERNEL)
        with Actor(["xdp:device=v0"], netns=here.name) as engine, between(engine, there, "v1", hosts, "") as found:
            yield found


# The same over any ring, or not to be had over a veth (delay, reordering).
over_uplink = pytest.mark.parametrize("net", ["uplink"], indirect=True)
over_veth = pytest.mark.parametrize("net", ["veth"], indirect=True)


# ---- windows -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("engine_sends", [True, False], ids=["engine-probes", "kernel-probes"])
def test_a_window_closes_for_seconds(net: Net, family: int, engine_sends: bool) -> None:
    """Nobody reads: the sender probes, ever more rarely, and goes on when somebody does."""
    port = net.connect(family, True)
    sender, receiver = net.ordered_by(engine_sends)
    probes_of = (
        f"[s.when for s in tap.seen if s.out != {engine_sends} and not s.payload"
        f" and any(t.window == 0 and t.out == {engine_sends} and t.when < s.when for t in tap.seen)]"
    )
    with net.recorded(port) as seen:
        filled = sender(FILL)
        wait_for("probes", lambda: net.raw(f"len({probes_of})") >= 3)
        assert sender("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)") == 0
    probes = net.raw(probes_of)
    closed = [s.when for s in seen if s.out == engine_sends and s.window == 0]
    assert probes[2] - probes[1] > 1.3 * (probes[1] - probes[0]), probes
    # Each is answered, by a window that is still closed.
    assert len([when for when in closed if when > probes[0]]) >= len(probes) - 1
    sender.start("s.sendall(b'end')")
    assert receiver("got = 0\nwhile got < size: got += len(s.recv(1 << 18))\ngot", size=filled + 3) == filled + 3
    sender.finish()
    net.close()


@over_uplink
@needs_nft
def test_a_window_of_one_byte(net: Net) -> None:
    """The kernel's segments say one byte, whatever it has: the engine sends single bytes, and all when that ends."""
    with net.sysctl("net.ipv4.tcp_window_scaling", "0"):
        port = net.connect(4, False)
    with net.recorded(port) as seen, net.rule("output", f"tcp sport {port} tcp window set 1"):
        # The window of the handshake is used up first.
        net.engine.start("s.sendall(bytes(range(256)) * 1024)")
        wait_for("single bytes", lambda: net.raw(f"sum(len(s.payload) == 1 for s in tap.seen if s.dport == {port})") >= 8)
    assert net.kernel("got = b''\nwhile len(got) < 1 << 18: got += s.recv(1 << 18)\ngot == bytes(range(256)) * 1024")
    net.engine.finish()
    # Never beyond what was said: the window of the handshake, then a byte at a time.
    first = next(s.seq for s in seen if not s.out)
    edge = 65535
    for s in seen:
        if s.out:
            edge = max(edge, (s.ack - first + s.window) & 0xFFFFFFFF)
        else:
            assert ((s.seq - first) & 0xFFFFFFFF) + len(s.payload) <= edge, s
    net.close()


@over_uplink
@pytest.mark.parametrize("option", ["SO_RCVBUF", "TCP_WINDOW_CLAMP"])
def test_the_smallest_buffer(net: Net, option: str) -> None:
    """Of either side: what SO_RCVBUF and TCP_WINDOW_CLAMP (10) make of a byte."""
    for engine_receives in (True, False):
        port = net.connect(4, engine_receives)
        _, receiver = net.ordered_by(not engine_receives)
        level, name = ("SOL_SOCKET", "socket.SO_RCVBUF") if option == "SO_RCVBUF" else ("IPPROTO_TCP", "10")
        receiver(f"s.setsockopt(socket.{level}, {name}, 1)")
        with net.recorded(port) as seen:
            net.one_way(not engine_receives, 1 << 15, 5)
        assert max(len(s.payload) for s in seen) <= 1460
        net.close()


# ---- ends ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("engine_first", [True, False], ids=["engine-first", "kernel-first"])
def test_half_closed(net: Net, family: int, engine_first: bool) -> None:
    """One side has said all: the other goes on for megabytes, and the first acknowledges."""
    net.connect(family, True)
    first, second = net.ordered_by(engine_first)
    first("s.sendall(b'question')\ns.shutdown(socket.SHUT_WR)")
    assert second("s.recv(100, socket.MSG_WAITALL)") == b"question"
    assert second("s.recv(100)") == b""
    net.one_way(not engine_first, 4 << 20, 6)
    second("s.shutdown(socket.SHUT_WR)")
    assert first("s.recv(100)") == b""
    with pytest.raises(BrokenPipeError):
        first("s.send(b'more')")
    net.close()


@pytest.mark.parametrize("engine_closes", [True, False], ids=["engine-closes", "kernel-closes"])
def test_close_with_unread_data_resets(net: Net, engine_closes: bool) -> None:
    """In the middle of a transfer: a RST, and the sender learns it."""
    port = net.connect(4, True)
    closer, sender = net.ordered_by(engine_closes)
    with net.recorded(port) as seen:
        sender.start("s.sendall(bytes(32 << 20))")
        assert closer("len(s.recv(1000, socket.MSG_WAITALL))") == 1000
        closer(CLOSE)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            sender.finish()
    assert any(s.flags & RST and s.out != engine_closes for s in seen)
    net.close()


# ---- attacks -----------------------------------------------------------------------------------------------------------------------


def test_syn_flood(net: Net) -> None:
    """100,000 SYNs (a fifth of that over a veth) from addresses that never answer; who does answer gets in, meanwhile and afterwards."""
    count = FLOOD if net.fabric else FLOOD // 5
    port = net.engine(LISTEN, family=4, host=net.engine_host[4])
    serve = "for _ in range(count):\n    s, _ = l.accept()\n    s.sendall(s.recv(10))\n    s.close()"
    ask = "s = socket.create_connection((host, port), 60)\ns.settimeout(60)\ns.sendall(b'question')\ngot = s.recv(10)\ns.close()\ngot"
    before = net.engine("import pyvma\npyvma.counters()")
    net.raw.start("tap.flood(host, port, count, '10.99.0.0/16', 7)", host=net.engine_host[4], port=port, count=count)
    try:
        net.engine.start(serve, count=10)
        for _ in range(10):
            assert net.kernel(ask, host=net.engine_host[4], port=port) == b"question"
        net.engine.finish()
    finally:
        assert net.raw.finish(LIMIT_S) == count
    net.engine.start(serve, count=3)
    for _ in range(3):
        assert net.kernel(ask, host=net.engine_host[4], port=port) == b"question"
    net.engine.finish()
    after = net.engine("pyvma.counters()")
    grew = {name: after[name] - before[name] for name in after if name.startswith("tcp.") and after[name] != before.get(name)}
    print(grew)
    assert grew["tcp.cookies_sent"] > count // 10, grew
    assert grew["tcp.cookies_ok"] >= 1, grew
    net.engine("l.close()")


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("what", ["rst", "syn", "data"])
def test_blind_injection(net: Net, family: int, what: str) -> None:
    """RFC 5961: ports and addresses are right, sequence numbers in the window at best. The connection answers with challenges, not more
    than two a second, and goes on."""
    port = net.connect(family, True)
    with net.recorded(port) as seen:
        net.kernel("s.sendall(b'to the engine')")
        assert net.engine("s.recv(13, socket.MSG_WAITALL)") == b"to the engine"
        net.engine("s.sendall(b'to the kernel')")
        net.kernel("s.recv(13, socket.MSG_WAITALL)")
        heard = "any(s.payload and not s.out for s in tap.seen) and tap.seen[-1].out"
        wait_for("its acknowledgement", lambda: net.raw(heard))
    state = [s for s in seen if s.out][-1]  # what the kernel sent last: seq and ack are the engine's rcv_nxt and snd_nxt
    ours = {"src": net.kernel_host[family], "dst": net.engine_host[family], "sport": state.sport, "dport": port}
    attack = {
        "rst": [Segment(**ours, seq=state.seq + 1 + n * 37, flags=RST) for n in range(500)],
        "syn": [Segment(**ours, seq=state.seq + n * 37, flags=SYN) for n in range(500)],
        "data": [Segment(**ours, seq=state.seq, ack=state.ack + 1 + n * 100_000, flags=ACK | PSH, payload=b"evil") for n in range(500)],
    }[what]
    before = net.engine("import pyvma\npyvma.counters()")
    with net.recorded(port) as seen:
        net.forge(*attack)
        arrived = "pyvma.counters()['tcp.rx_segments'] - before >= 500"
        wait_for("the attack to arrive", lambda: net.engine(arrived, before=before["tcp.rx_segments"]))
        challenges = net.engine("pyvma.counters()['tcp.rx_challenge']") - before["tcp.rx_challenge"]
        # Still there, both ways, and nothing was slipped in.
        net.kernel("s.sendall(b'still here?')")
        assert net.engine("s.recv(100)") == b"still here?"
        net.engine("s.sendall(b'yes')")
        assert net.kernel("s.recv(100)") == b"yes"
    sent = [s for s in seen if not s.out and not s.payload and s.seq == state.ack and s.ack == state.seq]
    assert 1 <= challenges <= 20, challenges
    assert 1 <= len(sent) <= challenges + 1, (challenges, seen)
    net.close()


# ---- the path ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def beyond(net: Net) -> Iterator[Actor]:
    """A host behind the kernel, over a link whose MTU the test changes."""
    with Namespace() as far:
        net.kernel_ns.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", far.name)
        try:
            for ns, device, host, gateway in ((net.kernel_ns, "v0", NEAR, None), (far, "v1", FAR, NEAR)):
                ns.ip("addr", "add", f"{host[4]}/24", "dev", device)
                ns.ip("-6", "addr", "add", f"{host[6]}/64", "dev", device, "nodad")
                ns.ip("link", "set", device, "up")
                if gateway:
                    ns.ip("route", "add", "default", "via", gateway[4])
                    ns.ip("-6", "route", "add", "default", "via", gateway[6])
            with net.sysctl("net.ipv4.ip_forward", "1"), net.sysctl("net.ipv6.conf.all.forwarding", "1"), Actor(netns=far.name) as actor:
                yield actor
        finally:
            net.kernel_ns.ip("link", "del", "v0")


@pytest.mark.parametrize("family", [4, 6])
def test_the_path_mtu_falls(net: Net, beyond: Actor, family: int) -> None:
    """In the middle of a connection: ICMP says so, the engine sends smaller segments, and everything arrives."""
    port = beyond(LISTEN, family=family, host=FAR[family])
    net.engine(CONNECT, host=FAR[family], port=port)
    beyond(ACCEPT)
    mtu = "s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)[60:64]"
    for size, expected in ((1 << 20, 1500), (4 << 20, 1280)):
        if expected != 1500:
            net.kernel_ns.ip("link", "set", "v0", "mtu", str(expected))
        net.engine.start(SEND, seed=9, size=size)
        came = beyond(RECEIVE, size=size, limit_s=LIMIT_S)
        assert net.engine.finish(LIMIT_S) == came
        assert int.from_bytes(net.engine(mtu), "little") == expected
    net.engine(CLOSE)
    beyond(CLOSE)


# ---- options ---------------------------------------------------------------------------------------------------------------------


@needs_nft
@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
@pytest.mark.parametrize("name", list(WITHOUT))
def test_without_an_option(net: Net, name: str, engine_serves: bool) -> None:
    """The kernel does not have it: neither end uses it, and loss is repaired all the same."""
    with net.sysctl(f"net.ipv4.{name}", "0"):
        net.connect(4, engine_serves)
        with net.faults(loss=1, reorder=1):
            net.bulk(1 << 20)
        for actor in (net.engine, net.kernel):
            assert actor(INFO)[5] & 7 == 7 & ~WITHOUT[name]
        net.close()


@over_uplink
@needs_nft
def test_ecn(net: Net) -> None:
    """The kernel asks for ECN; marks on the way slow the sender, both ways."""
    with net.sysctl("net.ipv4.tcp_ecn", "1"):
        port = net.connect(4, True)
    for actor in (net.engine, net.kernel):
        assert actor(INFO)[5] & OPT_ECN
    with net.recorded(port) as seen:
        for hook, engine_sends in (("output", False), ("input", True)):
            sender, _ = net.ordered_by(engine_sends)
            with net.rule(hook, f"tcp {'dport' if hook == 'output' else 'sport'} {port} numgen inc mod 100 < 2 ip ecn set ce"):
                net.one_way(engine_sends, 2 << 20, 11)
            assert int.from_bytes(sender(INFO)[196:200], "little") > 0  # tcpi_delivered_ce
            assert int.from_bytes(sender(INFO)[100:104], "little") <= 5  # tcpi_total_retrans: a mark is no loss
    for out in (True, False):
        assert any(s.flags & ECE and s.out == out for s in seen)
    net.close()


@over_uplink
def test_syns_that_cross(net: Net) -> None:
    """Simultaneous open (RFC 9293 3.5)."""
    port = net.kernel("s = socket.socket()\ns.settimeout(60)\ns.bind((host, 0))\ns.getsockname()[1]", host=net.kernel_host[4])
    ours = net.engine("s = socket.socket()\ns.settimeout(60)\ns.bind((host, 0))\ns.getsockname()[1]", host=net.engine_host[4])
    with net.recorded(port) as seen:
        with net.faults(delay_ms=300):
            net.engine.start("s.connect((host, port))", host=net.kernel_host[4], port=port)
            net.kernel("s.connect((host, port))", host=net.engine_host[4], port=ours)
            net.engine.finish()
        net.one_way(True, 1 << 16, 1)
        net.one_way(False, 1 << 16, 2)
    assert len([s for s in seen if s.flags & (SYN | ACK) == SYN]) == 2, seen[:6]
    net.engine("s.shutdown(socket.SHUT_WR)")
    net.kernel("s.shutdown(socket.SHUT_WR)")
    assert net.engine("s.recv(1)") == net.kernel("s.recv(1)") == b""
    net.close()


# ---- loss --------------------------------------------------------------------------------------------------------------------------


def bad_wire(net: Net, family: int, loss: int = 0, reorder: int = 0) -> None:
    """Both ways at once, everything arrives, and not the most of it twice; a busy machine adds delays that look like losses."""
    net.connect(family, True)
    with net.faults(loss, reorder, delay_ms=1):
        net.bulk(1 << 20)
    for actor in (net.engine, net.kernel):
        info = actor(INFO)
        again, segments = int.from_bytes(info[100:104], "little"), int.from_bytes(info[156:160], "little")
        assert again < segments // 2, (again, segments)
    net.close()


@needs_nft
@pytest.mark.parametrize("loss", [1, 5])
@pytest.mark.parametrize("family", [4, 6])
def test_a_wire_that_loses(net: Net, family: int, loss: int) -> None:
    """Goodput: tools/tcp_goodput.py."""
    bad_wire(net, family, loss=loss)


@over_uplink
@pytest.mark.parametrize("family", [4, 6])
def test_a_wire_that_reorders(net: Net, family: int) -> None:
    bad_wire(net, family, reorder=5)


@over_veth
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
def test_megabytes(net: Net, family: int, engine_serves: bool) -> None:
    """Over the uplink test_tcp_uplink.py does it; gigabytes: tools/tcp_transfer.py."""
    net.connect(family, engine_serves)
    net.one_way(True, 64 << 20, 21)
    net.one_way(False, 64 << 20, 22)
    net.close()
