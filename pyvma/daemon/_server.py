"""The daemon's loop: connections, their requests and the answers.

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
from collections.abc import Callable
from typing import Any

from . import _protocol as protocol
from ._grants import Grants
from ._log import Log, where
from ._proof import Closer, holds, netns_cookie, peer
from ._protocol import Flow, MalformedError, Request
from ._status import report, unread
from ._types import Client, Limits, Process, RefusedError
from ._xdp import allow_memory

__all__ = ["Server"]

RETRY_S = 0.02
DEAF_S = 0.2
HELLO_S = 5.0
FDS_MOST = 253  # the kernel's limit: what there is no room for it closes itself, and that may wait
CAPABILITIES = 0x7  # TAP, redirects, XDP

Answer = tuple["Client", Request, int, str, "Flow | None"]


class Server:
    """Everything of one network namespace. `listener` is bound and listening, and the caller's to close."""

    def __init__(self, listener: socket.socket, log: Log, limits: Limits | None = None, version: Callable[[], int] = int) -> None:
        self.log = log
        self.limits = limits or Limits()
        self._version = version
        self._listener = listener
        self.discard = Closer()
        self._selector = selectors.DefaultSelector()
        self._clients: set[Client] = set()
        self._waiting: set[Client] = set()  # not yet greeted
        self._told: set[Client] = set()  # who may have an answer to STATUS yet to read
        self._deaf_until = 0.0  # nobody is accepted; 0: they are
        self._answers: list[Answer] = []
        self._stop = False
        self._requests = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            self.namespace = netns_cookie(probe)
        listener.setblocking(False)
        self.watch(listener, selectors.EVENT_READ, self._accept)
        self.grants = Grants(self, log, self.limits)

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
        self.grants.close()
        self._selector.close()

    def _timeout(self) -> float | None:
        times = [RETRY_S] if self.grants.unfinished or self.discard.unstarted else []
        if self._deaf_until:
            times.append(max(0.0, self._deaf_until - time.monotonic()))
        if self._waiting:
            times.append(HELLO_S / 5)
        return min(times + self.grants.due(), default=None)

    def turn(self, timeout: float | None) -> None:
        """Waits at most so long for something, and serves what there is."""
        for key, events in self._selector.select(timeout):
            with self.grants.going_on("serving"):
                if isinstance(key.data, Client):
                    self._serve(key.data, events)
                else:
                    key.data()
        with self.grants.going_on("rules"):
            self.commit()
            if self.grants.repair():
                self.commit()
        self.discard.start()
        if self._waiting:
            self._end_silent()
        if self._deaf_until and time.monotonic() >= self._deaf_until:
            self._deaf_until = 0.0
            self.watch(self._listener, selectors.EVENT_READ, self._accept)
        self.grants.turn()

    def commit(self) -> None:
        """The rules of this turn, and then the answers of those who asked."""
        refused = self.grants.commit()
        answers, self._answers = self._answers, []
        for client, request, result, text, flow in answers:
            if flow is not None and flow in refused:
                result, text = -refused[flow], os.strerror(refused[flow])
                self.log.refusal(client.process.uid, f"{client}: {flow}: {text}")
            self._reply(client, request, result, text=text)

    def died(self, process: Process) -> None:
        """All that it had goes."""
        for client in [client for client in self._clients if client.process is process]:
            self._drop(client)
        self.grants.release(process, crashed=True)

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
            known = self.grants.processes.get(owner)
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
            client = Client(connection, self.grants.process(owner, uid, pidfd), time.monotonic())
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
            self.grants.release(process, crashed)

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
            self.log.refusal(client.process.uid, f"{client}: {protocol.NAMES.get(request.kind, '')}: {where(error)}")
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
        self._reply(client, request, 0, protocol.HELLO_ANSWER.pack(self._version(), CAPABILITIES))

    def _tap(self, client: Client, request: Request, fds: list[int]) -> None:
        ifindex, queues, flags = protocol.TAP_ASK.unpack(request.body)
        if flags & ~protocol.AGAIN or not 1 <= queues <= protocol.QUEUES_MAX:
            raise MalformedError("TAP: wrong flags or number of queues", request.kind, request.number)
        if flags & protocol.AGAIN:
            self.grants.take_tap(client.process, ifindex, fds)
            self._reply(client, request, 0, protocol.TAP_ANSWER.pack(0, b""))
            return
        tap, name, made = self.grants.make_tap(client.process, ifindex, queues)
        self._reply(client, request, 0, protocol.TAP_ANSWER.pack(tap, name.encode()), fds=made)

    def _flow_add(self, client: Client, request: Request, fds: list[int]) -> None:
        flow, tap, flags = protocol.flow(request)
        process = client.process
        if process.flows.get(flow) == tap:
            self._reply(client, request, 0)
            return
        self.grants.may_have(process, flow, tap)
        if flow.port_key not in process.held:
            why = holds(fds[0], flow, self.namespace) if len(fds) == 1 else "no socket came with the request"
            if why:
                raise RefusedError(errno.EACCES, f"{flow}: {why}")
        self.grants.add(process, flow, tap, bool(flags & protocol.SOLE))
        self._answers.append((client, request, 0, "", flow))

    def _flow_del(self, client: Client, request: Request, fds: list[int]) -> None:
        flow, tap, _ = protocol.flow(request)
        process = client.process
        if flow not in process.flows and self.grants.flows.holder(flow):
            raise RefusedError(errno.EACCES, f"{flow} is another process's")
        process.lost.discard(flow)
        if process.flows.get(flow, -1) != tap:
            raise RefusedError(errno.ENOENT, f"{flow} is not there")
        self.grants.remove(process, flow)
        self._answers.append((client, request, 0, "", None))

    def _xdp(self, client: Client, request: Request, fds: list[int]) -> None:
        ifindex, queues, flags = protocol.XDP_ASK.unpack(request.body)
        process = client.process
        if flags & ~(protocol.AGAIN | 3) or flags & 3 == 3 or queues > protocol.QUEUES_MAX:
            raise MalformedError("XDP: wrong flags or number of queues", request.kind, request.number)
        if flags & protocol.AGAIN:
            self.grants.take_xdp(process, ifindex, fds)
            self._reply(client, request, 0, protocol.XDP_ANSWER.pack(0, 0))
            return
        passed, native = self.grants.lend_xdp(process, ifindex, queues, flags & 3)
        why = allow_memory(process.owner.pid)
        if why:
            self.log.refusal(process.uid, f"{client}: {why}")
        fields = protocol.XDP_ANSWER.pack(len(passed) - 1, protocol.XDP_NATIVE if native else 0)
        self._reply(client, request, 0, fields, fds=passed)

    def _xdp_drop(self, client: Client, request: Request, fds: list[int]) -> None:
        self.grants.drop_xdp(client.process, protocol.U32.unpack(request.body)[0])
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
        why = self.grants.crashes.take(process, fds[0]) if fds else ""
        if why:
            raise RefusedError(errno.EACCES, f"the statistics file: {why}")
        process.reset = bool(flags & protocol.CRASH_RST)
        self._reply(client, request, 0)

    def _neigh(self, client: Client, request: Request, fds: list[int]) -> None:
        ifindex, family, address = protocol.NEIGH_ASK.unpack(request.body)
        size = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family)
        if size is None:
            raise MalformedError(f"NEIGH: family {family}", request.kind, request.number)
        self.grants.resolve(client.process, ifindex, family, address[:size])
        self._reply(client, request, 0)

    def _bye(self, client: Client, request: Request, fds: list[int]) -> None:
        self._reply(client, request, 0)
        self._hang_up(client, crashed=False)

    def status(self, uid: int = 0) -> dict[str, Any]:
        """For `pyvmad status`, as that user may know it."""
        return {
            "pid": os.getpid(),
            "requests": self._requests,
            "refusals": self.log.refusals,
            "not_logged": self.log.suppressed,
            **self.grants.status(uid),
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
