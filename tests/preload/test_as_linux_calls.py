"""The same of calls that Python does not make, or not so (LTP, PHP, OpenJDK, mio): by the C library, the program's threads and its end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from c_programs import compiled
from netns import Namespace, usable
from two_ways import BEGIN, interfaces, printed

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]

# What Python's own socket module never passes on, by the C library.
C_BEGIN = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
class Msghdr(ctypes.Structure):
    _fields_ = [(n, ctypes.c_void_p if n in ("name", "iov", "control") else ctypes.c_uint if n in ("namelen", "flags") else ctypes.c_size_t)
                for n in ("name", "namelen", "iov", "iovlen", "control", "controllen", "flags")]
def call(name, *args):
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    got = getattr(libc, name)(*args)
    return got if got >= 0 else errno.errorcode[ctypes.get_errno()]
room, minus, large = ctypes.create_string_buffer(128), ctypes.c_int(-1), ctypes.c_int(128)
"""

C_SCRIPTS = {
    "the name of a stream whose connection is over": """
for host in hosts:
    any, family = ("::", socket.AF_INET6) if ":" in host else ("0.0.0.0", socket.AF_INET)
    for bound in None, (any, 0), (host, 0), (any, 6111), (host, 6112):
        ends = "refused", "refused later", "unspec", "refused, unspec", "unspec while connected", "unspec of a listener"
        for end in ends if bound else ends[:-1]:
            with socket.socket(family) as l, socket.socket(family) as dead, socket.socket(family) as s:
                def name():
                    at, port = s.getsockname()[:2]
                    was, ports[0] = ports[0], port
                    return at, port if not port or port in (6111, 6112) else "same" if port == was else "another"
                ports = [0]
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                l.bind((host, 0))
                l.listen()
                dead.bind((host, 0))
                if bound:
                    s.bind(bound)
                steps = [name()]
                if end == "refused later":
                    s.setblocking(False)
                    steps.append(s.connect_ex(dead.getsockname()))
                    select.select([], [s], [], 5)
                    steps += [name(), s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), name(), s.connect_ex(l.getsockname())]
                    s.setblocking(True)
                elif "refused" in end:
                    steps.append(s.connect_ex(dead.getsockname()))
                elif "connected" in end:
                    steps.append(s.connect_ex(l.getsockname()))
                    l.accept()[0].close()
                    select.select([s], [], [], 5)
                elif "listener" in end:
                    s.listen()
                steps.append(name())
                if "unspec" in end:
                    steps += [call("connect", s.fileno(), bytes(16), 16), name()]
                steps += [s.connect_ex(l.getsockname()) if not ("connected" in end and bound and bound[1]) else None, name()]
                print(bound, end, steps)
""",
    "events by their other names": """
import threading
def later(f):
    t = threading.Timer(0.1, f)
    t.start()
    return t
for host in hosts:
    c, a = pair(host)
    family = c.family
    with socket.socket(family, socket.SOCK_DGRAM) as u, socket.socket(family, socket.SOCK_DGRAM) as v, select.epoll() as ep:
        u.bind((host, 0))
        v.bind((host, 0))
        for s, send in (u, lambda: v.sendto(b"x", u.getsockname())), (a, lambda: c.send(b"x")):
            ep.register(s, select.EPOLLRDNORM)
            t = later(send)
            print([e for _, e in ep.poll(5)])
            t.join()
            s.recv(9)
            p = select.poll()
            p.register(s, select.POLLRDNORM)
            p.register(v, select.POLLRDNORM)
            t = later(send)
            print([e for _, e in p.poll(5000)])
            t.join()
            s.recv(9)
            ep.unregister(s)
        ep.register(c, select.EPOLLWRNORM)
        print([e for _, e in ep.poll(5)])
""",
    "errno after calls that succeed": """
import fcntl, threading
def kept(name, *args):
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    ctypes.set_errno(77)
    return name, getattr(libc, name)(*args) >= 0, ctypes.get_errno()
for host in hosts:
    c, a = pair(host)
    data, fds = ctypes.create_string_buffer(100), (ctypes.c_int * 2)(c.fileno(), select.POLLIN)
    ep = select.epoll()
    ep.register(c, select.EPOLLIN)
    event = ctypes.create_string_buffer(12)
    print(kept("poll", fds, 1, 10), kept("epoll_wait", ep.fileno(), event, 1, 10))
    for back in range(3):
        print(kept("send", a.fileno(), data, 10, 0), kept("poll", fds, 1, 2000), kept("epoll_wait", ep.fileno(), event, 1, 2000))
        print(kept("recvfrom", c.fileno(), data, 100, 0, None, None), kept("fcntl", c.fileno(), fcntl.F_GETFL, 0))
    def answer():
        while part := a.recv(10):
            a.send(part)
    threads = [threading.Thread(target=answer)]
    other, end = pair(host)
    threads.append(threading.Thread(target=other.recv, args=(1,)))
    for one in threads:
        one.start()
    told = set()
    for _ in range(300):
        told |= {kept("send", c.fileno(), data, 10, 0), kept("poll", fds, 1, 5000), kept("recv", c.fileno(), data, 100, 0)}
    print(sorted(told), end.send(b"x"), kept("shutdown", c.fileno(), 1))
    for one in threads:
        one.join()
    print(kept("getsockname", c.fileno(), room, ctypes.byref(large)), kept("setsockopt", c.fileno(), 6, 1, fds, 4))
    print(kept("shutdown", a.fileno(), 1), kept("read", c.fileno(), data, 10))
    print(kept("close", a.detach()), kept("close", c.detach()))
    u = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((host, 0))
    u.connect(u.getsockname()[:2])
    fds[0] = u.fileno()
    print(kept("send", u.fileno(), data, 10, 0), kept("poll", fds, 1, 2000), kept("recv", u.fileno(), data, 100, 0))
    print(kept("close", u.detach()))
""",
    "lengths that are none": """
data = ctypes.create_string_buffer(b"0123456789", 10)
iov = (ctypes.c_void_p * 2)(ctypes.addressof(data), 10)
for host in hosts:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    l, u = socket.socket(family), socket.socket(family, socket.SOCK_DGRAM)
    l.bind((host, 0))
    l.listen()
    for length in None, minus:
        c = socket.create_connection(l.getsockname()[:2])
        print(call("accept", l.fileno(), room, ctypes.byref(length) if length else None), c.recv(1))
    l.setblocking(False)
    print(said(l.accept))
    u.bind((host, 0))
    u.connect(u.getsockname())
    c, a = pair(host)
    for s, peer in (u, u), (c, a):
        s.setblocking(False)
        for length in None, minus:
            peer.send(b"hello")
            time.sleep(0.02)
            print(call("recvfrom", s.fileno(), data, 10, 0, room, ctypes.byref(length) if length else None), said(s.recv, 10))
            print(*[call(name, s.fileno(), room, ctypes.byref(length) if length else None) for name in ("getsockname", "getpeername")])
        print(call("getsockname", s.fileno(), None, ctypes.byref(large)), call("getpeername", l.fileno(), None, None))
        for name, namelen in (ctypes.addressof(room), 0xffffffff), (None, 0xffffffff):
            msg = Msghdr(name, namelen, ctypes.addressof(iov), 1, None, 0, 0)
            peer.send(b"hello")
            time.sleep(0.02)
            print(call("recvmsg", s.fileno(), ctypes.byref(msg), 0), said(s.recv, 10))
            print(call("sendmsg", s.fileno(), ctypes.byref(msg), 0))
            time.sleep(0.02)
            print(said(peer.recv, 20, socket.MSG_DONTWAIT))
        msg = Msghdr(None, 0, ctypes.addressof(iov), 1, None, 16, 0)
        print(call("sendmsg", s.fileno(), ctypes.byref(msg), 0), call("sendmsg", s.fileno(), None, 0), call("recvmsg", s.fileno(), None, 0))
        print(call("readv", s.fileno(), None, 1), call("writev", s.fileno(), None, 1), call("writev", s.fileno(), None, 0))
        print(call("recvmmsg", s.fileno(), None, 1, 0, None))
        print(call("sendmmsg", s.fileno(), None, 1, 0), call("sendmmsg", s.fileno(), None, 0, 0))
""",
    "splice to what is no pipe": """
c, a = pair(hosts[0])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((hosts[0], 0))
r, w = os.pipe()
fds = [r, os.open("/etc/passwd", os.O_PATH), os.open("/", os.O_RDONLY), os.open("/etc/passwd", os.O_RDONLY), os.memfd_create("m"),
       os.open(f"/proc/self/fd/{w}", os.O_PATH), 9999]
for s in a, u:
    for fd in fds:
        print(call("splice", s.fileno(), None, fd, None, 5, 0), call("splice", s.fileno(), None, fd, None, 0, 0))
    for fd in [w, *fds[1:]]:
        print(call("splice", fd, None, s.fileno(), None, 5, 0), call("splice", fd, None, s.fileno(), None, 0, 0))
c.send(b"hello")
print(call("splice", a.fileno(), None, w, None, 5, 0), call("splice", r, None, a.fileno(), None, 5, 0), c.recv(10))
""",
    "sendfile from what is no file": """
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((hosts[0], 0))
u.connect(u.getsockname())
r, w = os.pipe()
os.write(w, b"pipe")
m = os.memfd_create("m")
os.write(m, b"memory")
fds = [r, m, u.fileno(), os.eventfd(3), 9999, os.open("/etc/passwd", os.O_PATH), os.open("/dev/zero", os.O_RDONLY),
       os.open("/dev/zero", os.O_WRONLY), os.open("/dev/urandom", os.O_RDONLY), os.open("/", os.O_RDONLY)]
for fd in fds:
    c, a = pair(hosts[0])
    c.settimeout(0.1)
    for offset in 0, None, 2, -1:
        print(said(os.sendfile, a.fileno(), fd, offset, 5), type(said(c.recv, 10)))
    print(said(os.lseek, fd, 0, os.SEEK_CUR), said(os.sendfile, a.fileno(), fd, 0, 0))
""",
}


