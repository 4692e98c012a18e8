"""Pieces of a stream, lent in place or copied once, over the kernel and over a ring."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import socket as std
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sides import LIMIT_S, Net
from streams import listener, pair, running, tcp

Errno = Callable[..., int]

pytestmark = pytest.mark.without("stdlib")


def test_the_stream_piece_by_piece(net: Net) -> None:
    a, b = pair(net)
    data = os.urandom(3_000_000)

    def send() -> None:
        b.sendall(data)
        b.shutdown(std.SHUT_WR)

    digest, pieces = hashlib.sha256(), 0
    with running(send):
        while batch := a.recv_batch(16):
            with batch:
                assert 1 <= len(batch) <= 16
                assert all(view.readonly and view for view in batch)
                pieces += len(batch)
                for view in batch:
                    digest.update(view)
    assert digest.digest() == hashlib.sha256(data).digest()
    assert pieces > 10
    assert len(a.recv_batch(1)) == 0  # the end stays the end


def test_what_is_told_of_a_piece(net: Net) -> None:
    a, b = pair(net)
    b.sendall(b"payload")
    with a.recv_batch(4) as batch:
        assert [bytes(view) for view in batch] == [b"payload"]
        assert batch.addresses == [None]
        assert batch.messages == [(7, None, 0, 0)]


def test_among_other_reads(net: Net) -> None:
    """A batch goes on where the read before it ended, in the middle of a segment too."""
    a, b = pair(net)
    b.sendall(b"0123456789")
    assert a.recv(3, std.MSG_WAITALL) == b"012"
    assert a.recv(2, std.MSG_PEEK) == b"34"
    got = b""
    while len(got) < 7:
        with a.recv_batch(2) as batch:
            got += b"".join(batch)
    assert got == b"3456789"
    b.sendall(b"more")
    assert a.recv(4, std.MSG_WAITALL) == b"more"


def test_release_ends_the_views(net: Net) -> None:
    a, b = pair(net)
    b.sendall(b"payload")
    batch = a.recv_batch(4)
    view = batch[0]
    part = view[3:]
    with pytest.raises(BufferError):
        batch.release()
    assert bytes(part) == b"load"
    del part
    batch.release()
    batch.release()
    for call in (lambda: view[0], lambda: batch[0], lambda: len(batch), batch.__enter__):
        with pytest.raises(ValueError):
            call()


def test_forgotten_batches_come_back(net: Net) -> None:
    """Many more bytes than any pool holds; the stream does not stop."""
    a, b = pair(net)
    block = os.urandom(1 << 20)

    def send() -> None:
        for _ in range(24):
            b.sendall(block)
        b.shutdown(std.SHUT_WR)

    got, batch = 0, None
    with running(send):
        while batch := a.recv_batch(8):
            got += sum(len(view) for view in batch)
    assert got == 24 << 20
    gc.collect()


def test_held_too_long(net: Net, errno_of: Errno) -> None:
    """Whoever keeps every batch hears of it; copies are to be had all the time, and releasing brings the stream back."""
    a, b = pair(net)
    block = os.urandom(1 << 20)
    digest = hashlib.sha256()

    def send() -> None:
        with suppress(ConnectionError):
            for _ in range(64):
                b.sendall(block)
            b.shutdown(std.SHUT_WR)

    kept: list[Any] = []

    def keep() -> None:
        while batch := a.recv_batch(64):
            kept.append(batch)
            if not net.offloaded and len(kept) > 100:
                raise OSError(errno.ENOBUFS, "copies: as many as there is memory for")

    with running(send):
        assert errno_of(keep) == errno.ENOBUFS
        for batch in kept:
            with batch:
                for view in batch:
                    digest.update(view)
        copied = a.recv(1000)
        assert copied
        digest.update(copied)
        while batch := a.recv_batch(64):
            with batch:
                for view in batch:
                    digest.update(view)
    assert digest.digest() == hashlib.sha256(block * 64).digest()


def test_lent_outlives_the_socket(net: Net) -> None:
    a, b = pair(net)
    b.sendall(b"still here")
    batch = a.recv_batch(1)
    a.close()
    assert bytes(batch[0]) == b"still here"
    batch.release()


def test_a_batch_is_sent_on_as_it_is(net: Net) -> None:
    """A relay that copies nothing of its own."""
    a, b = pair(net)
    c, d = pair(net)
    data = os.urandom(500_000)

    def send() -> None:
        b.sendall(data)
        b.shutdown(std.SHUT_WR)

    def relay() -> None:
        while batch := a.recv_batch(16):
            with batch:
                sent = d.sendmsg(batch)
                for view in batch:
                    part = view[min(sent, len(view)) :]
                    sent -= len(view) - len(part)
                    d.sendall(part)
                    part.release()
        d.shutdown(std.SHUT_WR)

    got = bytearray()
    with running(send), running(relay):
        while part := c.recv(65536):
            got += part
    assert bytes(got) == data


def test_waiting(net: Net, errno_of: Errno) -> None:
    a, b = pair(net)
    a.settimeout(0.02)
    with pytest.raises(TimeoutError):
        a.recv_batch(4)
    a.setblocking(False)
    assert errno_of(a.recv_batch, 4) == errno.EAGAIN
    a.setblocking(True)
    assert errno_of(a.recv_batch, 4, std.MSG_DONTWAIT) == errno.EAGAIN
    b.close()
    a.settimeout(LIMIT_S)
    assert len(a.recv_batch(4)) == 0


def test_errors(net: Net, errno_of: Errno) -> None:
    a, b = pair(net)
    fresh = tcp(net, None)
    assert errno_of(fresh.recv_batch, 4) == errno.ENOTCONN
    assert errno_of(a.recv_batch, 4, std.MSG_PEEK) == errno.EINVAL
    assert errno_of(a.recv_batch, [bytearray(4)]) == errno.EOPNOTSUPP
    assert errno_of(a.send_batch, [b"x"]) == errno.EOPNOTSUPP
    for wrong in (0, -1):
        with pytest.raises(ValueError):
            a.recv_batch(wrong)
    b.setsockopt(std.SOL_SOCKET, std.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    b.close()
    assert errno_of(a.recv_batch, 4) == errno.ECONNRESET
    a.close()
    assert errno_of(a.recv_batch, 4) == errno.EBADF
    server = listener(net)
    server.setblocking(False)
    assert errno_of(server.recv_batch, 4) == errno.ENOTCONN
