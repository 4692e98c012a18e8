"""Writes docs/reference/statistics.md from the schema of the statistics file.

    gen_stats_doc.py [LIBPYVMA]           write it
    gen_stats_doc.py --check [LIBPYVMA]   exit 1 when it is not what the schema says

Without LIBPYVMA the library of build/release is asked, else the installed package's.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from gen_config_doc import find_library

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "statistics.md"

HEAD = """\
# Statistics

<!-- Written by tools/gen_stats_doc.py from native/base/stats_table.h; do not edit. -->

What a process with an engine lets others of the same user read: `pyvma stats`, `pyvma.stats`, the exporters, or a reader of your own
(the file describes itself: `native/doc/stats-abi.md`). Numbers are as they are at the moment of reading; nothing is sampled.

Kinds: a *counter* only grows, until it is zeroed; a *max* is the greatest value since then; a *gauge* (*signed*: it may be negative) is
how it is now; a *flag* is yes or no; a *time* is of CLOCK_MONOTONIC, in ns, 0 for never; an *id* is a number to name something by; a
*link* leads to another object. The counters of `tcp` are those of `TCP_INFO` and are never zeroed.
"""


def schema(library: str) -> list[dict[str, Any]]:
    """The types, as the library tells them."""
    call = ctypes.CDLL(library).pyvma_stats_schema
    call.restype = ctypes.c_size_t
    call.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    size = call(None, 0)
    text = ctypes.create_string_buffer(size)
    call(text, size)
    types: list[dict[str, Any]] = json.loads(text.raw)["types"]
    return types


def page(types: list[dict[str, Any]]) -> str:
    """The page, a table for each type."""
    lines = [HEAD]
    for entry in types:
        told = entry["help"][0].upper() + entry["help"][1:]
        lines.append(f"\n## {entry['name']}\n\n{told}.\n\n| Field | Kind | Unit | Meaning |\n|---|---|---|---|\n")
        for field in entry["fields"]:
            names = [name for name in field.get("names", ()) if not name.isdigit()]
            meaning = field["help"] + (f": {', '.join(names)}" if names else "")
            lines.append(f"| `{field['name']}` | {field['kind']} | {field['unit']} | {meaning} |\n")
    return "".join(lines)


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    check = arguments[:1] == ["--check"]
    names = arguments[check:]
    if len(names) > 1 or (names and names[0].startswith("-")):
        print(__doc__, file=sys.stderr)
        return 2
    text = page(schema(names[0] if names else find_library()))
    if not check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print(f"{PAGE} is not what the schema says: run tools/gen_stats_doc.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
