"""Statistics of live processes over the software NIC: what readers see is what was moved, to the last packet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import stats_sample
from actor import Actor
from exchange import wait_for
from lab import LONG, softnic_reason

from pyvma import stats
from pyvma._cli import run
from pyvma.stats import Process, Record

pytestmark = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there")
LIMIT_S = 100
NOBODY = 65534
CONNECTIONS = 1000 if LONG else 250
DATAGRAMS = 20000 if LONG else 3000
SIZE = 100
STREAM_BYTES = 64 << 20 if LONG else 4 << 20
HOSTS = ("10.66.3.1", "10.66.3.2")

# Datagrams in windows that fit the receive buffer, so that none is lost; each window is answered.
SEND = """
s.connect((host, port))
for first in range(0, count, 50):
    for number in range(first, min(first + 50, count)):
        s.send(bytes(size))
    assert s.recv(100) == b"more"
"""
RECEIVE = """
for first in range(0, count, 50):
    for number in range(first, min(first + 50, count)):
        data, peer = s.recvfrom(2000)
        assert len(data) == size
    s.sendto(b"more", peer)
"""
BIND = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(30)
s.bind((host, 0))
s.getsockname()[1]
"""
LISTEN = "l = socket.create_server((host, 0), backlog=2000)\nl.settimeout(30)\nl.getsockname()[1]"
ACCEPT_MANY = """
held = [l.accept()[0] for _ in range(count)]
for c in held:
    c.settimeout(30)
    c.sendall(c.recv(10))
"""
CONNECT_MANY = """
held = []
for number in range(count):
    c = socket.create_connection((host, port), timeout=30)
    held.append(c)
for c in held:
    c.sendall(b"0123456789")
for c in held:
    assert c.recv(10) == b"0123456789"
"""
TAKE_STREAM = """
c, _ = l.accept()
c.settimeout(30)
got = 0
while got < count:
    got += len(c.recv(1 << 16))
"""
SEND_STREAM = "c = socket.create_connection((host, port), timeout=30)\nc.sendall(bytes(count))"
FOREVER = """
s.setblocking(False)
while True:
    try:
        s.sendto(bytes(size), (host, port))
    except BlockingIOError:
        pass
"""


class Pair:
    """Two engines on one fabric, and their statistics."""

    def __init__(self, fabric: str, directory: Path) -> None:
        env = {"PYVMA_STATS_DIR": str(directory)}
        self.directory = directory
        self.actors = [
            Actor([f"softnic:fabric={fabric},port={n},addr={host}/24,name=sn{n},rx_depth=4096"], env=env) for n, host in enumerate(HOSTS)
        ]

    def process(self, number: int) -> Process:
        return stats.attach(self.actors[number].process.pid, str(self.directory))

    def close(self) -> None:
        for actor in self.actors:
            actor.close()


