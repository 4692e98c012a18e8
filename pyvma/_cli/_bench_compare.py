"""`pyvma bench compare`: the same exchange of datagrams by every way there is, in turns, and one table."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import UserError, _bench_hist, _bench_host, _bench_loops, _bench_output, _bench_plot
from ._bench_host import host, line
from ._bench_run import Peer, c_command, cpus, python_command, running
from ._bench_softnic import SoftnicWire
from ._bench_tap import TapWire
from ._bench_wire import Wire
from ._bench_xdp import XdpWire
from ._help import seconds

WIRES: dict[str, type[Wire]] = {"softnic": SoftnicWire, "xdp": XdpWire}
HERE: dict[str, type[Wire]] = {**WIRES, "tap": TapWire}  # the others want an engine at both ends
QUANTILES = ("p50", "p99", "p99.9", "p99.99")
LATENCIES = ("min_us", "avg_us", *(f"p{step:g}_us" for step in _bench_hist.LADDER), "max_us")
# Messages under way at most in the throughput rows, so that none needs to be lost: half of a ring, or what fits into the kernel's
# default limit of a receive buffer (208 KiB, at 768 bytes a small message).
WINDOW = {"raw": 512, "pyvma": 512, "kernel": 256}
# What a stack that spins is set to where half a round trip is what counts; a rate is measured with the defaults.
PRESET = "latency"
# Bytes in one call of the bulk stream (--proto tcp); a raw ring moves frames as full as a segment of that stream.
BULK = 1 << 16
MTU = 1500
KERNEL_BUFFER = 208 << 10
UDP_HEADERS = 28
BATCH = {"raw": 32, "pyvma-c": 32, "pyvma-py": 64, "kernel-c-block": 32, "kernel-c-spin": 32, "kernel-py-block": 32, "kernel-py-spin": 32}


@dataclass(frozen=True)
class Way:
    """One row: who exchanges the messages."""

    who: str

    @property
    def stack(self) -> str:
        return self.who.split("-")[0]

    @property
    def python(self) -> bool:
        return "-py" in self.who

    @property
    def block(self) -> bool:
        return self.who.endswith("-block")


WAYS = tuple(BATCH)
LATENCY_RATIOS = (
    ("pyvma-c", "raw"),
    ("pyvma-py", "pyvma-c"),
    ("pyvma-py", "raw"),
    ("kernel-c-block", "pyvma-c"),
    ("kernel-c-spin", "pyvma-c"),
    ("kernel-py-block", "pyvma-py"),
    ("kernel-py-spin", "pyvma-py"),
)
BULK_RATIOS = (("pyvma-c", "raw"), ("pyvma-c", "kernel-c-block"), ("pyvma-py", "pyvma-c"), ("pyvma-py", "kernel-py-block"))
RATE_RATIOS = tuple((fast, slow) for slow, fast in LATENCY_RATIOS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--ring",
        choices=list(HERE),
        default="softnic",
        help="what the raw and pyvma rows run over; xdp: AF_XDP on a veth pair; tap: a TAP device, with the kernel as the client; "
        "both need root",
    )
    parser.add_argument(
        "--proto", choices=["udp", "tcp"], default="udp", help="datagrams, or one connection, which also moves 64 KiB a call in bulk"
    )
    parser.add_argument(
        "--api", choices=["socket", "asyncio"], default="socket", help="sockets from C and Python (default), or event loops of asyncio's"
    )
    parser.add_argument(
        "--load",
        choices=list(_bench_loops.LOADS),
        default="pyvma",
        help="event loops over xdp: what the client that loads the servers has, whoever serves (default pyvma: the quicker one)",
    )
    parser.add_argument("--size", type=int, default=64, help="bytes of a message (default 64)")
    parser.add_argument(
        "--seconds", type=seconds(0.001), default=3.0, help="time for a row in a run: two thirds ping-pong, the rest one way (default 3)"
    )
    parser.add_argument("--runs", type=int, default=5, help="runs; the table shows medians (default 5)")
    parser.add_argument(
        "--rows",
        help=f"which rows, separated by commas (default all: {','.join(WAYS)}; of event loops: {','.join(_bench_loops.ROWS)})",
    )
    _bench_output.add_arguments(parser, plots=True, hdr=True)


@dataclass(frozen=True)
class Load:
    """What is exchanged."""

    tcp: bool
    size: int
    seconds: float
    bulk: bool = False

    def many(self, way: Way, wire: Wire) -> dict[str, int]:
        """Messages a call and under way at most, one way. A bulk stream over a connection is held back by TCP alone."""
        if self.bulk and (way.stack != "raw" or wire.kernel_client):
            return {"batch": 1, "window": 0}
        if self.tcp and self.size > MTU - UDP_HEADERS:
            return {"batch": max(1, min(BATCH[way.who], BULK // self.size)), "window": 0}
        window = min(WINDOW[way.stack], wire.window)
        if way.stack == "kernel":
            # A message takes the power of two that it and its headers fill.
            window = min(window, KERNEL_BUFFER // ((1 << (self.size + 383).bit_length()) + 256))
        else:
            window //= -(-self.size // (MTU - UDP_HEADERS))
        window = max(window, 2)
        return {"batch": min(BATCH[way.who], window // 2), "window": window}


def peers(way: Way, wire: Wire, role: str, load: Load) -> tuple[list[str], list[str]]:
    """Command lines of server and client. A server of more than one message at a time takes what is there."""
    pin, ends = cpus(), wire.ends(way.stack)
    clients = "kernel" if wire.kernel_client else way.stack
    tcp = load.tcp and (way.stack != "raw" or (load.bulk and wire.kernel_client))
    many = load.many(way, wire) if role == "throughput" else {"batch": 1, "window": 0}
    batch = many["batch"], max(many["batch"], 2) if role == "throughput" else 1
    preset = PRESET if role == "ping-pong" and not way.block else None
    if way.python:
        common = {"stack": way.stack, "block": way.block, "tcp": load.tcp, "size": load.size, "seconds": load.seconds, **many}
        common["preset"] = preset
        common["histogram"] = role == "ping-pong"

        def task(number: int, part: str) -> list[str]:
            where = {"local": ends[number], "remote": ends[1 - number], "cpu": pin[number], "interface": wire.interface(number)}
            return python_command({**common, **where, "role": part, "batch": batch[part == "server"]})

        if clients == way.stack:
            return task(0, "server"), task(1, role)

    def command(number: int, part: str) -> list[str]:
        options: dict[str, Any] = {"local": "{}:{}".format(*ends[number]), "remote": "{}:{}".format(*ends[1 - number])}
        options |= {"size": load.size, "batch": batch[part == "server"], "block": way.block, "tcp": tcp}
        if part != "server":
            options |= {"seconds": load.seconds, "window": many["window"], "histogram": role == "ping-pong"}
        stack = way.stack if part == "server" else clients
        if stack == "raw":
            options |= wire.raw(number)
        elif stack == "pyvma":
            options |= {"interfaces": wire.interface(number), "preset": preset}
        return c_command(part, stack, pin[number], **options)

    return task(0, "server") if way.python else command(0, "server"), command(1, role)


def measure(way: Way, wire: Wire, role: str, load: Load) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results of client and server of one measurement."""
    server_command, client_command = peers(way, wire, role, load)
    with running(Peer(server_command, clean=True, inside=wire.inside(0))) as server:
        server.ready()
        with running(Peer(client_command, clean=True, inside=wire.inside(1))) as client:
            answer = client.result(load.seconds)
        return answer, server.stop()


