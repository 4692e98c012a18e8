"""Completion of commands and options by Tab, as a script for a shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from . import UserError

EXAMPLES = """examples:
  eval "$(pyvma completion bash)"                                            in ~/.bashrc
  pyvma completion bash >/etc/bash_completion.d/pyvma                        for everybody
  pyvma completion zsh >"${fpath[1]}/_pyvma"                                 zsh, a folder of its fpath
  pyvma completion fish >~/.config/fish/completions/pyvma.fish
  pyvma completion bash --program pyvma-stats
"""
SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("pyvma", "pyvma-stats", "pyvmad")


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser("completion", help="a script that completes commands and options", description=__doc__, epilog=EXAMPLES)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.add_argument("--program", choices=PROGRAMS, default="pyvma", help="of which program (default: pyvma)")


def run(arguments: argparse.Namespace) -> int:
    """Prints the script; UserError when what makes it is not there."""
    try:
        import shtab
    except ImportError:
        raise UserError("needs shtab: pip install shtab") from None
    from ..daemon import _main
    from . import parser, stats
    from ._help import walk

    parsers: dict[str, Callable[[], argparse.ArgumentParser]] = {"pyvma": parser, "pyvma-stats": stats.parser, "pyvmad": _main.parser}
    top = parsers[arguments.program]()
    places = {"FILE": shtab.FILE, "PATH": shtab.FILE, "DIR": shtab.DIRECTORY, "DIRECTORY": shtab.DIRECTORY}
    for _, sub in walk(top):
        for action in sub._actions:
            if isinstance(action.metavar, str) and action.metavar in places:
                setattr(action, "complete", places[action.metavar])  # noqa: B010  shtab looks for it
    script: str = shtab.complete(top, arguments.shell)
    print(script)
    return 0
