"""TLS of the standard library over streams: by memory on any, by the socket itself on those that are the kernel's."""

from __future__ import annotations

import errno
import os
import ssl
from typing import Any

import pytest
from sides import Net
from streams import pair, running


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Server and client, without certificates."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made[1].check_hostname = False
    made[1].verify_mode = ssl.CERT_NONE
    for context in made:
        context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return made


class Tls:
    """As much of ssl.SSLSocket as a test needs, over send() and recv()."""

    def __init__(self, context: ssl.SSLContext, sock: Any, server_side: bool) -> None:
        self.sock, self.came, self.goes = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.came, self.goes, server_side=server_side)

    def run(self, call: Any, *args: Any) -> Any:
        while True:
            try:
                result = call(*args)
            except ssl.SSLWantReadError:
                self.flush()
                self.came.write(self.sock.recv(65536))
            else:
                self.flush()
                return result

    def flush(self) -> None:
        if waiting := self.goes.read():
            self.sock.sendall(waiting)


def test_by_memory(net: Net) -> None:
    a, b = pair(net)
    server_context, client_context = contexts()
    server, client = Tls(server_context, a, True), Tls(client_context, b, False)
    data = os.urandom(500_000)

    def serve() -> None:
        server.run(server.tls.do_handshake)
        got = b""
        while len(got) < len(data):
            got += server.run(server.tls.read, 65536)
        assert got == data
        assert server.run(server.tls.write, b"all of it") == 9

    with running(serve):
        client.run(client.tls.do_handshake)
        for at in range(0, len(data), 10_000):
            client.run(client.tls.write, data[at : at + 10_000])
        assert client.run(client.tls.read, 100) == b"all of it"


@pytest.mark.without("softnic")
def test_by_the_socket(net: Net) -> None:
    a, b = pair(net)
    server_context, client_context = contexts()

    def serve() -> None:
        with server_context.wrap_socket(a, server_side=True) as made:
            made.sendall(made.recv(100).upper())

    with running(serve), client_context.wrap_socket(b) as made:
        made.sendall(b"hello")
        assert made.recv(100) == b"HELLO"


@pytest.mark.without("stdlib", "loopback")
def test_offloaded_sockets_are_refused(net: Net) -> None:
    """Nothing has changed then."""
    a, b = pair(net)
    server_context, client_context = contexts()
    for context, sock, server_side in ((server_context, a, True), (client_context, b, False)):
        with pytest.raises(OSError, match="wrap_bio") as caught:
            context.wrap_socket(sock, server_side=server_side)
        assert caught.value.errno == errno.EOPNOTSUPP
    b.sendall(b"still here")
    assert a.recv(100) == b"still here"
    assert a.fileno() >= 0
