"""The client of the control socket of a live process (native/rt/control.h). It needs no native library."""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Control", "folders"]

VERSION = 1
MESSAGE_MAX = 4096
ANSWER_S = 10.0


def _configured() -> str:
    """The setting `control_dir`."""
    try:
        from ._config import value_of
    except ImportError:
        return os.environ.get("PYVMA_CONTROL_DIR", "")
    return value_of("control_dir")


def folders(uid: int) -> list[Path]:
    """Where processes of a user have their sockets (native/rt/control.h)."""
    configured = _configured()
    found = [Path(configured)] if configured and configured != "none" else []
    if uid == 0:
        found.append(Path("/run/pyvma"))
    return [*found, Path(f"/run/user/{uid}/pyvma"), Path(f"/tmp/pyvma-{uid}")]


def _owner(pid: int) -> int:
    """The effective user of a process. ProcessLookupError: there is none."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        raise ProcessLookupError(errno.ESRCH, f"there is no process {pid}") from None
    return int(next(line for line in text.splitlines() if line.startswith("Uid:")).split()[2])


def _encode(verb: str, values: dict[str, Any]) -> bytes:
    lines = [f"pyvma {VERSION} {verb}", *(f"{key}={value}" for key, value in values.items())]
    if not all(line.isprintable() for line in lines):
        raise OSError(errno.EINVAL, "a value has control characters")
    message = "".join(f"{line}\n" for line in lines).encode(errors="replace")
    if len(message) > MESSAGE_MAX:
        raise OSError(errno.E2BIG, "the request is too long")
    return message


def _decode(data: bytes) -> tuple[str, dict[str, str]]:
    head, *lines = data.decode(errors="replace").splitlines()
    words = head.split()
    if len(words) != 3 or words[:2] != ["pyvma", str(VERSION)]:
        raise OSError(errno.EPROTO, f"that is not a process on pyvma, or one of another version: {head!r}")
    return words[2], dict(line.partition("=")[::2] for line in lines)


def _foreign(pid: int) -> PermissionError:
    return PermissionError(errno.EPERM, f"process {pid} belongs to another user: run as that one, or as root")


def _silent(pid: int) -> OSError:
    return OSError(errno.ETIMEDOUT, f"process {pid} does not answer: it is stopped, or too busy")


class Control:
    """A connection to a live process."""

    def __init__(self, pid: int) -> None:
        """ProcessLookupError, PermissionError, OSError: what there is instead."""
        self.pid = pid
        self.socket = self._connect(pid)

    @staticmethod
    def _connect(pid: int) -> socket.socket:
        uid = _owner(pid)
        # A process that was root's when it began has its socket there.
        for folder in dict.fromkeys([*folders(uid), *(folders(0) if os.geteuid() == 0 else ())]):
            link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            link.settimeout(ANSWER_S)
            try:
                link.connect(str(folder / str(pid)))
            except PermissionError:
                link.close()
                raise _foreign(pid) from None
            except (BlockingIOError, TimeoutError):  # others wait already
                link.close()
                raise _silent(pid) from None
            except OSError:
                link.close()
                continue
            (peer,) = struct.unpack_from("i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if peer == pid:
                return link
            link.close()
        if os.geteuid() not in (0, uid):
            raise _foreign(pid)
        text = f"process {pid} has no control socket: no interface is offloaded in it, or the settings progress or control_dir say so"
        raise FileNotFoundError(errno.ENOENT, text)

    def ask(self, verb: str, **values: Any) -> tuple[dict[str, str], list[int]]:
        """Sends a request; the answer's values, and descriptors that came with it. OSError in the words of the process."""
        message = _encode(verb, values)
        try:
            with suppress(BrokenPipeError):  # refused: it said why before it hung up
                self.socket.send(message)
            data, fds, _, _ = socket.recv_fds(self.socket, MESSAGE_MAX, 1)
        except TimeoutError:
            raise _silent(self.pid) from None
        except ConnectionResetError:  # told once, before the words of who hung up with the request unread (unix(7))
            data, fds, _, _ = socket.recv_fds(self.socket, MESSAGE_MAX, 1)
        if not data:
            raise ProcessLookupError(errno.ESRCH, f"process {self.pid} has ended")
        kind, found = _decode(data)
        if kind == "error":
            code = int(number) if (number := found.get("code", "")).isdecimal() else errno.EIO
            raise OSError(code, found.get("text") or os.strerror(code))
        return found, fds

    def close(self) -> None:
        """Ends the connection, and what was asked for by it."""
        self.socket.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
