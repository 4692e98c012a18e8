"""`pyvma bench report`: the page that `make bench` writes. Its structure, not its speeds."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import netns
import pytest
from lab import softnic_reason

from pyvma._cli import _bench_page, _bench_report, _bench_sockperf, _bench_sockperf_rows, main, parser

ROOT = Path(__file__).resolve().parents[2]
# One kind of measurement each, as the short form has them.
QUICK = {"udp-softnic", "tcp-xdp", "tap", "sizes", "rates", "loops", "gil", "connections", "mixed"}

pytestmark = pytest.mark.timeout(400)


def fields(text: str) -> list[list[list[str]]]:
    """The tables of a page: rows of cells."""
    tables: list[list[list[str]]] = []
    before = ""
    for line in text.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        before = line
    return tables


def sound(text: str, folder: Path) -> None:
    """Every table is whole, every picture there and used once."""
    tables = fields(text)
    assert len(tables) > 3
    for table in tables:
        assert {len(row) for row in table} == {len(table[0])}, table
        assert len(table) > 2
    pictures = re.findall(r"!\[[^]]+\]\((img/[^)]+)\)", text)
    assert len(pictures) == len(set(pictures)) > 3
    for name in pictures:
        assert "<svg" in (folder / name).read_text()


def test_the_short_form_measures_every_kind_and_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := softnic_reason():
        pytest.skip(reason)
    if not netns.usable():
        pytest.skip("network namespaces need root")
    page, into = tmp_path / "docs" / "performance.md", tmp_path / "into"
    status = main(["bench", "report", "--quick", "--page", str(page), "--into", str(into)])
    assert status == 0, page.read_text() + capsys.readouterr().err
    assert {path.stem for path in into.glob("*.json")} == QUICK
    text = page.read_text()
    sound(text, page.parent)
    for section in _bench_report.SECTIONS:
        assert (f"\n## {section.title}\n" in text) == (section.name in QUICK)
    for words in ("a short run that only shows", "## Where others are quicker", "a cache line from one CPU to the other", "hypervisor"):
        assert words in text
    # Every command of the page is one that this program takes, and every section has one.
    commands = re.findall(r"^`(pyvma bench [^`]+)`$", text, re.MULTILINE)
    assert len(commands) == len(QUICK)
    # From what is in the folder the same page comes again.
    page.unlink()
    assert main(["bench", "report", "--assemble", "--into", str(into), "--page", str(page)]) == 0
    assert page.read_text() == text


def test_what_cannot_be_measured_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(command: str, file: Path, pictures: Path, plots: bool) -> dict[str, Any]:
        return {"failed": "network namespaces need root"}

    monkeypatch.setattr(_bench_report, "bench", failing)
    page = tmp_path / "page.md"
    assert main(["bench", "report", "--section", "udp-xdp", "--page", str(page)]) == 1
    assert "not measured: udp-xdp" in capsys.readouterr().err
    text = page.read_text()
    assert "Not measured: network namespaces need root." in text
    assert "Not measured: udp-softnic, tcp-softnic, tcp-xdp," in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--page or --into"),
        (["--assemble"], "--assemble needs"),
        (["--assemble", "--into", "/nowhere/at/all", "--page", "x"], "nothing measured"),
    ],
)
def test_bad_arguments(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--into" in arguments:
        arguments = [str(tmp_path) if text.startswith("/nowhere") else text for text in arguments]
    assert main(["bench", "report", *arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def compared(who: str, p50: float, rate: float) -> dict[str, Any]:
    return {"who": who, "p50_us": p50, "p99_us": 2 * p50, "p99.9_us": 3 * p50, "p99.99_us": 4 * p50, "rate_mps": rate, "lost": 0}


def test_where_others_are_quicker_is_found() -> None:
    rows = [
        compared("raw", 0.1, 9e6),
        compared("pyvma-c", 2.0, 1000.0),
        compared("pyvma-py", 8.0, 500.0),
        compared("kernel-c-spin", 1.0, 1040.0),
        compared("kernel-c-block", 20.0, 3000.0),
        compared("kernel-py-block", 30.0, 400.0),
    ]
    found = _bench_page.slower([{"kind": "compare", "proto": "udp", "ring": "softnic", "rows": rows}])
    # Against the best of the same language, the widest gap first; Python's and raw's are no rivals of C's.
    assert found == [
        ["compare, udp, softnic", "messages/s", "pyvma-c 1,000", "kernel-c-block 3,000", "3.0"],
        ["compare, udp, softnic", "p50, µs", "pyvma-c 2.000", "kernel-c-spin 1.000", "2.0"],
        ["compare, udp, softnic", "p99, µs", "pyvma-c 4.000", "kernel-c-spin 2.000", "2.0"],
        ["compare, udp, softnic", "p99.9, µs", "pyvma-c 6.000", "kernel-c-spin 3.000", "2.0"],
        ["compare, udp, softnic", "p99.99, µs", "pyvma-c 8.000", "kernel-c-spin 4.000", "2.0"],
    ]


def test_losses_are_compared_too() -> None:
    both = [{**compared("pyvma-c", 1.0, 1000.0), "lost": 776}, compared("kernel-c-spin", 2.0, 900.0)]
    report = {"kind": "compare", "proto": "udp", "ring": "softnic", "rows": both}
    assert _bench_page.slower([report]) == [["compare, udp, softnic", "lost", "pyvma-c 776", "kernel-c-spin 0", "∞"]]
    points = [
        {"value": 1000, "p50_us": 1.0, "p99_us": 2.0, "sent_p99_us": p99, "sent_mps": mps, "lost": 5}
        for p99, mps in ((4.0, 900), (2.0, 1000))
    ]
    rows = [{"who": who, "points": [point]} for who, point in zip(("pyvma-c", "kernel-c-spin"), points, strict=True)]
    found = _bench_page.slower([{"kind": "sweep", "over": "rate", "proto": "udp", "ring": "xdp", "rows": rows}])
    assert [(row[1], row[-1]) for row in found] == [("p99 from sending, µs", "2.0"), ("sent/s", "1.1")]


def test_memory_and_descriptors_are_compared_too() -> None:
    churn = {"1": 10.0, "32": 20.0}
    ours = {"who": "pyvma-c", "fds": 0, "bytes": {"server": 4000, "client": 1000}, "opened_per_s": 100.0, "churn": churn}
    kernel = {"who": "kernel-c", "fds": 10, "bytes": {"server": 2000, "client": 2000}, "opened_per_s": 100.0, "churn": churn}
    found = _bench_page.slower([{"kind": "connections", "veth": "none", "rows": [ours, kernel]}])
    assert found == [["connections over the software NIC", "bytes of a connection, server", "pyvma-c 4,000", "kernel-c 2,000", "2.0"]]


def test_sockperf_over_the_stack_is_compared_with_itself_over_the_kernel() -> None:
    half = {"raw": 2.0, "pyvma": 2.5, "kernel-spin": 5.0, "kernel-block": 1.0}
    runs = {who: [dict.fromkeys(_bench_sockperf_rows.FIGURES, at) | {"sent": 7}] for who, at in half.items()}
    rows = {who: _bench_sockperf.combine(who, "ping-pong", runs[who]) for who in runs}
    report = {"kind": "sockperf", "stack": "all", "proto": "udp", "ring": "xdp", "rows": list(rows.values())}
    report["ratios"] = _bench_sockperf_rows.ratios(rows, runs)
    table, words = _bench_page.KINDS["sockperf"](report)
    assert fields(table)[0][3][1:] == ["2.500"] * 4 + ["7"]
    assert "pyvma 1.25 times raw's, kernel-spin 2.00 times pyvma's, kernel-block 0.40 times pyvma's" in words
    # The bare ring is no rival.
    assert [row[1:] for row in _bench_page.slower([report])] == [
        [f"{name}, µs", "pyvma 2.500", "kernel-block 1.000", "2.5"] for name in ("avg", "p50", "p99", "p99.9")
    ]


def document(begun: float, run: str | None, build: str | None) -> dict[str, Any]:
    by = {} if run is None else {"run": run, "build": build}
    return {**by, "quick": False, "begun": begun, "ended": begun + 3, "others": 0.0, "parts": [{"command": "x", "report": {"failed": "y"}}]}


def test_a_page_of_several_runs_says_so() -> None:
    def page(*documents: dict[str, Any]) -> str:
        return _bench_page.page([(f"Section {number}", "Text.", one) for number, one in enumerate(documents)])

    one = page(document(0, "a", "v1"), document(10, "a", "v1"))
    assert "One run measured all sections, one after the other, in 0.2 minutes." in one
    assert "not of one run" not in one
    assert ["Section 1", "1970-01-01 00:00:10 UTC", "3", "0.0%", "v1"] in fields(one)[0]
    for second in (document(3600, "b", "v2"), document(3600, None, None)):
        text = page(document(0, "a", "v1"), second)
        assert "**The sections are not of one run**" in text
        assert "One run measured" not in text
        assert ["Section 0", "1970-01-01 00:00:00 UTC", "3", "0.0%", "v1"] in fields(text)[0]
        assert ["Section 1", "1970-01-01 01:00:00 UTC", "3", "0.0%", second.get("build") or "-"] in fields(text)[0]


def test_sections_of_one_command_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bench_report, "bench", lambda *_: {"failed": "nothing"})
    two = ["--section", "udp-softnic", "--section", "gil", "--build", "4e7dda8"]
    assert main(["bench", "report", *two, "--into", str(tmp_path)]) == 1
    assert main(["bench", "report", "--section", "mixed", "--into", str(tmp_path)]) == 1
    first, second, third = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("udp-softnic", "gil", "mixed"))
    assert first["run"] == second["run"] != third["run"]
    assert (first["build"], third["build"]) == ("4e7dda8", None)


def test_the_page_in_the_repository() -> None:
    page = ROOT / "docs" / "performance.md"
    text = page.read_text()
    sound(text, page.parent)
    assert "short run" not in text
    missing = re.findall(r"^Not measured: ([a-z, -]+)[.]$", text, re.MULTILINE)
    left_out = missing[0].split(", ") if missing else []
    for section in _bench_report.SECTIONS:
        assert (f"\n## {section.title}\n" in text) == (section.name not in left_out)
        for command in section.commands if section.name not in left_out else ():
            assert f"\n`pyvma bench {command.full}`\n" in text, "the page is older than its commands: make bench"


def test_the_figures_in_the_readme_are_the_pages() -> None:
    text = (ROOT / "README.md").read_text().split("\n## How fast\n")[1]
    page = (ROOT / "docs" / "performance.md").read_text().splitlines()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) > 15
    for line in rows:
        assert line in page, "README.md is older than docs/performance.md: copy its rows"


def documented() -> list[str]:
    """Every `pyvma bench ...` of the documents that stands as it is to be typed."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "native" / "doc").glob("*.md")]
    found = {text.strip() for page in pages for text in re.findall(r"pyvma bench [a-z][^`|\n]*", page.read_text())}
    return sorted(text for text in found if not re.search(r"[.]{3}|[A-Z]{3}|[(]", text))


def test_documented_commands_are_taken() -> None:
    commands = documented()
    assert len(commands) > 30
    for command in commands:
        arguments = parser().parse_args(shlex.split(command)[1:])
        assert arguments.kind == command.split()[2]
