"""Cases for test_xdp_oracle.py: each runs on the engine's sockets and on the kernel's, and what it returns must be the same."""

from __future__ import annotations

import select
import socket as std
import struct
import threading
import time
from typing import Any

from oracle import (
    ALL,
    BLOCK_SOURCE,
    IP,
    MTU,
    MTU6,
    MTU_DISCOVER,
    MTU_DISCOVER6,
    PKTINFO,
    PKTINFO6,
    RECVERR,
    RECVERR6,
    RECVTOS,
    RECVTTL,
    SEGMENT,
    SOL,
    TIMESTAMPNS,
    UDP,
    UNBLOCK_SOURCE,
    V6,
    address,
    ask,
    case,
    closed,
    disconnect,
    echo,
    here,
    index,
    of,
    quiet,
    second,
    tell,
    udp,
)


def by_length(s: Any, count: int) -> Any:
    """Messages with their ancillary data, the shortest first: which of the two ways one took is no part of it. An interface is told by
    whether it is v0."""
    found = []
    for _ in range(count):
        data, control, flags, _peer = s.recvmsg(5000, 300)
        told = []
        for level, kind, value in sorted(control):
            which, rest = (value[:4], value[4:]) if kind == PKTINFO else (value[16:], value[:16]) if kind == PKTINFO6 else (None, value)
            told.append((level, kind, bytes(rest), which == struct.pack("=I", index("v0"))))
        found.append((len(data), told, flags))
    return sorted(found)


@case
def refused() -> Any:
    s = udp()
    s.connect(closed[4])
    s.send(b"x")
    return (of(s.recv, 10), of(s.send, b"y") and of(s.recv, 10), of(s.getpeername))


@case
def refused6() -> Any:
    s = udp(6)
    s.connect(closed[6])
    s.send(b"x")
    return (of(s.recv, 10), s.getpeername())


@case
def refused_unconnected() -> Any:
    s = udp()
    s.sendto(b"x", closed[4])
    return (quiet(s), ask(s))


@case
def refused_so_error() -> Any:
    s = udp()
    s.connect(closed[4])
    s.send(b"x")
    return (
        select.select([s], [], [], 5)[0] == [s],
        s.getsockopt(SOL, std.SO_ERROR),
        s.getsockopt(SOL, std.SO_ERROR),
        select.select([s], [], [], 0)[0],
    )


@case
def refused_recverr() -> Any:
    s = udp(options=[(IP, RECVERR, 1)])
    s.sendto(b"x", closed[4])
    select.select([s], [], [], 5)
    s.settimeout(None)
    r = of(s.recv, 10)
    return (r, s.recvmsg(10, 200, std.MSG_ERRQUEUE)[0], of(s.recvmsg, 10, 200, std.MSG_ERRQUEUE), s.settimeout(5), ask(s))


@case
def refused6_recverr() -> Any:
    s = udp(6, options=[(V6, RECVERR6, 1)])
    s.sendto(b"x", closed[6])
    select.select([s], [], [], 5)
    s.settimeout(None)
    r = of(s.recv, 10)
    return (r, s.recvmsg(10, 200, std.MSG_ERRQUEUE)[0], of(s.recvmsg, 10, 200, std.MSG_ERRQUEUE), s.settimeout(5), ask(s))


@case
def refused_blocked() -> Any:
    s = udp()
    s.connect(closed[4])
    t = threading.Timer(0.3, lambda: s.send(b"x"))
    t.start()
    r = of(s.recv, 10)
    t.join()
    return r


@case
def errqueue_empty() -> Any:
    s = udp(local=(here[4], 0))
    s.settimeout(None)
    return of(s.recvmsg, 10, 200, std.MSG_ERRQUEUE)


@case
def send_nowhere() -> Any:
    s = udp(local=(here[4], 0))
    return (of(s.send, b"x"), of(s.sendto, b"x", ("0.0.0.0", 7000)), of(s.sendto, b"x", (echo[4][0], 0)))


