"""Time stamps of streams: the kernel's own behaviour over loopback, case by case, and ours beside it, read by the same code."""

from __future__ import annotations

import errno
import select
import socket as std
import struct
import time
from typing import Any

import pytest
from exchange import wait_for
from sides import LIMIT_S, Net
from stamp_sides import (
    SEND,
    SOCKET,
    Errno,
    between,
    flag,
    headers,
    poll_module,
    recverr,
    some,
    stamped,
    tcp_pair,
)
from stamps import (
    OPT_ID,
    OPT_ID_TCP,
    OPT_TSONLY,
    RX_SOFTWARE,
    SOFTWARE,
    TIMESTAMP,
    TIMESTAMP_NEW,
    TIMESTAMPING,
    TIMESTAMPNS,
    TIMESTAMPNS_NEW,
    TS_OPT_ID,
    TX_ACK,
    TX_SCHED,
    TX_SOFTWARE,
    ask,
    drain,
    told,
)


@pytest.mark.parametrize("extra", [0, OPT_TSONLY])
@pytest.mark.parametrize("counted", [OPT_ID, OPT_ID | OPT_ID_TCP, 0])
def test_sent_bytes(net: Net, extra: int, counted: int) -> None:
    server, client = tcp_pair(net)
    client.sendall(b"before")
    assert server.recv(100) == b"before"
    wait_for("the acknowledgement", lambda: struct.unpack("@i", ioctl_outq(client))[0] == 0)
    flag(client, SEND | TX_SCHED | TX_ACK | counted | extra)
    last = -1
    for data in (b"ten bytes!", b"five!"):
        before = time.time_ns()
        client.sendall(data)
        assert server.recv(100) == data
        found = some(client, 3)
        after = time.time_ns()
        last += len(data)
        assert [(one.kind, one.number) for one in found] == [(kind, last if counted else 0) for kind in ("SCHED", "SND", "ACK")]
        for one in found:
            between(before, one.software, after)
            assert one.order == [(SOCKET, TIMESTAMPING, 48), recverr(net)]
            if extra:
                assert one.data == b""
            elif one.kind == "ACK":
                assert one.data == data
                assert one.offender == ""
            else:
                assert one.data[headers(net, 32) :] == data
                assert one.offender == ("" if net.family == std.AF_INET else client.getsockname()[0])
        assert found[0].software <= found[1].software <= found[2].software
    assert drain(client) == []
    assert client.getsockopt(SOCKET, std.SO_ERROR) == 0


def ioctl_outq(sock: Any) -> bytes:
    """SIOCOUTQ."""
    if hasattr(sock, "offload") and sock.offload:
        return struct.pack("@i", sock.stats["queued"] * 0 + outq(sock))
    import fcntl

    return fcntl.ioctl(sock.fileno(), 0x5411, bytes(4))


def outq(sock: Any) -> int:
    """Bytes that are not acknowledged: TCP_INFO says in how many segments."""
    return struct.unpack_from("@I", sock.getsockopt(std.IPPROTO_TCP, std.TCP_INFO, 104), 24)[0]


def test_numbers_count_from_what_is_acknowledged(net: Net) -> None:
    """... and with OPT_ID_TCP from what is written: the option set while nothing is under way, both are one."""
    server, client = tcp_pair(net)
    flag(client, SEND | OPT_ID | OPT_ID_TCP | OPT_TSONLY)
    client.sendall(b"x")
    client.sendall(b"yz")
    assert [one.number for one in some(client, 2)] == [0, 2]
    flag(client, SEND | OPT_TSONLY)
    flag(client, SEND | OPT_ID | OPT_ID_TCP | OPT_TSONLY)
    client.sendall(b"123")
    assert [one.number for one in some(client, 1)] == [2]
    assert server.recv(100)[:1] == b"x"


@pytest.mark.parametrize("wanted", [TX_SOFTWARE, TX_ACK, TX_SCHED | TX_ACK, 0])
def test_asked_for_by_a_write(net: Net, wanted: int, errno_of: Errno) -> None:
    server, client = tcp_pair(net)
    flag(client, SOFTWARE | OPT_ID | OPT_TSONLY)
    client.sendall(b"plain")
    assert client.sendmsg([b"as", b"ked"], [ask(wanted)]) == 5
    client.sendall(b"plain")
    got = b""
    while len(got) < 15:
        got += server.recv(100)
    kinds = [kind for bit, kind in ((TX_SCHED, "SCHED"), (TX_SOFTWARE, "SND"), (TX_ACK, "ACK")) if wanted & bit]
    assert [(one.kind, one.number) for one in some(client, len(kinds))] == [(kind, 9) for kind in kinds]
    assert errno_of(client.sendmsg, [b"x"], [(SOCKET, TS_OPT_ID, struct.pack("@I", 7))]) == errno.EINVAL
    assert errno_of(client.sendmsg, [b"x"], [(SOCKET, TIMESTAMPING, struct.pack("@I", SOFTWARE))]) == errno.EINVAL
    assert errno_of(client.sendmsg, [b"x"], [(SOCKET, 99, b"")]) == errno.EINVAL


