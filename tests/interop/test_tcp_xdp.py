"""TCP with the Linux kernel at the other end, over AF_XDP on an interface that the kernel owns: a veth pair, two namespaces.

A connection's flow comes by the ring, everything else of the port by the kernel, which keeps the port for us all the while.
"""

from __future__ import annotations

import errno
import hashlib
import json
import signal
import time
from collections.abc import Iterator

import pytest
from actor import Actor
from exchange import ACCEPT, CONNECT, LISTEN, RECEIVE_BYTES, RESET_AT_CLOSE, SEND_BYTES, wait_for
from netns import Namespace, usable
from veth import ENGINE, KERNEL, Veth, engine, namespaces, pair

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

BULK = 8 << 20
LIMIT_S = 120.0
FAMILIES = [4, 6]


@pytest.fixture(scope="module", params=["generic", "native"])
def net(request: pytest.FixtureRequest) -> Iterator[Veth]:
    with pair(request.param) as veth:
        yield veth


@pytest.fixture(scope="module")
def veth() -> Iterator[Veth]:
    with pair() as veth:
        yield veth


def connect(net: Veth, family: int, engine_serves: bool) -> int:
    """Leaves the connection as `s` on both sides, the listener as `l` on one; its port."""
    port = net.connect(family, engine_serves)
    assert net.engine("s.offload.text") == "xdp:v0"
    return port


def close(net: Veth, server: Actor | None = None) -> None:
    net.engine("s.close()")
    net.kernel("s.close()")
    if server:
        server("l.close()")


def transfer(sender: Actor, receiver: Actor, seed: int, size: int = BULK) -> None:
    import random

    sender.start(SEND_BYTES, seed=seed, size=size)
    got = receiver(RECEIVE_BYTES, size=size, limit_s=LIMIT_S)
    sender.finish(LIMIT_S)
    assert got == hashlib.sha256(random.Random(seed).randbytes(size)).hexdigest()


def counters(net: Veth) -> dict[str, int]:
    found: dict[str, int] = net.engine("import pyvma; pyvma.counters()")
    return found


def echo(net: Veth) -> None:
    net.engine("s.sendall(b'ask')")
    net.kernel("s.sendall(s.recv(3) + b'!')")
    assert net.engine("s.recv(4, socket.MSG_WAITALL)") == b"ask!"


def options(actor: Actor) -> int:
    """What both ends agreed on, by TCP_INFO: TCPI_OPT_TIMESTAMPS is 1."""
    found: int = actor("s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5]")
    return found


@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
@pytest.mark.parametrize(
    ("setting", "kernel", "used"),
    [("off", 1, False), ("on", 0, True), ("os", 0, False), ("os", 1, True)],
    ids=["off", "on", "os-off", "os-on"],
)
def test_timestamps_by_setting(setting: str, kernel: int, used: bool, engine_serves: bool) -> None:
    """`kernel`: what net.ipv4.tcp_timestamps says where the engine is; its peer's host always has them."""
    with namespaces() as (here, there):
        here.run("sysctl", "-qw", f"net.ipv4.tcp_timestamps={kernel}")
        with engine(here, env={"PYVMA_TCP_TIMESTAMPS": setting}) as app, Actor(netns=there.name) as peer:
            net = Veth(app, peer, ENGINE, KERNEL, there, here)
            connect(net, 4, engine_serves)
            echo(net)
            assert [bool(options(actor) & 1) for actor in (app, peer)] == [used, used]
            transfer(app, peer, 1)
            transfer(peer, app, 2)


# ---- both roles, both families -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
def test_bulk_each_way(net: Veth, family: int, engine_serves: bool) -> None:
    connect(net, family, engine_serves)
    before = counters(net)
    transfer(net.engine, net.kernel, 1)
    transfer(net.kernel, net.engine, 2)
    after = counters(net)
    # Nothing that came was dropped: neither segments that the kernel left uncut, nor those whose checksums it left open.
    for name in ("tcp.rx_bad_csum", "tcp.rx_malformed", "net.rx_short", "tcp.tx_resets"):
        assert after[name] == before[name]
    assert net.engine("s.stats['kernel_rx_bytes']") == 0
    close(net, net.engine if engine_serves else net.kernel)


