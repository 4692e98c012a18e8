#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Moves gigabytes between the stack and the Linux kernel and compares SHA-256 of what went and came.

The kernel is behind the software NIC's uplink, or at the other end of a veth pair with the stack on AF_XDP.
Both families, both roles (who listened), both directions, one after another; prints for each the time, the rate and what was sent
twice. Fails when a hash differs. Needs root.

Usage: tools/tcp_transfer.py [--over uplink|veth] [--mib 4096] [--family 4,6] [--role client,server] [--way from,to]
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

import uplink
import veth
from exchange import Ends

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


def transfer(ends: Ends, family: int, role: str, way: str, mib: int) -> bool:
    """One transfer and its line; whether all came as it went."""
    engine, kernel = ends.engine, ends.kernel
    server, client, hosts = (engine, kernel, ends.engine_host) if role == "server" else (kernel, engine, ends.kernel_host)
    sender, receiver = (engine, kernel) if way == "from" else (kernel, engine)
    port = server(LISTEN, host=hosts[family], family=family)
    client(CONNECT, host=hosts[family], port=port)
    server(ACCEPT)
    assert engine("s.offload.state") == "offloaded"
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
    parser.add_argument("--over", choices=("uplink", "veth"), default="uplink")
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--family", type=words, default=["4", "6"])
    parser.add_argument("--role", type=words, default=["client", "server"])
    parser.add_argument("--way", type=words, default=["from", "to"])
    options = parser.parse_args()
    failed = 0
    with uplink.pair() if options.over == "uplink" else veth.pair() as ends:
        for family in options.family:
            for role in options.role:
                failed += sum(not transfer(ends, int(family), role, way, options.mib) for way in options.way)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
