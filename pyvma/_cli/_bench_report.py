"""`pyvma bench report`: every kind of measurement, and a page of it with tables, plots, commands and host facts.

A section at a time may be measured (`--section NAME --into DIR`) and the page written at the end (`--page FILE --into DIR` without
measuring: `--assemble`): what is in the folder is what is on the page, and which sections one run measured is in their files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import UserError, _bench_page, _bench_plot


@dataclass(frozen=True)
class Command:
    """One `pyvma bench ...`: `full`, and `quick`, a short form that only shows that it works ("": there is none). `plots`: which pictures
    are on the page, by the ends of their names."""

    full: str
    quick: str
    plots: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """A heading of the page."""

    name: str
    title: str
    text: str
    commands: tuple[Command, ...]


COMPARE = "half round trips of 64 bytes by every way there is, messages a second one way"
TENTH = "The first tenth of each run is warm-up and not in the latencies."
DISTRIBUTION = ("cdf", "percentiles")
SIZES = "--values 64,256,1472,8192,65000"
RATES = "--values 1000,10000,100000,200000,400000,800000"
SHORT = "--seconds 0.15 --runs 1"
SECTIONS = (
    Section(
        "udp-softnic",
        "UDP over the software NIC",
        f"Two processes on two CPUs: {COMPARE} without loss. The kernel's rows go over loopback. {TENTH}",
        (
            Command(
                "compare --ring softnic --proto udp --size 64 --seconds 0.5 --runs 5",
                f"compare --ring softnic --proto udp --rows pyvma-c,kernel-c-block {SHORT}",
                DISTRIBUTION,
            ),
        ),
    ),
    Section(
        "tcp-softnic",
        "TCP over the software NIC",
        f"One connection with TCP_NODELAY: {COMPARE}, and a bulk stream of 64 KiB a call. The kernel's rows go over loopback, whose "
        f"frames have 64 KiB; its bulk stream over a veth pair is below the table. {TENTH}",
        (
            Command(
                "compare --ring softnic --proto tcp --size 64 --seconds 0.5 --runs 5",
                "",
                DISTRIBUTION,
            ),
        ),
    ),
    Section(
        "udp-xdp",
        "UDP over AF_XDP",
        "All rows over the same veth pair, between two network namespaces. Nothing of it is a NIC: a frame of AF_XDP is copied by the "
        f"kernel here. {TENTH}",
        (
            Command(
                "compare --ring xdp --proto udp --size 64 --seconds 0.5 --runs 3",
                "",
                DISTRIBUTION,
            ),
        ),
    ),
    Section(
        "tcp-xdp",
        "TCP over AF_XDP",
        f"The same pair. Bulk crosses it in segments of up to 64 KiB that are never cut, but for raw's frames of 1500 bytes. {TENTH}",
        (
            Command(
                "compare --ring xdp --proto tcp --size 64 --seconds 0.5 --runs 3",
                f"compare --ring xdp --proto tcp --rows pyvma-c {SHORT}",
                DISTRIBUTION,
            ),
        ),
    ),
    Section(
        "tap",
        "A TAP device",
        "A server over a TAP device whose other end is the kernel of the same host; all clients are the kernel's sockets, and the "
        f"kernel's own rows go over loopback. Raw is a bare loop on the device. {TENTH}",
        (
            Command("compare --ring tap --proto udp --size 64 --seconds 0.5 --runs 3", "", DISTRIBUTION),
            Command(
                "compare --ring tap --proto tcp --size 64 --seconds 0.5 --runs 3",
                f"compare --ring tap --proto tcp --rows pyvma-c {SHORT}",
                DISTRIBUTION,
            ),
        ),
    ),
    Section(
        "sizes",
        "Over sizes",
        "Half round trips and what arrives one way, by the size of a message. Above 1472 bytes a datagram goes in fragments; a raw ring "
        f"has none. {TENTH}",
        (
            Command(
                f"sweep --over size --ring softnic --proto udp --rows pyvma-c,pyvma-py,kernel-c-spin {SIZES} --seconds 0.4 --runs 1",
                f"sweep --over size --rows pyvma-c --values 64,4000 {SHORT}",
                ("p50", "gbps"),
            ),
            Command(
                f"sweep --over size --ring xdp --proto tcp --rows pyvma-c,kernel-c-spin {SIZES} --seconds 0.4 --runs 1",
                "",
                ("p50", "gbps"),
            ),
        ),
    ),
    Section(
        "rates",
        "Latency under a load by the clock",
        "Messages are due at a steady rate and all answered. Each one's time, the whole round trip, counts from the moment when it was "
        "due, not from when its sender came to send it: who cannot keep up shows it here (the column from sending does not). As in "
        "sockperf the beginning and the end are not in the latencies: the first 40 % and the last 5 % of a run.",
        (
            Command(
                f"sweep --over rate --ring softnic --proto udp {RATES} --seconds 0.5 --runs 1",
                f"sweep --over rate --rows pyvma-c --values 2000 {SHORT}",
                ("p50", "p99"),
            ),
            Command(f"sweep --over rate --ring xdp --proto udp {RATES} --seconds 0.5 --runs 1", "", ("p50", "p99")),
        ),
    ),
    Section(
        "loops",
        "asyncio",
        "Event loops over the same veth pair: half round trips with the same loop at both ends; echoes and HTTP requests a second of a "
        f"server with 64 connections, whose load is one C client over AF_XDP for all rows. {TENTH}",
        (
            Command(
                "compare --api asyncio --ring xdp --proto tcp --size 64 --seconds 0.5 --runs 2",
                f"compare --api asyncio --proto udp --rows pyvma-asyncio-fd {SHORT}",
            ),
        ),
    ),
    Section(
        "loops-udp",
        "asyncio with datagrams",
        f"The same for datagrams: half round trips, and echoes a second to 64 sockets. {TENTH}",
        (Command("compare --api asyncio --ring xdp --proto udp --size 64 --seconds 0.5 --runs 2", ""),),
    ),
    Section(
        "gil",
        "Beside a thread that wants the GIL",
        f"An echo server in Python beside a thread of pure Python in the same process. {TENTH}",
        (Command("gil --ring softnic --proto udp --seconds 0.6 --runs 1", f"gil --rows kernel-py {SHORT}"),),
    ),
    Section(
        "connections",
        "Many connections",
        "Idle TCP connections and their memory, a busy one beside them, and connections that are opened, used for a message each way and "
        "closed. The busy one's first 2,000 round trips are not in its latencies.",
        (
            Command(
                "connections --count 100000 --churn 5000 --runs 1 --seconds 0.3",
                "connections --count 50 --churn 40 --runs 1 --seconds 0.05",
            ),
            Command("sweep --over connections --seconds 0.3 --runs 1", "", ("p50",)),
        ),
    ),
    Section(
        "mixed",
        "Short requests beside a bulk stream",
        f"Two TCP connections in one engine and one thread, against each alone. {TENTH}",
        (
            Command("mixed --ring softnic --seconds 0.9 --runs 3", "mixed --stacks pyvma --seconds 0.9 --runs 1"),
            Command("mixed --ring xdp --seconds 0.9 --runs 3", ""),
        ),
    ),
    Section(
        "sockperf",
        "sockperf over kernel sockets",
        "The real sockperf at both ends on loopback: what the rows kernel-c above are comparable with. It leaves the first 400 ms and the "
        "last 50 ms out of its latencies.",
        (Command("sockperf all --proto udp", ""), Command("sockperf all --proto tcp", "")),
    ),
    Section(
        "sockperf-stacks",
        "sockperf, unmodified, over the stack",
        "The real sockperf at both ends of a veth pair: over the stack by `pyvma run`, over the kernel with and without blocking, and the "
        "bare AF_XDP ring by a program of ours, in turns.",
        (
            Command("sockperf --stack all -t 1 --runs 3", ""),
            Command("sockperf --stack all -t 1 --runs 3 --proto tcp", ""),
        ),
    ),
)
NAMES = tuple(section.name for section in SECTIONS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--page", metavar="FILE", help="write the page there, its pictures into img beside it")
    parser.add_argument("--into", metavar="DIR", help="keep the measurements there (default: a folder for the time of the run)")
    parser.add_argument(
        "--section", action="append", choices=NAMES, metavar="NAME", help=f"only this one; may be repeated: {', '.join(NAMES)}"
    )
    parser.add_argument("--assemble", action="store_true", help="measure nothing: the page of what is in --into")
    parser.add_argument("--build", metavar="TEXT", help="what is measured, a commit for instance: the page says it")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all, whose figures say nothing")


def bench(command: str, file: Path, pictures: Path, plots: bool) -> dict[str, Any]:
    """What one command measured, or why it could not."""
    from . import main

    line = ["bench", *command.split(), "--json", str(file)]
    line += ["--plot", str(pictures), "--format", "svg"] if plots else []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        status = main(line)
    if status == 0:
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    words = (errors.getvalue().strip().splitlines() or [f"status {status}"])[-1]
    return {"failed": words.removeprefix("pyvma bench: ")}


def processor_time() -> tuple[float, float]:
    """Seconds of all CPUs for programs, since the machine started; those of this process and of its children that have ended."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    everybody = sum(int(fields[at]) for at in (1, 2, 3)) / os.sysconf("SC_CLK_TCK")
    ours = os.times()
    return everybody, ours.user + ours.system + ours.children_user + ours.children_system


