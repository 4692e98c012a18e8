"""BPF programs, maps and links by their ids, through bpf(2) itself: whose they are says /proc, whether they live says the kernel."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

SYSCALL = {"x86_64": 321, "aarch64": 280}.get(platform.machine(), -1)
# Commands of linux/bpf.h that open an object by its id.
GET_FD_BY_ID = {"prog_id": 13, "map_id": 14, "link_id": 30}

Objects = set[tuple[str, int]]


def held_by(pid: int) -> Objects:
    """(kind, id) of everything that a process has an fd of."""
    found: Objects = set()
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = entry.read_text().splitlines()
        except OSError:
            continue
        found |= {(name, int(value)) for name, _, value in (line.partition(":") for line in lines) if name in GET_FD_BY_ID}
    return found


def alive(objects: Objects) -> Objects:
    """Those of them that the kernel still knows."""
    libc = ctypes.CDLL(None, use_errno=True)
    there: Objects = set()
    for kind, number in objects:
        attr = (ctypes.c_uint32 * 4)(number, 0, 0, 0)
        fd = libc.syscall(SYSCALL, GET_FD_BY_ID[kind], ctypes.byref(attr), ctypes.sizeof(attr))
        if fd >= 0:
            os.close(fd)
            there.add((kind, number))
        elif ctypes.get_errno() != 2:
            raise OSError(ctypes.get_errno(), f"{kind} {number}")
    return there
