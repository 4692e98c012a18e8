"""What becomes of a report: distributions, CSV, plots, HdrHistogram's files, and the sweeps."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import softnic_reason

from pyvma._cli import UserError, _bench_hist, _bench_output, _bench_perf, _bench_plot, _bench_sockperf, main

pytestmark = pytest.mark.timeout(300)

REPORT_FIELDS = {"schema", "kind", "command", "time", "host", "cache_line_ns", "rows", "run_count", "seconds"}
HOST_FIELDS = {"cpu", "cpus", "pinned", "virtual", "hypervisor", "governor", "kernel", "python", "pyvma", "uvloop", "load"}


def some(count: int = 20_000) -> list[float]:
    chance = random.Random(5)
    return sorted(chance.lognormvariate(7, 1.5) for _ in range(count))


def test_percentiles_are_those_of_the_sorted_values() -> None:
    values = some()
    found = _bench_hist.Distribution(_bench_hist.pairs(values))
    assert found.count == len(values)
    for step in (0.001, *_bench_hist.LADDER, 100.0):
        rank = max(1, -(-len(values) * round(step * 1000) // 100_000))
        assert found.at(step) == pytest.approx(values[rank - 1], rel=1 / 256, abs=1)
    assert found.shares()[-1] == 1
    assert _bench_hist.Distribution([]).at(50) == 0


def test_merged_distributions_count_together() -> None:
    assert _bench_hist.merged([[[10, 1], [20, 2]], [], [[20, 3], [5.5, 1]]]) == [[5.5, 1], [10, 1], [20, 5]]


def test_hdr_files_are_read_by_their_own_library(tmp_path: Path) -> None:
    log_module = pytest.importorskip("hdrh.log")
    from hdrh.histogram import HdrHistogram

    both = {"pyvma-c": _bench_hist.pairs(some()), "kernel": _bench_hist.pairs(3 * value for value in some(10_000))}
    _bench_hist.write_hlog(both, tmp_path / "a.hlog", 2.5)
    reader = log_module.HistogramLogReader(str(tmp_path / "a.hlog"), HdrHistogram(1, _bench_hist.HIGHEST_NS, _bench_hist.DIGITS))
    read = [reader.get_next_interval_histogram() for _ in both]
    assert reader.get_next_interval_histogram() is None
    reader.close()
    assert [histogram.get_tag() for histogram in read] == list(both)
    for histogram, of in zip(read, both.values(), strict=True):
        found = _bench_hist.Distribution(of)
        assert histogram.get_total_count() == found.count
        for step in (50, 99, 99.9):
            assert histogram.get_value_at_percentile(step) == pytest.approx(found.at(step), rel=2e-3, abs=1)
    _bench_hist.write_hgrm(both["pyvma-c"], tmp_path / "a.hgrm")
    text = (tmp_path / "a.hgrm").read_text()
    assert text.split()[:4] == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    rows = [line.split() for line in text.splitlines()[2:] if line and not line.startswith("#")]
    assert int(rows[-1][2]) == 20_000
    assert float(rows[-1][1]) == 1
    assert [float(row[0]) for row in rows] == sorted(float(row[0]) for row in rows)


@pytest.mark.parametrize(
    ("module", "option", "words"),
    [("matplotlib", "--plot", "pip install 'pyvma[plots]'"), ("hdrh.histogram", "--hdr", "pip install 'pyvma[hdr]'")],
)
def test_a_missing_library_is_named_before_anything_runs(
    module: str, option: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["bench", "compare", option, str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--plot", "x", "--format", "pdf"], "--format"),
        (["compare", "--json", "-", "--csv", "-"], "both"),
        (["compare", "--json", "/nowhere/at/all.json"], "no folder"),
        (["sweep", "--values", "a"], "no numbers"),
        (["sweep", "--values", "13"], "from 14 to 65000"),
        (["sweep", "--over", "rate", "--rows", "raw"], "no row raw"),
        (["sweep", "--over", "rate", "--size", "2000"], "--size"),
        (["sweep", "--runs", "0"], "--runs"),
    ],
)
def test_bad_arguments(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_the_same_figures_make_the_same_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = {"pyvma-c": _bench_hist.pairs(some(500)), "kernel-c-block": _bench_hist.pairs(9 * value for value in some(500)), "raw": []}
    plots = [_bench_plot.cdf("x", "title", rows), _bench_plot.percentiles("x", "title", rows)]
    first = _bench_plot.draw(plots, tmp_path, ["svg", "png"])
    before = [path.read_bytes() for path in first]
    assert [path.name for path in first] == ["x-cdf.svg", "x-cdf.png", "x-percentiles.svg", "x-percentiles.png"]
    assert [path.read_bytes() for path in _bench_plot.draw(plots, tmp_path, ["svg", "png"])] == before
    svg = first[0].read_text()
    for words in ("title", "half round trip, µs", "pyvma-c", "kernel-c-block"):
        assert words in svg
    assert len(svg) < 60_000
    assert before[1].startswith(b"\x89PNG")


@pytest.mark.parametrize("figures", ["half round trip", "round trip"])
def test_plots_say_whether_round_trips_are_whole(figures: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    of = _bench_hist.pairs(some(500))
    common = {"proto": "udp", "size": 64, "ring": "loopback"}
    row = {"who": "kernel-c", "figures": figures, "rtt": figures == "round trip", "histogram_ns": of}
    drawn = [
        *_bench_perf.plots({"kind": "ping-pong", **common, "rows": [row]}),
        *_bench_sockperf.plots({"kind": "sockperf", **common, "rows": [row]}),
    ]
    files = _bench_plot.draw(drawn, tmp_path, ["svg"])
    assert len(files) == 4
    for file in files:
        assert f">{figures}, µs<" in file.read_text()


def test_a_load_by_the_clock_is_shown_from_sending_and_from_due(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("hdrh.log")
    sent, due = [[1000, 90], [2000, 10]], [[1000, 50], [9000, 50]]
    row = {"who": "pyvma-c", "figures": "half round trip", "histogram_ns": sent, "due_histogram_ns": due}
    report = {"kind": "under-load", "proto": "udp", "size": 64, "seconds": 1.0, "rows": [row, {"who": "raw", "histogram_ns": sent}]}
    both = {"pyvma-c-from-sending": sent, "pyvma-c-from-due": due, "raw": sent}
    assert _bench_output.distributions(report) == both
    files = _bench_output.write_hdr(report, tmp_path)
    assert {path.name for path in files} == {*(f"under-load-udp-64-{who}.hgrm" for who in both), "under-load-udp-64.hlog"}
    log = (tmp_path / "under-load-udp-64.hlog").read_text()
    assert all(f"\nTag={who}," in log for who in both)
    for plot in _bench_perf.plots(report):
        assert set(plot.lines) == set(both)
        assert plot.lines["pyvma-c-from-due"] != plot.lines["pyvma-c-from-sending"]


def test_csv_has_the_columns_of_all_rows() -> None:
    text = _bench_output.as_csv([{"who": "a", "x": 1}, {"who": "b, c", "y": 2.5}])
    assert list(csv.DictReader(io.StringIO(text))) == [{"who": "a", "x": "1", "y": ""}, {"who": "b, c", "x": "", "y": "2.5"}]


def envelope(report: dict[str, Any], kind: str) -> None:
    assert set(report) >= REPORT_FIELDS
    assert set(report["host"]) == HOST_FIELDS
    assert (report["schema"], report["kind"]) == ("pyvma-bench/1", kind)
    assert report["command"].startswith("pyvma bench ")


def test_compare_writes_all_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := softnic_reason():
        pytest.skip(reason)
    file, table, plots, hdr = (tmp_path / name for name in ("a.json", "a.csv", "plots", "hdr"))
    options = ["--rows", "pyvma-c,kernel-py-block", "--seconds", "0.2", "--runs", "2", "--json", str(file), "--csv", str(table)]
    assert main(["bench", "compare", *options, "--plot", str(plots), "--format", "svg", "--hdr", str(hdr)]) == 0
    report = json.loads(file.read_text())
    envelope(report, "compare")
    for row in report["rows"]:
        assert sum(count for _, count in row["histogram_ns"]) == row["observations"]
        ladder = [row[f"p{step:g}_us"] for step in _bench_hist.LADDER]
        assert ladder == sorted(ladder)
        # The distribution is of all runs, the figure the median of each run's: they lie near each other.
        found = _bench_hist.Distribution(row["histogram_ns"])
        of_runs = sorted(run["p50_us"] for run in row["runs"])
        assert of_runs[0] * 0.99 <= found.at(50) / 1e3 <= of_runs[-1] * 1.01
    read = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [row["who"] for row in read] == ["pyvma-c", "kernel-py-block"]
    assert {path.name for path in plots.iterdir()} == {"compare-softnic-udp-64-cdf.svg", "compare-softnic-udp-64-percentiles.svg"}
    names = {"compare-softnic-udp-64-pyvma-c.hgrm", "compare-softnic-udp-64-kernel-py-block.hgrm", "compare-softnic-udp-64.hlog"}
    assert {path.name for path in hdr.iterdir()} == names
    assert "pyvma-c" in capsys.readouterr().out


def test_sweep_over_sizes(tmp_path: Path) -> None:
    if reason := softnic_reason():
        pytest.skip(reason)
    file = tmp_path / "a.json"
    options = ["--values", "64,5000", "--rows", "raw,pyvma-c", "--seconds", "0.3", "--runs", "1", "--json", str(file)]
    assert main(["bench", "sweep", *options]) == 0
    report = json.loads(file.read_text())
    envelope(report, "sweep")
    raw, ours = report["rows"]
    assert [at["value"] for at in ours["points"]] == [64, 5000]
    assert all(0 < at["p50_us"] <= at["p99_us"] and at["gbps"] > 0 for at in ours["points"])
    # A ring without a stack has no messages longer than a frame, and the report says so.
    assert [at["value"] for at in raw["points"]] == [64]
    assert raw["stopped"] == {"at": 5000, "why": "a raw ring does not cut messages into frames"}


def test_sweep_over_connections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := softnic_reason():
        pytest.skip(reason)
    table = tmp_path / "a.csv"
    options = ["--over", "connections", "--values", "1,50", "--seconds", "0.1", "--runs", "1"]
    assert main(["bench", "sweep", *options, "--csv", str(table)]) == 0
    read = list(csv.DictReader(io.StringIO(table.read_text())))
    names = [(row["who"], row["connections"]) for row in read]
    assert names == [("pyvma-c", "1"), ("pyvma-c", "50"), ("kernel-c", "1"), ("kernel-c", "50")]
    assert all(0 < float(row["p50_us"]) <= float(row["p99_us"]) for row in read)
    assert "TCP, softnic, over connections" in capsys.readouterr().out


def test_an_unwritable_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        _bench_output.write(str(tmp_path), "x")
