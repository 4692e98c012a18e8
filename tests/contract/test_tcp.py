"""What a TCP socket does, whoever carries it."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import select
import selectors
import socket as std
import struct
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sides import LIMIT_S, Net
from streams import accepted, listener, pair, running, tcp

Errno = Callable[..., int]


def read_all(sock: Any, size: int = 65536) -> bytes:
    parts = []
    while part := sock.recv(size):
        parts.append(part)
    return b"".join(parts)


def test_names(net: Net) -> None:
    server, client = listener(net), tcp(net)
    client.connect(server.getsockname())
    peer, address = server.accept()
    net.opened.append(peer)
    assert address == client.getsockname() == peer.getpeername()
    assert client.getpeername() == server.getsockname() == peer.getsockname()
    assert peer.type == std.SOCK_STREAM
    if net.ours:
        assert bool(peer.offload) == bool(client.offload) == net.offloaded


def test_a_message_each_way(net: Net) -> None:
    a, b = pair(net)
    assert b.send(b"ping") == 4
    assert a.recv(100) == b"ping"
    assert a.sendall(b"pong") is None
    assert b.recv(100) == b"pong"


@pytest.mark.parametrize("size", [1, 1459, 1460, 1461, 65536, 3_000_000])
def test_bytes_arrive_in_order(net: Net, size: int) -> None:
    a, b = pair(net)
    data = os.urandom(size)

    def send() -> None:
        b.sendall(data)
        b.shutdown(std.SHUT_WR)

    with running(send):
        got = read_all(a)
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    assert len(got) == size


def test_both_ways_at_once(net: Net) -> None:
    a, b = pair(net)
    data = os.urandom(2_000_000)
    got: dict[str, bytes] = {}

    def send(sock: Any) -> Callable[[], None]:
        return lambda: (sock.sendall(data), sock.shutdown(std.SHUT_WR))[1]

    def receive() -> None:
        got["b"] = read_all(b)

    with running(send(a)), running(send(b)), running(receive):
        got["a"] = read_all(a)
    assert got == {"a": data, "b": data}


def test_half_close(net: Net) -> None:
    a, b = pair(net)
    b.sendall(b"question")
    b.shutdown(std.SHUT_WR)
    assert read_all(a) == b"question"
    a.sendall(b"answer")
    a.close()
    assert read_all(b) == b"answer"


def test_send_after_shutdown(net: Net, errno_of: Errno) -> None:
    _, b = pair(net)
    b.shutdown(std.SHUT_WR)
    assert errno_of(b.send, b"x") == errno.EPIPE


def test_close_with_unread_data_resets(net: Net, errno_of: Errno) -> None:
    a, b = pair(net)
    b.sendall(b"nobody reads this")
    assert select.select([a], [], [], LIMIT_S)[0]
    a.close()
    assert errno_of(b.recv, 10) == errno.ECONNRESET


def test_linger_zero_resets(net: Net, errno_of: Errno) -> None:
    a, b = pair(net)
    a.setsockopt(std.SOL_SOCKET, std.SO_LINGER, struct.pack("ii", 1, 0))
    a.close()
    assert errno_of(b.recv, 10) == errno.ECONNRESET


def test_refused(net: Net, errno_of: Errno) -> None:
    server = listener(net)
    address = server.getsockname()
    server.close()
    client = tcp(net)
    assert errno_of(client.connect, address) == errno.ECONNREFUSED
    assert tcp(net).connect_ex(address) == errno.ECONNREFUSED


def test_not_connected(net: Net, errno_of: Errno) -> None:
    server, fresh = listener(net), tcp(net)
    assert errno_of(fresh.recv, 1) == errno.ENOTCONN
    assert errno_of(fresh.getpeername) == errno.ENOTCONN
    assert errno_of(server.getpeername) == errno.ENOTCONN
    server.settimeout(None)  # the standard library would wait for data to come first
    assert errno_of(server.recv, 1) == errno.ENOTCONN
    assert errno_of(fresh.accept) == errno.EINVAL
    assert errno_of(fresh.shutdown, std.SHUT_RDWR) == errno.ENOTCONN


def test_twice(net: Net, errno_of: Errno) -> None:
    server, client = listener(net), tcp(net, None)
    client.connect(server.getsockname())
    assert errno_of(client.connect, server.getsockname()) == errno.EISCONN
    assert errno_of(client.listen) == errno.EINVAL
    other = tcp(net)
    assert errno_of(other.bind, server.getsockname()) == errno.EADDRINUSE


def test_non_blocking(net: Net, errno_of: Errno) -> None:
    server, client = listener(net), tcp(net, 0)
    server.setblocking(False)
    assert errno_of(server.accept) == errno.EAGAIN
    assert client.connect_ex(server.getsockname()) in (0, errno.EINPROGRESS)
    assert select.select([], [client], [], LIMIT_S)[1]
    assert client.getsockopt(std.SOL_SOCKET, std.SO_ERROR) == 0
    assert select.select([server], [], [], LIMIT_S)[0]
    peer = accepted(net, server)
    assert errno_of(client.recv, 1) == errno.EAGAIN
    peer.send(b"x")
    assert select.select([client], [], [], LIMIT_S)[0]
    assert client.recv(10) == b"x"
    peer.close()
    assert select.select([client], [], [], LIMIT_S)[0]
    assert client.recv(10) == b""


def test_non_blocking_refused(net: Net) -> None:
    server = listener(net)
    address = server.getsockname()
    server.close()
    client = tcp(net, 0)
    rc = client.connect_ex(address)
    if rc == errno.EINPROGRESS:
        assert select.select([], [client], [], LIMIT_S)[1]
        rc = client.getsockopt(std.SOL_SOCKET, std.SO_ERROR)
    assert rc == errno.ECONNREFUSED


def test_a_full_buffer(net: Net) -> None:
    """A reader that does not read stops the writer; as it reads on, the writer goes on, and nothing is lost."""
    a, b = pair(net)
    b.setblocking(False)
    block, sent = os.urandom(65536), 0
    with selectors.DefaultSelector() as selector:
        selector.register(b, selectors.EVENT_WRITE)
        # What is acknowledged makes room once more, until the receiver's window is full as well.
        while selector.select(0.5):
            with pytest.raises(BlockingIOError):
                while sent < 1 << 30:
                    sent += b.send(block)
        got = 0
        while got < sent:
            got += len(a.recv(1 << 20))
        assert selector.select(LIMIT_S)
    assert b.send(b"more") == 4
    assert a.recv(10) == b"more"


def test_timeouts(net: Net) -> None:
    server = listener(net)
    server.settimeout(0.05)
    with pytest.raises(TimeoutError, match="timed out"):
        server.accept()
    server.settimeout(LIMIT_S)
    client = tcp(net, 0.05)
    client.connect(server.getsockname())
    accepted(net, server)
    with pytest.raises(TimeoutError, match="timed out"):
        client.recv(1)
    with pytest.raises(TimeoutError, match="timed out"):
        client.sendall(bytes(1 << 28))


def test_peek_and_waitall(net: Net) -> None:
    a, b = pair(net)
    b.sendall(b"abc")
    assert a.recv(2, std.MSG_PEEK) == b"ab"
    assert a.recv(3, std.MSG_WAITALL) == b"abc"

    def later() -> None:
        for _ in range(4):
            b.sendall(bytes(50_000))

    a.settimeout(None)
    with running(later):
        assert len(a.recv(200_000, std.MSG_WAITALL)) == 200_000


def test_scatter_and_gather(net: Net) -> None:
    a, b = pair(net)
    parts = [b"one", b"", b"two", bytes(5000), b"end"]
    assert b.sendmsg(parts) == 5009
    got = [bytearray(4), bytearray(3), bytearray(6000)]
    whole = b""
    while len(whole) < 5009:
        n, ancillary, flags, address = a.recvmsg_into(got)
        assert (ancillary, flags, address) == ([], 0, None)
        whole += b"".join(got)[:n]
    assert whole == b"".join(parts)


def test_recvmsg_of_any_size(net: Net) -> None:
    a, b = pair(net)
    data = os.urandom(300_000)
    a.settimeout(None)
    with running(lambda: b.sendall(data)):
        got, ancillary, _, address = a.recvmsg(len(data), 0, std.MSG_WAITALL)
    assert (got, ancillary, address) == (data, [], None)


def test_recvfrom_names_nobody(net: Net) -> None:
    a, b = pair(net)
    b.sendall(b"x")
    assert a.recvfrom(10) == (b"x", None)


def test_urgent_byte(net: Net) -> None:
    a, b = pair(net)
    b.send(b"ab")
    b.send(b"!", std.MSG_OOB)
    b.send(b"cd")
    assert select.select([a], [], [], LIMIT_S)[0]
    assert a.recv(2, std.MSG_WAITALL) == b"ab"
    deadline = time.monotonic() + LIMIT_S
    got = b""
    while not got and time.monotonic() < deadline:
        with suppress(OSError):  # it has not come yet
            got = a.recv(1, std.MSG_OOB)
    assert got == b"!"
    assert a.recv(2, std.MSG_WAITALL) == b"cd"


def test_options(net: Net, errno_of: Errno) -> None:
    a, b = pair(net)
    for level, name, value in (
        (std.IPPROTO_TCP, std.TCP_NODELAY, 1),
        (std.IPPROTO_TCP, std.TCP_KEEPIDLE, 77),
        (std.IPPROTO_TCP, std.TCP_KEEPINTVL, 7),
        (std.IPPROTO_TCP, std.TCP_KEEPCNT, 3),
        (std.IPPROTO_TCP, std.TCP_USER_TIMEOUT, 5000),
        (std.SOL_SOCKET, std.SO_KEEPALIVE, 1),
    ):
        assert a.getsockopt(level, name) != value
        a.setsockopt(level, name, value)
        assert a.getsockopt(level, name) == value
    a.setsockopt(std.IPPROTO_TCP, std.TCP_CONGESTION, b"reno")
    assert a.getsockopt(std.IPPROTO_TCP, std.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
    assert errno_of(a.setsockopt, std.IPPROTO_TCP, std.TCP_CONGESTION, b"no such") == errno.ENOENT
    assert errno_of(a.setsockopt, std.IPPROTO_TCP, std.TCP_KEEPIDLE, 0) == errno.EINVAL
    assert b.getsockopt(std.IPPROTO_TCP, std.TCP_INFO, 104)[0] == 1  # ESTABLISHED
    assert b.getsockopt(std.SOL_SOCKET, std.SO_TYPE) == std.SOCK_STREAM
    assert 500 < b.getsockopt(std.IPPROTO_TCP, std.TCP_MAXSEG) < 70_000


def test_children_inherit(net: Net) -> None:
    server, client = listener(net), tcp(net)
    server.setsockopt(std.IPPROTO_TCP, std.TCP_NODELAY, 1)
    server.setsockopt(std.SOL_SOCKET, std.SO_KEEPALIVE, 1)
    client.connect(server.getsockname())
    peer = accepted(net, server)
    assert peer.getsockopt(std.IPPROTO_TCP, std.TCP_NODELAY) == 1
    assert peer.getsockopt(std.SOL_SOCKET, std.SO_KEEPALIVE) == 1


def test_wildcard_listener(net: Net) -> None:
    """A listener on all addresses takes from the ring and from the kernel."""
    server = tcp(net)
    server.bind(("0.0.0.0" if net.family == std.AF_INET else "::", 0))
    server.listen()
    port = server.getsockname()[1]
    loopback = "127.0.0.1" if net.family == std.AF_INET else "::1"
    for host in (net.hosts[0], loopback, net.hosts[0]):
        client = tcp(net)
        client.connect((host, port))
        peer = accepted(net, server)
        client.sendall(b"hello")
        assert peer.recv(10) == b"hello"
        assert peer.getsockname()[0] == host
        if net.ours:
            assert bool(peer.offload) == (net.offloaded and host != loopback)


def test_makefile_and_sendfile(net: Net, tmp_path: Any) -> None:
    a, b = pair(net)
    path = tmp_path / "data"
    data = os.urandom(300_000)
    path.write_bytes(data)

    def send() -> None:
        with path.open("rb") as file:
            assert b.sendfile(file) == len(data)
        b.shutdown(std.SHUT_WR)

    with running(send), a.makefile("rb") as stream:
        assert stream.read() == data


def test_create_connection_and_server(net: Net) -> None:
    with net.module.create_server((net.hosts[0], 0), family=net.family) as server:
        with net.module.create_connection(server.getsockname()[:2], timeout=LIMIT_S) as client:
            peer, _ = server.accept()
            with peer:
                client.sendall(b"x")
                assert peer.recv(1) == b"x"


def test_many_connections(net: Net) -> None:
    server = listener(net, 128)
    pairs = []
    for _ in range(100):
        client = tcp(net)
        client.connect(server.getsockname())
        pairs.append((accepted(net, server), client))
    for number, (peer, client) in enumerate(pairs):
        client.sendall(b"%d" % number)
        assert peer.recv(10) == b"%d" % number
    for peer, client in pairs:
        peer.close()
        assert client.recv(1) == b""
        client.close()


def test_detach_and_dup(net: Net) -> None:
    a, b = pair(net)
    copy = b.dup()
    net.opened.append(copy)
    b.close()
    copy.sendall(b"x")
    assert a.recv(1) == b"x"
    again = net.module.socket(fileno=copy.detach())
    again.settimeout(LIMIT_S)
    net.opened.append(again)
    again.sendall(b"y")
    assert a.recv(1) == b"y"


def test_a_known_fd_finds_its_socket(net: Net) -> None:
    """By a number that select knows, too."""
    a, b = pair(net)
    assert not select.select([b], [], [], 0)[0]
    copy = net.module.socket(fileno=os.dup(b.fileno()))
    net.opened.append(copy)
    assert (copy.family, copy.type, copy.proto) == (net.family, std.SOCK_STREAM, std.IPPROTO_TCP)
    assert copy.getpeername() == a.getsockname()
    if net.ours:
        assert copy.offload.state == b.offload.state
    copy.sendall(b"x")
    assert a.recv(1) == b"x"
    a.sendall(b"y")
    assert select.select([copy], [], [], LIMIT_S)[0]
    copy.close()
    assert b.recv(1) == b"y"


def test_one_socket_in_two_threads(net: Net) -> None:
    """One thread sends and one receives on the same socket; the peer sends back what comes."""
    a, b = pair(net)
    data = os.urandom(4_000_000)

    def echo() -> None:
        while part := a.recv(65536):
            a.sendall(part)
        a.shutdown(std.SHUT_WR)

    def send() -> None:
        for at in range(0, len(data), 10_000):
            b.sendall(data[at : at + 10_000])
        b.shutdown(std.SHUT_WR)

    with running(echo), running(send):
        got = read_all(b)
    assert got == data


@pytest.mark.without("stdlib", "loopback")  # the kernel lets them wait on
@pytest.mark.parametrize("what", ["recv", "recv_into", "recvmsg", "recv_batch", "sendall", "accept", "connect"])
def test_close_wakes_who_waits(net: Net, what: str) -> None:
    server = listener(net)
    if what == "accept":
        waiting = server
    elif what == "connect":
        waiting = tcp(net)
    else:
        waiting = tcp(net)
        waiting.connect(server.getsockname())
        accepted(net, server)
    waiting.settimeout(None)
    calls = {
        "recv": lambda: waiting.recv(10),
        "recv_into": lambda: waiting.recv_into(bytearray(10)),
        "recvmsg": lambda: waiting.recvmsg(10),
        "recv_batch": lambda: waiting.recv_batch(10),
        "sendall": lambda: waiting.sendall(bytes(1 << 28)),
        "accept": lambda: waiting.accept(),
        "connect": lambda: waiting.connect(net.nobody()),
    }
    about, seen = threading.Event(), []

    def wait() -> None:
        about.set()
        try:
            calls[what]()
        except OSError as error:
            seen.append(error.errno)

    with running(wait):
        about.wait()
        time.sleep(0.05)  # most likely it waits by now; either way the answer is the same
        waiting.close()
    assert seen == [errno.EBADF]


def test_unclosed_streams_warn(net: Net) -> None:
    with listener(net) as server:
        client = net.module.create_connection(server.getsockname()[:2], LIMIT_S)
        peer, _ = server.accept()
        texts = [f"unclosed {client!r}", f"unclosed {peer!r}"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del client
            assert peer.recv(1) == b""
            del peer
            gc.collect()
    assert [str(item.message) for item in caught if item.category is ResourceWarning] == texts


def test_shutdown_wakes_a_reader(net: Net) -> None:
    a, _ = pair(net)
    a.settimeout(None)
    started = threading.Event()
    got: list[bytes] = []

    def read() -> None:
        started.set()
        got.append(a.recv(10))

    with running(read):
        started.wait()
        a.shutdown(std.SHUT_RDWR)
    assert got == [b""]


# ---- the fd, which an offloaded stream has only once somebody asks ----


def fds() -> Counter[str]:
    """What the fds lead to: sockets have names of their own, so that one which goes meanwhile does not hide one that has come."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found[os.readlink(f"/proc/self/fd/{number}")] += 1
    return found


