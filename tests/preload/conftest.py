"""Namespaces for what is run both ways (two_ways.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from netns import Namespace
from two_ways import HOSTS


@pytest.fixture(scope="module")
def ns() -> Iterator[Namespace]:
    """The addresses are the kernel's there, on the loopback interface."""
    with Namespace() as made:
        made.ip("link", "set", "lo", "up")
        for host in HOSTS:
            made.ip("addr", "add", host, "dev", "lo", *(("nodad",) if ":" in host else ()))
        yield made


@pytest.fixture(scope="module")
def empty() -> Iterator[Namespace]:
    with Namespace() as made:
        made.ip("link", "set", "lo", "up")
        yield made
