"""The two ends of a process under the preload library: sockets before main, by constructors of libraries, and what only exit sends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from c_programs import LIMIT_S, PEER_PORT, PROGRAMS, compiled, inside, peer, programs_in, ran
from netns import Namespace, usable
from preload_lab import preloaded
from veth import KERNEL, namespaces

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]

LISTENER = """
import socket
l = socket.create_server(("", 7500))
l.settimeout(60)
print("ready", flush=True)
s = l.accept()[0]
s.settimeout(60)
print(b"".join(iter(lambda: s.recv(4096), b"")).decode())
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ends")
    outer = folder / "outer.c"
    outer.write_text("int outer;\n")
    linked = ("-Wl,--no-as-needed", f"-L{folder}", f"-Wl,-rpath,{folder}")
    library = ("-shared", "-fPIC")
    programs_in(folder, "ends", "peer")
    compiled(folder / "libearly.so", PROGRAMS / "early.c", options=library)
    compiled(folder / "libouter.so", outer, options=(*library, *linked, "-learly"))
    for name in ("early", "outer"):  # needed by the program itself; by what that needs, and so before what is preloaded
        compiled(folder / f"main_{name}", PROGRAMS / "early_main.c", options=(*linked, f"-l{name}"))
    return folder


@pytest.mark.parametrize("linked", ["early", "outer"])
def test_sockets_before_main(programs: Path, tmp_path: Path, linked: str) -> None:
    counters, config = tmp_path / "counters", tmp_path / "config"
    config.write_text('interfaces = "xdp:device=v0"\n')
    env = preloaded(counters)
    by_file = {**env, "PYVMA_CONFIG": str(config)}
    del by_file["PYVMA_INTERFACES"]
    with namespaces() as (here, there), peer(there, programs / "peer"):
        here.ip("link", "set", "lo", "up")
        for each in ({}, env, by_file):
            counters.unlink(missing_ok=True)
            assert ran(here, each, str(programs / f"main_{linked}"), KERNEL[4], str(PEER_PORT)) == "early 1\n"
            assert counters.exists() == bool(each)  # afterwards it is the engine's


@contextmanager
def listener(ns: Namespace) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(inside(ns, {}, "python3", "-c", LISTENER), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", ["handler", "stream"])
def test_what_exit_sends(programs: Path, tmp_path: Path, how: str) -> None:
    """By the program's first handler, and by stdio: it arrives, and then the end of the connection."""
    counters = tmp_path / "counters"
    for env in ({}, preloaded(counters)):
        with namespaces() as (here, there), listener(there) as process:
            assert ran(here, env, str(programs / "ends"), KERNEL[4], "7500", how) == ""
            assert process.communicate(timeout=LIMIT_S)[0] == "said late\n"
    assert counters.read_text()
