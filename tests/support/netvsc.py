"""A guest on Hyper-V in three namespaces: the application's with its synthetic interface, the host's virtual switch, a peer's.

    here: syn0 (a veth, has the addresses)  vf0 (a veth that comes and goes, as the VF's interface)
    switch: bridge br0 with s_syn (to syn0), s_peer (to the peer) and tap0 (the uplink of a software NIC's fabric)
    there: p0, a kernel peer

The software NIC's port 0 is the VF: same MAC as syn0, and taken out of the machine when the VF is. Or there is no RDMA device, and the VF
is an interface alone: then vf0's other end is tap0. Which way frames for that MAC go is told by an entry of the bridge's table, as
Hyper-V's switch has one datapath in force. Sysfs is a directory that follows.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from exchange import wait_for
from netns import Namespace, sh

HERE = {4: "10.81.0.1", 6: "fd81::1"}
THERE = {4: "10.81.0.2", 6: "fd81::2"}
CLASS = "{f8615163-df3e-46c5-913f-f2d2f965ed0e}\n"
UPLINK_PORT = 9


class Batch:
    """`ip`, `bridge` or `tc` that stays and takes a line at a time: a command is done within a fraction of a millisecond."""

    def __init__(self, ns: Namespace, program: str) -> None:
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", ns.name, program, "-force", "-batch", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )

    def __call__(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.wait(10)


def put_whole(file: Path, text: str) -> None:
    """As with sysfs, who reads meanwhile finds all that there was or all that there is: without slaves a bond is closed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}")
    new.write_text(text)
    new.replace(file)


