#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes a seed corpus for a fuzz target: `corpus.py wire DIRECTORY`, from the packets of tests/data/wire.txt."""

from __future__ import annotations

import pathlib
import sys

# Selector byte of fuzz_wire.c by the packet's prefix, and where the message starts.
WIRE = {"eth": (0, 0), "arp": (1, 0), "ip4": (2, 0), "ip6": (3, 0), "icmp4": (4, 0), "icmp6": (5, 40), "nd": (5, 40), "mld": (5, 40), "igmp": (6, 0)}


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] != "wire":
        print(__doc__, file=sys.stderr)
        return 2
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    source = pathlib.Path(__file__).parent.parent / "data" / "wire.txt"
    for line in source.read_text().splitlines():
        name, text = line.split()
        selector, offset = WIRE[name.split("_")[0].rstrip("123") if name.startswith(("igmp", "mld")) else name.split("_")[0]]
        (out / name).write_bytes(bytes([selector]) + bytes.fromhex(text)[offset:])
    (out / "reports").write_bytes(bytes([7, 40, 0, 3, 16]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
