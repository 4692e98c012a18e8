"""Connections, servers and datagram endpoints of the loop. What is the kernel's goes to uvloop by the same calls."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket as _std
import ssl as _ssl
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import uvloop
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from .. import socket as _faces
from ._datagram import DatagramTransport
from ._sendfile import send_file
from ._server import Listener, Server, Terms
from ._stream import StreamTransport
from ._transport import OUT

Target = Callable[[int], None]
"""What the loop calls with the EPOLL bits of a socket that is ready."""
_our_socket: Any = _faces.socket
Info = tuple[int, int, int, str, tuple[Any, ...]]
_UNSET: Any = object()


def _ours(sock: Any) -> bool:
    """Whether the engine carries the socket, or may yet."""
    return isinstance(sock, _our_socket) and sock._sock is not None


def _is_kind(sock: Any, kind: int) -> bool:
    return sock.type & 0xF == kind  # type: ignore[no-any-return]


def _plain(sock: Any) -> _std.socket:
    """A socket of the kernel's, which we made, as the standard library's."""
    return _std.socket(sock.family, sock.type, sock.proto, fileno=sock.detach())


def _check_tls_arguments(ssl: Any, handshake_timeout: float | None, shutdown_timeout: float | None) -> None:
    if not ssl:
        if handshake_timeout is not None:
            raise ValueError("ssl_handshake_timeout is only meaningful with ssl")
        if shutdown_timeout is not None:
            raise ValueError("ssl_shutdown_timeout is only meaningful with ssl")


def _interleave(infos: list[Info], first: int) -> list[Info]:
    """RFC 8305 section 4: addresses of the families in turn, `first` of the first family's in front."""
    families: dict[int, list[Info]] = {}
    for info in infos:
        families.setdefault(info[0], []).append(info)
    queues = list(families.values())
    mixed = [queues[0].pop(0) for _ in range(min(first - 1, len(queues[0])))] if first > 1 else []
    while any(queues):
        mixed += [queue.pop(0) for queue in queues if queue]
    return mixed


def _combine(errors: list[OSError], all_errors: bool) -> BaseException:
    """What to raise when no address worked."""
    if all_errors and sys.version_info >= (3, 11):
        return ExceptionGroup("create_connection failed", errors)  # noqa: F821
    if len({str(error) for error in errors}) == 1:
        return errors[0]
    return OSError(f"Multiple exceptions: {', '.join(str(error) for error in errors)}")


_Base: Any = uvloop.Loop
"""Its signatures and those of asyncio's class, from which it derives, do not agree."""