@case
def send_nowhere6() -> Any:
    s = udp(6, local=(here[6], 0))
    return (of(s.send, b"x"), of(s.sendto, b"x", ("::", 7000)), of(s.sendto, b"x", (echo[6][0], 0)), of(s.sendto, b"x", ("fe80::1", 7000)))


@case
def send_unrouted() -> Any:
    s = udp(local=("", 0))
    t = udp(6, local=("", 0))
    u = udp()
    return (
        of(s.sendto, b"x", ("198.51.100.9", 9)),
        of(t.sendto, b"x", ("2001:db8::9", 9)),
        of(u.connect, ("198.51.100.9", 9)),
        ask(s),
        ask(t),
        ask(u),
    )


@case
def broadcast() -> Any:
    s = udp(local=(here[4], 0))
    r = (of(s.sendto, b"x", ("10.78.0.255", 9)), of(s.sendto, b"x", ("255.255.255.255", 9)), of(s.connect, ("10.78.0.255", 9)))
    s.setsockopt(SOL, std.SO_BROADCAST, 1)
    return (r, of(s.sendto, b"x", ("10.78.0.255", 9)), of(s.connect, ("10.78.0.255", 9)), s.getsockname()[0])


@case
def bind_twice() -> Any:
    s = udp(local=(here[4], 0))
    t = udp()
    n = s.getsockname()[1]
    return (of(t.bind, (here[4], n)), of(t.bind, ("", n)), of(t.bind, ("127.0.0.1", n)), of(s.bind, (here[4], 0)))


@case
def bind_reuse() -> Any:
    s = udp(options=[(SOL, std.SO_REUSEADDR, 1)], local=(here[4], 0))
    n = s.getsockname()[1]
    t = udp()
    r = of(t.bind, (here[4], n))
    t.setsockopt(SOL, std.SO_REUSEADDR, 1)
    return (r, of(t.bind, (here[4], n)), t.getsockname()[1] == n)


@case
def bind_reuseport() -> Any:
    s = udp(options=[(SOL, std.SO_REUSEPORT, 1)], local=(here[4], 0))
    n = s.getsockname()[1]
    t = udp(options=[(SOL, std.SO_REUSEADDR, 1)])
    r = of(t.bind, (here[4], n))
    t.setsockopt(SOL, std.SO_REUSEPORT, 1)
    return (r, of(t.bind, (here[4], n)))


@case
def bind_both_families() -> Any:
    s = udp(local=("", 0))
    n = s.getsockname()[1]
    t = udp(6)
    u = udp(6, options=[(V6, std.IPV6_V6ONLY, 1)])
    return (of(t.bind, ("", n)), of(u.bind, ("", n)))


@case
def bind_both_families_reversed() -> Any:
    s = udp(6, local=("", 0))
    n = s.getsockname()[1]
    t = udp()
    u = udp()
    return (of(t.bind, ("", n)), of(u.bind, (here[4], n)), of(s.setsockopt, V6, std.IPV6_V6ONLY, 1))


@case
def bind_foreign() -> Any:
    s = udp()
    return (of(s.bind, ("10.78.0.77", 0)), of(s.bind, ("10.78.0.77", 5)), of(s.bind, (here[4], 0)), s.getsockname()[0], ask(s))


@case
def bind_foreign6() -> Any:
    s = udp(6)
    return (of(s.bind, ("fd78::77", 0)), of(s.bind, ("fe80::1", 0)), of(s.bind, (here[6], 0)), s.getsockname()[0], ask(s))


@case
def bind_mapped() -> Any:
    s = udp(6, local=("::ffff:" + here[4], 0))
    r = of(s.sendto, b"x", echo[6])
    s.sendto(b"mapped", ("::ffff:" + echo[4][0], 7000))
    return (r, s.getsockname()[0], s.recvfrom(20))


@case
def v6only_to_mapped() -> Any:
    s = udp(6, options=[(V6, std.IPV6_V6ONLY, 1)], local=("", 0))
    return (of(s.sendto, b"x", ("::ffff:" + echo[4][0], 7000)), of(s.connect, ("::ffff:" + echo[4][0], 7000)), ask(s))


