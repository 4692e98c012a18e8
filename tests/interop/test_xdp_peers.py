"""Kernel programs as peers of the engine on an interface that the kernel owns: AF_XDP over a veth pair, two namespaces.

What is steered goes by the ring; fragments, groups with local listeners, errors and everything of other sockets stay with the kernel.
"""

from __future__ import annotations

import ipaddress
import re
import shutil
import time
from collections.abc import Iterator

import pytest
from actor import Actor
from exchange import (
    ASK,
    DIRECTIONS,
    ECHO,
    JOIN4,
    JOIN6,
    JOIN_SOURCE,
    RECEIVER,
    SEND4,
    SEND6,
    SENDER,
    WINDOW,
    numbered,
    wait_for,
)
from lab import LONG
from netns import Namespace, usable
from veth import ENGINE, KERNEL, Veth, namespaces, pair

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

SIZES = [0, 1, 17, 18, 19, 1000, 1471, 1472, 1473, 1474, 2000, 8972, 20000, 65507]


@pytest.fixture(scope="module", params=["native", "generic"])
def net(request: pytest.FixtureRequest) -> Iterator[Veth]:
    with pair(request.param) as veth:
        yield veth


def counted(actor: Actor) -> dict[str, int]:
    """The counters of socket `s`."""
    stats: dict[str, int] = actor("s.stats")
    return stats


# ---- unicast --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [4, 6])
def test_engine_is_the_server(net: Veth, family: int) -> None:
    net.engine_serves(family, SIZES)
    assert net.engine("s.offload.state") == "offloaded"
    assert net.engine("s.offload.text") == "xdp:v0"


@pytest.mark.parametrize("family", [4, 6])
def test_engine_is_the_client(net: Veth, family: int) -> None:
    net.engine_asks(family, SIZES)


