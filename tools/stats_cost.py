#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What it costs a process that somebody reads its statistics ten times a second.

`pyvma-bench ping-pong` over the software NIC, again and again: with nobody looking, and with a reader of both processes' files that makes
JSON of all they hold. A third kind of run has the same reader at work on copies of the files: what that changes is the CPU that the
reader takes where there are no more CPUs than bench processes, and not that the process is looked at. The kinds take turns, in an order
that changes, and each run is compared with the one without a reader of the same turn.

Usage: tools/stats_cost.py [--turns N] [--seconds S] [--hz HZ] [--tcp]
Needs the package installed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

KINDS = ("off", "on", "copy")
FIGURES = ("p50_us", "p99_us", "p99.9_us")


def read(directory: str, hz: float) -> int:
    """Reads every file of a directory until it is told to end by the end of its input; prints what that took."""
    import select

    from pyvma import stats
    from pyvma._cli._stats_export import as_json

    files = [stats.attach(path) for path in Path(directory).glob("pyvma-stats.*")]
    rounds, due = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        for process in files:
            as_json(process.snapshot(), "live")
        rounds += 1
        due = max(due + 1 / hz, time.monotonic())
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"rounds": rounds, "cpu_s": used.ru_utime + used.ru_stime}))
    return 0


class Turn:
    """One run of the bench: both ends, and a reader perhaps."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        from pyvma._cli._bench_softnic import SoftnicWire

        self.arguments = arguments
        self.folder = folder
        self.wire = SoftnicWire()

    def _command(self, role: str, cpu: int | None, number: int, **more: Any) -> list[str]:
        from pyvma._cli._bench_run import c_command

        ends = [f"{host}:{port}" for host, port in self.wire.ends("pyvma")]
        options = {"interfaces": self.wire.interface(number), "tcp": self.arguments.tcp, "local": ends[number], **more}
        if number:
            options["remote"] = ends[0]
        return c_command(role, "pyvma", cpu, **options)

    def _reader(self, kind: str, live: Path) -> subprocess.Popen[str] | None:
        if kind == "off":
            return None
        place = live
        if kind == "copy":
            place = self.folder / "copies"
            shutil.copytree(live, place)
        command = [sys.executable, __file__, "--read", str(place), "--hz", str(self.arguments.hz)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, kind: str) -> dict[str, Any]:
        from pyvma import stats
        from pyvma._cli._bench_run import Peer, cpus, running

        self.wire.fresh()
        live = self.folder / "live"
        live.mkdir()
        os.environ["PYVMA_STATS_DIR"] = str(live)
        first, second = cpus()
        seconds = self.arguments.seconds + 0.7  # the reader starts meanwhile
        try:
            with running(Peer(self._command("server", first, 0))) as server:
                server.ready()
                with running(Peer(self._command("ping-pong", second, 1, seconds=seconds))) as client:
                    while len(stats.processes(str(live))) < 2:
                        time.sleep(0.01)
                    reader = self._reader(kind, live)
                    found = client.result(seconds)
                    if reader is not None:
                        found["reader"] = json.loads(reader.communicate()[0])
                    server.stop()
        finally:
            shutil.rmtree(live)
            shutil.rmtree(self.folder / "copies", ignore_errors=True)
        return found


def change(runs: dict[str, list[dict[str, Any]]], kind: str, figure: str) -> str:
    """Median of the paired ratios, with the middle half of them."""
    ratios = [100 * (on[figure] / off[figure] - 1) for on, off in zip(runs[kind], runs["off"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:+.2f} % ({low:+.2f} to {high:+.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=12, metavar="N")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S")
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--read", metavar="DIRECTORY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        return read(arguments.read, arguments.hz)
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="stats-cost-") as folder:
        turn = Turn(arguments, Path(folder))
        with turn.wire:
            for _ in range(arguments.turns):
                for kind in random.sample(KINDS, len(KINDS)):
                    runs[kind].append(turn.run(kind))
    for kind in KINDS:
        medians = ", ".join(f"{figure} {statistics.median(run[figure] for run in runs[kind]):.3f}" for figure in FIGURES)
        changed = "" if kind == "off" else "; " + ", ".join(f"{figure} {change(runs, kind, figure)}" for figure in FIGURES)
        print(f"{kind:<5} {medians}{changed}")
    readers = [run["reader"] for run in runs["on"]]
    each = sum(item["cpu_s"] for item in readers) / max(1, sum(item["rounds"] for item in readers))
    print(f"reader: {sum(item['rounds'] for item in readers)} rounds, {1e3 * each:.2f} ms of CPU a round, its start included")
    return 0


if __name__ == "__main__":
    sys.exit(main())
