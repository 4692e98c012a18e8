"""Frames out of the device's memory between two engines over the software NIC: by which variable it is asked for, what is told of it, and
that a device which has none, or not so much, is used without."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest
from actor import Actor
from lab import softnic_reason

pytestmark = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there is a software NIC")

SIZES = [1, 150, 162, 163, 400, 1000, 1472]
FRAMES = [size + 42 for size in SIZES]
INLINE = 204
ROUNDS = 30


def exchange(tmp_path: Path, environment: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Datagrams of all sizes one way, a stream the other; what the sender's interface tells, and its log."""
    fabric, log = f"dm{secrets.token_hex(4)}", tmp_path / "log"
    env = {"PYVMA_LOG_LEVEL": "debug", "PYVMA_LOG_FILE": str(log), **environment}
    with (
        Actor([f"softnic:fabric={fabric},port=0,addr=10.8.1.1/24,name=sn0"], env=env) as a,
        Actor([f"softnic:fabric={fabric},port=1,addr=10.8.1.2/24"]) as b,
    ):
        b("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(30); s.bind(('10.8.1.2', 7000))")
        b("listener = socket.create_server(('10.8.1.2', 7001)); listener.settimeout(30)")
        a("import pyvma.ring; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(30); s.connect(('10.8.1.2', 7000))")
        for number in range(ROUNDS):
            a("for size in sizes: s.send(bytes((number + i) % 251 for i in range(size)))", sizes=SIZES, number=number)
            got = b("[s.recv(2000) for _ in range(count)]", count=len(SIZES))
            assert got == [bytes((number + i) % 251 for i in range(size)) for size in SIZES]
        told = a("i = pyvma.ring.interfaces()[0]; m = i.device_memory; dict(size=m.size, packets=m.packets, bytes=m.bytes, full=m.full)")
        b.start("c, _ = listener.accept(); c.settimeout(30)\nwhole = b''\nwhile part := c.recv(65536): whole += part\nwhole")
        a("t = socket.create_connection(('10.8.1.2', 7001)); t.settimeout(30); t.sendall(bytes(range(256)) * 2000); t.close()")
        assert b.finish() == bytes(range(256)) * 2000
    return told, log.read_text()


@pytest.mark.parametrize("name", ["PYVMA_RING_DEV_MEM_TX", "VMA_RING_DEV_MEM_TX"])
def test_frames_are_sent_from_there(tmp_path: Path, name: str) -> None:
    told, log = exchange(tmp_path, {name: "16384"})
    longs = [length for length in FRAMES if length > INLINE]
    assert told == {"size": 16384, "packets": ROUNDS * len(longs), "bytes": ROUNDS * sum(longs), "full": 0}
    assert "on_device_memory: 16384" in log


@pytest.mark.parametrize(
    ("asked", "off", "reason"),
    [("16384", "dm", "the device has no memory to send from"), ("1M", "", "the device has 262144 bytes of memory to send from")],
)
def test_without_it_all_goes_on(tmp_path: Path, asked: str, off: str, reason: str) -> None:
    told, log = exchange(tmp_path, {"PYVMA_RING_DEV_MEM_TX": asked, "PYVMA_SOFTNIC_OFF": off})
    assert told == {"size": 0, "packets": 0, "bytes": 0, "full": 0}
    assert log.count(reason) == 1
    assert "on_device_memory: 0" in log
