#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every view of a process under load, and whether its statistics come to what the programs themselves counted.

Two processes over the software NIC: one sends datagrams at a rate, and now and then a message over each of many TCP connections, the other
takes them. Meanwhile: the five classic views, JSON, `top` in a terminal of tmux's, and a scrape that the official Prometheus client parses;
a figure that all of them have has to lie between two looks before and after. At the end the datagrams and bytes that both programs counted
are compared with the statistics of their sockets, and what was lost with the reasons.

Usage: tools/stats_under_load.py [--mps N] [--connections N] [--seconds S] [--captures DIR]
Needs the package installed with its extras `top` and `metrics`, and tmux. Exit status 1 when anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from afterwards import DIES_TOO, Afterwards

HOSTS = ("10.8.30.1", "10.8.30.2")
PORT = 5000
SIZE = 64
LIMIT_S = 60

TAKER = """
import json, sys, threading, time
import pyvma, pyvma.select as select, pyvma.socket as socket
host, port, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
listener = socket.create_server((host, port), backlog=1024)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((host, port))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.setblocking(False)
print("ready", flush=True)
streams = {}
poll = select.epoll()
for _ in range(connections):
    c = listener.accept()[0]
    c.setblocking(False)
    streams[c.fileno()] = c
    poll.register(c, select.EPOLLIN)
print("connected", flush=True)
ends = threading.Event()
wanted = []
threading.Thread(target=lambda: (wanted.append(int(sys.stdin.readline())), ends.set()), daemon=True).start()
datagrams = size = told = 0
last = time.monotonic()
while not ends.is_set() or told < wanted[0] or time.monotonic() - last < 1:
    try:
        with s.recv_batch(256) as batch:
            datagrams += len(batch)
            size += sum(map(len, batch))
        last = time.monotonic()
    except BlockingIOError:
        pass
    for fd, _ in poll.poll(0, 64):
        try:
            told += len(streams[fd].recv(65536))
            last = time.monotonic()
        except BlockingIOError:
            pass
print(json.dumps({"datagrams": datagrams, "bytes": size, "stream_bytes": told}), flush=True)
sys.stdin.readline()
"""
GIVER = """
import json, sys, threading, time
import pyvma.socket as socket
host, port, connections, mps, seconds, size = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5]), int(sys.argv[6])
streams = [socket.create_connection((host, port)) for _ in range(connections)]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((host, port))
print("ready", flush=True)
sys.stdin.readline()
ends = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ends.set()), daemon=True).start()
batch = [bytes(size)] * 64
sent = told = turn = 0
begun = time.monotonic()
while (now := time.monotonic() - begun) < seconds or not ends.is_set():
    if sent > now * mps:
        continue
    sent += s.send_batch(batch)
    turn += 1
    if turn % 8 == 0:
        told += streams[turn // 8 % connections].send(b"0123456789")
took = time.monotonic() - begun
print(json.dumps({"datagrams": sent, "bytes": sent * size, "stream_bytes": told, "seconds": took}), flush=True)
sys.stdin.readline()
"""


class Check:
    """What was compared, a line each."""

    def __init__(self) -> None:
        self.wrong = 0

    def __call__(self, what: str, holds: bool, detail: str = "") -> None:
        self.wrong += not holds
        print(f"{'ok' if holds else 'WRONG':5} {what}{': ' + detail if detail else ''}", flush=True)


