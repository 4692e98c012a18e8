"""A TAP device of the engine with the Linux kernel at its other end: datagrams and streams of both families, long segments, programs,
and what becomes of sockets when the device goes.

The contract suite's cases run over two such devices, too; with PYVMA_TEST_LONG=1 all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tapnet
from actor import Actor
from exchange import CONNECT, DIRECTIONS, RECEIVE_BYTES, RESET_AT_CLOSE, SEND_BYTES, Ends, wait_for
from lab import LONG
from netns import usable

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(1800 if LONG else 240),
]

ROOT = Path(__file__).parents[2]
BULK = (256 if LONG else 8) << 20
LIMIT_S = 600.0 if LONG else 120.0
FAMILIES = [4, 6]
SIZES = [0, 1, 17, 64, 1000, 1452, 1472, 1473, 4000, 9000, 30000, 65000]


@pytest.fixture(scope="module", params=[1, 3], ids=["one queue", "three queues"])
def net(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with tapnet.pair(request.param) as ends:
        yield ends


@pytest.fixture
def fresh() -> Iterator[Ends]:
    with tapnet.pair() as ends:
        yield ends


def counters(net: Ends) -> dict[str, int]:
    found: dict[str, int] = net.engine("import pyvma; pyvma.counters()")
    return found


def transfer(sender: Actor, receiver: Actor, seed: int) -> None:
    sender.start(SEND_BYTES, seed=seed, size=BULK)
    got = receiver(RECEIVE_BYTES, size=BULK, limit_s=LIMIT_S)
    sender.finish(LIMIT_S)
    assert got == hashlib.sha256(random.Random(seed).randbytes(BULK)).hexdigest()


def close(net: Ends, engine_serves: bool) -> None:
    net.engine("s.close()")
    net.kernel("s.close()")
    (net.engine if engine_serves else net.kernel)("l.close()")


@pytest.mark.parametrize("family", FAMILIES)
def test_datagrams(net: Ends, family: int) -> None:
    net.engine_serves(family, SIZES)
    net.engine_asks(family, SIZES)
    assert net.engine("s.offload.text") == "tap:tap0"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
def test_streams(net: Ends, family: int, engine_serves: bool) -> None:
    net.connect(family, engine_serves)
    before = counters(net)
    transfer(net.engine, net.kernel, 1)
    transfer(net.kernel, net.engine, 2)
    after = counters(net)
    for name in ("tcp.rx_bad_csum", "tcp.rx_malformed", "net.rx_short", "tcp.tx_resets"):
        assert after[name] == before[name], name
    # Segments went whole both ways: frames were longer than the MTU by the average, acknowledgements included.
    tap = net.engine("import pyvma.ring; i = pyvma.ring.interfaces()[0]; (i.mode, i.tso_packets, i.queues)")
    assert tap[0].startswith("vnet header") and "tso" in tap[0] and tap[1] > 0
    seen = json.loads(net.kernel_ns.ip("-j", "-s", "link", "show", tapnet.DEVICE))[0]["stats64"]
    assert all(seen[way]["bytes"] / seen[way]["packets"] > 1600 for way in ("rx", "tx")), seen
    close(net, engine_serves)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_datagrams_that_a_sender_hands_over_as_one(net: Ends, direction: str) -> None:
    if direction == "to the kernel":
        net.engine_asks(4, [1200] * 50)
        return
    engine, _ = net.sockets(4)
    # UDP_SEGMENT (linux/udp.h): the kernel leaves the cutting to the device, which says that it can.
    net.engine.start("got = [s.recv(2000) for _ in range(400)]\n[len(part) for part in got], b''.join(got)")
    sent = net.kernel(
        "s.setsockopt(socket.IPPROTO_UDP, 103, struct.pack('i', 1300))\ns.connect(to)\nsent = [os.urandom(1300 * 40) for _ in range(10)]\n"
        "for part in sent:\n    assert s.send(part) == len(part)\nb''.join(sent)",
        to=engine,
    )
    lengths, got = net.engine.finish()
    assert lengths == [1300] * 400 and got == sent


def test_refusals_and_resets(net: Ends) -> None:
    for engine_serves in (True, False):
        for first, second in ((net.engine, net.kernel), (net.kernel, net.engine)):
            net.connect(4, engine_serves)
            first(RESET_AT_CLOSE)
            with pytest.raises(ConnectionResetError):
                second("s.recv(1)")
            second("s.close()")
            (net.engine if engine_serves else net.kernel)("l.close()")
    for actor, hosts in ((net.engine, tapnet.KERNEL), (net.kernel, tapnet.ENGINE)):
        for family in FAMILIES:
            with pytest.raises(ConnectionRefusedError):
                actor(CONNECT, family=family, host=hosts[family], port=9)


@pytest.mark.parametrize("family", FAMILIES)
def test_ping(net: Ends, family: int) -> None:
    net.engine("import pyvma; pyvma.start()")
    for size in ("56", "1400", "20000"):
        said = net.kernel_ns.run("ping", "-c", "3", "-i", "0.05", "-W", "20", "-s", size, tapnet.ENGINE[family])
        assert " 0% packet loss" in said


def test_a_link_that_is_down_and_up_again(fresh: Ends) -> None:
    engine, kernel = fresh.sockets(4)
    fresh.kernel_ns.ip("link", "set", tapnet.DEVICE, "down")
    fresh.engine("s.sendto(b'lost', to)", to=kernel)
    fresh.kernel_ns.ip("link", "set", tapnet.DEVICE, "up")
    fresh.engine.start("s.recv(100)")
    fresh.kernel("s.sendto(b'here again', to)", to=engine)
    assert fresh.engine.finish() == b"here again"


def test_a_device_that_goes_away(fresh: Ends) -> None:
    """Who waits hears of it, and who comes later."""
    _, kernel = fresh.sockets(4)
    fresh.engine.start("try:\n    s.recv(1)\n    said = None\nexcept OSError as error:\n    said = error.errno\nsaid == errno.ENETDOWN")
    fresh.kernel_ns.ip("link", "del", tapnet.DEVICE)
    assert fresh.engine.finish() is True
    with pytest.raises(OSError, match="down"):
        fresh.engine("s.sendto(b'more', to)", to=kernel)


@pytest.mark.skipif(not shutil.which("sockperf"), reason="sockperf is not installed")
def test_sockperf_asks(fresh: Ends) -> None:
    port = 11111
    fresh.engine(
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nu.bind((host, port))\nu.settimeout(0.2)\nstop = []\n"
        "def serve():\n    while not stop:\n        try:\n            data, peer = u.recvfrom(2000)\n        except TimeoutError:\n"
        "            continue\n        u.sendto(data[:8] + bytes([data[8], data[9] & ~1]) + data[10:], peer)\n"
        "thread = threading.Thread(target=serve)\nthread.start()",
        host=tapnet.ENGINE[4],
        port=port,
    )
    try:
        said = fresh.kernel_ns.run(
            "sockperf", "ping-pong", "-i", tapnet.ENGINE[4], "-p", str(port), "-t", "1", "--mps", "1000", "-m", "100"
        )
    finally:
        fresh.engine("stop.append(1)\nthread.join()\nu.close()")
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in said, said


SERVER = """
import functools, http.server, socketserver
class Server(http.server.ThreadingHTTPServer):
    def __init__(self, address, handler):
        socketserver.BaseServer.__init__(self, address, handler)
        self.socket = socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.server_name, self.server_port = address[0], self.socket.getsockname()[1]
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass
server = Server((host, 0), functools.partial(Handler, directory=directory))
thread = threading.Thread(target=server.serve_forever)
thread.start()
server.server_port
"""


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("family", FAMILIES)
def test_curl_downloads(net: Ends, family: int, tmp_path: Path) -> None:
    data = random.Random(family).randbytes(BULK)
    (tmp_path / "file").write_bytes(data)
    port = net.engine(SERVER, host=tapnet.ENGINE[family], directory=str(tmp_path))
    host = f"[{tapnet.ENGINE[6]}]" if family == 6 else tapnet.ENGINE[4]
    command = ["curl", "-sS", "--fail", "--max-time", str(LIMIT_S), f"http://{host}:{port}/file"]
    try:
        done = subprocess.run(["ip", "netns", "exec", net.kernel_ns.name, *command], capture_output=True, timeout=LIMIT_S + 10)
    finally:
        net.engine("server.shutdown()\nthread.join()\nserver.server_close()")
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


# ---- what cannot be ----------------------------------------------------------------------------------------------------------


def reason_of(interface: str, netns: str, prefix: tuple[str, ...] = ()) -> str:
    code = "import pyvma\ntry:\n    pyvma.start()\n    print('started')\nexcept Exception as error:\n    print(error)"
    env = {**os.environ, "PYTHONSAFEPATH": "1", "PYVMA_INTERFACES": interface}
    command = ["ip", "netns", "exec", netns, *prefix, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env).stdout.strip()


def test_reasons() -> None:
    with tapnet.pair() as ends:
        ends.engine("import pyvma; pyvma.start()")
        ns = ends.kernel_ns.name
        assert "another process" in reason_of(tapnet.entry(), ns)
        assert "lo is no TAP device" in reason_of("tap:name=lo,addr=10.1.1.1/24", ns)
        ends.kernel_ns.ip("tuntap", "add", "tun7", "mode", "tun")
        assert "is a TUN device" in reason_of("tap:name=tun7,addr=10.1.1.1/24", ns)
        assert "CAP_NET_ADMIN" in reason_of("tap:name=tap9,addr=10.1.1.1/24", ns, ("setpriv", "--bounding-set=-net_admin"))
        assert reason_of("tap:name=tap9,addr=10.1.1.1/24,mtu=9000,mac=02:00:00:00:00:09,queues=2", ns) == "started"


# ---- the contract suite ----------------------------------------------------------------------------------------------------

SHORT = ["test_udp.py", "test_tcp.py"]


def test_the_contract() -> None:
    """In a process of its own, whose engine has two TAP devices."""
    files = [] if LONG else SHORT
    paths = [str(ROOT / "tests" / "contract" / name) for name in files] or [str(ROOT / "tests" / "contract")]
    with tapnet.joined() as ns:
        env = {**os.environ, "PYTHONSAFEPATH": "1", "LAB_RING": "tap"}
        which = "softnic" if LONG else "softnic-ipv4"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", which, *paths]
        done = subprocess.run(
            ["ip", "netns", "exec", ns.name, *command], capture_output=True, text=True, timeout=1700 if LONG else 200, env=env, cwd=ROOT
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-300:]
        print(done.stdout[-300:])


def test_the_device_stays_when_the_engine_is_killed(fresh: Ends) -> None:
    """A device that was there before is there afterwards, free for the next."""
    fresh.engine("import pyvma; pyvma.start()")
    fresh.engine.kill()
    with Actor([tapnet.entry()], netns=fresh.kernel_ns.name) as engine:
        again = Ends(engine, fresh.kernel, tapnet.ENGINE, tapnet.KERNEL, fresh.kernel_ns)
        again.engine_serves(4, [100])
    with Actor(["tap:name=mine,addr=10.80.0.1/24"], netns=fresh.kernel_ns.name) as engine:
        engine("import pyvma; pyvma.start()")
        assert "mine" in fresh.kernel_ns.ip("-o", "link")
        engine.kill()
    wait_for("the device to go", lambda: "mine" not in fresh.kernel_ns.ip("-o", "link"))
