"""What TLS sockets do, whoever carries the stream: the standard library's over the kernel, and ours over the kernel and over a ring."""

from __future__ import annotations

import array
import errno
import gc
import hashlib
import importlib
import os
import select
import selectors
import socket as std
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import HOSTNAME, OTHER_HOSTNAME
from lab import LONG
from sides import LIMIT_S
from streams import accepted, listener, pair, running, tcp
from tls_sides import Tls

BULK = 100 << 20 if LONG else 3 << 20
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
BOTH_VERSIONS = pytest.mark.parametrize("version", [V12, V13], ids=["1.2", "1.3"])


def read_exactly(sock: Any, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = sock.recv(size - len(got))
        assert part
        got += part
    return got


def ready(sock: Any, event: int = selectors.EVENT_READ, limit_s: float = LIMIT_S) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, event)
        return bool(selector.select(limit_s))


# ---- handshakes --------------------------------------------------------------------------------------------------------------


@BOTH_VERSIONS
def test_a_message_each_way(tls: Tls, version: Any) -> None:
    a, b = tls.pair(tls.server(version))
    assert b.send(b"ping") == 4
    assert a.recv(100) == b"ping"
    assert a.sendall(b"pong") is None
    assert b.recv(100) == b"pong"
    assert a.version() == b.version() == ("TLSv1.2" if version == V12 else "TLSv1.3")
    assert a.cipher() == b.cipher()
    assert b.cipher()[0] in [name for name, _, _ in a.shared_ciphers()]
    assert a.compression() is b.compression() is None
    assert ("DNS", HOSTNAME) in b.getpeercert()["subjectAltName"]
    assert ssl.DER_cert_to_PEM_cert(b.getpeercert(True)) in tls.certificates.server.read_text()
    assert a.getpeercert() is None
    if version == V12:
        assert a.get_channel_binding("tls-unique") == b.get_channel_binding() != b""
    with pytest.raises(ValueError, match="channel binding"):
        b.get_channel_binding("no such")
    assert (a.server_side, b.server_side) == (True, False)
    assert (a.server_hostname, b.server_hostname) == (None, HOSTNAME)
    assert a.getpeername() == b.getsockname()


def test_names_of_a_server(tls: Tls) -> None:
    """By SNI the server chooses a context, and with it a certificate."""
    other, seen = tls.server(chain=tls.certificates.other), []

    def choose(sock: Any, name: str | None, context: Any) -> int | None:
        seen.append((type(sock), name, context))
        if name == "refused.test":
            return int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)
        if name == OTHER_HOSTNAME:
            sock.context = other
        return None

    first = tls.server()
    first.sni_callback = choose
    a, b = tls.pair(first, hostname=OTHER_HOSTNAME)
    assert ("DNS", OTHER_HOSTNAME) in b.getpeercert()["subjectAltName"]
    assert a.context is other
    a, _ = tls.pair(first)
    assert a.context is first
    assert seen == [(tls.module.SSLSocket, OTHER_HOSTNAME, first), (tls.module.SSLSocket, HOSTNAME, first)]
    with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
        tls.pair(first, hostname="refused.test")


def test_protocols(tls: Tls) -> None:
    server, client = tls.server(), tls.client()
    server.set_alpn_protocols(["h2", "http/1.1"])
    client.set_alpn_protocols(["http/1.1", "none"])
    a, b = tls.pair(server, client)
    assert a.selected_alpn_protocol() == b.selected_alpn_protocol() == "http/1.1"
    a, b = tls.pair(server)
    assert a.selected_alpn_protocol() is b.selected_alpn_protocol() is None


@BOTH_VERSIONS
def test_sessions_are_resumed(tls: Tls, version: Any) -> None:
    server, client = tls.server(version), tls.client(version)
    a, b = tls.pair(server, client)
    a.send(b"x")
    assert b.recv(1) == b"x"  # with TLS 1.3 the session comes after the handshake
    session = b.session
    assert session is not None and session.has_ticket
    assert not b.session_reused
    a, c = tls.pair(server, client, session=session)
    assert c.session_reused and a.session_reused
    c.send(b"y")
    assert a.recv(1) == b"y"
    assert server.session_stats()["hits"] == 1
    with pytest.raises(ValueError, match="different SSLContext"):
        tls.pair(server, tls.client(version), session=session)


