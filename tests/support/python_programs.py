"""Unmodified Python programs, started as `python -m pyvma ...` where they are to be the engine's and as `python ...` where they are the
kernel's peers, each side in a namespace of its own; what they print, how they end, and what the engine counted meanwhile."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uplink
import veth
from exchange import wait_for
from netns import Namespace

SUPPORT = Path(__file__).parent
PROGRAMS = SUPPORT.parent / "interop" / "apps"
START_LIMIT_S = 60.0
END_LIMIT_S = 60.0


def environment(**more: str) -> dict[str, str]:
    """For a child: no settings (of pyvma, certificates, proxies ...) but `more`; modules of the programs' folder can be imported."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR", "PYVMA_SOFTNIC_LIB")}
    path = os.pathsep.join([str(SUPPORT / "counted"), str(PROGRAMS)])
    return {**kept, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1", **more}


class Program:
    """A process whose output, both streams, goes to a file; what is left of it ends with the block."""

    def __init__(self, ns: Namespace, folder: Path, command: list[str], env: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.output, self.command = folder, folder / "output", command
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", ns.name, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**env, "COUNTERS_FOLDER": str(folder)},
                cwd=folder,
            )

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def said(self, what: str) -> None:
        """Waits until it printed this."""

        def looked() -> bool:
            assert self.process.poll() is None or what in self.text, f"{self.command} ended with {self.process.returncode}:\n{self.text}"
            return what in self.text

        try:
            wait_for(f"{what!r} of {self.command[1:]}", looked, START_LIMIT_S)
        except AssertionError:
            print(self.text)
            raise

    def end(self, number: int = signal.SIGINT, limit_s: float = END_LIMIT_S) -> int:
        """Signals it, if it still runs, and waits; its status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait(limit_s)

    def wait(self, limit_s: float = END_LIMIT_S) -> int:
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(self.text)
            raise

    def result(self, limit_s: float) -> dict[str, object]:
        """Waits for its good end: the JSON of its last line."""
        status = self.wait(limit_s)
        assert status == 0, f"{self.command} ended with {status}:\n{self.text}"
        found: dict[str, object] = json.loads(self.text.splitlines()[-1])
        return found

    def counters(self) -> dict[str, int]:
        """Of the engines of all its processes, which have ended; sums."""
        found: dict[str, int] = {}
        for path in self.folder.glob("*.json"):
            for name, value in json.loads(path.read_text()).items():
                found[name] = found.get(name, 0) + value
        return found

    def kill(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.kill()
        self.process.wait(END_LIMIT_S)


@dataclass
class Net:
    """An engine's end and the kernel's, by family. `interfaces` are what `ours` is configured with, in the namespace `here`."""

    here: Namespace
    there: Namespace
    our_host: dict[int, str]
    their_host: dict[int, str]
    interfaces: list[str]
    folder: Path
    programs: list[Program] = field(default_factory=list)

    def _start(self, ns: Namespace, command: list[str], env: dict[str, str]) -> Program:
        program = Program(ns, self.folder / f"{len(self.programs)}-{secrets.token_hex(2)}", command, env)
        self.programs.append(program)
        return program

    def ours(self, *arguments: str, interfaces: list[str] | None = None, **env: str) -> Program:
        """`python -m pyvma ARGUMENTS`."""
        env = environment(PYVMA_INTERFACES=";".join(interfaces or self.interfaces), PYVMA_STRICT="0", **env)
        return self._start(self.here, [sys.executable, "-m", "pyvma", *arguments], env)

    def theirs(self, *arguments: str, **env: str) -> Program:
        """`python ARGUMENTS` in the kernel's namespace."""
        return self._start(self.there, [sys.executable, *arguments], environment(**env))

    def peer(self, *command: str, **env: str) -> Program:
        """Any other command there."""
        return self._start(self.there, list(command), environment(**env))

    def answers(self, program: Program, host: str, port: int) -> None:
        """Waits until a connection from the kernel's side can be made to the program; it finds one that ends at once."""

        def connected() -> bool:
            assert program.process.poll() is None, f"{program.command} ended with {program.process.returncode}:\n{program.text}"
            command = ["ip", "netns", "exec", self.there.name, "bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}"]
            return subprocess.run(command, capture_output=True, timeout=START_LIMIT_S).returncode == 0

        try:
            wait_for(f"port {port} of {program.command[1:]}", connected, START_LIMIT_S)
        except AssertionError:
            print(program.text)
            raise

    @contextmanager
    def names(self, hosts: dict[str, list[str]]) -> Iterator[None]:
        """Programs of ours that start within the block find these names in /etc/hosts, with their addresses."""
        folder = Path("/etc/netns") / self.here.name
        folder.mkdir(parents=True)
        try:
            lines = [f"{address} {name}" for name, addresses in hosts.items() for address in addresses]
            (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
            yield
        finally:
            shutil.rmtree(folder)
            with suppress(OSError):  # others are in it
                folder.parent.rmdir()

    def end_all(self) -> None:
        for program in self.programs:
            program.kill()
        self.programs.clear()


@contextmanager
def net(kind: str, folder: Path) -> Iterator[Net]:
    """`xdp`: AF_XDP over a veth pair. `uplink`: the software NIC, in a namespace that has no network of the kernel's."""
    with ExitStack() as stack:
        if kind == "xdp":
            here, there = stack.enter_context(veth.namespaces())
            made = Net(here, there, veth.ENGINE, veth.KERNEL, ["xdp:device=v0"], folder)
        else:
            there, fabric = stack.enter_context(uplink.uplink(uplink.KERNEL))
            here = stack.enter_context(Namespace())
            addresses = ",".join(f"addr={host}/{bits}" for host, bits in zip(uplink.ENGINE.values(), (24, 64), strict=True))
            made = Net(here, there, uplink.ENGINE, uplink.KERNEL, [f"softnic:fabric={fabric},port=0,{addresses},name=sn0"], folder)
        try:
            yield made
        finally:
            made.end_all()


def certificate(folder: Path, hosts: list[str]) -> Path:
    """A key and a certificate of these names and addresses, signed by itself, in one file."""
    names = ",".join(("IP:" if host.replace(".", "").isdigit() or ":" in host else "DNS:") + host for host in hosts)
    path, command = (
        folder / "certificate.pem",
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
    )
    command += [
        "-days",
        "30",
        "-subj",
        "/CN=pyvma tests",
        "-addext",
        f"subjectAltName={names}",
        "-keyout",
        str(path),
        "-out",
        str(folder / "c"),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with path.open("ab") as file:
        file.write((folder / "c").read_bytes())
    return path
