"""pyvmad and clients that want to take more than is theirs, or to keep it from serving others."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import stat
import tempfile

import pytest
from actor import Actor
from daemon import CONNECT, DROP, GROUP, Daemon, asker, daemon, ours
from exchange import wait_for
from lab import LONG
from netns import Namespace, usable
from veth import ENGINE

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

SOMEBODY = 20000 + secrets.randbelow(40000)
Pair = tuple[Namespace, Namespace]


def files(running: Daemon) -> int:
    """Descriptors of the daemon."""
    assert running.process is not None
    return len(os.listdir(f"/proc/{running.process.pid}/fd"))


def test_refusals_leave_no_descriptors(pair: Pair) -> None:
    here = pair[0]
    with daemon(here) as running, asker(here, running.path) as app:
        app("number, name, fds = tap(index); r, w = os.pipe(); s = bound(host, 6101)", host=ENGINE[4])
        ask = "[result(p.FLOW_ADD, flow(host, 6100, tap=number), {})[0] for _ in range(50)]".format
        app(ask("w"), host=ENGINE[4])
        before = files(running)
        for what in ("w", "s.fileno()", "r"):
            assert app(ask(what), host=ENGINE[4]) == [-13] * 50
        assert app("[result(p.TAP, p.TAP_ASK.pack(0, 1, p.AGAIN), w)[0] for _ in range(50)]") == [-13] * 50
        wait_for("the end of what came along", lambda: files(running) <= before + 4)  # some of the first may have been on their way


# A connection whose last reference the daemon has, with an hour to linger for what its peer does not take.
LINGERS = """
l = std.create_server(("127.0.0.1", 0)); l.setsockopt(std.SOL_SOCKET, std.SO_RCVBUF, 4096)
def lingering():
    a = std.create_connection(l.getsockname())
    a.setblocking(False)
    try:
        while True:
            a.send(bytes(65536))
    except BlockingIOError:
        pass
    a.setblocking(True)
    a.setsockopt(std.SOL_SOCKET, std.SO_LINGER, struct.pack("ii", 1, 3600))
    return a
"""


FLOOD = """
r, w = os.pipe()
for _ in range(2000):
    c.send(p.FLOW_ADD, flow(host, 6100, tap=number), (r, w))
    c.receive()
