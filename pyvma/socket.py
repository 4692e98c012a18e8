"""A drop-in for the standard library's `socket`.

Everything that `socket` exports is here, and the same objects wherever they have nothing to do with the socket class. A UDP socket of
AF_INET or AF_INET6 is the engine's to decide: offloaded when its address is on an offloaded interface, otherwise the kernel's;
`sock.offload` says which. Every other socket is the standard library's, method by method.

The class derives from the standard library's. Its kernel fd is the engine's kernel socket; a UDP socket has a handle of the engine
beside it, through which everything goes.
"""

from __future__ import annotations

import _socket
import errno
import math
import operator
import os
import socket as _std
import struct
import sys
import time
import types
import warnings
from socket import *
from typing import Any, NamedTuple

from ._native import check, ffi, lib
from ._native import start as _start
from ._native._calls import Batch, Calls, Handle, Received, format_address, parse_address

globals().update({name: value for name, value in vars(_std).items() if not name.startswith("_")})
__all__ = [*_std.__all__, "Batch", "Offload", "Received"]

_CREATION_FLAGS = _std.SOCK_NONBLOCK | _std.SOCK_CLOEXEC
_CMSG = struct.Struct("@Nii")
_CMSG_ALIGN = struct.calcsize("@N")
_DATAGRAM_MAX = 65536
_INT_MAX = 0x7FFFFFFF


def __getattr__(name: str) -> Any:
    """What programs use of the standard module's private names."""
    return getattr(_std, name)


class Offload(NamedTuple):
    """What became of a socket; true when it is offloaded."""

    state: str
    """"offloaded", "kernel" or "undecided"."""
    text: str
    """The ring's name when offloaded, else the reason why not."""

    def __bool__(self) -> bool:
        return self.state == "offloaded"

    def __str__(self) -> str:
        return self.text


_STATES = {lib.PYVMA_UNDECIDED: "undecided", lib.PYVMA_OFFLOADED: "offloaded", lib.PYVMA_KERNEL: "kernel"}


def _is_udp(family: int, type: int, proto: int) -> bool:
    """Whether the engine is asked about such a socket at all."""
    try:
        plain = type & ~_CREATION_FLAGS
    except TypeError:
        return False
    return plain == _std.SOCK_DGRAM and family in (_std.AF_INET, _std.AF_INET6, -1) and proto in (0, -1, _std.IPPROTO_UDP)


def _sockaddr(packed: bytes) -> Any:
    return ffi.from_buffer("struct sockaddr[]", packed.ljust(ffi.sizeof("struct sockaddr"), b"\0"))


