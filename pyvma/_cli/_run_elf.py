"""What a program is, by the first bytes of its file: whether the dynamic linker would load a library of ours into it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import struct
from dataclasses import dataclass

ELF = b"\x7fELF"
PT_INTERP, PT_NOTE = 3, 4
MACHINES = {"x86_64": 62, "aarch64": 183, "ppc64le": 21, "s390x": 22, "riscv64": 243}
SCRIPTS_DEEP = 4
HEADERS_MAX = 1 << 16


@dataclass(frozen=True)
class Target:
    """A program found. `reason`: why no library can be loaded into it, empty when one can. `image`: the ELF file that starts."""

    path: str
    image: str
    reason: str


class NotFoundError(Exception):
    """There is no such program: status 127."""


class CannotRunError(Exception):
    """It is there, and cannot be started: status 126."""


def find(name: str) -> str:
    """As execvp finds it."""
    if os.sep in name:
        if not os.path.exists(name):
            raise NotFoundError(f"{name}: No such file or directory")
        if os.path.isdir(name) or not os.access(name, os.X_OK):
            raise CannotRunError(f"{name}: Permission denied")
        return name
    found = shutil.which(name)
    if found is not None:
        return found
    for folder in os.get_exec_path():
        if os.path.isfile(os.path.join(folder, name)):
            raise CannotRunError(f"{os.path.join(folder, name)}: Permission denied")
    raise NotFoundError(f"{name}: No such file or directory")


def _privileged(path: str) -> str:
    """Would the kernel raise privileges at its start? Then the dynamic linker takes no library from us."""
    about = os.stat(path)
    if about.st_mode & stat.S_ISUID and about.st_uid != os.getuid():
        return "is setuid"
    if about.st_mode & stat.S_ISGID and about.st_mode & stat.S_IXGRP and about.st_gid != os.getgid():
        return "is setgid"
    if os.getuid() != 0:
        try:
            os.getxattr(path, "security.capability")
        except OSError:
            return ""
        return "has file capabilities"
    return ""


def _segments(data: bytes) -> list[tuple[int, int, int]]:
    """(type, offset, size) of the program headers of a little-endian ELF64."""
    offset = int(struct.unpack_from("<Q", data, 32)[0])
    size, count = struct.unpack_from("<HH", data, 54)
    found = []
    for number in range(count):
        at = offset + number * size
        if size < 56 or at + size > len(data):
            break
        kind, _, where, _, _, length = struct.unpack_from("<IIQQQQ", data, at)
        found.append((kind, where, length))
    return found


def elf_reason(path: str, data: bytes, read: int) -> str:
    """Why a library of ours cannot get into this ELF file; `data` is its beginning, of `read` bytes."""
    if read < 64 or data[4] != 2:
        return "is a 32-bit program" if read >= 52 and data[4] == 1 else "is not a whole ELF file"
    if data[5] != 1 or struct.unpack_from("<H", data, 18)[0] != MACHINES.get(platform.machine(), -1):
        return "is for another machine"
    segments = _segments(data)
    interpreters = [data[at : at + size].rstrip(b"\0") for kind, at, size in segments if kind == PT_INTERP]
    if not interpreters:
        return "is static: it loads no libraries"
    if b"ld-musl" in interpreters[0]:
        return "is of another C library (musl)"
    return ""


def is_go(data: bytes) -> bool:
    """A program that makes its system calls by itself."""
    return any(kind == PT_NOTE and b"Go\0\0" in data[at : at + min(size, 256)] for kind, at, size in _segments(data))


def _script(data: bytes) -> list[str]:
    line = data[2:].split(b"\n", 1)[0].strip()
    return [os.fsdecode(word) for word in line.split(None, 1)]


def examine(path: str, deep: int = 0) -> Target:
    """Follows scripts to their interpreters; that of `#!/usr/bin/env NAME` is NAME."""
    reason = _privileged(path) if deep == 0 else ""
    try:
        with open(path, "rb") as file:
            data = file.read(HEADERS_MAX)
    except OSError:  # may be run, not read
        return Target(path, path, "cannot be read: only its owner knows what it is")
    if data.startswith(b"#!"):
        words = _script(data)
        if not words or deep == SCRIPTS_DEEP:
            raise CannotRunError(f"{path}: its interpreter is not named")
        if os.path.basename(words[0]) == "env" and len(words) == 2:
            name = next((word for word in words[1].split() if not word.startswith("-") and "=" not in word), "")
            if name:
                words[0] = shutil.which(name) or words[0]
        if not os.path.exists(words[0]):
            raise CannotRunError(f"{path}: {words[0]}: bad interpreter")
        return Target(path, *_rest(examine(words[0], deep + 1)))
    if not data.startswith(ELF):  # a shell's text without a first line, which execvp gives to sh
        return Target(path, path, reason)
    reason = reason or elf_reason(path, data, len(data))
    if not reason and is_go(data):
        reason = "is a Go program: it makes its system calls by itself"
    return Target(path, path, reason and f"{os.path.basename(path)} {reason}")


def _rest(found: Target) -> tuple[str, str]:
    return found.image, found.reason
