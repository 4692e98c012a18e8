"""The daemon's messages: what is well formed, and that nothing else is done."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyvma.daemon import _protocol as protocol
from pyvma.daemon._log import Log
from pyvma.daemon._protocol import Flow, MalformedError, answer, parse
from pyvma.daemon._reset import SYN, segment
from pyvma.daemon._vma import FLOW, SIZES, STATE
from pyvma.daemon._vma import INIT as VMA_INIT


def message(kind: int, body: bytes = b"", *, magic: int = protocol.MAGIC, version: int = 1, length: int | None = None) -> bytes:
    size = protocol.HEAD.size + len(body)
    return protocol.HEAD.pack(magic, version, kind, size if length is None else length, 7) + body


def flow_body(**changes: object) -> bytes:
    values: dict[str, object] = {
        "ifindex": 3, "tap": 4, "family": socket.AF_INET, "proto": 17, "flags": 0, "zero": 0, "dst_port": 53, "src_port": 0,
        "dst": bytes([10, 0, 0, 1]), "src": b"",
    }  # fmt: skip
    return protocol.FLOW.pack(*(values | changes).values())


def test_sizes_are_those_of_the_contract() -> None:
    assert (protocol.HEAD.size, protocol.ANSWER_HEAD.size, protocol.FLOW.size) == (16, 20, 48)
    assert (protocol.TAP_ASK.size, protocol.TAP_ANSWER.size, protocol.XDP_ASK.size, protocol.XDP_ANSWER.size) == (8, 20, 12, 8)
    assert SIZES == {VMA_INIT: 12, STATE: 26, 3: 8, FLOW: 30}


def test_a_flow_is_taken_apart() -> None:
    request = parse(message(protocol.FLOW_ADD, flow_body()))
    assert (request.kind, request.number) == (protocol.FLOW_ADD, 7)
    assert protocol.flow(request) == (Flow(3, 17, bytes([10, 0, 0, 1]), 53, bytes(4), 0), 4, 0)
    whole = flow_body(family=socket.AF_INET6, proto=6, dst=bytes(15) + b"\1", src=bytes(15) + b"\2", src_port=9, flags=1)
    flow, _, flags = protocol.flow(parse(message(protocol.FLOW_DEL, whole)))
    assert (flow.whole, flow.family, flags) == (True, socket.AF_INET6, 1)
    assert str(flow) == "tcp [::2]:9 -> [::1]:53"


@pytest.mark.parametrize(
    "changes",
    [
        {"ifindex": 0}, {"ifindex": 1 << 31}, {"tap": 1 << 31}, {"family": 1}, {"proto": 1}, {"flags": 2}, {"zero": 1}, {"dst_port": 0},
        {"src_port": 5}, {"src": b"\1\2\3\4"}, {"dst": b""}, {"dst": bytes(5) + b"\1"}, {"dst": b"\1\2\3\4\5"},
        {"src": b"\1\2\3\4\5", "src_port": 5}, {"src": b"\xff\xff\xff\xff", "src_port": 5}, {"src": b"\xe0\0\0\1", "src_port": 5},
        {"src": b"\0\0\0\1", "src_port": 5}, {"family": socket.AF_INET6, "src": b"\xff\2", "src_port": 5},
        {"family": socket.AF_INET6, "src": bytes(10) + b"\xff\xff\1\2\3\4", "src_port": 5},
    ],
    ids=str,
)  # fmt: skip
def test_flows_that_are_none(changes: dict[str, object]) -> None:
    with pytest.raises(MalformedError) as caught:
        protocol.flow(parse(message(protocol.FLOW_ADD, flow_body(**changes))))
    assert (caught.value.kind, caught.value.number) == (protocol.FLOW_ADD, 7)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "header"),
        (bytes(15), "header"),
        (message(1, bytes(4), magic=1), "not of this protocol"),
        (message(1, bytes(4), version=2), "version 2"),
        (message(1, bytes(4), length=512), "length"),
        (message(0), "type 0"),
        (message(11), "type 11"),
        (message(0x8001, bytes(4)), "type 32769"),
        (message(protocol.HELLO, bytes(3)), "HELLO of 3 bytes"),
        (message(protocol.TAP, bytes(9)), "TAP of 9 bytes"),
        (message(protocol.FLOW_ADD, bytes(47)), "FLOW_ADD of 47 bytes"),
        (message(protocol.BYE, b"x"), "BYE of 1 bytes"),
    ],
)
def test_messages_that_are_none(data: bytes, text: str) -> None:
    with pytest.raises(MalformedError, match=text):
        parse(data)


@given(st.binary(max_size=600))
def test_any_bytes(data: bytes) -> None:
    try:
        request = parse(data)
    except MalformedError:
        return
    assert len(data) == protocol.HEAD.size + len(request.body)


@given(st.binary(min_size=48, max_size=48), st.sampled_from([protocol.FLOW_ADD, protocol.FLOW_DEL]))
def test_any_flow(body: bytes, kind: int) -> None:
    try:
        flow, tap, flags = protocol.flow(parse(message(kind, body)))
    except MalformedError:
        return
    source = flow.src if flow.whole else b""
    again = protocol.FLOW.pack(flow.ifindex, tap, flow.family, flow.proto, flags, 0, flow.dst_port, flow.src_port, flow.dst, source)
    assert again == body


@given(st.integers(-200, 0), st.text(max_size=600), st.binary(max_size=20))
def test_answers_fit(result: int, text: str, fields: bytes) -> None:
    data = answer(protocol.TAP, 9, result, fields, text)
    assert len(data) <= protocol.MESSAGE_MAX
    magic, version, kind, length, number, said = protocol.ANSWER_HEAD.unpack_from(data)
    assert (magic, version, kind, length, number, said) == (protocol.MAGIC, 1, 0x8002, len(data), 9, result)
    assert text.startswith(data[protocol.ANSWER_HEAD.size + len(fields) :].decode())


def test_refusals_are_logged_at_a_limited_rate(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    log = Log(rate=1, burst=3, clock=lambda: now)
    for _ in range(100):
        log.refusal("a", "no")
    log.refusal("b", "nor you")
    now = 2.0
    log.refusal("a", "no")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["pyvmad: no"] * 3 + ["pyvmad: nor you", "pyvmad: no (97 more before were not logged)"]
    assert (log.refusals, log.suppressed) == (102, 97)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_segments_have_their_checksum(family: int) -> None:
    ends = ("10.1.2.3", "10.1.2.9") if family == socket.AF_INET else ("fd00::3", "fd00::9")
    ours, theirs = (socket.inet_pton(family, text) for text in ends)
    data = segment(Flow(1, 6, ours, 80, theirs, 4711), 0xFFFFFFF0, SYN)
    assert struct.unpack(">HHI", data[:8]) == (80, 4711, 0xFFFFFFF0)
    pseudo = ours + theirs + (b"\0\6\0\x14" if family == socket.AF_INET else b"\0\0\0\x14\0\0\0\6")
    total = sum(struct.unpack(f">{(len(pseudo) + 20) // 2}H", pseudo + data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF
