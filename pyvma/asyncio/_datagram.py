"""The transport of offloaded datagrams."""

from __future__ import annotations

import asyncio
import contextvars
import socket as _std
from typing import TYPE_CHECKING, Any

from ._transport import LOST_WRITES_LOGGED, SocketTransport, logger

if TYPE_CHECKING:
    from ._endpoints import Endpoints

_READ_MAX = 65536
_TURN_MAX = 32  # datagrams taken before others have their turn


class DatagramTransport(SocketTransport, asyncio.DatagramTransport):
    """As asyncio.DatagramTransport, in the order of uvloop's.

    `address`: what the socket is connected to, as far as sendto() is concerned; None when any address may be given.
    """

    __slots__ = ("_address", "_checked", "_family", "_recvfrom")

    def __init__(
        self,
        loop: Endpoints,
        sock: Any,
        protocol: Any,
        context: contextvars.Context,
        address: tuple[Any, ...] | None = None,
        waiter: asyncio.Future[Any] | None = None,
    ) -> None:
        sock.setblocking(False)
        super().__init__(loop, sock, context, waiter)
        self._family = sock.family
        self._address = address
        self._checked: tuple[Any, ...] | None = None  # the last address that needed no name server
        self._protocol = protocol
        self._recvfrom = sock.recvfrom

    def set_protocol(self, protocol: Any) -> None:
        """As BaseTransport.set_protocol()."""
        self._protocol = protocol

    def _on_input(self, bits: int) -> None:
        protocol = self._protocol
        for _ in range(_TURN_MAX):
            try:
                data, address = self._recvfrom(_READ_MAX)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._call(protocol.error_received, error)
            else:
                self._call(protocol.datagram_received, data, address)
            if not self._reading:
                return

    def _call(self, method: Any, *args: Any) -> None:
        """The protocol's mistakes are reported and do not close the transport."""
        try:
            self._run(method, *args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.call_exception_handler(
                {"message": "Exception in a datagram protocol", "exception": error, "transport": self, "protocol": self._protocol}
            )

    # ---- sending ----

    def _send(self, data: Any, address: tuple[Any, ...] | None) -> bool:
        """False: the socket takes nothing now. Errors are the protocol's to hear, and the datagram is gone."""
        try:
            if address is None:
                self._sock.send(data)
            else:
                self._sock.sendto(data, address)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._context.copy().run(self._protocol.error_received, error)
        return True

    def _flush(self) -> None:
        while self._backlog:
            data, address = self._backlog.popleft()
            self._backlog_size -= len(data)
            if not self._send(data, address):
                self._backlog.appendleft((data, address))
                self._backlog_size += len(data)
                break
        self._maybe_resume_protocol()
        if not self._backlog:
            self._watch()
            if self._closing and not self._conn_lost:
                self._conn_lost += 1
                self._schedule_connection_lost(None)

    def _check_address(self, address: Any) -> tuple[Any, ...]:
        """The address, if nobody has to be asked what it means: a loop cannot wait for a name server in the middle of a send."""
        ipv4 = self._family == _std.AF_INET
        if not isinstance(address, tuple):
            raise TypeError(f"AF_INET{'' if ipv4 else '6'} address must be tuple")
        if ipv4 and len(address) != 2:
            raise ValueError("AF_INET address must be tuple of (host, port)")
        if not 2 <= len(address) <= 4:
            raise ValueError("AF_INET6 must be a tuple of 2-4 parameters: (host, port, flowinfo?, scope_id?)")
        if ipv4 and address[0] == "<broadcast>":
            address = ("255.255.255.255", address[1])
        if not isinstance(address[0], str | bytes | bytearray):
            raise TypeError("host must be a string or bytes object")
        host = address[0] if isinstance(address[0], str) else bytes(address[0]).decode("ascii", "replace")
        try:
            _std.inet_pton(self._family, host.partition("%")[0])
        except OSError:
            raise ValueError(f"{address!r}: socket family mismatch or a DNS lookup is required") from None
        return address if host is address[0] else (host, *address[1:])

    def sendto(self, data: Any, addr: Any = None) -> None:
        """As DatagramTransport.sendto(); `addr` has to be numeric."""
        if not data:
            return
        if self._address is not None:
            if addr not in (None, self._address):
                raise ValueError(f"Invalid address: must be None or {self._address}")
            addr = None
        if self._conn_lost:
            if self._conn_lost >= LOST_WRITES_LOGGED:
                logger.warning("socket.send() raised exception.")
            self._conn_lost += 1
            return
        self._ensure_alive()
        if addr is not None and addr is not self._checked:
            addr = self._checked = self._check_address(addr)
        if self._backlog or not self._send(data, addr):
            kept = data if type(data) is bytes else memoryview(data).cast("B")
            self._backlog.append((kept, addr))
            self._backlog_size += len(kept)
            self._watch()
            self._maybe_pause_protocol()
