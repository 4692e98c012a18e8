#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How far hardware time stamps are from the truth, end to end: SO_TIMESTAMPING on a UDP socket over the software NIC.

A process sends datagrams from one port of a fabric, another receives them at the next by `pyvma.socket` and reads each one's hardware
stamp. The software NIC tells when the frame really was switched (CLOCK_MONOTONIC_RAW), what CLOCK_REALTIME was then and what the device's
disciplined clock showed. For each mode of `hw_ts_conversion`: the difference between stamp and reference, stamps that went back, and what
the engine says of the error itself.

  sync  against CLOCK_REALTIME, the device's counter 100 ppm fast, then 10 ms further at once: how long until all is within a microsecond
  ptp   against the device's clock and the truth that this follows (CLOCK_REALTIME), the counter 100 ppm fast
  rtc   the same by the completion's own stamp
  raw   against true time: the length of the run by the stamps

Usage: tools/tstamp_error.py [--seconds S] [--rate N] [--only MODE] [--drift PPM] [--json]
Exit status 1 when 99 of 100 stamps are not within 1000 ns (sync) or 100 ns (ptp, rtc), or when stamps went back.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import struct
import subprocess
import sys
import time
from typing import Any

SO_TIMESTAMPING = 37
RX_HARDWARE, RAW_HARDWARE = 1 << 2, 1 << 6
LIMIT_NS = {"sync": 1000, "ptp": 100, "rtc": 100}
SENDER = "10.9.0.1"
RECEIVER = "10.9.0.2"
PORT = 7100
STEP_S = 4.0  # watched after a step


def send(fabric: str, rate: int) -> int:
    """Datagrams, until there is no parent."""
    import pyvma
    from pyvma import socket

    pyvma.configure(interfaces=f"softnic:fabric={fabric},port=0,addr={SENDER}/24", hw_ts_conversion="off")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((SENDER, 0))
    parent, number = os.getppid(), 0
    due = time.monotonic()
    while os.getppid() == parent:
        try:
            sock.sendto(struct.pack("!Q", number), (RECEIVER, PORT))
        except OSError:  # it is not there yet
            time.sleep(0.1)
        number += 1
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
    return 0


class Receiver:
    """The socket, and the truth about what it receives."""

    def __init__(self, fabric: str, mode: str, spec: str) -> None:
        import pyvma
        from pyvma import socket
        from pyvma.ring import softnic

        pyvma.configure(interfaces=f"softnic:fabric={fabric},port=1,addr={RECEIVER}/24", hw_ts_conversion=mode)
        self.port = f"{fabric}/1"
        self.softnic = softnic
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((RECEIVER, PORT))
        softnic.clock(self.port, spec)
        self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_HARDWARE | RAW_HARDWARE)
        softnic.stamps_watch(self.port)
        self.doubtful = 0

    def stamp(self, ancillary: list[tuple[int, int, bytes]]) -> int | None:
        """Nanoseconds of the hardware stamp."""
        for level, kind, data in ancillary:
            if (level, kind) == (1, SO_TIMESTAMPING):
                seconds, nanoseconds = struct.unpack_from("@qq", data, 32)
                return int(seconds) * 1_000_000_000 + int(nanoseconds) or None
        return None

    def some(self) -> list[tuple[int, Any]]:
        """The stamps of the datagrams that are there, each with the moment that it is of. Where other frames came in between, or one more
        while these were read, nobody knows which is which: none."""
        stamps = []
        self.sock.settimeout(20)
        try:
            while True:
                _, ancillary, _, _ = self.sock.recvmsg(64, 256)
                stamps.append(self.stamp(ancillary))
                self.sock.settimeout(0)
        except BlockingIOError:
            moments = self.softnic.stamps_take()
        found = [(stamp, at) for stamp, at in zip(stamps, moments, strict=False) if stamp is not None]
        if len(moments) == len(stamps) == len(found):
            return found
        self.doubtful += len(stamps)
        return []

    def gather(self, seconds: float) -> list[tuple[int, Any]]:
        """Stamps and moments for so long."""
        until = time.monotonic() + seconds
        found: list[tuple[int, Any]] = []
        while time.monotonic() < until:
            found += self.some()
        return found


def percentile(sizes: list[int], share: float) -> int:
    return sizes[min(len(sizes) - 1, int(len(sizes) * share))]


