"""The two sides of the UDP contract: the same cases on the standard library, on pyvma over the kernel, and on pyvma over a ring."""

from __future__ import annotations

import importlib
import socket as std
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from certificates import Certificates
from lab import HOSTS4, HOSTS6, softnic_reason
from sides import Net
from tls_sides import Tls

NETS = [f"{name}-{version}" for name in ("stdlib", "loopback", "softnic") for version in ("ipv4", "ipv6")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every case runs on every net, but for those that its marks `without` name, whole ("stdlib-ipv4") or in part ("ipv4")."""
    if "net" in metafunc.fixturenames:
        without = [part for mark in metafunc.definition.iter_markers("without") for part in mark.args]
        metafunc.parametrize("net", [name for name in NETS if not any(part in name for part in without)], indirect=True)


@pytest.fixture
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


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1", "::1", *HOSTS4, *HOSTS6])


@pytest.fixture
def tls(net: Net, certificates: Certificates) -> Tls:
    return Tls(net, certificates)
