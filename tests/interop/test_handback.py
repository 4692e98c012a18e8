"""Connections that become the kernel's while they live, and the processes that want them to: AF_XDP over a veth pair, the kernel as peer.

`tests/native/sock_handback_test.c` has every state and role; here are programs, and what the kernel's own tools say.
"""

from __future__ import annotations

import errno
import hashlib
import random
import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from actor import Actor
from exchange import ACCEPT, LISTEN, wait_for
from lab import LONG
from netns import usable
from python_programs import PROGRAMS, Net
from python_programs import net as programs_net
from veth import ENGINE, KERNEL, Veth, pair

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(600),
]

FAMILIES = [4, 6]
SIZE = (64 << 20) if LONG else (4 << 20)
ROUNDS = 40 if LONG else 3
LIMIT_S = 240.0

# Both ways at once; `at`: after so many bytes received the connection is handed back. Our end is said after that: of a connection that has
# ended both ways there is nothing to hand back, whatever is still to be read.
BOTH_WAYS = """
import hashlib, random, threading
data = random.Random(seed).randbytes(size)
failed = []
may_end = threading.Event()
if at < 0:
    may_end.set()
def write():
    try:
        s.sendall(data)
        may_end.wait()
        s.shutdown(socket.SHUT_WR)
    except BaseException as error:
        failed.append(error)
writer = threading.Thread(target=write)
writer.start()
got, seen = 0, hashlib.sha256()
handed = at < 0
while piece := s.recv(1 << 16):
    seen.update(piece)
    got += len(piece)
    if not handed and got > at:
        handed = True
        try:
            s.hand_back()
        finally:
            may_end.set()
writer.join()
assert not failed, failed
(got, seen.hexdigest())
"""


@pytest.fixture(scope="module")
def veth() -> Iterator[Veth]:
    with pair() as made:
        yield made


@pytest.fixture(scope="module")
def lossy() -> Iterator[Veth]:
    """What the engine sends and receives is lost and doubled until the kernel has the connection."""
    with pair(env={"PYVMA_FAULT": "rx_drop=0.01,tx_drop=0.01,rx_duplicate=0.01,seed=7"}) as made:
        yield made


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with programs_net("xdp", tmp_path_factory.mktemp("handback")) as made:
        yield made


def both_ways(net: Veth, family: int, engine_serves: bool, at: int, size: int) -> None:
    net.connect(family, engine_serves)
    net.kernel.start(BOTH_WAYS, seed=2, size=size, at=-1)
    ours = net.engine(BOTH_WAYS, seed=1, size=size, at=at, limit_s=LIMIT_S)
    theirs = net.kernel.finish(LIMIT_S)
    want = {seed: hashlib.sha256(random.Random(seed).randbytes(size)).hexdigest() for seed in (1, 2)}
    assert ours == (size, want[2])
    assert theirs == (size, want[1])
    assert net.engine("str(s.offload)") == "handed back: asked for"
    for actor in (net.engine, net.kernel):
        actor("s.close()")
    (net.engine if engine_serves else net.kernel)("l.close()")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
