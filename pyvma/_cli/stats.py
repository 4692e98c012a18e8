"""What a process on pyvma does: its sockets, rings and pools, as vma_stats shows them and beyond.

Without a command: the classic views, with the options of vma_stats. Nothing is copied for it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import UserError
from ._help import finish, guarded, seconds

if TYPE_CHECKING:
    from ..stats import Process, Snapshot

EXAMPLES = """examples:
  pyvma-stats                           the only process there is, every second, totals
  pyvma-stats -p 4711 -v 3 -c 1         everything about it, once
  pyvma-stats -p 4711 -v 2 -d 2 -i 5    rates over five seconds each
  pyvma-stats -v 5                      sockets of all processes, as netstat lists them
  pyvma-stats -p 4711 -s 7,20-30        only these fds
  pyvma-stats -p 4711 --json            all fields, for programs; with --watch an object a line
  pyvma-stats -p 4711 --csv socket      a table of all sockets
  pyvma-stats -p 4711 -l debug -D 2     its log from now on
  pyvma-stats top                       full-screen

exit status: 0, 1 (no such process, a file that cannot be read: one line says it), 2 (options), 130 (Ctrl-C)
"""

# Each is a module _stats_NAME with add_arguments(parser) and run(arguments) -> exit status; what it works with is imported by run.
SUBCOMMANDS = {
    "top": "a live full-screen view: sorted, with drill-down",
    "explain": "why sockets are not offloaded, and where packets are dropped",
    "serve": "metrics for Prometheus, by HTTP or as a text file",
    "control": "a live process's log level and tunables, and zeroing its counters",
    "trace": "the flight recorder's last events, as text or for Perfetto",
}
VIEWS = {1: "basic", 2: "extra", 3: "full", 4: "multicast groups", 5: "like netstat"}
INTERVAL_S = 1.0
CLEAR = "\x1b[H\x1b[2J"


def _module(name: str) -> str:
    return f"{__package__}._stats_{name}"


def _number(low: float, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        value = kind(text)
        if not low <= value or not math.isfinite(value):
            raise ValueError(text)
        return value

    convert.__name__ = "number"
    return convert


def _fds(text: str) -> list[range]:
    """3,7,20-30"""
    found = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found.append(range(int(first), int(last if dash else first) + 1))
    return found


def _add_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which process (default: the only one that runs)")
    which.add_argument("-p", "--pid", type=_number(1, int), metavar="PID", help="by its number")
    which.add_argument("-n", "--name", metavar="NAME", help="by its program's name")
    which.add_argument("-f", "--find_pid", action="store_true", help="the only one that runs: the default")
    which.add_argument("-k", "--directory", metavar="DIRECTORY", help="where processes keep their files (default: stats_dir, /dev/shm)")
    which.add_argument("-F", "--forbid_clean", action="store_true", help="leave the files of processes that are gone")
    what = parser.add_argument_group("what to show")
    views = ", ".join(f"{number} {name}" for number, name in VIEWS.items())
    what.add_argument("-v", "--view", type=int, choices=VIEWS, default=1, help=f"{views} (default: 1)")
    what.add_argument("-d", "--details", type=int, choices=(1, 2), default=1, help="1 totals, 2 a second (default: 1)")
    what.add_argument("-s", "--sockets", type=_fds, metavar="LIST", help="only these fds: 3,7,20-30")
    what.add_argument("-i", "--interval", type=seconds(0.01), metavar="S", help="seconds between rounds (default: 1)")
    what.add_argument("-c", "--cycles", type=_number(0, int), metavar="N", help="rounds; 0: until Ctrl-C, the default of views 1 to 3")
    what.add_argument("--once", dest="cycles", action="store_const", const=1, help="as -c 1")
    what.add_argument("--watch", dest="cycles", action="store_const", const=0, help="as -c 0")
    form = what.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all fields as one JSON object; of several rounds, an object a line")
    form.add_argument("--csv", nargs="?", const="", metavar="KIND", help="a table of one kind of objects, or one after another")
    live = parser.add_argument_group("a live process")
    live.add_argument("-z", "--zero", action="store_true", help="zero its counters")
    live.add_argument("-l", "--log_level", metavar="LEVEL", help="its log's level, by name or number")
    live.add_argument("-D", "--details_level", type=int, choices=range(4), metavar="0-3", help="its log's details")
    live.add_argument("-S", "--fd_dump", nargs="+", metavar=("FD", "LEVEL"), help="have it log a socket, 0: all; and at which level")
    parser.add_argument("-V", "--version", action="store_true", help="print the version and stop", dest="stats_version")


def _add(parser: argparse.ArgumentParser) -> None:
    _add_options(parser)
    parser.set_defaults(stats_usage=parser.error)
    parser.usage = "%(prog)s [OPTION...] | COMMAND ..."
    commands = parser.add_subparsers(dest="stats_command", metavar="COMMAND", prog=parser.prog, title="commands")
    for name, text in SUBCOMMANDS.items():
        if importlib.util.find_spec(_module(name)) is not None:
            module = importlib.import_module(_module(name))
            command = commands.add_parser(name, help=text)
            module.add_arguments(command)
            command.set_defaults(stats_run=module.run)


def add_parser(commands: Any) -> None:
    """Adds the command."""
    raw = argparse.RawDescriptionHelpFormatter
    text = "what a process does: sockets, rings, counters (vma_stats and more)"
    _add(commands.add_parser("stats", help=text, description=__doc__, epilog=EXAMPLES, formatter_class=raw))


def _choose(arguments: argparse.Namespace) -> Process:
    """The process that is meant; UserError: there is none, or several."""
    from ..stats import attach, processes

    if arguments.pid is not None:
        return attach(arguments.pid, arguments.directory)
    found = processes(arguments.directory, clean=not arguments.forbid_clean, everything=True)
    live = [item for item in found if item.state in ("live", "stopped")]
    named = f" named {arguments.name}" if arguments.name is not None else ""
    live = [item for item in live if _named(item.program, arguments.name)]
    if not live:
        broken = [item.why for item in found if item.state == "unreadable" and not item.removed]
        raise UserError(f"no process{named} shows statistics" + (f" ({broken[0]})" if broken else ""))
    if len(live) > 1:
        listed = ", ".join(f"{item.pid} {item.program}" for item in live[:8])
        raise UserError(f"{len(live)} processes{named}: {listed}{', ...' if len(live) > 8 else ''}; choose one by -p")
    return attach(live[0].path)


def _filtered(snapshot: Snapshot, wanted: list[range] | None) -> Snapshot:
    """Only sockets with one of the fds, and what belongs to them."""
    if wanted is None:
        return snapshot
    from dataclasses import replace

    kept = [item for item in snapshot.sockets if any(item.figure("fd", -1) in part for part in wanted)]
    halves = {item.figure("transport") for item in kept} - {0}
    objects = dict(snapshot.objects, socket=kept)
    objects.update((name, [item for item in snapshot.of(name) if item.place in halves]) for name in ("udp", "tcp"))
    objects["membership"] = [item for item in snapshot.memberships if item.figure("udp") in halves]
    return replace(snapshot, objects=objects)


class _Rounds:
    """Snapshots, one a round, at times that do not drift."""

    def __init__(self, process: Process, arguments: argparse.Namespace, cycles: int) -> None:
        self.process = process
        self.interval_s = INTERVAL_S if arguments.interval is None else arguments.interval
        self.rates = arguments.details == 2
        self.cycles = cycles
        self.wanted = arguments.sockets

    def __iter__(self) -> Any:
        from ..stats import delta

        due = time.monotonic()
        before = self.process.snapshot() if self.rates else None
        done = 0
        while True:
            if done or before:
                due = max(due + self.interval_s, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))
            state = self.process.state
            now = self.process.snapshot()
            yield _filtered(delta(before, now) if before else now, self.wanted), state
            before = now if self.rates else None
            done += 1
            if done == self.cycles or state != "live":
                return


def _show(process: Process, arguments: argparse.Namespace) -> None:
    from . import _stats_export, _stats_full, _stats_views

    cycles = arguments.cycles
    if cycles is None:
        cycles = 1 if arguments.json or arguments.csv is not None or arguments.view == 4 else 0
    tty = sys.stdout.isatty()
    for number, (snapshot, state) in enumerate(_Rounds(process, arguments, cycles)):
        if arguments.json:
            print(_stats_export.as_json(snapshot, state, indent=2 if cycles == 1 else None))
        elif arguments.csv is not None:
            sys.stdout.write(_stats_export.as_csv(snapshot, arguments.csv))
        elif arguments.view == 3:
            print((CLEAR if tty and cycles != 1 else "") + _stats_full.full(snapshot, state))
        elif arguments.view == 4:
            print(_stats_views.groups(snapshot, state))
        else:
            print(_stats_views.basic(snapshot, state, extra=arguments.view == 2, number=number))
        sys.stdout.flush()
        for line in _stats_views.remarks(snapshot):
            print(f"pyvma-stats: {line}", file=sys.stderr)


def _named(program: str, name: str | None) -> bool:
    return name is None or os.path.basename(program) == os.path.basename(name)


def _netstat(arguments: argparse.Namespace) -> None:
    due = time.monotonic()
    done = 0
    while True:
        _netstat_once(arguments)
        sys.stdout.flush()
        done += 1
        if done == (1 if arguments.cycles is None else arguments.cycles):
            return
        due = max(due + (INTERVAL_S if arguments.interval is None else arguments.interval), time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def _netstat_once(arguments: argparse.Namespace) -> None:
    from ..stats import StatsError, attach, processes
    from . import _stats_views

    paths: list[int | str]
    if arguments.pid is not None:
        paths = [arguments.pid]
    else:
        found = processes(arguments.directory, clean=not arguments.forbid_clean)
        paths = [item.path for item in found if _named(item.program, arguments.name)]
        if not paths and arguments.name is not None:
            raise UserError(f"no process named {arguments.name} shows statistics")
    taken = []
    for path in paths:
        try:
            with attach(path, arguments.directory) as process:
                taken.append(_filtered(process.snapshot(), arguments.sockets))
        except StatsError as error:
            if arguments.pid is not None:
                raise
            print(f"pyvma-stats: {error}", file=sys.stderr)  # it has ended meanwhile
    print(_stats_views.netstat(taken))


def _control(process: Process, arguments: argparse.Namespace) -> bool:
    """Does what a live process was asked for; was there anything?"""
    if not (arguments.zero or arguments.log_level is not None or arguments.details_level is not None or arguments.fd_dump):
        return False
    if process.state != "live":
        raise UserError(f"process {process.pid} is {process.state}: there is nobody to do that")
    process.reachable()
    from ..stats import _control

    try:
        if arguments.zero:
            _control.zero(process.pid)
        if arguments.log_level is not None or arguments.details_level is not None:
            _control.log_level(process.pid, arguments.log_level, arguments.details_level)
        if arguments.fd_dump:
            _, shown = _control.dump(process.pid, *arguments.fd_dump)
            if not shown:
                print("pyvma-stats: the process's log does not show that level: see -l", file=sys.stderr)
    except OSError as error:
        raise UserError(error.strerror or str(error)) from None
    return True


def _classic(arguments: argparse.Namespace) -> None:
    netstat = arguments.view == 5 and not arguments.json and arguments.csv is None
    asked = arguments.zero or arguments.log_level is not None or arguments.details_level is not None or arguments.fd_dump
    if netstat and not asked:
        if arguments.details == 2:
            arguments.stats_usage("-d 2: view 5 shows no rates")
        _netstat(arguments)
        return
    with _choose(arguments) as process:
        if not _control(process, arguments):
            _show(process, arguments)


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or UserError."""
    from ..stats import StatsError

    if arguments.stats_version:
        print(f"pyvma-stats {importlib.metadata.version('pyvma')}")
        return 0
    if arguments.fd_dump and (len(arguments.fd_dump) > 2 or not arguments.fd_dump[0].isdecimal()):
        raise UserError("-S: an fd, and a level")
    try:
        if arguments.stats_command is not None:
            status: int = arguments.stats_run(arguments)
            return status
        _classic(arguments)
    except StatsError as error:
        raise UserError(str(error)) from None
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line of the program pyvma-stats."""
    top = argparse.ArgumentParser(prog="pyvma-stats", description=__doc__, epilog=EXAMPLES)
    _add(top)
    return finish(top, ("stats",))


def main(argv: Sequence[str] | None = None) -> int:
    """The program pyvma-stats, which is `pyvma stats`. Its exit status."""
    return guarded("pyvma-stats", lambda: run(parser().parse_args(argv)))
