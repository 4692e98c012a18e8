"""Time stamps of sockets: the kernel's own behaviour over loopback, case by case, and ours beside it, read by the same code."""

from __future__ import annotations

import errno
import os
import re
import select
import socket as std
import struct
import time
from typing import Any

import pytest
from exchange import wait_for
from sides import LIMIT_S, Net
from stamp_sides import (
    ETHERNET,
    SEND,
    SLACK_NS,
    SOCKET,
    Errno,
    between,
    flag,
    headers,
    plain_options,
    poll_module,
    recverr,
    stamped,
    tcp_pair,
)
from stamps import (
    BIND_PHC,
    OPT_CMSG,
    OPT_ID,
    OPT_ID_TCP,
    OPT_PKTINFO,
    OPT_RX_FILTER,
    OPT_STATS,
    OPT_TSONLY,
    OPT_TX_SWHW,
    RAW_HARDWARE,
    RX_HARDWARE,
    RX_SOFTWARE,
    SOFTWARE,
    TIMESTAMP,
    TIMESTAMP_NEW,
    TIMESTAMPING,
    TIMESTAMPING_NEW,
    TIMESTAMPNS,
    TIMESTAMPNS_NEW,
    TS_OPT_ID,
    TX_ACK,
    TX_HARDWARE,
    TX_SCHED,
    TX_SOFTWARE,
    Told,
    ask,
    drain,
    told,
)

# ---- received ----


@pytest.mark.parametrize("option", [TIMESTAMP, TIMESTAMPNS, TIMESTAMP_NEW, TIMESTAMPNS_NEW])
def test_plain_stamp_of_a_datagram(net: Net, option: int) -> None:
    a, b = net.pair()
    flag(a, 1, option)
    before, got, after = stamped(net, lambda: b.send(b"x"), a)
    assert got.order == [(SOCKET, option, 16)]
    between(before, got.plain, after)
    assert plain_options(a) == [option]
    flag(a, 0, option)
    b.send(b"y")
    assert told(a.recvmsg(10, 100)).order == []


def test_plain_stamp_is_of_the_arrival(net: Net) -> None:
    a, b = net.pair()
    flag(a, 1, TIMESTAMPNS)
    for _ in range(20):
        before = time.time_ns()
        b.send(b"y")
        select.select([a], [], [], LIMIT_S)
        after = time.time_ns()
        time.sleep(0.2)
        found = told(a.recvmsg(10, 100)).plain
        # The kernel does not begin at once: of what came before it tells the time of the call.
        if net.offloaded or (found or 0) <= after + SLACK_NS:
            break
    between(before, found, after)


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("plain", [0, TIMESTAMP, TIMESTAMPNS])
def test_timestamping_of_a_datagram(net: Net, plain: int, new: bool) -> None:
    a, b = net.pair()
    if plain:
        flag(a, 1, plain)
    name = TIMESTAMPING_NEW if new else TIMESTAMPING
    flag(a, SOFTWARE | RX_SOFTWARE | RAW_HARDWARE | RX_HARDWARE, name)
    for _ in range(1000):
        before, got, after = stamped(net, lambda: b.send(b"hello"), a)
        if got.software:
            break
        time.sleep(0.005)
    between(before, got.software, after)
    assert got.raw is None or net.offloaded
    newer = {TIMESTAMP: TIMESTAMP_NEW, TIMESTAMPNS: TIMESTAMPNS_NEW}
    first = [(SOCKET, newer[plain] if new else plain, 16)] if plain else []
    assert got.order == [*first, (SOCKET, name, 48)]
    if plain == TIMESTAMPNS:
        assert got.plain == got.software
    assert a.getsockopt(SOCKET, TIMESTAMPING_NEW, 8) == (struct.pack("@ii", 0x5C, 0) if new else bytes(8))
    assert a.getsockopt(SOCKET, TIMESTAMPING) == 0x5C