"""


def test_a_socket_that_lingers_is_its_users_own_affair(pair: Pair) -> None:
    here = pair[0]
    with daemon(here, "--group", "daemon") as running, asker(here, running.path) as app, Actor(netns=here.name) as member:
        app("number, name, fds = tap(index); r, w = os.pipe()")
        member("import socket as std, struct; from pyvma.daemon import Connection, _protocol as p")
        member(DROP, user=SOMEBODY, groups=[GROUP])
        member(CONNECT, path=running.path)
        member(LINGERS)
        member("number, name, fds = tap(index)")
        assert running.process is not None
        running.process.send_signal(signal.SIGSTOP)  # so that its references are the last ones
        for _ in range(12):  # more than there could be threads
            member("a = lingering(); c.send(p.FLOW_ADD, flow(host, 6100, tap=number), (a.fileno(),)); a.close()", host=ENGINE[4])
        member("some = [lingering() for _ in range(8)]; c.send(p.FLOW_ADD, flow(host, 6100, tap=number), [a.fileno() for a in some])")
        member("for a in some: a.close()\nb = Connection.__new__(Connection); b._number = 0; b.socket = std.socket(1, std.SOCK_SEQPACKET)")
        # What it never reads of a connection that it ends for its first word is as slow to go.
        member(
            "b.socket.connect(path); a = lingering(); b.send(p.FLOW_ADD, b'', (a.fileno(),)); b.socket.close(); a.close()",
            path=running.path,
        )
        running.process.send_signal(signal.SIGCONT)
        assert member("[c.receive().result for _ in range(13)]") == [-13] * 13
        wait_for("the end of the other connection", lambda: running.status()["refusals"] == 14)
        before = files(running)
        for _ in range(30):
            assert app("result(p.FLOW_ADD, flow(host, 6100, tap=number), w)[0]", host=ENGINE[4]) == -13
        wait_for("the end of what came along", lambda: files(running) <= before + 4)  # some of the first may have been on their way
        assert app("s = bound(host, 6102); result(p.FLOW_ADD, flow(host, 6102, tap=number), s.fileno())", host=ENGINE[4]) == (0, "")
        # Who goes on is not listened to any more.
        with pytest.raises(OSError):
            member(FLOOD, host=ENGINE[4])
        assert len(ours(here, "v0")) > 0
        assert app("c.call(p.STATUS).result") == 0


def test_a_socket_of_another_interface_proves_nothing(pair: Pair) -> None:
    here = pair[0]
    with daemon(here) as running, asker(here, running.path) as app:
        app("number, name, fds = tap(index); s = bound(host, 6110)", host=ENGINE[4])
        app("s.setsockopt(std.SOL_SOCKET, std.SO_BINDTODEVICE, b'lo')")
        add = "result(p.FLOW_ADD, flow(host, 6110, tap=number), s.fileno())"
        found = app(add, host=ENGINE[4])
        assert (found[0], found[1].endswith("bound to another interface")) == (-13, True)
        app("s.setsockopt(std.SOL_SOCKET, std.SO_BINDTODEVICE, b'v0')")
        assert app(add, host=ENGINE[4]) == (0, "")


def test_status_is_told_once_at_a_time(pair: Pair) -> None:
    here = pair[0]
    with daemon(here, "--group", "daemon") as running, Actor(netns=here.name) as member:
        member("import socket as std; from pyvma.daemon import Connection, _protocol as p")
        member(DROP, user=SOMEBODY, groups=[GROUP])
        member(CONNECT, path=running.path)
        member("d = Connection(path)", path=running.path)
        assert member("d.call(p.STATUS).result") == 0
        member("c.send(p.STATUS); c.send(p.STATUS)")
        assert member("select.select([c.socket], [], [], 20); d.ask(p.STATUS).result") == -errno.EBUSY
        assert member("[c.receive().result for _ in range(2)]") == [0, -errno.EBUSY]
        assert member("d.call(p.STATUS).result, c.call(p.STATUS).result") == (0, 0)
        assert running.status()["processes"][0]["uid"] == SOMEBODY


# Devices that need nobody to have them, and that their owner may come back to.
KEEPS = """
import fcntl
TUNSETPERSIST, TUNSETOWNER = 0x400454CB, 0x400454CC
def keep(count, fds):
    names = []
    for k in range(count):
        number, name, made = tap(index if k % 2 else 0, 1 + k % 3)
        fcntl.ioctl(made[0], TUNSETPERSIST, 1)
        fcntl.ioctl(made[0], TUNSETOWNER, os.geteuid())
        names.append(name)
        fds += made
    return names
kept = []
def attach(name):
    fd = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x5002))
        return 0
    except OSError as error:
        return error.errno
    finally:
        os.close(fd)
