#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Half round trips of this tree beside those of another commit: what features that nobody uses cost.

Both are built from their own sources (release, below --folder), and both ends of an exchange are of the same build: UDP and TCP, 64 bytes,
from C over the software NIC, each end on a CPU of its own. The two take turns, every second one the other way round; the median of the
turns' ratios and the bounds in which that is with 95 % by the sign test, which needs six turns.

The commit before pacing, time stamps, device memory, segmentation and steering was written is 592d67f^.

Usage: tools/latency_against.py COMMIT [--turns N (12)] [--seconds S (0.5)] [--folder DIR (build/against)]
Needs the package installed, git and ninja. Exit status 1 when a median is more than 3 % above the other's.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import paired

from pyvma._cli._bench_run import Peer, cpus, running
from pyvma.ring import softnic

ROOT = Path(__file__).resolve().parent.parent
WORSE = 1.03
TARGETS = ("pyvma-bench", "pyvma-softnic")


def run(*command: str) -> str:
    """What it prints."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def built(source: Path, folder: Path) -> Path:
    """The folder with its programs."""
    cmake = ["cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DPV_TESTS=OFF"]
    for command in (cmake, ["ninja", "-C", str(folder), *TARGETS]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"latency_against: {source} does not build:\n{(done.stdout + done.stderr)[-2000:]}")
    return folder


def sources(commit: str, folder: Path) -> Path:
    """That commit's files."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder.with_name(f"{folder.name}.tar")
    try:
        subprocess.run(["git", "archive", "-o", str(archive), commit], cwd=ROOT, check=True)
        subprocess.run(["tar", "-x", "-f", str(archive), "-C", str(folder)], check=True)
    finally:
        archive.unlink(missing_ok=True)
    return folder


def half_trip(programs: Path, proto: str, seconds: float) -> float:
    """Microseconds, the median of one run."""
    fabric = f"la{secrets.token_hex(4)}"

    def command(number: int, role: str) -> list[str]:
        ends = [f"10.99.0.{n + 1}:{7000 + n}" for n in (number, 1 - number)]
        interface = f"softnic:fabric={fabric},port={number},addr=10.99.0.{number + 1}/24"
        line = [str(programs / "pyvma-bench"), role, "--transport", "pyvma", "--interfaces", interface]
        line += ["--local", ends[0], "--remote", ends[1]]
        line += ["--seconds", str(seconds)] if role != "server" else []
        line += ["--tcp"] if proto == "tcp" else []
        return line if (cpu := cpus()[number]) is None else [*line, "--cpu", str(cpu)]

    try:
        with running(Peer(command(0, "server"), clean=True)) as server:
            server.ready()
            with running(Peer(command(1, "ping-pong"), clean=True)) as client:
                answer = client.result(seconds)
            server.stop()
    finally:
        softnic.remove(fabric)
    return float(answer["p50_us"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("commit")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "against")
    arguments = parser.parse_args()
    if arguments.turns < 1 or arguments.seconds <= 0:
        parser.error("--turns and --seconds are positive")
    try:
        commit = run("git", "rev-parse", "--verify", f"{arguments.commit}^{{commit}}")[:12]
    except subprocess.CalledProcessError:
        parser.error(f"there is no commit {arguments.commit}")
    folder = arguments.folder.resolve()
    there = built(sources(commit, folder / commit), folder / f"{commit}-build")
    here = built(ROOT, folder / "here-build")
    good = True
    for proto in ("udp", "tcp"):
        figures: dict[Path, list[float]] = {here: [], there: []}
        for turn in range(arguments.turns):
            for programs in (there, here) if turn % 2 else (here, there):
                figures[programs].append(half_trip(programs, proto, arguments.seconds))
        ratio, low, high = paired.median([new / old for new, old in zip(figures[here], figures[there], strict=True)])
        good = good and ratio <= WORSE
        medians = ", ".join(f"{name} {statistics.median(figures[at]):.3f} us" for name, at in ((commit, there), ("this tree", here)))
        print(f"{proto}: {medians}, ratio {ratio:.3f} ({low:.3f} .. {high:.3f}), {arguments.turns} turns", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