@case
def bind_device() -> Any:
    s = udp(options=[(SOL, std.SO_BINDTODEVICE, b"v0")], local=("", 0))
    return (
        of(s.sendto, b"x", ("127.0.0.1", 9)),
        of(s.sendto, b"x", (here[4], 9)),
        ask(s),
        of(s.setsockopt, SOL, std.SO_BINDTODEVICE, b"nosuch"),
        s.getsockopt(SOL, std.SO_BINDTODEVICE, 16),
    )


@case
def bind_device_later() -> Any:
    s = udp(local=("", 0))
    r = (ask(s), of(s.setsockopt, SOL, std.SO_BINDTODEVICE, b"lo"), of(s.sendto, b"x", echo[4]))
    return (r, of(s.setsockopt, SOL, std.SO_BINDTODEVICE, b""), ask(s))


@case
def bind_devices() -> Any:
    s = udp(options=[(SOL, std.SO_BINDTODEVICE, b"v0")], local=("", 0))
    n = s.getsockname()[1]
    t = udp(options=[(SOL, std.SO_BINDTODEVICE, b"lo")])
    r = of(t.bind, ("", n))
    u = udp(local=("127.0.0.1", 0))
    u.sendto(b"by lo", ("127.0.0.1", n))
    return (r, of(t.recv, 10), ask(s), quiet(t), quiet(s), of(udp().bind, ("", n)))


@case
def names() -> Any:
    s = udp()
    r = [s.getsockname(), of(s.getpeername)]
    s.connect(echo[4])
    r += [s.getsockname()[0], s.getpeername()]
    disconnect(s)
    r += [s.getsockname()[0], s.getsockname()[1] == 0, of(s.getpeername)]
    return (r, ask(s))


@case
def names_bound() -> Any:
    s = udp(local=("", 0))
    n = s.getsockname()
    s.connect(echo[4])
    r = [s.getsockname() == (here[4], n[1])]
    disconnect(s)
    return (r, s.getsockname() == n, s.getsockname()[0], ask(s))


@case
def names_bound_port() -> Any:
    s = udp(local=("", 7777))
    s.connect(echo[4])
    r = [s.getsockname()]
    disconnect(s)
    r += [s.getsockname(), ask(s)]
    s.connect(closed[4])
    r += [s.getsockname()]
    s.connect(echo[4])
    return (r, s.getsockname(), s.getpeername(), s.send(b"x"), s.recv(5))


@case
def names6() -> Any:
    s = udp(6)
    s.connect(echo[6])
    r = [s.getsockname()[0], s.getpeername()]
    disconnect(s)
    return (r, s.getsockname()[0], of(s.getpeername), ask(s))


@case
def connected_sends_elsewhere() -> Any:
    s = udp(local=("", 0))
    s.connect(closed[4])
    s.sendto(b"x", echo[4])
    return (quiet(s), of(s.send, b"y"), of(s.recv, 10))


@case
def connected_hears_its_peer_only() -> Any:
    s = udp()
    s.connect(echo[4])
    n = s.getsockname()[1]
    tell(b"stranger", here[4], n)
    return (quiet(s), s.send(b"x"), s.recv(5))


@case
def reconnect_keeps_what_came() -> Any:
    s = udp(local=(here[4], 0))
    n = s.getsockname()[1]
    tell(b"before", here[4], n)
    time.sleep(0.2)
    s.connect(echo[4])
    return (s.recv(10), s.send(b"x"), s.recv(5))


@case
def connected_and_bound_share() -> Any:
    o = [(SOL, std.SO_REUSEADDR, 1)]
    s = udp(options=o, local=("", 0))
    n = s.getsockname()[1]
    t = udp(options=o, local=("", n))
    t.connect(echo[4])
    t.send(b"mine")
    tell(b"other", here[4], n)
    return (t.recv(10), s.recv(10), quiet(t), quiet(s))


@case
def the_newest_of_equals() -> Any:
    o = [(SOL, std.SO_REUSEADDR, 1)]
    s = udp(options=o, local=("", 0))
    n = s.getsockname()[1]
    t = udp(options=o, local=("", n))
    tell(b"one", here[4], n)
    r = [t.recv(10), quiet(s)]
    t.close()
    tell(b"two", here[4], n)
    return (r, s.recv(10))