def measure(section: Section, quick: bool, into: Path, by: dict[str, Any]) -> None:
    """Runs a section's commands; what they found is in the folder under the section's name. `by`: the run that it belongs to."""
    parts = []
    begun, before = time.time(), processor_time()
    for command, text in [(command, command.quick if quick else command.full) for command in section.commands]:
        if not text:
            continue
        with tempfile.TemporaryDirectory() as folder:
            drawn = Path(folder) / "img"
            found = bench(text, Path(folder) / "report.json", drawn, bool(command.plots))
            pictures = []
            for path in sorted(drawn.glob("*.svg")) if drawn.is_dir() else []:
                if path.stem.endswith(command.plots):
                    (into / "img").mkdir(exist_ok=True)
                    shutil.copy(path, into / "img" / path.name)
                    pictures.append(path.name)
        # The page needs no single latency: the pictures have them.
        for row in found["rows"] if isinstance(found.get("rows"), list) else []:
            row.pop("histogram_ns", None)
        parts.append({"command": f"pyvma bench {text}", "report": found, "pictures": pictures})
    ended, after = time.time(), processor_time()
    # Of the CPUs' time, what programs that are none of this run's had.
    others = max(0.0, (after[0] - before[0]) - (after[1] - before[1])) / ((ended - begun) * (os.cpu_count() or 1))
    document = {"name": section.name, **by, "quick": quick, "begun": begun, "ended": ended, "others": others, "parts": parts}
    (into / f"{section.name}.json").write_text(json.dumps(document, indent=1) + "\n")