"""


def _names(here: Namespace) -> set[str]:
    return set(here.run("ls", "/sys/class/net").split())  # ip's list is nothing when it changes meanwhile


def test_devices_do_not_outlive_who_asked_for_them(pair: Pair) -> None:
    here = pair[0]
    mine = "pyvma900"  # as the daemon names its own, but not made by it
    here.ip("tuntap", "add", mine, "mode", "tap", "user", str(SOMEBODY))
    before = _names(here)
    with daemon(here, "--group", "daemon") as running, Actor(netns=here.name) as member:
        member(DROP, user=SOMEBODY, groups=[GROUP])
        member(CONNECT, path=running.path)
        member(KEEPS)
        for _ in range(3):  # with descriptors of all of them left
            names = member("keep(16, kept)")
            assert set(names) <= _names(here)
            assert member("result(p.TAP, p.TAP_ASK.pack(0, 1, 0))[0]") == -errno.ENOSPC
            member("c.close(); c = Connection(path, 'test')")
            wait_for("the devices' end", lambda: _names(here) == before)
            assert member("attach(name)", name=names[0]) == errno.EPERM
        member("[os.close(fd) for fd in kept]; kept.clear()")
        names = member("keep(2, kept); [os.close(fd) for fd in kept]; kept.clear()\n[name for _, name in std.if_nameindex()]")
        assert len(set(names) - before) == 2
        member.kill()
        wait_for("the devices' end with the process", lambda: _names(here) == before)
        assert not running.status()["processes"]
    here.ip("link", "del", mine)


def test_devices_of_the_living_survive_the_daemon(pair: Pair) -> None:
    """A daemon that is started anew finds whose they are, of those that serve no interface, too."""
    here = pair[0]
    before = _names(here)
    with daemon(here) as running, asker(here, running.path) as stays, asker(here, running.path) as goes:
        for app in (stays, goes):
            app(KEEPS)
        stay, go = stays("keep(3, kept)"), goes("keep(3, kept)")
        for how in (signal.SIGTERM, signal.SIGKILL):
            running.stop(how)
            assert _names(here) == before | set(stay) | set(go)
            if how == signal.SIGKILL:
                goes.kill()
                assert set(go) <= _names(here)
            running.start()
            pids = {each["pid"]: len(each["taps"]) for each in running.status()["processes"]}
            assert pids[stays.process.pid] == 3
        wait_for("the end of those of the dead", lambda: _names(here) == before | set(stay))
        assert "removed TAP device " in running.text()
        stays("c = Connection(path, 'test')")
        assert stays("result(p.TAP, p.TAP_ASK.pack(0, 1, p.AGAIN), kept[0])[0]") == 0
        assert stays("len(keep(13, kept)), result(p.TAP, p.TAP_ASK.pack(0, 1, 0))[0]") == (13, -errno.ENOSPC)
        stays("c.close()")
        wait_for("the end of the rest", lambda: _names(here) == before)


def test_a_port_that_leaves_a_bridge_is_still_there(pair: Pair) -> None:
    here = pair[0]
    with daemon(here) as running, asker(here, running.path) as app:
        app("number, name, fds = tap(index); s = bound(host, 6120)", host=ENGINE[4])
        app("c.call(p.FLOW_ADD, flow(host, 6120, tap=number), (s.fileno(),))", host=ENGINE[4])
        here.ip("link", "add", "br0", "type", "bridge")
        try:
            here.ip("link", "set", "v0", "master", "br0")
            here.ip("link", "set", "v0", "nomaster")
            ((process,), flows) = running.status()["processes"], sum("terminal" in text for text in ours(here, "v0"))
            assert (process["flows"], flows, process["taps"][0]["serves"]) == (1, 1, "v0")
        finally:
            here.ip("link", "del", "br0")


def test_groups_are_not_taken_from_other_users(pair: Pair) -> None:
    here, group = pair[0], "239.7.7.7"
    with daemon(here) as running, asker(here, running.path) as app, Actor(netns=here.name) as other:
        other("import ctypes\n" + DROP, user=SOMEBODY, groups=[])
        other("u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)")
        other("u.bind((to, 6130))", to=group)
        app("number, name, fds = tap(index); s = std.socket(std.AF_INET, std.SOCK_DGRAM)")
        app("s.setsockopt(std.SOL_SOCKET, std.SO_REUSEADDR, 1); s.bind((to, 6130))", to=group)
        app("s.setsockopt(0, std.IP_ADD_MEMBERSHIP, struct.pack('=4s4si', std.inet_aton(to), bytes(4), index))", to=group)
        add = "result(p.FLOW_ADD, flow(to, 6130, tap=number), s.fileno())"
        found = app(add, to=group)
        assert (found[0], f"user {SOMEBODY} has a socket" in found[1]) == (-13, True)
        other("u.close()")
        assert app(add, to=group) == (0, "")


def test_a_process_is_of_one_user(pair: Pair) -> None:
    here = pair[0]
    with daemon(here, "--group", "daemon") as running, asker(here, running.path) as app:
        app(DROP, user=SOMEBODY, groups=[GROUP])
        with pytest.raises(OSError):
            app("Connection(path)", path=running.path)
        wait_for("the daemon's word", lambda: f"user {SOMEBODY} connects" in running.text())
        assert app("c.call(p.STATUS).result") == 0


def test_files_of_vma_processes_are_for_the_group(pair: Pair) -> None:
    with tempfile.TemporaryDirectory(prefix="pvv") as folder:
        options = ("--group", "daemon", "--vma", f"{folder}/agent.sock", "--notify-dir", f"{folder}/vma")
        with daemon(pair[0], *options):
            found = [os.lstat(f"{folder}/{name}") for name in ("agent.sock", "vma")]
            assert [(stat.S_IMODE(each.st_mode), each.st_uid, each.st_gid) for each in found] == [(0o660, 0, GROUP), (0o1770, 0, GROUP)]
        os.rmdir(f"{folder}/vma")
        os.mkdir(f"{folder}/other")
        os.symlink(f"{folder}/other", f"{folder}/vma")
        with pytest.raises(AssertionError, match="directory of root's"), daemon(pair[0], *options):
            pass
        os.unlink(f"{folder}/vma")
        os.mkdir(f"{folder}/vma")
        os.chown(f"{folder}/vma", SOMEBODY, 0)
        with pytest.raises(AssertionError, match="directory of root's"), daemon(pair[0], *options):
            pass


# ---- the server's loop by itself

LOOP = """
import resource, socket as std, selectors
from pyvma.daemon import _server
from pyvma.daemon._log import Log
listener = std.socket(std.AF_UNIX, std.SOCK_SEQPACKET)
listener.bind("")
listener.listen(8)
server = _server.Server(listener, Log())
def listens():
    return listener in server._selector.get_map()
