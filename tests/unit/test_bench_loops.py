"""`pyvma bench compare --api asyncio`: the load, the servers and clients, the table."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import softnic_reason

from pyvma._cli import _bench_loops, _bench_run, main
from pyvma._cli._bench_softnic import SoftnicWire

LIMIT_S = 60.0
SECONDS = 0.2
SERVER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"

pytestmark = pytest.mark.timeout(300)


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None], kind: socket.SocketKind = socket.SOCK_STREAM) -> Iterator[int]:
    """A kernel server whose every connection (or whose one socket) is a thread's."""
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        threads: list[threading.Thread] = []
        conns: list[socket.socket] = []

        def start(conn: socket.socket) -> None:
            threads.append(threading.Thread(target=run, args=(conn,)))
            threads[-1].start()

        def run(conn: socket.socket) -> None:
            with contextlib.suppress(OSError):
                answer(conn)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    conns.append(sock.accept()[0])
                    start(conns[-1])

        if kind == socket.SOCK_STREAM:
            sock.listen(64)
            acceptor = threading.Thread(target=accept)
            acceptor.start()
        else:
            start(sock)
        try:
            yield sock.getsockname()[1]
        finally:
            if kind == socket.SOCK_STREAM:
                sock.shutdown(socket.SHUT_RDWR)
                acceptor.join(LIMIT_S)
            else:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                    last.sendto(b"end", sock.getsockname())
            for conn in conns:
                with contextlib.suppress(OSError):
                    conn.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(LIMIT_S)
            for conn in conns:
                conn.close()


def load(port: int, *options: str) -> subprocess.CompletedProcess[str]:
    remote = ("--transport", "kernel", "--remote", f"127.0.0.1:{port}", "--seconds", str(SECONDS))
    return subprocess.run([str(_bench_run.program()), "load", *remote, *options], capture_output=True, text=True, timeout=LIMIT_S)


def echo(conn: socket.socket) -> None:
    while data := conn.recv(4096):
        conn.sendall(data)


def test_every_connection_has_one_request_under_way() -> None:
    received: list[list[int]] = []  # of each connection

    def counted(conn: socket.socket) -> None:
        sizes: list[int] = []
        received.append(sizes)
        while data := conn.recv(4096):
            sizes.append(len(data))
            conn.sendall(data)

    with server(counted) as port:
        done = load(port, "--tcp", "--connections", "7", "--size", "100")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    counts = [sum(sizes) for sizes in received]
    assert (result["connections"], result["reply_bytes"], result["lost"], len(counts)) == (7, 100, 0, 7)
    assert max(map(max, received)) <= 100
    assert 0 < result["requests"] <= sum(counts) // 100
    assert min(counts) >= 100
    assert 0 < result["p50_us"] <= result["p99_us"]
    assert result["requests_per_s"] == pytest.approx(result["requests"] / result["seconds"], rel=1e-3)


def test_replies_to_http_are_as_long_as_the_first_says() -> None:
    asked: list[bytes] = []

    def page(conn: socket.socket) -> None:
        data = b""
        while more := conn.recv(4096):
            data += more
            while b"\r\n\r\n" in data:
                one, _, data = data.partition(b"\r\n\r\n")
                asked.append(one)
                conn.sendall(SERVER[:20])
                conn.sendall(SERVER[20:])

    with server(page) as port:
        done = load(port, "--http", "--connections", "3")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reply_bytes"] == len(SERVER)
    assert len(set(asked)) == 1
    assert asked[0].startswith(b"GET /plaintext HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", SERVER + b"more", b""],
    ids=["error", "no length", "too long", "end"],
)
def test_a_wrong_reply_is_an_error(reply: bytes) -> None:
    def page(conn: socket.socket) -> None:
        conn.recv(4096)
        conn.sendall(reply)
        conn.shutdown(socket.SHUT_WR)

    with server(page) as port:
        done = load(port, "--http", "--connections", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("pyvma-bench: load: ")


def test_lost_datagrams_are_counted_and_sent_again() -> None:
    def forgetful(sock: socket.socket) -> None:
        number = 0
        while (found := sock.recvfrom(4096))[0] != b"end":
            number += 1
            if number != 10:
                sock.sendto(*found)

    with server(forgetful, socket.SOCK_DGRAM) as port:
        done = load(port, "--connections", "1", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["lost"] >= 1
    assert result["requests"] > 10


@pytest.mark.parametrize("proto", ["tcp", "udp"])
@pytest.mark.parametrize("api", _bench_loops.ROWS)
def test_rows(api: str, proto: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if api.startswith("pyvma") and (reason := softnic_reason()):
        pytest.skip(reason)
    out = tmp_path / "out.json"
    options = ["--ring", "softnic", "--rows", api, "--runs", "1", "--seconds", "1.5", "--size", "80", "--json", str(out)]
    assert main(["bench", "compare", "--api", "asyncio", "--proto", proto, *options]) == 0
    report = json.loads(out.read_text())
    (row,) = report["rows"]
    assert row["who"] == api
    assert 0 < row["p50_us"] <= row["p99_us"]
    assert row["echo_per_s"] > 0
    assert ("http_per_s" in row) == (proto == "tcp")
    assert api in capsys.readouterr().out


def test_ratios_are_against_uvloop() -> None:
    rows: list[dict[str, Any]] = [
        {"who": "uvloop", "p50_us": 20.0, "p99_us": 40.0, "echo_per_s": 1000.0},
        {"who": "pyvma-asyncio-busy", "p50_us": 5.0, "p99_us": 10.0, "echo_per_s": 3000.0},
    ]
    assert _bench_loops.ratios(rows) == {
        "p50_us": {"pyvma-asyncio-busy": 0.25},
        "p99_us": {"pyvma-asyncio-busy": 0.25},
        "echo_per_s": {"pyvma-asyncio-busy": 3.0},
    }


def test_unknown_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "compare", "--api", "asyncio", "--rows", "trio"]) != 0
    assert "trio" in capsys.readouterr().err


def test_the_kernels_rows_are_not_ours() -> None:
    assert {api: _bench_loops.stack_of(api) for api in _bench_loops.ROWS} == {
        "asyncio": "kernel",
        "uvloop": "kernel",
        "pyvma-asyncio-busy": "pyvma",
        "pyvma-asyncio-fd": "pyvma",
    }
    command = _bench_loops.peer_command("uvloop", SoftnicWire(), 0, "echo", tcp=False)
    assert json.loads(command[-1])["tcp"] is False


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_gil(proto: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := softnic_reason():
        pytest.skip(reason)
    out = tmp_path / "out.json"
    options = ["--rows", "kernel-py,pyvma-py,pyvma-asyncio-busy", "--runs", "1", "--seconds", "1", "--json", str(out)]
    assert main(["bench", "gil", "--proto", proto, *options]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert list(rows) == ["kernel-py", "pyvma-py", "pyvma-asyncio-busy"]
    for row in rows.values():
        assert 0 < row["alone"]["p50_us"] <= row["alone"]["p99_us"]
        assert 0 < row["beside"]["p50_us"] <= row["beside"]["p99_us"]
    assert "pyvma-asyncio-busy" in capsys.readouterr().out
