"""Waiting calls among signals and threads (PEP 475)."""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from sides import LIMIT_S, Net


def calls(net: Net, udp: Any) -> list[Callable[[], Any]]:
    """The ways to wait for a datagram."""
    found: list[Callable[[], Any]] = [
        lambda: udp.recv(100),
        lambda: udp.recv_into(bytearray(100)),
        lambda: udp.recvfrom(100),
        lambda: udp.recvmsg(100),
    ]
    return [*found, lambda: udp.recv_batch(1), lambda: udp.recv_batch([bytearray(3)])] if net.ours else found


def test_signals_do_not_end_a_wait(net: Net) -> None:
    udp = net.bound(0)
    seen: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) == 5:
            udp.sendto(b"from the handler", udp.getsockname())

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for receive in calls(net, udp):
            for timeout in (None, LIMIT_S):
                seen.clear()
                udp.settimeout(timeout)
                signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
                receive()
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert len(seen) >= 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_signals_do_not_prolong_a_timeout(net: Net) -> None:
    udp = net.bound(0)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        for receive in calls(net, udp):
            udp.settimeout(0.3)
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                receive()
            assert time.monotonic() - started >= 0.3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_ends_the_wait(net: Net) -> None:
    udp = net.bound(0)

    class EnoughError(Exception):
        pass

    def handler(number: int, frame: FrameType | None) -> None:
        raise EnoughError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for receive in calls(net, udp):
            udp.settimeout(None)
            with pytest.raises(EnoughError):
                # Again a second later: a handler of Python's that has run just before the wait is one that it does not hear of.
                signal.setitimer(signal.ITIMER_REAL, 0.02, 1)
                receive()
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_gil_is_free_while_waiting(net: Net) -> None:
    udp = net.bound(0)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(udp.recv(10)))
    thread.start()
    net.socket().sendto(b"x", udp.getsockname())
    thread.join(LIMIT_S)
    assert got == [b"x"]


def test_buffers_are_held_while_waiting(net: Net) -> None:
    """A buffer that a call of another thread writes into cannot be resized meanwhile."""
    udp = net.bound(0)
    room = bytearray(100)
    started = threading.Event()
    thread = threading.Thread(target=lambda: (started.set(), udp.recv_into(room)))
    thread.start()
    started.wait()
    deadline = time.monotonic() + LIMIT_S
    held = False
    while not held and time.monotonic() < deadline:
        try:
            room.append(0)
            room.pop()
        except BufferError:
            held = True
    udp.sendto(b"x", udp.getsockname())
    thread.join(LIMIT_S)
    assert held
    room.append(1)


@pytest.mark.without("stdlib")
def test_close_among_calls(net: Net) -> None:
    """Threads send and receive on sockets that are closed under them: each call works, or fails with an error of its own."""
    stop = threading.Event()
    current: list[Any] = [net.bound(0, timeout=0.01)]
    unexpected: list[BaseException] = []

    def use(call: Callable[[Any], Any]) -> None:
        while not stop.is_set():
            try:
                call(current[0])
            except (TimeoutError, BlockingIOError):
                pass
            except OSError as error:
                if error.errno not in (errno.EBADF, errno.EDESTADDRREQ, errno.ECONNREFUSED):
                    unexpected.append(error)
            except BaseException as error:
                unexpected.append(error)

    uses: list[Callable[[Any], Any]] = [
        lambda s: s.recv(100),
        lambda s: s.recv_batch(4).release(),
        lambda s: s.sendto(b"x", s.getsockname()),
        lambda s: s.recvmsg(10),
    ]
    threads = [threading.Thread(target=use, args=(call,)) for call in uses]
    # All made before the first is closed: a call that comes late must find its number free, not another socket's.
    following = [net.bound(0, timeout=0.01) for _ in range(60)]
    for thread in threads:
        thread.start()
    try:
        for new in following:
            old, current[0] = current[0], new
            with contextlib.suppress(TimeoutError):  # the others have the CPUs
                new.sendto(b"y", new.getsockname())
            old.close()
            time.sleep(0.001)
    finally:
        stop.set()
        for thread in threads:
            thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert not unexpected
