"""The command `pyvma`: one module a command, each with `add_parser(commands)` and `run(arguments) -> exit status`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import shlex
import sys
from collections.abc import Sequence

COMMANDS = ("run", "doctor", "devinfo", "roce", "capture", "config", "softnic", "stats", "bench", "demo", "daemon", "completion")


class UserError(Exception):
    """What the user can mend: one line on stderr and exit status 1."""

    status = 1


class WrongOptionsError(UserError):
    """What was asked for cannot be had, and would not the next time: exit status 2, as of options that the parser does not know."""

    status = 2


def module(name: str, *words: str) -> list[str]:
    """A command line: a module of this installation, not what bears its name in the working directory (before Python 3.11 that one)."""
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-m", name, *words]


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The command line, whole or of these commands: what a command imports, those that start another program need not wait for."""
    from ._help import finish

    top = argparse.ArgumentParser(
        prog="pyvma",
        description="BSD sockets over user-space rings",
        epilog="A program as it is, with its sockets offloaded: python -m pyvma [OPTION...] SCRIPT | -m MODULE | -c CODE [ARGUMENT...]",
    )
    top.add_argument("--version", action="store_true", help="print the version and stop")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name in names:
        if importlib.util.find_spec(f"{__name__}.{name}") is not None:
            importlib.import_module(f"{__name__}.{name}").add_parser(commands)
    return finish(top)


def _run(words: Sequence[str]) -> int:
    first = words[:1]
    top = parser(first if first and first[0] in COMMANDS else COMMANDS)
    arguments = top.parse_args(words)
    arguments.command_line = shlex.join(["pyvma", *words])
    if arguments.version:
        import pyvma

        print(f"pyvma {pyvma.version}")
        return 0
    if arguments.command is None:
        top.print_help()
        return 2
    status: int = importlib.import_module(f"{__name__}.{arguments.command}").run(arguments)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    from ._help import guarded

    words = sys.argv[1:] if argv is None else argv
    name = next((word for word in words if word in COMMANDS), "")
    return guarded(f"pyvma {name}".strip(), lambda: _run(words))
