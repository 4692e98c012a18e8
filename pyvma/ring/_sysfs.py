"""RDMA devices as sysfs shows them: ports, GIDs, network devices, bonds, virtual functions."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from ._error import DeviceError
from ._tree import Tree

__all__ = ["Bond", "Gid", "SysDevice", "SysPort", "device", "device_names", "devices", "find_bond"]

# The modes in which one card's two ports become one RDMA device.
LAG_MODES = ("active-backup", "balance-xor", "802.3ad")
GID_TYPES = {"IB/RoCE v1": "RoCE v1", "RoCE v2": "RoCE v2", "RoCE v1": "RoCE v1", "IB": "IB"}
NO_GID = ipaddress.IPv6Address(0)


@dataclass(frozen=True)
class Gid:
    """An entry of a port's GID table."""

    index: int
    gid: str
    """In full: eight groups of four digits."""
    type: str
    """"RoCE v1", "RoCE v2", "IB" or "?"."""
    netdev: str | None
    ipv4: str | None
    """The address, of a GID that holds one."""


@dataclass(frozen=True)
class Bond:
    """A bond of the kernel's that a device's interface is in."""

    name: str
    mode: str
    """e.g. "802.3ad"."""
    slaves: tuple[str, ...]
    roce_lag: bool
    """One RDMA device stands for all ports of the card."""
    reason: str
    """Why it is not, by the rules for RoCE LAG."""


@dataclass(frozen=True)
class SysPort:
    """A port as sysfs shows it."""

    number: int
    state: str
    physical_state: str
    rate: str
    link_layer: str
    netdev: str | None
    """The network device of the port, as ibdev2netdev tells it."""
    netdev_state: str | None
    gids: tuple[Gid, ...]


@dataclass(frozen=True)
class SysDevice:
    """A device as sysfs shows it."""

    name: str
    guid: str
    firmware: str
    board: str
    pci: str | None
    driver: str | None
    vendor_id: int
    part_id: int
    netdevs: tuple[str, ...]
    physical_function: str | None
    """PCI address, of a virtual function."""
    ptp_clock: str | None
    """Device of the card's clock, e.g. "ptp0"."""
    bond: Bond | None
    ports: tuple[SysPort, ...]


def expand(gid: str) -> str:
    """A GID in full. DeviceError when it is none."""
    try:
        return ipaddress.IPv6Address(gid).exploded
    except ValueError:
        raise DeviceError(f"{gid!r} is not a GID") from None


def gid_entry(index: int, gid: str, kind: str, netdev: str | None) -> Gid:
    """An entry of the table from its parts."""
    mapped = ipaddress.IPv6Address(gid).ipv4_mapped
    return Gid(index, gid, GID_TYPES.get(kind, kind or "?"), netdev or None, str(mapped) if mapped else None)


def _number(text: str | None) -> int:
    try:
        return int(text or "0", 0)
    except ValueError:
        return 0


def _after_colon(text: str | None) -> str:
    """ "ACTIVE" of "4: ACTIVE"."""
    return (text or "?").partition(":")[2].strip() or text or "?"


def _gids(tree: Tree, port: Path) -> tuple[Gid, ...]:
    found = []
    for name in tree.names(port / "gids"):
        text = tree.read(port / "gids" / name)
        if not name.isdigit() or not text:
            continue
        gid = expand(text)
        if ipaddress.IPv6Address(gid) == NO_GID:
            continue
        kind = tree.read(port / "gid_attrs/types" / name) or ""
        found.append(gid_entry(int(name), gid, kind, tree.read(port / "gid_attrs/ndevs" / name)))
    return tuple(found)


def _port_of(tree: Tree, netdev: str) -> int:
    """Ports of one function: mlx4 numbers them by dev_port, in old kernels by dev_id."""
    folder = tree.net / netdev
    return max(_number(tree.read(folder / "dev_port")), _number(tree.read(folder / "dev_id"))) + 1


