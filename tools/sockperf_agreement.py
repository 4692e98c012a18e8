#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether `pyvma bench` measures what sockperf measures: both at the same time over the same path, so that what else the host does
concerns both alike. Under load they take turns instead, many short ones: each has threads that spin for the time, so two at once measure
who of them had the CPU. And both CPUs have a program then that runs when nothing else would, or they would halt between the messages: what
a virtual CPU takes to come back is up to its host, and other from one second to the next.

Two network namespaces joined by a veth pair; servers at one end on one CPU, clients at the other end on another. A case is
"WHAT/PROTO/MODE":

  clients          sockperf's and our client over kernel sockets, against one server of sockperf's
  clients-to-xdp   the same two, against one server of ours over AF_XDP
  servers          two of our clients over kernel sockets, one against sockperf's server and one against ours over kernel sockets
  servers-of-xdp   our client over AF_XDP against the same two servers; one engine has the interface, so in turns of a second
  control          two of our clients against one server of sockperf's: what the host alone makes of equal programs
  same-messages    sockperf's client against our server: its own figures, and what our server counted of the very same messages

Ratios are ours to sockperf's, in the control the second to the first; the table has the median of the rounds' ratios, and the bounds in
which it is with 95 % by the sign test, which needs six rounds. ping-pong and under-load: average and median latency; throughput: messages
a second. Under load both are of the logs of all messages (--full-log of either), and the average is of the quickest 99 of a hundred: the
others had their CPU away, for milliseconds, as often in the control.

Usage: tools/sockperf_agreement.py [--rounds N (6)] [--cases WHAT/PROTO/MODE,... (all)] [--size BYTES] [--json FILE [--add]]
Needs root, sockperf, and the package installed. Exit status 1 when a figure is OFF: by more than --limit (3 %); `?` is at one that is
not, but whose bounds reach beyond that: more rounds say.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import paired

from pyvma._cli import _bench_host, _bench_sockperf
from pyvma._cli._bench_run import Peer, c_command, cpus, running
from pyvma._cli._veth import VethPair

WHATS = ("clients", "clients-to-xdp", "servers", "servers-of-xdp", "control", "same-messages")
PROTOS = ("udp", "tcp")
MODES: dict[str, dict[str, Any]] = {
    "ping-pong": {},
    "under-load": {"mps": 5000, "reply_every": 5},
    "throughput": {},
}
QUICKEST = 0.99  # of the messages under load
FIGURES = {"ping-pong": ("avg_us", "p50_us"), "under-load": ("avg_us", "p50_us"), "throughput": ("rate_mps",)}
XDP = "xdp:device=veth0"
# sockperf's client sleeps 2 s before its run; of that the first 400 ms and the last 50 ms are not in its latencies. Ours begins before
# and ends after, and counts nothing of the time in which it is alone.
SOCKPERF_S, SLEEP_S, EARLY_S, LATE_S = 3, 2.0, 0.3, 0.5
# A turn of ours, and what of it is not in the figures: as much is left as of sockperf's second.
TURN_S, TURN_EDGES = 0.8, (0.2, 0.05)


@contextlib.contextmanager
def kept_awake(numbers: set[int]) -> Iterator[None]:
    """These CPUs do not halt: each has a program that anything else goes before."""

    def goes_last() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    with contextlib.ExitStack() as up:
        for number in numbers:
            line = ["taskset", "-c", str(number), sys.executable, "-c", "while True: pass"]
            process = up.enter_context(subprocess.Popen(line, preexec_fn=goes_last))
            up.callback(process.kill)
        yield


def logged(log: Path) -> dict[str, float]:
    """The figures of one run under load."""
    times = [value / 1e3 for value, many in _bench_sockperf.full_log(log) for _ in range(int(many))]
    return {"avg_us": statistics.mean(times[: int(QUICKEST * len(times))]), "p50_us": statistics.median(times)}


