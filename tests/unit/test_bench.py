"""`pyvma bench`: its messages, its counts, its figures, and sockperf as the peer."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import softnic_reason
from netns import usable

from pyvma._cli import UserError, _bench_compare, _bench_peer, _bench_run, main, module
from pyvma._cli._bench_softnic import SoftnicWire

HEADER = struct.Struct(">QHI")
CLIENT, PONG, WARMUP = 1, 2, 4
LIMIT_S = 60.0
QUANTILES = ("p50_us", "p99_us", "p99.9_us", "p99.99_us")

pytestmark = pytest.mark.timeout(300)


def message(number: int, flags: int, size: int = 64) -> bytes:
    return HEADER.pack(number, flags, size).ljust(size, b"x")


@contextlib.contextmanager
def server(*options: str) -> Iterator[tuple[_bench_run.Peer, int]]:
    """The C server over kernel sockets, spinning or not, and its port."""
    port, _ = _bench_run.free_ports("127.0.0.1")
    command = [str(_bench_run.program()), "server", "--transport", "kernel", "--local", f"127.0.0.1:{port}", *options]
    with _bench_run.running(_bench_run.Peer(command, clean=True)) as peer:
        peer.ready()
        yield peer, port


def client(role: str, port: int, *options: str) -> dict[str, Any]:
    command = [str(_bench_run.program()), role, "--transport", "kernel", "--remote", f"127.0.0.1:{port}", "--seconds", "0.3", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("options", [("--block",), ("--batch", "32"), ("--block", "--batch", "32")])
def test_server_follows_sockperfs_protocol(options: tuple[str, ...]) -> None:
    with server(*options) as (peer, port), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(LIMIT_S)
        sock.connect(("127.0.0.1", port))
        for unanswered in (message(1, CLIENT), message(2, CLIENT | PONG | WARMUP), message(3, PONG), b"short", b""):
            sock.send(unanswered)
        sock.send(message(2, CLIENT | PONG, 200))
        # The one answer: CLIENT cleared, everything else as it was sent.
        assert sock.recv(2048) == message(2, PONG, 200)
        sock.send(message(5, CLIENT))
        sock.send(message(4, CLIENT))
        sock.send(message(4, CLIENT))
        sock.send(message(9, CLIENT | PONG))
        assert HEADER.unpack_from(sock.recv(2048)) == (9, PONG, 64)
        result = peer.stop()
    assert (result["received"], result["unique"], result["sent"]) == (6, 5, 2)
    assert (result["lost"], result["duplicated"], result["reordered"]) == (4, 1, 1)


class Peculiar(threading.Thread):
    """A server that swallows message 50, answers 60 twice and holds the answer to 70 back until 71 is asked."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.settimeout(LIMIT_S)
        self.port: int = self.sock.getsockname()[1]
        self.wrong: list[str] = []

    def run(self) -> None:
        expected, late = 1, b""
        while True:
            data, address = self.sock.recvfrom(4096)
            if data == b"end":
                return
            number, flags, size = HEADER.unpack_from(data)
            if (number, flags, size, len(data)) != (expected, CLIENT | PONG, 100, 100):
                self.wrong.append(f"{number} {flags} {size} {len(data)}: {expected} was due")
            expected = number + 1
            answer = HEADER.pack(number, PONG, size) + data[HEADER.size :]
            if number == 50:
                continue
            if number == 70:
                late = answer
                continue
            for _ in range(2 if number == 60 else 1):
                self.sock.sendto(answer, address)
            if late:
                self.sock.sendto(late, address)
                late = b""

    def end(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"end", ("127.0.0.1", self.port))
        self.join(LIMIT_S)
        self.sock.close()


@pytest.mark.parametrize("options", [("--block",), ()])
def test_client_counts_what_happens_to_its_messages(options: tuple[str, ...]) -> None:
    peer = Peculiar()
    peer.start()
    result = client("ping-pong", peer.port, "--size", "100", "--seconds", "4", *options)
    peer.end()
    assert not peer.wrong
    # 50 never comes; 70 is given up, and its answer comes after 71's.
    assert result["lost"] == 1
    assert result["timeouts"] == 2
    assert (result["duplicated"], result["reordered"]) == (1, 1)
    assert result["sent"] == result["unique"] + 1 > 71
    ladder = [result[f"p{step}_us"] for step in ("25", "50", "75", "90", "99", "99.9", "99.99", "99.999")]
    assert result["min_us"] <= ladder[0]
    assert ladder == sorted(ladder)
    assert ladder[-1] <= result["max_us"]
    assert result["min_us"] <= result["avg_us"] <= result["max_us"]


