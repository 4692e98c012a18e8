#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What it costs a process that somebody reads its statistics ten times a second.

Two processes play ping-pong over the software NIC and log every round trip. Meanwhile this program reads the files of both and makes JSON
of all they hold in some short slices of time, and lets them alone in others: without, with, with, without, and the next turn the other way
round, so that what the host does, and how it drifts, concerns both alike. All round trips of one side make one histogram; and each turn has
figures of its own, which are compared.

The ends share one CPU and sleep, and the reader has another; `--spin`: each has a CPU of its own, and polls. Where the reader then has to
take its CPU from them `--copies` lets it read copies of the files in the other slices: what is left is what being looked at costs.

Usage: tools/stats_cost.py [--turns N] [--slice S] [--hz HZ] [--spin [--mps N]] [--copies] [--tcp] [--hdr DIR] [--keep FILE]
Needs the package installed, and numpy; `--hdr` needs hdrhistogram.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))

import paired
from afterwards import DIES_TOO, Afterwards

FIGURES = (50.0, 99.0, 99.9)
ORDERS = ((False, True, True, False), (True, False, False, True))
LOG_ROWS = 1 << 22
"""What a client keeps at most."""
SLEEPING_MPS = 100_000
"""More round trips than ends that sleep can have."""
SETTLE_S = 0.5
EDGE_S = 0.002  # of a slice, left out at either end
RESAMPLES = 1000
BUCKETS = 1024 * 27
"""HdrHistogram's of three digits, below 2^36 ns."""


@dataclass
class Slice:
    """From when to when, and the CPU seconds that both ends, and reading, took."""

    read: bool
    begun: float
    ended: float
    used: float
    reading: float


def used(pids: list[int]) -> float:
    """The CPU seconds of these processes, to the nanosecond: clock_getcpuclockid's clocks."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


def slice_of(read: bool, files: list[Any], pids: list[int], seconds: float, hz: float) -> Slice:
    """One; looks are in the middle of their periods."""
    from pyvma._cli._stats_export import as_json

    begun, before, reading = time.monotonic(), used(pids), time.process_time()
    for turn in range(round(seconds * hz)):
        time.sleep(max(0.0, begun + (turn + 0.5) / hz - time.monotonic()))
        for process in files:
            as_json(process.snapshot(), "live")
    reading = time.process_time() - reading
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    return Slice(read, begun, time.monotonic(), used(pids) - before, reading)


@contextmanager
def ends(arguments: argparse.Namespace, folder: Path, later: Afterwards) -> Iterator[tuple[Any, list[int]]]:
    """Both, up: the client, whose log is `folder`/log when it has ended, and their process ids."""
    from pyvma._cli._bench_run import Peer, c_command, cpus, running
    from pyvma._cli._bench_softnic import SoftnicWire

    os.environ["PYVMA_STATS_DIR"] = str(folder)
    wire, (near, far), all_cpus = SoftnicWire(), cpus(), os.sched_getaffinity(0)
    later.fabric(wire.fabric)
    pinned = (near, far if arguments.spin else near)
    common = {"end": "{}:{}:{}".format("T" if arguments.tcp else "U", *wire.ends("pyvma")[0]), "block": not arguments.spin}

    def peer(role: str, number: int, **more: Any) -> Peer:
        command = c_command(role, "pyvma", pinned[number], interfaces=wire.interface(number), **common, **more)
        return Peer(command, inside=DIES_TOO)

    # It is told to end when the slices are over, whatever they last.
    log = {"mode": "ping-pong", "seconds": 3600, "warmup_ms": 0, "cooldown_ms": 0, "full_log": folder / "log"}
    with wire, running(peer("serve", 0)) as server:
        server.ready()
        with running(peer("client", 1, mps=arguments.mps if arguments.spin else None, **log)) as client:
            os.sched_setaffinity(0, all_cpus - set(pinned) or all_cpus)
            try:
                yield client, [server.process.pid, client.process.pid]
            finally:
                os.sched_setaffinity(0, all_cpus)


def logged(log: Path) -> tuple[Any, Any]:
    """When each round trip began, in seconds, and what it took in nanoseconds."""
    sent, came = numpy.fromstring(log.read_text().partition("\n")[2].replace("\n", ","), sep=",").reshape(-1, 4).T[1:3]
    return sent, numpy.rint((came - sent) * 1e9).astype(numpy.int64)


def measure(arguments: argparse.Namespace, turns: int) -> tuple[list[list[Slice]], Any, Any]:
    """So many turns of one pair of processes, and what they logged."""
    from pyvma import stats

    with Afterwards() as later:
        folder = later.folder("stats-cost-")
        with ends(arguments, folder, later) as (client, pids):
            while len(stats.processes(str(folder))) < 2:
                if client.process.poll() is not None:
                    client.result(0)
                time.sleep(0.01)
            time.sleep(SETTLE_S)
            live = [folder / f"pyvma-stats.{pid}" for pid in pids]
            looked_at: dict[bool, list[Any]] = {True: [stats.attach(path) for path in live], False: []}
            for path in live if arguments.copies else []:
                looked_at[False].append(stats.attach(shutil.copy(path, folder / f"copy.{path.suffix}")))
            done = [
                [slice_of(read, looked_at[read], pids, arguments.slice, arguments.hz) for read in ORDERS[turn % 2]] for turn in range(turns)
            ]
            client.process.terminate()
            client.result(0)
        return done, *logged(folder / "log")


def buckets(nanoseconds: Any) -> Any:
    """HdrHistogram's bucket of each."""
    shift = numpy.maximum(numpy.frexp(nanoseconds)[1] - 11, 0)
    return (shift << 10) + (nanoseconds >> shift)


