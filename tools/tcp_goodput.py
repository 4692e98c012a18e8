#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Goodput of the stack and of the Linux kernel as senders over the same faulty wire, to the same kernel receiver.

The wire is a fabric of the software NIC. The stack sends on one port, a kernel in a namespace of its own through the uplink on another,
and a second namespace behind a third port receives. Before each run the sender's port gets the same faults: loss, reordering, and the
whole round trip's delay. With `--over veth` both senders, the stack on AF_XDP, share one end of a veth
pair, and a router at the other leads through one port to the receiver.

With `--over pair` the receiver is at the other end of that pair, and its firewall drops: losses only, and no delay (`--rtt 0`). The kernel
sends frames as long as the stack's (no TSO, no GSO), or a loss would be of 64 KiB at once.

CUBIC on both sides, no metrics kept from one connection to the next; the senders take turns, each run has its own seed, and medians are
printed: Mbit/s of payload at the receiver of all flows together, the quotient and its standard error, retransmissions per hundred segments
(TCP_INFO of the sender). Needs root; `--over pair` also nft and ethtool.

Usage: tools/tcp_goodput.py [--over uplink|veth|pair] [--loss 0,1,5] [--reorder 0,5] [--rtt 1,10,50] [--rate SPEC] [--seconds S] [--runs N]
           [--flows N] [--seed N] [--family 4|6]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The installed package, also in the processes that this starts, and not the source tree.
