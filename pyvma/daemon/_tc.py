"""Redirect rules in the kernel's traffic control: ingress filters of u32, hash tables by the low byte of the destination port.

On an interface there is for each address that flows are for one table of 256 buckets, which an entry in the root table of the family's
preference leads to, and in the bucket one filter a flow: protocol, ports, source, no fragment, no IP options; its action redirects
to the TAP. In a bucket 5-tuples have lower numbers than 3-tuples, and so are looked at first.

What others made is used and never changed: an ingress or clsact qdisc that is there gets filters of our preferences beside its own. A
qdisc that we made is marked by a table of one bucket, and goes with our last filter if nobody else has any there. Each filter's action
has a cookie with the owner's pid and start time, by which a new daemon knows whom it is for.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import _netlink as nl
from ._netlink import Netlink, attribute, attributes, message, nested
from ._protocol import Flow

__all__ = ["Owner", "Rules", "Stored"]

PREF4, PREF6, PREF_ALL = 7401, 7402, 7409
OURS = range(7400, 7410)
ETH_P_ALL, ETH_P_IP, ETH_P_IPV6 = 0x0003, 0x0800, 0x86DD
PROTOCOLS = {PREF4: ETH_P_IP, PREF6: ETH_P_IPV6, PREF_ALL: ETH_P_ALL}
INGRESS_PARENT = 0xFFFFFFF2
QDISC_HANDLE, QDISC_PARENT = 0xFFFF0000, 0xFFFFFFF1
MARK_TABLE = 0x7FF
TABLES = range(1, MARK_TABLE)
WHOLE_NODES, PORT_NODES = range(1, 0x800), range(0x800, 0xFFF)

TCA_KIND, TCA_OPTIONS = 1, 2
U32_HASH, U32_LINK, U32_DIVISOR, U32_SEL, U32_ACT, U32_FLAGS = 2, 3, 4, 5, 7, 11
ACT_KIND, ACT_OPTIONS, ACT_COOKIE = 1, 2, 6
MIRRED_PARMS, EGRESS_REDIRECT, EGRESS_MIRROR, PIPE, STOLEN = 2, 1, 2, 3, 4
TARGETS_MOST = 32  # of a rule, the kernel's limit of actions
SKIP_HARDWARE = 1
TERMINAL = 1
MISSING = (errno.EINVAL, errno.ENOENT, errno.EEXIST)  # no such qdisc or table any more, or somebody's filter in the place of ours
COOKIE = struct.Struct("<4sIQ")
COOKIE_MAGIC = b"pvmd"
TCMSG = struct.Struct("=BxHiIII")
SEL = struct.Struct("=BBBxHHHH4s")
KEY = struct.Struct("=4s4sii")
MIRRED = struct.Struct("=IIiiiiI")


class Owner(NamedTuple):
    """A process, so that no other one of that number is taken for it."""

    pid: int
    start: int

    def cookie(self) -> bytes:
        """As it is kept with an action."""
        return COOKIE.pack(COOKIE_MAGIC, self.pid, self.start)


def _owner(cookie: bytes) -> Owner | None:
    if len(cookie) != COOKIE.size or not cookie.startswith(COOKIE_MAGIC):
        return None
    _, pid, start = COOKIE.unpack(cookie)
    return Owner(pid, start)


class Stored(NamedTuple):
    """A rule found in the kernel; `tap` 0: its TAP is gone."""

    flow: Flow
    tap: int
    owner: Owner


@dataclass(slots=True)
class _Table:
    number: int
    pref: int
    buckets: dict[int, set[int]] = field(default_factory=dict)
    count: int = 0
    link: int = 0  # the entry that leads to it; 0: there is none, and it waits for the kernel to let it be deleted


@dataclass(slots=True)
class _Interface:
    made_qdisc: bool = False
    tables: dict[bytes, _Table] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)  # of tables, others' too


class Target(NamedTuple):
    """Where a rule's packets go; `tap` 0: the TAP is gone."""

    tap: int
    owner: Owner


class _Leaf(NamedTuple):
    """A rule in force; of several targets each gets a copy."""

    handle: int
    table: _Table
    targets: tuple[Target, ...]