def test_senders_that_are_read_in_turn(veth: Veth) -> None:
    """The reader waits for each, however much others have sent. What they may send together fits the pool, which cannot grow."""
    port = veth.engine(LISTEN, family=4, host="")
    veth.kernel("many = [socket.create_connection((host, port)) for _ in range(4)]", host=ENGINE[4], port=port)
    veth.engine("many = [l.accept()[0] for _ in range(4)]")
    before = counters(veth)
    veth.kernel.start(
        "import threading\n"
        "senders = [threading.Thread(target=s.sendall, args=(bytes(size),)) for s in many]\n"
        "for one in senders: one.start()\n"
        "for one in senders: one.join()",
        size=BULK,
    )
    got = veth.engine(
        "got = 0\nfor _ in range(size // turn):\n    for s in many: got += len(s.recv(turn, socket.MSG_WAITALL))\ngot",
        size=BULK,
        turn=1 << 16,
        limit_s=LIMIT_S,
    )
    veth.kernel.finish(LIMIT_S)
    assert got == 4 * BULK
    after = counters(veth)
    assert [after[name] - before[name] for name in ("tcp.rx_no_room", "tcp.rx_ooo_dropped")] == [0, 0]
    for actor in (veth.engine, veth.kernel):
        actor("for s in many: s.close()")
    veth.engine("l.close()")


def test_many_that_nobody_reads(net: Veth) -> None:
    """What they have waiting is several times the ring's buffers: who comes and talks does not notice, and nothing is lost."""
    many = 120
    port = net.engine(LISTEN, family=4, host="")
    net.kernel("many = [socket.create_connection((host, port)) for _ in range(n)]", host=ENGINE[4], port=port, n=many)
    net.engine("many = [l.accept()[0] for _ in range(n)]", n=many)
    before = counters(net)
    net.kernel(
        "import time\n"
        "sent, data, until = [0] * len(many), bytes(range(251)) * 2000, time.monotonic() + 4\n"
        "for s in many: s.setblocking(False)\n"
        "while time.monotonic() < until:\n"
        "    for i, s in enumerate(many):\n"
        "        try: sent[i] += s.send(data[sent[i] % 251:])\n"
        "        except BlockingIOError: pass\n"
        "    time.sleep(0.05)\n",
        limit_s=LIMIT_S,
    )
    assert counters(net)["tcp.rx_bytes"] - before["tcp.rx_bytes"] > 2 * 3072 * 1448
    net.kernel("s = socket.create_connection((host, port), 20)\ns.settimeout(None)", host=ENGINE[4], port=port)
    net.engine("s = l.accept()[0]\ns.settimeout(20)")
    for size in (1, 1000, 100_000):
        net.kernel("s.sendall(bytes(size))", size=size)
        assert net.engine("len(s.recv(size, socket.MSG_WAITALL))", size=size) == size
        net.engine("s.sendall(bytes(size))", size=size)
        assert net.kernel("len(s.recv(size, socket.MSG_WAITALL))", size=size) == size
    assert counters(net)["tcp.rx_no_room"] == before["tcp.rx_no_room"]
    total = net.kernel("for s in many: s.shutdown(1)\nsum(sent)")
    got = net.engine(
        "got, right, pattern = 0, True, bytes(range(251)) * 300\n"
        "for s in many:\n"
        "    s.settimeout(60)\n"
        "    at = 0\n"
        "    while part := s.recv(1 << 16):\n"
        "        right = right and part == pattern[at % 251 : at % 251 + len(part)]\n"
        "        at += len(part)\n"
        "    got += at\n"
        "got if right else 'other bytes'",
        limit_s=LIMIT_S,
    )
    assert got == total
    for actor in (net.engine, net.kernel):
        actor("for s in many: s.close()")
    close(net, net.engine)


@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
def test_refusals_and_resets(net: Veth, engine_serves: bool) -> None:
    for first, second in ((net.engine, net.kernel), (net.kernel, net.engine)):
        connect(net, 4, engine_serves)
        first(RESET_AT_CLOSE)
        with pytest.raises(ConnectionResetError):
            second("s.recv(1)")
        second("s.close()")
        (net.engine if engine_serves else net.kernel)("l.close()")
    for actor, host in ((net.engine, KERNEL[4]), (net.kernel, ENGINE[4])):
        with pytest.raises(ConnectionRefusedError):
            actor(CONNECT, family=4, host=host, port=9)