def test_while_data_flows_both_ways(veth: Veth, family: int, engine_serves: bool) -> None:
    places = random.Random(family)
    before = veth.engine("import pyvma; pyvma.start(); pyvma.counters()")
    for _ in range(ROUNDS):
        both_ways(veth, family, engine_serves, places.randrange(SIZE * 3 // 4), SIZE)
    after = veth.engine("import pyvma; pyvma.counters()")
    assert after["tcp.handed_back"] == before["tcp.handed_back"] + ROUNDS
    assert after["tcp.tx_resets"] == before["tcp.tx_resets"]


@pytest.mark.parametrize("family", FAMILIES)
def test_over_a_bad_wire(lossy: Veth, family: int) -> None:
    for round in range(ROUNDS):
        both_ways(lossy, family, round % 2 == 0, (round + 1) * SIZE // (5 * ROUNDS), SIZE // 4)


@pytest.mark.parametrize("setting", ["net.ipv4.tcp_timestamps=0", "net.ipv4.tcp_sack=0", "net.ipv4.tcp_window_scaling=0"])
def test_whatever_was_agreed(veth: Veth, setting: str) -> None:
    veth.there.run("sysctl", "-qw", setting)
    try:
        both_ways(veth, 4, True, SIZE // 2, SIZE)
        both_ways(veth, 4, False, SIZE // 2, SIZE)
    finally:
        veth.there.run("sysctl", "-qw", setting.replace("=0", "=1"))


def test_the_kernels_tools_see_it(veth: Veth) -> None:
    """Where the stack's stood the kernel's goes on: `ss` shows it with both ends' numbers, and none of its segments was lost."""
    port = veth.connect(4, True)
    veth.engine("s.sendall(b'x' * 1000)")
    veth.kernel("s.recv(1000, socket.MSG_WAITALL); s.sendall(b'y' * 2000)")
    veth.engine("s.recv(2000, socket.MSG_WAITALL)")
    assert f":{port} " not in veth.here.run("ss", "-tnH", "state", "established")
    veth.engine("s.hand_back()")
    veth.engine("s.sendall(b'z' * 3000)")
    veth.kernel("s.recv(3000, socket.MSG_WAITALL)")
    shown = veth.here.run("ss", "-tinH", "state", "established", "sport", "=", f":{port}")
    assert f"{ENGINE[4]}:{port}" in shown and KERNEL[4] in shown, shown
    assert "bytes_acked:3000" in shown and "mss:1448" in shown and "retrans" not in shown, shown
    theirs = veth.there.run("ss", "-tinH", "state", "established", "dport", "=", f":{port}")
    assert re.search(r"bytes_received:4000\b", theirs), theirs
    veth.engine("s.close(); l.close()")
    assert veth.kernel("s.recv(1)") == b""
    veth.kernel("s.close()")


def test_what_cannot_be_is_said(veth: Veth) -> None:
    veth.connect(4, False)
    veth.engine("d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nd.bind((host, 0))", host=ENGINE[4])
    for name, wrong in (("d", errno.EOPNOTSUPP), ("t", errno.ENOTCONN)):
        veth.engine("t = socket.socket()\nt.bind((host, 0))", host=ENGINE[4])
        with pytest.raises(OSError) as caught:
            veth.engine(f"{name}.hand_back()")
        assert caught.value.errno == wrong
    veth.engine("s.hand_back(); s.hand_back(); d.close(); t.close(); s.close()")
    veth.kernel("s.close(); l.close()")


def test_without_the_privilege() -> None:
    with pair() as made:
        made.connect(4, True)
        made.engine("os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)")
        with pytest.raises(PermissionError, match="CAP_NET_ADMIN"):
            made.engine("s.hand_back()")
        made.engine("s.sendall(b'goes on')")
        assert made.kernel("s.recv(7, socket.MSG_WAITALL)") == b"goes on"
        assert made.engine("s.offload.state") == "offloaded"


def test_multiprocessing(veth: Veth) -> None:
    """A worker by fork gets a connection as an argument."""
    veth.connect(6, True)
    veth.engine(
        "import multiprocessing\n"
        "def work(connection):\n"
        "    connection.settimeout(60)\n"
        "    while data := connection.recv(1000):\n"
        "        connection.sendall(data.upper())\n"
        "worker = multiprocessing.get_context('fork').Process(target=work, args=(s,))\n"
        "worker.start()\n"
        "s.close()"
    )
    for _ in range(3):
        veth.kernel("s.sendall(b'loud')")
        assert veth.kernel("s.recv(4, socket.MSG_WAITALL)") == b"LOUD"
    veth.kernel("s.shutdown(socket.SHUT_WR)")
    veth.engine("worker.join(60)")
    assert veth.engine("worker.exitcode") == 0
    assert veth.kernel("s.recv(1)") == b""
    veth.kernel("s.close()")
    veth.engine("l.close()")


def test_a_parent_that_is_killed() -> None:
    """The child's call says so; nothing hangs."""
    with pair() as made:
        made.connect(4, True)
        made.engine(
            "parent = os.getpid()\npid = os.fork()\n"
            "if not pid:\n"
            "    while os.getppid() == parent: time.sleep(0.02)\n"
            "    try:\n        s.send(b'x')\n        said = 'sent'\n"
            "    except OSError as error:\n        said = errno.errorcode[error.errno]\n"
            "    open(path, 'w').write(said)\n"
            "    os._exit(0)\n",
            path=(path := f"/tmp/pvt_{made.here.name}"),
        )
        try:
            made.engine.kill()
            wait_for("the child's word", lambda: Path(path).exists() and Path(path).read_text() != "", 60)
            assert Path(path).read_text() in ("ENOTCONN", "ECONNRESET", "EPIPE")  # by when its kernel socket heard of it
        finally:
            with suppress(FileNotFoundError):
                Path(path).unlink()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_parent_that_ends(lab: Net, tmp_path: Path, family: int) -> None:
    """daemon(3) with a connection: the child goes on with it when the process that had the stack is gone."""
    mark = tmp_path / "mark"
    program = lab.ours(str(PROGRAMS / "daemon_server.py"), lab.our_host[family], "7001", str(mark))
    program.said("serving")
    with Actor(netns=lab.there.name) as kernel:
        kernel(f"s = socket.create_connection(({lab.our_host[family]!r}, 7001), 60); s.sendall(b'ping')")
        assert kernel("s.recv(4, socket.MSG_WAITALL)") == b"pong"
        assert program.wait() == 0, program.text
        for _ in range(3):
            assert kernel("s.sendall(b'echo'); s.recv(4, socket.MSG_WAITALL)") == b"echo"
        assert kernel("s.shutdown(socket.SHUT_WR); s.recv(1)") == b""
    wait_for("the child's end", mark.exists)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_forking_server_and_curl(lab: Net, family: int) -> None:
    size, many = (1 << 20), (200 if LONG else 12)
    server = lab.ours(str(PROGRAMS / "forking_server.py"), lab.our_host[family], "7002", str(size))
    server.said("serving")
    host = lab.our_host[family] if family == 4 else f"[{lab.our_host[family]}]"
    command = ["ip", "netns", "exec", lab.there.name, "curl", "-sS", "--max-time", "120", "--parallel", "--parallel-max", "4", "-g"]
    for number in range(many):
        command += ["-o", str(server.folder / f"{number}.body"), f"http://{host}:7002/{number}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr + server.text
    want = random.Random(size).randbytes(size)
    for number in range(many):
        assert (server.folder / f"{number}.body").read_bytes() == want
    assert server.end() == 0, server.text
    counted = server.counters()
    assert counted["tcp.handed_back"] >= many, counted
    assert counted["tcp.tx_resets"] == 0, counted


def test_the_listener_of_a_child(veth: Veth) -> None:
    """While the parent listens connections are the parent's; when it has closed its own, they are the child's, by the kernel."""
    port = veth.engine(LISTEN, family=4, host=ENGINE[4])
    veth.engine(
        "r, w = os.pipe()\npid = os.fork()\n"
        "if not pid:\n"
        "    os.read(r, 1)\n"
        "    c, _ = l.accept()\n"
        "    c.sendall(b'child')\n"
        "    os._exit(0)\n"
    )
    connect = "s = socket.create_connection((host, port), 60)"
    veth.kernel(connect, host=ENGINE[4], port=port)
    veth.engine(ACCEPT)
    veth.engine("s.sendall(b'parent')")
    assert veth.kernel("s.recv(6, socket.MSG_WAITALL)") == b"parent"
    veth.engine("s.close(); l.close(); os.write(w, b'g')")
    veth.kernel("s.close()")
    veth.kernel(connect, host=ENGINE[4], port=port)
    assert veth.kernel("s.recv(5, socket.MSG_WAITALL)") == b"child"
    assert veth.engine("os.waitpid(pid, 0)[1]") == 0
    veth.kernel("s.close()")


def test_a_datagram_socket_of_a_child(veth: Veth) -> None:
    veth.engine("d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nd.bind((host, 0))\nd.settimeout(60)", host=ENGINE[4])
    port = veth.engine("d.getsockname()[1]")
    veth.engine(
        "r, w = os.pipe()\npid = os.fork()\n"
        "if not pid:\n"
        "    os.read(r, 1)\n"
        "    data, peer = d.recvfrom(100)\n"
        "    d.sendto(data + b' of the child', peer)\n"
        "    os._exit(0)\n"
    )
    veth.kernel(
        "d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nd.settimeout(60)\nd.connect((host, port))", host=ENGINE[4], port=port
    )
    veth.kernel("d.send(b'one')")
    assert veth.engine("d.recv(100)") == b"one"
    veth.engine("d.close(); os.write(w, b'g')")
    veth.kernel("d.send(b'two')")
    assert veth.kernel("d.recv(100)") == b"two of the child"
    assert veth.engine("os.waitpid(pid, 0)[1]") == 0
    veth.kernel("d.close()")


def test_of_the_engines_own_interface() -> None:
    """There the kernel knows nothing of the network: it is refused."""
    fabric = f"hb{secrets.token_hex(4)}"
    with (
        Actor([f"softnic:fabric={fabric},port=0,addr=10.44.0.1/24"]) as a,
        Actor([f"softnic:fabric={fabric},port=1,addr=10.44.0.2/24"]) as b,
    ):
        port = a("l = socket.create_server(('10.44.0.1', 0)); l.getsockname()[1]")
        b(f"s = socket.create_connection(('10.44.0.1', {port}), 60)")
        with pytest.raises(OSError) as caught:
            b("s.hand_back()")
        assert caught.value.errno == errno.EOPNOTSUPP