def test_stamps_that_are_not_reported(net: Net) -> None:
    a, b = net.pair()
    flag(a, RX_SOFTWARE)
    b.send(b"x")
    assert told(a.recvmsg(10, 100)).order == []
    flag(a, SOFTWARE | OPT_RX_FILTER)
    flag(a, 1, TIMESTAMP)
    _, got, _ = stamped(net, lambda: b.send(b"y"), a)
    assert got.order == [(SOCKET, TIMESTAMP, 16)]


def test_stamps_precede_other_cmsgs(net: Net) -> None:
    a, b = net.pair()
    level, option = (std.IPPROTO_IP, 8) if net.family == std.AF_INET else (std.IPPROTO_IPV6, std.IPV6_RECVPKTINFO)
    a.setsockopt(level, option, 1)
    flag(a, 1, TIMESTAMP)
    b.send(b"x")
    assert [kind for _, kind, _ in told(a.recvmsg(10, 200)).order] == [TIMESTAMP, 8 if net.family == std.AF_INET else 50]


def test_no_room_for_a_stamp(net: Net) -> None:
    a, b = net.pair()
    flag(a, 1, TIMESTAMPNS)
    for room, length in ((0, None), (15, None), (24, 8), (32, 16)):
        b.send(b"x")
        _, control, flags, _ = a.recvmsg(10, room)
        assert bool(flags & std.MSG_CTRUNC) == (room < 32), room
        assert [len(data) for _, _, data in control] == ([] if length is None else [length])


def test_recvmsg_into(net: Net) -> None:
    a, b = net.pair()
    flag(a, 1, TIMESTAMPNS)
    room = bytearray(10)
    b.send(b"abc")
    n, control, _, sender = a.recvmsg_into([room], 100)
    assert (room[:n], sender) == (b"abc", b.getsockname())
    assert [(kind, len(data)) for _, kind, data in control] == [(TIMESTAMPNS, 16)]


