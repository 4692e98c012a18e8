"""Protocol 3 of VMA's daemon: a VMA process sends datagrams to this socket, and gets answers to those that ask for one.

All numbers are little endian but addresses and ports, which are in network byte order. Who sent is what the kernel says (SCM_CREDENTIALS).
IPv4 only, as the protocol is. A process without root has to hold the ports that it asks for.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import selectors
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from . import _paths
from ._proof import holds, start_time
from ._protocol import Flow, is_peer
from ._server import Server
from ._tc import Owner
from ._types import Process, RefusedError

__all__ = ["Vma"]

VERSION = 3
INIT, STATE, EXIT, FLOW = 1, 2, 3, 4
ACK = 0x80
EGRESS, UDP5, UDP3, TCP5, TCP3 = range(5)
ADD, DELETE = 1, 2
HEAD = struct.Struct("<BBBBi")
INIT_BODY = struct.Struct("<I")
STATE_BODY = struct.Struct("<I4s4s2s2sBB")
FLOW_BODY = struct.Struct("<BBII4s2s4s2s")
SIZES = {INIT: HEAD.size + INIT_BODY.size, STATE: HEAD.size + STATE_BODY.size, EXIT: HEAD.size, FLOW: HEAD.size + FLOW_BODY.size}
CLOSED, ESTABLISHED = 0, 4
CREDENTIALS = struct.Struct("=iII")
FIDS_MOST = 65536
FDS_MOST = 4096
FDS_ROOM = 253  # of a message, the kernel's limit
SYS_PIDFD_GETFD = 438
DONE, FAILED = 0, 1
_libc = ctypes.CDLL(None, use_errno=True)


def _folder(path: Path, gid: int) -> int:
    """An fd of the directory where processes have their files, made if need be. PermissionError: it is not root's."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()  # anybody can make something of that name in /tmp
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0:
        raise PermissionError(errno.EACCES, "it has to be a directory of root's: remove it", str(path))
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != 0:
            raise PermissionError(errno.EACCES, "it has to be a directory of root's: remove it", str(path))
        os.fchown(folder, 0, gid)
        os.fchmod(folder, 0o1770 if gid >= 0 else 0o1700)
    except OSError:
        os.close(folder)
        raise
    return folder


def _on_lo(flow: Flow) -> Flow:
    return replace(flow, ifindex=socket.if_nametoindex("lo"))