# Out of one buffer: `fill` for what is not checked would hide a mix-up of two datagrams.
ECHO_ALL = """
for size in sizes:
    data, peer = s.recvfrom(70000)
    s.sendto(data, peer)
"""
ASK_ALL = """
noise = os.urandom(70000)
s.connect(to)
for size in sizes:
    sent = noise[size % 4001:][:size]
    s.send(sent)
    assert s.recv(70000) == sent, size
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_size(request: pytest.FixtureRequest, net: Veth, direction: str) -> None:
    """There is. The mode makes no difference to those of many fragments, which come by the kernel."""
    sizes = range(65508)
    if request.node.callspec.params["net"] == "generic" and not LONG:
        sizes = [*range(4500), *range(4500, 65507, 37), 65507]
    engine, kernel = net.sockets(4)
    sides = ((net.engine, engine), (net.kernel, kernel))
    (client, _), (server, there) = sides if direction == "to the kernel" else sides[::-1]
    server.start(ECHO_ALL, sizes=sizes)
    client(ASK_ALL, to=there, sizes=sizes, limit_s=350)
    server.finish()
    stats = counted(net.engine)
    # What fits one packet goes by the ring, fragments come by the kernel.
    assert stats["rx_datagrams"] == 1473
    assert stats["kernel_rx_datagrams"] == len(sizes) - 1473
    assert stats["tx_datagrams"] == len(sizes)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("family", [4, 6])
def test_a_closed_port_refuses(net: Veth, family: int, direction: str) -> None:
    engine, kernel = net.sockets(family)
    sender, closed, there = (net.engine, net.kernel, kernel) if direction == "to the kernel" else (net.kernel, net.engine, engine)
    closed("s.close()")
    with pytest.raises(ConnectionRefusedError):
        sender("s.connect(to)\ns.send(b'anybody?')\ns.recv(10)", to=there)


def test_sending_tells_the_refusal_too(net: Veth) -> None:
    _, kernel = net.sockets(4)
    net.kernel("s.close()")
    net.engine("s.connect(to)\ns.send(b'anybody?')", to=kernel)
    # An answer to a ping came after that to the datagram.
    net.here.run("ping", "-c", "1", "-w", "10", KERNEL[4])
    with pytest.raises(ConnectionRefusedError):
        net.engine("time.sleep(0.01)\ns.send(b'anybody?')")
    assert net.engine("s.send(b'told once'); s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)") in (0, 111)


def test_the_error_queue_is_the_kernels(net: Veth) -> None:
    _, kernel = net.sockets(4)
    net.kernel("s.close()")
    entry = net.engine(
        "s.setsockopt(socket.IPPROTO_IP, 11, 1)\ns.sendto(b'anybody?', to)\n"
        "poll = select.poll(); poll.register(s, select.POLLIN); poll.poll(20000)\n"
        "data, control, flags, where = s.recvmsg(100, 1000, socket.MSG_ERRQUEUE)\n"
        "(data, struct.unpack('=IBBBBII', control[0][2][:16]), bool(flags & socket.MSG_ERRQUEUE), where)",
        to=kernel,
    )
    assert entry == (b"anybody?", (111, 2, 3, 3, 0, 0, 0), True, kernel)


# ---- programs --------------------------------------------------------------------------------------------------------------


def test_socat_is_the_client(net: Veth) -> None:
    net.socat_asks()


def test_socat_is_the_server(net: Veth) -> None:
    net.socat_serves(7070)
    assert net.engine("s.offload.state") == "offloaded"


@pytest.mark.skipif(not shutil.which("ncat"), reason="ncat is not installed")
def test_ncat_is_the_client(net: Veth) -> None:
    engine, _ = net.sockets(6)
    net.engine.start("data, peer = s.recvfrom(2000)\ns.sendto(data.upper(), peer)")
    net.program_asks("ncat", "-u", "-6", engine[0], str(engine[1]))


@pytest.mark.skipif(not shutil.which("ncat"), reason="ncat is not installed")
def test_ncat_is_the_server(net: Veth) -> None:
    process = net.there.popen("ncat", "-u", "-l", "7071", "--exec", "/bin/cat")
    try:
        wait_for("ncat's port", lambda: ":7071" in net.there.run("ss", "-lun"))
        net.engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.connect((host, 7071))", host=KERNEL[4])
        assert net.engine("s.send(b'to ncat'); s.recv(100)") == b"to ncat"
    finally:
        process.terminate()
        process.wait(10)


# sockperf's header: sequence number, flags (bit 0: from a client, bit 1: wants an answer), length; all in network order. Its server
# answers with the same message and bit 0 off. Ours ends with an empty datagram.
SOCKPERF_SERVER = """
import collections
header = struct.Struct('!QHI')
seen = collections.Counter()
data, peer = s.recvfrom(70000)
while data:
    number, flags, length = header.unpack_from(data)
    assert length == len(data)
    seen['asked' if flags & 2 else 'told'] += 1
    if flags & 2:
        s.sendto(header.pack(number, flags & ~1, length) + data[14:], peer)
    data, peer = s.recvfrom(70000)
