"""Rates between two processes over the software NIC: who keeps them, what waits, and that nothing is lost or overtaken.

How exact the rates are is tested in virtual time (udp_pace_test, udp_burst_test, tcp_pace_test) and shown by tools/pacing_rates.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from actor import Actor
from lab import softnic_reason

pytestmark = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there is a software NIC")

NAMES = """
RATE = 47
def pace(sock, rate):
    sock.setsockopt(socket.SOL_SOCKET, RATE, struct.pack("@Q", rate))
def udp():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(30)
    return sock
"""
BY = {"device": {}, "software": {"PYVMA_SOFTNIC_OFF": "pacing"}, "no burst": {"PYVMA_SOFTNIC_OFF": "pacing-burst"}}


class Ends:
    """A sender at 10.8.0.1, and a receiver with `sink`, a UDP socket at 10.8.0.2, and `listener`."""

    def __init__(self, by: str) -> None:
        self.by = by
        fabric = f"pc{secrets.token_hex(4)}"
        self.sender = Actor([f"softnic:fabric={fabric},port=0,addr=10.8.0.1/24"], env=BY[by])
        self.receiver = Actor([f"softnic:fabric={fabric},port=1,addr=10.8.0.2/24"])
        for end in (self.sender, self.receiver):
            end(NAMES)
        self.receiver("sink = udp(); sink.bind(('10.8.0.2', 7000)); sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)")
        self.receiver("listener = socket.create_server(('10.8.0.2', 7001)); listener.settimeout(30)")
        # From here on the neighbour is known: what waits for it is not paced yet, and bounded.
        self.sender("s = udp(); s.bind(('10.8.0.1', 0)); s.connect(('10.8.0.2', 7000)); s.send(b'')")
        self.receiver("sink.recv(1)")

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = Ends(getattr(request, "param", "device"))
    yield made
    made.close()


both = pytest.mark.parametrize("ends", ["device", "software"], indirect=True)


@both
def test_datagrams(ends: Ends) -> None:
    """Slow enough to see that they wait; all come, in order, not before their time."""
    ends.receiver.start("got = [sink.recv(2000) for _ in range(100)]; time.monotonic(), [struct.unpack('!I', p[:4])[0] for p in got]")
    begin, by, queue, reason = ends.sender(
        "pace(s, 125_000); begin = time.monotonic()\n"
        "for number in range(100): s.send(struct.pack('!I', number).ljust(1208))\n"
        "p = s.pacing; begin, p.by, s.stats['tx_queue'], p.reason"
    )
    end, numbers = ends.receiver.finish()
    assert numbers == list(range(100))
    assert by == ends.by
    assert bool(queue) == (by == "device")
    assert bool(reason) == (by == "software")
    # 99 frames of 1250 bytes took their time, however late anybody was.
    assert end - begin > 99 * 1250 / 125_000 * 0.97


@both
def test_the_send_buffer(ends: Ends) -> None:
    """Full: EAGAIN, not writable for select, epoll or our own; a blocking send waits no longer than its timeout."""
    ends.sender("from pyvma import select as ours")
    sent, readable = ends.sender(
        """
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20000); pace(s, 10_000); number = s.fileno()
s.setblocking(False); sent = 0
try:
    while True: s.send(bytes(958)); sent += 1
except BlockingIOError: pass
sent, select.select([], [s], [], 0)[1] == []
"""
    )
    assert 20 <= sent <= 30
    assert readable
    assert ends.sender("p = ours.poll(); p.register(s, select.POLLOUT); p.poll(0)") == []
    assert ends.sender("s.stats['tx_held'] > 10, s.stats['tx_eagain'] > 0") == (True, True)
    with pytest.raises(TimeoutError):
        ends.sender("s.settimeout(0.01)\nfor _ in range(40): s.send(bytes(958))")
    # Faster: room comes, and is told.
    ends.sender("pace(s, 1_000_000)")
    assert ends.sender("len(select.select([], [s], [], 20)[1])") == 1
    assert ends.sender("p.poll(20000) != []")
    ends.sender("s.settimeout(30); s.send(b'last')")
    ends.receiver("while sink.recv(2000) != b'last': pass")


@both
def test_a_flow_that_moves(ends: Ends) -> None:
    """Rates change and go while datagrams are sent and wait: none is overtaken."""
    ends.receiver.start("[struct.unpack('!I', sink.recv(2000)[:4])[0] for _ in range(1200)]")
    ends.sender(
        """
number = 0
for rate in (0, 2_000_000, 10_000_000, 0, 500_000, 1 << 40, 1_000_000, (1 << 64) - 1, 2_000_000, 20_000_000, 2_000_000, 0):
    pace(s, rate)
    for _ in range(100):
        s.send(struct.pack('!I', number).ljust(500)); number += 1
