#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Rates that sockets are held to, measured at the receiver by the software NIC's receive stamps.

A process sends by `pyvma.socket` with SO_MAX_PACING_RATE, UDP and TCP, as fast as it is let; `pace_sink` of a release build, on the
next port of the same fabric, notes when the NIC received each frame. For each rate: what came per second, its error, and the most that
was ahead of the rate at any time (a burst), in bytes. By the device, and by the stack's timers where the device has no queues with a
rate. Then two flows of different rates on one device, and a rate that changes and goes while the socket sends.

Usage: tools/pacing_rates.py [--build DIR] [--seconds S] [--by device|software] [--only TEXT] [--mbit N ...]
Needs the package installed, and `ninja -C build/release pace_sink`. Exit status 1 when a rate is off by more than 2 % (device) or
5 % (software).
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SO_MAX_PACING_RATE = 47
PAYLOAD = 1458  # a frame of 1500 bytes
LIMIT = {"device": 2.0, "software": 5.0}
SINK = "10.9.0.2"


class Sink:
    """The far end."""

    def __init__(self, build: Path, fabric: str) -> None:
        library = build / "libpyvma-softnic.so"
        env = {key: value for key, value in os.environ.items() if key != "PYVMA_SOFTNIC_OFF"}
        self.process = subprocess.Popen(
            [str(build / "pace_sink"), str(library), fabric, "1", SINK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("pacing_rates: the sink has ended")
        return line.strip()

    def ask(self, question: str) -> list[list[float]]:
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        rows = []
        while (line := self._line()) != ".":
            rows.append([float(word) for word in line.split()])
        return rows

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def sender(by: str, fabric: str, library: Path) -> Any:
    """pyvma.socket with one interface of the fabric."""
    import pyvma
    from pyvma import socket

    if by == "software":
        os.environ["PYVMA_SOFTNIC_OFF"] = "pacing"
    pyvma.configure(softnic_lib=str(library), interfaces=f"softnic:fabric={fabric},port=0,addr=10.9.0.1/16,name=sn0")
    return socket


def opened(socket: Any, proto: str, rate: int, burst: int = 0) -> Any:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if proto == "udp" else socket.SOCK_STREAM)
    if burst:
        sock.setsockopt(socket.SOL_PYVMA, socket.SO_PACING, socket.pack_pacing(rate, burst))
    elif rate:
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("@Q", rate))
    if proto == "udp":
        sock.bind(("10.9.0.1", 0))
    sock.connect((SINK, 7000 if proto == "udp" else 7001))
    return sock


def pump(sock: Any, proto: str, until: float) -> None:
    """Sends until then, as fast as the socket lets us."""
    piece = bytes(PAYLOAD if proto == "udp" else 65536)
    sock.settimeout(0.2)
    while time.monotonic() < until:
        try:
            sock.send(piece)
        except TimeoutError:
            pass


def drop_what_waits(sock: Any, proto: str) -> None:
    """The rest goes at once; nobody looks at it."""
    sock.setsockopt(1, SO_MAX_PACING_RATE, struct.pack("@Q", 0))
    if proto == "udp":
        sock.send(b"")
    sock.close()
    time.sleep(0.3)


def one(socket: Any, sink: Sink, by: str, case: tuple[str, float, int], seconds: float) -> bool:
    """Protocol, Mbit/s and burst for so long; prints a row."""
    proto, mbit, burst = case
    rate = int(mbit * 125_000)
    sock = opened(socket, proto, rate, burst)
    pump(sock, proto, time.monotonic() + 0.3)  # what fills buffers, and TCP's beginning
    sink.ask("flows")
    pump(sock, proto, time.monotonic() + seconds)
    rows = sink.ask(f"flows {rate}")
    pacing = sock.pacing
    drop_what_waits(sock, proto)
    sink.ask("flows")
    _, frames, size, ns, most = max(rows, key=lambda row: row[1], default=[0, 0, 0, 1, 0])
    measured = size / max(ns, 1) * 1e9
    error = (measured / rate - 1) * 100
    good = abs(error) <= LIMIT[by] and pacing.by == by
    bound = f"{burst}" if burst else "-"
    print(
        f"{by:8} {proto} {mbit:7g} Mbit/s {measured * 8 / 1e6:9.3f} {error:+7.2f} % {int(frames):8} frames {ns / 1e9:6.2f} s"
        f"  burst {int(most):7} of {bound:>6}  by {pacing.by}{'' if good else '  <-- off'}",
        flush=True,
    )
    return good


