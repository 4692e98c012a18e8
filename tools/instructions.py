#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions per datagram or TCP segment over the sim ring, compared with a golden file.

Runs ``instr_bench`` of a release build under ``valgrind --tool=callgrind`` with 1 and with 5,000 bound sockets, and prints for each
case the instructions a datagram costs (``idle``: a turn of the engine that finds nothing). Counts do not depend on the machine's
speed or load. Fails when a count is more than 5 % above ``tests/data/instructions.json``; ``--update`` writes that file anew.

Usage: tools/instructions.py [--check | --update] [--build DIR]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "data" / "instructions.json"
ROUNDS = 200
SOCKETS = (1, 5000)
PER_ROUND = {
    "idle": 1,
    "rx1": 1,
    "rx32": 32,
    "rx6": 1,
    "tx": 1,
    "txto": 1,
    "tcprx": 1,
    "tcprr": 1,
    "tcpfull": 1,
    "tcpack": 1,
    "tcptx": 1,
    "tcpbulk": 16,
    "tcptso": 16,
    "tcprun": 16,
}
# A stream's send rings the doorbell itself, which here is the wire: that does not count.
WITHOUT = {"tcptx": "sim_tx_kick"}
TOLERANCE = 1.05


def inclusive(report: str, function: str) -> int:
    """Instructions of a function and what it calls, in callgrind's report."""
    match = re.search(rf"^\s*([\d,]+) .*:{function}\b", report, re.MULTILINE)
    if not match:
        raise SystemExit(f"instructions: no figure for {function} in callgrind's report")
    return int(match[1].replace(",", ""))


def count(program: Path, sockets: int) -> dict[str, float]:
    """Instructions a datagram for every case, with that many sockets bound."""
    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "callgrind.out"
        subprocess.run(
            [
                "valgrind",
                "-q",
                "--tool=callgrind",
                f"--callgrind-out-file={out}",
                "--toggle-collect=measure_*",
                str(program),
                str(sockets),
                str(ROUNDS),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        report = subprocess.run(
            ["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--auto=no", str(out)], check=True, capture_output=True, text=True
        ).stdout
    result = {}
    for case, per_round in PER_ROUND.items():
        total = inclusive(report, f"measure_{case}") - (inclusive(report, WITHOUT[case]) if case in WITHOUT else 0)
        result[f"{case}/{sockets}"] = round(total / (ROUNDS * per_round), 1)
    return result


def main() -> int:
    """Measure, print, compare or write."""
    parser = argparse.ArgumentParser(description="Instructions per datagram over the sim ring, compared with a golden file.")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="compare with the golden file (the default)")
    mode.add_argument("--update", action="store_true", help="write the golden file from this run")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="directory of the release build")
    args = parser.parse_args()
    program = args.build / "instr_bench"
    if not program.exists():
        print(f"instructions: {program} is not built (cmake --preset release, target instr_bench)", file=sys.stderr)
        return 2
    if not shutil.which("valgrind"):
        print("instructions: valgrind is not installed", file=sys.stderr)
        return 77
    measured: dict[str, float] = {}
    for sockets in SOCKETS:
        measured |= count(program, sockets)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    worse = [case for case, value in measured.items() if value > golden.get(case, value) * TOLERANCE]
    print(f"{'case/sockets':<16}{'instructions':>14}{'golden':>10}")
    for case, value in measured.items():
        print(f"{case:<16}{value:>14.1f}{golden.get(case, 0):>10.1f}{'  ABOVE' if case in worse else ''}")
    if args.update:
        GOLDEN.write_text(json.dumps(measured, indent=2) + "\n")
        return 0
    missing = measured.keys() - golden.keys()
    if missing:
        print(f"instructions: not in {GOLDEN.relative_to(ROOT)}: {', '.join(sorted(missing))}", file=sys.stderr)
    return 1 if worse or missing else 0


if __name__ == "__main__":
    sys.exit(main())