def test_the_listener_and_the_connecting_socket_are_wrapped(tls: Tls) -> None:
    server = tls.server().wrap_socket(listener(tls.net), server_side=True)
    tls.net.opened.append(server)
    client = tls.client().wrap_socket(tcp(tls.net), server_hostname=HOSTNAME)
    tls.net.opened.append(client)
    assert client.version() is client.cipher() is None
    assert client.pending() == 0
    with pytest.raises(OSError) as caught:
        client.getpeercert()
    assert caught.value.errno == errno.ENOTCONN
    served: list[Any] = []

    def serve() -> None:
        made, address = server.accept()
        served.extend((tls.keep(made), address))
        made.sendall(made.recv(100).upper())

    with running(serve):
        client.connect(server.getsockname())
        tls.keep(client)
        client.sendall(b"hello")
        assert client.recv(100) == b"HELLO"
    assert served[1] == client.getsockname()
    with pytest.raises(ValueError, match="already-connected"):
        client.connect(server.getsockname())
    with pytest.raises(ValueError, match="server-side"):
        served[0].connect(server.getsockname())


def test_connect_refused(tls: Tls) -> None:
    server = listener(tls.net)
    address = server.getsockname()
    server.close()
    for call in ("connect", "connect_ex"):
        client = tls.client().wrap_socket(tcp(tls.net), server_hostname=HOSTNAME)
        tls.net.opened.append(client)
        if call == "connect_ex":
            assert client.connect_ex(address) == errno.ECONNREFUSED
        else:
            with pytest.raises(ConnectionRefusedError):
                client.connect(address)


def test_the_handshake_when_asked(tls: Tls) -> None:
    a, b = pair(tls.net)
    a = tls.keep(tls.server().wrap_socket(a, server_side=True, do_handshake_on_connect=False))
    b = tls.keep(tls.client().wrap_socket(b, server_hostname=HOSTNAME, do_handshake_on_connect=False))
    with pytest.raises(ValueError, match="handshake not done yet"):
        b.getpeercert()
    with running(a.do_handshake):
        b.write(b"this makes it")
    assert a.read(100) == b"this makes it"
    a.do_handshake()  # nothing more to do


def test_get_server_certificate(tls: Tls) -> None:
    server = listener(tls.net)

    def serve() -> None:
        sock = accepted(tls.net, server)
        with pytest.raises((ssl.SSLError, OSError)):
            tls.keep(tls.server().wrap_socket(sock, server_side=True)).recv(1)
            raise ssl.SSLError("the end")

    with running(serve):
        pem = tls.module.get_server_certificate(server.getsockname()[:2], timeout=LIMIT_S)
    assert pem in tls.certificates.server.read_text()


def test_keys_are_logged(tls: Tls, tmp_path: Path) -> None:
    client = tls.client(V12)
    client.keylog_filename = str(tmp_path / "keys")
    tls.pair(client=client)
    assert (tmp_path / "keys").read_text().count("CLIENT_RANDOM") == 1


# ---- certificates ------------------------------------------------------------------------------------------------------------


def refusal(tls: Tls, server: Any, client: Any, hostname: str = HOSTNAME) -> tuple[Exception, Exception]:
    """What both ends say of a handshake that does not succeed."""
    a, b = pair(tls.net)
    said: dict[str, Exception] = {}

    def end(name: str, call: Callable[[], Any]) -> None:
        try:
            with call() as made:
                made.recv(1)
        except OSError as error:
            said[name] = error

    with running(lambda: end("server", lambda: server.wrap_socket(a, server_side=True))):
        end("client", lambda: client.wrap_socket(b, server_hostname=hostname))
    return said["server"], said["client"]


