"""An XDP program that is bound to its device, and what the driver (veth) tells it of frames: hash and VLAN tag; veth knows no stamps, which
it says by a stamp of 0. What becomes of the program when its device, its namespace or its process goes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from actor import Actor
from bpf_objects import Objects, alive, held_by
from exchange import wait_for
from netns import Namespace
from veth import ENGINE, KERNEL, namespaces

VLAN = 5
TAGGED = {"engine": "10.85.0.1", "kernel": "10.85.0.2"}
RING = "__import__('pyvma.ring').ring.interfaces()[0]"
BIND = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 7))"
ECHO = "data, peer = s.recvfrom(2000)\ns.sendto(data, peer)\ndata"


def counters(engine: Actor, name: str) -> dict[str, int]:
    found: dict[str, int] = engine("import pyvma; pyvma.counters()")
    return {key: found[f"ring.{name}.rx_meta_{key}"] for key in ("stamps", "hashes", "vlans")}


def gone(objects: Objects) -> bool:
    return not alive(objects)


@contextmanager
def bound(here: Namespace, more: str = "") -> Iterator[Actor]:
    with Actor([f"xdp:device=v0,mode=native,rx_metadata=auto{more}"], netns=here.name) as engine:
        yield engine


def test_the_hash() -> None:
    with namespaces() as (here, there), bound(here) as engine, Actor(netns=there.name) as kernel:
        engine(BIND, host=ENGINE[4])
        assert engine("s.offload.state") == "offloaded"
        shown = engine(f"r = {RING}\nr.mode, r.note, r.tstamp")
        assert shown == ("native copy, metadata", "", "realtime")
        kernel("k = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nk.settimeout(20)\nk.connect((host, 7))", host=ENGINE[4])
        for size in (1, 64, 1400):
            engine.start(ECHO)
            kernel("k.send(bytes(size))", size=size)
            assert engine.finish() == bytes(size)
            assert kernel("k.recv(2000)") == bytes(size)
        assert counters(engine, "v0") == {"stamps": 0, "hashes": 3, "vlans": 0}


def test_a_stamp_that_is_none() -> None:
    """veth offers stamps and has none: a socket that asks gets the software's and no hardware's."""
    with namespaces() as (here, there), bound(here) as engine, Actor(netns=there.name) as kernel:
        engine(BIND + "\ns.setsockopt(socket.SOL_SOCKET, 37, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6)", host=ENGINE[4])
        kernel("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (host, 7))", host=ENGINE[4])
        data, ancillary = engine("s.recvmsg(100, 1000)[:2]")
        assert data == b"x" and len(ancillary) == 1
        words = memoryview(ancillary[0][2]).cast("q")
        assert words[0] > 0 and not any(words[2:])


def test_a_device_without_a_clock(tmp_path: Path) -> None:
    """Its stamps are of a clock of the day that cannot be read: sockets have the software's, and the log says why."""
    with namespaces() as (here, there), Actor(netns=there.name) as kernel:
        log = tmp_path / "log"
        env = {"PYVMA_LOG_LEVEL": "info", "PYVMA_LOG_FILE": str(log)}
        with Actor(["xdp:device=v0,mode=native,rx_metadata=auto"], netns=here.name, env=env) as engine:
            engine(BIND + "\ns.setsockopt(socket.SOL_SOCKET, 37, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6)", host=ENGINE[4])
            kernel("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (host, 7))", host=ENGINE[4])
            assert engine("s.recv(100)") == b"x"
            assert engine("s.timestamps.source, s.timestamps.mode, s.timestamps.receive") == ("software", "off", True)
        assert "v0: time stamps: off: v0 has no clock of its own (/dev/ptpN)" in log.read_text()


def test_a_tag_that_the_device_took_off() -> None:
    """The kernel's VLAN device sends with the tag beside the frame: a program that only looks at the frame takes it for untagged."""
    with namespaces() as (here, there):
        there.ip("link", "add", "link", "v1", "name", "v1.5", "type", "vlan", "id", str(VLAN))
        there.ip("addr", "add", f"{TAGGED['kernel']}/24", "dev", "v1.5")
        there.ip("link", "set", "v1.5", "up")
        more = f",addr={TAGGED['engine']}/24,vlan={VLAN}"
        with bound(here, more) as engine, Actor(netns=there.name) as kernel:
            engine(BIND, host=TAGGED["engine"])
            assert engine("s.offload.state") == "offloaded"
            kernel("k = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nk.settimeout(20)\nk.connect((host, 7))", host=TAGGED["engine"])
            engine.start(ECHO)
            kernel("k.send(b'tagged')")
            assert engine.finish() == b"tagged" and kernel("k.recv(100)") == b"tagged"
            engine("t = socket.create_server((host, 8))\nt.settimeout(20)", host=TAGGED["engine"])
            engine.start("c, _ = t.accept()\nc.settimeout(20)\nc.sendall(c.recv(100))\nc.offload.state")
            kernel("c = socket.create_connection((host, 8), timeout=20)\nc.sendall(b'stream')", host=TAGGED["engine"])
            assert engine.finish() == "offloaded" and kernel("c.recv(100)") == b"stream"
            seen = counters(engine, "v0")
            assert seen["vlans"] >= 4 and seen["hashes"] >= seen["vlans"]
            kernel("c.close()")
        # Without: the same frames are the kernel's, which has nobody there.
        with Actor([f"xdp:device=v0,mode=native{more}"], netns=here.name) as engine, Actor(netns=there.name) as kernel:
            engine(BIND + "\ns.settimeout(1)", host=TAGGED["engine"])
            there.ip("neigh", "replace", TAGGED["engine"], "dev", "v1.5", "lladdr", engine(f"{RING}.mac"))
            kernel("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (host, 7))", host=TAGGED["engine"])
            with pytest.raises(TimeoutError):
                engine("s.recv(100)")