dict(seen)
"""
SOCKPERF_MODES = {"ping-pong": [], "under-load": ["--mps", "2000", "--reply-every", "1"], "throughput": ["--mps", "5000"]}


def delivered(ns: Namespace) -> int:
    """IPv4 packets that the kernel of a namespace has taken for its own."""
    names, values = (line.split() for line in ns.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Ip:"))
    return int(values[names.index("InDelivers")])


@pytest.mark.parametrize("mode", SOCKPERF_MODES)
def test_sockperf_is_the_client(net: Veth, mode: str) -> None:
    engine, _ = net.sockets(4)
    before = delivered(net.there)
    net.engine.start(SOCKPERF_SERVER)
    text = net.there.run("sockperf", mode, "-i", engine[0], "-p", str(engine[1]), "-t", "2", "-m", "64", *SOCKPERF_MODES[mode], limit_s=60)
    net.kernel("s.sendto(b'', to)", to=engine)
    seen = net.engine.finish()
    assert "Total of" in text or "Summary: " in text, text
    if mode == "throughput":
        assert seen["told"] > 100, (seen, text)
        return
    found = re.search(r"duplicated messages = (\d+); # out-of-order messages = (\d+)", text)
    assert found is not None, text
    assert found.groups() == ("0", "0"), text
    # Every message came, and every answer. What sockperf calls dropped is also what is answered after it has stopped reading.
    sent = re.search(r"Total Run.*SentMessages=(\d+)", text)
    assert sent is not None, text
    assert seen["asked"] == int(sent[1]) > 100, (seen, text)
    assert delivered(net.there) - before >= seen["asked"], text


def test_sockperf_is_the_server(net: Veth) -> None:
    process = net.there.popen("sockperf", "server", "-i", KERNEL[4], "-p", "7072")
    try:
        wait_for("sockperf's port", lambda: ":7072" in net.there.run("ss", "-lun"))
        net.engine(
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.connect((host, 7072))\n"
            "header = struct.Struct('!QHI')\n"
            "for number in range(1, 2001):\n"
            "    s.send(header.pack(number, 3, 64) + bytes(50))\n"
            "    assert header.unpack_from(s.recv(100)) == (number, 2, 64)\n",
            host=KERNEL[4],
        )
    finally:
        process.terminate()
        process.wait(10)


# ---- groups and broadcast --------------------------------------------------------------------------------------------------


def in_igmp(ns: Namespace, group: str) -> bool:
    """Whether the kernel of a namespace is a member, as /proc/net/igmp and igmp6 tell."""
    if ":" in group:
        return f"{int(ipaddress.IPv6Address(group)):032x}" in ns.run("cat", "/proc/net/igmp6")
    word = f"{int.from_bytes(ipaddress.IPv4Address(group).packed, 'little'):08X}"
    return word in ns.run("cat", "/proc/net/igmp")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("size", [5, 4000])
def test_group4(net: Veth, size: int, direction: str) -> None:
    (sender, source), (receiver, sink) = net.ordered(direction)
    ns = net.there if direction == "to the kernel" else net.here
    receiver(JOIN4, group="239.7.8.1", port=7001, local=sink[4])
    assert in_igmp(ns, "239.7.8.1")
    sender(SEND4, group="239.7.8.1", port=7001, local=source[4], data=b"g" * size)
    data, peer = receiver("s.recvfrom(9000)")
    assert data == b"g" * size
    assert peer[0] == source[4]
    if direction == "to the engine":
        stats = counted(receiver)
        assert stats["rx_datagrams"] == (size == 5)
        assert stats["kernel_rx_datagrams"] == (size != 5)
    receiver("s.close()")
    wait_for("the leave", lambda: not in_igmp(ns, "239.7.8.1"))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_group6(net: Veth, direction: str) -> None:
    index = {id(net.engine): net.here, id(net.kernel): net.there}
    (sender, _), (receiver, _) = net.ordered(direction)
    out, into = (actor("next(n for n, name in socket.if_nameindex() if name in ('v0', 'v1'))") for actor in (sender, receiver))
    ns = index[id(receiver)]
    receiver(JOIN6, group="ff15::78", port=7006, index=into)
    assert in_igmp(ns, "ff15::78")
    sender(SEND6, group="ff15::78", port=7006, index=out, data=b"six")
    assert receiver("s.recv(100)") == b"six"
    receiver("s.close()")
    wait_for("the leave", lambda: not in_igmp(ns, "ff15::78"))


def test_source_specific_group(net: Veth) -> None:
    net.engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('', 7003))")
    net.engine(JOIN_SOURCE, group="232.7.8.3", local=ENGINE[4], source="10.78.0.99")
    filtered = net.engine("import pyvma\npyvma.counters()['udp.rx_filtered']")
    net.kernel(SEND4, group="232.7.8.3", port=7003, local=KERNEL[4], data=b"from another source")
    wait_for("it to be refused", lambda: net.engine("pyvma.counters()['udp.rx_filtered']") > filtered)
    net.engine(JOIN_SOURCE, group="232.7.8.3", local=ENGINE[4], source=KERNEL[4])
    net.kernel(SEND4, group="232.7.8.3", port=7003, local=KERNEL[4], data=b"from the wanted source")
    assert net.engine("s.recv(100)") == b"from the wanted source"
    net.engine("s.close()")


@pytest.mark.parametrize("loop", [0, 1])
def test_the_host_hears_its_own_groups(net: Veth, loop: int) -> None:
    """With IP_MULTICAST_LOOP the kernel sends, so that its own members get a copy; without it the ring does."""
    with Actor(netns=net.here.name) as neighbour:
        for actor, local in ((neighbour, ENGINE[4]), (net.kernel, KERNEL[4])):
            actor(JOIN4, group="239.7.8.4", port=7004, local=local)
        net.engine(
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(local))\n"
            "s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, loop)\n"
            "s.bind((local, 0))\ns.sendto(b'hear', ('239.7.8.4', 7004))",
            local=ENGINE[4],
            loop=loop,
        )
        assert net.kernel("s.recv(10)") == b"hear"
        stats = counted(net.engine)
        assert (stats["tx_datagrams"], stats["kernel_tx_datagrams"]) == (1 - loop, loop)
        neighbour("s.settimeout(20 if loop else 0.2)", loop=loop)
        if loop:
            assert neighbour("s.recv(10)") == b"hear"
        else:
            with pytest.raises(TimeoutError):
                neighbour("s.recv(10)")
        net.kernel("s.close()")
        net.engine("s.close()")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_broadcast(net: Veth, direction: str) -> None:
    sender, receiver = (net.engine, net.kernel) if direction == "to the kernel" else (net.kernel, net.engine)
    receiver("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('', 7008))")
    sender("t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)")
    with pytest.raises(PermissionError):
        sender("t.sendto(b'all', ('10.78.0.255', 7008))")
    sender("t.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\nt.sendto(b'all', ('10.78.0.255', 7008))\nt.close()")
    assert receiver("s.recv(10)") == b"all"
    receiver("s.close()")


# ---- both legs -------------------------------------------------------------------------------------------------------------


def test_a_wildcard_serves_the_ring_and_the_kernel(net: Veth) -> None:
    net.engine("s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('::', 0))")
    port = net.engine("s.getsockname()[1]")
    net.kernel("t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.settimeout(20)")
    net.kernel("u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\nu.settimeout(20)")
    with Actor(netns=net.here.name) as neighbour:
        neighbour("t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.settimeout(20)")
        for actor, name, host in (
            (net.kernel, "t", ENGINE[4]),
            (net.kernel, "u", ENGINE[6]),
            (neighbour, "t", "127.0.0.1"),
            (neighbour, "t", ENGINE[4]),
        ):
            actor(f"{name}.sendto(b'to ' + host.encode(), (host, port))", host=host, port=port)
            data, peer = net.engine("data, peer = s.recvfrom(100)\n(data, peer)")
            assert data == b"to " + host.encode()
            assert "." not in host or peer[0].startswith("::ffff:")
            net.engine("s.sendto(b'back', peer)")
            assert actor(f"{name}.recv(10)") == b"back"
    stats = counted(net.engine)
    assert (stats["rx_datagrams"], stats["kernel_rx_datagrams"]) == (2, 2)
    assert (stats["tx_datagrams"], stats["kernel_tx_datagrams"]) == (2, 2)


def test_the_port_is_reserved_both_ways(net: Veth) -> None:
    engine, _ = net.sockets(4)
    with Actor(netns=net.here.name) as neighbour:
        neighbour("t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)")
        with pytest.raises(OSError, match="in use"):
            neighbour("t.bind(('', port))", port=engine[1])
        neighbour("t.bind(('', 0))")
        port = neighbour("t.getsockname()[1]")
        with pytest.raises(OSError, match="in use"):
            net.engine("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind((host, port))", host=ENGINE[4], port=port)
        net.engine("s.close()")
        neighbour("t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.bind(('', port))", port=engine[1])


@pytest.mark.parametrize("size", [10, 5000])
@pytest.mark.parametrize("how", ["select", "epoll", "timeout"])
def test_waiting_is_for_both_legs(net: Veth, how: str, size: int) -> None:
    """A datagram of one packet comes by the ring, one in fragments by the kernel."""
    engine, _kernel = net.sockets(4)
    waits = {
        "select": "select.select([s], [], [], 20)[0] == [s]",
        "epoll": "e = select.epoll(); e.register(s.fileno(), select.EPOLLIN | select.EPOLLET); len(e.poll(20)) == 1",
        "timeout": "True",
    }
    for _ in range(3):
        net.engine.start(waits[how])
        time.sleep(0.05)
        net.kernel("s.sendto(bytes(size), to)", size=size, to=engine)
        assert net.engine.finish()
        assert len(net.engine("s.recv(70000)")) == size
    net.engine("s.setblocking(False)")
    with pytest.raises(BlockingIOError):
        net.engine("s.recv(10)")


def test_ancillary_data_names_the_kernels_interface(net: Veth) -> None:
    net.engine(
        "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('::', 0))\n"
        "s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)"
    )
    port, index = net.engine("(s.getsockname()[1], socket.if_nametoindex('v0'))")
    net.kernel("u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\nu.settimeout(20)")
    for size in (10, 5000):
        net.kernel("u.sendto(bytes(size), to)", size=size, to=(ENGINE[6], port))
        _data, control = net.engine("data, control, flags, peer = s.recvmsg(9000, 200)\n(data, control)")
        info = next(data for level, kind, data in control if (level, kind) == (41, 50))
        assert info == ipaddress.IPv6Address(ENGINE[6]).packed + index.to_bytes(4, "little")
        net.engine("s.sendmsg([b'back'], control, 0, peer)")
        assert net.kernel("u.recvfrom(10)")[1][:2] == (ENGINE[6], port)
    assert counted(net.engine)["tx_datagrams"] == 2


def test_link_local_addresses_have_the_kernels_scope(net: Veth) -> None:
    there = re.search(r"inet6 (fe80::\S+)/64", net.there.ip("-6", "addr", "show", "dev", "v1"))
    assert there
    net.kernel("s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('::', 0))")
    port = net.kernel("s.getsockname()[1]")
    net.engine("s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\nv0 = socket.if_nametoindex('v0')")
    net.engine("s.connect((host, port, 0, v0))\ns.send(b'local')", host=there[1], port=port)
    data, peer = net.kernel("data, peer = s.recvfrom(10)\n(data, peer)")
    assert data == b"local"
    assert peer[0].startswith("fe80::")
    net.kernel("s.sendto(b'back', peer)")
    assert net.engine("s.recv(10)") == b"back"
    assert net.engine("(s.getsockname()[0], s.getsockname()[3] == v0, s.getpeername()[3] == v0)") == (peer[0].split("%")[0], True, True)
    assert net.engine("s.offload.state") == "offloaded"
    assert counted(net.engine)["tx_datagrams"] == 1


def test_bound_to_the_device(net: Veth) -> None:
    net.engine(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'v0')\ns.bind(('', 0))"
    )
    assert net.engine("s.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)").rstrip(b"\0") == b"v0"
    assert net.engine("s.offload.state") == "offloaded"
    _, _kernel = net.sockets(4)
    net.engine("d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nd.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo')")
    net.engine("d.bind(('', 0))")
    assert net.engine("tuple(d.offload)") == ("kernel", "bound to a device of the kernel")


FORK = """
s.connect(to)
child = os.fork()
if not child:
    try:
        s.send(b'from the child')
        os._exit(s.offload.state != 'kernel')
    finally:
        os._exit(1)
