"""The command `pyvmad`, which is `pyvma daemon`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from .._cli import daemon
    from .._cli._help import finish

    top = argparse.ArgumentParser(prog="pyvmad", description=daemon.__doc__)
    daemon.add_actions(top)
    return finish(top, ("daemon",))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it; the exit status."""
    from .._cli import daemon
    from .._cli._help import guarded

    return guarded("pyvmad", lambda: daemon.run(parser().parse_args(sys.argv[1:] if argv is None else argv)))
