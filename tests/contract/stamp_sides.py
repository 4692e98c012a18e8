"""What the contracts of time stamps share: pairs of sockets, and how a stamp is waited for and judged."""

from __future__ import annotations

import importlib
import socket as std
import time
from collections.abc import Callable
from typing import Any

from exchange import wait_for
from sides import LIMIT_S, Net
from stamps import (
    SOFTWARE,
    TIMESTAMP,
    TIMESTAMP_NEW,
    TIMESTAMPING,
    TIMESTAMPNS,
    TIMESTAMPNS_NEW,
    TX_SOFTWARE,
    Told,
    drain,
    once,
    told,
)

Errno = Callable[..., int]
SEND = SOFTWARE | TX_SOFTWARE
SOCKET = std.SOL_SOCKET
# Clocks are read in different ways: what is compared may be off by so much.
SLACK_NS = 50_000_000
ETHERNET = 14


def headers(net: Net, l4: int) -> int:
    """Bytes of a frame in front of its payload."""
    return ETHERNET + (20 if net.family == std.AF_INET else 40) + l4


def recverr(net: Net) -> tuple[int, int, int]:
    return (std.IPPROTO_IP, 11, 32) if net.family == std.AF_INET else (std.IPPROTO_IPV6, 25, 44)


def plain_options(sock: Any) -> list[int]:
    """Which of the four is said to be set. Of SO_TIMESTAMPNS_NEW Linux says so of SO_TIMESTAMP_NEW, too."""
    found = [name for name in (TIMESTAMP, TIMESTAMPNS, TIMESTAMP_NEW, TIMESTAMPNS_NEW) if sock.getsockopt(SOCKET, name)]
    return found[1:] if found == [TIMESTAMP_NEW, TIMESTAMPNS_NEW] else found


def flag(sock: Any, flags: int, name: int = TIMESTAMPING) -> None:
    sock.setsockopt(SOCKET, name, flags)


def stamped(net: Net, send: Callable[[], Any], sock: Any) -> tuple[int, Told, int]:
    """The first message that comes with a stamp, between two times: the kernel takes some without before it begins."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        before = time.time_ns()
        send()
        got = told(sock.recvmsg(2000, 512))
        after = time.time_ns()
        if got.order or net.offloaded:
            return before, got, after
        assert time.monotonic() < deadline
        time.sleep(0.005)


def between(before: int, stamp: int | None, after: int) -> None:
    assert stamp is not None
    assert before - SLACK_NS <= stamp <= after + SLACK_NS, (before, stamp, after)


def tcp_pair(net: Net, prepare: Callable[[Any], None] | None = None) -> tuple[Any, Any]:
    """(accepted, connected), without Nagle; `prepare` is called with the listener."""
    made = [net.module.socket(net.family, std.SOCK_STREAM) for _ in range(2)]
    net.opened += made
    for one in made:
        one.settimeout(LIMIT_S)
    made[0].bind((net.hosts[0], 0))
    if prepare:
        prepare(made[0])
    made[0].listen()
    made[1].connect(made[0].getsockname())
    server, _ = made[0].accept()
    server.settimeout(LIMIT_S)
    net.opened.append(server)
    for one in (server, made[1]):
        one.setsockopt(std.IPPROTO_TCP, std.TCP_NODELAY, 1)
    if net.offloaded:
        assert made[1].offload
    return server, made[1]


def some(sock: Any, count: int) -> list[Told]:
    """So many entries of the error queue, which may take their time."""
    found: list[Told] = []

    def enough() -> bool:
        found.extend(drain(sock))
        return len(once(found)) >= count

    wait_for(f"{count} entries", enough)
    assert len(once(found)) == count, found
    return once(found)


def poll_module(net: Net) -> Any:
    return importlib.import_module("pyvma.select" if net.ours else "select")
