"""What processes have: TAP devices, rules, AF_XDP programs. Who may have what, what earlier daemons left, and what goes with whom is gone.

Nothing here knows connections: processes may ask in whatever protocol. Rules are queued, and go to the kernel with `commit`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from . import _netlink as nl
from . import _tap
from ._crash import Crashes
from ._flows import Flows
from ._groups import Receivers, is_shared
from ._links import Links
from ._log import Log, where
from ._netlink import Link, Netlink
from ._proof import owner_of, user_of
from ._protocol import Flow, is_group
from ._status import of_process
from ._tc import Owner, Rules
from ._types import Limits, Process, RefusedError
from ._watch import Watch
from ._xdp import Loans

__all__ = ["Grants"]

RACES = (errno.ENODEV, errno.ESRCH)  # an interface or a process went meanwhile


class Loop(Protocol):
    """Who serves processes."""

    def watch(self, file: Any, events: int, call: Callable[[], None]) -> None:
        """Calls when the file is ready."""

    def unwatch(self, file: Any) -> None:
        """Undoes `watch`."""

    def died(self, process: Process) -> None:
        """It is to be released."""


class Grants:
    """Of one network namespace."""

    def __init__(self, loop: Loop, log: Log, limits: Limits) -> None:
        self._loop = loop
        self._log = log
        self._limits = limits
        self._netlink = Netlink()
        self._monitor = Netlink(nl.RTMGRP_LINK | nl.RTMGRP_IPV4_IFADDR | nl.RTMGRP_IPV6_IFADDR)
        os.set_blocking(self._monitor.fileno(), False)
        self._rules = Rules(self._netlink)
        self._loans = Loans()
        self._remove_tap = _tap.Remover()
        self._receivers = Receivers()
        self._watch = Watch(self._rules, self._netlink, log)
        self.links = Links(self._netlink)
        self.flows = Flows()
        self.crashes = Crashes(log, self.links)
        self.processes: dict[Owner, Process] = {}
        self.on_release: list[Callable[[Process], None]] = []
        self._reread = False
        loop.watch(self._monitor, selectors.EVENT_READ, self._changes)
        loop.watch(self.crashes, selectors.EVENT_READ, self.crashes.read)
        loop.watch(self._watch, selectors.EVENT_READ, self._watch.read)
        self.links.read()

    def close(self) -> None:
        """What processes have stays in force: a daemon started later takes it over."""
        for process in list(self.processes.values()):
            self._forget(process)
        self._loans.close()
        self.crashes.close()
        self._remove_tap.close()
        self._monitor.close()
        self._watch.close()
        self._netlink.close()

    @contextlib.contextmanager
    def going_on(self, what: str) -> Iterator[None]:
        """An error of the kernel's ends a step and never the daemon; what it knew of interfaces is looked up anew."""
        try:
            yield
        except OSError as error:
            if error.errno not in RACES:
                self._log.limited((what,), f"{what}: {error.strerror or error}")
            self._reread = True
        except Exception as error:  # the daemon's own mistake, which shall not be everybody's
            self._log.limited((what,), f"{what}: {where(error)}")
            self._reread = True

    # ---- the loop's turns

    @property
    def unfinished(self) -> bool:
        """Is there something for which nobody will call?"""
        return self._rules.pending or self._reread

    def due(self) -> list[float]:
        """Seconds until `turn` has something to do."""
        return [due for due in (self.crashes.due(), self._watch.due()) if due is not None]

    def commit(self) -> dict[Flow, int]:
        """The rules that were queued go to the kernel; those that it refuses, with the errno."""
        self._receivers.forget()  # who has its answer may ask about what has changed since
        refused = self._rules.commit()
        for failed in refused:
            self.flows.discard(failed)
        return refused

    def repair(self) -> bool:
        """What others deleted or changed is queued again: is there any?"""
        return self._watch.turn()

    def turn(self) -> None:
        """What is left of a turn when its requests are answered."""
        if self._reread:
            with self.going_on("reading interfaces"):
                self.read_again()
        with self.going_on("resets"):
            self.crashes.turn()

    # ---- the kernel

    def read_again(self) -> None:
        """Everything of interfaces, and what follows of it."""
        gone = self.links.numbers()
        self.links.read()
        self._reread = False
        for ifindex in gone - self.links.numbers():
            self._link_gone(ifindex)
        for process in self.processes.values():
            for tap, ifindex in process.taps.items():
                if ifindex and self._rules.addresses(tap) != self.links.own(ifindex):
                    with self.going_on("addresses"):
                        self._rules.readdress(tap, self.links.own(ifindex))

    def _changes(self) -> None:
        try:
            changes = self._monitor.changes()
        except OSError:  # some were lost
            self._reread = True
            return
        for kind, body in changes:
            if kind in (nl.RTM_NEWLINK, nl.RTM_DELLINK) and nl.family(body) != socket.AF_UNSPEC:
                continue  # of a bridge's port, or IPv6's settings: the link is as it was
            if kind == nl.RTM_NEWLINK:
                self.links.changed(nl.parse_link(body))
            elif kind == nl.RTM_DELLINK:
                self._link_gone(nl.parse_link(body).ifindex)
            else:
                self._reread = True

    def _link_gone(self, ifindex: int) -> None:
        """Its filters and XDP program went with it; of a TAP, the rules that lead to it are to go."""
        self.links.gone(ifindex)
        self._watch.gone(ifindex)
        for flow in self._rules.gone(ifindex):
            self.flows.discard(flow)
        for process in list(self.processes.values()):
            process.loans.pop(ifindex, None)
            for flow in [flow for flow, tap in process.flows.items() if ifindex in (tap, flow.ifindex)]:
                self.remove(process, flow)
                if process.reset and len(process.lost) < self._limits.flows:
                    process.lost.add(flow)
            process.taps.pop(ifindex, None)
            process.made.pop(ifindex, None)
        self._loans.drop(ifindex)

    def interface(self, ifindex: int) -> Link:
        """An Ethernet interface of the namespace. RefusedError."""
        link = self.links.get(ifindex)
        if link is None:
            self.read_again()
            link = self.links.get(ifindex)
        if link is None:
            raise RefusedError(errno.ENODEV, f"no interface has number {ifindex}")
        if len(link.mac) != 6 or link.name == "lo":
            raise RefusedError(errno.EOPNOTSUPP, f"{link.name} is not an Ethernet interface")
        return link

    def resolve(self, process: Process, ifindex: int, family: int, address: bytes) -> None:
        """The kernel asks for a neighbour on an interface that the process has something on. RefusedError, OSError."""
        if ifindex not in process.loans and ifindex not in process.taps.values():
            raise RefusedError(errno.EACCES, "the process has nothing on that interface")
        self._netlink.do(nl.resolve(ifindex, family, address))

    # ---- processes

    def process(self, owner: Owner, uid: int, pidfd: int) -> Process:
        """It, known from now on; the descriptor is ours."""
        known = self.processes.get(owner)
        if known:
            os.close(pidfd)
            return known
        process = self.processes[owner] = Process(owner, uid, pidfd)
        self._loop.watch(pidfd, selectors.EVENT_READ, lambda: self._loop.died(process))
        return process

    def _forget(self, process: Process) -> None:
        if self.processes.pop(process.owner, None):
            self._loop.unwatch(process.pidfd)
            os.close(process.pidfd)
            if process.file >= 0:
                os.close(process.file)
                process.file = -1

    def release(self, process: Process, crashed: bool) -> None:
        """All that was made for it goes."""
        if crashed and process.reset:
            with self.going_on("releasing"):
                self.crashes.died(process)
        for flow in list(process.flows):
            with self.going_on("releasing"):
                self.remove(process, flow)
        for ifindex in list(process.loans):
            self._loans.drop(ifindex)
        process.loans.clear()
        for tap in process.taps:
            self._rules.unserve(tap)
        process.taps.clear()
        for tap, name in process.made.items():
            self._remove_tap(tap, name, process.uid)
        process.made.clear()
        for told in self.on_release:
            with self.going_on("releasing"):
                told(process)
        self._forget(process)

    def adopt(self, owner: Owner) -> Process | None:
        """A process that an earlier daemon had something for; None: it is no more."""
        if owner in self.processes:
            return self.processes[owner]
        try:
            fd = os.pidfd_open(owner.pid)
        except OSError:
            return None
        try:
            uid = user_of(owner.pid)
            if owner_of(owner.pid, fd) == owner:
                return self.process(owner, uid, fd)
        except OSError:
            pass
        os.close(fd)
        return None

    def recover(self, dry: bool = False) -> tuple[list[str], list[str]]:
        """What earlier daemons left in the kernel: adopted, where the process lives, and removed. Lines that tell of both."""
        kept, removed = [], []
        taps = self.links.taps()
        for ifindex in sorted(self.links.numbers()):
            found, serving = self._rules.recover(ifindex, taps)
            for tap, target, who in serving:
                process = self.adopt(who)
                if process:
                    process.taps[tap] = target
            for stored in found:
                process = self.adopt(stored.owner) if self.links.get(stored.tap) else None
                if process:
                    self.flows.add(process, stored.flow, stored.tap)
                    kept.append(f"{stored.flow} of process {stored.owner.pid}")
                else:
                    self._rules.part(stored.flow, stored.owner)
                    removed.append(f"{stored.flow} of process {stored.owner.pid}, which is no more")
        for tap, (name, who) in self.links.made().items():
            process = self.adopt(who)
            if process:
                process.made[tap] = name
                process.taps.setdefault(tap, 0)
                continue
            removed.append(f"TAP device {name} of process {who.pid}, which is no more")
            if not dry:
                self._remove_tap(tap, name, 0)
        if not dry:
            self._rules.settle()
        return kept, removed

    # ---- TAP devices

    def make_tap(self, process: Process, ifindex: int, queues: int) -> tuple[int, str, list[int]]:
        """Number, name and descriptors of a new one; what it is sent goes out by `ifindex`, unless 0. RefusedError, OSError."""
        link = self.interface(ifindex) if ifindex else None
        if len(process.taps) >= self._limits.taps:
            raise RefusedError(errno.ENOSPC, f"a process has at most {self._limits.taps} TAP devices")
        if self._remove_tap.waiting(process.uid) >= 4 * self._limits.taps:
            raise RefusedError(errno.EBUSY, "TAP devices that the user had are still to be deleted")
        if link and link.kind == "tun":
            raise RefusedError(errno.EINVAL, f"{link.name} is a TAP device itself")
        name, made = _tap.clone(queues)
        try:
            tap = socket.if_nametoindex(name)
            _tap.set_up(self._netlink, tap, process.owner, link.mac if link else b"", link.mtu if link else 0)
            if ifindex:
                self._rules.serve(tap, ifindex, self.links.own(ifindex), process.owner)
        except OSError:
            for fd in made:
                os.close(fd)
            raise
        process.taps[tap], process.made[tap] = ifindex, name
        return tap, name, made

    def take_tap(self, process: Process, ifindex: int, fds: list[int]) -> None:
        """One that the process has from an earlier daemon; the descriptor of a queue shows it. RefusedError."""
        if ifindex:
            self.interface(ifindex)
        if len(fds) != 1:
            raise RefusedError(errno.EACCES, "a queue of the TAP device must come along")
        try:
            tap = socket.if_nametoindex(_tap.name_of(fds[0]))
        except OSError:
            raise RefusedError(errno.EACCES, "the descriptor is of no TAP device") from None
        holder = next((other for other in self.processes.values() if tap in other.taps), None)
        if holder not in (None, process):
            raise RefusedError(errno.EACCES, "the TAP device is another process's")
        if process.taps.get(tap, ifindex) != ifindex:
            raise RefusedError(errno.EACCES, "the TAP device serves another interface")
        if holder is None:
            if ifindex:
                raise RefusedError(errno.EACCES, "the TAP device is none of this daemon's")
            process.taps[tap] = ifindex

    def serve_tap(self, process: Process, tap: int, ifindex: int) -> None:
        """What the process's own TAP is sent goes out by the interface. RefusedError, OSError."""
        link = self.interface(ifindex)
        device = self.links.get(tap)
        if device is None or device.kind != "tun" or any(tap in other.taps for other in self.processes.values() if other is not process):
            raise RefusedError(errno.EACCES, f"no TAP device {tap} of the process")
        if tap not in process.taps:
            self._rules.serve(tap, link.ifindex, self.links.own(ifindex), process.owner)
            process.taps[tap] = ifindex

    # ---- flows

    def may_have(self, process: Process, flow: Flow, tap: int) -> None:
        """All but that it holds the port. RefusedError."""
        self.interface(flow.ifindex)
        if not self.links.has(flow):
            self.read_again()
            if not self.links.has(flow):
                raise RefusedError(errno.EACCES, f"{flow}: the interface does not have this address")
        if tap and process.taps.get(tap, -1) != flow.ifindex:
            raise RefusedError(errno.EACCES, f"no TAP device {tap} of the process serves this interface")
        if not tap and flow.ifindex not in process.loans:
            raise RefusedError(errno.EACCES, "the process has no XDP program on the interface")
        if self.flows.of_another_user(process, flow):
            raise RefusedError(errno.EACCES, f"{flow}: another user's process has flows of this port")
        if self.flows.holder(flow) and not self.may_share(process, flow, tap):
            raise RefusedError(errno.EEXIST, f"{flow} is there already")
        self._not_of_others(process, flow)
        if len(process.flows) >= self._limits.flows:
            raise RefusedError(errno.ENOSPC, f"a process has at most {self._limits.flows} flows")

    def may_share(self, process: Process, flow: Flow, tap: int) -> bool:
        """Of what is for a group, or for all, each process of a user gets a copy, as each socket of the host would."""
        if not tap or flow in process.flows or flow.proto != socket.IPPROTO_UDP:
            return False
        shared = is_group(flow.dst) or self.links.is_broadcast(flow.dst)  # of whatever interface: lo has a copy of VMA's
        return shared and self.flows.all_redirected(flow)

    def _not_of_others(self, process: Process, flow: Flow) -> None:
        """What is redirected the host does not see: another user's member of the group would hear nothing any more."""
        if flow.proto == socket.IPPROTO_UDP and is_shared(flow, self.links.addresses(flow.ifindex)):
            user = self._receivers.other(flow, process.uid)
            if user is not None:
                raise RefusedError(errno.EACCES, f"{flow}: user {user} has a socket that receives it, too")

    def add(self, process: Process, flow: Flow, tap: int, sole: bool = False) -> None:
        """To a TAP: queues a rule, or one TAP more for it. To AF_XDP (0): at once; `sole` as pv_flow has it."""
        if not tap:
            process.loans[flow.ifindex].add(flow, sole)
        elif self.flows.holder(flow):
            self._rules.join(flow, tap, process.owner)
        else:
            self._rules.add(flow, tap, process.owner)
        self.flows.add(process, flow, tap)
        self.crashes.resets.forget(flow)

    def remove(self, process: Process, flow: Flow) -> None:
        """Undoes `add`."""
        tap = process.flows[flow]
        self.flows.remove(process, flow)
        if tap:
            self._rules.part(flow, process.owner)
        elif flow.ifindex in process.loans:
            process.loans[flow.ifindex].delete(flow)

    # ---- AF_XDP

    def _borrower(self, ifindex: int) -> Process | None:
        return next((process for process in self.processes.values() if ifindex in process.loans), None)

    def lend_xdp(self, process: Process, ifindex: int, queues: int, mode: int) -> tuple[list[int], bool]:
        """Descriptors, the caller's, of the program's link and its sockets; is it native? RefusedError, OSError."""
        link = self.interface(ifindex)
        holder = self._borrower(ifindex)
        if holder is not None:
            raise RefusedError(errno.EBUSY, f"process {holder.owner.pid} has {link.name} for AF_XDP")
        if len(process.loans) >= self._limits.loans:
            raise RefusedError(errno.ENOSPC, f"a process has at most {self._limits.loans} interfaces for AF_XDP")
        loan, passed, native = self._loans.make(link, queues, mode)
        process.loans[ifindex] = loan
        return passed, native

    def take_xdp(self, process: Process, ifindex: int, fds: list[int]) -> None:
        """What the process has from an earlier daemon; the program's link shows it. RefusedError, OSError."""
        self.interface(ifindex)
        holder = self._borrower(ifindex)
        if holder is process:
            return
        if holder is not None or len(fds) != 1:
            raise RefusedError(errno.EACCES, "the link of the XDP program must come along")
        loan = self._loans.again(fds[0], ifindex)
        process.loans[ifindex] = loan
        for flow in loan.flows():
            if not self.flows.holder(flow):
                self.flows.add(process, flow, 0)

    def drop_xdp(self, process: Process, ifindex: int) -> None:
        """Its rules go with it. RefusedError."""
        if ifindex not in process.loans:
            raise RefusedError(errno.ENOENT, "the process has no XDP program there")
        del process.loans[ifindex]
        for flow in [flow for flow, tap in process.flows.items() if flow.ifindex == ifindex and not tap]:
            self.flows.remove(process, flow)
        self._loans.drop(ifindex)

    # ---- what is there

    def status(self, uid: int) -> dict[str, Any]:
        """Interfaces with rules, and processes; flows only of the user's own, or of all for root."""
        names = self.links.names()
        counts = sorted(self._rules.counts().items())
        return {
            "interfaces": [{"ifindex": index, "name": names.get(index, ""), **count} for index, count in counts],
            "processes": [of_process(process, names, uid) for process in self.processes.values()],
        }
