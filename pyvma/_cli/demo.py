"""`pyvma demo`: a UDP ping-pong of two Python processes over raw-Ethernet queue pairs, beside the same over kernel sockets.

As root it adds a ping-pong over AF_XDP with a kernel socket in another network namespace.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import select
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from . import UserError, module
from ._help import seconds
from ._veth import VethPair

LABEL_WIDTH = 12
SCALE_FROM_US = 1 / 32
# Shares below this are left out of the picture; the table has the tail's quantiles.
RARE = 0.0005
LIMIT_S = 60.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = commands.add_parser("demo", help="a ping-pong of two processes over the software NIC, beside kernel sockets")
    parser.add_argument("--seconds", type=seconds(0.001), default=2.0, help="time for each of the ways (default 2)")
    parser.add_argument("--no-xdp", action="store_true", help="leave out the part over AF_XDP, which needs root")
    parser.add_argument("--size", type=int, default=64, help="bytes of a datagram, 8 to 1472 (default 64)")


class Measured(NamedTuple):
    """Half round trip in microseconds, and what the processes said."""

    p50: float
    client: dict[str, Any]
    server: dict[str, Any]


@dataclass(frozen=True)
class End:
    """One of the two processes: its stack and where it runs."""

    stack: str
    spin: bool
    host: str
    interface: str = ""
    inside: Sequence[str] = ()


def start(task: dict[str, Any], inside: Sequence[str]) -> subprocess.Popen[str]:
    command = [*inside, *module("pyvma._cli._demo_peer", json.dumps(task))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    try:
        out, errors = process.communicate(timeout=seconds + LIMIT_S)
    except subprocess.TimeoutExpired:
        raise UserError("a peer did not end") from None
    if process.returncode:
        raise UserError(errors.strip().splitlines()[-1] if errors.strip() else f"a peer ended with status {process.returncode}")
    result: dict[str, Any] = json.loads(out)
    return result


def ping_pong(server: End, client: End, arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs both processes and returns what client and server said."""
    cpus: Sequence[int | None] = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        cpus = [None, None]

    def begin(end: End, cpu: int | None, **more: Any) -> subprocess.Popen[str]:
        task = {"stack": end.stack, "spin": end.spin, "host": end.host, "interface": end.interface, "cpu": cpu}
        process = start({**task, "size": arguments.size, "seconds": arguments.seconds, **more}, end.inside)
        started.append(process)
        return process

    started: list[subprocess.Popen[str]] = []
    try:
        answers = begin(server, cpus[0], role="server")
        assert answers.stdout is not None
        there, _, _ = select.select([answers.stdout], [], [], LIMIT_S)
        line = answers.stdout.readline() if there else ""
        if not line:
            if there:
                finish(answers, 0)
            raise UserError("the server said nothing")
        asks = begin(client, cpus[1], role="client", peer=[server.host, json.loads(line)["port"]])
        return finish(asks, arguments.seconds), finish(answers, 0)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()


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


def measure(ways: Sequence[tuple[str, End, End]], title: str, console: Console, arguments: argparse.Namespace) -> list[Measured]:
    """Runs the ways, from how the client waits to its ends, server first, and prints table and histogram."""
    table = Table(title=title, title_justify="left")
    for column in ("stack", "waits by", "p50", "p99", "p99.9", "messages/s"):
        table.add_column(column, justify="left" if column in ("stack", "waits by") else "right")
    rows, done = [], []
    for how, server, client in ways:
        asked, answered = ping_pong(server, client, arguments)
        times = asked["round_trips_ns"]
        if not times:
            raise UserError("too short a run: nothing was measured")
        rows.append((f"{client.stack}, {how}", times))
        done.append(Measured(quantile(times, 0.5), asked, answered))
        figures = [f"{quantile(times, q):.2f}" for q in (0.5, 0.99, 0.999)]
        table.add_row(client.stack, how, *figures, f"{len(times) / (sum(times) / 1e9):,.0f}")
    console.print(table)
    console.print()
    console.print(histogram(rows, min(console.width, 120)))
    return done


def softnic(console: Console, arguments: argparse.Namespace) -> None:
    """Both ends on the software NIC, beside both on the kernel's loopback."""
    fabric = f"demo{secrets.token_hex(4)}"

    def engine(number: int) -> End:
        host = f"10.42.0.{number + 1}"
        return End("pyvma", False, host, f"softnic:fabric={fabric},port={number},addr={host}/24")

    ways = [("polling the queue pair", engine(0), engine(1))]
    for how, spin in (("sleeping", False), ("asking again", True)):
        loopback = End("kernel", spin, "127.0.0.1")
        ways.append((how, loopback, loopback))
    pyvma, sleeping, _ = measure(ways, "half round trip in µs", console, arguments)
    sent, received = pyvma.client["engine"]["udp.tx_datagrams"], pyvma.server["engine"]["udp.rx_datagrams"]
    console.print(
        f"\nThe pyvma row went through [bold]{pyvma.client['offload']}[/bold]: the client's engine sent {sent:,} datagrams, the server's"
    )
    console.print(
        f"received {received:,}; the kernel carried none. Against sleeping kernel sockets: {sleeping.p50 / pyvma.p50:.1f} times as fast."
    )
    if received < pyvma.client["datagrams"]:
        raise UserError("not all datagrams went through the engine")


def xdp(console: Console, arguments: argparse.Namespace) -> None:
    """An interface that the kernel owns: the peer is always a kernel socket, and only the client's stack differs."""
    with VethPair() as pair:
        near, far = pair.hosts
        peer = End("kernel", True, near, inside=pair.inside(0))
        ways = [
            ("polling the ring", peer, End("pyvma", False, far, f"xdp:device={pair.device}", pair.inside(1))),
            ("sleeping", peer, End("kernel", False, far, inside=pair.inside(1))),
            ("asking again", peer, End("kernel", True, far, inside=pair.inside(1))),
        ]
        # What the engine cannot do here is said before anything is printed.
        ready, _ = ping_pong(ways[0][1], ways[0][2], argparse.Namespace(size=arguments.size, seconds=0.1))
        if not ready["offloaded"]:
            raise UserError(ready["offload"])
        console.print("\nThe same client against a kernel socket in another network namespace, over AF_XDP and a veth pair.\n")
        pyvma, sleeping, asking = measure(ways, "half round trip in µs, peer: a kernel socket that asks again", console, arguments)
    sent, received = (pyvma.client["engine"][f"udp.{name}_datagrams"] for name in ("tx", "rx"))
    console.print(f"\nThe pyvma row went through [bold]{pyvma.client['offload']}[/bold]: {sent:,} datagrams sent, {received:,} received.")
    console.print(
        f"Against a sleeping kernel socket: {sleeping.p50 / pyvma.p50:.1f} times as fast; against one that asks again: "
        f"{asking.p50 / pyvma.p50:.1f} times."
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the ways and prints tables, histograms and where the datagrams went."""
    if not 8 <= arguments.size <= 1472:
        raise UserError("--size has to be from 8 to 1472 bytes")
    console = Console()
    console.print(
        "Two Python processes, one socket each, the same few lines of code: `import pyvma.socket as socket`, or without `pyvma.` "
        f"{arguments.size}-byte datagrams to and fro, each process pinned to a CPU of its own.\n"
    )
    softnic(console, arguments)
    if not arguments.no_xdp:
        try:
            xdp(console, arguments)
        except (UserError, OSError) as error:
            console.print(f"\nAF_XDP is left out: {error}", soft_wrap=True, highlight=False, markup=False)
    return 0
