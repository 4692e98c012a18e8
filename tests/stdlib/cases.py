"""Runs classes of CPython's own test_socket and prints what became of each test, as JSON.

    python cases.py MODULE HOST4 HOST6 CLASS...

MODULE stands in for `socket` in the tests; HOST4 and HOST6 for the addresses of the loopback interface.
"""

from __future__ import annotations

import importlib
import json
import sys
import unittest
import warnings
from typing import Any


class Outcomes(unittest.TestResult):
    """A word a test; of failures also the last line."""

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, str] = {}

    def _note(self, test: unittest.TestCase, word: str) -> None:
        self.words[test.id().removeprefix("test.test_socket.")] = word

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


def main(module: str, host4: str, host6: str, names: list[str]) -> int:
    warnings.simplefilter("ignore")
    from test.support import socket_helper

    socket_helper.HOST = socket_helper.HOSTv4 = host4
    socket_helper.HOSTv6 = host6
    socket_helper.bind_port.__defaults__ = (host4,)
    cases: Any = importlib.import_module("test.test_socket")
    cases.socket = importlib.import_module(module)
    outcomes = Outcomes()
    for name in names:
        found = getattr(cases, name, None)
        if found is not None:
            unittest.defaultTestLoader.loadTestsFromTestCase(found).run(outcomes)
    counters: dict[str, int] = {}
    if module != "socket":
        import pyvma

        counters = pyvma.counters()
    print("\n" + json.dumps({"outcomes": outcomes.words, "counters": counters}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
