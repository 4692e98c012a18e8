"""A drop-in for the standard library's `socket`.

Everything that `socket` exports is here, and the same objects wherever they have nothing to do with the socket class. A UDP socket of
AF_INET or AF_INET6 is the engine's to decide: offloaded when its address is on an offloaded interface, otherwise the kernel's;
`sock.offload` says which. So is a TCP socket, at bind, connect or listen; one that is the kernel's is the standard library's from then
on. Every other socket is the standard library's, method by method.

The class derives from the standard library's. Its kernel fd is the engine's kernel socket; a socket of the engine's has a handle beside
it, through which everything goes. A stream of the engine's has no fd until somebody asks for it: connections are not limited by how many
files a process may open.
"""

from __future__ import annotations

import _socket
import errno
import functools
import math
import operator
import os
import select
import socket as _std
import struct
import sys
import time
import types
import warnings
from collections.abc import Callable
from socket import *
from typing import Any, NamedTuple

from . import _native, _pacing, _stamps
from ._handback import HandBack
from ._native import check, explain, ffi, lib
from ._native import start as _start
from ._native._calls import Batch, Calls, Handle, Received, format_address, parse_address
from ._pacing import SO_PACING, SOL_PYVMA, PacedQueue, Pacing, pack_pacing
from ._stamps import Timestamps

# Those of stamps first: where the standard library has one of them, it is that.
globals().update(_stamps.NUMBERS)
# The private names too: programs use some, and so do the functions below.
globals().update({name: value for name, value in vars(_std).items() if not name.startswith("__")})
__all__ = [
    *dict.fromkeys([*_std.__all__, *_stamps.NUMBERS]),
    "SOL_PYVMA",
    "SO_PACING",
    "Batch",
    "Offload",
    "PacedQueue",
    "Pacing",
    "Received",
    "Timestamps",
    "pack_pacing",
]

_CREATION_FLAGS = _std.SOCK_NONBLOCK | _std.SOCK_CLOEXEC
_CMSG = struct.Struct("@Nii")
_CMSG_ALIGN = struct.calcsize("@N")
_DATAGRAM_MAX = 65536
_STREAM_MAX = 1 << 20  # a single recvmsg of a stream; more takes another call
_SENDFILE_PIECE = 1 << 18
_INT_MAX = 0x7FFFFFFF
_MISSING = object()
_NOT_OURS = "only UDP and TCP over IPv4 and IPv6 are offloaded"
_NO_TLS = (
    "SSLContext.wrap_socket() of the standard library works on the fd of a kernel socket, and an offloaded stream has none: use pyvma.ssl "
    "or pyvma.patch(), or wrap_bio() and carry its bytes by send() and recv()"
)


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


_PROTOCOLS = {_std.SOCK_DGRAM: _std.IPPROTO_UDP, _std.SOCK_STREAM: _std.IPPROTO_TCP}


def _offloads() -> bool:
    """Whether the engine has an interface at all; starts it."""
    _start()
    return bool(lib.pyvma_interface_get(1, ffi.new("struct pyvma_interface *")) >= 0)


def _is_ours(family: int, type: int, proto: int) -> bool:
    """Whether the engine is asked about such a socket at all."""
    try:
        plain = _std.SOCK_STREAM if type == -1 else type & ~_CREATION_FLAGS
    except TypeError:
        return False
    protocol = _PROTOCOLS.get(plain)  # type: ignore[call-overload]
    if protocol is None or family not in (_std.AF_INET, _std.AF_INET6, -1) or proto not in (0, -1, protocol):
        return False
    return plain == _std.SOCK_DGRAM or _offloads()


