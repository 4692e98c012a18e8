"""TAP devices for processes that may not make them."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from . import _netlink as nl
from ._netlink import Netlink, attribute, message, nested

__all__ = ["clone", "name_of", "set_up"]

TUNSETIFF, TUNGETIFF = 0x400454CA, 0x800454D2
IFF_TAP, IFF_MULTI_QUEUE, IFF_NO_PI, IFF_VNET_HDR = 0x2, 0x100, 0x1000, 0x4000
IFF_UP, IFF_NOARP = 0x1, 0x80
IFREQ = struct.Struct("=16sH22x")
ADDRESSES_NONE = 1


def clone(queues: int) -> tuple[str, list[int]]:
    """A new device's name and an fd for each of its queues."""
    flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (IFF_MULTI_QUEUE if queues > 1 else 0)
    name, fds = b"pyvma%d", []
    try:
        for _ in range(queues):
            fds.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            name = IFREQ.unpack(fcntl.ioctl(fds[-1], TUNSETIFF, IFREQ.pack(name, flags)))[0].rstrip(b"\0")
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    return name.decode(), fds


def name_of(fd: int) -> str:
    """Which device a queue is of. OSError: of none."""
    # An ioctl of another's file may wait for whoever serves it: what the kernel itself says of the descriptor comes first.
    with open(f"/proc/self/fdinfo/{fd}", "rb") as file:
        if not any(line.startswith(b"iff:") for line in file):
            raise OSError("no TAP device")
    name, flags = IFREQ.unpack(fcntl.ioctl(fd, TUNGETIFF, bytes(IFREQ.size)))
    if not flags & IFF_TAP:
        raise OSError("no TAP device")
    return bytes(name).split(b"\0")[0].decode()


def set_up(netlink: Netlink, tap: int, mac: bytes, mtu: int) -> None:
    """Up; without addresses and ARP of the kernel's. mac b"" and mtu 0: as they are."""
    mode = nested(nl.IFLA_AF_SPEC, nested(socket.AF_INET6, attribute(nl.IFLA_INET6_ADDR_GEN_MODE, bytes([ADDRESSES_NONE]))))
    values = (attribute(nl.IFLA_ADDRESS, mac) if mac else b"") + (attribute(nl.IFLA_MTU, struct.pack("=I", mtu)) if mtu else b"")
    first = message(nl.RTM_SETLINK, 0, struct.pack("=BBHiII", 0, 0, 0, tap, 0, 0) + mode)
    flags = IFF_UP | IFF_NOARP if mac else IFF_UP
    netlink.batch([first])  # a kernel without IPv6 has nothing to switch off
    netlink.do(message(nl.RTM_NEWLINK, 0, struct.pack("=BBHiII", 0, 0, 0, tap, flags, flags) + values))
