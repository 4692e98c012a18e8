"""Workers that share a listener, of which one has the ring, under the preload library; the peer is the kernel's."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from c_programs import LIMIT_S, Env, inside
from exchange import wait_for
from netns import Namespace, usable
from preload_lab import counters_of, preloaded
from veth import ENGINE, namespaces

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]

WORKERS, ROUNDS = 3, 10

# Each connection is told which worker has it, and has that until the peer closes it or asks for that: one at a time, or as many as come.
SERVER = """
import os, select, signal, socket, sys, threading, time
ports, how = [7510, 7511][:int(sys.argv[1])], sys.argv[2]
listeners = [socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64) for port in ports]

def serve(s):
    s.sendall(b"%d\\n" % os.getpid())
    while s.recv(100) not in (b"", b"close"):
        pass
    s.close()

def accept():
    while True:
        serve(listeners[0].accept()[0])

def ready(wait):
    for l in listeners:
        l.setblocking(False)
    while True:
        for l in wait():
            try:
                s = l.accept()[0]
            except BlockingIOError:
                continue
            s.setblocking(True)
            serve(s)

def epoll():
    ep = select.epoll()
    for l in listeners:
        ep.register(l)
    names = {l.fileno(): l for l in listeners}
    ready(lambda: [names[fd] for fd, _ in ep.poll()])

def poll():
    p = select.poll()
    for l in listeners:
        p.register(l)
    names = {l.fileno(): l for l in listeners}
    ready(lambda: [names[fd] for fd, _ in p.poll()])

def threads():
    while True:
        threading.Thread(target=serve, args=(listeners[0].accept()[0],), daemon=True).start()

def pool():
    for _ in range(8):
        threading.Thread(target=accept, daemon=True).start()
    threading.Event().wait()

work = {"accept": accept, "select": lambda: ready(lambda: select.select(listeners, [], [])[0]), "epoll": epoll, "poll": poll,
        "threads": threads, "pool": pool}[how]
children = []
for _ in range(int(sys.argv[3])):
    children.append(os.fork())
    if not children[-1]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        work()
signal.signal(signal.SIGTERM, lambda *_: None)
time.sleep(0.3)  # all of them wait by now
print("ready", flush=True)
signal.pause()
for pid in children:
    os.kill(pid, signal.SIGTERM)
for pid in children:
    os.waitpid(pid, 0)
"""

# Rounds of as many connections at once as are asked for: which worker had each.
CLIENT = """
import contextlib, socket, sys, time
host, ports, at_once, rounds = sys.argv[1], [7510, 7511][:int(sys.argv[2])], int(sys.argv[3]), int(sys.argv[4])
for _ in range(rounds):
    with contextlib.ExitStack() as opened:
        made = [opened.enter_context(socket.create_connection((host, ports[i % len(ports)]), 30)) for i in range(at_once)]
        print(*(s.makefile().readline().strip() for s in made))
    time.sleep(0.05)
"""

# All connected before the first is served.
IN_A_ROW = """
import socket, sys
made = [socket.create_connection((sys.argv[1], 7510), 30) for _ in range(int(sys.argv[2]))]
for s in made:
    with s:
        assert s.recv(100)
"""

# One port for two connections, of which the first was closed by the worker; who has the second while that worker has another peer.
ANEW = """
import socket, sys, time
def connected(port):
    s = socket.socket()
    s.settimeout(30)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", port))
    s.connect((sys.argv[1], 7510))
    return s, s.recv(100)
