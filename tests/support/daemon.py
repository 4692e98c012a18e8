"""pyvmad in a test's namespace, and programs that ask it for something."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from actor import Actor
from exchange import wait_for
from netns import Namespace

from pyvma.daemon import status

PROGRAM = "import sys; from pyvma.daemon import main; sys.exit(main())"
NOBODY = 65534
GROUP = 1  # of Debian's: "daemon"

# In an actor: a connection `c` to the daemon at `path`, and requests by it.
CONNECT = """
import socket as std
from pyvma.daemon import Connection, _protocol as p
c = Connection(path, "test")
index = std.if_nametoindex("v0")
def flow(dst, port, proto=17, src="", src_port=0, tap=0, ifindex=None):
    family = std.AF_INET6 if ":" in dst else std.AF_INET
    source = std.inet_pton(family, src) if src else b""
    return p.FLOW.pack(index if ifindex is None else ifindex, tap, family, proto, 0, 0, port, src_port, std.inet_pton(family, dst), source)
def bound(dst, port, proto=17):
    s = std.socket(std.AF_INET6 if ":" in dst else std.AF_INET, std.SOCK_DGRAM if proto == 17 else std.SOCK_STREAM)
    s.bind((dst, port))
    return s
def tap(ifindex, queues=1):
    answer = c.call(p.TAP, p.TAP_ASK.pack(ifindex, queues, 0))
    number, name = p.TAP_ANSWER.unpack_from(answer.body)
    return number, name.rstrip(b"\\0").decode(), answer.fds
def result(kind, body, *fds):
    answer = c.ask(kind, body, fds)
    return answer.result, answer.body.decode(errors="replace")
held = {}
"""
# Frames that have come to a TAP: past the 10 bytes of the vnet header.
FRAMES = """
def frames(fd, wanted, limit=20):
    found, end = [], time.monotonic() + limit
    while len(found) < wanted and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            frame = os.read(fd, 70000)[10:]
            if (frame[12:14], frame[23:24]) == (b"\\x08\\x00", b"\\x11") or (frame[12:14], frame[20:21]) == (b"\\x86\\xdd", b"\\x11"):
                found.append(frame)
            elif frame[23:24] == b"\\x06" or frame[20:21] == b"\\x06":
                found.append(frame)
    return found
"""
DROP = """
import ctypes
os.setgroups(groups)
os.setresgid(user, user, user)
os.setresuid(user, user, user)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as of a process that began so
"""


class Daemon:
    """`with Daemon(namespace, folder) as daemon:`; `kill` and `start` it again at will."""

    def __init__(self, namespace: Namespace, folder: Path, *options: str) -> None:
        self.path = str(folder / "s")
        self.log = folder / "log"
        self._namespace = namespace
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        command = ["ip", "netns", "exec", self._namespace.name, sys.executable, "-c", PROGRAM, "run", "--socket", self.path]
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        with self.log.open("ab") as log:
            before = log.tell()
            self.process = subprocess.Popen([*command, *self._options], stdin=subprocess.DEVNULL, stderr=log, env=environment)

        def serves() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.text()
            return b"serves at" in self.log.read_bytes()[before:]

        wait_for("the daemon", serves)

    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it; how."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(30)
        self.process = None
        return status

    def status(self) -> dict[str, Any]:
        """As `pyvmad status --json` has it."""
        return status(self.path)

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self.process is not None:
            self.stop(signal.SIGKILL)


@contextmanager
def daemon(namespace: Namespace, *options: str) -> Iterator[Daemon]:
    """In a folder of its own, which other users may enter."""
    with tempfile.TemporaryDirectory(prefix="pvd") as name:
        os.chmod(name, 0o755)
        with Daemon(namespace, Path(name), *options) as running:
            yield running


@contextmanager
def asker(namespace: Namespace, path: str) -> Iterator[Actor]:
    """A process with a connection to the daemon."""
    with Actor(netns=namespace.name) as actor:
        actor(CONNECT, path=path)
        actor(FRAMES)
        yield actor


def ours(namespace: Namespace, device: str) -> list[str]:
    """The daemon's filters as tc's text has them, without numbers of actions and counters."""
    text = namespace.run("tc", "filter", "show", "dev", device, "ingress")
    found = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"(?m)^(?=filter )", text)]
    return [re.sub(r" index \d+ ref \d+ bind \d+", "", part) for part in found if re.search(r"pref 74\d\d ", part)]


def qdiscs(namespace: Namespace, device: str) -> list[str]:
    """Kinds of the ingress side."""
    listed = json.loads(namespace.run("tc", "-j", "qdisc", "show", "dev", device))
    return [each["kind"] for each in listed if each["kind"] in ("clsact", "ingress")]
