"""RoCE settings of RDMA devices: modes, ToS, traffic classes, time to live, on and off; by sysfs and configfs below a root."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _sysfs
from ._error import DeviceError
from ._tree import Tree
from .tclass import Rule, Table, parse_table

__all__ = [
    "PortSettings",
    "Priority",
    "Roce",
    "ack_timeout_for",
    "ack_timeout_us",
    "priority",
    "set_ack_timeout",
]

MODES = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}
PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
# rdma_set_option(): levels and options of <rdma/rdma_cma.h>.
RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT = 0, 3
ACK_TIMEOUT_MAX = 31
ACK_TIMEOUT_UNIT_US = 4.096


@dataclass(frozen=True)
class PortSettings:
    """What is set for one port. None: the kernel does not tell, or has no such setting."""

    number: int
    mode: str | None
    """Of RDMA-CM's connections: "v1" or "v2"."""
    tos: int | None
    """Of RDMA-CM's queue pairs that set none."""
    tclass: Table | None
    ttl: int | None


@dataclass(frozen=True)
class Priority:
    """What a ToS leads to."""

    tos: int
    dscp: int
    sl: int
    """Service level: the upper three bits, by RDMA-CM."""
    pcp: int
    """Priority in VLAN tags: the lower three bits of the service level, by the driver. Untagged frames have none."""


def priority(tos: int) -> Priority:
    """Service level and VLAN priority of a ToS. ValueError: not 0 to 255."""
    if not 0 <= tos <= 255:
        raise ValueError(f"ToS {tos}: 0 to 255")
    sl = tos >> 5
    return Priority(tos, tos >> 2, sl, sl & 7)


def ack_timeout_us(timeout: int) -> float | None:
    """Microseconds that a queue pair waits for an acknowledgement; None: for ever. ValueError: not 0 to 31."""
    if not 0 <= timeout <= ACK_TIMEOUT_MAX:
        raise ValueError(f"ACK timeout {timeout}: 0 (for ever) to {ACK_TIMEOUT_MAX}, for 4.096 us * 2^value")
    return ACK_TIMEOUT_UNIT_US * 2**timeout if timeout else None


def ack_timeout_for(us: float) -> int:
    """The smallest value that waits at least so many microseconds. ValueError: none does."""
    for timeout in range(1, ACK_TIMEOUT_MAX + 1):
        if ACK_TIMEOUT_UNIT_US * 2**timeout >= us > 0:
            return timeout
    raise ValueError(f"{us:g} us: more than 0, and {ACK_TIMEOUT_UNIT_US * 2**ACK_TIMEOUT_MAX / 1e6:.0f} s at most")


def _rdmacm() -> Any:
    try:
        lib = ctypes.CDLL("librdmacm.so.1", use_errno=True)
    except OSError as error:
        raise DeviceError(f"librdmacm.so.1 cannot be loaded ({error}): apt install librdmacm1") from None
    lib.rdma_set_option.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    return lib


def set_ack_timeout(identifier: Any, timeout: int) -> None:
    """Sets how long the queue pair of an RDMA-CM identifier waits for acknowledgements, before it is connected.

    `identifier` is a CMID of pyverbs, or the address of a `struct rdma_cm_id`. ValueError, DeviceError.
    """
    ack_timeout_us(timeout)
    if not isinstance(identifier, int):
        identifier.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, timeout, 1)
        return
    value = ctypes.c_uint8(timeout)
    if _rdmacm().rdma_set_option(identifier, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, ctypes.byref(value), 1):
        code = ctypes.get_errno()
        raise DeviceError(code, f"the ACK timeout cannot be set: {os.strerror(code)}")


def try_ack_timeout(timeout: int) -> None:
    """Sets it on an identifier of librdmacm's made for that. DeviceError says what is missing."""
    ack_timeout_us(timeout)
    lib = _rdmacm()
    lib.rdma_create_event_channel.restype = ctypes.c_void_p
    lib.rdma_destroy_event_channel.argtypes = [ctypes.c_void_p]
    lib.rdma_create_id.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_int]
    lib.rdma_destroy_id.argtypes = [ctypes.c_void_p]
    channel, identifier = lib.rdma_create_event_channel(), ctypes.c_void_p()
    if not channel:
        raise DeviceError(f"no RDMA-CM here: {os.strerror(ctypes.get_errno())}: it needs an RDMA device and modprobe rdma_ucm")
    try:
        if lib.rdma_create_id(channel, ctypes.byref(identifier), None, 0x0106):  # RDMA_PS_TCP
            raise DeviceError(f"no RDMA-CM identifier: {os.strerror(ctypes.get_errno())}")
        try:
            assert identifier.value is not None
            set_ack_timeout(identifier.value, timeout)
        finally:
            lib.rdma_destroy_id(identifier)
    finally:
        lib.rdma_destroy_event_channel(channel)


