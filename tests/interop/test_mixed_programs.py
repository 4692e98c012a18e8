"""Programs that open and close connections all the time, over AF_XDP with the kernel on the other end, while either side is stopped, ended
and killed and the link goes down and up: no byte is another one, nothing hangs, and what is left at the end is what there was at first. In
the second half of the time the engine's own side of each pair lives on, so that what it has left is of hundreds of broken connections.

20 seconds; MIXED_SECONDS, or PYVMA_TEST_LONG=1 for half an hour.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from bpf_maps import entries
from c_programs import compiled
from exchange import wait_for
from lab import LONG
from netns import usable
from preload_lab import Lab, lab, live
from python_programs import Program

from pyvma.stats import attach

SOURCE = Path(__file__).parent / "preload_apps" / "mixed.c"
SECONDS = float(os.environ.get("MIXED_SECONDS", "1800" if LONG else "20"))
SEED = int(os.environ.get("MIXED_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
PORT = 7600
LIMIT_S = 30.0
# Threads that have not waited in each way yet; and ports of connections in TIME_WAIT, a quarter of what mixed.c allows itself.
SLACK_FDS = 20 + 512 // 4
SLACK_BUFFERS = 64  # sent and not back yet
SLACK_RULES = 512 // 4  # such ports, and those that are kept for the next connection

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(SECONDS + 240),
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("mixed") / "mixed", SOURCE)


@dataclass(frozen=True)
class State:
    """What a program tells of itself, and how many descriptors, buffers and rules it has."""

    exchanges: int
    failures: int
    connections: int
    fds: int
    buffers: int
    rules: int


@dataclass
class Side:
    """A program that is started again when it has ended."""

    net: Lab
    command: list[str]
    ours: bool
    program: Program
    starts: int = 1

    def alive(self) -> bool:
        return self.program.process.poll() is None

    def again(self) -> None:
        self.program = (self.net.run if self.ours else self.net.peer)(*self.command)
        self.program.said(" ")
        self.starts += 1

    def state(self) -> State:
        assert self.alive(), self.program.text
        before = len(self.program.text.splitlines())
        self.program.process.send_signal(signal.SIGUSR1)
        wait_for(f"a line of {self.command}", lambda: len(self.program.text.splitlines()) > before, LIMIT_S)
        exchanges, failures, connections = map(int, self.program.text.splitlines()[-1].split())
        pid = self.program.process.pid
        return State(exchanges, failures, connections, len(os.listdir(f"/proc/{pid}/fd")), self.buffers(), entries(pid) if self.ours else 0)

    def buffers(self) -> int:
        if not self.ours:
            return 0
        with attach(self.program.process.pid) as process:
            return sum(pool["total"] - pool["free"] for pool in process.snapshot().pools)


@dataclass
class Pair:
    """Both ends; one is the engine's."""

    net: Lab
    server: Side
    client: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.server, self.client

    def works(self) -> None:
        """Something is exchanged, again, and that by the engine."""
        before, mine = self.client.state().exchanges, self.counted()
        wait_for(f"exchanges of {self.client.command}", lambda: self.client.state().exchanges > before + 20, LIMIT_S)
        wait_for(f"traffic by the engine in {self.net.here.name}", lambda: self.counted() > mine, LIMIT_S)

    def counted(self) -> int:
        ours = self.server if self.server.ours else self.client
        return live(ours.program).get("tcp.rx_bytes", 0)

    @contextmanager
    def quiet(self) -> Iterator[tuple[State, State]]:
        """The client has nothing open, and so the server has not."""
        self.client.program.process.send_signal(signal.SIGUSR2)
        wait_for("the end of all connections", lambda: not (self.client.state().connections or self.server.state().connections), LIMIT_S)
        yield self.server.state(), self.client.state()
        self.client.program.process.send_signal(signal.SIGUSR2)


@contextmanager
def pair(folder: Path, mixed: Path, server_is_ours: bool, family: int) -> Iterator[Pair]:
    folder.mkdir()
    with lab(folder) as net:
        host = (net.our_host if server_is_ours else net.their_host)[family]
        serve, talk = [str(mixed), "serve", str(PORT)], [str(mixed), "talk", host, str(PORT)]
        server = Side(net, serve, server_is_ours, (net.run if server_is_ours else net.peer)(*serve))
        server.program.said("0 0 0")
        client = Side(net, talk, not server_is_ours, (net.peer if server_is_ours else net.run)(*talk))
        client.program.said("0 0 0")
        yield Pair(net, server, client)


def disturb(at: Pair, chance: random.Random, ours_may_end: bool) -> None:
    side, what = chance.choice(at.sides), chance.choices(("stop", "flap", "term", "kill"), (4, 3, 1, 1))[0]
    if what in ("term", "kill") and side.ours and not ours_may_end:
        side = at.sides[side is at.server]
    pause = chance.uniform(0.02, 0.4)
    if what == "stop":
        side.program.process.send_signal(signal.SIGSTOP)
        time.sleep(pause)
        side.program.process.send_signal(signal.SIGCONT)
    elif what == "flap":
        ns, device = chance.choice(((at.net.here, "v0"), (at.net.there, "v1")))
        ns.ip("link", "set", device, "down")
        time.sleep(pause)
        ns.ip("link", "set", device, "up")
        if device == "v0":  # the kernel takes the addresses of version 6 away with the link
            ns.ip("-6", "addr", "replace", f"{at.net.our_host[6]}/64", "dev", device, "nodad")
        else:
            ns.ip("-6", "addr", "replace", f"{at.net.their_host[6]}/64", "dev", device, "nodad")
    else:
        status = side.program.end(signal.SIGTERM if what == "term" else signal.SIGKILL, LIMIT_S)
        assert status in ((0, -signal.SIGTERM) if what == "term" else (-signal.SIGKILL,)), side.program.text
        time.sleep(pause)
        side.again()


def states_of(pairs: tuple[Pair, ...]) -> list[State]:
    """Of both sides of each, with nothing open, after something was exchanged."""
    found = []
    for at in pairs:
        at.works()
        with at.quiet() as states:
            found += states
    return found


def test_mixed(mixed: Path, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print("MIXED_SEED", SEED)
    with pair(tmp_path / "a", mixed, True, chance.choice((4, 6))) as one, pair(tmp_path / "b", mixed, False, chance.choice((4, 6))) as two:
        pairs = (one, two)
        sides = (*one.sides, *two.sides)
        for ours_may_end in (True, False):
            first, until, disturbances = states_of(pairs), time.monotonic() + SECONDS / 2, 0
            while time.monotonic() < until:
                disturb(chance.choice(pairs), chance, ours_may_end)
                disturbances += 1
                for side in sides:
                    assert side.alive(), side.program.text
                time.sleep(chance.uniform(0, 0.5))
            print(disturbances, "disturbances;", "either side is ended" if ours_may_end else "the kernel's side is ended")
            for side, was, now in zip(sides, first, states_of(pairs), strict=True):
                print(side.command[1], "ours" if side.ours else "the kernel's", f"started {side.starts} times", was, now)
                assert now.fds <= was.fds + SLACK_FDS
                assert now.buffers <= was.buffers + SLACK_BUFFERS
                assert now.rules <= was.rules + SLACK_RULES
        for at in pairs:
            for side in (at.client, at.server):
                assert side.program.end(signal.SIGTERM, LIMIT_S) in (0, -signal.SIGTERM)
                assert "CORRUPT" not in side.program.text
            assert "xdp" not in at.net.here.ip("link", "show", "v0")
