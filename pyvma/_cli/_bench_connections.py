"""`pyvma bench connections`: what many connections cost, over the software NIC beside the kernel's over loopback, and how many of them both
open and close a second over the same veth pair, pyvma on AF_XDP there (root only)."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import statistics
import subprocess
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import UserError, _bench_output
from ._bench_compare import microseconds
from ._bench_host import distance, host, line, show_distance
from ._bench_host import said as said_of
from ._bench_run import GRACE_S, c_command, cpus
from ._bench_softnic import HOSTS, LOOPBACK, PORTS, SoftnicWire
from ._help import seconds
from ._veth import VethPair

SOME = 10_000
"""Connections beside which a busy one must not notice them."""
WINDOWS = (1, 32)
"""Connections opened at a time."""
STEP_S = 120.0
"""What one order may take."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--count", type=int, default=100_000, help="connections that are open at once (default 100000)")
    parser.add_argument("--churn", type=int, default=20_000, help="connections opened, used once and closed, each time (default 20000)")
    parser.add_argument("--seconds", type=seconds(0.001), default=0.3, help="round trips are measured that long at a time (default 0.3)")
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured, in turns; the table has medians (default 5)")
    _bench_output.add_arguments(parser)


EXIT_S = 10.0


class Pair:
    """A server and a client that takes orders; at the two ends of `veth` when there is one."""

    def __init__(self, stack: str, veth: VethPair | None = None) -> None:
        self.said: list[str] = []
        self.veth = veth
        pin = cpus()
        if veth is not None:
            at = f"{veth.hosts[0]}:{random.randrange(10_000, 30_000)}"
            ours: list[dict[str, Any]] = [{"interfaces": f"xdp:device={veth.device}"} if stack == "pyvma" else {}] * 2
        elif stack == "pyvma":
            wire, at = SoftnicWire(), f"{HOSTS[0]}:{PORTS[0]}"
            ours = [{"interfaces": wire.interface(number)} for number in (0, 1)]
        else:
            at, ours = f"{LOOPBACK}:{random.randrange(10_000, 30_000)}", [{}, {}]
        self.server = self._start(0, c_command("connections", stack, pin[0], local=at, **ours[0]))
        self.client = self.server
        try:
            self._answer(self.server)
            self.client = self._start(1, c_command("connections", stack, pin[1], remote=at, **ours[1]))
        except BaseException:
            self.kill()
            raise

    def _start(self, number: int, command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [*self.veth.inside(number), *command] if self.veth else command
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYVMA_", "VMA_"))}
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        there, _, _ = select.select([process.stdout], [], [], STEP_S)
        text = process.stdout.readline() if there else ""
        if not text:
            self.kill()
            raise UserError("; ".join(said.removeprefix("pyvma-bench: ") for said in self.said) or "no answer in time")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def order(self, text: str) -> dict[str, Any]:
        """The client's answer to an order of native/bench/conns.h."""
        assert self.client.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.client.stdin.write(text + "\n")
            self.client.stdin.flush()
        return self._answer(self.client)

    def quit(self) -> dict[str, Any]:
        """The client's process ends with whatever it has open; what the server saw of that."""
        assert self.client.stdin is not None
        self.client.stdin.close()
        self.client.stdin = None
        self.client.wait(GRACE_S)
        return self._answer(self.server)

    def kill(self) -> None:
        """Ends both, whatever they do."""
        for process in (self.client, self.server):
            # The client ends at the end of its orders, the server after it. Killed, the last one would leave the fabric behind.
            if process.stdin and not process.stdin.closed:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
                process.stdin = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(EXIT_S)
            if process.poll() is None:
                process.kill()
            with contextlib.suppress(ValueError, BrokenPipeError):
                self.said += process.communicate()[1].strip().splitlines()[-1:]
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()


@contextlib.contextmanager
def pair(stack: str, veth: VethPair | None = None) -> Iterator[Pair]:
    """Gone afterwards, whatever happened."""
    made = Pair(stack, veth)
    try:
        yield made
    finally:
        made.kill()


def bytes_each(before: dict[str, Any], after: dict[str, Any], count: int, stack: str) -> dict[str, float]:
    """Memory of one connection at each end: the process's own, or half of what the kernel's slabs grew by."""
    if stack == "kernel":
        both = (after["client"]["slab"] - before["client"]["slab"]) / count
        return {"client": both / 2, "server": both / 2}
    return {end: (after[end]["anon"] - before[end]["anon"]) / count for end in ("client", "server")}


def opened(made: Pair, stack: str, count: int) -> dict[str, Any]:
    """Opens that many and says what that took and what they hold."""
    before = made.order("memory")
    answer = made.order(f"open {count}")
    after = made.order("memory")
    return {
        "count": count,
        "opened_per_s": count / answer["seconds"],
        "bytes": bytes_each(before, after, count, stack),
        "fds": max(after[end]["fds"] - before[end]["fds"] for end in ("client", "server")),
    }


def latency(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the figures of several slices."""
    return {name: statistics.median(run[name] for run in runs) for name in ("avg_us", "p50_us", "p99_us")} | {"runs": runs}


def idle_and_busy(arguments: argparse.Namespace) -> dict[str, Any]:
    """Many idle connections: their memory, and a busy one's round trips beside none, some and all of them, in turns."""
    steps = sorted({0, min(SOME, arguments.count), arguments.count})
    with contextlib.ExitStack() as stack:
        pairs = {n: stack.enter_context(pair("pyvma")) for n in steps}
        row = {n: opened(made, "pyvma", n) for n, made in pairs.items() if n}[arguments.count]
        runs: dict[int, list[dict[str, Any]]] = {n: [] for n in steps}
        for number in range(arguments.runs):
            for n in steps[:: 1 if number % 2 == 0 else -1]:
                runs[n].append(pairs[n].order(f"ping {arguments.seconds}"))
        row["beside"] = {str(n): latency(runs[n]) for n in steps}
        row["exit"] = pairs[arguments.count].quit()
    with pair("pyvma") as made:
        made.order(f"open {arguments.count}")
        row["close"] = made.order("close")
    return row


def kernel_idle(count: int) -> dict[str, Any]:
    """The kernel's, as many as it lets a process have."""
    while True:
        try:
            with pair("kernel") as made:
                return opened(made, "kernel", count)
        except UserError as error:
            if "Too many open files" not in str(error) or count < 1000:
                raise
            count //= 2


def churn(arguments: argparse.Namespace, veth: VethPair | None = None) -> dict[str, dict[str, Any]]:
    """Connections opened, used once and closed a second, both stacks in turns."""
    result: dict[str, dict[str, Any]] = {stack: {str(window): [] for window in WINDOWS} for stack in ("pyvma", "kernel")}
    for number in range(arguments.runs):
        for stack in ("pyvma", "kernel")[:: 1 if number % 2 == 0 else -1]:
            with pair(stack, veth) as made:
                made.order("churn 1000 1")
                for window in WINDOWS:
                    answer = made.order(f"churn {arguments.churn} {window}")
                    result[stack][str(window)].append(answer["connections"] / answer["seconds"])
    return {stack: {window: statistics.median(rates) for window, rates in of.items()} | {"runs": of} for stack, of in result.items()}


def over_veth(arguments: argparse.Namespace) -> dict[str, dict[str, Any]] | str:
    """Both stacks' rates over the same veth pair, or why there are none."""
    if os.geteuid() != 0:
        return "a veth pair needs root"
    try:
        with VethPair() as veth:
            return churn(arguments, veth)
    except UserError as error:
        return str(error)


def table(report: dict[str, Any]) -> Table:
    """One line a stack."""
    title = "idle connections: memory of one at each end; opened, used for a message each way and closed a second"
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("who", "open", "fds", "bytes, server", "bytes, client", "opened/s", *(f"churn/s, {w} at a time" for w in WINDOWS)):
        out.add_column(name, justify="left" if name == "who" else "right")
    for row in report["rows"]:
        each = [f"{row['bytes'][end]:,.0f}" for end in ("server", "client")]
        out.add_row(row["who"], f"{row['count']:,}", f"{row['fds']:,}", *each, f"{row['opened_per_s']:,.0f}", *per_second(row["churn"]))
    if isinstance(report["veth"], dict):
        for stack, name in (("pyvma", "pyvma-c, AF_XDP on a veth"), ("kernel", "kernel-c, the same veth")):
            out.add_row(name, *[""] * 5, *per_second(report["veth"][stack]))
    return out


def per_second(rates: dict[str, Any]) -> list[str]:
    """The cells of what was opened and closed."""
    return [f"{rates[str(window)]:,.0f}" for window in WINDOWS]


def quotients(rates: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Ours by the kernel's."""
    return {str(window): rates["pyvma"][str(window)] / rates["kernel"][str(window)] for window in WINDOWS}


def show(console: Console, report: dict[str, Any]) -> None:
    """Prints the report."""
    ours = report["rows"][0]
    console.print(said_of(report["host"]), highlight=False)
    show_distance(console, report["cache_line_ns"])
    console.print(table(report))
    console.print("the kernel's first row is over loopback; its memory is half of what its slabs grew by", highlight=False)
    alone = ours["beside"]["0"]
    for n, row in ours["beside"].items():
        ratio = f"{row['p50_us'] / alone['p50_us']:.2f} x, p99 {row['p99_us'] / alone['p99_us']:.2f} x" if n != "0" else "alone"
        figures = f"p50 {microseconds(row['p50_us'])} µs, p99 {microseconds(row['p99_us'])} µs"
        console.print(f"half round trip of a busy one beside {int(n):,} idle ones: {figures} ({ratio})", highlight=False)
    console.print(
        f"all of them closed in {ours['close']['seconds']:.2f} s; at the process's end {ours['exit']['ended']:,} of "
        f"{ours['exit']['kept']:,} had ended in {ours['exit']['seconds']:.2f} s",
        highlight=False,
    )
    veth = report["veth"] if isinstance(report["veth"], str) else said(quotients(report["veth"]))
    console.print(f"opened and closed a second, pyvma-c over kernel-c: {said(report['ratios'])}", highlight=False)
    console.print(f"both over the same veth, pyvma-c on AF_XDP: {veth}", highlight=False)


def flat(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of the table."""
    for row in report["rows"]:
        each = {f"bytes_{end}": row["bytes"][end] for end in ("server", "client")}
        rates = {f"churn_{window}_per_s": row["churn"][str(window)] for window in WINDOWS}
        yield {"who": row["who"], "count": row["count"], "fds": row["fds"], **each, "opened_per_s": row["opened_per_s"], **rates}
    if isinstance(report["veth"], dict):
        for stack in ("pyvma", "kernel"):
            yield {"who": f"{stack}-c-veth"} | {f"churn_{window}_per_s": report["veth"][stack][str(window)] for window in WINDOWS}


def said(ratios: dict[str, float]) -> str:
    """How many times the kernel's."""
    return ", ".join(f"{value:.1f} x with {window} at a time" for window, value in ratios.items())


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    if arguments.count < 1 or arguments.churn < WINDOWS[-1] or arguments.runs < 1:
        raise UserError(f"--count and --runs have to be above 0, --churn at least {WINDOWS[-1]}")
    if arguments.count > 200_000:
        raise UserError("--count: one address has ports for 200000 connections to the server's eight")
    _bench_output.check(arguments)
    facts, floors = host(), [line(0.2)]
    rates, veth = churn(arguments), over_veth(arguments)
    rows = [
        {"who": "pyvma-c", **idle_and_busy(arguments), "churn": rates["pyvma"]},
        {"who": "kernel-c", **kernel_idle(arguments.count), "churn": rates["kernel"]},
    ]
    floors.append(line(0.2))
    report = _bench_output.head("connections", arguments) | {"host": facts, "cache_line_ns": distance(floors), "line_us": floors[0]}
    report |= {"rows": rows, "ratios": quotients(rates), "veth": veth, "run_count": arguments.runs, "seconds": arguments.seconds}
    return _bench_output.deliver(report, arguments, lambda console: show(console, report), flat)
