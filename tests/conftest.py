"""One engine for the whole run, with two interfaces on two ports of a software NIC of its own, and no trace of it afterwards."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import FABRIC, INTERFACES, softnic_reason

# Before anything imports pyvma: settings of whoever runs the tests must not matter.
# But for the library that tools/run_asan_pytest.py puts in place.
KEPT = "PYVMA_SOFTNIC_LIB"
for name in [name for name in os.environ if name.startswith(("PYVMA_", "VMA_")) and name != KEPT]:
    del os.environ[name]


@pytest.fixture(scope="session")
def engine() -> None:
    """The engine of this process, with INTERFACES."""
    reason = softnic_reason()
    if reason:
        pytest.skip(reason)
    import pyvma

    pyvma.start()


def pytest_configure(config: pytest.Config) -> None:
    if not softnic_reason():
        import pyvma

        pyvma.configure(interfaces=INTERFACES)


@pytest.fixture(autouse=True, scope="session")
def nothing_left() -> Iterator[None]:
    """After the last test the fabric's file is gone."""
    yield
    if "pyvma._native" in sys.modules:
        import pyvma

        pyvma.stop()
    left = [path.name for path in Path("/dev/shm").iterdir() if FABRIC in path.name]
    assert not left, f"left in /dev/shm: {left}"


@pytest.fixture
def fabric() -> Iterator[str]:
    """The name of a fabric for other processes; it must be gone when they are."""
    name = f"pt{secrets.token_hex(4)}"
    yield name
    left = [path.name for path in Path("/dev/shm").iterdir() if name in path.name]
    assert not left, f"left in /dev/shm: {left}"


@pytest.fixture
def clean_env() -> dict[str, str]:
    """An environment for child processes without settings of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYVMA_", "VMA_")) or name == KEPT}
    return {**kept, "PYTHONSAFEPATH": "1"}