@pytest.mark.parametrize("name", C_SCRIPTS)
def test_c_script(ns: Namespace, empty: Namespace, tmp_path: Path, name: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + C_BEGIN + C_SCRIPTS[name])
    ours = printed(empty, {"PYVMA_INTERFACES": interfaces(), "LD_PRELOAD": str(run.library())}, sys.executable, str(script))
    assert ours == printed(ns, {}, sys.executable, str(script))


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


# Threads that open and close such libraries; and a name that only the caller's own RUNPATH leads to.
DEEP_THREADS = """
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static char **files;

static void *work(void *arg)
{
	for (int i = 0; i < 200; i++) {
		void *lib = dlopen(files[((long)arg + i) % 4], RTLD_NOW | RTLD_DEEPBIND);

		if (!lib || !dlsym(lib, "by_name"))
			abort();
		dlclose(lib);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];

	files = argv + 1;
	printf("%d\\n", argc == 5 && dlopen("libnamed.so", RTLD_NOW) != NULL);
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
"""


def test_threads_that_open_libraries(empty: Namespace, tmp_path: Path) -> None:
    (tmp_path / "deep.c").write_text(DEEP_C)
    shared = ("-shared", "-fPIC", "-Wl,-z,now")
    files = [compiled(tmp_path / f"deep{i}.so", tmp_path / "deep.c", options=shared) for i in range(4)]
    (tmp_path / "named").mkdir()
    compiled(tmp_path / "named" / "libnamed.so", tmp_path / "deep.c", options=shared)
    (tmp_path / "threads.c").write_text(DEEP_THREADS)
    program = compiled(tmp_path / "threads", tmp_path / "threads.c", options=("-pthread", f"-Wl,-rpath,{tmp_path / 'named'}"))
    env = {"PYVMA_INTERFACES": interfaces(), "LD_PRELOAD": str(run.library())}
    for _ in range(5):
        assert printed(empty, env, str(program), *map(str, files)) == ["1"]