class _Serving(NamedTuple):
    """What a TAP's own filters do: its frames go out by the interface, but those for its addresses, which the host gets."""

    ifindex: int
    addresses: list[bytes]
    owner: Owner


def _key(offset: int, value: bytes, mask: bytes = b"\xff\xff\xff\xff") -> bytes:
    return KEY.pack(mask, value, offset, 0)


def _selector(keys: Sequence[bytes], flags: int = 0, hash_offset: int = 0, hash_mask: bytes = bytes(4)) -> bytes:
    return attribute(U32_SEL, SEL.pack(flags, 0, len(keys), 0, 0, 0, hash_offset, hash_mask) + b"".join(keys))


def _address_keys(address: bytes, at4: int, at6: int) -> list[bytes]:
    if len(address) == 4:
        return [_key(at4, address)]
    return [_key(at6 + i, address[i : i + 4]) for i in range(0, 16, 4)]


def _redirect(*targets: Target) -> bytes:
    """A copy to each but the last, which gets the packet itself."""
    actions = []
    for number, (ifindex, owner) in enumerate(targets, 1):
        then, how = (STOLEN, EGRESS_REDIRECT) if number == len(targets) else (PIPE, EGRESS_MIRROR)
        fixed = attribute(MIRRED_PARMS, MIRRED.pack(0, 0, then, 0, 0, how, ifindex))
        action = attribute(ACT_KIND, b"mirred\0") + nested(ACT_OPTIONS, fixed) + attribute(ACT_COOKIE, owner.cookie())
        actions.append(nested(number, action))
    return nested(U32_ACT, *actions)


def _filter(kind: int, flags: int, ifindex: int, handle: int, pref: int, options: bytes = b"") -> bytearray:
    info = pref << 16 | socket.htons(PROTOCOLS[pref])
    body = TCMSG.pack(0, 0, ifindex, handle, INGRESS_PARENT, info) + attribute(TCA_KIND, b"u32\0")
    return message(kind, flags, body + (nested(TCA_OPTIONS, options) if options else b""))


def _new(ifindex: int, handle: int, pref: int, options: bytes) -> bytearray:
    return _filter(nl.RTM_NEWTFILTER, nl.CREATE | nl.EXCL, ifindex, handle, pref, options)


def _delete(ifindex: int, handle: int, pref: int) -> bytearray:
    return _filter(nl.RTM_DELTFILTER, 0, ifindex, handle, pref)


def _table_request(ifindex: int, number: int, pref: int, buckets: int = 256) -> bytearray:
    return _new(ifindex, number << 20, pref, attribute(U32_DIVISOR, struct.pack("=I", buckets)))


def _leaf_keys(flow: Flow) -> list[bytes]:
    ports = struct.pack(">HH", flow.src_port, flow.dst_port)
    mask = b"\xff\xff\xff\xff" if flow.whole else b"\0\0\xff\xff"
    if flow.family == socket.AF_INET:
        keys = [
            _key(0, b"\x05\0\0\0", b"\x0f\0\0\0"),
            _key(4, bytes(4), b"\0\0\x3f\xff"),
            _key(8, bytes([0, flow.proto, 0, 0]), b"\0\xff\0\0"),
            _key(20, ports, mask),
        ]
    else:
        keys = [_key(4, bytes([0, 0, flow.proto, 0]), b"\0\0\xff\0"), _key(40, ports, mask)]
    return keys + (_address_keys(flow.src, 12, 8) if flow.whole else [])


def _leaf(flow: Flow, leaf: _Leaf) -> bytearray:
    options = attribute(U32_HASH, struct.pack("=I", leaf.handle & 0xFFFFF000)) + attribute(U32_FLAGS, struct.pack("=I", SKIP_HARDWARE))
    options += _selector(_leaf_keys(flow), TERMINAL) + _redirect(*leaf.targets)
    return _new(flow.ifindex, leaf.handle, leaf.table.pref, options)


