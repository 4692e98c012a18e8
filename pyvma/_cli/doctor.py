"""What works on this machine, what does not, why, and what to do about it."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import json
import os
import re
import resource
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OK, NOTE, BAD = "ok", "note", "bad"
CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_BPF = 12, 13, 14, 21, 39
AF_XDP = 44
# BPF links of XDP programs came with it.
XDP_KERNEL = (5, 9)
SHM_WANTED = 64 << 20
MEMLOCK_WANTED = 64 << 20


@dataclass(frozen=True)
class Finding:
    """One line of the report. `state`: "ok"; "note" when something optional is missing; "bad" when what was configured fails."""

    subject: str
    state: str
    text: str
    advice: str = ""


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser("doctor", help="what works here, what does not, why, and what to do", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON")


def _capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _bytes(count: int) -> str:
    return "unlimited" if count == resource.RLIM_INFINITY else f"{count / (1 << 20):g} MiB"


def _engine() -> Iterator[Finding]:
    """The engine with the configuration in force."""
    import pyvma
    from pyvma import _config, ring

    yield Finding("package", OK, f"pyvma {pyvma.version}, Python {sys.version.split()[0]}")
    try:
        configured = _config.value_of("interfaces")
        found = ring.interfaces()
        kernels = ring.kernel_interfaces()
    except OSError as error:
        yield Finding(
            "engine", BAD, f"does not start: {error.strerror or error}", "correct the setting that it names; `pyvma config` lists all"
        )
        return
    if not configured:
        yield Finding(
            "engine", NOTE, "no interfaces are configured: every socket is the kernel's", "set PYVMA_INTERFACES, see `pyvma config`"
        )
    for interface in found:
        addresses = ", ".join(str(address) for address in interface.addresses)
        yield Finding(f"interface {interface.name}", OK, f"{interface.ring} ({interface.mode}), {addresses}, MTU {interface.mtu}")
        if interface.note:
            yield Finding(
                f"interface {interface.name}", NOTE, interface.note, 'see "What the driver tells of a frame" in native/doc/xdp.md'
            )
        if not interface.link_up:
            yield Finding(f"interface {interface.name}", BAD, "link down", "what is sent waits; check the cable, or `ip link`")
    for entry in kernels:
        if not entry.offloaded:
            advice = "its sockets are the kernel's meanwhile; strict=1 makes that an error"
            yield Finding(f"interface {entry.name}", BAD, f"{entry.ring}: not offloaded: {entry.reason}", advice)


def _softnic() -> Iterator[Finding]:
    """The software NIC: opens a port on a fabric of its own."""
    from pyvma.ring import softnic

    try:
        port = f"doctor{secrets.token_hex(4)}/0"
        softnic.counters(port)
    except FileNotFoundError as error:
        yield Finding("ring softnic", NOTE, f"not built: {error}", "apt install libibverbs-dev, then pip install again")
    except OSError as error:
        yield Finding("ring softnic", BAD, error.strerror or str(error), "see the limits below")
    else:
        yield Finding("ring softnic", OK, "works, without root")


def _verbs() -> Iterator[Finding]:
    """libibverbs and its devices."""
    from pyvma import _config
    from pyvma.ring import softnic

    name = _config.value_of("verbs_lib") or "libibverbs.so.1"
    try:
        ctypes.CDLL(name)
    except OSError as error:
        yield Finding("ring verbs", NOTE, f"{name} cannot be loaded: {error}", "apt install libibverbs1 ibverbs-providers")
        return
    if not softnic.available():
        yield Finding(
            "ring verbs",
            NOTE,
            "not built: the package was built without infiniband/verbs.h",
            "apt install libibverbs-dev, then pip install again",
        )
        return
    folder = Path("/sys/class/infiniband")
    devices = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    if not devices:
        yield Finding("ring verbs", NOTE, "no RDMA device", "needs a NIC with raw-packet queue pairs (mlx5, mlx4) and its kernel driver")
    elif not _capabilities() >> CAP_NET_RAW & 1:
        yield Finding(
            "ring verbs", NOTE, f"{', '.join(devices)}: no CAP_NET_RAW", "run as root, or setcap cap_net_raw+ep on the interpreter"
        )
    else:
        yield Finding("ring verbs", OK, ", ".join(devices))


def _library(name: str) -> str:
    """Why it cannot be loaded; empty when it can."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return ""


