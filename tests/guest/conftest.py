"""Tests of what only a virtual machine of ours may do to its kernel: `tools/guest.py` runs them, by tests/interop/test_guest.py."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

collect_ignore_glob = [] if Path("/.guest").exists() else ["test_*.py"]


@pytest.fixture(autouse=True)
def kernel_is_well() -> Iterator[None]:
    """The kernel has complained of nothing."""
    yield
    said = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in said.splitlines() if "BUG:" in line or "Oops" in line or "WARNING:" in line], said
