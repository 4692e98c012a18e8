"""Writes docs/reference/settings.md and docs/reference/vma.md from the engine's table of settings.

    gen_config_doc.py [LIBPYVMA]           write them
    gen_config_doc.py --check [LIBPYVMA]   exit 1 when they are not what the table says

What became of VMA's variables that are no setting is in docs/reference/vma-others.txt.

Without LIBPYVMA the library of build/release is asked, else the installed package's.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
TABLE = ROOT / "native" / "rt" / "config_table.h"
OTHERS = REFERENCE / "vma-others.txt"

SETTINGS_HEAD = """\
# Settings

<!-- Written by tools/gen_config_doc.py from native/rt/config_table.h; do not edit. -->

Later wins: the defaults below, those of the [preset](#presets), the file named by `PYVMA_CONFIG`, the `VMA_*` variable where one is
given, `PYVMA_<NAME>` in capitals, `pyvma.configure` (`pyvma_config_set` in C), and options of `python -m pyvma`. Settings end when the
engine starts: with the first socket. An unknown `PYVMA_*` name, a malformed value and a file that cannot be parsed are errors that name
what is wrong; `VMA_*` variables that are not in the table are ignored.

The file is TOML, cut down: `name = value` lines with integers, booleans, texts and arrays of texts (joined by `;`), comments, and
optionally the header `[pyvma]`. Numbers take the suffixes K, M and G (powers of 1024) when given as texts or variables. Switches are
1, true, yes, on and 0, false, no, off.

`pyvma config` prints every setting with its value and where that comes from. Those marked ⟳ can be changed in a running process:
`pyvma stats control PID set NAME VALUE`.

| Setting | Type | Default | Unit | VMA | Meaning |
|---|---|---|---|---|---|
"""

PRESETS_HEAD = """
## Presets

What `preset` sets, unless it is set by its own name. The names up to `wombat_fh` are those of `VMA_SPEC`.

| Preset | Settings |
|---|---|
"""

VMA_HEAD = """\
# VMA's variables

<!-- Written by tools/gen_config_doc.py from native/rt/config_table.h and vma-others.txt; do not edit. -->

Every variable of VMA, and what it is here. One that is a setting's other name is read under the name that it has in VMA; `PYVMA_<NAME>`
beside it wins. The others are ignored. [Settings](settings.md) has the meanings, [Moving from VMA](../moving-from-vma.md) the rest.

| VMA | here |
|---|---|
"""


FIELDS = ("name", "type", "unit", "vma_alias", "default_value", "help")


class Row(ctypes.Structure):
    """struct pyvma_config_row."""

    _fields_ = [*((name, ctypes.c_char_p) for name in FIELDS), ("live", ctypes.c_int), ("given", ctypes.c_int)]


def rows(library: str) -> list[dict[str, str]]:
    """The table in this library."""
    lib = ctypes.CDLL(library)
    row = Row()
    found: list[dict[str, str]] = []
    while lib.pyvma_config_row(len(found), ctypes.byref(row)) == 0:
        found.append({field: getattr(row, field).decode() for field in FIELDS} | {"mark": " ⟳" if row.live else ""})
    return found


def settings(table: list[dict[str, str]]) -> str:
    """The page of all settings."""

    def code(text: str) -> str:
        return f"`{text}`" if text else ""

    lines = []
    for row in table:
        name, kind, unit, alias, default, text = (row[field] for field in FIELDS)
        lines.append(f"| `{name}`{row['mark']} | {kind} | {code(default)} | {unit} | {code(alias)} | {text} |\n")
    return SETTINGS_HEAD + "".join(lines) + PRESETS_HEAD + presets()


def presets() -> str:
    """Rows of the presets' table."""
    header = TABLE.read_text().replace("\\\n", " ")
    defined = re.findall(r'#define (PV_CONFIG_PRESET_\w+)((?:\s+"[^"]*")+)', header)
    texts = {name: "".join(re.findall(r'"([^"]*)"', parts)) for name, parts in defined}
    listed = header[header.index("#define PV_CONFIG_PRESETS(X)") :].split("\n", 1)[0]
    rows = ""
    for name, parts in re.findall(r'X\("([^"]+)",([^)]*)\)', listed):
        words = "".join(texts.get(word) or text for word, text in re.findall(r'(\w+)|"([^"]*)"', parts)).split()
        rows += f"| `{name}` | {', '.join(f'`{word}`' for word in words)} |\n"
    return rows


def vma(table: list[dict[str, str]]) -> str:
    """The page of VMA's variables. One that has become a setting since it was put into the other list is a setting."""
    known = dict(line.split(": ", 1) for line in OTHERS.read_text().splitlines() if line.startswith("VMA_"))
    known |= {row["vma_alias"]: f"the setting `{row['name']}`" for row in table if row["vma_alias"]}
    return VMA_HEAD + "".join(f"| `{name}` | {text} |\n" for name, text in sorted(known.items()))


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
    table = rows(names[0] if names else find_library())
    for path, text in ((REFERENCE / "settings.md", settings(table)), (REFERENCE / "vma.md", vma(table))):
        if not check:
            path.write_text(text)
        elif path.read_text() != text:
            print(f"{path} is not what the table says: run tools/gen_config_doc.py", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
