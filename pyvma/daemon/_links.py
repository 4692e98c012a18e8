"""Interfaces of the namespace and their addresses, as the kernel told of them last."""

from __future__ import annotations

from ._groups import joined
from ._netlink import Address, Link, Netlink
from ._protocol import Flow, is_group
from ._tap import maker
from ._tc import Owner

__all__ = ["Links"]

BROADCAST = b"\xff\xff\xff\xff"


class Links:
    """Empty until `read`."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._links: dict[int, Link] = {}
        self._addresses: dict[int, list[Address]] = {}

    def read(self) -> None:
        """All anew. OSError: what was known before stays."""
        links, addresses = self._netlink.links(), self._netlink.addresses()
        self._links, self._addresses = links, {}
        for address in addresses:
            self._addresses.setdefault(address.ifindex, []).append(address)

    def changed(self, link: Link) -> None:
        """One that is new or different."""
        self._links[link.ifindex] = link

    def gone(self, ifindex: int) -> None:
        """One that is no more."""
        self._links.pop(ifindex, None)
        self._addresses.pop(ifindex, None)

    def get(self, ifindex: int) -> Link | None:
        """By its number."""
        return self._links.get(ifindex)

    def numbers(self) -> set[int]:
        """Of all that there are."""
        return set(self._links)

    def taps(self) -> set[int]:
        """Numbers of those that are TAP devices."""
        return {index for index, link in self._links.items() if link.kind == "tun"}

    def made(self) -> dict[int, tuple[str, Owner]]:
        """Name and process of the TAP devices that a daemon has made, by number."""
        owners = ((link, maker(link)) for link in self._links.values())
        return {link.ifindex: (link.name, owner) for link, owner in owners if owner}

    def names(self) -> dict[int, str]:
        """By number."""
        return {index: link.name for index, link in self._links.items()}

    def addresses(self, ifindex: int) -> list[Address]:
        """Of one interface."""
        return self._addresses.get(ifindex, [])

    def own(self, ifindex: int) -> list[bytes]:
        """The same without what belongs to them, in a fixed order."""
        return sorted({address.address for address in self.addresses(ifindex)})

    def is_own(self, address: bytes) -> bool:
        """Is it an address of this host, on whatever interface?"""
        return any(address == a.address for of in self._addresses.values() for a in of)

    def is_broadcast(self, address: bytes) -> bool:
        """Of any interface, or of all."""
        return address == BROADCAST or any(address == a.broadcast for of in self._addresses.values() for a in of)

    def has(self, flow: Flow) -> bool:
        """Does the host take what is for the flow's destination from that interface?"""
        if is_group(flow.dst):
            return joined(flow)
        if any(flow.dst in (a.address, a.broadcast) for a in self.addresses(flow.ifindex)) or flow.dst == BROADCAST:
            return True
        # Linux takes what is for an address of another interface, too: a connection of it may come this way.
        return flow.whole and self.is_own(flow.dst)
