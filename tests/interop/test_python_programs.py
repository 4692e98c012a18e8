"""HTTP programs of Python's that nobody here wrote, unmodified, over the stack: `python -m pyvma` starts them, and the same libraries or
nginx, curl and wrk are the kernel's peers. Each side's content is checked by the other, and the engine's counters prove whose it was.

With PYVMA_TEST_LONG=1 uploads and downloads are of 100 MiB and wrk runs for a minute each; `-rP` shows what it said.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apps import content
from lab import LONG
from netns import usable
from programs import nginx
from python_programs import PROGRAMS, Net, Program, net

NEEDED = ("uvloop", "aiohttp", "uvicorn", "httptools", "websockets", "httpx", "h2", "requests")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
missing += [name for name in ("openssl", "curl", "wrk", "nginx") if not shutil.which(name)]
pytestmark = [
    pytest.mark.usefixtures("ended"),
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
    pytest.mark.timeout(900 if LONG else 240),
]

MIB = 1 << 20
SIZE = 100 * MIB if LONG else 8 * MIB
LIMIT_S = 300.0 if LONG else 120.0
WRK_S = 60 if LONG else 3
WRK_CONNECTIONS = 512 if LONG else 256


@pytest.fixture(scope="module", params=["xdp", "uplink"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with net(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


def url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def free_port() -> int:
    """Another one each time: addresses of connections that are over are not met again."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1]) & ~1


def client(kind: str, target: str, own: str, size: int, trust: Path | None) -> list[str]:
    return [str(PROGRAMS / f"{kind}_client.py"), target, own, str(size), *([str(trust)] if trust else [])]


EXPECTED = {
    "requests": {"timeout": True, "refused": True},
    "httpx": {"timeout": True, "refused": True, "gathered": 100, "async timeout": True},
    "aiohttp": {"timeout": True, "refused": True, "gathered": 200, "messages": 106},
}


def expected(kind: str, secure: bool, form: bool) -> dict[str, object]:
    return {**EXPECTED[kind], **({"distrusted": True} if secure else {}), **({"form": True} if form and kind != "httpx" else {})}


def wrk(lab: Net, target: str, seconds: int = WRK_S) -> str:
    """Its report, in which there is no error."""
    command = ["wrk", "-t", "2", "-c", str(WRK_CONNECTIONS), "-d", f"{seconds}s", "--timeout", "30s", target]
    program = lab.peer(*command)
    assert program.wait(seconds + LIMIT_S) == 0, program.text
    text = program.text
    rate = re.search(r"Requests/sec: *([0-9.]+)", text)
    assert rate is not None and float(rate[1]) > 0, text
    assert "Socket errors" not in text and "Non-2xx" not in text, text
    print(f"{' '.join(command)}\n{text}")
    return text


def proved(program: Program, served: int, sent: int) -> None:
    """The engine of the program's process accepted this many connections and carried this many bytes."""
    counted = program.counters()
    assert counted["tcp.opened_passive"] >= served, counted
    assert counted["tcp.tx_bytes"] >= sent, counted


# ---- servers ------------------------------------------------------------------------------------------------------------------


def served(*few: tuple[str, int, bool]) -> list[tuple[str, int, bool]]:
    """Net, family and TLS: these, or all where there is time."""
    return [(net, family, family == 6) for net in ("xdp", "uplink") for family in (4, 6)] if LONG else list(few)


@contextmanager
def explained(lab: Net, program: Program) -> Iterator[None]:
    """When a client of it fails: what the kernel has of its connections then, what the program said, and what its engine counted."""
    try:
        yield
    except (AssertionError, subprocess.TimeoutExpired):
        print(lab.there.run("ss", "-tanoi"))
        print(f"ended with {program.end()}:\n{program.text}\n{program.counters()}")
        raise


def visited(lab: Net, program: Program, family: int, port: int, trust: Path | None, form: bool) -> None:
    """Every client, beside each other and one that reads slowly; then wrk."""
    target = url("https" if trust else "http", lab.our_host[family], port)
    slow = lab.peer("curl", "-sS", "--fail", "--max-time", str(LIMIT_S), "-k", "--limit-rate", "1M", "-o", "got", f"{target}/bytes/{MIB}")
    running = {kind: lab.theirs(*client(kind, target, lab.their_host[family], SIZE, trust)) for kind in EXPECTED}
    for kind, one in running.items():
        with explained(lab, program):
            found = one.result(LIMIT_S)
            assert found == expected(kind, trust is not None, form), kind
    assert slow.wait() == 0, slow.text
    assert hashlib.sha256((slow.folder / "got").read_bytes()).hexdigest() == content.digest(MIB)
    wrk(lab, f"{target}/")


@pytest.mark.parametrize(("lab", "family", "secure"), served(("xdp", 4, False), ("uplink", 6, True)), indirect=["lab"])
def test_aiohttp_serves(lab: Net, trust: Path, family: int, secure: bool) -> None:
    port = free_port()
    server = lab.ours(str(PROGRAMS / "aiohttp_server.py"), lab.our_host[family], str(port), str(trust))
    server.said("ready")
    visited(lab, server, family, port + secure, trust if secure else None, form=True)
    assert server.end() == 0, server.text
    assert "ended" in server.text and "Traceback" not in server.text, server.text
    proved(server, 60 + WRK_CONNECTIONS, 3 * SIZE)


