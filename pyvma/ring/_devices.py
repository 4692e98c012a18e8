"""RDMA devices as libibverbs and sysfs describe them together."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._sysfs import Bond, Gid, SysDevice, SysPort

__all__ = ["Bond", "Capabilities", "Device", "Gid", "Pacing", "Port", "from_sysfs", "merge"]


@dataclass(frozen=True)
class Pacing:
    """Rates that a queue pair can be held to, in kbit/s."""

    min_kbps: int
    max_kbps: int
    burst: bool | None = None
    """Whether the burst can be set; None: libibverbs does not tell."""

    def __str__(self) -> str:
        bursts = "" if self.burst is None else ", bursts settable" if self.burst else ", bursts are the device's choice"
        return f"{self.min_kbps} to {self.max_kbps} kbit/s{bursts}"


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device."""

    number: int
    state: str
    link_layer: str
    max_mtu: int | None
    active_mtu: int | None
    physical_state: str | None = None
    rate: str | None = None
    netdev: str | None = None
    """The network device, as ibdev2netdev tells it; of a RoCE LAG the bond."""
    netdev_state: str | None = None
    roce_mode: str | None = None
    """Of RDMA-CM's connections: "v1" or "v2"; None: not told."""
    gids: tuple[Gid, ...] = ()


@dataclass(frozen=True)
class Capabilities:
    """What raw-Ethernet queue pairs of a device can do, as libibverbs says."""

    max_qp: int
    max_cq: int
    max_mr_bytes: int
    raw_packet_caps: tuple[str, ...]
    """Beyond the plain."""
    tso_max: int
    """Bytes; 0: no segmentation by the device."""
    dm_bytes: int
    """Device memory."""
    clock_khz: int
    """Frequency of the clock that stamps; 0: no stamps."""
    stamp_bits: int
    """That a raw stamp counts with."""
    pacing: Pacing | None
    flow_steering: bool
    """Flow rules by queue pair."""
    rss_queues: int
    """Receive queues behind one hash, at most; 0: none."""
    rss_functions: tuple[str, ...] = ()
    rss_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Device:
    """An RDMA device. `capabilities` None: pyverbs is not there, so that libibverbs cannot be asked."""

    name: str
    guid: str
    firmware: str
    vendor_id: int
    part_id: int
    board: str | None
    pci: str | None
    driver: str | None
    physical_function: str | None
    """PCI address, of a virtual function."""
    ptp_clock: str | None
    """Device of the card's clock, e.g. "ptp0"."""
    netdevs: tuple[str, ...]
    bond: Bond | None
    capabilities: Capabilities | None
    ports: tuple[Port, ...] = field(default_factory=tuple)


def _port(port: SysPort, mode: str | None, verbs: Port | None) -> Port:
    return Port(
        number=port.number,
        state=port.state,
        link_layer=port.link_layer,
        max_mtu=verbs.max_mtu if verbs else None,
        active_mtu=verbs.active_mtu if verbs else None,
        physical_state=port.physical_state,
        rate=port.rate,
        netdev=port.netdev,
        netdev_state=port.netdev_state,
        roce_mode=mode,
        gids=port.gids,
    )


def from_sysfs(device: SysDevice, modes: dict[int, str | None]) -> Device:
    """What sysfs alone tells; `modes`: RDMA-CM's RoCE version by port."""
    return Device(
        name=device.name,
        guid=device.guid,
        firmware=device.firmware,
        vendor_id=device.vendor_id,
        part_id=device.part_id,
        board=device.board,
        pci=device.pci,
        driver=device.driver,
        physical_function=device.physical_function,
        ptp_clock=device.ptp_clock,
        netdevs=device.netdevs,
        bond=device.bond,
        capabilities=None,
        ports=tuple(_port(port, modes.get(port.number), None) for port in device.ports),
    )


def merge(verbs: Device, device: SysDevice, modes: dict[int, str | None]) -> Device:
    """libibverbs' view with what only sysfs knows."""
    by_number = {port.number: port for port in verbs.ports}
    whole = from_sysfs(device, modes)
    ports = tuple(_port(port, modes.get(port.number), by_number.get(port.number)) for port in device.ports)
    names = ("board", "pci", "driver", "physical_function", "ptp_clock", "netdevs", "bond")
    return Device(**{**vars(verbs), **{name: getattr(whole, name) for name in names}, "ports": ports or verbs.ports})