def test_a_mapped_listener_takes_both_families(veth: Veth) -> None:
    port = veth.engine(LISTEN, family=6, host="::")
    for family, shown in ((4, "::ffff:" + KERNEL[4]), (6, KERNEL[6])):
        veth.kernel(CONNECT, family=family, host=ENGINE[family], port=port)
        veth.engine(ACCEPT)
        assert veth.engine("peer[0]") == shown
        assert veth.engine("s.offload.state") == "offloaded"
        echo(veth)
        close(veth)
    veth.engine("l.close()")
    port = veth.kernel(LISTEN, family=4, host=KERNEL[4])
    veth.engine(CONNECT, family=6, host="::ffff:" + KERNEL[4], port=port)
    veth.kernel(ACCEPT)
    assert veth.engine("s.offload.state, s.getsockname()[0]") == ("offloaded", "::ffff:" + ENGINE[4])
    echo(veth)
    close(veth, veth.kernel)


# ---- a listener and the kernel's way to it -----------------------------------------------------------------------------------


def test_a_wildcard_listener_is_reached_both_ways_in_order(veth: Veth) -> None:
    port = veth.engine(LISTEN, family=4, host="")
    for _ in range(3):
        for name, actor, host in (("loop", None, "127.0.0.1"), ("veth", veth.kernel, ENGINE[4]), ("own", None, ENGINE[4])):
            if actor:
                actor(CONNECT, family=4, host=host, port=port)
                actor("s.sendall(b'by the veth')")
            else:
                veth.engine(
                    "import socket as kernel\nimport importlib\nc = importlib.import_module('socket').create_connection((host, port))\n"
                    "c.sendall(b'by the loop')",
                    host=host,
                    port=port,
                )
            veth.engine(ACCEPT)
            assert veth.engine("s.recv(11, socket.MSG_WAITALL)") == (b"by the veth" if actor else b"by the loop")
            assert veth.engine("s.offload.state") == ("offloaded" if actor else "kernel"), name
            veth.engine("s.close()")
            (actor or veth.engine)("s.close()" if actor else "c.close()")
    veth.engine("l.close()")


def test_connections_live_on_when_their_listener_is_gone(veth: Veth) -> None:
    port = connect(veth, 4, True)
    veth.engine("l.close()")
    echo(veth)
    # Nobody listens any more, and says so: the port's rule is gone, the connection's flow has one.
    with pytest.raises(ConnectionRefusedError):
        veth.kernel("t = socket.create_connection((host, port), 10)", host=ENGINE[4], port=port)
    transfer(veth.kernel, veth.engine, 5, 1 << 20)
    # Another process may have the port then, if it says so as one must on Linux.
    with Actor(netns=veth.here.name) as other:
        other("l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind((host, port)); l.listen()",
              host=ENGINE[4], port=port)  # fmt: skip
        veth.kernel("t = socket.create_connection((host, port), 10)", host=ENGINE[4], port=port)
        assert other("l.accept()[0].getsockname()[1]") == port
        veth.kernel("t.close()")
        echo(veth)
    close(veth)


def test_the_kernels_connections_stay_the_kernels(veth: Veth) -> None:
    """Made by another process on the port before there was a rule for it: not ours to reset."""
    with Actor(netns=veth.here.name) as other:
        port = other("l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\nl.bind((host, 0)); l.listen()\n"
                     "l.getsockname()[1]", host=ENGINE[4])  # fmt: skip
        veth.kernel("k = socket.create_connection((host, port), 20)", host=ENGINE[4], port=port)
        other("k, _ = l.accept(); k.settimeout(20); l.close()")
        veth.engine(
            "l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            "l.bind((host, port)); l.listen(); l.settimeout(60)",
            host=ENGINE[4],
            port=port,
        )
        veth.kernel(CONNECT, family=4, host=ENGINE[4], port=port)
        veth.engine(ACCEPT)
        assert veth.engine("s.offload.state") == "offloaded"
        veth.kernel("k.sendall(b'still there')")
        assert other("k.recv(100)") == b"still there"
        other("k.sendall(b'yes')")
        assert veth.kernel("k.recv(100)") == b"yes"
        echo(veth)
        other("k.close()")
        veth.kernel("k.close()")
    close(veth, veth.engine)