"""
    )
    assert ends.receiver.finish() == list(range(1200))
    by = ends.sender("for _ in range(2000):\n    s.send(b'xxxx')\n    if s.pacing.by is None: break\n    time.sleep(0.001)\ns.pacing.by")
    assert by is None


@both
def test_streams(ends: Ends) -> None:
    """A rate, another one, none; and what was accepted has its listener's."""
    ends.receiver("pace(listener, 5_000_000)")
    ends.receiver.start("c, _ = listener.accept(); c.settimeout(30); c.pacing.rate")
    ends.sender("t = socket.socket(); t.settimeout(30); pace(t, 2_000_000); t.connect(('10.8.0.2', 7001))")
    assert ends.receiver.finish() == 5_000_000
    data = secrets.token_bytes(1 << 18)
    half = "got = b''\nwhile len(got) < n: got += c.recv(65536)\ngot == data"
    for rate in (2_000_000, 10_000_000, 0):
        ends.receiver.start(half, data=data, n=len(data))
        by = ends.sender("pace(t, rate); t.sendall(data); t.pacing.by", data=data, rate=rate)
        assert ends.receiver.finish()
        assert by in ((ends.by,) if rate else (None, ends.by))
    ends.receiver.start("c.sendall(data); c.pacing.by", data=data)
    assert ends.sender(half.replace("c.recv", "t.recv"), data=data, n=len(data))
    assert ends.receiver.finish() == "device"


def test_more_sockets_than_queues(ends: Ends) -> None:
    """The rest is paced by the stack, and says so; a queue that is given back serves the next."""
    by = ends.sender(
        """
socks = [udp() for _ in range(300)]
for sock in socks:
    sock.bind(('10.8.0.1', 0)); pace(sock, 1_000_000); sock.connect(('10.8.0.2', 7000)); sock.send(b'x')
[(sock.pacing.by, sock.pacing.reason) for sock in socks]
"""
    )
    kinds = {name for name, _ in by}
    assert "device" in kinds
    assert all(reason for name, reason in by if name == "software")
    assert kinds <= {"device", "software"}
    ends.receiver("for _ in range(300): assert sink.recv(100) == b'x'")
    ends.sender("for sock in socks: sock.close()")


@pytest.mark.parametrize("ends", ["no burst"], indirect=True)
def test_a_device_without_bursts(ends: Ends) -> None:
    by = ends.sender("s.setsockopt(socket.SOL_PYVMA, socket.SO_PACING, socket.pack_pacing(1_000_000, 6000)); s.send(b'x'); s.pacing")
    assert by.by == "software"
    assert "burst" in by.reason
    assert ends.sender(
        "pace(s, 1_000_000); s.setsockopt(socket.SOL_PYVMA, socket.SO_PACING, socket.pack_pacing(10**6)); s.send(b'x'); s.pacing.by"
    ) in (
        "device",
        "software",
    )


def test_what_waits_at_the_end(ends: Ends) -> None:
    """What a closed socket has queued still leaves, and what a process has when it ends, within a second."""
    ends.sender("pace(s, 100_000)\nfor number in range(60): s.send(bytes([number]).ljust(958))\ns.close()")
    ends.receiver("for number in range(60): assert sink.recv(2000)[0] == number")
    ends.sender("s = udp(); pace(s, 200_000); s.bind(('10.8.0.1', 0)); s.connect(('10.8.0.2', 7000))")
    ends.sender("for number in range(60): s.send(bytes([number]).ljust(958))")
    ends.sender.close()
    ends.receiver("for number in range(60): assert sink.recv(2000)[0] == number")


def test_fork(ends: Ends) -> None:
    """The child has no part in it; the parent's socket goes on."""
    assert (
        ends.sender(
            """
pace(s, 1_000_000)
for _ in range(50): s.send(b'x')
pid = os.fork()
if not pid:
    code = 0
    try: s.pacing; s.close()
    except OSError: pass
    except BaseException: code = 1
    os._exit(code)
os.waitpid(pid, 0)[1]
"""
        )
        == 0
    )
    ends.sender("for _ in range(50): s.send(b'x')")
    ends.receiver("for _ in range(100): assert sink.recv(100) == b'x'")
    assert ends.sender("s.pacing.by") == "device"


def test_a_kernel_socket(ends: Ends) -> None:
    """The option goes to the kernel, which paces by fq."""
    pacing = ends.sender("k = udp(); k.bind(('127.0.0.1', 0)); k.connect(('127.0.0.1', 9)); pace(k, 1); k.pacing")
    assert (pacing.rate, pacing.by, pacing.queues) == (1, "kernel", ()) or pacing.queues[0].by == "kernel"
