"""`pyvma roce` and `pyvma devinfo` against trees of sysfs and configfs."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rdma_tree

from pyvma import ring
from pyvma._cli import main
from pyvma.ring import roce, tclass


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def pyvma(*arguments: object) -> Done:
    """The command, in this process: there are many of them."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
    return Done(status, out.getvalue(), err.getvalue())


@pytest.fixture
def card(tmp_path: Path) -> rdma_tree.RdmaTree:
    return rdma_tree.dual_port(tmp_path)


def files(root: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in root.rglob("*") if path.is_file() and not path.is_symlink()}


# ---- devices ----


def test_two_ports_of_a_card(card: rdma_tree.RdmaTree) -> None:
    first, second = ring.devices(card.root)
    assert (first.name, first.pci, first.driver, first.netdevs) == ("mlx5_0", "0000:03:00.0", "mlx5_core", ("p4p1",))
    assert (first.guid, first.firmware, first.vendor_id, first.part_id) == ("ec0d:9a03:0044:3764", "16.28.0578", 0x15B3, 0x1019)
    assert (first.ptp_clock, first.bond, first.physical_function, first.capabilities) == ("ptp0", None, None, None)
    (port,) = second.ports
    assert (port.number, port.state, port.physical_state, port.link_layer) == (1, "ACTIVE", "LinkUp", "Ethernet")
    assert (port.netdev, port.netdev_state, port.roce_mode) == ("p4p2", "up", "v2")
    assert [(gid.index, gid.type, gid.ipv4, gid.netdev) for gid in port.gids] == [
        (0, "RoCE v1", None, "p4p2"),
        (1, "RoCE v2", None, "p4p2"),
        (2, "RoCE v1", "10.10.20.1", "p4p2"),
        (3, "RoCE v2", "10.10.20.1", "p4p2"),
    ]
    assert port.gids[3].gid == "0000:0000:0000:0000:0000:ffff:0a0a:1401"


def test_roce_lag(tmp_path: Path) -> None:
    (device,) = ring.devices(rdma_tree.lag(tmp_path).root)
    assert device.bond == ring.Bond("bond0", "802.3ad", ("p4p1", "p4p2"), roce_lag=True, reason="")
    assert (device.ports[0].netdev, device.name) == ("bond0", "mlx5_bond_0")


@pytest.mark.parametrize(
    ("mode", "slaves", "told"),
    [
        ("balance-rr 0", ("p4p1", "p4p2"), "mode balance-rr: RoCE LAG needs active-backup, balance-xor, 802.3ad"),
        ("802.3ad 4", ("p4p1",), "bond0 has 1 slaves"),
        ("802.3ad 4", ("p4p1", "em1"), "p4p1 and em1 are not the two ports of one card"),
        ("active-backup 1", ("p4p1", "p4p2"), "the driver has a device for each port"),
    ],
)
def test_a_bond_that_is_no_lag(card: rdma_tree.RdmaTree, mode: str, slaves: tuple[str, ...], told: str) -> None:
    card.netdev(card.function("0000:05:00.0", "igb"), "em1")
    card.bond("bond0", mode, *slaves)
    bond = ring.devices(card.root)[0].bond
    assert bond is not None
    assert not bond.roce_lag
    assert told in bond.reason


def test_a_virtual_function(tmp_path: Path) -> None:
    device = ring.devices(rdma_tree.virtual_function(tmp_path).root)[2]
    assert (device.name, device.physical_function, device.part_id) == ("mlx5_2", "0000:03:00.0", 0x101A)
    assert (device.ports[0].netdev, device.ports[0].netdev_state, device.ports[0].gids) == ("p4p1v0", "down", ())


def test_two_ports_of_one_device(tmp_path: Path) -> None:
    (device,) = ring.devices(rdma_tree.mlx4(tmp_path).root)
    assert [(port.number, port.netdev, port.netdev_state) for port in device.ports] == [(1, "eth2", "up"), (2, "eth3", "down")]
    assert device.netdevs == ("eth2", "eth3")


