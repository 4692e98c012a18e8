"""rtnetlink as the daemon needs it: links, addresses, qdiscs and u32 filters, many requests a system call.

Requests are bytes, made here; `Netlink.batch` sends any number of them together and tells of each whether the kernel did it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Link", "Netlink", "attribute", "attributes", "message", "nested"]

REQUEST, ACK, ECHO, DUMP = 0x1, 0x4, 0x8, 0x300
EXCL, CREATE = 0x200, 0x400
NLMSG_ERROR, NLMSG_DONE = 2, 3
DUMP_INTERRUPTED = 0x10
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWNEIGH, NDA_DST, NTF_USE = 28, 1, 1
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
RTMGRP_LINK, RTMGRP_TC, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x8, 0x10, 0x100
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINKINFO, IFLA_INFO_KIND, IFLA_IFALIAS = 1, 3, 4, 18, 1, 20
IFLA_AF_SPEC, IFLA_INET6_ADDR_GEN_MODE = 26, 8
IFA_ADDRESS, IFA_LOCAL, IFA_BROADCAST = 1, 2, 4
NLA_F_NESTED, NLA_TYPE = 0x8000, 0x3FFF
SOL_NETLINK, NETLINK_EXT_ACK, NETLINK_CAP_ACK = 270, 11, 10
# Of requests that may be under way at once: their answers must fit into the socket's buffer.
BATCH = 64
RECEIVE = 1 << 17


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *values: bytes) -> bytes:
    """An attribute of attributes."""
    return attribute(kind | NLA_F_NESTED, b"".join(values))


def attributes(data: bytes | memoryview) -> dict[int, bytes]:
    """Attributes by their numbers; what is cut short ends it."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4 or at + length > len(data):
            break
        found[kind & NLA_TYPE] = bytes(data[at + 4 : at + length])
        at += (length + 3) & ~3
    return found


def message(kind: int, flags: int, body: bytes) -> bytearray:
    """A request whose number is set when it is sent."""
    return bytearray(struct.pack("=IHHII", 16 + len(body), kind, flags | REQUEST, 0, 0) + body)


class Link(NamedTuple):
    """An interface; `kind` is "" of hardware, `alias` what somebody with privileges has written to it."""

    ifindex: int
    name: str
    mac: bytes
    mtu: int
    flags: int
    kind: str
    alias: str = ""


class Address(NamedTuple):
    """An address of an interface; `broadcast` b"" where there is none."""

    ifindex: int
    family: int
    address: bytes
    broadcast: bytes


def family(body: bytes) -> int:
    """Of whom a message tells: AF_UNSPEC is the link itself, AF_BRIDGE its place in a bridge."""
    return body[0]


def parse_link(body: bytes) -> Link:
    """The body of a RTM_NEWLINK or RTM_DELLINK."""
    _, _, _, index, flags, _ = struct.unpack_from("=BBHiII", body)
    at = attributes(memoryview(body)[16:])
    kind = attributes(at.get(IFLA_LINKINFO, b"")).get(IFLA_INFO_KIND, b"")
    mtu = struct.unpack("=I", at[IFLA_MTU])[0] if IFLA_MTU in at else 0
    name, alias = (_text(at.get(each, b"")) for each in (IFLA_IFNAME, IFLA_IFALIAS))
    return Link(index, name, at.get(IFLA_ADDRESS, b""), mtu, flags, _text(kind), alias)


def parse_address(body: bytes) -> Address:
    """The body of a RTM_NEWADDR or RTM_DELADDR."""
    family, _, _, _, index = struct.unpack_from("=BBBBI", body)
    at = attributes(memoryview(body)[8:])
    return Address(index, family, at.get(IFA_LOCAL, at.get(IFA_ADDRESS, b"")), at.get(IFA_BROADCAST, b""))


def _text(value: bytes) -> str:
    return value.split(b"\0")[0].decode("ascii", "replace")


