"""A reader of pcapng of the tests' own, by the draft: frames with direction, stamp and losses, interfaces, statistics."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

SECTION, INTERFACE, STATISTICS, FRAME = 0x0A0D0D0A, 1, 5, 6
Options = dict[int, bytes]


@dataclass
class Frame:
    interface: int
    stamp_ns: int
    data: bytes
    length: int
    direction: int
    """1: received, 2: sent."""
    lost: int


@dataclass
class File:
    interfaces: list[Options] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    statistics: dict[int, Options] = field(default_factory=dict)

    def count(self, interface: int, option: int) -> int:
        """A counter of the interface's statistics, by the option's number."""
        (value,) = struct.unpack("=Q", self.statistics[interface][option])
        return int(value)

    def sent(self) -> list[Frame]:
        return [frame for frame in self.frames if frame.direction == 2]

    def received(self) -> list[Frame]:
        return [frame for frame in self.frames if frame.direction == 1]


def _options(data: bytes) -> Options:
    found: Options = {}
    while len(data) >= 4:
        code, length = struct.unpack_from("=HH", data)
        if code == 0:
            break
        found[code] = data[4 : 4 + length]
        data = data[4 + (length + 3) // 4 * 4 :]
    return found


def _frame(body: bytes) -> Frame:
    interface, high, low, kept, length = struct.unpack_from("=5I", body)
    options = _options(body[20 + (kept + 3) // 4 * 4 :])
    (flags,) = struct.unpack("=I", options[2])
    lost = struct.unpack("=Q", options[4])[0] if 4 in options else 0
    return Frame(interface, high << 32 | low, body[20 : 20 + kept], length, flags & 3, lost)


def parse(data: bytes) -> File:
    """Fails on whatever the draft does not allow."""
    file = File()
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        assert length % 4 == 0, (at, length)
        assert struct.unpack_from("=I", data, at + length - 4) == (length,)
        body = data[at + 8 : at + length - 4]
        if kind == SECTION:
            assert at == 0
            assert struct.unpack_from("=IHH", body) == (0x1A2B3C4D, 1, 0)
        elif kind == INTERFACE:
            file.interfaces.append(_options(body[8:]))
            assert file.interfaces[-1][9] == b"\x09"
        elif kind == FRAME:
            file.frames.append(_frame(body))
            assert file.frames[-1].interface < len(file.interfaces)
        else:
            assert kind == STATISTICS
            file.statistics[struct.unpack_from("=I", body)[0]] = _options(body[12:])
        at += length
    return file


def read(path: Path) -> File:
    return parse(path.read_bytes())
