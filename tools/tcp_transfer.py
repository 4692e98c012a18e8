#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Moves gigabytes between the stack and the Linux kernel over the software NIC's uplink, and compares SHA-256 of what went and came.

Both families, both roles (who listened), both directions, one after another; prints for each the time, the rate and what was sent
twice. Fails when a hash differs. Needs root.

Usage: tools/tcp_transfer.py [--mib 4096] [--family 4,6] [--role client,server] [--way from,to] [--faults SPEC]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

# The installed package, also in the processes that this starts, and not the source tree.
os.environ["PYTHONSAFEPATH"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from actor import Actor
from uplink import PORT, uplink

ENGINE = {4: "10.80.0.1", 6: "fd80::1"}
KERNEL = {4: "10.80.0.2", 6: "fd80::2"}
LIMIT_S = 1800.0

LISTEN = """
l = socket.create_server((host, 0), family=socket.AF_INET if family == 4 else socket.AF_INET6)
l.settimeout(30)
l.getsockname()[1]
"""
CONNECT = """
s = socket.create_connection((host, port), 30)
s.settimeout(120)
"""
ACCEPT = """
s, _ = l.accept()
s.settimeout(120)
l.close()
"""
# Each MiB differs from the one before by the number in front.
SEND = """
import hashlib
digest, block = hashlib.sha256(), bytearray(os.urandom(1 << 20))
for number in range(mib):
    struct.pack_into("!Q", block, 0, number)
    s.sendall(block)
    digest.update(block)
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b""
info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
s.close()
digest.hexdigest(), int.from_bytes(info[100:104], "little")
"""
RECEIVE = """
import hashlib
digest, room, got = hashlib.sha256(), memoryview(bytearray(1 << 20)), 0
while n := s.recv_into(room):
    digest.update(room[:n])
    got += n
s.close()
digest.hexdigest(), got
"""


def transfer(engine: Actor, kernel: Actor, family: int, role: str, way: str, mib: int) -> bool:
    """One transfer and its line; whether all came as it went."""
    server, client, hosts = (engine, kernel, ENGINE) if role == "server" else (kernel, engine, KERNEL)
    sender, receiver = (engine, kernel) if way == "from" else (kernel, engine)
    port = server(LISTEN, host=hosts[family], family=family)
    client(CONNECT, host=hosts[family], port=port)
    server(ACCEPT)
    begin = time.monotonic()
    receiver.start(RECEIVE)
    sender.start(SEND, mib=mib)
    came, size = receiver.finish(LIMIT_S)
    went, again = sender.finish(LIMIT_S)
    took = time.monotonic() - begin
    good: bool = went == came and size == mib << 20
    rate = mib * 8.388608e-3 / took
    print(
        f"IPv{family} pyvma is the {role:<6} and {'sends' if way == 'from' else 'receives':<8}{size:>12} bytes{took:>8.1f} s"
        f"{rate:>7.2f} Gbit/s{again:>8} sent again  {came[:16]} {'equal' if good else 'DIFFERENT'}",
        flush=True,
    )
    return good


def words(text: str) -> list[str]:
    return text.split(",")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--family", type=words, default=["4", "6"])
    parser.add_argument("--role", type=words, default=["client", "server"])
    parser.add_argument("--way", type=words, default=["from", "to"])
    parser.add_argument("--faults", default="", help='impairments of both ports, e.g. "loss=1%%,reorder=5%%,delay=1ms"')
    options = parser.parse_args()
    failed = 0
    with uplink(KERNEL) as (ns, fabric):
        interface = f"softnic:fabric={fabric},port=0,addr={ENGINE[4]}/24,addr={ENGINE[6]}/64,name=sn0"
        with Actor([interface]) as engine, Actor(netns=ns.name) as kernel:
            from pyvma.ring import softnic

            for number in (0, PORT):
                softnic.impair(f"{fabric}/{number}", options.faults)
            for family in options.family:
                for role in options.role:
                    failed += sum(not transfer(engine, kernel, int(family), role, way, options.mib) for way in options.way)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
