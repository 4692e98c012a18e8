"""Batches of datagrams, over the kernel and over a ring; those of streams are in test_stream_batches.py."""

from __future__ import annotations

import errno
import gc
import socket as std

import pytest
from sides import Net

pytestmark = pytest.mark.without("stdlib")


def test_into_buffers(net: Net) -> None:
    a, b = net.pair()
    sent = [b"%d" % n * (n + 1) for n in range(20)]
    assert b.send_batch(sent) == 20
    got = []
    for _ in range(20):
        room = [bytearray(100) for _ in range(7)]
        for item, buffer in zip(a.recv_batch(room), room, strict=False):
            assert item.address == b.getsockname()
            assert item.flags == 0
            got.append(bytes(buffer[: item.nbytes]))
        if len(got) == 20:
            break
    assert got == sent


def test_too_small_buffers(net: Net) -> None:
    a, b = net.pair()
    b.send(b"0123456789")
    room = bytearray(4)
    (item,) = a.recv_batch([room])
    assert (item.nbytes, item.flags & std.MSG_TRUNC, bytes(room)) == (4, std.MSG_TRUNC, b"0123")


def test_lent(net: Net) -> None:
    a, b = net.pair()
    sent = [b"", b"x", b"y" * 1400, b"z" * 9000]
    for data in sent:
        b.send(data)
    got = []
    while len(got) < len(sent):
        with a.recv_batch(16) as batch:
            got += [bytes(view) for view in batch]
            assert batch.addresses == [b.getsockname()] * len(batch)
            assert [message.nbytes for message in batch.messages] == [len(view) for view in batch]
            assert all(view.readonly for view in batch)
    assert got == sent


def test_size_of_a_batch(net: Net) -> None:
    a, b = net.pair()
    b.send_batch([b"%d" % n for n in range(10)])
    with a.recv_batch(3) as batch:
        assert 1 <= len(batch) <= 3
        assert bytes(batch[0]) == b"0"
        with pytest.raises(IndexError):
            batch[len(batch)]
    for wrong in (0, -1):
        with pytest.raises(ValueError):
            a.recv_batch(wrong)
    with pytest.raises(ValueError):
        a.recv_batch([])


def test_release_ends_the_views(net: Net) -> None:
    a, b = net.pair()
    b.send(b"payload")
    batch = a.recv_batch(4)
    view = batch[0]
    batch.release()
    batch.release()
    for call in (lambda: view[0], lambda: batch[0], lambda: len(batch), lambda: batch.addresses, batch.__enter__):
        with pytest.raises(ValueError):
            call()


def test_release_waits_for_what_is_made_of_a_view(net: Net) -> None:
    a, b = net.pair()
    b.send(b"payload")
    batch = a.recv_batch(4)
    part = batch[0][3:]
    with pytest.raises(BufferError):
        batch.release()
    assert bytes(part) == b"load"
    del part
    batch.release()


def test_a_release_that_failed_leaves_a_whole_batch(net: Net) -> None:
    """The payloads before the one that is in use can be read again."""
    a, b = net.pair()
    assert b.send_batch([b"one", b"two"]) == 2
    batch = a.recv_batch(2)
    while len(batch) < 2:
        batch.release()
        assert b.send_batch([b"one", b"two"]) == 2
        batch = a.recv_batch(2)
    first, part = batch[0], batch[1][1:]
    with pytest.raises(BufferError):
        batch.release()
    with pytest.raises(ValueError):
        first[0]
    assert [bytes(view) for view in batch] == [b"one", b"two"]
    del part
    batch.release()


def test_forgotten_batches_come_back(net: Net) -> None:
    """Many more than any pool holds."""
    a, b = net.pair()
    kept = None
    for number in range(6000):
        b.send(b"%d" % number)
        batch = a.recv_batch(1)
        kept = batch[0]
    del batch
    gc.collect()
    assert bytes(kept) == b"5999"


def test_lent_outlives_the_socket(net: Net) -> None:
    a, b = net.pair()
    b.send(b"still here")
    batch = a.recv_batch(1)
    a.close()
    assert bytes(batch[0]) == b"still here"
    batch.release()


def test_addresses(net: Net) -> None:
    first, second, b = net.bound(0), net.bound(0), net.bound(1)
    assert b.send_batch([(b"one", first.getsockname()), (b"two", second.getsockname()), (b"three", first.getsockname())]) == 3
    assert (first.recv(10), first.recv(10), second.recv(10)) == (b"one", b"three", b"two")
    assert b.send_batch([b"four", (b"five", second.getsockname())], 0, first.getsockname()) == 2
    assert (first.recv(10), second.recv(10)) == (b"four", b"five")
    with pytest.raises(OSError) as caught:
        b.send_batch([b"nowhere"])
    assert caught.value.errno == errno.EDESTADDRREQ
    assert b.send_batch([]) == 0


def test_wrong_arguments(net: Net) -> None:
    a = net.bound(0)
    for wrong in (None, 3, ["text"], [(b"x",)], [(b"x", "host")], [(b"x", ("host", 1, 2, 3, 4))], [(b"x", (net.hosts[0], 70000))]):
        with pytest.raises(TypeError):
            a.send_batch(wrong)
    for wrong in (None, 3.5, [b"read only"], ["text"]):
        with pytest.raises((TypeError, BufferError)):
            a.recv_batch(wrong)


def test_waiting(net: Net) -> None:
    a = net.bound(0, timeout=0.02)
    for what in (4, [bytearray(10)]):
        a.settimeout(0.02)
        with pytest.raises(TimeoutError):
            a.recv_batch(what)
        a.setblocking(False)
        with pytest.raises(BlockingIOError):
            a.recv_batch(what)
    a.close()
    with pytest.raises(OSError) as caught:
        a.recv_batch(1)
    assert caught.value.errno == errno.EBADF
