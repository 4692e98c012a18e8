"""Programs that nobody here wrote, at the other end of streams of the engine's: curl, nginx, redis-server with redis-py.

The kernel carries their ends in a namespace of its own, reached by the software NIC's uplink or by AF_XDP over a veth pair. With
PYVMA_TEST_LONG=1 files are of a GiB and commands a hundred thousand; `-rP` shows how long that took.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uplink
import veth
from exchange import Ends
from lab import LONG
from netns import usable
from programs import Redis, nginx

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(1500 if LONG else 240),
]

MIB = 1 << 20
FILE = 1024 * MIB if LONG else 24 * MIB
LIMIT_S = 600.0 if LONG else 120.0
HTTP_PORT, REDIS_PORT = 8080, 6379


@pytest.fixture(scope="module", params=["uplink", "xdp"])
def net(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with (veth if request.param == "xdp" else uplink).pair() as ends:
        ends.engine("import sys\nsys.path.append(folder)", folder=str(Path(__file__).parents[1] / "support"))
        yield ends


@contextmanager
def told(what: str, size: int) -> Iterator[None]:
    """Prints how long the block took."""
    start = time.monotonic()
    yield
    seconds = time.monotonic() - start
    print(f"{what}: {size} bytes, equal SHA-256, {seconds:.2f} s, {size * 8e-9 / seconds:.2f} Gbit/s")


def make_file(path: Path, size: int) -> str:
    """A file in which no two blocks of a MiB are alike; its digest."""
    noise, digest = random.Random(size).randbytes(MIB), hashlib.sha256()
    with path.open("wb") as file:
        for number in range(size // MIB):
            block = number.to_bytes(8, "big") + noise[8:]
            file.write(block)
            digest.update(block)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(MIB):
            digest.update(block)
    return digest.hexdigest()


def address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# ---- curl and Python's own server ------------------------------------------------------------------------------------------

SERVER = """
import functools, http.server, socketserver
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    def __init__(self, address, handler):
        socketserver.BaseServer.__init__(self, address, handler)
        self.socket = socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET, backlog=256)
        self.server_name, self.server_port = address[0], self.socket.getsockname()[1]
connections = []
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def setup(self):
        connections.append(self.request.offload.state)
        super().setup()
server = Server((host, 0), functools.partial(Handler, directory=directory))
thread = threading.Thread(target=server.serve_forever)
thread.start()
server.server_port
"""
SERVER_END = "server.shutdown()\nthread.join()\nserver.server_close()\nseen, connections = connections, []\nseen"

needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


def curl(net: Ends, *arguments: str) -> subprocess.Popen[bytes]:
    command = ["ip", "netns", "exec", net.kernel_ns.name, "curl", "-sS", "--fail", "--max-time", str(LIMIT_S), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@needs_curl
@pytest.mark.parametrize("family", [4, 6])
def test_curl_downloads_from_python(net: Ends, family: int, tmp_path: Path) -> None:
    expected = make_file(tmp_path / "file", FILE)
    port = net.engine(SERVER, host=net.engine_host[family], directory=str(tmp_path))
    got = hashlib.sha256()
    with (
        told(f"curl from Python's server, IPv{family}", FILE),
        curl(net, f"http://{address(net.engine_host[family])}:{port}/file") as process,
    ):
        assert process.stdout is not None
        while block := process.stdout.read(MIB):
            got.update(block)
        assert process.wait(LIMIT_S) == 0
    assert got.hexdigest() == expected
    assert net.engine(SERVER_END) == ["offloaded"]


@needs_curl
def test_curl_keeps_its_connection(net: Ends, tmp_path: Path) -> None:
    """Many requests, one connection. Each takes 40 ms, as between two kernels: the server's second small piece waits for curl's delayed
    acknowledgement of the first (Nagle)."""
    count = 200 if LONG else 40
    (tmp_path / "file").write_bytes(b"content\n")
    port = net.engine(SERVER, host=net.engine_host[4], directory=str(tmp_path))
    done = curl(net, *[f"http://{net.engine_host[4]}:{port}/file?{number}" for number in range(count)])
    out, err = done.communicate(timeout=LIMIT_S)
    assert (done.returncode, out) == (0, b"content\n" * count), err
    assert net.engine(SERVER_END) == ["offloaded"]


@needs_curl
def test_curl_in_parallel(net: Ends, tmp_path: Path) -> None:
    """A hundred connections at once, a file on each."""
    digests = [make_file(tmp_path / f"file{number}", MIB) for number in range(2)]
    port = net.engine(SERVER, host=net.engine_host[4], directory=str(tmp_path))
    (tmp_path / "got").mkdir()
    arguments = ["--parallel", "--parallel-immediate", "--parallel-max", "100"]
    for number in range(100):
        arguments += [f"http://{net.engine_host[4]}:{port}/file{number % 2}", "-o", str(tmp_path / "got" / str(number))]
    done = curl(net, *arguments)
    _, err = done.communicate(timeout=LIMIT_S)
    assert done.returncode == 0, err
    assert [digest_of(tmp_path / "got" / str(number)) for number in range(100)] == digests * 50
    assert net.engine(SERVER_END) == ["offloaded"] * 100


# ---- http.client and nginx ------------------------------------------------------------------------------------------------

CLIENT = """
import hashlib, http.client, shutil
http.client.socket = socket
def asked(host, port):
    made = http.client.HTTPConnection(host, port, timeout=60, blocksize=1 << 20)
    made.connect()
    assert made.sock.offload, made.sock.offload
    return made
