"""Every setting: its value, where that comes from, and what it means."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser("config", help="every setting with its value and where that came from", description=__doc__)
    parser.add_argument("name", nargs="*", help="only these settings")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; UserError for a name that is not in it, or a malformed setting."""
    from .. import _config
    from . import UserError

    rows = _config.rows()
    unknown = set(arguments.name) - {row.name for row in rows}
    if unknown:
        raise UserError(f"no such setting: {', '.join(sorted(unknown))}")
    rows = [row for row in rows if not arguments.name or row.name in arguments.name]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    table.add_column("meaning")
    for row in rows:
        unit = f" {row.unit}" if row.unit else ""
        table.add_row(row.name, f"{row.value}{unit}" if row.value else "-", row.origin, row.help)
    Console(markup=False, highlight=False).print(table)
    return 0