class Netlink:
    """One socket. Not for more than one thread."""

    def __init__(self, groups: int = 0) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        try:
            for option in (NETLINK_EXT_ACK, NETLINK_CAP_ACK):
                self.socket.setsockopt(SOL_NETLINK, option, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self.socket.bind((0, groups))
        except OSError:
            self.socket.close()
            raise
        self.port = int(self.socket.getsockname()[0])  # by which others know what this one has sent
        self._sequence = 0

    def close(self) -> None:
        """Ends it."""
        self.socket.close()

    def fileno(self) -> int:
        """For selectors."""
        return self.socket.fileno()

    def _number(self, request: bytearray) -> int:
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        struct.pack_into("=I", request, 8, self._sequence)
        return self._sequence

    def batch(self, requests: Sequence[bytearray]) -> list[int]:
        """Does them in this order; of each 0 or the errno."""
        results: list[int] = []
        for start in range(0, len(requests), BATCH):
            part = requests[start : start + BATCH]
            first = self._sequence + 1
            for request in part:
                request[6] |= ACK
                self._number(request)
            self.socket.send(b"".join(part))
            results += self._acks(first, len(part))
        return results

    def _acks(self, first: int, count: int) -> list[int]:
        found: dict[int, int] = {}
        while len(found) < count:
            for kind, _, sequence, body in self._read():
                if kind == NLMSG_ERROR and 0 <= sequence - first < count:
                    found[sequence] = -struct.unpack_from("=i", body)[0]
        return [found[first + i] for i in range(count)]

    def _read(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Kind, flags, number and body of each message that has come; waits for one."""
        yield from parse(self.socket.recv(RECEIVE))

    def do(self, request: bytearray) -> None:
        """One request; OSError when the kernel refuses it."""
        code = self.batch([request])[0]
        if code:
            raise OSError(code, os.strerror(code))

    def echo(self, request: bytearray) -> bytes:
        """The same of a request that makes something: as the kernel made it."""
        request[6] |= ACK | ECHO
        number = self._number(request)
        self.socket.send(request)
        made = b""
        while True:
            for kind, _, sequence, body in self._read():
                if sequence != number:
                    continue
                if kind != NLMSG_ERROR:
                    made = body
                    continue
                code = -struct.unpack_from("=i", body)[0]
                if code or not made:
                    raise OSError(code or errno.EPROTO, os.strerror(code or errno.EPROTO))
                return made

    def dump(self, kind: int, body: bytes) -> list[tuple[int, bytes]]:
        """Kind and body of all objects; again when they changed meanwhile."""
        for _ in range(10):
            request = message(kind, DUMP, body)
            number = self._number(request)
            self.socket.send(request)
            found, interrupted = self._collect(number)
            if not interrupted:
                break
        return found

    def _collect(self, number: int) -> tuple[list[tuple[int, bytes]], bool]:
        found: list[tuple[int, bytes]] = []
        interrupted = False
        while True:
            for kind, flags, sequence, body in self._read():
                if sequence != number:
                    continue
                interrupted |= bool(flags & DUMP_INTERRUPTED)
                if kind == NLMSG_DONE:
                    return found, interrupted
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    if code in (errno.ENODEV, errno.ENOENT, errno.EINVAL):
                        return [], False
                    raise OSError(code, os.strerror(code))
                found.append((kind, body))

    def links(self) -> dict[int, Link]:
        """All interfaces by their numbers."""
        links = (parse_link(body) for _, body in self.dump(RTM_GETLINK, struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0)))
        return {link.ifindex: link for link in links}

    def addresses(self) -> list[Address]:
        """All addresses."""
        return [parse_address(body) for _, body in self.dump(RTM_GETADDR, struct.pack("=BBBBI", 0, 0, 0, 0, 0))]

    def changes(self) -> list[tuple[int, bytes]]:
        """Kind and body of what the groups told, without waiting. OSError(ENOBUFS): some were lost."""
        found: list[tuple[int, bytes]] = []
        while True:
            try:
                data = self.socket.recv(RECEIVE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            found += [(kind, body) for kind, _, _, body in parse(data)]


def resolve(ifindex: int, family: int, address: bytes) -> bytearray:
    """A request that makes the kernel look for a neighbour as if it had traffic for it."""
    body = struct.pack("=BxxxiHBB", family, ifindex, 0, NTF_USE, 0) + attribute(NDA_DST, address)
    return message(RTM_NEWNEIGH, CREATE, body)


def parse(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, number and body of each message of a packet."""
    at = 0
    while at + 16 <= len(data):
        length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data, at)
        if length < 16 or at + length > len(data):
            return
        yield kind, flags, sequence, data[at + 16 : at + length]
        at += (length + 3) & ~3
