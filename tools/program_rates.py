#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Requests a second of unmodified servers: under `pyvma run` over AF_XDP and on the kernel, over the same veth pair, by the same client.

redis-server with redis-benchmark (GET of 64 bytes) and nginx, one worker, with wrk (a page of 64 bytes), each with one connection and with
fifty. The server has a CPU and the client, on the kernel in either case, another. The two take turns, every second round the other way
round; the table has the medians, the median of the rounds' ratios, and the bounds in which that is with 95 % by the sign test, which needs
six rounds.

Usage: tools/program_rates.py [--rounds N (6)] [--seconds S (1)] [--cases PROGRAM/CONNECTIONS,... (all)] [--json FILE]
Needs root, the four programs, and the package installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import paired

from pyvma._cli._bench_run import cpus
from pyvma._cli._veth import VethPair

CONNECTIONS = (1, 50)
SIDES = ("kernel", "pyvma")
LIMIT_S = 60
# Of redis-benchmark, which takes a number and no time: more than a kernel's server has in a second.
REQUESTS = {1: 25_000, 50: 100_000}
NGINX = """
user root;
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    server {{ listen {host}:{port}; root {folder}; }}
}}
"""


class Lab:
    """The pair, and programs at its ends."""

    def __init__(self, pair: VethPair, folder: Path) -> None:
        self.pair, self.folder = pair, folder
        near, far = cpus()
        self.cpu = (near or 0, far or 0)
        self.host, self.port = pair.hosts[0], 6400

    def inside(self, number: int) -> list[str]:
        return [*self.pair.inside(number), "taskset", "-c", str(self.cpu[number])]

    def ask(self, *command: str) -> str:
        line = [*self.inside(1), *command]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode:
            raise SystemExit(f"program_rates: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    @contextlib.contextmanager
    def server(self, side: str, *command: str) -> Iterator[None]:
        """Up when its port takes connections; --strict: it does not start where it would be the kernel's."""
        run = [sys.executable, "-m", "pyvma", "run", "--strict", "--interfaces", f"xdp:device={self.pair.device}", "--"]
        line = [*self.inside(0), *(run if side == "pyvma" else ()), *command]
        with (self.folder / "log").open("w+") as log:
            process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
            try:
                probe = f"import socket; socket.create_connection(('{self.host}', {self.port}), 1).close()"
                until = time.monotonic() + LIMIT_S
                while subprocess.run([*self.inside(1), sys.executable, "-c", probe], capture_output=True).returncode:
                    if process.poll() is not None or time.monotonic() > until:
                        log.seek(0)
                        raise SystemExit(f"program_rates: {' '.join(line)}: {log.read().strip() or 'it takes no connections'}")
                    time.sleep(0.02)
                yield
            finally:
                process.terminate()
                process.wait(LIMIT_S)

    def redis(self, side: str, connections: int, seconds: float) -> float:
        where = ["-h", self.host, "-p", str(self.port)]
        with self.server(side, "redis-server", "--bind", self.host, "--port", str(self.port), "--save", "", "--protected-mode", "no"):
            count = str(round(REQUESTS[connections] * seconds))
            text = self.ask("redis-benchmark", *where, "-c", str(connections), "-n", count, "-t", "get", "-d", "64", "--csv")
        return float(re.findall(r'^"GET","([\d.]+)"', text, re.MULTILINE)[0])

    def nginx(self, side: str, connections: int, seconds: float) -> float:
        (self.folder / "page").write_text("x" * 64)
        config = self.folder / "nginx.conf"
        config.write_text(NGINX.format(folder=self.folder, host=self.host, port=self.port))
        with self.server(side, "nginx", "-p", str(self.folder), "-c", str(config), "-e", str(self.folder / "error.log")):
            duration = f"{max(1, round(seconds))}s"
            text = self.ask("wrk", "-t", "1", "-c", str(connections), "-d", duration, f"http://{self.host}:{self.port}/page")
        if "Socket errors" in text or "Non-2xx" in text:
            raise SystemExit(f"program_rates: wrk: {text}")
        return float(re.findall(r"^Requests/sec: +([\d.]+)", text, re.MULTILINE)[0])


def measure(lab: Lab, program: str, connections: int, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Every round's rates, by side."""
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(arguments.rounds):
        for side in SIDES[:: 1 if turn % 2 == 0 else -1]:
            lab.port += 1
            rate = (lab.redis if program == "redis" else lab.nginx)(side, connections, arguments.seconds)
            found[side].append(rate)
    return found


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cases", default="*", help="patterns, separated by commas")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.rounds < 1 or not 0 < arguments.seconds <= LIMIT_S / 4:
        parser.error("at least a round, and not more than a quarter of a minute")
    cases = [(program, count) for program in ("redis", "nginx") for count in CONNECTIONS]
    wanted = [case for case in cases if any(fnmatch(f"{case[0]}/{case[1]}", pattern) for pattern in arguments.cases.split(","))]
    told = {}
    print(f"{'requests/s':12} {'kernel':>10} {'pyvma':>10} {'ratio':>7}  bounds", flush=True)
    with tempfile.TemporaryDirectory() as folder, VethPair() as pair:
        lab = Lab(pair, Path(folder))
        for program, connections in wanted:
            found = measure(lab, program, connections, arguments)
            middle, low, high = paired.median([ours / kernel for kernel, ours in zip(found["kernel"], found["pyvma"], strict=True)])
            rates = [statistics.median(found[side]) for side in SIDES]
            name = f"{program}/{connections}"
            print(f"{name:12} {rates[0]:10,.0f} {rates[1]:10,.0f} {middle:7.2f}  {low:.2f}..{high:.2f}", flush=True)
            told[name] = {"runs": found, "ratio": middle, "bounds": [low, high]}
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