def _exported(fd: int) -> tuple[int, int, int] | None:
    """Family, type and protocol of the engine's socket that an fd stands for, which the fd itself does not tell: fileno() made it."""
    if not _native.is_started():
        return None
    out, size = ffi.new("pyvma_sock **"), ffi.new("socklen_t *", ffi.sizeof("int"))
    values = ffi.new("int[3]")
    check(lib.pyvma_sock_adopt(fd, out))
    try:
        for i, name in enumerate((_std.SO_DOMAIN, _std.SO_TYPE, _std.SO_PROTOCOL)):
            check(lib.pyvma_sock_getsockopt(out[0], _std.SOL_SOCKET, name, values + i, size))
    finally:
        check(lib.pyvma_sock_detach(out[0]))
    family, type, proto = values
    return (family, type, proto) if _is_ours(family, type, proto) else None


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


def _pack_control(items: Any) -> bytes | None:
    """Ancillary data as the system takes it; None when it is not (level, type, data) each."""
    out = bytearray()
    for item in items:
        if not isinstance(item, tuple) or len(item) != 3:
            return None
        level, kind, data = _c_int(item[0]), _c_int(item[1]), _from_buffer(item[2])
        if level is None or kind is None or data is None:
            return None
        out += bytes(-len(out) % _CMSG_ALIGN) + _CMSG.pack(_CMSG.size + len(data), level, kind) + bytes(ffi.buffer(data))
    return bytes(out)


def _integer(value: Any, lowest: int, highest: int) -> int | None:
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if lowest <= number <= highest else None


def _c_int(value: Any) -> int | None:
    """The int of C that an argument is; None when it is none."""
    return _integer(value, -_INT_MAX - 1, _INT_MAX)


def _c_ssize(value: Any) -> int | None:
    return _integer(value, -sys.maxsize - 1, sys.maxsize)


def _from_buffer(value: Any, writable: bool = False) -> Any:
    """The memory of a bytes-like object, held as long as the result; None when there is none."""
    try:
        return ffi.from_buffer(value, require_writable=writable)
    except (TypeError, BufferError, ValueError):
        return None


def _listed(items: Any) -> Any:
    """Items that can be gone through twice, should the standard library have to; None when they cannot be gone through."""
    try:
        return items if isinstance(items, list | tuple) else list(items)
    except TypeError:
        return None


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


_template = -1
"""The fd of any kernel socket: `_socket.socket` takes family, type and protocol only together with one."""


def _template_fd(fresh: bool = False) -> int:
    """`fresh`: somebody closed the number, and it may be another file's by now."""
    global _template
    if _template < 0 or fresh:
        _template = _socket.socket(_std.AF_INET, _std.SOCK_STREAM).detach()
    return _template


def _face(fewest: int, most: int) -> Callable[[Callable[..., Any]], Any]:
    """Makes a method of that many arguments the engine's for sockets that have a handle.

    All others, wrong numbers of arguments, and arguments that the method answers with NotImplemented, go to the standard library's
    method of the same name: it says what is wrong in its own words.
    """

    def decorate(method: Callable[..., Any]) -> Any:
        theirs = getattr(_std.socket, method.__name__)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self._sock is not None and not kwargs and fewest <= len(args) <= most:
                try:
                    result = method(self, *args)
                except OSError as error:
                    # Another thread's bind or connect may have left the socket to the kernel meanwhile.
                    if error.errno != errno.EBADF or self._sock is not None or _socket.socket.fileno(self) < 0:
                        raise
                else:
                    if result is not NotImplemented:
                        return result
            self._number()
            return theirs(self, *args, **kwargs)

        return call

    return decorate