# By the number alone: Python's own class has one.
FIRST_NUMBER = """
with socket.create_server((hosts[0], 0)) as l, socket.create_connection(l.getsockname()) as c, l.accept()[0] as a:
    poll = select.epoll()
    poll.register(a, select.EPOLLIN)
    other = select.epoll.fromfd(os.dup(poll.fileno()))
    number = poll.fileno()
    poll.close()
    file = os.open("/dev/null", os.O_RDONLY)
    print(file == number, os.get_inheritable(other.fileno()))
    r, w = os.pipe()
    print(said(other.register, r, select.EPOLLIN), said(other.poll, 0))
    os.write(w, b"x")
    c.send(b"x")
    time.sleep(0.05)
    print({fd == r for fd, events in other.poll(0)}, said(other.unregister, r), said(other.modify, a, select.EPOLLOUT))
    print([(fd == a.fileno(), events) for fd, events in other.poll(0)])
    other.close()
    print(os.path.exists(f"/proc/self/fd/{file}"))
"""


def test_an_epoll_set_whose_first_number_is_closed(ns: Namespace, empty: Namespace, tmp_path: Path) -> None:
    """Others lead to it still; whatever is opened under that one is not the set's."""
    script = tmp_path / "script.py"
    script.write_text(BEGIN + FIRST_NUMBER)
    ours = printed(empty, {"PYVMA_INTERFACES": interfaces(), "LD_PRELOAD": str(run.library())}, sys.executable, str(script))
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


