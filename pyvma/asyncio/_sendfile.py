"""loop.sendfile() over any stream transport."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Any

from ._stream import StreamTransport

_PIECE = 256 * 1024


class _Pump(asyncio.Protocol):
    """Stands in for a transport's protocol while a file is sent: knows when to wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: Any) -> None:
        self._loop = loop
        self._transport = transport
        self._was_reading = transport.is_reading()
        self._protocol = transport.get_protocol()
        self._ready: asyncio.Future[None] | None = None
        if getattr(transport, "_protocol_paused", False):
            self.pause_writing()
        self._lost = False
        self._error: BaseException | None = None
        transport.pause_reading()
        transport.set_protocol(self)

    async def drain(self) -> None:
        if self._ready is not None:
            await self._ready
        if self._lost or self._transport.is_closing():
            raise ConnectionError("Connection closed by peer") from self._error

    def restore(self) -> None:
        self._transport.set_protocol(self._protocol)
        if self._was_reading:
            self._transport.resume_reading()
        if self._lost:
            self._loop.call_soon(self._protocol.connection_lost, self._error)
        elif self._ready is not None:  # it is the protocol's to know now
            self._ready.cancel()
            self._protocol.pause_writing()

    def pause_writing(self) -> None:
        self._ready = self._loop.create_future()

    def resume_writing(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None and not ready.done():
            ready.set_result(None)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost, self._error = True, exc
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        raise RuntimeError("Invalid state: reading should be paused")

    def eof_received(self) -> None:
        raise RuntimeError("Invalid state: reading should be paused")


def check_file(file: Any, offset: int, count: int | None) -> None:
    """In asyncio's words."""
    if "b" not in getattr(file, "mode", "b"):
        raise ValueError("file should be opened in binary mode")
    if not isinstance(offset, int):
        raise TypeError(f"offset must be a non-negative integer (got {offset!r})")
    if offset < 0:
        raise ValueError(f"offset must be a non-negative integer (got {offset!r})")
    if count is not None:
        if not isinstance(count, int):
            raise TypeError(f"count must be a positive integer (got {count!r})")
        if count <= 0:
            raise ValueError(f"count must be a positive integer (got {count!r})")


def _regular(file: Any) -> int | None:
    """The fd of a regular file; its pages can be read at any place, and without waiting for somebody."""
    try:
        fd: int = file.fileno()
        return fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except (AttributeError, OSError):
        return None


async def send_file(loop: Any, transport: Any, file: Any, offset: int, count: int | None, fallback: bool) -> int:
    """How many bytes were sent; the file's position is behind them."""
    if transport.is_closing():
        raise RuntimeError("Transport is closing")
    if not hasattr(transport, "is_reading"):
        raise RuntimeError(f"sendfile is not supported for transport {transport!r}")
    check_file(file, offset, count)
    fd = _regular(file) if isinstance(transport, StreamTransport) else None
    if fd is None and not fallback:
        raise asyncio.SendfileNotAvailableError(f"sendfile is not available for transport {transport!r} and file {file!r}")
    if fd is None and hasattr(file, "seek"):
        file.seek(offset)
    pump = _Pump(loop, transport)
    sent = 0
    try:
        while count is None or sent < count:
            await pump.drain()
            size = _PIECE if count is None else min(_PIECE, count - sent)
            if fd is not None:
                data = os.pread(fd, size, offset + sent)
            else:
                data = await loop.run_in_executor(None, file.read, size)
            if not data:
                break
            transport.write(data)
            sent += len(data)
        await pump.drain()
        return sent
    finally:
        if sent and hasattr(file, "seek"):
            file.seek(offset + sent)
        pump.restore()
