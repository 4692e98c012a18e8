"""The daemon's loop: connections, what each may ask for, and who is gone.

One thread. In a turn every connection that has something gets a bounded number of its requests served; rules of all of them go to the
kernel together, and then the answers go out. Who does not read its answers is not read from either, until it does.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import selectors
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from . import _netlink as nl
from . import _protocol as protocol
from . import _tap
from ._crash import Crashes
from ._flows import Flows
from ._groups import Receivers, is_shared
from ._links import Links
from ._log import Log
from ._netlink import Link, Netlink
from ._proof import Closer, holds, netns_cookie, owner_of, peer, user_of
from ._protocol import Flow, MalformedError, Request, is_group
from ._status import of_process, report, unread
from ._tc import Owner, Rules
from ._types import Client, Limits, Process, RefusedError
from ._watch import Watch
from ._xdp import Loans, allow_memory

__all__ = ["Limits", "Server"]

RETRY_S = 0.02
DEAF_S = 0.2
HELLO_S = 5.0
FDS_MOST = 253  # the kernel's limit: what there is no room for it closes itself, and that may wait
RACES = (errno.ENODEV, errno.ESRCH)  # an interface or a process went meanwhile
CAPABILITIES = 0x7  # TAP, redirects, XDP

Answer = tuple["Client", Request, int, str, "Flow | None"]


def _where(error: Exception) -> str:
    """What went wrong, and in which line."""
    trace = traceback.extract_tb(error.__traceback__)
    at = f" ({os.path.basename(trace[-1].filename)}:{trace[-1].lineno})" if trace else ""
    return f"{type(error).__name__}: {error!s:.200}{at}"


class Server:
    """Everything of one network namespace. `listener` is bound and listening, and the caller's to close."""

    def __init__(self, listener: socket.socket, log: Log, limits: Limits | None = None, version: int = 0) -> None:
        self.log = log
        self.limits = limits or Limits()
        self._version = version
        self._listener = listener
        self._netlink = Netlink()
        self._monitor = Netlink(nl.RTMGRP_LINK | nl.RTMGRP_IPV4_IFADDR | nl.RTMGRP_IPV6_IFADDR)
        os.set_blocking(self._monitor.fileno(), False)
        self.rules = Rules(self._netlink)
        self.loans = Loans()
        self.discard = Closer()
        self._remove_tap = _tap.Remover()
        self._receivers = Receivers()
        self._watch = Watch(self.rules, self._netlink, log)
        self._selector = selectors.DefaultSelector()
        self._links = Links(self._netlink)
        self.crashes = Crashes(log, self._links)
        self._processes: dict[Owner, Process] = {}
        self._clients: set[Client] = set()
        self._waiting: set[Client] = set()  # not yet greeted
        self._told: set[Client] = set()  # who may have an answer to STATUS yet to read
        self._deaf_until = 0.0  # nobody is accepted; 0: they are
        self._flows = Flows()
        self._answers: list[Answer] = []
        self._reread = False
        self._stop = False
        self._requests = 0
        self.on_release: list[Callable[[Process], None]] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            self.namespace = netns_cookie(probe)
        listener.setblocking(False)
        self.watch(listener, selectors.EVENT_READ, self._accept)
        self.watch(self._monitor, selectors.EVENT_READ, self._changes)
        self.watch(self.crashes, selectors.EVENT_READ, self.crashes.read)
        self.watch(self._watch, selectors.EVENT_READ, self._watch.read)
        self._links.read()

    # ---- life

    def watch(self, file: Any, events: int, call: Callable[[], None]) -> None:
        """Calls when the file is ready; for what else is served by the same loop."""
        self._selector.register(file, events, call)

    def unwatch(self, file: Any) -> None:
        """Undoes `watch`."""
        self._selector.unregister(file)

    def stop(self) -> None:
        """`run` returns after this turn. From a signal handler, too."""
        self._stop = True

    def run(self) -> None:
        """Serves until `stop`."""
        while not self._stop:
            self.turn(self._timeout())

    def close(self) -> None:
        """What processes have stays in force: a daemon started later takes it over."""
        for client in list(self._clients):
            self._drop(client)
        for process in list(self._processes.values()):
            self._forget_process(process)
        self.loans.close()
        self.crashes.close()
        self._remove_tap.close()
        self._selector.close()
        self._monitor.close()
        self._watch.close()
        self._netlink.close()

    def _timeout(self) -> float | None:
        times = [RETRY_S] if self.rules.pending or self._reread or self.discard.unstarted else []
        if self._deaf_until:
            times.append(max(0.0, self._deaf_until - time.monotonic()))
        if self._waiting:
            times.append(HELLO_S / 5)
        times += [due for due in (self.crashes.due(), self._watch.due()) if due is not None]
        return min(times, default=None)

    def turn(self, timeout: float | None) -> None:
        """Waits at most so long for something, and serves what there is."""
        for key, events in self._selector.select(timeout):
            with self._going_on("serving"):
                if isinstance(key.data, Client):
                    self._serve(key.data, events)
                else:
                    key.data()
        with self._going_on("rules"):
            self._commit()
            if self._watch.turn():
                self._commit()
        if self._reread:
            with self._going_on("reading interfaces"):
                self._read_again()
        self.discard.start()
        if self._waiting:
            self._end_silent()
        if self._deaf_until and time.monotonic() >= self._deaf_until:
            self._deaf_until = 0.0
            self.watch(self._listener, selectors.EVENT_READ, self._accept)
        with self._going_on("resets"):
            self.crashes.turn()

    @contextlib.contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """An error of the kernel's ends a step and never the daemon; what it knew of interfaces is looked up anew."""
        try:
            yield
        except OSError as error:
            if error.errno not in RACES:
                self.log.limited((what,), f"{what}: {error.strerror or error}")
            self._reread = True
        except Exception as error:  # the daemon's own mistake, which shall not be everybody's
            self.log.limited((what,), f"{what}: {_where(error)}")
            self._reread = True

    # ---- the kernel

    def _read_again(self) -> None:
        """Everything of interfaces, and what follows of it."""
        gone = self._links.numbers()
        self._links.read()
        self._reread = False
        for ifindex in gone - self._links.numbers():
            self._link_gone(ifindex)
        for process in self._processes.values():
            for tap, ifindex in process.taps.items():
                if ifindex and self.rules.addresses(tap) != self._links.own(ifindex):
                    with self._going_on("addresses"):
                        self.rules.readdress(tap, self._links.own(ifindex))

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
                self._links.changed(nl.parse_link(body))
            elif kind == nl.RTM_DELLINK:
                self._link_gone(nl.parse_link(body).ifindex)
            else:
                self._reread = True

    def _link_gone(self, ifindex: int) -> None:
        """Its filters and XDP program went with it; of a TAP, the rules that lead to it are to go."""
        self._links.gone(ifindex)
        self._watch.gone(ifindex)
        for flow in self.rules.gone(ifindex):
            self._flows.discard(flow)
        for process in list(self._processes.values()):
            process.loans.pop(ifindex, None)
            for flow in [flow for flow, tap in process.flows.items() if ifindex in (tap, flow.ifindex)]:
                self._remove(process, flow)
                if process.reset and len(process.lost) < self.limits.flows:
                    process.lost.add(flow)
            process.taps.pop(ifindex, None)
            process.made.pop(ifindex, None)
        self.loans.drop(ifindex)

    # ---- processes

    def _process(self, owner: Owner, uid: int, pidfd: int) -> Process:
        process = self._processes.get(owner)
        if process:
            os.close(pidfd)
            return process
        process = self._processes[owner] = Process(owner, uid, pidfd)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._died(process))
        return process

    def _forget_process(self, process: Process) -> None:
        if self._processes.pop(process.owner, None):
            self._selector.unregister(process.pidfd)
            os.close(process.pidfd)
            if process.file >= 0:
                os.close(process.file)
                process.file = -1

    def _died(self, process: Process) -> None:
        for client in [client for client in self._clients if client.process is process]:
            self._drop(client)
        self.release(process, crashed=True)

    def release(self, process: Process, crashed: bool) -> None:
        """All that was made for it goes."""
        if crashed and process.reset:
            with self._going_on("releasing"):
                self.crashes.died(process)
        for flow in list(process.flows):
            with self._going_on("releasing"):
                self._remove(process, flow)
        for ifindex in list(process.loans):
            self.loans.drop(ifindex)
        process.loans.clear()
        for tap in process.taps:
            self.rules.unserve(tap)
        process.taps.clear()
        for tap, name in process.made.items():
            self._remove_tap(tap, name, process.uid)
        process.made.clear()
        for told in self.on_release:
            with self._going_on("releasing"):
                told(process)
        self._forget_process(process)

    def adopt(self, owner: Owner) -> Process | None:
        """A process that an earlier daemon had something for; None: it is no more."""
        if owner in self._processes:
            return self._processes[owner]
        try:
            fd = os.pidfd_open(owner.pid)
        except OSError:
            return None
        try:
            uid = user_of(owner.pid)
            if owner_of(owner.pid, fd) == owner:
                return self._process(owner, uid, fd)
        except OSError:
            pass
        os.close(fd)
        return None

    def recover(self, dry: bool = False) -> tuple[list[str], list[str]]:
        """What earlier daemons left in the kernel: adopted, where the process lives, and removed. Lines that tell of both."""
        kept, removed = [], []
        taps = self._links.taps()
        for ifindex in sorted(self._links.numbers()):
            found, serving = self.rules.recover(ifindex, taps)
            for tap, target, who in serving:
                process = self.adopt(who)
                if process:
                    process.taps[tap] = target
            for stored in found:
                process = self.adopt(stored.owner) if self._links.get(stored.tap) else None
                if process:
                    self._flows.add(process, stored.flow, stored.tap)
                    kept.append(f"{stored.flow} of process {stored.owner.pid}")
                else:
                    self.rules.part(stored.flow, stored.owner)
                    removed.append(f"{stored.flow} of process {stored.owner.pid}, which is no more")
        for tap, (name, who) in self._links.made().items():
            process = self.adopt(who)
            if process:
                process.made[tap] = name
                process.taps.setdefault(tap, 0)
                continue
            removed.append(f"TAP device {name} of process {who.pid}, which is no more")
            if not dry:
                self._remove_tap(tap, name, 0)
        if not dry:
            self.rules.settle()
        return kept, removed

    # ---- connections

    def _accept(self) -> None:
        for _ in range(self.limits.turn):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self.log.refusal("accept", f"a connection cannot be taken: {error.strerror}")
                self.unwatch(self._listener)  # it stays in the backlog: looking again at once would be a loop
                self._deaf_until = time.monotonic() + DEAF_S
                return
            connection.setblocking(False)
            try:
                owner, uid, pidfd = peer(connection)
            except OSError:
                connection.close()
                continue
            known = self._processes.get(owner)
            if known and known.uid != uid:
                self.log.refusal(uid, f"process {owner.pid} is of user {known.uid} for this daemon, and user {uid} connects")
                os.close(pidfd)
                self._close(connection, uid)
                continue
            same_user = sum(client.process.uid == uid for client in self._clients)
            if len(self._clients) >= self.limits.connections or (uid and same_user >= self.limits.user_connections):
                self.log.refusal(("connections", uid), f"user {uid} has too many connections")
                os.close(pidfd)
                self._close(connection, uid)
                continue
            client = Client(connection, self._process(owner, uid, pidfd), time.monotonic())
            client.process.clients += 1
            self._clients.add(client)
            self._waiting.add(client)
            self._selector.register(connection, selectors.EVENT_READ, client)

    def _end_silent(self) -> None:
        now = time.monotonic()
        for client in [client for client in self._waiting if now - client.since > HELLO_S]:
            self.log.refusal(client.process.uid, f"{client} did not say HELLO")
            self._drop(client)

    def _drop(self, client: Client) -> None:
        if client not in self._clients:
            return
        self._clients.discard(client)
        self._waiting.discard(client)
        self._told.discard(client)
        self._selector.unregister(client.socket)
        self._close(client.socket, client.process.uid)
        self._forget_answers(client)
        client.process.clients -= 1

    def _close(self, connection: socket.socket, uid: int) -> None:
        """For the peer at once; itself later, as descriptors may be in what was not read."""
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        self.discard([connection.detach()], uid)

    @staticmethod
    def _forget_answers(client: Client) -> None:
        for _, fds in client.unread:
            for fd in fds:
                os.close(fd)
        client.unread.clear()

    def _hang_up(self, client: Client, crashed: bool) -> None:
        """The connection is the registration: with the last one of a process goes all that it has."""
        process = client.process
        self._drop(client)
        if not process.clients and not self._stop:
            self.release(process, crashed)

    def _serve(self, client: Client, events: int) -> None:
        if client not in self._clients:
            return
        if events & selectors.EVENT_WRITE:
            self._flush(client)
        if not events & selectors.EVENT_READ:
            return
        for _ in range(self.limits.turn):
            if client not in self._clients or len(client.unread) >= self.limits.unread or not self._receive(client):
                return

    def _receive(self, client: Client) -> bool:
        """One message; False: there is none."""
        if self.discard.full(client.process.uid):
            if self.discard.stuck(client.process.uid):
                self.log.refusal(client.process.uid, f"{client}: closing its user's descriptors takes too long")
                self._hang_up(client, crashed=True)
            return False
        try:
            room = protocol.MESSAGE_MAX + 1, socket.CMSG_SPACE(4 * FDS_MOST)
            data, control, _, _ = client.socket.recvmsg(*room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        except OSError:
            data, control = b"", []
        fds = array.array("i")
        for level, kind, value in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(value[: len(value) - len(value) % 4])
        try:
            if not data:
                self._hang_up(client, crashed=True)
                return False
            self._requests += 1
            self._handle(client, data, list(fds))
        finally:
            self.discard(fds, client.process.uid)
        return True

    def _handle(self, client: Client, data: bytes, fds: list[int]) -> None:
        request = Request(0, 0, b"")
        try:
            request = protocol.parse(data)
            if not client.greeted and request.kind != protocol.HELLO:
                raise RefusedError(errno.EPROTO, "HELLO comes first")
            if client.process.elsewhere and request.kind not in (protocol.HELLO, protocol.STATUS, protocol.BYE):
                raise RefusedError(errno.EXDEV, "the process is in another network namespace than this daemon")
            HANDLERS[request.kind](self, client, request, fds)
        except MalformedError as error:
            client.malformed += 1
            self.log.refusal(client.process.uid, f"{client}: {error}")
            self._reply(client, Request(error.kind, error.number, b""), -errno.EINVAL, text=str(error))
            if client.malformed >= self.limits.malformed:
                self._hang_up(client, crashed=True)
        except RefusedError as error:
            self.log.refusal(client.process.uid, f"{client}: {protocol.NAMES.get(request.kind, '')} refused: {error}")
            if request.kind == protocol.FLOW_ADD:  # answered with the others of this turn
                self._answers.append((client, request, -error.code, str(error), None))
            else:
                self._reply(client, request, -error.code, text=str(error))
        except OSError as error:
            text = error.strerror or str(error)
            self.log.refusal(client.process.uid, f"{client}: {protocol.NAMES.get(request.kind, '')}: {text}")
            self._reply(client, request, -(error.errno or errno.EIO), text=text)
        except Exception as error:  # what it has done so far nobody knows
            self.log.refusal(client.process.uid, f"{client}: {protocol.NAMES.get(request.kind, '')}: {_where(error)}")
            self._hang_up(client, crashed=True)

    def _reply(
        self, client: Client, request: Request, result: int, fields: bytes = b"", text: str = "", fds: list[int] | None = None
    ) -> None:
        """The descriptors are closed here, sooner or later."""
        if client not in self._clients:
            for fd in fds or []:
                os.close(fd)
            return
        client.unread.append((protocol.answer(request.kind, request.number, result, fields, text), fds or []))
        self._flush(client)

    def _flush(self, client: Client) -> None:
        while client.unread:
            data, fds = client.unread[0]
            control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                client.socket.sendmsg([data], control, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                self._forget_answers(client)  # it is gone: reading will tell
                break
            client.unread.popleft()
            for fd in fds:
                os.close(fd)
        events = selectors.EVENT_WRITE if client.unread else 0
        events |= selectors.EVENT_READ if len(client.unread) < self.limits.unread else 0
        if events != client.events:
            client.events = events
            self._selector.modify(client.socket, events, client)

    # ---- requests

    def _hello(self, client: Client, request: Request, fds: list[int]) -> None:
        namespace = os.stat(f"/proc/{client.process.owner.pid}/ns/net")
        mine = os.stat("/proc/self/ns/net")
        client.process.elsewhere = (namespace.st_dev, namespace.st_ino) != (mine.st_dev, mine.st_ino)
        client.greeted = True
        self._waiting.discard(client)
        name = request.body[4:68].decode("utf-8", "replace")
        client.process.program = "".join(c if c.isprintable() else "?" for c in name)
        self._reply(client, request, 0, protocol.HELLO_ANSWER.pack(self._version, CAPABILITIES))

    def _tap(self, client: Client, request: Request, fds: list[int]) -> None:
        ifindex, queues, flags = protocol.TAP_ASK.unpack(request.body)
        process = client.process
        if flags & ~protocol.AGAIN or not 1 <= queues <= protocol.QUEUES_MAX:
            raise MalformedError("TAP: wrong flags or number of queues", request.kind, request.number)
        link = self._interface(ifindex) if ifindex else None
        if flags & protocol.AGAIN:
            self._tap_again(process, ifindex, fds)
            self._reply(client, request, 0, protocol.TAP_ANSWER.pack(0, b""))
            return
        if len(process.taps) >= self.limits.taps:
            raise RefusedError(errno.ENOSPC, f"a process has at most {self.limits.taps} TAP devices")
        if self._remove_tap.waiting(process.uid) >= 4 * self.limits.taps:
            raise RefusedError(errno.EBUSY, "TAP devices that the user had are still to be deleted")
        if link and link.kind == "tun":
            raise RefusedError(errno.EINVAL, f"{link.name} is a TAP device itself")
        name, made = _tap.clone(queues)
        try:
            tap = socket.if_nametoindex(name)
            _tap.set_up(self._netlink, tap, process.owner, link.mac if link else b"", link.mtu if link else 0)
            if ifindex:
                self.rules.serve(tap, ifindex, self._links.own(ifindex), process.owner)
        except OSError:
            for fd in made:
                os.close(fd)
            raise
        process.taps[tap], process.made[tap] = ifindex, name
        self._reply(client, request, 0, protocol.TAP_ANSWER.pack(tap, name.encode()), fds=made)

    def _tap_again(self, process: Process, ifindex: int, fds: list[int]) -> None:
        if len(fds) != 1:
            raise RefusedError(errno.EACCES, "a queue of the TAP device must come along")
        try:
            tap = socket.if_nametoindex(_tap.name_of(fds[0]))
        except OSError:
            raise RefusedError(errno.EACCES, "the descriptor is of no TAP device") from None
        holder = next((other for other in self._processes.values() if tap in other.taps), None)
        if holder not in (None, process):
            raise RefusedError(errno.EACCES, "the TAP device is another process's")
        if process.taps.get(tap, ifindex) != ifindex:
            raise RefusedError(errno.EACCES, "the TAP device serves another interface")
        if holder is None:
            if ifindex:
                raise RefusedError(errno.EACCES, "the TAP device is none of this daemon's")
            process.taps[tap] = ifindex

    def _interface(self, ifindex: int) -> Link:
        link = self._links.get(ifindex)
        if link is None:
            self._read_again()
            link = self._links.get(ifindex)
        if link is None:
            raise RefusedError(errno.ENODEV, f"no interface has number {ifindex}")
        if len(link.mac) != 6 or link.name == "lo":
            raise RefusedError(errno.EOPNOTSUPP, f"{link.name} is not an Ethernet interface")
        return link

    def _flow_add(self, client: Client, request: Request, fds: list[int]) -> None:
        flow, tap, flags = protocol.flow(request)
        process = client.process
        if process.flows.get(flow) == tap:
            self._reply(client, request, 0)
            return
        self._may_have(process, flow, tap)
        if flow.port_key not in process.held:
            why = holds(fds[0], flow, self.namespace) if len(fds) == 1 else "no socket came with the request"
            if why:
                raise RefusedError(errno.EACCES, f"{flow}: {why}")
        if tap:
            self._redirect(process, flow, tap)
        else:
            process.loans[flow.ifindex].add(flow, bool(flags & protocol.SOLE))
            self._flows.add(process, flow, tap)
        self.crashes.resets.forget(flow)
        self._answers.append((client, request, 0, "", flow))

    def _may_have(self, process: Process, flow: Flow, tap: int) -> None:
        """All but that it holds the port. RefusedError."""
        self._interface(flow.ifindex)
        if not self._links.has(flow):
            self._read_again()
            if not self._links.has(flow):
                raise RefusedError(errno.EACCES, f"{flow}: the interface does not have this address")
        if tap and process.taps.get(tap, -1) != flow.ifindex:
            raise RefusedError(errno.EACCES, f"no TAP device {tap} of the process serves this interface")
        if not tap and flow.ifindex not in process.loans:
            raise RefusedError(errno.EACCES, "the process has no XDP program on the interface")
        if self._flows.of_another_user(process, flow):
            raise RefusedError(errno.EACCES, f"{flow}: another user's process has flows of this port")
        if self._flows.holder(flow) and not self._may_share(process, flow, tap):
            raise RefusedError(errno.EEXIST, f"{flow} is there already")
        self._not_of_others(process, flow)
        if len(process.flows) >= self.limits.flows:
            raise RefusedError(errno.ENOSPC, f"a process has at most {self.limits.flows} flows")

    def _may_share(self, process: Process, flow: Flow, tap: int) -> bool:
        """Of what is for a group, or for all, each process of a user gets a copy, as each socket of the host would."""
        if not tap or flow in process.flows or flow.proto != socket.IPPROTO_UDP:
            return False
        shared = is_group(flow.dst) or self._links.is_broadcast(flow.dst)  # of whatever interface: lo has a copy of VMA's
        return shared and self._flows.all_redirected(flow)

    def _redirect(self, process: Process, flow: Flow, tap: int) -> None:
        """Queues a rule, or one TAP more for it."""
        if self._flows.holder(flow):
            self.rules.join(flow, tap, process.owner)
        else:
            self.rules.add(flow, tap, process.owner)
        self._flows.add(process, flow, tap)

    def _not_of_others(self, process: Process, flow: Flow) -> None:
        """What is redirected the host does not see: another user's member of the group would hear nothing any more."""
        if flow.proto == socket.IPPROTO_UDP and is_shared(flow, self._links.addresses(flow.ifindex)):
            user = self._receivers.other(flow, process.uid)
            if user is not None:
                raise RefusedError(errno.EACCES, f"{flow}: user {user} has a socket that receives it, too")

    def _remove(self, process: Process, flow: Flow) -> None:
        tap = process.flows[flow]
        self._flows.remove(process, flow)
        if tap:
            self.rules.part(flow, process.owner)
        elif flow.ifindex in process.loans:
            process.loans[flow.ifindex].delete(flow)

    def _flow_del(self, client: Client, request: Request, fds: list[int]) -> None:
        flow, tap, _ = protocol.flow(request)
        process = client.process
        if flow not in process.flows and self._flows.holder(flow):
            raise RefusedError(errno.EACCES, f"{flow} is another process's")
        process.lost.discard(flow)
        if process.flows.get(flow, -1) != tap:
            raise RefusedError(errno.ENOENT, f"{flow} is not there")
        self._remove(process, flow)
        self._answers.append((client, request, 0, "", None))

    def _xdp(self, client: Client, request: Request, fds: list[int]) -> None:
        ifindex, queues, flags = protocol.XDP_ASK.unpack(request.body)
        process = client.process
        if flags & ~(protocol.AGAIN | 3) or flags & 3 == 3 or queues > protocol.QUEUES_MAX:
            raise MalformedError("XDP: wrong flags or number of queues", request.kind, request.number)
        link = self._interface(ifindex)
        holder = next((other for other in self._processes.values() if ifindex in other.loans), None)
        if flags & protocol.AGAIN:
            self._xdp_again(process, ifindex, holder, fds)
            self._reply(client, request, 0, protocol.XDP_ANSWER.pack(0, 0))
            return
        if holder is not None:
            raise RefusedError(errno.EBUSY, f"process {holder.owner.pid} has {link.name} for AF_XDP")
        if len(process.loans) >= self.limits.loans:
            raise RefusedError(errno.ENOSPC, f"a process has at most {self.limits.loans} interfaces for AF_XDP")
        loan, passed, native = self.loans.make(link, queues, flags & 3)
        process.loans[ifindex] = loan
        why = allow_memory(process.owner.pid)
        if why:
            self.log.refusal(process.uid, f"{client}: {why}")
        fields = protocol.XDP_ANSWER.pack(len(passed) - 1, protocol.XDP_NATIVE if native else 0)
        self._reply(client, request, 0, fields, fds=passed)

    def _xdp_again(self, process: Process, ifindex: int, holder: Process | None, fds: list[int]) -> None:
        if holder is process:
            return
        if holder is not None or len(fds) != 1:
            raise RefusedError(errno.EACCES, "the link of the XDP program must come along")
        loan = self.loans.again(fds[0], ifindex)
        process.loans[ifindex] = loan
        for flow in loan.flows():
            if not self._flows.holder(flow):
                self._flows.add(process, flow, 0)

    def _xdp_drop(self, client: Client, request: Request, fds: list[int]) -> None:
        (ifindex,) = protocol.U32.unpack(request.body)
        process = client.process
        if ifindex not in process.loans:
            raise RefusedError(errno.ENOENT, "the process has no XDP program there")
        del process.loans[ifindex]
        for flow in [flow for flow, tap in process.flows.items() if flow.ifindex == ifindex and not tap]:
            self._flows.remove(process, flow)
        self.loans.drop(ifindex)
        self._reply(client, request, 0)

    def _status(self, client: Client, request: Request, fds: list[int]) -> None:
        """One answer at a time: each is a file in memory, for as long as nobody reads it."""
        user = client.process.uid
        for other in [other for other in self._told if other is client or (user and other.process.uid == user)]:
            if other.unread or unread(other.socket):
                raise RefusedError(errno.EBUSY, "the answer to an earlier STATUS of this user is still to be read")
            self._told.discard(other)
        answer = report(self.status(user))
        self._told.add(client)
        self._reply(client, request, 0, fds=[answer])

    def _crash(self, client: Client, request: Request, fds: list[int]) -> None:
        (flags,) = protocol.U32.unpack(request.body)
        if flags & ~protocol.CRASH_RST:
            raise MalformedError("CRASH: unknown flags", request.kind, request.number)
        if len(fds) > 1:
            raise MalformedError("CRASH: one file at most", request.kind, request.number)
        process = client.process
        why = self.crashes.take(process, fds[0]) if fds else ""
        if why:
            raise RefusedError(errno.EACCES, f"the statistics file: {why}")
        process.reset = bool(flags & protocol.CRASH_RST)
        self._reply(client, request, 0)

    def _neigh(self, client: Client, request: Request, fds: list[int]) -> None:
        ifindex, family, address = protocol.NEIGH_ASK.unpack(request.body)
        process = client.process
        if ifindex not in process.loans and ifindex not in process.taps.values():
            raise RefusedError(errno.EACCES, "the process has nothing on that interface")
        size = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family)
        if size is None:
            raise MalformedError(f"NEIGH: family {family}", request.kind, request.number)
        self._netlink.do(nl.resolve(ifindex, family, address[:size]))
        self._reply(client, request, 0)

    def _bye(self, client: Client, request: Request, fds: list[int]) -> None:
        self._reply(client, request, 0)
        self._hang_up(client, crashed=False)

    # ---- for processes that speak another protocol

    def serve_tap(self, process: Process, tap: int, ifindex: int) -> None:
        """What the process's own TAP is sent goes out by the interface. RefusedError, OSError."""
        link = self._interface(ifindex)
        device = self._links.get(tap)
        if device is None or device.kind != "tun" or any(tap in other.taps for other in self._processes.values() if other is not process):
            raise RefusedError(errno.EACCES, f"no TAP device {tap} of the process")
        if tap not in process.taps:
            self.rules.serve(tap, link.ifindex, self._links.own(ifindex), process.owner)
            process.taps[tap] = ifindex

    def redirect(self, process: Process, flow: Flow, tap: int) -> None:
        """A rule and the same for what the host itself sends (lo); in force when this returns. RefusedError, OSError."""
        wanted = [flow]
        if not (flow.whole and self._links.is_own(flow.src)):
            wanted.append(replace(flow, ifindex=socket.if_nametoindex("lo")))
        wanted = [each for each in wanted if each not in process.flows]
        for each in wanted:  # both or none
            if each is flow:
                self._may_have(process, flow, tap)
            elif self._flows.holder(each) and not self._may_share(process, each, tap):
                raise RefusedError(errno.EEXIST, f"{flow} is another process's")
        for each in wanted:
            self._redirect(process, each, tap)
        self._commit()
        if flow not in process.flows:
            raise RefusedError(errno.EIO, f"{flow}: the kernel refuses the rule")

    def remove_flow(self, process: Process, flow: Flow) -> None:
        """Undoes `redirect`. RefusedError."""
        if flow not in process.flows:
            raise RefusedError(errno.ENOENT, f"{flow} is not there")
        for each in (flow, replace(flow, ifindex=socket.if_nametoindex("lo"))):
            if each in process.flows:
                self._remove(process, each)
        self._commit()

    def _commit(self) -> None:
        """The rules of this turn, and then the answers of those who asked."""
        self._receivers.forget()  # who has its answer may ask about what has changed since
        refused = self.rules.commit()
        answers, self._answers = self._answers, []
        for failed in refused:
            self._flows.discard(failed)
        for client, request, result, text, flow in answers:
            if flow is not None and flow in refused:
                result, text = -refused[flow], os.strerror(refused[flow])
                self.log.refusal(client.process.uid, f"{client}: {flow}: {text}")
            self._reply(client, request, result, text=text)

    # ---- what is there

    def status(self, uid: int = 0) -> dict[str, Any]:
        """For `pyvmad status`: flows only of the user's own processes, or of all for root."""
        counts = self.rules.counts()
        names = self._links.names()
        return {
            "pid": os.getpid(),
            "requests": self._requests,
            "refusals": self.log.refusals,
            "not_logged": self.log.suppressed,
            "interfaces": [{"ifindex": index, "name": names.get(index, ""), **count} for index, count in sorted(counts.items())],
            "processes": [of_process(process, names, uid) for process in self._processes.values()],
        }


HANDLERS: dict[int, Callable[[Server, Client, Request, list[int]], None]] = {
    protocol.HELLO: Server._hello,
    protocol.TAP: Server._tap,
    protocol.FLOW_ADD: Server._flow_add,
    protocol.FLOW_DEL: Server._flow_del,
    protocol.XDP: Server._xdp,
    protocol.XDP_DROP: Server._xdp_drop,
    protocol.STATUS: Server._status,
    protocol.CRASH: Server._crash,
    protocol.BYE: Server._bye,
    protocol.NEIGH: Server._neigh,
}
