"""For `pyvma run --dry-run --socket`: makes such a socket with the engine that the program would have, and says what became of it."""

from __future__ import annotations

import ctypes
import os
import socket as kernel
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run import Plan


_names: list[Any] = []  # the C library points to them


def _pretend(name: str) -> None:
    """Rules are for a program's name."""
    _names.append(ctypes.create_string_buffer(os.fsencode(name)))
    ctypes.c_void_p.in_dll(ctypes.CDLL(None), "program_invocation_short_name").value = ctypes.addressof(_names[-1])


def _address(text: str) -> tuple[int, str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdigit():
        raise ValueError("ROLE ADDRESS:PORT is wanted, as 'tcp_client 10.0.0.9:80'")
    family = kernel.AF_INET6 if ":" in host else kernel.AF_INET
    return family, {"*": "0.0.0.0"}.get(host, host), int(port)


def outcome(plan: Plan, text: str) -> str:
    """A line. Nothing is sent but what connecting takes, and what is bound is closed at once."""
    from .. import offload, socket
    from .run import ROLES

    role, _, where = text.partition(" ")
    try:
        if role not in ROLES:
            raise ValueError(f"a role is one of {', '.join(ROLES)}")
        family, host, port = _address(where.strip())
        if plan.reason:
            return f"the kernel's: {plan.reason}"
        _pretend(os.path.basename(plan.target.image))
        with socket.socket(family, kernel.SOCK_STREAM if role.startswith("tcp") else kernel.SOCK_DGRAM) as made:
            if role == "tcp_server":
                made.setsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEADDR, 1)
            if role in ("tcp_server", "udp_receiver"):
                made.bind((host, port))
            if role == "tcp_server":
                made.listen(1)
            elif role == "tcp_client":
                made.setblocking(False)
                made.connect_ex((host, port))
            elif role == "udp_connect":
                made.connect((host, port))
            elif role == "udp_sender":
                made.sendto(b"", (host, port))
            return offload(made)
    except (OSError, ValueError) as error:
        return f"cannot be made: {error}"