@case
def the_address_goes_before() -> Any:
    o = [(SOL, std.SO_REUSEADDR, 1)]
    s = udp(options=o, local=(here[4], 0))
    n = s.getsockname()[1]
    t = udp(options=o, local=("", n))
    tell(b"one", here[4], n)
    tell(b"two", second, n)
    return (s.recv(10), t.recv(10), quiet(s), quiet(t))


@case
def the_device_goes_before() -> Any:
    o = [(SOL, std.SO_REUSEADDR, 1)]
    s = udp(options=[*o, (SOL, std.SO_BINDTODEVICE, b"v0")], local=("", 0))
    n = s.getsockname()[1]
    t = udp(options=o, local=("", n))
    tell(b"one", here[4], n)
    u = udp()
    u.sendto(b"two", ("127.0.0.1", n))
    return (s.recv(10), t.recv(10), quiet(s), quiet(t))


@case
def wildcard_answers_from_the_asked() -> Any:
    s = udp(local=("", 0), options=[(IP, PKTINFO, 1)])
    n = s.getsockname()[1]
    tell(b"x", second, n)
    d, c, f, _ = s.recvmsg(10, 100)
    return (d, c[0][:2], struct.unpack("=I4s4s", c[0][2]) == (index("v0"), address(second), address(second)), f)


@case
def pktinfo() -> Any:
    s = udp(local=("", 0), options=[(IP, PKTINFO, 1), (IP, RECVTTL, 1), (IP, RECVTOS, 1)])
    n = s.getsockname()[1]
    tell(b"x" * 10, here[4], n)
    tell(b"x" * 4000, here[4], n)
    udp().sendto(b"lo", ("127.0.0.1", n))
    udp().sendto(b"self", (here[4], n))
    return by_length(s, 4)


@case
def pktinfo6() -> Any:
    s = udp(6, local=("", 0), options=[(V6, std.IPV6_RECVPKTINFO, 1), (V6, std.IPV6_RECVHOPLIMIT, 1), (V6, std.IPV6_RECVTCLASS, 1)])
    n = s.getsockname()[1]
    tell(b"x" * 10, here[6], n)
    tell(b"x" * 4000, here[6], n)
    tell(b"four", here[4], n)
    udp(6).sendto(b"lo", ("::1", n))
    return by_length(s, 4)


@case
def pktinfo_sends() -> Any:
    s = udp(local=("", 0))

    def send(i: Any, a: Any) -> Any:
        return of(s.sendmsg, [b"x"], [(IP, PKTINFO, struct.pack("=I4s4s", i, address(a), b"\x00" * 4))], 0, echo[4])

    return (
        send(0, second),
        s.recv(5),
        send(0, "10.78.0.77"),
        send(index("v0"), here[4]),
        s.recv(5),
        send(index("lo"), here[4]),
        quiet(s),
        send(9999, "0.0.0.0"),
        send(0, "127.0.0.1"),
    )


@case
def pktinfo6_sends() -> Any:
    s = udp(6, local=("", 0))

    def send(i: Any, a: Any) -> Any:
        return of(s.sendmsg, [b"x"], [(V6, PKTINFO6, std.inet_pton(std.AF_INET6, a) + struct.pack("=I", i))], 0, echo[6])

    return (send(0, here[6]), s.recv(5), send(0, "fd78::77"), send(index("v0"), here[6]), s.recv(5), send(9999, "::"), send(0, "fe80::1"))


@case
def bad_ancillary() -> Any:
    s = udp(local=("", 0))
    return (
        of(s.sendmsg, [b"x"], [(IP, PKTINFO, b"short")], 0, echo[4]),
        of(s.sendmsg, [b"x"], [(IP, 99, b"1234")], 0, echo[4]),
        of(s.sendmsg, [b"x"], [(SOL, 99, b"1234")], 0, echo[4]),
        of(s.sendmsg, [b"x"], [(IP, 2, struct.pack("=i", 300))], 0, echo[4]),
        of(s.sendmsg, [b"x"], [(IP, 1, struct.pack("=i", 4))], 0, echo[4]),
        s.recv(5),
    )


