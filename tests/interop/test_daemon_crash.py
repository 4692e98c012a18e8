"""What peers of a process that was killed hear: an RST by pyvmad where it asked for that, and of no connection that was not its own."""

from __future__ import annotations

import os
import secrets
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from actor import Actor
from daemon import CONNECT, DROP, GROUP, asker, daemon, ours
from exchange import wait_for
from netns import Namespace, usable
from veth import ENGINE, KERNEL

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

SOMEBODY = 20000 + secrets.randbelow(40000)
Pair = tuple[Namespace, Namespace]
SERVE = """
l = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
l.settimeout(30)
l.getsockname()[1], l.offload.text
"""
LISTENING = "q = socket.create_server((host, 0)); q.settimeout(30); q.getsockname()[1]"
# Whether the peer's end of a connection has been reset: it is idle, so nothing of its own could bring that about.
RESET = """
def reset(of, limit):
    of.settimeout(limit)
    try:
        of.recv(1)
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
"""


@contextmanager
def serving(here: Namespace, path: str, **settings: str) -> Iterator[Actor]:
    """An engine on AF_XDP of a user without any capability, and its statistics in memory."""
    with tempfile.TemporaryDirectory(prefix="pvc", dir="/dev/shm") as folder:
        os.chown(folder, SOMEBODY, SOMEBODY)
        env = {"PYVMA_DAEMON": path, "PYVMA_CONTROL_DIR": "none", "PYVMA_STATS_DIR": folder, "PYVMA_TRACE_EVENTS": "0", **settings}
        with Actor(["xdp:device=v0"], netns=here.name, env=env) as engine:
            engine(DROP, user=SOMEBODY, groups=[GROUP])
            yield engine


@pytest.mark.parametrize("asked", [True, False])
def test_peers_of_an_engine(pair: Pair, asked: bool) -> None:
    """Connections that it accepted and one that it asked for, IPv4 and IPv6; of one it has closed its half."""
    here, there = pair
    settings = {"PYVMA_CRASH_RESET": "1"} if asked else {}
    with daemon(here, "--group", "daemon") as running, Actor(netns=there.name) as peer:
        peer(RESET)
        with serving(here, running.path, **settings) as engine:
            four, text = engine(SERVE, host=ENGINE[4])
            assert text == "xdp:v0"
            peer("a = socket.create_connection((host, port), 30)", host=ENGINE[4], port=four)
            engine("c4, _ = l.accept()")
            peer("d = socket.create_connection((host, port), 30)", host=ENGINE[4], port=four)
            engine("gone, _ = l.accept(); gone.close()")
            assert peer("d.recv(1)") == b""
            six, text = engine(SERVE, host=ENGINE[6])
            assert text == "xdp:v0"
            peer("b = socket.create_connection((host, port), 30)", host=ENGINE[6], port=six)
            engine("c6, _ = l.accept()")
            port = peer(LISTENING, host=KERNEL[4])
            engine("x = socket.create_connection((host, port), 30)", host=KERNEL[4], port=port)
            peer("e, _ = q.accept()")
            if asked:  # a daemon that is started anew hears of it again
                running.stop()
                running.start()
                wait_for("the engine's return", lambda: any(p["connected"] and p["flows"] for p in running.status()["processes"]))
            engine.kill()
        expected = [True, True, True] if asked else [False, False, False]
        assert peer("[reset(of, limit) for of in (a, b, e)]", limit=20 if asked else 0.3) == expected
        if asked:
            wait_for("its word", lambda: running.text().count("its peer is told") == 4)