"""


def test_a_child_has_the_kernel_socket(net: Veth) -> None:
    engine, kernel = net.sockets(4)
    net.engine(
        FORK,
        to=kernel,
    )
    assert net.kernel("s.recvfrom(100)") == (b"from the child", engine)
    assert net.engine("os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])") == 0
    net.engine("s.send(b'from the parent')")
    assert net.kernel("s.recv(100)") == b"from the parent"
    assert counted(net.engine)["tx_datagrams"] == 1


def test_a_second_process_stays_on_the_kernel(net: Veth) -> None:
    """A queue has one owner: the second process's sockets say so, and work."""
    _, kernel = net.sockets(4)
    with Actor(["xdp:device=v0"], netns=net.here.name, env={"PYVMA_LOG_LEVEL": "error"}) as second:
        for host in (ENGINE[4], ""):
            second("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))", host=host)
            second("s.sendto(b'second', to)", to=kernel)
            data, peer = net.kernel("s.recvfrom(100)")
            net.kernel("s.sendto(b'answer', peer)", peer=peer)
            assert (data, second("s.recv(100)")) == (b"second", b"answer")
            state, text = second("tuple(s.offload)")
            assert state == "kernel"
            assert "taken" in text
    strict = Actor(["xdp:device=v0"], netns=net.here.name, env={"PYVMA_STRICT": "1", "PYVMA_LOG_LEVEL": "error"})
    with strict, pytest.raises(OSError, match="taken"):
        strict("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)")


