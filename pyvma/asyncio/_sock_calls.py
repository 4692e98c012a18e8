"""`sock_*` of the loop: uvloop's for sockets of the kernel, and the same over readers and writers for offloaded ones.

uvloop has no calls for datagrams and no sock_sendfile(); here all sockets have them.
"""

from __future__ import annotations

import os
import socket as _std
from asyncio import exceptions as _exceptions
from collections.abc import Callable
from typing import Any

import uvloop

from ..socket import socket as _our_socket
from ._sendfile import check_file

_AGAIN = (BlockingIOError, InterruptedError)
_PIECE = 256 * 1024  # of a file that is sent


def _is_ours(sock: Any) -> bool:
    return isinstance(sock, _our_socket) and sock._sock is not None  # type: ignore[attr-defined]


_Base: Any = uvloop.Loop
"""Its signatures and those of asyncio's class, from which it derives, do not agree."""


class SockCalls(_Base):  # type: ignore[misc]
    """A part of EventLoop."""

    def __init__(self) -> None:
        super().__init__()
        self._callers: dict[tuple[int, bool], Any] = {}  # who waits for a socket, the last one of each direction

    def _check_nonblocking(self, sock: Any) -> None:
        if self.get_debug() and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")

    async def _when_ready(self, sock: Any, write: bool, call: Callable[..., Any], *args: Any) -> Any:
        """Makes a call whenever the socket is ready until it does not say that it would block."""
        future: Any = self.create_future()
        added = True
        add, remove = (self.add_writer, self.remove_writer) if write else (self.add_reader, self.remove_reader)

        def ready() -> None:
            if future is None or future.done():
                return
            try:
                result = call(*args)
            except _AGAIN:
                return
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            stop()

        def stop() -> None:
            nonlocal added
            if not added:
                return
            added = False
            if self._callers.get(key) is not future:
                return
            del self._callers[key]
            try:
                remove(sock)
            except ValueError:  # closed meanwhile
                if sock.fileno() >= 0:
                    raise

        # A call that comes later for the same socket takes the place of this one, as uvloop has it, and is not to be ended by it.
        add(sock, ready)
        key = id(sock), write
        self._callers[key] = future
        try:
            return await future
        finally:
            stop()
            future = None  # its error's traceback leads here

    async def _try(self, sock: Any, write: bool, call: Callable[..., Any], *args: Any) -> Any:
        self._check_nonblocking(sock)
        if _is_ours(sock):
            self._ensure_no_transport(sock)
        try:
            return call(*args)
        except _AGAIN:
            return await self._when_ready(sock, write, call, *args)

    # ---- receive ----

    async def sock_recv(self, sock: Any, nbytes: int) -> Any:
        """As asyncio's loop.sock_recv()."""
        if not _is_ours(sock):
            return await super().sock_recv(sock, nbytes)
        return await self._try(sock, False, sock.recv, nbytes)

    async def sock_recv_into(self, sock: Any, buf: Any) -> Any:
        """As asyncio's loop.sock_recv_into()."""
        if not _is_ours(sock):
            return await super().sock_recv_into(sock, buf)
        return await self._try(sock, False, sock.recv_into, buf)

    async def sock_recvfrom(self, sock: Any, bufsize: int) -> Any:
        """As asyncio's loop.sock_recvfrom()."""
        return await self._try(sock, False, sock.recvfrom, bufsize)

    async def sock_recvfrom_into(self, sock: Any, buf: Any, nbytes: int = 0) -> Any:
        """As asyncio's loop.sock_recvfrom_into()."""
        return await self._try(sock, False, sock.recvfrom_into, buf, nbytes or len(buf))

    # ---- send ----

    async def sock_sendto(self, sock: Any, data: Any, address: Any) -> Any:
        """As asyncio's loop.sock_sendto()."""
        return await self._try(sock, True, sock.sendto, data, address)

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        """As asyncio's loop.sock_sendall()."""
        if not _is_ours(sock):
            await super().sock_sendall(sock, data)
            return
        self._check_nonblocking(sock)
        self._ensure_no_transport(sock)
        left = memoryview(data).cast("B")

        def send_some() -> None:
            nonlocal left
            while left:
                left = left[sock.send(left) :]

        await self._try(sock, True, send_some)

    # ---- connect and accept ----

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """As asyncio's loop.sock_connect(). A stream is decided here: the kernel's goes on as uvloop's."""
        if not _is_ours(sock):
            await super().sock_connect(sock, address)
            return
        self._check_nonblocking(sock)
        self._ensure_no_transport(sock)
        # As asyncio and uvloop do: connect() must not wait for a name server.
        found = await self.getaddrinfo(*address[:2], family=sock.family, type=sock.type, proto=sock.proto)
        if not found:
            raise OSError("getaddrinfo() returned empty list")
        resolved = found[0][4]
        if len(address) > 2 and sock.family == _std.AF_INET6:
            resolved = (*resolved[:2], *address[2:])
        try:
            sock.connect(resolved)
        except _AGAIN:
            pass
        else:
            return

        def connected() -> None:
            error = sock.getsockopt(_std.SOL_SOCKET, _std.SO_ERROR)
            if error:
                raise OSError(error, f"Connect call failed {resolved}")

        await self._when_ready(sock, True, connected)

    async def sock_accept(self, sock: Any) -> Any:
        """As asyncio's loop.sock_accept()."""
        if not _is_ours(sock):
            return await super().sock_accept(sock)

        self._check_nonblocking(sock)
        self._ensure_no_transport(sock)
        while True:
            try:
                conn, address = sock.accept()
            except _AGAIN:
                # Only waits: a connection that was accepted for somebody who is cancelled would be nobody's.
                await self._when_ready(sock, False, bool)
            else:
                conn.setblocking(False)
                return conn, address

    # ---- files ----

    async def sock_sendfile(self, sock: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool = True) -> int:
        """As asyncio's loop.sock_sendfile(). An offloaded socket is sent what is read: nothing in the kernel could do that for it."""
        self._check_nonblocking(sock)
        if sock.type != _std.SOCK_STREAM:
            raise ValueError("only SOCK_STREAM type sockets are supported")
        check_file(file, offset, count)
        if not _is_ours(sock):
            try:
                return await self._sendfile_kernel(sock, file, offset, count)
            except _exceptions.SendfileNotAvailableError:
                if not fallback:
                    raise
        elif not fallback:
            raise _exceptions.SendfileNotAvailableError("sendfile is not available for an offloaded socket")
        return await self._sendfile_copy(sock, file, offset, count)

    async def _sendfile_copy(self, sock: Any, file: Any, offset: int, count: int | None) -> int:
        buffer, sent = memoryview(bytearray(min(count, _PIECE) if count else _PIECE)), 0
        if hasattr(file, "seek"):
            file.seek(offset)
        try:
            while count is None or sent < count:
                room = buffer if count is None else buffer[: count - sent]
                n = await self.run_in_executor(None, file.readinto, room)
                if not n:
                    break
                await self.sock_sendall(sock, room[:n])
                sent += n
        finally:
            if sent and hasattr(file, "seek"):
                file.seek(offset + sent)
        return sent

    async def _sendfile_kernel(self, sock: Any, file: Any, offset: int, count: int | None) -> int:
        try:
            number, size = file.fileno(), os.fstat(file.fileno()).st_size
        except (AttributeError, OSError, ValueError) as error:
            raise _exceptions.SendfileNotAvailableError("not a regular file") from error
        left = max(size - offset, 0) if count is None else count
        sent = 0
        try:
            while left:
                try:
                    n = await self._try(sock, True, os.sendfile, sock.fileno(), number, offset + sent, min(left, 1 << 30))
                except OSError as error:
                    if not sent and not isinstance(error, ConnectionError):
                        raise _exceptions.SendfileNotAvailableError("os.sendfile call failed") from error
                    raise
                if not n:
                    break
                sent, left = sent + n, left - n
        finally:
            if sent:
                os.lseek(number, offset + sent, os.SEEK_SET)
        return sent