class socket(HandBack, Calls, _std.socket):  # type: ignore[no-redef]
    """As `socket.socket`, with `offload`, `pacing`, `stats`, `hand_back`, `recv_batch` and `send_batch` of its own."""

    __slots__ = ("_handle", "_sock", "_told", "_why")
    __module__ = "pyvma.socket"

    _handle: Handle | None
    _sock: Any
    _told: bool
    _why: str

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        self._handle = self._sock = None
        self._why = _NOT_OURS
        if fileno is not None or not _is_ours(family, type, proto):
            super().__init__(family, type, proto, fileno)
            if self.type == _std.SOCK_STREAM and _socket.socket.family.__get__(self) in (_std.AF_INET, _std.AF_INET6):
                self._why = _native.NO_INTERFACE
            if not _is_ours(_socket.socket.family.__get__(self), self.type, self.proto):
                found = _exported(fileno) if fileno is not None and family == -1 else None
                if found is None:
                    return
                super().__init__(*found, fileno)
            out = ffi.new("pyvma_sock **")
            _start()
            check(lib.pyvma_sock_adopt(super().fileno(), out))
        else:
            out = ffi.new("pyvma_sock **")
            family, proto = _std.AF_INET if family == -1 else family, 0 if proto == -1 else proto
            type = _std.SOCK_STREAM if type == -1 else type
            _start()
            check(lib.pyvma_sock_open(family, type | _std.SOCK_CLOEXEC, proto, out))
            if type & ~_CREATION_FLAGS == _std.SOCK_STREAM:
                self._begin(out[0], family, type, proto)
                return
            try:
                super().__init__(family, type, proto, lib.pyvma_sock_fd(out[0]))
            except BaseException:
                lib.pyvma_sock_close(out[0])
                raise
        self._put(out[0])
        if fileno is not None:
            self._settle()

    # ---- life ----

    def _begin(self, sock: Any, family: int, type: int, proto: int) -> None:
        """Becomes a stream of the engine's without an fd; `sock` is closed when that fails."""
        self._handle = self._sock = None
        self._why = ""
        try:
            try:
                super().__init__(family, type, proto, _template_fd())
            except OSError:
                super().__init__(family, type, proto, _template_fd(fresh=True))
            finally:
                _socket.socket.detach(self)
            self._put(sock)
        except BaseException:
            self._handle = self._sock = None
            lib.pyvma_sock_close(sock)
            raise

    def _take_number(self, number: int) -> int:
        """Makes the fd this object's, as the standard library sees it."""
        if _socket.socket.fileno(self) != number:
            timeout = super().gettimeout()
            _socket.socket.__init__(self, self.family, self.type, self.proto, number)
            super().settimeout(timeout)
        return number

    def _number(self) -> int:
        """The fd, which is made if there is none, however ready it shows to be."""
        number, sock = _socket.socket.fileno(self), self._sock
        return number if number >= 0 or sock is None else self._take_number(check(lib.pyvma_sock_fd(sock)))

    def _open_sock(self) -> Any:
        """The engine's socket; another thread, or an argument's __index__, may have closed it since the call began."""
        sock = self._sock
        if sock is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return sock

    def _put(self, sock: Any) -> None:
        """Makes the engine's socket this object's."""
        self._sock, self._told = sock, False
        self._handle = Handle(int(ffi.cast("uintptr_t", sock)), _socket.socket.family.__get__(self))
        self._handle.stream = self.type == _std.SOCK_STREAM
        self._take_timeout()

    def _take(self) -> Any:
        """Takes the engine's socket from this object, once; None when there is none."""
        pointer = 0 if self._handle is None else self._handle.take()
        self._sock = None
        return ffi.cast("pyvma_sock *", pointer) if pointer else None

    def _release(self, why: str) -> None:
        """Leaves a stream to the standard library for good. Other threads find it with an fd all the time."""
        sock = self._sock
        if sock is None:
            return
        self._take_number(check(lib.pyvma_sock_fd(sock)))
        taken = self._take()
        if taken is not None:
            self._handle, self._why = None, why
            check(lib.pyvma_sock_detach(taken))

    def _settle(self) -> None:
        """A stream that turned out to be the kernel's is the standard library's from now on."""
        if self._handle is not None and self._handle.stream:
            offload = self.offload
            if offload.state == "kernel":
                self._release(offload.text)

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
            try:
                self._take_number(check(lib.pyvma_sock_detach(taken)))
            except OSError:  # nothing has changed
                self._put(taken)
                raise
        return super().detach()

    def __del__(self) -> None:
        if _socket.socket.fileno(self) < 0 and getattr(self, "_sock", None) is None:
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
        """The fd, which stock select, selectors and event loops can watch. -1 when closed.

        Of an offloaded stream no data goes through it: OSError(EOPNOTSUPP) for the `ssl` module, which would try to.
        """
        sock = self._sock
        if sock is not None and sys._getframe(1).f_globals.get("__name__") == "ssl" and self.type == _std.SOCK_STREAM and self.offload:
            raise OSError(errno.EOPNOTSUPP, _NO_TLS)
        if sock is None:
            return super().fileno()
        self._told = True
        return self._take_number(check(lib.pyvma_sock_fileno(sock)))

    def _tell_again(self) -> None:
        """A number that was told before the socket became the engine's shows from now on how ready that is."""
        sock = self._sock
        if sock is not None and self._told:
            check(lib.pyvma_sock_fileno(sock))

    def dup(self) -> Any:
        """As socket.dup(): one socket, two objects."""
        sock = self._sock
        if sock is None:
            return super().dup()
        out = ffi.new("pyvma_sock **")
        check(lib.pyvma_sock_dup(sock, out))
        try:
            fd = check(lib.pyvma_sock_detach(out[0]))
        except OSError:
            lib.pyvma_sock_close(out[0])
            raise
        try:
            copy = self.__class__(self.family, self.type, self.proto, fileno=fd)
        except BaseException:
            os.close(fd)
            raise
        copy.settimeout(self.gettimeout())
        return copy

    def accept(self) -> tuple[Any, Any]:
        """As socket.accept(), with a socket of this module."""
        if self._sock is None:
            fd, address = self._accept()  # type: ignore[attr-defined]
            sock = _accepted(self.family, self.type, self.proto, fileno=fd)
        else:
            sock, address = self._accept_ours()
        if _std.getdefaulttimeout() is None and self.gettimeout():
            sock.setblocking(True)
        return sock, address

    def _accept_ours(self) -> tuple[Any, Any]:
        sock, out = self._open_sock(), ffi.new("pyvma_sock **")
        storage = ffi.new("struct sockaddr_storage *")
        size = ffi.new("socklen_t *", ffi.sizeof("struct sockaddr_storage"))
        name = ffi.cast("struct sockaddr *", storage)
        self._wait(lambda timeout_ns: lib.pyvma_sock_accept(sock, name, size, _std.SOCK_CLOEXEC, timeout_ns, out))
        if lib.pyvma_sock_offload(out[0], ffi.NULL, 0) == lib.PYVMA_OFFLOADED:
            made: Any = _accepted.__new__(_accepted)
            made._begin(out[0], self.family, self.type, self.proto)
        else:  # it came by the kernel
            made = _accepted(self.family, self.type, self.proto, fileno=check(lib.pyvma_sock_detach(out[0])))
        return made, format_address(bytes(ffi.buffer(storage)[: size[0]]))

    @_face(0, 1)
    def listen(self, backlog: int = 128) -> Any:
        """As socket.listen([backlog])."""
        number = _c_int(backlog)
        if number is None:
            return NotImplemented
        check(lib.pyvma_sock_listen(self._open_sock(), number))
        self._settle()
        self._tell_again()
        return None

    def _sendfile_use_sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> Any:
        """os.sendfile() knows kernel sockets only: a stream of the engine's takes the file's bytes by way of one buffer."""
        if self._sock is None:
            return super()._sendfile_use_sendfile(file, offset, count)  # type: ignore[misc]
        self._check_sendfile_params(file, offset, count)  # type: ignore[attr-defined]
        if self.gettimeout() == 0:
            raise ValueError("non-blocking sockets are not supported")
        try:
            number = file.fileno()
            size = os.fstat(number).st_size
        except (AttributeError, OSError) as error:  # not a regular file: the standard library's other way is for it
            raise _std._GiveupOnSendfile(error) from None  # type: ignore[attr-defined]
        if size == 0:
            return 0
        left = sys.maxsize if count is None else count
        at, room = offset, memoryview(bytearray(min(left, size, _SENDFILE_PIECE)))
        try:
            while left > 0:
                try:
                    n = os.preadv(number, [room[:left]], at)
                except OSError as error:
                    if at == offset:
                        raise _std._GiveupOnSendfile(error) from None  # type: ignore[attr-defined]
                    raise
                if n == 0:
                    break
                n = self.send(room[:n])
                at, left = at + n, left - n
            return at - offset
        finally:
            if at > offset and hasattr(file, "seek"):
                file.seek(at)

    def get_inheritable(self) -> bool:
        """As socket.get_inheritable()."""
        return os.get_inheritable(self._number())

    def set_inheritable(self, inheritable: bool) -> None:
        """As socket.set_inheritable()."""
        os.set_inheritable(self._number(), inheritable)

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
            self._keep_timeout(super().settimeout, timeout)

    def _keep_timeout(self, keep: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """The standard library takes note of a timeout, and then sets the fd's flag: with no fd yet that is for later."""
        try:
            keep(*args, **kwargs)
        except OSError as error:
            if error.errno != errno.EBADF or self._sock is None or _socket.socket.fileno(self) >= 0:
                raise

    def settimeout(self, *args: Any, **kwargs: Any) -> None:
        """As socket.settimeout(value)."""
        self._keep_timeout(super().settimeout, *args, **kwargs)
        self._take_timeout()

    def setblocking(self, *args: Any, **kwargs: Any) -> None:
        """As socket.setblocking(flag)."""
        self._keep_timeout(super().setblocking, *args, **kwargs)
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
            if rc == -errno.EAGAIN and deadline:
                raise TimeoutError("timed out")
            if rc != -errno.EINTR:
                return check(rc)
            if deadline:
                timeout_ns = deadline - time.monotonic_ns()
                if timeout_ns <= 0:
                    raise TimeoutError("timed out")

    # ---- names ----

    @_face(1, 1)
    def bind(self, address: Any) -> Any:
        """As socket.bind(address)."""
        packed = parse_address(self.family, address)
        if packed is None:
            return NotImplemented
        sys.audit("socket.bind", self, address)
        check(lib.pyvma_sock_bind(self._open_sock(), _sockaddr(packed), len(packed)))
        self._settle()
        self._tell_again()
        return None

    def _connect(self, address: Any) -> Any:
        packed = parse_address(self.family, address)
        if packed is None:
            return NotImplemented
        sys.audit("socket.connect", self, address)
        handle, sock = self._handle, self._sock
        if handle is None or sock is None:  # closed meanwhile; connect_ex() returns that, too
            return -errno.EBADF
        if not handle.stream:
            return lib.pyvma_sock_connect(sock, _sockaddr(packed), len(packed), handle.timeout_ns)
        state: int = lib.pyvma_sock_would(sock, _sockaddr(packed), len(packed))
        if state == lib.PYVMA_KERNEL:
            offload = self.offload
            self._release(offload.text if offload.state == "kernel" else f"address {address[0]} is the kernel's")
            return NotImplemented
        if state < 0:
            return state
        return self._connect_stream(sock, packed, handle.timeout_ns)

    def _connect_stream(self, sock: Any, packed: bytes, timeout_ns: int) -> int:
        """A signal in between runs its handler; the handshake goes on meanwhile, and is waited for again."""
        deadline = time.monotonic_ns() + timeout_ns
        rc: int = lib.pyvma_sock_connect(sock, _sockaddr(packed), len(packed), timeout_ns)
        while rc == -errno.EINTR:
            left = -1 if timeout_ns < 0 else max(deadline - time.monotonic_ns(), 0)
            rc = lib.pyvma_sock_poll(sock, select.POLLOUT, left)
            if rc >= 0:
                rc = -self.getsockopt(_std.SOL_SOCKET, _std.SO_ERROR) if rc else -errno.EINPROGRESS
        return rc

    @_face(1, 1)
    def connect(self, address: Any) -> Any:
        """As socket.connect(address)."""
        rc = self._connect(address)
        self._tell_again()
        if rc == -errno.EINPROGRESS and self.gettimeout():
            raise TimeoutError("timed out")
        return rc if rc is NotImplemented else check(rc) or None

    @_face(1, 1)
    def connect_ex(self, address: Any) -> Any:
        """As socket.connect_ex(address): the error's number, 0 for none."""
        rc = self._connect(address)
        self._tell_again()
        if rc == -errno.EINPROGRESS and self.gettimeout():
            return errno.EAGAIN
        return rc if rc is NotImplemented else -rc

    def _name(self, call: Any) -> Any:
        storage = ffi.new("struct sockaddr_storage *")
        size = ffi.new("socklen_t *", ffi.sizeof("struct sockaddr_storage"))
        check(call(self._open_sock(), ffi.cast("struct sockaddr *", storage), size))
        return format_address(bytes(ffi.buffer(storage)[: size[0]]))

    @_face(0, 0)
    def getsockname(self) -> Any:
        """As socket.getsockname()."""
        return self._name(lib.pyvma_sock_getsockname)

    @_face(0, 0)
    def getpeername(self) -> Any:
        """As socket.getpeername()."""
        return self._name(lib.pyvma_sock_getpeername)

    @_face(1, 1)
    def shutdown(self, how: int) -> Any:
        """As socket.shutdown(how)."""
        number = _c_int(how)
        if number is None:
            return NotImplemented
        check(lib.pyvma_sock_shutdown(self._open_sock(), number))
        return None

    # ---- options ----

    @_face(3, 4)
    def setsockopt(self, level: int, name: int, value: Any, size: Any = _MISSING) -> Any:
        """As socket.setsockopt(level, name, value) and (level, name, None, size)."""
        level_number, name_number = _c_int(level), _c_int(name)
        if level_number is None or name_number is None or (size is _MISSING) == (value is None):
            return NotImplemented
        number = _c_int(value)
        if value is None:
            data, room = ffi.NULL, _c_int(size)
        elif number is not None:
            data, room = ffi.new("int *", number), ffi.sizeof("int")
        else:
            data = _from_buffer(value)
            room = None if data is None else len(data)
        if room is None or room < 0:
            return NotImplemented
        check(lib.pyvma_sock_setsockopt(self._open_sock(), level_number, name_number, data, room))
        return None

    @_face(2, 3)
    def getsockopt(self, level: int, name: int, size: int = 0) -> Any:
        """As socket.getsockopt(level, name[, size])."""
        level_number, name_number, room = _c_int(level), _c_int(name), _c_int(size)
        if level_number is None or name_number is None or room is None or not 0 <= room <= 1024:
            return NotImplemented
        data = ffi.new("char[]", room or ffi.sizeof("int"))
        length = ffi.new("socklen_t *", len(data))
        check(lib.pyvma_sock_getsockopt(self._open_sock(), level_number, name_number, data, length))
        return bytes(ffi.buffer(data)[: length[0]]) if room else ffi.cast("int *", data)[0]

    # ---- messages ----

    @_face(1, 4)
    def sendmsg(self, buffers: Any, ancdata: Any = (), flags: Any = 0, address: Any = None) -> Any:
        """As socket.sendmsg(buffers[, ancdata[, flags[, address]]])."""
        number, buffers_list, ancdata_list = _c_int(flags), _listed(buffers), _listed(ancdata)
        if number is None or buffers_list is None or ancdata_list is None:
            return NotImplemented
        pieces, control = [_from_buffer(piece) for piece in buffers_list], _pack_control(ancdata_list)
        packed = b"" if address is None else parse_address(self.family, address)
        if None in pieces or control is None or packed is None:
            return super().sendmsg(buffers_list, ancdata_list, flags, address)
        sys.audit("socket.sendmsg", self, address)
        message = _Message(pieces, control, packed)
        return self._wait(lib.pyvma_sock_sendmsg, self._open_sock(), message.header, self._patient(number))

    def _recvmsg(self, pieces: list[Any], ancbufsize: int, flags: int) -> tuple[int, list[tuple[int, int, bytes]], int, Any]:
        message = _Message(pieces, bytearray(ancbufsize))
        if flags & _std.MSG_ERRQUEUE and self._handle is not None and self._handle.timeout_ns > 0:
            # The engine never waits for an error; the standard library's sockets do, as for anything, when they have a timeout.
            sock = self._open_sock()
            if not self._wait(lambda timeout_ns: lib.pyvma_sock_poll(sock, 0, timeout_ns)):
                raise TimeoutError("timed out")
        n = self._wait(lib.pyvma_sock_recvmsg, self._open_sock(), message.header, self._patient(flags))
        return n, message.received_control(), message.header.msg_flags, message.sender()

    @_face(1, 3)
    def recvmsg(self, bufsize: int, ancbufsize: int = 0, flags: int = 0) -> Any:
        """As socket.recvmsg(bufsize[, ancbufsize[, flags]])."""
        size, room, number = _c_ssize(bufsize), _c_int(ancbufsize), _c_int(flags)
        if size is None or room is None or number is None or size < 0 or room < 0:
            return NotImplemented
        most = _DATAGRAM_MAX
        if self._handle is not None and self._handle.stream:
            most = sys.maxsize if number & _std.MSG_WAITALL else _STREAM_MAX
        data = ffi.new("char[]", min(size, most))
        n, control, answer, sender = self._recvmsg([data], room, number)
        return bytes(ffi.buffer(data)[:n]).ljust(n, b"\0"), control, answer, sender

    @_face(1, 3)
    def recvmsg_into(self, buffers: Any, ancbufsize: int = 0, flags: int = 0) -> Any:
        """As socket.recvmsg_into(buffers[, ancbufsize[, flags]])."""
        room, number, buffers_list = _c_int(ancbufsize), _c_int(flags), _listed(buffers)
        if room is None or number is None or room < 0 or buffers_list is None:
            return NotImplemented
        pieces = [_from_buffer(piece, writable=True) for piece in buffers_list]
        if None in pieces:
            return super().recvmsg_into(buffers_list, room, number)
        return self._recvmsg(pieces, room, number)

    # ---- our own ----

    @property
    def offload(self) -> Offload:
        """The ring that carries this socket, or the reason why the kernel does."""
        sock = self._sock
        if sock is None:
            closed = _socket.socket.fileno(self) < 0
            return Offload("kernel", "closed" if closed else explain(self._why))
        text = ffi.new("char[256]")
        state = check(lib.pyvma_sock_offload(sock, text, len(text)))
        return Offload(_STATES[state], ffi.string(text).decode(errors="replace"))

    @property
    def pacing(self) -> Pacing:
        """What SO_MAX_PACING_RATE holds this socket to, and who does that on each interface it sends by."""
        return _pacing.of_kernel(super(), self._why) if (sock := self._sock) is None else _pacing.of_engine(sock)

    @property
    def timestamps(self) -> Timestamps:
        """Where the stamps that SO_TIMESTAMPING tells come from, and how good the device's are: `str()` of it says so in a line."""
        return _stamps.SOFTWARE if self._sock is None else _stamps.timestamps(self._sock)

    @property
    def stats(self) -> dict[str, int]:
        """The engine's counters of this socket, by name; empty for a socket that is the standard library's."""
        sock = self._sock
        if sock is None:
            return {}
        row = ffi.new("struct pyvma_sock_stats *")
        check(lib.pyvma_sock_stats(sock, row))
        return {name: getattr(row, name) for name, _ in ffi.typeof("struct pyvma_sock_stats").fields}


_native._calls.bind(socket)

_accepted: Any = socket
"""The class of what accept() makes; while the standard library is patched, the one that stands there."""


def _rebind(function: Any) -> Any:
    """A function of the standard module that makes sockets, with this module's names: it makes ours."""
    made = types.FunctionType(function.__code__, globals(), function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__doc__ = function.__doc__
    return made


create_connection = _rebind(_std.create_connection)
create_server = _rebind(_std.create_server)
fromfd = _rebind(_std.fromfd)
socketpair = _rebind(_std.socketpair)
