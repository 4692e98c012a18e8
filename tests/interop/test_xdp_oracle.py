"""What a socket of the engine's says and does, against what a kernel socket says and does in the same place: every case of
oracle_cases.py runs once on AF_XDP and once, the oracle, on the standard library's sockets, each in a pair of namespaces of its own with a
kernel peer. Values and errors must be the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import oracle
import oracle_cases  # noqa: F401
import pytest
import veth
from actor import Actor
from netns import usable
from veth import KERNEL, namespaces

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(300),
]

# The echo answers in capitals. The voice sends what a client wants said, from a socket that the client knows nothing of.
PEER = """
import pickle

def udp(local):
    s = socket.socket(socket.AF_INET6 if ':' in local[0] else socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(local)
    return s

def echo(s):
    while True:
        data, peer = s.recvfrom(70000)
        s.sendto(data.upper(), peer)

def voice(ear):
    while True:
        message, client = ear.recvfrom(70000)
        host, port, data = pickle.loads(message)
        with udp((hosts[6 if ':' in host else 4], 0)) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            if s.family == socket.AF_INET:
                s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(hosts[4]))
            s.sendto(data, (host, port))
        ear.sendto(b'said', client)

for host in hosts.values():
    threading.Thread(target=echo, args=(udp((host, port)),), daemon=True).start()
threading.Thread(target=voice, args=(udp(ear),), daemon=True).start()
"""
PATH = [str(Path(module.__file__).parent) for module in (oracle, veth)]
# The kernel says every refusal.
UNLIMITED = ("sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_msgs_per_sec=100000", "net.ipv6.icmp.ratelimit=0")


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Actor, Actor]]:
    """The engine's and the oracle's."""
    with ExitStack() as stack:
        made = []
        for interfaces in (["xdp:device=v0"], None):
            here, there = stack.enter_context(namespaces())
            here.ip("addr", "add", f"{oracle.second}/24", "dev", "v0")
            for ns in (here, there):
                ns.run(*UNLIMITED)
            client, peer = stack.enter_context(Actor(interfaces, netns=here.name)), stack.enter_context(Actor(netns=there.name))
            stack.callback(peer.kill)
            peer(PEER, hosts=KERNEL, port=oracle.PORT, ear=oracle.ear)
            client("import sys\nsys.path[:0] = path\nimport oracle, oracle_cases", path=PATH)
            made.append(client)
        yield made[0], made[1]


@pytest.mark.parametrize("case", oracle.CASES)
def test_as_the_kernel(clients: tuple[Actor, Actor], case: str) -> None:
    ours, kernels = (client("oracle.run(case, socket)", case=case) for client in clients)
    assert ours == kernels