def find_bond(tree: Tree, netdev: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Name, mode and slaves of the bond that a network device is in."""
    name = tree.target(tree.net / netdev / "master")
    if name is None:
        return None
    folder = tree.net / name / "bonding"
    mode = tree.read(folder / "mode")
    if mode is None:
        return None
    return name, mode.split()[0] if mode else "?", tuple((tree.read(folder / "slaves") or "").split())


def _card(pci: str | None) -> str | None:
    """The PCI address without its function: what the ports of one card have in common."""
    return pci.rpartition(".")[0] if pci else None


def _lag_reason(tree: Tree, bond: tuple[str, str, tuple[str, ...]], pci: str | None) -> str:
    """Why a bond does not make one device of a card's ports; empty when it does."""
    name, mode, slaves = bond
    if mode not in LAG_MODES:
        return f"mode {mode}: RoCE LAG needs {', '.join(LAG_MODES)}"
    if len(slaves) != 2:
        return f"{name} has {len(slaves)} slaves: RoCE LAG needs the two ports of one card and no other"
    cards = {_card(tree.target(tree.net / slave / "device")) for slave in slaves}
    if cards != {_card(pci)}:
        return f"{' and '.join(slaves)} are not the two ports of one card"
    return ""


def _bond(tree: Tree, name: str, netdevs: tuple[str, ...], pci: str | None) -> Bond | None:
    found = next(filter(None, (find_bond(tree, netdev) for netdev in netdevs)), None)
    if found is None:
        return None
    why = _lag_reason(tree, found, pci)
    enabled = tree.read(tree.infiniband / name / "device/roce_lag_enable")
    is_one = "_bond_" in name or enabled == "1"
    if not why and not is_one:
        why = "the driver has a device for each port: RoCE LAG is off or not supported"
    return Bond(*found, roce_lag=is_one, reason="" if is_one else why)


def _netdev_of(tree: Tree, number: int, netdevs: tuple[str, ...], gids: tuple[Gid, ...], bond: Bond | None) -> str | None:
    """A RoCE LAG's is the bond; else the one of the port's number, or what the first GID says."""
    if bond is not None and bond.roce_lag:
        return bond.name
    for netdev in netdevs:
        if _port_of(tree, netdev) == number or len(netdevs) == 1:
            return netdev
    return next((gid.netdev for gid in gids if gid.netdev), None)


def _port(tree: Tree, folder: Path, netdevs: tuple[str, ...], bond: Bond | None) -> SysPort:
    number = int(folder.name)
    gids = _gids(tree, folder)
    netdev = _netdev_of(tree, number, netdevs, gids, bond)
    return SysPort(
        number=number,
        state=_after_colon(tree.read(folder / "state")),
        physical_state=_after_colon(tree.read(folder / "phys_state")),
        rate=tree.read(folder / "rate") or "?",
        link_layer=tree.read(folder / "link_layer") or "?",
        netdev=netdev,
        netdev_state=tree.read(tree.net / netdev / "operstate") if netdev else None,
        gids=gids,
    )


def device_names(tree: Tree) -> list[str]:
    """The devices below the root, in the order of their numbers."""
    return sorted(
        tree.names(tree.infiniband), key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    )


def device(tree: Tree, name: str) -> SysDevice:
    """One device. DeviceError when there is none of that name."""
    if "/" in name or name not in tree.names(tree.infiniband):
        known = ", ".join(device_names(tree)) or "none"
        raise DeviceError(f"no such device: {name}; there is {known}")
    folder = tree.infiniband / name
    pci = tree.target(folder / "device")
    netdevs = tuple(tree.names(folder / "device/net"))
    bond = _bond(tree, name, netdevs, pci)
    ports = tuple(_port(tree, folder / "ports" / number, netdevs, bond) for number in tree.names(folder / "ports") if number.isdigit())
    return SysDevice(
        name=name,
        guid=tree.read(folder / "node_guid") or "?",
        firmware=tree.read(folder / "fw_ver") or "?",
        board=tree.read(folder / "board_id") or "?",
        pci=pci,
        driver=tree.target(folder / "device/driver"),
        vendor_id=_number(tree.read(folder / "device/vendor")),
        part_id=_number(tree.read(folder / "device/device")),
        netdevs=netdevs,
        physical_function=tree.target(folder / "device/physfn"),
        ptp_clock=next(iter(tree.names(folder / "device/ptp")), None),
        bond=bond,
        ports=ports,
    )


def devices(tree: Tree) -> list[SysDevice]:
    """All devices below the root."""
    return [device(tree, name) for name in device_names(tree)]