def test_connections_take_no_fd_until_asked(net: Net) -> None:
    server, count = listener(net), 20
    pair_first = tcp(net)
    pair_first.setsockopt(std.IPPROTO_TCP, std.TCP_NODELAY, 1)
    pair_first.connect(server.getsockname())
    accepted(net, server)
    before, ends = fds(), []
    for _ in range(count):
        client = tcp(net)
        client.setsockopt(std.IPPROTO_TCP, std.TCP_NODELAY, 1)
        client.connect(server.getsockname())
        peer = accepted(net, server)
        peer.setsockopt(std.SOL_SOCKET, std.SO_KEEPALIVE, 1)
        client.sendall(b"here")
        assert peer.recv(10) == b"here"
        assert client.getsockopt(std.IPPROTO_TCP, std.TCP_NODELAY) and peer.getsockopt(std.SOL_SOCKET, std.SO_KEEPALIVE)
        repr(client), client.gettimeout(), client.type, client.getpeername()
        ends += [client, peer]
    taken = (fds() - before).total()
    assert taken == 0 if net.offloaded else taken >= 2 * count
    numbers = {end.fileno() for end in ends}
    assert len(numbers) == 2 * count and min(numbers) >= 0
    assert [end.fileno() for end in ends] == [end.fileno() for end in ends]
    for end in ends:
        end.close()
    assert not fds() - before
    assert all(end.fileno() == -1 for end in ends)


