"""RDMA devices, their ports, GIDs and network devices, and what they can do; the engine's interfaces when some are configured.

Capabilities are libibverbs', through pyverbs; without it what sysfs tells is shown.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import UserError
from ._show import as_json, facts, table, text_of

if TYPE_CHECKING:
    from ..ring import Device, Interface, KernelInterface, Pacing, Port

EXAMPLES = """examples:
  pyvma devinfo                        every device
  pyvma devinfo mlx5_0 --json
  pyvma devinfo --netdevs              which network device is which port's, as ibdev2netdev
  pyvma devinfo --softnic demo/0       a port of the software NIC, too
  pyvma devinfo --root /tmp/tree       a tree with sys/ in it, instead of this machine
"""


def add_parser(commands: Any) -> None:
    """Adds the command."""
    raw = argparse.RawDescriptionHelpFormatter
    text = "RDMA devices and their capabilities"
    parser = commands.add_parser("devinfo", help=text, description=__doc__, epilog=EXAMPLES, formatter_class=raw)
    parser.add_argument("device", nargs="?", help="only this one")
    parser.add_argument("--netdevs", action="store_true", help="one line a port: DEVICE port N ==> NETDEV (STATE)")
    parser.add_argument("--softnic", action="append", default=[], metavar="FABRIC/PORT", help="show this port of the software NIC too")
    parser.add_argument("--root", default="/", metavar="DIR", help="where sys/ is (default: /); elsewhere libibverbs is not asked")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _hundreds(value: int | None, unit: str, none: str) -> str:
    return "?" if value is None else f"{value} {unit}" if value else none


def _pacing(pacing: Pacing | None) -> str:
    return str(pacing) if pacing else "none"


def _capabilities(device: Device) -> dict[str, Any]:
    can = device.capabilities
    if can is None:
        return {"capabilities": "not known without pyverbs (apt install python3-pyverbs)"}
    rss = "none"
    if can.rss_queues:
        rss = f"{can.rss_queues} queues by {text_of(can.rss_functions)} over {text_of(can.rss_fields)}"
    clock = f"{can.clock_khz} kHz, {can.stamp_bits} bits" if can.clock_khz else "none"
    return {
        "queue pairs": can.max_qp,
        "completion queues": can.max_cq,
        "largest memory region": f"{can.max_mr_bytes} bytes",
        "raw packet": can.raw_packet_caps,
        "segmentation (TSO)": _hundreds(can.tso_max, "bytes", "none"),
        "pacing": _pacing(can.pacing),
        "device memory": _hundreds(can.dm_bytes, "bytes", "none"),
        "hardware stamps": clock + (f", {device.ptp_clock}" if device.ptp_clock else ""),
        "steering": "flow rules" if can.flow_steering else "none",
        "RSS": rss,
    }


def _bond(device: Device) -> str | None:
    bond = device.bond
    if bond is None:
        return None
    what = "RoCE LAG" if bond.roce_lag else f"no RoCE LAG: {bond.reason}"
    return f"{bond.name} ({bond.mode}, {' and '.join(bond.slaves)}), {what}"


def _modes(port: Port) -> str | None:
    kinds = sorted({gid.type for gid in port.gids if gid.type.startswith("RoCE")})
    if not kinds:
        return None
    return ", ".join(kinds) + (f"; RDMA-CM takes {port.roce_mode}" if port.roce_mode else "")


def _show_device(device: Device) -> None:
    values = {
        "guid": device.guid,
        "firmware": device.firmware,
        "vendor, part": f"{device.vendor_id:#06x}, {device.part_id}",
        "board": device.board,
        "PCI address": device.pci,
        "driver": device.driver,
        "network devices": device.netdevs,
    }
    if device.physical_function:
        values["virtual function of"] = device.physical_function
    if device.bond:
        values["bond"] = _bond(device)
    facts(f"device {device.name}", {**values, **_capabilities(device)})
    for port in device.ports:
        mtu = None if port.active_mtu is None else f"{port.active_mtu} of {port.max_mtu}"
        shown = {
            "state": port.state,
            "physical state": port.physical_state,
            "link layer": port.link_layer,
            "rate": port.rate,
            "IB MTU": mtu,
        }
        facts(f"port {port.number}", {**shown, "netdev": port.netdev, "RoCE": _modes(port)}, "  ")
        if port.gids:
            rows = [(gid.index, gid.gid, gid.ipv4, gid.type, gid.netdev) for gid in port.gids]
            table(("INDEX", "GID", "IPv4", "TYPE", "NETDEV"), rows, "      ")


def _show_interface(interface: Interface) -> None:
    values = asdict(interface)
    values.pop("name")
    values["pacing"] = _pacing(interface.pacing)
    facts(f"interface {interface.name}", values)


def _show_netdevs(devices: list[Device]) -> None:
    for device in devices:
        for port in device.ports:
            print(f"{device.name} port {port.number} ==> {text_of(port.netdev)} ({(port.netdev_state or 'unknown').capitalize()})")


def _devices(arguments: argparse.Namespace) -> list[Device]:
    """UserError: there is none of that name."""
    from .. import ring
    from ..ring import softnic

    # Before pyverbs is imported: only then it sees the software NIC's devices.
    if softnic.available() and (arguments.softnic or os.environ.get("PYVMA_SOFTNIC")):
        for port in arguments.softnic:
            softnic.device(port)
        softnic.load()
    devices = [device for device in ring.devices(arguments.root) if arguments.device in (None, device.name)]
    if arguments.device and not devices:
        raise UserError(f"no such device: {arguments.device}")
    return devices


def _interfaces(arguments: argparse.Namespace) -> tuple[list[Interface], list[KernelInterface]]:
    """The engine's, and those that are not offloaded; none unless some are configured and everything is asked for."""
    from .. import ring

    if not os.environ.get("PYVMA_INTERFACES") or arguments.device or arguments.netdevs or arguments.root != "/":
        return [], []
    return ring.interfaces(), [entry for entry in ring.kernel_interfaces() if not entry.offloaded]


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or 1 when devices cannot be listed; stderr then says why and what to install."""
    status = 0
    devices: list[Device] = []
    try:
        devices = _devices(arguments)
    except (OSError, UserError) as error:
        print(f"pyvma devinfo: {error}", file=sys.stderr)
        status = 1
    try:
        interfaces, kernels = _interfaces(arguments)
    except OSError as error:
        raise UserError(error.strerror or str(error)) from None
    if arguments.json:
        as_json(
            {
                "devices": [asdict(device) for device in devices],
                "interfaces": [asdict(interface) for interface in interfaces],
                "not_offloaded": [asdict(entry) for entry in kernels],
            }
        )
        return status
    if arguments.netdevs:
        _show_netdevs(devices)
        return status
    for device in devices:
        _show_device(device)
    for interface in interfaces:
        _show_interface(interface)
    for entry in kernels:
        facts(f"interface {entry.name}", {"ring": entry.ring, "not offloaded": entry.reason})
    if not devices and not status:
        print("no RDMA devices")
    return status
