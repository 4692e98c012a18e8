"""A leg whose device takes its time: it is opened and shut while the application's traffic goes on. A library around the software
NIC's waits in ibv_open_device and ibv_close_device for as long as a file is there, and says so by another.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from actor import Actor
from c_programs import compiled
from exchange import ASK, ECHO, wait_for
from netns import usable
from netvsc import HERE, THERE, Guest, guest, open_files

import pyvma.stats
from pyvma.ring import softnic

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.skipif(not shutil.which("cc"), reason="no compiler"),
]

SLOW = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void gate(const char *step)
{
	char hold[300], at[300];

	snprintf(hold, sizeof(hold), "%s/hold-%s", getenv("SLOW_GATE"), step);
	snprintf(at, sizeof(at), "%s/at-%s", getenv("SLOW_GATE"), step);
	if (access(hold, F_OK))
		return;
	close(open(at, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	while (!access(hold, F_OK))
		usleep(1000);
}

void *ibv_open_device(void *device)
{
	gate("open");
	return ((void *(*)(void *))dlsym(RTLD_NEXT, "ibv_open_device"))(device);
}

int ibv_close_device(void *context)
{
	gate("close");
	return ((int (*)(void *))dlsym(RTLD_NEXT, "ibv_close_device"))(context);
}
"""
SIZES = [10, 1000]
# A thread has a descriptor of its own from its first sleep on, which is not to come between two counts.
SLEEP = """
s.settimeout(0.1)
try:
    s.recv(1)
except TimeoutError:
    s.settimeout(20)
"""


class Gate:
    """Files of the library: `hold` a step, wait until the application is `at` it, and `go` on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self, step: str) -> None:
        (self.folder / f"at-{step}").unlink(missing_ok=True)
        (self.folder / f"hold-{step}").touch()

    def at(self, step: str) -> None:
        wait_for(f"{step} to be at work", (self.folder / f"at-{step}").exists)

    def go(self, step: str) -> None:
        (self.folder / f"hold-{step}").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slow")
    real = softnic.FOLDER / softnic.NAME
    (folder / "slow.c").write_text(SLOW)
    options = ("-shared", "-fPIC", "-Wl,--no-as-needed", str(real), f"-Wl,-rpath,{real.parent}")
    return compiled(folder / "libslow.so", folder / "slow.c", options=options)


@pytest.fixture(scope="module")
def machine() -> Iterator[Guest]:
    with guest() as found, found.daemon():
        yield found


class Ends:
    """An application whose VF is out, with a socket; a kernel peer."""

    def __init__(self, machine: Guest, app: Actor, peer: Actor) -> None:
        self.machine, self.app, self.peer = machine, app, peer
        self.drops = machine.drops()
        for actor, host in ((app, HERE), (peer, THERE)):
            actor("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.bind((host, 0))", host=host[4])
        self.here = (HERE[4], app("s.getsockname()[1]"))
        assert app("s.offload.state") == "offloaded"
        app(SLEEP)

    def talk(self) -> None:
        """There and back; it would wait for as long as the engine's lock is held. Where a datagram is lost says who dropped it."""
        self.app.start(ECHO, sizes=SIZES)
        try:
            self.peer(ASK, sizes=SIZES, to=self.here)
            self.app.finish()
        except Exception:
            with suppress(Exception):  # that which is to be explained counts
                print(self.machine.drops() - self.drops, self.machine.switch.run("bridge", "fdb", "show"))
                print(self.sends())
            raise

    def fork(self) -> None:
        """A child that has kernel sockets, and a parent that goes on."""
        status = self.app(
            "child = os.fork()\nif child == 0:\n    k = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    k.bind(('127.0.0.1', 0))\n"
            "    os._exit(7 if k.offload.state == 'kernel' else 1)\nos.waitpid(child, 0)[1]"
        )
        assert status == 7 << 8

    def sends(self) -> list[str]:
        """Kinds of the rings that are legs and sent by."""
        with pyvma.stats.attach(self.app.process.pid) as process:
            found = [ring for ring in process.snapshot().rings if ring.figure("master") and ring.figure("active")]
        return [str(ring["name"]).split(":")[0] for ring in found]

    def plug(self) -> None:
        """The VF comes, and is sent by."""
        self.machine.plug_in()
        wait_for("the VF's leg", lambda: "verbs" in self.sends())
        self.machine.datapath("tap0")

    def files(self) -> int:
        """Descriptors after a leg came, was used and went: once their number stays."""
        self.plug()
        self.talk()
        self.unplug()
        self.talk()
        counts = [-1]
        while len(set(counts[-10:])) > 1 or len(counts) < 10:
            counts.append(open_files(self.app.process.pid))
            time.sleep(0.02)
        return counts[-1]

    def unplug(self) -> None:
        self.machine.plug_out()
        wait_for("the TAP", lambda: self.sends() == ["tap"])


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    found = Gate(tmp_path)
    try:
        yield found
    finally:
        for step in ("open", "close"):
            found.go(step)


