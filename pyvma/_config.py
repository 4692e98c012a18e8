"""The configuration table as records."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ._native import ffi, lib


@dataclass(frozen=True)
class Row:
    """One setting: what it is, its value in force as text, and where that came from."""

    name: str
    type: str
    unit: str
    vma_alias: str
    default: str
    help: str
    value: str
    origin: str
    live: bool
    """May be changed in a running process: `pyvma stats control`."""


def _text(pointer: object) -> str:
    return "" if pointer == ffi.NULL else ffi.string(pointer).decode()


def value_of(name: str) -> str:
    """The value in force. KeyError when there is no such setting."""
    size = lib.pyvma_config_get(name.encode(), ffi.NULL, 0)
    if size < 0:
        raise KeyError(name)
    room = ffi.new("char[]", size + 1)
    lib.pyvma_config_get(name.encode(), room, size + 1)
    return _text(room)


def _origin(name: str, alias: str, value: str, default: str, given: bool) -> str:
    variable = f"PYVMA_{name.upper()}"
    if variable in os.environ:
        return variable
    if alias and alias in os.environ:
        return alias
    if not given:
        return "default" if value == default else f"preset {value_of('preset')}"
    if value == default:
        return "default"
    return os.environ.get("PYVMA_CONFIG", "configure()")


def rows() -> list[Row]:
    """The whole table."""
    found: list[Row] = []
    row = ffi.new("struct pyvma_config_row *")
    while lib.pyvma_config_row(len(found), row) == 0:
        name, alias, default = _text(row.name), _text(row.vma_alias), _text(row.default_value)
        value = value_of(name)
        origin = _origin(name, alias, value, default, bool(row.given))
        found.append(Row(name, _text(row.type), _text(row.unit), alias, default, _text(row.help), value, origin, bool(row.live)))
    return found