def _switch(flow: Flow, leaf: _Leaf) -> bytearray:
    """The same filter with other targets, without a moment in which there is none."""
    options = attribute(U32_FLAGS, struct.pack("=I", SKIP_HARDWARE)) + _redirect(*leaf.targets)
    return _filter(nl.RTM_NEWTFILTER, 0, flow.ifindex, leaf.handle, leaf.table.pref, options)


class _Entry(NamedTuple):
    """A u32 object as the kernel tells of it."""

    pref: int
    handle: int
    divisor: int
    link: int
    keys: dict[int, tuple[bytes, bytes]]  # offset: value, mask
    targets: tuple[Target, ...]  # of actions that are ours


def _parse_actions(value: bytes) -> tuple[Target, ...]:
    found = []
    for _, each in sorted(attributes(value).items()):
        action = attributes(each)
        owner = _owner(action.get(ACT_COOKIE, b""))
        if owner is None or not action.get(ACT_KIND, b"").startswith(b"mirred"):
            continue
        fixed = attributes(action.get(ACT_OPTIONS, b"")).get(MIRRED_PARMS, b"")
        found.append(Target(MIRRED.unpack_from(fixed)[6] if len(fixed) >= MIRRED.size else 0, owner))
    return tuple(found)


def _parse(body: bytes) -> tuple[int, _Entry | None]:
    """The preference, and what it is when it is of u32."""
    _, _, _, handle, _, info = TCMSG.unpack_from(body)
    at = attributes(memoryview(body)[TCMSG.size :])
    if not at.get(TCA_KIND, b"").startswith(b"u32"):
        return info >> 16, None
    options = attributes(at.get(TCA_OPTIONS, b""))
    keys = {}
    sel = options.get(U32_SEL, b"")
    for i in range(SEL.size, len(sel) - KEY.size + 1, KEY.size):
        mask, value, offset, _ = KEY.unpack_from(sel, i)
        keys[offset] = value, mask
    divisor = struct.unpack("=I", options[U32_DIVISOR])[0] if U32_DIVISOR in options else 0
    link = struct.unpack("=I", options[U32_LINK])[0] if U32_LINK in options else 0
    return info >> 16, _Entry(info >> 16, handle, divisor, link, keys, _parse_actions(options.get(U32_ACT, b"")))


def _address_of(entry: _Entry, at4: int, at6: int) -> bytes:
    if entry.pref == PREF4:
        return entry.keys.get(at4, (bytes(4),))[0]
    return b"".join(entry.keys.get(at6 + i, (bytes(4),))[0] for i in range(0, 16, 4))


def _flow_of(entry: _Entry, ifindex: int, dst: bytes) -> Flow | None:
    four = entry.pref == PREF4
    ports = entry.keys.get(20 if four else 40)
    protocol = entry.keys.get(8 if four else 4)
    if not ports or not protocol:
        return None
    src_port, dst_port = struct.unpack(">HH", ports[0])
    proto = protocol[0][1] if four else protocol[0][2]
    whole = ports[1] == b"\xff\xff\xff\xff"
    src = _address_of(entry, 12, 8) if whole else bytes(len(dst))
    return Flow(ifindex, proto, dst, dst_port, src, src_port if whole else 0) if proto in (6, 17) else None