def test_rings_of_both_kinds_in_one_engine(net: Veth, fabric: str) -> None:
    """A wildcard socket over an interface of our own, one of the kernel's, and the host itself."""
    with namespaces() as (here, there), Actor(netns=there.name) as kernel, Actor(netns=here.name) as neighbour:
        ours = [f"softnic:fabric={fabric},port=0,addr=10.80.0.1/24", "xdp:device=v0"]
        with Actor(ours, netns=here.name) as engine, Actor([f"softnic:fabric={fabric},port=1,addr=10.80.0.2/24"]) as other:
            engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('', 0))")
            port = engine("s.getsockname()[1]")
            for actor, host in ((kernel, ENGINE[4]), (other, "10.80.0.1"), (neighbour, "127.0.0.1")):
                actor("t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.settimeout(20)\nt.sendto(b'hi', to)", to=(host, port))
                assert engine("data, peer = s.recvfrom(10)\ns.sendto(b'yes', peer)\ndata") == b"hi"
                assert actor("t.recvfrom(10)") == (b"yes", (host, port))
            stats = counted(engine)
            assert (stats["rx_datagrams"], stats["kernel_rx_datagrams"]) == (2, 1)
            assert (stats["tx_datagrams"], stats["kernel_tx_datagrams"]) == (2, 1)


