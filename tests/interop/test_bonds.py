"""Bonds end to end: two devices of the software NIC, each with an uplink to the peer's bridge, or two veths with AF_XDP rings, and sysfs
that says that they are slaves of the kernel's bond0 (a veth, which has the address: this kernel need not have bonding). The Linux kernel
is the peer.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from actor import Actor
from exchange import ASK, ECHO, wait_for
from lab import LONG
from netns import Namespace, sh, usable
from netvsc import Batch, put_whole
from transfer import Transfer

import pyvma.stats
from pyvma.ring import softnic

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

HERE, THERE = "10.82.0.1", "10.82.0.2"
MODES = {"active-backup 1": "layer2 0", "balance-xor 2": "layer2 0", "802.3ad 4": "layer3+4 1"}
FLAP_S = 0.05
FLAPS = 1200 if LONG else 20


@dataclasses.dataclass
class Bonded:
    here: Namespace
    switch: Namespace
    there: Namespace
    root: Path
    mac: str
    ports: list[str]  # of the software NIC; none: legs are AF_XDP rings
    far: str  # what the switch's ports towards the legs are called, but for the number
    bridge: Callable[[str], object]
    ip: Batch

    @property
    def interface(self) -> str:
        return "bond:device=bond0," + (f"lib={softnic.library()}" if self.ports else "legs=xdp")

    @property
    def environment(self) -> dict[str, str]:
        return {"PYVMA_SYSFS_ROOT": str(self.root), "PYVMA_SOFTNIC": ";".join(self.ports)}

    def put(self, path: str, text: str) -> None:
        put_whole(self.root / "class/net" / path, f"{text}\n")

    def bonding(self, mode: str) -> None:
        """Both slaves up, the first one active."""
        for name, text in (("mode", mode), ("slaves", "s0 s1"), ("active_slave", "s0"), ("fail_over_mac", "none 0")):
            self.put(f"bond0/bonding/{name}", text)
        self.put("bond0/bonding/xmit_hash_policy", MODES[mode])
        for leg in range(2):
            self.put(f"s{leg}/bonding_slave/state", "active" if leg == 0 or not mode.startswith("active") else "backup")
            self.put(f"s{leg}/operstate", "up")
        self.towards(0)

    def towards(self, leg: int) -> None:
        """The peer's switch sends to the bond by this port from now on."""
        self.bridge(f"fdb replace {self.mac} dev {self.far}{leg} master static")

    def flap(self, leg: int, mode: str) -> None:
        """A leg loses its link: the device and the switch notice at once, bonding tells of it a little later."""
        other = 1 - leg
        self.towards(other)
        if self.ports:
            softnic.set_link(self.ports[leg], False)
        self.put(f"s{leg}/operstate", "down")
        if mode.startswith("active"):
            self.put("bond0/bonding/active_slave", f"s{other}")
        self.ip(f"link set s{leg} down")

    def mend(self, leg: int) -> None:
        if self.ports:
            softnic.set_link(self.ports[leg], True)
        self.put(f"s{leg}/operstate", "up")
        self.ip(f"link set s{leg} up")