def test_without_memory_for_the_file(pair: Pair) -> None:
    """The engine goes on, and says why not."""
    here = pair[0]
    with daemon(here, "--group", "daemon") as running, tempfile.TemporaryDirectory(prefix="pvc", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        os.chown(folder, SOMEBODY, SOMEBODY)
        if os.statvfs(folder).f_fsid == os.statvfs("/dev/shm").f_fsid:
            pytest.skip("/var/tmp is in memory here")
        with serving(here, running.path, PYVMA_CRASH_RESET="1", PYVMA_STATS_DIR=folder) as engine:
            assert engine(SERVE, host=ENGINE[4])[1] == "xdp:v0"
            wait_for("the refusal", lambda: "is not in memory (tmpfs)" in running.text())


# A process that hands over the file `made` and dies, or only hangs up.
CRASH = """
import mmap
def told(kind, data, flags=1):
    if kind == "pipe":
        fd = os.pipe()[0]
    elif kind == "folder":
        fd = os.open("/dev/shm", os.O_RDONLY)
    elif kind == "memfd":
        fd = os.memfd_create("x")
    else:
        fd = os.open(kind, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(kind)
    if data:
        os.write(fd, data)
    found = result(p.CRASH, p.U32.pack(flags), fd)
    os.close(fd)
    return found
"""


def member(here: Namespace, path: str, actor: Actor) -> None:
    """An actor becomes a user of the group with a connection."""
    actor("import socket as std; from pyvma.daemon import Connection, _protocol as p")
    actor(DROP, user=SOMEBODY, groups=[GROUP])
    actor(CONNECT, path=path)
    actor(CRASH)


def stats_file(pid: int, connections: list[tuple[bytes, int, bytes, int]], state: int = 1) -> bytes:
    """A statistics file as somebody might make one up, by native/doc/stats-abi.md."""
    fields = ("state", "enum", 0, 4), ("local_addr", "addr", 8, 16), ("remote_addr", "addr", 24, 16), ("local_port", "port", 40, 2)
    fields = *fields, ("remote_port", "port", 42, 2)
    names = '"names":["0","ESTABLISHED","SYN-SENT"],'
    listed = ",".join(f'{{"name":"{n}",{names if k == "enum" else ""}"kind":"{k}","offset":{o},"size":{s}}}' for n, k, o, s in fields)
    schema = f'{{"types":[{{"name":"tcp","size":48,"fields":[{listed}]}}]}}'.encode()
    objects = b"".join(struct.pack("=I4x16s16sHH4x", state, src, dst, sport, dport) for src, sport, dst, dport in connections)
    directory = 4096
    start = directory + 16 + 16 * len(connections)
    entries = b"".join(struct.pack("=IHHQ", 2, 1, 0, start + 48 * i) for i in range(len(connections)))
    at = start + len(objects)
    with open(f"/proc/{pid}/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    numbers = (at + len(schema), at, len(schema), directory, pid, ticks, SOMEBODY, 0, 0, 0)
    head = struct.pack("=8s4I10Q24x64s32s40sQ", b"PYVMASTT", 1, 0x01020304, 1, 4096, *numbers, b"", b"", b"", 0)
    return head.ljust(4096, b"\0") + struct.pack("=QII", 0, len(connections), 0) + entries + objects + schema


def mapped(address: str) -> bytes:
    return bytes(10) + b"\xff\xff" + bytes(int(part) for part in address.split("."))


def test_files_that_are_none(pair: Pair) -> None:
    here = pair[0]
    with daemon(here, "--group", "daemon") as running:
        assert running.process is not None
        for number, (kind, data) in enumerate(
            [("pipe", b""), ("folder", b""), ("/var/tmp/pvc", b"x")],
        ):
            with Actor(netns=here.name) as app:
                member(here, running.path, app)
                code, text = app("told(kind, data)", kind=kind, data=data)
                assert (code, "the statistics file" in text) == (-13, True), number
        random = secrets.token_bytes(9000)
        good = b"PYVMASTT" + struct.pack("=4I", 1, 0x01020304, 1, 4096)
        for data in (b"", b"x", random, good + bytes(5000), good + random):
            with Actor(netns=here.name) as app:
                member(here, running.path, app)
                assert app("told(kind, data)", kind=f"/dev/shm/pvc{secrets.token_hex(6)}", data=data) == (0, "")
                assert app("told('pipe', b'')")[0] == -13  # the one before stays
                app.kill()
        wait_for("what it says of them", lambda: running.text().count("died, and") >= 4)
        with asker(here, running.path) as app:
            assert app("c.call(p.STATUS).result") == 0
            assert app("result(p.CRASH, p.U32.pack(1), 0, 1)")[0] == -22
            assert app("result(p.CRASH, p.U32.pack(2))")[0] == -22


def test_connections_of_others_stay(pair: Pair) -> None:
    """A user of the group names connections that are not its own, or cannot be told, and one that is."""
    here, there = pair
    with daemon(here, "--group", "daemon") as running, Actor(netns=here.name) as server, Actor(netns=there.name) as peer:
        peer(RESET)
        port = server(LISTENING, host=ENGINE[4])
        peer("a = socket.create_connection((host, port), 30)", host=ENGINE[4], port=port)
        mine = peer("a.getsockname()[1]")
        with Actor(netns=here.name) as app:
            member(here, running.path, app)
            app("number, name, fds = tap(index); s = bound(host, 6200, 6); s.listen()", host=ENGINE[4])
            app("c.call(p.FLOW_ADD, flow(host, 6200, 6, tap=number), (s.fileno(),))", host=ENGINE[4])
            ours_at, theirs = mapped(ENGINE[4]), mapped(KERNEL[4])
            wrong = [(ours_at, port, theirs, mine)]  # root's
            wrong += [
                (ours_at, 6200, mapped(to), 9) for to in ("0.0.0.0", "255.255.255.255", "239.1.1.1", "10.78.0.255", "127.0.0.1", ENGINE[4])
            ]
            wrong += [(ours_at, 6200, bytes(15) + b"\1", 9), (mapped("10.99.9.9"), 6200, theirs, 9), (ours_at, 6200, theirs, 0)]
            wrong += [(bytes(16), 6200, bytes(16), 9), (ours_at, 0, theirs, 9)]
            name = f"/dev/shm/pvc{secrets.token_hex(6)}"
            data = stats_file(app("os.getpid()"), [*wrong, (ours_at, 6200, theirs, 7777)])
            assert app("told(kind, data)", kind=name, data=data) == (0, "")
            peer(
                "w = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)); w.bind(('v1', 0x0800)); w.settimeout(3)\n"
                "def syns():\n"
                "    found = set()\n"
                "    try:\n"
                "        while True:\n"
                "            data, _ = w.recvfrom(2048)\n"
                "            if data[9] == 6 and data[33] & 2: found.add((data[12:20], data[20:24]))\n"
                "    except TimeoutError: return found\n"
            )
            app.kill()
        wait_for("the end of the rules", lambda: not ours(here, "v0"))
        ends = ours_at[12:] + theirs[12:]
        assert peer("syns()") == {(ends, struct.pack(">HH", 6200, 7777))}
        assert server("b, _ = q.accept(); b.sendall(b'still'); 1") == 1
        assert peer("a.recv(5)") == b"still"


def test_who_hangs_up_and_lives(pair: Pair) -> None:
    here, there = pair
    with daemon(here) as running, Actor(netns=there.name) as peer:
        peer(RESET)
        port = peer(LISTENING, host=KERNEL[4])
        with asker(here, running.path) as app:
            app("c.call(p.CRASH, p.U32.pack(1)); number, name, fds = tap(index)")
            app("s = std.create_connection((to, port), 20)", to=KERNEL[4], port=port)
            app("mine = s.getsockname()[1]; c.call(p.FLOW_ADD, flow(host, mine, 6, to, port, number), (s.fileno(),))", host=ENGINE[4])
            peer("a, _ = q.accept()")
            app("c.close()")
            wait_for("the end of the rule", lambda: not ours(here, "v0"))
            wait_for("the end of waiting", lambda: not running.status()["processes"])
            assert peer("reset(a, 6)") is False
            app("os.close(fds[0]); s.sendall(b'lives')")
            assert peer("a.settimeout(20); a.recv(5)") == b"lives"
