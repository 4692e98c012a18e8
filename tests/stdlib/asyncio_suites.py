"""Runs modules of CPython's own test_asyncio with loops of another package and prints what became of each test, as JSON.

    python asyncio_suites.py HOST4 HOST6 (uvloop|pyvma) SUITE... [--once TEST] [--without TEST] [--limit SECONDS]

SUITE is a module of test.test_asyncio, TEST is SUITE.CLASS.NAME. Loops that tests ask for are the package's, whether by the policy, by
new_event_loop() or by naming SelectorEventLoop; with pyvma, sockets are ours, too, by pyvma.patch(). HOST4 takes the place of 127.0.0.1
as in suites.py, which see for the rest. Tests run in a child process, which a test that takes too long, or dies, takes with it; the next
child goes on behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import faulthandler
import importlib
import importlib.machinery
import json
import os
import signal
import sys
import traceback
import types
import unittest
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from cases import Outcomes
from suites import LOOPBACK, isolate, tests_of

PR_SET_CHILD_SUBREAPER = 36


class Loader(importlib.machinery.SourceFileLoader):
    """The source, with another address in it."""

    host4 = ""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        return compile(LOOPBACK.sub(self.host4, Path(path).read_text()), path, "exec")


class Finder:
    """For all of test.test_asyncio: its helpers name the address, too."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None) -> Any:
        if not name.startswith("test.test_asyncio."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = Loader(name, spec.origin)
        return spec


def take_over(package: str) -> None:
    """Loops of `package` wherever asyncio makes one."""
    if package == "pyvma":
        import pyvma

        pyvma.patch()
        module = importlib.import_module("pyvma.asyncio")
    else:
        module = importlib.import_module("uvloop")

    def make(selector: Any = None) -> Any:
        made = module.new_event_loop()
        made._default_executor = None  # test.test_asyncio.utils asks for it
        return made

    class Policy(asyncio.DefaultEventLoopPolicy):  # type: ignore[misc, name-defined, unused-ignore]
        _loop_factory = staticmethod(make)

    # What set_event_loop_policy(None) goes back to.
    asyncio.DefaultEventLoopPolicy = Policy  # type: ignore[misc, assignment, attr-defined, unused-ignore]
    asyncio.SelectorEventLoop = make  # type: ignore[misc, assignment, unused-ignore]
    asyncio.set_event_loop_policy(None)


def name_of(test: unittest.TestCase) -> str:
    return test.id().split(".", 2)[2]


class Told(Outcomes):
    """Outcomes that the parent reads while the tests run."""

    def __init__(self, pipe: int, limit_s: float) -> None:
        super().__init__()
        self._pipe, self._limit_s = pipe, limit_s

    def tell(self, **what: Any) -> None:
        os.write(self._pipe, json.dumps(what).encode() + b"\n")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.tell(started=name_of(test))
        faulthandler.dump_traceback_later(self._limit_s, exit=True)

    def stopTest(self, test: unittest.TestCase) -> None:
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)
        self.tell(ended=name_of(test), word=self.words.get(name_of(test), "failed: in a part of it"))


def run_here(given: argparse.Namespace, wanted: Callable[[str], bool], pipe: int) -> None:
    warnings.simplefilter("ignore")
    Loader.host4 = given.host4
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    take_over(given.package)
    from test.support import socket_helper

    socket_helper.HOST = socket_helper.HOSTv4 = given.host4
    socket_helper.HOSTv6 = given.host6
    socket_helper.socket = importlib.import_module("socket")
    modules = [importlib.import_module(f"test.test_asyncio.{suite}") for suite in given.suites]
    loaded = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromModule(module) for module in modules)
    told = Told(pipe, given.limit)
    unittest.TestSuite(test for test in tests_of(loaded) if wanted(name_of(test))).run(told)
    connections = 0
    if given.package == "pyvma":
        import pyvma

        connections = pyvma.counters()["tcp.opened_passive"]
        pyvma.stop()
    told.tell(connections=connections)


def end_what_tests_left() -> None:
    """Programs that a test has begun and forgotten. Since the child that began them has ended they are this process's children."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := [int(pid) for pid in children.read_text().split()]:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def run_in_children(given: argparse.Namespace, wanted: Callable[[str], bool]) -> tuple[dict[str, str], int]:
    """What became of each test, and how many connections the engine accepted in the child that saw the last one."""
    words: dict[str, str] = {}
    while True:
        before = len(words)
        read, write = os.pipe()
        # Nothing of the engine's is in this process: it would not survive the fork.
        child = os.fork()
        if not child:
            try:
                run_here(given, lambda name: wanted(name) and name not in words, write)
            except BaseException:
                traceback.print_exc()
            finally:
                # A thread that a failed test has left must not keep the process.
                os._exit(0)
        os.close(write)
        connections = None
        with open(read) as lines:
            for line in lines:
                told = json.loads(line)
                if "started" in told:
                    words[told["started"]] = "died: or took too long"
                elif "ended" in told:
                    words[told["ended"]] = told["word"]
                else:
                    connections = told["connections"]
        os.waitpid(child, 0)
        end_what_tests_left()
        if connections is not None:
            return words, connections
        if len(words) == before:
            raise RuntimeError("the tests do not start")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("host4")
    parser.add_argument("host6")
    parser.add_argument("package", choices=["uvloop", "pyvma"])
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--once", action="append", default=[], metavar="TEST")
    parser.add_argument("--without", action="append", default=[], metavar="TEST")
    parser.add_argument("--limit", type=float, default=40.0, metavar="SECONDS", help="of a test")
    given = parser.parse_args()
    isolate(given.host4, given.host6)
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("PR_SET_CHILD_SUBREAPER")
    words, connections = run_in_children(given, lambda name: name not in given.without)
    failed = [name for name, word in words.items() if not word.startswith(("ok", "skipped", "expected")) and name not in given.once]
    again, more = run_in_children(given, failed.__contains__)
    print("\n" + json.dumps({"outcomes": {**words, **again}, "connections": connections + more}), flush=True)


if __name__ == "__main__":
    main()
