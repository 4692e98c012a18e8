"""Calls leave no object and no fd behind, whether they succeed or fail."""

from __future__ import annotations

import gc
import os
import socket as std
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lab import HOSTS4, softnic_reason

import pyvma.socket as ours

ROUNDS = 3000


@pytest.fixture
def pair() -> Iterator[tuple[Any, Any]]:
    with ours.socket(std.AF_INET, std.SOCK_DGRAM) as a, ours.socket(std.AF_INET, std.SOCK_DGRAM) as b:
        a.bind(("127.0.0.1", 0))
        b.connect(a.getsockname())
        a.settimeout(20)
        yield a, b


def fails(call: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, OSError, BufferError)):
        call()


def batch(a: Any, b: Any) -> None:
    b.send(b"x")
    with a.recv_batch(4) as batch:
        bytes(batch[0])
        batch.addresses
        batch.messages


def forgotten_batch(a: Any, b: Any) -> None:
    b.send(b"x")
    a.recv_batch(4)[0]


def send_batches(a: Any, b: Any) -> None:
    sent = b.send_batch([b"x", (b"y", a.getsockname())])
    while sent:
        sent -= len(a.recv_batch([bytearray(10), bytearray(10)]))


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "send recv": lambda a, b: (b.send(b"x"), a.recv(10), b.sendall(b"x"), a.recv(5000)),
    "sendto recvfrom": lambda a, b: (b.sendto(b"x", a.getsockname()), a.recvfrom(10)),
    "recv_into": lambda a, b: (b.send(b"x"), a.recv_into(bytearray(10)), b.send(b"x"), a.recvfrom_into(bytearray(3), flags=0)),
    "sendmsg recvmsg": lambda a, b: (b.sendmsg([b"x"]), a.recvmsg(10, 100), b.sendmsg([b"x"]), a.recvmsg_into([bytearray(1)])),
    "names": lambda a, b: (a.getsockname(), b.getpeername(), repr(a), b.connect(a.getsockname()), a.offload, a.stats),
    "options": lambda a, b: (a.setsockopt(1, 2, 1), a.getsockopt(1, 2), a.getsockopt(1, 2, 4)),
    "batch": batch,
    "forgotten batch": forgotten_batch,
    "send_batch": send_batches,
    "dup": lambda a, b: a.dup().close(),
    "new": lambda a, b: ours.socket(std.AF_INET6, std.SOCK_DGRAM).close(),
    "detach": lambda a, b: ours.socket(fileno=ours.socket(std.AF_INET, std.SOCK_DGRAM).detach()).close(),
    "wrong arguments": lambda a, b: (
        fails(lambda: b.send("text")),
        fails(lambda: b.sendto(b"x", ("127.0.0.1", 99999))),
        fails(lambda: b.sendto(b"x", ("\0", 1.5))),
        fails(lambda: a.recv_into(b"constant", flags=1)),
        fails(lambda: a.recv(5, nonsense=1)),
        fails(lambda: b.send_batch([b"x", "text"])),
        fails(lambda: b.send_batch([(b"x", ("127.0.0.1", "port"))])),
        fails(lambda: a.recv_batch([bytearray(3), b"constant"])),
        fails(lambda: a.recv_batch(-1)),
        fails(lambda: ours.socket(std.AF_INET, std.SOCK_DGRAM, 9999)),
    ),
    "errors": lambda a, b: (fails(lambda: a.send(b"x")), fails(lambda: a.send_batch([b"x"])), fails(lambda: b.recv(1, std.MSG_DONTWAIT))),
}


@pytest.fixture(params=["loopback", "softnic"])
def streams(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    if request.param == "softnic" and softnic_reason():
        pytest.skip(softnic_reason())
    host = HOSTS4[0] if request.param == "softnic" else "127.0.0.1"
    with ours.create_server((host, 0)) as server, ours.create_connection(server.getsockname(), 20) as b:
        a, _ = server.accept()
        with a:
            a.settimeout(20)
            assert bool(a.offload) == (request.param == "softnic")
            yield a, b


STREAM_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "send recv": lambda a, b: (
        b.sendall(b"x"),
        a.recv(10),
        b.sendmsg([b"x", b"y"]),
        a.recvmsg(5000),
        b.send(b"x"),
        a.recv_into(bytearray(3)),
    ),
    "pieces": batch,
    "forgotten pieces": forgotten_batch,
    "dup": lambda a, b: a.dup().close(),
    "known fd": lambda a, b: ours.socket(fileno=os.dup(a.fileno())).close(),
    "errors": lambda a, b: (
        fails(lambda: a.setsockopt(std.IPPROTO_TCP, std.TCP_CONGESTION, b"no such")),
        fails(lambda: a.recv_batch(1, std.MSG_PEEK)),
        fails(lambda: a.recv_batch([bytearray(1)])),
        fails(lambda: a.send_batch([b"x"])),
    ),
}


@pytest.mark.parametrize("name", STREAM_CALLS)
def test_streams_leave_nothing(streams: tuple[Any, Any], name: str) -> None:
    grows_not(STREAM_CALLS[name], streams)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_left(pair: tuple[Any, Any], name: str) -> None:
    grows_not(CALLS[name], pair)


def grows_not(call: Callable[[Any, Any], Any], pair: tuple[Any, Any]) -> None:
    for _ in range(50):
        call(*pair)
    gc.collect()
    fds = len(os.listdir("/proc/self/fd"))
    tracemalloc.start()
    try:
        # Caches fill first: without pymalloc the interpreter's take a thousand calls.
        for _ in range(ROUNDS):
            call(*pair)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(ROUNDS):
            call(*pair)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < ROUNDS * 8, f"{grown / ROUNDS:.1f} bytes a call"
    assert len(os.listdir("/proc/self/fd")) <= fds + 8, "fds are left"
