"""TAP devices in a namespace: one with an engine at its one end and the kernel's sockets at the other, or two joined by a bridge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from actor import Actor
from exchange import Ends
from lab import DEVICES
from netns import Namespace

ENGINE = {4: "10.79.0.1", 6: "fd79::1"}
KERNEL = {4: "10.79.0.2", 6: "fd79::2"}
DEVICE = "tap0"


@contextmanager
def device(queues: int = 1) -> Iterator[Namespace]:
    """A device that is there before anybody opens it, with the kernel's addresses."""
    with Namespace() as ns:
        ns.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        several = ("multi_queue",) if queues > 1 else ()
        ns.ip("tuntap", "add", DEVICE, "mode", "tap", "vnet_hdr", *several)
        ns.ip("addr", "add", f"{KERNEL[4]}/24", "dev", DEVICE)
        ns.ip("-6", "addr", "add", f"{KERNEL[6]}/64", "dev", DEVICE, "nodad")
        ns.ip("link", "set", DEVICE, "up")
        yield ns


def entry(queues: int = 1, more: str = "") -> str:
    """The engine's setting."""
    return f"tap:name={DEVICE},addr={ENGINE[4]}/24,addr={ENGINE[6]}/64,queues={queues}{more}"


@contextmanager
def pair(queues: int = 1, env: dict[str, str] | None = None) -> Iterator[Ends]:
    """Both actors in the device's namespace."""
    with device(queues) as ns:
        engine, kernel = Actor([entry(queues)], netns=ns.name, env=env), Actor(netns=ns.name)
        try:
            yield Ends(engine, kernel, ENGINE, KERNEL, ns)
        finally:
            for actor in (engine, kernel):
                with suppress(OSError):
                    actor.close()


@contextmanager
def joined() -> Iterator[Namespace]:
    """The devices of lab.INTERFACES with LAB_RING=tap, joined by a bridge that has no opinion."""
    with Namespace() as ns:
        ns.run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        ns.run("sh", "-c", "for f in /proc/sys/net/bridge/bridge-nf-call-*; do echo 0 > $f; done", check=False)
        ns.ip("link", "add", "labbr", "up", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        for name in DEVICES:
            ns.ip("tuntap", "add", name, "mode", "tap", "vnet_hdr")
            ns.ip("link", "set", name, "master", "labbr", "up")
        ns.run("sysctl", "-qw", "net.ipv6.conf.lo.disable_ipv6=0")
        yield ns
