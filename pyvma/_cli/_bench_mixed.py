"""`pyvma bench mixed`: short requests beside a bulk stream, two TCP connections in one engine and one thread, against each alone."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import UserError, _bench_output
from ._bench_compare import WIRES, microseconds
from ._bench_host import distance, host, line, show_distance
from ._bench_run import Peer, c_command, cpus, running
from ._bench_wire import Wire
from ._help import seconds

STACKS = ("pyvma", "kernel")
FIGURES = ("p50_us", "p99_us", "p99.9_us")
PHASES = ("requests", "bulk", "both")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--ring", choices=list(WIRES), default="softnic", help="what pyvma's rows run over; xdp: a veth pair, needs root")
    parser.add_argument("--stacks", default=",".join(STACKS), help=f"separated by commas (default {','.join(STACKS)})")
    parser.add_argument("--size", type=int, default=64, help="bytes of a request and of its reply (default 64)")
    parser.add_argument("--gap", type=int, default=50, help="microseconds from one request to the next (default 50)")
    parser.add_argument("--chunk", type=int, default=8192, help="bytes of the bulk stream in one call (default 8192)")
    parser.add_argument("--seconds", type=seconds(0.001), default=3.0, help="time in a run: requests alone, bulk alone, both (default 3)")
    parser.add_argument("--runs", type=int, default=5, help="runs; the table shows medians (default 5)")
    _bench_output.add_arguments(parser)


def measure(stack: str, phase: str, wire: Wire, arguments: argparse.Namespace) -> dict[str, float]:
    """One phase: half round trips of the requests, Gbit/s of the stream as it arrives."""
    wire.fresh()
    pin, ends = cpus(), wire.ends(stack)
    load = {"gap": 0 if phase == "bulk" else arguments.gap, "chunk": 0 if phase == "requests" else arguments.chunk, "size": arguments.size}

    def command(number: int, role: str, **more: Any) -> list[str]:
        if stack == "pyvma":
            more["interfaces"] = wire.interface(number)
        return c_command(role, stack, pin[number], **load, **more)

    try:
        there = command(0, "server", mixed=True, local="{}:{}".format(*ends[0]))
        here = command(1, "mixed", remote="{}:{}".format(*ends[0]), seconds=arguments.seconds / 3)
        with running(Peer(there, clean=True, inside=wire.inside(0))) as server:
            server.ready()
            with running(Peer(here, clean=True, inside=wire.inside(1))) as client:
                asked = client.result(arguments.seconds)
                served = server.stop()
    except UserError as error:
        raise UserError(f"{stack}: {error}") from None
    result: dict[str, float] = {}
    if phase != "bulk":
        if "p50_us" not in asked:
            raise UserError(f"{stack}: too short a run: nothing was measured")
        result |= {name: asked[name] for name in FIGURES}
        result["requests_per_s"] = asked["received"] / asked["seconds"]
    if phase != "requests":
        result["gbps"] = served["bytes"] * 8 / served["seconds"] / 1e9 if served["seconds"] else 0.0
    return result


def combine(runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians of each phase, and what the load does: times the p99 alone, part of the rate alone (medians of the runs' own ratios)."""
    row: dict[str, Any] = {
        phase: {name: statistics.median(run[name] for run in runs[phase]) for name in runs[phase][0]} for phase in PHASES
    }
    alone, bulk, both = (runs[phase] for phase in PHASES)
    for name in FIGURES:
        row[f"{name.removesuffix('_us')}_times"] = statistics.median(b[name] / a[name] for a, b in zip(alone, both, strict=True))
    row["bulk_part"] = statistics.median(b["gbps"] / a["gbps"] if a["gbps"] else 0.0 for a, b in zip(bulk, both, strict=True))
    row["runs"] = runs
    return row


def table(report: dict[str, Any], arguments: argparse.Namespace) -> Table:
    """The table of a report."""
    title = (
        f"TCP, {arguments.size}-byte requests every {arguments.gap} µs beside a stream of {arguments.chunk} bytes a call, "
        f"{arguments.ring}; medians of {arguments.runs} runs; half round trip in µs"
    )
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    out.add_column("who", no_wrap=True)
    for name in ("p50 alone", "p50 beside", "p99 alone", "p99 beside", "p99", "bulk alone", "bulk beside", "bulk"):
        out.add_column(name, justify="right", no_wrap=True)
    for stack, row in report["rows"].items():
        alone, bulk, both = (row[phase] for phase in PHASES)
        times = [microseconds(value) for name in ("p50_us", "p99_us") for value in (alone[name], both[name])]
        rates = [f"{bulk['gbps']:.2f}", f"{both['gbps']:.2f}", f"{100 * row['bulk_part']:.0f} %"]
        out.add_row(f"{stack}-c", *times, f"{row['p99_times']:.2f} x", *rates)
    return out


def run(arguments: argparse.Namespace) -> int:
    """All phases of all stacks in turns, and the table."""
    names = [name.strip() for name in arguments.stacks.split(",") if name.strip()]
    if not names or any(name not in STACKS for name in names):
        raise UserError(f"--stacks: one or more of {', '.join(STACKS)}")
    if not 14 <= arguments.size <= 4096 or arguments.gap < 1 or arguments.chunk < 1:
        raise UserError("--size has to be from 14 to 4096 bytes, --gap and --chunk above 0")
    if arguments.runs < 1:
        raise UserError("--runs has to be above 0")
    _bench_output.check(arguments)
    floor = line(0.2)
    report = _bench_output.head("mixed", arguments) | {"host": host(), "cache_line_ns": distance([floor]), "line_us": floor, "rows": {}}
    report["run_count"] = arguments.runs
    report |= {name: getattr(arguments, name) for name in ("ring", "size", "gap", "chunk", "seconds")}
    runs: dict[str, dict[str, list[dict[str, float]]]] = {name: {phase: [] for phase in PHASES} for name in names}
    with WIRES[arguments.ring]() as wire:
        for number in range(arguments.runs):
            for name in names if number % 2 == 0 else names[::-1]:
                for phase in PHASES:
                    runs[name][phase].append(measure(name, phase, wire, arguments))
    report["rows"] = {name: combine(runs[name]) for name in names}
    return _bench_output.deliver(report, arguments, lambda console: show(console, report, arguments), flat)


def flat(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A line a stack; each phase's figures have its name in front."""
    for stack, row in report["rows"].items():
        phases = {f"{phase}_{name}": value for phase in PHASES for name, value in row[phase].items()}
        yield {"who": f"{stack}-c"} | phases | _bench_output.plain(row)


def show(console: Console, report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Prints the report."""
    console.print(table(report, arguments))
    console.print("p99: times the one alone; bulk: Gbit/s, and the part of the rate alone that is left")
    show_distance(console, report["cache_line_ns"])
