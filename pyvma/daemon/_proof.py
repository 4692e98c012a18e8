"""Who a peer is, and whether the socket that came with a request shows that it holds an address and port."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
from collections.abc import Iterable

from ._protocol import Flow
from ._tc import Owner

__all__ = ["Closer", "holds", "netns_cookie", "peer", "start_time"]

SO_PEERPIDFD = 77
SO_NETNS_COOKIE = 71
IPV6_V6ONLY = 26
CREDENTIALS = struct.Struct("=iII")
MAPPED = bytes(10) + b"\xff\xff"


def start_time(pid: int) -> int:
    """When the process started, in ticks since boot; ProcessLookupError when there is none, or it is dead."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    if fields[0] in (b"Z", b"X"):
        raise ProcessLookupError(pid)
    return int(fields[19])


def peer(connection: socket.socket) -> tuple[Owner, int, int]:
    """Who connected, the user's number and an fd of the process (the caller's to close). OSError: it is gone already."""
    pid, uid, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    if pid <= 0:
        raise ProcessLookupError("of another pid namespace")
    try:
        fd = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError:
        fd = os.pidfd_open(pid)
    try:
        return Owner(pid, start_time(pid)), uid, fd
    except OSError:
        os.close(fd)
        raise


def netns_cookie(sock: socket.socket) -> int:
    """The number of a socket's network namespace."""
    return int(struct.unpack("=Q", sock.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8))[0])


def _addresses(sock: socket.socket) -> tuple[bytes, bytes, int]:
    """The address that the socket is bound to as IPv6 and as IPv4, b"" where it is not of that family, and the port."""
    domain = sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)
    name = sock.getsockname()
    if domain == socket.AF_INET:
        return b"", socket.inet_aton(name[0]), name[1]
    if domain != socket.AF_INET6:
        return b"", b"", 0
    address = socket.inet_pton(socket.AF_INET6, name[0].partition("%")[0])
    if address.startswith(MAPPED):
        return b"", address[12:], name[1]
    both = not any(address) and not sock.getsockopt(socket.IPPROTO_IPV6, IPV6_V6ONLY)
    return address, bytes(4) if both else b"", name[1]


def holds(fd: int, flow: Flow, namespace: int) -> str:
    """ "" when the socket shows that its owner has the flow's address and port, else why not. `namespace` is the daemon's own."""
    try:
        sock = socket.socket(fileno=os.dup(fd))
    except OSError:
        return "the descriptor is no socket"
    # Its last reference may be this one, and linger: whoever closes `fd` waits for that, not this.
    try:
        if netns_cookie(sock) != namespace:
            return "the socket is of another network namespace"
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) != flow.proto:
            return "the socket is of another protocol"
        six, four, port = _addresses(sock)
    except OSError as error:
        return f"the socket tells nothing: {error.strerror}"
    finally:
        sock.close()
    bound = four if flow.family == socket.AF_INET else six
    if port != flow.dst_port or not bound or (any(bound) and bound != flow.dst):
        return "the socket is not bound to that address and port"
    return ""


class Closer:
    """Closes descriptors that came from others: a close may wait for whoever serves the file, and the daemon must not."""

    MOST = 8

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        self._threads = 0

    def __call__(self, fds: Iterable[int]) -> None:
        """They are not the caller's any more."""
        listed = list(fds)
        if not listed:
            return
        self._queue.put(listed)
        if self._threads == 0 or (self._queue.qsize() > 64 * self._threads and self._threads < self.MOST):
            self._threads += 1
            threading.Thread(target=self._run, name="closer", daemon=True).start()

    def _run(self) -> None:
        while True:
            for fd in self._queue.get():
                with contextlib.suppress(OSError):
                    os.close(fd)
