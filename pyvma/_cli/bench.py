"""`pyvma bench`: round trips and rates, by hand between two terminals or all ways compared.

Messages have sockperf's header (sequence number 64 bits, flags 16, length 32, big-endian): `sockperf` itself may be either side.
"""

from __future__ import annotations

import argparse
from typing import Any

from . import (
    _bench_compare,
    _bench_connections,
    _bench_gil,
    _bench_mixed,
    _bench_perf,
    _bench_report,
    _bench_sockperf,
    _bench_sweep,
)

KINDS: dict[str, Any] = {
    **dict.fromkeys(_bench_perf.KINDS, _bench_perf),
    "compare": _bench_compare,
    "sweep": _bench_sweep,
    "sockperf": _bench_sockperf,
    "report": _bench_report,
    "connections": _bench_connections,
    "mixed": _bench_mixed,
    "gil": _bench_gil,
}


def add_parser(commands: Any) -> None:
    """Adds the command."""
    bench = commands.add_parser("bench", help="measure round trips and message rates", description=__doc__.splitlines()[0])
    kinds = bench.add_subparsers(dest="kind", metavar="KIND", required=True)
    _bench_perf.add_parsers(kinds)
    compare = kinds.add_parser(
        "compare", help="raw ring, pyvma and the kernel, from C and Python, in one table", description=_bench_compare.__doc__
    )
    _bench_compare.add_arguments(compare)
    sweep = kinds.add_parser("sweep", help="over sizes, rates or numbers of connections", description=_bench_sweep.__doc__)
    _bench_sweep.add_arguments(sweep)
    sockperf = kinds.add_parser("sockperf", help="the real sockperf, both sides, in the same records", description=_bench_sockperf.__doc__)
    _bench_sockperf.add_arguments(sockperf)
    report = kinds.add_parser("report", help="all of it in one run, and a page with tables and plots", description=_bench_report.__doc__)
    _bench_report.add_arguments(report)
    many = kinds.add_parser("connections", help="memory, latency and rates of many TCP connections", description=_bench_connections.__doc__)
    _bench_connections.add_arguments(many)
    mixed = kinds.add_parser("mixed", help="short requests beside a bulk stream, against each alone", description=_bench_mixed.__doc__)
    _bench_mixed.add_arguments(mixed)
    gil = kinds.add_parser("gil", help="an echo server beside a busy Python thread", description=_bench_gil.__doc__)
    _bench_gil.add_arguments(gil)


def run(arguments: argparse.Namespace) -> int:
    """Runs the kind asked for."""
    status: int = KINDS[arguments.kind].run(arguments)
    return status
