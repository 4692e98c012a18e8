"""A C program that knows nothing of pyvma makes its calls under the preload library, over AF_XDP with the kernel on the other end; on the
kernel alone, too, which says that what it wants is right. And what the two libraries want of the C library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from c_programs import LIMIT_S, Env, inside, peer, programs_in, ran
from netns import Namespace, usable
from veth import ENGINE, KERNEL, namespaces

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs_in(tmp_path_factory.mktemp("calls"), "calls", "edges", "peer")


def cases_of(ns: Namespace, program: Path, env: Env, *cases: str) -> list[str]:
    return ran(ns, env, str(program), ENGINE[4], ENGINE[6], KERNEL[4], KERNEL[6], *cases).splitlines()


def test_calls(programs: Path, tmp_path: Path) -> None:
    counters = tmp_path / "counters"
    with namespaces() as (here, there), peer(there, programs / "peer"):
        kernel = cases_of(here, programs / "calls", {})
        env = {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0", "PYVMA_EXIT_STATS": str(counters)}
        assert cases_of(here, programs / "calls", env) == kernel
    assert len(kernel) == 36
    assert all(line.startswith("ok ") for line in kernel)
    # The engine saw the traffic: each case talks to the peer.
    assert counters.read_text()


def test_edges(programs: Path, tmp_path: Path) -> None:
    """Cancelled threads, signals, children and grandchildren."""
    log = tmp_path / "log"
    for env in ({}, {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0", "PYVMA_LOG_FILE": str(log)}):
        with namespaces() as (here, there), peer(there, programs / "peer"):
            lines = cases_of(here, programs / "edges", env)
        assert lines
        assert all(line.startswith("ok ") for line in lines)
    assert log.read_text() == ""


FIRST = (
    *("cancelled", "cancelled_among", "cancelled_waits", "cancelled_by_itself", "cancelled_while_off"),
    *("cancelled_while_off_in_time", "cancelled_in_set"),
)


def test_the_first_cancellation_in_a_process(programs: Path) -> None:
    """Calls that are under way then have cancellation on, all later ones off: each case in a process of its own."""
    with namespaces() as (here, there), peer(there, programs / "peer"):
        for case in (*FIRST, *("cancelled_in_passing",) * 8):
            env = {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0"}
            assert cases_of(here, programs / "edges", env, case) == [f"ok {case}"]


CLIENT = "import socket; s = socket.create_connection(({0!r}, {1}), 20); print(sum(len(d) for d in iter(lambda: s.recv(65536), b'')))"


def test_the_end_of_a_process_is_the_end_of_its_connections(programs: Path) -> None:
    """By _exit, too: what was sent arrives, and then the end."""
    for env in ({}, {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0"}):
        with namespaces() as (here, there):
            command = [str(programs / "calls"), ENGINE[4], ENGINE[6], KERNEL[4], KERNEL[6], "leave", "7500"]
            server = subprocess.Popen(inside(here, env, *command), stdout=subprocess.PIPE, text=True)
            try:
                assert server.stdout
                assert server.stdout.readline() == "ready\n"
                assert there.run(sys.executable, "-c", CLIENT.format(ENGINE[4], 7500), limit_s=LIMIT_S) == "200000\n"
                assert server.wait(LIMIT_S) == 0
            finally:
                server.kill()
                server.communicate()


def symbols(path: Path, *options: str) -> set[str]:
    done = subprocess.run(["nm", "-D", *options, str(path)], check=True, capture_output=True, text=True, timeout=LIMIT_S)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


def test_the_engine_makes_its_own_calls() -> None:
    """libpyvma.so wants nothing by a name that the preload library interposes: it would get its own caller's."""
    engine = run.library().with_name("libpyvma.so")
    interposed = symbols(run.library(), "--defined-only")
    assert {"close", "read", "epoll_wait", "fcntl64", "__read_chk"} <= interposed
    # These are passed on as they are, whatever they are for.
    assert symbols(engine, "--undefined-only") & interposed == {"dlopen", "syscall"}
