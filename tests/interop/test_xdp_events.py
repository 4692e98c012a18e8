"""What happens to an interface while a socket has traffic on it: the engine's socket sees what a kernel socket sees, and recovers when
that does.

Every event hits two pairs of namespaces at the same time: in one the client is the engine's, in the other, the oracle, the standard
library's. Both run the same code against a kernel peer. What their traffic meets is compared once it has settled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from actor import Actor
from exchange import wait_for
from netns import Namespace, sh, usable
from veth import ENGINE, KERNEL, namespaces

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.timeout(300),
]

PORT = 7000
BEYOND = "198.51.100.1"
# Everything that a client meets within that time is what it meets while an event lasts.
WINDOW_S = 1.5
LIMIT_S = 60.0

SERVER = """
def serve(s):
    while True:
        try:
            data, peer = s.recvfrom(70000)
            s.sendto(data, peer)
        except OSError:
            pass

for host in hosts:
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((host, port))
    threading.Thread(target=serve, args=(s,), daemon=True).start()
"""
# Sends a number and waits for its echo, for ever. `seen`: (when, what) of each turn, newest last.
CLIENT = """
import collections
seen, stop = collections.deque(maxlen=100000), threading.Event()

def turn(s, number):
    message = struct.pack('!Q', number).ljust(size, b'.')
    try:
        s.send(message)
        while True:
            data = s.recv(70000)
            if data == message:
                return 'ok'
    except TimeoutError:
        return 'timeout'
    except OSError as error:
        return errno.errorcode[error.errno]

def traffic():
    number = 0
    while not stop.is_set():
        number += 1
        what = turn(s, number)
        seen.append((time.monotonic(), what))
        time.sleep(0.002)

s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.1)
if local:
    s.bind((local, 0))
for option in options:
    s.setsockopt(*option)
s.connect((host, port))
thread = threading.Thread(target=traffic, daemon=True)
thread.start()
"""
SINCE = "sorted({what for when, what in list(seen) if when >= since})"


@dataclass
class Side:
    """A client under traffic in `here` and its kernel peer in `there`."""

    here: Namespace
    there: Namespace
    client: Actor
    server: Actor

    def start(self, host: str = KERNEL[4], local: str = "", options: tuple[Any, ...] = (), size: int = 64) -> None:
        self.client(CLIENT, host=host, port=PORT, local=local, options=options, size=size)
        self.recovers("the first echo")

    def met(self, since: float) -> set[str]:
        """What the traffic has met since that time; the clock is everybody's."""
        return set(self.client(SINCE, since=since))

    def recovers(self, what: str) -> None:
        since = time.monotonic()
        wait_for(what, lambda: "ok" in self.met(since), LIMIT_S)

    def finish(self) -> None:
        """The traffic ends, the socket closes and the process leaves in order: nothing hangs."""
        self.client("stop.set()\nthread.join(20)\nassert not thread.is_alive()\ns.close()")
        self.client.close()
        assert self.client.process.returncode == 0


@dataclass
class Both:
    """The engine's side and the oracle's; what is done to one is done to the other."""

    engine: Side
    oracle: Side

    def start(self, **how: Any) -> None:
        for side in (self.engine, self.oracle):
            side.start(**how)
        assert self.engine.client("s.offload.state") == "offloaded"

    def here(self, *arguments: str) -> None:
        for side in (self.engine, self.oracle):
            side.here.ip(*arguments)

    def there(self, *arguments: str) -> None:
        for side in (self.engine, self.oracle):
            side.there.ip(*arguments)

    def meet(self, window_s: float = WINDOW_S) -> list[set[str]]:
        """What the traffic of either meets from now on, for a while."""
        since = time.monotonic()
        time.sleep(window_s)
        return [side.met(since) for side in (self.engine, self.oracle)]

    def same(self, expected: str, settle_s: float = 0.5, window_s: float = WINDOW_S) -> None:
        """Both meet the same, and `expected` is among it. Whether a turn ends by its timeout or by the error is a matter of when."""
        time.sleep(settle_s)
        met = self.meet(window_s)
        errors = [names - {"timeout"} or names for names in met]
        assert expected in errors[1], f"the oracle met {met[1]}"
        assert errors[0] == errors[1], f"the engine met {met[0]}, the kernel {met[1]}"

    def recover(self, what: str) -> None:
        for side in (self.oracle, self.engine):
            side.recovers(what)

    def finish(self) -> None:
        for side in (self.engine, self.oracle):
            side.finish()


@contextmanager
def one(interfaces: list[str] | None) -> Iterator[Side]:
    with namespaces() as (here, there), Actor(interfaces, netns=here.name) as client, Actor(netns=there.name) as server:
        there.ip("addr", "add", f"{BEYOND}/32", "dev", "lo")
        server(SERVER, hosts=[KERNEL[4], KERNEL[6], BEYOND], port=PORT)
        yield Side(here, there, client, server)
        server.kill()