def bulk_rate(way: Way, wire: Wire, load: Load) -> float:
    """Gbit/s of payload that arrived of what was sent as fast as it goes."""
    size = MTU - UDP_HEADERS if way.stack == "raw" and not wire.kernel_client else BULK
    _, receiver = measure(way, wire, "throughput", replace(load, size=size, bulk=True))
    return float(receiver["unique"] * size * 8 / receiver["seconds"] / 1e9) if receiver["seconds"] else 0.0


def kernel_pair(wire: Wire, load: Load, stack: contextlib.ExitStack) -> XdpWire | None:
    """A veth pair for the kernel's bulk stream, where the wire is none; None without root, or where there is no need."""
    if not load.tcp or isinstance(wire, XdpWire) or os.geteuid() != 0:
        return None
    pair = XdpWire()
    try:
        stack.enter_context(pair)
    except (OSError, UserError):
        return None
    return pair


def run_row(way: Way, wire: Wire, load: Load) -> dict[str, Any]:
    """Latency and rate of one row, once."""
    wire.fresh()
    try:
        client, _ = measure(way, wire, "ping-pong", replace(load, seconds=load.seconds * 2 / 3))
        sender, receiver = measure(way, wire, "throughput", replace(load, seconds=load.seconds / 3))
        bulk = bulk_rate(way, wire, replace(load, seconds=load.seconds / 3)) if load.tcp else None
    except UserError as error:
        raise UserError(f"{way.who}: {error}") from None
    if "p50_us" not in client:
        raise UserError(f"{way.who}: too short a run: nothing was measured")
    row: dict[str, Any] = {name: client[name] for name in LATENCIES}
    row["observations"] = client["observations"]
    row["histogram_ns"] = client["histogram_ns"]
    row["rate_mps"] = receiver["unique"] / receiver["seconds"] if receiver["seconds"] else 0.0
    row["lost"] = client["lost"] + sender["sent"] - receiver["unique"]
    for name in ("duplicated", "reordered"):
        row[name] = client[name] + receiver[name]
    if bulk is not None:
        row["bulk_gbps"] = bulk
    return row


