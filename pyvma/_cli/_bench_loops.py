"""`pyvma bench compare --api asyncio`: the same protocols on asyncio's, uvloop's and our event loop, in turns, and one table."""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import UserError, _bench_output, module
from ._bench_host import distance, host, line, said, show_distance
from ._bench_run import Peer, c_command, cpus, running
from ._bench_wire import Wire

ROWS = ("asyncio", "uvloop", "pyvma-asyncio-busy", "pyvma-asyncio-fd")
RIVAL = "uvloop"
CONNECTIONS = 64
LOADS = {"pyvma": "AF_XDP, for all rows", "kernel": "kernel sockets, for all rows"}
FIGURES = ("p50_us", "p99_us", "echo_per_s", "http_per_s")


def stack_of(api: str) -> str:
    """Whose sockets the loop of a row has."""
    return "pyvma" if api.startswith("pyvma") else "kernel"


def peer_command(api: str, wire: Wire, number: int, role: str, **more: Any) -> list[str]:
    """Command line of the Python process at that end."""
    ends = wire.ends(stack_of(api)) if "ends" not in more else more.pop("ends")
    where = {"local": ends[number], "remote": ends[1 - number], "interface": wire.interface(number)}
    task = {"role": role, "api": api, "cpu": cpus()[number], "size": 64, "seconds": 1.0, "tcp": True, **where, **more}
    return module("pyvma._cli._bench_loop_peer", json.dumps(task))


def half_round_trips(api: str, wire: Wire, tcp: bool, size: int, seconds: float) -> dict[str, Any]:
    """A server and a client of the same loop."""
    wire.fresh()
    more = {"tcp": tcp, "size": size, "seconds": seconds, "ends": wire.ends(stack_of(api))}
    with running(Peer(peer_command(api, wire, 0, "echo", **more), clean=True, inside=wire.inside(0))) as server:
        server.ready()
        with running(Peer(peer_command(api, wire, 1, "ping-pong", **more), clean=True, inside=wire.inside(1))) as client:
            answer = client.result(seconds)
        server.stop()
    if "p50_us" not in answer:
        raise UserError("too short a run: nothing was measured")
    return {"p50_us": answer["p50_us"], "p99_us": answer["p99_us"], "timeouts": answer["timeouts"]}


def requests(api: str, wire: Wire, tcp: bool, size: int, seconds: float, http: bool, load: str) -> dict[str, Any]:
    """What a server of that loop answers, asked by the C program: over the same stack for all rows wherever that reaches them."""
    wire.fresh()
    ends = wire.ends(stack_of(api))
    stack = load if wire.kernel_peer else stack_of(api)
    options: dict[str, Any] = {"remote": "{}:{}".format(*ends[0]), "connections": CONNECTIONS, "seconds": seconds, "size": size}
    options |= {"tcp": tcp, "http": http, "interfaces": wire.interface(1) if stack == "pyvma" else None}
    server_command = peer_command(api, wire, 0, "http" if http else "echo", tcp=tcp, ends=ends)
    with running(Peer(server_command, clean=True, inside=wire.inside(0))) as server:
        server.ready()
        with running(Peer(c_command("load", stack, cpus()[1], **options), clean=True, inside=wire.inside(1))) as client:
            answer = client.result(seconds)
        server.stop()
    return answer


def has_http() -> bool:
    return importlib.util.find_spec("httptools") is not None


