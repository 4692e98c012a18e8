"""C programs of the tests: made of their sources, run in a namespace, and the kernel program that those of tests/preload talk to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netns import Namespace

PROGRAMS = Path(__file__).parents[1] / "preload" / "programs"
PEER_PORT = 7400  # peer.h's
LIMIT_S = 100.0
Env = dict[str, str]


def compiled(made: Path, *sources: Path, options: tuple[str, ...] = ()) -> Path:
    """A program, or by its options a library, of sources that give no warning."""
    command = ["cc", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Werror", "-o", str(made), *map(str, sources), "-lpthread", *options]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return made


def programs_in(folder: Path, *names: str) -> Path:
    """Those of PROGRAMS, each of one source; the folder."""
    for name in names:
        compiled(folder / name, PROGRAMS / f"{name}.c")
    return folder


def inside(ns: Namespace, env: Env, *command: str) -> list[str]:
    """The command that runs this one in a namespace, with more in its environment."""
    return ["ip", "netns", "exec", ns.name, "env", *(f"{name}={value}" for name, value in env.items()), *command]


def ran(ns: Namespace, env: Env, *command: str) -> str:
    """What a program printed that ended well and had nothing to complain of."""
    done = subprocess.run(inside(ns, env, *command), capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def peer(ns: Namespace, program: Path) -> Iterator[None]:
    """peer.c, in the kernel's namespace, for as long as the block lasts."""
    process = subprocess.Popen(inside(ns, {}, str(program)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
