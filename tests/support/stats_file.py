"""Statistics files made by the page that describes them (native/doc/stats-abi.md), and by nothing else: what readers are tried with."""

from __future__ import annotations

import json
import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEAD_BYTES = 4096
SEGMENT_ENTRIES = 16
BASE = 0x7F0000000000  # where the file begins in the process
SIZES = {"addr": 16, "mac": 6, "link": 8, "time": 8, "port": 2, "enum": 4, "flag": 4}


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text[text.rindex(")") + 2 :].split()[19])


def type_of(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    """A type of (name, kind[, size or {what else}]) fields, each at the next place that suits it."""
    offset = 0
    described = []
    for item in fields:
        extra = item[2] if len(item) > 2 and isinstance(item[2], dict) else {}
        size = item[2] if len(item) > 2 and isinstance(item[2], int) else extra.pop("size", SIZES.get(item[1], 8))
        align = 1 if item[1] in ("addr", "mac", "text") else size
        offset += -offset % align
        place = extra.pop("offset", offset)
        described.append(
            {"name": item[0], "kind": item[1], "offset": place, "size": size, "unit": "", "help": f"what {item[0]} is", **extra}
        )
        offset = max(offset, place + size)
    return {"name": name, "help": f"a {name}", "size": max(8, offset + -offset % 8), "fields": described}


def packed(described: dict[str, Any], value: Any) -> bytes:
    """The bytes of one field's value."""
    size, kind = described["size"], described["kind"]
    if isinstance(value, bytes):
        return value.ljust(size, b"\0")[:size]
    if isinstance(value, str):
        if kind == "enum":
            value = described["names"].index(value)
        elif kind == "addr":
            import ipaddress

            address = ipaddress.ip_address(value)
            return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
        else:
            return value.encode()[: size - 1].ljust(size, b"\0")
    return int(value).to_bytes(size, "little", signed=value < 0)


@dataclass
class Maker:
    """Collects objects, then writes the file. `head` overrides fields of it by name."""

    types: list[dict[str, Any]]
    pid: int = field(default_factory=os.getpid)
    program: str = "a program"
    head: dict[str, Any] = field(default_factory=dict)
    schema: bytes | None = None
    _objects: list[tuple[int, bytearray]] = field(default_factory=list)
    _next: int = 0

    def add(self, kind: str, /, **values: Any) -> int:
        """An object; its address, which links to it name."""
        if not self._next:
            self._next = HEAD_BYTES + len(self._schema()) + -len(self._schema()) % 64
        number = next(i for i, item in enumerate(self.types) if item["name"] == kind)
        described = self.types[number]
        data = bytearray(described["size"])
        fields = {item["name"]: item for item in described["fields"]}
        for name, value in values.items():
            item = fields[name]
            at = slice(item["offset"], item["offset"] + item["size"])
            if item["kind"] == "flag":
                old = int.from_bytes(data[at], "little")
                data[at] = (old | item["mask"] if value else old & ~item["mask"]).to_bytes(item["size"], "little")
            else:
                data[at] = packed(item, value)
        offset = self._next
        self._objects.append((number + 1, data))
        self._next += len(data) + -len(data) % 64
        return BASE + offset

    def _schema(self) -> bytes:
        return self.schema if self.schema is not None else json.dumps({"types": self.types}).encode()

    def content(self) -> bytearray:
        """The whole file."""
        schema = self._schema()
        data = bytearray(HEAD_BYTES) + schema + bytes(-len(schema) % 64)
        entries = []
        for number, item in self._objects:
            entries.append(struct.pack("=IHHQ", 2 * len(entries) + 2, number, 0, len(data)))
            data += item + bytes(-len(item) % 64)
        directory = len(data)
        groups = [entries[i : i + SEGMENT_ENTRIES] for i in range(0, len(entries), SEGMENT_ENTRIES)] or [[]]
        for i, group in enumerate(groups):
            size = 16 + 16 * SEGMENT_ENTRIES
            following = len(data) + size if i + 1 < len(groups) else 0
            free = bytes(16) * (SEGMENT_ENTRIES - len(group))
            data += struct.pack("=QII", following, SEGMENT_ENTRIES, 0) + b"".join(group) + free
        data += bytes(-len(data) % 4096)
        alive = Path(f"/proc/{self.pid}").exists()
        head: dict[str, Any] = {
            "magic": b"PYVMASTT",
            "version": 1,
            "order": 0x01020304,
            "state": 1,
            "page": 4096,
            "valid": len(data),
            "schema_offset": HEAD_BYTES,
            "schema_size": len(schema),
            "directory": directory,
            "pid": self.pid,
            "start_ticks": start_ticks(self.pid) if alive else 1,
            "uid": os.getuid(),
            "started_ns": time.time_ns(),
            "started_monotonic_ns": time.monotonic_ns(),
            "hidden": 0,
            "program": self.program.encode(),
            "pyvma": b"0.1.0",
            "boot_id": boot_id().encode(),
            "base": BASE,
            **self.head,
        }
        struct.pack_into("=8s4I10Q24x64s32s40sQ", data, 0, *head.values())
        return data

    def write(self, directory: Path, name: str | None = None) -> Path:
        """The file in a directory, as that of its process."""
        path = directory / (name or f"pyvma-stats.{self.pid}")
        path.write_bytes(self.content())
        path.chmod(0o600)
        return path
