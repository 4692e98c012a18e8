"""What the suites of other projects (libuv, libevent, libzmq, node, ruby, anyio, websockets, uvloop, Twisted) found: the same script over
the kernel and over the stack, whose addresses are its own there, and by both faces; what it prints must be the same."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_programs import LIMIT_S, compiled, inside
from netns import Namespace, usable

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]

HOSTS = ("10.9.9.1", "fd09::1")

BEGIN = """
import os, select, socket, struct, sys, time
hosts = ("10.9.9.1", "fd09::1")
TCP, SOL = socket.IPPROTO_TCP, socket.SOL_SOCKET
def said(call, *args):
    try:
        return call(*args)
    except OSError as error:
        return type(error).__name__, error.errno
def pair(host, prepare=lambda listener: None):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        prepare(listener)
        listener.bind((host, 0))
        listener.listen()
        c = socket.socket(family)
        c.connect(listener.getsockname())
        return c, listener.accept()[0]
def reset(s):
    s.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    time.sleep(0.02)
"""

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
    "a maximum segment size that was set before": """
for host in hosts:
    c = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    c.setsockopt(TCP, socket.TCP_MAXSEG, 700)
    with socket.create_server((host, 0), family=c.family) as l:
        c.connect(l.getsockname())
        a = l.accept()[0]
        print([s.getsockopt(TCP, socket.TCP_MAXSEG) <= 700 for s in (c, a)])
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
""",
}


def interfaces() -> str:
    return f"softnic:fabric=linux{secrets.token_hex(4)},port=0,addr={HOSTS[0]}/24,addr={HOSTS[1]}/64"


@pytest.fixture(scope="module")
def ns() -> Iterator[Namespace]:
    """The addresses are the kernel's there, on the loopback interface."""
    with Namespace() as made:
        made.ip("link", "set", "lo", "up")
        for host in HOSTS:
            made.ip("addr", "add", host, "dev", "lo", *(("nodad",) if ":" in host else ()))
        yield made


@pytest.fixture(scope="module")
def empty() -> Iterator[Namespace]:
    with Namespace() as made:
        made.ip("link", "set", "lo", "up")
        yield made


def printed(ns: Namespace, env: dict[str, str], *command: str) -> list[str]:
    done = subprocess.run(inside(ns, env, *command), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


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


# A thread is in accept when the process ends.
ENDS = """
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void *serve(void *listener)
{
	if (accept(*(int *)listener, NULL, NULL) < 0)
		abort();
	return NULL;
}

__attribute__((destructor)) static void late(void)
{
	usleep(50000);
}

int main(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	static int listener;
	pthread_t thread;

	inet_pton(AF_INET, "10.9.9.1", &sa.sin_addr);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&sa, sizeof(sa)) || listen(listener, 5) || pthread_create(&thread, NULL, serve, &listener))
		return 1;
	usleep(100000);
	return 0;
}
"""


def test_threads_of_a_process_that_ends(empty: Namespace, tmp_path: Path) -> None:
    """They are told nothing: with the kernel they are gone before a call could fail."""
    (tmp_path / "ends.c").write_text(ENDS)
    program = compiled(tmp_path / "ends", tmp_path / "ends.c", options=("-pthread",))
    for _ in range(20):
        printed(empty, {"PYVMA_INTERFACES": interfaces(), "LD_PRELOAD": str(run.library())}, str(program))


# PHP opens its extensions so: they see the C library before what is preloaded.
DEEP_C = """
#include <sys/socket.h>
#include <unistd.h>

ssize_t (*const put)(int, const void *, size_t) = write;

ssize_t by_name(int fd)
{
	return send(fd, "hello", 5, 0);
}

ssize_t by_pointer(int fd)
{
	return put(fd, "world", 5);
}
"""
DEEP = """
import ctypes
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LAZY | os.RTLD_DEEPBIND)
for host in hosts:
    c, a = pair(host)
    sent = library.by_name(c.fileno()), library.by_pointer(c.fileno())
    print(sent, sent == (5, 5) and a.recv(10, socket.MSG_WAITALL))
"""


@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_libraries_that_are_bound_deeply(empty: Namespace, tmp_path: Path, binding: str) -> None:
    (tmp_path / "deep.c").write_text(DEEP_C)
    library = compiled(tmp_path / "deep.so", tmp_path / "deep.c", options=("-shared", "-fPIC", f"-Wl,-z,{binding}"))
    script = tmp_path / "script.py"
    script.write_text(BEGIN + DEEP)
    env = {"PYVMA_INTERFACES": interfaces(), "LD_PRELOAD": str(run.library())}
    assert printed(empty, env, sys.executable, str(script), str(library)) == ["(5, 5) b'helloworld'"] * 2


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
