"""Which processes there are, and one of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from . import _model
from ._error import StatsError
from ._file import MAGIC, Head, StatsFile
from ._model import Record, Snapshot

__all__ = ["Found", "Process", "attach", "default_directory", "own", "processes"]

PREFIX = "pyvma-stats."
_NAME = re.compile(re.escape(PREFIX) + r"[1-9][0-9]{0,9}")
_VARIABLES = ("PYVMA_STATS_DIR", "VMA_STATS_SHMEM_DIR")
_SETTING = "stats_dir"


def default_directory() -> str:
    """Where processes of this environment keep their files: the setting `stats_dir`."""
    native = sys.modules.get("pyvma._native")
    if native is not None:
        from .. import _config

        with contextlib.suppress(KeyError):
            return _config.value_of(_SETTING)
    return next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "/dev/shm")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None: there is no such process, or it has ended and only its parent does not know yet."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    return None if len(fields) < 20 or fields[0] in (b"Z", b"X") else int(fields[19])


def _user(pid: int) -> int | None:
    """The effective user of a process; the owner of /proc/PID is root where it may not be dumped."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    return next((int(line.split()[2]) for line in text.splitlines() if line.startswith("Uid:")), None)


def _alive(head: Head) -> bool:
    """This very process, not another one that has its number."""
    return head.boot_id == _boot_id() and 0 < head.pid < 1 << 32 and _start_ticks(head.pid) == head.start_ticks


def _in_use(fd: int) -> bool:
    """A process locks its file while it lives, and may do so in another pid namespace, where its number says nothing here."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        return True
    return False


@dataclass(frozen=True)
class Found:
    """A file of a directory. `state` is "live", "stopped" (it runs, its engine does not), "dead" or "unreadable"; `why` says of the last
    what is wrong. `removed`: it was of a dead process and is gone now."""

    pid: int
    path: str
    state: str
    program: str = ""
    uid: int = -1
    why: str = ""
    removed: bool = False


class Process:
    """A process with a statistics file. Close it, or use `with`; the file may be read after the process has ended.

    `pid`, `uid`, `program` and `version` (of pyvma) are those of the file's head, as is `started_ns`, ns since 1970.
    """

    def __init__(self, path: str) -> None:
        self._file = StatsFile(path)
        head = self._file.head
        name = os.path.basename(path)
        if _NAME.fullmatch(name) and int(name[len(PREFIX) :]) != head.pid:
            self._file.close()
            raise StatsError(f"{path}: it says that it is of process {head.pid}")
        self.path = path
        self.pid = head.pid
        self.uid = head.uid
        self.program = head.program
        self.version = head.version
        self.started_ns = head.started_ns

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Process {self.pid} {self.program!r} {self.path}>"

    def close(self) -> None:
        """Closes the file; snapshots stay."""
        self._file.close()

    @property
    def state(self) -> str:
        """ "live", "stopped" (its engine was, the figures are final) or "dead" (the figures are those of its end)."""
        head = self._file.read_head()
        return head.state if _alive(head) or _in_use(self._file.fileno()) else "dead"

    def reachable(self) -> None:
        """May this process be asked for something by its number? StatsError: no, it is none that runs here, or the file is another user's
        and only says so."""
        head = self._file.read_head()
        if not _alive(head):
            raise StatsError(f"process {head.pid} is {'not of this pid namespace' if _in_use(self._file.fileno()) else 'dead'}")
        if self._file.owner not in (0, _user(head.pid)):
            raise StatsError(f"{self.path}: it is not of the user whose process {head.pid} is")

    def snapshot(self) -> Snapshot:
        """Everything as it is now. StatsError says what is wrong with the file."""
        return _model.take(self._file)

    @property
    def engine(self) -> Record | None:
        """The engine now; None: it shows none."""
        return self.snapshot().engine

    @property
    def sockets(self) -> list[Record]:
        """The sockets now."""
        return self.snapshot().sockets

    @property
    def rings(self) -> list[Record]:
        """The rings now."""
        return self.snapshot().rings

    @property
    def pools(self) -> list[Record]:
        """The buffer pools now."""
        return self.snapshot().pools

    @property
    def epolls(self) -> list[Record]:
        """The groups that wait for sockets, now."""
        return self.snapshot().epolls

    @property
    def memberships(self) -> list[Record]:
        """The multicast memberships now."""
        return self.snapshot().memberships


def _remove(path: str) -> bool:
    """Removes the file of a dead process of this user; not one that is in use, nor what is no statistics file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        about = os.fstat(fd)
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
            return False
        if os.pread(fd, len(MAGIC), 0) not in (MAGIC, bytes(len(MAGIC)), b""):
            return False
        if _in_use(fd) or not os.path.samestat(about, os.lstat(path)):
            return False
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _found(path: str, pid: int, clean: bool) -> Found:
    try:
        with Process(path) as process:
            state = process.state
            return Found(pid, path, state, process.program, process.uid, "", state == "dead" and clean and _remove(path))
    except StatsError as error:
        return Found(pid, path, "unreadable", "", -1, str(error), clean and _start_ticks(pid) is None and _remove(path))


def processes(directory: str | None = None, *, clean: bool = False, everything: bool = False) -> list[Found]:
    """The live processes of a directory (default: that of the setting `stats_dir`), by pid.

    With `clean`, files of this user's processes that are gone, by their number, start time and boot, are removed. With `everything` the
    answer also holds those of processes that are gone, and files that cannot be read. StatsError: there is no such directory.
    """
    place = directory or default_directory()
    try:
        names = [name for name in os.listdir(place) if _NAME.fullmatch(name)]
    except OSError as error:
        raise StatsError(f"{place}: {error.strerror}") from None
    found = [_found(os.path.join(place, name), int(name[len(PREFIX) :]), clean) for name in names]
    return sorted((item for item in found if everything or item.state in ("live", "stopped")), key=lambda item: item.pid)


def attach(which: int | str | os.PathLike[str], directory: str | None = None) -> Process:
    """The process of a pid, or of a file by its path. StatsError: there is none, or what is wrong with its file."""
    if not isinstance(which, int):
        return Process(os.fspath(which))
    path = os.path.join(directory or default_directory(), f"{PREFIX}{which}")
    try:
        return Process(path)
    except StatsError:
        if os.path.lexists(path):
            raise
    if _start_ticks(which) is None:
        raise StatsError(f"there is no process {which}")
    raise StatsError(f"process {which} shows no statistics: there is no {path}")


def own() -> Process:
    """This process, once its engine was started. StatsError: it was not."""
    return attach(os.getpid())
