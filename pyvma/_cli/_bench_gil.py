"""`pyvma bench gil`: an echo server beside a thread of pure Python that always wants the GIL, on every kind of socket and loop."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import UserError, _bench_output
from ._bench_compare import WIRES, microseconds
from ._bench_host import distance, host, line
from ._bench_loops import peer_command, stack_of
from ._bench_run import Peer, c_command, cpus, running
from ._bench_wire import Wire
from ._help import seconds

ROWS = ("kernel-py", "pyvma-py", "uvloop", "pyvma-asyncio-busy", "pyvma-asyncio-fd")
RIVALS = {"pyvma-py": "kernel-py", "pyvma-asyncio-busy": "uvloop", "pyvma-asyncio-fd": "uvloop"}
FIGURES = ("p50_us", "p99_us")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--ring", choices=list(WIRES), default="softnic", help="what pyvma's rows run over; xdp: a veth pair, needs root")
    parser.add_argument("--proto", choices=["udp", "tcp"], default="udp", help="datagrams (default), or one connection")
    parser.add_argument("--size", type=int, default=64, help="bytes of a message (default 64)")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"which rows, separated by commas (default all: {','.join(ROWS)})")
    parser.add_argument(
        "--seconds", type=seconds(0.001), default=2.0, help="time for a row in a run: half alone, half beside the thread (default 2)"
    )
    parser.add_argument("--runs", type=int, default=5, help="runs; the table shows medians (default 5)")
    _bench_output.add_arguments(parser)


def measure(api: str, wire: Wire, spinner: bool, arguments: argparse.Namespace) -> dict[str, float]:
    """Half round trips of a C client that sleeps while it waits: two processes, three busy threads at most."""
    wire.fresh()
    ends = wire.ends(stack_of(api))
    stack = "kernel" if wire.kernel_peer else stack_of(api)
    tcp, seconds = arguments.proto == "tcp", arguments.seconds / 2
    server_command = peer_command(api, wire, 0, "echo", tcp=tcp, size=arguments.size, ends=ends, spinner=spinner)
    options: dict[str, Any] = {"local": "{}:{}".format(*ends[1]), "remote": "{}:{}".format(*ends[0]), "tcp": tcp, "block": True}
    options |= {"size": arguments.size, "seconds": seconds, "interfaces": wire.interface(1) if stack == "pyvma" else None}
    with running(Peer(server_command, clean=True, inside=wire.inside(0))) as server:
        server.ready()
        with running(Peer(c_command("ping-pong", stack, cpus()[1], **options), clean=True, inside=wire.inside(1))) as client:
            answer = client.result(seconds)
        server.stop()
    if "p50_us" not in answer:
        raise UserError(f"{api}: too short a run: nothing was measured")
    return {name: answer[name] for name in FIGURES}


def combine(runs: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Medians of each half."""
    row: dict[str, Any] = {
        half: {name: statistics.median(run[half][name] for run in runs) for name in FIGURES} for half in ("alone", "beside")
    }
    return row | {"runs": runs}


def table(report: dict[str, Any], arguments: argparse.Namespace) -> Table:
    """The table of a report."""
    title = f"{arguments.proto.upper()}, {arguments.size} bytes, {arguments.ring}; medians of {arguments.runs} runs; half round trip in µs"
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    out.add_column("who", no_wrap=True)
    for name in ("p50 alone", "p99 alone", "p50 beside", "p99 beside", "p50", "p99"):
        out.add_column(name, justify="right", no_wrap=True)
    for api, row in report["rows"].items():
        figures = [microseconds(row[half][name]) for half in ("alone", "beside") for name in FIGURES]
        rival = report["rows"].get(RIVALS.get(api, ""))
        ratios = [f"{row['beside'][name] / rival['beside'][name]:.3f} x" if rival else "-" for name in FIGURES]
        out.add_row(api, *figures, *ratios)
    return out


def run(arguments: argparse.Namespace) -> int:
    """All rows in turns, and the table."""
    names = [name.strip() for name in arguments.rows.split(",") if name.strip()]
    if not names or any(name not in ROWS for name in names):
        raise UserError(f"--rows: one or more of {', '.join(ROWS)}")
    if not 14 <= arguments.size <= 1472:
        raise UserError("--size has to be from 14 (the header) to 1472 bytes")
    if arguments.runs < 1:
        raise UserError("--runs has to be above 0")
    _bench_output.check(arguments)
    floor = line(0.2)
    report = _bench_output.head("gil", arguments) | {"host": host(), "cache_line_ns": distance([floor]), "line_us": floor}
    report |= {"interval_s": sys.getswitchinterval(), "run_count": arguments.runs}
    report |= {name: getattr(arguments, name) for name in ("ring", "proto", "size", "seconds")}
    runs: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in names}
    with WIRES[arguments.ring]() as wire:
        for number in range(arguments.runs):
            for name in names if number % 2 == 0 else names[::-1]:
                runs[name].append({half: measure(name, wire, half == "beside", arguments) for half in ("alone", "beside")})
    report["rows"] = {name: combine(runs[name]) for name in names}
    return _bench_output.deliver(report, arguments, lambda console: show(console, report, arguments), flat)


def flat(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A line a row; each half's figures have its name in front."""
    for api, row in report["rows"].items():
        yield {"who": api} | {f"{half}_{name}": row[half][name] for half in ("alone", "beside") for name in FIGURES}


def show(console: Console, report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Prints the report."""
    console.print(table(report, arguments))
    interval = 1e3 * report["interval_s"]
    text = f"beside: a thread of pure Python in the server's process; it gives the GIL back after {interval:g} ms when asked"
    console.print(text, highlight=False)
    console.print("last columns: beside it, times the kernel's row of the same kind", highlight=False)
