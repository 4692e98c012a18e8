"""Ports of the software NIC: join one to a TAP device, count, impair."""

from __future__ import annotations

import argparse
import json
import os
import signal
from typing import Any

from . import UserError

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _port_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fabric", required=True, metavar="NAME", help="the fabric, which any number of processes join by its name")
    parser.add_argument("--port", required=True, type=int, metavar="N", help="the port's number on it")


def add_parser(commands: Any) -> None:
    """Adds the command."""
    top = commands.add_parser("softnic", help="ports of the software NIC", description=__doc__)
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    uplink = actions.add_parser("uplink", help="join a port to a TAP device, so that kernel programs are on the fabric")
    _port_options(uplink)
    uplink.add_argument("--dev", required=True, metavar="TAP", help="the device; made when it is missing (needs CAP_NET_ADMIN)")
    counters = actions.add_parser("counters", help="print a port's counters")
    _port_options(counters)
    counters.add_argument("--json", action="store_true", help="as JSON")
    impair = actions.add_parser("impair", help="lose, delay, reorder or limit what a port sends")
    _port_options(impair)
    impair.add_argument("spec", nargs="?", default="", help='e.g. "loss=0.01,delay=10us,rate=1Gbit"; nothing ends it')
    link = actions.add_parser("link", help="take a port's link up or down")
    _port_options(link)
    link.add_argument("state", choices=("up", "down"))


def _uplink(port: str, ifname: str) -> None:
    """Runs until SIGINT or SIGTERM: Python's signal handlers have to wait for the native call, its wake-up fd does not."""
    from ..ring import softnic

    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = [(number, signal.signal(number, lambda *_: None)) for number in STOP_SIGNALS]
    old_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        softnic.uplink(port, ifname, reader)
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in before:
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; exit status 0, or UserError."""
    from ..ring import softnic

    port = f"{arguments.fabric}/{arguments.port}"
    try:
        if arguments.action == "uplink":
            _uplink(port, arguments.dev)
        elif arguments.action == "impair":
            softnic.impair(port, arguments.spec)
        elif arguments.action == "link":
            softnic.set_link(port, arguments.state == "up")
        else:
            counters = softnic.counters(port)
            print(json.dumps(counters) if arguments.json else "\n".join(f"{name:<24}{value:>16}" for name, value in counters.items()))
    except OSError as error:
        raise UserError(error.strerror or str(error)) from None
    return 0
