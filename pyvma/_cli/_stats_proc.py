"""What the kernel says of a process's sockets: those that it carries have their names, queues and states only there."""

from __future__ import annotations

import ipaddress
import os
import re
import struct
from pathlib import Path

STATES = (
    "",
    "ESTABLISHED",
    "SYN-SENT",
    "SYN-RECEIVED",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "CLOSED",
    "CLOSE-WAIT",
    "LAST-ACK",
    "LISTEN",
    "CLOSING",
    "SYN-RECEIVED",
)
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def _endpoint(text: str) -> str:
    """As /proc/net has it: words of the address in the machine's order, and the port, all in hexadecimal digits."""
    words, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    number = int(port, 16) or "*"
    if address.is_unspecified:
        return f"*:{number}"
    return f"[{address}]:{number}" if address.version == 6 else f"{address}:{number}"


class KernelSockets:
    """Sockets of one process, as long as it lives; of another user's only root is told."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._tables: dict[str, list[str]] | None = None

    def inode(self, fd: int | None) -> str:
        """The number of the file behind an fd; empty: not told."""
        try:
            found = _SOCKET.fullmatch(os.readlink(f"/proc/{self.pid}/fd/{fd}"))
        except OSError:
            return ""
        return found[1] if found else ""

    def find(self, inode: str) -> list[str] | None:
        """Recv-Q, Send-Q, local and foreign address, state; None: the kernel does not list it."""
        if self._tables is None:
            self._tables = {}
            for name in ("udp", "udp6", "tcp", "tcp6"):
                self._read(name)
        return self._tables.get(inode) if inode else None

    def _read(self, name: str) -> None:
        assert self._tables is not None
        try:
            lines = Path(f"/proc/{self.pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            return
        for line in lines:
            fields = line.split()
            if len(fields) < 10:
                continue
            tx, _, rx = fields[4].partition(":")
            code = int(fields[3], 16)
            state = STATES[code] if name.startswith("tcp") and code < len(STATES) else ""
            self._tables[fields[9]] = [str(int(rx, 16)), str(int(tx, 16)), _endpoint(fields[1]), _endpoint(fields[2]), state]
