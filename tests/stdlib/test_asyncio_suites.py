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
from cpython import MARKS, addresses, known_failures
from lab import LONG

SUITES = Path(__file__).with_name("asyncio_suites.py")
LIMIT_S = 280.0
pytestmark = MARKS
RUNS = {
    ("test_buffered_proto", "test_context", "test_runners"): (28, 1),
    ("test_sendfile",): (45, 40),
    ("test_sock_lowlevel",): (30, 20),
    ("test_streams",): (60, 10),
    ("test_base_events", "test_unix_events", "test_selector_events"): (275, 15),
}
"""By modules that one process runs: how many tests pass at least, and how many connections the engine accepts meanwhile."""
LONG_RUNS = {
    ("test_server",): (0, 0),
    ("test_sslproto",): (18, 5),
    ("test_events",): (185, 30),
    ("test_ssl",): (17, 8),
    ("test_subprocess",): (90, 0),
    ("test_tasks",): (900, 0),
    (
        "test_futures",
        "test_futures2",
        "test_locks",
        "test_pep492",
        "test_protocols",
        "test_queues",
        "test_taskgroups",
        "test_threads",
        "test_timeouts",
        "test_transports",
        "test_waitfor",
    ): (355, 0),
}
if LONG:
    RUNS |= LONG_RUNS


def outcomes(suites: tuple[str, ...], package: str) -> dict[str, Any]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYVMA_", "VMA_")) or name == "PYVMA_SOFTNIC_LIB"
    }
    environment["PYTHONSAFEPATH"] = "1"
    hosts = addresses()
    if package == "pyvma":
        environment["PYVMA_INTERFACES"] = f"softnic:fabric=pt{secrets.token_hex(4)},port=0,addr={hosts[0]}/24,addr={hosts[1]}/64"
    once = [f"--once={name}" for name in known_failures().get("test_asyncio", {})]
    without = [f"--without={name}" for name in known_failures("not_run.txt")["test_asyncio"]]
    done = subprocess.run(
        [sys.executable, str(SUITES), *hosts, package, *suites, *once, *without],
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


@pytest.mark.parametrize("suites", RUNS, ids=lambda suites: suites[0])
def test_asyncio(suites: tuple[str, ...]) -> None:
    with ThreadPoolExecutor(2) as pool:
        theirs, ours = (future.result() for future in [pool.submit(outcomes, suites, package) for package in ("uvloop", "pyvma")])
    known = known_failures().get("test_asyncio", {})
    worse = {
        test: (word, ours["outcomes"].get(test))
        for test, word in theirs["outcomes"].items()
        if word == "ok" and (ours["outcomes"].get(test) != "ok") != (test in known) and not known.get(test, "").startswith("at times")
    }
    assert not worse
    passing, connections = RUNS[suites]
    assert list(ours["outcomes"].values()).count("ok") >= passing
    assert ours["connections"] >= connections, "the engine did not carry the traffic"