@pytest.mark.parametrize(
    ("chain", "hostname", "text", "code"),
    [
        ("server", OTHER_HOSTNAME, "Hostname mismatch, certificate is not valid for 'other.test'.", 62),
        ("expired", HOSTNAME, "certificate has expired", 10),
        ("stranger", HOSTNAME, "self-signed certificate", 18),
    ],
)
def test_certificates_that_are_not_trusted(tls: Tls, chain: str, hostname: str, text: str, code: int) -> None:
    at_server, at_client = refusal(tls, tls.server(chain=getattr(tls.certificates, chain)), tls.client(), hostname)
    assert isinstance(at_client, ssl.SSLCertVerificationError)
    assert at_client.verify_code == code
    assert at_client.reason == "CERTIFICATE_VERIFY_FAILED"
    assert isinstance(at_server, ssl.SSLError) and "ALERT" in str(at_server)
    assert at_client.verify_message.replace("self signed", "self-signed") == text


def test_addresses_are_names_too(tls: Tls) -> None:
    _, b = tls.pair(hostname=tls.net.hosts[0])
    assert b.getpeercert()["subject"] == ((("commonName", HOSTNAME),),)


@BOTH_VERSIONS
def test_certificates_of_clients(tls: Tls, version: Any) -> None:
    server, client = tls.server(version), tls.client()
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(tls.certificates.authority)
    at_server, at_client = refusal(tls, server, client)
    assert isinstance(at_server, ssl.SSLError) and at_server.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    assert isinstance(at_client, OSError)
    client.load_cert_chain(tls.certificates.client)
    a, _ = tls.pair(server, client)
    assert a.getpeercert()["subject"] == ((("commonName", "client"),),)


def test_a_certificate_after_the_handshake(tls: Tls) -> None:
    server, client = tls.server(V13), tls.client()
    server.post_handshake_auth = client.post_handshake_auth = True
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(tls.certificates.authority)
    client.load_cert_chain(tls.certificates.client)
    server.verify_mode = ssl.CERT_OPTIONAL
    a, b = tls.pair(server, client)
    if a.getpeercert():  # asked for in the handshake: no post-handshake authentication was agreed on
        pytest.fail("the certificate came with the handshake")
    a.verify_client_post_handshake()
    a.write(b"who are you")
    assert b.read(100) == b"who are you"
    b.write(b"me")
    assert a.read(100) == b"me"
    assert a.getpeercert()["subject"] == ((("commonName", "client"),),)


def test_versions_that_do_not_meet(tls: Tls) -> None:
    at_server, at_client = refusal(tls, tls.server(V13), tls.client(V12))
    assert isinstance(at_server, ssl.SSLError) and at_server.reason == "UNSUPPORTED_PROTOCOL"
    assert isinstance(at_client, ssl.SSLError) and at_client.reason == "TLSV1_ALERT_PROTOCOL_VERSION"


def test_a_peer_that_speaks_something_else(tls: Tls) -> None:
    a, b = pair(tls.net)
    b.sendall(b"GET / HTTP/1.0\r\n\r\n")
    with pytest.raises(ssl.SSLError) as caught:
        tls.server().wrap_socket(a, server_side=True)
    assert caught.value.reason == "HTTP_REQUEST"


# ---- the end -----------------------------------------------------------------------------------------------------------------


@BOTH_VERSIONS
def test_unwrap_leaves_a_plain_stream(tls: Tls, version: Any) -> None:
    """Both ends go on in clear at once: what follows the end of TLS is not taken for a part of it."""
    a, b = tls.pair(tls.server(version))
    b.sendall(b"secret")
    assert a.recv(100) == b"secret"

    def server() -> None:
        assert a.recv(100) == b""
        plain = a.unwrap()
        assert plain is a
        plain.sendall(b"clear")
        assert plain.recv(100) == b"and back"

    with running(server):
        plain = b.unwrap()
        assert plain is b
        assert read_exactly(plain, 5) == b"clear"
        plain.sendall(b"and back")
    with pytest.raises(ValueError, match="No SSL wrapper"):
        b.unwrap()
    with pytest.raises(ValueError, match="closed or unwrapped"):
        b.read(1)


def test_tls_begins_in_the_middle(tls: Tls) -> None:
    a, b = pair(tls.net)
    b.sendall(b"STARTTLS\n")
    assert a.recv(100) == b"STARTTLS\n"
    made: list[Any] = []
    with running(lambda: made.append(tls.server().wrap_socket(a, server_side=True))):
        b = tls.keep(tls.client().wrap_socket(b, server_hostname=HOSTNAME))
    tls.keep(made[0]).sendall(b"secret")
    assert b.recv(100) == b"secret"