def test_ports_are_the_kernels_to_give(veth: Veth) -> None:
    port = connect(veth, 4, False)
    mine = veth.engine("s.getsockname()[1]")
    taken = "import importlib\nk = importlib.import_module('socket').socket()\nk.bind((host, port))"
    # Ours while it is connected, and while it is over and in TIME_WAIT; in our own process, too.
    for _ in range(2):
        for actor_code in (taken, "t = socket.socket()\nt.bind((host, port))"):
            with pytest.raises(OSError) as caught:
                veth.engine(actor_code, host=ENGINE[4], port=mine)
            assert caught.value.errno == errno.EADDRINUSE
        veth.engine("s.close()")
        veth.kernel("s.close()")
    assert port != mine
    veth.kernel("l.close()")
    listening = veth.engine(LISTEN, family=4, host="")
    with Actor(netns=veth.here.name) as other, pytest.raises(OSError) as caught:
        other("socket.create_server((host, port))", host=ENGINE[4], port=listening)
    assert caught.value.errno == errno.EADDRINUSE
    veth.engine("l.close()")
    with pytest.raises(PermissionError):
        veth.engine("os.seteuid(65534)\ntry:\n    socket.socket().bind((host, 80))\nfinally:\n    os.seteuid(0)", host=ENGINE[4])
    with pytest.raises(OSError) as caught:
        veth.engine("socket.socket().bind(('192.0.2.77', 0))")
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_a_socket_that_failed_connects_again(veth: Veth) -> None:
    port = veth.kernel(LISTEN, family=4, host=KERNEL[4])
    veth.engine("s = socket.socket()")
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            veth.engine("s.connect((host, 9))", host=KERNEL[4])
    veth.engine("s.connect((host, port))", host=KERNEL[4], port=port)
    veth.kernel(ACCEPT)
    assert veth.engine("s.offload.state") == "offloaded"
    echo(veth)
    close(veth)
    # To ourselves after that: the kernel's, from an address of its choice.
    veth.engine("s = socket.socket()")
    with pytest.raises(ConnectionRefusedError):
        veth.engine("s.connect((host, 9))", host=KERNEL[4])
    here = veth.engine("import importlib\nk = importlib.import_module('socket').create_server(('127.0.0.1', 0)); k.getsockname()[1]")
    veth.engine("s.connect(('127.0.0.1', port))", port=here)
    assert veth.engine("s.offload.state, s.getsockname()[0]") == ("kernel", "127.0.0.1")
    veth.engine("s.close(); k.close()")
    veth.kernel("l.close()")


@pytest.mark.parametrize(
    ("prepare", "host", "reason"),
    [
        ("pass", "127.0.0.1", "address 127.0.0.1 is the kernel's"),
        ("pass", ENGINE[4], f"address {ENGINE[4]} is the kernel's"),
        ("s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7)", KERNEL[4], "SO_MARK"),
        ("s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b'\\x94\\x04\\x00\\x00')", KERNEL[4], "IP_OPTIONS"),
        ("s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo')", "127.0.0.1", "bound to a device of the kernel"),
    ],
)
def test_why_a_stream_is_the_kernels(veth: Veth, prepare: str, host: str, reason: str) -> None:
    server = veth.kernel if host == KERNEL[4] else veth.engine
    code = "import importlib\nk = importlib.import_module('socket').create_server((host, 0))\nk.getsockname()[1]"
    port = server(code, host=host)
    veth.engine(f"s = socket.socket(); s.settimeout(30)\n{prepare}\ns.connect((host, port))", host=host, port=port)
    assert veth.engine("s.offload.state") == "kernel"
    assert veth.engine("s.offload.text") == reason
    veth.engine("s.close()")
    server("k.close()")


# ---- the net changes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_router_says_that_the_path_is_narrower(veth: Veth, family: int) -> None:
    """By ICMP, which comes to the interface and is about a flow of ours: nobody but us could make anything of it."""
    with Namespace() as behind:
        veth.there.ip("link", "add", "r0", "mtu", "1300", "type", "veth", "peer", "name", "r1", "mtu", "1500", "netns", behind.name)
        veth.there.ip("link", "set", "r0", "up")
        behind.ip("link", "set", "r1", "up")
        veth.there.ip("addr", "add", "10.99.0.1/24", "dev", "r0")
        behind.ip("addr", "add", "10.99.0.2/24", "dev", "r1")
        veth.there.ip("-6", "addr", "add", "fd99::1/64", "dev", "r0", "nodad")
        behind.ip("-6", "addr", "add", "fd99::2/64", "dev", "r1", "nodad")
        behind.ip("route", "add", "default", "via", "10.99.0.1")
        behind.ip("-6", "route", "add", "default", "via", "fd99::1")
        veth.there.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        veth.here.ip("route", "add", "10.99.0.0/24", "via", KERNEL[4])
        veth.here.ip("-6", "route", "add", "fd99::/64", "via", KERNEL[6])
        host = {4: "10.99.0.2", 6: "fd99::2"}[family]
        try:
            with Actor(netns=behind.name) as far:
                port = far(LISTEN, family=family, host=host)
                veth.engine(CONNECT, family=family, host=host, port=port)
                far(ACCEPT)
                assert veth.engine("s.offload.state") == "offloaded"
                mss = "s.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)"
                assert veth.engine(mss) > 1300
                transfer(veth.engine, far, 7, 1 << 20)
                assert veth.engine(mss) <= 1300 - 40
                veth.engine("s.close()")
        finally:
            veth.here.ip("route", "del", "10.99.0.0/24")
            veth.here.ip("-6", "route", "del", "fd99::/64")
            # A deleted namespace lets go of its devices some time later: the next one's r0 could be too early.
            veth.there.ip("link", "del", "r0")


