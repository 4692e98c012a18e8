"""The two sides of the UDP contract: the same cases on the standard library, on pyvma over the kernel, and on pyvma over a ring."""

from __future__ import annotations

import importlib
import socket as std
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lab import HOSTS4, HOSTS6, softnic_reason
from sides import Net

NETS = ("stdlib", "loopback", "softnic")


@pytest.fixture(params=[f"{name}-{version}" for name in NETS for version in ("ipv4", "ipv6")])
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    name, version = request.param.split("-")
    family = std.AF_INET if version == "ipv4" else std.AF_INET6
    if name == "softnic":
        reason = softnic_reason()
        if reason:
            pytest.skip(reason)
        hosts = HOSTS4 if version == "ipv4" else HOSTS6
    else:
        hosts = ("127.0.0.1", "127.0.0.1") if version == "ipv4" else ("::1", "::1")
    made = Net(name, importlib.import_module("socket" if name == "stdlib" else "pyvma.socket"), family, hosts)
    yield made
    for opened in made.opened:
        opened.close()


@pytest.fixture
def errno_of() -> Callable[..., int]:
    """The errno of the OSError that a call raises."""

    def run(call: Callable[..., Any], *args: Any) -> int:
        with pytest.raises(OSError) as caught:
            call(*args)
        assert caught.value.errno is not None
        return caught.value.errno

    return run