@case
def sizes() -> Any:
    s = udp(local=("", 0))
    t = udp(6, local=("", 0))
    return (
        of(s.sendto, bytes(65508), echo[4]),
        of(s.sendto, bytes(65507), echo[4]),
        len(s.recv(70000)),
        of(t.sendto, bytes(65528), echo[6]),
        of(t.sendto, bytes(65527), echo[6]),
        len(t.recv(70000)),
    )


@case
def mtu() -> Any:
    s = udp(local=("", 0))
    r = of(s.getsockopt, IP, MTU)
    s.connect(echo[4])
    s.setsockopt(IP, MTU_DISCOVER, 2)
    return (
        r,
        s.getsockopt(IP, MTU),
        of(s.send, bytes(1473)),
        of(s.send, bytes(1472)),
        len(s.recv(2000)),
        s.setsockopt(IP, MTU_DISCOVER, 0),
        of(s.send, bytes(1473)),
        len(s.recv(2000)),
    )


@case
def mtu6() -> Any:
    s = udp(6, local=("", 0))
    s.connect(echo[6])
    s.setsockopt(V6, MTU_DISCOVER6, 2)
    return (
        s.getsockopt(V6, MTU6),
        of(s.send, bytes(1453)),
        of(s.send, bytes(1452)),
        len(s.recv(2000)),
        s.setsockopt(V6, MTU_DISCOVER6, 0),
        of(s.send, bytes(1453)),
        len(s.recv(2000)),
    )


@case
def peek_and_truncation() -> Any:
    s = udp(local=(here[4], 0))
    n = s.getsockname()[1]
    tell(b"A" * 100, here[4], n)
    s.recv(1, std.MSG_PEEK)
    r = [
        s.recv(5, std.MSG_PEEK),
        s.recv_into(bytearray(5), 5, std.MSG_PEEK | std.MSG_TRUNC),
        s.recvmsg(5)[2],
    ]
    # What is left of the datagram is gone. A socket with a timeout waits in spite of the flag.
    s.settimeout(0.2)
    r += [of(s.recv, 5, std.MSG_DONTWAIT)]
    s.settimeout(5)
    tell(b"", here[4], n)
    r += [s.recvfrom(5)[0]]
    return r


@case
def shut_down() -> Any:
    s = udp(local=(here[4], 0))
    r = [of(s.shutdown, std.SHUT_RD)]
    s.connect(echo[4])
    r += [of(s.shutdown, std.SHUT_WR), of(s.send, b"x"), of(s.sendto, b"x", echo[4]), of(s.shutdown, std.SHUT_RD)]
    s.setblocking(False)
    r += [of(s.recv, 10)]
    s.setblocking(True)
    return [*r, s.recv(10)]


@case
def shut_down_blocked() -> Any:
    s = udp(local=(here[4], 0))
    s.connect(echo[4])
    s.settimeout(None)
    t = threading.Timer(0.3, lambda: s.shutdown(std.SHUT_RDWR))
    t.start()
    r = of(s.recv, 10)
    t.join()
    return r


@case
def nonblocking() -> Any:
    s = udp(local=(here[4], 0))
    s.setblocking(False)
    r = [of(s.recv, 10)]
    s.setblocking(True)
    s.setsockopt(SOL, std.SO_RCVTIMEO, struct.pack("@qq", 0, 100000))
    r += [of(s.recv, 10)]
    return r


@case
def oneself() -> Any:
    s = udp(local=(here[4], 0))
    n = s.getsockname()[1]
    s.sendto(b"me", (here[4], n))
    r = [s.recvfrom(10) == (b"me", (here[4], n))]
    s.connect((here[4], n))
    s.send(b"again")
    return [*r, s.recv(10)]


@case
def own_port_refuses() -> Any:
    s = udp()
    s.connect((here[4], 7001))
    return (of(s.send, b"x"), of(s.recv, 10))


