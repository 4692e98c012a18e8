"""Kernel programs as peers of the engine on an interface that the kernel owns: AF_XDP over a veth pair, two namespaces.

What is steered goes by the ring; fragments, groups with local listeners, errors and everything of other sockets stay with the kernel.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from actor import Actor
from exchange import ASK, ASK_CONNECTED, DIRECTIONS, ECHO, JOIN4, JOIN6, JOIN_SOURCE, SEND4, SEND6, numbered, wait_for
from netns import Namespace, usable
from veth import ENGINE, KERNEL, Veth, pair

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

SIZES = [0, 1, 17, 18, 19, 1000, 1471, 1472, 1473, 1474, 2000, 8972, 20000, 65507]


@pytest.fixture(scope="module", params=["native", "generic"])
def net(request: pytest.FixtureRequest) -> Iterator[Veth]:
    with pair(request.param) as veth:
        yield veth


def counted(actor: Actor) -> dict[str, int]:
    """The counters of socket `s`."""
    stats: dict[str, int] = actor("s.stats")
    return stats


# ---- unicast --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [4, 6])
def test_engine_is_the_server(net: Veth, family: int) -> None:
    engine, _ = net.sockets(family)
    net.engine.start(ECHO, sizes=SIZES)
    net.kernel(ASK, sizes=SIZES, to=engine)
    net.engine.finish()
    assert net.engine("s.offload.state") == "offloaded" and net.engine("s.offload.text") == "xdp:v0"


@pytest.mark.parametrize("family", [4, 6])
def test_engine_is_the_client(net: Veth, family: int) -> None:
    _, kernel = net.sockets(family)
    net.kernel.start(ECHO, sizes=SIZES)
    net.engine(ASK_CONNECTED, sizes=SIZES, to=kernel)
    net.kernel.finish()