# ---- options that only the kernel has ----------------------------------------------------------------------------------------


def test_a_mark_before_bind_keeps_the_socket_on_the_kernel(net: Veth) -> None:
    net.engine(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.setsockopt(socket.SOL_SOCKET, 36, 7)\ns.bind((host, 0))", host=ENGINE[4]
    )
    assert net.engine("tuple(s.offload)") == ("kernel", "SO_MARK")


def test_a_mark_moves_sending_to_the_kernel_and_back(net: Veth) -> None:
    engine, kernel = net.sockets(4)
    net.engine("s.connect(to)", to=kernel)
    for mark, by_ring, by_kernel in ((0, 1, 0), (7, 1, 1), (0, 2, 1)):
        net.engine("s.setsockopt(socket.SOL_SOCKET, 36, mark)\ns.send(b'marked')", mark=mark)
        assert net.kernel("s.recvfrom(10)") == (b"marked", engine)
        stats = counted(net.engine)
        assert (stats["tx_datagrams"], stats["kernel_tx_datagrams"]) == (by_ring, by_kernel)
    net.kernel("s.sendto(b'back', to)", to=engine)
    assert net.engine("s.recv(10)") == b"back"
    assert counted(net.engine)["rx_datagrams"] == 1


def test_a_filter_leaves_the_socket_to_the_kernel(net: Veth) -> None:
    """What the stack had queued is still read."""
    engine, kernel = net.sockets(4)
    net.kernel("s.sendto(b'queued', to)", to=engine)
    assert net.engine("select.select([s], [], [], 20)[0] == [s]")
    net.engine(
        "import ctypes\ncode = (ctypes.c_uint64 * 1)(); struct.pack_into('=HBBI', code, 0, 6, 0, 0, 0xffff)\n"
        "s.setsockopt(socket.SOL_SOCKET, 26, struct.pack('@HP', 1, ctypes.addressof(code)))"
    )
    assert net.engine("tuple(s.offload)") == ("kernel", "SO_ATTACH_FILTER")
    assert net.engine("s.recv(10)") == b"queued"
    net.kernel("s.sendto(b'filtered', to)", to=engine)
    assert net.engine("s.recvfrom(10)") == (b"filtered", kernel)
    stats = counted(net.engine)
    assert (stats["rx_datagrams"], stats["kernel_rx_datagrams"]) == (1, 1)


# ---- path MTU ----------------------------------------------------------------------------------------------------------------


