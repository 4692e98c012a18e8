"""`python -m pyvma`: a command of `pyvma` when its name comes first, else a program to run over the engine (`_run`).

A script that has a command's name is run as `./bench`, or after an option.
"""

from __future__ import annotations

import sys

from ._cli import COMMANDS, main


def _entry() -> int | None:
    first = sys.argv[1:2]
    if not first or first[0] in (*COMMANDS, "-h", "--help", "--version"):
        return main()
    from ._run import run

    run(sys.argv[1:])
    return None


if __name__ == "__main__":
    sys.exit(_entry())