def test_links_addresses_and_routes_come_and_go(veth: Veth) -> None:
    """As on Linux a connection outlives all of that: what it sends meanwhile is lost, and sent again."""
    connect(veth, 4, True)
    veth.engine("s.close()\nl.close()")
    veth.kernel("s.close()")
    port = connect(veth, 4, True)
    mss = "s.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)"
    for undo, do in (
        (("link", "set", "v0", "up"), ("link", "set", "v0", "down")),
        (("addr", "add", f"{ENGINE[4]}/24", "dev", "v0", "broadcast", "+"), ("addr", "del", f"{ENGINE[4]}/24", "dev", "v0")),
        (("link", "set", "v0", "mtu", "1500"), ("link", "set", "v0", "mtu", "1000")),
    ):
        veth.here.ip(*do)
        veth.engine("s.sendall(b'lost at first')")
        if "mtu" not in do:
            veth.kernel("s.settimeout(0.3)\ntry:\n    s.recv(1)\n    raise AssertionError\nexcept TimeoutError:\n    s.settimeout(60)")
        veth.here.ip(*undo)
        assert veth.kernel("s.recv(13, socket.MSG_WAITALL)") == b"lost at first", do
        echo(veth)
    assert veth.engine(mss) > 1000
    # A listener's rule comes back with the address.
    veth.kernel("t = socket.create_connection((host, port), 30)", host=ENGINE[4], port=port)
    veth.engine("t, _ = l.accept()")
    assert veth.engine("t.offload.state") == "offloaded"
    veth.engine("t.close()")
    veth.kernel("t.close()")
    close(veth, veth.engine)


def test_a_neighbour_that_does_not_answer(veth: Veth) -> None:
    veth.engine("s = socket.socket(); s.settimeout(30)")
    with pytest.raises(OSError) as caught:
        veth.engine("s.connect(('10.78.0.99', 9))")
    assert caught.value.errno == errno.EHOSTUNREACH
    veth.engine("s.close()")


def test_the_interface_goes(clean_env: dict[str, str]) -> None:
    with pair() as veth:
        connect(veth, 4, True)
        veth.engine.start("s.recv(1)")
        time.sleep(0.1)
        veth.here.ip("link", "del", "v0")
        with pytest.raises(OSError) as caught:
            veth.engine.finish()
        assert caught.value.errno == errno.ENETDOWN
        # The listener is still the kernel's.
        port = veth.engine("l.close()\nl = socket.create_server(('', 0))\nl.getsockname()[1]")
        veth.engine(
            "import importlib\nc = importlib.import_module('socket').create_connection(('127.0.0.1', port))\ns, _ = l.accept()", port=port
        )
        assert veth.engine("s.offload.state") == "kernel"


# ---- processes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
def test_a_process_that_is_killed_leaves_nothing(engine_serves: bool) -> None:
    with pair() as veth:
        connect(veth, 4, engine_serves)
        mine = veth.engine("s.getsockname()[1]")
        veth.engine.process.send_signal(signal.SIGKILL)
        veth.engine.process.wait(20)
        wait_for("the program's end", lambda: not any("xdp" in link for link in json.loads(veth.here.ip("-j", "link", "show"))))
        # The kernel says for us that there is no such connection.
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            veth.kernel("for _ in range(100):\n    s.sendall(b'anybody?')\n    time.sleep(0.05)")
        with Actor(netns=veth.here.name) as other:
            other("l = socket.create_server((host, port), reuse_port=False)", host=ENGINE[4], port=mine)


