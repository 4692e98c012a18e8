"""XDP programs and AF_XDP sockets for processes that may not make them.

The process gets the link and the sockets, and with them the life of both: when it is gone, so are they. The program's map of rules
stays the daemon's: who could write it could have the packets of any port.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import struct
from collections.abc import Iterator

from ._netlink import Link
from ._protocol import QUEUES_MAX, Flow

__all__ = ["Loan", "Loans", "allow_memory"]

SYS_BPF = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine, 280)
MAP_LOOKUP, MAP_UPDATE, MAP_DELETE, MAP_NEXT = 1, 2, 3, 4
PROGRAM_BY_ID, MAP_BY_ID, INFO_BY_FD = 13, 14, 15
NOEXIST = 1
LINK_XDP = 6
KEY = struct.Struct("=16s16s2s2sHBB")
CONFIG = struct.Struct("=I6sH")
VALUE = struct.Struct("=I")
ELEMENT = struct.Struct("=I4xQQQ")
TUPLE3, TUPLE5 = 3, 4
RULE, SOLE = 1, 2
LOCKED = 1 << 30
MAPPED = bytes(10) + b"\xff\xff"
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attribute: bytes) -> int:
    buffer = ctypes.create_string_buffer(attribute, len(attribute))
    result = _libc.syscall(SYS_BPF, command, buffer, len(attribute))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


class _Map:
    """A map by its fd, which is its own."""

    def __init__(self, fd: int, key: int, value: int) -> None:
        self.fd = fd
        self._key = ctypes.create_string_buffer(key)
        self._value = ctypes.create_string_buffer(value)

    def _element(self, key: bytes, flags: int = 0) -> bytes:
        self._key.raw = key
        return ELEMENT.pack(self.fd, ctypes.addressof(self._key), ctypes.addressof(self._value), flags)

    def update(self, key: bytes, value: bytes, flags: int = 0) -> None:
        self._value.raw = value
        _bpf(MAP_UPDATE, self._element(key, flags))

    def delete(self, key: bytes) -> None:
        self._key.raw = key
        _bpf(MAP_DELETE, ELEMENT.pack(self.fd, ctypes.addressof(self._key), 0, 0))

    def __iter__(self) -> Iterator[bytes]:
        """Not to be changed meanwhile."""
        attribute = ELEMENT.pack(self.fd, 0, ctypes.addressof(self._value_key()), 0)
        while True:
            try:
                _bpf(MAP_NEXT, attribute)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return
                raise
            found = self._next.raw
            yield found
            self._key.raw = found
            attribute = ELEMENT.pack(self.fd, ctypes.addressof(self._key), ctypes.addressof(self._next), 0)

    def _value_key(self) -> ctypes.Array[ctypes.c_char]:
        self._next = ctypes.create_string_buffer(len(self._key))
        return self._next

    def close(self) -> None:
        os.close(self.fd)


def _info(fd: int, size: int, start: bytes = b"") -> bytes:
    buffer = ctypes.create_string_buffer(start, size)
    _bpf(INFO_BY_FD, struct.pack("=IIQ", fd, size, ctypes.addressof(buffer)))
    return buffer.raw


def _key(flow: Flow) -> bytes:
    dst, src = (address if len(address) == 16 else MAPPED + address for address in (flow.dst, flow.src))
    ports = struct.pack(">H", flow.dst_port), struct.pack(">H", flow.src_port)
    return KEY.pack(dst, src if flow.whole else bytes(16), *ports, 0, flow.proto, TUPLE5 if flow.whole else TUPLE3)


class Loan:
    """One interface's program: its rules."""

    def __init__(self, ifindex: int, mac: bytes, rules_fd: int, config_fd: int) -> None:
        self.ifindex = ifindex
        self._mac = mac
        self._rules = _Map(rules_fd, KEY.size, VALUE.size)
        self._config = _Map(config_fd, 4, CONFIG.size)
        self._kinds = {TUPLE3: 0, TUPLE5: 0}
        for flow in self.flows():
            self._kinds[TUPLE5 if flow.whole else TUPLE3] += 1

    def close(self) -> None:
        """The program goes on as long as its link."""
        self._rules.close()
        self._config.close()

    def _tell(self) -> None:
        kinds = sum(1 << kind for kind, count in self._kinds.items() if count)
        self._config.update(bytes(4), CONFIG.pack(kinds, self._mac, 0))

    def add(self, flow: Flow, sole: bool) -> None:
        """Puts a rule in force. OSError: EEXIST, ENOSPC."""
        try:
            self._rules.update(_key(flow), VALUE.pack(SOLE if sole else RULE), NOEXIST)
        except OSError as error:
            raise OSError(errno.ENOSPC, "the program's map of rules is full") if error.errno == errno.E2BIG else error
        self._count(flow, 1)

    def delete(self, flow: Flow) -> None:
        """Takes it back."""
        with contextlib.suppress(FileNotFoundError):
            self._rules.delete(_key(flow))
            self._count(flow, -1)

    def _count(self, flow: Flow, by: int) -> None:
        kind = TUPLE5 if flow.whole else TUPLE3
        before = self._kinds[kind]
        self._kinds[kind] += by
        if bool(before) != bool(self._kinds[kind]):
            self._tell()

    def flows(self) -> list[Flow]:
        """All rules that there are."""
        found = []
        for key in self._rules:
            dst, src, dst_port, src_port, _, proto, kind = KEY.unpack(key)
            if kind not in (TUPLE3, TUPLE5):
                continue
            if dst.startswith(MAPPED):
                dst, src = dst[12:], src[12:]
            ports = int.from_bytes(dst_port, "big"), int.from_bytes(src_port, "big")
            found.append(Flow(self.ifindex, proto, dst, ports[0], src if kind == TUPLE5 else bytes(len(dst)), ports[1]))
        return found