@contextmanager
def program(text: str, number: int, fabric: str, folder: Path, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """One of the two, killed in the end."""
    interface = f"softnic:fabric={fabric},port={number},addr={HOSTS[number]}/24,name=sn{number},rx_depth=8192,tx_depth=4096"
    env = {**os.environ, "PYVMA_INTERFACES": interface, "PYVMA_STATS_DIR": str(folder), "PYVMA_RX_BUFS": "40000"}
    command = [*DIES_TOO, sys.executable, "-c", text, HOSTS[0], str(PORT), *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("stats_under_load: a program ended early")
    return line.strip()


def tell(process: subprocess.Popen[str], text: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def stats_command(folder: Path, *arguments: str) -> str:
    line = [sys.executable, "-m", "pyvma", "stats", *arguments, "-k", str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, cwd=folder)
    if done.returncode or done.stderr:
        raise SystemExit(f"stats_under_load: {' '.join(line)}: {done.stderr or done.returncode}")
    return done.stdout


def top(folder: Path, pid: int) -> str:
    """The screen, once the process is on it."""
    server = ["tmux", "-u", "-S", str(folder / "tmux")]

    def tmux(*arguments: str) -> str:
        return subprocess.run([*server, *arguments], check=True, capture_output=True, text=True, timeout=LIMIT_S, cwd=folder).stdout

    with Afterwards() as later:
        later(*server, "kill-server")
        tmux("-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "40", f"{sys.executable} -m pyvma stats top -k {folder} -p {pid}")
        until, screen = time.monotonic() + LIMIT_S, ""
        while time.monotonic() < until and str(pid) not in screen:
            time.sleep(0.3)
            screen = tmux("capture-pane", "-p")
    return screen


def datagrams_of(process: Any, name: str) -> int:
    return sum(item.figure(name) for item in process.snapshot().of("udp"))


def views(check: Check, taker: Any, folder: Path, captures: Path | None) -> None:
    """All of them while it runs: what each says of the datagrams taken lies between what is read before and after."""
    from prometheus_client.parser import text_string_to_metric_families

    pid = str(taker.snapshot().head.pid)

    def look(name: str, make: Any, figure: Any) -> None:
        before = datagrams_of(taker, "rx_datagrams")
        text = make()
        found, after = figure(text), datagrams_of(taker, "rx_datagrams")
        check(name, before <= found <= after and before < after, f"{before} <= {found} <= {after}")
        if captures:
            (captures / f"{name.replace(' ', '-')}.txt").write_text(text)

    def row(text: str) -> int:
        return max(
            int(line.split("Rx:")[1].split()[0]) for line in text.splitlines() if " Rx: " in line and line.split("Rx:")[1].split()[0] != "-"
        )

    def full(text: str) -> int:
        return max(int(line.split()[4]) for line in text.splitlines() if line.startswith("Rx Offload:") and "eagains" in line)

    def metric(text: str) -> int:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return int(max(sample.value for sample in samples if sample.name == "pyvma_udp_table_rx_datagrams_total"))

    look("view 1", lambda: stats_command(folder, "-p", pid, "-v", "1", "-c", "1"), row)
    look("view 2", lambda: stats_command(folder, "-p", pid, "-v", "2", "-c", "1"), row)
    look("view 3", lambda: stats_command(folder, "-p", pid, "-v", "3", "-c", "1"), full)
    look("json", lambda: stats_command(folder, "-p", pid, "-c", "1", "--json"), lambda text: json_figure(json.loads(text)))
    look("prometheus", lambda: stats_command(folder, "serve", "-p", pid, "--once"), metric)
    for number in ("4", "5"):
        text = stats_command(folder, "-p", pid, "-v", number, "-c", "1")
        kept = text.count("ESTABLISHED") if number == "5" else 0
        connections = len([item for item in taker.snapshot().of("tcp") if item.get("state") == "ESTABLISHED"])
        check(f"view {number}", number == "4" or kept == connections, f"{kept} connections" if number == "5" else text.splitlines()[-1])
    screen = top(folder, int(pid))
    check("top", pid in screen, next((line.strip() for line in screen.splitlines() if pid in line), "nothing of the process"))
    if captures:
        (captures / "top.txt").write_text(screen)


def json_figure(told: dict[str, Any]) -> int:
    return max(int(item["rx_datagrams"]) for item in told["objects"]["udp"])


def totals(check: Check, ends: tuple[Any, Any], took: dict[str, int], gave: dict[str, Any], port: dict[str, int]) -> None:
    """To the last packet; `port`: what the device of the one that takes counted."""
    taker, giver = ends
    for what, process, field, counted in (
        ("datagrams sent", giver, "tx_datagrams", gave["datagrams"]),
        ("bytes sent", giver, "tx_bytes", gave["bytes"]),
        ("datagrams taken", taker, "rx_datagrams", took["datagrams"]),
        ("bytes taken", taker, "rx_bytes", took["bytes"]),
    ):
        found = datagrams_of(process, field)
        check(what, found == counted, f"{found} in the statistics, {counted} by the program")
    for what, process, field, counted in (
        ("stream bytes sent", giver, "tx_bytes", gave["stream_bytes"]),
        ("stream bytes taken", taker, "rx_bytes", took["stream_bytes"]),
    ):
        again = "retransmitted_bytes" if field == "tx_bytes" else ""
        found = sum(item.figure(field) - item.figure(again) for item in process.snapshot().of("tcp"))
        check(what, found == counted, f"{found} in the statistics, {counted} by the program")
    now = taker.snapshot()
    lost = gave["datagrams"] - took["datagrams"]
    queue = sum(item.figure("rx_queue_full") + item.figure("rx_no_buf") for item in now.of("udp"))
    wire = sum(count for name, count in port.items() if name.startswith("rx_") and name not in ("rx_packets", "rx_bytes"))
    check(
        "lost datagrams have their reason",
        queue <= lost <= queue + wire,
        f"{lost} lost; {queue} by the socket, {wire} frames by the device",
    )
    went, came = (
        sum(ring.figure(name) for ring in snapshot.rings) for name, snapshot in (("tx_packets", giver.snapshot()), ("rx_packets", now))
    )
    check("frames", went == came + wire, f"{went} sent, {came} came, {wire} found no buffer")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mps", type=int, default=500_000, metavar="N", help="datagrams a second (default 500000)")
    parser.add_argument("--connections", type=int, default=1000, metavar="N")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="at least; longer while the views take")
    parser.add_argument("--captures", type=Path, metavar="DIR", help="what the views said is kept there")
    arguments = parser.parse_args()
    from pyvma import stats
    from pyvma.ring import softnic

    check = Check()
    fabric = f"load{secrets.token_hex(4)}"
    if arguments.captures:
        arguments.captures.mkdir(parents=True, exist_ok=True)
    with Afterwards() as later:
        later.fabric(fabric)
        folder = later.folder("stats-load-")
        tasks = (arguments.connections, arguments.mps, arguments.seconds, SIZE)
        with program(TAKER, 0, fabric, folder, arguments.connections) as taker:
            said(taker)
            with program(GIVER, 1, fabric, folder, *tasks) as giver:
                said(giver)
                said(taker)
                told = [stats.attach(process.pid, str(folder)) for process in (taker, giver)]
                tell(giver)
                views(check, told[0], folder, arguments.captures)
                tell(giver)
                gave = json.loads(said(giver))
                tell(taker, str(gave["stream_bytes"]))
                took = json.loads(said(taker))
                rate = gave["datagrams"] / gave["seconds"]
                print(f"{rate:,.0f} datagrams a second beside {arguments.connections} connections, of {gave['seconds']:.1f} s")
                totals(check, (told[0], told[1]), took, gave, softnic.counters(f"{fabric}/0"))
                for process in (giver, taker):
                    tell(process)
                    process.wait(LIMIT_S)
    return 1 if check.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
