"""The daemon's messages (native/doc/netvsc.md): little endian, one a packet, each checked before anything is done."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Flow", "MalformedError", "Request", "answer", "is_group", "is_loopback", "is_peer", "parse"]

MAGIC = 0x444D5650
VERSION = 1
MESSAGE_MAX = 512
ANSWER = 0x8000
HELLO, TAP, FLOW_ADD, FLOW_DEL, XDP, XDP_DROP, STATUS, CRASH, BYE, NEIGH = range(1, 11)
NAMES = {1: "HELLO", 2: "TAP", 3: "FLOW_ADD", 4: "FLOW_DEL", 5: "XDP", 6: "XDP_DROP", 7: "STATUS", 8: "CRASH", 9: "BYE", 10: "NEIGH"}
AGAIN = 0x100
SOLE = 1
XDP_NATIVE = 1
CRASH_RST = 1
QUEUES_MAX = 16

HEAD = struct.Struct("<IHHII")
ANSWER_HEAD = struct.Struct("<IHHIIi")
FLOW = struct.Struct("<IIBBBBHH16s16s")
TAP_ASK = struct.Struct("<IHH")
TAP_ANSWER = struct.Struct("<I16s")
XDP_ASK = struct.Struct("<III")
XDP_ANSWER = struct.Struct("<II")
HELLO_ANSWER = struct.Struct("<II")
NEIGH_ASK = struct.Struct("<II16s")
U32 = struct.Struct("<I")
# Bytes after the header: exactly, or for HELLO at least.
SIZES = {
    HELLO: U32.size,
    TAP: TAP_ASK.size,
    FLOW_ADD: FLOW.size,
    FLOW_DEL: FLOW.size,
    XDP: XDP_ASK.size,
    XDP_DROP: U32.size,
    STATUS: 0,
    CRASH: U32.size,
    BYE: 0,
    NEIGH: NEIGH_ASK.size,
}


MAPPED = bytes(10) + b"\xff\xff"


def is_group(address: bytes) -> bool:
    """Of a group."""
    return 224 <= address[0] < 240 if len(address) == 4 else address[0] == 0xFF


def is_loopback(address: bytes) -> bool:
    """This host itself, whatever addresses it has."""
    return address[0] == 127 if len(address) == 4 else address == bytes(15) + b"\1"


def is_peer(address: bytes) -> bool:
    """Can a host send from it? Not from the unspecified address, nor from one of a group or broadcast, and IPv6 has none of IPv4's."""
    if len(address) == 4:
        return 0 < address[0] < 224
    return any(address) and not is_group(address) and not address.startswith(MAPPED)


class MalformedError(ValueError):
    """A message that is none; `id` of the answer, 0 where it has none."""

    def __init__(self, text: str, kind: int = 0, number: int = 0) -> None:
        super().__init__(text)
        self.kind = kind
        self.number = number


@dataclass(frozen=True, slots=True)
class Flow:
    """What is redirected; addresses of 4 or 16 bytes, ports of 0 and sources of zeros: any. `tap` and `sole` are no part of its name."""

    ifindex: int
    proto: int
    dst: bytes
    dst_port: int
    src: bytes
    src_port: int

    @property
    def family(self) -> int:
        """AF_INET or AF_INET6."""
        return socket.AF_INET if len(self.dst) == 4 else socket.AF_INET6

    @property
    def whole(self) -> bool:
        """Of one peer alone (a 5-tuple)."""
        return self.src_port != 0

    @property
    def port_key(self) -> tuple[bytes, int, int]:
        """Address, port and protocol that a process holds."""
        return self.dst, self.dst_port, self.proto

    def __str__(self) -> str:
        name = {6: "tcp", 17: "udp"}[self.proto]
        to = f"{_text(self.dst)}:{self.dst_port}"
        return f"{name} {_text(self.src)}:{self.src_port} -> {to}" if self.whole else f"{name} {to}"


def _text(address: bytes) -> str:
    text = socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)
    return f"[{text}]" if len(address) == 16 else text


class Request(NamedTuple):
    """A message that is well formed; `body` has the fields of its type."""

    kind: int
    number: int
    body: bytes


def parse(data: bytes) -> Request:
    """Header and size; MalformedError when they are wrong."""
    if len(data) < HEAD.size:
        raise MalformedError("shorter than a header")
    magic, version, kind, length, number = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise MalformedError("not of this protocol")
    if version != VERSION:
        raise MalformedError(f"version {version} of the protocol, and this daemon has {VERSION}", kind, number)
    if length != len(data):
        raise MalformedError("its length is wrong", kind, number)
    if kind not in SIZES:
        raise MalformedError(f"no request of type {kind}", kind, number)
    size = len(data) - HEAD.size
    if size < SIZES[kind] or (size > SIZES[kind] and kind != HELLO):
        raise MalformedError(f"{NAMES[kind]} of {size} bytes", kind, number)
    return Request(kind, number, data[HEAD.size :])


def flow(request: Request) -> tuple[Flow, int, int]:
    """The flow of a FLOW_ADD or FLOW_DEL, the TAP's number and flags; MalformedError."""
    ifindex, tap, family, proto, flags, zero, dst_port, src_port, dst, src = FLOW.unpack(request.body)
    size = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family, 0)
    wrong = ""
    if not size:
        wrong = f"family {family}"
    elif proto not in (6, 17):
        wrong = f"protocol {proto}"
    elif zero or flags & ~SOLE:
        wrong = "unknown flags"
    elif not 0 < ifindex < 1 << 31 or tap >= 1 << 31:
        wrong = "no such interface"
    elif any(dst[size:]) or any(src[size:]) or not any(dst):
        wrong = "wrong addresses"
    elif not dst_port or bool(src_port) != any(src):
        wrong = "wrong ports"
    elif src_port and not is_peer(src[:size]):
        wrong = "nobody sends from that address"
    if wrong:
        raise MalformedError(f"{NAMES[request.kind]}: {wrong}", request.kind, request.number)
    return Flow(ifindex, proto, dst[:size], dst_port, src[:size] if src_port else bytes(size), src_port), tap, flags


def answer(kind: int, number: int, result: int, fields: bytes = b"", text: str = "") -> bytes:
    """An answer; `result` 0 or -errno, the text is cut where it is too long."""
    room = MESSAGE_MAX - ANSWER_HEAD.size - len(fields)
    tail = text.encode()[:room].decode("utf-8", "ignore").encode()
    length = ANSWER_HEAD.size + len(fields) + len(tail)
    return ANSWER_HEAD.pack(MAGIC, VERSION, (kind | ANSWER) & 0xFFFF, length, number & 0xFFFFFFFF, result) + fields + tail
