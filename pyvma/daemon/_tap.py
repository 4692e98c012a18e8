"""TAP devices for processes that may not make them.

Who has a queue of one may make it outlive all its queues (TUNSETPERSIST takes no privilege): the devices have to be deleted. Whose each is
stands in its alias, which takes privileges to write, and which a daemon that is started later reads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import struct
import threading

from . import _netlink as nl
from ._netlink import Link, Netlink, attribute, message, nested
from ._tc import Owner

__all__ = ["Remover", "clone", "maker", "name_of", "set_up"]

TUNSETIFF, TUNGETIFF = 0x400454CA, 0x800454D2
IFF_TAP, IFF_MULTI_QUEUE, IFF_NO_PI, IFF_VNET_HDR = 0x2, 0x100, 0x1000, 0x4000
IFF_UP, IFF_NOARP = 0x1, 0x80
IFREQ = struct.Struct("=16sH22x")
ADDRESSES_NONE = 1
NAME, ALIAS = re.compile(r"pyvma\d+"), re.compile(r"pyvmad ([1-9]\d*) (\d+)")


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


def set_up(netlink: Netlink, tap: int, owner: Owner, mac: bytes, mtu: int) -> None:
    """Up, and the owner's; without addresses and ARP of the kernel's. mac b"" and mtu 0: as they are."""
    mode = nested(nl.IFLA_AF_SPEC, nested(socket.AF_INET6, attribute(nl.IFLA_INET6_ADDR_GEN_MODE, bytes([ADDRESSES_NONE]))))
    values = (attribute(nl.IFLA_ADDRESS, mac) if mac else b"") + (attribute(nl.IFLA_MTU, struct.pack("=I", mtu)) if mtu else b"")
    first = message(nl.RTM_SETLINK, 0, struct.pack("=BBHiII", 0, 0, 0, tap, 0, 0) + mode)
    values += attribute(nl.IFLA_IFALIAS, b"pyvmad %d %d" % (owner.pid, owner.start))
    flags = IFF_UP | IFF_NOARP if mac else IFF_UP
    netlink.batch([first])  # a kernel without IPv6 has nothing to switch off
    netlink.do(message(nl.RTM_NEWLINK, 0, struct.pack("=BBHiII", 0, 0, 0, tap, flags, flags) + values))


def maker(link: Link) -> Owner | None:
    """For which process a daemon made the device; None: none did."""
    found = ALIAS.fullmatch(link.alias)
    if link.kind != "tun" or not found or not NAME.fullmatch(link.name):
        return None
    return Owner(int(found[1]), int(found[2]))


class Remover:
    """Deletes devices in a thread of its own: unregistering one waits for all that have a reference to it."""

    RETRY_S = 1.0

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._wanted: dict[int, tuple[str, int]] = {}  # by number: the name, and the user whose it was
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="remover", daemon=True)
        self._thread.start()

    def __call__(self, ifindex: int, name: str, user: int) -> None:
        """It is to go, if it is still there by that number and name."""
        with self._changed:
            self._wanted[ifindex] = (name, user)
            self._changed.notify_all()

    def waiting(self, user: int) -> int:
        """How many of the user are not gone yet."""
        with self._changed:
            return sum(of == user for _, of in self._wanted.values())

    def close(self) -> None:
        """What is not gone by then the next daemon finds."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stop or bool(self._wanted))
                if self._stop and not self._wanted:
                    return
                wanted = dict(self._wanted)
            try:
                done = self._remove(wanted)
            except OSError:
                done = []
            with self._changed:
                for ifindex in done:
                    self._wanted.pop(ifindex, None)
                if len(done) < len(wanted) and self._changed.wait_for(lambda: self._stop, self.RETRY_S):
                    return

    @staticmethod
    def _remove(wanted: dict[int, tuple[str, int]]) -> list[int]:
        """Those that are no more. OSError."""
        netlink = Netlink()
        try:
            links = netlink.links()
            there = [i for i, (name, _) in wanted.items() if i in links and (links[i].name, links[i].kind) == (name, "tun")]
            codes = netlink.batch([message(nl.RTM_DELLINK, 0, struct.pack("=BBHiII", 0, 0, 0, i, 0, 0)) for i in there])
        finally:
            netlink.close()
        refused = {i for i, code in zip(there, codes, strict=True) if code not in (0, errno.ENODEV)}
        return [i for i in wanted if i not in refused]
