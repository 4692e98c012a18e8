"""tools/sockperf_agreement.py: what it starts is gone afterwards, and what it says of its rounds."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import sockperf_agreement

from pyvma._cli._veth import VethPair


class Endless:
    """Stands where the pair of namespaces does: whatever is run in it sleeps."""

    hosts = ("127.0.0.1", "127.0.0.1")

    def inside(self, number: int) -> list[str]:
        return ["sh", "-c", "exec sleep 60", f"namespace {number}"]


@pytest.mark.parametrize("case", ["clients", "alternating", "seen"])
def test_sockperfs_client_is_gone_after_an_error(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = sockperf_agreement.subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    def broken(*_: Any, **__: Any) -> Any:
        raise ConnectionError("broken")

    @contextlib.contextmanager
    def server(*_: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 1, {}

    bench = sockperf_agreement.Bench(cast(VethPair, Endless()), 64, tmp_path)
    monkeypatch.setattr(sockperf_agreement.subprocess, "Popen", noted)
    monkeypatch.setattr(sockperf_agreement, "SLEEP_S", sockperf_agreement.EARLY_S)
    for name in ("ours", "finished"):
        monkeypatch.setattr(bench, name, broken)
    monkeypatch.setattr(bench, "server", server)
    with pytest.raises(ConnectionError):
        if case == "alternating":
            list(bench.alternating("udp", "under-load", 1, 3))
        else:
            getattr(bench, case)("udp", "ping-pong", *[1] * (case != "seen"))
    assert [process.returncode for process in started] == [-9] * (2 if case == "alternating" else 1)
    assert all(process.stdout.closed for process in started)


def test_stops_of_the_machine_are_not_in_an_average_under_load(tmp_path: Path) -> None:
    log = tmp_path / "log"
    times = [10.0] * 99 + [5000.0] + [30.0] * 97 + [20.0] * 2 + [8000.0]
    rows = "".join(f"{i}, 1.0, 2.0, {us:.3f}\n" for i, us in enumerate(times))
    log.write_text(f"packet, txTime(sec), rxTime(sec), latency(usec)\n{rows}")
    found = sockperf_agreement.logged(log)
    assert found["avg_us"] == pytest.approx((99 * 10 + 97 * 30 + 2 * 20) / 198, rel=1e-3)
    assert found["p50_us"] == pytest.approx(20, rel=1e-3)


def test_what_keeps_a_cpu_awake_goes_last_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = sockperf_agreement.subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(sockperf_agreement.subprocess, "Popen", noted)
    with sockperf_agreement.kept_awake({min(os.sched_getaffinity(0))}):
        assert [os.sched_getscheduler(process.pid) for process in started] == [os.SCHED_IDLE]
    assert [process.returncode for process in started] == [-9]


def test_rounds_of_several_runs_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure is within the limit, perhaps within it, or off."""
    file = tmp_path / "rounds.json"
    ratios: list[float] = []

    class Known(sockperf_agreement.Bench):
        def case(self, what: str, proto: str, mode: str, rounds: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
            return [({"rate_mps": 100.0}, {"rate_mps": 100.0 * ratio}) for ratio in ratios]

    @contextlib.contextmanager
    def pair() -> Iterator[Endless]:
        yield Endless()

    monkeypatch.setattr(sockperf_agreement, "Bench", Known)
    monkeypatch.setattr(sockperf_agreement, "VethPair", pair)

    def ran(found: list[float], *more: str) -> tuple[int, str]:
        ratios[:] = found
        line = ["tool", "--cases", "control/udp/throughput", "--json", str(file), *more]
        monkeypatch.setattr(sys, "argv", line)
        return sockperf_agreement.main(), capsys.readouterr().out.splitlines()[-1]

    status, line = ran([0.9, 1.01, 1.02, 1.0, 0.99, 1.0])
    assert (status, line.split()[-1]) == (0, "?")
    status, line = ran([1.01] * 30, "--add")
    assert (status, line.split()[4]) == (0, "1.0100")
    assert "1.010..1.010; 36;" in line
    assert line.split()[-1] != "?"
    status, line = ran([1.04] * 6)
    assert (status, line.split()[-1]) == (1, "OFF")
    assert len(json.loads(file.read_text())["cases"][0]["figures"]["rate_mps"]["ratios"]) == 6
    with pytest.raises(SystemExit):
        ran([1.0], "--add", "--size", "100")