class Rules:
    """All of the daemon's filters. Rules are queued by `add` and `delete`, and are in force after `commit`."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._interfaces: dict[int, _Interface] = {}
        self._leaves: dict[Flow, _Leaf] = {}
        self._serving: dict[int, _Serving] = {}  # by the TAP's number
        self._queue: list[tuple[bytearray, Flow | None, _Leaf | None]] = []
        self._repeated = 0  # of the queue: those first ones the kernel may know already
        self._refused: dict[Flow, int] = {}
        self._restored: set[Flow] = set()  # what is queued to be put back
        self.broken: set[int] = set()  # interfaces to be looked at by `verify`: the kernel did not find there what we had made
        self.strange: set[int] = set()  # interfaces where the qdisc may be somebody else's by now: `verify` will see
        self._pending: set[tuple[int, bytes]] = set()  # tables that the kernel has not let go
        self._leaving: set[int] = set()  # interfaces without tables

    # ---- what there is

    def __contains__(self, flow: Flow) -> bool:
        return flow in self._leaves

    @property
    def pending(self) -> bool:
        """Is there something to try again by `commit`: tables that the kernel would not delete yet, rules that it was not told?"""
        return bool(self._pending or self._leaving or self._queue)

    def interfaces(self) -> set[int]:
        """Where there is anything of ours."""
        return {*self._interfaces, *self._serving}

    def counts(self) -> dict[int, dict[str, int]]:
        """By interface: rules, tables, and whether the qdisc is ours."""
        found: dict[int, dict[str, int]] = {}
        for index, interface in self._interfaces.items():
            rules = sum(table.count for table in interface.tables.values())
            found[index] = {"rules": rules, "tables": len(interface.tables), "own_qdisc": int(interface.made_qdisc)}
        return found

    # ---- structure

    def _dump(self, ifindex: int) -> Iterator[tuple[int, _Entry | None]]:
        for kind, body in self._netlink.dump(nl.RTM_GETTFILTER, TCMSG.pack(0, 0, ifindex, 0, INGRESS_PARENT, 0)):
            if kind == nl.RTM_NEWTFILTER:
                yield _parse(body)

    def _make_qdisc(self, ifindex: int, marked: bool = True) -> bool:
        """True: it was not there, and is marked as ours."""
        body = TCMSG.pack(0, 0, ifindex, QDISC_HANDLE, QDISC_PARENT, 0) + attribute(TCA_KIND, b"clsact\0")
        code = self._netlink.batch([message(nl.RTM_NEWQDISC, nl.CREATE | nl.EXCL, body)])[0]
        if code not in (0, errno.EEXIST):
            raise OSError(code, os.strerror(code))
        if code or not marked:
            return False
        self._netlink.do(_table_request(ifindex, MARK_TABLE, PREF4, 1))
        return True

    def _interface(self, ifindex: int) -> _Interface:
        interface = self._interfaces.get(ifindex)
        if interface is None:
            interface = _Interface(self._make_qdisc(ifindex))
            interface.numbers = {MARK_TABLE}
            for _, entry in self._dump(ifindex):
                if entry and entry.divisor and not entry.handle >> 31:
                    interface.numbers.add(entry.handle >> 20)
            self._interfaces[ifindex] = interface
        return interface

    def _make_link(self, ifindex: int, number: int, pref: int, dst: bytes) -> int:
        """The entry's handle, which has the number of the root table that the kernel chose."""
        options = attribute(U32_LINK, struct.pack("=I", number << 20))
        selector = _selector(_address_keys(dst, 16, 24), 0, 20 if pref == PREF4 else 40, b"\0\0\0\xff")
        body = self._netlink.echo(_new(ifindex, number, pref, options + selector))
        return int(TCMSG.unpack_from(body)[3])

    def _table(self, flow: Flow) -> _Table:
        interface = self._interface(flow.ifindex)
        table = interface.tables.get(flow.dst)
        if table is not None and table.link:
            return table
        pref = PREF4 if flow.family == socket.AF_INET else PREF6
        if table is not None:  # about to be deleted: it is of use again
            table.link = self._make_link(flow.ifindex, table.number, pref, flow.dst)
            self._pending.discard((flow.ifindex, flow.dst))
            return table
        number = next((n for n in TABLES if n not in interface.numbers), 0)
        if not number:
            raise OSError(errno.ENOSPC, "no more tables on the interface")
        try:
            self._netlink.do(_table_request(flow.ifindex, number, pref))
            interface.numbers.add(number)
            link = self._make_link(flow.ifindex, number, pref, flow.dst)
        except OSError:
            if number in interface.numbers:
                self._netlink.batch([_delete(flow.ifindex, number << 20, pref)])
                interface.numbers.discard(number)
            if not interface.tables:
                self._leave(flow.ifindex)
            raise
        table = interface.tables[flow.dst] = _Table(number, pref, link=link)
        return table

    # ---- rules

    def add(self, flow: Flow, tap: int, owner: Owner) -> None:
        """Queues a rule that is not there. OSError: ENOSPC, or what the kernel says of the interface."""
        try:
            table = self._table(flow)
        except OSError as error:
            if error.errno not in MISSING:
                raise
            self._anew(flow.ifindex)
            table = self._table(flow)
        bucket = flow.dst_port & 0xFF
        used = table.buckets.setdefault(bucket, set())
        nodes = WHOLE_NODES if flow.whole else PORT_NODES
        node = nodes.start + len(used) if nodes.start + len(used) in nodes else nodes.start
        if node in used:
            node = next((n for n in nodes if n not in used), 0)
        if not node:
            raise OSError(errno.ENOSPC, "too many rules for ports alike")
        used.add(node)
        table.count += 1
        handle = table.number << 20 | bucket << 12 | node
        self._refused.pop(flow, None)  # an earlier one, that has been given up meanwhile
        leaf = self._leaves[flow] = _Leaf(handle, table, (Target(tap, owner),))
        self._queue.append((_leaf(flow, leaf), flow, leaf))

    def join(self, flow: Flow, tap: int, owner: Owner) -> None:
        """One TAP more gets copies of what a rule that is there is for. OSError: ENOSPC, EAGAIN."""
        leaf = self._leaves.get(flow)
        if leaf is None:  # the kernel refused it, and whose it is has not been told yet
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if len(leaf.targets) >= TARGETS_MOST:
            raise OSError(errno.ENOSPC, "too many processes share the rule")
        self._change(flow, leaf, (*leaf.targets, Target(tap, owner)))

    def part(self, flow: Flow, owner: Owner) -> None:
        """Queues the end of a rule for one process, and with the last one that of the rule."""
        leaf = self._leaves.get(flow)
        if leaf is None:
            return
        left = tuple(target for target in leaf.targets if target.owner != owner)
        if left and left != leaf.targets:
            self._change(flow, leaf, left)
        elif not left:
            self._queue.append((_delete(flow.ifindex, leaf.handle, leaf.table.pref), None, None))
            self._forget(flow, leaf)

    def _change(self, flow: Flow, leaf: _Leaf, targets: tuple[Target, ...]) -> None:
        leaf = self._leaves[flow] = leaf._replace(targets=targets)
        self._queue.append((_switch(flow, leaf), flow, leaf))
        self._restored.add(flow)  # what the kernel does not switch now is put right by another look

    def _forget(self, flow: Flow, leaf: _Leaf) -> None:
        del self._leaves[flow]
        table = leaf.table
        table.count -= 1
        used = table.buckets[flow.dst_port & 0xFF]
        used.discard(leaf.handle & 0xFFF)
        if not used:
            del table.buckets[flow.dst_port & 0xFF]
        if not table.count:
            self._pending.add((flow.ifindex, flow.dst))

    def commit(self) -> dict[Flow, int]:
        """Sends what is queued; the flows that the kernel refused with their errno. Tables of which nothing is left go.

        OSError: it failed half way. What the kernel was not told stays in the queue, and the next call goes on.
        """
        while self._queue:
            self._send(self._queue[: nl.BATCH])
        if self._pending or self._leaving:
            self.retry()
        self._restored.clear()
        refused, self._refused = self._refused, {}
        return refused

    def _send(self, part: list[tuple[bytearray, Flow | None, _Leaf | None]]) -> None:
        try:
            codes = self._netlink.batch([request for request, _, _ in part])
        except OSError:
            self._repeated = len(part)
            raise
        del self._queue[: len(part)]
        for number, ((_, flow, leaf), code) in enumerate(zip(part, codes, strict=True)):
            if not code or (code == errno.EEXIST and number < self._repeated):
                continue  # done now, or when the answer was lost
            if flow is None or leaf is None or self._leaves.get(flow) is not leaf:
                continue
            if code in MISSING or (flow in self._restored and (code != errno.ENODEV or len(leaf.targets) > 1)):
                self.broken.add(flow.ifindex)  # others are at it just now: once more, after another look
            else:
                self._refused[flow] = code
                self._forget(flow, leaf)
        self._repeated = 0

    def retry(self) -> None:
        """Deletes tables that have no rules; the kernel lets them go a little after the last one."""
        for ifindex, dst in list(self._pending):
            interface = self._interfaces.get(ifindex)
            table = interface.tables.get(dst) if interface else None
            if interface is None or table is None or table.count:
                self._pending.discard((ifindex, dst))
                continue
            if table.link:
                self._netlink.batch([_delete(ifindex, table.link, table.pref)])
                table.link = 0
            code = self._netlink.batch([_delete(ifindex, table.number << 20, table.pref)])[0]
            if code == errno.EBUSY:
                continue
            self._pending.discard((ifindex, dst))
            interface.numbers.discard(table.number)
            del interface.tables[dst]
            if not interface.tables:
                self._leaving.add(ifindex)
        for ifindex in list(self._leaving):
            self._leave(ifindex)

    def _leave(self, ifindex: int) -> None:
        """Nothing of ours is needed on the interface any more. OSError: it is tried again by `retry`."""
        interface = self._interfaces.get(ifindex)
        if interface is None or not interface.tables:
            self._leaving.add(ifindex)
            self._clean(ifindex, interface is not None and interface.made_qdisc)
            self._interfaces.pop(ifindex, None)
        self._leaving.discard(ifindex)

    def _clean(self, ifindex: int, made_qdisc: bool) -> None:
        """Empty preferences go, and a qdisc that is ours and where nobody else has anything."""
        entries = list(self._dump(ifindex))
        ours = {pref for pref, _ in entries if pref in OURS}
        others = any(pref not in OURS for pref, _ in entries) or self._has_egress(ifindex)
        # The mark tells nothing here: it goes with the last rule of its preference.
        made_qdisc = made_qdisc and ifindex not in self.strange
        if made_qdisc and not others:
            body = TCMSG.pack(0, 0, ifindex, QDISC_HANDLE, QDISC_PARENT, 0) + attribute(TCA_KIND, b"clsact\0")
            self._netlink.batch([message(nl.RTM_DELQDISC, 0, body)])
            return
        if made_qdisc:
            return  # the mark stays, so that we know it again
        for pref in sorted(ours & PROTOCOLS.keys()):
            if not any(entry and entry.pref == pref and _is_rule(entry) for _, entry in entries):
                self._netlink.batch([_delete(ifindex, 0, pref)])

    def _has_egress(self, ifindex: int) -> bool:
        return bool(self._netlink.dump(nl.RTM_GETTFILTER, TCMSG.pack(0, 0, ifindex, 0, 0xFFFFFFF3, 0)))

    def gone(self, ifindex: int) -> list[Flow]:
        """An interface was deleted, and with it its filters: the flows that there were."""
        flows = [flow for flow in self._leaves if flow.ifindex == ifindex]
        for flow in flows:
            del self._leaves[flow]
        self._interfaces.pop(ifindex, None)
        self._serving = {tap: to for tap, to in self._serving.items() if ifindex not in (tap, to.ifindex)}
        self._pending = {(index, dst) for index, dst in self._pending if index != ifindex}
        self._leaving.discard(ifindex)
        return flows

    # ---- from the TAP

    def serve(self, tap: int, ifindex: int, addresses: Sequence[bytes], owner: Owner) -> None:
        """What is sent into the TAP goes out by the interface; what is for the interface's own addresses goes to the host (lo)."""
        self._make_qdisc(tap, marked=False)
        every = _selector([_key(0, bytes(4), bytes(4))], TERMINAL) + _redirect(Target(ifindex, owner))
        self._netlink.do(_new(tap, 0, PREF_ALL, every))
        self._serving[tap] = _Serving(ifindex, [], owner)
        self.readdress(tap, addresses)

    def addresses(self, tap: int) -> list[bytes]:
        """Those that `serve` or `readdress` put in force."""
        serving = self._serving.get(tap)
        return serving.addresses if serving else []

    def readdress(self, tap: int, addresses: Sequence[bytes]) -> None:
        """The interface's addresses, as they are now. OSError: they are not in force, and `addresses` says so."""
        serving = self._serving.get(tap)
        if serving is None:
            return
        self._serving[tap] = serving._replace(addresses=[])
        self._netlink.batch([_delete(tap, 0, PREF4), _delete(tap, 0, PREF6)])
        requests = []
        loopback = socket.if_nametoindex("lo")
        for address in addresses:
            pref = PREF4 if len(address) == 4 else PREF6
            keys = _address_keys(address, 16, 24)
            requests.append(_new(tap, 0, pref, _selector(keys, TERMINAL) + _redirect(Target(loopback, serving.owner))))
        for code in self._netlink.batch(requests):
            if code:
                raise OSError(code, os.strerror(code))
        self._serving[tap] = serving._replace(addresses=list(addresses))

    def unserve(self, tap: int) -> None:
        """Whose it was is gone: its filters are not kept in force any more, and go with the device."""
        self._serving.pop(tap, None)

    # ---- what others did to it

    def verify(self, ifindex: int, strange: bool) -> int:
        """Puts back what of ours others have deleted or changed on an interface, or queues it for `commit`: how many filters. `strange`:
        the qdisc that is there now may be somebody else's. OSError: the rest is still to be done."""
        self.broken.discard(ifindex)
        serving = self._serving.get(ifindex)
        if serving:
            return self._verify_serving(ifindex, serving)
        interface = self._interfaces.get(ifindex)
        if interface is None:
            return 0
        if not any(table.count for table in interface.tables.values()):
            interface.made_qdisc &= not strange
            return 0
        entries = {entry.handle: entry for _, entry in self._dump(ifindex) if entry}
        if MARK_TABLE << 20 not in entries and (interface.made_qdisc or not entries):
            self._requalify(ifindex, interface, strange)
        count = 0
        for dst, table in interface.tables.items():
            if table.count and not _is_link(entries.get(table.link), table, dst):
                self._restore_table(ifindex, dst, table, entries)
                count += 1
        if count:  # tables may have been there all the time without anything that led to them
            entries = {entry.handle: entry for _, entry in self._dump(ifindex) if entry}
        return count + self._restore_leaves(ifindex, entries)

    def _anew(self, ifindex: int) -> None:
        """What was made on the interface is not there any more, and nobody has told of it yet."""
        interface = self._interfaces.get(ifindex)
        if interface and any(table.count for table in interface.tables.values()):
            self.verify(ifindex, strange=True)
            return
        self._interfaces.pop(ifindex, None)
        self._pending = {(index, dst) for index, dst in self._pending if index != ifindex}
        self._leaving.discard(ifindex)

    def _requalify(self, ifindex: int, interface: _Interface, strange: bool) -> None:
        """Whose is the qdisc? One that we made lost its mark, or there is none."""
        made = self._make_qdisc(ifindex)
        if interface.made_qdisc and not made and not strange:
            self._netlink.batch([_table_request(ifindex, MARK_TABLE, PREF4, 1)])
            made = True
        interface.made_qdisc = made

    def _restore_table(self, ifindex: int, dst: bytes, table: _Table, entries: dict[int, _Entry]) -> None:
        interface = self._interfaces[ifindex]
        changed = entries.get(table.link)
        if changed and changed.link == table.number << 20:
            self._netlink.batch([_delete(ifindex, table.link, table.pref)])
        there = entries.get(table.number << 20)
        if there and there.pref != table.pref:  # somebody else took the number meanwhile
            taken = {entry.handle >> 20 for entry in entries.values() if entry.divisor and not entry.handle >> 31}
            interface.numbers = taken | {each.number for each in interface.tables.values()} | {MARK_TABLE}
            table.number = next((n for n in TABLES if n not in interface.numbers), 0)
            if not table.number:
                raise OSError(errno.ENOSPC, "no more tables on the interface")
            interface.numbers.add(table.number)
            for flow, leaf in self._leaves.items():
                if leaf.table is table:
                    self._leaves[flow] = leaf._replace(handle=table.number << 20 | leaf.handle & 0xFFFFF)
        table.link = 0
        try:
            # A table outlives the deletion of its preference where another u32 filter is; it is back as soon as an entry leads to it.
            table.link = self._make_link(ifindex, table.number, table.pref, dst)
        except OSError:
            self._netlink.do(_table_request(ifindex, table.number, table.pref))
            table.link = self._make_link(ifindex, table.number, table.pref, dst)

    def _restore_leaves(self, ifindex: int, entries: dict[int, _Entry]) -> int:
        count = 0
        for flow, leaf in self._leaves.items():
            if flow.ifindex != ifindex:
                continue
            found = entries.get(leaf.handle)
            if found:
                if (found.targets, _flow_of(found, ifindex, flow.dst)) == (leaf.targets, flow):
                    continue
                self._queue.append((_delete(ifindex, leaf.handle, leaf.table.pref), None, None))
            self._queue.append((_leaf(flow, leaf), flow, leaf))
            self._restored.add(flow)
            count += 1
        return count

    def _verify_serving(self, tap: int, serving: _Serving) -> int:
        entries = [entry for pref, entry in self._dump(tap) if entry and pref in OURS and entry.targets]
        every = [entry for entry in entries if entry.pref == PREF_ALL and entry.targets == (Target(serving.ifindex, serving.owner),)]
        found = sorted(_address_of(entry, 16, 24) for entry in entries if entry.pref != PREF_ALL)
        if every and found == sorted(serving.addresses):
            return 0
        self._netlink.batch([_delete(tap, 0, PREF_ALL)])
        self.serve(tap, serving.ifindex, serving.addresses, serving.owner)
        return 1 + len(serving.addresses)

    # ---- after a restart

    def recover(self, ifindex: int, taps: set[int]) -> tuple[list[Stored], list[tuple[int, int, Owner]]]:
        """Reads what an earlier daemon left on an interface: its rules, which are this daemon's from now on, and, of a TAP, where its
        frames go (the TAP, the interface and the owner). Nothing is changed."""
        entries = [entry for pref, entry in self._dump(ifindex) if entry and pref in OURS]
        serving = [(ifindex, *target) for e in entries if e.pref == PREF_ALL for target in e.targets]
        if ifindex in taps or serving:
            for tap, target, owner in serving:
                known = [_address_of(e, 16, 24) for e in entries if e.pref != PREF_ALL and e.targets]
                self._serving[tap] = _Serving(target, sorted(known), owner)
            return [], serving
        interface = _Interface(any(e.divisor == 1 and e.handle >> 20 == MARK_TABLE for e in entries))
        interface.numbers = {MARK_TABLE}
        addresses = {e.link >> 20: (_address_of(e, 16, 24), e.handle) for e in entries if e.link}
        for _, entry in self._dump(ifindex):
            if entry and entry.divisor and not entry.handle >> 31:
                interface.numbers.add(entry.handle >> 20)
                if entry.divisor == 256 and entry.pref in (PREF4, PREF6):
                    number = entry.handle >> 20
                    dst, link = addresses.get(number, (b"table %d" % number, 0))
                    interface.tables[dst] = _Table(number, entry.pref, link=link)
        found = []
        for entry in entries:
            number = entry.handle >> 20
            if not entry.targets or number not in addresses:
                continue
            dst = addresses[number][0]
            flow = _flow_of(entry, ifindex, dst)
            if flow is None:
                continue
            table = interface.tables[dst]
            table.buckets.setdefault(entry.handle >> 12 & 0xFF, set()).add(entry.handle & 0xFFF)
            table.count += 1
            self._leaves[flow] = _Leaf(entry.handle, table, entry.targets)
            found += [Stored(flow, *target) for target in entry.targets]
        if interface.tables or interface.made_qdisc:
            self._interfaces[ifindex] = interface
            self._pending |= {(ifindex, dst) for dst, table in interface.tables.items() if not table.count}
        return found, []

    def settle(self) -> None:
        """After the last `recover`: what is left of nothing goes."""
        self.commit()
        for ifindex, interface in list(self._interfaces.items()):
            if not interface.tables:
                self._leave(ifindex)


def _is_link(entry: _Entry | None, table: _Table, dst: bytes) -> bool:
    return entry is not None and (entry.link >> 20, entry.pref, _address_of(entry, 16, 24)) == (table.number, table.pref, dst)


def _is_rule(entry: _Entry) -> bool:
    """Anything but a table of its own accord."""
    return bool(entry.keys or entry.link or (entry.divisor and not entry.handle >> 31))
