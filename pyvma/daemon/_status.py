"""What STATUS answers."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import termios
from typing import Any

from ._types import Process

__all__ = ["of_process", "report", "unread"]


def report(found: dict[str, Any]) -> int:
    """An fd of it as JSON, the caller's."""
    memory = os.memfd_create("status", os.MFD_CLOEXEC)
    try:
        with open(memory, "w", closefd=False) as file:
            json.dump(found, file)
    except OSError:
        os.close(memory)
        raise
    return memory


def unread(sock: socket.socket) -> int:
    """Memory of what the peer has not read yet."""
    return int(struct.unpack("=i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0])


def of_process(process: Process, names: dict[int, str], uid: int) -> dict[str, Any]:
    """`names` of interfaces; its rules only for itself and root."""
    own = uid in (0, process.uid)
    return {
        "pid": process.owner.pid,
        "uid": process.uid,
        "program": process.program,
        "connected": process.clients > 0,
        "taps": [{"name": names.get(tap, ""), "ifindex": tap, "serves": names.get(of, "")} for tap, of in process.taps.items()],
        "xdp": [names.get(index, "") for index in process.loans],
        "flows": len(process.flows),
        "rules": [f"{names.get(flow.ifindex, '')} {flow}" for flow in process.flows] if own else None,
    }
