"""The statistics of live processes for Prometheus: by HTTP, or as a text file for node_exporter's collector of those.

Every process that runs on pyvma and that this user may read is there, and goes when it ends. Series are bounded: those of engines,
tables, rings and pools always, those of sockets only with --sockets, and of so many of a process at most. It needs prometheus-client:
pip install 'pyvma[metrics]'.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from . import UserError
from ._help import seconds

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

EXAMPLES = """examples:
  pyvma stats serve                                       on http://127.0.0.1:9716/metrics
  pyvma stats serve --listen 0.0.0.0:9716                 for the network; [::]:9716 for IPv6
  pyvma stats serve -p 4711 --sockets 200                 one process, with series of 200 sockets at most
  pyvma stats serve --textfile /var/lib/node_exporter/pyvma.prom --interval 15
  pyvma stats serve --once                                what a scrape would get, on stdout
  pyvma stats serve --once --openmetrics

names: pyvma_<type>_<field>_<unit>, counters with _total; docs/reference/statistics.md has types, fields and units
labels: pid, program; interface (rings, pools); fd, object (sockets)
series: some 120 a process and 30 a ring; with --sockets 100 more a connection, 50 a UDP socket

exit status: 0 (also after Ctrl-C or SIGTERM), 1 (cannot listen or write: one line says why), 2 (options)
"""
DEFAULT_PORT = 9716
INTERVAL_S = 15.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-p", "--pid", type=int, default=argparse.SUPPRESS, metavar="PID", help="only this process (default: all)")
    parser.add_argument("-k", "--directory", default=argparse.SUPPRESS, metavar="DIRECTORY", help="where processes keep their files")
    parser.add_argument("--listen", metavar="ADDRESS:PORT", help=f"where to answer (default: 127.0.0.1:{DEFAULT_PORT}); port 0: any")
    parser.add_argument("--textfile", metavar="PATH", help="write this file instead, whole each time")
    parser.add_argument(
        "--interval", type=seconds(0.1), default=argparse.SUPPRESS, metavar="S", help="seconds between writings (default: 15)"
    )
    parser.add_argument("--once", action="store_true", help="once, to the text file or stdout, and stop")
    parser.add_argument("--openmetrics", action="store_true", help="of --once and --textfile: OpenMetrics instead of Prometheus's own text")
    parser.add_argument("--sockets", type=int, nargs="?", const=1000, default=0, dest="serve_sockets", metavar="N",
                        help="series of N sockets of a process at most (N without a number: 1000; default: none)")  # fmt: skip


def _endpoint(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"--listen: {text!r} is no ADDRESS:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def _text(registry: CollectorRegistry, openmetrics: bool) -> bytes:
    from prometheus_client import exposition
    from prometheus_client.openmetrics import exposition as open_exposition

    generate: Callable[[CollectorRegistry], bytes] = (open_exposition if openmetrics else exposition).generate_latest
    return generate(registry)


def _write(path: str, data: bytes) -> None:
    """Whole or not at all: who reads meanwhile finds the file before or after."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = ""
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, 0o644)  # the collector is another user
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise UserError(f"{path}: {error.strerror}") from None


def _stopping() -> threading.Event:
    """Set by SIGINT and SIGTERM from now on."""
    over = threading.Event()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: over.set())
    return over


def _serve(registry: CollectorRegistry, listen: str) -> None:
    from prometheus_client import start_http_server

    host, port = _endpoint(listen)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UserError(f"{listen}: {error.strerror or error}") from None
    shown = f"[{host}]" if ":" in host else host
    over = _stopping()
    try:
        print(f"http://{shown}:{server.server_port}/metrics", flush=True)
        over.wait()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or UserError."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise UserError("needs prometheus-client: pip install 'pyvma[metrics]'")
    from prometheus_client import CollectorRegistry

    from ..stats._metrics import Collector

    interval = INTERVAL_S if arguments.interval is None else arguments.interval
    if not 0.1 <= interval <= 86400 or arguments.serve_sockets < 0:
        raise UserError("--interval is 0.1 to 86400 seconds, --sockets at least 0")
    if arguments.textfile and arguments.listen:
        raise UserError("either --listen or --textfile")
    if arguments.openmetrics and not (arguments.once or arguments.textfile):
        raise UserError("--openmetrics is for --once and --textfile: by HTTP who asks chooses")
    registry = CollectorRegistry(auto_describe=False)
    pid, directory = arguments.pid, arguments.directory
    registry.register(Collector(directory, pid, arguments.serve_sockets))
    if not arguments.once and not arguments.textfile:
        _serve(registry, arguments.listen or f"127.0.0.1:{DEFAULT_PORT}")
        return 0
    over = None if arguments.once else _stopping()
    while True:
        data = _text(registry, arguments.openmetrics)
        if arguments.textfile:
            _write(arguments.textfile, data)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
        if over is None or over.wait(interval):
            return 0
