"""RDMA devices and what they can do, and the engine's interfaces when some are configured."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ring import Device, Interface


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser("devinfo", help="RDMA devices and their capabilities", description=__doc__)
    parser.add_argument("device", nargs="?", help="only this one")
    parser.add_argument("--softnic", action="append", default=[], metavar="FABRIC/PORT", help="show this port of the software NIC too")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _show(title: str, facts: dict[str, Any]) -> None:
    print(title)
    for name, value in facts.items():
        if isinstance(value, list | tuple):
            value = ", ".join(str(item) for item in value) or "-"
        elif value is None:
            value = "-"
        print(f"    {name.replace('_', ' '):<18} {value}")


def _show_device(device: Device) -> None:
    facts = asdict(device)
    ports = facts.pop("ports")
    facts.pop("name")
    if device.pacing:
        facts["pacing"] = f"{device.pacing.min_kbps} to {device.pacing.max_kbps} kbit/s"
    _show(f"device {device.name}", facts)
    for port in ports:
        _show(f"  port {port.pop('number')}", port)


def _show_interface(interface: Interface) -> None:
    facts = asdict(interface)
    facts.pop("name")
    if interface.pacing:
        facts["pacing"] = f"{interface.pacing.min_kbps} to {interface.pacing.max_kbps} kbit/s"
    _show(f"interface {interface.name}", facts)


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or 1 when devices cannot be listed; stderr then says why and what to install."""
    from .. import ring
    from ..ring import softnic

    # Before pyverbs is imported: only then it sees the software NIC's devices.
    if softnic.available() and (arguments.softnic or os.environ.get("PYVMA_SOFTNIC")):
        for port in arguments.softnic:
            softnic.device(port)
        softnic.load()
    status = 0
    devices: list[Device] = []
    try:
        devices = [device for device in ring.devices() if arguments.device in (None, device.name)]
    except ring.DeviceError as error:
        print(f"pyvma devinfo: {error}", file=sys.stderr)
        status = 1
    if arguments.device and not devices and not status:
        print(f"pyvma devinfo: no such device: {arguments.device}", file=sys.stderr)
        status = 1
    interfaces_wanted = bool(os.environ.get("PYVMA_INTERFACES")) and not arguments.device
    interfaces = ring.interfaces() if interfaces_wanted else []
    kernels = [entry for entry in ring.kernel_interfaces() if not entry.offloaded] if interfaces_wanted else []
    if arguments.json:
        found = {
            "devices": [asdict(device) for device in devices],
            "interfaces": [asdict(interface) for interface in interfaces],
            "not_offloaded": [asdict(entry) for entry in kernels],
        }
        print(json.dumps(found, indent=2, default=str))
        return status
    for device in devices:
        _show_device(device)
    for interface in interfaces:
        _show_interface(interface)
    for entry in kernels:
        _show(f"interface {entry.name}", {"ring": entry.ring, "not offloaded": entry.reason})
    if not devices and not status:
        print("no RDMA devices")
    return status
