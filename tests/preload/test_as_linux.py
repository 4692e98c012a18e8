"""What the suites of other projects (libuv, libevent, libzmq, node, ruby, anyio, websockets, uvloop, Twisted, tokio, GLib, OpenJDK,
eventlet) found: the same script over the kernel and over the stack, by both faces."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from netns import Namespace, usable
from two_ways import BEGIN, interfaces, printed

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]

SCRIPTS = {
    "buffers that were set before": """
for host in hosts:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as l, socket.socket(l.family) as c:
        l.setsockopt(SOL, socket.SO_SNDBUF, 4096)
        l.setsockopt(SOL, socket.SO_RCVBUF, 4096)
        c.setsockopt(SOL, socket.SO_RCVBUF, 300000)
        c.setsockopt(SOL, socket.SO_SNDBUF, 8192)
        l.bind((host, 0))
        l.listen()
        c.connect(l.getsockname())
        a = l.accept()[0]
        print([[s.getsockopt(SOL, name) for name in (socket.SO_SNDBUF, socket.SO_RCVBUF)] for s in (l, c, a)])
        c.setblocking(False)
        sent, again = 0, 3
        while again:
            try:
                sent += c.send(bytes(8192))
            except BlockingIOError:
                again -= 1
                time.sleep(0.05)
        print(sent < 60000)
""",
    "an urgent byte that nobody has read yet": """
for host in hosts:
    c, a = pair(host)
    seen = set()
    for i in range(20):
        c.send(b"hello")
        c.send(b"!", socket.MSG_OOB)
        time.sleep(0.01)
        seen.add((said(a.recv, 20, socket.MSG_OOB | socket.MSG_DONTWAIT), a.recv(20), said(a.recv, 20, socket.MSG_OOB)))
    print(seen)
""",
    "a listener that is shut down while somebody waits for it": """
import threading
for host in hosts:
    for how in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
        with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as l:
            sets = [select.epoll() for _ in range(3)]
            for one, edge in zip(sets, (0, 0, select.EPOLLET)):
                one.register(l, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | edge)
            print([one.poll(0) for one in sets])
            woken = []
            asleep = threading.Thread(target=lambda: woken.append(sets[0].poll(30 if how != socket.SHUT_WR else 0.1)))
            asleep.start()
            time.sleep(0.05)
            l.shutdown(how)
            asleep.join(15)
            print(how, asleep.is_alive(), [[what for _, what in events] for events in (*woken, *(one.poll(0) for one in sets))])
            print([[what for _, what in one.poll(0)] for one in sets])
""",
    "a socket that is shut down while others wait for it": """
import threading
def waits(call):
    woken.append((call.__name__, said(call)))
for host in hosts:
    for how in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
        c, a = pair(host)
        u = socket.socket(c.family, socket.SOCK_DGRAM)
        u.bind((host, 0))
        u.connect(u.getsockname())
        for s in (c, u):
            def by_epoll():
                with select.epoll() as one:
                    one.register(s, select.EPOLLIN | select.EPOLLRDHUP)
                    return [what for _, what in one.poll(30 if how != socket.SHUT_WR else 0.3)]
            def by_poll():
                several = select.poll()
                several.register(s, select.POLLIN | select.POLLRDHUP)
                several.register(0, 0)
                return [what for _, what in several.poll(30000 if how != socket.SHUT_WR else 300)]
            def by_select():
                return len(select.select([s], [], [], 30 if how != socket.SHUT_WR else 0.3)[0])
            woken = []
            asleep = [threading.Thread(target=waits, args=(call,)) for call in (by_epoll, by_poll, by_select)]
            for one in asleep:
                one.start()
            time.sleep(0.1)
            s.shutdown(how)
            for one in asleep:
                one.join(15)
            print(how, [one.is_alive() for one in asleep], sorted(woken))
""",
    "an option that a listener has got since it listens": """
