"""What the engine and a kernel peer say to each other, whatever lies between them: code for actors and the sockets it works on."""

from __future__ import annotations

import select
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from actor import Actor
from netns import Namespace

WAIT_S = 30.0
DIRECTIONS = ["to the kernel", "to the engine"]


def wait_for(what: str, probe: Callable[[], bool], limit_s: float = WAIT_S) -> None:
    """Polls a callable until it is true."""
    deadline = time.monotonic() + limit_s
    while not probe():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s} s"
        time.sleep(0.02)


@dataclass
class Ends:
    """Both sides, and their addresses by family (4 or 6)."""

    engine: Actor
    kernel: Actor
    engine_host: dict[int, str]
    kernel_host: dict[int, str]
    kernel_ns: Namespace

    def sockets(self, family: int) -> tuple[tuple[str, int], tuple[str, int]]:
        """A bound socket `s` on each side; their addresses."""
        found = []
        for actor, host in ((self.engine, self.engine_host[family]), (self.kernel, self.kernel_host[family])):
            actor(
                "s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\n"
                "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)\ns.bind((host, 0))",
                family=family,
                host=host,
            )
            found.append((host, actor("s.getsockname()[1]")))
        return found[0], found[1]

    def connect(self, family: int, engine_serves: bool) -> int:
        """A connection, `s` on both sides; the server's port. Its listener stays, as `l`."""
        ends = ((self.engine, self.engine_host), (self.kernel, self.kernel_host))
        (server, host), (client, _) = ends if engine_serves else ends[::-1]
        port: int = server(LISTEN, family=family, host=host[family])
        client(CONNECT, family=family, host=host[family], port=port)
        server(ACCEPT)
        assert self.engine("s.offload.state") == "offloaded"
        return port

    def engine_serves(self, family: int, sizes: list[int]) -> None:
        """A datagram of each size from a kernel socket, and back."""
        engine, _ = self.sockets(family)
        self.engine.start(ECHO, sizes=sizes)
        self.kernel(ASK, sizes=sizes, to=engine)
        self.engine.finish()

    def engine_asks(self, family: int, sizes: list[int]) -> None:
        """The same from a connected socket of the engine's."""
        _, kernel = self.sockets(family)
        self.kernel.start(ECHO, sizes=sizes)
        self.engine(ASK_CONNECTED, sizes=sizes, to=kernel)
        self.kernel.finish()

    def socat_asks(self) -> None:
        engine, _ = self.sockets(4)
        self.engine.start("data, peer = s.recvfrom(2000)\ns.sendto(data.upper(), peer)")
        self.program_asks("socat", "-T", "20", "-", f"UDP4:{engine[0]}:{engine[1]}")

    def program_asks(self, *command: str) -> None:
        """A program of the kernel's sends what it reads and prints what comes back, in capitals. With its input at the end some would
        not wait for that."""
        command = ("ip", "netns", "exec", self.kernel_ns.name, *command)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(b"from a program")
                self.engine.finish()
                assert select.select([process.stdout], [], [], 20)[0]
                assert process.stdout.read(100) == b"FROM A PROGRAM"
            finally:
                process.terminate()

    def socat_serves(self, port: int) -> None:
        """Leaves the connected socket as `s`."""
        process = self.kernel_ns.popen("socat", "-T", "20", f"UDP6-RECVFROM:{port},fork", "EXEC:cat")
        try:
            wait_for("socat's port", lambda: f":{port}" in self.kernel_ns.run("ss", "-lun"))
            self.engine(
                "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.settimeout(20)\ns.connect((host, port))",
                host=self.kernel_host[6],
                port=port,
            )
            assert self.engine("s.send(b'to socat'); s.recv(100)") == b"to socat"
        finally:
            process.kill()  # socat may put SIGTERM off for ever when it comes while a child takes over
            process.wait(10)

    def ordered(self, direction: str) -> tuple[tuple[Actor, dict[int, str]], tuple[Actor, dict[int, str]]]:
        """Sender and receiver, each with its addresses."""
        ends = ((self.engine, self.engine_host), (self.kernel, self.kernel_host))
        return ends if direction == "to the kernel" else (ends[1], ends[0])


ECHO = """
for size in sizes:
    data, peer = s.recvfrom(70000)
    assert s.sendto(data, peer) == size == len(data)
"""
ASK = """
for size in sizes:
    sent = os.urandom(size)
    s.sendto(sent, to)
    data, peer = s.recvfrom(70000)
    assert data == sent and peer[:2] == tuple(to)
"""
ASK_CONNECTED = """
s.connect(to)
for size in sizes:
    sent = os.urandom(size)
    assert s.send(sent) == size
    assert s.recv(70000) == sent
"""

# Streams, of either family.
# `size` bytes that both sides know by their `seed`, over the connection `s`.
SEND_BYTES = "import random\ns.sendall(random.Random(seed).randbytes(size))"
RECEIVE_BYTES = """
import hashlib
digest, left = hashlib.sha256(), size
while left and (part := s.recv(min(left, 1 << 18))):
    digest.update(part)
    left -= len(part)
digest.hexdigest()
"""
LISTEN = """
l = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM)
l.bind((host, 0))
l.listen()
l.settimeout(60)
l.getsockname()[1]
"""
CONNECT = """
s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM)
s.settimeout(60)
s.connect((host, port))
"""
ACCEPT = "s, peer = l.accept()\ns.settimeout(60)"
RESET_AT_CLOSE = "s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\ns.close()"

JOIN4 = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.bind(('', port))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(local))
"""
SEND4 = """
t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
t.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(local))
t.sendto(data, (group, port))
t.close()
"""
# IP_ADD_SOURCE_MEMBERSHIP of linux/in.h, which `socket` exports from Python 3.12 on only: struct ip_mreq_source.
JOIN_SOURCE = "s.setsockopt(socket.IPPROTO_IP, 39, b''.join(map(socket.inet_aton, (group, local, source))))"
JOIN6 = """
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.settimeout(20)
s.bind(('::', port))
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + struct.pack('@I', index))
"""
SEND6 = """
t = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
t.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
t.sendto(data, (group, port))
t.close()
"""

# A window of unacknowledged datagrams keeps below the smallest buffer on the way, so that every loss is a fault.
WINDOW = 128
SENDER = """
s.connect(to)
for first in range(0, count, window):
    for number in range(first, min(first + window, count)):
        s.send(pack(number))
    if first:
        assert unpack(s.recv(100))[0] == first - window
unpack(s.recv(100))[0] // window == (count - 1) // window
"""
RECEIVER = """
s.connect(to)
wrong = 0
for number in range(count):
    wrong += unpack(s.recv(100))[0] != number
    if number % window == window - 1 or number == count - 1:
        s.send(pack(number - number % window))
wrong
"""


def numbered(ends: Ends, direction: str, count: int, limit_s: float, family: int = 4) -> None:
    """`count` numbered datagrams of 58 bytes from one side to the other: none lost, none out of order."""
    engine, kernel = ends.sockets(family)
    sides = ((ends.engine, engine), (ends.kernel, kernel))
    (sender, source), (receiver, sink) = sides if direction == "to the kernel" else sides[::-1]
    for actor in (sender, receiver):
        actor("pack, unpack = struct.Struct('!Q50x').pack, struct.Struct('!Q50x').unpack")
    receiver.start(RECEIVER, to=source, count=count, window=WINDOW)
    assert sender(SENDER, to=sink, limit_s=limit_s, count=count, window=WINDOW)
    assert receiver.finish() == 0