@pytest.fixture
def both() -> Iterator[Both]:
    with ExitStack() as stack:
        yield Both(stack.enter_context(one(["xdp:device=v0"])), stack.enter_context(one(None)))


def test_address_removed_and_added(both: Both) -> None:
    both.start(local=ENGINE[4])
    both.here("addr", "del", f"{ENGINE[4]}/24", "dev", "v0")
    both.same("ENETUNREACH")
    both.here("addr", "add", f"{ENGINE[4]}/24", "dev", "v0")
    both.recover("traffic from the address that is back")
    both.finish()


def test_another_address_comes_and_goes(both: Both) -> None:
    both.start(local=ENGINE[4])
    both.here("addr", "add", "10.78.0.9/24", "dev", "v0")
    both.same("ok")
    both.here("addr", "del", "10.78.0.9/24", "dev", "v0")
    both.same("ok")
    both.finish()


def test_default_route_removed_and_changed(both: Both) -> None:
    both.here("route", "add", "default", "via", KERNEL[4])
    both.start(host=BEYOND)
    both.here("route", "del", "default")
    both.same("ENETUNREACH")
    both.here("route", "add", "unreachable", "default")
    both.same("EHOSTUNREACH")
    both.here("route", "replace", "default", "via", KERNEL[4])
    both.here("route", "flush", "type", "unreachable")
    both.recover("traffic by the route that is back")
    both.finish()


# IP_RECVERR of linux/in.h: without it a host that cannot be reached is no error of a UDP socket.
@pytest.mark.parametrize(("options", "met"), [((), "timeout"), (((0, 11, 1),), "EHOSTUNREACH")])
def test_neighbour_fails_and_comes_back(both: Both, options: tuple[Any, ...], met: str) -> None:
    # A neighbour fails after three requests, a second from each other unless told otherwise.
    for side in (both.engine, both.oracle):
        side.here.run("sysctl", "-qw", "net.ipv4.neigh.v0.retrans_time_ms=250")
    both.start(options=options)
    both.there("link", "set", "v1", "arp", "off")
    both.here("neigh", "flush", "dev", "v0")
    both.same(met, settle_s=1.0, window_s=2.0)
    both.there("link", "set", "v1", "arp", "on")
    both.recover("traffic to the neighbour that answers again")
    both.finish()


def test_neighbour_has_another_mac(both: Both) -> None:
    both.start()
    both.there("link", "set", "v1", "down")
    both.there("link", "set", "v1", "address", "02:00:00:00:77:77")
    both.there("link", "set", "v1", "up")
    both.here("neigh", "flush", "dev", "v0")
    both.recover("traffic to the new address")
    both.finish()


@pytest.mark.parametrize("host", [KERNEL[4], KERNEL[6]])
def test_mtu_lowered_and_raised(both: Both, host: str) -> None:
    # IP_MTU_DISCOVER or IPV6_MTU_DISCOVER with IP_PMTUDISC_DO; of linux/in.h and linux/in6.h.
    both.start(host=host, options=((41, 23, 2) if ":" in host else (0, 10, 2),), size=1400)
    for mtu, met in (("1300", "EMSGSIZE"), ("1500", "ok")):
        both.here("link", "set", "v0", "mtu", mtu)
        both.there("link", "set", "v1", "mtu", mtu)
        both.same(met)
    both.finish()


def test_link_down_and_up(both: Both) -> None:
    both.start()
    both.here("link", "set", "v0", "down")
    both.same("ENETUNREACH")
    both.here("link", "set", "v0", "up")
    both.recover("traffic on the link that is up again")
    both.finish()


def test_carrier_lost_and_back(both: Both) -> None:
    both.start()
    both.there("link", "set", "v1", "down")
    time.sleep(WINDOW_S)
    both.there("link", "set", "v1", "up")
    both.recover("traffic on the link that has its carrier again")
    both.finish()


def test_interface_renamed(both: Both) -> None:
    both.start()
    # Since Linux 6.2 also while it is up.
    both.here("link", "set", "v0", "name", "w0")
    both.same("ok")
    both.here("link", "set", "w0", "name", "v0")
    both.same("ok")
    both.finish()


def create(side: Side) -> None:
    sh("ip", "link", "add", "v0", "netns", side.here.name, "type", "veth", "peer", "name", "v1", "netns", side.there.name)
    for ns, device, hosts in ((side.here, "v0", ENGINE), (side.there, "v1", KERNEL)):
        ns.ip("addr", "add", f"{hosts[4]}/24", "dev", device)
        ns.ip("link", "set", device, "up")


def test_interface_deleted_and_created_again(both: Both) -> None:
    both.start()
    both.here("link", "del", "v0")
    both.same("ENETUNREACH")
    for side in (both.engine, both.oracle):
        create(side)
    both.recover("traffic on the new interface")
    # A new socket has no past.
    assert (
        both.engine.client(
            "t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.settimeout(20)\nt.connect((host, port))\nt.send(b'new')\nt.recv(10)"
        )
        == b"new"
    )
    both.engine.client("t.close()")
    both.finish()