class Roce:
    """RoCE settings of the devices below a root. What is written is read again; DeviceError says what is not in force."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.tree = Tree(root)

    # ---- devices and ports ----

    def devices(self) -> list[str]:
        """Names of the devices."""
        return _sysfs.device_names(self.tree)

    def device(self, name: str) -> _sysfs.SysDevice:
        """A device with its ports and GIDs."""
        return _sysfs.device(self.tree, name)

    def _port(self, device: str, port: int) -> Path:
        numbers = [found.number for found in self.device(device).ports]
        if port not in numbers:
            raise DeviceError(f"{device}: no port {port}; there is {', '.join(map(str, numbers)) or 'none'}")
        return self.tree.infiniband / device

    def settings(self, device: str, port: int) -> PortSettings:
        """What is set for a port."""
        self._port(device, port)
        return PortSettings(port, self.mode(device, port), self.tos(device, port), self.tclass(device, port), self.ttl(device, port))

    # ---- RDMA-CM: mode and ToS ----

    def _read_cm(self, device: str, port: int, name: str) -> str | None:
        self._port(device, port)
        with self.tree.cm_folder(device) as folder:
            return None if folder is None else self.tree.read(folder / "ports" / str(port) / name)

    def _write_cm(self, device: str, port: int, name: str, text: str) -> str | None:
        """Writes, and returns what is there then."""
        self._port(device, port)
        if not self.tree.cm.is_dir():
            raise DeviceError(f"{self.tree.cm}: not there: modprobe rdma_cm; mount -t configfs none {self.tree.cm.parent}")
        with self.tree.cm_folder(device) as folder:
            if folder is None:
                raise DeviceError(f"{self.tree.cm / device}: cannot be made: run as root")
            path = folder / "ports" / str(port) / name
            self.tree.write(path, text)
            return self.tree.read(path)

    def mode(self, device: str, port: int) -> str | None:
        """RoCE version that RDMA-CM takes for its connections: "v1", "v2"."""
        text = self._read_cm(device, port, "default_roce_mode")
        return next((name for name, mode in MODES.items() if mode == text), text)

    def set_mode(self, device: str, port: int, mode: str) -> None:
        """Sets it: "v1" or "v2"."""
        got = self._write_cm(device, port, "default_roce_mode", MODES[mode])
        if got != MODES[mode]:
            raise DeviceError(f"{device} port {port}: the kernel keeps {got!r}, not {MODES[mode]!r}")

    def tos(self, device: str, port: int) -> int | None:
        """ToS of RDMA-CM's queue pairs whose program sets none."""
        text = self._read_cm(device, port, "default_roce_tos")
        return int(text) if text is not None and text.isdigit() else None

    def set_tos(self, device: str, port: int, tos: int) -> None:
        """Sets it: 0 to 255."""
        priority(tos)
        got = self._write_cm(device, port, "default_roce_tos", str(tos))
        if got != str(tos):
            raise DeviceError(f"{device} port {port}: the kernel keeps {got!r}, not {tos}")

    # ---- traffic class and time to live ----

    def _tc(self, device: str, port: int, *paths: str) -> Path:
        folder = self._port(device, port)
        for path in paths:
            if (folder / path.format(port)).exists():
                return folder / path.format(port)
        raise DeviceError(f"{device} port {port}: no {paths[0].format(port)}: an attribute of NVIDIA's mlx5 driver (MLNX_OFED, DOCA)")

    def tclass(self, device: str, port: int) -> Table | None:
        """Traffic classes in force; None: the driver has no such rules."""
        try:
            path = self._tc(device, port, "tc/{}/traffic_class")
        except DeviceError:
            return None
        text = self.tree.read(path)
        return None if text is None else parse_table(text)

    def write_tclass(self, device: str, port: int, rule: Rule) -> Table:
        """Adds, replaces or removes a rule or the value for all; the table that is in force then."""
        path = self._tc(device, port, "tc/{}/traffic_class")
        self.tree.write(path, str(rule.tclass) if rule.is_global else str(rule))
        table = parse_table(self.tree.read(path) or "")
        if not table.has(rule):
            raise DeviceError(f"{path}: {str(rule)!r} was written and is not in force")
        return table

    def ttl(self, device: str, port: int) -> int | None:
        """Time to live of all RC queue pairs; None: their own."""
        try:
            text = self.tree.read(self._tc(device, port, "tc/{}/ttl", "ttl/{}/ttl"))
        except DeviceError:
            return None
        found = re.search(r"-?\d+$", text or "")
        return int(found[0]) if found and int(found[0]) >= 0 else None

    def set_ttl(self, device: str, port: int, ttl: int) -> None:
        """Sets it: 0 to 255."""
        if not 0 <= ttl <= 255:
            raise ValueError(f"TTL {ttl}: 0 to 255")
        self.tree.write(self._tc(device, port, "tc/{}/ttl", "ttl/{}/ttl"), str(ttl))
        if self.ttl(device, port) != ttl:
            raise DeviceError(f"{device} port {port}: TTL {ttl} was written and is not in force")

    # ---- on and off ----

    def _enable_path(self, name: str) -> Path:
        """Of a device, or of a PCI address: without RoCE a function may have no device to be named by."""
        pci = PCI.fullmatch(name)
        if pci is None:
            self.device(name)
        folders = [self.tree.pci / name, self.tree.root / "sys/devices" / name] if pci else [self.tree.infiniband / name / "device"]
        for folder in folders:
            if (folder / "roce_enable").exists():
                return folder / "roce_enable"
        address = name if pci else self.tree.target(folders[0]) or "0000:00:00.0"
        raise DeviceError(
            f"{name}: the driver has no roce_enable; the kernel's way is devlink dev param set pci/{address} name enable_roce "
            f"value true|false cmode driverinit, then devlink dev reload pci/{address}"
        )

    def enabled(self, name: str) -> bool | None:
        """Whether RoCE is on, of a device or a PCI address; None: the driver does not tell (devlink does)."""
        try:
            text = self.tree.read(self._enable_path(name))
        except DeviceError:
            return None
        return None if text is None else text == "1"

    def set_enabled(self, name: str, on: bool) -> None:
        """Switches it: without RoCE there are no GIDs and only raw-Ethernet queue pairs, and UDP port 4791 is like any other."""
        path = self._enable_path(name)
        self.tree.write(path, "1" if on else "0")
        if self.tree.read(path) != ("1" if on else "0"):
            raise DeviceError(f"{path}: {'1' if on else '0'} was written and is not in force")
