"""Runs classes of CPython's own test_socket and prints what became of each test, as JSON.

    python cases.py MODULE HOST4 HOST6 [--peer NETNS PEER4 PEER6] CLASS...

MODULE stands in for `socket` in the tests; HOST4 and HOST6 for the addresses of the loopback interface. With --peer the threads that
the tests start as clients live in that network namespace, with the standard library's sockets and these addresses.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import socket
import sys
import threading
import unittest
import warnings
from typing import Any

CLONE_NEWNET = 0x40000000


class Outcomes(unittest.TestResult):
    """A word a test; of failures also the last line."""

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, str] = {}

    def _note(self, test: unittest.TestCase, word: str) -> None:
        self.words[test.id().split(".", 2)[2]] = word

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "ok")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, f"skipped: {reason}")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._note(test, f"failed: {err[0].__name__}: {err[1]}")

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._note(test, f"error: {err[0].__name__}: {err[1]}")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._note(test, "expected failure")


class Split:
    """A module for the tests that is another one in client threads."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self.ours, self.theirs, self.thread = ours, theirs, threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs if getattr(self.thread, "client", False) else self.ours, name)


class Theirs:
    """The standard library's `socket`, whose sockets are bound to the peer's address where a test asks for the server's."""

    def __init__(self, hosts: dict[str, str]) -> None:
        class PeerSocket(socket.socket):
            def bind(self, address: Any) -> None:
                super().bind((hosts.get(address[0], address[0]), *address[1:]))

        self.socket = PeerSocket

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


def part(cases: Any, module: Any, netns: str, hosts: dict[str, str]) -> Split:
    """Sends the client threads of all tests into the namespace. A thread enters it alone, and every test has a thread of its own."""
    split, libc, run = Split(module, Theirs(hosts)), ctypes.CDLL(None, use_errno=True), cases.ThreadableTest.clientRun

    def client_run(test: Any, function: Any) -> None:
        fd = os.open(f"/run/netns/{netns}", os.O_RDONLY | os.O_CLOEXEC)
        if libc.setns(fd, CLONE_NEWNET):
            test.queue.put(OSError(ctypes.get_errno(), "setns"))
        os.close(fd)
        split.thread.client = True
        run(test, function)

    cases.ThreadableTest.clientRun = client_run
    return split


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("host4")
    parser.add_argument("host6")
    parser.add_argument("--peer", nargs=3)
    parser.add_argument("names", nargs="+")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    from test.support import socket_helper

    socket_helper.HOST = socket_helper.HOSTv4 = given.host4
    socket_helper.HOSTv6 = given.host6
    socket_helper.bind_port.__defaults__ = (given.host4,)
    cases: Any = importlib.import_module("test.test_socket")
    cases.socket = importlib.import_module(given.module)
    if given.peer:
        cases.socket = part(cases, cases.socket, given.peer[0], {given.host4: given.peer[1], given.host6: given.peer[2]})
    outcomes = Outcomes()
    for name in given.names:
        found = getattr(cases, name, None)
        if found is not None:
            unittest.defaultTestLoader.loadTestsFromTestCase(found).run(outcomes)
    counters: dict[str, int] = {}
    if given.module != "socket":
        import pyvma

        counters = pyvma.counters()
    print("\n" + json.dumps({"outcomes": outcomes.words, "counters": counters}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