def download(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    digest, room = hashlib.sha256(), memoryview(bytearray(1 << 20))
    while n := answer.readinto(room):
        digest.update(room[:n])
    return digest.hexdigest()
def upload(connection, path, name):
    with open(name, "rb") as file:
        connection.request("PUT", path, file, {"Content-Length": str(os.path.getsize(name))})
        answer = connection.getresponse()
        answer.read()
    return answer.status
"""


@pytest.fixture(scope="module")
def web(net: Ends, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not shutil.which("nginx"):
        pytest.skip("nginx is not installed")
    with nginx(net.kernel_ns, tmp_path_factory.mktemp("nginx"), [address(host) for host in net.kernel_host.values()], HTTP_PORT) as files:
        net.engine(CLIENT)
        yield files


@pytest.mark.parametrize("family", [4, 6])
def test_download_from_nginx(net: Ends, web: Path, family: int) -> None:
    expected = make_file(web / "file", FILE)
    code = "c = asked(host, port)\ngot = download(c, '/file')\nc.close()\ngot"
    with told(f"http.client from nginx, IPv{family}", FILE):
        assert net.engine(code, host=net.kernel_host[family], port=HTTP_PORT, limit_s=LIMIT_S) == expected


@pytest.mark.parametrize("family", [4, 6])
def test_upload_to_nginx(net: Ends, web: Path, family: int, tmp_path: Path) -> None:
    expected = make_file(tmp_path / "file", FILE)
    code = "c = asked(host, port)\ngot = upload(c, '/put/file', name)\nc.close()\ngot"
    with told(f"http.client to nginx, IPv{family}", FILE):
        status = net.engine(code, host=net.kernel_host[family], port=HTTP_PORT, name=str(tmp_path / "file"), limit_s=LIMIT_S)
        assert status in (201, 204)
        assert digest_of(web / "put" / "file") == expected
    (web / "put" / "file").unlink()


def test_many_requests_to_nginx(net: Ends, web: Path) -> None:
    """One connection, and threads with one each beside it."""
    expected = make_file(web / "small", MIB)
    code = """
c = asked(host, port)
first = c.sock
got = [download(c, "/small") for _ in range(50)]
assert c.sock is first
c.close()
def one():
    c = asked(host, port)
    mine = [download(c, "/small") for _ in range(2)]
    c.close()
    got.extend(mine)
threads = [threading.Thread(target=one) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
got
"""
    assert net.engine(code, host=net.kernel_host[4], port=HTTP_PORT, limit_s=LIMIT_S) == [expected] * 90


# ---- redis-py and redis-server ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(net: Ends, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    if not shutil.which("redis-server") or importlib.util.find_spec("redis") is None:
        pytest.skip("redis-server or redis-py is not installed")
    with Redis(net.kernel_ns, tmp_path_factory.mktemp("redis"), list(net.kernel_host.values()), REDIS_PORT) as running:
        net.engine("import redis_work\nclient = redis_work.connect(host, port)", host=net.kernel_host[4], port=REDIS_PORT)
        net.engine("other = redis_work.connect(host, port)", host=net.kernel_host[6])
        yield running
        net.engine("client.close()\nother.close()")


def test_redis_commands(net: Ends, server: Redis) -> None:
    count = 100_000 if LONG else 3000
    start = time.monotonic()
    done = net.engine("redis_work.commands(client, count, 1)", count=count, limit_s=LIMIT_S)
    print(f"redis-py: {count} commands, every answer right, {count / (time.monotonic() - start):.0f} a second")
    assert sum(done.values()) == count
    assert len(done) == 6
    assert net.engine("redis_work.offloads(client) + redis_work.offloads(other)") == ["offloaded"] * 2


def test_redis_pipelines(net: Ends, server: Redis) -> None:
    count = 500 if LONG else 20
    start = time.monotonic()
    assert net.engine("redis_work.pipelines(client, count, 100)", count=count, limit_s=LIMIT_S) == count * 200
    print(f"redis-py: {count} pipelines of 200 commands, {count * 200 / (time.monotonic() - start):.0f} commands a second")


def test_redis_publishes(net: Ends, server: Redis) -> None:
    net.engine("redis_work.publish(client, count)", count=10_000 if LONG else 500, limit_s=LIMIT_S)


def test_redis_blocking_pops(net: Ends, server: Redis) -> None:
    net.engine("redis_work.blocking_pops(client, count)", count=10_000 if LONG else 300, limit_s=LIMIT_S)


def test_redis_big_value(net: Ends, server: Redis) -> None:
    net.engine("redis_work.big_value(client, size)", size=(64 if LONG else 8) * MIB, limit_s=LIMIT_S)


def test_redis_kills_a_client(net: Ends, server: Redis) -> None:
    assert net.engine("redis_work.killed(client, other, 20)", limit_s=LIMIT_S) == 20


def test_redis_starts_again(net: Ends, server: Redis) -> None:
    """The connections of before end; there is nobody for a while; then there is somebody new."""
    net.engine("client.set('kept', 'only in memory')\nother.ping()")
    server.stop()
    try:
        assert net.engine("redis_work.refused(client)", limit_s=LIMIT_S)
    finally:
        server.start()
    assert net.engine("client.get('kept')") is None
    assert net.engine("other.set('new', 1)\nclient.get('new')") == b"1"
    assert net.engine("redis_work.offloads(client) + redis_work.offloads(other)") == ["offloaded"] * 2
