"""Whole suites of CPython's own tests: the same results with our modules over the software NIC as with the standard ones.

On the same address, which on one side is the engine's. Ours take the place of the standard modules in `sys.modules`, and once more by
pyvma.patch(). What is known to fail is in known_failures.txt.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cpython import MARKS, addresses, known_failures

SUITES = Path(__file__).with_name("suites.py")
LIMIT_S = 280.0
MODULES = ["socket", "select", "selectors"]
TLS = [*MODULES, "ssl"]
PATCH = ["--patch"]
AT_ONCE = 2

pytestmark = MARKS


@dataclass(frozen=True)
class Suite:
    """How many tests pass at least, and how many connections the engine accepts meanwhile: most suites make one a test."""

    name: str
    passing: int
    connections: int
    without: tuple[str, ...] = ()


# Connecting to a VSOCK address hangs on some machines, with the standard modules too; no such socket is ours.
SOCKET = Suite("test_socket", 600, 180, ("ThreadedVSOCKSocketStreamTest",))
SELECTORS = Suite("test_selectors", 70, 0)
EPOLL = Suite("test_epoll", 10, 4)
SSL = Suite("test_ssl", 160, 110)
RUNS = [
    (SSL, TLS),
    (SSL, PATCH),
    *((suite, MODULES) for suite in (SOCKET, EPOLL, SELECTORS)),
    *(
        (suite, TLS)
        for suite in (
            Suite("test_ftplib", 90, 180),
            Suite("test_poplib", 65, 65),
            Suite("test_imaplib", 90, 90),
            Suite("test_urllib2_localnet", 20, 30),
        )
    ),
    *(
        (suite, PATCH)
        for suite in (
            SOCKET,
            Suite("test_socketserver", 25, 20),
            Suite("test_select", 6, 0),
            Suite("test_poll", 7, 0),
            EPOLL,
            SELECTORS,
            Suite("test_httpservers", 55, 50),
            Suite("test_httplib", 110, 40),
            Suite("test_smtplib", 80, 50),
            Suite("test_xmlrpc", 90, 2),
        )
    ),
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


Runs = dict[tuple[str, tuple[str, ...]], Future[dict[str, Any]]]


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest) -> Iterator[Runs]:
    """All that the tests of this session compare, some at a time: most of what they do is wait. Each side of a suite runs once."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYVMA_", "VMA_")) or name == "PYVMA_SOFTNIC_LIB"}
    clean["PYTHONSAFEPATH"] = "1"
    wanted = [item.callspec.params for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    found: Runs = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for suite, how in [(params["suite"], tuple(params["how"])) for params in wanted if "suite" in params]:
            options = [f"--without={name}" for name in suite.without] + [f"--once={name}" for name in known_failures().get(suite.name, {})]
            for side in ((), how):
                if (suite.name, side) not in found:
                    hosts = addresses()
                    interface = f"softnic:fabric=pt{secrets.token_hex(4)},port=0,addr={hosts[0]}/24,addr={hosts[1]}/64"
                    environment = {**clean, "PYVMA_INTERFACES": interface} if side else clean
                    found[suite.name, side] = pool.submit(outcomes, environment, suite.name, *hosts, *options, *side)
        try:
            yield found
        finally:
            for future in found.values():
                future.cancel()


def normal(words: dict[str, str]) -> dict[str, str]:
    """Outcomes without what differs from run to run: addresses, and words of tests that fail on both sides."""
    return {test: word.partition(":")[0] for test, word in words.items()}


@pytest.mark.parametrize(("suite", "how"), RUNS, ids=lambda value: value.name if isinstance(value, Suite) else value[0].strip("-"))
def test_suites_give_the_same_results(started: Runs, suite: Suite, how: list[str]) -> None:
    expected, got = started[suite.name, ()].result(), started[suite.name, tuple(how)].result()
    known = known_failures().get(suite.name, {})
    wanted, found = normal(expected["outcomes"]), normal(got["outcomes"])
    different = {
        test: (expected["outcomes"].get(test), got["outcomes"].get(test))
        for test in wanted.keys() | found.keys()
        if (wanted.get(test) != found.get(test)) != (test in known) and not known.get(test, "").startswith("at times")
    }
    assert not different
    assert list(found.values()).count("ok") >= suite.passing
    assert got["counters"]["tcp.opened_passive"] >= suite.connections, "the engine did not carry the traffic"


def test_known_failures_are_few_and_have_reasons() -> None:
    known = known_failures()
    assert sum(len(tests) for tests in known.values()) < 10
