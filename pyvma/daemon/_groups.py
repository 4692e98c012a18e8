"""Groups and broadcast: what is for them is for every process of the host, and a redirect takes it from all."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from ._netlink import Address
from ._protocol import Flow, is_group

__all__ = ["Receivers", "is_shared", "joined"]


def is_shared(flow: Flow, addresses: list[Address]) -> bool:
    """For more than one socket of the host; `addresses` are the interface's."""
    return is_group(flow.dst) or flow.dst == b"\xff\xff\xff\xff" or any(flow.dst == each.broadcast for each in addresses)


def joined(flow: Flow) -> bool:
    """Has anybody of this host joined the group on that interface?"""
    if flow.family == socket.AF_INET6:
        with open("/proc/net/igmp6") as file:
            return any((fields := line.split())[0] == str(flow.ifindex) and fields[2] == flow.dst.hex() for line in file)
    wanted, current = f"{struct.unpack('=I', flow.dst)[0]:08X}", ""
    with open("/proc/net/igmp") as file:
        for line in file:
            if line[:1].isdigit():
                current = line.split()[0]
            elif current == str(flow.ifindex) and line.split()[0] == wanted:
                return True
    return False


def _receivers(name: str) -> Iterator[tuple[bytes, int, int]]:
    """Address, port and user of each UDP socket."""
    try:
        with open(f"/proc/net/{name}") as file:
            next(file, "")
            for line in file:
                fields = line.split()
                address, _, port = fields[1].partition(":")
                words = struct.iter_unpack(">I", bytes.fromhex(address))  # each in the byte order of the host
                yield b"".join(struct.pack("=I", word) for (word,) in words), int(port, 16), int(fields[7])
    except FileNotFoundError:  # a kernel without IPv6
        return


class Receivers:
    """Who receives what comes to a port. The host's sockets may be many, and are read once until `forget`."""

    def __init__(self) -> None:
        self._ports: dict[int, list[tuple[bytes, int]]] | None = None  # address and user

    def forget(self) -> None:
        """The next question is of what there is then."""
        self._ports = None

    def other(self, flow: Flow, user: int) -> int | None:
        """Another user who has a socket that would receive what is for the flow; None: nobody."""
        if self._ports is None:
            self._ports = {}
            for name in ("udp", "udp6"):
                for address, port, owner in _receivers(name):
                    self._ports.setdefault(port, []).append((address, owner))
        for address, owner in self._ports.get(flow.dst_port, ()):
            if owner != user and (not any(address) or address[-len(flow.dst) :] == flow.dst):
                return owner
        return None
