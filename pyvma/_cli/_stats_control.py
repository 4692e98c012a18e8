"""Changes a live process: its log's level, settings that it takes over while it runs, its counters.

It is asked by its control socket, so it has to be this user's, or this command root's. `native/doc/capture.md` has the protocol.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from . import UserError
from ._show import as_json, table

if TYPE_CHECKING:
    from ..stats._control import Control

EXAMPLES = """examples:
  pyvma stats control 4711                            the settings that may change, with their values
  pyvma stats control 4711 get rx_poll
  pyvma stats control 4711 set rx_poll 0              sleep at once from now on
  pyvma stats control 4711 log-level debug            none, error, warn, info or debug, or 0 to 4
  pyvma stats control 4711 log-level info --details 3 lines with thread and time, too
  pyvma stats control 4711 zero                       all counters begin again
  pyvma stats control 4711 dump 7                     what is known about the socket of fd 7, into the log; 0: about all

exit status: 0, 1 (no such process, or it refuses: one line says why), 2 (options)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("pid", type=int, metavar="PID", help="the process")
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="the answer as JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    get = actions.add_parser("get", help="the value of a setting; of all without a name", epilog="example: pyvma stats control 4711 get")
    get.add_argument("name", nargs="?", metavar="NAME", help="a setting")
    put = actions.add_parser("set", help="change a setting", epilog="example: pyvma stats control 4711 set kernel_poll_ratio 10")
    put.add_argument("name", metavar="NAME", help="a setting")
    put.add_argument("value", metavar="VALUE", help="as in its variable; K, M and G may follow a number")
    log = actions.add_parser("log-level", help="how much it logs", epilog="example: pyvma stats control 4711 log-level debug --details 1")
    log.add_argument("level", nargs="?", metavar="LEVEL", help="none, error, warn, info, debug; nothing: print it")
    log.add_argument("--details", type=int, metavar="0-3", help="what lines begin with: 1 the thread, 3 the time, too")
    actions.add_parser("zero", help="zero its counters", epilog="example: pyvma stats control 4711 zero")
    dump = actions.add_parser("dump", help="log a socket's statistics", epilog="example: pyvma stats control 4711 dump 7 --level warn")
    dump.add_argument("fd", type=int, metavar="FD", help="the socket's number in that process; 0: all")
    dump.add_argument("--level", default="info", metavar="LEVEL", help="the lines' level (default: info)")


def _get(control: Control, arguments: argparse.Namespace) -> None:
    name = getattr(arguments, "name", None)
    found = [item for item in control.tunables() if name in (None, item.name)]
    if not found:
        raise UserError(f"{name} is no setting that may change; `pyvma stats control {arguments.pid}` lists those")
    if arguments.json:
        as_json([asdict(item) for item in found])
    elif name is not None:
        print(found[0].value)
    else:
        rows = [(item.name, item.value, item.unit, f"{item.low} to {item.high}" if item.type == "int" else item.type) for item in found]
        table(("setting", "value", "unit", "range"), rows)


def _set(control: Control, arguments: argparse.Namespace) -> None:
    old, new = control.set(arguments.name, arguments.value)
    if arguments.json:
        as_json({"name": arguments.name, "old": old, "new": new})
    else:
        print(f"{arguments.name}: {new} (was {old})")


def _log_level(control: Control, arguments: argparse.Namespace) -> None:
    level, details = control.log(arguments.level, arguments.details)
    if arguments.json:
        as_json({"level": level, "details": details})
    else:
        print(f"log level {level}, details {details}")


def _zero(control: Control, arguments: argparse.Namespace) -> None:
    control.zero()
    if arguments.json:
        as_json({"zeroed": True})


def _dump(control: Control, arguments: argparse.Namespace) -> None:
    count, shown = control.dump(arguments.fd, arguments.level)
    if arguments.json:
        as_json({"sockets": count, "shown": shown})
    elif not shown:
        print(f"its log does not show that level: pyvma stats control {arguments.pid} log-level {arguments.level}")


ACTIONS = {None: _get, "get": _get, "set": _set, "log-level": _log_level, "zero": _zero, "dump": _dump}


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or UserError."""
    from ..stats._control import Control

    try:
        with Control(arguments.pid) as control:
            ACTIONS[arguments.action](control, arguments)
    except OSError as error:
        raise UserError(error.strerror or str(error)) from None
    return 0
