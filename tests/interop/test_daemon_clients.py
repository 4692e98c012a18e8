"""Who uses pyvmad: the engine of an unprivileged user on AF_XDP, a VMA process by its protocol 3, peers of processes that died."""

from __future__ import annotations

import secrets
import signal
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from actor import Actor
from daemon import DROP, FRAMES, GROUP, asker, daemon, ours
from exchange import ASK, ECHO, wait_for
from netns import Namespace, usable
from veth import ENGINE, KERNEL

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")

# Nobody else's: locked memory is counted by user, and this may run twice at once.
SOMEBODY = 20000 + secrets.randbelow(40000)
SERVE = """
l = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
l.bind((host, 0)); l.listen(); l.settimeout(30)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((host, 0)); u.settimeout(30)
l.getsockname()[1], u.getsockname()[1], l.offload.text, u.offload.text
"""
STREAM = """
a, _ = l.accept(); a.settimeout(30)
while part := a.recv(65536):
    a.sendall(part)
a.close()
"""
ECHOED = """
t = socket.create_connection((host, port), 30)
sent = os.urandom(200_000)
t.sendall(sent[:100_000]); t.sendall(sent[100_000:]); t.shutdown(socket.SHUT_WR)
got = b""
while part := t.recv(65536):
    got += part
t.close()
got == sent
"""


@contextmanager
def unprivileged(here: Namespace, path: str, groups: list[int]) -> Iterator[Actor]:
    """An engine on AF_XDP of a user without any capability."""
    env = {"PYVMA_DAEMON": path, "PYVMA_CONTROL_DIR": "none", "PYVMA_STATS_DIR": "none"}
    with Actor(["xdp:device=v0"], netns=here.name, env=env) as engine:
        engine(DROP, user=SOMEBODY, groups=groups)
        yield engine


def test_a_user_of_the_group_has_af_xdp(pair: tuple[Namespace, Namespace]) -> None:
    here, there = pair
    with daemon(here, "--group", "daemon") as running, Actor(netns=there.name) as peer, unprivileged(here, running.path, [GROUP]) as engine:
        tcp, udp, *texts = engine(SERVE, host=ENGINE[4])
        assert texts == ["xdp:v0", "xdp:v0"]
        doctor = "from pyvma._cli.doctor import _daemon, _xdp; [f.state for f in (*_daemon(), *_xdp())]"
        assert engine(doctor) == ["ok", "ok"]
        assert engine("os.geteuid(), open('/proc/self/status').read().split('CapEff:')[1].split()[0]") == (SOMEBODY, "0" * 16)
        for _ in range(2):  # the second time by another daemon, which was started anew
            engine.start(STREAM)
            assert peer(ECHOED, host=ENGINE[4], port=tcp)
            engine.finish()
            engine.start(ECHO.replace("s.", "u."), sizes=[1, 1400])
            peer("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(30)\n" + ASK, sizes=[1, 1400], to=(ENGINE[4], udp))
            engine.finish()
            # A connection that the engine asks for, to a peer whose address it has to learn.
            port = peer("q = socket.socket(); q.bind((host, 0)); q.listen(); q.settimeout(30); q.getsockname()[1]", host=KERNEL[4])
            there.ip("neigh", "flush", "dev", "v1")
            here.ip("neigh", "flush", "dev", "v0")
            engine("x = socket.create_connection((host, port), 30)", host=KERNEL[4], port=port)
            assert peer("y, _ = q.accept(); y.sendall(b'seen'); 0") == 0
            assert engine("x.recv(4), x.offload.text") == (b"seen", "xdp:v0")
            (process,) = running.status()["processes"]
            assert (process["uid"], process["xdp"]) == (SOMEBODY, ["v0"])
            flows = process["flows"]
            assert flows >= 3
            running.stop(signal.SIGKILL)
            assert "xdp" in here.ip("link", "show", "v0")  # the process's own
            running.start()
            wait_for("the engine's return", lambda: any(p["connected"] and p["flows"] for p in running.status()["processes"]))
            wait_for("its flows", lambda flows=flows: running.status()["processes"][0]["flows"] == flows)
            engine("x.close()")
        engine.kill()
        wait_for("the program's end", lambda: "xdp" not in here.ip("link", "show", "v0"))
        wait_for("the process's end", lambda: not running.status()["processes"])


