"""A driver with zero copy (virtio_net, Linux 6.13): it receives into the ring's memory and sends out of it, and the ring says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from actor import Actor
from exchange import wait_for
from netns import Namespace, sh
from veth import ENGINE, KERNEL, engine, settled

RING = "__import__('pyvma.ring').ring.interfaces()[0]"


def devices() -> list[str]:
    """The guest's two network devices, which are joined to each other."""
    net = Path("/sys/class/net")
    return sorted(path.name for path in net.iterdir() if (path / "device" / "driver").resolve().name == "virtio_net")


@contextmanager
def namespaces() -> Iterator[tuple[Namespace, Namespace]]:
    """As veth.namespaces, of the two devices; a namespace that goes gives its device back."""
    wait_for("the devices", lambda: len(devices()) == 2)
    with Namespace() as here, Namespace() as there:
        for device, name, ns, hosts in zip(devices(), ("v0", "v1"), (here, there), (ENGINE, KERNEL), strict=True):
            ns.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
            sh("ip", "link", "set", device, "netns", ns.name, "name", name)
            ns.ip("addr", "add", f"{hosts[4]}/24", "dev", name, "broadcast", "+")
            ns.ip("-6", "addr", "add", f"{hosts[6]}/64", "dev", name, "nodad")
            ns.ip("link", "set", name, "up")
        for ns in (here, there):
            wait_for("the addresses", partial(settled, ns))
        yield here, there


def talk(ours: Actor, kernel: Actor, family: int) -> None:
    """Datagrams of some sizes and many of one, each way; a stream each way."""
    kind = "AF_INET" if family == 4 else "AF_INET6"
    host = ENGINE[family]
    ours(f"s = socket.socket(socket.{kind}, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 7))", host=host)
    kernel(f"k = socket.socket(socket.{kind}, socket.SOCK_DGRAM)\nk.settimeout(20)\nk.connect((host, 7))", host=host)
    for size in (0, 1, 64, 1400, 5000):
        ours.start("data, peer = s.recvfrom(6000)\ns.sendto(data, peer)\ns.offload.state")
        kernel("k.send(bytes(n % 251 for n in range(size)))", size=size)
        assert ours.finish() == "offloaded"
        assert kernel("k.recv(6000) == bytes(n % 251 for n in range(size))", size=size)
    # More than the ring's queues have places, so that each buffer goes round; as many on their way as are sure to have room.
    ours.start("for n in range(3000):\n    data, peer = s.recvfrom(100)\n    assert int(data) == n\n    s.sendto(data, peer)")
    kernel(
        "for n in range(0, 3000, 30):\n    for m in range(30): k.send(b'%d' % (n + m))\n"
        "    for m in range(30): assert int(k.recv(100)) == n + m"
    )
    ours.finish()
    ours("l = socket.create_server((host, 8), family=s.family)\nl.settimeout(20)", host=host)
    ours.start(
        "c, _ = l.accept()\nc.settimeout(20)\nc.sendall(bytes(range(256)) * 4000)\nback = b''\n"
        "while len(back) < 1024000: back += c.recv(65536)\nback == bytes(range(256)) * 4000, c.offload.state"
    )
    kernel("c = socket.create_connection((host, 8), timeout=20)\ngot = b''\nwhile len(got) < 1024000: got += c.recv(65536)", host=host)
    assert kernel("c.sendall(got)\ngot == bytes(range(256)) * 4000")
    assert ours.finish() == (True, "offloaded")
    ours("s.close(); c.close(); l.close()")
    kernel("k.close(); c.close()")


@pytest.mark.parametrize("family", [4, 6])
def test_without_a_copy(family: int) -> None:
    with namespaces() as (here, there), engine(here) as ours, Actor(netns=there.name) as kernel:
        talk(ours, kernel, family)
        mode, note = ours(f"r = {RING}\nr.mode, r.note")
        assert (mode, note) == ("native zero-copy", "")


def test_the_device_is_free_again() -> None:
    """After an end, after one that nobody could prepare, and with another mode in between."""
    with namespaces() as (here, there), Actor(netns=there.name) as kernel:
        for more, mode, killed in (
            ("", "native zero-copy", True),
            (",mode=generic", "generic copy", False),
            ("", "native zero-copy", False),
        ):
            with engine(here, more) as ours:
                talk(ours, kernel, 4)
                assert ours(f"{RING}.mode") == mode
                if killed:
                    os.kill(ours("__import__('os').getpid()"), signal.SIGKILL)
            wait_for("the end of the program", lambda: "xdp" not in here.ip("link", "show", "v0"))
