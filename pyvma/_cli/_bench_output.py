"""What becomes of a finished report of `pyvma bench`: a table, JSON, CSV, plots, HdrHistogram's files. native/doc/bench.md has the
schema."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console

from . import UserError, _bench_hist, _bench_plot

SCHEMA = "pyvma-bench/1"
"""Fields may be added under the same number; one that goes or changes its meaning makes the next."""

WIDTH = 132
"""Columns of a table at least: it is whole in a file and wraps on a small terminal."""

Flat = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
Draw = Callable[[dict[str, Any]], Iterable[_bench_plot.Plot]]


def add_arguments(parser: argparse.ArgumentParser, plots: bool = False, hdr: bool = False) -> None:
    """The options about output."""
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE ('-': stdout, and no table)")
    parser.add_argument("--csv", metavar="FILE", help="write the rows to FILE, one a line ('-': stdout, and no table)")
    if plots:
        parser.add_argument("--plot", metavar="DIR", help="draw into DIR; needs pyvma[plots]")
        parser.add_argument("--format", default="svg,png", help="of the plots, separated by commas: svg, png (default both)")
    if hdr:
        parser.add_argument("--hdr", metavar="DIR", help="write HdrHistogram's files (.hgrm, .hlog) to DIR; needs pyvma[hdr]")


def check(arguments: argparse.Namespace) -> None:
    """Before anything is measured: UserError when what is asked for could not be written."""
    if getattr(arguments, "plot", None):
        _bench_plot.formats(arguments.format)
        _bench_plot.library()
    if getattr(arguments, "hdr", None):
        _bench_hist.hdr([])
    if arguments.json == "-" and arguments.csv == "-":
        raise UserError("--json and --csv cannot both go to stdout")
    for name in ("json", "csv"):
        file = getattr(arguments, name)
        if file and file != "-" and not Path(file).absolute().parent.is_dir():
            raise UserError(f"--{name}: there is no folder {Path(file).absolute().parent}")


def as_csv(rows: Iterable[dict[str, Any]]) -> str:
    """A head with the names of all rows, then the rows."""
    rows = list(rows)
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a report without what is no single figure."""
    return {name: value for name, value in row.items() if not isinstance(value, dict | list)}


def folder(name: str) -> Path:
    """Made when there is none."""
    path = Path(name)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}") from None
    return path


def write(file: str, text: str) -> None:
    """UserError when that fails."""
    try:
        Path(file).write_text(text)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None


def distributions(report: dict[str, Any]) -> dict[str, _bench_hist.Pairs]:
    """Of the rows that have one, by name. A row with a timetable has two: from when messages were sent, and from when they were due."""
    found: dict[str, _bench_hist.Pairs] = {}
    for row in report["rows"]:
        due = row.get("due_histogram_ns")
        both = {f"{row['who']}{'-from-sending' if due else ''}": row.get("histogram_ns"), f"{row['who']}-from-due": due}
        found |= {name: of for name, of in both.items() if of}
    return found


def write_hdr(report: dict[str, Any], into: Path) -> list[Path]:
    """A table of percentiles a row, and a log with all of them."""
    found, written = distributions(report), []
    stem = stem_of(report)
    for who, of in found.items():
        written.append(into / f"{stem}-{who}.hgrm")
        _bench_hist.write_hgrm(of, written[-1])
    written.append(into / f"{stem}.hlog")
    _bench_hist.write_hlog(found, written[-1], float(report["seconds"]))
    return written


def stem_of(report: dict[str, Any]) -> str:
    """What names of files begin with: the same for the same kind of run."""
    parts = [report["kind"], *(str(report[name]) for name in ("over", "ring", "proto", "size") if report.get(name))]
    return re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(parts))


def head(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What every report begins with."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"schema": SCHEMA, "kind": kind, "command": getattr(arguments, "command_line", ""), "time": now}


def deliver(
    report: dict[str, Any],
    arguments: argparse.Namespace,
    show: Callable[[Console], None],
    flat: Flat = lambda report: map(plain, report["rows"]),
    draw: Draw = lambda report: (),
) -> int:
    """Shows the report on the terminal and writes what else was asked for. 0."""
    notes = Console(stderr=True)
    if arguments.json and arguments.json != "-":
        write(arguments.json, json.dumps(report, indent=1) + "\n")
    if arguments.csv and arguments.csv != "-":
        write(arguments.csv, as_csv(flat(report)))
    written: list[Path] = []
    if getattr(arguments, "plot", None):
        written += _bench_plot.draw(draw(report), folder(arguments.plot), _bench_plot.formats(arguments.format))
    if getattr(arguments, "hdr", None):
        written += write_hdr(report, folder(arguments.hdr))
    if arguments.json == "-":
        print(json.dumps(report, indent=1))
    elif arguments.csv == "-":
        print(as_csv(flat(report)), end="")
    else:
        show(Console(width=max(Console().width, WIDTH)))
    for path in written:
        notes.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0