class Vma:
    """The socket at `path`; files of processes are in `notify`."""

    def __init__(self, server: Server, path: str, notify: str, reset: bool, gid: int = -1) -> None:
        self._server = server
        self._path = Path(path)
        self._reset = reset
        self._processes: dict[int, Process] = {}
        self._notify = _folder(Path(notify), gid)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            with _paths.usable(self._path):  # the folder is another matter: who is in its way in /tmp may go
                _paths.bind(self._socket, self._path, gid)
        except BaseException:
            self._socket.close()
            os.close(self._notify)
            raise
        server.watch(self._socket, selectors.EVENT_READ, self._serve)
        server.grants.on_release.append(self._released)

    def close(self) -> None:
        """Processes keep their rules."""
        self._server.unwatch(self._socket)
        self._socket.close()
        os.close(self._notify)
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        for _ in range(self._server.limits.turn):
            try:
                data, control, _, sender = self._socket.recvmsg(64, socket.CMSG_SPACE(CREDENTIALS.size) + socket.CMSG_SPACE(4 * FDS_ROOM))
            except OSError:
                return
            pid, uid = 0, -1
            for level, kind, value in control:
                if level != socket.SOL_SOCKET:
                    continue
                if kind == socket.SCM_CREDENTIALS:
                    pid, uid, _ = CREDENTIALS.unpack(value[: CREDENTIALS.size])
                elif kind == socket.SCM_RIGHTS:
                    self._server.discard(struct.unpack(f"={len(value) // 4}i", value[: len(value) // 4 * 4]), uid)
            self._one(data, pid, uid, sender)

    def _one(self, data: bytes, pid: int, uid: int, sender: object) -> None:
        name = f"process {pid} of user {uid} (VMA)"
        if len(data) < HEAD.size or pid <= 0:
            self._server.log.refusal(uid, f"{name}: shorter than a header")
            return
        code, version, _, _, said = HEAD.unpack_from(data)
        try:
            if version != VERSION:
                raise RefusedError(errno.EPROTO, f"version {version} of the protocol")
            if code not in SIZES or len(data) != SIZES[code]:
                raise RefusedError(errno.EINVAL, f"a message {code} of {len(data)} bytes")
            if said != pid:
                raise RefusedError(errno.EACCES, f"speaks for process {said}")
            body = self._done(code, data[HEAD.size :], pid, uid)
            status = DONE
        except (RefusedError, OSError) as error:
            self._server.log.refusal(uid, f"{name}: {error}")
            status, body = FAILED, INIT_BODY.pack(0) if code == INIT else b""
        if code in (INIT, FLOW) and isinstance(sender, (str, bytes)) and sender:
            self._answer(HEAD.pack(code | ACK, VERSION, status, 0, pid) + body, sender)

    def _answer(self, data: bytes, to: str | bytes) -> None:
        with contextlib.suppress(OSError):  # it does not read, or is gone
            self._socket.sendto(data, socket.MSG_DONTWAIT, to)

    def _done(self, code: int, body: bytes, pid: int, uid: int) -> bytes:
        """The body of the answer."""
        if code == EXIT:
            process = self._processes.get(pid)
            if process:
                self._server.grants.release(process, crashed=False)
            return b""
        process = self._process(pid, uid)
        if code == INIT:
            return INIT_BODY.pack(VERSION)
        if code == STATE:
            self._state(process, *STATE_BODY.unpack(body))
        else:
            self._flow(process, *FLOW_BODY.unpack(body))
        return b""

    def _process(self, pid: int, uid: int) -> Process:
        process = self._server.grants.adopt(Owner(pid, start_time(pid)))
        if process is None or process.uid != uid:
            raise RefusedError(errno.EACCES, "the process is another user's, or gone")
        if self._processes.get(pid) is not process:
            self._processes[pid] = process
            process.program = "VMA"
            process.reset = self._reset
        return process

    def _released(self, process: Process) -> None:
        """The server has let go of a process."""
        pid = process.owner.pid
        if self._processes.get(pid) is not process:
            return
        del self._processes[pid]
        for kind in ("pid", "sock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"vma_agent.{pid}.{kind}", dir_fd=self._notify)

    def _state(self, process: Process, fid: int, src: bytes, dst: bytes, src_port: bytes, dst_port: bytes, kind: int, state: int) -> None:
        """Of a connection: `src` is the process's end."""
        fids = process.said
        ports = int.from_bytes(src_port, "big"), int.from_bytes(dst_port, "big")
        if kind != socket.SOCK_STREAM or state != ESTABLISHED:
            fids.pop(fid, None)
        elif not (all(ports) and is_peer(src) and is_peer(dst)):
            raise RefusedError(errno.EINVAL, "a connection without ports, or with addresses that none has")
        elif len(fids) < FIDS_MOST:
            fids[fid] = Flow(0, socket.IPPROTO_TCP, src, ports[0], dst, ports[1])

    def _flow(
        self, process: Process, kind: int, action: int, ifindex: int, tap: int, dst: bytes, dst_port: bytes, src: bytes, src_port: bytes
    ) -> None:
        if kind > TCP3 or action not in (ADD, DELETE):
            raise RefusedError(errno.EINVAL, f"a flow of type {kind}, action {action}")
        if kind == EGRESS:
            if action == ADD:
                self._server.grants.serve_tap(process, tap, ifindex)
            return
        whole = kind in (UDP5, TCP5)
        proto = 17 if kind in (UDP5, UDP3) else 6
        ports = int.from_bytes(dst_port, "big"), int.from_bytes(src_port, "big") if whole else 0
        if not ports[0] or (whole and not ports[1]):
            raise RefusedError(errno.EINVAL, "a flow without ports")
        if whole and not is_peer(src):
            raise RefusedError(errno.EINVAL, "a flow of an address that nobody sends from")
        flow = Flow(ifindex, proto, dst, ports[0], src if whole else bytes(4), ports[1])
        if action == DELETE:
            self._remove(process, flow)
            return
        if process.uid and not any(not holds(fd, flow, self._server.namespace) for fd in self._borrowed(process)):
            raise RefusedError(errno.EACCES, f"{flow}: the process does not hold the port")
        self._redirect(process, flow, tap)

    def _redirect(self, process: Process, flow: Flow, tap: int) -> None:
        """A rule and the same for what the host itself sends (lo); in force when this returns. RefusedError, OSError."""
        grants, wanted = self._server.grants, [flow]
        if not (flow.whole and grants.links.is_own(flow.src)):
            wanted.append(_on_lo(flow))
        wanted = [each for each in wanted if each not in process.flows]
        for each in wanted:  # both or none
            if each is flow:
                grants.may_have(process, flow, tap)
            elif grants.flows.holder(each) and not grants.may_share(process, each, tap):
                raise RefusedError(errno.EEXIST, f"{flow} is another process's")
        try:
            for each in wanted:
                grants.add(process, each, tap)
            self._server.commit()
            if any(each not in process.flows for each in wanted):
                raise RefusedError(errno.EIO, f"{flow}: the kernel refuses the rule")
        except (OSError, RefusedError):
            for each in wanted:
                if each in process.flows:
                    grants.remove(process, each)
            self._server.commit()
            raise

    def _remove(self, process: Process, flow: Flow) -> None:
        """Undoes `_redirect`. RefusedError."""
        if flow not in process.flows:
            raise RefusedError(errno.ENOENT, f"{flow} is not there")
        for each in (flow, _on_lo(flow)):
            if each in process.flows:
                self._server.grants.remove(process, each)
        self._server.commit()

    def _borrowed(self, process: Process) -> Iterator[int]:
        """The process's sockets, one after the other."""
        for entry in list(os.scandir(f"/proc/{process.owner.pid}/fd"))[:FDS_MOST]:
            try:
                if not os.readlink(entry.path).startswith("socket:"):
                    continue
            except OSError:
                continue
            fd = _libc.syscall(SYS_PIDFD_GETFD, process.pidfd, int(entry.name), 0)
            if fd < 0:
                continue
            try:
                yield fd
            finally:
                self._server.discard([fd], process.uid)
