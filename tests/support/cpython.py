"""What the tests that run CPython's own suites (tests/stdlib) have in common."""

from __future__ import annotations

import importlib.util
import re
import secrets
from pathlib import Path

import pytest
from lab import softnic_reason
from netns import usable

FOLDER = Path(__file__).parents[1] / "stdlib"

MARKS = [
    pytest.mark.skipif(
        importlib.util.find_spec("test.test_socket") is None,
        reason="CPython's own tests are not installed: apt install libpython3-testsuite",
    ),
    pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there"),
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(900),
]


def known_failures(name: str = "known_failures.txt") -> dict[str, dict[str, str]]:
    """By suite and test, the reason."""
    found: dict[str, dict[str, str]] = {}
    for line in (FOLDER / name).read_text().splitlines():
        if not line.startswith("#"):
            suite, test, reason = re.fullmatch(r"(\S+) (\S+): (.+)", line).groups()  # type: ignore[union-attr]
            found.setdefault(suite, {})[test] = reason
    return found


def addresses() -> tuple[str, str]:
    net = secrets.randbelow(200) + 20
    return f"10.{net}.5.1", f"fd00:5:{net:x}::1"
