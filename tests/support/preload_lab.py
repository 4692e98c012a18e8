"""Unmodified programs under `pyvma run`, over AF_XDP on one end of a veth pair, with the kernel's at the other; what engines counted."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import veth
from exchange import wait_for
from netns import sh
from python_programs import START_LIMIT_S, Net, Program, environment

MIB = 1 << 20


def preloaded(counters: Path) -> dict[str, str]:
    """What makes a program without `pyvma run` use the stack; at its end its engine's counters are in that file."""
    from pyvma._cli import run

    return {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0", "PYVMA_EXIT_STATS": str(counters)}


def counted(program: Program) -> dict[str, int]:
    """Sums over the engines of all its processes, which have ended."""
    return counters_of(program.folder / "engine")


def counters_of(path: Path) -> dict[str, int]:
    """What PYVMA_EXIT_STATS made of that file."""
    from pyvma._cli._run_stats import read

    found: dict[str, int] = {}
    for _, counters in read(path.read_text() if path.exists() else "", "/dev/shm").values():
        for name, value in counters.items():
            found[name] = found.get(name, 0) + value
    return found


def live(program: Program) -> dict[str, int]:
    """Sums over the engines of its processes that are up, by the memory that they show."""
    from pyvma.stats import StatsError, attach, totals

    path = program.folder / "engine"
    names = {"tcp_table": "tcp", "udp_table": "udp"}
    found: dict[str, int] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            with attach(int(line.split("\t")[0])) as process:
                shown = totals(process.snapshot())
        except StatsError:
            continue
        for kind, values in shown.items():
            for name, value in values.items():
                key = f"{names.get(kind, kind)}.{name}"
                found[key] = found.get(key, 0) + value
    return found


def engines(program: Program) -> set[int]:
    """Numbers of its processes that have had an engine."""
    path = program.folder / "engine"
    return {int(line.split("\t")[0]) for line in path.read_text().splitlines()} if path.exists() else set()


def offloads(program: Program) -> bool:
    """Has one of its processes a socket that is offloaded?"""
    from pyvma.stats import StatsError, attach

    for pid in engines(program):
        try:
            with attach(pid) as process:
                if any(record["state"] == "offloaded" for record in process.snapshot().sockets):
                    return True
        except StatsError:
            continue
    return False


class Lab(Net):
    """`run` starts a program over the engine; `peer` (Net) one over the kernel, on the other side.

    `reports` is a folder that every user may enter, which pytest's are not.
    """

    reports: Path

    def run(self, *command: str, options: tuple[str, ...] = (), **env: str) -> Program:
        """`pyvma run OPTIONS -- COMMAND`. The program is `process` itself."""
        folder = self.folder / f"{len(self.programs)}-{secrets.token_hex(4)}"
        report = self.reports / folder.name
        settings = environment(PYVMA_INTERFACES=";".join(self.interfaces), PYVMA_EXIT_STATS=str(report), **env)
        if not env.get("PYTHONPATH"):
            settings.pop("PYTHONPATH", None)
        line = [sys.executable, "-m", "pyvma", "run", *options, "--", *command]
        folder.mkdir(parents=True)
        (folder / "engine").symlink_to(report)
        report.touch()
        report.chmod(0o666)  # for users that programs become
        program = Program(self.here, folder, line, settings)
        self.programs.append(program)
        return program

    def listens(self, program: Program, port: int, udp: bool = False) -> None:
        """Waits until the program's namespace has a socket there."""

        def looked() -> bool:
            assert program.process.poll() is None, f"{program.command} ended with {program.process.returncode}:\n{program.text}"
            ns = self.here if program.process.args[3] == self.here.name else self.there  # type: ignore[index]
            return f":{port} " in ns.run("ss", "-lnu" if udp else "-lnt")

        wait_for(f"port {port} of {program.command}", looked, START_LIMIT_S)
        if (program.folder / "engine").is_symlink():  # ours: what comes before it waits for the first time is the kernel's
            wait_for(f"an offloaded socket of {program.command}", lambda: offloads(program), START_LIMIT_S)

    def done(self, program: Program, limit_s: float = 60.0, status: int = 0) -> str:
        """Waits for its end; what it printed."""
        found = program.wait(limit_s)
        assert found == status, f"{program.command} ended with {found}:\n{program.text}"
        return program.text

    def end_all(self) -> None:
        """Workers of what was killed, too, which else would have the device."""
        super().end_all()
        for ns in (self.here, self.there):
            left = [int(pid) for pid in sh("ip", "netns", "pids", ns.name).split()]
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for(f"the end of {left}", lambda ns=ns: not sh("ip", "netns", "pids", ns.name).split())  # type: ignore[misc]

    def ask(self, *command: str, limit_s: float = 60.0) -> str:
        """A command of the kernel's side, which must succeed; what it printed."""
        return self.done(self.peer(*command), limit_s)


@contextmanager
def lab(folder: Path) -> Iterator[Lab]:
    """Both namespaces; what a test left running ends with it."""
    with veth.namespaces() as (here, there):
        made = Lab(here, there, veth.ENGINE, veth.KERNEL, ["xdp:device=v0"], folder)
        made.reports = Path(tempfile.mkdtemp())
        made.reports.chmod(0o755)
        try:
            yield made
        finally:
            made.end_all()
            shutil.rmtree(made.reports)


def make_file(path: Path, size: int) -> str:
    """A file in which no two blocks of a MiB are alike; its digest."""
    noise, digest = random.Random(size).randbytes(MIB), hashlib.sha256()
    with path.open("wb") as file:
        for number in range(max(1, size // MIB)):
            block = (number.to_bytes(8, "big") + noise[8:])[: min(size, MIB)]
            file.write(block)
            digest.update(block)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if sys.version_info >= (3, 11) else hashlib.sha256(file.read()).hexdigest()


def missing(*names: str) -> list[str]:
    """Which of these programs are not installed; those of system administration are found, too."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [name for name in names if not shutil.which(name, path=path)]


def bracketed(host: str) -> str:
    """As URLs have it."""
    return f"[{host}]" if ":" in host else host


def key_of(folder: Path, name: str) -> Path:
    """An ssh key without a passphrase."""
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, stdin=subprocess.DEVNULL, timeout=30)
    return path