def _parse_control(data: bytes) -> list[tuple[int, int, bytes]]:
    """Ancillary data as recvmsg() returns it; the last item may have been cut."""
    items = []
    at = 0
    while at + _CMSG.size <= len(data):
        size, level, kind = _CMSG.unpack_from(data, at)
        if size < _CMSG.size:
            break
        items.append((level, kind, data[at + _CMSG.size : at + size]))
        at += -(-size // _CMSG_ALIGN) * _CMSG_ALIGN
    return items


def _pack_control(items: list[tuple[int, int, Any]]) -> bytes:
    out = bytearray()
    for level, kind, value in items:
        data = bytes(memoryview(value))
        out += _CMSG.pack(_CMSG.size + len(data), operator.index(level), operator.index(kind)) + data
        out += bytes(-len(out) % _CMSG_ALIGN)
    return bytes(out)


class _Message:
    """A struct msghdr with the memory it points to."""

    def __init__(self, pieces: list[Any], control: Any = b"", name: bytes | None = None) -> None:
        self.pieces = pieces
        self.iov = ffi.new("struct iovec[]", max(len(pieces), 1))
        for slot, piece in zip(self.iov, pieces, strict=False):
            slot.iov_base, slot.iov_len = piece, len(piece)
        self.control = ffi.from_buffer(control) if len(control) else ffi.NULL
        self.name = ffi.new("struct sockaddr_storage *")
        self.header = ffi.new("struct msghdr *")
        self.header.msg_iov, self.header.msg_iovlen = self.iov, len(pieces)
        self.header.msg_control, self.header.msg_controllen = self.control, len(control)
        if name is None:
            self.header.msg_name, self.header.msg_namelen = self.name, ffi.sizeof("struct sockaddr_storage")
        elif name:
            ffi.memmove(self.name, name, len(name))
            self.header.msg_name, self.header.msg_namelen = self.name, len(name)

    def sender(self) -> Any:
        return format_address(bytes(ffi.buffer(self.name)[: self.header.msg_namelen]))

    def received_control(self) -> list[tuple[int, int, bytes]]:
        return _parse_control(bytes(ffi.buffer(self.control)[: self.header.msg_controllen]) if self.control else b"")


class socket(Calls, _std.socket):  # type: ignore[no-redef]
    """As `socket.socket`, with `offload`, `stats`, `recv_batch` and `send_batch` of its own."""

    __slots__ = ("_handle", "_sock")
    __module__ = "pyvma.socket"

    _handle: Handle | None
    _sock: Any

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        self._handle = self._sock = None
        if fileno is not None or not _is_udp(family, type, proto):
            super().__init__(family, type, proto, fileno)
            if not _is_udp(_socket.socket.family.__get__(self), self.type, self.proto):
                return
            out = ffi.new("pyvma_sock **")
            _start()
            check(lib.pyvma_sock_adopt(super().fileno(), out))
        else:
            out = ffi.new("pyvma_sock **")
            family, proto = _std.AF_INET if family == -1 else family, 0 if proto == -1 else proto
            _start()
            check(lib.pyvma_sock_open(family, type | _std.SOCK_CLOEXEC, proto, out))
            try:
                super().__init__(family, type, proto, lib.pyvma_sock_fd(out[0]))
            except BaseException:
                lib.pyvma_sock_close(out[0])
                raise
        self._sock = out[0]
        self._handle = Handle(int(ffi.cast("uintptr_t", out[0])), super().family)
        self._take_timeout()

    # ---- life ----

    def _take(self) -> Any:
        """Takes the engine's socket from this object, once; None when there is none."""
        pointer = 0 if self._handle is None else self._handle.take()
        self._sock = None
        return ffi.cast("pyvma_sock *", pointer) if pointer else None

    def _real_close(self, _ss: Any = _std.socket) -> None:
        taken = self._take()
        if taken is None:
            _socket.socket.close(self)
        else:
            _socket.socket.detach(self)
            check(lib.pyvma_sock_close(taken))

    def detach(self) -> int:
        """As socket.detach(): the fd lives on, with its offloaded socket if it has one; socket(fileno=fd) finds that again."""
        taken = self._take()
        if taken is not None:
            check(lib.pyvma_sock_detach(taken))
        return super().detach()

    def __del__(self) -> None:
        if _socket.socket.fileno(self) < 0:
            return
        try:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
        finally:
            self._real_close()

    def __repr__(self) -> str:
        fd = _socket.socket.fileno(self)
        closed = " [closed]" if getattr(self, "_closed", False) else ""
        text = f"<{self.__class__.__module__}.{self.__class__.__qualname__}{closed} fd={fd}"
        text += f", family={self.family!s}, type={self.type!s}, proto={self.proto}"
        if not closed:
            for label, ask in (("laddr", self.getsockname), ("raddr", self.getpeername)):
                try:
                    address = ask()
                except (OSError, AttributeError):
                    continue
                if label == "raddr" or address:
                    text += f", {label}={address!s}"
        return text + ">"

    def fileno(self) -> int:
        """The fd, which stock select, selectors and event loops can watch. -1 when closed."""
        sock = self._sock
        return super().fileno() if sock is None else check(lib.pyvma_sock_fileno(sock))

    def dup(self) -> Any:
        """As socket.dup(): one socket, two objects."""
        sock = self._sock
        if sock is None:
            return super().dup()
        out = ffi.new("pyvma_sock **")
        check(lib.pyvma_sock_dup(sock, out))
        fd = check(lib.pyvma_sock_detach(out[0]))
        try:
            copy = self.__class__(self.family, self.type, self.proto, fileno=fd)
        except BaseException:
            os.close(fd)
            raise
        copy.settimeout(self.gettimeout())
        return copy

    def accept(self) -> tuple[Any, Any]:
        """As socket.accept(), with a socket of this module."""
        if self._sock is not None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        fd, address = self._accept()  # type: ignore[attr-defined]
        sock = socket(self.family, self.type, self.proto, fileno=fd)
        if _std.getdefaulttimeout() is None and self.gettimeout():
            sock.setblocking(True)
        return sock, address

    def listen(self, *args: Any) -> None:
        """As socket.listen()."""
        if self._sock is None or len(args) > 1 or (args and not hasattr(args[0], "__index__")):
            return super().listen(*args)
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def get_inheritable(self) -> bool:
        """As socket.get_inheritable()."""
        return os.get_inheritable(super().fileno())

    def set_inheritable(self, inheritable: bool) -> None:
        """As socket.set_inheritable()."""
        os.set_inheritable(super().fileno(), inheritable)

    # ---- timeouts ----

    def _take_timeout(self) -> None:
        """Tells the engine what the standard library keeps: None waits for ever, 0.0 not at all."""
        handle, sock = self._handle, self._sock
        if handle is None or sock is None:
            return
        timeout = super().gettimeout()
        handle.timeout_ns = -1 if timeout is None else math.ceil(timeout * 1e9)
        check(lib.pyvma_sock_set_nonblock(sock, timeout == 0))
        if timeout:
            # The standard library's fds with a timeout do not block, which programs can see; the engine's own flag stays clear.
            super().settimeout(timeout)

    def settimeout(self, value: float | None) -> None:
        """As socket.settimeout()."""
        super().settimeout(value)
        self._take_timeout()

    def setblocking(self, flag: bool) -> None:
        """As socket.setblocking()."""
        super().setblocking(flag)
        self._take_timeout()

    def _patient(self, flags: int) -> int:
        """The standard library waits for a socket with a timeout whatever the flags say."""
        return flags & ~_std.MSG_DONTWAIT if self._handle is not None and self._handle.timeout_ns > 0 else flags

    def _wait(self, call: Any, *args: Any) -> int:
        """Makes a call of the engine whose last argument is the time to wait. A signal runs its handler, then the call goes on."""
        timeout_ns = self._handle.timeout_ns if self._handle else 0
        deadline = time.monotonic_ns() + timeout_ns if timeout_ns > 0 else 0
        while True:
            rc: int = call(*args, timeout_ns)
            if rc == -errno.ETIMEDOUT and deadline:
                raise TimeoutError("timed out")
            if rc != -errno.EINTR:
                return check(rc)
            if deadline:
                timeout_ns = deadline - time.monotonic_ns()
                if timeout_ns <= 0:
                    raise TimeoutError("timed out")

    # ---- names ----

    def bind(self, address: Any) -> None:
        """As socket.bind()."""
        sock = self._sock
        packed = parse_address(self.family, address) if sock is not None else None
        if packed is None:
            return super().bind(address)
        sys.audit("socket.bind", self, address)
        check(lib.pyvma_sock_bind(sock, _sockaddr(packed), len(packed)))
        return None

    def _connect(self, address: Any) -> int | None:
        """The engine's answer, or None when the standard library has to speak."""
        sock = self._sock
        packed = parse_address(self.family, address) if sock is not None else None
        if packed is None:
            return None
        sys.audit("socket.connect", self, address)
        rc: int = lib.pyvma_sock_connect(sock, _sockaddr(packed), len(packed), self._handle.timeout_ns if self._handle else 0)
        return rc

    def connect(self, address: Any) -> None:
        """As socket.connect()."""
        rc = self._connect(address)
        if rc is None:
            return super().connect(address)
        check(rc)
        return None

    def connect_ex(self, address: Any) -> int:
        """As socket.connect_ex()."""
        rc = self._connect(address)
        return super().connect_ex(address) if rc is None else -rc

    def _name(self, call: Any) -> Any:
        storage = ffi.new("struct sockaddr_storage *")
        size = ffi.new("socklen_t *", ffi.sizeof("struct sockaddr_storage"))
        check(call(self._sock, ffi.cast("struct sockaddr *", storage), size))
        return format_address(bytes(ffi.buffer(storage)[: size[0]]))

    def getsockname(self) -> Any:
        """As socket.getsockname()."""
        return super().getsockname() if self._sock is None else self._name(lib.pyvma_sock_getsockname)

    def getpeername(self) -> Any:
        """As socket.getpeername()."""
        return super().getpeername() if self._sock is None else self._name(lib.pyvma_sock_getpeername)

    def shutdown(self, how: int) -> None:
        """As socket.shutdown()."""
        sock = self._sock
        if sock is None or not hasattr(how, "__index__"):
            return super().shutdown(how)
        check(lib.pyvma_sock_shutdown(sock, how))
        return None

    # ---- options ----

    def setsockopt(self, *args: Any) -> None:
        """As socket.setsockopt(level, optname, value) and (level, optname, None, optlen)."""
        sock = self._sock
        if sock is None or not 3 <= len(args) <= 4 or (len(args) == 4) != (args[2] is None):
            return super().setsockopt(*args)
        try:
            level, name, value = operator.index(args[0]), operator.index(args[1]), args[2]
            if value is None:
                data, size = ffi.NULL, operator.index(args[3])
            elif hasattr(value, "__index__"):
                data, size = ffi.new("int *", operator.index(value)), ffi.sizeof("int")
            else:
                data = ffi.from_buffer(value)
                size = len(data)
            call = (level, name, data, size)
            ffi.new("int[3]", [level, name, size])
        except (TypeError, ValueError, OverflowError, BufferError):
            return super().setsockopt(*args)
        check(lib.pyvma_sock_setsockopt(sock, *call))
        return None

    def getsockopt(self, *args: Any) -> Any:
        """As socket.getsockopt(level, optname[, buflen])."""
        sock = self._sock
        if sock is None or not 2 <= len(args) <= 3:
            return super().getsockopt(*args)
        try:
            level, name, room = (*(operator.index(arg) for arg in args), 0)[:3]
            ffi.new("int[3]", [level, name, room])
        except (TypeError, OverflowError):
            return super().getsockopt(*args)
        if not 0 <= room <= 1024:
            return super().getsockopt(*args)
        data = ffi.new("char[]", room or ffi.sizeof("int"))
        size = ffi.new("socklen_t *", len(data))
        check(lib.pyvma_sock_getsockopt(sock, level, name, data, size))
        return bytes(ffi.buffer(data)[: size[0]]) if room else ffi.cast("int *", data)[0]

    # ---- messages ----

    def sendmsg(self, buffers: Any, ancdata: Any = (), flags: int = 0, address: Any = None, /) -> int:
        """As socket.sendmsg()."""
        sock = self._sock
        if sock is None:
            return super().sendmsg(buffers, ancdata, flags, address)
        try:
            buffers, ancdata = list(buffers), list(ancdata)
            pieces = [ffi.from_buffer(piece) for piece in buffers]
            control = _pack_control(ancdata)
            flags = operator.index(flags)
        except (TypeError, ValueError, struct.error, BufferError):
            return super().sendmsg(buffers, ancdata, flags, address)
        packed = b"" if address is None else parse_address(self.family, address)
        if packed is None:
            return super().sendmsg(buffers, ancdata, flags, address)
        sys.audit("socket.sendmsg", self, address)
        message = _Message(pieces, control, packed)
        flags = self._patient(flags)
        return self._wait(lib.pyvma_sock_sendmsg, sock, message.header, flags)

    def _recvmsg(self, pieces: list[Any], ancbufsize: int, flags: int) -> tuple[int, list[tuple[int, int, bytes]], int, Any]:
        message = _Message(pieces, bytearray(ancbufsize))
        n = self._wait(lib.pyvma_sock_recvmsg, self._sock, message.header, self._patient(flags))
        return n, message.received_control(), message.header.msg_flags, message.sender()

    def recvmsg(self, *args: Any) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        """As socket.recvmsg(bufsize[, ancbufsize[, flags]])."""
        try:
            bufsize, ancbufsize, flags = (*(operator.index(arg) for arg in args), 0, 0)[:3]
        except TypeError:
            bufsize = -1
        if self._sock is None or not 1 <= len(args) <= 3 or bufsize < 0 or not 0 <= ancbufsize <= _INT_MAX:
            return super().recvmsg(*args)
        data = ffi.new("char[]", min(bufsize, _DATAGRAM_MAX))
        n, control, answer, sender = self._recvmsg([data], ancbufsize, flags)
        return bytes(ffi.buffer(data)[:n]).ljust(n, b"\0"), control, answer, sender

    def recvmsg_into(self, *args: Any) -> tuple[int, list[tuple[int, int, bytes]], int, Any]:
        """As socket.recvmsg_into(buffers[, ancbufsize[, flags]])."""
        if self._sock is None or not 1 <= len(args) <= 3:
            return super().recvmsg_into(*args)
        try:
            args = (list(args[0]), *args[1:])
            pieces = [ffi.from_buffer(piece, require_writable=True) for piece in args[0]]
            ancbufsize, flags = (*(operator.index(arg) for arg in args[1:]), 0, 0)[:2]
        except (TypeError, BufferError):
            return super().recvmsg_into(*args)
        if not 0 <= ancbufsize <= _INT_MAX:
            return super().recvmsg_into(*args)
        return self._recvmsg(pieces, ancbufsize, flags)

    # ---- our own ----

    @property
    def offload(self) -> Offload:
        """The ring that carries this socket, or the reason why the kernel does."""
        sock = self._sock
        if sock is None:
            closed = _socket.socket.fileno(self) < 0
            return Offload("kernel", "closed" if closed else "only UDP over IPv4 and IPv6 is offloaded")
        text = ffi.new("char[256]")
        state = check(lib.pyvma_sock_offload(sock, text, len(text)))
        return Offload(_STATES[state], ffi.string(text).decode(errors="replace"))

    @property
    def stats(self) -> dict[str, int]:
        """The engine's counters of this socket, by name; empty for a socket that is the standard library's."""
        if self._sock is None:
            return {}
        row = ffi.new("struct pyvma_sock_stats *")
        check(lib.pyvma_sock_stats(self._sock, row))
        return {name: getattr(row, name) for name, _ in ffi.typeof("struct pyvma_sock_stats").fields}


def _rebind(function: Any) -> Any:
    """A function of the standard module that makes sockets, making ours."""
    made = types.FunctionType(function.__code__, _stdlib_names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__doc__ = function.__doc__
    made.__module__ = __name__
    return made


_stdlib_names = {**vars(_std), "socket": socket}
create_connection = _rebind(_std.create_connection)
create_server = _rebind(_std.create_server)
fromfd = _rebind(_std.fromfd)
socketpair = _rebind(_std.socketpair)
