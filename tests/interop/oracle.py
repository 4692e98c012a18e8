"""What the cases of test_xdp_oracle.py (oracle_cases.py) have in common.

`socket` is the module under test, `std` the standard library's. In the same namespace are addresses `here` (of v0, by family) and `second`,
in the other the kernel peer with an echo that answers in capitals (`echo`), a closed port (`closed`) and a voice (`tell`).
"""

from __future__ import annotations

import ctypes
import errno
import pickle
import socket as std
from collections.abc import Callable
from typing import Any

from veth import ENGINE, KERNEL

socket: Any = std
here, second = ENGINE, "10.78.0.11"
PORT = 7000
echo = {family: (host, PORT) for family, host in KERNEL.items()}
closed = {family: (host, PORT + 1) for family, host in KERNEL.items()}
ear = (KERNEL[4], PORT + 2)

IP, V6, SOL, UDP = std.IPPROTO_IP, std.IPPROTO_IPV6, std.SOL_SOCKET, std.IPPROTO_UDP
# Numbers of linux/in.h and linux/udp.h that `socket` lacks, or has only in later versions.
PKTINFO, MTU_DISCOVER, RECVERR, RECVTTL, RECVTOS, MTU, UNBLOCK_SOURCE, BLOCK_SOURCE, ALL = 8, 10, 11, 12, 13, 14, 37, 38, 49
MTU_DISCOVER6, MTU6, RECVERR6, PKTINFO6 = 23, 24, 25, 50
SEGMENT, TIMESTAMPNS = 103, 35
WAIT_S = 5.0
# Nothing comes within that time: longer than anything that is under way may take.
QUIET_S = 0.3

CASES: dict[str, Callable[[], Any]] = {}
opened: list[Any] = []


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def run(name: str, module: Any) -> Any:
    """Runs one with the sockets of `module`."""
    global socket
    socket = module
    try:
        return CASES[name]()
    finally:
        for s in opened:
            s.close()
        opened.clear()


def of(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or the name of its error."""
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno] if error.errno else type(error).__name__


def udp(family: int = 4, *, local: Any = None, options: Any = ()) -> Any:
    """A socket, with options set before it is bound to `local`."""
    s = socket.socket(std.AF_INET if family == 4 else std.AF_INET6, std.SOCK_DGRAM)
    opened.append(s)
    s.settimeout(WAIT_S)
    for option in options:
        s.setsockopt(*option)
    if local is not None:
        s.bind(local)
    return s


def quiet(s: Any) -> Any:
    s.settimeout(QUIET_S)
    got = of(s.recv, 100)
    s.settimeout(WAIT_S)
    return got


def index(name: str) -> int:
    return std.if_nametoindex(name)


def address(text: str) -> bytes:
    return std.inet_aton(text)


def ask(s: Any) -> Any:
    """An exchange with the echo."""
    s.sendto(b"ask", echo[6 if s.family == std.AF_INET6 else 4])
    return s.recv(70000)


def tell(data: bytes, host: str, port: int) -> None:
    """The peer sends this from a socket of its own."""
    with std.socket(std.AF_INET, std.SOCK_DGRAM) as s:
        s.settimeout(WAIT_S)
        s.sendto(pickle.dumps((host, port, data)), ear)
        s.recv(10)


def disconnect(s: Any) -> None:
    """connect(2) to AF_UNSPEC, for which Python has no words."""
    if socket is std:
        assert ctypes.CDLL(None).connect(s.fileno(), bytes(16), 16) == 0
        return
    from pyvma._native import ffi, lib

    assert lib.pyvma_sock_connect(s._open_sock(), ffi.cast("struct sockaddr *", ffi.from_buffer(bytes(16))), 16, -1) == 0