def two(socket: Any, sink: Sink, by: str, seconds: float) -> bool:
    """Two flows with different rates."""
    rates = {"udp": 50, "tcp": 200}
    socks = {proto: opened(socket, proto, mbit * 125_000) for proto, mbit in rates.items()}
    ports = {proto: sock.getsockname()[1] for proto, sock in socks.items()}
    until = time.monotonic() + 0.3 + seconds
    threads = [threading.Thread(target=pump, args=(sock, proto, until)) for proto, sock in socks.items()]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    sink.ask("flows")
    for thread in threads:
        thread.join()
    rows = {row[0]: row for row in sink.ask("flows")}
    good = True
    for proto, sock in socks.items():
        _, _, size, ns, _ = rows.get(ports[proto], [0, 0, 0, 1, 0])
        measured = size / max(ns, 1) * 8e3
        error = (measured / rates[proto] - 1) * 100
        how = f"by {sock.pacing.by}, queue {sock.stats['tx_queue']}"
        good = good and abs(error) <= LIMIT[by]
        print(
            f"{by:8} two flows: {proto} {rates[proto]} Mbit/s: {measured:.3f} ({error:+.2f} %), {how}",
            flush=True,
        )
        drop_what_waits(sock, proto)
    sink.ask("flows")
    return good


def live(socket: Any, sink: Sink, by: str, proto: str) -> bool:
    """10 Mbit/s, then 100, then none, then 10 again: a second each, by the NIC's time, the seams left out."""
    sock = opened(socket, proto, 1_250_000)
    pump(sock, proto, time.monotonic() + 0.3)
    good, shown = True, []
    for mbit in (10, 100, 0, 10):
        sock.setsockopt(1, SO_MAX_PACING_RATE, struct.pack("@Q", mbit * 125_000))
        pump(sock, proto, time.monotonic() + (0.3 if mbit else 0.05))
        sink.ask("flows")
        pump(sock, proto, time.monotonic() + (1.0 if mbit else 0.3))
        _, _, size, ns, _ = max(sink.ask("flows"), key=lambda row: row[1], default=[0, 0, 0, 1, 0])
        measured = size / max(ns, 1) * 8e3
        shown.append(f"{mbit or 'none'}: {measured:.2f} (by {sock.pacing.by})")
        good = good and (abs(measured / mbit - 1) * 100 <= LIMIT[by] if mbit else measured > 200)
    drop_what_waits(sock, proto)
    sink.ask("flows")
    print(f"{by:8} {proto} live change, Mbit/s: {', '.join(shown)}", flush=True)
    return good


def run(by: str, arguments: argparse.Namespace) -> bool:
    build, fabric = arguments.build.resolve(), f"pr{os.getpid():x}"
    sink = Sink(build, fabric)
    good = True
    try:
        socket = sender(by, fabric, build / "libpyvma-softnic.so")
        cases = [(proto, mbit, 0) for proto in ("udp", "tcp") for mbit in arguments.mbit] + [("udp", 100, 6000), ("tcp", 100, 6000)]
        for case in cases:
            proto, mbit, burst = case
            if arguments.only in f"{proto} {mbit:g}" + (" burst" if burst else ""):
                good &= one(socket, sink, by, case, arguments.seconds)
        if arguments.only in "two flows":
            good &= two(socket, sink, by, arguments.seconds)
        for proto in ("udp", "tcp"):
            if arguments.only in f"live {proto}":
                good &= live(socket, sink, by, proto)
    finally:
        sink.close()
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--by", choices=sorted(LIMIT))
    parser.add_argument("--only", default="")
    parser.add_argument("--mbit", type=float, nargs="+", default=[1, 10, 100, 1000, 2000])
    arguments = parser.parse_args()
    if arguments.by:
        return 0 if run(arguments.by, arguments) else 1
    # A process each: the device's capabilities are those of its first use.
    codes = [subprocess.call([sys.executable, __file__, *sys.argv[1:], "--by", by]) for by in LIMIT]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