def combine(who: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the figures, sums of the counts, one distribution of all latencies."""
    row: dict[str, Any] = {"who": who}
    for name in (*LATENCIES, "rate_mps", "bulk_gbps"):
        if name in runs[0]:
            row[name] = statistics.median(run[name] for run in runs)
    for name in ("lost", "duplicated", "reordered", "observations"):
        if name in runs[0]:
            row[name] = sum(run[name] for run in runs)
    row["histogram_ns"] = _bench_hist.merged(run.get("histogram_ns", []) for run in runs)
    row["runs"] = [{name: value for name, value in run.items() if name != "histogram_ns"} for run in runs]
    return row


def ratios(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How many times as long (p50) and as many (rate) the first of each pair is: medians of the runs' own ratios, since what a virtual
    machine's host does changes more from run to run than from row to row."""
    by = {row["who"]: row for row in rows}
    result: dict[str, dict[str, float]] = {"p50": {}, "rate": {}}
    kinds = [("p50", "p50_us", LATENCY_RATIOS), ("rate", "rate_mps", RATE_RATIOS)]
    if rows and "bulk_gbps" in rows[0]:
        result["bulk"] = {}
        kinds.append(("bulk", "bulk_gbps", BULK_RATIOS))
    for kind, figure, pairs in kinds:
        for one, other in pairs:
            if one in by and other in by:
                pairs_of_runs = zip(by[one]["runs"], by[other]["runs"], strict=True)
                found = [first[figure] / second[figure] for first, second in pairs_of_runs if second[figure]]
                if found:
                    result[kind][f"{one}/{other}"] = statistics.median(found)
    return result


def idle(wire: Wire, seconds: float) -> dict[str, Any]:
    """Resident memory that an engine adds and the CPU time it takes while nobody uses it and its one open socket."""
    wire.fresh()
    options = {"interfaces": wire.interface(0), "local": "{}:{}".format(*wire.ends("pyvma")[0]), "seconds": seconds}
    with running(Peer(c_command("idle", "none", None, **options), clean=True, inside=wire.inside(0))) as peer:
        return peer.result(seconds)


def wake(wire: Wire, stack: str, seconds: float) -> dict[str, Any]:
    """How long after a kernel socket's send at the other end a sleeping C receiver of this stack has the message, once a millisecond."""
    wire.fresh()
    pin = cpus()
    near, far = wire.ends(stack)
    here, there = "{}:{}".format(*near), "{}:{}".format(*far)
    options = {"local": here, "remote": there, "block": True, "interfaces": wire.interface(0) if stack == "pyvma" else None}
    with running(Peer(c_command("server", stack, pin[0], **options), clean=True, inside=wire.inside(0))) as server:
        server.ready()
        sender = c_command("paced", "kernel", pin[1], local=there, remote=here, seconds=seconds)
        with running(Peer(sender, clean=True, inside=wire.inside(1))) as client:
            sent = client.result(seconds)["sent"]
        answer = server.stop()
    if "wake_p50_us" not in answer:
        raise UserError(f"{stack}: a sleeping receiver got nothing")
    return {"p50_us": answer["wake_p50_us"], "p99_us": answer["wake_p99_us"], "lost": sent - answer["unique"]}


def combine_wakes(wakes: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Medians, by stack."""
    return {
        f"{stack}-c": {name: statistics.median(run[name] for run in runs) for name in ("p50_us", "p99_us")}
        | {"lost": sum(run["lost"] for run in runs), "runs": runs}
        for stack, runs in wakes.items()
    }


def later_by(wakes: dict[str, list[dict[str, Any]]]) -> float | None:
    """By how many microseconds pyvma's sleeping receiver is later than the kernel's beside it: the median over the runs, negative when
    it is earlier; None when one of them was not measured. What the host does from run to run hits both."""
    if len(wakes) < 2:
        return None
    pairs = zip(wakes["pyvma"], wakes["kernel"], strict=True)
    return float(statistics.median(ours["p50_us"] - its["p50_us"] for ours, its in pairs))


def microseconds(value: float) -> str:
    """Four digits that mean something."""
    return f"{value:.3f}" if value < 100 else f"{value:.0f}"


def table(report: dict[str, Any], arguments: argparse.Namespace) -> Table:
    """The table of a report."""
    title = f"{arguments.proto.upper()}, {arguments.size} bytes, {arguments.ring}; medians of {arguments.runs} runs; half round trip in µs"
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    out.add_column("who", no_wrap=True)
    bulk = "bulk_gbps" in report["rows"][0]
    for name in (*QUANTILES, "messages/s", *(["bulk Gbit/s"] if bulk else []), "lost", "duplicated", "reordered", "p50", "rate"):
        out.add_column(name, justify="right", no_wrap=True)
    by = {row["who"]: row for row in report["rows"]}
    for row in report["rows"]:
        figures = [microseconds(row[f"{q}_us"]) for q in QUANTILES]
        base = by.get("kernel-py-block" if "-py" in row["who"] else "kernel-c-block")
        counts = [f"{row[name]:,}" for name in ("lost", "duplicated", "reordered")]
        faster = f"{base['p50_us'] / row['p50_us']:.1f} x" if base else "-"
        more = f"{row['rate_mps'] / base['rate_mps']:.1f} x" if base and base["rate_mps"] else "-"
        rates = [f"{row['rate_mps']:,.0f}", *([f"{row['bulk_gbps']:.2f}"] if bulk else [])]
        out.add_row(row["who"], *figures, *rates, *counts, faster, more)
    return out


def beside_veth(row: dict[str, Any], veth: list[float]) -> float:
    """How many times the kernel's bulk rate over the pair a row has: the median of the runs' own ratios."""
    return float(statistics.median(run["bulk_gbps"] / its for run, its in zip(row["runs"], veth, strict=True) if its))


def show(console: Console, report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Prints the report."""
    console.print(_bench_host.said(report["host"]), highlight=False)
    console.print(table(report, arguments))
    console.print("last two columns: how many times as fast as the blocking kernel socket of the same language")
    console.print(f"half round trips of pyvma: preset={PRESET}; the rest with the defaults", highlight=False)
    console.print("medians of the runs' own ratios:")
    frames = "" if HERE[report["ring"]].kernel_client else f", raw: frames of {MTU} bytes"
    for title, kind in (("p50", "p50"), ("messages/s", "rate"), (f"bulk ({BULK >> 10} KiB a call{frames})", "bulk")):
        against = [f"{name.replace('/', ' over ')}: {value:.2f}" for name, value in report["ratios"].get(kind, {}).items()]
        if against:
            console.print(f"{title} of {', '.join(against)}", highlight=False)
    if "veth_bulk_gbps" in report:
        veth, ours = report["veth_bulk_gbps"], [row for row in report["rows"] if row["who"].startswith("pyvma")]
        times = [f"{row['who']} {beside_veth(row, report['veth_bulk_gbps_runs']):.2f} times" for row in ours]
        beside = f": {', '.join(times)} as much" if times else ""
        console.print(f"bulk of the kernel's sockets over a veth pair, in turns with these: {veth:.2f} Gbit/s{beside}", highlight=False)
    _bench_host.show_distance(console, report["cache_line_ns"])
    if "wake" in report:
        both = [f"{name} {microseconds(row['p50_us'])} µs (p99 {microseconds(row['p99_us'])})" for name, row in report["wake"].items()]
        later = report["wake_later_us"]
        beside = "" if later is None else f"; of the runs in turns pyvma's is later by {later:.3f} µs"
        console.print(f"a sleeping receiver has a message of a kernel peer after: {', '.join(both)}{beside}", highlight=False)
    rest = report["idle"]
    console.print(f"idle engine with an open socket: {rest['added_mb']:.1f} MB resident more, {rest['cpu_percent']:.2f} % of a CPU")


def compare(wire: Wire, names: list[str], arguments: argparse.Namespace, pair: XdpWire | None = None) -> dict[str, Any]:
    """All rows in turns, then what is measured once. `pair`: where the kernel's bulk stream is measured once more."""
    load = Load(arguments.proto == "tcp", arguments.size, arguments.seconds)
    over_pair: list[float] = []
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    wakes: dict[str, list[dict[str, Any]]] = {
        stack: [] for stack in ("pyvma", "kernel") if wire.kernel_peer and any(name.startswith(f"{stack}-") for name in names)
    }
    floors = []
    notes = Console(stderr=True)
    facts = host()
    for number in range(arguments.runs):
        floors.append(line(min(0.3, arguments.seconds)))
        turn = 1 if number % 2 == 0 else -1
        # Every second run goes the other way round: what warms up or drifts does not favour the same rows.
        for name in names[::turn]:
            if notes.is_terminal:
                notes.print(f"run {number + 1} of {arguments.runs}: {name}   ", end="\r")
            runs[name].append(run_row(Way(name), wire, load))
        if pair:
            over_pair.append(bulk_rate(Way("kernel-c-block"), pair, replace(load, seconds=load.seconds / 3)))
        for stack in list(wakes)[::turn]:
            wakes[stack].append(wake(wire, stack, max(0.2, min(1.0, arguments.seconds / 3))))
    rows = [combine(name, runs[name]) for name in names]
    measured = [floor for floor in floors if floor is not None]
    report = {
        **_bench_output.head("compare", arguments),
        "host": facts,
        "cache_line_ns": _bench_host.distance(floors),
        "rows": rows,
        "ratios": ratios(rows),
        "line_us": statistics.median(measured) if measured else None,
        "line_us_runs": measured,
        "size": arguments.size,
        "seconds": arguments.seconds,
        "ring": wire.name,
        "proto": arguments.proto,
        "run_count": arguments.runs,
        "idle": idle(wire, max(0.2, min(2.0, arguments.seconds))),
    }
    if over_pair:
        report["veth_bulk_gbps"] = statistics.median(over_pair)
        report["veth_bulk_gbps_runs"] = over_pair
    if wakes:
        report["wake"] = combine_wakes(wakes)
        report["wake_later_us"] = later_by(wakes)
    return report


def plots(report: dict[str, Any]) -> Iterable[_bench_plot.Plot]:
    """The distributions of all rows."""
    found, stem = _bench_output.distributions(report), _bench_output.stem_of(report)
    title = f"{report['proto'].upper()}, {report['size']} bytes, {report['ring']}"
    yield _bench_plot.cdf(stem, f"{title}: distribution of half round trips", found)
    yield _bench_plot.percentiles(stem, f"{title}: half round trips by percentile", found)


def run(arguments: argparse.Namespace) -> int:
    """Runs all rows in turns and prints the table."""
    if not 14 <= arguments.size <= 1472:
        raise UserError("--size has to be from 14 (the header) to 1472 bytes")
    if arguments.runs < 1:
        raise UserError("--runs has to be above 0")
    _bench_output.check(arguments)
    if arguments.api == "asyncio" and arguments.ring not in WIRES:
        raise UserError(f"--ring {arguments.ring}: event loops are compared over {' or '.join(WIRES)}")
    if arguments.api == "asyncio":
        return _bench_loops.run(arguments, WIRES)
    names = [name.strip() for name in (arguments.rows or ",".join(WAYS)).split(",") if name.strip()]
    unknown = [name for name in names if name not in WAYS]
    if unknown or not names:
        raise UserError(f"--rows: there is no row {', '.join(unknown) or 'at all'}; rows: {', '.join(WAYS)}")
    with HERE[arguments.ring]() as wire, contextlib.ExitStack() as stack:
        report = compare(
            wire, names, arguments, kernel_pair(wire, Load(arguments.proto == "tcp", arguments.size, arguments.seconds), stack)
        )
    return _bench_output.deliver(report, arguments, lambda console: show(console, report, arguments), draw=plots)
