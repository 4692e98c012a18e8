"""CPython's own test_asyncio with our loops over the software NIC: every test that passes on uvloop's over the kernel passes on ours."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from test_suites import addresses, known_failures
from test_suites import pytestmark as pytestmark

SUITES = Path(__file__).with_name("asyncio_suites.py")
LIMIT_S = 280.0
"""By module: how many tests pass at least, and how many connections the engine accepts meanwhile."""
RUNS = {
    "test_buffered_proto": (1, 1),
    "test_context": (1, 0),
    "test_runners": (26, 0),
    "test_sendfile": (45, 40),
    "test_sock_lowlevel": (30, 20),
    "test_streams": (60, 10),
}


def outcomes(suite: str, package: str) -> dict[str, Any]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYVMA_", "VMA_")) or name == "PYVMA_SOFTNIC_LIB"
    }
    environment["PYTHONSAFEPATH"] = "1"
    hosts = addresses()
    if package == "pyvma":
        environment["PYVMA_INTERFACES"] = f"softnic:fabric=pt{secrets.token_hex(4)},port=0,addr={hosts[0]}/24,addr={hosts[1]}/64"
    once = [f"--once={name}" for name in known_failures().get(suite, {})]
    done = subprocess.run(
        [sys.executable, str(SUITES), suite, *hosts, package, *once],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.parametrize("suite", RUNS)
def test_asyncio(suite: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        theirs, ours = (future.result() for future in [pool.submit(outcomes, suite, package) for package in ("uvloop", "pyvma")])
    known = known_failures().get(suite, {})
    worse = {
        test: (word, ours["outcomes"].get(test))
        for test, word in theirs["outcomes"].items()
        if word == "ok" and (ours["outcomes"].get(test) != "ok") != (test in known)
    }
    assert not worse
    passing, connections = RUNS[suite]
    assert list(ours["outcomes"].values()).count("ok") >= passing
    assert ours["counters"]["tcp.opened_passive"] >= connections, "the engine did not carry the traffic"