# For C programs of several sockets: a datagram socket of the stack's.
BOUND = """
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>

static int bound(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	inet_pton(AF_INET, "10.9.9.1", &sa.sin_addr);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)))
		abort();
	return fd;
}
"""

# A thread adds a socket to a set and takes it out again while the process ends.
ENDS_WATCHED = """
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

static void *watch(void *arg)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int set = epoll_create1(0), fd = *(int *)arg;

	for (;;) {
		epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev);
		epoll_ctl(set, EPOLL_CTL_DEL, fd, &ev);
	}
	return NULL;
}

int main(void)
{
	static int fd;
	pthread_t thread;

	fd = bound();
	if (pthread_create(&thread, NULL, watch, &fd))
		return 1;
	usleep(20000);
	return 0;
}
"""


def test_threads_that_watch_while_the_process_ends(empty: Namespace, tmp_path: Path) -> None:
    (tmp_path / "ends.c").write_text(BOUND + ENDS_WATCHED)
    program = compiled(tmp_path / "ends", tmp_path / "ends.c", options=("-pthread",))
    for _ in range(30):
        printed(empty, {"PYVMA_INTERFACES": interfaces(), "LD_PRELOAD": str(run.library())}, str(program))


# Threads wait, each for a socket of its own, and get a signal at the same time: each call ends by that. And one is about to wait for a
# descriptor that another thread gives to a dead socket before it sends the signal, as a JVM closes: it comes back, whichever was first.
SIGNALLED = """
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 5

static _Atomic int begun, done[THREADS];
static int fds[THREADS];

static void handler(int sig)
{
	(void)sig;
}

static void *receive(void *arg)
{
	char byte;
	int i = (int)(long)arg;

	begun++;
	done[i] = recv(fds[i], &byte, 1, 0) < 0 && errno == EINTR ? 1 : -1;
	return NULL;
}

static void *wait_ready(void *arg)
{
	struct pollfd p = { .fd = fds[(long)arg], .events = POLLIN };

	begun++;
	(void)poll(&p, 1, -1);
	done[0] = 1;
	return NULL;
}

/* 1 for each that has to be told again. */
static int lost(pthread_t *threads, int n)
{
	int found = 0;

	for (int i = 0; i < n; i++) {
		for (int ms = 0; ms < 2000 && !done[i]; ms++)
			usleep(ms ? 1000 : 20);
		found += done[i] != 1;
		while (!done[i] && !pthread_kill(threads[i], SIGUSR1))
			usleep(1000);
		pthread_join(threads[i], NULL);
		close(fds[i]);
		done[i] = 0;
	}
	begun = 0;
	return found;
}

int main(void)
{
	struct sigaction sa = { .sa_handler = handler };
	pthread_t threads[THREADS];
	int dead[2], all = 0, closed = 0;

	sigaction(SIGUSR1, &sa, NULL);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, dead))
		return 1;
	close(dead[1]);
	for (int round = 0; round < 60; round++) {
		for (long i = 0; i < THREADS; i++) {
			fds[i] = bound();
			pthread_create(&threads[i], NULL, receive, (void *)i);
		}
		while (begun < THREADS)
			usleep(1000);
		usleep(100000); /* on a busy machine a thread may be a while on its way into the call */
		for (int i = 0; i < THREADS; i++)
			pthread_kill(threads[i], SIGUSR1);
		all += lost(threads, THREADS);
	}
	for (int round = 0; round < 1000; round++) {
		fds[0] = bound();
		pthread_create(&threads[0], NULL, wait_ready, NULL);
		while (!begun)
			;
		for (volatile int turns = rand() % 30000; turns; turns--)
			;
		dup2(dead[0], fds[0]);
		pthread_kill(threads[0], SIGUSR1);
		closed += lost(threads, 1);
	}
	printf("%d %d\\n", all, closed);
	return 0;
}
"""


def test_signals_that_end_calls(empty: Namespace, tmp_path: Path) -> None:
    (tmp_path / "signalled.c").write_text(BOUND + SIGNALLED)
    program = compiled(tmp_path / "signalled", tmp_path / "signalled.c", options=("-pthread",))
    env = {"PYVMA_INTERFACES": interfaces(), "LD_PRELOAD": str(run.library())}
    assert printed(empty, env, str(program)) == ["0 0"]


