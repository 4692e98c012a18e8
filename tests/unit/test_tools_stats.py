"""tools/stats_cost.py and stats_under_load.py: their figures, and what is left of them."""

from __future__ import annotations

import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from exchange import wait_for
from lab import softnic_reason

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import paired
import stats_cost

TOOLS = Path(stats_cost.__file__).parent


def test_buckets_are_hdr_histograms() -> None:
    histogram = pytest.importorskip("hdrh.histogram").HdrHistogram(1, 1 << 40, 3)
    values = [*range(1, 5000), *(round(2 ** random.uniform(0, 36)) - 1 for _ in range(5000))]
    found = stats_cost.buckets(numpy.array(values))
    assert found.max() < stats_cost.BUCKETS
    for value, bucket in zip(values, found, strict=True):
        assert stats_cost.value(int(bucket)) == histogram.get_lowest_equivalent_value(value)


def test_figures_of_a_turn() -> None:
    """As sockperf's: the least at or below which so many lie; trips of the edges do not count, and those of other slices."""
    sent = numpy.arange(0.0, 1.0, 0.0001)
    trips = numpy.arange(len(sent)) % 1000 + 1
    trips[:1000] = trips[1010:1030] = 1 << 20
    side = stats_cost.Side()
    side.add([stats_cost.Slice(True, 0.10105, 0.20105, 0.05, 0.0)], sent, trips)
    (row,) = side.rows
    assert row.sum() == round((0.1 - 2 * stats_cost.EDGE_S) / 0.0001)
    assert side.cpu == [pytest.approx(0.05 / 1000)]
    assert row[stats_cost.buckets(numpy.array([1 << 20]))[0]] == 0
    assert [stats_cost.value(int(stats_cost.at(row, percent))) for percent in (50, 99.9)] == [511, 991]


def test_turns_of_several_runs_count_together(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    for number in (1, 2):
        sides = (stats_cost.Side(), stats_cost.Side())
        for factor, side in enumerate(sides):
            side.add([stats_cost.Slice(bool(factor), 0.0, 1.0, 0.5, 0.0)], numpy.arange(0.0, 1.0, 0.001), numpy.full(1000, number + factor))
        stats_cost.kept(file, sides, "options")
        assert [len(side.rows) for side in sides] == [number] * 2
    assert [numpy.flatnonzero(side.pooled()).tolist() for side in sides] == [[1, 2], [2, 3]]
    assert sides[0].cpu == [0.0005, 0.0005]
    with pytest.raises(SystemExit, match="other options: options"):
        stats_cost.kept(file, sides, "others")


@pytest.mark.parametrize(("count", "edge"), [(1, 0), (5, 0), (6, 0), (9, 1), (12, 2), (40, 13)])
def test_median_by_the_sign_test(count: int, edge: int) -> None:
    """Bounds as in the tables of the sign test: the ranks of 12 are 3 and 10."""
    values = random.sample(range(1000), count)
    ordered = sorted(values)
    assert paired.median(values) == (statistics.median(values), ordered[edge], ordered[-1 - edge])


@pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason())
@pytest.mark.parametrize("options", [["--turns", "1"], ["--turns", "2", "--slice", "0.1", "--spin", "--mps", "5000", "--copies", "--tcp"]])
def test_a_short_run(options: list[str]) -> None:
    before = set(Path("/dev/shm").glob("stats-cost-*"))
    done = subprocess.run([sys.executable, str(TOOLS / "stats_cost.py"), *options], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(rf"by 1 pairs of .*; {options[1]} turns$", done.stdout, re.MULTILINE), done.stdout
    for figure in ("p50", "p99", "p99.9", "CPU"):
        assert re.search(rf"^{figure} *[\d.]+ us *[\d.]+ us   .*[+-][\d.]+ % \([+-][\d.]+ to [+-][\d.]+\)$", done.stdout, re.MULTILINE), (
            done.stdout
        )
    assert set(Path("/dev/shm").glob("stats-cost-*")) <= before


@pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason())
@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_every_view_under_a_small_load() -> None:
    """What the tool says of 500,000 datagrams a second it has to say of fewer, too."""
    command = [sys.executable, str(TOOLS / "stats_under_load.py"), "--mps", "20000", "--connections", "20", "--seconds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    said = [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("ok ")]
    views = [*(f"view {number}" for number in (1, 2, 3)), "json", "prometheus", "view 4", "view 5", "top"]
    assert [line.removeprefix("ok").strip() for line in said][: len(views)] == views, done.stdout
    assert len(said) == len(views) + 8, done.stdout


def left() -> set[Path]:
    return {
        *Path("/dev/shm").glob("stats-load-*"),
        *Path("/dev/shm").glob("pyvma-softnic-*-load*"),
        *Path("/tmp").glob("tmux-*/pyvma-load-*"),
    }


@pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason())
@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_nothing_is_left_of_a_killed_load() -> None:
    """Killed while its terminal shows top: the hardest moment."""
    before = left()
    command = [sys.executable, str(TOOLS / "stats_under_load.py"), "--mps", "1000", "--connections", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
        wait_for("top", lambda: any((path / "tmux").exists() for path in left() - before))
        assert len(left() - before) >= 2
        tool.send_signal(signal.SIGKILL)
        tool.wait(20)
        wait_for("everything to go", lambda: left() <= before)
