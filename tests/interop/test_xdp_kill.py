"""kill -9 of a process whose engine has an AF_XDP ring, under traffic, again and again (200 times with PYVMA_TEST_LONG=1): the kernel
takes everything of it away and has the interface for itself at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import bpf_objects
import pytest
from actor import Actor
from exchange import wait_for
from lab import LONG
from netns import Namespace, usable
from veth import ENGINE, KERNEL, namespaces

from pyvma._cli._bench_run import program

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

ROUNDS = 200 if LONG else 60
SEED = 20261121
PORT = 9000


def attached(ns: Namespace) -> bool:
    """Whether any interface there has an XDP program."""
    return any("xdp" in link for link in json.loads(ns.ip("-j", "link", "show")))


@contextmanager
def victim(ns: Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """A server on the engine: what comes to its port goes by the ring."""
    command = [str(program()), "server", "--transport", "pyvma", "--interfaces", "xdp:device=v0", "--local", f"{ENGINE[4]}:{PORT}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYVMA_", "VMA_"))}
    process = subprocess.Popen(
        ["ip", "netns", "exec", ns.name, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()


@contextmanager
def traffic(ns: Namespace) -> Iterator[None]:
    """A kernel socket that sends to the victim's port all the time, whoever listens there."""
    command = [str(program()), "paced", "--transport", "kernel", "--remote", f"{ENGINE[4]}:{PORT}", "--gap", "100", "--seconds", "3600"]
    process = ns.popen(*command)
    try:
        yield
        assert process.poll() is None, "the sender ended early"
    finally:
        process.kill()
        process.wait(20)


# The victim's port, bound by the kernel right after: what is under way to it arrives.
TAKE_OVER = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.bind((host, port))
count = sum(len(s.recv(100)) == 64 for _ in range(5))
s.close()
count
"""


@pytest.mark.timeout(900)
def test_nothing_stays() -> None:
    chance, everything, most = random.Random(SEED), set(), 0
    with namespaces() as (here, there), Actor(netns=here.name) as kernel, traffic(there):
        for number in range(ROUNDS):
            with victim(here) as process:
                assert process.stdout is not None
                # Every fourth is killed wherever it is: before, in or after its start. The others have a ring and get traffic.
                if number % 4:
                    assert process.stdout.readline(), f"round {number}: the victim did not come up"
                time.sleep(chance.uniform(0.0, 0.05))
                # Stopped, so that what it holds is what it dies with.
                process.send_signal(signal.SIGSTOP)
                os.waitpid(process.pid, os.WUNTRACED)
                mine = bpf_objects.held_by(process.pid)
                if number % 4:
                    kinds = {kind for kind, _ in mine}
                    assert kinds == set(bpf_objects.GET_FD_BY_ID) and attached(here), f"round {number}: {mine}"
                everything |= mine
                most = max(most, len(mine))
            assert not attached(here), f"round {number}: an XDP program is left on the interface"
            assert kernel(TAKE_OVER, host=ENGINE[4], port=PORT) == 5
            # The kernel frees programs and maps a little after their last user.
            wait_for(f"round {number}: the end of {mine}", lambda mine=mine: not bpf_objects.alive(mine))
        assert not bpf_objects.alive(everything)
        assert len(everything) >= ROUNDS * 3 / 4 * 3
        assert " 0% packet loss" in there.run("ping", "-n", "-c", "3", "-i", "0.05", "-w", "20", ENGINE[4])
        assert KERNEL[4] in here.ip("neigh", "show", "dev", "v0")
