"""Who a peer is, and whether the socket that came with a request shows that it holds an address and port."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable

from ._protocol import Flow
from ._tc import Owner

__all__ = ["Closer", "holds", "netns_cookie", "owner_of", "peer", "start_time", "user_of"]

SO_BINDTOIFINDEX = 62
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
        return owner_of(pid, fd), uid, fd
    except OSError:
        os.close(fd)
        raise


def owner_of(pid: int, pidfd: int) -> Owner:
    """The process of that fd. ProcessLookupError: it is dead, and the number perhaps another's already."""
    owner = Owner(pid, start_time(pid))
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if poll.poll(0):
        raise ProcessLookupError(pid)
    return owner


def user_of(pid: int) -> int:
    """The number of its effective user, of a process that is not dumpable, too. OSError."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("Uid:"):
                return int(line.split()[2])
    raise ProcessLookupError(pid)


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
    # The descriptor itself, and no copy of it: closing one may wait for whoever serves the file.
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        return "the descriptor is no socket"
    try:
        if netns_cookie(sock) != namespace:
            return "the socket is of another network namespace"
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) != flow.proto:
            return "the socket is of another protocol"
        if sock.getsockopt(socket.SOL_SOCKET, SO_BINDTOIFINDEX) not in (0, flow.ifindex):
            return "the socket is bound to another interface"
        six, four, port = _addresses(sock)
    except OSError as error:
        return f"the socket tells nothing: {error.strerror}"
    finally:
        sock.detach()
    bound = four if flow.family == socket.AF_INET else six
    if port != flow.dst_port or not bound or (any(bound) and bound != flow.dst):
        return "the socket is not bound to that address and port"
    return ""


class Closer:
    """Closes descriptors that came from others: a close may wait for whoever serves the file, or for a socket's linger time, and the daemon
    must not. Each user has a thread, so that who makes it wait waits alone. Nothing is done to the sockets: they are the clients' own, and
    whether the reference here is the last one nobody can tell.
    """

    MOST = 512
    IDLE_S = 5.0
    STUCK_S = 2.0

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queues: dict[int, deque[int]] = {}  # of users who have a thread
        self._began: dict[int, float] = {}  # the close that is under way
        self.unstarted: set[int] = set()  # users whose thread is still to be started

    def full(self, user: int) -> bool:
        """Has the user so many descriptors waiting that no more are to be taken from it now?"""
        return len(self._queues.get(user, ())) >= self.MOST

    def stuck(self, user: int) -> bool:
        """And does the first of them make it wait?"""
        return self.full(user) and time.monotonic() - self._began.get(user, math.inf) > self.STUCK_S

    def __call__(self, fds: Iterable[int], user: int) -> None:
        """They are not the caller's any more."""
        listed = list(fds)
        if not listed:
            return
        with self._changed:
            if user in self._queues:
                self._queues[user].extend(listed)
                self._changed.notify_all()
                return
            self._queues[user] = deque(listed)
        self.unstarted.add(user)
        self.start()

    def start(self) -> None:
        """Threads that there are to be, also those that there could not be before."""
        for user in list(self.unstarted):
            try:
                threading.Thread(target=self._run, args=(user,), name=f"closer {user}", daemon=True).start()
            except RuntimeError:  # the limit of tasks is reached
                self._began.setdefault(user, time.monotonic())  # waits as for a file that does not close
                return
            self.unstarted.discard(user)

    def _run(self, user: int) -> None:
        queue = self._queues[user]
        while True:
            with self._changed:
                if not queue and not self._changed.wait_for(lambda: bool(queue), self.IDLE_S):
                    del self._queues[user]
                    self._began.pop(user, None)
                    return
                fd = queue[0]
            self._began[user] = time.monotonic()
            with contextlib.suppress(OSError):
                os.close(fd)
            queue.popleft()  # counted until it is closed