def test_an_fd_asked_for_late_shows_what_came_before(net: Net) -> None:
    a, b = pair(net)
    b.sendall(b"early")
    assert a.recv(1) == b"e"
    assert select.select([a], [], [], LIMIT_S)[0] == [a]
    assert not os.get_inheritable(a.fileno())
    assert a.recv(10) == b"arly"
    assert select.select([a], [a], [], 0) == ([], [a], [])
    b.close()
    assert select.select([a], [], [], LIMIT_S)[0] == [a]
    assert a.recv(10) == b""


def test_dup_and_detach_of_a_stream_without_an_fd(net: Net) -> None:
    a, b = pair(net)
    twin = a.dup()
    net.opened.append(twin)
    assert twin.fileno() != a.fileno() and twin.getpeername() == a.getpeername()
    a.close()
    b.sendall(b"one")
    assert twin.recv(3) == b"one"
    number = twin.detach()
    assert number >= 0 and twin.fileno() == -1
    again = net.module.socket(fileno=number)
    net.opened.append(again)
    again.settimeout(LIMIT_S)
    assert (again.family, again.type) == (net.family, std.SOCK_STREAM)
    b.sendall(b"two")
    assert again.recv(3) == b"two"
    again.close()
    assert b.recv(1) == b""


def test_timeouts_outlive_the_making_of_an_fd(net: Net) -> None:
    a, _ = pair(net)
    a.settimeout(0.25)
    a.fileno()
    assert a.gettimeout() == 0.25
    a.setblocking(False)
    assert a.gettimeout() == 0.0 and not os.get_blocking(a.fileno())
    with pytest.raises(BlockingIOError):
        a.recv(1)
    a.settimeout(None)
    assert a.gettimeout() is None