@pytest.mark.parametrize("strict", [True, False])
def test_an_end_without_a_word(tls: Tls, strict: bool) -> None:
    client = tls.client()
    if strict:
        client.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    a, b = pair(tls.net)
    made: list[Any] = []
    with running(lambda: made.append(tls.server().wrap_socket(a, server_side=True))):
        b = tls.keep(client.wrap_socket(b, server_hostname=HOSTNAME, suppress_ragged_eofs=not strict))
    made[0].sendall(b"last")
    assert b.recv(4) == b"last"
    made[0].close()
    if strict:
        with pytest.raises(ssl.SSLError, match=r"(?i)eof"):
            b.recv(1)
    else:
        assert b.recv(1) == b""
        assert b.recv_into(bytearray(1)) == 0


def test_shutdown(tls: Tls) -> None:
    """The standard library's is of the stream alone, and what comes after is in clear."""
    a, b = tls.pair()
    b.shutdown(std.SHUT_WR)
    assert a.recv(1) == b""
    assert b.version() is None


def test_reset(tls: Tls) -> None:
    """A number in the error, as from Python 3.11.9 on; the standard library's were ends of the stream before (bpo issue 115627)."""
    a, b = tls.pair()
    b.sendall(b"unread")
    assert ready(a)
    a.close()
    numbers = set()
    for call in (lambda: b.recv(1), lambda: b.send(b"x"), lambda: b.send(b"x")):
        try:
            call()
        except OSError as error:
            numbers.add(error.errno)
    if tls.net.offloaded:
        assert numbers == {errno.ECONNRESET, errno.EPIPE}
    else:
        assert numbers <= {errno.ECONNRESET, errno.EPIPE, ssl.SSL_ERROR_EOF}


