#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What it costs a process that somebody reads its statistics ten times a second.

One run of ping-pong over the software NIC, at a rate. While it lasts, periods take turns in an order that changes: nobody looks; this
program reads the files of both processes and makes JSON of all they hold; it does the same with copies of the files. What the last changes
is the CPU that the reader takes where there are no more CPUs than processes of the benchmark, and not that they are looked at. Figures
are of each period's messages, out of the client's log of every one; each is compared with the period without a reader of the same turn.

Usage: tools/stats_cost.py [--turns N] [--seconds S] [--hz HZ] [--mps N] [--tcp]
Needs the package installed, and numpy.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

KINDS = ("off", "on", "copy")
FIGURES = (50.0, 99.0, 99.9)
EDGE_S = 0.05  # of a period, left out at either end

Period = tuple[str, float, float]


def read(kind: str, files: dict[str, list[Any]], seconds: float, hz: float) -> tuple[Period, float]:
    """One period, and the CPU that reading took."""
    from pyvma._cli._stats_export import as_json

    begun, used = time.monotonic(), time.process_time()
    for due in range(round(seconds * hz)):
        time.sleep(max(0.0, begun + due / hz - time.monotonic()))
        for process in files.get(kind, []):
            as_json(process.snapshot(), "live")
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    return (kind, begun, time.monotonic()), time.process_time() - used


def measure(arguments: argparse.Namespace, folder: Path) -> tuple[list[Period], dict[str, float]]:
    """The periods of a run, whose log is `folder`/log then, and the CPU seconds by kind."""
    from pyvma import stats
    from pyvma._cli._bench_run import Peer, cpus, program, running
    from pyvma._cli._bench_softnic import SoftnicWire

    live, copies = folder / "live", folder / "copies"
    live.mkdir()
    os.environ["PYVMA_STATS_DIR"] = str(live)
    first, second = cpus()
    wire = SoftnicWire()
    end = "{}:{}:{}".format("T" if arguments.tcp else "U", *wire.ends("pyvma")[0])
    lasts = arguments.turns * len(KINDS) * arguments.seconds + 2

    def peer(role: str, number: int, *more: str) -> Peer:
        cpu = (first, second)[number]
        pinned = [] if cpu is None else ["--cpu", str(cpu)]
        return Peer([str(program()), role, "--transport", "pyvma", "--interfaces", wire.interface(number), "--end", end, *pinned, *more])

    log = ["--mode", "ping-pong", "--seconds", str(lasts), "--mps", str(arguments.mps), "--full-log", str(folder / "log")]
    with wire, running(peer("serve", 0)) as server:
        server.ready()
        with running(peer("client", 1, *log)) as client:
            while len(stats.processes(str(live))) < 2:
                time.sleep(0.01)
            time.sleep(1)
            shutil.copytree(live, copies)
            files = {kind: [stats.attach(path) for path in place.glob("pyvma-stats.*")] for kind, place in (("on", live), ("copy", copies))}
            periods, used = [], dict.fromkeys(KINDS, 0.0)
            for _ in range(arguments.turns):
                for kind in random.sample(KINDS, len(KINDS)):
                    period, cpu = read(kind, files, arguments.seconds, arguments.hz)
                    periods.append(period)
                    used[kind] += cpu
            client.result(lasts)
            server.kill()
    return periods, used


def figures(log: Path, periods: list[Period]) -> dict[str, list[list[float]]]:
    """Round trips in us of each kind's periods: FIGURES of each."""
    import numpy

    sent, came = numpy.loadtxt(log, delimiter=",", skiprows=1, usecols=(1, 2), unpack=True)
    trip = (came - sent) * 1e6
    found: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for kind, begun, ended in periods:
        first, last = numpy.searchsorted(sent, (begun + EDGE_S, ended - EDGE_S))
        if first == last:
            raise SystemExit("stats_cost: the client's log ends before that: a lower --mps, or fewer turns")
        found[kind].append([float(value) for value in numpy.percentile(trip[first:last], FIGURES)])
    total = len(trip) / (sent[-1] - sent[0])
    print(f"{len(trip)} round trips, {total:,.0f} a second")
    return found


def change(found: dict[str, list[list[float]]], kind: str, index: int) -> str:
    """Median of the paired ratios, with the middle half of them."""
    ratios = [100 * (with_reader[index] / without[index] - 1) for with_reader, without in zip(found[kind], found["off"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:+.2f} % ({low:+.2f} to {high:+.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8, metavar="N", help="at least 2")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of a period")
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--mps", type=int, default=250000, metavar="N", help="round trips a second: twice as many datagrams")
    parser.add_argument("--tcp", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="stats-cost-") as folder:
        periods, used = measure(arguments, Path(folder))
        found = figures(Path(folder) / "log", periods)
    for kind in KINDS:
        medians = [statistics.median(values[i] for values in found[kind]) for i in range(len(FIGURES))]
        text = ", ".join(f"p{figure:g} {median:.3f} us" for figure, median in zip(FIGURES, medians, strict=True))
        changed = "" if kind == "off" else "; " + ", ".join(f"p{figure:g} {change(found, kind, i)}" for i, figure in enumerate(FIGURES))
        print(f"{kind:<5} {text}{changed}")
    reads = arguments.turns * round(arguments.seconds * arguments.hz)
    print(f"reader: {1e3 * used['on'] / reads:.2f} ms of CPU each time, both processes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