@case
def join_errors() -> Any:
    s = udp(local=("", 0))
    g = address("239.1.2.3")

    def join(group: Any, iface: Any) -> Any:
        return of(s.setsockopt, IP, std.IP_ADD_MEMBERSHIP, group + iface)

    def leave(group: Any, iface: Any) -> Any:
        return of(s.setsockopt, IP, std.IP_DROP_MEMBERSHIP, group + iface)

    return (
        join(g, address(here[4])),
        join(g, address(here[4])),
        leave(g, address(here[4])),
        leave(g, address(here[4])),
        join(g, address("10.9.9.9")),
        join(address("10.1.1.1"), address(here[4])),
        join(g, address("0.0.0.0")),
        of(s.setsockopt, IP, std.IP_ADD_MEMBERSHIP, g + address("0.0.0.0") + struct.pack("=i", 9999)),
        of(s.setsockopt, IP, std.IP_ADD_MEMBERSHIP, b"1234"),
    )


@case
def join6_errors() -> Any:
    s = udp(6, local=("", 0))
    g = std.inet_pton(std.AF_INET6, "ff15::9")

    def p(i: Any) -> Any:
        return struct.pack("@I", i)

    def join(group: Any, i: Any) -> Any:
        return of(s.setsockopt, V6, std.IPV6_JOIN_GROUP, group + p(i))

    def leave(group: Any, i: Any) -> Any:
        return of(s.setsockopt, V6, std.IPV6_LEAVE_GROUP, group + p(i))

    v = index("v0")
    return (join(g, v), join(g, v), leave(g, v), leave(g, v), join(g, 9999), join(std.inet_pton(std.AF_INET6, "fd78::5"), v))


@case
def join_too_many() -> Any:
    s = udp(local=("", 0))
    return [of(s.setsockopt, IP, std.IP_ADD_MEMBERSHIP, address(f"239.5.0.{i}") + address(here[4])) for i in range(1, 23)]


@case
def group_bound() -> Any:
    g = "239.3.3.3"
    s = udp(local=(g, 7020))
    r = [s.getsockname()]
    s.setsockopt(IP, std.IP_ADD_MEMBERSHIP, address(g) + address(here[4]))
    tell(b"to the group", g, 7020)
    tell(b"to the host", here[4], 7020)
    return [*r, s.recv(20), quiet(s)]


@case
def group_two_interfaces() -> Any:
    g = address("239.3.3.4")
    s = udp(local=("", 7021))
    s.setsockopt(IP, std.IP_ADD_MEMBERSHIP, g + address(here[4]))
    s.setsockopt(IP, std.IP_ADD_MEMBERSHIP, g + address("127.0.0.1"))
    tell(b"by v0", "239.3.3.4", 7021)
    r = [s.recv(20)]
    t = udp(options=[(IP, std.IP_MULTICAST_IF, address("127.0.0.1"))])
    t.sendto(b"by lo", ("239.3.3.4", 7021))
    r += [s.recv(20)]
    s.setsockopt(IP, std.IP_DROP_MEMBERSHIP, g + address(here[4]))
    tell(b"gone", "239.3.3.4", 7021)
    return [*r, quiet(s), t.sendto(b"still", ("239.3.3.4", 7021)), s.recv(20)]


@case
def group_both_members() -> Any:
    o = [(SOL, std.SO_REUSEADDR, 1)]
    m = address("239.3.3.5") + address(here[4])
    s, t = (udp(options=o, local=("", 7022)), udp(options=o, local=("", 7022)))
    for x in (s, t):
        x.setsockopt(IP, std.IP_ADD_MEMBERSHIP, m)
    tell(b"all", "239.3.3.5", 7022)
    return (s.recv(5), t.recv(5), quiet(s), quiet(t))


@case
def group_not_joined() -> Any:
    o = [(SOL, std.SO_REUSEADDR, 1)]
    m = address("239.3.3.6") + address(here[4])
    s, t, u = (udp(options=o, local=("", 7023)), udp(options=o, local=("", 7023)), udp(options=[*o, (IP, ALL, 0)], local=("", 7023)))
    s.setsockopt(IP, std.IP_ADD_MEMBERSHIP, m)
    tell(b"all", "239.3.3.6", 7023)
    return (s.recv(5), t.recv(5), quiet(u))


