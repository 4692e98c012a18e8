"""Time stamps over a wire: the engine beside a kernel peer, read by the same code, and the software NIC's own by every conversion."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import veth
from actor import Actor
from exchange import ACCEPT, CONNECT, LISTEN, Ends
from lab import softnic_reason
from netns import usable
from stamps import (
    OPT_ID,
    OPT_PKTINFO,
    OPT_TSONLY,
    OPT_TX_SWHW,
    RAW_HARDWARE,
    RX_HARDWARE,
    RX_SOFTWARE,
    SOFTWARE,
    TX_ACK,
    TX_HARDWARE,
    TX_SCHED,
    TX_SOFTWARE,
    Told,
)
from uplink import uplink

pytestmark = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there is a software NIC")

ENGINE = {4: "10.83.0.1", 6: "fd83::1"}
KERNEL = {4: "10.83.0.2", 6: "fd83::2"}
SUPPORT = str(Path(__file__).resolve().parents[1] / "support")
# Clocks are read in different ways, and conversion has begun only just: what is compared may be off by so much.
SLACK_NS = 50_000_000

PREPARE = f"import sys\nsys.path.append({SUPPORT!r})\nfrom stamps import *"
SEND = """
s.setsockopt(socket.SOL_SOCKET, 37, flags)
times = []
for number in range(count):
    times.append(time.time_ns())
    s.send(bytes(10 + number))
    time.sleep(0.01)
"""
# Until as many entries have come as are wanted, and nothing more does.
ENTRIES = """
found, end = [], time.monotonic() + 20
while len(once(found)) < count and time.monotonic() < end:
    found += drain(s)
    time.sleep(0.01)
time.sleep(0.05)
once(found + drain(s))
"""
# The first without a stamp the kernel gives to whoever has just asked for them.
RECEIVE = """
got = []
for number in range(count):
    got.append((told(s.recvmsg(2000, 1000)), time.time_ns()))