def test_options_set_before_anything_is_decided_hold_on_either_side(net: Net) -> None:
    server, client = listener(net), tcp(net)
    client.setsockopt(std.IPPROTO_TCP, std.TCP_KEEPIDLE, 77)
    client.setsockopt(std.SOL_SOCKET, std.SO_LINGER, struct.pack("ii", 1, 3))
    client.setsockopt(std.SOL_SOCKET, std.SO_RCVBUF, 30000)
    client.connect(server.getsockname())
    assert client.getsockopt(std.IPPROTO_TCP, std.TCP_KEEPIDLE) == 77
    assert struct.unpack("ii", client.getsockopt(std.SOL_SOCKET, std.SO_LINGER, 8)) == (1, 3)
    assert client.getsockopt(std.SOL_SOCKET, std.SO_RCVBUF) == 60000
    with pytest.raises(OSError) as caught:
        client.setsockopt(std.IPPROTO_TCP, std.TCP_KEEPIDLE, 0)
    assert caught.value.errno == errno.EINVAL
    assert client.getsockopt(std.SOL_SOCKET, std.SO_TYPE) == std.SOCK_STREAM
    client.setsockopt(std.SOL_SOCKET, std.SO_PRIORITY, 3)
    assert client.getsockopt(std.SOL_SOCKET, std.SO_PRIORITY) == 3
    assert client.getsockopt(std.IPPROTO_TCP, std.TCP_KEEPIDLE) == 77
    assert struct.unpack("ii", client.getsockopt(std.SOL_SOCKET, std.SO_LINGER, 8)) == (1, 3)
