"""The software NIC: where its library is, how other verbs programs get it, and what a port can be told.

A port is named by its fabric and number, as `PYVMA_SOFTNIC` has it: "demo/0". Calls that act on a port open it in this process.
"""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .._native import FOLDER

__all__ = [
    "Moment",
    "available",
    "clock",
    "clock_read",
    "counters",
    "device",
    "environment",
    "impair",
    "library",
    "load",
    "plug",
    "remove",
    "set_link",
    "stamps_take",
    "stamps_watch",
    "uplink",
]

NAME = "libpyvma-softnic.so"


@dataclass(frozen=True)
class Moment:
    """One moment in the clocks of a port and of the machine, in nanoseconds but for `ticks`."""

    true_ns: int
    """CLOCK_MONOTONIC_RAW, which is true time for a software NIC."""
    realtime_ns: int
    """CLOCK_REALTIME then."""
    day_ns: int
    """The port's disciplined clock."""
    ticks: int
    """The port's free-running counter."""


class _Stamp(ctypes.Structure):
    """struct softnic_stamp."""

    _fields_ = [
        ("true_ns", ctypes.c_int64),
        ("realtime_ns", ctypes.c_int64),
        ("day_ns", ctypes.c_int64),
        ("ticks", ctypes.c_uint64),
    ]

    def moment(self) -> Moment:
        """The same in Python's numbers."""
        return Moment(self.true_ns, self.realtime_ns, self.day_ns, self.ticks)


def library() -> Path:
    """The library. FileNotFoundError says why it is not there."""
    from .._config import value_of

    path = Path(value_of("softnic_lib") or FOLDER / NAME)
    if not path.exists():
        raise FileNotFoundError(f"{path}: the package was built without infiniband/verbs.h; install libibverbs-dev and build it again")
    return path


def available() -> bool:
    """Whether the package has a software NIC."""
    try:
        return library().exists()
    except FileNotFoundError:
        return False


def environment(*ports: str) -> dict[str, str]:
    """Variables under which any libibverbs program sees these ports as devices, e.g. environment("demo/0", "demo/1,mtu=9000")."""
    preload = [str(library()), os.environ.get("LD_PRELOAD", "")]
    return {"LD_PRELOAD": ":".join(filter(None, preload)), "PYVMA_SOFTNIC": ";".join(ports)}


@lru_cache(maxsize=1)
def load() -> Any:
    """Loads the library so that pyverbs, imported afterwards, uses it; returns it as a ctypes library."""
    lib = ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)
    text, size = ctypes.c_char_p, ctypes.c_size_t
    lib.softnic_device_add.argtypes = [text, text, size]
    lib.softnic_open_error.restype = text
    lib.softnic_impair.argtypes = [text, text]
    lib.softnic_counters.argtypes = [text, text, size]
    lib.softnic_set_link.argtypes = [text, ctypes.c_int]
    lib.softnic_plug.argtypes = [text, ctypes.c_int]
    lib.softnic_uplink.argtypes = [text, text, ctypes.c_int]
    lib.softnic_clock.argtypes = [text, text]
    lib.softnic_clock_read.argtypes = [text, ctypes.POINTER(_Stamp)]
    lib.softnic_stamps_watch.argtypes = [text]
    lib.softnic_stamps_take.argtypes = [ctypes.POINTER(_Stamp), ctypes.c_int]
    return lib


def _check(rc: int, what: str) -> int:
    if rc < 0:
        reason = load().softnic_open_error().decode(errors="replace")
        raise OSError(-rc, f"{what}: {os.strerror(-rc)}" + (f" ({reason})" if reason else ""))
    return rc


def device(port: str) -> str:
    """The device of a port ("softnic_demo_0" of "demo/0"), which this process sees from now on."""
    name = ctypes.create_string_buffer(64)
    _check(load().softnic_device_add(port.encode(), name, len(name)), port)
    return name.value.decode()


def impair(port: str, spec: str) -> None:
    """Impairs what a port sends: "loss=0.01,delay=10us,jitter=1us,reorder=0.001,rate=1Gbit,seed=1"; "" ends it."""
    _check(load().softnic_impair(device(port).encode(), spec.encode()), f"{port}: {spec!r}")


def counters(port: str) -> dict[str, int]:
    """The port's counters, of all processes on it."""
    name = device(port).encode()
    size = _check(load().softnic_counters(name, None, 0), port)
    room = ctypes.create_string_buffer(size + 64)
    _check(load().softnic_counters(name, room, len(room)), port)
    found: dict[str, Any] = json.loads(room.value)
    return {name: value for name, value in found.items() if name.startswith(("rx_", "tx_"))}


def remove(fabric: str) -> None:
    """Removes the files of a fabric whose processes were all killed. Whoever is on it still keeps it, without a name."""
    path = Path("/dev/shm") / f"pyvma-softnic-{os.geteuid()}-{fabric}"
    for left in (path, *path.parent.glob(f"{path.name}.w*")):
        left.unlink(missing_ok=True)


def plug(port: str, present: bool) -> None:
    """Takes the port's device out of the machine, for every process, or puts it back. What had it open has a dead one for good."""
    _check(load().softnic_plug(device(port).encode(), present), port)


def set_link(port: str, up: bool) -> None:
    """The port's link, for every process on it."""
    _check(load().softnic_set_link(device(port).encode(), up), port)


def uplink(port: str, ifname: str, stop_fd: int) -> None:
    """Joins a port to the TAP device `ifname`, made when it is missing, until `stop_fd` is readable. Needs CAP_NET_ADMIN for that."""
    _check(load().softnic_uplink(port.encode(), ifname.encode(), stop_fd), f"{port} to {ifname}")


def clock(port: str, spec: str) -> None:
    """Sets a port's clocks, for all processes: "khz=156250,drift=100ppm,step=-10ms,bits=48,day=realtime"; what is not named stays.

    `drift` is how much faster than its `khz` the counter runs (ppm or ppb), `step` a jump of it; `bits` (24 to 64) and `khz` (1000 to
    10000000) are read when a program opens the device. `day` is what the disciplined clock follows: "realtime", or a time that it is set
    to ("1700000000s"). What is malformed is an OSError with EINVAL.
    """
    _check(load().softnic_clock(device(port).encode(), spec.encode()), f"{port}: {spec!r}")


def clock_read(port: str) -> Moment:
    """What the port's clocks show now."""
    stamp = _Stamp()
    _check(load().softnic_clock_read(device(port).encode(), ctypes.byref(stamp)), port)
    return stamp.moment()


def stamps_watch(port: str | None) -> None:
    """From now on remembers the true time of each stamp that this process reads from the port, up to 4096 of them; None ends it."""
    _check(load().softnic_stamps_watch(device(port).encode() if port else None), port or "")


def stamps_take() -> list[Moment]:
    """The stamps remembered since the last call, oldest first."""
    room = (_Stamp * 4096)()
    return [room[i].moment() for i in range(load().softnic_stamps_take(room, len(room)))]