def test_long_write(net: Net) -> None:
    """The last byte of a write is the one that counts."""
    server, client = tcp_pair(net)
    flag(client, SOFTWARE | TX_ACK | OPT_ID | OPT_TSONLY)
    sent = 0
    for size in (100_000, 3, 50_000):
        client.sendall(bytes(size))
        sent += size
        left = size
        while left:
            left -= len(server.recv(left))
        # One that was taken in parts is a write each.
        numbers: list[int] = []

        def all_acknowledged(numbers: list[int] = numbers, last: int = sent - 1) -> bool:
            numbers.extend(one.number for one in drain(client))
            return numbers[-1:] == [last]

        wait_for("the acknowledgement", all_acknowledged)
        assert numbers == sorted(set(numbers))
        assert numbers[0] >= sent - size


def test_stream_readiness(net: Net) -> None:
    module, (server, client) = poll_module(net), tcp_pair(net)
    flag(client, SOFTWARE | TX_ACK | OPT_TSONLY)
    poller = module.poll()
    poller.register(client, select.POLLIN)
    assert poller.poll(0) == []
    client.sendall(b"x")
    assert server.recv(10) == b"x"
    assert [bits for _, bits in poller.poll(20000)] == [select.POLLERR]
    # Neither reading nor writing minds.
    server.sendall(b"answer")
    assert client.recv(10) == b"answer"
    flag(client, 0)
    client.sendall(bytes(1000))
    some(client, 1)
    assert poller.poll(0) == []


@pytest.mark.parametrize("option", [TIMESTAMP, TIMESTAMPNS, TIMESTAMP_NEW, TIMESTAMPNS_NEW])
def test_plain_stamp_of_a_stream(net: Net, option: int) -> None:
    server, client = tcp_pair(net)
    flag(server, 1, option)
    before, got, after = stamped(net, lambda: client.sendall(b"x"), server)
    assert got.order == [(SOCKET, option, 16)]
    assert got.address is None
    between(before, got.plain, after)


def test_stamps_of_pieces_of_a_stream(net: Net) -> None:
    """A read has the stamp of the segment that its last byte came in."""
    server, client = tcp_pair(net)
    flag(server, SOFTWARE | RX_SOFTWARE)
    flag(server, 1, TIMESTAMPNS)
    stamped(net, lambda: client.sendall(b"x"), server)
    times = []
    for data in (b"a" * 300, b"b" * 300):
        times.append(time.time_ns())
        client.sendall(data)
        wait_for("it", lambda data=data: data[:1] in server.recv(600, std.MSG_PEEK))
        times.append(time.time_ns())
        time.sleep(0.2)
    sizes = [100, 250, 250]
    found = [told(server.recvmsg(size, 200)) for size in sizes]
    assert [len(one.data) for one in found] == sizes
    for one in found:
        assert one.order == [(SOCKET, TIMESTAMPNS, 16), (SOCKET, TIMESTAMPING, 48)]
        assert one.plain == one.software
    # The kernel may have put both into one buffer, which has the later stamp.
    merged = not net.offloaded and found[0].software == found[2].software
    between(*((times[2], found[0].software, times[3]) if merged else (times[0], found[0].software, times[1])))
    between(times[2], found[2].software, times[3])
    assert found[1].software == found[2].software
    peeked = lambda: told(server.recvmsg(10, 200, std.MSG_PEEK))  # noqa: E731
    client.sendall(b"more")
    select.select([server.fileno()], [], [], LIMIT_S)
    assert peeked().software == told(server.recvmsg(10, 200)).software


def test_end_of_a_stream_has_no_stamp(net: Net) -> None:
    server, client = tcp_pair(net)
    flag(server, 1, TIMESTAMP)
    client.close()
    assert told(server.recvmsg(10, 100)).order == []


def test_options_are_inherited(net: Net) -> None:
    def prepare(listener: Any) -> None:
        flag(listener, SEND | RX_SOFTWARE | OPT_TSONLY)
        flag(listener, 1, TIMESTAMPNS)

    server, client = tcp_pair(net, prepare)
    assert server.getsockopt(SOCKET, TIMESTAMPING) == SEND | RX_SOFTWARE | OPT_TSONLY
    assert server.getsockopt(SOCKET, TIMESTAMPNS) == 1
    assert client.getsockopt(SOCKET, TIMESTAMPING) == 0
    server.sendall(b"x")
    assert [one.order for one in some(server, 1)] == [[(SOCKET, TIMESTAMPNS, 16), (SOCKET, TIMESTAMPING, 48), recverr(net)]]
    _, got, _ = stamped(net, lambda: client.sendall(b"y"), server)
    assert got.plain
