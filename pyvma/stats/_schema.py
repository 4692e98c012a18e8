"""The schema of a statistics file: which types of objects there are, and how the bytes of one become values.

A schema comes out of a file, so nothing of it is believed: what is outside the bounds below, or of the wrong kind, is a StatsError.
Fields of kinds that this reader does not know are left out.
"""

from __future__ import annotations

import ipaddress
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ._error import StatsError

__all__ = ["ADDABLE", "Field", "Type", "Value", "parse", "printable"]

Value = int | str | bool | None | ipaddress.IPv4Address | ipaddress.IPv6Address

TYPES_MAX = 1024
FIELDS_MAX = 4096
OBJECT_BYTES_MAX = 1 << 20
TEXT_BYTES_MAX = 65536
NAME_MAX = 256

ADDABLE = frozenset({"counter"})
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
_SIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}
_SIGNED_KINDS = frozenset({"signed"})
_PLAIN_KINDS = frozenset({"counter", "gauge", "max", "signed", "enum", "flag", "time", "port", "id", "link"})
_BYTES = {"addr": 16, "mac": 6, "text": 0}
_V4_MAPPED = b"\0" * 10 + b"\xff\xff"


@dataclass(frozen=True)
class Field:
    """A field of a type of objects.

    `kind` says what the value is: counter, gauge, max (int), signed (int), enum (str), flag (bool), time (int, CLOCK_MONOTONIC in ns,
    0: never), addr (ipaddress), port (int), mac (str), text (str), id (int, None: there is none), link (int: another object's `place`,
    0: none, None: one that is not shown). `unit` is "" for a plain number.
    """

    name: str
    kind: str
    offset: int
    size: int
    unit: str
    help: str
    names: tuple[str, ...] = ()
    mask: int = 0


@dataclass(frozen=True)
class Type:
    """A type of objects. `fields` by name, in the file's order."""

    name: str
    help: str
    size: int
    fields: dict[str, Field]
    # Where the bytes that hold fields begin, and how many there are.
    first: int = field(repr=False, default=0)
    extent: int = field(repr=False, default=0)
    # Of one object: the bytes that become values.
    unpacked: int = field(repr=False, default=0)
    _layers: tuple[struct.Struct, ...] = field(repr=False, default=(), compare=False)
    _decoders: dict[str, tuple[int, Callable[[Any], Value]]] = field(repr=False, default_factory=dict, compare=False)

    def unpack(self, data: memoryview, offset: int) -> tuple[Any, ...]:
        """The raw values of one object whose `first` byte is at `offset`."""
        if len(self._layers) == 1:
            return self._layers[0].unpack_from(data, offset)
        return tuple(value for layer in self._layers for value in layer.unpack_from(data, offset))

    def value(self, raw: tuple[Any, ...], name: str) -> Value:
        """A field's value. KeyError: there is no such field."""
        index, decode = self._decoders[name]
        return decode(raw[index])

    def index(self, name: str) -> int:
        """Where a field is in the raw values. KeyError: there is no such field."""
        return self._decoders[name][0]


def _same(value: int) -> Value:
    return value


def _id(size: int) -> Callable[[Any], Value]:
    none = (1 << 8 * size) - 1  # -1

    def number(value: int) -> Value:
        return None if value == none else value

    return number


def _addr(value: bytes) -> Value:
    if value[:12] == _V4_MAPPED:
        return ipaddress.IPv4Address(value[12:])
    return ipaddress.IPv6Address(value)


def _mac(value: bytes) -> Value:
    return value.hex(":")