@pytest.mark.parametrize(("lab", "family", "secure"), served(("xdp", 6, True), ("uplink", 4, False)), indirect=["lab"])
def test_uvicorn_serves(lab: Net, trust: Path, family: int, secure: bool) -> None:
    port = free_port()
    arguments = ["-m", "uvicorn", "asgi:app", "--host", lab.our_host[family], "--port", str(port), "--http", "httptools"]
    arguments += ["--ws", "websockets-sansio", "--ws-max-size", str(64 * MIB), "--backlog", "1024", "--no-access-log"]
    server = lab.ours(*arguments, *(["--ssl-certfile", str(trust)] if secure else []))
    server.said("Uvicorn running on")
    visited(lab, server, family, port, trust if secure else None, form=False)
    assert server.end() == 0, server.text
    assert "Finished server process" in server.text and "Traceback" not in server.text, server.text
    proved(server, 60 + WRK_CONNECTIONS, 3 * SIZE)


def test_a_server_ends_with_open_connections(lab: Net) -> None:
    """SIGTERM comes while one request is under way, which is answered, and others idle, which are closed."""
    port = free_port()
    server = lab.ours(str(PROGRAMS / "aiohttp_server.py"), lab.our_host[4], str(port))
    server.said("ready")
    target = url("http", lab.our_host[4], port)
    idle = lab.theirs("-c", IDLE, lab.our_host[4], str(port))
    idle.said("open")
    busy = lab.peer("curl", "-sS", "--fail", "--max-time", "60", f"{target}/slow/1")
    server.said("asked to sleep")
    assert server.end(signal.SIGTERM) == 0, server.text
    assert (busy.wait(), busy.text) == (0, "slept")
    assert idle.wait() == 0, idle.text
    assert "closed 20" in idle.text
    assert "Traceback" not in server.text, server.text
    proved(server, 21, 0)


IDLE = """
import socket, sys
opened = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(20)]
for s in opened:
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    answer = b""
    while not answer.endswith(b"hello\\n"):
        answer += s.recv(1000)
print("open", flush=True)
print("closed", sum(s.recv(1000) == b"" for s in opened))
"""


# ---- clients ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lab", "kind"),
    [(net, kind) for net in ("xdp", "uplink") for kind in EXPECTED if LONG or net == "xdp" or kind == "aiohttp"],
    indirect=["lab"],
)
def test_clients(lab: Net, trust: Path, kind: str) -> None:
    """HTTP by one family, HTTPS by the other."""
    port = free_port()
    server = lab.theirs(str(PROGRAMS / "aiohttp_server.py"), ",".join(lab.their_host.values()), str(port), str(trust))
    server.said("ready")
    for family, secure in ((4, False), (6, True)):
        target = url("https" if secure else "http", lab.their_host[family], port + secure)
        program = lab.ours(*client(kind, target, lab.our_host[family], SIZE, trust if secure else None))
        assert program.result(LIMIT_S) == expected(kind, secure, form=True)
        counted = program.counters()
        assert counted["tcp.opened_active"] >= 10, counted
        assert counted["tcp.tx_bytes"] >= 2 * SIZE and counted["tcp.rx_bytes"] >= SIZE, counted
    assert server.end() == 0
    assert "Traceback" not in server.text, server.text


@pytest.mark.parametrize("family", [4, 6])
def test_http2(lab: Net, trust: Path, tmp_path: Path, family: int) -> None:
    """httpx and nginx: ALPN, many streams of a connection."""
    port = free_port()
    host = f"[{lab.their_host[family]}]" if family == 6 else lab.their_host[family]
    with nginx(lab.there, tmp_path / "nginx", [host], port, trust) as files:
        for size in (1, 1000, 100_000, 3_000_000):
            (files / str(size)).write_bytes(content.body(size))
        program = lab.ours(str(PROGRAMS / "http2_client.py"), f"https://{host}:{port + 1}", str(trust))
        assert program.result(LIMIT_S) == {"asked": 8, "streams": 200}
    counted = program.counters()
    assert counted["tcp.opened_active"] >= 2, counted
    assert counted["tcp.rx_bytes"] >= 9_000_000 and counted["tcp.tx_bytes"] >= 3_000_000, counted


@pytest.mark.parametrize("lab", ["xdp"], indirect=True)
def test_happy_eyeballs(lab: Net) -> None:
    """The server's name has addresses of both families, and it listens on the second: what is refused is not the end."""
    port = free_port()
    server = lab.theirs(str(PROGRAMS / "aiohttp_server.py"), lab.their_host[4], str(port))
    server.said("ready")
    with lab.names({"peer.test": [lab.their_host[6], lab.their_host[4]]}):
        program = lab.ours(*client("aiohttp", f"http://peer.test:{port}", lab.our_host[4], MIB, None))
        assert program.result(LIMIT_S) == expected("aiohttp", False, form=True)
    counted = program.counters()
    assert counted["tcp.open_failed"] >= 10, counted
    assert counted["tcp.opened_active"] >= 10, counted


@pytest.mark.parametrize("lab", ["xdp"], indirect=True)
def test_uvicorn_workers(lab: Net) -> None:
    """A socket that one process binds for others to listen on is the kernel's, and so are the workers."""
    port = free_port()
    server = lab.ours(
        "-m", "uvicorn", "asgi:app", "--host", lab.our_host[4], "--port", str(port), "--workers", "2", "--log-level", "warning"
    )
    lab.answers(server, lab.our_host[4], port)
    done = wrk(lab, url("http", lab.our_host[4], port) + "/", seconds=1)
    assert done
    assert server.end(signal.SIGTERM) == 0, server.text
    assert "Traceback" not in server.text, server.text