@pytest.fixture
def pair(fabric: str, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(fabric, tmp_path)
    try:
        yield made
    finally:
        made.close()


def only(records: list[Record]) -> Record:
    (record,) = records
    return record


def classic(pair: Pair, number: int, *arguments: str) -> str:
    pid = str(pair.actors[number].process.pid)
    command = [sys.executable, "-m", "pyvma", "stats", "-k", str(pair.directory), "-p", pid, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def moved(pair: Pair, count: int) -> int:
    """Datagrams from the first to the second; the second's port."""
    pair.actors[0](BIND, host=HOSTS[0])
    port: int = pair.actors[1](BIND, host=HOSTS[1])
    pair.actors[1].start(RECEIVE, count=count, size=SIZE)
    pair.actors[0](SEND, host=HOSTS[1], port=port, count=count, size=SIZE)
    pair.actors[1].finish()
    return port


def test_datagrams(pair: Pair) -> None:
    port = moved(pair, DATAGRAMS)
    answers = (DATAGRAMS + 49) // 50
    with pair.process(0) as first, pair.process(1) as second:
        sent, got = first.snapshot(), second.snapshot()
        assert (first.state, second.state) == ("live", "live")
    udp, peer = only(sent.of("udp")), only(got.of("udp"))
    assert (udp.tx_datagrams, udp.tx_bytes, udp.rx_datagrams) == (DATAGRAMS, DATAGRAMS * SIZE, answers)
    assert (peer.rx_datagrams, peer.rx_bytes, peer.tx_datagrams) == (DATAGRAMS, DATAGRAMS * SIZE, answers)
    assert (str(peer.local_addr), peer.local_port, peer.queued) == (HOSTS[1], port, 0)
    assert (str(udp.remote_addr), udp.remote_port) == (HOSTS[1], port)
    assert ([ring.interface for ring in sent.rings if ring.index == udp.interface], peer.interface) == (["sn0"], 0)
    assert only([item for item in got.sockets if item.linked("transport") is peer]).state == "offloaded"
    for snapshot, one, other in ((sent, udp, "tx"), (got, peer, "rx")):
        assert only(snapshot.of("udp_table"))[f"{other}_datagrams"] == one[f"{other}_datagrams"]
    assert only(got.rings).interface == "sn1"
    assert only(sent.rings).tx_packets >= DATAGRAMS
    row = next(line.split() for line in classic(pair, 1, "-c", "1").splitlines() if " Rx: " in line)
    assert row[2] == str(DATAGRAMS)
    found = json.loads(classic(pair, 1, "--json"))
    assert found["totals"]["udp"]["rx_bytes"] == DATAGRAMS * SIZE
    assert found["hidden"] == 0


def test_a_stream(pair: Pair) -> None:
    port = pair.actors[1](LISTEN, host=HOSTS[1])
    pair.actors[1].start(TAKE_STREAM, count=STREAM_BYTES)
    pair.actors[0](SEND_STREAM, host=HOSTS[1], port=port, count=STREAM_BYTES)
    pair.actors[1].finish()
    with pair.process(0) as first, pair.process(1) as second:
        wait_for("the last acknowledgement", lambda: only(first.snapshot().of("tcp")).tx_queue == 0)
        one = only(first.snapshot().of("tcp"))
        got = second.snapshot()
    other = only([item for item in got.of("tcp") if item.state == "ESTABLISHED"])
    assert one.tx_bytes - one.retransmitted_bytes == STREAM_BYTES
    assert (other.rx_bytes, other.rx_queue) == (STREAM_BYTES, 0)
    listening = only([item for item in got.of("tcp") if item.state == "LISTEN"])
    listener = listening.linked("listener")
    assert listener is not None
    assert (listening.local_port, listener.accept_queue) == (port, 0)
    assert [ring.interface for ring in got.rings if ring.index == other.interface] == ["sn1"]
    assert listening.interface == 0
    assert classic(pair, 1, "-v", "3", "-c", "1").count("- Ring            = [sn1]") == 1
    text = classic(pair, 1, "-v", "5")
    assert f"{HOSTS[1]}:{port} " in text
    assert "LISTEN" in text


@pytest.mark.timeout(180)
def test_many_connections(pair: Pair) -> None:
    port = pair.actors[1](LISTEN, host=HOSTS[1])
    pair.actors[1].start(ACCEPT_MANY, count=CONNECTIONS)
    pair.actors[0](CONNECT_MANY, host=HOSTS[1], port=port, count=CONNECTIONS, limit_s=LIMIT_S)
    pair.actors[1].finish(LIMIT_S)
    for number in range(2):
        with pair.process(number) as process:
            snapshot = process.snapshot()
        assert snapshot.head.hidden == 0
        established = [item for item in snapshot.of("tcp") if item.state == "ESTABLISHED"]
        assert len(established) == CONNECTIONS
        assert all((item.rx_bytes, item.tx_bytes - item.retransmitted_bytes) == (10, 10) for item in established)
        owned = {item.transport for item in snapshot.sockets}
        assert all(item.place in owned for item in established)
    for view in ("1", "2", "3"):
        text = classic(pair, 1, "-v", view, "-c", "1")
        assert text.count("Fd=[" if view == "3" else " Rx: ") == CONNECTIONS + 1
    assert classic(pair, 1, "-v", "5").count("ESTABLISHED") == CONNECTIONS
    assert len(json.loads(classic(pair, 0, "--json"))["objects"]["tcp"]) == CONNECTIONS


WAIT_FOR_THEM = """
import asyncio, pyvma.asyncio, pyvma.select
assert pyvma.select.select([s], [], [], 0.01) == ([], [], [])
polled, watched = pyvma.select.poll(), pyvma.select.epoll()
for each in (polled, watched):
    each.register(s, select.POLLIN)
    assert each.poll(0.01) == []
loop = pyvma.asyncio.new_event_loop()
made = loop.run_until_complete(loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=(host, 0)))
"""


def test_what_waits_says_how(pair: Pair) -> None:
    pair.actors[0](BIND, host=HOSTS[0])
    pair.actors[0](WAIT_FOR_THEM, host=HOSTS[0])
    with pair.process(0) as process:
        found = {str(item.kind): item for item in process.snapshot().epolls}
    assert sorted(found) == ["epoll", "loop", "poll", "select"]
    assert all(found[kind].timeouts >= 1 for kind in ("epoll", "poll", "select"))
    lines = classic(pair, 0, "-v", "1", "-c", "1").splitlines()
    for name in ("select", "poll", f"epoll[{found['epoll'].fd}]", f"loop[{found['loop'].fd}]"):
        assert len([line for line in lines if line.startswith(f"{name} Rx Ready:0/0 [os/offload]")]) == 1, lines


UNMODIFIED = """
import os, select, socket, sys
from pyvma import stats
def told():
    with stats.attach(os.getpid(), sys.argv[1]) as process:
        print(*sorted(str(item.kind) for item in process.snapshot().epolls))
both = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
for sock in both:
    sock.bind((sys.argv[2], 0))
select.select(both, [], [], 0.01)
told()
watched = select.epoll()
for poller in (select.poll(), watched):
    for sock in both:
        poller.register(sock, select.POLLIN)
    poller.poll(0.01)
    told()
"""


@pytest.mark.skipif(not run.library().exists(), reason="built without the preload library")
def test_what_an_unmodified_program_waits_by(fabric: str, tmp_path: Path) -> None:
    """A thread's calls of select and poll have one set, which says what the last one was."""
    env = {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": f"softnic:fabric={fabric},port=0,addr={HOSTS[0]}/24"}
    line = [sys.executable, "-c", UNMODIFIED, str(tmp_path), HOSTS[0]]
    env = {**os.environ, **env, "PYVMA_STATS_DIR": str(tmp_path)}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["select", "epoll poll", "epoll poll"]


def test_a_process_that_is_killed_leaves_what_it_knew(pair: Pair) -> None:
    port = pair.actors[1](BIND, host=HOSTS[1])
    pair.actors[0](BIND, host=HOSTS[0])
    pair.actors[0].start(FOREVER, host=HOSTS[1], port=port, size=SIZE)
    pid = pair.actors[0].process.pid
    wait_for("the file", lambda: any(item.pid == pid for item in stats.processes(str(pair.directory))))
    with pair.process(0) as process:
        wait_for("datagrams", lambda: sum(item.tx_datagrams for item in process.snapshot().of("udp")) > 1000)
        seen = only(process.snapshot().of("udp")).tx_datagrams
        os.kill(pid, signal.SIGKILL)
        wait_for("its end", lambda: process.state == "dead")
        left = process.snapshot()
        assert only(left.of("udp")).tx_datagrams >= seen
        assert process.snapshot().taken_ns > left.taken_ns
        assert dict(only(process.snapshot().of("udp"))) == dict(only(left.of("udp")))
    assert "dead" in classic(pair, 0, "-F", "-v", "3", "-c", "0").splitlines()[0]
    pair.actors[0].pending = False
    assert [item.pid for item in stats.processes(str(pair.directory), clean=True)] == [pair.actors[1].process.pid]
    assert not (pair.directory / f"pyvma-stats.{pid}").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_another_user_is_refused(pair: Pair) -> None:
    pair.actors[0](BIND, host=HOSTS[0])
    pid = pair.actors[0].process.pid
    path = pair.directory / f"pyvma-stats.{pid}"
    assert path.stat().st_mode & 0o777 == 0o400
    for parent in (pair.directory, *pair.directory.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    code = (
        f"import os, sys; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "from pyvma._cli.stats import main\n"
        f"sys.exit(main(['-k', {str(pair.directory)!r}, '-p', '{pid}', '-c', '1']))"
    )
    # Imported as root first: the interpreter may lie where the other user cannot go.
    preload = "import pyvma._cli.stats, pyvma.stats, pyvma._cli._stats_views, pwd\n"
    done = subprocess.run([sys.executable, "-c", preload + code], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"pyvma-stats: {path}: it is of user root: only that user and root may read it\n"


def test_own_process(engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """From inside: the same figures as the engine's counters."""
    import pyvma

    with stats.own() as process:
        assert process.pid == os.getpid()
        assert {item.interface for item in process.rings} >= {"sn0", "sn1"}
        before = pyvma.counters()["ring.sn0.tx_packets"]
        told = next(item for item in process.rings if item.interface == "sn0").tx_packets
        assert before <= told <= pyvma.counters()["ring.sn0.tx_packets"]


def test_the_views_know_the_names(engine: None) -> None:
    """What the views are tried with is what the engine writes."""
    with stats.own() as process:
        told = {item.name: item for item in process.snapshot().types}
    for sampled in stats_sample.TYPES:
        fields = told[sampled["name"]].fields
        for item in sampled["fields"]:
            assert fields[item["name"]].kind == item["kind"], f"{sampled['name']}.{item['name']}"
            if item["kind"] == "enum":
                assert fields[item["name"]].names[: len(item["names"])] == tuple(item["names"])