# ---- sent: datagrams ----


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        (TX_SOFTWARE, ["SND"]),
        (TX_SCHED, ["SCHED"]),
        (TX_SOFTWARE | TX_SCHED, ["SCHED", "SND"]),
        (TX_SOFTWARE | TX_SCHED | TX_ACK, ["SCHED", "SND"]),
        (TX_ACK, []),
        (0, []),
    ],
)
@pytest.mark.parametrize("extra", [OPT_ID, 0, OPT_ID | OPT_TSONLY, OPT_TSONLY])
def test_sent_datagrams(net: Net, flags: int, kinds: list[str], extra: int) -> None:
    a, b = net.pair()
    flag(b, SOFTWARE | flags | extra)
    before = time.time_ns()
    for number in range(3):
        assert b.send(b"number %d" % number) == 8
    after = time.time_ns()
    found = drain(b)
    numbers = range(3) if extra & OPT_ID else (0, 0, 0)
    assert [(one.kind, one.number) for one in found] == [(kind, number) for number in numbers for kind in kinds]
    for i, one in enumerate(found):
        assert one.order == [(SOCKET, TIMESTAMPING, 48), recverr(net)]
        assert (one.flags, one.address, one.raw) == (std.MSG_ERRQUEUE, None, None)
        between(before, one.software, after)
        if extra & OPT_TSONLY:
            assert one.data == b""
        else:
            assert one.data[headers(net, 8) :] == b"number %d" % (i // len(kinds))
    assert [one.software for one in found] == sorted(one.software or 0 for one in found)
    assert [a.recv(100) for _ in range(3)] == [b"number 0", b"number 1", b"number 2"]
    assert b.getsockopt(SOCKET, std.SO_ERROR) == 0


def test_frame_of_a_stamp(net: Net) -> None:
    a, b = net.pair()
    flag(b, SEND)
    b.send(b"payload")
    frame = drain(b)[0].data
    ipv4 = net.family == std.AF_INET
    assert frame[12:14] == (b"\x08\x00" if ipv4 else b"\x86\xdd")
    ip = frame[ETHERNET:]
    source, sink = (ip[12:16], ip[16:20]) if ipv4 else (ip[8:24], ip[24:40])
    assert [std.inet_ntop(net.family, host) for host in (source, sink)] == [net.hosts[1], net.hosts[0]]
    assert struct.unpack_from("!HHH", frame, headers(net, 0)) == (b.getsockname()[1], a.getsockname()[1], 15)


def test_unconnected_datagrams(net: Net) -> None:
    a, b = net.bound(0), net.bound(1)
    flag(b, SEND | OPT_ID)
    for data in (b"x", b"y"):
        b.sendto(data, a.getsockname())
    assert [(one.kind, one.number, one.data[-1:]) for one in drain(b)] == [("SND", 0, b"x"), ("SND", 1, b"y")]


@pytest.mark.parametrize("size", [0, 1400, 1473, 9000])
def test_sent_sizes(net: Net, size: int) -> None:
    """Of a datagram in fragments the first is stamped."""
    a, b = net.pair()
    flag(b, SEND | OPT_ID)
    assert b.send(bytes(size)) == size
    (found,) = drain(b)
    assert len(found.data) == headers(net, 8) + size or (net.offloaded and size > 1450 and len(found.data) > 1400)
    assert len(a.recv(10000)) == size


def test_stamps_without_report(net: Net) -> None:
    """Linux queues the packet all the same."""
    _, b = net.pair()
    flag(b, TX_SOFTWARE | OPT_ID)
    b.send(b"x")
    (found,) = drain(b)
    assert found.order == [recverr(net)]
    assert found.kind == "SND"


def test_device_stamps_where_there_are_none(net: Net) -> None:
    """Accepted and silent, as Linux; with software stamps asked for as well those come."""
    _, b = net.pair()
    if net.offloaded and b.timestamps.transmit:
        return
    flag(b, TX_HARDWARE | RAW_HARDWARE)
    b.send(b"x")
    assert drain(b) == []
    flag(b, SEND | TX_HARDWARE | RAW_HARDWARE | OPT_TX_SWHW)
    b.send(b"x")
    assert [(one.kind, one.raw) for one in drain(b)] == [("SND", None)]


def test_plain_stamp_in_the_error_queue(net: Net) -> None:
    _, b = net.pair()
    flag(b, 1, TIMESTAMPNS)
    flag(b, SEND)
    b.send(b"x")
    (found,) = drain(b)
    assert found.order == [(SOCKET, TIMESTAMPNS, 16), (SOCKET, TIMESTAMPING, 48), recverr(net)]
    assert found.plain == found.software


def test_new_layout_in_the_error_queue(net: Net) -> None:
    _, b = net.pair()
    flag(b, SEND | OPT_TSONLY, TIMESTAMPING_NEW)
    b.send(b"x")
    assert drain(b)[0].order == [(SOCKET, TIMESTAMPING_NEW, 48), recverr(net)]


def test_numbers_begin_anew(net: Net) -> None:
    _, b = net.pair()

    def numbers() -> list[int]:
        b.send(b"x")
        b.send(b"x")
        return [one.number for one in drain(b)]

    flag(b, SEND | OPT_ID | OPT_TSONLY)
    assert numbers() == [0, 1]
    flag(b, SEND | OPT_ID | OPT_TSONLY | TX_SCHED)
    assert numbers() == [2, 2, 3, 3]
    flag(b, SEND | OPT_TSONLY)
    assert numbers() == [0, 0]
    flag(b, SEND | OPT_ID | OPT_TSONLY)
    assert numbers() == [0, 1]


# ---- sent: asked for by a message ----


@pytest.mark.parametrize(("wanted", "kinds"), [(TX_SOFTWARE, ["SND"]), (TX_SCHED, ["SCHED"]), (0, []), (TX_ACK, [])])
@pytest.mark.parametrize("always", [0, TX_SOFTWARE])
def test_asked_for_by_a_datagram(net: Net, always: int, wanted: int, kinds: list[str]) -> None:
    a, b = net.pair()
    flag(b, SOFTWARE | OPT_ID | always)
    b.send(b"plain")
    b.sendmsg([b"as", b"ked"], [ask(wanted)])
    b.send(b"plain")
    first = ["SND"] if always else []
    found = [*first, *kinds, *first]
    assert [(one.kind, one.number) for one in drain(b)] == list(zip(found, range(3), strict=False))
    assert [a.recv(10) for _ in range(3)] == [b"plain", b"asked", b"plain"]


def test_asked_for_with_no_option_set(net: Net) -> None:
    a, b = net.bound(0), net.bound(1)
    b.sendmsg([b"x"], [ask(TX_SOFTWARE)], 0, a.getsockname())
    assert [one.order for one in drain(b)] == [[recverr(net)]]


def test_asked_for_wrongly(net: Net, errno_of: Errno) -> None:
    _, b = net.pair()
    flag(b, SEND)
    wrong = [
        (SOCKET, TIMESTAMPING, struct.pack("@I", SOFTWARE)),
        (SOCKET, TIMESTAMPING, struct.pack("@I", TX_SOFTWARE | OPT_ID)),
        (SOCKET, TIMESTAMPING, struct.pack("@Q", TX_SOFTWARE)),
        (SOCKET, TIMESTAMPING, b"\x02"),
        (SOCKET, TS_OPT_ID, struct.pack("@I", 7)),  # without OPT_ID
        (SOCKET, 99, struct.pack("@I", 7)),
    ]
    for cmsg in wrong:
        assert errno_of(b.sendmsg, [b"x"], [cmsg]) == errno.EINVAL, cmsg
    assert drain(b) == []


def test_number_given_by_the_message(net: Net, errno_of: Errno) -> None:
    _, b = net.pair()
    flag(b, SEND | OPT_ID | OPT_TSONLY)
    number = (SOCKET, TS_OPT_ID, struct.pack("@I", 0xFFFFFFFE))
    b.send(b"x")
    if not net.offloaded and kernel_version() < (6, 13):
        assert errno_of(b.sendmsg, [b"x"], [number]) == errno.EINVAL
        return
    b.sendmsg([b"x"], [number])
    b.sendmsg([b"x"], [number, ask(TX_SCHED)])
    b.send(b"x")
    assert [(one.kind, one.number) for one in drain(b)] == [("SND", 0), ("SND", 0xFFFFFFFE), ("SCHED", 0xFFFFFFFE), ("SND", 1)]
    assert errno_of(b.sendmsg, [b"x"], [(SOCKET, TS_OPT_ID, bytes(8))]) == errno.EINVAL


def kernel_version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


# ---- more in the queue ----


@pytest.mark.parametrize("only", [0, OPT_TSONLY])
def test_packet_information_of_what_was_sent(net: Net, only: int) -> None:
    """IPv4 tells it when asked for, IPv6 always; neither without the packet."""
    _, b = net.pair()
    ipv4 = net.family == std.AF_INET
    for option in (8, 12, 13) if ipv4 else (std.IPV6_RECVPKTINFO, std.IPV6_RECVHOPLIMIT, std.IPV6_RECVTCLASS):
        b.setsockopt(std.IPPROTO_IP if ipv4 else std.IPPROTO_IPV6, option, 1)
    lengths = [(0, 8, 12), (0, 2, 4), (0, 1, 1)] if ipv4 else [(41, 50, 20), (41, 52, 4), (41, 67, 4)]
    for flags in (0, OPT_CMSG):
        flag(b, SEND | only | flags)
        b.send(b"x")
        (found,) = drain(b)
        wanted = not only and (flags or not ipv4)
        assert found.order == [(SOCKET, TIMESTAMPING, 48), *(lengths if wanted else []), recverr(net)]
        assert found.offender == (net.hosts[1] if wanted else "")
        if wanted and ipv4:
            assert found.others[0, 8][4:] == std.inet_aton(net.hosts[1]) + std.inet_aton(net.hosts[0])
        elif wanted:
            assert found.others[41, 50][:16] == std.inet_pton(std.AF_INET6, net.hosts[0])


def test_errors_and_stamps_in_order(net: Net) -> None:
    gone, b = net.pair()
    gone.close()
    level, option = recverr(net)[:2]
    b.setsockopt(level, option, 1)
    flag(b, SEND | OPT_ID | OPT_TSONLY)
    b.send(b"x")
    found: list[Told] = []

    def both() -> bool:
        found.extend(drain(b))
        return len(found) >= 2

    wait_for("an answer", both)
    assert [one.error[1] for one in found if one.error] == [4, 2 if net.family == std.AF_INET else 3]
    assert found[1].address[:2] == gone_name(b)


def gone_name(sock: Any) -> tuple[str, int]:
    host, port = sock.getpeername()[:2]
    return host, port


def test_cut_data_and_cut_cmsgs(net: Net) -> None:
    _, b = net.pair()
    flag(b, SEND)
    b.setblocking(False)
    b.send(b"0123456789")
    data, _, flags, _ = b.recvmsg(20, 1024, std.MSG_ERRQUEUE)
    assert (len(data), flags) == (20, std.MSG_ERRQUEUE | std.MSG_TRUNC)
    b.send(b"0123456789")
    _, control, flags, _ = b.recvmsg(1000, 64, std.MSG_ERRQUEUE)
    assert [(kind, len(body)) for _, kind, body in control] == [(TIMESTAMPING, 48)]
    assert flags == std.MSG_ERRQUEUE | std.MSG_CTRUNC
    b.send(b"0123456789")
    assert b.recv(4, std.MSG_ERRQUEUE) == drain_head(net, b)


def drain_head(net: Net, sock: Any) -> bytes:
    """The first bytes of the next frame that the socket sends."""
    sock.send(b"0123456789")
    return drain(sock)[0].data[:4]


def test_queue_is_bounded(net: Net) -> None:
    _, b = net.pair()
    b.setsockopt(SOCKET, std.SO_RCVBUF, 8192)
    if net.offloaded and b.getsockopt(SOCKET, std.SO_RCVBUF) > 100_000:
        return  # the setting `rcvbuf` is the least
    flag(b, SEND | OPT_ID | OPT_TSONLY)
    for _ in range(500):
        b.send(b"x")
    first = drain(b)
    assert 4 <= len(first) <= 64
    assert [one.number for one in first] == list(range(len(first)))
    b.send(b"x")
    assert [one.number for one in drain(b)] == [500]


def test_closed_with_a_full_queue(net: Net) -> None:
    for flags in (0, OPT_TSONLY):
        _, b = net.pair()
        flag(b, SEND | TX_SCHED | flags)
        for _ in range(100):
            b.send(bytes(1000))
        b.close()


# ---- readiness ----


def test_poll_shows_the_error_queue(net: Net) -> None:
    module, (_, b) = poll_module(net), net.pair()
    flag(b, SEND | OPT_TSONLY)
    poller = module.poll()
    poller.register(b, 0)
    assert poller.poll(0) == []
    b.send(b"x")
    assert [bits for _, bits in poller.poll(20000)] == [select.POLLERR]
    poller.modify(b, select.POLLIN | select.POLLOUT)
    assert [bits for _, bits in poller.poll(20000)] == [select.POLLERR | select.POLLOUT]
    assert [len(ready) for ready in module.select([b], [b], [b], LIMIT_S)] == [1, 1, 0]
    drain(b)
    assert poller.poll(0) == [(b.fileno(), select.POLLOUT)]
    assert module.select([b], [], [], 0) == ([], [], [])


def test_epoll_shows_the_error_queue(net: Net) -> None:
    module, (_, b) = poll_module(net), net.pair()
    with module.epoll() as poller:
        poller.register(b, select.EPOLLIN)
        assert poller.poll(0) == []
        flag(b, SEND | OPT_TSONLY)
        b.send(b"x")
        assert [bits for _, bits in poller.poll(LIMIT_S)] == [select.EPOLLERR]
        drain(b)
        assert poller.poll(0) == []
        poller.modify(b, select.EPOLLIN | select.EPOLLET)
        for _ in range(3):
            b.send(b"x")
            assert [bits for _, bits in poller.poll(LIMIT_S)] == [select.EPOLLERR]
            drain(b)


def test_fd_shows_the_error_queue(net: Net) -> None:
    """To the selectors of the standard library an error is a reason to read, and that is what the fd of an offloaded socket shows."""
    _, b = net.pair()
    assert select.select([b.fileno()], [], [], 0) == ([], [], [])
    flag(b, SEND)
    b.send(b"x")
    assert select.select([b.fileno()], [], [], LIMIT_S)[0]
    drain(b)
    assert select.select([b.fileno()], [], [], 0) == ([], [], [])


def test_reading_with_a_timeout(net: Net) -> None:
    _, b = net.pair()
    flag(b, SEND | OPT_TSONLY)
    b.settimeout(0.05)
    with pytest.raises(TimeoutError):
        b.recvmsg(100, 100, std.MSG_ERRQUEUE)
    b.settimeout(LIMIT_S)
    b.send(b"x")
    assert told(b.recvmsg(100, 200, std.MSG_ERRQUEUE)).kind == "SND"


# ---- the option ----


@pytest.mark.parametrize("state", ["datagram", "closed", "listening", "connected", "accepted"])
def test_values_of_the_option(net: Net, state: str, errno_of: Errno) -> None:
    def sock() -> Any:
        if state == "datagram":
            return net.bound(0)
        if state in ("connected", "accepted"):
            return tcp_pair(net)[state == "connected"]
        made = net.module.socket(net.family, std.SOCK_STREAM)
        net.opened.append(made)
        if state == "listening":
            made.bind((net.hosts[0], 0))
            made.listen()
        return made

    s = sock()
    no_number = state in ("closed", "listening")
    good = [0, SOFTWARE | RX_SOFTWARE, OPT_STATS | OPT_TSONLY, OPT_PKTINFO | OPT_RX_FILTER, SEND | TX_SCHED | TX_ACK | OPT_CMSG]
    wrong = [OPT_ID_TCP, OPT_ID_TCP | SEND, OPT_STATS, 1 << 25, 1 << 30, -1, OPT_ID | OPT_STATS]
    with_number = [OPT_ID, OPT_ID | OPT_ID_TCP, OPT_ID | SEND]
    for name in (TIMESTAMPING, TIMESTAMPING_NEW):
        for value in wrong + (with_number if no_number else []):
            assert errno_of(s.setsockopt, SOCKET, name, value) == errno.EINVAL, hex(value)
        assert errno_of(s.setsockopt, SOCKET, name, BIND_PHC) == errno.EOPNOTSUPP
        for value in good + ([] if no_number else with_number):
            s.setsockopt(SOCKET, name, value)
            assert s.getsockopt(SOCKET, name) == value
            assert s.getsockopt(SOCKET, TIMESTAMPING) == value
            s.setsockopt(SOCKET, name, struct.pack("@ii", value, 0))
            assert s.getsockopt(SOCKET, name, 100) == struct.pack("@ii", value, 0)
        s.setsockopt(SOCKET, name, 0)
    for name in (TIMESTAMP, TIMESTAMPNS, TIMESTAMPING, TIMESTAMP_NEW, TIMESTAMPNS_NEW, TIMESTAMPING_NEW):
        for length in (0, 1, 3):
            assert errno_of(s.setsockopt, SOCKET, name, bytes(length)) == errno.EINVAL
    for first in (TIMESTAMP, TIMESTAMPNS, TIMESTAMP_NEW, TIMESTAMPNS_NEW):
        for second in (TIMESTAMP, TIMESTAMPNS, TIMESTAMP_NEW, TIMESTAMPNS_NEW):
            s.setsockopt(SOCKET, first, 1)
            s.setsockopt(SOCKET, second, 1)
            assert plain_options(s) == [second]
            assert len(s.getsockopt(SOCKET, first, 100)) == 4
            s.setsockopt(SOCKET, first, 0)
            assert plain_options(s) == []


def test_option_before_the_socket_is_decided(net: Net) -> None:
    for plain in (0, TIMESTAMPNS):
        a, b = net.socket(), net.socket()
        flag(a, SOFTWARE | RX_SOFTWARE)
        if plain:
            flag(a, 1, plain)
        flag(b, SEND | OPT_ID)
        a.bind((net.hosts[0], 0))
        b.connect(a.getsockname())
        b.send(b"x")
        assert [one.number for one in drain(b)] == [0]
        if plain:
            assert told(a.recvmsg(10, 100)).plain