def allow_memory(pid: int) -> str:
    """The packet buffers of an AF_XDP socket are locked memory, and what users may lock is often less than a pool. "" or why not."""
    try:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_MEMLOCK)
        if soft != resource.RLIM_INFINITY and soft < LOCKED:
            hard = hard if hard == resource.RLIM_INFINITY else max(hard, LOCKED)
            resource.prlimit(pid, resource.RLIMIT_MEMLOCK, (LOCKED, hard))
    except OSError as error:
        return f"its limit of locked memory cannot be raised: {error.strerror or error}"
    return ""


class Loans:
    """All programs of the daemon's making."""

    def __init__(self) -> None:
        self._loans: dict[int, Loan] = {}

    def close(self) -> None:
        """They stay in force."""
        for ifindex in list(self._loans):
            self.drop(ifindex)

    def drop(self, ifindex: int) -> None:
        """Nothing of it is the daemon's business any more."""
        loan = self._loans.pop(ifindex, None)
        if loan:
            loan.close()

    def make(self, link: Link, queues: int, mode: int) -> tuple[Loan, list[int], bool]:
        """The program in force, the fds of its link and of a socket a queue, and whether it is in native mode. OSError with a text."""
        from .._native import ffi, lib

        out, text = ffi.new("struct pyvma_xdp_loan *"), ffi.new("char[512]")
        code = lib.pyvma_xdp_lend(link.name.encode(), min(queues, QUEUES_MAX), mode, out, text, 512)
        if code < 0:
            raise OSError(-code, ffi.string(text).decode() or os.strerror(-code))
        passed = [out.link_fd, *(out.sock_fd[i] for i in range(out.queues))]
        self.drop(link.ifindex)
        loan = self._loans[link.ifindex] = Loan(link.ifindex, bytes(ffi.buffer(out.mac)), out.rules_fd, out.config_fd)
        return loan, passed, bool(out.native)

    def again(self, link_fd: int, ifindex: int) -> Loan:
        """That of an earlier daemon, by its link. PermissionError: it is no such link."""
        try:
            kind, _, program = struct.unpack_from("=III", _info(link_fd, 64))
            (on,) = struct.unpack_from("=I", _info(link_fd, 64), 16)
            if kind != LINK_XDP or on != ifindex:
                raise OSError(errno.EINVAL, "")
            maps = self._maps_of(program)
        except OSError:
            raise PermissionError(errno.EACCES, "the descriptor is not the link of an XDP program on that interface") from None
        rules, config = maps.pop(("rules", KEY.size, VALUE.size), -1), maps.pop(("config", 4, CONFIG.size), -1)
        for fd in maps.values():
            os.close(fd)
        if rules < 0 or config < 0:
            for fd in (rules, config):
                if fd >= 0:
                    os.close(fd)
            raise PermissionError(errno.EACCES, "the XDP program is none of pyvma's")
        mac = CONFIG.unpack(self._lookup(config))[1]
        self.drop(ifindex)
        loan = self._loans[ifindex] = Loan(ifindex, mac, rules, config)
        return loan

    @staticmethod
    def _lookup(config: int) -> bytes:
        key, value = ctypes.create_string_buffer(4), ctypes.create_string_buffer(CONFIG.size)
        _bpf(MAP_LOOKUP, ELEMENT.pack(config, ctypes.addressof(key), ctypes.addressof(value), 0))
        return value.raw

    @staticmethod
    def _maps_of(program: int) -> dict[tuple[str, int, int], int]:
        """By name and the sizes of keys and values."""
        fd = _bpf(PROGRAM_BY_ID, struct.pack("=III", program, 0, 0))
        try:
            ids = (ctypes.c_uint32 * 8)()
            start = bytes(52) + struct.pack("=IQ", len(ids), ctypes.addressof(ids))
            (count,) = struct.unpack_from("=I", _info(fd, 128, start + bytes(128 - len(start))), 52)
        finally:
            os.close(fd)
        maps: dict[tuple[str, int, int], int] = {}
        try:
            for number in ids[: min(count, len(ids))]:
                found = _bpf(MAP_BY_ID, struct.pack("=III", number, 0, 0))
                with contextlib.ExitStack() as undo:
                    undo.callback(os.close, found)
                    info = _info(found, 80)
                    name = info[24:40].split(b"\0")[0].decode("ascii", "replace"), *struct.unpack_from("=II", info, 8)
                    if name not in maps:
                        maps[name] = found
                        undo.pop_all()
        except OSError:
            for found in maps.values():
                os.close(found)
            raise
        return maps
