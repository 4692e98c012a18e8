"""Runs a whole suite of CPython's own tests and prints what became of each test, as JSON.

    python suites.py SUITE HOST [MODULE...]

SUITE is a module of the `test` package. HOST takes the place of 127.0.0.1 in it, and each MODULE of pyvma that of the standard
library's module of the same name.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cases import Outcomes


def main() -> int:
    suite, host, *modules = sys.argv[1:]
    warnings.simplefilter("ignore")
    from test.support import socket_helper

    socket_helper.HOST = socket_helper.HOSTv4 = host
    socket_helper.bind_port.__defaults__ = (host,)
    for name in modules:
        ours = importlib.import_module(f"pyvma.{name}")
        # Suites patch names of the standard module by import path, too: ours stay while they run.
        sys.modules[name] = ours
    spec = importlib.util.find_spec(f"test.{suite}")
    assert spec is not None
    assert spec.origin is not None
    module = types.ModuleType(f"test.{suite}")
    module.__file__, module.__package__ = spec.origin, "test"
    sys.modules[module.__name__] = module
    source = Path(spec.origin).read_text().replace("127.0.0.1", host)
    exec(compile(source, spec.origin, "exec"), vars(module))
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(outcomes)
    counters: dict[str, int] = {}
    if modules:
        import pyvma

        counters = pyvma.counters()
    print("\n" + json.dumps({"outcomes": outcomes.words, "counters": counters}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
