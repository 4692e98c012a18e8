"""`pyvma bench sweep`: the same measurement over sizes of messages, over rates of a load, or over numbers of open connections.

Over rates the latency is that of an open loop: messages leave by a timetable, whatever has become of those before, and each one's time
counts from the moment when it was due, not from when the sender came round to it (no coordinated omission).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import UserError, _bench_connections, _bench_host, _bench_output, _bench_plot
from ._bench_compare import MTU, UDP_HEADERS, WAYS, WIRES, Load, Way, measure, microseconds
from ._bench_load import under_load
from ._bench_wire import Wire
from ._help import seconds
from ._veth import VethPair

SIZES = (16, 64, 256, 1024, 1472, 4096, 16384, 65000)
RATES = (1_000, 10_000, 30_000, 100_000, 200_000, 300_000, 500_000, 1_000_000)
COUNTS = (1, 10, 100, 1_000, 10_000, 50_000)
ROWS = {
    "size": ("raw", "pyvma-c", "pyvma-py", "kernel-c-spin", "kernel-c-block"),
    "rate": ("pyvma-c", "kernel-c-spin", "kernel-c-block"),
    "connections": ("pyvma-c", "kernel-c"),
}
FIGURES = ("p50_us", "p99_us", "p99.9_us")
Point = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--over", choices=list(ROWS), default="size", help="what changes from point to point (default size)")
    parser.add_argument("--ring", choices=list(WIRES), default="softnic", help="what raw and pyvma run over; xdp: a veth pair, needs root")
    parser.add_argument("--proto", choices=["udp", "tcp"], default="udp", help="over sizes and rates (default udp); connections are TCP's")
    parser.add_argument("--values", metavar="N,N,...", help=f"the points (default sizes {SIZES}, rates {RATES}, counts {COUNTS})")
    parser.add_argument("--size", type=int, default=64, help="bytes of a message over rates and connections (default 64)")
    parser.add_argument("--rows", help="which rows, separated by commas (default those that make sense)")
    parser.add_argument("--seconds", type=seconds(0.001), default=0.5, help="time for a point of a row in a run (default 0.5)")
    parser.add_argument("--runs", type=int, default=3, help="runs; figures are medians (default 3)")
    _bench_output.add_arguments(parser, plots=True)


def values_of(arguments: argparse.Namespace) -> list[int]:
    """The points asked for, in order. UserError for what is none."""
    default = {"size": SIZES, "rate": RATES, "connections": COUNTS}[arguments.over]
    text = arguments.values or ",".join(map(str, default))
    try:
        found = sorted({int(value) for value in text.split(",") if value.strip()})
    except ValueError:
        raise UserError(f"--values: {text!r} are no numbers separated by commas") from None
    low, high = {"size": (14, 65000), "rate": (1, 10_000_000), "connections": (1, 200_000)}[arguments.over]
    if not found or found[0] < low or found[-1] > high:
        raise UserError(f"--values: numbers from {low} to {high} over {arguments.over}")
    return found


def rows_of(arguments: argparse.Namespace) -> list[str]:
    """The rows asked for. UserError for one that there is not, or not over that."""
    known = WAYS if arguments.over == "size" else ROWS[arguments.over]
    names = [name.strip() for name in (arguments.rows or ",".join(ROWS[arguments.over])).split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UserError(f"--rows: over {arguments.over} there is no row {', '.join(unknown) or 'at all'}; rows: {', '.join(known)}")
    return names


def at_size(way: Way, wire: Wire, load: Load) -> Point:
    """Half round trips and what arrives one way, of messages of a size."""
    if way.stack == "raw" and load.size > MTU - UDP_HEADERS:
        raise UserError("a raw ring does not cut messages into frames")
    wire.fresh()
    client, _ = measure(way, wire, "ping-pong", replace(load, seconds=load.seconds * 2 / 3))
    if "p50_us" not in client:
        raise UserError("too short a run: nothing was measured")
    sender, receiver = measure(way, wire, "throughput", replace(load, seconds=load.seconds / 3))
    rate = receiver["unique"] / receiver["seconds"] if receiver["seconds"] else 0.0
    lost = client["lost"] + sender["sent"] - receiver["unique"]
    return {name: client[name] for name in FIGURES} | {"rate_mps": rate, "gbps": rate * load.size * 8 / 1e9, "lost": lost}


def at_rate(way: Way, wire: Wire, load: Load, rate: int) -> Point:
    """Round trips of messages that are due so many times a second, from the moment when each was due; and, to be compared, p99 of those
    from the moment when it left."""
    wire.fresh()
    answer = under_load(way, wire, load, rate)
    figures = {name: answer[f"due_{name}"] for name in FIGURES} | {"sent_p99_us": answer["p99_us"]}
    return figures | {"sent_mps": answer["rate_mps"], "lost": answer["lost"]}


def turns(names: list[str], values: list[int], runs: int, once: Callable[[str, int], Point]) -> list[dict[str, Any]]:
    """Every point of every row in turns, medians of the figures and sums of what was lost. A row ends where it cannot go on, and says
    why."""
    notes = Console(stderr=True)
    found: dict[tuple[str, int], list[Point]] = {}
    stopped: dict[str, tuple[int, str]] = {}
    for number in range(runs):
        for value in values:
            for name in names[:: 1 if number % 2 == 0 else -1]:
                if name in stopped and value >= stopped[name][0]:
                    continue
                if notes.is_terminal:
                    notes.print(f"run {number + 1} of {runs}: {value:,} {name}   ", end="\r")
                try:
                    found.setdefault((name, value), []).append(once(name, value))
                except UserError as error:
                    stopped[name] = (value, str(error))
    rows = []
    for name in names:
        points = [point(value, found[name, value]) for value in values if found.get((name, value))]
        row: dict[str, Any] = {"who": name, "points": points}
        if name in stopped:
            row["stopped"] = {"at": stopped[name][0], "why": stopped[name][1]}
        rows.append(row)
    return rows


def point(value: int, runs: list[Point]) -> Point:
    """One point of a row."""
    combined: Point = {"value": value}
    for name in runs[0]:
        every = [run[name] for run in runs]
        combined[name] = sum(every) if name == "lost" else statistics.median(every)
    return combined | {"runs": runs}


def connections(names: list[str], values: list[int], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Half round trips of one connection beside so many that are idle, and how many a second were opened on the way,
    both stacks in turns."""
    with contextlib.ExitStack() as stack:
        veth = None
        if arguments.ring == "xdp":
            veth = stack.enter_context(VethPair())
        pairs: dict[str, _bench_connections.Pair] = {}
        opened: dict[str, int] = dict.fromkeys(names, 0)
        for name in names:
            pairs[name] = stack.enter_context(_bench_connections.pair(Way(name).stack, veth))

        def once(name: str, value: int) -> Point:
            pair, more = pairs[name], value - opened[name]
            each: Point = {}
            if more > 0:
                answer = _bench_connections.opened(pair, Way(name).stack, more)
                opened[name] = value
                each = {"opened_per_s": answer["opened_per_s"]}
            pings = [pair.order(f"ping {arguments.seconds / arguments.runs}") for _ in range(arguments.runs)]
            return {key: statistics.median(ping[key] for ping in pings) for key in ("p50_us", "p99_us")} | each

        return turns(names, values, 1, once)


