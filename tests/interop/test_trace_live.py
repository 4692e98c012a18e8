"""The flight recorder of real processes, live, stopped and crashed, and the static probes as readelf and bpftrace see them."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest
from actor import Actor
from exchange import wait_for
from trace_file import check_trace_events

import pyvma
from pyvma import stats
from pyvma._cli import main

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(pyvma.__file__).parent / "_native" / "libpyvma.so"
LIMIT_S = 60.0
# For tools, which are no part of the engine: without what a run under a sanitizer preloads.
TOOLS = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
# Else a sanitizer makes an exit of a signal.
OWN_SIGNALS = {"ASAN_OPTIONS": ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"), "handle_segv=0")))}
LOADED = "next(line.split()[-1] for line in open('/proc/self/maps') if line.rstrip().endswith('/libpyvma.so'))"
BIND = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.bind((host, 4000))"
ECHO = "for _ in range(n):\n    data, peer = s.recvfrom(2000)\n    s.sendto(data, peer)"
ASK = "for i in range(n):\n    s.sendto(b'x' * 100, (host, 4000))\n    s.recv(2000)"


def interface(fabric: str, port: int) -> list[str]:
    return [f"softnic:fabric={fabric},port={port},addr=10.67.0.{port + 1}/24"]


@contextmanager
def pair(fabric: str, folder: Path, **env: str) -> Iterator[tuple[Actor, Actor]]:
    """Two engines with a bound socket `s` each."""
    env = {"PYVMA_STATS_DIR": str(folder), **{f"PYVMA_{name.upper()}": value for name, value in env.items()}}
    with Actor(interface(fabric, 0), env=env) as a, Actor(interface(fabric, 1), env=env) as b:
        a(BIND, host="10.67.0.1")
        b(BIND, host="10.67.0.2")
        yield a, b


def exchange(a: Actor, b: Actor, count: int) -> None:
    """Datagrams there and back."""
    b.start(ECHO, n=count)
    a(ASK, n=count, host="10.67.0.2")
    b.finish()


def names(found: stats.Trace) -> set[str]:
    return {event.name for event in found.events}


def count(found: stats.Trace, name: str) -> int:
    return sum(event.count for event in found.events if event.name == name)


# ---- the recorder -----------------------------------------------------------------------------------------------------------------


def test_a_live_process_and_every_station(fabric: str, tmp_path: Path) -> None:
    with pair(fabric, tmp_path) as (a, b):
        exchange(a, b, 5)
        before = stats.trace(a.process.pid, str(tmp_path))
        assert before.state == "live" and not before.packets
        assert not any(event.station for event in before.events)
        assert {"engine", "ring", "socket", "neighbour"} <= names(before)
        # What a live process is told takes hold at once.
        assert main(["stats", "trace", "-p", str(a.process.pid), "--packets", "on"]) == 0
        exchange(a, b, 20)
        found = stats.trace(a.process.pid, str(tmp_path))
        assert found.packets
        for name in ("send", "delivered", "queued"):
            assert count(found, name) == 20, name
        for name in ("ring_in", "posted"):
            frames = [event for event in found.events if event.name == name and event.protocol == "udp" and event.values["bytes"] == 142]
            assert len(frames) == 20, name
            assert {(event.local_port, event.remote_port, event.peer) for event in frames} == {(4000, 4000, "10.67.0.2")}
        assert count(found, "completed") > 0
        assert main(["stats", "trace", "-p", str(a.process.pid), "--packets", "off"]) == 0
        exchange(a, b, 20)
        assert count(stats.trace(a.process.pid, str(tmp_path)), "send") == 20
    assert not list(tmp_path.iterdir())


def test_a_connection_as_slices(fabric: str, tmp_path: Path) -> None:
    with pair(fabric, tmp_path) as (a, b):
        b("l = socket.create_server(('10.67.0.2', 5000))")
        a("c = socket.create_connection(('10.67.0.2', 5000))")
        b("peer, _ = l.accept()\npeer.sendall(b'x' * 1000)")
        a("assert len(c.recv(1000)) > 0\nc.close()")
        b("while peer.recv(1000): pass\npeer.close()")
        # The client's side ends in TIME_WAIT once both FINs have come.
        wait_for("the end", lambda: any(e.values.get("new") == "TIME_WAIT" for e in stats.trace(a.process.pid, str(tmp_path)).events))
        found = stats.trace(a.process.pid, str(tmp_path))
        states = [event.values["new"] for event in found.events if event.name == "tcp_state"]
        assert states[:3] == ["SYN_SENT", "ESTABLISHED", "FIN_WAIT1"]
        out = tmp_path / "trace.json"
        assert main(["stats", "trace", "-p", str(a.process.pid), "-k", str(tmp_path), "--format", "chrome", "-o", str(out)]) == 0
        slices = [event["name"] for event in check_trace_events(out.read_text()) if event.get("cat") == "tcp_state"]
        assert slices[:3] == ["SYN_SENT", "ESTABLISHED", "FIN_WAIT1"]


def test_a_stopped_process(fabric: str, tmp_path: Path) -> None:
    with pair(fabric, tmp_path) as (a, b):
        exchange(a, b, 1)
        a.process.send_signal(signal.SIGSTOP)
        try:
            found = stats.trace(a.process.pid, str(tmp_path))
            assert found.state == "live" and count(found, "engine") == 1
        finally:
            a.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_crashed_process(fabric: str, tmp_path: Path, number: signal.Signals) -> None:
    env = {"PYVMA_STATS_DIR": str(tmp_path), **OWN_SIGNALS}
    with Actor(interface(fabric, 1), env=env) as b:
        b(BIND, host="10.67.0.2")
        a = Actor(interface(fabric, 0), env=env)
        try:
            a(BIND, host="10.67.0.1")
            a("s.connect(('10.67.0.2', 9))\ns.send(b'x')")
            # The refusal is there: the socket's error is the last thing that happens.
            wait_for("the error", lambda: "error" in names(stats.trace(a.process.pid, str(tmp_path))))
            a.process.send_signal(number)
            assert a.process.wait(LIMIT_S) == -number
        finally:
            a.kill()
        found = stats.trace(a.process.pid, str(tmp_path))
        assert found.state == "dead"
        last = [event for event in found.events if event.name == "error"][-1]
        assert (last.name, last.values["errno"], last.remote_port, last.peer) == ("error", "ECONNREFUSED", 9, "10.67.0.2")
        peer = stats.trace(b.process.pid, str(tmp_path))
        drop = next(event for event in peer.events if event.name == "drop")
        assert (drop.values["reason"], drop.local_port, drop.peer) == ("udp.rx_no_port", 9, "10.67.0.1")
        assert sorted(item.state for item in stats.traces(str(tmp_path))) == ["dead", "live"]
        said = io.StringIO()
        with redirect_stdout(said):
            assert main(["stats", "trace", str(tmp_path / f"pyvma-trace.{a.process.pid}"), "--follow"]) == 0
        assert said.getvalue().endswith("# it is dead\n")


def test_follow(fabric: str, tmp_path: Path) -> None:
    with pair(fabric, tmp_path) as (a, _):
        command = [sys.executable, "-m", "pyvma", "stats", "trace", "-p", str(a.process.pid), "--follow"]
        with open(tmp_path / "said", "w") as out:
            child = subprocess.Popen([*command, "-k", str(tmp_path)], stdout=out, env={**os.environ, "PYTHONSAFEPATH": "1"})
        try:
            wait_for("the first events", lambda: "what=offloaded" in (tmp_path / "said").read_text())
            a("other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nother.bind(('10.67.0.1', 4321))\nother.close()")
            wait_for("the news", lambda: re.search("socket what=closed .*:4321 ", (tmp_path / "said").read_text()) is not None)
            a.kill()
            assert child.wait(LIMIT_S) == 0
        finally:
            child.kill()
            child.wait()
        lines = [line for line in (tmp_path / "said").read_text().splitlines() if not line.startswith("#")]
        assert len(lines) == len(set(lines))


# ---- probes -----------------------------------------------------------------------------------------------------------------------


def listed() -> dict[str, list[str]]:
    """Probes and their arguments, from the one list in native/base/probe.h."""
    text = (ROOT / "native" / "base" / "probe.h").read_text()
    body = text[text.index("#define PV_PROBES(X)") : text.index("#if defined(__ELF__)")]
    found = {name: words.split() for name, words in re.findall(r'X\((\w+), "([^"]*)"', body)}
    assert len(found) == 10
    return found


def notes() -> dict[str, set[int]]:
    """The notes of the installed library: how many arguments each probe has, by name."""
    text = subprocess.run(["readelf", "-nW", LIBRARY], check=True, capture_output=True, text=True, env=TOOLS).stdout
    found: dict[str, set[int]] = {}
    for provider, name, arguments in re.findall(r"Provider: (\S+)\s+Name: (\S+)\s+Location: .*\s+Arguments: (.*)", text):
        assert provider == "pyvma"
        assert all(re.fullmatch(r"[1248]@\S+", word) for word in arguments.split()), arguments
        found.setdefault(name, set()).add(len(arguments.split()))
    return found


def test_probes_are_those_of_the_list() -> None:
    assert notes() == {name: {len(arguments)} for name, arguments in listed().items()}


def test_the_page_has_the_lists() -> None:
    page = (ROOT / "native" / "doc" / "tracing.md").read_text()
    probes = {name: words.split() for name, words in re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", page, re.MULTILINE)}
    assert probes == listed()
    header = (ROOT / "native" / "base" / "trace.h").read_text()
    body = header[header.index("#define PV_TRACE_EVENTS(X)") : header.index("enum pv_trace_kind")]
    events = [
        (name, ", ".join(word.partition(":")[0] for word in words if word) or "-")
        for name, *words in re.findall(r'X\((\w+), "([^"]*)", "([^"]*)"', body)
    ]
    table = page[page.index("| event | numbers |") : page.index("### The file")]
    assert re.findall(r"^\| (\w+) \| ([^|]*) \|", table, re.MULTILINE)[1:] == events
    assert len(events) == 19


def attached(actor: Actor, tracer: subprocess.Popen[bytes], out: Path) -> bool:
    assert tracer.poll() is None, out.read_text()
    actor("p.sendto(b'7 bytes', ('10.67.0.2', 9))")
    said = out.read_text()
    return "first" in said and "last" in said


def test_bpftrace_counts_what_moved(fabric: str, tmp_path: Path) -> None:
    """Probes of one process while so many datagrams go there and back: each station as often, with the right bytes."""
    script = """
        usdt:{library}:pyvma:{name} /pid == {pid} && {where}/ {{ @{name} = count(); @{name}_bytes = sum({bytes}); }}
    """
    # Of a datagram for nobody: all probes are in place when the first and the last of the program are.
    mark = """
        usdt:{library}:pyvma:send /pid == {pid} && arg2 == 7/ {{ printf("{word}\\n"); }}
    """
    where = {
        "send": ("arg0 == 17 && arg2 == 100", "arg2"),
        "posted": ("arg3 == 142", "arg3"),
        "completed": ("1", "0"),
        "ring_in": ("arg3 == 142", "arg3"),
        "demux": ("arg0 == 17 && arg3 == 4000", "0"),
        "queued": ("arg0 == 17", "arg3"),
        "delivered": ("arg0 == 17", "arg2"),
    }
    with pair(fabric, tmp_path) as (a, b):
        exchange(a, b, 1)
        library = a(LOADED)
        a("p = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\np.bind(('10.67.0.1', 0))")
        program = mark.format(library=library, pid=a.process.pid, word="first") + "".join(
            script.format(library=library, name=name, pid=a.process.pid, where=condition, bytes=size)
            for name, (condition, size) in where.items()
        )
        program += mark.format(library=library, pid=a.process.pid, word="last")
        out = tmp_path / "bpftrace.out"
        with out.open("w") as file:
            tracer = subprocess.Popen(["bpftrace", "-f", "json", "-e", program], stdout=file, stderr=subprocess.STDOUT, env=TOOLS)
        try:
            wait_for("bpftrace", lambda: attached(a, tracer, out), LIMIT_S)
            exchange(a, b, 300)
            tracer.send_signal(signal.SIGINT)
            assert tracer.wait(LIMIT_S) == 0, out.read_text()
        finally:
            tracer.kill()
            tracer.wait()
    found: dict[str, int] = {}
    for line in out.read_text().splitlines():
        if line.startswith("{") and (item := json.loads(line))["type"] == "map":
            found |= {name.lstrip("@"): int(value) for name, value in item["data"].items()}
    print(found)
    for name in ("send", "demux", "queued", "delivered", "posted", "ring_in"):
        assert found[name] == 300, found
    assert found["completed"] > 0
    assert {found[f"{name}_bytes"] for name in ("send", "queued", "delivered")} == {30_000}
    assert {found[f"{name}_bytes"] for name in ("posted", "ring_in")} == {300 * 142}
