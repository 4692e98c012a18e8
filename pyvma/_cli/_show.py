"""What commands have in common when they print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def as_json(found: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(found, indent=2, default=str))


def text_of(value: Any) -> str:
    """A value for people: "-" for none, lists with commas, "yes" and "no"."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(text_of(item) for item in value) or "-"
    return str(value)


def facts(title: str, values: dict[str, Any], indent: str = "") -> None:
    """A title and its facts, one a line."""
    print(f"{indent}{title}")
    for name, value in values.items():
        print(f"{indent}    {name.replace('_', ' '):<20} {text_of(value)}")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], indent: str = "") -> None:
    """Columns as wide as they must be."""
    cells = [[*head], *([text_of(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        print(indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
