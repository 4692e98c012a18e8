"""TCP with the Linux kernel at the other end, over the software NIC's uplink: both roles, both families."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exchange import CONNECT, RESET_AT_CLOSE, Ends
from netns import usable
from uplink import ENGINE, KERNEL, pair

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")

BULK = 64 << 20
LIMIT_S = 120.0

# Bytes that are told from their neighbours, and the digest of what went or came.
SEND = """
import hashlib, random
data = random.Random(seed).randbytes(size)
s.sendall(data)
s.shutdown(socket.SHUT_WR)
hashlib.sha256(data).hexdigest()
"""
RECEIVE = """
import hashlib
digest = hashlib.sha256()
while part := s.recv(1 << 18):
    digest.update(part)
digest.hexdigest()
"""


@pytest.fixture(scope="module")
def net() -> Iterator[Ends]:
    with pair() as ends:
        yield ends


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("engine_serves", [True, False], ids=["server", "client"])
def test_bulk_both_ways_at_once(net: Ends, family: int, engine_serves: bool) -> None:
    net.connect(family, engine_serves)
    both = "import threading\nsent = []\ndef send():\n    sent.append(SENDER())\n"
    sender = "import hashlib, random\ndef SENDER():\n    data = random.Random(seed).randbytes(size)\n    s.sendall(data)\n"
    sender += "    s.shutdown(socket.SHUT_WR)\n    return hashlib.sha256(data).hexdigest()\n"
    code = sender + both + "t = threading.Thread(target=send)\nt.start()\n" + RECEIVE.replace("\ndigest.hexdigest()\n", "\nt.join()\n")
    code += "(sent[0], digest.hexdigest())"
    for actor, seed in ((net.engine, 1), (net.kernel, 2)):
        actor.start(code, seed=seed, size=BULK)
    (engine_sent, engine_got), (kernel_sent, kernel_got) = net.engine.finish(LIMIT_S), net.kernel.finish(LIMIT_S)
    assert engine_sent == kernel_got
    assert kernel_sent == engine_got
    net.engine("s.close()")
    net.kernel("s.close()")


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("engine_reads", [True, False], ids=["engine", "kernel"])
def test_a_slow_reader(net: Ends, family: int, engine_reads: bool) -> None:
    """A window that closes and opens again, many times."""
    net.connect(family, engine_reads)
    reader, writer = (net.engine, net.kernel) if engine_reads else (net.kernel, net.engine)
    reader("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)")
    writer.start(SEND, seed=3, size=1 << 20)
    got = reader(RECEIVE.replace("1 << 18", "3000").replace("    digest.update(part)", "    digest.update(part)\n    time.sleep(0.001)"))
    assert writer.finish(LIMIT_S) == got
    net.engine("s.close()")
    net.kernel("s.close()")


def test_refused_and_reset(net: Ends) -> None:
    net.connect(4, True)
    net.kernel(RESET_AT_CLOSE)
    with pytest.raises(ConnectionResetError):
        net.engine("s.recv(1)")
    net.connect(4, False)
    net.engine(RESET_AT_CLOSE)
    with pytest.raises(ConnectionResetError):
        net.kernel("s.recv(1)")
    for actor, host in ((net.engine, KERNEL[4]), (net.kernel, ENGINE[4])):
        with pytest.raises(ConnectionRefusedError):
            actor(CONNECT, family=4, host=host, port=9)


def test_what_the_handshake_agreed_on(net: Ends) -> None:
    """TCP_INFO of the kernel's end: timestamps, SACK, window scaling; nothing sent twice."""
    net.connect(4, True)
    net.kernel("s.sendall(b'x' * 100000)")
    net.engine("s.recv(100000, socket.MSG_WAITALL)\ns.sendall(b'y')")
    info = net.kernel("s.recv(1)\ns.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)")
    state, options = info[0], info[5]
    assert (state, options & 7) == (1, 7)
    assert int.from_bytes(info[100:104], "little") == 0  # tcpi_total_retrans
    net.engine("s.close()")
    net.kernel("s.close()")


def test_keepalive_is_answered(net: Ends) -> None:
    net.connect(4, True)
    net.kernel(
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)\n"
        "for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT): s.setsockopt(socket.IPPROTO_TCP, name, 1)\n"
        "time.sleep(3.5)\n"
        "s.sendall(b'still there')"
    )
    assert net.engine("s.recv(100)") == b"still there"
    net.engine("s.close()")
    net.kernel("s.close()")
