"""Runs a module of CPython's own test_asyncio with loops of another package and prints what became of each test, as JSON.

    python asyncio_suites.py SUITE HOST4 HOST6 (uvloop|pyvma) [--once TEST]

SUITE is a module of test.test_asyncio. Loops that its tests ask for are the package's, whether by the policy, by new_event_loop() or by
naming SelectorEventLoop; with pyvma, sockets are ours, too, by pyvma.patch(). HOST4 takes the place of 127.0.0.1 as in suites.py, which
see for the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import importlib
import importlib.machinery
import json
import os
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from suites import LIMIT_S, LOOPBACK, isolate, run

HANG = {"test_sock_lowlevel": ["BaseSockTestsMixin.test_sock_client_racing"]}
"""On uvloop's loop itself, which waits for ever for a listener that is full."""


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite")
    parser.add_argument("host4")
    parser.add_argument("host6")
    parser.add_argument("package", choices=["uvloop", "pyvma"])
    parser.add_argument("--once", action="append", default=[], metavar="TEST")
    given = parser.parse_args()
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    isolate(given.host4, given.host6)
    warnings.simplefilter("ignore")
    Loader.host4 = given.host4
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    take_over(given.package)
    from test.support import socket_helper

    socket_helper.HOST = socket_helper.HOSTv4 = given.host4
    socket_helper.HOSTv6 = given.host6
    socket_helper.socket = importlib.import_module("socket")
    module = importlib.import_module(f"test.test_asyncio.{given.suite}")
    for name in HANG.get(given.suite, []):
        kind, test = name.split(".")
        delattr(getattr(module, kind), test)
    found: dict[str, Any] = {"outcomes": run(module, given.once), "counters": {}}
    if given.package == "pyvma":
        import pyvma

        found["counters"] = pyvma.counters()
        pyvma.stop()
    print("\n" + json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
