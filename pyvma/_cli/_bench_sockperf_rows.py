"""`pyvma bench sockperf --stack all`: the same ping-pong by sockperf over the stack, over the kernel with and without blocking, and by
the bare ring, all on one veth pair, in turns; and what one costs in terms of another."""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import _bench_compare, _bench_host, _bench_output
from ._bench_compare import microseconds
from ._bench_sockperf import combine, measure, version
from ._bench_xdp import XdpWire

ROWS = ("raw", "pyvma", "kernel-spin", "kernel-block")
SAYS = {
    "raw": "the bare AF_XDP ring, our own program",
    "pyvma": "sockperf over pyvma's stack, at both ends",
    "kernel-spin": "sockperf --nonblocked over the kernel",
    "kernel-block": "sockperf over the kernel",
}
# What a row may cost of the first, or has to be quicker than the second: (row, other, text, bound).
BOUNDS = (("pyvma", "raw", 1.25, False), ("kernel-spin", "pyvma", 1.8, True), ("kernel-block", "pyvma", 9.0, True))
FIGURES = ("avg_us", "p50_us", "p99_us", "p99.9_us")


def one(arguments: argparse.Namespace, who: str, wire: XdpWire) -> dict[str, Any]:
    """One run of a row; half round trips in microseconds."""
    if who == "raw":
        load = _bench_compare.Load(False, arguments.msg_size, arguments.time)
        client, _ = _bench_compare.measure(_bench_compare.Way("raw"), wire, "ping-pong", load)
        found = {name: client[name] for name in FIGURES if name in client}
        return found | {"sent": client.get("sent", 0)}
    return measure(
        arguments,
        "ping-pong",
        wire.pair,
        "pyvma" if who == "pyvma" else "kernel",
        *(["--nonblocked"] if who == "kernel-spin" else []),
    )


def ratios(rows: dict[str, dict[str, Any]], runs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of half round trips at p50, which one scheduling of another process does not move; with what each turn had."""
    found = []
    for one_, other, bound, least in BOUNDS:
        each = [a["p50_us"] / b["p50_us"] for a, b in zip(runs[one_], runs[other], strict=True)]
        ratio = statistics.median(each)
        met = ratio >= bound if least else ratio <= bound
        found.append({"of": one_, "to": other, "ratio": ratio, "each": each, "bound": bound, "least": least, "met": met})
    return found


def table(report: dict[str, Any]) -> Table:
    """A line a row."""
    title = f"sockperf ping-pong, {report['proto'].upper()}, {report['size']} bytes, {report['style']}; half a round trip in µs"
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    out.add_column("row", no_wrap=True)
    for name in ("avg", "p50", "p99", "p99.9", "messages"):
        out.add_column(name, justify="right", no_wrap=True)
    for row in report["rows"]:
        out.add_row(SAYS[row["who"]], *(microseconds(row[name]) if name in row else "-" for name in FIGURES), f"{row['sent']:,}")
    return out


def show(console: Console, report: dict[str, Any]) -> None:
    """Prints the report."""
    console.print(_bench_host.said(report["host"]), highlight=False)
    console.print(table(report))
    for found in report["ratios"]:
        wanted = f"{'at least' if found['least'] else 'at most'} {found['bound']:g}"
        text = f"p50: {found['of']} / {found['to']}: {found['ratio']:.2f}  (wanted: {wanted}; {'met' if found['met'] else 'not met'})"
        console.print(text, highlight=False)
    _bench_host.show_distance(console, report["cache_line_ns"])


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    report = _bench_output.head("sockperf", arguments) | {"host": _bench_host.host(), "run_count": arguments.runs}
    report |= {"sockperf": version(), "stack": "all", "ring": "xdp", "proto": arguments.proto, "seconds": arguments.time}
    report |= {"size": arguments.msg_size, "style": arguments.style}
    runs: dict[str, list[dict[str, Any]]] = {who: [] for who in ROWS}
    floors: list[float | None] = []
    with XdpWire() as wire:
        for _ in range(arguments.runs):
            floors.append(_bench_host.line(0.2))
            for who in ROWS:
                runs[who].append(one(arguments, who, wire))
    rows = {who: combine(who, "ping-pong", runs[who]) for who in ROWS}
    report["rows"], report["ratios"] = list(rows.values()), ratios(rows, runs)
    report["cache_line_ns"] = _bench_host.distance(floors)
    return _bench_output.deliver(report, arguments, lambda console: show(console, report))
