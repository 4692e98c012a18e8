"""The transport of an offloaded stream.

A write tries the socket at once. What that does not take waits in a backlog, and goes when the socket is writable, many writes by one
call. The socket is watched for what somebody waits for and nothing else: one that is neither read nor has a backlog is not watched.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket as _std
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from ._transport import SocketTransport

if TYPE_CHECKING:
    from ._endpoints import Endpoints

_READ_MAX = 256 * 1024
_READ_HINT = 64 * 1024  # what get_buffer() is told
_JOIN_MAX = 64 * 1024  # a copy of so much is cheaper than a call that gathers
_GATHER_MAX = 64  # pieces of a call


class StreamTransport(SocketTransport, asyncio.Transport):
    """As asyncio.Transport, in the order of uvloop's."""

    __slots__ = (
        "_buffer_updated",
        "_data_received",
        "_direct",
        "_eof",
        "_get_buffer",
        "_on_input",
        "_recv",
        "_recv_into",
        "_send",
    )

    def __init__(
        self, loop: Endpoints, sock: Any, protocol: Any, context: contextvars.Context, waiter: asyncio.Future[Any] | None = None
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(_std.IPPROTO_TCP, _std.TCP_NODELAY, 1)
        super().__init__(loop, sock, context, waiter)
        self._eof = False  # write_eof() was called
        self._direct = True  # a write may go to the socket at once: no backlog, no eof, not lost
        self._recv, self._recv_into, self._send = sock.recv, sock.recv_into, sock.send
        self._data_received: Any = None
        self._get_buffer: Any = None
        self._buffer_updated: Any = None
        self._set_protocol(protocol)

    # ---- the protocol ----

    def _set_protocol(self, protocol: Any) -> None:
        if protocol is None:
            raise TypeError("protocol is required")
        self._protocol = protocol
        if hasattr(protocol, "get_buffer") and not isinstance(protocol, asyncio.Protocol):
            self._get_buffer, self._buffer_updated = protocol.get_buffer, protocol.buffer_updated
            self._on_input = self._read_into
        else:
            self._data_received = getattr(protocol, "data_received", None)
            self._on_input = self._read_data

    def set_protocol(self, protocol: Any) -> None:
        """As BaseTransport.set_protocol()."""
        self._set_protocol(protocol)
        if self._reading:
            self._stop_reading()
            self._start_reading()

    def _clear_protocol(self) -> None:
        self._protocol = self._data_received = self._get_buffer = self._buffer_updated = None

    # ---- reading ----

    def _read_data(self, bits: int) -> None:
        try:
            data = self._recv(_READ_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fatal_error(error, "recv")
            return
        if not data:
            self._on_eof()
            return
        try:
            self._run(self._data_received, data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error)

    def _read_into(self, bits: int) -> None:
        try:
            buffer = self._run(self._get_buffer, _READ_HINT)
            if not len(memoryview(buffer)):
                raise ValueError("no room in the buffer")
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            fatal = RuntimeError("unhandled error (or an empty buffer) in get_buffer()")
            fatal.__cause__ = error
            self._fatal_error(fatal)
            return
        try:
            nbytes = self._recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, TypeError, BufferError) as error:
            self._fatal_error(error, "recv_into")
            return
        if not nbytes:
            self._on_eof()
            return
        try:
            self._run(self._buffer_updated, nbytes)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error)

    def _on_eof(self) -> None:
        self._stop_reading()
        try:
            keep_open = self._run(self._protocol.eof_received) if hasattr(self._protocol, "eof_received") else False
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error)
            return
        if not keep_open:
            self.close()

    # ---- writing ----

    def _clear_backlog(self) -> None:
        super()._clear_backlog()
        self._direct = False

    def _queue(self, pieces: Iterable[bytes | memoryview]) -> None:
        for piece in pieces:
            self._backlog.append(piece)
            self._backlog_size += len(piece)
        self._direct = False
        self._watch()
        self._maybe_pause_protocol()

    def _send_pieces(self, pieces: list[bytes | memoryview]) -> int:
        """How many bytes went; -1 when the connection is lost by it."""
        try:
            sent: int = self._send(pieces[0]) if len(pieces) == 1 else self._sock.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._fatal_error(error, "send")
            return -1
        return sent

    def _flush(self) -> None:
        """The socket takes something, or is in error."""
        backlog = self._backlog
        sent = self._send_pieces(list(islice(backlog, _GATHER_MAX)))
        if sent < 0:
            return
        self._backlog_size -= sent
        while sent:
            size = len(backlog[0])
            if sent < size:
                backlog[0] = memoryview(backlog[0])[sent:]
                break
            backlog.popleft()
            sent -= size
        if not backlog:
            self._direct = not (self._eof or self._conn_lost)
            self._watch()
        self._maybe_resume_protocol()
        if not self._backlog and not self._conn_lost:
            if self._closing:
                self._conn_lost += 1
                self._direct = False
                self._schedule_connection_lost(None)
            elif self._eof:
                self._shutdown()

    def _shutdown(self) -> None:
        try:
            self._sock.shutdown(_std.SHUT_WR)
        except OSError as error:
            self._fatal_error(error, "shutdown")

    def write(self, data: Any) -> None:
        """As WriteTransport.write(). Buffers that are not `bytes` must not change until they are sent."""
        if self._direct and type(data) is bytes:
            if not data:
                return
            try:
                sent = self._send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._fatal_error(error, "send")
                return
            if sent != len(data):
                self._queue((memoryview(data)[sent:] if sent else data,))
            return
        self._ensure_alive()
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if self._conn_lost:
            self._conn_lost += 1
            return
        self._write_pieces([data if type(data) is bytes else memoryview(data).cast("B")])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """As WriteTransport.writelines()."""
        self._ensure_alive()
        if self._eof:
            raise RuntimeError("Cannot call writelines() after write_eof()")
        if self._conn_lost:
            self._conn_lost += 1
            return
        pieces = [data if type(data) is bytes else memoryview(data).cast("B") for data in list_of_data]
        self._write_pieces([piece for piece in pieces if len(piece)])

    def _write_pieces(self, pieces: list[bytes | memoryview]) -> None:
        if not self._direct:
            self._queue(pieces)
            return
        if len(pieces) > 1 and sum(map(len, pieces)) <= _JOIN_MAX:
            pieces = [b"".join(pieces)]
        while pieces:
            group = pieces[:_GATHER_MAX]
            sent = self._send_pieces(group)
            if sent < 0:
                return
            taken = 0
            while taken < len(group) and sent >= len(group[taken]):
                sent -= len(group[taken])
                taken += 1
            del pieces[:taken]
            if taken < len(group):
                if sent:
                    pieces[0] = memoryview(pieces[0])[sent:]
                self._queue(pieces)
                return

    # ---- as asyncio.Transport ----

    def write_eof(self) -> None:
        """As WriteTransport.write_eof(): what was written goes first."""
        self._ensure_alive()
        if self._eof:
            return
        self._eof = True
        self._direct = False
        if not self._backlog:
            self._shutdown()

    def can_write_eof(self) -> bool:
        """True."""
        return True

    def is_reading(self) -> bool:
        """As ReadTransport.is_reading()."""
        return self._reading

    def pause_reading(self) -> None:
        """As ReadTransport.pause_reading(); nothing happens when paused or closing already."""
        if not self._closing:
            self._stop_reading()

    def resume_reading(self) -> None:
        """As ReadTransport.resume_reading(); nothing happens when reading or closing."""
        if not self._closing:
            self._start_reading()
