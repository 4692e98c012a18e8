"""Filters and qdiscs of ours that somebody else deletes or changes: noticed by what the kernel tells, and put back.

`tc qdisc del dev eth0 clsact` in somebody's script takes the redirects of all processes along. What the kernel tells of is only a hint
which interface to look at: what is there is read, and what lacks is put back. So a message that was lost, or an error half way, costs time
and no rule. Who deletes ours again and again gets them back ever more rarely, at last once a second.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import time

from . import _netlink as nl
from ._log import Log
from ._netlink import Netlink
from ._tc import INGRESS_PARENT, OURS, QDISC_PARENT, TCMSG, Rules

__all__ = ["Watch"]

FIRST_S, MOST_S = 0.02, 1.0
QUIET_S = 5.0
SO_ATTACH_FILTER = 26
# Of a classic BPF program: the word of the header that has the sender's number; the same as k: nothing, else everything.
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
SENDER_AT = 12
INSTRUCTION = struct.Struct("=HBBI")


def _not_from(sender: int) -> bytes:
    """What the daemon itself does the kernel tells everybody of, too: thousands of messages a second that are of no use here."""
    wanted = socket.htonl(sender)
    steps = ((LOAD_WORD, 0, 0, SENDER_AT), (JUMP_EQUAL, 0, 1, wanted), (RETURN, 0, 0, 0), (RETURN, 0, 0, 0xFFFFFFFF))
    return b"".join(INSTRUCTION.pack(*step) for step in steps)


def _attach(sock: socket.socket, program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    size = len(program) // INSTRUCTION.size
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", size, ctypes.addressof(buffer)))


class Watch:
    """`mine`: by which the rules are made."""

    def __init__(self, rules: Rules, mine: Netlink, log: Log) -> None:
        self._rules = rules
        self._log = log
        self._monitor = Netlink(nl.RTMGRP_TC)
        self._due: dict[int, float] = {}  # interfaces to look at, and when
        self._pauses: dict[int, tuple[float, float]] = {}  # of interfaces where something was put back: the pause before the next, when
        try:
            _attach(self._monitor.socket, _not_from(mine.port))
        except OSError:
            self._monitor.close()
            raise

    def fileno(self) -> int:
        """For selectors."""
        return self._monitor.fileno()

    def close(self) -> None:
        """Nothing is put back any more."""
        self._monitor.close()

    def read(self) -> None:
        """What the kernel told since."""
        try:
            changes = self._monitor.changes()
        except OSError:  # some were lost: it may have been of any interface
            for ifindex in self._rules.interfaces():
                self._look(ifindex, strange=True)
            return
        for kind, body in changes:
            if len(body) < TCMSG.size:
                continue
            _, _, ifindex, _, parent, info = TCMSG.unpack_from(body)
            if kind in (nl.RTM_NEWQDISC, nl.RTM_DELQDISC):
                if parent == QDISC_PARENT:
                    self._look(ifindex, strange=True)
            elif parent == INGRESS_PARENT and (not info >> 16 or info >> 16 in OURS):
                self._look(ifindex, strange=False)

    def _look(self, ifindex: int, strange: bool) -> None:
        if strange:
            self._rules.strange.add(ifindex)
        if ifindex not in self._due:
            pause, last = self._pauses.get(ifindex, (0.0, 0.0))
            self._due[ifindex] = max(time.monotonic(), last + pause)

    def gone(self, ifindex: int) -> None:
        """An interface went, with all that it had."""
        self._due.pop(ifindex, None)
        self._rules.strange.discard(ifindex)
        self._pauses.pop(ifindex, None)

    def due(self) -> float | None:
        """In how many seconds `turn` is to be called; None: no need."""
        if self._rules.broken and not self._due:
            return FIRST_S
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None

    def turn(self) -> bool:
        """Looks where it is time; is anything queued now that `commit` is to do? Not before everything queued is done."""
        for ifindex in self._rules.broken:
            self._look(ifindex, strange=True)
        now = time.monotonic()
        queued = False
        for ifindex in [ifindex for ifindex, when in self._due.items() if when <= now]:
            try:
                count = self._rules.verify(ifindex, ifindex in self._rules.strange)
            except Exception as error:
                self._due[ifindex] = now + self._pause(ifindex, now)
                if not isinstance(error, OSError):
                    raise  # a mistake of its own is not made again at once, either
                if error.errno != errno.ENODEV:  # it is about to be told of as gone
                    self._log.limited(("repair", ifindex), f"rules of {self._name(ifindex)} cannot be put back: {error.strerror or error}")
                continue
            del self._due[ifindex]
            self._rules.strange.discard(ifindex)
            if count:
                queued = True
                self._pause(ifindex, now)
                self._log.limited(("repair", ifindex), f"{self._name(ifindex)}: {count} filters that others deleted are put back")
            elif now - self._pauses.get(ifindex, (0.0, now))[1] > QUIET_S:
                self._pauses.pop(ifindex, None)
        return queued

    def _pause(self, ifindex: int, now: float) -> float:
        """How long to wait after this time, and ever longer after the next."""
        pause, last = self._pauses.get(ifindex, (0.0, 0.0))
        pause = FIRST_S if not pause or now - last > QUIET_S else min(MOST_S, 2 * pause)
        self._pauses[ifindex] = pause, now
        return pause

    @staticmethod
    def _name(ifindex: int) -> str:
        try:
            return socket.if_indextoname(ifindex)
        except OSError:
            return f"interface {ifindex}"