s, first = connected(7600)
s.sendall(b"close")
assert s.recv(100) == b""
s.close()
time.sleep(0.2)
s, other = connected(7601)
print(first == other, connected(7600)[1] == other)
"""


def started(env: Env) -> int:
    """How many workers have come to wait."""
    counters = Path(env["PYVMA_EXIT_STATS"])
    return counters.read_text().count("started") if counters.exists() else 0


@contextmanager
def server(ns: Namespace, env: Env, ports: int, how: str, workers: int = WORKERS) -> Iterator[None]:
    command = inside(ns, env, "python3", "-c", SERVER, str(ports), how, str(workers))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    try:
        assert process.stdout.readline() == "ready\n"
        if env:
            wait_for("engines of all workers", lambda: started(env) == workers)
            time.sleep(0.3)  # and that those without the ring have told the one that has it
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)
    finally:
        with suppress(ProcessLookupError):  # workers, too
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def asked(ns: Namespace, family: int, ports: int, at_once: int) -> list[list[str]]:
    command = inside(ns, {}, "python3", "-c", CLIENT, ENGINE[family], str(ports), str(at_once), str(ROUNDS))
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("how", "ports", "family"), [("accept", 1, 4), ("select", 1, 6), ("select", 2, 4), ("poll", 2, 6), ("epoll", 1, 4), ("epoll", 2, 6)]
)
def test_none_waits_behind_another(tmp_path: Path, how: str, ports: int, family: int) -> None:
    """Workers that serve one at a time: while one serves the others do, and what the one with the ring takes is offloaded."""
    counters = tmp_path / "counters"
    with namespaces() as (here, there):
        for env in ({}, preloaded(counters)):
            with server(here, env, ports, how):
                rounds = asked(there, family, ports, WORKERS)
                assert [len(set(pids)) for pids in rounds] == [WORKERS] * ROUNDS, rounds
    passive = counters_of(counters)["tcp.opened_passive"]
    assert ROUNDS // 2 <= passive <= 2 * ROUNDS, passive


@pytest.mark.parametrize("how", ["threads", "pool"])
def test_who_serves_several_has_them_all(tmp_path: Path, how: str) -> None:
    """Workers that serve as many as there are: the one with the ring takes all of them, once it has shown that."""
    counters = tmp_path / "counters"
    with namespaces() as (here, there), server(here, preloaded(counters), 1, how):
        rounds = asked(there, 4, 1, 5)
    assert {len(set(pids)) for pids in rounds[2:]} == {1}, rounds
    assert len({pids[0] for pids in rounds[2:]}) == 1, rounds
    assert counters_of(counters)["tcp.opened_passive"] >= 5 * (ROUNDS - 2)


def test_who_has_no_siblings_has_them_all(tmp_path: Path) -> None:
    """One worker that serves one at a time: what waits for it is offloaded, too."""
    counters = tmp_path / "counters"
    with namespaces() as (here, there), server(here, preloaded(counters), 1, "accept", workers=1):
        process = subprocess.Popen(inside(there, {}, "python3", "-c", IN_A_ROW, ENGINE[4], str(ROUNDS)))
        assert process.wait(LIMIT_S) == 0
    assert counters_of(counters)["tcp.opened_passive"] == ROUNDS


def test_a_peer_that_begins_anew(tmp_path: Path) -> None:
    """By a port that the worker with the ring has in TIME_WAIT: it does not wait for that one."""
    counters = tmp_path / "counters"
    with namespaces() as (here, there), server(here, preloaded(counters), 1, "accept"):
        done = subprocess.run(inside(there, {}, "python3", "-c", ANEW, ENGINE[4]), capture_output=True, text=True, timeout=LIMIT_S)
        assert (done.stdout, done.stderr) == ("True False\n", "")
    assert counters_of(counters)["tcp.opened_passive"] == 2


# Workers that take turns, as nginx's do with accept_mutex: who has two connections more takes the listener out of its set.
TURNS = """
import os, select, signal, socket, sys, time
l = socket.create_server(("", 7510))
l.setblocking(False)
next_r, next_w = os.pipe()
back_r, back_w = os.pipe()
def work(name, first):
    ep, kept = select.epoll(), []
    ep.register(l, select.EPOLLIN)
    if first:
        ep.register(back_r, select.EPOLLIN)
    else:
        ep.unregister(l)
        os.read(next_r, 1)
        ep.register(l, select.EPOLLIN)
    while True:
        for fd, _ in ep.poll():
            if fd == back_r:
                os.read(back_r, 1)
                ep.register(l, select.EPOLLIN)
                continue
            kept.append(l.accept()[0])
            kept[-1].sendall(name)
            if first and len(kept) == 2:
                ep.unregister(l)
                os.write(next_w, b"x")
            elif not first and len(kept) == 2:
                ep.unregister(l)
                os.write(back_w, b"x")
pids = []
for name in (b"A", b"B"):
    pids.append(os.fork())
    if not pids[-1]:
        work(name, name == b"A")
    time.sleep(0.3)
print("ready", flush=True)
sys.stdin.read()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
"""
SIX = """
import socket, sys, time
kept = []
for _ in range(6):
    kept.append(socket.create_connection((sys.argv[1], 7510), 10))
    print(kept[-1].recv(1).decode(), end="", flush=True)
    time.sleep(0.2)
"""


def test_who_takes_turns(tmp_path: Path) -> None:
    """What comes while the worker with the ring has the listener in no set is its sibling's, who sleeps until it comes."""
    for env in ({}, preloaded(tmp_path / "counters")):
        with namespaces() as (here, there):
            command = inside(here, env, "python3", "-c", TURNS)
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout
                assert process.stdout.readline() == "ready\n"
                time.sleep(1)
                asking = inside(there, {}, "python3", "-c", SIX, ENGINE[4])
                done = subprocess.run(asking, capture_output=True, text=True, timeout=LIMIT_S)
                process.communicate("", LIMIT_S)
        assert (done.stdout, done.stderr) == ("AABBAA", "")
