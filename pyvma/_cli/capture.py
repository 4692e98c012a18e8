"""Frames as pcapng: of a live process on pyvma, or of a device's port by a sniffer rule.

Nothing has to be prepared in the process, and nothing is slowed before and after. Stamps have nanoseconds, and are the device's where the
process has those; every frame has its direction; frames that were lost are counted in the file. A reader that is too slow never holds
up the process: it loses frames.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

from . import UserError
from ._show import as_json

if TYPE_CHECKING:
    from ..capture import Capture

EXAMPLES = """examples:
  pyvma capture --list                                   live processes that can be captured
  pyvma capture --pid 4711 -w web.pcapng tcp port 443    until Ctrl-C
  pyvma capture --pid 4711 -i sn0 -c 100 -w - | tshark -r -
  pyvma capture --pid 4711 --duration 10 --snaplen 96 -w heads.pcapng host 10.0.0.7 and not port 22
  pyvma capture --device softnic:fabric=demo,port=0 -w port.pcapng
  pyvma capture --device mlx5_0/1 -w port.pcapng         what the port receives and sends, by a sniffer rule

filters: [not] ip|ip6|arp|tcp|udp|icmp|icmp6, [not] [src|dst] host ADDRESS, net ADDRESS/PREFIX, port NUMBER, [not] vlan [ID];
         "and" between them or nothing; all must hold
"""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
IDLE_S = 0.01


def add_parser(commands: Any) -> None:
    """Adds the command."""
    raw = argparse.RawDescriptionHelpFormatter
    text = "record frames of a live process or of a device's port"
    parser = commands.add_parser("capture", help=text, description=__doc__, epilog=EXAMPLES, formatter_class=raw)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--pid", type=int, metavar="PID", help="a live process of yours (as root: anybody's)")
    source.add_argument("--device", metavar="DEVICE", help="a port: softnic:fabric=F,port=N, or mlx5_0/1")
    source.add_argument("--list", action="store_true", help="the processes that can be captured")
    parser.add_argument("-i", "--interface", metavar="NAME", default="", help="only this interface of the process")
    parser.add_argument("-w", "--write", metavar="FILE", help="where to; - is stdout (default: pyvma-PID.pcapng, or the device's name)")
    parser.add_argument("-c", "--count", type=int, default=0, metavar="N", help="stop after so many frames")
    parser.add_argument("--duration", type=float, metavar="S", help="stop after so many seconds")
    parser.add_argument("--snaplen", type=int, default=0, metavar="BYTES", help="keep so many bytes of a frame (default: all)")
    parser.add_argument("--buffer", type=int, default=8, metavar="MIB", help="between the process and this reader (default: 8)")
    parser.add_argument("--hw-stamps", action="store_true", help="have the process's devices stamp from now on, until its engine stops")
    parser.add_argument("--json", action="store_true", help="the summary as JSON, on stderr when the frames go to stdout")
    parser.add_argument("--quiet", action="store_true", help="no summary")
    parser.add_argument("filter", nargs="*", metavar="FILTER", help="which frames, as tcpdump has it")


def _check(arguments: argparse.Namespace) -> None:
    for name, low, high in (("count", 0, 2**63), ("snaplen", 0, 2**31), ("buffer", 1, 1024)):
        if not low <= getattr(arguments, name) <= high:
            raise UserError(f"--{name}: {low} to {high}")
    if arguments.duration is not None and not 0 < arguments.duration < 1e9:
        raise UserError("--duration: more than 0 seconds")
    if arguments.device and arguments.interface:
        raise UserError("--interface is for --pid: a device's port is one")


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM has come: a capture that is ended so is complete."""
    seen = []

    def note(number: int, _frame: FrameType | None) -> None:
        seen.append(number)

    before = [(number, signal.signal(number, note)) for number in STOP_SIGNALS]
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _name(arguments: argparse.Namespace) -> str:
    if arguments.write:
        return str(arguments.write)
    stem = str(arguments.pid) if arguments.pid is not None else "".join(c if c.isalnum() or c in "._-" else "-" for c in arguments.device)
    return f"pyvma-{stem}.pcapng"


def _open(name: str) -> BinaryIO:
    if name == "-":
        if sys.stdout.isatty():
            raise UserError("frames are not for a terminal: -w FILE, or a pipe")
        return os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}") from None
    return os.fdopen(fd, "wb", buffering=0)


def _source(arguments: argparse.Namespace) -> Capture:
    from ..capture import Options, live, sniff

    options = Options(
        interface=arguments.interface,
        snaplen=arguments.snaplen,
        count=arguments.count,
        buffer_bytes=arguments.buffer << 20,
        hw_stamps=arguments.hw_stamps,
        filter=" ".join(arguments.filter),
    )
    return live(arguments.pid, options) if arguments.pid is not None else sniff(arguments.device, options)


def _pump(capture: Capture, file: BinaryIO, duration_s: float | None) -> None:
    """Until enough frames, enough time, a signal, or the end of the process."""
    deadline = None if duration_s is None else time.monotonic() + duration_s
    with _stopping() as stopping:
        while not capture.ended():
            capture.move(file)
            left = IDLE_S if deadline is None else min(IDLE_S, deadline - time.monotonic())
            if stopping() or left <= 0:
                break
            capture.wait(left)
        capture.stop()
        while capture.move(file):
            pass
        file.write(capture.trailer())


def _summary(capture: Capture, name: str, arguments: argparse.Namespace) -> None:
    stats = capture.stats()
    if arguments.json:
        found = {"file": name, "interfaces": [vars(entry) for entry in stats]}
        if name == "-":
            import json

            print(json.dumps(found), file=sys.stderr)
        else:
            as_json(found)
        return
    for entry in stats:
        lost = f", {entry.dropped} lost here" if entry.dropped else ""
        lost += f", {entry.missed} lost by the device" if entry.missed else ""
        print(f"{entry.name}: {entry.delivered} frames of {entry.received}{lost}", file=sys.stderr)


def _printable(text: str) -> str:
    """Names are what their owners chose."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _list(arguments: argparse.Namespace) -> int:
    from ..capture import processes

    found = processes()
    if arguments.json:
        as_json([vars(entry) for entry in found])
        return 0
    for entry in found:
        command, interfaces = _printable(entry.command), _printable(", ".join(entry.interfaces))
        print(f"{entry.pid:>8}  {command:<24} {interfaces or '-'}")
    if not found:
        print("no process of yours that can be captured")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, or UserError."""
    if arguments.list:
        return _list(arguments)
    _check(arguments)
    name = _name(arguments)
    try:
        with _source(arguments) as capture:
            with _open(name) as file:
                _pump(capture, file, arguments.duration)
            if not arguments.quiet:
                _summary(capture, name, arguments)
    except BrokenPipeError:
        return 0  # whoever read it has had enough
    except OSError as error:
        raise UserError(error.strerror or str(error)) from None
    return 0
