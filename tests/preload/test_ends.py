"""The two ends of a process under the preload library: sockets before main, by constructors of libraries or of whoever had the process
before; what only exit sends, and what it leaves unsent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from c_programs import LIMIT_S, PEER_PORT, PROGRAMS, compiled, inside, peer, programs_in, ran
from netns import Namespace, usable
from preload_lab import counters_of, preloaded
from veth import ENGINE, KERNEL, namespaces

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


# Reads when it is told to; how many bytes there were before the end, or what came instead of it.
LATE_READER = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7502), 60)
print("connected", flush=True)
sys.stdin.readline()
got = 0
try:
    while piece := s.recv(1 << 16):
        got += len(piece)
    print(got)
except OSError as error:
    print(got, error)
"""
# Writes what its send buffer takes, and is over.
HASTY_WRITER = """
import os, socket, sys
l = socket.create_server((sys.argv[1], 7502), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
l.setblocking(False)
try:  # the stack listens from then on
    l.accept()
except BlockingIOError:
    pass
l.settimeout(60)
print("ready", flush=True)
s = l.accept()[0]
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
s.settimeout(0.3)
n = 0
try:
    while True:
        n += s.send(bytes(1 << 16))
except TimeoutError:
    print(n, flush=True)
if sys.argv[2] == "closed":
    s.close()
if sys.argv[2] == "_exit":
    os._exit(0)
"""


@pytest.mark.parametrize("how", ["open", "closed", "_exit"])
@pytest.mark.parametrize("family", [4, 6])
def test_what_exit_leaves_unsent(tmp_path: Path, family: int, how: str) -> None:
    """The kernel sends it when the peer has room, long after the process."""
    for env in ({}, preloaded(tmp_path / "counters")):
        with namespaces() as (here, there):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            writes = subprocess.Popen(inside(here, env, sys.executable, "-c", HASTY_WRITER, ENGINE[family], how), **pipes)
            reads = None
            try:
                assert writes.stdout
                assert writes.stdout.readline() == "ready\n"
                reads = subprocess.Popen(inside(there, {}, sys.executable, "-c", LATE_READER, ENGINE[family]), **pipes)
                assert reads.stdout
                assert reads.stdout.readline() == "connected\n"
                written = int(writes.communicate(timeout=LIMIT_S)[0])
                assert (writes.returncode, written > 1 << 20) == (0, True)
                assert reads.communicate("\n", timeout=LIMIT_S)[0] == f"{written}\n"
            finally:
                for process in filter(None, (writes, reads)):
                    process.kill()
                    process.communicate()
    assert counters_of(tmp_path / "counters")["tcp.opened_passive"] == 1


# Binds and becomes another program, as a server that is started again or by whoever listens for it; that one serves three.
LISTENS_BEFORE = """
import os, socket, sys
if len(sys.argv) == 2:
    l = socket.create_server((sys.argv[1], 7503), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
    os.set_inheritable(l.fileno(), True)
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], sys.argv[1], str(l.fileno())])
l = socket.socket(fileno=int(sys.argv[2]))
l.settimeout(60)
print("ready", flush=True)
for _ in range(3):
    s = l.accept()[0]
    s.sendall(s.recv(100))
    s.close()
"""
ASKS = "import socket, sys; s = socket.create_connection((sys.argv[1], 7503), 60); s.sendall(b'x'); print(s.recv(1).decode(), end='')"


@pytest.mark.parametrize("family", [4, 6])
def test_a_listener_that_exec_leaves(tmp_path: Path, family: int) -> None:
    """It is offloaded as one of the program's own; the first connection may have come before it waited."""
    for env in ({}, preloaded(tmp_path / "counters")):
        with namespaces() as (here, there):
            server = subprocess.Popen(
                inside(here, env, sys.executable, "-c", LISTENS_BEFORE, ENGINE[family]), stdout=subprocess.PIPE, text=True
            )
            try:
                assert server.stdout
                assert server.stdout.readline() == "ready\n"
                for _ in range(3):
                    assert there.run(sys.executable, "-c", ASKS, ENGINE[family], limit_s=LIMIT_S) == "x"
                server.communicate(timeout=LIMIT_S)
                assert server.returncode == 0
            finally:
                server.kill()
                server.communicate()
    assert counters_of(tmp_path / "counters")["tcp.opened_passive"] >= 2
