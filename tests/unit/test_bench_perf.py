"""The modes of `pyvma bench` that are sockperf's: their options, logs, counts and errors, over kernel sockets."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyvma._cli import _bench_run, main

HEADER = struct.Struct(">QHI")
CLIENT, PONG, WARMUP = 1, 2, 4
LIMIT_S = 60.0
HOST = "127.0.0.1"
STYLES = ("recvfrom", "recv_batch", "select", "poll", "epoll")

pytestmark = pytest.mark.timeout(300)


def message(number: int, flags: int, size: int = 64) -> bytes:
    return HEADER.pack(number, flags, size).ljust(size, b"x")


@contextlib.contextmanager
def server(kind: str, *options: str, python: bool = False) -> Iterator[tuple[_bench_run.Peer, int]]:
    """One of an endpoint of that kind, "T" or "U", and its port."""
    port, _ = _bench_run.free_ports(HOST)
    command = [str(_bench_run.program()), "serve", "--block", "--end", f"{kind}:{HOST}:{port}", *options]
    if python:
        task = {"ends": [[kind == "T", HOST, port]], "ours": False, "interface": None, "block": True, "cpu": None, "reply": True}
        command = [sys.executable, "-m", "pyvma._cli._bench_perf_async", json.dumps(task)]
    with _bench_run.running(_bench_run.Peer(command, clean=True)) as peer:
        peer.ready()
        yield peer, port


def client(mode: str, end: str, *options: str) -> dict[str, Any]:
    """The C client's report."""
    command = [str(_bench_run.program()), "client", "--block", "--mode", mode, "--end", end, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def exchange(kind: str, port: int, data: bytes) -> bytes:
    """The answer to one message."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "T" else socket.SOCK_DGRAM) as sock:
        sock.settimeout(LIMIT_S)
        sock.connect((HOST, port))
        sock.send(data)
        return sock.recv(65536)


# ---- the server --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["U", "T"])
@pytest.mark.parametrize("style", [*STYLES, "asyncio"])
def test_server_follows_sockperfs_protocol(style: str, kind: str) -> None:
    python = style == "asyncio"
    with server(kind, *([] if python else ["--style", style]), python=python) as (peer, port):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "T" else socket.SOCK_DGRAM) as sock:
            sock.settimeout(LIMIT_S)
            sock.connect((HOST, port))
            for unanswered in (message(0, CLIENT | PONG | WARMUP), message(1, CLIENT), message(3, PONG)):
                sock.send(unanswered)
            for number, size in ((2, 14), (5, 200), (4, 1472), (4, 64)):
                sock.send(message(number, CLIENT | PONG, size))
                # CLIENT cleared, everything else as it was sent.
                assert sock.recv(2048) == message(number, PONG, size)
        result = peer.stop()
    assert (result["received"], result["unique"], result["sent"]) == (5, 4, 4)
    assert (result["lost"], result["duplicated"], result["reordered"]) == (1, 1, 1)
    assert (result["mode"], result["style"], result["malformed"]) == ("server", style, 0)


@pytest.mark.parametrize("kind", ["U", "T"])
@pytest.mark.parametrize("style", ["recvfrom", "recv_batch", "epoll", "asyncio"])
def test_server_survives_what_anybody_sends(style: str, kind: str) -> None:
    rng = random.Random(f"{style} {kind}")
    python = style == "asyncio"
    with server(kind, *([] if python else ["--style", style]), python=python) as (peer, port):
        for _ in range(60):
            head = HEADER.pack(rng.getrandbits(64), rng.getrandbits(16), rng.choice([0, 5, 13, 14, 100, 1 << 20, 0xFFFFFFFF]))
            noise = rng.choice([rng.randbytes(rng.randrange(200)), head + rng.randbytes(rng.randrange(100)), head[: rng.randrange(14)]])
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "T" else socket.SOCK_DGRAM) as sock:
                sock.connect((HOST, port))
                with contextlib.suppress(ConnectionError):
                    sock.send(noise)
        assert exchange(kind, port, message(1, CLIENT | PONG)) == message(1, PONG)
        result = peer.stop()
    assert result["malformed"] > 0
    assert result["received"] >= 1


def test_a_client_that_does_not_read_holds_up_nobody_for_ever() -> None:
    with server("T", "--style", "epoll") as (peer, port), socket.socket() as deaf:
        deaf.connect((HOST, port))
        deaf.settimeout(0.2)
        question = message(1, CLIENT | PONG, 1 << 16)
        with contextlib.suppress(OSError):
            for _ in range(10000):
                deaf.send(question)
        assert exchange("T", port, message(1, CLIENT | PONG)) == message(1, PONG)
        result = peer.stop()
    assert result["timeouts"] == 1


def test_clients_one_after_the_other() -> None:
    """Each starts the numbers again, however little it says."""
    for kind in ("U", "T"):
        with server(kind) as (peer, port):
            sent = [client("ping-pong", f"{kind}:{HOST}:{port}", "--seconds", "0.05", "--mps", "200")["sent"] for _ in range(3)]
            result = peer.stop()
        assert result["received"] == sum(sent)
        assert (result["unique"], result["lost"], result["duplicated"], result["reordered"]) == (sent[-1], 0, 0, 0)


def test_server_that_does_not_reply() -> None:
    with server("U", "--dont-reply") as (peer, port):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((HOST, port))
            for number in range(1, 11):
                sock.send(message(number, CLIENT | PONG))
        deadline = time.monotonic() + LIMIT_S
        while (status := Path("/proc/net/udp").read_text()) and f":{port:04X} 00000000:0000 07 00000000:00000000" not in status:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        result = peer.stop()
    assert (result["sent"], result["received"]) == (0, 10)


# ---- the client --------------------------------------------------------------------------------------------------------------


def test_full_log_has_the_figures(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    options = ("--seconds", "0.4", "--mps", "3000", "--reply-every", "3", "--full-log", str(log), "--histogram")
    with server("U") as (_, port):
        result = client("under-load", f"U:{HOST}:{port}", *options)
        whole = client("ping-pong", f"U:{HOST}:{port}", "--seconds", "0.2", "--full-log", str(tmp_path / "rtt.csv"), "--full-rtt")
    lines = log.read_text().splitlines()
    assert lines[0] == "packet, txTime(sec), rxTime(sec), latency(usec)"
    rows = [[float(field) for field in line.split(", ")] for line in lines[1:]]
    assert [row[0] for row in rows] == list(range(result["observations"]))
    assert len(rows) == result["valid_received"] == sum(count for _, count in result["histogram_ns"])
    for _, tx, rx, latency in rows:
        assert latency == pytest.approx((rx - tx) * 1e6 / 2, abs=0.01)
    sent = [row[1] for row in rows]
    # All within the time that counts, and in order.
    assert sent == sorted(sent)
    assert sent[-1] - sent[0] <= result["valid_seconds"] + 1e-3
    assert (result["warmup_ms"], result["cooldown_ms"]) == (160, 20)
    values = sorted(row[3] for row in rows)
    assert statistics.fmean(values) == pytest.approx(result["avg_us"], rel=0.01)
    assert (values[0], values[-1]) == (pytest.approx(result["min_us"], rel=0.01), pytest.approx(result["max_us"], rel=0.01))
    for step in (25, 50, 75, 90, 99):
        exact = values[-(-step * len(values) // 100) - 1]
        assert result[f"p{step}_us"] == pytest.approx(exact, rel=0.015), step
    head, first, *_ = (tmp_path / "rtt.csv").read_text().splitlines()
    assert head == "packet, txTime(sec), rxTime(sec), rtt(usec)"
    _, tx, rx, took = map(float, first.split(", "))
    assert took == pytest.approx((rx - tx) * 1e6, abs=0.01)
    assert whole["figures"] == "round trip" and result["figures"] == "half round trip"


def test_a_late_sender_is_not_left_out() -> None:
    """The client stands still for a while: what was due then is late, whenever it was sent."""
    with server("U") as (_, port):
        command = [str(_bench_run.program()), "client", "--block", "--mode", "under-load", "--end", f"U:{HOST}:{port}", "--seconds", "3"]
        command += ["--mps", "300", "--reply-every", "1", "--histogram", "--warmup-ms", "0", "--cooldown-ms", "0", "--full-rtt"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            time.sleep(0.8)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.6)
            process.send_signal(signal.SIGCONT)
            out, _ = process.communicate(timeout=LIMIT_S)
    result = json.loads(out)

    def late(name: str) -> int:
        return sum(count for took, count in result[name] if took > 100e6)

    # 180 were due in that time, 150 of them more than 100 ms before its end.
    assert late("due_histogram_ns") - late("histogram_ns") > 90
    assert result["due_p90_us"] > 100e3
    assert result["observations"] == result["due_observations"] == result["unique"]
    # Nothing that was due before the end is missing; the answer to the last one may have come behind it.
    assert result["sent"] - result["unique"] in (0, 1)
    assert 870 <= result["sent"] <= 901


class Peculiar(threading.Thread):
    """A server that swallows request 50, answers 60 twice and with other contents, and holds another's answer back until the next comes."""

    def __init__(self, late: int = 70) -> None:
        super().__init__(daemon=True)
        self.late = late
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((HOST, 0))
        self.sock.settimeout(LIMIT_S)
        self.port: int = self.sock.getsockname()[1]

    def run(self) -> None:
        held: list[bytes] = []
        while True:
            data, address = self.sock.recvfrom(4096)
            if data == b"end":
                return
            number, flags, size = HEADER.unpack_from(data)
            if not flags & PONG:
                continue
            answers = [HEADER.pack(number, flags & ~CLIENT, size) + data[HEADER.size :]]
            if number == 50:
                continue
            if number == 60:
                answers = [answers[0][:-1] + bytes([answers[0][-1] ^ 1])] * 2
            if number == self.late:
                held = answers
                continue
            for answer in (*answers, *held, *([b"short", HEADER.pack(1 << 40, PONG, 14)] if number == 80 else [])):
                self.sock.sendto(answer, address)
            held = []

    def end(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"end", (HOST, self.port))
        self.join(LIMIT_S)
        self.sock.close()


@pytest.mark.parametrize("late", [1, 70])
def test_client_counts_what_happens_to_its_messages(late: int) -> None:
    peer = Peculiar(late)
    peer.start()
    try:
        options = ("--seconds", "0.5", "--mps", "400", "--reply-every", "1", "--data-integrity", "--size", "100")
        result = client("under-load", f"U:{HOST}:{peer.port}", *options)
    finally:
        peer.end()
    assert result["sent"] > 100
    assert (result["lost"], result["duplicated"], result["reordered"]) == (1, 1, 1)
    assert (result["corrupt"], result["malformed"]) == (1, 2)
    assert result["unique"] == result["sent"] - 1


def test_sizes_of_a_range() -> None:
    """All that were asked for, no other."""
    sizes: dict[int, int] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((HOST, 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        end = f"U:{HOST}:{sock.getsockname()[1]}"
        client("throughput", end, "--size", "20", "--range", "10", "--mps", "2000", "--seconds", "0.15")
        sock.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while True:
                data = sock.recv(100)
                _, flags, size = HEADER.unpack_from(data)
                assert size == len(data)
                if not flags & (PONG | WARMUP):
                    sizes[size] = sizes.get(size, 0) + 1
    # 14 is the header.
    assert set(sizes) == set(range(14, 31))


def test_bursts_and_many_sockets(tmp_path: Path) -> None:
    first, second = _bench_run.free_ports(HOST)
    feed = tmp_path / "feed"
    feed.write_text(f"# both\nU:{HOST}:{first}\nT:{HOST}:{second}\nT:{HOST}:{second}\n")
    command = [
        str(_bench_run.program()),
        "serve",
        "--block",
        "--end",
        f"U:{HOST}:{first}",
        "--end",
        f"T:{HOST}:{second}",
        "--style",
        "poll",
    ]
    with _bench_run.running(_bench_run.Peer(command, clean=True)) as peer:
        peer.ready()
        line = [
            str(_bench_run.program()),
            "client",
            "--block",
            "--mode",
            "ping-pong",
            "--file",
            str(feed),
            "--burst",
            "7",
            "--seconds",
            "0.2",
        ]
        done = subprocess.run([*line, "--size", "500", "--data-integrity"], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        served = peer.stop()
    result = json.loads(done.stdout)
    assert result["sockets"] == 3 and result["burst"] == 7
    assert result["sent"] % 7 == 0 and result["unique"] == result["sent"] == served["received"] > 21
    assert (result["corrupt"], result["lost"], served["connections"], served["lost"]) == (0, 0, 2, 0)


# ---- the commands ------------------------------------------------------------------------------------------------------------


def test_figures_twice_in_sockperfs_words(capsys: pytest.CaptureFixture[str]) -> None:
    with server("T") as (_, port):
        line = ["bench", "under-load", "-p", str(port), "--kernel", "--tcp", "-t", "0.3", "--mps", "2000", "--reply-every", "2"]
        assert main(line) == 0
        text = capsys.readouterr().out
        assert main([*line, "--full-rtt"]) == 0
    assert text.count("<MIN> observation") == 2
    assert re.search(r"\[Valid Duration\] RunTime=0\.165 sec; SentMessages=\d+; ReceivedMessages=\d+", text)
    assert re.search(r"====> from when each message was due: avg-latency=[\d.]+ \(std-dev=[\d.]+\)", text)
    assert "avg-rtt=" in capsys.readouterr().out


def test_help_tells_both_figures(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("ping-pong", "under-load", "throughput", "playback", "server"):
        with pytest.raises(SystemExit) as ended:
            main(["bench", kind, "--help"])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert f"examples:\n  {'printf' if kind == 'playback' else f'pyvma bench {kind}'}" in text
        assert ("coordinated omission" in text) == (kind in ("under-load", "playback"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["playback", "--data-file", "/nonexistent"], "/nonexistent: No such file"),
        (["ping-pong", "-f", "/dev/null"], "/dev/null: says nothing"),
        (["ping-pong", "-m", "65508"], "65507"),
        (["ping-pong", "-m", "65000", "-r", "600"], "65507"),
        (["under-load", "--mps", "0"], "--mps"),
        (["under-load", "--mps", "fast"], "--mps"),
        (["under-load", "-t", "0.4", "--warmup-ms", "400"], "--seconds"),
        (["under-load", "-F", "asyncio"], "asyncio"),
        (["throughput", "--window", "64", "--mps", "5"], "--mps"),
        (["throughput", "--window", "10", "--batch", "8"], "--window"),
        (["ping-pong", "--client_ip", "x"], "--client_ip"),
        (["ping-pong", "--mc-rx-if", "nowhere0"], "--mc-rx-if"),
        (["server", "-i", "192.0.2.1"], "Cannot assign requested address"),
        (["server", "-i", "239.1.1.1", "-F", "a"], "groups"),
        (["ping-pong", "--tcp", "-p", "1"], "Connection refused"),
    ],
)
def test_what_the_user_can_mend(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments, "--kernel"]) == 1
    errors = capsys.readouterr().err
    assert words in errors
    assert "Traceback" not in errors


def test_lines_of_files_that_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("# fine\n0.0, 64\n0.1; 64\n")
    assert main(["bench", "playback", "--data-file", str(file), "--kernel"]) == 1
    assert f'{file}: line 3 is no "SECONDS, BYTES"' in capsys.readouterr().err
    file.write_text("U:127.0.0.1:99999\n")
    assert main(["bench", "server", "-f", str(file), "--kernel"]) == 1
    assert f"{file}: line 1 is no [T:|U:]ADDR:PORT" in capsys.readouterr().err


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((HOST, 0))
        line = ["bench", "under-load", "-p", str(silent.getsockname()[1]), "-t", "0.2", "--kernel", "--reply-every", "1"]
        assert main(line) == 1
    assert "no answer from the server" in capsys.readouterr().err
