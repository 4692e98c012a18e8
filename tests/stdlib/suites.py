"""Runs a whole suite of CPython's own tests and prints what became of each test, as JSON.

    python suites.py SUITE HOST [MODULE...]

SUITE is a module of the `test` package. HOST takes the place of 127.0.0.1 in it, and each MODULE of pyvma that of the standard
library's module of the same name. With root, `localhost` is HOST, too.

A test that fails runs a second time, as `python -m test --rerun` has it: some lose races on a busy machine.
"""

from __future__ import annotations

import ctypes
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

CLONE_NEWNS = 0x00020000
# An address that a test reads in a certificate is no place to go to.
LOOPBACK = re.compile(r"(?<!'IP Address', ')127\.0\.0\.1")


def name_localhost(host: str) -> None:
    """For this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with tempfile.NamedTemporaryFile("w") as hosts:
        hosts.write(f"{host} localhost\n")
        hosts.flush()
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        yield from tests_of(test) if isinstance(test, unittest.TestSuite) else [test]


def run(module: types.ModuleType) -> dict[str, str]:
    """What became of each test."""
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(outcomes)
    failed = [name for name, word in outcomes.words.items() if word.startswith(("failed", "error"))]
    again = [test for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)) if test.id().split(".", 2)[2] in failed]
    unittest.TestSuite(again).run(outcomes)
    return outcomes.words


def main() -> None:
    suite, host, *modules = sys.argv[1:]
    warnings.simplefilter("ignore")
    from test.support import socket_helper

    socket_helper.HOST = socket_helper.HOSTv4 = host
    socket_helper.bind_port.__defaults__ = (host,)
    for name in modules:
        ours = importlib.import_module(f"pyvma.{name}")
        # Suites patch names of the standard module by import path, too: ours stay while they run.
        sys.modules[name] = ours
    socket_helper.socket = importlib.import_module("socket")
    spec = importlib.util.find_spec(f"test.{suite}")
    assert spec is not None
    assert spec.origin is not None
    module = types.ModuleType(f"test.{suite}")
    module.__file__, module.__package__ = spec.origin, "test"
    sys.modules[module.__name__] = module
    source = LOOPBACK.sub(host, Path(spec.origin).read_text())
    exec(compile(source, spec.origin, "exec"), vars(module))
    if modules and os.geteuid() == 0:
        name_localhost(host)
    found = {"outcomes": run(module), "counters": {}}
    if modules:
        import pyvma

        found["counters"] = pyvma.counters()
        pyvma.stop()
    print("\n" + json.dumps(found), flush=True)
    # A thread that a failed test has left must not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
