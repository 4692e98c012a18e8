"""Fixtures of several modules: a veth pair, and what programs need that run in a laboratory of python_programs, the module's `lab`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from netns import Namespace
from python_programs import Net, certificate
from veth import namespaces


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    """The engine's side of a veth pair, and the kernel's."""
    with namespaces() as made:
        yield made


@pytest.fixture(scope="module")
def trust(lab: Net) -> Path:
    """A certificate of both sides."""
    return certificate(lab.folder, [*lab.our_host.values(), *lab.their_host.values()])


@pytest.fixture
def ended(lab: Net) -> Iterator[None]:
    """Whatever a test started has ended, for one engine at a time has the device."""
    yield
    lab.end_all()
