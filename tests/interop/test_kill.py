"""kill -9 of one of three engines on a fabric, again and again: the other two lose nothing of their own and nothing is left behind.

With PYVMA_TEST_LONG=1 two hundred times.
"""

from __future__ import annotations

import random
import secrets
import time
from pathlib import Path

import pytest
from actor import Actor
from lab import LONG

ROUNDS = 200 if LONG else 50
SEED = 20261121

# Client and server keep a window of datagrams under way and check every number, until the file `stop` is there.
CLIENT = """
lost = sent = 0
while not os.path.exists(stop):
    for _ in range(100):
        for number in range(sent, sent + 16):
            s.send(struct.pack('!Q', number))
        for number in range(sent, sent + 16):
            lost += struct.unpack('!Q', s.recv(100))[0] != number
        sent += 16
(lost, sent)
"""
SERVER = """
echoed = 0
s.settimeout(0.5)
while not os.path.exists(stop):
    try:
        for _ in range(2000):
            data, peer = s.recvfrom(100)
            s.sendto(data, peer)
            echoed += 1
    except TimeoutError:
        pass
echoed
"""
# Sends to both, from its own address, until it is killed; to a port where nobody listens, so that what it sends is never theirs.
# The pauses keep a peer that gets no CPU for a while from losing frames for want of room, which would be nobody's fault.
VICTIM = """
while True:
    for burst in range(50):
        for to in targets:
            try:
                s.sendto(b'v' * 700, (to, 9))
            except OSError:
                pass
    time.sleep(0.001)
"""


def interface(fabric: str, port: int) -> list[str]:
    return [f"softnic:fabric={fabric},port={port},addr=10.66.0.{port + 1}/24,rx_depth=16384"]


@pytest.mark.timeout(600)
def test_the_others_go_on(tmp_path: Path) -> None:
    fabric, chance = f"t{secrets.token_hex(4)}", random.Random(SEED)
    stop_client, stop_server = tmp_path / "stop-client", tmp_path / "stop-server"

    def files() -> set[str]:
        return {path.name for path in Path("/dev/shm").iterdir() if fabric in path.name}

    with Actor(interface(fabric, 0)) as client, Actor(interface(fabric, 1)) as server:
        for actor, host in ((client, "10.66.0.1"), (server, "10.66.0.2")):
            actor("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 4000))", host=host)
        client("s.connect(('10.66.0.2', 4000))")
        alive = files()
        server.start(SERVER, stop=str(stop_server))
        client.start(CLIENT, stop=str(stop_client))
        most = 0
        for number in range(ROUNDS):
            victim = Actor(interface(fabric, 2))
            victim("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('10.66.0.3', 4000))")
            victim.start(VICTIM, targets=["10.66.0.1", "10.66.0.2"])
            time.sleep(chance.uniform(0.0, 0.05))
            victim.kill()
            # What a dead process leaves is taken over by the next one that joins: it never adds up.
            left = files() - alive
            most = most or len(left)
            assert len(left) <= most and files() >= alive, f"round {number}: {left}"
        stop_client.touch()
        lost, sent = client.finish()
        stop_server.touch()
        echoed = server.finish()
        assert sent > 10_000 and lost == 0 and echoed == sent
    assert files() == set()