def test_a_process_that_ends_closes(clean_env: dict[str, str]) -> None:
    with pair() as veth:
        connect(veth, 4, False)
        veth.engine("s.sendall(b'last words')")
        veth.engine.close()
        assert veth.kernel("s.recv(100, socket.MSG_WAITALL)") == b"last words"
        assert veth.kernel("s.recv(100)") == b""


def test_a_child_uses_a_connection(veth: Veth) -> None:
    connect(veth, 4, True)
    code = """
pid = os.fork()
if not pid:
    try:
        s.sendall(b'from a child')
        os._exit(0 if s.recv(100) == b'to a child' else 1)
    finally:
        os._exit(2)
"""
    veth.engine(code)
    assert veth.kernel("s.recv(12, socket.MSG_WAITALL)") == b"from a child"
    veth.kernel("s.sendall(b'to a child')")
    assert veth.engine("os.waitpid(pid, 0)[1]") == 0
    assert veth.engine("str(s.offload)") == "handed back: used by a forked child"
    veth.engine("s.sendall(b'from both')")
    assert veth.kernel("s.recv(9, socket.MSG_WAITALL)") == b"from both"
    veth.kernel("s.sendall(b'end')")
    assert veth.engine("s.recv(3, socket.MSG_WAITALL)") == b"end"
    veth.engine("s.close()")
    assert veth.kernel("s.recv(1)") == b""
    veth.kernel("s.close()")
    veth.engine("l.close()")


def test_many_short_connections_leave_no_descriptors(veth: Veth) -> None:
    """Those in TIME_WAIT keep their ports by a share of the process's descriptors; more than that go without."""
    port = veth.kernel(LISTEN, family=4, host=KERNEL[4])
    count = "len(os.listdir('/proc/self/fd'))"
    veth.kernel.start("l.accept()[0].close()")
    veth.engine("socket.create_connection((host, port), 30).close()", host=KERNEL[4], port=port)  # the engine has its own by now
    veth.kernel.finish()
    before = veth.engine("import resource\nlimits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
                         "resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))\n" + count)  # fmt: skip
    veth.kernel.start("for _ in range(300):\n    s, _ = l.accept()\n    s.recv(1)\n    s.close()")
    veth.engine(
        "for _ in range(300):\n    s = socket.create_connection((host, port), 30)\n    s.shutdown(socket.SHUT_WR)\n"
        "    assert s.recv(1) == b''\n    assert s.offload.state == 'offloaded'\n    s.close()",
        host=KERNEL[4],
        port=port,
    )
    veth.kernel.finish()
    assert before < veth.engine(count) <= before + 55  # a quarter of the limit, and what threads made for their own waits
    veth.engine("resource.setrlimit(resource.RLIMIT_NOFILE, limits)")
    veth.kernel("l.close()")


@pytest.mark.parametrize("quick", [True, False], ids=["while the call polls", "while it sleeps"])
def test_a_connection_that_timed_out_has_a_number(veth: Veth, quick: bool) -> None:
    """As the standard library's: its own timeout is a TimeoutError without one (socket.rst), the connection's has ETIMEDOUT (tcp(7))."""
    connect(veth, 4, False)
    veth.kernel_ns.run("ip", "route", "add", "blackhole", f"{veth.engine_host[4]}/32")
    try:
        veth.engine("s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 400)\ns.settimeout(0.02)\ns.send(b'x')")
        for _ in range(3):
            with pytest.raises(TimeoutError, match=r"^timed out$"):
                veth.engine("s.recv(1)")
        if quick:
            veth.engine("time.sleep(1.5)")
        with pytest.raises(TimeoutError) as caught:
            veth.engine("s.settimeout(30)\ns.recv(1)", limit_s=LIMIT_S)
        assert caught.value.errno == errno.ETIMEDOUT
        assert veth.engine("s.recv(1)") == b""
    finally:
        veth.kernel_ns.run("ip", "route", "del", "blackhole", f"{veth.engine_host[4]}/32")
    close(veth, veth.kernel)


def test_strict_mode_forbids_the_kernel() -> None:
    with namespaces() as (here, _), Actor(["xdp:device=v0"], netns=here.name, env={"PYVMA_STRICT": "1"}) as engine:
        for code in ("s.connect(('127.0.0.1', 9))", "s.bind(('127.0.0.1', 0))"):
            with pytest.raises(OSError) as caught:
                engine("s = socket.socket()\n" + code)
            assert caught.value.errno == errno.EOPNOTSUPP