"""


def test_no_descriptors_are_left_to_accept(pair: Pair) -> None:
    with Actor(netns=pair[0].name) as loop:
        loop(LOOP)
        loop("peers = [std.socket(std.AF_UNIX, std.SOCK_SEQPACKET) for _ in range(2)]")
        loop("for peer in peers: peer.connect(listener.getsockname())")
        loop("most = resource.getrlimit(resource.RLIMIT_NOFILE); used = max(int(fd) for fd in os.listdir('/proc/self/fd'))")
        loop("spare = []\ntry:\n    while True: spare.append(os.dup(0))\nexcept OSError: pass")
        assert loop("server.turn(1); listens(), server._timeout() <= 0.2") == (False, True)
        loop("for fd in spare: os.close(fd)")
        assert loop("time.sleep(server._timeout()); server.turn(0); listens()") is True
        assert loop("server.turn(1); len(server._clients)") == 2
        loop("server.close()")


def test_answers_that_nobody_takes_leave_no_descriptors(pair: Pair) -> None:
    with Actor(netns=pair[0].name) as loop:
        loop(LOOP)
        loop("peer = std.socket(std.AF_UNIX, std.SOCK_SEQPACKET); peer.connect(listener.getsockname()); server.turn(1)")
        loop("client = next(iter(server._clients)); before = len(os.listdir('/proc/self/fd'))")
        loop("client.unread.extend((b'x', [os.dup(0), os.dup(0)]) for _ in range(9)); peer.close(); server._flush(client)")
        assert loop("before - len(os.listdir('/proc/self/fd')), len(client.unread)") == (1, 0)
        loop("server.close()")


def test_a_crash_without_descriptors(pair: Pair) -> None:
    """The file that it had given is the one that counts, and its rules go without anybody being told."""
    with Actor(netns=pair[0].name) as loop:
        loop(LOOP)
        loop("peer = std.socket(std.AF_UNIX, std.SOCK_SEQPACKET); peer.connect(listener.getsockname()); server.turn(1)")
        loop("process = next(iter(server._clients)).process; process.reset = True; a = os.memfd_create('a')")
        assert loop("server.grants.crashes.take(process, a)") == ""
        loop("def none(fd): raise OSError(24, 'no more')\nwhole, os.dup = os.dup, none")
        loop("try:\n    server.grants.crashes.take(process, a)\nexcept OSError:\n    refused = True")
        assert loop("refused, os.path.sameopenfile(process.file, a)") == (True, True)
        loop("peer.close(); server.turn(1)")
        assert loop("len(server.grants.processes), server.grants.crashes._counts, server.grants.crashes._dying") == (0, {}, [])
        loop("os.dup = whole; server.close()")


def test_no_thread_is_left_to_close(pair: Pair) -> None:
    """As where the limit of tasks is reached: what came along is closed as soon as it can be."""
    with Actor(netns=pair[0].name) as loop:
        loop(LOOP)
        loop("import threading; whole = threading.Thread.start")
        loop("def none(thread): raise RuntimeError('no more')\nthreading.Thread.start = none")
        loop("r, w = os.pipe(); os.set_blocking(r, False); server.discard([w], 7); server.turn(0); server.discard([os.dup(0)], 7)")
        assert loop("len(server.discard._queues[7]), server._timeout()") == (2, loop("_server.RETRY_S"))
        assert loop("select.select([r], [], [], 0)[0]") == []
        loop("threading.Thread.start = whole; server.turn(0)")
        assert loop("select.select([r], [], [], 20)[0] == [r], os.read(r, 1), server.discard.unstarted") == (True, b"", set())
        wait_for("the other one", lambda: loop("len(server.discard._queues.get(7, ()))") == 0)
        loop("server.close()")


def test_sockets_of_the_host_are_read_once_a_turn(pair: Pair) -> None:
    with Actor(netns=pair[0].name) as loop:
        loop(LOOP)
        loop("from pyvma.daemon import _groups, _protocol as p; reads = []; whole = _groups._receivers")
        loop("def counted(name):\n    reads.append(name)\n    yield from whole(name)\n_groups._receivers = counted")
        loop("def other(port): return server.grants._receivers.other(p.Flow(2, 17, bytes([239, 0, 0, 1]), port, bytes(4), 0), 1 << 30)")
        loop("s = std.socket(std.AF_INET, std.SOCK_DGRAM); s.bind(('', 0)); port = s.getsockname()[1]")
        assert loop("other(port), [other(port) for _ in range(9)] == [0] * 9, len(reads)") == (0, True, 2)
        loop("s.close(); server.turn(0)")
        assert loop("other(port), other(port), len(reads)") == (None, None, 4)
        loop("server.close()")


def test_errors_of_the_kernel_are_lived_through(pair: Pair) -> None:
    """Nothing gets to the kernel for a while."""
    with Actor(netns=pair[0].name) as loop:
        loop(LOOP)
        loop("from pyvma.daemon import _protocol as p, _tc")
        loop("flow = p.Flow(std.if_nametoindex('v0'), 17, bytes([10, 78, 0, 1]), 99, bytes(4), 0)")
        loop("server.grants._rules.add(flow, std.if_nametoindex('lo'), _tc.Owner(os.getpid(), 1))")
        loop("whole = server.grants._netlink.socket; server.grants._netlink.socket = std.socket(std.AF_UNIX, std.SOCK_DGRAM)")
        loop("server.turn(0); server.turn(0)")
        assert loop("server.grants._rules.pending, server.grants._reread, flow in server.grants._rules") == (True, True, True)
        loop("server.grants._netlink.socket.close(); server.grants._netlink.socket = whole; server.turn(0)")
        assert loop("server.grants._rules.pending, server.grants._reread") == (False, False)
        assert sum("terminal" in text for text in ours(pair[0], "v0")) == 1
        loop("server.grants._rules.part(flow, _tc.Owner(os.getpid(), 1))")
        wait_for("the rule's end", lambda: loop("server.turn(0.05); server.grants._rules.pending") is False)
        assert not ours(pair[0], "v0")
        loop("server.close()")


def test_of_two_rules_none_stays_alone(pair: Pair) -> None:
    """Of a VMA process: the rule for what the host itself sends goes with the interface's when the kernel refuses either."""
    here = pair[0]
    for name in ("going", "sink"):
        here.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-end")
    here.ip("addr", "add", "10.79.0.1/24", "dev", "going")
    with tempfile.TemporaryDirectory(prefix="pvv") as folder, Actor(netns=here.name) as loop:
        loop(LOOP)
        loop(
            "from pyvma.daemon import _protocol as p, _tc, _types, _vma\nvma = _vma.Vma(server, f'{folder}/v', f'{folder}/vma', False)",
            folder=folder,
        )
        loop("index, tap = (std.if_nametoindex(name) for name in ('going', 'sink'))")
        loop("process = server.grants.process(_tc.Owner(os.getpid(), 1), 0, os.pidfd_open(os.getpid()))\nprocess.taps[tap] = index")
        loop("first, flow = (p.Flow(index, 17, bytes([10, 79, 0, 1]), port, bytes(4), 0) for port in (98, 99))")
        here.run("tc", "qdisc", "add", "dev", "lo", "ingress")
        theirs = ("dev", "lo", "parent", "ffff:", "protocol", "ip", "pref", str(loop("_tc.PREF4")))
        here.run("tc", "filter", "add", *theirs, "bpf", "bytecode", "1,6 0 0 0")
        loop("failed = False\ntry:\n    vma._redirect(process, first, tap)\nexcept OSError:\n    failed = True")
        assert loop("failed, len(process.flows)") == (True, 0)
        assert [sum("terminal" in text for text in ours(here, name)) for name in ("going", "lo")] == [0, 0]
        here.run("tc", "filter", "del", *theirs, "bpf")
        loop("vma._redirect(process, first, tap)\nboth = dict(process.flows)")
        assert [sum("terminal" in text for text in ours(here, name)) for name in ("going", "lo")] == [1, 1]
        ask = "code = 0\ntry:\n    vma._redirect(process, flow, tap)\nexcept _types.RefusedError as error:\n    code = error.code"
        loop("link, lacking = server.grants._netlink, [std.errno.ENOMEM]\nwhole = link.batch")
        loop("link.batch = lambda asked: [*whole(asked[:1]), *lacking * (len(asked) - 1)]")
        loop(ask)
        loop("link.batch = whole")
        assert loop("code, process.flows == both") == (errno.EIO, True)
        assert [sum("terminal" in text for text in ours(here, name)) for name in ("going", "lo")] == [1, 1]
        here.ip("link", "del", "going")  # which the daemon has not yet heard
        loop(ask)
        assert loop("code, process.flows == both") == (errno.EIO, True)
        assert sum("terminal" in text for text in ours(here, "lo")) == 1
        loop("vma.close(); server.close()")