def test_who_is_not_in_the_group_hears_why(pair: tuple[Namespace, Namespace]) -> None:
    here = pair[0]
    with daemon(here, "--group", "daemon") as running, unprivileged(here, running.path, []) as engine:
        *_, tcp, udp = engine(SERVE, host=ENGINE[4])
        assert "this user is not in the group of pyvmad" in tcp
        assert "this user is not in the group of pyvmad" in udp
        code = "from pyvma import ring; [(k.name, k.offloaded, k.reason) for k in ring.kernel_interfaces()]"
        ((name, offloaded, reason),) = engine(code)
        assert (name, offloaded) == ("v0", False)
        doctor = "from pyvma._cli.doctor import _daemon, _xdp; [(f.subject, f.state, f.text) for f in (*_daemon(), *_xdp())]"
        found = {subject: (state, text) for subject, state, text in engine(doctor)}
        assert found["pyvmad"] == ("note", f"{running.path}: this user is not in its group")
        assert found["ring xdp"][0] == "note"
        assert reason.startswith("no CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, and this user is not in the group of pyvmad")
    with unprivileged(here, "/nonexistent/s", []) as engine:
        *_, tcp, _ = engine(SERVE, host=ENGINE[4])
        assert "pyvmad is not there (/nonexistent/s)" in tcp


def test_the_daemon_may_come_later(pair: tuple[Namespace, Namespace]) -> None:
    here = pair[0]
    with daemon(here, "--group", "daemon") as running:
        running.stop()
        with unprivileged(here, running.path, [GROUP]) as engine:
            engine(SERVE, host=ENGINE[4])
            running.start()

            def offloaded() -> bool:
                return bool(engine("from pyvma import ring; [k.offloaded for k in ring.kernel_interfaces()][0]"))

            wait_for("the ring", offloaded)


# ---- VMA's protocol 3, byte by byte

VMA = """
import socket as std
from pathlib import Path
me = os.getpid()
folder = Path(notify)
pid_file = open(folder / f"vma_agent.{me}.pid", "w")
v = std.socket(std.AF_UNIX, std.SOCK_DGRAM)
v.bind(str(folder / f"vma_agent.{me}.sock"))
v.settimeout(20)
v.connect(path)
index = std.if_nametoindex("v0")
def head(code):
    return struct.pack("<BBBBi", code, 3, 0, 0, me)
def rule(kind, action, tap, dst, dst_port, src="0.0.0.0", src_port=0):
    ends = std.inet_aton(dst) + struct.pack(">H", dst_port) + std.inet_aton(src) + struct.pack(">H", src_port)
    v.send(head(4) + struct.pack("<BBII", kind, action, index, tap) + ends)
    return v.recv(100)
# A TAP of its own, as VMA makes one.
import fcntl
fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
name = f"t{me:x}{fd:x}"
fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x5002))
os.system(f"ip link set {name} up")
tap = std.if_nametoindex(name)
"""


def test_a_vma_process(pair: tuple[Namespace, Namespace]) -> None:
    here, there = pair
    with tempfile.TemporaryDirectory(prefix="pvv") as folder:
        path, notify = f"{folder}/agent.sock", f"{folder}/vma"
        options = ("--vma", path, "--notify-dir", notify)
        with daemon(here, *options) as running, Actor(netns=there.name) as peer, Actor(netns=here.name) as vma:
            vma(VMA, path=path, notify=notify)
            vma(FRAMES)
            pid = vma("me")
            assert vma("v.send(head(1) + struct.pack('<I', 0x090836)); v.recv(100)") == struct.pack("<BBBBiI", 0x81, 3, 0, 0, pid, 3)
            done, failed = (struct.pack("<BBBBi", 0x84, 3, status, 0, pid) for status in (0, 1))
            assert vma("rule(0, 1, tap, '0.0.0.0', 0)") == done  # what the TAP sends goes out by v0
            assert vma("rule(2, 1, tap, host, 5000)", host=ENGINE[4]) == done
            assert vma("rule(1, 1, tap, host, 5000, peer, 77)", host=ENGINE[4], peer=KERNEL[4]) == done
            assert vma("rule(4, 1, tap, host, 5001)", host=ENGINE[4]) == done
            assert vma("rule(3, 1, tap, host, 5001, peer, 78)", host=ENGINE[4], peer=KERNEL[4]) == done
            assert vma("rule(2, 1, tap, '10.99.9.9', 5000)") == failed
            assert vma("rule(2, 1, 1, host, 5002)", host=ENGINE[4]) == failed
            assert vma("rule(9, 1, tap, host, 5002)", host=ENGINE[4]) == failed
            assert vma("rule(2, 2, tap, host, 5003)", host=ENGINE[4]) == failed
            # The same again for what the host itself sends.
            for device in ("v0", "lo"):
                assert sum("terminal" in text for text in ours(here, device)) == 4
            peer("u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.sendto(b'to VMA', (host, 5000))", host=ENGINE[4])
            assert vma("frames(fd, 1)[0][-6:]") == b"to VMA"
            assert vma("rule(2, 2, tap, host, 5000)", host=ENGINE[4]) == done
            assert sum("terminal" in text for text in ours(here, "v0")) == 3
            # Wrong: another version, short, long, in the name of another process. There is no answer, or one that says so.
            vma("v.send(b'\\x04\\x03'); v.send(head(4)); v.send(head(77)); v.send(head(2) + bytes(17)); v.send(head(3) + bytes(1))")
            vma("v.send(struct.pack('<BBBBi', 3, 3, 0, 0, 1))")
            assert vma("v.send(struct.pack('<BBBBiI', 1, 2, 0, 0, me, 9)); v.recv(100)[:3]") == b"\x84\x03\x01"  # of the short FLOW
            assert vma("v.recv(100)[:3]") == b"\x81\x03\x01"
            assert sum("terminal" in text for text in ours(here, "v0")) == 3
            assert Path(f"{notify}/vma_agent.{pid}.sock").exists()
            vma.process.kill()
            vma.process.wait(20)
            for device in ("v0", "lo"):
                wait_for(f"the end of the rules on {device}", lambda device=device: not ours(here, device))
            wait_for("its files' end", lambda: not list(Path(notify).iterdir()))
            assert running.process is not None


