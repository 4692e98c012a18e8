"""What the engine of the test process is configured with, and whether long tests were asked for."""

from __future__ import annotations

import importlib.util
import itertools
import os
import secrets

FABRIC = f"pt{secrets.token_hex(4)}"
NET = secrets.randbelow(200) + 20
HOSTS4 = (f"10.{NET}.7.1", f"10.{NET}.7.2")
HOSTS6 = (f"fd00:{NET:x}::1", f"fd00:{NET:x}::2")
# What is behind the nets that cases call softnic. "tap": two TAP devices with these names, which whoever starts pytest has joined
# (tapnet.joined).
RING = os.environ.get("LAB_RING", "softnic")
DEVICES = ("lab0", "lab1")


def interface(number: int) -> str:
    """The entry of one side."""
    where = f"softnic:fabric={FABRIC},port={number},name=sn{number}" if RING == "softnic" else f"tap:name={DEVICES[number]}"
    return f"{where},addr={HOSTS4[number]}/24,addr={HOSTS6[number]}/64"


INTERFACES = [interface(number) for number in range(2)]
_nobodies = itertools.count(77)


def nobody(host: str) -> str:
    """An address of that one's network at which nobody answers. Never the same twice: one that has not answered is unreachable at once for
    a while, and a case that is to wait for it would not."""
    return f"{host[: max(host.rfind('.'), host.rfind(':')) + 1]}{next(_nobodies)}"


# PYVMA_TEST_LONG=1: gigabytes and hundreds of thousands where a test else does with less. Told to processes that pytest starts by a name
# that no engine takes for a setting.
LONG = "1" in (os.environ.get("PYVMA_TEST_LONG"), os.environ.get("LONG_TESTS"))
if LONG:
    os.environ["LONG_TESTS"] = "1"


def softnic_reason() -> str:
    """Why there is no software NIC here; empty when there is."""
    if importlib.util.find_spec("pyvma") is None:
        return "pyvma is not installed"
    from pyvma.ring import softnic

    return "" if softnic.available() else "built without infiniband/verbs.h"
