"""Sockets of the daemon that have a path, and which paths it cannot use."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from .._cli import WrongOptionsError

__all__ = ["bind", "usable"]

PASSING = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR))
"""Errors that may be gone the next time."""


@contextlib.contextmanager
def usable(path: Path) -> Iterator[None]:
    """A path that cannot be used is a wrong option: systemd does not try again."""
    try:
        yield
    except OSError as error:
        if error.errno in PASSING:
            raise
        name = error.filename if isinstance(error.filename, str) else path
        raise WrongOptionsError(f"{name}: {error.strerror or error}") from None


def bind(unbound: socket.socket, path: Path, gid: int) -> None:
    """In the place of what an earlier daemon has left there, for root and that group (-1: root alone). OSError: a file that is no socket
    is nobody's to remove."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "it is there, and no socket", str(path))
        path.unlink()
    before = os.umask(0o177)
    try:
        unbound.bind(str(path))
    finally:
        os.umask(before)
    os.chown(path, 0, gid, follow_symlinks=False)
    os.chmod(path, 0o660)
