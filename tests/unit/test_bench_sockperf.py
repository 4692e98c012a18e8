"""`pyvma bench sockperf`: outputs of sockperf 3.7 as they were captured, and the real one."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pyvma._cli import UserError, _bench_sockperf, main

DATA = Path(__file__).resolve().parents[1] / "data" / "sockperf"

pytestmark = pytest.mark.timeout(300)


def captured(name: str) -> str:
    return (DATA / name).read_text()


def test_ping_pong() -> None:
    assert _bench_sockperf.parse_client(captured("pp.udp.txt")) == {
        "sent": 44414,
        "received": 44414,
        "seconds": 0.55,
        "total_sent": 78720,
        "total_received": 78719,
        "lost": 0,
        "duplicated": 0,
        "reordered": 0,
        "observations": 44414,
        "avg_us": 6.183,
        "stddev_us": 2.204,
        "rtt": False,
        "max_us": 314.521,
        "p99.999_us": 314.521,
        "p99.99_us": 50.69,
        "p99.9_us": 32.087,
        "p99_us": 9.393,
        "p90_us": 7.165,
        "p75_us": 6.174,
        "p50_us": 5.798,
        "p25_us": 5.598,
        "min_us": 5.493,
        "rate_mps": pytest.approx(44414 / 0.55),
    }


@pytest.mark.parametrize(
    ("name", "sent", "received", "average", "rtt"),
    [
        ("ul.udp.txt", 2731, 274, 335.481, False),
        ("pb.udp.txt", 1991, 200, 93.907, False),
        ("rtt.txt", 39339, 39339, 13.958, True),
    ],
)
def test_other_latencies(name: str, sent: int, received: int, average: float, rtt: bool) -> None:
    record = _bench_sockperf.parse_client(captured(name))
    assert (record["sent"], record["received"], record["avg_us"], record["rtt"]) == (sent, received, average, rtt)
    ladder = [record[f"p{step}_us"] for step in ("25", "50", "75", "90", "99", "99.9", "99.99", "99.999")]
    assert [record["min_us"], *ladder, record["max_us"]] == sorted([record["min_us"], *ladder, record["max_us"]])


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("tp.udp.txt", {"sent": 165931, "seconds": 1.001, "rate_mps": 165843.0, "bandwidth_mbytes": 221.424}),
        ("tp.tcp.txt", {"sent": 372535, "seconds": 1.0, "rate_mps": 372350.0, "bandwidth_mbytes": 497.141}),
        ("giga.txt", {"sent": 98852, "seconds": 1.004, "rate_mps": 98483.0, "bandwidth_mbytes": 1.024}),
    ],
)
def test_throughput(name: str, record: dict[str, float]) -> None:
    assert _bench_sockperf.parse_client(captured(name)) == record


def test_loss_is_read() -> None:
    text = captured("pp.udp.txt").replace(
        "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0",
        "# dropped messages = 7; # duplicated messages = 2; # out-of-order messages = 31",
    )
    record = _bench_sockperf.parse_client(text)
    assert (record["lost"], record["duplicated"], record["reordered"]) == (7, 2, 31)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-messages.txt", "No messages were received from the server. Is the server down?"),
        ("refused.txt", "ERROR: Can`t connect socket (errno=111 Connection refused)"),
        (
            "no-address.txt",
            "ERROR: [fd=3] Can`t bind socket, IP to bind: 10.77.77.77:29999 (errno=99 Cannot assign requested address)",
        ),
        ("bad-size.txt", "'-m' Invalid message size: 3 (min: 14)"),
        ("bad-option.txt", "sockperf knows no such option"),
        ("no-file.txt", "Can't open file: /nonexist"),
    ],
)
def test_errors_in_its_words(name: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        _bench_sockperf.parse_client(captured(name))
    assert str(caught.value) == words


@pytest.mark.parametrize("end", range(0, 1291, 97))
def test_an_output_that_is_cut_off_is_an_error_or_whole(end: int) -> None:
    try:
        record = _bench_sockperf.parse_client(captured("pp.udp.txt")[:end])
    except UserError:
        return
    assert record["observations"] == 44414
    assert "p50_us" in record


def test_server_and_full_log() -> None:
    assert _bench_sockperf.parse_server(captured("server.txt")) == 105724
    with pytest.raises(UserError, match="Can`t bind"):
        _bench_sockperf.parse_server(captured("no-address.txt"))
    pairs = _bench_sockperf.full_log(DATA / "full-log.csv")
    lines = [line for line in captured("full-log.csv").splitlines() if line[:1].isdigit()]
    assert sum(count for _, count in pairs) == len(lines) > 5
    assert pairs == sorted(pairs)
    assert pairs[-1][0] == pytest.approx(80049, rel=0.004)
    assert _bench_sockperf.full_log(DATA / "none.csv") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["under-load", "--stack", "all"], "--stack all is for ping-pong"),
        (["-t", "0.5"], "whole seconds"),
        (["-m", "3"], "--msg-size"),
        (["playback"], "--data-file"),
        (["playback", "--data-file", "/nowhere/at/all"], "there is no file"),
        (["--client-options=--bogus"], "knows no such option"),
        (["--client-options='x"], "--client-options: no closing quotation"),
        (["under-load", "--mps", "0"], "Invalid"),
    ],
)
def test_bad_arguments(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sockperf", *arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_without_sockperf(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["bench", "sockperf"]) == 1
    assert capsys.readouterr().err == "pyvma bench: sockperf is not installed (package sockperf)\n"


def live(tmp_path: Path, *options: str) -> dict[str, Any]:
    file = tmp_path / "out.json"
    assert main(["bench", "sockperf", *options, "--json", str(file)]) == 0
    report: dict[str, Any] = json.loads(file.read_text())
    assert (report["schema"], report["kind"]) == ("pyvma-bench/1", "sockperf")
    assert re.fullmatch(r"[0-9]+[.0-9]*", report["sockperf"])
    for row in report["rows"]:
        if row["mode"] != "throughput":
            assert 0 < row["min_us"] <= row["p50_us"] <= row["p99.999_us"] <= row["max_us"]
            assert sum(count for _, count in row["histogram_ns"]) == row["observations"] > 0
    return report


def test_the_real_one_on_loopback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("sockperf") is None:
        pytest.skip("sockperf is not installed")
    report = live(tmp_path, "all", "--mps", "2000", "--reply-every", "10")
    _, under_load, throughput = report["rows"]
    assert under_load["sent"] > under_load["received"] > 0
    assert throughput["server_received"] + throughput["lost"] == throughput["sent"] > 0
    assert "under-load" in capsys.readouterr().out


def test_the_real_one_over_a_veth_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("sockperf") is None:
        pytest.skip("sockperf is not installed")
    if os.geteuid() != 0:
        pytest.skip("a veth pair needs root")
    report = live(tmp_path, "--tcp", "--wire", "veth", "--client-options=--full-rtt")
    assert (report["ring"], report["proto"], report["rows"][0]["rtt"]) == ("veth", "tcp", True)
    assert "---> percentile 99.999 = " in capsys.readouterr().out
