"""A drop-in for the standard library's `ssl`, whose sockets may be offloaded streams.

Everything that `ssl` exports is here. `SSLContext.wrap_socket()` makes the SSLSocket of this module, which is the standard library's in
all but one thing: the TLS of an offloaded stream, whose bytes pass no fd, is carried by memory between OpenSSL and the engine. The TLS
of a stream that is the kernel's goes through its fd as ever. `wrap_bio()` has nothing to do with sockets and is the same.
"""

from __future__ import annotations

import errno
import select
import socket as _std_socket
import ssl as _std
import threading
import time
import types
import weakref
from collections.abc import Callable
from ssl import *
from typing import Any

from . import socket as _our_socket
from ._native import check, ffi, lib

# The private names too: programs use some, and so do the functions below.
globals().update({name: value for name, value in vars(_std).items() if not name.startswith("__")})
__all__ = [name for name in vars(_std) if not name.startswith("_")]

# By name: pyvma.patch() sets ours in the modules.
_Standard: Any = _std.SSLSocket
_Stream: Any = _our_socket.socket
_Plain: Any = _std_socket.socket
_recv, _recv_into, _send = _Stream.recv, _Stream.recv_into, _Stream.send

_HEADER = 5  # type, version, length: RFC 8446 section 5.1
_RECORD_MAX = 16384 + 2048  # RFC 5246 section 6.2.3
_TYPES = range(20, 25)
_SMALL = 2048
_PIECE = 1 << 18  # of a large write, so much is encrypted and sent at a time

_buffers: list[bytearray] = []
"""For the bodies of records; whoever receives takes one."""


def _want(what: str) -> SSLError:
    text = f"The operation did not complete ({what})"
    return SSLWantReadError(SSL_ERROR_WANT_READ, text) if what == "read" else SSLWantWriteError(SSL_ERROR_WANT_WRITE, text)


def _late(error: TimeoutError, name: str) -> TimeoutError:
    """The standard library's words for a timeout of its own; a connection that timed out has a number."""
    return TimeoutError(f"The {name} operation timed out") if error.errno is None else error


def _is_small(data: Any) -> bool:
    """Whether OpenSSL may have it in one piece, and say what is wrong with it."""
    if isinstance(data, bytes | bytearray):
        return len(data) <= _PIECE
    return not isinstance(data, memoryview) or data.nbytes <= _PIECE


def _within(call: Callable[..., int], deadline: int, *args: Any) -> int:
    """Makes a call of the engine whose last argument is the time to wait, until the deadline."""
    while True:
        left = deadline - time.monotonic_ns()
        if left <= 0:
            raise TimeoutError("timed out")
        rc = call(*args, left)
        if rc != -errno.EINTR:
            return rc if rc == -errno.EAGAIN else check(rc)


class _Tunnel:
    """The TLS of an offloaded stream: what `_ssl._SSLSocket`, in whose place it stands, is to a socket with an fd.

    OpenSSL reads and writes memory. Sending is immediate: a call sends what OpenSSL made of its data before it returns. Receiving takes
    one record at a time and never more, as OpenSSL does with an fd: what the application has not asked for stays with the engine, so
    that the socket is readable for select() as long as there is a record, and what follows the end of TLS is left for plain recv().

    Threads may read and write at once: OpenSSL is in the hands of one at a time, nobody waits for the network with it. Reading and
    writing have locks of their own; what reading makes OpenSSL say is sent by whoever writes at that time.
    """

    __slots__ = (
        "__weakref__",
        "_flowing",
        "_head",
        "_incoming",
        "_lock",
        "_missing",
        "_outgoing",
        "_owner",
        "_receiving",
        "_rest",
        "_sending",
        "_tls",
        "_written",
    )

    def __init__(self, owner: Any, context: Any, server_side: bool, server_hostname: str | None, session: Any) -> None:
        self._incoming, self._outgoing = MemoryBIO(), MemoryBIO()
        self._tls = context._wrap_bio(self._incoming, self._outgoing, server_side, server_hostname, owner=owner, session=session)
        self._owner = weakref.ref(owner)  # which has this object
        self._lock, self._sending, self._receiving = threading.Lock(), threading.Lock(), threading.Lock()
        self._flowing = False  # the next thing to come is a record of data, as far as one can tell
        self._head, self._missing = b"", 0  # of the record that is being received: its header so far, the size of its body still to come
        self._rest: Any = b""  # encrypted and not yet sent
        self._written = 0  # so much of the data of the write under way is encrypted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tls, name)

    @property
    def context(self) -> Any:
        return self._tls.context

    @context.setter
    def context(self, context: Any) -> None:
        self._tls.context = context

    @property
    def session(self) -> Any:
        return self._tls.session

    @session.setter
    def session(self, session: Any) -> None:
        self._tls.session = session

    # ---- between OpenSSL and the engine ----

    def _begin(self) -> tuple[Any, int]:
        """The socket, and when its timeout for a call is over: 0 at once, -1 never."""
        sock = self._owner()
        handle = sock and sock._handle
        if not handle:
            raise OSError(errno.EBADF, "Underlying socket connection gone")
        timeout_ns: int = handle.timeout_ns
        return sock, timeout_ns if timeout_ns <= 0 else time.monotonic_ns() + timeout_ns

    def _acquire(self, lock: Any, deadline: int) -> None:
        if not lock.acquire(timeout=-1 if deadline <= 0 else max(deadline - time.monotonic_ns(), 0) / 1e9):
            raise TimeoutError("timed out")

    def _drain(self, sock: Any, deadline: int) -> None:
        """Sends what OpenSSL has written; `_sending` is held. SSLWantWriteError when the stream takes no more for now."""
        while True:
            rest = self._rest or self._outgoing.read()
            if not rest:
                return
            self._rest = rest
            if deadline > 0:
                n = _within(lib.pyvma_sock_send, deadline, sock._open_sock(), ffi.from_buffer(rest), len(rest), 0)
                if n < 0:
                    raise TimeoutError("timed out")
            else:
                try:
                    n = _send(sock, rest)
                except BlockingIOError:
                    raise _want("write") from None
            self._rest = memoryview(rest)[n:] if n < len(rest) else b""

    def _answer(self, sock: Any, deadline: int) -> None:
        """The same without the lock; a thread that is writing does it as well."""
        while (self._rest or self._outgoing.pending) and self._sending.acquire(blocking=False):
            try:
                self._drain(sock, deadline)
            finally:
                self._sending.release()

    def _take(self, sock: Any, size: int) -> int:
        """Receives up to that many bytes of a body for OpenSSL; 0 at the end of the stream."""
        if size <= _SMALL:
            data = _recv(sock, size)
            self._incoming.write(data)
            return len(data)
        buffer = _buffers.pop() if _buffers else bytearray(_RECORD_MAX)
        try:
            n: int = _recv_into(sock, buffer, size)
            with memoryview(buffer) as view, view[:n] as came:
                self._incoming.write(came)
        finally:
            _buffers.append(buffer)
        return n

    def _take_header(self, sock: Any) -> int:
        """The same of a header, which says how long the body is."""
        data = _recv(sock, _HEADER - len(self._head))
        self._incoming.write(data)
        head = self._head + data
        if len(head) < _HEADER:
            self._head = head
            return len(data)
        self._head = b""
        size = head[3] << 8 | head[4]
        if head[0] in _TYPES and head[1] == 3 and size <= _RECORD_MAX:
            self._missing = size
        elif head[0] & 0x80 and head[2] == 1:  # the hello of SSL 2.0, whose header has two bytes
            self._missing = max((head[0] & 0x7F) << 8 | head[1], 3) - 3
        return _HEADER

    def _receive(self, sock: Any, deadline: int, first: bool = False) -> None:
        """Receives what is missing of a record: all of it, or until the stream has no more for now (SSLWantReadError) or is at its end.

        What is no record is left to OpenSSL to find fault with. `first`: nothing of the timeout is used up.
        """
        if not self._receiving.acquire(blocking=False):
            self._acquire(self._receiving, deadline)  # somebody else receives: what came may be what is needed
            self._receiving.release()
            return
        try:
            while True:
                if deadline > 0 and not first and _within(lib.pyvma_sock_poll, deadline, sock._open_sock(), select.POLLIN) <= 0:
                    raise TimeoutError("timed out")
                first = False
                try:
                    if self._missing:
                        n = self._take(sock, self._missing)
                        self._missing -= n
                    else:
                        n = self._take_header(sock)
                except BlockingIOError:
                    raise _want("read") from None
                if not n:
                    self._flowing = False
                    self._incoming.write_eof()
                if not n or not (self._missing or self._head):
                    return
        finally:
            self._receiving.release()

    # ---- the calls of _ssl._SSLSocket ----

    def _run(self, call: Callable[[], Any], name: str) -> Any:
        sock, deadline = self._begin()
        try:
            while True:
                result, done = None, True
                try:
                    with self._lock:
                        result = call()
                except SSLWantReadError:
                    done = False
                except OSError:
                    self._answer_quietly(sock)
                    raise
                self._answer(sock, deadline)
                if done:
                    return result
                self._receive(sock, deadline)
        except TimeoutError as error:
            raise _late(error, name) from None

    def _answer_quietly(self, sock: Any) -> None:
        """The same for what need not be sent: the alert that goes with an error, an answer that can wait for the next call."""
        try:
            self._answer(sock, 0)
        except OSError:
            pass

    def do_handshake(self) -> None:
        self._run(self._tls.do_handshake, "handshake")
        self._flowing = True

    def shutdown(self) -> Any:
        self._flowing = False
        self._run(self._tls.shutdown, "read")
        return self._owner()

    def read(self, size: int, *buffer: Any) -> Any:
        sock, deadline = self._begin()
        tls, first = self._tls, True
        try:
            if self._flowing and size > 0 and not (tls.pending() or self._incoming.pending or self._outgoing.pending or self._rest):
                self._receive(sock, deadline, first)
                first = False
            while True:
                try:
                    with self._lock:
                        result = tls.read(size, *buffer)
                except SSLWantReadError:
                    pass
                except OSError:
                    self._flowing = False
                    self._answer_quietly(sock)
                    raise
                else:
                    if not result:
                        self._flowing = False
                    if self._outgoing.pending:
                        self._answer_quietly(sock)
                    return result
                self._answer(sock, deadline)
                self._receive(sock, deadline, first)
                first = False
        except TimeoutError as error:
            raise _late(error, "read") from None

    def write(self, data: Any) -> int:
        """All of it, as OpenSSL does. What SSLWantWriteError or a timeout cut short has to be tried again with the same data."""
        sock, deadline = self._begin()
        try:
            self._acquire(self._sending, deadline)
            try:
                if self._written and self._written > memoryview(data).nbytes:
                    raise SSLError(SSL_ERROR_SSL, "bad write retry")
                self._drain(sock, deadline)
                if not self._written and _is_small(data):
                    self._written = self._encrypt(sock, data, deadline)
                    self._drain(sock, deadline)
                else:
                    self._write_pieces(sock, data, deadline)
                n, self._written = self._written, 0
            finally:
                self._sending.release()
            if self._outgoing.pending:
                self._answer(sock, deadline)
        except TimeoutError as error:
            raise _late(error, "write") from None
        return n

    def _write_pieces(self, sock: Any, data: Any, deadline: int) -> None:
        with memoryview(data) as whole, whole.cast("B") as view:
            while self._written < len(view):
                with view[self._written : self._written + _PIECE] as piece:
                    self._written += self._encrypt(sock, piece, deadline)
                self._drain(sock, deadline)

    def _encrypt(self, sock: Any, data: Any, deadline: int) -> int:
        """Gives data to OpenSSL, which may have to finish a handshake before."""
        while True:
            try:
                with self._lock:
                    n: int = self._tls.write(data)
                return n
            except SSLWantReadError:
                pass
            self._drain(sock, deadline)
            self._receive(sock, deadline)