def test_other_vlans_are_the_kernels() -> None:
    """The address and port of a socket of ours in another VLAN: with the driver's word these are told apart."""
    with namespaces() as (here, there), bound(here) as engine, Actor(netns=there.name) as kernel, Actor(netns=here.name) as beside:
        for ns, side in ((here, "v0"), (there, "v1")):
            ns.ip("link", "add", "link", side, "name", "vl", "type", "vlan", "id", str(VLAN))
            ns.ip("link", "set", "vl", "up")
        mac = here.ip("link", "show", "vl").split("link/ether ")[1].split()[0]
        engine(BIND, host=ENGINE[4])
        listen = "w = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800))\nw.bind(('vl', 0x800))\nw.settimeout(20)"
        beside(listen)
        there.ip("addr", "add", f"{KERNEL[4]}/32", "dev", "vl")
        there.ip("neigh", "replace", ENGINE[4], "dev", "vl", "lladdr", mac)
        kernel("k = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nk.setsockopt(socket.SOL_SOCKET, 25, b'vl')")
        kernel("k.sendto(b'other', (host, 7))", host=ENGINE[4])
        # By the kernel, whose socket beneath is not of one VLAN: the program left it alone.
        assert beside("w.recv(100)").endswith(b"other")
        assert engine("s.recv(100)") == b"other" and counters(engine, "v0")["vlans"] == 0
        kernel("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'plain', (host, 7))", host=ENGINE[4])
        assert engine("s.recv(100)") == b"plain"
        assert counters(engine, "v0") == {"stamps": 0, "hashes": 1, "vlans": 0}


def test_what_cannot_be_had_is_said() -> None:
    with namespaces() as (here, _):
        with Actor(["xdp:device=v0,rx_metadata=auto"], netns=here.name) as engine:
            engine(BIND, host=ENGINE[4])
            assert engine(f"{RING}.mode") == "generic copy" and "generic mode has none" in engine(f"{RING}.note")
        here.ip("tuntap", "add", "dev", "t0", "mode", "tap")
        here.ip("addr", "add", "10.84.0.1/24", "dev", "t0")
        here.ip("link", "set", "t0", "up")
        with Actor(["xdp:device=t0,rx_metadata=auto"], netns=here.name) as engine:
            engine(BIND, host="10.84.0.1")
            assert engine(f"{RING}.note") == "no rx_metadata: the driver offers none"


def test_a_killed_process_leaves_nothing() -> None:
    with namespaces() as (here, _), bound(here) as engine:
        for _ in range(5):
            with bound(here) as victim:
                victim(BIND, host=ENGINE[4])
                assert victim(f"{RING}.mode").endswith("metadata")
                objects = held_by(victim.process.pid)
                assert {kind for kind, _ in objects} == {"prog_id", "map_id", "link_id"}
                os.kill(victim.process.pid, signal.SIGKILL)
                victim.process.wait()
            wait_for("the program's end", partial(gone, objects))
        engine(BIND, host=ENGINE[4])
        assert engine("s.offload.state") == "offloaded"


def test_the_device_goes_and_comes_back() -> None:
    with namespaces() as (here, there), bound(here) as engine:
        engine(BIND, host=ENGINE[4])
        objects = {found for found in held_by(engine.process.pid) if found[0] == "prog_id"}
        here.ip("link", "del", "v0")
        wait_for("the old program's end", partial(gone, objects))
        here.ip("link", "add", "v0", "netns", here.name, "type", "veth", "peer", "name", "v1", "netns", there.name)
        here.ip("addr", "add", f"{ENGINE[4]}/24", "dev", "v0")
        here.ip("link", "set", "v0", "up")
        there.ip("addr", "add", f"{KERNEL[4]}/24", "dev", "v1")
        there.ip("link", "set", "v1", "up")

        def again() -> bool:
            engine("s.close()\n" + BIND, host=ENGINE[4])
            return bool(engine("s.offload.state") == "offloaded")

        wait_for("the ring", again)
        assert engine(f"{RING}.mode") == "native copy, metadata"


def test_the_namespace_goes() -> None:
    with Namespace() as there:
        with Namespace() as here:
            here.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", there.name)
            here.ip("addr", "add", f"{ENGINE[4]}/24", "dev", "v0")
            here.ip("link", "set", "v0", "up")
            there.ip("link", "set", "v1", "up")
            victim = Actor(["xdp:device=v0,mode=native,rx_metadata=auto"], netns=here.name)
            victim(BIND, host=ENGINE[4])
            assert victim(f"{RING}.mode").endswith("metadata")
            objects = held_by(victim.process.pid)
        victim.close()
        wait_for("the program's end", partial(gone, objects))
