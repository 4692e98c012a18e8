"""Receive queues of sockets' own."""

from __future__ import annotations

import errno
import socket as _socket
from dataclasses import dataclass
from typing import Any

from .._native import check, engine_error, ffi, lib

_LOGICS = {0: "interface", 1: "address", 10: "socket", 11: "key", 20: "thread", 30: "core", 31: "attached core"}


@dataclass(frozen=True)
class Place:
    """Where an address that a socket receives at, or its flow, is led to."""

    interface: str
    """Name of the interface; empty when the socket has no queue."""
    queue: int
    """The queue's number beside the interface's first ones; 0: it has none."""
    cpu: int
    """The same receive queue as SO_INCOMING_CPU tells it; of sending 0."""
    by: str
    """What chose it: "key", or as the setting `ring_logic_rx` (of sending `ring_logic_tx`) says
    "address", "socket", "thread", "core" or "attached core"."""
    key: int
    """The key; of the setting's choices what they choose by."""
    shared: int
    """Keys and rules that have this receive queue: more than one once the ring has no queue left for each. Of a send queue the sockets."""
    spread: tuple[int, ...]
    """Queues over which the device spreads what comes to the address: those of all sockets that receive it. Of sending empty."""
    reason: str
    """Why there is no queue; empty when there is one."""


def _handle(sock: _socket.socket) -> Any:
    handle = getattr(sock, "_sock", None)
    if handle is None:
        raise OSError(errno.EBADF if sock.fileno() < 0 else errno.EOPNOTSUPP, "the socket is closed or the kernel's")
    return handle


def _call(sock: _socket.socket, key: int | None, how: int) -> None:
    if key is not None and not 0 <= key < 1 << 64:
        raise ValueError(f"a key has 64 bits, {key} is out of range")
    rc = lib.pyvma_sock_place(_handle(sock), 0 if key is None else key, how | (lib.PYVMA_PLACE_NONE if key is None else 0))
    if rc < 0:
        raise engine_error(rc)


def place(sock: _socket.socket, key: int | None, *, sending: bool = False) -> None:
    """Gives a socket the receive queue of its key, which all sockets of that key share; None: it stays at the interface's first queues,
    whatever the setting `ring_logic_rx` says.

    A socket that has no name yet, or is not connected, is led there once it receives. Wants a setting `ring_logic_rx` other than 0 and a
    verbs or softnic ring, else OSError with EOPNOTSUPP. EBUSY: it has another place already, which only `move()` changes. A ring that has
    no queue left (setting `ring_limit`) shares the one that has the fewest keys; a key keeps its queue as long as it has a socket.
    EEXIST: a `Rule` of the program's takes the same frames to a queue of its own.

    With `sending` it is the queue by which the socket sends, and the setting `ring_logic_tx`. ENOTCONN: the socket has no name yet.
    ENOSPC: as many keys as `ring_limit` allows have one; EBUSY also of a socket that is held to a rate, which has its own.
    """
    _call(sock, key, lib.PYVMA_PLACE_SEND if sending else 0)


def move(sock: _socket.socket, key: int | None, *, sending: bool = False) -> None:
    """Leads a socket to the queue of another key, None: to the first ones. Nothing else ever changes a socket's queue.

    What came by the old queue is received before anything that comes by the new one. Errors as of `place()`, and EAGAIN when frames come
    faster than they are received; with an error the socket is led where it was led. With `sending` what went by the old queue leaves
    before anything goes by the new one; EAGAIN when that takes longer than a millisecond.
    """
    _call(sock, key, lib.PYVMA_PLACE_MOVE | (lib.PYVMA_PLACE_SEND if sending else 0))


def places(sock: _socket.socket, *, sending: bool = False) -> tuple[Place, ...]:
    """Where a socket is placed: one for each address that it receives at, or for its flow; with `sending` one for each interface that
    it, or another of its key, has sent by. None: it is at the first queues."""
    ask = lib.pyvma_sock_sends_by if sending else lib.pyvma_sock_placed
    row = ffi.new("struct pyvma_place *")
    found: list[Place] = []
    while (rc := ask(_handle(sock), len(found), row)) == 0:
        name, reason = (ffi.string(text).decode(errors="replace") for text in (row.interface, row.reason))
        spread = tuple(bit for bit in range(64) if row.set & 1 << bit)
        found.append(Place(name, row.queue, row.cpu, _LOGICS[row.logic], row.key, row.users, spread, reason))
    if rc != -errno.ENOENT:
        check(rc)
    return tuple(found)
