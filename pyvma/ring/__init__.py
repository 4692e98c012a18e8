"""Rings: the engine's interfaces and the RDMA devices of this machine, with what they can do."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._native import ffi, lib, start
from ._devices import Bond, Capabilities, Device, Gid, Pacing, Port, from_sysfs, merge
from ._error import DeviceError
from ._place import Place, move, place, places
from ._steer import FlowRule, Rule, steer

__all__ = [
    "Bond",
    "Capabilities",
    "Device",
    "DeviceError",
    "DeviceMemory",
    "FlowRule",
    "Gid",
    "Interface",
    "KernelInterface",
    "Pacing",
    "Place",
    "Port",
    "Rule",
    "devices",
    "interfaces",
    "kernel_interfaces",
    "move",
    "place",
    "places",
    "steer",
]

_CSUM = ((1, "ipv4"), (2, "udp"), (4, "tcp"))
_FLOWS = ("all", "ether", "ip", "3-tuple", "5-tuple")
_MATCHES = ((1, "tos"), (2, "flow-label"), (4, "vxlan"), (8, "sniffer"))
_TSTAMPS = ("none", "raw", "realtime")


@dataclass(frozen=True)
class DeviceMemory:
    """What a ring has of its device's own memory, and has sent from there (setting `ring_dev_mem_tx`)."""

    size: int
    """Bytes; 0: none was asked for, or it could not be had."""
    packets: int
    bytes: int
    full: int
    """Frames that found no room there and were sent from the host's memory."""


@dataclass(frozen=True)
class Interface:
    """An interface of the running engine."""

    name: str
    index: int
    ring: str
    """Kind and device, e.g. "softnic:softnic_demo_0/1"."""
    mode: str
    """Which of the ring's ways is in force."""
    mac: str
    mtu: int
    """Largest IP packet, in bytes."""
    link_up: bool
    addresses: tuple[ipaddress.IPv4Interface | ipaddress.IPv6Interface, ...]
    rx_csum: tuple[str, ...]
    """Checksums verified by the device."""
    tx_csum: tuple[str, ...]
    """Checksums filled in by the device."""
    inline_size: int
    """Bytes of a frame that may be copied into the send queue."""
    tso_max: int
    """Bytes; 0: no segmentation by the device."""
    rx_depth: int
    tx_depth: int
    queues: int
    flow_kinds: tuple[str, ...]
    """What steering rules can match."""
    flow_match: tuple[str, ...]
    """What they can match beside that."""
    tstamp: str
    tstamp_khz: int
    pacing: Pacing | None
    pacing_burst: bool
    """Whether the burst of a rate is heeded."""
    rx_queues: int
    """Receive queues that sockets and rules may have beside the first ones, at most; 0: the ring or `ring_logic_rx` has none."""
    tx_queues: int
    """Transmit queues that flows may have of their own, at most."""
    dm_bytes: int
    """Memory of the device, of which rings may have some."""
    device_memory: DeviceMemory
    tso_packets: int
    """Long TCP segments that the device cut."""
    note: str
    """What was asked for and is not in force, and why; empty: nothing."""


@dataclass(frozen=True)
class KernelInterface:
    """An entry of the setting `interfaces` whose interface is the kernel's."""

    name: str
    ring: str
    """Kind of the ring, e.g. "xdp"."""
    index: int
    """The kernel's number; 0: there is no such interface at the moment."""
    offloaded: bool
    reason: str
    """Why it is not offloaded: its sockets are the kernel's, with this text as their reason."""


def _names(bits: int, table: tuple[tuple[int, str], ...]) -> tuple[str, ...]:
    return tuple(name for bit, name in table if bits & bit)


def _address(storage: Any, prefix: int) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    data = bytes(ffi.buffer(ffi.addressof(storage)))
    if storage.ss_family == socket.AF_INET:
        return ipaddress.IPv4Interface((data[4:8], prefix))
    return ipaddress.IPv6Interface((data[8:24], prefix))


def _interface(row: Any) -> Interface:
    pacing = Pacing(row.pacing_min_kbps, row.pacing_max_kbps) if row.pacing_max_kbps else None
    return Interface(
        name=ffi.string(row.name).decode(),
        index=row.index,
        ring=ffi.string(row.ring).decode(),
        mode=ffi.string(row.mode).decode(),
        mac=":".join(f"{byte:02x}" for byte in row.mac),
        mtu=row.mtu,
        link_up=bool(row.link_up),
        addresses=tuple(_address(row.addr[i], row.prefix_len[i]) for i in range(row.naddr)),
        rx_csum=_names(row.rx_csum, _CSUM),
        tx_csum=_names(row.tx_csum, _CSUM),
        inline_size=row.inline_size,
        tso_max=row.tso_max,
        rx_depth=row.rx_depth,
        tx_depth=row.tx_depth,
        queues=row.queues,
        flow_kinds=tuple(name for bit, name in enumerate(_FLOWS) if row.flow_kinds & 1 << bit),
        flow_match=_names(row.flow_match, _MATCHES),
        tstamp=_TSTAMPS[row.tstamp_kind],
        tstamp_khz=row.tstamp_khz,
        pacing=pacing,
        pacing_burst=bool(row.pacing_burst),
        rx_queues=row.rxqs,
        tx_queues=row.txqs,
        dm_bytes=row.dm_bytes,
        device_memory=DeviceMemory(row.dm_alloc, row.dm_packets, row.dm_sent, row.dm_oob),
        tso_packets=row.tso_packets,
        note=ffi.string(row.note).decode(),
    )


def interfaces() -> list[Interface]:
    """The engine's interfaces, in the order of their indices. Starts the engine; OSError when that fails."""
    start()
    found: list[Interface] = []
    row = ffi.new("struct pyvma_interface *")
    while lib.pyvma_interface_get(len(found) + 1, row) >= 0:
        found.append(_interface(row))
    return found


def kernel_interfaces() -> list[KernelInterface]:
    """The entries of the setting `interfaces` that name one of the kernel's. Starts the engine; OSError when that fails."""
    start()
    found: list[KernelInterface] = []
    row = ffi.new("struct pyvma_kernel_interface *")
    while lib.pyvma_kernel_interface_get(len(found) + 1, row) >= 0:
        name, ring, reason = (ffi.string(field).decode() for field in (row.name, row.ring, row.reason))
        found.append(KernelInterface(name=name, ring=ring, index=row.index, offloaded=bool(row.offloaded), reason=reason))
    return found


def devices(root: str | os.PathLike[str] = "/") -> list[Device]:
    """The RDMA devices: those that libibverbs lists, through pyverbs, with what sysfs knows of them beside; sysfs' alone where pyverbs is
    missing, or where `root` is a tree of the caller's with `sys/` in it.

    The software NIC's are among them when its library is loaded (`softnic.load`). DeviceError when libibverbs lists none and fails.
    """
    from . import _sysfs, _verbs
    from .roce import Roce

    settings = Roce(root)
    known = {device.name: device for device in _sysfs.devices(settings.tree)}
    modes = {name: {port.number: settings.mode(name, port.number) for port in device.ports} for name, device in known.items()}
    listed: list[Device] = []
    if settings.tree.root == Path("/"):
        try:
            listed = _verbs.devices()
        except _verbs.MissingError:
            if not known:
                raise
    found = [merge(device, known[device.name], modes[device.name]) if device.name in known else device for device in listed]
    names = {device.name for device in listed}
    return found + [from_sysfs(device, modes[name]) for name, device in known.items() if name not in names]
