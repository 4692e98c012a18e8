"""Whole suites of CPython's own tests: the same results with our modules over the software NIC as with the standard ones."""

from __future__ import annotations

import importlib.util
import json
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lab import softnic_reason

SUITES = Path(__file__).with_name("suites.py")
LIMIT_S = 280.0
MODULES = ["socket", "select", "selectors"]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("test.test_socket") is None,
        reason="CPython's own tests are not installed: apt install libpython3-testsuite",
    ),
    pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there"),
    pytest.mark.timeout(600),
]


def outcomes(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SUITES), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_waiting_is_the_standard_librarys(clean_env: dict[str, str], fabric: str) -> None:
    """test_epoll makes TCP connections, which must be the engine's; the others wait for pipes and local sockets."""
    suites = {"test_select": 5, "test_poll": 6, "test_epoll": 9, "test_selectors": 60}
    net = secrets.randbelow(200) + 20
    host = f"10.{net}.5.1"
    with ThreadPoolExecutor() as pool:
        runs = {}
        for i, suite in enumerate(suites):
            ours = {**clean_env, "PYVMA_INTERFACES": f"softnic:fabric={fabric}{i},port=0,addr={host}/24"}
            runs[suite] = (pool.submit(outcomes, clean_env, suite, "127.0.0.1"), pool.submit(outcomes, ours, suite, host, *MODULES))
        results = {suite: (expected.result(), got.result()) for suite, (expected, got) in runs.items()}
    for suite, (expected, got) in results.items():
        assert got["outcomes"] == expected["outcomes"], suite
        assert list(got["outcomes"].values()).count("ok") >= suites[suite]
    assert results["test_epoll"][1]["counters"]["tcp.opened_passive"] >= 4, "the engine did not carry the traffic"