@pytest.fixture
def ends(machine: Guest, library: Path, gate: Gate) -> Iterator[Ends]:
    environment = {**machine.environment, "PYVMA_SOFTNIC_LIB": str(library), "SLOW_GATE": str(gate.folder)}
    with (
        Actor([machine.interface], netns=machine.here.name, env=environment) as app,
        Actor(netns=machine.there.name) as peer,
    ):
        try:
            yield Ends(machine, app, peer)
        finally:
            for step in ("open", "close"):
                gate.go(step)
            if machine.plugged:
                machine.plug_out()


def test_traffic_goes_on_while_a_device_is_opened(ends: Ends, gate: Gate) -> None:
    """Sockets and forks do not wait for the device, and the leg is there once it is."""
    gate.hold("open")
    ends.machine.plug_in()
    gate.at("open")
    for _ in range(3):
        ends.talk()
    ends.fork()
    assert ends.sends() == ["tap"]
    gate.go("open")
    wait_for("the VF's leg", lambda: "verbs" in ends.sends())
    ends.machine.datapath("tap0")
    ends.talk()
    ends.fork()
    ends.unplug()
    ends.talk()


def test_traffic_goes_on_while_a_device_is_shut(ends: Ends, gate: Gate) -> None:
    """What the leg had is given back when it is, and nothing stays."""
    files = ends.files()
    ends.plug()
    ends.talk()
    gate.hold("close")
    ends.unplug()
    gate.at("close")
    for _ in range(3):
        ends.talk()
    ends.fork()
    assert open_files(ends.app.process.pid) > files
    gate.go("close")
    wait_for("its descriptors to be closed", lambda: open_files(ends.app.process.pid) <= files)
    ends.talk()


def test_a_device_that_goes_while_it_is_opened(ends: Ends, gate: Gate) -> None:
    """Nobody wants it any more: it is shut again, and the next one is a leg."""
    files = ends.files()
    gate.hold("open")
    ends.machine.plug_in()
    gate.at("open")
    ends.machine.plug_out()
    ends.talk()
    gate.go("open")
    wait_for("its descriptors to be closed", lambda: open_files(ends.app.process.pid) <= files)
    assert ends.sends() == ["tap"]
    ends.plug()
    ends.talk()


@pytest.mark.parametrize("step", ["open", "close"])
def test_a_stop_while_a_device_is_at_work(ends: Ends, gate: Gate, step: str) -> None:
    """It waits for the device and leaves nothing of it."""
    if step == "close":
        ends.plug()
    gate.hold(step)
    if step == "open":
        ends.machine.plug_in()
    else:
        ends.unplug()
    gate.at(step)
    ends.app.start("import pyvma\npyvma.stop()")
    ends.peer("time.sleep(0.2)")
    gate.go(step)
    ends.app.finish()
    assert ends.app("k = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nk.bind(('127.0.0.1', 0))\nk.offload.state") == "kernel"