def sweep(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows."""
    names, values = rows_of(arguments), values_of(arguments)
    if arguments.over == "connections":
        return connections(names, values, arguments)
    load = Load(arguments.proto == "tcp", arguments.size, arguments.seconds)
    with WIRES[arguments.ring]() as wire:
        if arguments.over == "size":
            return turns(names, values, arguments.runs, lambda name, size: at_size(Way(name), wire, replace(load, size=size)))
        return turns(names, values, arguments.runs, lambda name, rate: at_rate(Way(name), wire, load, rate))


HEADS = {
    "size": (("p50_us", "p50 µs"), ("p99_us", "p99 µs"), ("rate_mps", "messages/s"), ("gbps", "Gbit/s"), ("lost", "lost")),
    "rate": (
        ("p50_us", "p50 µs"),
        ("p99_us", "p99 µs"),
        ("p99.9_us", "p99.9 µs"),
        ("sent_p99_us", "p99 from sending"),
        ("sent_mps", "sent/s"),
        ("lost", "lost"),
    ),
    "connections": (("p50_us", "p50 µs"), ("p99_us", "p99 µs"), ("opened_per_s", "opened/s")),
}


def cell(name: str, row: Point) -> str:
    """A figure for people."""
    if name not in row:
        return "-"
    return microseconds(row[name]) if name.endswith("_us") else f"{row[name]:.2f}" if name == "gbps" else f"{row[name]:,.0f}"


def table(report: dict[str, Any]) -> Table:
    """A line a point."""
    what = f"{report['proto'].upper()}, {report['ring']}, over {report['over']}"
    out = Table(title=f"{what}; medians of {report['run_count']} runs", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    out.add_column("who", no_wrap=True)
    for title in (report["over"], *(title for _, title in HEADS[report["over"]])):
        out.add_column(title, justify="right", no_wrap=True)
    for row in report["rows"]:
        for at in row["points"]:
            out.add_row(row["who"], f"{at['value']:,}", *(cell(name, at) for name, _ in HEADS[report["over"]]))
    return out


def show(console: Console, report: dict[str, Any]) -> None:
    """Prints the report."""
    console.print(_bench_host.said(report["host"]), highlight=False)
    console.print(table(report))
    for row in report["rows"]:
        if "stopped" in row:
            console.print(f"{row['who']} ends before {row['stopped']['at']:,}: {row['stopped']['why']}", highlight=False)
    if report["over"] == "rate":
        text = "whole round trips, from the moment when a message was due: one that its sender was late to send has waited that long"
        console.print(text, highlight=False)
    _bench_host.show_distance(console, report["cache_line_ns"])


def flat(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A line a point."""
    for row in report["rows"]:
        for at in row["points"]:
            yield {"who": row["who"], report["over"]: at["value"]} | _bench_output.plain({**at, "value": []})


def plots(report: dict[str, Any]) -> Iterable[_bench_plot.Plot]:
    """Latency, and over sizes what arrives."""
    stem, over = _bench_output.stem_of(report), report["over"]
    size = "" if over == "size" else f", {report['size']} bytes"
    title = f"{report['proto'].upper()}{size}, {report['ring']}"
    x = {"size": "bytes of a message", "rate": "messages due a second", "connections": "open connections"}[over]

    def lines(name: str) -> dict[str, list[tuple[float, float]]]:
        return {row["who"]: [(at["value"], at[name]) for at in row["points"] if name in at] for row in report["rows"]}

    what = "round trip from the moment due" if over == "rate" else "half round trip"
    for name in ("p50", "p99"):
        yield _bench_plot.Plot(f"{stem}-{name}", f"{title}: {name} over {x}", x, f"{what}, {name}, µs", lines(f"{name}_us"))
    if over == "size":
        yield _bench_plot.Plot(f"{stem}-rate", f"{title}: messages a second, one way", x, "messages/s", lines("rate_mps"))
        yield _bench_plot.Plot(f"{stem}-gbps", f"{title}: payload, one way", x, "Gbit/s", lines("gbps"))


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    if arguments.runs < 1:
        raise UserError("--runs has to be above 0")
    if not 14 <= arguments.size <= MTU - UDP_HEADERS:
        raise UserError(f"--size has to be from 14 (the header) to {MTU - UDP_HEADERS} bytes")
    _bench_output.check(arguments)
    if arguments.over == "connections":
        arguments.proto = "tcp"
    report = _bench_output.head("sweep", arguments) | {"host": _bench_host.host()}
    floors = [_bench_host.line(0.2)]
    report |= {name: getattr(arguments, name) for name in ("over", "ring", "proto", "seconds")}
    report |= {"run_count": arguments.runs, "size": None if arguments.over == "size" else arguments.size}
    report["rows"] = sweep(arguments)
    floors.append(_bench_host.line(0.2))
    report["cache_line_ns"] = _bench_host.distance(floors)
    return _bench_output.deliver(report, arguments, lambda console: show(console, report), flat, plots)