for host in hosts:
    for option in ((SOL, socket.SO_KEEPALIVE, 1), (TCP, socket.TCP_MAXSEG, 1000), (TCP, socket.TCP_NODELAY, 1)):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as l, socket.socket(l.family) as c:
            l.bind((host, 0))
            l.listen()
            usual = l.getsockopt(SOL, socket.SO_RCVBUF)
            l.setsockopt(*option)
            c.setblocking(False)
            print(c.connect_ex(l.getsockname()), said(select.select, [l], [], [], 5)[0] == [l])
            a = l.accept()[0]
            print(l.getsockopt(SOL, socket.SO_RCVBUF) == usual, a.getsockopt(SOL, socket.SO_RCVBUF) == usual)
            sent = c.send(bytes(2000))
            time.sleep(0.1)
            print(sent, len(a.recv(20000)))
""",
    "epoll_ctl of what cannot be waited for": """
import tempfile
with tempfile.TemporaryFile() as file, select.epoll() as poll, socket.create_server((hosts[0], 0)) as l:
    poll.register(l)
    for fd in (file.fileno(), 999):
        print(said(poll.register, fd), said(poll.modify, fd, select.EPOLLIN), said(poll.unregister, fd))
        print(said(poll.register, fd, select.EPOLLEXCLUSIVE | select.EPOLLRDHUP))
    print(said(poll.modify, poll.fileno(), 1), said(poll.unregister, l.fileno()), said(poll.unregister, l.fileno()))
""",
    "the queue of errors right after the datagram": """
for host in hosts:
    level, option = (socket.IPPROTO_IPV6, 25) if ":" in host else (socket.IPPROTO_IP, 11)
    for i in range(3):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(level, option, 1)
            s.sendto(b"x", (host, 6800))
            told = said(s.recvmsg, 8, 200, socket.MSG_ERRQUEUE)
            print(len(told) == 4 and (told[1][0][0:2], told[1][0][2][:8], told[3][:2]))
""",
    "what an accepted socket has of its listener's": """