def test_a_path_mtu_is_the_sockets(net: Veth) -> None:
    """The peer routes to a network behind a smaller link and says so."""
    with Namespace() as far:
        far.ip("link", "add", "w1", "mtu", "1300", "type", "veth", "peer", "name", "w0", "mtu", "1300", "netns", net.there.name)
        far.ip("addr", "add", "10.79.0.2/24", "dev", "w1")
        far.ip("link", "set", "w1", "up")
        far.ip("route", "add", "default", "via", "10.79.0.1")
        net.there.ip("addr", "add", "10.79.0.1/24", "dev", "w0")
        net.there.ip("link", "set", "w0", "up")
        net.there.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        net.here.ip("route", "replace", "10.79.0.0/24", "via", KERNEL[4])
        with Actor(netns=far.name) as peer:
            peer("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind(('10.79.0.2', 7079))")
            net.engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.connect(('10.79.0.2', 7079))")
            assert net.engine("s.getsockopt(socket.IPPROTO_IP, 14)") == 1500
            with pytest.raises(OSError, match="too long"):
                net.engine("s.send(bytes(1400))\ns.recv(10)")
            assert net.engine("s.getsockopt(socket.IPPROTO_IP, 14)") == 1300
            net.engine("s.send(bytes(1400))")
            assert len(peer("s.recv(2000)")) == 1400
            stats = counted(net.engine)
            assert (stats["tx_datagrams"], stats["kernel_tx_datagrams"]) == (2, 0)
        net.here.ip("route", "del", "10.79.0.0/24")


# ---- many, and the others on the interface -----------------------------------------------------------------------------------


@pytest.mark.timeout(400)
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_datagrams_in_order(net: Veth, direction: str, family: int) -> None:
    numbered(net, direction, 1_000_000 if LONG and family == 4 else 100_000, limit_s=350, family=family)
    stats = counted(net.engine)
    assert stats["kernel_tx_datagrams"] == 0
    assert stats["kernel_rx_datagrams"] <= 64


TCP_SERVER = """
listener = socket.create_server((host, 0))
listener.settimeout(20)
"""
TCP_ECHO = """
connection, _ = listener.accept()
total = 0
while piece := connection.recv(65536):
    total += len(piece)
    connection.sendall(piece)
connection.close()
total
"""
TCP_ASK = """
connection = socket.create_connection(to, 20)
noise = os.urandom(65536)
for _ in range(rounds):
    connection.sendall(noise)
    got = b''
    while len(got) < len(noise):
        got += connection.recv(65536)
    assert got == noise
connection.close()
"""


@pytest.mark.timeout(300)
def test_the_others_are_not_disturbed(net: Veth) -> None:
    """Kernel UDP, kernel TCP and ping over the same interface while the engine has all it can do."""
    engine, kernel = net.sockets(4)
    count = 300_000
    with Actor(netns=net.here.name) as here, Actor(netns=net.there.name) as there:
        for actor in (net.engine, net.kernel):
            actor("pack, unpack = struct.Struct('!Q50x').pack, struct.Struct('!Q50x').unpack")
        net.kernel.start(RECEIVER, to=engine, count=count, window=WINDOW)
        net.engine.start(SENDER, to=kernel, count=count, window=WINDOW)
        for actor, host in ((here, ENGINE[4]), (there, KERNEL[4])):
            actor("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))", host=host)
        ports = [actor("s.getsockname()[1]") for actor in (here, there)]
        for client, server, to in ((here, there, (KERNEL[4], ports[1])), (there, here, (ENGINE[4], ports[0]))):
            server.start(ECHO, sizes=SIZES * 20)
            client(ASK, sizes=SIZES * 20, to=to)
            server.finish()
            server(TCP_SERVER, host=to[0])
            port = server("listener.getsockname()[1]")
            server.start(TCP_ECHO)
            client(TCP_ASK, to=(to[0], port), rounds=50)
            assert server.finish() == 50 * 65536
        for ns, host in ((net.here, KERNEL[4]), (net.there, ENGINE[4]), (net.here, KERNEL[6]), (net.there, ENGINE[6])):
            text = ns.run("ping", "-n", "-c", "20", "-i", "0.01", "-w", "20", "-s", "1400", host)
            assert " 0% packet loss" in text, text
        assert net.engine.finish(250)
        assert net.kernel.finish() == 0