def test_devinfo_of_a_tree(tmp_path: Path) -> None:
    root = rdma_tree.mlx4(tmp_path).root
    done = pyvma("devinfo", "--root", root, "--netdevs")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "mlx4_0 port 1 ==> eth2 (Up)\nmlx4_0 port 2 ==> eth3 (Down)\n"
    text = pyvma("devinfo", "--root", root).stdout
    for word in ("device mlx4_0", "0000:81:00.0", "20.4.3.219", "RoCE v1, RoCE v2", "python3-pyverbs"):
        assert word in text
    found = json.loads(pyvma("devinfo", "--root", root, "--json").stdout)["devices"]
    assert found[0]["ports"][0]["gids"][2]["ipv4"] == "20.4.3.219"
    done = pyvma("devinfo", "--root", root, "mlx5_9")
    assert (done.returncode, done.stderr) == (1, "pyvma devinfo: no such device: mlx5_9\n")
    assert "no RDMA devices" in pyvma("devinfo", "--root", tmp_path / "sys").stdout


# ---- settings ----


def test_status(card: rdma_tree.RdmaTree) -> None:
    card.put("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\nsrc_ip=1.1.1.2,tclass=8")
    before = files(card.root)
    done = pyvma("roce", "status", "--root", card.root)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("device mlx5_0", "10.10.10.1", "all: 106, tclass=8,src_ip=1.1.1.2", "v2", "64", "device mlx5_1"):
        assert word in done.stdout
    assert "\x1b" not in done.stdout
    (device,) = json.loads(pyvma("roce", "status", "mlx5_0", "--json", "--root", card.root).stdout)["devices"]
    assert device["roce_enable"] is True
    port = device["ports"][0]
    assert (port["mode"], port["tos"], port["ttl"]) == ("v2", 0, 64)
    assert port["traffic_class"] == {"global": 106, "rules": ["tclass=8,src_ip=1.1.1.2"]}
    assert files(card.root) == before


def test_mode_and_tos(card: rdma_tree.RdmaTree) -> None:
    folder = card.root / "sys/kernel/config/rdma_cm/mlx5_1/ports/1"
    assert pyvma("roce", "mode", "mlx5_1", 1, "--root", card.root).stdout == "v2\n"
    assert pyvma("roce", "mode", "mlx5_1", 1, "v1", "--root", card.root).stdout == "v1\n"
    assert (folder / "default_roce_mode").read_text() == "IB/RoCE v1\n"
    assert pyvma("roce", "tos", "mlx5_1", 1, 106, "--root", card.root).stdout == "106\n"
    assert (folder / "default_roce_tos").read_text() == "106\n"
    found = json.loads(pyvma("roce", "tos", "mlx5_1", 1, "--json", "--root", card.root).stdout)
    assert found == {"device": "mlx5_1", "port": 1, "tos": 106}


def test_on_and_off(card: rdma_tree.RdmaTree) -> None:
    settings = roce.Roce(card.root)
    settings.set_enabled("mlx5_0", False)
    assert (card.root / "sys/devices/pci0000:00/0000:03:00.0/roce_enable").read_text() == "0\n"
    assert settings.enabled("0000:03:00.0") is False
    settings.set_enabled("0000:03:00.0", True)
    assert settings.enabled("mlx5_0") is True
    (card.root / "sys/devices/pci0000:00/0000:03:00.1/roce_enable").unlink()
    assert settings.enabled("mlx5_1") is None
    with pytest.raises(ring.DeviceError, match=r"devlink dev param set pci/0000:03:00\.1 name enable_roce"):
        settings.set_enabled("mlx5_1", False)
    card.put("sys/devices/0000:09:00.0/roce_enable", "1")  # where the vendor's manual has it
    settings.set_enabled("0000:09:00.0", False)
    assert settings.enabled("0000:09:00.0") is False