def row(mode: str, what: str, errors: list[int], back: int) -> dict[str, Any]:
    sizes = sorted(abs(error) for error in errors)
    return {
        "mode": mode,
        "against": what,
        "stamps": len(sizes),
        "p50_ns": percentile(sizes, 0.5),
        "p99_ns": percentile(sizes, 0.99),
        "worst_ns": sizes[-1],
        "mean_ns": round(sum(errors) / len(errors)),
        "went_back": back,
    }


def backwards(found: list[tuple[int, Any]]) -> int:
    return sum(later[0] < earlier[0] for earlier, later in itertools.pairwise(found))


def measure(fabric: str, mode: str, seconds: float, drift: float) -> list[dict[str, Any]]:
    """Rows of one mode."""
    receiver = Receiver(fabric, mode, f"drift={drift}ppm")
    receiver.gather(1.5)
    found = receiver.gather(seconds)
    back = backwards(found)
    rows = []
    if mode == "raw":
        by_stamps, by_truth = found[-1][0] - found[0][0], found[-1][1].true_ns - found[0][1].true_ns
        return [{"mode": mode, "stamps": len(found), "true_ns": by_truth, "stamps_ns": by_stamps, "ppm": (by_stamps / by_truth - 1) * 1e6}]
    if mode == "sync":
        rows.append(row(mode, f"CLOCK_REALTIME, drift {drift:g} ppm", [stamp - at.realtime_ns for stamp, at in found], back))
        receiver.softnic.clock(receiver.port, "step=10ms")
        stepped = receiver.softnic.clock_read(receiver.port).true_ns
        found = receiver.gather(STEP_S)
        wrong = [at.true_ns for stamp, at in found if at.true_ns > stepped and abs(stamp - at.realtime_ns) > LIMIT_NS["sync"]]
        converged = max(wrong, default=stepped)
        errors = [stamp - at.realtime_ns for stamp, at in found if at.true_ns > converged]
        after = row(mode, "CLOCK_REALTIME, after a step of 10 ms", errors, 0)
        after["converged_after_s"] = round((converged - stepped) / 1e9, 3)
        rows.append(after)
    else:
        rows.append(row(mode, "the device's clock of the day", [stamp - at.day_ns for stamp, at in found], back))
        rows.append(row(mode, "CLOCK_REALTIME, which that follows", [stamp - at.realtime_ns for stamp, at in found], back))
    for line in rows:
        line["doubtful"] = receiver.doubtful
    return rows


def child(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)


def table(rows: list[dict[str, Any]]) -> None:
    print(f"{'mode':5} {'against':40} {'stamps':>7} {'p50':>7} {'p99':>7} {'worst':>9} {'mean':>7}  went back")
    for line in rows:
        if line["mode"] == "raw":
            print(f"raw   {line['stamps']} stamps: {line['stamps_ns']} ns in {line['true_ns']} ns of true time, {line['ppm']:+.3f} ppm")
            continue
        tail = f", within 1 us after {line['converged_after_s']} s" if "converged_after_s" in line else ""
        print(
            f"{line['mode']:5} {line['against']:40} {line['stamps']:7} {line['p50_ns']:7} {line['p99_ns']:7} {line['worst_ns']:9} "
            f"{line['mean_ns']:7}  {line['went_back']}{tail}"
        )
    print("ns; the error is that of the stamp on the socket against the software NIC's truth")


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each measurement")
    parser.add_argument("--rate", type=int, default=500, help="datagrams a second")
    parser.add_argument("--drift", type=float, default=100.0, help="of the device's counter, in ppm")
    parser.add_argument("--only", choices=["sync", "ptp", "rtc", "raw"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        role, fabric = args.child
        if role == "send":
            return send(fabric, args.rate)
        print(json.dumps(measure(fabric, role, args.seconds, args.drift)))
        return 0
    rows: list[dict[str, Any]] = []
    for mode in [args.only] if args.only else ["sync", "ptp", "rtc", "raw"]:
        fabric = f"te{os.getpid()}{mode}"
        sender = child("--rate", str(args.rate), "--child", "send", fabric)
        try:
            receiver = child("--seconds", str(args.seconds), "--drift", str(args.drift), "--child", mode, fabric)
            out, _ = receiver.communicate(timeout=120 + 4 * args.seconds)
        finally:
            sender.terminate()
            sender.wait(20)
        if receiver.returncode:
            return receiver.returncode
        rows += json.loads(out)
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        table(rows)
    return int(any(line["mode"] in LIMIT_NS and (line["p99_ns"] > LIMIT_NS[line["mode"]] or line["went_back"]) for line in rows))


if __name__ == "__main__":
    sys.exit(main())
