"""Runs every fuzz target of build/fuzz for a while: a smoke run in CI, hours by hand.

    run_fuzz.py [--seconds N] [--only NAME[,NAME...]]

A finding (crash, leak, timeout) fails the run; its input is kept as build/fuzz/crash-*. Seeds come from tests/fuzz/corpus/NAME.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(description="run the fuzz targets")
    parser.add_argument("--seconds", type=int, default=10, help="for each target")
    parser.add_argument("--only", help="targets, separated by commas")
    arguments = parser.parse_args()
    targets = sorted(p for p in BUILD.glob("fuzz_*") if p.is_file() and os.access(p, os.X_OK))
    if arguments.only:
        wanted = set(arguments.only.split(","))
        targets = [target for target in targets if target.name in wanted]
    if not targets:
        print("no fuzz target is built: cmake --preset fuzz && ninja -C build/fuzz")
        return 1
    failed = 0
    for target in targets:
        seeds = ROOT / "tests" / "fuzz" / "corpus" / target.name
        with tempfile.TemporaryDirectory() as corpus:
            command = [str(target), f"-max_total_time={arguments.seconds}", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]
            command += [f"-artifact_prefix={BUILD}/crash-{target.name}-", corpus, *([str(seeds)] if seeds.is_dir() else [])]
            done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, errors="replace")
        runs = [line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line]
        print(f"{target.name:<24} {'ok' if done.returncode == 0 else 'FINDING'}  {runs[0] if runs else '?'} runs", flush=True)
        if done.returncode:
            failed += 1
            print(done.stderr[-6000:])
    print(f"{len(targets) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
