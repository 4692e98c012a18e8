"""Runs a whole suite of CPython's own tests and prints what became of each test, as JSON.

    python suites.py SUITE HOST4 HOST6 [--without CLASS] [--once TEST] [--patch] [MODULE...]

SUITE is a module of the `test` package. HOST4 takes the place of 127.0.0.1 in it, HOST6 that of ::1 where the suite asks for the
machine's address, and each MODULE of pyvma that of the standard library's module of the same name; with --patch, pyvma.patch() has the
standard library's modules use ours. Needs root: the process has a network namespace of its own, where both addresses are the kernel's,
too, so that the standard library's sockets find them, and `localhost` is HOST4.

A test that fails runs a second time, as `python -m test --rerun` has it: some lose races on a busy machine.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cases import Outcomes

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
LIMIT_S = 250
"""After that the stacks of all threads are printed; whoever waits for the process gives up soon."""
# An address that a test reads in a certificate is no place to go to.
LOOPBACK = re.compile(r"(?<!'IP Address', ')127\.0\.0\.1")
# What a suite has as later versions of it: until Python 3.11.9 a reset was an end of the stream to the standard library's ssl. One may come
# before the alert that explains it. And whoever leaves with session tickets unread resets: that must not stop the server of a test, which
# has more connections to come.
LATER = {
    "test_ssl": [
        (
            """ssl.SSLError,
                'alert unknown ca|EOF occurred'""",
            """OSError,
                'alert unknown ca|EOF occurred|Connection reset by peer|Broken pipe'""",
        ),
        (
            """                    # handles SSLError and socket errors
                    if self.server""",
            """                    if isinstance(e, ConnectionError):
                        self.close()
                        self.running = False
                        return
                    if self.server""",
        ),
    ],
}


def isolate(host4: str, host6: str) -> None:
    """For this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    for command in ("link set lo up", f"addr add {host4}/32 dev lo", f"addr add {host6}/128 dev lo nodad"):
        subprocess.run(["ip", *command.split()], check=True)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with tempfile.NamedTemporaryFile("w") as hosts:
        hosts.write(f"{host4} localhost\n")
        hosts.flush()
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        yield from tests_of(test) if isinstance(test, unittest.TestSuite) else [test]


def run(module: types.ModuleType, once: list[str]) -> dict[str, str]:
    """What became of each test. Those named fail as a rule: once is enough."""
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(outcomes)
    failed = [name for name, word in outcomes.words.items() if word.startswith(("failed", "error")) and name not in once]
    again = [test for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)) if test.id().split(".", 2)[2] in failed]
    unittest.TestSuite(again).run(outcomes)
    return outcomes.words


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite")
    parser.add_argument("host4")
    parser.add_argument("host6")
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--without", action="append", default=[], metavar="CLASS")
    parser.add_argument("--once", action="append", default=[], metavar="TEST")
    parser.add_argument("--patch", action="store_true")
    given = parser.parse_intermixed_args()
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    isolate(given.host4, given.host6)
    warnings.simplefilter("ignore")
    if given.patch:
        import pyvma

        pyvma.patch()
    from test.support import socket_helper

    socket_helper.HOST = socket_helper.HOSTv4 = given.host4
    socket_helper.HOSTv6 = given.host6
    socket_helper.bind_port.__defaults__ = (given.host4,)
    for name in given.modules:
        ours = importlib.import_module(f"pyvma.{name}")
        # Suites patch names of the standard module by import path, too: ours stay while they run.
        sys.modules[name] = ours
    socket_helper.socket = importlib.import_module("socket")
    spec = importlib.util.find_spec(f"test.{given.suite}")
    assert spec is not None
    assert spec.origin is not None
    module = types.ModuleType(f"test.{given.suite}")
    module.__file__, module.__package__ = spec.origin, spec.parent
    sys.modules[module.__name__] = module
    source = LOOPBACK.sub(given.host4, Path(spec.origin).read_text())
    for old, new in LATER.get(given.suite, []):
        source = source.replace(old, new)
    exec(compile(source, spec.origin, "exec"), vars(module))
    for name in given.without:
        delattr(module, name)
    found = {"outcomes": run(module, given.once), "counters": {}}
    if given.patch or given.modules:
        import pyvma

        found["counters"] = pyvma.counters()
        pyvma.stop()
    print("\n" + json.dumps(found), flush=True)
    # A thread that a failed test has left must not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