def value(bucket: int) -> int:
    """The smallest number of nanoseconds in it."""
    shift = max(bucket // 1024 - 1, 0)
    return (bucket - (shift << 10)) << shift


def kept(file: Path, sides: tuple[Side, Side], told: str) -> None:
    """Turns that the file has count along, and it has all of them then. SystemExit: they are of something else."""
    if file.exists():
        with numpy.load(file) as found:
            if str(found["told"]) != told:
                raise SystemExit(f"stats_cost: {file}: it is of other options: {found['told']}")
            for number, side in enumerate(sides):
                side.rows += list(found[f"rows{number}"])
                side.cpu += found[f"cpu{number}"].tolist()
    one, other = sides
    with file.open("wb") as out:
        numpy.savez_compressed(
            out, told=numpy.array(told), rows0=one.rows, rows1=other.rows, cpu0=numpy.array(one.cpu), cpu1=numpy.array(other.cpu)
        )


def at(counts: Any, percent: float) -> Any:
    """The bucket at or below which that many of a hundred lie, in each row."""
    below = numpy.cumsum(counts, axis=-1)
    return (below >= numpy.ceil(below[..., -1:] * percent / 100)).argmax(axis=-1)


class Side:
    """The slices without a reader, or those with one, by turns."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.cpu: list[float] = []

    def add(self, slices: list[Slice], sent: Any, trips: Any) -> None:
        """A turn's."""
        row, count = numpy.zeros(BUCKETS, numpy.uint32), 0
        for one in slices:
            first, last = numpy.searchsorted(sent, (one.begun + EDGE_S, one.ended - EDGE_S))
            row += numpy.bincount(buckets(trips[first:last]), minlength=BUCKETS).astype(numpy.uint32)
            count += int(numpy.diff(numpy.searchsorted(sent, (one.begun, one.ended)))[0])
        self.rows.append(row)
        self.cpu.append(sum(one.used for one in slices) / max(count, 1))

    def pooled(self) -> Any:
        return numpy.sum(self.rows, axis=0)

    def keep(self, folder: Path, name: str) -> None:
        """HdrHistogram's table of all."""
        from pyvma._cli._bench_hist import write_hgrm

        folder.mkdir(parents=True, exist_ok=True)
        pooled = self.pooled()
        write_hgrm([(value(int(bucket)), int(pooled[bucket])) for bucket in numpy.flatnonzero(pooled)], folder / f"{name}.hgrm")


def resampled(sides: tuple[Side, Side], figure: Callable[[Any, Any], Any]) -> tuple[float, float]:
    """Bounds of 95 % of what `figure` is of turns drawn with replacement; the same every time."""
    turns = len(sides[0].rows)
    drawn = numpy.random.default_rng(1).multinomial(turns, [1 / turns] * turns, size=RESAMPLES).astype(numpy.float64)
    low, high = numpy.percentile(figure(*(drawn @ numpy.array(side.rows, numpy.float64) for side in sides)), (2.5, 97.5))
    return float(low), float(high)


def told(middle: float, low: float, high: float) -> str:
    return f"{middle:+.2f} % ({low:+.2f} to {high:+.2f})"


def show(sides: tuple[Side, Side]) -> None:
    """A line a figure."""
    present = numpy.flatnonzero(sides[0].pooled() + sides[1].pooled())
    values = numpy.array([max(value(int(bucket)), 1) for bucket in present], numpy.float64)
    for side in sides:
        side.rows = [row[present] for row in side.rows]
    print(f"{'':6}{'without':>11}{'with':>11}   {'all of a side (95 % of resamples)':34} median of turns (95 % by sign test)")
    for figure in FIGURES:

        def change(one: Any, other: Any, figure: float = figure) -> Any:
            return 100 * (values[at(other, figure)] / values[at(one, figure)] - 1)

        pooled = [side.pooled() for side in sides]
        both = "".join(f"{values[at(one, figure)] / 1e3:8.3f} us" for one in pooled)
        together = told(float(change(*pooled)), *resampled(sides, change))
        turns = told(*paired.median([float(change(*rows)) for rows in zip(*(side.rows for side in sides), strict=True)]))
        print(f"p{figure:<5g}{both}   {together:34} {turns}")
    both = "".join(f"{1e6 * statistics.median(side.cpu):8.3f} us" for side in sides)
    turns = told(*paired.median([100 * (other / one - 1) for one, other in zip(sides[0].cpu, sides[1].cpu, strict=True)]))
    print(f"{'CPU':6}{both}   {'of both ends, a round trip':34} {turns}")


def run(arguments: argparse.Namespace) -> tuple[Side, Side]:
    """All turns, in as many pairs of processes as their logs need."""
    turn_s = 4 * arguments.slice
    most = int((0.9 * LOG_ROWS / (arguments.mps if arguments.spin else SLEEPING_MPS) - SETTLE_S - 1) / turn_s)
    if most < 1:
        raise SystemExit(f"stats_cost: a client's log does not hold a turn of {turn_s:g} s: a lower --mps, or --slice")
    sides, left, pairs, trips_all, log_s, reading = (Side(), Side()), arguments.turns, 0, 0, 0.0, 0.0
    while left:
        now = min(left, most)
        turns, sent, trips = measure(arguments, now)
        left, pairs = left - now, pairs + 1
        trips_all, log_s = trips_all + len(trips), log_s + sent[-1] - sent[0]
        for turn in turns:
            reading += sum(one.reading for one in turn if one.read)
            # A reader that finds no CPU makes slices longer than the log was made for.
            if len(trips) < LOG_ROWS or turn[-1].ended <= sent[-1]:
                for read in (False, True):
                    sides[read].add([one for one in turn if one.read == read], sent, trips)
    held = len(sides[0].rows)
    if not held:
        raise SystemExit("stats_cost: the client's log was full before a turn was over: a lower --mps")
    reads = 2 * arguments.turns * round(arguments.slice * arguments.hz)
    print(f"{trips_all} round trips, {trips_all / log_s:,.0f} a second, by {pairs} pairs of processes one after the other; {held} turns")
    print(f"reader: {reads} looks at both processes, {1e3 * reading / reads:.2f} ms of CPU each")
    return sides


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40, metavar="N", help="of four slices each (default 40)")
    parser.add_argument("--slice", type=float, default=0.2, metavar="S", help="seconds; at least one look long (default 0.2)")
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--spin", action="store_true", help="an end a CPU, both poll")
    parser.add_argument("--mps", type=int, default=250000, metavar="N", help="round trips a second, with --spin: twice as many datagrams")
    parser.add_argument("--copies", action="store_true", help="copies are read in the slices without a reader")
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="turns are kept there, and those it has already count along")
    parser.add_argument("--hdr", type=Path, metavar="DIR", help="HdrHistogram's tables of both sides go there")
    arguments = parser.parse_args()
    if arguments.turns < 1 or arguments.slice * arguments.hz < 1:
        parser.error("at least a turn, of slices in which there is a look")
    sides = run(arguments)
    if arguments.keep:
        told = {name: getattr(arguments, name) for name in ("slice", "hz", "spin", "mps", "copies", "tcp")}
        kept(arguments.keep, sides, " ".join(f"{name}={value}" for name, value in told.items()))
        print(f"with those of {arguments.keep}: {len(sides[0].rows)} turns")
    for side, name in zip(sides if arguments.hdr else (), ("without", "with"), strict=False):
        side.keep(arguments.hdr, name)
    show(sides)
    return 0


if __name__ == "__main__":
    sys.exit(main())
