"""Starting and ending the daemon: its socket, its group, one of them a socket."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import grp
import os
import resource
import selectors
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .._cli import WrongOptionsError
from . import _paths
from ._log import Log
from ._server import Server
from ._types import Limits
from ._vma import Vma

__all__ = ["Options", "run"]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
BACKLOG = 128
FILES = 65536
SAID_MOST = 16  # rules of an earlier daemon, one a line


@dataclass(frozen=True)
class Options:
    """`vma` "": VMA's protocol is not served."""

    socket: str
    group: str = "pyvma"
    vma: str = ""
    notify: str = "/tmp/vma"
    force_rst: bool = False
    dry_run: bool = False
    limits: Limits = field(default_factory=Limits)


def _group(name: str, log: Log) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        log.info(f"there is no group {name}: root alone may ask (groupadd --system {name})")
        return -1


@contextlib.contextmanager
def _listening(path: Path, gid: int) -> Iterator[socket.socket]:
    """The socket, by a lock ours alone; its file goes at the end."""
    with contextlib.ExitStack() as stack:
        with _paths.usable(path):
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            lock = stack.enter_context(open(f"{path}.lock", "w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WrongOptionsError(f"{path}: a daemon is running there already") from None
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            _paths.bind(listener, path, gid)
            listener.listen(BACKLOG)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _stopped_by_signals(server: Server, stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM end the loop, which sleeps: a byte in a pipe wakes it."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    handlers = [(number, signal.signal(number, lambda *_: stop())) for number in STOP_SIGNALS]
    old = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def woken() -> None:
        reader.recv(64)

    server.watch(reader, selectors.EVENT_READ, woken)
    try:
        yield
    finally:
        server.unwatch(reader)
        signal.set_wakeup_fd(old)
        for number, handler in handlers:
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _ready() -> None:
    """Tells systemd, where it asked to be told."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, contextlib.suppress(OSError):
            notify.sendto(b"READY=1", "\0" + path[1:] if path.startswith("@") else path)


@functools.cache
def _version() -> int:
    """Of the library, which is loaded for the first who asks: a daemon that starts has rules to remove first."""
    from .. import version

    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major << 16 | minor << 8 | patch


def _look(options: Options, log: Log) -> int:
    """What a start would do."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        server = Server(listener, log, options.limits)
        try:
            kept, removed = server.grants.recover(dry=True)
        finally:
            server.close()
    for text in kept:
        print(f"would take over {text}")
    for text in removed:
        print(f"would remove {text}")
    print(f"would listen at {options.socket}, for root and the group {options.group}")
    if options.vma:
        print(f"would serve VMA's protocol at {options.vma}, files in {options.notify}")
    return 0


def run(options: Options) -> int:
    """Until SIGINT or SIGTERM. WrongOptionsError, OSError."""
    if os.geteuid() != 0:
        raise WrongOptionsError("only root may make TAP devices and redirect rules: run it as root, or by systemd")
    log = Log()
    if options.dry_run:
        return _look(options, log)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    gid = _group(options.group, log)
    with _listening(Path(options.socket), gid) as listener, contextlib.ExitStack() as stack:
        server = Server(listener, log, options.limits, _version)
        stack.callback(server.close)
        kept, removed = server.grants.recover()
        for word, texts in (("took over", kept), ("removed", removed)):
            for text in texts[:SAID_MOST]:
                log.info(f"{word} {text}")
            if len(texts) > SAID_MOST:
                log.info(f"{word} {len(texts) - SAID_MOST} more")
        if options.vma:
            stack.callback(Vma(server, options.vma, options.notify, options.force_rst, gid).close)
        stack.enter_context(_stopped_by_signals(server, server.stop))
        log.info(f"serves at {options.socket}")
        _ready()
        server.run()
    return 0