def _xdp() -> Iterator[Finding]:
    """AF_XDP: libraries, kernel, privileges, and the interfaces that it could take."""
    for name, package in (("libbpf.so.1", "libbpf1"), ("libmnl.so.0", "libmnl0")):
        problem = _library(name)
        if problem:
            yield Finding("ring xdp", NOTE, f"{name} cannot be loaded: {problem}", f"apt install {package}")
            return
    release = os.uname().release
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if version < XDP_KERNEL:
        yield Finding("ring xdp", NOTE, f"kernel {release}: BPF links for XDP came with 5.9", "run a newer kernel")
        return
    try:
        socket.socket(AF_XDP, socket.SOCK_RAW).close()
    except PermissionError:
        pass
    except OSError as error:
        yield Finding("ring xdp", NOTE, f"no AF_XDP sockets: {error.strerror}", "the kernel needs CONFIG_XDP_SOCKETS")
        return
    held = _capabilities()
    wanted = {"CAP_NET_ADMIN": CAP_NET_ADMIN, "CAP_NET_RAW": CAP_NET_RAW, "CAP_BPF": CAP_BPF}
    if held >> CAP_SYS_ADMIN & 1:
        wanted.pop("CAP_BPF")
    missing = [name for name, bit in wanted.items() if not held >> bit & 1]
    if missing and _daemon_reason()[0] == "":
        yield Finding("ring xdp", OK, f"works by pyvmad, for this process has no {', '.join(missing)}")
        return
    if missing:
        advice = "run as root, or setcap cap_net_admin,cap_net_raw,cap_bpf+ep on the interpreter; or have pyvmad run"
        yield Finding("ring xdp", NOTE, f"no {', '.join(missing)}", advice)
        return
    names = ", ".join(name for _, name in socket.if_nameindex() if name != "lo")
    yield Finding("ring xdp", OK, f"works, kernel {release}; interfaces: {names or 'none but lo'}")


def _daemon_reason() -> tuple[str, str]:
    """ "" when pyvmad answers this user, else why not; and the socket."""
    from .. import settings
    from ..daemon import Connection

    path = str(settings()["daemon"])
    if path in ("", "none"):
        return "not asked (the setting daemon is none)", path
    try:
        Connection(path, "doctor", timeout=5).close()
    except FileNotFoundError:
        return "not there", path
    except PermissionError:
        return "this user is not in its group", path
    except OSError as error:
        return error.strerror or str(error), path
    return "", path


def _daemon() -> Iterator[Finding]:
    """pyvmad, which does for others what takes privileges."""
    reason, path = _daemon_reason()
    if reason:
        needed = "needed for AF_XDP without privileges, and for NetVSC (bond:): as root, pyvmad run"
        advice = "usermod -aG pyvma USER" if "group" in reason else needed
        yield Finding("pyvmad", NOTE, f"{path}: {reason}", advice)
    else:
        yield Finding("pyvmad", OK, f"{path}: answers")


def _taps() -> list[str]:
    """TAP devices that there are: by sysfs, IFF_TAP of linux/if_tun.h."""
    found = []
    for path in sorted(Path("/sys/class/net").glob("*/tun_flags")):
        with contextlib.suppress(OSError, ValueError):
            if int(path.read_text(), 16) & 2:
                found.append(path.parent.name)
    return found


