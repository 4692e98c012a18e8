"""What the figures of `pyvma bench` depend on: the processor, the kernel, the hypervisor, versions, and how far two CPUs are apart."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from rich.console import Console

from ._bench_run import Peer, c_command, cpus, running


def first_line(path: str) -> str | None:
    """Of a file of the kernel's; None where there is none."""
    try:
        return Path(path).read_text().splitlines()[0].strip() or None
    except (OSError, IndexError):
        return None


def hypervisor(flags: list[str]) -> str | None:
    """Who runs the virtual machine, as the processor or its firmware tells ("unknown" when they do not); None on real hardware."""
    if "hypervisor" not in flags:
        return None
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(["lscpu"], capture_output=True, text=True, timeout=10, env={"LC_ALL": "C", "PATH": os.defpath}).stdout
        for text in told.splitlines():
            name, _, value = text.partition(":")
            if name == "Hypervisor vendor":
                return value.strip()
    return first_line("/sys/class/dmi/id/product_name") or first_line("/sys/hypervisor/type") or "unknown"


def version(package: str) -> str | None:
    """The installed one."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def host() -> dict[str, Any]:
    """All of it but the distance, which is measured (`line`)."""
    model, flags = platform.processor() or platform.machine(), ""
    with contextlib.suppress(OSError):
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = text.partition(":")
            if name.strip() == "model name":
                model = value.strip()
            elif name.strip() == "flags":
                flags = value
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "pinned": list(cpus()),
        "virtual": "hypervisor" in flags.split(),
        "hypervisor": hypervisor(flags.split()),
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "pyvma": version("pyvma"),
        "uvloop": version("uvloop"),
        "load": os.getloadavg()[0],
    }


def line(seconds: float) -> float | None:
    """Half round trip of one shared cache line between the two CPUs, in microseconds."""
    one, two = cpus()
    if one is None:
        return None
    with running(Peer(c_command("line", "none", one, cpu2=two, seconds=seconds), clean=True)) as peer:
        return float(peer.result(seconds)["line_us"])


def distance(floors: list[float | None]) -> dict[str, Any] | None:
    """The distances measured during a run, in nanoseconds, as reports have them."""
    found = sorted(1e3 * floor for floor in floors if floor is not None)
    if not found:
        return None
    return {"min": found[0], "median": found[len(found) // 2], "max": found[-1], "runs": [1e3 * f for f in floors if f is not None]}


def said(facts: dict[str, Any]) -> str:
    """One line for people."""
    kind = f"virtual machine ({facts['hypervisor']})" if facts["hypervisor"] else "machine"
    pinned = "pinned to {} and {}".format(*facts["pinned"]) if facts["pinned"][0] is not None else "not pinned: there is one CPU only"
    governor = f", governor {facts['governor']}" if facts["governor"] else ""
    return f"{facts['cpu']}, {facts['cpus']} CPUs ({kind}), {pinned}{governor}; Linux {facts['kernel']}, Python {facts['python']}"


def show_distance(console: Console, found: dict[str, Any] | None) -> None:
    """The floor below all figures between two processes."""
    if found is not None:
        text = (
            f"floor: one cache line from CPU to CPU takes {found['median'] / 1e3:.3f} µs "
            f"({found['min'] / 1e3:.3f} to {found['max'] / 1e3:.3f} over the runs)"
        )
        console.print(text, highlight=False)


def when(report: dict[str, Any]) -> str:
    """The moment that a report begins with, and how busy the machine had been."""
    return f"{report['time'].replace('T', ' ').removesuffix('Z')} UTC, load {report['host']['load']:.1f}"
