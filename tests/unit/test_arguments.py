"""Whatever the arguments are, a call of pyvma.socket answers as the standard library's, to the letter of the message."""

from __future__ import annotations

import array
import socket as std
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab import LONG

import pyvma.socket as ours


class Index:
    def __index__(self) -> int:
        return 5

    def __repr__(self) -> str:
        return "Index()"


def values() -> list[Any]:
    """Fresh ones each time: some can be changed."""
    return [
        None, True, -1, 0, 1, 3, 10, 1024, 65536, 2**31 - 1, 2**31, 2**63, -(2**31) - 1, 1.0, 2.5, 5j, "text", "\u2620", b"", b"bytes",
        bytearray(8), bytearray(), memoryview(b"view"), memoryview(bytearray(6))[::2], array.array("i", [1, 2, 3]), Index(), [],
        [b"a", b"b"], [bytearray(3), bytearray(4)], [1], ["x"], iter([b"abc", b"def"]), iter([bytearray(2)]), (), ("127.0.0.1",),
        ("127.0.0.1", 9), ("127.0.0.1", -1), ("127.0.0.1", 65536), ("127.0.0.1", "9"), ("127.0.0.1", 9.0), ("127.0.0.1", Index()),
        (b"127.0.0.1", 9), ("127.0.0.1\0", 9), (None, 9), (5, 9), ("127.0.0.1", 9, 0), ["127.0.0.1", 9], ("", 0), ("x" * 2000, 9),
        ("\udcff", 9), ("127.0.0.1", 2**70), ("::1", 9, 0, 0), ("::1", 9, 2**20), ("::1", 9, -1), ("::1", 9, 0, 2**32),
        ("::1", 9, 0, 0, 0), ("::1", 9), {}, object, std.SOL_SOCKET, std.SO_REUSEADDR, std.SO_RCVBUF, std.MSG_DONTWAIT, std.MSG_PEEK,
        [(1, 2, b"x")], [(1, 2)], [(std.SOL_SOCKET, std.SCM_RIGHTS, b"")],
    ]  # fmt: skip


COUNT = len(values())

METHODS = [
    "send", "sendall", "sendto", "sendmsg", "recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into", "bind",
    "connect", "connect_ex", "setsockopt", "getsockopt", "getsockname", "getpeername", "shutdown", "listen", "settimeout",
    "setblocking",
]  # fmt: skip
KEYWORDS = ["buffer", "nbytes", "flags", "bufsize", "data"]


