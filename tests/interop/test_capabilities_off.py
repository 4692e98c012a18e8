"""An engine over the software NIC with each of the device's capabilities taken away, one by one: what its interface then tells, and that
datagrams, a stream, a rate, stamps and device memory go on without it, by their documented ways."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from actor import Actor
from lab import softnic_reason

pytestmark = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there is a software NIC")

HOST, PEER = "10.8.3.1", "10.8.3.2"
# What the sender asks of its device: all that there is.
WANTED = {"PYVMA_RX_QUEUES": "2", "PYVMA_RING_DEV_MEM_TX": "16384", "PYVMA_HW_TS_CONVERSION": "rtc"}
WITH_ALL: dict[str, Any] = {
    "mode": "extended",
    "csum": (("ipv4", "udp", "tcp"),) * 2,
    "inline": True,
    "tso": True,
    "queues": 2,
    "rules": True,
    "stamps": "realtime",
    "conversion": "rtc",
    "pacing": "device",
    "burst": True,
    "memory": 16384,
}
# What is different without one.
LACKING: dict[str, dict[str, Any]] = {
    "tso": {"tso": False},
    "dm": {"memory": 0},
    "pacing": {"pacing": "software", "burst": False},
    "pacing-burst": {"burst": False},
    "csum": {"csum": ((), ()), "tso": False},
    "timestamps": {"stamps": "none", "conversion": "off"},
    "wallclock": {"stamps": "raw", "conversion": "ptp"},
    "clock": {},
    "clock-info": {},
    "extended": {"mode": "legacy"},
    "cq-ex": {"stamps": "none", "conversion": "off"},
    "inline": {"inline": False},
    "vlan-strip": {},
    "rss": {"queues": 1},
}
SHOWN = """
i = __import__("pyvma.ring").ring.interfaces()[0]
{
    "mode": i.mode,
    "csum": (i.rx_csum, i.tx_csum),
    "inline": i.inline_size > 0,
    "tso": i.tso_max > 0,
    "queues": i.queues,
    "rules": bool(i.flow_kinds),
    "stamps": i.tstamp,
    "conversion": u.timestamps.mode,
    "pacing": paced.pacing.by,
    "burst": i.pacing_burst,
    "memory": i.device_memory.size,
}
"""


def known() -> set[str]:
    """The names of all capabilities, as the device itself tells them to who gives a wrong one."""
    with Actor([f"softnic:fabric=none,port=0,addr={HOST}/24"], env={"PYVMA_SOFTNIC_OFF": "?", "PYVMA_STRICT": "1"}) as engine:
        with pytest.raises(OSError, match="names separated by commas") as caught:
            engine("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind((host, 0))", host=HOST)
    found = re.search(r"names separated by commas, of (.*)", str(caught.value))
    assert found is not None
    return set(re.findall(r"[a-z-]+", found[1]))


def test_none_is_left_out() -> None:
    assert {*LACKING, "flow"} == known()


@pytest.fixture(scope="module")
def far() -> Iterator[tuple[Actor, str]]:
    fabric = f"co{secrets.token_hex(4)}"
    with Actor([f"softnic:fabric={fabric},port=1,addr={PEER}/24"]) as peer:
        peer("sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); sink.settimeout(30); sink.bind((host, 7000))", host=PEER)
        peer("listener = socket.create_server((host, 7001)); listener.settimeout(30)", host=PEER)
        yield peer, fabric


@pytest.mark.parametrize("off", ["", *LACKING])
def test_all_goes_on(far: tuple[Actor, str], off: str) -> None:
    peer, fabric = far
    with Actor([f"softnic:fabric={fabric},port=0,addr={HOST}/24"], env={**WANTED, "PYVMA_SOFTNIC_OFF": off}) as engine:
        engine("u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(30)")
        engine("u.bind((host, 0)); u.connect((to, 7000))", host=HOST, to=PEER)
        engine("u.setsockopt(socket.SOL_SOCKET, 37, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7)")
        assert engine("u.offload.state") == "offloaded"
        for size in (1, 100, 1472, 9000):
            engine("u.send((bytes(range(251)) * 40)[:size])", size=size)
            peer("data, who = sink.recvfrom(20000); sink.sendto(data[::-1], who)")
            assert engine("u.recv(20000) == (bytes(range(251)) * 40)[:size][::-1]", size=size)
        engine("paced = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); paced.connect((to, 7000))", to=PEER)
        engine("paced.setsockopt(socket.SOL_SOCKET, 47, struct.pack('@Q', 2_000_000))")
        engine("for _ in range(20): paced.send(bytes(1000))")
        assert peer("[len(sink.recv(2000)) for _ in range(20)]") == [1000] * 20
        peer.start("c, _ = listener.accept()\ngot = b''\nwhile part := c.recv(65536): got += part\nc.sendall(got[::-1]); c.close()")
        engine("t = socket.create_connection((to, 7001)); t.settimeout(30); t.sendall(bytes(range(256)) * 4000); t.shutdown(1)", to=PEER)
        assert engine("back = b''\nwhile part := t.recv(65536): back += part\nback == (bytes(range(256)) * 4000)[::-1]")
        peer.finish()
        assert engine("t.close()") is None
        assert engine(SHOWN) == {**WITH_ALL, **LACKING.get(off, {})}


def test_nothing_comes_without_rules() -> None:
    """The one that there is no other way for: said where the interface is opened."""
    with Actor([f"softnic:fabric=co{secrets.token_hex(4)},port=0,addr={HOST}/24,name=sn0"], env={"PYVMA_SOFTNIC_OFF": "flow"}) as engine:
        with pytest.raises(OSError, match="sn0: the device has no flow rules, and nothing would come by it"):
            engine("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind((host, 0))", host=HOST)
