"""Changing a live process: its log, those settings that it takes over while it runs, its counters."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from .. import _control

__all__ = ["Control", "Tunable", "dump", "log_level", "zero"]


@dataclass(frozen=True)
class Tunable:
    """A setting that may change now. `type` is that of `pyvma config`; `low` and `high` are the range of an int."""

    name: str
    value: str
    type: str
    low: int
    high: int
    unit: str


class Control:
    """A connection to a live process of this user's, or for root to anybody's; close it, or use `with`.

    OSError says in the process's words what it refuses: ProcessLookupError, PermissionError and FileNotFoundError when it cannot be
    reached, errno.ENOENT for a setting that it does not have, errno.EPERM for one that cannot change, errno.EINVAL for a bad value.
    """

    def __init__(self, pid: int) -> None:
        self._link = _control.Control(pid)
        self.pid = pid

    def close(self) -> None:
        """Ends the connection; what was changed stays."""
        self._link.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def tunables(self) -> list[Tunable]:
        """The settings that may change, with their values in force."""
        found = []
        for name, text in self._link.ask("tunables")[0].items():
            value, kind, low, high, unit = text.split(" ", 4)
            found.append(Tunable(name, value, kind, int(low), int(high), unit))
        return found

    def get(self, name: str) -> str:
        """The value in force of one of them. KeyError: it is none."""
        return {item.name: item.value for item in self.tunables()}[name]

    def set(self, name: str, value: object) -> tuple[str, str]:
        """Changes one, as text or number; its value before and now."""
        answer, _ = self._link.ask("tune", name=name, value=value)
        return answer["old"], answer["new"]

    def log(self, level: str | int | None = None, details: int | None = None) -> tuple[str, int]:
        """Sets the log's level and details, those that are given; both as they are then."""
        given = {key: value for key, value in (("level", level), ("details", details)) if value is not None}
        answer, _ = self._link.ask("log-level", **given)
        return answer["level"], int(answer["details"])

    def zero(self) -> None:
        """Zeroes every counter and maximum."""
        self._link.ask("stats-zero")

    def dump(self, fd: int, level: str | int = "info") -> tuple[int, bool]:
        """Has it log a socket's statistics at that level; fd 0: those of all. How many, and whether its log shows that level."""
        answer, _ = self._link.ask("dump", fd=fd, level=level)
        return int(answer["sockets"]), answer["shown"] == "1"


def zero(pid: int) -> None:
    """As :meth:`Control.zero`, once."""
    with Control(pid) as control:
        control.zero()


def log_level(pid: int, level: str | int | None = None, details: int | None = None) -> tuple[str, int]:
    """As :meth:`Control.log`, once."""
    with Control(pid) as control:
        return control.log(level, details)


def dump(pid: int, fd: int | str, level: str | int = "info") -> tuple[int, bool]:
    """As :meth:`Control.dump`, once."""
    with Control(pid) as control:
        return control.dump(int(fd), level)