def test_a_vma_process_says_goodbye(pair: tuple[Namespace, Namespace]) -> None:
    here = pair[0]
    with tempfile.TemporaryDirectory(prefix="pvv") as folder:
        path, notify = f"{folder}/agent.sock", f"{folder}/vma"
        with daemon(here, "--vma", path, "--notify-dir", notify), Actor(netns=here.name) as vma:
            vma(VMA, path=path, notify=notify)
            vma("v.send(head(1) + bytes(4)); v.recv(100); rule(0, 1, tap, '0.0.0.0', 0); rule(2, 1, tap, host, 5000)", host=ENGINE[4])
            assert sum("terminal" in text for text in ours(here, "v0")) == 1
            vma("v.send(head(3))")
            wait_for("the end of the rules", lambda: not ours(here, "v0") and not ours(here, "lo"))


# ---- peers of the dead

LISTENING = """
l = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
l.settimeout(30)
l.getsockname()[1]
"""
# A connection of the kernel's that a killed process leaves without a word to its peer (TCP_REPAIR), as one over a TAP is.
CONNECTED = """
number, name, fds = tap(index)
s = std.socket(std.AF_INET6 if ":" in host else std.AF_INET)
s.bind((host, 0))
s.settimeout(20)
s.connect((peer, port))
c.call(p.FLOW_ADD, flow(host, s.getsockname()[1], 6, peer, port, number), (s.fileno(),))
"""


@pytest.mark.parametrize("family", [4, 6])
def test_peers_of_a_crashed_process_are_told(pair: tuple[Namespace, Namespace], family: int) -> None:
    here, there = pair
    with daemon(here) as running, Actor(netns=there.name) as peer:
        port = peer(LISTENING, host=KERNEL[family])
        with asker(here, running.path) as app:
            app("c.call(p.CRASH, p.U32.pack(1))")
            app(CONNECTED, host=ENGINE[family], peer=KERNEL[family], port=port)
            peer("a, _ = l.accept(); a.settimeout(40)")
            app("s.setsockopt(std.IPPROTO_TCP, 19, 1)")
            app.process.kill()
            app.process.wait(20)
        with pytest.raises(ConnectionResetError):
            peer("a.recv(1)")
        wait_for("the end of the rule", lambda: not ours(here, "v0"))


def test_peers_are_left_alone_by_default(pair: tuple[Namespace, Namespace]) -> None:
    here, there = pair
    with daemon(here) as running, Actor(netns=there.name) as peer:
        port = peer(LISTENING, host=KERNEL[4])
        with asker(here, running.path) as app:
            app(CONNECTED, host=ENGINE[4], peer=KERNEL[4], port=port)
            peer("a, _ = l.accept(); a.settimeout(0.5)")
            app("s.setsockopt(std.IPPROTO_TCP, 19, 1)")
            app.process.kill()
            app.process.wait(20)
        wait_for("the end of the rule", lambda: not ours(here, "v0"))
        with pytest.raises(TimeoutError):
            peer("a.recv(1)")
