"""Two namespaces joined by a veth pair: the engine on AF_XDP over the kernel's `v0` in one, kernel programs on `v1` in the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from actor import Actor
from exchange import Ends, wait_for
from netns import Namespace, sh

ENGINE = {4: "10.78.0.1", 6: "fd78::1"}
KERNEL = {4: "10.78.0.2", 6: "fd78::2"}


@dataclass
class Veth(Ends):
    here: Namespace

    @property
    def there(self) -> Namespace:
        return self.kernel_ns


def settled(ns: Namespace) -> bool:
    """No address is being checked for duplicates any more, and there is a link-local one."""
    text = ns.ip("-6", "addr")
    return "tentative" not in text and "fe80::" in text


@contextmanager
def namespaces(mtu: int = 1500) -> Iterator[tuple[Namespace, Namespace]]:
    """Both namespaces with addresses on the pair and the links up."""
    with Namespace() as here, Namespace() as there:
        for ns in (here, there):
            # Nobody else is on the pair: link-local addresses are good at once, not a second or two later.
            ns.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        size = ("mtu", str(mtu))
        sh("ip", "link", "add", "v0", *size, "netns", here.name, "type", "veth", "peer", "name", "v1", *size, "netns", there.name)
        for ns, device, hosts in ((here, "v0", ENGINE), (there, "v1", KERNEL)):
            ns.ip("addr", "add", f"{hosts[4]}/24", "dev", device, "broadcast", "+")
            ns.ip("-6", "addr", "add", f"{hosts[6]}/64", "dev", device, "nodad")
            ns.ip("link", "set", device, "up")
        for ns in (here, there):
            wait_for("the addresses", partial(settled, ns))
        yield here, there


@contextmanager
def engine(here: Namespace, more: str = "", env: dict[str, str] | None = None) -> Iterator[Actor]:
    """An application with a ring on `v0`, with these further options of the interface's."""
    with Actor([f"xdp:device=v0{more}"], netns=here.name, env=env) as made:
        yield made


@contextmanager
def pair(mode: str = "auto", env: dict[str, str] | None = None, mtu: int = 1500) -> Iterator[Veth]:
    """The engine's actor and a kernel peer, each in its namespace."""
    with namespaces(mtu) as (here, there):
        app = Actor([f"xdp:device=v0,mode={mode}"], netns=here.name, env=env)
        kernel = Actor(netns=there.name)
        try:
            yield Veth(app, kernel, ENGINE, KERNEL, there, here)
        finally:
            for actor in (app, kernel):
                with suppress(OSError):
                    actor.close()
