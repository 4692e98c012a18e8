"""What the rows of `pyvma bench compare` run over: a class a wire, which knows addresses and names, not how to measure."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

End = tuple[str, int]


class Wire(AbstractContextManager["Wire", None]):
    """Two ends, numbered 0 (server) and 1 (client). A context manager: what it makes exists inside only."""

    name: str
    """As --ring has it."""

    window = 512
    """Messages that the wire itself holds: with no more under way it loses none."""
    kernel_peer = False
    """Whether a kernel socket at one end reaches an engine at the other."""
    kernel_client = False
    """Whether end 1 is the kernel's always: a row is who serves at end 0. A raw server takes a connection, too."""

    @abc.abstractmethod
    def fresh(self) -> None:
        """Before each row: nothing of the last one is left."""

    @abc.abstractmethod
    def ends(self, stack: str) -> tuple[End, End]:
        """Address and port of both ends for a stack ("raw", "pyvma" or "kernel")."""

    @abc.abstractmethod
    def interface(self, number: int) -> str:
        """The engine's setting at that end."""

    @abc.abstractmethod
    def raw(self, number: int) -> dict[str, Any]:
        """Options of the C program for the ring without a stack at that end."""

    def inside(self, number: int) -> Sequence[str]:
        """What comes before the command of a process at that end."""
        return ()
