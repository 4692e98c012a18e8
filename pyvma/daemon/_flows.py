"""Whose each flow is, and who has flows of a port."""

from __future__ import annotations

from ._protocol import Flow
from ._types import Process

__all__ = ["Flows"]


class Flows:
    """Of all processes; what a process has says `Process.flows`, too."""

    def __init__(self) -> None:
        self._holders: dict[Flow, Process] = {}
        self._ports: dict[tuple[bytes, int, int], dict[Process, int]] = {}

    def holder(self, flow: Flow) -> Process | None:
        """The one process that has it."""
        return self._holders.get(flow)

    def of_another_user(self, process: Process, flow: Flow) -> bool:
        """Has a process of another user flows of the same address, port and protocol?"""
        return any(other is not process and other.uid != process.uid for other in self._ports.get(flow.port_key, {}))

    def add(self, process: Process, flow: Flow, tap: int) -> None:
        """`tap` 0: to the interface's AF_XDP sockets."""
        process.flows[flow] = tap
        process.lost.discard(flow)
        process.held[flow.port_key] = process.held.get(flow.port_key, 0) + 1
        self._holders[flow] = process
        ports = self._ports.setdefault(flow.port_key, {})
        ports[process] = ports.get(process, 0) + 1

    def remove(self, process: Process, flow: Flow) -> None:
        """Undoes `add`."""
        del process.flows[flow]
        del self._holders[flow]
        process.held[flow.port_key] -= 1
        if not process.held[flow.port_key]:
            del process.held[flow.port_key]
        ports = self._ports[flow.port_key]
        ports[process] -= 1
        if not ports[process]:
            del ports[process]
        if not ports:
            del self._ports[flow.port_key]

    def discard(self, flow: Flow) -> None:
        """The same, whosever it is, and if there is one."""
        holder = self.holder(flow)
        if holder:
            self.remove(holder, flow)
