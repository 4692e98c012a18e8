"""Network namespaces that a test makes itself and removes again. Every command has a limit: a kernel whose control plane hangs must
fail a test, not the whole run."""

from __future__ import annotations

import os
import secrets
import subprocess
from types import TracebackType

LIMIT_S = 20.0


def sh(*command: str, limit_s: float = LIMIT_S, check: bool = True) -> str:
    """Runs a command and returns what it printed, both streams."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}: {done.stdout}")
    return done.stdout


def usable() -> bool:
    """Root, `ip`, and a control plane that answers."""
    if os.geteuid() != 0:
        return False
    try:
        return subprocess.run(["ip", "link"], capture_output=True, timeout=LIMIT_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Namespace:
    """`with Namespace() as ns:` a namespace of a random name with its loopback up."""

    def __init__(self) -> None:
        self.name = f"pvt{secrets.token_hex(4)}"

    def __enter__(self) -> Namespace:
        sh("ip", "netns", "add", self.name)
        self.ip("link", "set", "lo", "up")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        sh("ip", "netns", "del", self.name)

    def ip(self, *arguments: str) -> str:
        return sh("ip", "-n", self.name, *arguments)

    def run(self, *command: str, limit_s: float = LIMIT_S, check: bool = True) -> str:
        return sh("ip", "netns", "exec", self.name, *command, limit_s=limit_s, check=check)

    def popen(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
