"""One TCP socket in the hands of several threads, and what its fd shows to stock select and poll."""

from __future__ import annotations

import errno
import os
import select
import socket as std
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sides import LIMIT_S, Net
from streams import accepted, listener, pair, running, tcp

SYN_SENT = 2  # enum in <linux/tcp.h>


@pytest.mark.parametrize("what", ["recv", "recv_into", "recvmsg", "makefile", "send", "sendall", "accept", "connect"])
def test_shutdown_wakes_who_waits(net: Net, what: str) -> None:
    """As on the kernel: an end, EPIPE, EINVAL of a listener, ECONNRESET of a connection that was not there yet."""
    server, silent = listener(net), listener(net, 0)
    if what == "accept":
        waiting = server
    else:
        waiting = tcp(net)
        if what != "connect":
            waiting.connect(server.getsockname())
            accepted(net, server)
    if what == "connect" and not net.offloaded:  # a full backlog does not answer
        for _ in range(4):
            other = tcp(net, 0)
            other.connect_ex(silent.getsockname())
    if what.startswith("send"):
        waiting.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                waiting.send(bytes(1 << 20))
    waiting.settimeout(None)
    calls: dict[str, Callable[[], object]] = {
        "recv": lambda: waiting.recv(10),
        "recv_into": lambda: waiting.recv_into(bytearray(10)),
        "recvmsg": lambda: waiting.recvmsg(10)[0],
        "makefile": lambda: waiting.makefile("rb").read(),
        "send": lambda: [None for _ in range(1 << 20) if waiting.send(bytes(1 << 20)) < 0],  # until it fails
        "sendall": lambda: waiting.sendall(bytes(1 << 20)),
        "accept": lambda: waiting.accept(),
        "connect": lambda: waiting.connect(net.nobody() if net.offloaded else silent.getsockname()),
    }
    about, seen = threading.Event(), []

    def wait() -> None:
        about.set()
        try:
            seen.append(calls[what]())
        except OSError as error:
            seen.append(errno.errorcode[error.errno or 0])

    with running(wait):
        about.wait()
        deadline = time.monotonic() + LIMIT_S
        while what == "connect" and waiting.getsockopt(std.IPPROTO_TCP, std.TCP_INFO, 1)[0] != SYN_SENT and time.monotonic() < deadline:
            time.sleep(0.005)
        waiting.shutdown(std.SHUT_RDWR)
    assert seen == [{"send": "EPIPE", "sendall": "EPIPE", "accept": "EINVAL", "connect": "ECONNRESET", "recv_into": 0}.get(what, b"")]


def test_who_looks_on_sees_no_closed_socket(net: Net) -> None:
    """While one thread connects it, and its fd is made or left to the kernel."""
    server = listener(net, 128)
    for _ in range(100):
        client, started, over = tcp(net), threading.Event(), threading.Event()

        def look(client: Any = client, started: threading.Event = started, over: threading.Event = over) -> None:
            started.set()
            while not over.is_set():
                client.getsockopt(std.SOL_SOCKET, std.SO_TYPE)

        with running(look):
            try:
                started.wait()
                client.connect(server.getsockname())
            finally:
                over.set()
        accepted(net, server).close()
        client.close()


def test_two_threads_wait_in_one_socket(net: Net) -> None:
    """Each byte goes to one of them; the end wakes both."""
    a, b = pair(net)
    a.settimeout(None)
    got: list[bytes] = []

    def read() -> None:
        while part := a.recv(1):
            got.append(part)

    with running(read), running(read):
        for _ in range(200):
            b.sendall(b"x")
        b.shutdown(std.SHUT_WR)
    assert got == [b"x"] * 200


def test_two_threads_accept(net: Net) -> None:
    server, count = listener(net), 20
    server.settimeout(None)
    got: list[Any] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                got.append(accepted(net, server))

    with running(accept), running(accept):
        for _ in range(count):
            client = tcp(net)
            client.connect(server.getsockname())
        deadline = time.monotonic() + LIMIT_S
        while len(got) < count and time.monotonic() < deadline:
            time.sleep(0.005)
        server.shutdown(std.SHUT_RDWR)
    assert len({sock.getpeername() for sock in got}) == count