@contextmanager
def names_back(*namespaces: Namespace) -> Iterator[None]:
    """The test deletes them; the fixture wants to."""
    try:
        yield
    finally:
        for ns in namespaces:
            sh("ip", "netns", "add", ns.name)


def test_the_peers_namespace_is_deleted(both: Both) -> None:
    both.start()
    with names_back(both.engine.there, both.oracle.there):
        for side in (both.engine, both.oracle):
            side.server.kill()
            sh("ip", "netns", "del", side.there.name)
            wait_for("the end of the pair", lambda side=side: "v0" not in side.here.ip("-o", "link"))
        both.same("ENETUNREACH")
        both.finish()


def test_the_clients_namespace_is_deleted(both: Both) -> None:
    """A namespace lives as long as a process is in it; with its last process everything in it goes, the ring too."""
    both.start()
    with names_back(both.engine.here, both.oracle.here):
        for side in (both.engine, both.oracle):
            sh("ip", "netns", "del", side.here.name)
        both.same("ok")
        both.finish()
        for side in (both.engine, both.oracle):
            wait_for("the end of the pair", lambda side=side: "v1" not in side.there.ip("-o", "link"))


def test_second_process_on_the_same_interface(both: Both) -> None:
    both.start()
    with Actor(["xdp:device=v0"], netns=both.engine.here.name) as second:
        second("t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.settimeout(20)\nt.connect((host, port))", host=KERNEL[4], port=PORT)
        state, text = second("t.offload.state, t.offload.text")
        assert second("t.send(b'second'); t.recv(10)") == b"second"
        assert state == "kernel" and text, "the ring is the first process's"
        assert both.meet()[0] == {"ok"}
    both.same("ok")
    # The ring is free as soon as the first has ended.
    both.finish()
    with Actor(["xdp:device=v0"], netns=both.engine.here.name) as third:
        third("t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nt.settimeout(20)\nt.connect((host, port))", host=KERNEL[4], port=PORT)
        assert third("t.send(b'third'); t.recv(10)") == b"third"
        assert third("t.offload.state") == "offloaded"


# Sockets of their own, beside the traffic: `asked` is bound to an address, `bound` to the device.
BESIDE = """
def open_bound(port, device=b''):
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(0.5)
    if device:
        u.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    u.bind(('', port))
    return u

def outcome(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno] if error.errno else type(error).__name__

asked, bound = open_bound(7101), open_bound(7102, b'v0')
"""
TELL = """
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as t:
    for number in range(count):
        t.sendto(b'%d' % number, (host, port))
"""


def told(both: Both, port: int, count: int = 1) -> None:
    """The kernel peers send to that port, and have been heard."""
    for side in (both.engine, both.oracle):
        side.server(TELL, host=ENGINE[4], port=port, count=count)
        # What was sent before an answer to a ping has come before it.
        side.there.run("ping", "-c", "1", "-w", "10", ENGINE[4])


@pytest.mark.parametrize("event", ["deleted", "larger"])
def test_what_has_come_stays_to_be_read(both: Both, event: str) -> None:
    """An AF_XDP ring is closed with its interface, and opened anew for an MTU above what its buffers hold."""
    both.start()
    for side in (both.engine, both.oracle):
        side.client(BESIDE)
    told(both, 7101, 100)
    if event == "deleted":
        both.here("link", "del", "v0")
        both.same("ENETUNREACH")
    else:
        both.there("link", "set", "v1", "mtu", "3000")
        both.here("link", "set", "v0", "mtu", "3000")
        both.same("ok")
        told(both, 7101, 1)
    got = [side.client("[outcome(asked.recv, 10) for _ in range(102)]") for side in (both.engine, both.oracle)]
    assert got[0] == got[1]
    assert got[1][:100] == [b"%d" % number for number in range(100)]
    both.finish()


def test_bound_to_a_device_that_is_made_again(both: Both) -> None:
    """A socket is bound to a device's number, not to its name; that of a ring which was only opened anew stays."""
    both.start()
    for side in (both.engine, both.oracle):
        side.client(BESIDE)
    both.there("link", "set", "v1", "mtu", "3000")
    both.here("link", "set", "v0", "mtu", "3000")
    both.same("ok")
    told(both, 7102)
    for side in (both.engine, both.oracle):
        assert side.client("outcome(bound.recv, 10)") == b"0"
    assert both.engine.client("bound.stats['rx_datagrams']") == 1
    both.here("link", "del", "v0")
    both.same("ENETUNREACH")
    for side in (both.engine, both.oracle):
        create(side)
    both.recover("traffic on the new interface")
    told(both, 7101)
    told(both, 7102)
    met = [
        side.client("(asked.recv(10), outcome(bound.recv, 10), outcome(bound.sendto, b'x', (host, port)))")
        for side in (both.engine, both.oracle)
    ]
    assert met[0] == met[1]
    assert met[1] == (b"0", "TimeoutError", "ENODEV")
    both.finish()
