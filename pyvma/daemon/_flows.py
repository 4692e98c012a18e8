"""Whose each flow is, and who has flows of a port."""

from __future__ import annotations

from ._protocol import Flow
from ._types import Process

__all__ = ["Flows"]


class Flows:
    """Of all processes; what a process has says `Process.flows`, too. A flow of a group or broadcast several processes may share."""

    def __init__(self) -> None:
        self._holders: dict[Flow, list[Process]] = {}
        self._ports: dict[tuple[bytes, int, int], dict[Process, int]] = {}

    def holder(self, flow: Flow) -> Process | None:
        """Who has it, and had it first."""
        holders = self._holders.get(flow)
        return holders[0] if holders else None

    def all_redirected(self, flow: Flow) -> bool:
        """Do all who have it have it in a TAP device?"""
        return all(process.flows[flow] for process in self._holders.get(flow, ()))

    def of_another_user(self, process: Process, flow: Flow) -> bool:
        """Has a process of another user flows of the same address, port and protocol?"""
        return any(other is not process and other.uid != process.uid for other in self._ports.get(flow.port_key, {}))

    def add(self, process: Process, flow: Flow, tap: int) -> None:
        """`tap` 0: to the interface's AF_XDP sockets."""
        process.flows[flow] = tap
        process.lost.discard(flow)
        process.held[flow.port_key] = process.held.get(flow.port_key, 0) + 1
        self._holders.setdefault(flow, []).append(process)
        ports = self._ports.setdefault(flow.port_key, {})
        ports[process] = ports.get(process, 0) + 1

    def remove(self, process: Process, flow: Flow) -> None:
        """Undoes `add`."""
        del process.flows[flow]
        holders = self._holders[flow]
        holders.remove(process)
        if not holders:
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
        """The same for all who have it."""
        for holder in list(self._holders.get(flow, ())):
            self.remove(holder, flow)
