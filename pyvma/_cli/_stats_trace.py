"""Prints the last events of a process: drops with their reason, connections' states, retransmissions, neighbours, rings.

They are read from the memory that the process records them in, so it may be live, stopped or dead (native/doc/tracing.md).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from . import UserError
from ._show import as_json, table

if TYPE_CHECKING:
    from ..stats._trace import Event, Trace

EXAMPLES = """examples:
  pyvma stats trace                                    which processes have a flight recorder, those that crashed too
  pyvma stats trace -p 4711                            its last events, one a line
  pyvma stats trace -p 4711 --follow                   and those that come, until it ends or Ctrl-C
  pyvma stats trace -p 4711 --format perfetto -o t.json    for https://ui.perfetto.dev or chrome://tracing
  pyvma stats trace /var/crash/pyvma-trace.4711        a file that was kept
  pyvma stats trace -p 4711 --packets on               have it record every packet from now on; off: no longer

exit status: 0, 1 (no such process or file, or what is wrong with it: one line says so), 2 (options)
"""
FOLLOW_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", nargs="?", metavar="FILE", help="the file of a process")
    parser.add_argument("-p", "--pid", type=int, default=argparse.SUPPRESS, metavar="PID", help="the process")
    parser.add_argument("-k", "--directory", default=argparse.SUPPRESS, metavar="DIRECTORY",
                        help="where processes keep their files (default: stats_dir, /dev/shm)")  # fmt: skip
    parser.add_argument("--format", choices=("text", "json", "chrome", "perfetto"), default="text", help="(default: text)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of stdout")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    parser.add_argument("--packets", choices=("on", "off"), help="switch the recording of every packet, by the control socket")


@contextlib.contextmanager
def _output(path: str | None, source: str) -> Iterator[TextIO]:
    """Where to write, emptied: what is read has been opened, and is not written over."""
    if path is None or path == "-":
        yield sys.stdout
        return
    try:
        if os.path.exists(path) and os.path.samefile(path, source):
            raise UserError(f"{path}: that is the file to read")
        file = open(path, "w", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    with file:
        yield file


def _line(event: Event) -> str:
    seconds, ns = divmod(event.realtime_ns, 1_000_000_000)
    try:
        clock = time.strftime("%H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        clock = str(seconds)
    return f"{clock}.{ns:09d} {event.thread} {event.text()}"


def _head(found: Trace) -> str:
    packets = ", with packets" if found.packets else ""
    torn = f", {found.torn} were being written" if found.torn else ""
    return (
        f"# {found.program} {found.pid}, {found.state}, pyvma {found.version}{packets}: {len(found.events)} events, "
        f"{found.lost} older ones are overwritten{torn}"
    )


def _document(found: Trace, kind: str) -> object:
    from dataclasses import asdict

    from ..stats._trace_chrome import chrome

    return asdict(found) if kind == "json" else chrome(found)


def _follow(arguments: argparse.Namespace, path: str) -> None:
    from ..stats._trace import TraceFile

    with TraceFile(path) as file, _output(arguments.output, path) as out:
        found = file.read()
        print(_head(found), file=out)
        while True:
            since = file.head
            for event in found.events:
                print(_line(event), file=out)
            out.flush()
            if found.state != "live":
                print(f"# it is {found.state}", file=out)
                return
            time.sleep(FOLLOW_S)
            found = file.read(since)
            if found.lost:
                print(f"# {found.lost} events were overwritten before they were read", file=out)


def _list(arguments: argparse.Namespace) -> None:
    from ..stats._trace import traces

    rows = [(one.pid, one.program, one.state, len(one.events) + one.lost, one.path) for one in traces(arguments.directory)]
    if arguments.format == "json":
        as_json([dict(zip(("pid", "program", "state", "events", "path"), row, strict=True)) for row in rows])
    else:
        table(("pid", "program", "state", "events", "file"), rows)


def _switch(arguments: argparse.Namespace) -> None:
    from ..stats._control import Control

    try:
        with Control(arguments.pid) as control:
            control.set("trace_packets", int(arguments.packets == "on"))
    except OSError as error:
        raise UserError(error.strerror or str(error)) from None


def _print(arguments: argparse.Namespace) -> None:
    from ..stats._trace import path_of, trace

    path = arguments.file or path_of(arguments.pid, arguments.directory)
    if arguments.follow:
        _follow(arguments, path)
        return
    found = trace(path)
    with _output(arguments.output, path) as out:
        if arguments.format != "text":
            json.dump(_document(found, arguments.format), out)
            out.write("\n")
            return
        print(_head(found), file=out)
        for event in found.events:
            print(_line(event), file=out)


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or UserError."""
    from ..stats import StatsError

    if arguments.file and arguments.pid is not None:
        raise UserError("a process or a file, not both")
    if arguments.follow and arguments.format != "text":
        raise UserError("--follow prints text")
    if arguments.packets and arguments.pid is None:
        raise UserError("--packets needs the process: -p PID")
    try:
        if arguments.packets:
            _switch(arguments)
        elif arguments.file or arguments.pid is not None:
            _print(arguments)
        else:
            _list(arguments)
    except StatsError as error:
        raise UserError(str(error)) from None
    except KeyboardInterrupt:
        return 0 if arguments.follow else 130
    return 0