got
"""


@pytest.fixture(scope="module", params=["softnic", "veth"])
def net(request: pytest.FixtureRequest) -> Iterator[Ends]:
    if not usable():
        pytest.skip("needs root and a working `ip` for a network namespace with a TAP device")
    if request.param == "veth":
        with veth.pair() as ends:
            ends.engine(PREPARE)
            ends.kernel(PREPARE)
            yield ends
        return
    with uplink(KERNEL) as (ns, fabric):
        interface = f"softnic:fabric={fabric},port=0,addr={ENGINE[4]}/24,addr={ENGINE[6]}/64,name=sn0"
        with Actor([interface]) as engine, Actor(netns=ns.name) as kernel:
            engine(PREPARE)
            kernel(PREPARE)
            yield Ends(engine, kernel, ENGINE, KERNEL, ns)


def shape(found: list[Told]) -> list[tuple[Any, ...]]:
    """All that does not depend on the time of the day, nor on the interface's number."""
    return [(one.order, one.kind, one.number, len(one.data), one.flags, one.address, one.offender != "") for one in found]


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("extra", [OPT_ID, OPT_ID | OPT_TSONLY])
def test_datagrams_alike(net: Ends, family: int, extra: int) -> None:
    engine, kernel = net.sockets(family)
    found = {}
    for name, sender, to in (("engine", net.engine, kernel), ("kernel", net.kernel, engine)):
        sender("s.connect(to)", to=to)
        sender(SEND, flags=SOFTWARE | TX_SOFTWARE | TX_SCHED | extra, count=4)
        found[name] = sender(ENTRIES, count=8)
        times = sender("times")
        for i, one in enumerate(found[name]):
            assert times[i // 2] - SLACK_NS <= one.software <= times[i // 2] + 20_000_000_000
    assert shape(found["engine"]) == shape(found["kernel"])
    assert [(one.kind, one.number) for one in found["engine"]] == [(kind, n) for n in range(4) for kind in ("SCHED", "SND")]


@pytest.mark.parametrize("family", [4, 6])
def test_streams_alike(net: Ends, family: int) -> None:
    found = {}
    for name, sender, receiver in (("engine", net.engine, net.kernel), ("kernel", net.kernel, net.engine)):
        net.connect(family, name == "kernel")
        sender("s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
        sender(SEND, flags=SOFTWARE | TX_SOFTWARE | TX_SCHED | TX_ACK | OPT_ID, count=3)
        assert len(receiver("s.recv(33, socket.MSG_WAITALL)", limit_s=60)) == 33
        # An acknowledgement may come for several.
        found[name] = sorted(sender(ENTRIES, count=9), key=lambda one: (one.number, one.software))
    assert shape(found["engine"]) == shape(found["kernel"])
    assert [(one.kind, one.number) for one in found["engine"]] == [(kind, n) for n in (9, 20, 32) for kind in ("SCHED", "SND", "ACK")]


@pytest.mark.parametrize("family", [4, 6])
def test_received_alike(net: Ends, family: int) -> None:
    engine, kernel = net.sockets(family)
    for sender, receiver, to in ((net.engine, net.kernel, kernel), (net.kernel, net.engine, engine)):
        receiver("s.setsockopt(socket.SOL_SOCKET, 35, 1)\ns.setsockopt(socket.SOL_SOCKET, 37, flags)", flags=SOFTWARE | RX_SOFTWARE)
        sender("time.sleep(0.05); s.connect(to)", to=to)
        sender(SEND, flags=0, count=4)
        got = receiver(RECEIVE, count=4)
        for sent, (one, after) in zip(sender("times"), got, strict=True):
            assert one.order[0] == (1, 35, 16)
            assert sent - SLACK_NS <= one.plain <= after + SLACK_NS
        assert got[-1][0].order == [(1, 35, 16), (1, 37, 48)]
        assert got[-1][0].plain == got[-1][0].software


# ---- the device's own ----


def engines(mode: str) -> tuple[Actor, Actor]:
    fabric = f"ts{secrets.token_hex(5)}"
    env = {"PYVMA_HW_TS_CONVERSION": mode}
    made = [Actor([f"softnic:fabric={fabric},port={n},addr=10.84.0.{n + 1}/24,name=sn{n}"], env=env) for n in range(2)]
    return made[0], made[1]


@pytest.fixture(scope="module", params=["sync", "ptp", "rtc", "raw", "off"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[str, Actor, Actor]]:
    first, second = engines(request.param)
    with first, second:
        first(PREPARE)
        second(PREPARE)
        yield request.param, first, second


DATAGRAMS = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))\ns.getsockname()"


def is_day(mode: str) -> bool:
    return mode in ("sync", "ptp", "rtc")


def within(mode: str, before: int, stamp: int | None, after: int) -> None:
    """The device's stamp; by `raw` it says nothing of the time of the day."""
    assert stamp
    if is_day(mode):
        assert before - SLACK_NS <= stamp <= after + SLACK_NS, (mode, before, stamp, after)


def test_device_stamps_of_datagrams(pair: tuple[str, Actor, Actor]) -> None:
    mode, receiver, sender = pair
    to = receiver(DATAGRAMS, host="10.84.0.1")
    sender(DATAGRAMS, host="10.84.0.2")
    receiver("s.setsockopt(socket.SOL_SOCKET, 37, flags)", flags=SOFTWARE | RX_SOFTWARE | RAW_HARDWARE | RX_HARDWARE | OPT_PKTINFO)
    sender("s.connect(to); s.setsockopt(socket.SOL_SOCKET, 37, flags)", to=to, flags=TX_HARDWARE | RAW_HARDWARE)
    sender(SEND, flags=TX_HARDWARE | TX_SOFTWARE | SOFTWARE | RAW_HARDWARE | OPT_ID | OPT_TX_SWHW, count=5)
    got = receiver(RECEIVE, count=5)
    found, times = sender(ENTRIES, count=5 if mode == "off" else 10), sender("times")
    raws = [one.raw for one in found if one.raw]
    if mode == "off":
        assert [one.raw for one, _ in got] == [None] * 5
        assert [(one.kind, one.number, one.raw) for one in found] == [("SND", n, None) for n in range(5)]
        assert sender("str(s.timestamps)") == "software"
        return
    assert sender("str(s.timestamps)").startswith(f"hardware, {mode}")
    # One stamp a message, and none of the order of two clocks' words.
    assert sorted((one.number, one.raw is None, one.software is None) for one in found) == [
        (n, *which) for n in range(5) for which in ((False, True), (True, False))
    ]
    for one in found:
        assert len(one.data) == 42 + 10 + one.number
        if one.raw:
            within(mode, times[one.number], one.raw, got[one.number][1])
    assert raws == sorted(raws)
    for sent, (one, after) in zip(times, got, strict=True):
        assert one.software and sent - SLACK_NS <= one.software <= after + SLACK_NS
        within(mode, sent, one.raw, after)
        assert one.order == [(1, 58, 16), (1, 37, 48)]
        number, length = struct.unpack("@II8x", one.others[1, 58])
        assert number > 0
        assert length == 42 + len(one.data)
    arrived = [one.raw for one, _ in got]
    assert arrived == sorted(arrived)


def test_only_the_device_stamps_what_it_can(pair: tuple[str, Actor, Actor]) -> None:
    """Asked for both, without OPT_TX_SWHW, Linux gives the device's."""
    mode, receiver, sender = pair
    to = receiver(DATAGRAMS, host="10.84.0.1")
    sender(DATAGRAMS, host="10.84.0.2")
    sender("s.connect(to)", to=to)
    sender(SEND, flags=TX_HARDWARE | TX_SOFTWARE | TX_SCHED | SOFTWARE | RAW_HARDWARE | OPT_ID | OPT_TSONLY, count=3)
    found = sender(ENTRIES, count=6)
    by_device = mode != "off"
    assert sorted((one.number, one.kind, one.raw is not None, one.software is not None) for one in found) == [
        (n, *which) for n in range(3) for which in (("SCHED", False, True), ("SND", by_device, not by_device))
    ]
    assert receiver(RECEIVE, count=3)[0][0].order == []


def test_device_stamps_of_streams(pair: tuple[str, Actor, Actor]) -> None:
    mode, server, client = pair
    port = server(LISTEN, family=4, host="10.84.0.1")
    client(CONNECT, family=4, host="10.84.0.1", port=port)
    server(ACCEPT)
    server("s.setsockopt(socket.SOL_SOCKET, 37, flags)", flags=SOFTWARE | RX_SOFTWARE | RAW_HARDWARE | RX_HARDWARE)
    client("s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
    client("s.setsockopt(socket.SOL_SOCKET, 37, flags)", flags=TX_HARDWARE | RAW_HARDWARE)
    client(SEND, flags=TX_HARDWARE | TX_ACK | SOFTWARE | RAW_HARDWARE | OPT_ID, count=3)
    got = server("got = []\nwhile sum(len(one.data) for one, _ in got) < 33: got.append((told(s.recvmsg(11, 500)), time.time_ns()))\ngot")
    found, times = client(ENTRIES, count=3 if mode == "off" else 6), client("times")
    assert sorted((one.number, one.kind) for one in found) == [
        (n, kind) for n in (9, 20, 32) for kind in (["ACK"] if mode == "off" else ["ACK", "SND"])
    ]
    for one in found:
        assert (one.raw is None) == (one.kind == "ACK")
    for one, after in got:
        assert one.software
        if mode == "off":
            assert one.raw is None
        else:
            within(mode, times[0], one.raw, after)


def test_many_stamps_of_the_device(pair: tuple[str, Actor, Actor]) -> None:
    """As many as are in flight at once, waited for by poll; and a socket that is closed before its stamps come."""
    mode, receiver, sender = pair
    if mode == "off":
        return
    to = receiver(DATAGRAMS, host="10.84.0.1")
    sender(DATAGRAMS, host="10.84.0.2")
    found = sender(
        """
s.connect(to)
s.setsockopt(socket.SOL_SOCKET, 37, flags)
for _ in range(20):
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    other.setsockopt(socket.SOL_SOCKET, 37, flags)
    other.sendto(b"gone", to)
    other.close()
for _ in range(200):
    s.send(b"x")
import pyvma.select
poller, found, end = pyvma.select.poll(), [], time.monotonic() + 20
poller.register(s, 0)
while len(found) < 200 and time.monotonic() < end:
    assert poller.poll(20000)
    found += drain(s)
found
""",
        to=to,
        flags=TX_HARDWARE | RAW_HARDWARE | OPT_ID | OPT_TSONLY,
    )
    assert [one.number for one in found] == list(range(200))
    assert all(one.raw for one in found)
