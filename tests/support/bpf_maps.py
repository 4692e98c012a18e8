"""What a process has in the kernel's hash maps of BPF, by the kernel's own account."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
from pathlib import Path

SYS_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
GET_NEXT_KEY, GET_FD_BY_ID = 4, 14  # enum bpf_cmd
HASH = 1  # enum bpf_map_type
ATTR_SIZE = 128

_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attr: bytes) -> int:
    buffer = ctypes.create_string_buffer(attr, ATTR_SIZE)
    rc: int = _libc.syscall(SYS_BPF, command, buffer, ATTR_SIZE)
    return rc


def _count(map_id: int, key_size: int) -> int:
    fd = _bpf(GET_FD_BY_ID, struct.pack("=III", map_id, 0, 0))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    key, following = ctypes.create_string_buffer(key_size), ctypes.create_string_buffer(key_size)
    try:
        n, at = 0, 0
        while _bpf(GET_NEXT_KEY, struct.pack("=IIQQ", fd, 0, at, ctypes.addressof(following))) == 0:
            n += 1
            key, following = following, key
            at = ctypes.addressof(key)
        return n
    finally:
        os.close(fd)


def entries(pid: int) -> int:
    """Entries of all hash maps to which the process has a descriptor, each map once."""
    maps: dict[int, int] = {}
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = path.read_text()
        except FileNotFoundError:  # closed meanwhile
            continue
        told = dict(re.findall(r"^(\w+):\s+(\d+)$", text, re.MULTILINE))
        if told.get("map_type") == str(HASH):
            maps[int(told["map_id"])] = int(told["key_size"])
    return sum(_count(map_id, key_size) for map_id, key_size in maps.items())
