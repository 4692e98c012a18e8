"""Streams on a net of the contract, and a thread beside what a case does with them."""

from __future__ import annotations

import socket as std
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sides import LIMIT_S, Net


def tcp(net: Net, timeout: float | None = LIMIT_S) -> Any:
    made = net.module.socket(net.family, std.SOCK_STREAM)
    made.settimeout(timeout)
    net.opened.append(made)
    return made


def listener(net: Net, backlog: int = 16) -> Any:
    made = tcp(net)
    made.bind((net.hosts[0], 0))
    made.listen(backlog)
    if net.ours:
        assert made.offload.state == ("offloaded" if net.offloaded else "kernel"), made.offload
    return made


def accepted(net: Net, server: Any) -> Any:
    made, _ = server.accept()
    made.settimeout(LIMIT_S)
    net.opened.append(made)
    return made


def pair(net: Net) -> tuple[Any, Any]:
    """(accepted, connected)"""
    server, client = listener(net), tcp(net)
    client.connect(server.getsockname())
    return accepted(net, server), client


@contextmanager
def running(target: Callable[[], None]) -> Iterator[None]:
    """A thread beside the block; what it raised is raised here."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            target()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(6 * LIMIT_S)
    assert not thread.is_alive()
    if failed:
        raise failed[0]
