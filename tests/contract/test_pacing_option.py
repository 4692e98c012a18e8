"""SO_MAX_PACING_RATE: lengths, values and errors as the kernel has them; who keeps the rate is tested between processes."""

from __future__ import annotations

import errno
import socket as std
import struct

import pytest
from sides import Net

RATE = 47  # SO_MAX_PACING_RATE
ALL = (1 << 64) - 1


def _get(sock: std.socket) -> int:
    return int(struct.unpack("@Q", sock.getsockopt(std.SOL_SOCKET, RATE, 8))[0])


@pytest.fixture(params=["udp", "udp bound", "udp connected", "tcp"])
def sock(net: Net, request: pytest.FixtureRequest) -> std.socket:
    made: std.socket
    if request.param == "udp":
        made = net.socket()
    elif request.param == "udp bound":
        made = net.bound()
    elif request.param == "udp connected":
        made = net.pair()[1]
    else:
        made = net.module.socket(net.family, std.SOCK_STREAM)
        net.opened.append(made)
        made.bind((net.hosts[0], 0))
    return made


def test_both_lengths(sock: std.socket) -> None:
    assert _get(sock) == ALL
    assert sock.getsockopt(std.SOL_SOCKET, RATE) == -1
    sock.setsockopt(std.SOL_SOCKET, RATE, 1_250_000)
    assert (_get(sock), sock.getsockopt(std.SOL_SOCKET, RATE)) == (1_250_000, 1_250_000)
    sock.setsockopt(std.SOL_SOCKET, RATE, struct.pack("@Q", 5_000_000_000))
    assert _get(sock) == 5_000_000_000
    # More than 32 bits hold.
    assert sock.getsockopt(std.SOL_SOCKET, RATE, 4) == b"\xff\xff\xff\xff"
    # All ones of 4 bytes are all ones.
    sock.setsockopt(std.SOL_SOCKET, RATE, b"\xff\xff\xff\xff")
    assert _get(sock) == ALL
    sock.setsockopt(std.SOL_SOCKET, RATE, 0)
    assert _get(sock) == 0


@pytest.mark.parametrize("length", [0, 1, 3])
def test_too_short(sock: std.socket, length: int) -> None:
    with pytest.raises(OSError) as caught:
        sock.setsockopt(std.SOL_SOCKET, RATE, b"\x00\x10\x00\x00"[:length])
    assert caught.value.errno == errno.EINVAL
    assert _get(sock) == ALL


@pytest.mark.parametrize("length", [5, 7, 12, 16])
def test_odd_lengths(sock: std.socket, length: int) -> None:
    sock.setsockopt(std.SOL_SOCKET, RATE, struct.pack("@QQ", 0x1_0000_1000, 7)[:length])
    assert _get(sock) == (0x1000 if length < 8 else 0x1_0000_1000)


@pytest.mark.without("stdlib")
def test_a_burst(net: Net, sock: std.socket) -> None:
    from pyvma import socket

    value = socket.pack_pacing(1_000_000, 6000, 1500)
    kernels = not net.offloaded and sock.offload.state == "kernel"  # type: ignore[attr-defined]
    if kernels:
        with pytest.raises(OSError) as caught:
            sock.setsockopt(socket.SOL_PYVMA, socket.SO_PACING, value)
        assert caught.value.errno in (errno.EOPNOTSUPP, errno.ENOPROTOOPT)
        return
    sock.setsockopt(socket.SOL_PYVMA, socket.SO_PACING, value)
    assert _get(sock) == 1_000_000
    assert sock.getsockopt(socket.SOL_PYVMA, socket.SO_PACING, 16) == value
    pacing = sock.pacing  # type: ignore[attr-defined]
    assert (pacing.rate, pacing.burst, pacing.packet) == (1_000_000, 6000, 1500)
    assert pacing
    for wrong in (b"", value[:-1], value[:-1] + b"\1"):
        with pytest.raises(OSError) as caught:
            sock.setsockopt(socket.SOL_PYVMA, socket.SO_PACING, wrong)
        assert caught.value.errno == errno.EINVAL
    with pytest.raises(OSError) as caught:
        sock.setsockopt(socket.SOL_PYVMA, 99, value)
    assert caught.value.errno == errno.ENOPROTOOPT
    sock.setsockopt(socket.SOL_PYVMA, socket.SO_PACING, socket.pack_pacing(0))
    pacing = sock.pacing  # type: ignore[attr-defined]
    assert (pacing.rate, pacing.burst, pacing.by, bool(pacing)) == (None, 0, None, False)


@pytest.mark.without("stdlib", "loopback")
def test_less_than_a_kbit(sock: std.socket) -> None:
    """Nobody can keep it: refused, not rounded to unlimited. The kernel's sockets take it as the kernel does."""
    sock.setsockopt(std.SOL_SOCKET, RATE, 125)
    for rate in (1, 124):
        with pytest.raises(OSError) as caught:
            sock.setsockopt(std.SOL_SOCKET, RATE, rate)
        assert caught.value.errno == errno.EINVAL
    assert _get(sock) == 125