# A signal's handler has a descriptor of the wait's lead elsewhere and makes readable what it led to: the wait ends by the signal, whatever
# woke it beside that. And one that comes while many sockets are looked at.
SEVERAL = r"""
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SOCKETS 200
#define ROUNDS 40

static int fds[SOCKETS], number, other, writer = -1;

static void handler(int sig)
{
	(void)sig;
	if (writer >= 0 && (dup2(other, number) < 0 || write(writer, "x", 1) != 1))
		abort();
}

static int wait_by(int how, const int *on, int n, int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };
	struct timeval tv = { ms / 1000, ms % 1000 * 1000 };
	struct pollfd p[SOCKETS];
	sigset_t none;
	fd_set in;
	int top = 0;

	FD_ZERO(&in);
	sigemptyset(&none);
	for (int i = 0; i < n; i++) {
		p[i] = (struct pollfd){ .fd = on[i], .events = POLLIN };
		FD_SET(on[i], &in);
		top = on[i] >= top ? on[i] + 1 : top;
	}
	switch (how) {
	case 0:
		return poll(p, (nfds_t)n, ms);
	case 1:
		return ppoll(p, (nfds_t)n, &ts, &none);
	case 2:
		return select(top, &in, NULL, NULL, &tv);
	default:
		return pselect(top, &in, NULL, NULL, &ts, &none);
	}
}

static void alarm_in(long us)
{
	struct itimerval it = { .it_value = { 0, us } };

	setitimer(ITIMER_REAL, &it, NULL);
}

static int in_vain(int how)
{
	int was[2], is[2], keep, rc;

	if (pipe(was) || pipe(is))
		abort();
	keep = dup(was[0]);
	number = was[0];
	other = is[0];
	writer = was[1];
	alarm_in(100000);
	rc = wait_by(how, (int[]){ fds[0], number }, 2, 5000) < 0 ? errno : 0;
	writer = -1;
	for (int i = 0; i < 2; i++) {
		close(was[i]);
		close(is[i]);
	}
	close(keep);
	return rc == EINTR;
}

static int early(void)
{
	int lost = 0;

	for (int i = 0; i < ROUNDS; i++) {
		alarm_in(25);
		lost += wait_by(0, fds, SOCKETS, 50) == 0;
		alarm_in(0);
	}
	return lost;
}

int main(void)
{
	struct sigaction sa = { .sa_handler = handler };

	sigaction(SIGALRM, &sa, NULL);
	for (int i = 0; i < SOCKETS; i++)
		fds[i] = bound();
	for (int how = 0; how < 4; how++)
		printf("%d ", in_vain(how));
	printf("%d\n", early() < ROUNDS / 2);
	return 0;
}
"""


@pytest.mark.parametrize("spin", ["0", "-1"])
def test_signals_that_end_waits_for_several(empty: Namespace, tmp_path: Path, spin: str) -> None:
    (tmp_path / "several.c").write_text(BOUND + SEVERAL)
    program = compiled(tmp_path / "several", tmp_path / "several.c")
    env = {"PYVMA_INTERFACES": interfaces(), "PYVMA_RX_POLL": spin, "LD_PRELOAD": str(run.library())}
    assert printed(empty, env, str(program)) == ["1 1 1 1 1"]


# A set whose first number was closed becomes the kernel's, with the engine that a filter of the program's sends away: one number is left.
LEAVES = r"""
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sets(void)
{
	DIR *dir = opendir("/proc/self/fd");
	char path[300], what[64];
	int n = 0;

	for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", d->d_name);
		memset(what, 0, sizeof(what));
		n += readlink(path, what, sizeof(what) - 1) > 0 && strstr(what, "eventpoll");
	}
	closedir(dir);
	return n;
}

int main(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .filter = code, .len = sizeof(code) / sizeof(*code) };
	struct sockaddr_in sa = { .sin_family = AF_INET };
	struct epoll_event ev = { .events = EPOLLOUT };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), ep = epoll_create1(0), other = dup(ep);

	inet_pton(AF_INET, "10.9.9.1", &sa.sin_addr);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev))
		return 1;
	close(ep);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 2;
	printf("%d %d\n", epoll_wait(other, &ev, 1, 1000), sets());
	return 0;
}
"""


def test_a_set_that_becomes_the_kernels(empty: Namespace, tmp_path: Path) -> None:
    (tmp_path / "leaves.c").write_text(LEAVES)
    program = compiled(tmp_path / "leaves", tmp_path / "leaves.c")
    assert printed(empty, {"PYVMA_INTERFACES": interfaces(), "LD_PRELOAD": str(run.library())}, str(program)) == ["1 1"]