def outcome(module: Any, family: int, method: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What the call gave."""
    with module.socket(family, std.SOCK_DGRAM) as s:
        s.setblocking(False)
        try:
            result = getattr(s, method)(*args, **kwargs)
        except Exception as error:
            # The interpreter's own words have the class or not, by how a method is called.
            return type(error), str(error).removeprefix("socket.")
        return "gave", result


@settings(max_examples=6000 if LONG else 1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    family=st.sampled_from([std.AF_INET, std.AF_INET6]),
    method=st.sampled_from(METHODS),
    args=st.lists(st.integers(0, COUNT - 1), max_size=5),
    kwargs=st.dictionaries(st.sampled_from(KEYWORDS), st.integers(0, COUNT - 1), max_size=1),
)
def test_any_arguments(quiet: None, family: int, method: str, args: list[int], kwargs: dict[str, int]) -> None:
    outcomes = []
    for module in (std, ours):
        fresh = values()
        outcomes.append(outcome(module, family, method, [fresh[n] for n in args], {name: fresh[n] for name, n in kwargs.items()}))
    expected, got = outcomes
    if expected[0] == "gave" and method in ("getsockname", "connect", "connect_ex", "sendto"):
        return  # ports differ, and so may what an ICMP error of the other one's datagram did
    if method.startswith(("recv", "send")) and any(isinstance(fresh[n], int) and fresh[n] < 0 for n in args[1:]):
        return  # every flag at once: which of them the kernel looks at first is its own affair
    assert got == expected


@pytest.fixture
def quiet() -> Iterator[None]:
    """Somebody listens where the cases send, so that no error comes back later."""
    with std.socket(std.AF_INET, std.SOCK_DGRAM) as four, std.socket(std.AF_INET6, std.SOCK_DGRAM) as six:
        for s, host in ((four, "127.0.0.1"), (six, "::1")):
            try:
                s.bind((host, 9))
            except OSError:
                pass  # taken: then somebody listens there; or not for us to take
        yield


WRONG = [
    ("sendto", ("\u2620", ("127.0.0.1", 9))),
    ("sendto", (5j, ("127.0.0.1", 9))),
    ("sendto", (b"x", None)),
    ("sendto", (b"x", "bar", ("127.0.0.1", 9))),
    ("sendto", (b"x", None, None)),
    ("sendto", (b"x",)),
    ("sendto", (b"x", 0, ("127.0.0.1", 9), 4)),
    ("sendto", ()),
    ("recv", (-1,)),
    ("recv", ()),
    ("recv", (1, 2, 3)),
    ("recv_into", (b"constant",)),
    ("recv_into", (bytearray(3), 4)),
    ("recv_into", (bytearray(3), -4)),
    ("recvfrom_into", (memoryview(bytearray(8))[::2],)),
    ("recvmsg", (-1,)),
    ("recvmsg", (10, -1)),
    ("recvmsg", (10, 2**40)),
    ("recvmsg_into", (5,)),
    ("recvmsg_into", ([b"constant"],)),
    ("sendmsg", (b"x",)),
    ("sendmsg", ([b"x"], [(1, 2)])),
    ("sendmsg", ([b"x"], [], 0, "somewhere")),
    ("setsockopt", (1, 2, None)),
    ("setsockopt", (1, 2, 1, 4)),
    ("setsockopt", (1, 2, None, None)),
    ("setsockopt", (1, 2, 2**40)),
    ("getsockopt", (1, 2, 2000)),
    ("bind", (("127.0.0.1", 70000),)),
    ("bind", ("127.0.0.1", 7)),
    ("connect", (("127.0.0.1",),)),
]


@pytest.mark.parametrize(("method", "args"), WRONG, ids=[f"{name}-{n}" for n, (name, _) in enumerate(WRONG)])
def test_wrong_arguments(quiet: None, method: str, args: tuple[Any, ...]) -> None:
    expected = outcome(std, std.AF_INET, method, list(args), {})
    assert expected[0] != "gave"
    assert outcome(ours, std.AF_INET, method, list(args), {}) == expected


class Closer:
    """An integer and an address's port that closes the socket when it is asked for its value."""

    def __init__(self, sock: Any, value: int) -> None:
        self.sock = sock
        self.value = value

    def __index__(self) -> int:
        self.sock.close()
        return self.value


CLOSING: dict[str, Any] = {
    "send": lambda sock: sock.send(b"x", Closer(sock, 0)),
    "sendto": lambda sock: sock.sendto(b"x", Closer(sock, 0), ("127.0.0.1", 9)),
    "sendto port": lambda sock: sock.sendto(b"x", ("127.0.0.1", Closer(sock, 9))),
    "recv": lambda sock: sock.recv(Closer(sock, 4)),
    "recvfrom": lambda sock: sock.recvfrom(4, Closer(sock, 0)),
    "recv_into": lambda sock: sock.recv_into(bytearray(4), Closer(sock, 0)),
    "recvfrom_into": lambda sock: sock.recvfrom_into(bytearray(4), 0, Closer(sock, 0)),
}


@pytest.mark.parametrize("name", CLOSING)
def test_closed_by_an_argument(quiet: None, name: str) -> None:
    for module in (std, ours):
        with module.socket(std.AF_INET, std.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
            with pytest.raises(OSError, match="Bad file descriptor"):
                CLOSING[name](sock)
