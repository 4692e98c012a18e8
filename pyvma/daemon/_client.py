"""A connection to the daemon, for tools: one request at a time. Programs use the engine's, which is in C (native/rt/agent.h)."""

from __future__ import annotations

import array
import errno
import json
import os
import socket
import time
from types import TracebackType
from typing import Any, NamedTuple

from . import _protocol as protocol

__all__ = ["Answer", "Connection", "status"]

BUSY_MOST = 50


class Answer(NamedTuple):
    """`result` 0 or -errno; `body` has the type's own fields and a text; `fds` are the caller's to close."""

    kind: int
    number: int
    result: int
    body: bytes
    fds: list[int]


class Connection:
    """Connects, and says HELLO. OSError where there is no daemon or it does not let this user in."""

    def __init__(self, path: str, program: str = "pyvma", hello: bool = True, timeout: float = 10.0) -> None:
        self._number = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.socket.connect(path)  # without a timeout, which would make a full backlog an error
            self.socket.settimeout(timeout)
            if hello:
                self.call(protocol.HELLO, protocol.U32.pack(0) + program.encode())
        except OSError as error:
            self.socket.close()
            error.filename = path
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """What the daemon made for this process goes."""
        self.socket.close()

    def send(self, kind: int, body: bytes = b"", fds: tuple[int, ...] = ()) -> int:
        """Sends a request; its number."""
        self._number += 1
        data = protocol.HEAD.pack(protocol.MAGIC, protocol.VERSION, kind, protocol.HEAD.size + len(body), self._number) + body
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], control)
        return self._number

    def receive(self) -> Answer:
        """The next answer; ConnectionResetError when the daemon went."""
        data, control, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(4 * 32), socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise ConnectionResetError("the daemon went away")
        fds = array.array("i")
        for level, kind, value in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(value[: len(value) - len(value) % 4])
        _, _, answered, _, number, result = protocol.ANSWER_HEAD.unpack_from(data)
        return Answer(answered & ~protocol.ANSWER, number, result, data[protocol.ANSWER_HEAD.size :], list(fds))

    def ask(self, kind: int, body: bytes = b"", fds: tuple[int, ...] = ()) -> Answer:
        """Request and answer, whatever it is."""
        number = self.send(kind, body, fds)
        while (answer := self.receive()).number != number:
            pass
        return answer

    def call(self, kind: int, body: bytes = b"", fds: tuple[int, ...] = ()) -> Answer:
        """The same; OSError with the daemon's text when it refuses."""
        answer = self.ask(kind, body, fds)
        if answer.result:
            raise OSError(-answer.result, answer.body.decode("utf-8", "replace").strip("\0") or os.strerror(-answer.result))
        return answer


def status(path: str) -> dict[str, Any]:
    """What a running daemon has: `pyvmad status --json`."""
    with Connection(path, "status") as connection:
        for _ in range(BUSY_MOST):
            answer = connection.ask(protocol.STATUS)
            if answer.result != -errno.EBUSY:
                break
            time.sleep(0.1)  # another process of this user is about to read its answer
        fds = answer.fds if not answer.result else connection.call(protocol.STATUS).fds
        with open(fds[0], "rb") as file:
            file.seek(0)
            found: dict[str, Any] = json.load(file)
    found["processes"] = [process for process in found["processes"] if process["pid"] != os.getpid()]
    return found