def test_what_came_before_a_reset_is_no_tls(tls: Tls) -> None:
    a, b = pair(tls.net)
    a.setsockopt(std.SOL_SOCKET, std.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    a.sendall(b"clear text")
    a.close()
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            b.getpeername()
        except OSError:
            break
        ready(b, limit_s=0.01)
    with pytest.raises(ssl.SSLError, match="before TLS handshake with data") as caught:
        tls.client().wrap_socket(b, server_hostname=HOSTNAME)
    assert caught.value.library is None


def test_a_reader_in_another_thread(tls: Tls) -> None:
    """It comes to an end when the peer does."""
    a, b = tls.pair()
    got: list[bytes] = []
    with running(lambda: got.append(b.recv(10))):
        a.close()
    assert got == [b""]


# ---- data --------------------------------------------------------------------------------------------------------------------


@pytest.mark.without("stdlib", "loopback")  # which have no lock for this before Python 3.13
@BOTH_VERSIONS
def test_both_ways_at_once(tls: Tls, version: Any) -> None:
    """Two threads at each end; every byte by its digest."""
    a, b = tls.pair(tls.server(version))
    block = os.urandom(1 << 20)
    blocks = BULK // len(block)
    digests: dict[Any, str] = {}

    def send(sock: Any) -> None:
        for number in range(blocks):
            sock.sendall(number.to_bytes(8, "big") + block[8:])

    def receive(sock: Any) -> None:
        digest, left, buffer = hashlib.sha256(), BULK, bytearray(1 << 16)
        view = memoryview(buffer)
        while left:
            n = sock.recv_into(buffer, min(left, len(buffer)))
            assert n
            digest.update(view[:n])
            left -= n
        digests[sock] = digest.hexdigest()

    with running(lambda: send(a)), running(lambda: send(b)), running(lambda: receive(a)):
        receive(b)
    expected = hashlib.sha256()
    for number in range(blocks):
        expected.update(number.to_bytes(8, "big") + block[8:])
    assert set(digests.values()) == {expected.hexdigest()}


@pytest.mark.without("stdlib", "loopback")  # which have no lock for this before Python 3.13
def test_many_writers(tls: Tls) -> None:
    """Each write arrives in one piece."""
    a, b = tls.pair()
    writers, each, size = 4, 50, 1000

    def write(number: int) -> None:
        for _ in range(each):
            b.sendall(bytes([number]) * size)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        counts = [0] * writers
        for _ in range(writers * each):
            got = read_exactly(a, size)
            assert len(set(got)) == 1
            counts[got[0]] += 1
    finally:
        for thread in threads:
            thread.join(LIMIT_S)
    assert counts == [each] * writers


def test_buffers(tls: Tls) -> None:
    a, b = tls.pair()
    assert b.send(memoryview(b"0123456789")[2:5]) == 3
    assert b.send(bytearray(b"ab")) == 2
    assert b.send(array.array("H", [0x3131, 0x3232])) == 4
    assert b.write(b"!") == 1
    b.sendall(memoryview(array.array("I", [0x33333333])))
    assert b.send(b"") == 0
    assert read_exactly(a, 14) == b"234ab1122!3333"
    b.sendall(bytes(range(10)))
    assert a.recv(4) == bytes(range(4))
    assert a.pending() == 6
    buffer = bytearray(8)
    assert a.recv_into(memoryview(buffer)[2:], 3) == 3
    assert buffer == bytes([0, 0, 4, 5, 6, 0, 0, 0])
    assert a.read(100, buffer) == 3
    assert buffer[:3] == bytes([7, 8, 9])
    assert a.pending() == 0
    assert a.recv(0) == b""
    for bad in ("text", 5, None):
        with pytest.raises(TypeError):
            b.send(bad)
    with pytest.raises((TypeError, BufferError)):
        b.send(memoryview(b"0123")[::2])
    b.sendall(b"x")
    with pytest.raises(TypeError):
        a.recv_into(b"constant")
    with pytest.raises(ValueError):
        a.recv(-1)
    assert a.recv(1) == b"x"


def test_one_call_for_much(tls: Tls) -> None:
    """A write says how much it wrote: all of it."""
    a, b = tls.pair()
    data = os.urandom(1_500_000)
    sent: list[int] = []
    with running(lambda: sent.append(b.write(data))):
        assert read_exactly(a, len(data)) == data
    assert sent == [len(data)]


def test_files(tls: Tls, tmp_path: Path) -> None:
    a, b = tls.pair()
    path = tmp_path / "data"
    data = os.urandom(300_000)
    path.write_bytes(data)

    def send() -> None:
        with path.open("rb") as file:
            assert b.sendfile(file, 100) == len(data) - 100
        with b.makefile("wb") as stream:
            stream.write(b"one\ntwo\n")

    with running(send), a.makefile("rb") as stream:
        assert stream.read(len(data) - 100) == data[100:]
        assert stream.readline() == b"one\n"
        assert next(stream) == b"two\n"
        a.close()  # the file has it still
        b.sendall(b"three\n")
        assert stream.readline() == b"three\n"


def test_what_tls_sockets_refuse(tls: Tls) -> None:
    a, b = tls.pair()
    for call in (b.dup, lambda: b.sendmsg([b"x"]), lambda: b.recvmsg(1), lambda: b.recvmsg_into([bytearray(1)])):
        with pytest.raises(NotImplementedError):
            call()
    for call in (
        lambda: b.send(b"x", 1),
        lambda: b.sendall(b"x", 1),
        lambda: b.recv(1, std.MSG_PEEK),
        lambda: b.recv_into(bytearray(1), 1, 1),
        lambda: b.sendto(b"x", a.getsockname()),
        lambda: b.recvfrom(1),
        lambda: b.recvfrom_into(bytearray(1)),
    ):
        with pytest.raises(ValueError, match="not allowed"):
            call()
    with pytest.raises(TypeError, match="public constructor"):
        tls.module.SSLSocket()
    with pytest.raises(NotImplementedError, match="only stream sockets"):
        tls.client().wrap_socket(tls.net.socket(), server_hostname=HOSTNAME)
    fresh = tcp(tls.net)
    with pytest.raises(ValueError, match="check_hostname"):
        tls.client().wrap_socket(fresh)
    with pytest.raises(ValueError, match="client mode"):
        tls.server().wrap_socket(fresh, server_side=True, server_hostname=HOSTNAME)
    with pytest.raises(ValueError, match="client mode"):
        tls.server().wrap_socket(fresh, server_side=True, session=b.session)
    assert fresh.fileno() >= 0


# ---- waiting -----------------------------------------------------------------------------------------------------------------


def drive(sock: Any, call: Callable[..., Any], *args: Any) -> tuple[Any, set[str]]:
    """Makes a call of a non-blocking socket until it succeeds; its result and what it waited for."""
    waited = set()
    while True:
        try:
            return call(*args), waited
        except ssl.SSLWantReadError:
            waited.add("read")
            assert ready(sock)
        except ssl.SSLWantWriteError:
            waited.add("write")
            assert ready(sock, selectors.EVENT_WRITE)


@BOTH_VERSIONS
def test_non_blocking(tls: Tls, version: Any) -> None:
    a, b = pair(tls.net)
    with pytest.raises(ValueError, match="non-blocking"):
        copy, _ = pair(tls.net)
        copy.setblocking(False)
        tls.server().wrap_socket(copy, server_side=True)
    for sock in (a, b):
        sock.setblocking(False)
    a = tls.keep(tls.server(version).wrap_socket(a, server_side=True, do_handshake_on_connect=False))
    b = tls.keep(tls.client().wrap_socket(b, server_hostname=HOSTNAME, do_handshake_on_connect=False))
    with pytest.raises(ssl.SSLWantReadError):
        a.do_handshake()
    with running(lambda: drive(a, a.do_handshake)[0]):
        drive(b, b.do_handshake)
    with pytest.raises(ssl.SSLWantReadError) as caught:
        a.recv(1)
    assert caught.value.errno == ssl.SSL_ERROR_WANT_READ
    data, sent, done = os.urandom(1 << 20), 0, []
    with pytest.raises(ssl.SSLWantWriteError) as full:
        while sent < 1 << 30:
            sent += b.send(data)
    assert full.value.errno == ssl.SSL_ERROR_WANT_WRITE
    with running(lambda: done.append(drive(b, b.send, data)[0])):
        got = bytearray()
        while len(got) < sent + len(data):
            got += drive(a, a.recv, 1 << 16)[0]
    assert done == [len(data)]
    assert got == data * (sent // len(data) + 1)
    with running(lambda: drive(a, a.unwrap)[0]):
        drive(b, b.unwrap)


def test_a_non_blocking_connect(tls: Tls) -> None:
    server = listener(tls.net)
    client = tls.client().wrap_socket(tcp(tls.net, 0), server_hostname=HOSTNAME, do_handshake_on_connect=False)
    tls.net.opened.append(client)
    assert client.connect_ex(server.getsockname()) in (0, errno.EINPROGRESS)
    assert ready(client, selectors.EVENT_WRITE)
    made: list[Any] = []
    peer = accepted(tls.net, server)
    with running(lambda: made.append(tls.server().wrap_socket(peer, server_side=True))):
        drive(client, client.do_handshake)
    tls.keep(made[0]).sendall(b"x")
    assert drive(tls.keep(client), client.recv, 1)[0] == b"x"


def test_a_retry_has_to_be_of_the_same_data(tls: Tls) -> None:
    """Or of more, which begins with it: so much is under way already."""
    a, b = tls.pair()
    b.setblocking(False)
    block, sent = os.urandom(1 << 16), 0

    def fill() -> None:
        nonlocal sent
        with pytest.raises(ssl.SSLWantWriteError):
            while sent < 1 << 30:
                sent += b.send(block)

    fill()
    got, done = bytearray(), []
    with running(lambda: done.append(drive(b, b.send, block + b"more")[0])):
        while len(got) < sent + len(block) + 4:
            got += a.recv(1 << 16)
    assert done == [len(block) + 4]
    assert got == block * (sent // len(block) + 1) + b"more"
    fill()
    with pytest.raises(ssl.SSLError) as caught:
        b.send(block[:10])
    assert not isinstance(caught.value, ssl.SSLWantWriteError)


def test_readiness_follows_records(tls: Tls) -> None:
    """As long as there is a record that nobody has read, the socket is readable; what is left of one is `pending`."""
    a, b = tls.pair(tls.server(V12))
    for text in (b"one", b"two", b"three"):
        b.send(text)
    for text in (b"one", b"two", b"three"):
        assert ready(a)
        assert select.select([a], [], [], LIMIT_S)[0] == [a]
        assert a.recv(100) == text
    assert not ready(a, limit_s=0)
    assert ready(a, selectors.EVENT_WRITE)
    b.send(b"four")
    assert ready(a)
    assert a.recv(1) == b"f"
    assert not ready(a, limit_s=0)
    assert a.pending() == 3
    poller = importlib.import_module("pyvma.select" if tls.net.ours else "select").poll()
    poller.register(a, select.POLLIN | select.POLLOUT)
    assert poller.poll(0) == [(a.fileno(), select.POLLOUT)]
    b.close()
    assert ready(a)


def test_timeouts(tls: Tls) -> None:
    a, b = pair(tls.net)
    b.settimeout(0.1)
    with pytest.raises(TimeoutError, match="handshake operation timed out"):
        tls.client().wrap_socket(b, server_hostname=HOSTNAME)
    a, b = tls.pair()
    for sock in (a, b):
        assert sock.gettimeout() == LIMIT_S
    b.settimeout(0.05)
    with pytest.raises(TimeoutError, match="read operation timed out"):
        b.recv(1)
    with pytest.raises(TimeoutError, match="read operation timed out"):
        b.unwrap()
    a, b = tls.pair()
    b.settimeout(0.05)
    with pytest.raises(TimeoutError, match="write operation timed out"):
        b.sendall(bytes(1 << 26))


def test_a_timeout_is_that_of_the_call(tls: Tls) -> None:
    """A peer whose bytes come one by one makes no call last longer than its timeout; nothing of a record is lost by it."""
    a, b = pair(tls.net)
    server, client = tls.server(V12), tls.client()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = server.wrap_bio(incoming, outgoing, server_side=True)

    def handshake() -> None:
        while True:
            try:
                engine.do_handshake()
            except ssl.SSLWantReadError:
                if waiting := outgoing.read():
                    a.sendall(waiting)
                incoming.write(a.recv(65536))
            else:
                a.sendall(outgoing.read())
                return

    with running(handshake):
        b = tls.keep(client.wrap_socket(b, server_hostname=HOSTNAME))
    engine.write(b"slowly")
    record = outgoing.read()
    b.settimeout(0.3)
    stop = threading.Event()

    def drip() -> None:
        for byte in record[:-1]:
            a.sendall(bytes([byte]))
            if stop.wait(0.05):
                break
        stop.wait(LIMIT_S)

    with running(drip):
        with pytest.raises(TimeoutError, match="read operation timed out"):
            b.recv(100)
        stop.set()


# ---- objects -----------------------------------------------------------------------------------------------------------------


def test_sockets_go_without_the_collector(tls: Tls) -> None:
    a, b = tls.pair()
    b.sendall(b"x")
    assert a.recv(1) == b"x"
    references = [weakref.ref(a), weakref.ref(b)]
    tls.net.opened[:] = [sock for sock in tls.net.opened if sock not in (a, b)]
    gc.disable()
    try:
        a.close()
        b.close()
        del a, b
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


def test_subclasses(tls: Tls) -> None:
    class Mine(tls.module.SSLSocket):  # type: ignore[misc, name-defined]
        def recv(self, size: int = 1024, flags: int = 0) -> bytes:
            data: bytes = super().recv(size, flags)
            return data[::-1]

    server = tls.server()
    server.sslsocket_class = Mine
    a, b = tls.pair(server)
    assert type(a) is Mine
    b.send(b"abc")
    assert a.recv(3) == b"cba"


def test_context_managers_and_names(tls: Tls) -> None:
    a, b = tls.pair()
    with a, b:
        assert "SSLSocket" in repr(b)
        assert f"raddr={b.getpeername()}" in repr(b)
    assert a.fileno() == b.fileno() == -1
    for call in (lambda: b.recv(1), lambda: b.send(b"x")):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


@pytest.mark.without("stdlib", "loopback")
def test_an_offloaded_stream_needs_no_fd(tls: Tls) -> None:
    import _socket

    a, b = tls.pair()
    b.sendall(b"x")
    assert a.recv(1) == b"x"
    assert [_socket.socket.fileno(sock) for sock in (a, b)] == [-1, -1]
    assert a.stats["rx_bytes"] > 1
