"""Trees as the kernel lays out sysfs and configfs for RDMA devices, in a folder of a test's."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

V1, V2 = "IB/RoCE v1", "RoCE v2"


class RdmaTree:
    """Devices are added to `root`; links are relative, as sysfs has them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("sys/class/infiniband", "sys/class/net", "sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/kernel/config/rdma_cm"):
            (root / folder).mkdir(parents=True)

    def put(self, path: str | Path, text: str) -> Path:
        """A file with a line."""
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(f"{text}\n")
        return full

    def link(self, path: str | Path, target: str | Path) -> None:
        """A relative link from one place below the root to another."""
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.symlink_to(os.path.relpath(self.root / target, full.parent))

    def function(self, pci: str, driver: str, part: int = 0x1019) -> Path:
        """A PCI function; its folder below the root."""
        folder = Path("sys/devices/pci0000:00") / pci
        self.put(folder / "vendor", "0x15b3")
        self.put(folder / "device", f"{part:#06x}")
        self.link(Path("sys/bus/pci/devices") / pci, folder)
        (self.root / "sys/bus/pci/drivers" / driver).mkdir(exist_ok=True)
        self.link(folder / "driver", Path("sys/bus/pci/drivers") / driver)
        return folder

    def netdev(self, function: Path | None, name: str, dev_port: int = 0, state: str = "up") -> None:
        """A network device of a function, or of none (a bond)."""
        folder = (function / "net" if function else Path("sys/devices/virtual/net")) / name
        self.put(folder / "dev_port", str(dev_port))
        self.put(folder / "dev_id", "0x0")
        self.put(folder / "operstate", state)
        if function:
            self.link(folder / "device", function)
        self.link(Path("sys/class/net") / name, folder)

    def bond(self, name: str, mode: str, *slaves: str) -> None:
        """A bond of network devices that are there."""
        self.netdev(None, name)
        self.put(f"sys/class/net/{name}/bonding/mode", mode)
        self.put(f"sys/class/net/{name}/bonding/slaves", " ".join(slaves))
        for slave in slaves:
            self.link((Path("sys/class/net") / slave).joinpath("master"), Path("sys/class/net") / name)

    def device(self, function: Path, name: str, ports: int = 1, **attributes: str) -> Path:
        """An RDMA device of a function, with empty ports."""
        folder = function / "infiniband" / name
        values = {"node_guid": "0000:0000:0000:0000", "fw_ver": "16.28.0578", "board_id": "MT_0000000009", "node_type": "1: CA"}
        for key, value in {**values, **attributes}.items():
            self.put(folder / key, value)
        self.link(folder / "device", function)
        self.link(Path("sys/class/infiniband") / name, folder)
        for number in range(1, ports + 1):
            port = folder / "ports" / str(number)
            for key, value in (
                ("state", "4: ACTIVE"),
                ("phys_state", "5: LinkUp"),
                ("rate", "100 Gb/sec (4X EDR)"),
                ("link_layer", "Ethernet"),
            ):
                self.put(port / key, value)
            for index in range(16):
                self.put(port / "gids" / str(index), ipaddress.IPv6Address(0).exploded)
        return folder

    def gid(self, name: str, port: int, index: int, address: str, kind: str, netdev: str) -> None:
        """An entry of a GID table; IPv4 addresses as the kernel maps them."""
        ip = ipaddress.ip_address(address)
        full = ip if ip.version == 6 else ipaddress.IPv6Address(f"::ffff:{ip}")
        folder = Path("sys/class/infiniband") / name / "ports" / str(port)
        self.put(folder / "gids" / str(index), ipaddress.IPv6Address(int(full)).exploded)
        self.put(folder / "gid_attrs/types" / str(index), kind)
        self.put(folder / "gid_attrs/ndevs" / str(index), netdev)

    def gids(self, name: str, port: int, netdev: str, *addresses: str) -> None:
        """Both RoCE versions of each address, as the kernel fills the table."""
        for i, address in enumerate(addresses):
            self.gid(name, port, 2 * i, address, V1, netdev)
            self.gid(name, port, 2 * i + 1, address, V2, netdev)

    def cm(self, name: str, port: int, mode: str = V2, tos: str = "0") -> None:
        """RDMA-CM's attributes of a port, as after mkdir in configfs."""
        folder = Path("sys/kernel/config/rdma_cm") / name / "ports" / str(port)
        self.put(folder / "default_roce_mode", mode)
        self.put(folder / "default_roce_tos", tos)


def dual_port(root: Path) -> RdmaTree:
    """Two functions of one mlx5 card, each with a device and a network device; the first one's driver has traffic classes."""
    tree = RdmaTree(root)
    for i, address in enumerate(("10.10.10.1", "10.10.20.1")):
        function = tree.function(f"0000:03:00.{i}", "mlx5_core")
        tree.netdev(function, f"p4p{i + 1}")
        tree.device(function, f"mlx5_{i}", node_guid=f"ec0d:9a03:0044:376{i + 4}")
        tree.gids(f"mlx5_{i}", 1, f"p4p{i + 1}", f"fe80::ba59:9fff:fe1a:e3e{i + 10:x}", address)
        tree.cm(f"mlx5_{i}", 1)
        tree.put(function / "roce_enable", "1")
        (tree.root / function / "ptp" / f"ptp{i}").mkdir(parents=True)
    tree.put("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "")
    tree.put("sys/class/infiniband/mlx5_0/tc/1/ttl", "64")
    return tree


def lag(root: Path, mode: str = "802.3ad 4") -> RdmaTree:
    """The same card in RoCE LAG: one device for both ports."""
    tree = RdmaTree(root)
    functions = [tree.function(f"0000:03:00.{i}", "mlx5_core") for i in range(2)]
    for i, function in enumerate(functions):
        tree.netdev(function, f"p4p{i + 1}")
    tree.bond("bond0", mode, "p4p1", "p4p2")
    tree.device(functions[0], "mlx5_bond_0")
    tree.gids("mlx5_bond_0", 1, "bond0", "fe80::1", "10.10.10.1")
    return tree


def virtual_function(root: Path) -> RdmaTree:
    """A virtual function beside its physical one."""
    tree = dual_port(root)
    function = tree.function("0000:03:00.2", "mlx5_core", 0x101A)
    tree.netdev(function, "p4p1v0", state="down")
    tree.device(function, "mlx5_2")
    tree.link(function / "physfn", "sys/devices/pci0000:00/0000:03:00.0")
    return tree


def mlx4(root: Path) -> RdmaTree:
    """One function with one device of two ports."""
    tree = RdmaTree(root)
    function = tree.function("0000:81:00.0", "mlx4_core", 0x1007)
    tree.netdev(function, "eth2", 0)
    tree.netdev(function, "eth3", 1, "down")
    tree.device(function, "mlx4_0", ports=2, board_id="MT_1090120019")
    tree.gids("mlx4_0", 1, "eth2", "fe80::2", "20.4.3.219")
    tree.gid("mlx4_0", 2, 0, "fe80::3", V1, "eth3")
    return tree