def _tap() -> Iterator[Finding]:
    """TAP devices as rings."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        advice = "as root: chmod 666 /dev/net/tun" if isinstance(error, PermissionError) else "modprobe tun; the kernel needs CONFIG_TUN"
        yield Finding("ring tap", NOTE, f"/dev/net/tun: {error.strerror}", advice)
        return
    there = ", ".join(_taps()) or "none yet"
    if _capabilities() >> CAP_NET_ADMIN & 1:
        yield Finding("ring tap", OK, f"works; devices: {there}")
    else:
        advice = "have root make one for you: ip tuntap add dev NAME mode tap vnet_hdr user USER; or ask pyvmad"
        yield Finding("ring tap", NOTE, f"no CAP_NET_ADMIN to make devices; those there: {there}", advice)


def _uplink() -> Iterator[Finding]:
    """TAP devices, which the software NIC's uplink needs."""
    advice = "run `pyvma softnic uplink` as root, or have root make the TAP device for you (ip tuntap add mode tap user NAME)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        yield Finding("uplink", NOTE, "/dev/net/tun cannot be opened", "modprobe tun; " + advice)
    elif not _capabilities() >> CAP_NET_ADMIN & 1:
        yield Finding("uplink", NOTE, "no CAP_NET_ADMIN to make TAP devices", advice)
    else:
        yield Finding("uplink", OK, "TAP devices can be made")


def _memory() -> Iterator[Finding]:
    """Huge pages, locked memory and shared memory."""
    info = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free, size = int(info.get("HugePages_Free", "0")), info.get("Hugepagesize", "?").strip()
    if free:
        yield Finding("huge pages", OK, f"{free} of {size} free")
    else:
        yield Finding("huge pages", NOTE, "none free: small pages are used", "sysctl vm.nr_hugepages=64, for fewer TLB misses")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY or soft >= MEMLOCK_WANTED or _capabilities() >> CAP_IPC_LOCK & 1:
        yield Finding("locked memory", OK, f"limit {_bytes(soft)}")
    else:
        advice = "raise RLIMIT_MEMLOCK (ulimit -l, limits.conf): NIC drivers lock buffers; the software NIC does not need it"
        yield Finding("locked memory", NOTE, f"limit {_bytes(soft)}", advice)
    try:
        shm = os.statvfs("/dev/shm")
    except OSError as error:
        yield Finding(
            "shared memory", BAD, f"/dev/shm: {error.strerror}", "mount a tmpfs there: the software NIC's fabrics are files in it"
        )
        return
    room = shm.f_bavail * shm.f_frsize
    if not os.access("/dev/shm", os.W_OK):
        yield Finding("shared memory", BAD, "/dev/shm is not writable", "the software NIC's fabrics are files in it")
    elif room < SHM_WANTED:
        yield Finding(
            "shared memory", NOTE, f"{_bytes(room)} free in /dev/shm", "a container needs --shm-size=256m or more for the software NIC"
        )
    else:
        yield Finding("shared memory", OK, f"{_bytes(room)} free in /dev/shm")


def _programs() -> Iterator[Finding]:
    """What is nice to have beside."""
    if importlib.util.find_spec("pyverbs") is None:
        yield Finding(
            "pyverbs",
            NOTE,
            "not there: pyvma devinfo does not know what devices can do",
            "apt install python3-pyverbs, and use /usr/bin/python3",
        )
    else:
        yield Finding("pyverbs", OK, "there")
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        yield Finding("CPUs", NOTE, "one: two processes that spin take turns", "set rx_poll=0 to sleep at once")
    else:
        yield Finding("CPUs", OK, f"{cpus} to run on")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (_engine, _softnic, _verbs, _xdp, _daemon, _tap, _uplink, _memory, _programs)


def findings() -> list[Finding]:
    """All of the report. A check that itself fails is a finding too."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found.extend(check())
        except Exception as error:
            found.append(Finding(check.__name__.strip("_"), BAD, f"the check failed: {type(error).__name__}: {error}"))
    return found


def run(arguments: argparse.Namespace) -> int:
    """Prints the report; exit status 1 when something that is configured or always needed does not work."""
    found = findings()
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        for finding in found:
            print(f"{finding.state:<5} {finding.subject:<16} {finding.text}")
            if finding.advice and finding.state != OK:
                print(f"{'':<22} -> {finding.advice}")
    return 1 if any(finding.state == BAD for finding in found) else 0
