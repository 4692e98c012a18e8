"""The software NIC's uplink: a namespace whose TAP device `tap0` is the kernel's end of a port of a fabric."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from actor import Actor
from exchange import Ends, wait_for
from netns import Namespace

PORT = 9
ENGINE = {4: "10.77.0.1", 6: "fd77::1"}
KERNEL = {4: "10.77.0.2", 6: "fd77::2"}


@contextmanager
def uplink(hosts: dict[int, str], fabric: str = "", port: int = PORT) -> Iterator[tuple[Namespace, str]]:
    """The namespace, in which `tap0` has these addresses by family, and the fabric's name; a new fabric unless one is named."""
    fabric = fabric or f"t{secrets.token_hex(4)}"
    with Namespace() as ns:
        command = ["-m", "pyvma", "softnic", "uplink", "--fabric", fabric, "--port", str(port), "--dev", "tap0"]
        process = ns.popen(sys.executable, *command)
        try:
            wait_for("the TAP device", lambda: "tap0" in ns.run("ip", "-o", "link"))
            ns.ip("addr", "add", f"{hosts[4]}/24", "dev", "tap0")
            ns.ip("-6", "addr", "add", f"{hosts[6]}/64", "dev", "tap0", "nodad")
            ns.ip("link", "set", "tap0", "up")
            yield ns, fabric
        finally:
            process.terminate()
            process.wait(10)


@contextmanager
def pair() -> Iterator[Ends]:
    """An engine on port 0, without the namespace and without any kernel network, and a kernel peer behind the uplink."""
    with uplink(KERNEL) as (ns, fabric):
        interface = f"softnic:fabric={fabric},port=0,addr={ENGINE[4]}/24,addr={ENGINE[6]}/64,name=sn0"
        with Actor([interface]) as engine, Actor(netns=ns.name) as kernel:
            yield Ends(engine, kernel, ENGINE, KERNEL, ns)