@pytest.mark.parametrize(("window", "batch"), [(64, 32), (256, 32), (16, 1)])
def test_window_keeps_everything(window: int, batch: int) -> None:
    with server("--batch", "32", "--block") as (peer, port):
        sender = client("throughput", port, "--batch", str(batch), "--window", str(window), "--block")
        result = peer.stop()
    assert result["unique"] == sender["sent"] > 64
    assert (result["lost"], result["duplicated"], result["reordered"]) == (0, 0, 0)
    assert 0 < result["seconds"] < LIMIT_S


def test_two_clients_one_after_the_other() -> None:
    with server("--block") as (peer, port):
        first, second = client("ping-pong", port, "--block"), client("ping-pong", port, "--block")
        result = peer.stop()
    assert result["received"] == first["sent"] + second["sent"]
    assert (result["lost"], result["duplicated"]) == (0, 0)


def test_no_server() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        command = [str(_bench_run.program()), "ping-pong", "--remote", f"127.0.0.1:{silent.getsockname()[1]}", "--block"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        silent.settimeout(LIMIT_S)
        assert HEADER.unpack_from(silent.recv(100)) == (1, CLIENT | PONG, 64)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "no answer from the server" in errors


# ---- the real sockperf -------------------------------------------------------------------------------------------------------


@pytest.fixture
def sockperf() -> str:
    path = shutil.which("sockperf")
    if path is None:
        pytest.skip("sockperf is not installed")
    return path


def test_sockperf_as_client(sockperf: str) -> None:
    with server("--block") as (peer, port):
        command = [sockperf, "ping-pong", "-i", "127.0.0.1", "-p", str(port), "-t", "1", "-m", "64"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        result = peer.stop()
    sent = re.search(r"SentMessages=(\d+); ReceivedMessages=(\d+)", done.stdout)
    assert sent is not None
    assert 0 <= int(sent[1]) - int(sent[2]) <= 1
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in done.stdout
    # Warm-up messages are counted by nobody here.
    assert 0 < result["received"] <= int(sent[1])
    assert (result["duplicated"], result["reordered"]) == (0, 0)


def test_sockperf_throughput_as_client(sockperf: str) -> None:
    with server("--block", "--batch", "32") as (peer, port):
        command = [sockperf, "throughput", "-i", "127.0.0.1", "-p", str(port), "-t", "1", "-m", "64", "--mps", "5000"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        result = peer.stop()
    total = re.search(r"Total of (\d+) messages sent", done.stdout)
    assert total is not None, done.stdout + done.stderr
    assert 0 < result["unique"] <= int(total[1])
    assert result["sent"] == 0


@pytest.fixture
def sockperf_server(sockperf: str) -> Iterator[int]:
    port, _ = _bench_run.free_ports("127.0.0.1")
    process = subprocess.Popen([sockperf, "server", "-i", "127.0.0.1", "-p", str(port)], stdout=subprocess.PIPE, text=True)
    # It prints nothing into a pipe before it ends: asked until it answers.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.2)
        sock.connect(("127.0.0.1", port))
        deadline = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                sock.send(message(1, CLIENT | PONG))
                sock.recv(100)
                break
            assert time.monotonic() < deadline
    yield port
    process.terminate()
    process.communicate(timeout=LIMIT_S)


def test_sockperf_as_server(sockperf_server: int) -> None:
    result = client("ping-pong", sockperf_server, "--block", "--size", "64")
    assert (result["lost"], result["duplicated"], result["reordered"]) == (0, 0, 0)
    assert result["sent"] == result["received"] > 2
    windowed = client("throughput", sockperf_server, "--block", "--window", "64", "--batch", "8")
    assert windowed["received"] >= windowed["sent"] // 8 - 8 > 0


def test_report_in_sockperfs_words(sockperf_server: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ping-pong", "-p", str(sockperf_server), "-t", "0.3", "-m", "100", "--stack", "kernel"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"\[CLIENT\] send on: IP = 127\.0\.0\.1  PORT = \d+ # UDP \(kernel, sleeping\)", text)
    assert re.search(r"\[Total Run\] RunTime=0\.\d+ sec; Warm up time=120 msec; SentMessages=(\d+); ReceivedMessages=\1", text)
    assert re.search(r"====> avg-latency=\d+\.\d{3} \(std-dev=\d+\.\d{3}\)", text)
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in text
    steps = re.findall(r"---> (<MAX> observation|percentile +[\d.]+|<MIN> observation) = +([\d.]+)", text)
    assert [name.split()[-1] for name, _ in steps[1:-1]] == ["99.999", "99.990", "99.900", "99.000", "90.000", "75.000", "50.000", "25.000"]
    figures = [float(figure) for _, figure in steps]
    assert figures == sorted(figures, reverse=True)
    assert main(["bench", "throughput", "-p", str(sockperf_server), "-t", "0.3", "--stack", "kernel"]) == 0
    assert re.search(
        r"Summary: Message Rate is \d+ \[msg/sec\]\n.*Summary: BandWidth is [\d.]+ MBps \([\d.]+ Mbps\)", capsys.readouterr().out
    )


def test_server_command_until_interrupted(tmp_path: Path) -> None:
    port, _ = _bench_run.free_ports("127.0.0.1")
    command = [sys.executable, "-m", "pyvma", "bench", "server", "-p", str(port), "--stack", "kernel"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    assert "[SERVER] listen on: IP = 127.0.0.1" in process.stdout.readline()
    result = client("ping-pong", port, "--block")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    assert f"Total {result['sent']} messages received and handled" in out
    assert "# dropped messages = 0" in out


@pytest.mark.parametrize(("hosts", "prefix"), [(("10.99.1.1", "10.99.1.2"), 24), (("fd00:99:1::1", "fd00:99:1::2"), 64)])
def test_by_hand_over_the_software_nic(hosts: tuple[str, str], prefix: int, tmp_path: Path) -> None:
    fabric = f"hand{secrets.token_hex(5)}"
    interfaces = [f"softnic:fabric={fabric},port={port},addr={host}/{prefix}" for port, host in enumerate(hosts)]
    command = [sys.executable, "-m", "pyvma", "bench"]
    where = ["-i", hosts[0], "-p", "5001", "--block"]
    with subprocess.Popen(
        [*command, "server", *where, "--interface", interfaces[0]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert "(pyvma, sleeping)" in process.stdout.readline()
        for kind in (["ping-pong", "-m", "1000"], ["throughput", "--window", "128"]):
            environment = {**os.environ, "PYVMA_INTERFACES": interfaces[1]}
            line = [*command, *kind, *where, "-t", "0.3"]
            done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path, env=environment)
            assert done.returncode == 0, done.stderr
            assert "Summary:" in done.stdout
            if kind[0] == "ping-pong":
                assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in done.stdout
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in out


def test_a_stream_by_hand_over_the_software_nic(tmp_path: Path) -> None:
    fabric = f"hand{secrets.token_hex(5)}"
    interfaces = [f"softnic:fabric={fabric},port={port},addr=10.99.1.{port + 1}/24" for port in range(2)]
    command = [sys.executable, "-m", "pyvma", "bench"]
    where = ["-i", "10.99.1.1", "-p", "5001", "--block"]
    with subprocess.Popen(
        [*command, "server", *where, "--tcp", "--interface", interfaces[0]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert "# TCP (pyvma, sleeping)" in process.stdout.readline()
        line = [*command, "throughput", *where, "--proto", "tcp", "--interface", interfaces[1], "-t", "0.3", "-m", "65536", "--batch", "1"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert float(done.stdout.strip().removesuffix(" Gbit/s").split()[-1]) > 0
        sent = done.stdout.split("Total of ")[1].split()[0]
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    assert f"Total {sent} messages received and handled" in out
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in out


def test_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    assert main(["bench", "mixed", "--seconds", "1.5", "--runs", "2", "--gap", "200", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert list(report["rows"]) == ["pyvma", "kernel"]
    for row in report["rows"].values():
        for phase in ("requests", "both"):
            assert 0 < row[phase]["p50_us"] <= row[phase]["p99_us"]
            assert row[phase]["requests_per_s"] > 0
        assert row["bulk"]["gbps"] > 0
        assert row["both"]["gbps"] > 0
        assert row["bulk_part"] > 0
        assert row["p99_times"] > 0
        assert {len(runs) for runs in row["runs"].values()} == {2}
    assert "p99 beside" in capsys.readouterr().out


# ---- compare -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proto", ["udp", "tcp"])
def test_compare_all_rows(proto: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    arguments = ["--ring", "softnic", "--proto", proto, "--size", "64", "--seconds", "0.3", "--runs", "2", "--json", str(file)]
    assert main(["bench", "compare", *arguments]) == 0
    report = json.loads(file.read_text())
    assert [row["who"] for row in report["rows"]] == list(_bench_compare.WAYS)
    for row in report["rows"]:
        assert 0 < row["p50_us"] <= row["p99_us"] <= row["p99.9_us"] <= row["p99.99_us"], row
        assert row["rate_mps"] > 0
        assert len(row["runs"]) == 2
        assert all(isinstance(row[name], int) for name in ("lost", "duplicated", "reordered"))
        # Nothing on the software NIC gets lost below its queues' size, and nothing ever comes twice or out of order.
        if row["who"] in ("raw", "pyvma-c", "pyvma-py"):
            assert (row["lost"], row["duplicated"], row["reordered"]) == (0, 0, 0), row
    assert {"cpu", "cpus", "kernel", "python", "pinned", "virtual"} <= set(report["host"])
    assert report["ratios"]["p50"]["kernel-py-block/pyvma-py"] > 0
    assert report["ratios"]["rate"]["pyvma-c/kernel-c-block"] > 0
    if proto == "tcp":
        assert all(row["bulk_gbps"] > 0 for row in report["rows"])
        assert report["ratios"]["bulk"]["pyvma-py/kernel-py-block"] > 0
    assert report["idle"]["added_mb"] > 0
    assert report["idle"]["cpu_percent"] >= 0
    if report["host"]["cpus"] > 1:
        assert report["line_us"] > 0
    table = capsys.readouterr().out
    assert ("bulk" in table) == (proto == "tcp")
    for row in report["rows"]:
        assert row["who"] in table


# The second is longer than what a device copies at post.
@pytest.mark.parametrize("size", [14, 1472])
def test_json_to_stdout(size: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "compare", "--rows", "raw", "--seconds", "0.2", "--runs", "1", "--size", str(size), "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["size"], report["rows"][0]["lost"]) == (size, 0)
    assert [row["who"] for row in report["rows"]] == ["raw"]
    assert report["ratios"] == {"p50": {}, "rate": {}}


def test_cpus_are_two_cores_of_one_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _bench_run.listed("0-3,8\n") == {0, 1, 2, 3, 8}
    assert _bench_run.listed("\n") == set()
    lists = {"topology/thread_siblings_list": {2, 3}, "cache/index3/shared_cpu_list": {2, 3, 6, 7}}
    monkeypatch.setattr(_bench_run, "neighbours", lambda cpu, what: lists[what])
    for mine, expected in (({2, 3, 4, 6}, (2, 6)), ({2, 3, 4}, (2, 4)), ({2, 3}, (2, 3)), ({2}, (None, None))):
        monkeypatch.setattr(_bench_run.os, "sched_getaffinity", lambda _, mine=mine: mine)
        assert _bench_run.cpus() == expected


def test_connections(tmp_path: Path) -> None:
    """A small number of them: the command's figures are all there, and none of the engine's takes an fd."""
    skip = softnic_reason()
    if skip:
        pytest.skip(skip)
    out = tmp_path / "report.json"
    arguments = ["--count", "300", "--churn", "64", "--runs", "1", "--seconds", "0.02", "--json", str(out)]
    assert main(["bench", "connections", *arguments]) == 0
    report = json.loads(out.read_text())
    ours, kernels = report["rows"]
    assert (ours["who"], kernels["who"]) == ("pyvma-c", "kernel-c")
    assert ours["count"] == kernels["count"] == 300
    assert ours["fds"] <= 2 and kernels["fds"] >= 300  # the engine's own: an eventfd of a thread that waits
    assert set(ours["beside"]) == {"0", "300"} and all(row["p50_us"] > 0 for row in ours["beside"].values())
    assert ours["exit"]["kept"] == 300 and ours["close"]["closed"] == 300
    rates = [ours["churn"], kernels["churn"]]
    assert isinstance(report["veth"], dict) or not usable(), report["veth"]
    rates += report["veth"].values() if isinstance(report["veth"], dict) else []
    assert all(of[window] > 0 for of in rates for window in ("1", "32"))


def test_medians_and_sums() -> None:
    runs = [
        {"p50_us": p50, "p99_us": 2.0, "p99.9_us": 3.0, "p99.99_us": 4.0, "rate_mps": rate, "lost": lost, "duplicated": 0, "reordered": 1}
        for p50, rate, lost in ((1.0, 10.0, 0), (5.0, 30.0, 2), (2.0, 20.0, 1))
    ]
    row = _bench_compare.combine("raw", runs)
    assert (row["p50_us"], row["rate_mps"], row["lost"], row["reordered"]) == (2.0, 20.0, 3, 3)
    others = [{**run, "p50_us": run["p50_us"] * by, "rate_mps": run["rate_mps"] / 2} for run, by in zip(runs, (1.5, 1.0, 4.0), strict=True)]
    other = _bench_compare.combine("pyvma-c", others)
    # Of the runs' own ratios; that of the medians would be 2.5.
    assert _bench_compare.ratios([row, other]) == {"p50": {"pyvma-c/raw": 1.5}, "rate": {"raw/pyvma-c": 2.0}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--rows", "raw,warp"], "no row warp"),
        (["compare", "--rows", ","], "no row at all"),
        (["compare", "--size", "13"], "--size"),
        (["compare", "--size", "1473"], "--size"),
        (["compare", "--runs", "0"], "--runs"),
        (["ping-pong", "-i", "nowhere"], "no address"),
        (["ping-pong", "-p", "70000"], "--port"),
        (["ping-pong", "-m", "5"], "--size"),
        (["server", "--stack", "kernel", "--interface", "softnic:fabric=x,port=0"], "--stack pyvma"),
        (["throughput", "--window", "10"], "--window"),
        (["server", "-i", "192.0.2.1", "--stack", "kernel"], "Cannot assign requested address"),
        (["ping-pong", "--interface", "warp:core=1"], "warp"),
    ],
)
def test_what_the_user_can_mend(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 1
    errors = capsys.readouterr().err
    assert words in errors
    assert "Traceback" not in errors


# ---- the Python peer ---------------------------------------------------------------------------------------------------------


def test_python_peers_quantiles() -> None:
    rng = random.Random(1)
    for count in (1, 2, 99, 1000, 4321):
        values = [int(rng.lognormvariate(8, 1)) for _ in range(count)]
        figures = _bench_peer.latency(list(values))
        values.sort()
        for step in _bench_peer.LADDER:
            # The smallest value with at least that part of all at or below it.
            exact = next(value for at, value in enumerate(values, 1) if at * 100000 >= step * 1000 * count)
            assert figures[f"p{step:g}_us"] == exact / 2000
        assert figures["observations"] == count
        assert figures["avg_us"] == pytest.approx(sum(values) / count / 2000)
    assert _bench_peer.latency([]) == {}


def test_python_peers_bookkeeping() -> None:
    rng = random.Random(2)
    seen, came, highest, duplicated, reordered = _bench_peer.Seen(), set(), 0, 0, 0
    for _ in range(5000):
        if rng.random() < 0.8 and seen.run(seen.next, count := rng.randrange(1, 20)):
            came.update(range(highest + 1, highest + 1 + count))
            highest += count
            continue
        number = max(1, highest + rng.randrange(-30, 6))
        seen.add(number)
        duplicated += number in came and number > 1
        reordered += number not in came and number < highest
        came.add(number)
        highest = max(highest, number)
    assert seen.result() == {"unique": len(came), "lost": highest - len(came), "duplicated": duplicated, "reordered": reordered}
    assert not seen.run(seen.next + 1, 3)


def test_peer_that_cannot_start() -> None:
    task = {"stack": "kernel", "role": "server", "block": True, "tcp": False, "cpu": None}
    task |= {"local": ["192.0.2.1", 5], "remote": ["127.0.0.1", 5]}
    with _bench_run.running(_bench_run.Peer(_bench_run.python_command(task), clean=True)) as peer:
        with pytest.raises(UserError, match="Cannot assign requested address"):
            peer.ready()


def test_a_wire_leaves_no_fabric_behind() -> None:
    def files(fabric: str) -> list[Path]:
        return list(Path("/dev/shm").glob(f"pyvma-softnic-*-{fabric}*"))

    code = "import pyvma, time; pyvma.start(); print(1, flush=True); time.sleep(60)"
    with SoftnicWire() as wire:
        left = []
        for _ in range(2):
            left.append(wire.fabric)
            setting = {"PYVMA_INTERFACES": wire.interface(0)}
            with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **setting}, stdout=subprocess.PIPE, text=True) as user:
                assert user.stdout is not None and user.stdout.readline() == "1\n"
                user.kill()
            assert files(wire.fabric)
            wire.fresh()
            assert not files(left[-1])
    assert not any(files(fabric) for fabric in left)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no -P")
def test_a_package_of_that_name_in_the_working_directory_is_not_used(tmp_path: Path, clean_env: dict[str, str]) -> None:
    (tmp_path / "pyvma").mkdir()
    (tmp_path / "pyvma" / "__init__.py").write_text("raise SystemExit('not this one')\n")
    del clean_env["PYTHONSAFEPATH"]
    done = subprocess.run([*module("pyvma", "--version")], cwd=tmp_path, env=clean_env, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["pyvma"]), done.stderr
