"""RDMA devices through pyverbs, whose packages and versions differ in where they keep their names."""

from __future__ import annotations

import importlib
from typing import Any

from . import Device, DeviceError, Pacing, Port

INSTALL = "install Debian's python3-pyverbs, and make the environment with --system-site-packages on /usr/bin/python3"


def _pyverbs() -> tuple[Any, Any]:
    try:
        device = importlib.import_module("pyverbs.device")
    except ImportError as error:
        raise DeviceError(f"pyverbs is missing ({error}): {INSTALL}") from None
    for name in ("pyverbs.libibverbs_enums", "pyverbs.enums"):
        try:
            return device, importlib.import_module(name)
        except ImportError:
            continue
    raise DeviceError(f"pyverbs has no enumerations: {INSTALL}")


def _flags(enums: Any, prefix: str, bits: int) -> tuple[str, ...]:
    names = (name for name in sorted(dir(enums)) if name.startswith(prefix))
    return tuple(name[len(prefix) :].lower() for name in names if bits & int(getattr(enums, name)))


def _mtu(device: Any, value: int) -> int:
    """Bytes; pyverbs says "4096 (5)"."""
    text = str(device.translate_mtu(value)).split()
    return int(text[0]) if text and text[0].isdigit() else 0


def _port(device: Any, attributes: Any, number: int) -> Port:
    return Port(
        number=number,
        state=device.port_state_to_str(attributes.state),
        link_layer=device.translate_link_layer(attributes.link_layer),
        max_mtu=_mtu(device, attributes.max_mtu),
        active_mtu=_mtu(device, attributes.active_mtu),
    )


def _describe(device: Any, enums: Any, name: str) -> Device:
    with device.Context(name=name) as context:
        plain, more = context.query_device(), context.query_device_ex()
        limits, firmware = more.packet_pacing_caps, plain.fw_version
        pacing = Pacing(limits.qp_rate_limit_min, limits.qp_rate_limit_max) if limits.qp_rate_limit_max else None
        return Device(
            name=name,
            guid=device.guid_format(plain.node_guid),
            firmware=firmware.decode(errors="replace") if isinstance(firmware, bytes) else str(firmware),
            vendor_id=plain.vendor_id,
            part_id=plain.vendor_part_id,
            max_qp=plain.max_qp,
            max_cq=plain.max_cq,
            max_mr_bytes=plain.max_mr_size,
            raw_packet_caps=_flags(enums, "IBV_RAW_PACKET_CAP_", more.raw_packet_caps),
            tso_max=more.tso_caps.max_tso,
            rss_queues=more.rss_caps.max_rwq_indirection_table_size,
            dm_bytes=more.max_dm_size,
            clock_khz=more.hca_core_clock,
            pacing=pacing,
            ports=tuple(_port(device, context.query_port(n + 1), n + 1) for n in range(plain.phys_port_cnt)),
        )


def devices() -> list[Device]:
    """See pyvma.ring.devices."""
    device, enums = _pyverbs()
    try:
        listed = device.get_device_list()
        return [_describe(device, enums, entry.name.decode()) for entry in listed]
    except device.PyverbsError as error:
        raise DeviceError(f"libibverbs lists no devices: {error}") from None
