"""RDMA devices through pyverbs, whose packages and versions differ in where they keep their names."""

from __future__ import annotations

import importlib
from typing import Any

from . import _sysfs
from ._devices import Capabilities, Device, Pacing, Port
from ._error import DeviceError

INSTALL = "install Debian's python3-pyverbs, and make the environment with --system-site-packages on /usr/bin/python3"


class MissingError(DeviceError):
    """pyverbs is not there; the text says how to get it."""


def _pyverbs() -> tuple[Any, Any]:
    try:
        device = importlib.import_module("pyverbs.device")
    except ImportError as error:
        raise MissingError(f"pyverbs is missing ({error}): {INSTALL}") from None
    for name in ("pyverbs.libibverbs_enums", "pyverbs.enums"):
        try:
            return device, importlib.import_module(name)
        except ImportError:
            continue
    raise MissingError(f"pyverbs has no enumerations: {INSTALL}")


def _flags(enums: Any, prefix: str, bits: int) -> tuple[str, ...]:
    names = (name for name in sorted(dir(enums)) if name.startswith(prefix))
    return tuple(name[len(prefix) :].lower() for name in names if bits & int(getattr(enums, name)))


def _mtu(device: Any, value: int) -> int:
    """Bytes; pyverbs says "4096 (5)"."""
    text = str(device.translate_mtu(value)).split()
    return int(text[0]) if text and text[0].isdigit() else 0


def _gids(device: Any, enums: Any, context: Any, attributes: Any, number: int) -> tuple[_sysfs.Gid, ...]:
    found = []
    kinds = {int(enums.IBV_GID_TYPE_ROCE_V1): "RoCE v1", int(enums.IBV_GID_TYPE_ROCE_V2): "RoCE v2", int(enums.IBV_GID_TYPE_IB): "IB"}
    for index in range(attributes.gid_tbl_len):
        try:
            gid = _sysfs.expand(str(context.query_gid(number, index).gid))
            kind = kinds.get(int(context.query_gid_ex(number, index).gid_type), "?")
        except device.PyverbsError:
            continue  # an entry that is not in use
        if gid.strip("0:"):
            found.append(_sysfs.gid_entry(index, gid, kind, None))
    return tuple(found)


def _port(device: Any, enums: Any, context: Any, number: int) -> Port:
    attributes = context.query_port(number)
    return Port(
        number=number,
        state=device.port_state_to_str(attributes.state),
        link_layer=device.translate_link_layer(attributes.link_layer),
        max_mtu=_mtu(device, attributes.max_mtu),
        active_mtu=_mtu(device, attributes.active_mtu),
        gids=_gids(device, enums, context, attributes, number),
    )


def _capabilities(enums: Any, plain: Any, more: Any) -> Capabilities:
    limits = more.packet_pacing_caps
    return Capabilities(
        max_qp=plain.max_qp,
        max_cq=plain.max_cq,
        max_mr_bytes=plain.max_mr_size,
        raw_packet_caps=_flags(enums, "IBV_RAW_PACKET_CAP_", more.raw_packet_caps),
        tso_max=more.tso_caps.max_tso,
        dm_bytes=more.max_dm_size,
        clock_khz=more.hca_core_clock,
        stamp_bits=int(more.completion_timestamp_mask).bit_length() if more.hca_core_clock else 0,
        pacing=Pacing(limits.qp_rate_limit_min, limits.qp_rate_limit_max) if limits.qp_rate_limit_max else None,
        flow_steering=bool(plain.device_cap_flags & int(enums.IBV_DEVICE_MANAGED_FLOW_STEERING)),
        rss_queues=more.rss_caps.max_rwq_indirection_table_size,
        rss_functions=_flags(enums, "IBV_RX_HASH_FUNC_", more.rss_caps.rx_hash_function),
        rss_fields=_hash_fields(enums, more.rss_caps.rx_hash_fields_mask),
    )


def _hash_fields(enums: Any, bits: int) -> tuple[str, ...]:
    return tuple(name for name in _flags(enums, "IBV_RX_HASH_", bits) if not name.startswith("func_"))


def _describe(device: Any, enums: Any, name: str) -> Device:
    with device.Context(name=name) as context:
        plain, more = context.query_device(), context.query_device_ex()
        firmware = plain.fw_version
        return Device(
            name=name,
            guid=device.guid_format(plain.node_guid),
            firmware=firmware.decode(errors="replace") if isinstance(firmware, bytes) else str(firmware),
            vendor_id=plain.vendor_id,
            part_id=plain.vendor_part_id,
            board=None,
            pci=None,
            driver=None,
            physical_function=None,
            ptp_clock=None,
            netdevs=(),
            bond=None,
            capabilities=_capabilities(enums, plain, more),
            ports=tuple(_port(device, enums, context, n + 1) for n in range(plain.phys_port_cnt)),
        )


def devices() -> list[Device]:
    """Those that libibverbs lists. MissingError: pyverbs is not there."""
    device, enums = _pyverbs()
    try:
        listed = device.get_device_list()
        return [_describe(device, enums, entry.name.decode()) for entry in listed]
    except device.PyverbsError as error:
        raise DeviceError(f"libibverbs lists no devices: {error}") from None