def assemble(into: Path, page: Path) -> None:
    """Writes the page of what is in the folder, and the pictures beside it."""
    found = []
    for section in SECTIONS:
        file = into / f"{section.name}.json"
        if file.exists():
            found.append((section.title, section.text, json.loads(file.read_text())))
    if not found:
        raise UserError(f"--into {into}: there is nothing measured")
    missing = [section.name for section in SECTIONS if not (into / f"{section.name}.json").exists()]
    text = _bench_page.page(found, missing)
    pictures = page.parent / "img"
    for _, _, document in found:
        for name in [name for part in document["parts"] for name in part["pictures"]]:
            pictures.mkdir(parents=True, exist_ok=True)
            shutil.copy(into / "img" / name, pictures / name)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text)


def run(arguments: argparse.Namespace) -> int:
    """Measures and writes. 1 when a command could not measure: the page says which, and why."""
    if arguments.assemble and not (arguments.into and arguments.page):
        raise UserError("--assemble needs --into and --page")
    if not arguments.into and not arguments.page:
        raise UserError("--page or --into is needed, or nothing is kept")
    if not arguments.assemble:
        _bench_plot.library()
    with tempfile.TemporaryDirectory() as temporary:
        into = Path(arguments.into or temporary)
        by = {"run": f"{time.time():.3f}-{os.getpid()}", "build": arguments.build}
        try:
            into.mkdir(parents=True, exist_ok=True)
            wanted = [section for section in SECTIONS if not arguments.section or section.name in arguments.section]
            for section in wanted if not arguments.assemble else []:
                if not arguments.quick or any(command.quick for command in section.commands):
                    measure(section, arguments.quick, into, by)
                    print(f"{section.name}: measured", flush=True)
            if arguments.page:
                assemble(into, Path(arguments.page))
                print(f"wrote {arguments.page}")
        except OSError as error:
            raise UserError(f"{error.filename}: {error.strerror}") from None
        failed = [name for name in NAMES if failures(into / f"{name}.json")]
    if failed:
        print(f"not measured: {', '.join(failed)}; the page says why", file=sys.stderr)
    return 1 if failed else 0


def failures(file: Path) -> bool:
    """Whether a section's document has a command that failed."""
    return file.exists() and any("failed" in part["report"] for part in json.loads(file.read_text())["parts"])