class SSLSocket(_Standard, _Stream):  # type: ignore[misc, no-redef]
    """As `ssl.SSLSocket`, over an offloaded stream or one of the kernel's; `offload` says which."""

    __module__ = "pyvma.ssl"

    _connected: Any
    _sslobj: Any

    @classmethod
    def _create(
        cls,
        sock: Any,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | None = None,
        context: Any = None,
        session: Any = None,
    ) -> Any:
        if sock.getsockopt(SOL_SOCKET, SO_TYPE) != SOCK_STREAM:
            raise NotImplementedError("only stream sockets are supported")
        if server_side and server_hostname:
            raise ValueError("server_hostname can only be specified in client mode")
        if server_side and session is not None:
            raise ValueError("session can only be specified in client mode")
        if context.check_hostname and not server_hostname:
            raise ValueError("check_hostname requires server_hostname")
        self = cls.__new__(cls)
        timeout = sock.gettimeout()
        self._move(sock)
        self._context, self._session, self._sslobj = context, session, None
        self.server_side, self.server_hostname = server_side, context._encode_hostname(server_hostname)
        self.do_handshake_on_connect, self.suppress_ragged_eofs = do_handshake_on_connect, suppress_ragged_eofs
        self._connected = self._is_connected()
        self.settimeout(timeout)
        if self._connected:
            try:
                self._sslobj = self._wrapped()
                if do_handshake_on_connect:
                    if timeout == 0.0:
                        raise ValueError("do_handshake_on_connect should not be specified for non-blocking sockets")
                    self.do_handshake()
            except (OSError, ValueError):
                self.close()
                raise
        return self

    def _move(self, sock: Any) -> None:
        """Takes a stream from its object, which is left as detach() leaves it. An offloaded one needs no fd for that."""
        family, kind, proto = sock.family, sock.type, sock.proto
        taken = sock._take() if isinstance(sock, _Stream) else None
        if taken is None:
            _Stream.__init__(self, family, kind, proto, sock.fileno())
            sock.detach()
        else:
            _Plain.detach(sock)
            self._begin(taken, family, kind, proto)
        self._closed = False

    def _is_connected(self) -> bool:
        """Whether the stream is. Of one that is not any more, data that had come must not pass for what came by TLS."""
        if self._sock is not None:
            check(lib.pyvma_sock_poll(self._sock, select.POLLIN, 0))  # what has arrived counts
        try:
            self.getpeername()
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise
        else:
            return True
        self.setblocking(False)
        try:
            came = bool(_recv(self, 1))
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.EINVAL):
                raise
            came = False
        if came:
            reason = "Closed before TLS handshake with data in recv buffer."
            failure = SSLError(errno.ENOTCONN, reason)
            failure.reason, failure.library = reason, None  # type: ignore[assignment]
            try:
                self.close()
            except OSError:
                pass
            try:
                raise failure
            finally:
                del failure
        return False

    def _wrapped(self) -> Any:
        """An object for `_sslobj`, by who has the stream."""
        if self._sock is None:
            return self._context._wrap_socket(self, self.server_side, self.server_hostname, owner=self, session=self._session)
        return _Tunnel(self, self._context, self.server_side, self.server_hostname, self._session)

    def _real_connect(self, addr: Any, connect_ex: bool) -> Any:
        if self.server_side:
            raise ValueError("can't connect in server-side mode")
        if self._connected or self._sslobj is not None:
            raise ValueError("attempt to connect already-connected SSLSocket!")
        self._sslobj = self._wrapped()
        try:
            rc = (_Stream.connect_ex if connect_ex else _Stream.connect)(self, addr)
            if self._sock is None and isinstance(self._sslobj, _Tunnel):  # the address is the kernel's
                self._sslobj = self._wrapped()
            if not rc:
                self._connected = True
                if self.do_handshake_on_connect:
                    self.do_handshake()
        except (OSError, ValueError):
            self._sslobj = None
            raise
        return rc


class SSLContext(_std.SSLContext):  # type: ignore[no-redef]
    """As `ssl.SSLContext`; wrap_socket() makes an SSLSocket of this module."""

    sslsocket_class: Any = SSLSocket


def _rebind(function: Any) -> Any:
    """A function of the standard module that makes contexts or sockets, with this module's names: it makes ours."""
    made = types.FunctionType(function.__code__, globals(), function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__doc__ = function.__doc__
    return made


create_connection = _our_socket.create_connection
socket = _our_socket.socket
create_default_context = _rebind(_std.create_default_context)
get_server_certificate = _rebind(_std.get_server_certificate)
_create_unverified_context = _rebind(_std._create_unverified_context)
_create_default_https_context = create_default_context
_create_stdlib_context = _create_unverified_context
if hasattr(_std, "wrap_socket"):  # until Python 3.11
    wrap_socket = _rebind(_std.wrap_socket)