@contextmanager
def _uplinks(switch: Namespace, fabrics: list[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for leg, fabric in enumerate(fabrics):
            command = ["-m", "pyvma", "softnic", "uplink", "--fabric", fabric, "--port", "9", "--dev", f"tap{leg}"]
            process = switch.popen(sys.executable, *command)
            stack.callback(process.wait, 10)
            stack.callback(process.terminate)
        wait_for("the uplinks", lambda: all(f"tap{leg}" in switch.run("ip", "-o", "link") for leg in range(2)))
        yield


@contextmanager
def _bonded(fabrics: list[str]) -> Iterator[Bonded]:
    """Without fabrics the slaves are veths to the switch."""
    mac = f"02:82:{secrets.token_hex(1)}:{secrets.token_hex(1)}:00:01"
    root = Path(tempfile.mkdtemp(prefix="pyvma-sysfs-"))
    with Namespace() as here, Namespace() as switch, Namespace() as there, ExitStack() as stack:
        far = "tap" if fabrics else "x"
        if fabrics:
            stack.enter_context(_uplinks(switch, fabrics))
        for leg in range(0 if fabrics else 2):
            add_slave(here, switch, mac, leg)
        beyond = ("netns", switch.name)
        sh("ip", "link", "add", "bond0", "address", mac, "netns", here.name, "type", "veth", "peer", "s_bond", *beyond)
        sh("ip", "link", "add", "p0", "netns", there.name, "type", "veth", "peer", "s_peer", *beyond)
        switch.ip("link", "add", "br0", "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
        for port in ("s_bond", "s_peer", f"{far}0", f"{far}1"):
            switch.ip("link", "set", port, "master", "br0", "up")
        switch.ip("link", "set", "br0", "up")
        for port in ("s_bond", f"{far}0", f"{far}1"):
            switch.run("bridge", "link", "set", "dev", port, "learning", "off")
        for ns, device, host in ((here, "bond0", HERE), (there, "p0", THERE)):
            ns.ip("addr", "add", f"{host}/24", "dev", device)
            ns.ip("link", "set", device, "up")
        # Its kernel would hear answers to ARP by the slaves, which have no driver here.
        peer = there.run("cat", "/sys/class/net/p0/address").strip()
        here.ip("neigh", "replace", THERE, "lladdr", peer, "dev", "bond0", "nud", "permanent")
        ports = [f"{fabric}/0,mac={mac}" for fabric in fabrics]
        bridge, ip = Batch(switch, "bridge"), Batch(here, "ip")
        found = Bonded(here, switch, there, root, mac, ports, far, bridge, ip)
        for leg, fabric in enumerate(fabrics):
            here.ip("link", "add", f"s{leg}", "type", "veth", "peer", "name", f"s{leg}p")
            here.ip("link", "set", f"s{leg}p", "up")
            here.ip("link", "set", f"s{leg}", "up")
            found.put(f"s{leg}/device/infiniband/softnic_{fabric}_0/node_type", "1: CA")
        for leg in range(2):
            found.put(f"s{leg}/address", mac)
        wait_for("the links", lambda: "NO-CARRIER" not in here.ip("link") + there.ip("link"))
        try:
            yield found
        finally:
            for batch in (bridge, ip):
                batch.close()
            shutil.rmtree(root, ignore_errors=True)


def add_slave(here: Namespace, switch: Namespace, mac: str, leg: int) -> None:
    """A slave that needs no device beneath it."""
    sh("ip", "link", "add", f"s{leg}", "address", mac, "netns", here.name, "type", "veth", "peer", f"x{leg}", "netns", switch.name)
    here.ip("link", "set", f"s{leg}", "up")


@pytest.fixture(scope="module")
def net() -> Iterator[Bonded]:
    with _bonded([f"t{secrets.token_hex(4)}" for _ in range(2)]) as found:
        yield found


@pytest.fixture(scope="module")
def veths() -> Iterator[Bonded]:
    with _bonded([]) as found:
        yield found


@pytest.mark.parametrize("beneath", ["net", "veths"])
@pytest.mark.parametrize("mode", MODES)
def test_a_transfer_over_flapping_legs(mode: str, beneath: str, request: pytest.FixtureRequest) -> None:
    net: Bonded = request.getfixturevalue(beneath)
    net.bonding(mode)
    with Actor([net.interface], netns=net.here.name, env=net.environment) as app, Actor(netns=net.there.name) as peer:
        transfer = Transfer(app, peer, THERE)
        assert transfer.ring == "bond:bond0"
        for number in range(FLAPS):
            net.flap(number % 2, mode)
            time.sleep(FLAP_S)
            net.mend(number % 2)
            time.sleep(FLAP_S / 5)
        sent = transfer.end()
        with pyvma.stats.attach(app.process.pid) as process:
            rings = process.snapshot().rings
            (bond,) = [ring for ring in rings if not ring.figure("master")]
            legs = [ring for ring in rings if ring.figure("master")]
            by = {str(leg.name): leg.tx_packets for leg in legs}
            print(f"\n{mode}: {FLAPS} flaps, {sent} bytes, hash equal; moves {bond.moves}, by the legs {by}")
            assert len(legs) == 2
            assert all(leg.tx_packets > 0 for leg in legs)
            assert bond.moves >= 1


def test_bonding_chooses_among_those_that_do_not_run_yet(veths: Bonded) -> None:
    """Linux tells late that an interface is running. By the first slave nothing would come back."""
    veths.bonding("active-backup 1")
    veths.put("bond0/bonding/active_slave", "s1")
    for leg in range(2):
        veths.put(f"s{leg}/operstate", "dormant")
    veths.towards(1)
    with Actor([veths.interface], netns=veths.here.name, env=veths.environment) as app, Actor(netns=veths.there.name) as peer:
        talk(app, peer)


def test_a_slave_is_deleted_and_made_again(veths: Bonded) -> None:
    """Its AF_XDP ring goes with the interface, whatever is in flight, and there is one again when there is an interface."""
    net, mode = veths, "active-backup 1"
    net.bonding(mode)

    def legs(app: Actor) -> dict[str, int]:
        with pyvma.stats.attach(app.process.pid) as process:
            return {str(ring.name): int(ring.tx_packets) for ring in process.snapshot().rings if ring.figure("master")}

    def sent_by(leg: int) -> bool:
        transfer.check()
        return legs(app)[f"xdp:s{leg}"] > 10

    with Actor([net.interface], netns=net.here.name, env=net.environment) as app, Actor(netns=net.there.name) as peer:
        transfer = Transfer(app, peer, THERE)
        assert transfer.ring == "bond:bond0"
        # Programs that stay know interfaces by the numbers that they had before.
        net = dataclasses.replace(veths, bridge=lambda words: veths.switch.run("bridge", *words.split()))
        for number in range(4):
            leg = number % 2
            wait_for("both legs", lambda: set(legs(app)) == {"xdp:s0", "xdp:s1"})
            wait_for("traffic by it", lambda leg=leg: sent_by(leg))
            net.towards(1 - leg)
            net.put("bond0/bonding/slaves", f"s{1 - leg}")
            net.put("bond0/bonding/active_slave", f"s{1 - leg}")
            net.here.ip("link", "del", f"s{leg}")
            wait_for("the other leg alone", lambda leg=leg: set(legs(app)) == {f"xdp:s{1 - leg}"})
            add_slave(net.here, net.switch, net.mac, leg)
            net.switch.ip("link", "set", f"x{leg}", "master", "br0")
            net.switch.run("bridge", "link", "set", "dev", f"x{leg}", "learning", "off")
            net.switch.ip("link", "set", f"x{leg}", "up")
            net.put("bond0/bonding/slaves", "s0 s1")
            net.here.ip("link", "set", f"s{leg}", "alias", f"again{number}")
        transfer.end()


def test_frames_longer_than_a_buffer(veths: Bonded) -> None:
    """The longest MTU of AF_XDP legs carries datagrams of its size; with one byte more the interface is the kernel's, and says why."""
    veths.bonding("active-backup 1")
    ends = [(veths.here, ("bond0", "s0", "s1")), (veths.there, ("p0",)), (veths.switch, ("br0", "s_bond", "s_peer", "x0", "x1"))]

    def set_mtu(mtu: int) -> None:
        for ns, devices in ends:
            for device in devices:
                ns.ip("link", "set", device, "mtu", str(mtu))

    try:
        set_mtu(3823)
        with Actor([veths.interface], netns=veths.here.name, env=veths.environment) as app:
            state, text = app(STATE, host=HERE)
            assert state == "kernel" and "MTU 3823" in text
        set_mtu(3822)
        with Actor([veths.interface], netns=veths.here.name, env=veths.environment) as app, Actor(netns=veths.there.name) as peer:
            to = (
                THERE,
                peer(
                    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))\ns.getsockname()[1]",
                    host=THERE,
                ),
            )
            app("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 0))", host=HERE)
            assert app("s.offload.state") == "offloaded"
            peer.start(ECHO, sizes=[3822 - 28])
            app(ASK, sizes=[3822 - 28], to=to)
            peer.finish()
    finally:
        set_mtu(1500)


def test_legs_without_a_link(veths: Bonded, tmp_path: Path) -> None:
    """The log tells of it, nobody stays awake for frames that wait for it, and they leave with it."""
    net, log = veths, tmp_path / "log"
    net.bonding("active-backup 1")
    environment = {**net.environment, "PYVMA_LOG_LEVEL": "info", "PYVMA_LOG_FILE": str(log)}

    def told(what: str) -> bool:
        return all(re.search(rf"bond0: s{leg}\b.*: {what}$", log.read_text(), re.MULTILINE) for leg in range(2))

    def doorbells(app: Actor) -> int:
        with pyvma.stats.attach(app.process.pid) as process:
            return sum(int(ring.doorbells) for ring in process.snapshot().rings if ring.figure("master"))

    with Actor([net.interface], netns=net.here.name, env=environment) as app, Actor(netns=net.there.name) as peer:
        transfer = Transfer(app, peer, THERE, pause_s=0.0)
        wait_for("traffic", lambda: doorbells(app) > 100)
        assert not told("link down")
        for leg in range(2):
            net.ip(f"link set s{leg} down")
        wait_for("the log", lambda: told("link down"))
        before = doorbells(app)
        time.sleep(0.3)
        rung = doorbells(app) - before
        assert rung < 300, rung
        assert not told("link up")
        for leg in range(2):
            net.ip(f"link set s{leg} up")
        wait_for("the log", lambda: told("link up"))
        transfer.end()


STATE = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind((host, 0))\nfound = s.offload.state, s.offload.text\ns.close()\nfound"


def talk(app: Actor, peer: Actor) -> None:
    """A connection over our ring, both ways."""
    port = peer("l = socket.create_server((host, 0))\nl.settimeout(20)\nl.getsockname()[1]", host=THERE)
    app("t = socket.create_connection((host, port), timeout=20)\nt.offload.state", host=THERE, port=port)
    assert app("t.offload.state") == "offloaded"
    peer("c, _ = l.accept()\nc.settimeout(20)\nc.sendall(b'there')")
    assert app("t.sendall(b'here')\nt.recv(10)") == b"there"
    assert peer("c.recv(10)") == b"here"
    app("t.close()")
    peer("c.close()\nl.close()")


def test_the_last_leg_goes_and_comes(net: Bonded) -> None:
    """Without a device beneath it the interface is the kernel's, and ours again when there is one; nobody but sysfs tells of that."""
    net.bonding("802.3ad 4")
    with Actor([f"bond:device=bond0,lib={softnic.library()}"], netns=net.here.name, env=net.environment) as app, ExitStack() as back:
        with Actor(netns=net.there.name) as peer:
            talk(app, peer)
            for leg in range(2):
                beneath = net.root / f"class/net/s{leg}/device"
                back.callback(beneath.rename(net.root / f"device{leg}").rename, beneath)
                net.ip(f"link set s{leg} alias again{leg}")
            wait_for("the kernel's", lambda: app(STATE, host=HERE)[0] == "kernel")
            assert "no verbs device beneath it" in app(STATE, host=HERE)[1]
            back.close()
            wait_for("the ring", lambda: app(STATE, host=HERE)[0] == "offloaded")
            talk(app, peer)


def test_a_slave_without_a_leg(net: Bonded) -> None:
    """What comes by it is the kernel's: a connection of ours would be reset. UDP hears both."""
    net.bonding("802.3ad 4")
    (net.root / "class/net/s1/device").rename(net.root / "device1")
    connect = (
        "t = socket.socket()\nt.settimeout(limit)\nfailed = t.connect_ex((host, port))\n"
        "found = t.offload.state, t.offload.text, failed\nt.close()\nfound"
    )
    try:
        with (
            Actor([f"bond:device=bond0,lib={softnic.library()}"], netns=net.here.name, env=net.environment) as app,
            Actor(netns=net.there.name) as peer,
        ):
            net.bridge(f"fdb replace {net.mac} dev s_bond master static")
            port = peer("l = socket.create_server((host, 0))\nl.getsockname()[1]", host=THERE)
            state, text, failed = app(connect, host=THERE, port=port, limit=20)
            assert not failed and state == "kernel" and "not all of the interface's receive queues" in text
            net.put("s1/operstate", "down")
            net.ip("link set s1 alias down")
            net.towards(0)
            # One that begins before the change is heard of is still the kernel's, which gets no answer any more.
            wait_for("all that comes", lambda: app(connect, host=THERE, port=port, limit=2)[::2] == ("offloaded", 0))
    finally:
        (net.root / "device1").rename(net.root / "class/net/s1/device")


@pytest.mark.parametrize("first", ["kernel", "bonding"])
def test_the_mac_follows_the_active_slave(net: Bonded, first: str) -> None:
    """fail_over_mac=1: a fail-over changes the interface's address, told before or after the new active slave; the ring has it."""
    net.bonding("active-backup 1")
    net.put("bond0/bonding/fail_over_mac", "active 1")
    other = f"{net.mac[:-1]}2"

    def mac_of(app: Actor) -> str:
        with pyvma.stats.attach(app.process.pid) as process:
            return ",".join(str(ring["mac"]) for ring in process.snapshot().rings if not ring.figure("master"))

    def chosen() -> None:
        net.put("bond0/bonding/active_slave", "s1")
        net.ip("link set s0 alias chosen")

    def moved() -> None:
        net.here.ip("link", "set", "bond0", "address", other)

    with Actor([f"bond:device=bond0,lib={softnic.library()}"], netns=net.here.name, env=net.environment) as app:
        try:
            assert app(STATE, host=HERE)[0] == "offloaded"
            assert mac_of(app) == net.mac
            for step in (moved, chosen) if first == "kernel" else (chosen, moved):
                step()
                time.sleep(0.1)
            wait_for("the address", lambda: mac_of(app) == other)
            wait_for("the ring", lambda: app(STATE, host=HERE)[0] == "offloaded")
        finally:
            net.here.ip("link", "set", "bond0", "address", net.mac)


def test_what_is_no_bond_says_so(net: Bonded) -> None:
    """A mode that is the kernel's alone, and devices that are not there."""
    net.bonding("802.3ad 4")
    net.put("bond0/bonding/mode", "balance-rr 0")
    state = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind((host, 0))\n(s.offload.state, s.offload.text)"
    with Actor(["bond:device=bond0"], netns=net.here.name, env=net.environment) as app:
        kernel, text = app(state, host=HERE)
        assert kernel == "kernel" and "a bond of mode 0" in text
    net.bonding("802.3ad 4")
    with Actor(["bond:device=bond0,fabric=another"], netns=net.here.name, env=net.environment) as app:
        kernel, text = app(state, host=HERE)
        assert kernel == "kernel" and "is no port of the fabric another" in text
