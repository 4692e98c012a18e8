"""Two network namespaces joined by a veth pair, for as long as a command runs."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from . import UserError

LIMIT_S = 20.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """No signal ends what runs in here half-way, neither this process nor the commands that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def ip(*arguments: str, check: bool = True) -> str:
    """Runs `ip` and returns what it printed; UserError with its words when it fails."""
    try:
        done = subprocess.run(["ip", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise UserError(f"ip {' '.join(arguments)}: no answer from the kernel within {LIMIT_S:.0f} s") from None
    if check and done.returncode:
        raise UserError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class VethPair:
    """`with VethPair() as pair`: both ends are up, with an address each. Both namespaces are gone afterwards, also after ^C or SIGTERM;
    what runs in them has to have ended by then."""

    device = "veth0"
    hosts = ("10.98.0.1", "10.98.0.2")
    macs = ("02:56:45:54:48:00", "02:56:45:54:48:01")

    def __init__(self) -> None:
        """UserError says why there can be none here."""
        if shutil.which("ip") is None:
            raise UserError("network namespaces need the program ip (package iproute2)")
        if os.geteuid() != 0:
            raise UserError("network namespaces need root")
        token = secrets.token_hex(4)
        self.names = (f"pyvma-{token}-a", f"pyvma-{token}-b")
        self.before: dict[signal.Signals, Any] = {}

    def inside(self, number: int) -> list[str]:
        """What to put before a command that is to run at that end."""
        return ["ip", "netns", "exec", self.names[number]]

    def build(self) -> None:
        """Makes the namespaces, the pair and its addresses. One queue an end; nothing is sent of the kernel's own accord."""
        one, other = self.names
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        queues = ("numtxqueues", "1", "numrxqueues", "1")
        near = ("name", self.device, "address", self.macs[0], *queues)
        far = ("name", self.device, "address", self.macs[1], *queues, "netns", other)
        ip("-n", one, "link", "add", *near, "type", "veth", "peer", *far)
        for name, host in zip(self.names, self.hosts, strict=True):
            ip("-n", name, "link", "set", self.device, "addrgenmode", "none")
            ip("-n", name, "addr", "add", f"{host}/24", "dev", self.device)
            ip("-n", name, "link", "set", self.device, "up")
        deadline = time.monotonic() + LIMIT_S
        for name in self.names:
            while json.loads(ip("-n", name, "-j", "link", "show", "dev", self.device))[0]["operstate"] != "UP":
                if time.monotonic() > deadline:
                    raise UserError("the veth pair has no carrier")
                time.sleep(0.01)

    def remove(self) -> None:
        """Takes away what there is of it."""
        with held_back():
            there = {line.split()[0] for line in ip("netns", "list", check=False).splitlines() if line}
            for name in there.intersection(self.names):
                ip("netns", "del", name, check=False)

    def __enter__(self) -> VethPair:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            self.build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.remove()
        finally:
            for number, handler in self.before.items():
                signal.signal(number, handler)
            self.before = {}
