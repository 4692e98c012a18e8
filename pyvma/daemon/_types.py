"""What the daemon knows of its users."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from dataclasses import dataclass, field

from ._protocol import Flow
from ._tc import Owner
from ._xdp import Loan

__all__ = ["Client", "Limits", "Process", "RefusedError"]


@dataclass(frozen=True)
class Limits:
    """What one process, and one user, may have."""

    flows: int = 16384
    taps: int = 16
    loans: int = 16
    connections: int = 4096
    user_connections: int = 1024
    turn: int = 64  # requests of a connection in one turn
    unread: int = 256  # answers that wait for a connection to take them
    malformed: int = 32  # of a connection before it is closed


class RefusedError(Exception):
    """An answer: the errno and why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True, eq=False)
class Process:
    """What belongs to a process: by its connection, or as it was found in the kernel by a daemon that was started anew."""

    owner: Owner
    uid: int
    pidfd: int
    flows: dict[Flow, int] = field(default_factory=dict)  # the TAP; 0: AF_XDP
    held: dict[tuple[bytes, int, int], int] = field(default_factory=dict)  # address, port, protocol: how many flows of them
    taps: dict[int, int] = field(default_factory=dict)  # TAP: the interface it serves
    made: dict[int, str] = field(default_factory=dict)  # names of the TAPs that the daemon made for it
    loans: dict[int, Loan] = field(default_factory=dict)
    reset: bool = False
    lost: set[Flow] = field(default_factory=set)  # of TAPs that went, perhaps because the process is dying
    said: dict[int, Flow] = field(default_factory=dict)  # connections by its own numbers, of a VMA process
    file: int = -1  # its statistics file, where its connections are
    clients: int = 0
    program: str = ""
    elsewhere: bool = False  # in another network namespace


@dataclass(slots=True, eq=False)
class Client:
    """A connection."""

    socket: socket.socket
    process: Process
    since: float
    greeted: bool = False
    malformed: int = 0
    unread: deque[tuple[bytes, list[int]]] = field(default_factory=deque)
    events: int = selectors.EVENT_READ
    closing: bool = False

    def __str__(self) -> str:
        process = self.process
        return f"process {process.owner.pid} of user {process.uid}" + (f" ({process.program})" if process.program else "")
