#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes a seed corpus for a fuzz target from the packets of tests/data: `corpus.py wire|net DIRECTORY`."""

from __future__ import annotations

import pathlib
import sys

# Selector byte of fuzz_wire.c by the packet's prefix, and where the message starts.
WIRE = {"eth": (0, 0), "arp": (1, 0), "ip4": (2, 0), "ip6": (3, 0), "icmp4": (4, 0), "icmp6": (5, 40), "nd": (5, 40), "mld": (5, 40), "igmp": (6, 0)}


DATA = pathlib.Path(__file__).parent.parent / "data"


def packets(name: str) -> list[list[str]]:
    return [line.split() for line in (DATA / name).read_text().splitlines()]


def net(out: pathlib.Path) -> None:
    """Steps of fuzz_net_rx.c: each frame alone after a datagram to its sender, with checksums mended; fragments of one datagram together."""
    groups: dict[str, list[bytes]] = {}
    for name, text in packets("net.txt"):
        groups.setdefault(name.rsplit("_", 1)[0] if "_frag4_" in name or "_frag6_" in name else name, []).append(bytes.fromhex(text))
    for name, frames in groups.items():
        steps = bytes([16 if name.startswith("tx") else 0, 1, 0, 0, 20, 1, 1, 1, 0, 20, 1, 2, 0, 2, 1])
        for frame in frames:
            steps += bytes([3, 0xC0]) + len(frame).to_bytes(2, "big") + frame
        (out / name).write_bytes(steps + bytes([0, 2, 0]))


def wire(out: pathlib.Path) -> None:
    for name, text in packets("wire.txt"):
        selector, offset = WIRE[name.split("_")[0].rstrip("123") if name.startswith(("igmp", "mld")) else name.split("_")[0]]
        (out / name).write_bytes(bytes([selector]) + bytes.fromhex(text)[offset:])
    (out / "reports").write_bytes(bytes([7, 40, 0, 3, 16]))


def main() -> int:
    targets = {"wire": wire, "net": net}
    if len(sys.argv) != 3 or sys.argv[1] not in targets:
        print(__doc__, file=sys.stderr)
        return 2
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    targets[sys.argv[1]](out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