def test_a_mistake_of_its_own_is_one_clients(pair: Pair) -> None:
    """Whatever a request makes the daemon stumble over: who sent it is hung up on, and the others are served."""
    with Actor(netns=pair[0].name) as loop:
        loop(LOOP)
        loop("from pyvma.daemon import _protocol as p\ndef mistake(server, client, request, fds): 1 / 0\n_server.HANDLERS[p.BYE] = mistake")
        loop("peers = [std.socket(std.AF_UNIX, std.SOCK_SEQPACKET) for _ in range(2)]")
        loop("def say(peer, kind, body=b''): peer.send(p.HEAD.pack(p.MAGIC, 1, kind, 16 + len(body), 1) + body); server.turn(1)")
        loop("for peer in peers: peer.connect(listener.getsockname()); server.turn(1); say(peer, p.HELLO, bytes(4)); peer.recv(512)")
        loop("say(peers[0], p.BYE)")
        assert loop("peers[0].recv(512), len(server._clients)") == (b"", 1)
        assert loop("say(peers[1], p.CRASH, bytes(4)); len(peers[1].recv(512))") == 20
        loop("server.grants._watch.turn = lambda: 1 / 0")
        assert loop("say(peers[1], p.CRASH, bytes(4)); len(peers[1].recv(512)), server.grants._reread") == (20, False)
        loop("server.close()")