def run_row(api: str, wire: Wire, arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures of one row, once."""
    tcp, share = arguments.proto == "tcp", arguments.seconds / 3
    try:
        row = half_round_trips(api, wire, tcp, arguments.size, share)
        echo = requests(api, wire, tcp, arguments.size, share, False, arguments.load)
        row |= {"echo_per_s": echo["requests_per_s"], "echo_p99_us": echo["p99_us"], "lost": echo["lost"]}
        if tcp and has_http():
            http = requests(api, wire, tcp, arguments.size, share, True, arguments.load)
            row |= {"http_per_s": http["requests_per_s"], "http_p99_us": http["p99_us"]}
    except UserError as error:
        raise UserError(f"{api}: {error}") from None
    return row


def combine(api: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians."""
    return {"who": api} | {name: statistics.median(run[name] for run in runs) for name in runs[0]} | {"runs": runs}


def ratios(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Every row over uvloop's."""
    by = {row["who"]: row for row in rows}
    rival = by.get(RIVAL, {})
    return {
        name: {row["who"]: row[name] / rival[name] for row in rows if row is not rival and name in row}
        for name in FIGURES
        if rival.get(name)
    }


def table(report: dict[str, Any], arguments: argparse.Namespace) -> Table:
    """The table of a report."""
    title = (
        f"event loops, {arguments.proto.upper()}, {arguments.size} bytes, {arguments.ring}; medians of {arguments.runs} runs; "
        "half round trip in µs"
    )
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    out.add_column("who", no_wrap=True)
    http = "http_per_s" in report["rows"][0]
    heads = ["p50", "p99", "echo/s", *(["http/s"] if http else []), "lost", "p50", "echo/s", *(["http/s"] if http else [])]
    for name in heads:
        out.add_column(name, justify="right", no_wrap=True)
    against = report["ratios"]
    for row in report["rows"]:
        figures = [f"{row['p50_us']:.2f}", f"{row['p99_us']:.2f}", f"{row['echo_per_s']:,.0f}"]
        figures += [f"{row['http_per_s']:,.0f}"] if http else []
        names = ["p50_us", "echo_per_s", *(["http_per_s"] if http else [])]
        ratio = [f"{against[name][row['who']]:.2f} x" if row["who"] in against.get(name, {}) else "-" for name in names]
        out.add_row(row["who"], *figures, f"{row['lost']:,.0f}", *ratio)
    return out


def run(arguments: argparse.Namespace, wires: dict[str, type[Wire]]) -> int:
    """Runs all rows in turns and prints the table."""
    names = [name.strip() for name in (arguments.rows or ",".join(ROWS)).split(",") if name.strip()]
    unknown = [name for name in names if name not in ROWS]
    if unknown or not names:
        raise UserError(f"--rows: there is no row {', '.join(unknown) or 'at all'}; rows: {', '.join(ROWS)}")
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    floors: list[float | None] = []
    with wires[arguments.ring]() as wire:
        for number in range(arguments.runs):
            floors.append(line(min(0.3, arguments.seconds)))
            for name in names[:: 1 if number % 2 == 0 else -1]:
                runs[name].append(run_row(name, wire, arguments))
    rows = [combine(name, runs[name]) for name in names]
    measured = [floor for floor in floors if floor is not None]
    report = _bench_output.head("loops", arguments) | {"host": host(), "cache_line_ns": distance(floors), "rows": rows}
    report |= {"ratios": ratios(rows), "line_us_runs": measured, "run_count": arguments.runs}
    report |= {name: getattr(arguments, name) for name in ("ring", "proto", "size", "seconds", "load")}
    report |= {"connections": CONNECTIONS, "line_us": statistics.median(measured) if measured else None}
    return _bench_output.deliver(report, arguments, lambda console: show(console, report, arguments))


def show(console: Console, report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Prints the report."""
    console.print(said(report["host"]), highlight=False)
    console.print(table(report, arguments))
    console.print(
        f"last columns: times {RIVAL}'s; half round trips have the same loop at both ends, servers {CONNECTIONS} connections",
        highlight=False,
    )
    load = LOADS[arguments.load] if arguments.ring == "xdp" else "the row's own stack (kernel: over loopback)"
    console.print(f"the servers' load is one C client over {load}", highlight=False)
    if arguments.proto == "tcp" and not has_http():
        console.print("no figures of an HTTP server: httptools is not installed", highlight=False)
    show_distance(console, report["cache_line_ns"])