def test_traffic_classes(card: rdma_tree.RdmaTree) -> None:
    def ask(*arguments: object) -> Done:
        return pyvma("roce", "tclass", *arguments, "--root", card.root)

    path = card.root / "sys/class/infiniband/mlx5_0/tc/1/traffic_class"
    rule = "tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24"
    assert ask("list", "mlx5_0", 1).stdout == "neither a value for all nor rules\n"
    assert ask("add", "mlx5_0", 1, rule.removeprefix("tclass=")).stdout == f"{rule}\n"
    assert path.read_text() == f"{rule}\n"
    done = ask("explain", "mlx5_0", 1, "--src", "1.1.1.2", "--dst", "1.1.1.9")
    assert done.stdout == f"traffic class 16: no value for all, and {rule} matches\n    matches: {rule}\n"
    assert "queue pair's own" in ask("explain", "mlx5_0", 1, "--src", "1.1.1.3", "--dst", "1.1.1.9").stdout
    ask("del", "mlx5_0", 1, "src_ip=1.1.1.2,dst_ip=1.1.1.0/24")
    assert path.read_text() == "tclass=-1,src_ip=1.1.1.2,dst_ip=1.1.1.0/24\n"
    assert ask("set", "mlx5_0", 1, 106).stdout == "Global tclass=106\n"
    assert path.read_text() == "106\n"
    found = json.loads(ask("explain", "mlx5_0", 1, "--src", "1.1.1.3", "--dst", "1.1.1.9", "--json").stdout)
    assert (found["tclass"], found["defined"]) == (106, True)
    assert ask("set", "mlx5_0", 1, "none").returncode == 0
    assert path.read_text() == "-1\n"
    for arguments, told in (
        (("add", "mlx5_0", 1, "106"), "names no address"),
        (("add", "mlx5_0", 1, "tclass=-1,src_ip=1.1.1.1"), "is `del`"),
        (("set", "mlx5_0", 1, "16,src_ip=1.1.1.1"), "`add` takes rules"),
        (("set", "mlx5_0", 1, "300"), "0 to 255"),
        (("list", "mlx5_1", 1), "no traffic class rules"),
        (("set", "mlx5_1", 1, "3"), "an attribute of NVIDIA's mlx5 driver"),
        (("set", "mlx5_0", 2, "3"), "no port 2; there is 1"),
        (("set", "mlx5_7", 1, "3"), "no such device: mlx5_7; there is mlx5_0, mlx5_1"),
    ):
        done = ask(*arguments)
        assert (done.returncode, done.stdout) == (1, ""), arguments
        assert told in done.stderr
        assert done.stderr.count("\n") == 1


def test_ttl(card: rdma_tree.RdmaTree) -> None:
    settings = roce.Roce(card.root)
    settings.set_ttl("mlx5_0", 1, 7)
    assert settings.ttl("mlx5_0", 1) == 7
    assert settings.ttl("mlx5_1", 1) is None
    with pytest.raises(ValueError, match="0 to 255"):
        settings.set_ttl("mlx5_0", 1, 256)