class Endpoints(_Base):  # type: ignore[misc]
    """The part of the loop that makes transports."""

    _TLS: ClassVar[Any] = SSLProtocol  # uvloop's own: quick, and TLS looks the same over all sockets

    def __init__(self) -> None:
        super().__init__()
        self._owners: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # transports by id(socket)
        self._servers_open: set[Server] = set()

    def _watch(self, sock: Any, events: int, target: Target) -> None:
        raise NotImplementedError

    def _unwatch(self, sock: Any) -> None:
        raise NotImplementedError

    def _own(self, sock: Any, transport: Any) -> None:
        raise NotImplementedError

    def _disown(self, sock: Any) -> None:
        raise NotImplementedError

    def _close_owned(self) -> None:
        """Closes what is open when the loop closes."""
        for server in list(self._servers_open):
            server.close()
        for transport in list(self._owners.values()):
            warnings.warn(f"unclosed resource {transport!r}", ResourceWarning, stacklevel=2, source=transport)
            transport._close()

    # ---- TLS ----

    def _tls(
        self,
        protocol: Any,
        waiter: asyncio.Future[Any],
        terms: dict[str, Any],
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        call_connection_made: bool = True,
    ) -> Any:
        """A protocol that speaks TLS to a transport and plain text to `protocol`.

        `terms`: ssl, ssl_handshake_timeout and ssl_shutdown_timeout, as create_connection() takes them.
        """
        context = terms["ssl"]
        return self._TLS(
            self,
            protocol,
            None if isinstance(context, bool) else context,
            waiter,
            server_side,
            server_hostname,
            call_connection_made=call_connection_made,
            ssl_handshake_timeout=terms["ssl_handshake_timeout"],
            ssl_shutdown_timeout=terms["ssl_shutdown_timeout"],
        )

    async def start_tls(
        self,
        transport: Any,
        protocol: Any,
        sslcontext: _ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> Any:
        """As loop.start_tls()."""
        terms: dict[str, Any] = {"ssl_handshake_timeout": ssl_handshake_timeout, "ssl_shutdown_timeout": ssl_shutdown_timeout}
        if not isinstance(transport, StreamTransport):
            return await super().start_tls(
                transport, protocol, sslcontext, server_side=server_side, server_hostname=server_hostname, **terms
            )
        if not isinstance(sslcontext, _ssl.SSLContext):
            raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}")
        waiter = self.create_future()
        tls = self._tls(
            protocol,
            waiter,
            {"ssl": sslcontext, **terms},
            server_side=server_side,
            server_hostname=server_hostname,
            call_connection_made=False,
        )
        transport.pause_reading()  # what comes meanwhile is for the new protocol, once that knows its transport
        if transport._protocol_paused:  # by what was written before: from now on that is for TLS to know
            transport._tell_writer("resume_writing")
            tls.pause_writing()
        transport.set_protocol(tls)
        made = self.call_soon(tls.connection_made, transport, context=transport._context)
        resumed = self.call_soon(transport.resume_reading)
        app_transport = tls._get_app_transport(transport._context)
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            app_transport.close()
            made.cancel()
            resumed.cancel()
            raise
        return app_transport

    async def _begin(self, sock: Any, protocol: Any, terms: dict[str, Any], server_side: bool, hostname: str | None) -> Any:
        """A transport over a connected socket, once connection_made() was called. Closes the socket when that fails."""
        context = contextvars.copy_context()
        made = self.create_future()
        tls = None
        try:
            if terms["ssl"]:
                tls = self._tls(protocol, made, terms, server_side=server_side, server_hostname=hostname)
            transport = StreamTransport(self, sock, tls or protocol, context, None if tls else made)
        except BaseException:
            sock.close()
            raise
        transport._begin()
        app_transport = tls._get_app_transport(context) if tls else None
        try:
            await made
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            if app_transport is not None:
                app_transport.close()
            # A connection that nobody gets is closed at once, unless the protocol has heard of it.
            if not transport._connected or app_transport is None:
                transport._close()
            raise
        return transport if app_transport is None else app_transport

    # ---- connections ----

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | str | None = None,
        *,
        ssl: _ssl.SSLContext | bool | None = None,
        family: int = 0,
        proto: int = 0,
        flags: int = 0,
        sock: Any = None,
        local_addr: tuple[str, int] | None = None,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        happy_eyeballs_delay: float | None = None,
        interleave: int | None = None,
        all_errors: bool = False,
    ) -> Any:
        """As loop.create_connection(); the protocol is made first, as uvloop does."""
        terms: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": ssl_handshake_timeout, "ssl_shutdown_timeout": ssl_shutdown_timeout}
        if sock is not None and (host is not None or port is not None):
            raise ValueError("host/port and sock can not be specified at the same time")
        if sock is not None and not _ours(sock):
            return await super().create_connection(protocol_factory, sock=sock, server_hostname=server_hostname, **terms)
        if host is None and port is None and sock is None:
            raise ValueError("host and port was not specified and no sock specified")
        if ssl and server_hostname is None:
            if not host:
                raise ValueError("You must set server_hostname when using ssl without a host")
            server_hostname = host
        if not ssl and server_hostname is not None:
            raise ValueError("server_hostname is only meaningful with ssl")
        _check_tls_arguments(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
        if local_addr is not None and (not isinstance(local_addr, tuple | list) or len(local_addr) != 2):
            raise ValueError("local_addr must be a tuple of host and port")
        if sock is not None and not _is_kind(sock, _std.SOCK_STREAM):
            raise ValueError(f"A Stream Socket was expected, got {sock!r}")
        protocol = protocol_factory()
        if sock is None:
            hints = {"family": family, "type": _std.SOCK_STREAM, "proto": proto, "flags": flags}
            infos, local = await self._resolve(host, port, local_addr, hints)
            if interleave is None and happy_eyeballs_delay is not None:
                interleave = 1
            if interleave:
                infos = _interleave(infos, interleave)
            sock = await self._connect_any(infos, local, happy_eyeballs_delay, all_errors)
            if not _ours(sock):
                return await self._hand_over(_plain(sock), protocol, server_hostname, terms)
        return await self._begin(sock, protocol, terms, False, server_hostname), protocol

    async def _hand_over(self, sock: _std.socket, protocol: Any, server_hostname: str | None, terms: dict[str, Any]) -> Any:
        """A connection of the kernel's goes on as uvloop's."""
        try:
            transport, _ = await super().create_connection(lambda: protocol, sock=sock, server_hostname=server_hostname, **terms)
        except BaseException:
            sock.close()
            raise
        if transport.is_closing():
            # connection_made() closed it, and uvloop has closed the fd, or will, of a socket that it did not hold yet.
            sock.detach()
        return transport, protocol

    async def getaddrinfo(self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
        """As loop.getaddrinfo(). uvloop's loses the scope of "fe80::1%eth0"."""
        if (isinstance(host, str) and "%" in host) or (isinstance(host, bytes) and b"%" in host):
            return await self.run_in_executor(None, _std.getaddrinfo, host, port, family, type, proto, flags)
        return await super().getaddrinfo(host, port, family=family, type=type, proto=proto, flags=flags)

    async def _resolve(self, host: Any, port: Any, local: Any, hints: dict[str, int]) -> tuple[list[Info], list[Info] | None]:
        infos: Any = await self.getaddrinfo(host, port, **hints)
        if not infos:
            raise OSError("getaddrinfo() returned empty list")
        if local is None:
            return list(infos), None
        sources: Any = await self.getaddrinfo(local[0], local[1], **hints)
        if not sources:
            raise OSError("getaddrinfo() returned empty list for local_addr")
        return list(infos), list(sources)

    async def _connect_any(self, infos: list[Info], local: list[Info] | None, delay: float | None, all_errors: bool) -> Any:
        """A connected socket to the first of the addresses that answers."""
        errors: list[OSError] = []
        if delay is None:
            for info in infos:
                try:
                    return await self._connect_one(info, local, errors)
                except OSError:
                    continue
        else:
            from asyncio import staggered

            tries = [partial(self._connect_one, info, local, errors) for info in infos]
            sock, _, _ = await staggered.staggered_race(tries, delay, loop=self)
            if sock is not None:
                return sock
        try:
            raise _combine(errors, all_errors)
        finally:
            errors.clear()  # their tracebacks lead here

    async def _connect_one(self, info: Info, local: list[Info] | None, errors: list[OSError]) -> Any:
        family, type, proto, _, address = info
        sock = None
        try:
            sock = _our_socket(family, type, proto)
            sock.setblocking(False)
            if local is not None:
                self._bind_any(sock, local, errors)
            await self._connect(sock, address)
        except OSError as error:
            if sock is not None:
                sock.close()
            if error not in errors:
                errors.append(error)
            raise
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        return sock

    def _bind_any(self, sock: Any, local: list[Info], errors: list[OSError]) -> None:
        last: OSError = OSError(f"no matching local address with family={sock.family} found")
        for family, *_, address in local:
            if family != sock.family:
                continue
            try:
                sock.bind(address)
                return
            except OSError as error:
                last = error
                errors.append(error)
        raise last

    async def _connect(self, sock: Any, address: tuple[Any, ...]) -> None:
        """Connects a non-blocking socket, whoever's it turns out to be."""
        rc = sock.connect_ex(address)
        if rc not in (0, errno.EINPROGRESS, errno.EALREADY):
            raise OSError(rc, os.strerror(rc))
        if rc == 0:
            return
        done = self.create_future()
        if not _ours(sock):
            self.add_writer(sock, self._on_connected, sock, done)
        else:
            self._watch(sock, OUT, partial(self._on_connected, sock, done))
        try:
            await done
        finally:
            if not _ours(sock):
                self.remove_writer(sock)
            else:
                self._unwatch(sock)
            del done  # its error's traceback leads here

    def _on_connected(self, sock: Any, done: asyncio.Future[None], bits: int = OUT) -> None:
        if done.done():
            return
        rc = sock.getsockopt(_std.SOL_SOCKET, _std.SO_ERROR)
        if rc:
            done.set_exception(OSError(rc, os.strerror(rc)))
            return
        try:
            sock.getpeername()
        except OSError:  # it was about another socket, and this one is not there yet
            return
        done.set_result(None)

    async def connect_accepted_socket(
        self,
        protocol_factory: Callable[[], Any],
        sock: Any,
        *,
        ssl: _ssl.SSLContext | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> Any:
        """As loop.connect_accepted_socket()."""
        terms: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": ssl_handshake_timeout, "ssl_shutdown_timeout": ssl_shutdown_timeout}
        if not _ours(sock):
            return await super().connect_accepted_socket(protocol_factory, sock, **terms)
        if ssl is not None and not isinstance(ssl, _ssl.SSLContext):
            raise TypeError("ssl argument must be an SSLContext or None")
        _check_tls_arguments(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
        if not _is_kind(sock, _std.SOCK_STREAM):
            raise ValueError(f"A Stream Socket was expected, got {sock!r}")
        protocol = protocol_factory()
        return await self._begin(sock, protocol, terms, True, None), protocol

    async def _accept_kernel(self, protocol_factory: Callable[[], Any], sock: _std.socket, terms: dict[str, Any]) -> None:
        await super().connect_accepted_socket(protocol_factory, sock, **terms)

    # ---- servers ----

    async def create_server(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: Any = None,
        *,
        family: int = _std.AF_UNSPEC,
        flags: int = _std.AI_PASSIVE,
        sock: Any = None,
        backlog: int = 100,
        ssl: _ssl.SSLContext | None = None,
        reuse_address: bool | None = None,
        reuse_port: bool | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        start_serving: bool = True,
    ) -> Any:
        """As loop.create_server(). A server has offloaded listeners, kernel ones, or both; a wildcard address accepts from everywhere."""
        if sock is not None and (host is not None or port is not None):
            raise ValueError("host/port and sock can not be specified at the same time")
        if sock is not None and not _is_kind(sock, _std.SOCK_STREAM):
            raise ValueError(f"A Stream Socket was expected, got {sock!r}")
        if sock is None and host is None and port is None:
            raise ValueError("Neither host/port nor sock were specified")
        if ssl is not None and not isinstance(ssl, _ssl.SSLContext):
            raise TypeError("ssl argument must be an SSLContext or None")
        _check_tls_arguments(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
        if not isinstance(backlog, int):
            raise TypeError(f"integer argument expected, got {type(backlog).__name__}")
        terms = Terms(protocol_factory, backlog, ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
        if sock is not None and not _ours(sock):
            return await self._serve_kernel(sock, terms, start=start_serving)
        if sock is not None:
            socks = [sock]
            sock.setblocking(False)
        else:
            reuse = reuse_address is None or reuse_address
            socks = await self._bind_all(host, port, {"family": family, "flags": flags}, reuse, bool(reuse_port))
        server = Server(self, terms)
        try:
            for i, sock in enumerate(socks):
                if _ours(sock):
                    listener: Any = Listener(self, server, sock, terms)
                else:
                    listener = await self._serve_kernel(_plain(sock), terms, start=False)
                socks[i] = None
                assert server._listeners is not None
                server._listeners.append(listener)
            if start_serving:
                await server.start_serving()
        except BaseException:
            server.close()
            for left in socks:
                if left is not None:
                    left.close()
            raise
        self._servers_open.add(server)
        return server

    async def _serve_kernel(self, sock: Any, terms: Terms, *, start: bool) -> Any:
        try:
            return await super().create_server(
                terms.protocol_factory, sock=sock, backlog=terms.backlog, start_serving=start, **terms.for_tls()
            )
        except BaseException:
            sock.close()
            raise

    async def _bind_all(self, host: Any, port: Any, hints: dict[str, int], reuse_address: bool, reuse_port: bool) -> list[Any]:
        """A bound socket for each address of each host."""
        if host == "":
            hosts: Iterable[Any] = [None]
        elif isinstance(host, str) or not isinstance(host, Iterable):
            hosts = [host]
        else:
            hosts = host
        found: list[Any] = await asyncio.gather(*(self.getaddrinfo(name, port, type=_std.SOCK_STREAM, **hints) for name in hosts))
        if not all(found):
            raise OSError("getaddrinfo() returned empty list")
        infos = dict.fromkeys(info for some in found for info in some)
        socks: list[Any] = []
        try:
            for family, type, proto, _, address in infos:
                try:
                    sock = _our_socket(family, type, proto)
                except OSError as error:  # the family may be off
                    if error.errno not in (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT):
                        raise
                    continue
                socks.append(sock)
                sock.setblocking(False)
                if reuse_address:
                    sock.setsockopt(_std.SOL_SOCKET, _std.SO_REUSEADDR, 1)
                if reuse_port:
                    sock.setsockopt(_std.SOL_SOCKET, _std.SO_REUSEPORT, 1)
                if family == _std.AF_INET6:
                    sock.setsockopt(_std.IPPROTO_IPV6, _std.IPV6_V6ONLY, 1)
                try:
                    sock.bind(address)
                except OSError as error:
                    why = os.strerror(error.errno).lower() if error.errno else str(error)
                    raise OSError(error.errno, f"error while attempting to bind on address {address!r}: {why}") from None
        except BaseException:
            for sock in socks:
                sock.close()
            raise
        return socks

    # ---- datagrams ----

    async def create_datagram_endpoint(
        self,
        protocol_factory: Callable[[], Any],
        local_addr: tuple[str, int] | None = None,
        remote_addr: tuple[str, int] | None = None,
        *,
        family: int = 0,
        proto: int = 0,
        flags: int = 0,
        reuse_address: Any = _UNSET,
        reuse_port: bool | None = None,
        allow_broadcast: bool | None = None,
        sock: Any = None,
    ) -> Any:
        """As loop.create_datagram_endpoint()."""
        options = {"family": family, "proto": proto, "flags": flags, "reuse_port": reuse_port, "allow_broadcast": allow_broadcast}
        if reuse_address is not _UNSET:
            options["reuse_address"] = reuse_address
        given = {"local_addr": local_addr, "remote_addr": remote_addr, **options}
        if sock is not None and not _ours(sock):
            return await super().create_datagram_endpoint(protocol_factory, sock=sock, **given)
        address = None
        if sock is not None:
            if not _is_kind(sock, _std.SOCK_DGRAM):
                raise ValueError(f"A UDP Socket was expected, got {sock!r}")
            if any(given.values()):
                problems = ", ".join(f"{name}={value}" for name, value in given.items() if value)
                raise ValueError(f"socket modifier keyword arguments can not be used when sock is specified. ({problems})")
        else:
            local, remote = await self._datagram_addresses(given)
            sock, address = self._open_datagram(local, remote, given)
            if sock is None:
                return await super().create_datagram_endpoint(protocol_factory, **given)
        waiter = self.create_future()
        try:
            protocol = protocol_factory()
            transport = DatagramTransport(self, sock, protocol, contextvars.copy_context(), address, waiter)
        except BaseException:
            sock.close()
            raise
        transport._begin()
        try:
            await waiter
        except BaseException:
            if not transport._connected:
                transport._close()
            else:
                transport.close()
            raise
        return transport, protocol

    async def _datagram_addresses(self, given: dict[str, Any]) -> tuple[list[Info] | None, list[Info] | None]:
        """The addresses that local_addr and remote_addr stand for."""
        if given.get("reuse_address"):
            raise ValueError(
                "Passing `reuse_address=True` is no longer supported, as the usage of SO_REUSEPORT in UDP poses a significant "
                "security concern."
            )
        found: list[list[Info] | None] = []
        for name in ("local_addr", "remote_addr"):
            pair = given[name]
            if pair is None:
                found.append(None)
                continue
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"{name} must be a tuple of (host, port)")
            infos: Any = await self.getaddrinfo(
                pair[0], pair[1], type=_std.SOCK_DGRAM, family=given["family"], proto=given["proto"], flags=given["flags"]
            )
            if not infos:
                raise OSError("getaddrinfo() returned empty list")
            found.append(infos)
        return found[0], found[1]

    def _open_datagram(self, local: list[Info] | None, remote: list[Info] | None, given: dict[str, Any]) -> tuple[Any, Any]:
        """A socket bound and connected as asked for, and what it is connected to; (None, None) when it is the kernel's."""
        if local is None and remote is None and given["family"] not in (_std.AF_INET, _std.AF_INET6):
            raise ValueError("unexpected address family")
        errors: list[OSError] = []
        for family, _, proto, _, address in local or (remote[:1] if remote else [(given["family"], 0, given["proto"], "", ())]):
            sock = _our_socket(family, _std.SOCK_DGRAM, proto)
            try:
                sock.setblocking(False)
                if given["reuse_port"]:
                    sock.setsockopt(_std.SOL_SOCKET, _std.SO_REUSEPORT, 1)
                if given["allow_broadcast"]:
                    sock.setsockopt(_std.SOL_SOCKET, _std.SO_BROADCAST, 1)
                if local is not None:
                    sock.bind(address)
            except OSError as error:
                sock.close()
                errors.append(error)
                continue
            try:
                peer = self._connect_datagram(sock, remote, given["remote_addr"])
                if sock.offload.state == "kernel":
                    sock.close()
                    return None, None
            except BaseException:
                sock.close()
                raise
            return sock, peer
        raise OSError(f"could not bind to local_addr {given['local_addr']}") from errors[0]

    def _connect_datagram(self, sock: Any, remote: list[Info] | None, name: Any) -> tuple[Any, ...] | None:
        if remote is None:
            return None
        for family, *_, address in remote:
            if family == sock.family:
                sock.connect(address)
                return address
        raise OSError(f"could not bind to remote_addr {name}")

    # ---- files ----

    async def sendfile(self, transport: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool = True) -> int:
        """As loop.sendfile(). A regular file goes to an offloaded stream from the file's pages by one copy."""
        return await send_file(self, transport, file, offset, count, fallback)