def printable(text: str) -> str:
    """What a file says must not steer the terminal that it is shown on."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _text(value: bytes) -> Value:
    return printable(value.partition(b"\0")[0].decode("utf-8", "replace"))


def _enum(names: tuple[str, ...]) -> Callable[[Any], Value]:
    def name(value: int) -> Value:
        return names[value] if value < len(names) else str(value)

    return name


def _flag(mask: int) -> Callable[[Any], Value]:
    def bit(value: int) -> Value:
        return bool(value & mask)

    return bit


def _link(base: int) -> Callable[[Any], Value]:
    def place(value: int) -> Value:
        return None if 0 < value < base else value - base if value else 0

    return place


def _decoder(found: Field, base: int) -> Callable[[Any], Value]:
    if found.kind == "link":
        return _link(base)
    if found.kind == "enum":
        return _enum(found.names)
    if found.kind == "id":
        return _id(found.size)
    if found.kind == "flag":
        return _flag(found.mask)
    others: dict[str, Callable[[Any], Value]] = {"addr": _addr, "mac": _mac, "text": _text}
    return others.get(found.kind, _same)


def _format(found: Field) -> str:
    if found.kind in _BYTES:
        return f"{found.size}s"
    return (_SIGNED if found.kind in _SIGNED_KINDS else _UNSIGNED)[found.size]


@dataclass
class _Layer:
    end: int
    parts: list[str] = field(default_factory=list)
    held: list[list[str]] = field(default_factory=list)


def _layers(fields: list[Field], first: int) -> tuple[tuple[struct.Struct, ...], dict[str, int]]:
    """Fields that share bytes, as flags do, share a value where they are read alike; otherwise they go to a layer of their own."""
    places: dict[tuple[int, str], list[str]] = {}
    for found in fields:
        places.setdefault((found.offset, _format(found)), []).append(found.name)
    layers: list[_Layer] = []
    for (offset, form), names in sorted(places.items()):
        layer = next((item for item in layers if item.end <= offset), None)
        if layer is None:
            layer = _Layer(first)
            layers.append(layer)
        layer.parts.append(f"{offset - layer.end}x{form}")
        layer.held.append(names)
        layer.end = offset + struct.calcsize("=" + form)
    held = (names for layer in layers for names in layer.held)
    index = {name: position for position, names in enumerate(held) for name in names}
    return tuple(struct.Struct("=" + "".join(layer.parts)) for layer in layers), index


def _bad(what: str) -> StatsError:
    return StatsError(f"its schema makes no sense: {what}")


def _item(holder: Any, key: str, want: type, default: Any = None) -> Any:
    value = holder.get(key, default)
    if type(value) is not want:
        raise _bad(f"{key} is {value!r:.40}")
    return value


def _name(holder: Any) -> str:
    name: str = _item(holder, "name", str)
    if not 0 < len(name) <= NAME_MAX or not name.isprintable():
        raise _bad(f"name {name!r:.40}")
    return name


def _field(given: Any, size: int) -> Field | None:
    if not isinstance(given, dict):
        raise _bad(f"a field is {given!r:.40}")
    name, kind = _name(given), _item(given, "kind", str)
    if kind not in _PLAIN_KINDS and kind not in _BYTES:
        return None
    offset, width = _item(given, "offset", int), _item(given, "size", int)
    limit = _BYTES.get(kind)
    known = width in _UNSIGNED if limit is None else width == limit if limit else 0 < width <= TEXT_BYTES_MAX
    if not known or offset < 0 or offset + width > size:
        raise _bad(f"field {name}: {width} bytes at {offset} of {size}")
    if limit is None and offset % width:
        raise _bad(f"field {name}: {width} bytes at {offset}, which is no multiple")
    names = _item(given, "names", list, []) if kind == "enum" else []
    if not all(isinstance(item, str) for item in names):
        raise _bad(f"field {name}: names {names!r:.40}")
    mask = _item(given, "mask", int) if kind == "flag" else 0
    unit, text = (printable(_item(given, key, str, "")) for key in ("unit", "help"))
    return Field(name, kind, offset, width, unit, text, tuple(map(printable, names)), mask)


def _type(given: Any, base: int) -> Type:
    if not isinstance(given, dict):
        raise _bad(f"a type is {given!r:.40}")
    name, size, listed = _name(given), _item(given, "size", int), _item(given, "fields", list)
    if not 0 < size <= OBJECT_BYTES_MAX:
        raise _bad(f"type {name} of {size} bytes")
    if len(listed) > FIELDS_MAX:
        raise _bad(f"type {name} with {len(listed)} fields")
    fields: dict[str, Field] = {}
    for item in listed:
        found = _field(item, size)
        if found and found.name in fields:
            raise _bad(f"type {name} has two fields {found.name}")
        if found:
            fields[found.name] = found
    held = list(fields.values())
    # Flags share an integer. Whatever else overlaps is bounded: it would be unpacked again and again.
    sizes = [found.size for found in held if found.kind != "flag"]
    sizes += [width for _, width in {(found.offset, found.size) for found in held if found.kind == "flag"}]
    unpacked = sum(sizes)
    if unpacked > size:
        raise _bad(f"type {name} of {size} bytes has fields of {unpacked}")
    first = min((found.offset for found in held), default=0)
    layers, index = _layers(held, first)
    extent = max((found.offset + found.size for found in held), default=0) - first
    decoders = {found.name: (index[found.name], _decoder(found, base)) for found in held}
    return Type(name, printable(_item(given, "help", str, "")), size, fields, first, extent, unpacked, layers, decoders)


def parse(data: bytes, base: int) -> tuple[Type, ...]:
    """The types of a schema, in its order; `base` is where the file begins in the process. StatsError: it is not one."""
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _bad(f"{error!s:.60}") from None
    if not isinstance(found, dict):
        raise _bad("it is not an object")
    listed = _item(found, "types", list)
    if len(listed) > TYPES_MAX:
        raise _bad(f"{len(listed)} types")
    types = tuple(_type(item, base) for item in listed)
    if len({item.name for item in types}) != len(types):
        raise _bad("two types of one name")
    return types
