"""Thousands of sockets on one interface that the kernel owns: each is bound, steered, receives its own and nothing else, and leaves no
rule behind. What one costs in the demultiplexer, with 1 and with 5,000 of them, is counted by tools/instructions.py."""

from __future__ import annotations

import json

import pytest
from netns import usable
from veth import ENGINE, KERNEL, namespaces, pair

from pyvma._cli._bench_run import program

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

COUNT = 5000
FIRST = 20000
# Datagrams under way at once: fewer than there are packets in a ring.
PART = 100

OPEN = """
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
started = time.monotonic()
for port, s in enumerate(socks, first):
    s.bind((host, port))
took = time.monotonic() - started
for s in socks:
    s.settimeout(20)
took
"""
ECHO_PART = """
for s in socks[at:at + part]:
    data, peer = s.recvfrom(100)
    s.sendto(data + struct.pack('!H', s.getsockname()[1]), peer)
"""
ASK_PART = """
for port in range(first + at, first + at + part):
    s.sendto(struct.pack('!H', port), (host, port))
sorted(struct.unpack('!HH', s.recv(100)) for _ in range(part))
"""
CLOSE = """
started = time.monotonic()
for s in socks:
    s.close()
time.monotonic() - started
"""
# A connected socket learns from the kernel at the other end that nobody listens there any more.
REFUSED = """
t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
t.settimeout(20)
refused = 0
for port in ports:
    t.connect((host, port))
    t.send(b'anybody?')
    try:
        t.recv(10)
    except ConnectionRefusedError:
        refused += 1
t.close()
refused
"""


@pytest.mark.timeout(300)
def test_five_thousand_sockets() -> None:
    with pair() as net:
        bind_s = net.engine(OPEN, count=COUNT, first=FIRST, host=ENGINE[4], limit_s=120)
        states = net.engine("sorted({(s.offload.state, s.offload.text) for s in socks})")
        assert states == [("offloaded", "xdp:v0")]
        net.kernel("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))", host=KERNEL[4])
        before = net.engine("import pyvma\npyvma.counters()['udp.rx_datagrams']")
        for at in range(0, COUNT, PART):
            net.engine.start(ECHO_PART, at=at, part=PART)
            answers = net.kernel(ASK_PART, at=at, part=PART, first=FIRST, host=ENGINE[4])
            net.engine.finish()
            assert answers == [(port, port) for port in range(FIRST + at, FIRST + at + PART)]
        # By the ring: at most the neighbour's resolution may have let one through the kernel.
        assert net.engine("pyvma.counters()['udp.rx_datagrams']") - before >= COUNT - 1
        close_s = net.engine(CLOSE, limit_s=120)
        # The kernel says so to a peer only so often a second, unless told otherwise.
        net.here.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit")
        ports = list(range(FIRST, FIRST + COUNT, 500))
        assert net.kernel(REFUSED, ports=ports, host=ENGINE[4]) == len(ports)
        # The same ports again: no rule of theirs was left.
        net.engine(OPEN, count=COUNT, first=FIRST, host=ENGINE[4], limit_s=120)
        assert net.engine("{s.offload.state for s in socks}") == {"offloaded"}
        net.engine(CLOSE, limit_s=120)
    print(f"\n{COUNT} sockets: {COUNT / bind_s:,.0f} bound a second from Python, {COUNT / close_s:,.0f} closed")


@pytest.mark.timeout(120)
def test_rule_updates() -> None:
    with namespaces() as (here, _):
        done = json.loads(here.run(str(program()), "rules", "--device", "v0", "--rules", str(COUNT), limit_s=60))
        assert done["rules"] == COUNT
    print(f"\nrules of the bare ring: {done['added_per_s']:,.0f} added and {done['deleted_per_s']:,.0f} deleted a second")