# Of the right sizes, with fields that are now good, now anything.
NOISE = """
import random
chance = random.Random(seed)
address = lambda: chance.choice((std.inet_aton(host), b"\\xff\\xff\\xff\\xff", b"\\xe0\\0\\0\\1", bytes(4), chance.randbytes(4)))
number16 = lambda: chance.choice((0, 1, 6500, 65535, chance.randrange(65536)))
number32 = lambda: chance.choice((0, 1, index, number, 0x7fffffff, 0xffffffff, chance.randrange(1 << 32)))
"""
OWN_NOISE = """
def body(kind):
    if kind in (p.FLOW_ADD, p.FLOW_DEL):
        flags = chance.choice((0, 1, 2)), 0
        ends = (number16(), number16(), address(), chance.choice((b"", address())))
        return p.FLOW.pack(number32(), number32(), chance.choice((2, 10, 7)), chance.choice((6, 17, 1)), *flags, *ends)
    if kind == p.NEIGH:
        return p.NEIGH_ASK.pack(number32(), chance.choice((2, 10, 7)), address())
    if kind == p.TAP:
        return p.TAP_ASK.pack(number32(), chance.choice((0, 1, 99)), chance.choice((0x100, 1, 0x102)))
    return b"".join(struct.pack("<I", number32()) for _ in range(p.SIZES[kind] // 4))
for _ in range(rounds):
    kind = chance.choice((p.FLOW_ADD, p.FLOW_DEL, p.TAP, p.XDP_DROP, p.STATUS, p.CRASH, p.NEIGH))
    try:
        c.send(kind, body(kind), chance.choice(((), (s.fileno(),), (fds[0],), (s.fileno(), 0))))
        for fd in c.receive().fds:
            os.close(fd)
    except OSError:  # it was enough
        c = Connection(path)
        number, name, fds = tap(index)
"""
VMA_NOISE = """
v = std.socket(std.AF_UNIX, std.SOCK_DGRAM); v.bind(""); v.connect(vma)
for _ in range(rounds):
    code = chance.choice((1, 2, 4, 4, 4, 5))
    ends = address() + struct.pack(">H", number16()) + address() + struct.pack(">H", number16())
    body = {
        1: struct.pack("<I", number32()),
        2: struct.pack("<I", number32()) + ends[:4] + ends[6:10] + ends[4:6] + ends[10:] + chance.choice((b"\\1\\4", b"\\1\\0")),
        4: bytes((chance.randrange(6), chance.randrange(4))) + struct.pack("<II", number32(), number32()) + ends,
        5: b"",
    }[code]
    v.send(struct.pack("<BBBBi", code, 3, 0, 0, os.getpid()) + body)
"""


def test_noise_of_the_right_sizes(pair: Pair) -> None:
    here, rounds = pair[0], 20000 if LONG else 1500
    with tempfile.TemporaryDirectory(prefix="pvv") as folder:
        vma = f"{folder}/agent.sock"
        with daemon(here, "--vma", vma, "--notify-dir", f"{folder}/vma", "--force-rst") as running:
            assert running.process is not None
            with asker(here, running.path) as app, Actor(netns=here.name) as other:
                for actor, noise in ((app, OWN_NOISE), (other, VMA_NOISE)):
                    actor("import socket as std, struct; index = std.if_nametoindex('v0'); number = 1")
                    actor(NOISE, seed=20261122, host=ENGINE[4])
                    if actor is app:
                        app("s = bound(host, 6500, 6); number, name, fds = tap(index)")
                    actor(noise, rounds=rounds, path=running.path, vma=vma)
                other.kill()
            wait_for("the end of all rules", lambda: not ours(here, "v0") and not ours(here, "lo"))
            assert running.status()["requests"] > rounds
            assert "Error:" not in running.text()  # of the daemon's own