for host in hosts:
    def prepare(l):
        l.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200000))
        l.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("ll", 3, 0))
        l.setsockopt(TCP, socket.TCP_CONGESTION, b"reno")
    c, a = pair(host, prepare)
    a = socket.socket(fileno=a.detach())  # accept() of Python's has made it one that does not block otherwise
    print([struct.unpack("ll", a.getsockopt(SOL, name, 16)) for name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)])
    print(a.getsockopt(TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0"))
    a.setblocking(True)
    print(said(a.recv, 1))
""",
    "an address without a port": """
# IP_BIND_ADDRESS_NO_PORT
IP, NO_PORT = socket.IPPROTO_IP, 24
def named(s):
    return s.getsockname()[0], s.getsockname()[1] != 0
for host, kind in [(host, kind) for host in hosts for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]:
    family, stream = socket.AF_INET6 if ":" in host else socket.AF_INET, kind == socket.SOCK_STREAM
    def fresh(on=1):
        s = socket.socket(family, kind)
        s.setsockopt(IP, NO_PORT, on)
        s.settimeout(5)
        return s
    r = fresh(0)
    r.bind((host, 0))
    if stream:
        r.listen()
    for first in ("::" if ":" in host else "0.0.0.0", host):
        s = fresh()
        print(s.bind((first, 0)), named(s), s.getsockopt(IP, NO_PORT), r.getsockopt(IP, NO_PORT))
        print(s.bind((host, 0)), named(s), said(s.getpeername))
        print(s.connect(r.getsockname()), named(s), said(s.bind, (host, 0)), s.send(b"x"))
        print(s.setsockopt(IP, NO_PORT, 0), s.getsockopt(IP, NO_PORT), named(s))
        s = fresh()
        print(s.bind((first, 6900)), s.getsockname()[1])
        s = fresh()
        s.bind((first, 0))
        if stream:
            print(s.listen(), named(s), socket.create_connection((host, s.getsockname()[1])).getsockname()[0] == host)
            print(s.accept()[0].getsockopt(IP, NO_PORT))
        else:
            r.recv(10)
            s.setblocking(False)
            print(said(s.recv, 10), s.sendto(b"x", r.getsockname()), named(s))
            print(r.sendto(b"y", r.recvfrom(10)[1]), select.select([s], [], [], 5)[0] == [s], s.recv(10))
    if stream:
        # Each takes its port when it connects.
        more = [fresh() for _ in range(20)]
        for s in more:
            s.bind((host, 0))
        others = [socket.create_server((host, 0), family=family) for _ in more]
        print({named(s) for s in more}, {s.connect(o.getsockname()) for s, o in zip(more, others)}, {named(s) for s in more})
""",
    "a maximum segment size that was set before": """
for host in hosts:
    c = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    c.setsockopt(TCP, socket.TCP_MAXSEG, 700)
    with socket.create_server((host, 0), family=c.family) as l:
        c.connect(l.getsockname())
        a = l.accept()[0]
        print([s.getsockopt(TCP, socket.TCP_MAXSEG) <= 700 for s in (c, a)])
""",
    "more events at once than are usual": """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
for host in (None,) + hosts:
    if host:
        l = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    ends = [socket.socketpair() if not host else (socket.create_connection(l.getsockname()[:2]), l.accept()[0]) for _ in range(400)]
    with select.epoll() as ep:
        for a, b in ends:
            ep.register(a, select.EPOLLIN)
            b.send(b"x")
        time.sleep(0.1)
        print([len(ep.poll(1, n)) for n in (1000, -1, 300, 256, 20)], len({fd for _ in range(3) for fd, _ in ep.poll(1, 150)}))
        for a, b in ends[:300]:
            ep.unregister(a)
        print(len(ep.poll(1, 1000)))
    for a, b in ends:
        a.close(), b.close()
""",
    "what this host answers is there before the next call": """
for host in hosts:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.bind((host, 0))
        port = s.getsockname()[1]
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.connect((host, port))
        print([said(s.send, b"x") for _ in range(5)])
    for how in ("unread", "reset", "closed"):
        c, a = pair(host)
        if how == "unread":
            c.send(b"x")
        elif how == "reset":
            a.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
        a.close()
        print(how, [said(c.send, b"y") for _ in range(3)])
""",
    "TCP_INQ": """
INQ = 36
for host in hosts:
    for before in (False, True):
        c, a = pair(host, lambda l: before and l.setsockopt(TCP, INQ, 1))
        print(a.getsockopt(TCP, INQ), said(a.setsockopt, TCP, INQ, 2))
        a.setsockopt(TCP, INQ, 1)
        c.send(b"0123456789")
        time.sleep(0.05)
        print(a.recvmsg(4, 100)[:3], a.recvmsg(40, 100)[:3])
        c.send(b"z")
        c.close()
        time.sleep(0.05)
        print(a.recvmsg(1, 100)[:3], a.recvmsg(1, 100)[:3])
""",
    "what a send with a time limit takes": """
import threading
def drain(s):
    while s.recv(65536):
        time.sleep(0.0005)
for host in hosts:
    c, a = pair(host)
    c.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("ll", 20, 0))
    reader = threading.Thread(target=drain, args=(a,))
    reader.start()
    print({c.send(bytes(4096)) for _ in range(1000)}, c.send(bytes(1 << 22)))
    c.close()
    reader.join()
    c, a = pair(host)
    c.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100000))
    print(0 < c.send(bytes(1 << 24)) < 1 << 24)
""",
    "datagrams that are looked at first": """
for host, lo in zip(hosts, ("127.0.0.1", "::1")):
    for order in ((lo,), (host,), (lo, lo, host), (host, host, lo), (lo, host, lo, host)):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.bind(("", 0))
            s.setblocking(False)
            for i, to in enumerate(order):
                with socket.socket(s.family, socket.SOCK_DGRAM) as c:
                    c.sendto(b"%d" % i, (to, s.getsockname()[1]))
            time.sleep(0.02)
            print(len(select.select([s], [], [], 5)[0]))
            had = [[said(s.recv, 9, flags) for flags in (socket.MSG_PEEK, socket.MSG_PEEK, 0)] for _ in order]
            print([looked == again == taken for looked, again, taken in had], sorted(str(taken) for _, _, taken in had), said(s.recv, 9))
""",
    "datagram sockets that were shut down": """
