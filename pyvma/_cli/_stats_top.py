"""A live full-screen view of processes on pyvma: their rings and sockets, sorted, with drill-down.

Looking costs the processes nothing. It needs textual: pip install 'pyvma[top]'.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys

from . import UserError
from ._help import seconds

EXAMPLES = """examples:
  pyvma stats top                       all processes of this user
  pyvma stats top -p 4711               one process
  pyvma stats top -p 4711 --sort rtt    sockets by their round trip time
  pyvma stats top --filter 10.0.0.7     only lines with that text
  pyvma stats top -i 0.2                five times a second

keys: arrows move, Tab to the next table, Enter shows one ring or socket in full, Escape goes back
      1 to 9, 0: sort by that column, once more: the other way round; or click on its head
      / filter, Space pause, + - interval, q quit

exit status: 0, 1 (no terminal, no such process, no textual: one line says it), 2 (options)
"""

INTERVAL_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-p", "--pid", type=int, default=argparse.SUPPRESS, metavar="PID", help="only this process (default: all)")
    parser.add_argument("-k", "--directory", default=argparse.SUPPRESS, metavar="DIRECTORY", help="where processes keep their files")
    parser.add_argument("-i", "--interval", type=seconds(0.05, 3600), default=argparse.SUPPRESS, metavar="S", help="seconds (default: 1)")
    parser.add_argument("--sort", metavar="COLUMN", help="of sockets: by this column (default: rx+tx)")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only lines that hold this")


def _sort_column(text: str | None) -> int:
    from ._stats_watch import SOCKETS

    names = [column.name for column in SOCKETS]
    if text is None:
        return len(names) - 1
    fits = [i for i, name in enumerate(names) if name == text] or [i for i, name in enumerate(names) if name.startswith(text)]
    if not fits:
        raise UserError(f"--sort: {text!r} is none of {', '.join(names)}")
    return fits[0]


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or UserError."""
    if importlib.util.find_spec("textual") is None:
        raise UserError("needs textual: pip install 'pyvma[top]'")
    interval = INTERVAL_S if arguments.interval is None else arguments.interval
    if not 0.05 <= interval <= 3600:
        raise UserError("--interval: 0.05 to 3600 seconds")
    column = _sort_column(arguments.sort)
    pid, directory = arguments.pid, arguments.directory
    if pid is not None:
        from ..stats import attach

        attach(pid, directory).close()  # says what is wrong
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("needs a terminal; pyvma-stats --json is for programs")
    from ._stats_top_app import Top
    from ._stats_watch import Watch

    watch = Watch(directory, pid)
    try:
        app = Top(watch, interval_s=interval, sort=column, text=arguments.filter)
        app.run()
        return app.return_code or 0
    finally:
        watch.close()