class Bench:
    """The pair, its servers and clients, and the folder of their logs."""

    def __init__(self, pair: VethPair, size: int, folder: Path) -> None:
        self.pair, self.size, self.folder, self.runs = pair, size, folder, count()
        first, second = cpus()
        self.near, self.far = first or 0, second or 0
        self.port = 11111

    @contextlib.contextmanager
    def server(self, who: str, proto: str, mode: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Up: its port, and what it counted when it is down. They sleep, but AF_XDP polls: not under load, where the clients' threads that
        receive have the same CPU."""
        self.port += 1
        port, counted = self.port, dict[str, Any]()
        inside = self.pair.inside(0)
        if who != "sockperf":
            xdp = who == "xdp"
            style = {"style": None if proto == "udp" else "epoll"}
            options = {"end": self.end(proto, port), "interfaces": XDP if xdp else None, "block": not xdp or mode == "under-load", **style}
            with running(Peer(c_command("serve", "pyvma" if xdp else "kernel", self.far, **options), clean=True, inside=inside)) as peer:
                peer.ready()
                yield port, counted
                counted |= peer.stop()
            return
        with tempfile.NamedTemporaryFile("w", suffix=".feed") as feed:
            feed.write(f"{self.end(proto, port)}\n")
            feed.flush()
            where = ["-f", feed.name, "-F", "e"] if proto == "tcp" else ["-i", self.pair.hosts[0], "-p", str(port)]
            line = [*inside, "taskset", "-c", str(self.far), "sockperf", "server", *where]
            with _bench_sockperf.server(line, proto == "tcp", port):
                yield port, counted

    def end(self, proto: str, port: int) -> str:
        return f"{'T' if proto == 'tcp' else 'U'}:{self.pair.hosts[0]}:{port}"

    def ours(self, proto: str, mode: str, port: int, seconds: float, edges: tuple[float, float], xdp: bool = False) -> Peer:
        """Our client, started; `edges`: of its time not in the figures. It has a log under load."""
        options: dict[str, Any] = {"mode": mode, "end": self.end(proto, port), "seconds": seconds, "size": self.size, **MODES[mode]}
        options |= {"warmup_ms": round(edges[0] * 1e3), "cooldown_ms": round(edges[1] * 1e3)}
        options |= {"interfaces": XDP if xdp else None, "block": not xdp}
        options |= {"full_log": self.folder / "ours"} if mode == "under-load" else {}
        options |= {"cpu": self.near} if mode != "under-load" or xdp else {"sender_affinity": self.near, "receiver_affinity": self.far}
        return Peer(c_command("client", "pyvma" if xdp else "kernel", **{"cpu": None, **options}), clean=True, inside=self.pair.inside(1))

    @contextlib.contextmanager
    def sockperfs(self, proto: str, mode: str, port: int, seconds: int = SOCKPERF_S) -> Iterator[tuple[subprocess.Popen[str], Path]]:
        """sockperf's client, started, and its log; gone afterwards, whatever happens meanwhile."""
        log = self.folder / f"sockperf.{next(self.runs)}"
        # Senders that wait for the time share a CPU, which is alike for both, and what wakes up has the other.
        pinned = ["taskset", "-c", str(self.near)] if mode != "under-load" else []
        line = [*self.pair.inside(1), *pinned, "sockperf", mode, "-i", self.pair.hosts[0], "-p", str(port)]
        line += ["-t", str(seconds), "-m", str(self.size), *["--tcp"] * (proto == "tcp")]
        if mode == "under-load":
            # In 3.7 the second of these moves the thread that sends, and the one that receives stays where that was before.
            line += ["--sender-affinity", str(self.far), "--receiver-affinity", str(self.near), "--full-log", str(log)]
        for name, value in MODES[mode].items():
            line += ["--" + name.replace("_", "-"), str(value)]
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def finished(self, mode: str, process: subprocess.Popen[str], log: Path) -> dict[str, Any]:
        figures = _bench_sockperf.parse_client(process.communicate(timeout=60)[0])
        return figures | logged(log) if mode == "under-load" else figures

    def figures(self, mode: str, peer: Peer, seconds: float) -> dict[str, Any]:
        """What a client of ours found."""
        figures = peer.result(seconds)
        return figures | logged(self.folder / "ours") if mode == "under-load" else figures

    def clients(self, proto: str, mode: str, port: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """sockperf's, and ours beside it."""
        with self.sockperfs(proto, mode, port) as client:
            time.sleep(SLEEP_S - EARLY_S)
            # Its warm-up goes by before ours has ended.
            edges = EARLY_S + (0.0 if mode == "throughput" else 0.4) + 0.1, LATE_S
            with running(self.ours(proto, mode, port, EARLY_S + SOCKPERF_S + LATE_S - 0.1, edges)) as peer:
                mine = peer.result(SOCKPERF_S)
            return self.finished(mode, *client), mine

    def alternating(self, proto: str, mode: str, port: int, rounds: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The same in turns of a second: ours while the next of sockperf's sleeps before its own, which was started when the one before
        it had its warm-up."""
        with contextlib.ExitStack() as up:
            client = up.enter_context(self.sockperfs(proto, mode, port, 1))
            time.sleep(SLEEP_S)
            for _ in range(rounds):
                following = up.enter_context(self.sockperfs(proto, mode, port, 1))
                theirs = self.finished(mode, *client)
                with running(self.ours(proto, mode, port, TURN_S, TURN_EDGES)) as peer:
                    yield theirs, self.figures(mode, peer, 2)
                client = following

    def both(self, proto: str, mode: str, ports: tuple[int, int], turn: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Two of our clients, each first every other time."""
        order = ports if turn % 2 == 0 else ports[::-1]
        with contextlib.ExitStack() as up:
            peers = [up.enter_context(running(self.ours(proto, mode, port, 1.6, (0.4, 0.2)))) for port in order]
            results = [peer.result(2) for peer in peers]
        return (results[0], results[1]) if turn % 2 == 0 else (results[1], results[0])

    def turns(self, proto: str, mode: str, ports: tuple[int, int], turn: int, xdp: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        """One of our clients, and another: each first every other time."""
        results = []
        for port in ports if turn % 2 == 0 else ports[::-1]:
            with running(self.ours(proto, mode, port, TURN_S, TURN_EDGES, xdp)) as peer:
                results.append(self.figures(mode, peer, 1))
        return (results[0], results[1]) if turn % 2 == 0 else (results[1], results[0])

    def seen(self, proto: str, mode: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """sockperf's figures, and those that our server's counts give: a ping-pong's latency is half of a message's time."""
        with self.server("ours", proto, mode) as (port, counted), self.sockperfs(proto, mode, port) as client:
            theirs = self.finished(mode, *client)
        rate = (counted["received"] + counted["lost"]) / counted["seconds"]
        if mode == "ping-pong":
            total = theirs["total_sent"] / SOCKPERF_S
            return {"avg_us": 5e5 / total}, {"avg_us": 5e5 / rate}
        if mode == "under-load":
            return {"rate_mps": theirs["rate_mps"]}, {"rate_mps": rate}
        return {"rate_mps": theirs["rate_mps"]}, {"rate_mps": rate}

    def case(self, what: str, proto: str, mode: str, rounds: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """What both found, of each round."""
        if what == "same-messages":
            return [self.seen(proto, mode) for _ in range(rounds)]
        with contextlib.ExitStack() as up:
            first, _ = up.enter_context(self.server("xdp" if what == "clients-to-xdp" else "sockperf", proto, mode))
            second, _ = up.enter_context(self.server("ours", proto, mode)) if what.startswith("servers") else (first, {})
            loaded = mode == "under-load"
            if loaded:
                up.enter_context(kept_awake({self.near, self.far}))
            if what.startswith("clients"):
                if loaded:
                    return list(self.alternating(proto, mode, first, rounds))
                return [self.clients(proto, mode, first) for _ in range(rounds)]
            if loaded or what == "servers-of-xdp":
                return [self.turns(proto, mode, (first, second), turn, what == "servers-of-xdp") for turn in range(rounds)]
            return [self.both(proto, mode, (first, second), turn) for turn in range(rounds)]


def compared(runs: dict[str, list[float]]) -> dict[str, Any]:
    """A figure of all rounds."""
    theirs, mine = runs["sockperf"], runs["ours"]
    ratios = [b / a for a, b in zip(theirs, mine, strict=True)]
    middle, low, high = paired.median(ratios)
    medians = {who: statistics.median(values) for who, values in runs.items()}
    return {**medians, "ratio": middle, "bounds": [low, high], "ratios": ratios, "runs": runs}


def verdict(figure: dict[str, Any], limit: float) -> str:
    """OFF: not within so many percent. ?: its bounds say that it may be elsewhere."""
    low, high = figure["bounds"]
    if abs(figure["ratio"] - 1) > limit / 100:
        return "OFF"
    return "" if max(1 - low, high - 1) <= limit / 100 else "?"


def earlier(file: Path | None, case: str, name: str) -> dict[str, list[float]]:
    """Rounds that the file has."""
    told = json.loads(file.read_text())["cases"] if file else []
    found = [one["figures"][name]["runs"] for one in told if one["case"] == case and name in one["figures"]]
    return found[0] if found else {"sockperf": [], "ours": []}


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--cases", default="*", help="patterns, separated by commas")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--limit", type=float, default=3.0, help="percent")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--add", action="store_true", help="rounds that the file of --json has already count along")
    arguments = parser.parse_args()
    if arguments.add and not arguments.json:
        parser.error("--add needs --json")
    every = [(what, proto, mode) for what in WHATS for proto in PROTOS for mode in MODES]
    wanted = [case for case in every if any(fnmatch("/".join(case), pattern) for pattern in arguments.cases.split(","))]
    before = arguments.json if arguments.add and arguments.json.exists() else None
    if before and json.loads(before.read_text())["size"] != arguments.size:
        parser.error(f"{before}: its messages have another size")
    results, off = [], 0
    print(f"{'case':32} {'figure':9} {'sockperf':>12} {'ours':>12} {'ratio':>8}  bounds; rounds; cache line ns", flush=True)
    with VethPair() as pair, tempfile.TemporaryDirectory() as folder:
        bench = Bench(pair, arguments.size, Path(folder))
        for case in wanted:
            line = 1e3 * (_bench_host.line(0.05) or 0.0)
            took, label, figures = bench.case(*case, arguments.rounds), "/".join(case), {}
            for name in FIGURES[case[2]] if case[0] != "same-messages" else sorted(took[0][0]):
                runs = earlier(before, label, name)
                runs = {who: [*runs[who], *(one[at][name] for one in took)] for at, who in enumerate(("sockperf", "ours"))}
                figure = figures[name] = compared(runs)
                said = verdict(figure, arguments.limit)
                off += said == "OFF"
                spread = "{:.3f}..{:.3f}; {}; {:.0f}  {}".format(*figure["bounds"], len(runs["ours"]), line, said).rstrip()
                print(f"{label:32} {name:9} {figure['sockperf']:12.3f} {figure['ours']:12.3f} {figure['ratio']:8.4f}  {spread}", flush=True)
            results.append({"case": label, "figures": figures, "line_ns": line})
    if arguments.json:
        keep(arguments.json, results, arguments)
    return 1 if off else 0


def keep(file: Path, results: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Writes them; with --add the file keeps the cases that were not measured now."""
    new = {one["case"] for one in results}
    told = json.loads(file.read_text())["cases"] if arguments.add and file.exists() else []
    cases = [*(one for one in told if one["case"] not in new), *results]
    file.write_text(json.dumps({"cases": cases, "size": arguments.size}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