@pytest.mark.parametrize("how", ["both closed", "reset"])
def test_stock_poll_sees_the_end(net: Net, how: str) -> None:
    """POLLHUP comes unasked, and stays."""
    a, b = pair(net)
    poller = select.poll()
    poller.register(a.fileno(), 0)
    assert poller.poll(0) == []
    if how == "reset":
        b.setsockopt(std.SOL_SOCKET, std.SO_LINGER, struct.pack("ii", 1, 0))
        b.close()
    else:
        b.shutdown(std.SHUT_WR)
        assert a.recv(1) == b""
        assert poller.poll(0) == []
        a.shutdown(std.SHUT_WR)
    for _ in range(2):
        ((number, bits),) = poller.poll(LIMIT_S * 1000)
        assert number == a.fileno() and bits & select.POLLHUP
    assert select.select([a.fileno()], [a.fileno()], [], LIMIT_S)[:2] == ([a.fileno()], [a.fileno()])
    if how == "reset":
        with pytest.raises(ConnectionResetError):
            a.recv(1)
    assert a.recv(1) == b""


def test_a_connection_refused_may_be_tried_again_under_poll(net: Net) -> None:
    with listener(net) as server:
        address = server.getsockname()
    client = tcp(net)
    with pytest.raises(ConnectionRefusedError):
        client.connect(address)
    poller = select.poll()
    poller.register(client.fileno(), select.POLLIN)
    again = tcp(net)
    again.setsockopt(std.SOL_SOCKET, std.SO_REUSEADDR, 1)
    again.bind(address)
    again.listen()
    with pytest.raises(ConnectionAbortedError):  # Linux tells of the first failure once more
        client.connect(address)
    client.connect(address)
    peer = accepted(net, again)
    assert poller.poll(0) == []
    peer.sendall(b"x")
    assert poller.poll(LIMIT_S * 1000) == [(client.fileno(), select.POLLIN)]


def test_the_fd_may_be_asked_for_first(net: Net) -> None:
    """Before anybody knows whose socket it will be: stock event loops do so to connect."""
    server = tcp(net)
    listening = server.fileno()
    server.bind((net.hosts[0], 0))
    server.listen()
    assert select.select([listening], [], [], 0)[0] == []
    client = tcp(net)
    number = client.fileno()
    client.setblocking(False)
    assert client.connect_ex(server.getsockname()) in (0, errno.EINPROGRESS)
    poller = select.poll()
    poller.register(number, select.POLLIN | select.POLLOUT)
    assert poller.poll(LIMIT_S * 1000) == [(number, select.POLLOUT)]
    assert client.getsockopt(std.SOL_SOCKET, std.SO_ERROR) == 0
    assert select.select([listening], [], [], LIMIT_S)[0] == [listening]
    peer = accepted(net, server)
    peer.sendall(b"x")
    assert select.select([number], [], [], LIMIT_S)[0] == [number] == [client.fileno()]
    with tcp(net) as other:
        again = other.fileno()
        other.settimeout(None)
        other.connect(server.getsockname())
        assert select.select([again], [again], [], 0)[:2] == ([], [again])


def test_the_fd_of_datagrams_may_be_asked_for_first(net: Net) -> None:
    receiver = net.socket()
    number = receiver.fileno()
    receiver.bind((net.hosts[0], 0))
    sender = net.socket()
    sender.connect(receiver.getsockname())
    assert select.select([number], [], [], 0)[0] == []
    sender.send(b"x")
    assert select.select([number], [], [], LIMIT_S)[0] == [number]


# What is not the socket's own call finds no data in the fd of an offloaded stream; it must not be taken for written, nor make any up.
@pytest.mark.without("stdlib", "loopback")
def test_writing_to_the_fd_is_refused(net: Net) -> None:
    a, b = pair(net)
    number = a.fileno()
    assert select.select([], [number], [], LIMIT_S)[1] == [number]
    with tempfile.TemporaryFile() as file:
        file.write(b"of a file")
        file.flush()
        for write in (
            lambda: os.write(number, b"by number"),
            lambda: os.writev(number, [b"by", b"number"]),
            lambda: os.sendfile(number, file.fileno(), 0, 9),
        ):
            with pytest.raises(BrokenPipeError):
                write()
    assert select.select([], [number], [], LIMIT_S)[1] == [number]
    a.sendall(b"by its own call")
    assert b.recv(100) == b"by its own call"
    b.sendall(b"and back")
    assert select.select([number], [], [], LIMIT_S)[0] == [number]
    assert os.read(number, 100) == b""
    assert a.recv(100) == b"and back"
    assert select.select([number], [], [], 0)[0] == []
    b.sendall(b"more")
    assert select.select([number], [], [], LIMIT_S)[0] == [number]
    assert a.recv(100) == b"more"