class Guest:
    """The three namespaces and what connects them; `plug_in` and `plug_out` are what the host does to the guest."""

    def __init__(self, here: Namespace, switch: Namespace, there: Namespace, root: Path, rdma: bool = True) -> None:
        self.here, self.switch, self.there, self.root, self.rdma = here, switch, there, root, rdma
        self.fabric = f"t{secrets.token_hex(4)}"
        self.mac = f"02:81:{secrets.token_hex(1)}:{secrets.token_hex(1)}:{secrets.token_hex(1)}:01"
        self.port = f"{self.fabric}/0,mac={self.mac}"
        self.net = root / "class" / "net"
        self.bridge = Batch(switch, "bridge")
        self.ip = Batch(here, "ip")
        self.plugged = False
        self.uplink: subprocess.Popen[bytes] | None = None

    @property
    def interface(self) -> str:
        """The entry of the setting `interfaces`."""
        return "bond:device=syn0," + (f"fabric={self.fabric}" if self.rdma else "legs=xdp")

    @property
    def environment(self) -> dict[str, str]:
        """Of the application."""
        return {"PYVMA_SYSFS_ROOT": str(self.root), "PYVMA_DAEMON": str(self.root / "pyvmad.sock")}

    def links(self) -> None:
        """Interfaces, addresses and the bridge; the uplink's TAP device is there already."""
        there = ("netns", self.switch.name)
        mac = ("address", self.mac, "netns", self.here.name)
        sh("ip", "link", "add", "syn0", *mac, "type", "veth", "peer", "s_syn", *there)
        sh("ip", "link", "add", "p0", "netns", self.there.name, "type", "veth", "peer", "s_peer", *there)
        self.switch.ip("link", "add", "br0", "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
        for port in ("s_syn", "s_peer"):
            self.switch.ip("link", "set", port, "master", "br0")
            self.switch.ip("link", "set", port, "up")
        self.switch.ip("link", "set", "br0", "up")
        self.switch.run("bridge", "link", "set", "dev", "s_syn", "learning", "off")
        if self.rdma:
            self._port_in()
        for ns, device, hosts in ((self.here, "syn0", HERE), (self.there, "p0", THERE)):
            ns.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
            ns.ip("addr", "add", f"{hosts[4]}/24", "dev", device)
            ns.ip("-6", "addr", "add", f"{hosts[6]}/64", "dev", device, "nodad")
            ns.ip("link", "set", device, "up")
        # Its kernel would hear answers to ARP by the VF, too, which has no driver here.
        peer = self.there.run("cat", "/sys/class/net/p0/address").strip()
        for host in THERE.values():
            self.here.ip("neigh", "replace", host, "lladdr", peer, "dev", "syn0", "nud", "permanent")
        # Until then packets are the kernel's, which is told of a carrier up to a second late.
        wait_for("the links", lambda: "NO-CARRIER" not in self.here.ip("link") + self.there.ip("link"))
        self.put("syn0/device/class_id", CLASS)
        self.put("syn0/operstate", "up\n")
        self.datapath("s_syn")

    def put(self, path: str, text: str) -> None:
        """A file of the tree that stands for /sys/class/net."""
        put_whole(self.net / path, text)

    def datapath(self, port: str) -> None:
        """Frames for the guest go there from now on, wherever others of its address come from."""
        words = f"fdb replace {self.mac} dev {port} master static sticky"
        if self.rdma:
            self.bridge(words)
        else:  # a program that stays would know tap0 by the number of an earlier one
            self.switch.run("bridge", *words.split())

    def _port_in(self) -> None:
        """The switch's port towards the VF."""
        self.switch.ip("link", "set", "tap0", "master", "br0")
        self.switch.run("bridge", "link", "set", "dev", "tap0", "learning", "off")
        self.switch.ip("link", "set", "tap0", "up")

    def _link_in(self) -> None:
        """Sysfs has an interface no later than rtnetlink tells of it."""
        for name, text in (("address", self.mac), ("operstate", "up"), ("dev_port", "0")):
            self.put(f"vf0/{name}", f"{text}\n")
        self.put("syn0/lower_vf0/ifindex", "1\n")
        if self.rdma:
            self.ip(f"link add vf0 address {self.mac} type veth peer name vf0p", "link set vf0p up", "link set vf0 up")
            return
        sh(
            "ip",
            "link",
            "add",
            "vf0",
            "address",
            self.mac,
            "netns",
            self.here.name,
            "type",
            "veth",
            "peer",
            "tap0",
            "netns",
            self.switch.name,
        )
        self._port_in()
        self.here.ip("link", "set", "vf0", "up")

    def _driver_in(self) -> None:
        (self.net / "vf0/device/infiniband" / f"softnic_{self.fabric}_0").mkdir(parents=True, exist_ok=True)

    def _tree_out(self) -> None:
        shutil.rmtree(self.net / "syn0/lower_vf0", ignore_errors=True)
        shutil.rmtree(self.net / "vf0", ignore_errors=True)

    def plug_in(self, order: random.Random | None = None) -> None:
        """The device, its driver and the kernel's interface appear, in any order; the datapath is the caller's to switch."""
        from pyvma.ring import softnic

        steps: list[Callable[[], None]] = [self._link_in]
        if self.rdma:
            steps += [lambda: softnic.plug(self.port, True), self._driver_in]
        if order:
            order.shuffle(steps)
        for step in steps:
            step()
        self.plugged = True

    def plug_out(self, order: random.Random | None = None) -> None:
        """The datapath is switched and the device is taken away; then the rest of it goes, in any order."""
        from pyvma.ring import softnic

        self.datapath("s_syn")
        if self.rdma:
            softnic.plug(self.port, False)
        steps: list[Callable[[], None]] = [self._tree_out, lambda: self.ip("link del vf0")]
        if order:
            order.shuffle(steps)
        for step in steps:
            step()
        self.plugged = False

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """pyvmad of the guest, ready."""
        socket = self.root / "pyvmad.sock"
        process = self.here.popen(sys.executable, "-m", "pyvma", "daemon", "run", "--socket", str(socket))
        try:
            wait_for("pyvmad's socket", socket.exists)
            yield process
        finally:
            process.terminate()
            process.wait(20)

    def rules(self) -> int:
        """Redirections that are in force on the synthetic interface."""
        return self.here.run("tc", "filter", "show", "dev", "syn0", "ingress", check=False).count("mirred")

    def drops(self) -> Counter[str]:
        """Frames of all kinds that the path dropped so far, by "way place: reason", outside of the application; the way is "out" or "in".

        A veth counts at its sender what its other end had no room for, a TAP device at its sender what its reader was too late for. What
        came to the guest's kernel was not redirected. The fabric also takes frames for an address that no port has.
        """
        from pyvma.ring import softnic

        found: Counter[str] = Counter()
        for name, ns in (("here", self.here), ("switch", self.switch), ("there", self.there)):
            for link in json.loads(ns.run("ip", "-j", "-s", "link", "show")):
                device, stats = link["ifname"], link["stats64"]
                way = "out" if device in ("syn0", "s_peer") else "in"
                found[f"{way} {name} {device}: tx dropped"] = stats["tx"]["dropped"] + stats["tx"]["errors"]
                if device.startswith(("tap", "pvma")):
                    found[f"out {name} {device}: rx dropped"] = stats["rx"]["dropped"] + stats["rx"]["errors"]
            for qdisc in json.loads(ns.run("tc", "-j", "-s", "qdisc", "show")):
                way = "out" if qdisc["dev"] in ("syn0", "s_peer") else "in"
                found[f"{way} {name} {qdisc['dev']} {qdisc['kind']}: drops"] += qdisc.get("drops", 0)
        for way, name, ns in (("in", "here", self.here), ("out", "there", self.there)):
            heads, values = [line.split() for line in ns.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Udp:")]
            for reason in ("NoPorts", "InErrors"):
                found[f"{way} {name} UDP: {reason}"] = int(values[heads.index(reason)])
        vf, uplink = (softnic.counters(port) for port in (self.port, f"{self.fabric}/{UPLINK_PORT}"))
        for place, counters in (("VF", vf), ("uplink", uplink)):
            for reason in ("rx_no_rule", "rx_queue_full", "rx_too_long", "rx_link_down", "tx_link_down", "tx_too_long"):
                way = "out" if (place == "VF") == reason.startswith("tx") else "in"
                found[f"{way} {place}: {reason}"] = counters[reason]
        reached = sum(vf[name] for name in ("rx_packets", "rx_no_rule", "rx_queue_full", "rx_too_long", "rx_link_down", "rx_rule_drop"))
        found["in fabric: no such address"] = uplink["tx_packets"] - reached
        return found

    def close(self) -> None:
        """The commands that stay."""
        self.bridge.close()
        self.ip.close()


@contextmanager
def guest_without_rdma() -> Iterator[Guest]:
    """The same whose VF is an interface, and no device of verbs."""
    root = Path(tempfile.mkdtemp(prefix="pyvma-sysfs-"))
    with Namespace() as here, Namespace() as switch, Namespace() as there:
        found = Guest(here, switch, there, root, rdma=False)
        try:
            found.links()
            yield found
        finally:
            found.close()
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def guest() -> Iterator[Guest]:
    """A guest whose VF is out."""
    from pyvma.ring import softnic

    root = Path(tempfile.mkdtemp(prefix="pyvma-sysfs-"))
    with Namespace() as here, Namespace() as switch, Namespace() as there:
        found = Guest(here, switch, there, root)
        command = ["-m", "pyvma", "softnic", "uplink", "--fabric", found.fabric, "--port", str(UPLINK_PORT), "--dev", "tap0"]
        process = switch.popen(sys.executable, *command)
        try:
            wait_for("the uplink's TAP device", lambda: "tap0" in switch.run("ip", "-o", "link"))
            found.uplink = process
            found.links()
            softnic.plug(found.port, False)
            yield found
        finally:
            process.terminate()
            process.wait(10)
            found.close()
            shutil.rmtree(root, ignore_errors=True)
            softnic.remove(found.fabric)


@contextmanager
def before_others(*pids: int) -> Iterator[bool]:
    """What else the machine does waits for the threads of these processes and what they start; False: that is not allowed."""
    threads = [int(thread) for pid in pids for thread in os.listdir(f"/proc/{pid}/task")]
    try:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        for thread in threads:
            with suppress(ProcessLookupError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def open_files(pid: int) -> int:
    """How many descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))
