"""Running the measuring processes of `pyvma bench`: the C program of native/bench and the Python peer."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import UserError, module

READY_S = 30.0
"""How long a server may take to come up."""
GRACE_S = 60.0
"""What a measurement may take beyond its own time."""


def program() -> Path:
    """The C program. UserError when the package was built without it."""
    from .._native import FOLDER

    path = FOLDER / "pyvma-bench"
    if not path.exists():
        raise UserError(f"{path} is missing: the package was built without PV_BENCH")
    return path


class Peer:
    """One measuring process; its last line of output is its result."""

    def __init__(self, command: Sequence[str], clean: bool = False, inside: Sequence[str] = ()) -> None:
        """Starts it; `clean`: without the caller's settings, which would make another measurement of it; `inside`: a command that
        becomes this one somewhere else."""
        self.name = Path(command[0]).name
        environment = {name: value for name, value in os.environ.items() if not (clean and name.startswith(("PYVMA_", "VMA_")))}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*inside, *command], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment)

    def ready(self) -> dict[str, Any]:
        """Waits for a server's first line."""
        assert self.process.stdout is not None
        there, _, _ = select.select([self.process.stdout], [], [], READY_S)
        line = self.process.stdout.readline() if there else ""
        if not line:
            self.process.kill()
            self._fail(self.process.communicate()[1] if there else "the server did not come up")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fail(self, text: str) -> None:
        lines = text.strip().splitlines()
        message = lines[-1] if lines else f"{self.name} ended with status {self.process.returncode}"
        raise UserError(message.removeprefix("pyvma-bench: "))

    def result(self, seconds: float) -> dict[str, Any]:
        """Waits for the end."""
        try:
            out, errors = self.process.communicate(timeout=seconds + GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise UserError(f"{self.name} did not end") from None
        if self.process.returncode:
            self._fail(errors)
        answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return answer

    def stop(self) -> dict[str, Any]:
        """Ends a server and returns its result. A signal may fall between its look at the flag and its wait: it is sent again."""
        for _ in range(100):
            self.process.terminate()
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            return self.result(0)
        self.kill()
        raise UserError(f"{self.name} did not stop")

    def kill(self) -> None:
        """Ends it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(ValueError):
            self.process.communicate()


@contextlib.contextmanager
def running(peer: Peer) -> Iterator[Peer]:
    """The peer is gone afterwards, whatever happened."""
    try:
        yield peer
    finally:
        peer.kill()


def c_command(role: str, transport: str, cpu: int | None, **options: Any) -> list[str]:
    """Command line of the C program; options by their long names, None left out, True as a switch."""
    command = [str(program()), role]
    given = {"transport": transport, "cpu": cpu, **options}
    for name, value in given.items():
        if value is None or value is False:
            continue
        command.append("--" + name.replace("_", "-"))
        if value is not True:
            command.append(str(value))
    return command


def python_command(task: dict[str, Any]) -> list[str]:
    """Command line of the Python peer."""
    return module("pyvma._cli._bench_peer", json.dumps(task))


def free_ports(host: str) -> tuple[int, int]:
    """Two ports of the kernel that nobody has just now, for UDP or TCP."""
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < 2:
            stream = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            stream.bind((host, 0))
            port = stream.getsockname()[1]
            datagram = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with contextlib.suppress(OSError):
                datagram.bind((host, port))
                ports.append(port)
    return ports[0], ports[1]


def listed(text: str) -> set[int]:
    """The numbers of a kernel list such as "0-3,8"."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def neighbours(cpu: int, what: str) -> set[int]:
    """CPUs that share something with this one, as far as the kernel tells."""
    try:
        return listed(Path(f"/sys/devices/system/cpu/cpu{cpu}/{what}").read_text())
    except OSError:
        return set()


def cpus() -> tuple[int | None, int | None]:
    """A CPU each for two processes: two cores, of one last-level cache where possible. None where there is only one CPU."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        return None, None
    same_core, same_cache = neighbours(first, "topology/thread_siblings_list"), neighbours(first, "cache/index3/shared_cpu_list")
    return first, min(others, key=lambda cpu: (cpu in same_core, cpu not in same_cache, cpu))
