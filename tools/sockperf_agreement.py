#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether `pyvma bench` measures what sockperf measures: both in turns over the same path, in short slices, and medians of those.

Two network namespaces joined by a veth pair. A case is "WHAT/PROTO/MODE". WHAT, and who takes turns:

  clients          sockperf and ours over kernel sockets, each against sockperf's server
  clients-to-xdp   the same two clients, each against our server over AF_XDP
  servers          our client over kernel sockets, against sockperf's server and ours over kernel sockets
  servers-of-xdp   our client over AF_XDP, against the same two servers

The table has, for each case, medians of both and the ratio of ours to sockperf's: average and median latency of ping-pong and under-load,
messages a second of throughput. Both servers are up all the time and sleep while they are not asked; that over AF_XDP polls, but under
load.

Usage: tools/sockperf_agreement.py [--pairs N (7)] [--cases WHAT/PROTO/MODE,... (all)] [--size BYTES] [--json FILE]
Needs root, sockperf, and the package installed. Exit status 1 when a figure is off by more than --limit (3 %).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pyvma._cli import _bench_host, _bench_sockperf
from pyvma._cli._bench_run import Peer, c_command, cpus, running
from pyvma._cli._veth import VethPair

WHATS = ("clients", "clients-to-xdp", "servers", "servers-of-xdp")
PROTOS = ("udp", "tcp")
MODES: dict[str, dict[str, Any]] = {
    "ping-pong": {},
    "under-load": {"mps": 20000, "reply_every": 10},
    "throughput": {},
}
FIGURES = {"ping-pong": ("avg_us", "p50_us"), "under-load": ("avg_us", "p50_us"), "throughput": ("rate_mps",)}
PORTS = {"sockperf": 11111, "ours": 11112, "xdp": 11113}
XDP = "xdp:device=veth0"


class Bench:
    """The pair, its servers and clients. Servers are at end 0, but that of AF_XDP is the one at its end; clients at the other."""

    def __init__(self, pair: VethPair, size: int) -> None:
        self.pair, self.size = pair, size
        first, second = cpus()
        self.near, self.far = first or 0, second or 0

    @contextlib.contextmanager
    def server(self, who: str, proto: str, mode: str) -> Iterator[int]:
        """Up, and its port."""
        port = PORTS[who]
        inside = self.pair.inside(0)
        if who == "sockperf":
            pinned = ["taskset", "-c", str(self.far)]
            line = [*inside, *pinned, "sockperf", "server", "-i", self.pair.hosts[0], "-p", str(port)]
            with _bench_sockperf.server(line + ["--tcp"] * (proto == "tcp"), proto == "tcp", port):
                yield port
            return
        stack = "pyvma" if who == "xdp" else "kernel"
        # A server that polls would have the CPU of the thread that receives under load.
        block = who != "xdp" or mode == "under-load"
        options = {"end": self.end(proto, port), "interfaces": XDP if who == "xdp" else None, "block": block}
        with running(Peer(c_command("serve", stack, self.far, **options), clean=True, inside=inside)) as peer:
            peer.ready()
            yield port
            peer.stop()

    def end(self, proto: str, port: int) -> str:
        return f"{'T' if proto == 'tcp' else 'U'}:{self.pair.hosts[0]}:{port}"

    def ours(self, proto: str, mode: str, port: int, xdp: bool) -> dict[str, Any]:
        """One slice of our client."""
        options: dict[str, Any] = {"mode": mode, "end": self.end(proto, port), "seconds": 1, "size": self.size, **MODES[mode]}
        options |= {"interfaces": XDP if xdp else None, "block": not xdp}
        options |= {"sender_affinity": self.near, "receiver_affinity": self.far}
        line = c_command("client", "pyvma" if xdp else "kernel", self.near if xdp else None, **options)
        with running(Peer(line, clean=True, inside=self.pair.inside(1))) as peer:
            return peer.result(1)

    def sockperfs(self, proto: str, mode: str, port: int) -> dict[str, Any]:
        """One slice of sockperf's client."""
        line = [*self.pair.inside(1), "sockperf", mode, "-i", self.pair.hosts[0], "-p", str(port), "-t", "1", "-m", str(self.size)]
        line += ["--tcp"] * (proto == "tcp") + ["--sender-affinity", str(self.near)]
        if mode == "under-load":
            line += ["--receiver-affinity", str(self.far)]
        for name, value in MODES[mode].items():
            line += ["--" + name.replace("_", "-"), str(value)]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return _bench_sockperf.parse_client(done.stdout + done.stderr)

    def case(self, what: str, proto: str, mode: str, pairs: int) -> dict[str, Any]:
        """Slices of both in turns, each first every other time."""
        took: dict[str, list[dict[str, Any]]] = {"sockperf": [], "ours": []}
        with contextlib.ExitStack() as up:
            ports = {"sockperf": up.enter_context(self.server("xdp" if what == "clients-to-xdp" else "sockperf", proto, mode))}
            ports["ours"] = up.enter_context(self.server("ours", proto, mode)) if what.startswith("servers") else ports["sockperf"]
            for number in range(pairs):
                for who in ("sockperf", "ours")[:: 1 if number % 2 == 0 else -1]:
                    if who == "sockperf" and what.startswith("clients"):
                        took[who].append(self.sockperfs(proto, mode, ports[who]))
                    else:
                        took[who].append(self.ours(proto, mode, ports[who], what == "servers-of-xdp"))
        figures = {}
        for name in FIGURES[mode]:
            runs = {who: [run[name] for run in slices] for who, slices in took.items()}
            medians = {who: statistics.median(values) for who, values in runs.items()}
            figures[name] = {**medians, "ratio": medians["ours"] / medians["sockperf"], "runs": runs}
        lost = {who: sum(run.get("lost", 0) + run.get("duplicated", 0) + run.get("reordered", 0) for run in took[who]) for who in took}
        return {"case": f"{what}/{proto}/{mode}", "figures": figures, "lost": lost}


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--cases", default="*", help="patterns, separated by commas")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--limit", type=float, default=3.0, help="percent")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    every = [(what, proto, mode) for what in WHATS for proto in PROTOS for mode in MODES]
    wanted = [case for case in every if any(fnmatch("/".join(case), pattern) for pattern in arguments.cases.split(","))]
    results, off = [], 0
    print(f"{'case':32} {'figure':9} {'sockperf':>12} {'ours':>12} {'ratio':>8}  lost, repeated, late", flush=True)
    with VethPair() as pair:
        bench = Bench(pair, arguments.size)
        for case in wanted:
            line = _bench_host.line(0.05)
            result = bench.case(*case, arguments.pairs)
            results.append(result | {"line_us": line})
            for name, figure in result["figures"].items():
                wrong = abs(figure["ratio"] - 1) > arguments.limit / 100
                off += wrong
                counts = f"{result['lost']['sockperf']}, {result['lost']['ours']}"
                print(
                    f"{result['case']:32} {name:9} {figure['sockperf']:12.3f} {figure['ours']:12.3f} {figure['ratio']:8.4f}  {counts}"
                    f"{'  OFF' if wrong else ''}",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps({"cases": results, "pairs": arguments.pairs, "size": arguments.size}, indent=1) + "\n")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