for host in hosts:
    for connected in (False, True):
        for how in ((socket.SHUT_RD,), (socket.SHUT_WR,), (socket.SHUT_RD, socket.SHUT_WR), (socket.SHUT_RDWR,)):
            s, c = (socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
            for one in (s, c):
                one.bind((host, 0))
                one.setblocking(False)
            said(s.recv, 9)
            if connected:
                s.connect(c.getsockname())
            print([said(s.shutdown, one) for one in how])
            for _ in range(2):
                print(said(s.recv, 9), said(c.sendto, b"abc", s.getsockname()))
                time.sleep(0.02)
                print(said(s.recv, 9), said(s.recv, 9), said(s.sendto, b"d", c.getsockname()))
            poll = select.poll()
            poll.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
            ep = select.epoll()
            ep.register(s, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
            print([bits for _, bits in poll.poll(0)] + [bits for _, bits in ep.poll(0)])
            s.setblocking(True)
            if socket.SHUT_RD in how or socket.SHUT_RDWR in how:
                print(said(s.recv, 9))
    for own in ("", host, None):
        s, c = (socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        if own is not None:
            s.bind((own, 0))
        c.bind((host, 0))
        print(said(s.shutdown, socket.SHUT_RDWR), said(s.connect, c.getsockname()), said(s.recv, 9), said(s.send, b"abc"))
""",
    "an answer from the address that was asked": """
for host, level, name in (("127.0.0.1", socket.IPPROTO_IP, 8), ("::1", socket.IPPROTO_IPV6, 49)) + tuple(
    (host, socket.IPPROTO_IPV6, 49) if ":" in host else (host, socket.IPPROTO_IP, 8) for host in hosts
):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    s, c = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(level, name, 1)
    s.bind(("", 0))
    for one in (s, c):
        one.settimeout(5)
    c.sendto(b"ping", (host, s.getsockname()[1]))
    data, control, flags, peer = s.recvmsg(100, 200)
    print(data, len(control), said(s.sendmsg, [b"pong"], control, 0, peer), said(c.recvfrom, 10)[1][0])
""",
    "sockets on all addresses, before they are used": """
for host in hosts:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as early, socket.socket(family, socket.SOCK_DGRAM) as c, socket.socket(family) as l:
        l.bind(("", 0))
        l.listen()
        early.bind(("", 0))
        for _ in range(2):
            print(said(c.sendto, b"abc", (host, early.getsockname()[1])))
            time.sleep(0.05)
        early.settimeout(2)
        print(said(early.recvfrom, 10)[0])
        with socket.socket(family, socket.SOCK_DGRAM) as late:
            late.bind(("", 0))
            c.connect((host, late.getsockname()[1]))
            print(said(c.send, b"def"))
            time.sleep(0.05)
            print(said(c.send, b"def"))
            late.settimeout(2)
            print(said(late.recvfrom, 10)[0])
        for listener in (l, socket.create_server(("", 0), family=family)):
            with socket.socket(family) as s:
                s.settimeout(2)
                print(said(s.connect, (host, listener.getsockname()[1])))
                listener.settimeout(2)
                print(said(listener.accept)[1][0] == host)
""",
    "an end that has come": """
for host in hosts:
    c, a = pair(host)
    c.sendall(b"GET")
    time.sleep(0.02)
    a.close()
    print("unread", said(c.recv, 10))
    for name, call in {
        "shutdown": lambda s: s.shutdown(socket.SHUT_WR),
        "getpeername": lambda s: s.getpeername(),
        "SO_ERROR": lambda s: s.getsockopt(SOL, socket.SO_ERROR),
        "TCP_INFO": lambda s: s.getsockopt(TCP, socket.TCP_INFO),
    }.items():
        c, a = pair(host)
        reset(a)
        print(name, said(call, c))
    c, a = pair(host)
    reset(a)
    print("sends", [said(c.send, b"x") for _ in range(3)])
    c, a = pair(host)
    a.close()
    sends = []
    for _ in range(3):
        time.sleep(0.02)
        sends.append(said(c.send, b"x"))
    print("sends", sends)
""",
    "accepted after its end": """
for host in hosts:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as l:
        c = socket.create_connection(l.getsockname()[:2])
        name = c.getsockname()
        time.sleep(0.02)
        reset(c)
        a, peer = l.accept()
        print(peer == name, said(a.getpeername))
""",
    "what comes from too far": """
for host, level, ttl, least in (
    (hosts[0], socket.IPPROTO_IP, socket.IP_TTL, 21), (hosts[1], socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 73)
):
    c, a = pair(host)
    print(said(a.setsockopt, level, least, 256), said(a.setsockopt, level, least, 255), a.getsockopt(level, least))
    c.setsockopt(level, ttl, 9)
    c.send(b"far")
    a.settimeout(0.5)
    print(said(a.recv, 10))
    c.setsockopt(level, ttl, 255)
    a.settimeout(10)
    print(said(a.recv, 10))  # sent again
    with socket.socket(c.family) as l, socket.socket(c.family) as s:
        l.setsockopt(level, least, 255)
        l.bind((host, 0))
        l.listen()
        l.setsockopt(level, ttl, 255)
        s.setsockopt(level, ttl, 9)
        s.settimeout(0.5)
        print(said(s.connect, l.getsockname())[0])
""",
    "ports that are taken": """
host = hosts[0]
def tried(what, port):
    for where in ("", host):
        for again in (0, 1):
            with socket.socket() as s:
                s.setsockopt(SOL, socket.SO_REUSEADDR, again)
                print(what, where, again, said(s.bind, (where, port)) or said(s.listen))
for reuse in (0, 1):
    def listener():
        l = socket.socket()
        l.setsockopt(SOL, socket.SO_REUSEADDR, reuse)
        l.bind((host, 0))
        l.listen()
        return l, l.getsockname()[1]
    l, port = listener()
    tried("listener", port)
    c = socket.create_connection((host, port))
    a = l.accept()[0]
    l.close()
    tried("accepted", port)
    a.close()
    c.recv(1)
    c.close()
    time.sleep(0.1)
    tried("TIME_WAIT", port)
    l, port = listener()
    c = socket.create_connection((host, port))
    a, (_, port) = l.accept()
    tried("a client's", port)
    c.close()
    a.recv(1)
    a.close()
    l.close()
    time.sleep(0.1)
    tried("a client's TIME_WAIT", port)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((host, 0))
for where in ("", host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        print("udp", said(s.bind, (where, u.getsockname()[1])))
""",
    "calls of an event loop that are cancelled": """
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    c, a = pair(hosts[0])
    c.setblocking(False)
    a.setblocking(False)
    reading = asyncio.ensure_future(loop.sock_recv(c, 1))
    await asyncio.sleep(0.05)
    loop.call_later(0.1, lambda: loop.create_task(loop.sock_sendall(a, b"1")))
    reading.cancel()
    print(await asyncio.wait_for(loop.sock_recv(c, 1), 5))
    reading = asyncio.ensure_future(loop.sock_recv(c, 1))
    await asyncio.sleep(0.05)
    loop.remove_reader(c)
    c.close()
    reading.cancel()
    try:
        await reading
    except asyncio.CancelledError as error:
        print(repr(error))
asyncio.run(main())
""",
    "errors of an event loop that nothing keeps": """
import asyncio, gc
async def failed(call):
    try:
        await call
    except OSError as error:
        kept = error
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    print([type(r).__name__ for r in gc.get_referrers(kept) if "frame" not in type(r).__name__ and "oroutine" not in type(r).__name__])
async def main():
    s = socket.socket()
    s.setblocking(False)
    await failed(asyncio.get_running_loop().sock_connect(s, (hosts[0], 9)))
    await failed(asyncio.open_connection(hosts[0], 9))
gc.disable()
asyncio.run(main())
""",
    "TCP_INFO before, and of listeners": """
FIELDS = "state 0B rto 8I mss 16I ready 24I backlog 28I sent 44I rttvar 72I ssthresh 76I cwnd 80I reordering 88I "
FIELDS += "pacing 104Q max_pacing 112Q min_rtt 148I"
def info(s):
    raw, names = s.getsockopt(TCP, socket.TCP_INFO, 400), FIELDS.split()
    told = {n: struct.unpack_from(at[-1], raw, int(at[:-1]))[0] for n, at in zip(names[::2], names[1::2])}
    told["sent"] = told["sent"] > 5000000
    return len(raw), told
for host in hosts:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as l, socket.socket(l.family) as c:
        l.bind((host, 0))
        print({k: v for k, v in info(l)[1].items() if k != "sent"}, info(l)[0])
        l.listen(7)
        print(info(l))
        c.connect(l.getsockname())
        select.select([l], [], [], 5)
        print(info(l))
        a = l.accept()[0]
        print(info(l), [len(s.getsockopt(TCP, socket.TCP_INFO, n)) for s in (a, c) for n in (231, 233, 248, 279, 280, 281)])
        for s in (a, c):
            window, rehash, *rtos = struct.unpack_from("2I2HI", s.getsockopt(TCP, socket.TCP_INFO, 280), 232)
            print(window > 1000, rehash, rtos)
""",
    "TCP_INFO of a connect that nobody answers": """
def tell(s, bytes_at=(0, 1, 2, 4, 6), words_at=(0, 1, 3, 4, 5, 6, 7, 15, 16, 17, 18, 20, 22, 23, 32, 35)):
    info = s.getsockopt(TCP, socket.TCP_INFO, 280)
    print([info[i] for i in bytes_at], [struct.unpack_from("I", info, 8 + 4 * i)[0] for i in words_at])
for host in hosts:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as l:
        l.bind((host, 0))
        l.listen(0)
        first, c = socket.socket(l.family), socket.socket(l.family)
        first.connect(l.getsockname())
        c.setsockopt(TCP, socket.TCP_USER_TIMEOUT, 1800)
        c.setblocking(False)
        said(c.connect, l.getsockname())
        for _ in range(2):
            time.sleep(0.3)
            tell(c)
            time.sleep(0.8)
        print(len(select.select([], [c], [], 9)[1]), c.getsockopt(SOL, socket.SO_ERROR))
        tell(c)
    refused = socket.socket(l.family)
    refused.setblocking(False)
    said(refused.connect, (host, 9))
    select.select([], [refused], [], 9)
    tell(refused)
""",
    "TCP_INFO of a connection that waited": """
for host in hosts:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as l:
        l.bind((host, 0))
        l.listen(0)
        first, c = socket.socket(l.family), socket.socket(l.family)
        first.connect(l.getsockname())
        c.setblocking(False)
        said(c.connect, l.getsockname())
        time.sleep(1.5)
        tell = lambda: struct.unpack_from("2HI", c.getsockopt(TCP, socket.TCP_INFO, 280), 240)
        rto, recoveries, ms = tell()
        print(rto, recoveries, 300 <= ms <= 2000)
        l.accept()
        select.select([], [c], [], 9)
        rto, recoveries, ms = tell()
        time.sleep(0.1)
        print(rto >= 2, recoveries, ms >= 900, tell() == (rto, recoveries, ms))
""",
    "TCP_MAXSEG, which connections that end take with them": """
for host in hosts:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as l:
        l.bind((host, 0))
        c = socket.socket(l.family)
        print(c.getsockopt(TCP, socket.TCP_MAXSEG))
        c.bind((host, 0))
        c.setsockopt(TCP, socket.TCP_MAXSEG, 700)
        print(c.getsockopt(TCP, socket.TCP_MAXSEG))
        print(said(c.connect, l.getsockname()), c.getsockopt(TCP, socket.TCP_MAXSEG))
        l.listen()
        c = socket.socket(l.family)
        print(c.getsockopt(TCP, socket.TCP_MAXSEG))
        c.setsockopt(TCP, socket.TCP_MAXSEG, 700)
        c.connect(l.getsockname())
        print(c.getsockopt(TCP, socket.TCP_MAXSEG))
""",
    "TCP_QUICKACK, which does not last": """
for host in hosts:
    for value in (0, 1, 2):
        c, a = pair(host, lambda l: l.setsockopt(TCP, socket.TCP_QUICKACK, value))
        c.setsockopt(TCP, socket.TCP_QUICKACK, 1)
        first, turns = (c.getsockopt(TCP, socket.TCP_QUICKACK), a.getsockopt(TCP, socket.TCP_QUICKACK)), 200
        while turns and c.getsockopt(TCP, socket.TCP_QUICKACK):
            turns -= 1
            a.send(b"question")
            c.recv(8)
            c.send(b"answer")
            a.recv(6)
        print(first, turns > 0)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as l, socket.socket(l.family) as c:
        l.bind((host, 0))
        l.listen()
        l.setsockopt(TCP, socket.TCP_QUICKACK, 0)
        c.connect(l.getsockname())
        print(l.getsockopt(TCP, socket.TCP_QUICKACK), l.accept()[0].getsockopt(TCP, socket.TCP_QUICKACK))
""",
    "how many of those who wait for a listener of the kernel's are woken": """
import threading
def wait(flags):
    with select.epoll() as ep:
        ep.register(l, select.EPOLLIN | flags)
        os.write(w, b"begins")
        return len(ep.poll(0.7))
def begin(flags, told):
    asleep = threading.Thread(target=lambda: told.append(wait(flags)))
    asleep.start()
    return asleep.join
def fork(flags, told):
    child = os.fork()
    if not child:
        os._exit(wait(flags))
    return lambda: told.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
r, w = os.pipe()
for start in begin, fork:
    for flags in 0, select.EPOLLEXCLUSIVE, select.EPOLLEXCLUSIVE | select.EPOLLET:
        with socket.create_server(("127.0.0.1", 0)) as l:
            told = []
            ends = [start(flags, told) for _ in range(4)]
            for _ in range(4):
                os.read(r, 6)
            time.sleep(0.2)
            with socket.create_connection(l.getsockname()):
                for end in ends:
                    end()
            print(start.__name__, flags, sum(told))
""",
    "epoll and numbers that are closed": """
def ctl(call, *args):
    return said(call, *args)
p, q = socket.socketpair()
q.send(b"x")
ep = select.epoll()
d = os.dup(p.fileno())
ep.register(d, select.EPOLLIN)
os.close(d)
print(ctl(ep.unregister, d))
start = time.process_time()
print(len(ep.poll(0.5)), time.process_time() - start < 0.2)
r, w = os.pipe()
os.dup2(r, d)
print(ctl(ep.modify, d, select.EPOLLIN), ctl(ep.unregister, d), ctl(ep.register, d, select.EPOLLIN))
ep = select.epoll()
(r, w), (r2, w2) = os.pipe(), os.pipe()
ep.register(r, select.EPOLLIN)
os.close(r)
os.dup2(r2, r)
print(ctl(ep.modify, r, select.EPOLLIN), ctl(ep.register, r, select.EPOLLIN))
exclusive = select.EPOLLIN | select.EPOLLEXCLUSIVE
(r, w), (r2, w2) = os.pipe(), os.pipe()
print(ctl(ep.register, r, exclusive), ctl(ep.register, r, exclusive), ctl(ep.modify, r, select.EPOLLIN))
os.close(r)
os.dup2(r2, r)
print(ctl(ep.register, r, exclusive), ctl(ep.register, r, exclusive), os.write(w2, b"x"), len(ep.poll(5)))
""",
}


@pytest.mark.parametrize("face", ["preload", "python"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_script(ns: Namespace, empty: Namespace, tmp_path: Path, name: str, face: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + SCRIPTS[name])
    env = {"PYVMA_INTERFACES": interfaces(), "PYVMA_STRICT": "0"}
    if face == "preload":
        ours = printed(empty, env | {"LD_PRELOAD": str(run.library())}, sys.executable, str(script))
    else:
        ours = printed(empty, env, sys.executable, "-m", "pyvma", str(script))
    assert ours == printed(ns, {}, sys.executable, str(script))


# Of an interface that is the kernel's alone.
LINK_LOCAL = """
import asyncio
host = "fe80::77%v0"
engine = socket.create_server((hosts[0], 0))
address = socket.getaddrinfo(host, 0, socket.AF_INET6, socket.SOCK_STREAM)[0][4]
with socket.socket(socket.AF_INET6) as l, socket.socket(socket.AF_INET6) as c:
    l.bind(address)
    print(said(l.listen))
    c.connect(l.getsockname())
    c.sendall(b"hello")
    print(l.accept()[0].recv(10))
async def main():
    async def answer(reader, writer):
        writer.write(await reader.read(10))
        writer.close()
    class Heard(asyncio.DatagramProtocol):
        def datagram_received(self, data, peer):
            print(data)
            heard.set()
    heard, loop = asyncio.Event(), asyncio.get_running_loop()
    server = await asyncio.start_server(answer, host, 0)
    print(server.sockets[0].getsockname()[3] != 0)
    reader, writer = await asyncio.open_connection(host, server.sockets[0].getsockname()[1])
    writer.write(b"world")
    print(await reader.read())
    writer.close()
    one, _ = await loop.create_datagram_endpoint(Heard, local_addr=(host, 0))
    two, _ = await loop.create_datagram_endpoint(Heard, remote_addr=(host, one.get_extra_info("sockname")[1]))
    two.sendto(b"udp")
    await asyncio.wait_for(heard.wait(), 5)
asyncio.run(main())
"""


@pytest.mark.parametrize("face", ["kernel", "preload", "python"])
def test_link_local_addresses_of_the_kernels(tmp_path: Path, face: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + (LINK_LOCAL if face != "kernel" else LINK_LOCAL.replace("engine =", "#")))
    env = {} if face == "kernel" else {"PYVMA_INTERFACES": interfaces()}
    env |= {"LD_PRELOAD": str(run.library())} if face == "preload" else {}
    with Namespace() as made:
        made.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
        for device in ("v0", "v1"):
            made.ip("link", "set", device, "up")
        made.ip("addr", "add", "fe80::77/64", "dev", "v0", "nodad")
        lines = printed(made, env, sys.executable, *(("-m", "pyvma") if face == "python" else ()), str(script))
    assert lines == ["None", "b'hello'", "True", "b'world'", "b'udp'"]


# The association of a datagram socket ends by connect(2) of AF_UNSPEC, which Python's sockets do not have.
DISSOLVED = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def dissolve(s):
    return ctypes.get_errno() if libc.connect(s.fileno(), bytes(28), 28) else 0
def tell(s, to, name=True):
    host, port = s.getsockname()[:2]
    print(name and host, port != 0, said(s.sendto, b"x", to), len(said(r.recv, 10)), s.getsockname()[1] != 0)
for peer, own in [(host, own) for host in hosts for own in (None, host, "::" if ":" in host else "")]:
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as r, socket.socket(family, socket.SOCK_DGRAM) as s:
        r.bind((peer, 0))
        r.settimeout(5)
        if own is not None:
            s.bind((own, 0))
        s.connect(r.getsockname())
        port = s.getsockname()[1]
        if own is None or own:
            with socket.socket(family, socket.SOCK_DGRAM) as stranger:
                stranger.connect(("::1" if ":" in peer else "127.0.0.1", port))
                print([said(stranger.send, b"x") for _ in range(2)] if own != "::" else None)
        for _ in range(2):
            print(dissolve(s))
            tell(s, r.getsockname())
        s.connect(r.getsockname())
        print(s.send(b"x"), r.recv(10), dissolve(s), s.getsockname()[:2])
        print(said(s.bind, (s.getsockname()[0], port)), s.getsockname()[1] == port)
        s.connect(r.getsockname())
        print(dissolve(s), s.getsockname()[1] == port)
        tell(s, r.getsockname())
"""


def test_associations_that_are_dissolved(ns: Namespace, empty: Namespace, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + DISSOLVED)
    env = {"PYVMA_INTERFACES": interfaces(), "PYVMA_STRICT": "0", "LD_PRELOAD": str(run.library())}
    assert printed(empty, env, sys.executable, str(script)) == printed(ns, {}, sys.executable, str(script))