def test_what_is_not_kept_is_an_error(card: rdma_tree.RdmaTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes that take a write without complaint and keep what they had."""
    settings = roce.Roce(card.root)
    monkeypatch.setattr(settings.tree, "write", lambda path, text: None)
    rule = tclass.parse_rule("3,src_ip=1.1.1.1")
    for act in (
        lambda: settings.set_mode("mlx5_0", 1, "v1"),
        lambda: settings.set_tos("mlx5_0", 1, 3),
        lambda: settings.set_ttl("mlx5_0", 1, 9),
        lambda: settings.set_enabled("mlx5_0", False),
        lambda: settings.write_tclass("mlx5_0", 1, rule),
    ):
        with pytest.raises(ring.DeviceError, match=r"keeps|not in force"):
            act()


def test_nothing_outside_the_root(card: rdma_tree.RdmaTree, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "precious"
    outside.write_text("untouched")
    for path in ("sys/class/infiniband/mlx5_0/tc/1/ttl", "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"):
        full = (card.root / path).resolve()
        full.unlink()
        full.symlink_to(outside)
    settings = roce.Roce(card.root)
    for act in (lambda: settings.set_ttl("mlx5_0", 1, 1), lambda: settings.set_tos("mlx5_0", 1, 1), lambda: settings.device("../../etc")):
        with pytest.raises(ring.DeviceError):
            act()
    assert settings.ttl("mlx5_0", 1) is None
    assert outside.read_text() == "untouched"


def test_configfs_is_left_as_it_was(card: rdma_tree.RdmaTree) -> None:
    """A device's folder that is made to read its attributes is taken away again."""
    folder = card.root / "sys/kernel/config/rdma_cm"
    card.device(card.function("0000:07:00.0", "mlx5_core"), "mlx5_5")
    assert roce.Roce(card.root).mode("mlx5_5", 1) is None
    assert sorted(path.name for path in folder.iterdir()) == ["mlx5_0", "mlx5_1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_without_privilege(card: rdma_tree.RdmaTree) -> None:
    for path in (card.root, *card.root.parents):
        if path.stat().st_uid == 0 and path != Path("/tmp") and path.is_relative_to("/tmp"):
            path.chmod(path.stat().st_mode | 0o055)
    pid = os.fork()
    if pid == 0:
        try:
            os.seteuid(65534)
            try:
                roce.Roce(card.root).set_ttl("mlx5_0", 1, 3)
            except ring.DeviceError as error:
                os._exit(0 if str(error).endswith("Permission denied: run as root") and "\n" not in str(error) else 3)
            os._exit(2)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---- arithmetic ----


def test_priorities() -> None:
    assert roce.priority(160) == roce.Priority(160, 40, 5, 5)
    assert {roce.priority(tos).sl for tos in range(256)} == set(range(8))
    assert all(roce.priority(tos).pcp == tos >> 5 & 7 and roce.priority(tos).dscp == tos >> 2 for tos in range(256))
    with pytest.raises(ValueError, match="0 to 255"):
        roce.priority(256)
    assert pyvma("roce", "sl", 96).stdout.startswith("ToS 96: DSCP 24, service level 3, VLAN priority 3")


class Recorder:
    """Takes options as pyverbs' CMID does."""

    def __init__(self) -> None:
        self.options: list[tuple[int, ...]] = []

    def set_option(self, *option: int) -> None:
        self.options.append(option)


def test_ack_timeouts() -> None:
    assert roce.ack_timeout_us(14) == pytest.approx(67108.864)
    assert roce.ack_timeout_us(0) is None
    for timeout in range(1, 32):
        us = roce.ack_timeout_us(timeout)
        assert us is not None
        assert roce.ack_timeout_for(us) == timeout
        assert roce.ack_timeout_for(us * 0.51) == timeout
    for wrong in (-1, 32):
        with pytest.raises(ValueError, match=r"4\.096 us"):
            roce.ack_timeout_us(wrong)
    for wait in (0, -1, 1e12):
        with pytest.raises(ValueError, match="at most"):
            roce.ack_timeout_for(wait)
    identifier = Recorder()
    roce.set_ack_timeout(identifier, 14)
    assert identifier.options == [(0, 3, 14, 1)]
    assert pyvma("roce", "ack-timeout", "--us", 100000).stdout == "ACK timeout 15: 134218 us\n"
    done = pyvma("roce", "ack-timeout")
    assert (done.returncode, done.stderr) == (1, "pyvma roce: ack-timeout: either VALUE or --us\n")
    done = pyvma("roce", "ack-timeout", 14, "--try")
    assert done.returncode == 0 or done.stderr.startswith("pyvma roce: ")
    assert done.stderr.count("\n") <= 1


def test_pyverbs_takes_the_option() -> None:
    """Its identifiers have the call, with these four arguments."""
    cmid: Any = pytest.importorskip("pyverbs.cmid", reason="apt install python3-pyverbs")
    assert callable(cmid.CMID.set_option)


@pytest.mark.parametrize("command", [["roce"], ["roce", "tclass", "add"], ["devinfo"], ["capture"]])
def test_help_has_examples(command: list[str]) -> None:
    done = pyvma(*command, "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout or "rules:" in done.stdout
