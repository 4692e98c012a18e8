"""`pyvma bench compare --ring xdp` and the demo's second part: over namespaces of their own, of which nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from netns import usable

from pyvma._cli import UserError, _veth, main

LIMIT_S = 60.0
rooted = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")


def named(process: int) -> str:
    """The network namespace of a process; empty when it has none of a name."""
    done = subprocess.run(["ip", "netns", "identify", str(process)], capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout.strip()


def existing() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=LIMIT_S).stdout
    return {line.split()[0] for line in listed.splitlines() if line}


@rooted
@pytest.mark.timeout(300)
def test_compare_all_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    build = _veth.VethPair.build

    def noted(pair: _veth.VethPair) -> None:
        made.extend(pair.names)
        build(pair)

    monkeypatch.setattr(_veth.VethPair, "build", noted)
    file = tmp_path / "report.json"
    assert main(["bench", "compare", "--ring", "xdp", "--seconds", "0.3", "--runs", "1", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert [row["who"] for row in report["rows"]][:3] == ["raw", "pyvma-c", "pyvma-py"] and len(report["rows"]) == 7
    for row in report["rows"]:
        assert 0 < row["p50_us"] <= row["p99_us"] and row["rate_mps"] > 0
        assert (row["lost"], row["duplicated"], row["reordered"]) == (0, 0, 0), row
    assert report["ring"] == "xdp"
    assert report["idle"]["offloaded"] is True and report["idle"]["cpu_percent"] < 50
    assert set(report["wake"]) == {"pyvma-c", "kernel-c"}
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in report["wake"].values())
    text = capsys.readouterr().out
    assert "a sleeping receiver has a message" in text
    wakes = report["wake"]
    assert report["wake_later_us"] == pytest.approx(wakes["pyvma-c"]["p50_us"] - wakes["kernel-c"]["p50_us"])
    for line, kind in (("p50 of ", "p50"), ("messages/s of ", "rate")):
        assert f"{line}pyvma-c over raw: " in text.replace("raw over pyvma-c", "pyvma-c over raw")
        assert set(report["ratios"][kind]) and all(value > 0 for value in report["ratios"][kind].values())
    assert made and not existing() & set(made)


@rooted
@pytest.mark.timeout(300)
@pytest.mark.parametrize("proto", ["udp", "tcp"])
def test_compare_over_a_tap_device(proto: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, file = existing(), tmp_path / "report.json"
    rows = ["--rows", "raw,pyvma-c,pyvma-py,kernel-c-spin"]
    assert main(["bench", "compare", "--ring", "tap", "--proto", proto, *rows, "--seconds", "0.3", "--runs", "1", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert [row["who"] for row in report["rows"]] == rows[1].split(",")
    for row in report["rows"]:
        assert 0 < row["p50_us"] <= row["p99_us"] and row["rate_mps"] > 0
        assert (row["lost"], row["duplicated"], row["reordered"]) == (0, 0, 0), row
        assert proto == "udp" or row["bulk_gbps"] > 0
    assert report["ratios"]["p50"]["pyvma-c/raw"] > 0
    assert "raw: frames" not in capsys.readouterr().out
    assert not {name for name in existing() - before if name.endswith("-t")}
    assert main(["bench", "compare", "--ring", "tap", "--api", "asyncio"]) == 1
    assert "event loops are compared over softnic or xdp" in capsys.readouterr().err


@rooted
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyvma", "bench", "compare", "--ring", "xdp", "--rows", "kernel-c-block", "--seconds", "30"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    names: set[str] = set()
    try:
        deadline = time.monotonic() + LIMIT_S
        # Server and client are in their namespaces: the measurement is under way.
        while len(names) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            names |= {name for child in children if (name := named(int(child)))}
            time.sleep(0.02)
        # As the terminal does it: the children get it too.
        os.killpg(process.pid, number)
        assert process.wait(LIMIT_S) != 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(LIMIT_S)
    assert not existing() & names


def test_without_root(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_veth.os, "geteuid", lambda: 1000)
    assert main(["bench", "compare", "--ring", "xdp"]) == 1
    assert "need root" in capsys.readouterr().err
    monkeypatch.setattr(_veth.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="iproute2"):
        _veth.VethPair()


def test_demo_without_root_says_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_veth.os, "geteuid", lambda: 1000)
    assert main(["demo", "--seconds", "0.6"]) == 0
    text = capsys.readouterr().out
    assert text.rstrip().splitlines()[-1] == "AF_XDP is left out: network namespaces need root"
    assert main(["demo", "--seconds", "0.6", "--no-xdp"]) == 0
    assert "AF_XDP" not in capsys.readouterr().out


@rooted
def test_demo_against_a_kernel_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", "0.6"]) == 0
    text = capsys.readouterr().out
    assert f"xdp:{_veth.VethPair.device}" in text
    assert "polling the ring" in text
