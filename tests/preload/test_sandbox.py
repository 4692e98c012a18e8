"""A program that goes behind a seccomp filter while its sockets are in use, over AF_XDP with the kernel on the other end: where the filter
leaves the engine its calls it stays; else everything becomes the kernel's in the midst of what threads wait for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from c_programs import LIMIT_S, inside, peer, programs_in
from netns import usable
from veth import ENGINE, KERNEL, namespaces

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = programs_in(tmp_path_factory.mktemp("sandbox"), "sandbox", "peer")
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    return folder


def ran(programs: Path, how: tuple[str, ...], *, kernel: bool) -> tuple[str, list[str]]:
    env = {} if kernel else {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0"}
    with namespaces() as (here, there), peer(there, programs / "peer"):
        command = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh"]
        command += inside(here, env, str(programs / "sandbox"), ENGINE[4], ENGINE[6], KERNEL[4], KERNEL[6], *how)
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=programs)
    # Whoever tries a filter for the program leaves nothing behind.
    assert sorted(path.name for path in programs.iterdir()) == ["peer", "sandbox"]
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr.splitlines()


@pytest.mark.parametrize(
    "how", [("null",), ("prctl", "kill", "chroot"), ("seccomp", "errno", "chroot"), ("seccomp", "kill", "clone3")], ids=" ".join
)
def test_the_engine_stays(programs: Path, how: tuple[str, ...]) -> None:
    assert ran(programs, how, kernel=True) == ("works\n", [])
    assert ran(programs, how, kernel=False) == ("offloaded\nworks\n", [])


@pytest.mark.parametrize(
    ("how", "call"),
    [
        (("prctl", "kill", "bpf"), "bpf"),
        (("seccomp", "errno", "membarrier"), "membarrier"),
        (("notify", "errno", "membarrier"), "membarrier"),
        (("seccomp", "trap", "epoll_pwait"), "epoll_pwait"),
        (("strict",), "nearly everything"),
    ],
)
def test_the_engine_leaves(programs: Path, how: tuple[str, ...], call: str) -> None:
    assert ran(programs, how, kernel=True) == ("works\n", [])
    says = [f"pyvma: the program's own seccomp filter forbids {call}: this program has kernel sockets only"]
    assert ran(programs, how, kernel=False) == ("works\n", says)


def test_what_cannot_be_handed_back_keeps_nobody(programs: Path) -> None:
    assert ran(programs, ("dropped",), kernel=True) == ("works\n", [])
    out, says = ran(programs, ("dropped",), kernel=False)
    assert out == "works\n"
    assert says[0] == "pyvma: the program's own seccomp filter forbids bpf: this program has kernel sockets only"
    assert says[1].endswith("3 connections are lost")
    assert len(says) == 2
