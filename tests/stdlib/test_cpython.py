"""Classes of CPython's test_socket over AF_XDP, the kernel as their peer; and all of ours on addresses of the kernel's."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from netns import usable
from veth import ENGINE, KERNEL, namespaces

CASES = Path(__file__).with_name("cases.py")
LIMIT_S = 280.0
LOOPBACK = ("127.0.0.1", "::1")
CLASSES = [
    "BasicUDPTest",
    "SendmsgUDPTest",
    "RecvmsgUDPTest",
    "RecvmsgIntoUDPTest",
    "SendmsgUDP6Test",
    "RecvmsgUDP6Test",
    "RecvmsgIntoUDP6Test",
    "RecvmsgRFC3542AncillaryUDP6Test",
    "RecvmsgIntoRFC3542AncillaryUDP6Test",
    "InterruptedRecvTimeoutTest",
    "UDPTimeoutTest",
]
TCP_CLASSES = [
    "BasicTCPTest",
    "BasicTCPTest2",
    "NonBlockingTCPTests",
    "FileObjectClassTestCase",
    "UnbufferedFileObjectClassTestCase",
    "ContextManagersTest",
    "InheritanceTest",
    "TCPTimeoutTest",
    "SendmsgTCPTest",
    "RecvmsgTCPTest",
    "RecvmsgIntoTCPTest",
    "BufferIOTest",
]
# On addresses of the kernel's, whatever is not UDP is the standard library's own: its tests pass on our names and class too.
OTHERS = [
    *TCP_CLASSES,
    "GeneralModuleTests",
    "BasicSocketPairTest",
    "NetworkConnectionNoServer",
    "CreateServerTest",
    "NonblockConstantTest",
    "TestExceptions",
]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("test.test_socket") is None,
        reason="CPython's own tests are not installed: apt install libpython3-testsuite",
    ),
    pytest.mark.timeout(600),
]


def outcomes(
    environment: dict[str, str],
    module: str,
    hosts: tuple[str, str],
    classes: list[str],
    inside: tuple[str, ...] = (),
    peer: tuple[str, ...] = (),
) -> tuple[dict[str, str], dict[str, int]]:
    away = ["--peer", *peer, "--"] if peer else []
    done = subprocess.run(
        [*inside, sys.executable, str(CASES), module, *hosts, *away, *classes],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found["outcomes"], found["counters"]


def compared(
    sides: list[tuple[dict[str, str], str, tuple[str, str]]], classes: list[str], **where: tuple[str, ...]
) -> tuple[dict[str, str], dict[str, int]]:
    """The outcomes that both sides (environment, module, hosts) have, and the counters of the second. Both run at once: most of what
    they do is wait."""
    with ThreadPoolExecutor() as pool:
        (expected, _), (got, counters) = pool.map(lambda side: outcomes(*side, classes, **where), sides)
    different = {name: (expected.get(name), got.get(name)) for name in expected.keys() | got.keys() if expected.get(name) != got.get(name)}
    assert not different
    assert {name.split(".")[0] for name in expected} == set(classes)
    return expected, counters


def test_everything_else_is_the_standard_librarys(clean_env: dict[str, str]) -> None:
    expected, _ = compared([(clean_env, "socket", LOOPBACK), (clean_env, "pyvma.socket", LOOPBACK)], OTHERS)
    assert list(expected.values()).count("ok") >= 150


@pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")
@pytest.mark.parametrize("peer", [True, False], ids=["peer in another namespace", "both ends on one address"])
def test_udp_classes_over_af_xdp(clean_env: dict[str, str], peer: bool) -> None:
    with namespaces() as (here, there):
        hosts, inside = (ENGINE[4], ENGINE[6]), ("ip", "netns", "exec", here.name)
        away = (there.name, KERNEL[4], KERNEL[6]) if peer else ()
        offloaded = {**clean_env, "PYVMA_INTERFACES": "xdp:device=v0"}
        expected, counters = compared([(clean_env, "socket", hosts), (offloaded, "pyvma.socket", hosts)], CLASSES, inside=inside, peer=away)
    passed = list(expected.values()).count("ok")
    assert passed >= 110
    # A destination of our own is the kernel's.
    assert counters["udp.rx_datagrams"] >= passed / 2 if peer else counters["udp.rx_datagrams"] == 0


@pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")
def test_tcp_classes_over_af_xdp(clean_env: dict[str, str]) -> None:
    with namespaces() as (here, there):
        hosts, inside, away = (ENGINE[4], ENGINE[6]), ("ip", "netns", "exec", here.name), (there.name, KERNEL[4], KERNEL[6])
        offloaded = {**clean_env, "PYVMA_INTERFACES": "xdp:device=v0"}
        expected, counters = compared(
            [(clean_env, "socket", hosts), (offloaded, "pyvma.socket", hosts)], TCP_CLASSES, inside=inside, peer=away
        )
    passed = list(expected.values()).count("ok")
    assert passed >= 90
    assert counters["tcp.opened_passive"] >= passed / 2, "the engine did not carry the traffic"