@case
def group_joined_by_another() -> Any:
    s, t = (udp(local=("", 7024)), udp(local=("", 0)))
    t.setsockopt(IP, std.IP_ADD_MEMBERSHIP, address("239.3.3.7") + address(here[4]))
    tell(b"all", "239.3.3.7", 7024)
    return (s.recv(5), quiet(t))


@case
def group_blocked_source() -> Any:
    s = udp(local=("", 7025))
    s.setsockopt(IP, std.IP_ADD_MEMBERSHIP, address("239.3.3.8") + address(here[4]))
    r = [of(s.setsockopt, IP, BLOCK_SOURCE, address("239.3.3.8") + address(here[4]) + address(echo[4][0]))]
    tell(b"no", "239.3.3.8", 7025)
    r += [quiet(s), of(s.setsockopt, IP, UNBLOCK_SOURCE, address("239.3.3.8") + address(here[4]) + address(echo[4][0]))]
    tell(b"yes", "239.3.3.8", 7025)
    return [*r, s.recv(5), of(s.setsockopt, IP, UNBLOCK_SOURCE, address("239.3.3.8") + address(here[4]) + address(echo[4][0]))]


@case
def broadcast_heard() -> Any:
    o = [(SOL, std.SO_REUSEADDR, 1)]
    s, t, u = (udp(options=o, local=("", 7026)), udp(options=o, local=(here[4], 7026)), udp(options=o, local=("10.78.0.255", 7026)))
    tell(b"all", "10.78.0.255", 7026)
    return (s.recv(5), quiet(t), u.recv(5))


@case
def multicast_if() -> Any:
    s = udp(local=("", 0))
    return (
        of(s.setsockopt, IP, std.IP_MULTICAST_IF, address("10.9.9.9")),
        of(s.setsockopt, IP, std.IP_MULTICAST_IF, address(here[4])),
        s.getsockopt(IP, std.IP_MULTICAST_IF, 4),
        of(s.setsockopt, IP, std.IP_MULTICAST_IF, address("0.0.0.0") * 2 + struct.pack("=i", index("lo"))),
        of(s.sendto, b"x", ("239.9.9.9", 9)),
        of(s.connect, ("239.9.9.9", 9)),
        s.getsockname()[0],
    )


@case
def options_after_close() -> Any:
    s = udp(local=(here[4], 0))
    s.close()
    return (of(s.send, b"x"), of(s.recv, 10), of(s.getsockname), of(s.setsockopt, SOL, std.SO_BROADCAST, 1))


@case
def connect_port_0() -> Any:
    s = udp(local=(here[4], 0))
    return (of(s.connect, (echo[4][0], 0)), of(s.getpeername), of(s.send, b"x"), time.sleep(0.1), of(s.sendto, b"x", echo[4]), quiet(s))


@case
def ttl_1() -> Any:
    s = udp(local=("", 0), options=[(IP, std.IP_TTL, 1)])
    return (ask(s), of(s.setsockopt, IP, std.IP_TTL, 0), of(s.setsockopt, IP, std.IP_TTL, 256), s.getsockopt(IP, std.IP_TTL))


@case
def timestamps() -> Any:
    s = udp(local=(here[4], 0), options=[(SOL, TIMESTAMPNS, 1)])
    n = s.getsockname()[1]
    tell(b"x", here[4], n)
    _, c, f, _ = s.recvmsg(10, 100)
    seconds, _ = struct.unpack("@qq", c[0][2])
    return (c[0][:2], abs(time.time() - seconds) < 60, f)


@case
def segments() -> Any:
    s = udp(local=("", 0))
    r = (of(s.setsockopt, UDP, SEGMENT, 100), of(s.sendto, b"a" * 250, echo[4]))
    return (r, [len(s.recv(300)) for _ in range(3)], of(s.setsockopt, UDP, SEGMENT, 70000))


@case
def in_order() -> Any:
    s = udp(local=("", 7027))
    for i in range(20):
        tell(b"%d" % i if i % 2 else b"%d" % i + b"." * 3000, here[4], 7027)
    return sorted(int(s.recv(4000).rstrip(b".")) for _ in range(20))
