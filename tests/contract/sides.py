"""Where a case of the contract runs."""

from __future__ import annotations

import socket as std
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from lab import nobody

LIMIT_S = 20.0


@dataclass
class Net:
    """Where a case runs: a socket module, and the addresses of two sides that reach each other."""

    name: str
    module: ModuleType
    family: int
    hosts: tuple[str, str]
    opened: list[Any] = field(default_factory=list)

    @property
    def offloaded(self) -> bool:
        return self.name == "softnic"

    @property
    def ours(self) -> bool:
        return self.name != "stdlib"

    def socket(self, timeout: float | None = LIMIT_S) -> Any:
        """A UDP socket with a timeout that no case that works comes near to."""
        made = self.module.socket(self.family, std.SOCK_DGRAM)
        made.settimeout(timeout)
        self.opened.append(made)
        return made

    def bound(self, side: int = 0, port: int = 0, timeout: float | None = LIMIT_S) -> Any:
        made = self.socket(timeout)
        made.bind((self.hosts[side], port))
        if self.ours:
            assert made.offload.state == ("offloaded" if self.offloaded else "kernel"), made.offload
        return made

    def pair(self) -> tuple[Any, Any]:
        """Side 0 bound; side 1 bound and connected to it."""
        first, second = self.bound(0), self.bound(1)
        second.connect(first.getsockname())
        return first, second

    def nobody(self) -> tuple[Any, ...]:
        """Where nobody answers."""
        return self.address(nobody(self.hosts[0]), 9)

    def address(self, host: str, port: int) -> tuple[Any, ...]:
        return (host, port) if self.family == std.AF_INET else (host, port, 0, 0)