os.environ["PYTHONSAFEPATH"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import veth
from actor import Actor
from netns import Namespace, sh
from uplink import uplink

ENGINE_PORT, SENDER_PORT = 0, 8
ENGINE = {4: "10.79.0.1", 6: "fd79::1"}
SENDER = {4: "10.79.0.3", 6: "fd79::3"}
RECEIVER = {4: "10.79.0.2", 6: "fd79::2"}
LIMIT_S = 120.0

LISTEN = """
l = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM)
l.bind((host, 0))
l.listen(flows)
l.settimeout(30)
l.getsockname()[1]
"""
CONNECT = """
socks = [socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM) for _ in range(flows)]
for s in socks:
    s.settimeout(30)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
    s.connect((host, port))
"""
ACCEPT = """
socks = [l.accept()[0] for _ in range(flows)]
for s in socks:
    s.settimeout(30)
l.close()
"""
# One thread a flow, and the first is this one.
EACH = """
def each(work):
    others = [threading.Thread(target=work, args=(n,)) for n in range(1, len(socks))]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
"""
# TCP_INFO when the time is over.
SEND = """
infos, data, end = [b''] * len(socks), bytes(1 << 16), time.monotonic() + seconds
def send(n):
    while time.monotonic() < end:
        socks[n].send(data)
    infos[n] = socks[n].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 224)
each(send)
infos
"""
RESET = """
for s in socks:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.close()
"""
# What came within the time from each flow's first byte.
RECEIVE = """
got = [0] * len(socks)
def receive(n):
    room, s = memoryview(bytearray(1 << 18)), socks[n]
    got[n], start = s.recv_into(room), time.monotonic()
    at, end = start, start + seconds
    try:
        while at < end and (size := s.recv_into(room)):
            at = time.monotonic()
            got[n] += size if at < end else 0
        while s.recv_into(room):
            pass
    except ConnectionResetError:
        pass
    s.close()
each(receive)
got
"""


@dataclass
class Result:
    """One run."""

    mbit_s: float
    retransmitted: float  # per hundred segments
    info: dict[str, int]


def fields(info: bytes) -> dict[str, int]:
    """What of TCP_INFO explains a result."""
    words = {"rtt_us": 68, "cwnd": 80, "ssthresh": 76, "reordering": 88, "retrans": 100, "segs": 156, "dsacks": 216, "reord_seen": 220}
    found = {name: int.from_bytes(info[at : at + 4], "little") for name, at in words.items()}
    return found | {"rwnd_us": int.from_bytes(info[176:184], "little"), "sndbuf_us": int.from_bytes(info[184:192], "little")}


@dataclass
class Faults:
    """Of what a sender sends. Losses in per cent, the round trip in ms."""

    loss: float
    reorder: float
    rtt: float
    rate: str
    seed: int


class Wire:
    """Both senders and the receiver."""

    receiver: Actor
    host: dict[int, str]
    senders: dict[str, Actor]

    def path(self, name: str, faults: Faults, whole: bool) -> None:
        """From now on this is on the sender's way; only round trip and rate unless `whole`."""
        raise NotImplementedError

    def clear(self, name: str) -> None:
        """Nothing is on its way any more."""
        raise NotImplementedError

    def run(self, name: str, faults: Faults, family: int, flows: int, seconds: float) -> Result:
        """One sender sends for so long; the handshake sees the path, but not the losses."""
        sender = self.senders[name]
        self.path(name, faults, False)
        names: dict[str, Any] = {"family": family, "host": self.host[family], "flows": flows}
        listening = self.receiver(LISTEN, **names)
        sender(CONNECT, port=listening, **names)
        self.receiver(ACCEPT)
        self.path(name, faults, True)
        try:
            self.receiver.start(EACH + RECEIVE, seconds=seconds)
            infos = [fields(info) for info in sender(EACH + SEND, seconds=seconds + 0.2, limit_s=LIMIT_S)]
        finally:
            self.clear(name)
            sender(RESET)
        got: list[int] = self.receiver.finish(LIMIT_S)
        info = {name: round(statistics.mean(info[name] for info in infos)) for name in infos[0]}
        return Result(sum(got) * 8e-6 / seconds, 100 * info["retrans"] / max(info["segs"], 1), info)


class Fabric(Wire):
    """The software NIC's: a port for each sender, which is impaired."""

    def __init__(self, stack: ExitStack) -> None:
        receiver_ns, self.fabric = stack.enter_context(uplink(RECEIVER))
        sender_ns, _ = stack.enter_context(uplink(SENDER, self.fabric, SENDER_PORT))
        sender_ns.run("sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")
        interface = f"softnic:fabric={self.fabric},port={ENGINE_PORT},addr={ENGINE[4]}/24,addr={ENGINE[6]}/64,name=sn0"
        self.host, self.ports = RECEIVER, {"kernel": SENDER_PORT, "pyvma": ENGINE_PORT}
        self.receiver = stack.enter_context(Actor(netns=receiver_ns.name))
        self.senders = {
            "kernel": stack.enter_context(Actor(netns=sender_ns.name)),
            "pyvma": stack.enter_context(Actor([interface])),
        }

    def path(self, name: str, faults: Faults, whole: bool) -> None:
        from pyvma.ring import softnic

        spec = f"delay={faults.rtt}ms" + (f",rate={faults.rate}" if faults.rate else "")
        spec += f",loss={faults.loss}%,reorder={faults.reorder}%,seed={faults.seed}" if whole else ""
        softnic.impair(f"{self.fabric}/{self.ports[name]}", spec)

    def clear(self, name: str) -> None:
        from pyvma.ring import softnic

        softnic.impair(f"{self.fabric}/{self.ports[name]}", "")


class Veth(Fabric):
    """AF_XDP and the kernel on the same end of a veth pair; at the other a router, behind whose port of a fabric is the receiver."""

    def __init__(self, stack: ExitStack) -> None:
        receiver_ns, self.fabric = stack.enter_context(uplink(RECEIVER))
        router, _ = stack.enter_context(uplink(SENDER, self.fabric, SENDER_PORT))
        here = stack.enter_context(Namespace())
        sh("ip", "link", "add", "v0", "netns", here.name, "type", "veth", "peer", "name", "v1", "netns", router.name)
        for ns, device, hosts in ((here, "v0", veth.ENGINE), (router, "v1", veth.KERNEL)):
            ns.ip("addr", "add", f"{hosts[4]}/24", "dev", device)
            ns.ip("-6", "addr", "add", f"{hosts[6]}/64", "dev", device, "nodad")
            ns.ip("link", "set", device, "up")
        router.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        here.run("sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")
        for family in (4, 6):
            here.ip(f"-{family}", "route", "add", "default", "via", veth.KERNEL[family])
            receiver_ns.ip(f"-{family}", "route", "add", veth.ENGINE[family], "via", SENDER[family])
        self.router = router
        self.host, self.ports = RECEIVER, {"kernel": SENDER_PORT, "pyvma": SENDER_PORT}
        self.receiver = stack.enter_context(Actor(netns=receiver_ns.name))
        self.senders = {
            "kernel": stack.enter_context(Actor(netns=here.name)),
            "pyvma": stack.enter_context(Actor(["xdp:device=v0"], netns=here.name)),
        }


class Pair(Wire):
    """Both senders on one end of a veth pair, the receiver at the other."""

    def __init__(self, stack: ExitStack) -> None:
        here, self.there = stack.enter_context(veth.namespaces())
        here.run("sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")
        here.run("ethtool", "-K", "v0", "tso", "off", "gso", "off")
        self.host = veth.KERNEL
        self.receiver = stack.enter_context(Actor(netns=self.there.name))
        self.senders = {
            "kernel": stack.enter_context(Actor(netns=here.name)),
            "pyvma": stack.enter_context(Actor(["xdp:device=v0"], netns=here.name)),
        }

    def path(self, name: str, faults: Faults, whole: bool) -> None:
        if faults.reorder or faults.rtt or faults.rate:
            raise SystemExit("a pair has no delay, rate or reordering: --rtt 0 --reorder 0")
        if whole and faults.loss:
            chain = "add table inet t; add chain inet t c { type filter hook input priority 0; }"
            self.there.run("nft", f"{chain}; add rule inet t c numgen random mod 1000 < {round(faults.loss * 10)} drop")

    def clear(self, name: str) -> None:
        self.there.run("nft", "add table inet t; delete table inet t")


@contextmanager
def wire(kind: str) -> Iterator[Wire]:
    """All of it, for as long as it is used."""
    with ExitStack() as stack:
        yield {"uplink": Fabric, "veth": Veth, "pair": Pair}[kind](stack)


def median(results: list[Result], field: str) -> float:
    return statistics.median(float(getattr(result, field)) for result in results)


def error(results: dict[str, list[Result]]) -> float:
    """Relative standard error of the quotient of both senders' means."""
    runs = [[run.mbit_s for run in done] for done in results.values()]
    if len(runs[0]) < 2:
        return math.nan
    return math.sqrt(sum((statistics.stdev(some) / statistics.mean(some)) ** 2 / len(some) for some in runs))


def compare(on: Wire, options: argparse.Namespace, loss: float, reorder: float, rtt: float) -> float:
    """One line of the table; the stack's goodput by the kernel's."""
    results: dict[str, list[Result]] = {name: [] for name in on.senders}
    for seed in range(options.seed, options.seed + options.runs):
        faults = Faults(loss, reorder, rtt, options.rate, seed)
        for name, done in results.items():
            done.append(on.run(name, faults, options.family, options.flows, options.seconds))
            if options.verbose:
                print(f"    {name:<7}{done[-1].mbit_s:>9.2f} {done[-1].info}", flush=True)
    ours, kernels = (median(results[name], "mbit_s") for name in ("pyvma", "kernel"))
    again = [median(results[name], "retransmitted") for name in ("pyvma", "kernel")]
    path = f"{loss:>5g} %{reorder:>7g} %{rtt:>7g} ms"
    ratio = f"{ours / kernels:>8.2f}{error(results) * ours / kernels:>7.2f}"
    print(f"{path}{ours:>11.2f}{kernels:>10.2f}{ratio}{again[0]:>12.2f}{again[1]:>9.2f}", flush=True)
    return ours / kernels


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--over", choices=("uplink", "veth", "pair"), default="uplink")
    parser.add_argument("--loss", type=numbers, default=[0, 1, 5], help="per cent")
    parser.add_argument("--reorder", type=numbers, default=[0, 5], help="per cent of the frames, passed by one to three others")
    parser.add_argument("--rtt", type=numbers, default=[1, 10, 50], help="ms")
    parser.add_argument("--rate", default="", help='of the link, e.g. "100Mbit"; none by default')
    parser.add_argument("--flows", type=int, default=1, help="connections at once: their sum varies less")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--family", type=int, choices=(4, 6), default=4)
    parser.add_argument("--verbose", action="store_true", help="each run, with fields of TCP_INFO")
    options = parser.parse_args()
    print(f"{'loss':>7}{'reorder':>9}{'RTT':>10}{'pyvma':>11}{'kernel':>10}{'ratio':>8}{'+-':>7}{'again/100':>12}{'kernel':>9}")
    ratios = []
    with wire(options.over) as on:
        for rtt in options.rtt:
            for reorder in options.reorder:
                ratios += [compare(on, options, loss, reorder, rtt) for loss in options.loss if loss or reorder or options.rate]
    print(f"lowest ratio {min(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
