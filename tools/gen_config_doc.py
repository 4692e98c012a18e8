"""Writes native/doc/config.md from the engine's table of settings.

    gen_config_doc.py [LIBPYVMA]           write it
    gen_config_doc.py --check [LIBPYVMA]   exit 1 when it is not what the table says

Without LIBPYVMA the library of build/release is asked, else the installed package's.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "native" / "doc" / "config.md"

HEAD = """\
# Settings

Written by `tools/gen_config_doc.py` from `native/rt/config_table.h`; do not edit.

Later wins: the defaults below, the file named by `PYVMA_CONFIG`, the `VMA_*` variable where one is given, `PYVMA_<NAME>` in capitals,
`pyvma_config_set` (`pyvma.configure` from Python). Settings end with the first UDP socket. An unknown `PYVMA_*` name, a malformed value and
a file that cannot be parsed are errors that name what is wrong; `VMA_*` variables that are not in the table are ignored.

The file is TOML, cut down: `name = value` lines with integers, booleans, texts and arrays of texts (joined by `;`), comments, and
optionally the header `[pyvma]`. Numbers take the suffixes K, M and G (powers of 1024) when given as texts or variables. Switches are
1, true, yes, on and 0, false, no, off.

    PYVMA_INTERFACES="softnic:fabric=demo,port=0,addr=10.9.0.1/24,addr=fd00::1/64"

| Setting | Type | Default | Unit | VMA | Meaning |
|---|---|---|---|---|---|
"""


class Row(ctypes.Structure):
    """struct pyvma_config_row."""

    _fields_ = [(name, ctypes.c_char_p) for name in ("name", "type", "unit", "vma_alias", "default_value", "help")]


def document(library: str) -> str:
    """The whole page, from the table in this library."""
    lib = ctypes.CDLL(library)
    row = Row()
    lines: list[str] = []
    fields = ("name", "type", "unit", "vma_alias", "default_value", "help")
    while lib.pyvma_config_row(len(lines), ctypes.byref(row)) == 0:
        name, kind, unit, alias, default, text = (getattr(row, field).decode() for field in fields)
        lines.append(f"| `{name}` | {kind} | {f'`{default}`' if default else ''} | {unit} | {f'`{alias}`' if alias else ''} | {text} |\n")
    return HEAD + "".join(lines)


def find_library() -> str:
    """The library built last in place, or the one beside the package's extension."""
    built = ROOT / "build" / "release" / "libpyvma.so"
    if built.exists():
        return str(built)
    spec = importlib.util.find_spec("pyvma._native")
    for place in (spec and spec.submodule_search_locations) or ():
        library = Path(place) / "libpyvma.so"
        if library.exists():
            return str(library)
    raise SystemExit("no libpyvma.so: build it, or name it")


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    check = arguments[:1] == ["--check"]
    names = arguments[check:]
    if len(names) > 1 or (names and names[0].startswith("-")):
        print(__doc__, file=sys.stderr)
        return 2
    text = document(names[0] if names else find_library())
    if not check:
        DOCUMENT.write_text(text)
    elif DOCUMENT.read_text() != text:
        print(f"{DOCUMENT} is not what the table says: run tools/gen_config_doc.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
