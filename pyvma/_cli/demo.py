"""`pyvma demo`: a UDP ping-pong of two Python processes over raw-Ethernet queue pairs, beside the same over kernel sockets."""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import subprocess
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from . import UserError

LABEL_WIDTH = 12
SCALE_FROM_US = 1 / 32
# Shares below this are left out of the picture; the table has the tail's quantiles.
RARE = 0.0005
LIMIT_S = 60.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = commands.add_parser("demo", help="a ping-pong of two processes over the software NIC, beside kernel sockets")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each of the three ways (default 2)")
    parser.add_argument("--size", type=int, default=64, help="bytes of a datagram, 8 to 1472 (default 64)")


def start(task: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pyvma._cli._demo_peer", json.dumps(task)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=LIMIT_S)
    if process.returncode:
        raise UserError(errors.strip().splitlines()[-1] if errors.strip() else f"a peer ended with status {process.returncode}")
    result: dict[str, Any] = json.loads(out)
    return result


def ping_pong(stack: str, spin: bool, arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs both processes and returns what client and server said."""
    fabric = f"demo{secrets.token_hex(4)}"
    cpus: list[int | None] = [*sorted(os.sched_getaffinity(0))[:2]]
    if len(cpus) < 2:
        cpus = [None, None]
    common = {"stack": stack, "spin": spin, "size": arguments.size, "seconds": arguments.seconds}
    hosts = ("10.42.0.1", "10.42.0.2") if stack == "pyvma" else ("127.0.0.1", "127.0.0.1")

    def task(number: int, **more: Any) -> dict[str, Any]:
        interface = f"softnic:fabric={fabric},port={number},addr={hosts[number]}/24"
        return {**common, "cpu": cpus[number], "host": hosts[number], "interface": interface, **more}

    server = start(task(0, role="server"))
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line:
        finish(server)
        raise UserError("the server said nothing")
    client = start(task(1, role="client", peer=[hosts[0], json.loads(line)["port"]]))
    try:
        return finish(client), finish(server)
    except BaseException:
        for process in (client, server):
            process.kill()
            process.communicate()
        raise


def quantile(ordered: list[int], q: float) -> float:
    """Half of the round trip at quantile q, in microseconds."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] / 2000


def bucket(round_trip_ns: int) -> int:
    """The power of two of microseconds that half of the round trip lies above."""
    return math.floor(math.log2(max(round_trip_ns / 2000, SCALE_FROM_US)))


def histogram(rows: list[tuple[str, list[int]]], width: int) -> Table:
    """One bar for each way and each octave; the bars of one way add up to all of its messages."""
    bar = (width - LABEL_WIDTH) // len(rows) - 3
    table = Table(title="half round trip, share of messages", title_justify="left", box=None, padding=(0, 1))
    table.add_column("from", justify="right", min_width=LABEL_WIDTH - 2, no_wrap=True)
    counts: list[dict[int, int]] = []
    for name, times in rows:
        table.add_column(name, width=bar)
        count: dict[int, int] = {}
        for value in times:
            count[bucket(value)] = count.get(bucket(value), 0) + 1
        counts.append(count)
    for step in range(min(map(min, counts)), max(map(max, counts)) + 1):
        shares = [count.get(step, 0) / sum(count.values()) for count in counts]
        if max(shares) >= RARE:
            bars = ["█" * round(share * (bar - 7)) + f" {share:.1%}" if share >= RARE else "" for share in shares]
            table.add_row(f"{2.0**step:.2f} µs", *bars)
    return table


def run(arguments: argparse.Namespace) -> int:
    """Runs the three ways and prints table, histogram and where the datagrams went."""
    if not 8 <= arguments.size <= 1472:
        raise UserError("--size has to be from 8 to 1472 bytes")
    if arguments.seconds <= 0:
        raise UserError("--seconds has to be above 0")
    console = Console()
    console.print(
        "Two Python processes, one socket each, the same few lines of code: `import pyvma.socket as socket`, or without `pyvma.` "
        f"{arguments.size}-byte datagrams to and fro, each process pinned to a CPU of its own.\n"
    )
    table = Table(title="half round trip in µs", title_justify="left")
    for column in ("stack", "waits by", "p50", "p99", "p99.9", "messages/s"):
        table.add_column(column, justify="left" if column in ("stack", "waits by") else "right")
    rows, medians = [], []
    ways = (("pyvma", False, "polling the queue pair"), ("kernel", False, "sleeping"), ("kernel", True, "asking again"))
    for stack, spin, how in ways:
        client, server = ping_pong(stack, spin, arguments)
        times = client["round_trips_ns"]
        if not times:
            raise UserError("too short a run: nothing was measured")
        rows.append((f"{stack}, {how}", times))
        medians.append(quantile(times, 0.5))
        figures = [f"{quantile(times, q):.2f}" for q in (0.5, 0.99, 0.999)]
        table.add_row(stack, how, *figures, f"{len(times) / (sum(times) / 1e9):,.0f}")
        if stack == "pyvma":
            proof = (client, server)
    console.print(table)
    console.print()
    console.print(histogram(rows, min(console.width, 120)))
    client, server = proof
    engine = client["engine"]["udp.tx_datagrams"], server["engine"]["udp.rx_datagrams"]
    console.print(
        f"\nThe pyvma row went through [bold]{client['offload']}[/bold]: the client's engine sent {engine[0]:,} datagrams, the server's"
    )
    console.print(
        f"received {engine[1]:,}; the kernel carried none. Against sleeping kernel sockets: {medians[1] / medians[0]:.1f} times as fast."
    )
    if engine[1] < client["datagrams"]:
        raise UserError("not all datagrams went through the engine")
    return 0
