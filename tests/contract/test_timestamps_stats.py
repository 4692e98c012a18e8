"""What a stream tells of itself with each stamp (SOF_TIMESTAMPING_OPT_STATS): the kernel's list over loopback, and ours beside it."""

from __future__ import annotations

import socket as std
import struct
import time

import pytest
from exchange import wait_for
from sides import Net
from stamp_sides import SEND, SLACK_NS, SOCKET, flag, recverr, some, tcp_pair
from stamps import OPT_ID, OPT_STATS, OPT_TSONLY, SOFTWARE, TIMESTAMPING, TX_ACK, TX_SCHED, TX_SOFTWARE, Told, drain

STATS = 54
NAMES = (
    "pad busy rwnd_limited sndbuf_limited data_segs_out total_retrans pacing_rate delivery_rate snd_cwnd reordering min_rtt recur_retrans"
    " delivery_rate_app_lmt sndq_size ca_state snd_ssthresh delivered delivered_ce bytes_sent bytes_retrans dsack_dups reord_seen srtt"
    " timeout_rehash bytes_notsent edt ttl rehash"
).split()
SIZES = dict.fromkeys(NAMES, 4) | dict.fromkeys(
    ("busy", "rwnd_limited", "sndbuf_limited", "data_segs_out", "total_retrans", "pacing_rate", "delivery_rate"), 8
)
SIZES |= dict.fromkeys(("bytes_sent", "bytes_retrans", "edt"), 8) | dict.fromkeys(
    ("recur_retrans", "delivery_rate_app_lmt", "ca_state", "ttl"), 1
)
SIZES["timeout_rehash"] = 2
ORDER = (
    "busy rwnd_limited sndbuf_limited data_segs_out total_retrans pacing_rate delivery_rate snd_cwnd reordering min_rtt recur_retrans"
    " delivery_rate_app_lmt snd_ssthresh delivered delivered_ce sndq_size ca_state bytes_sent bytes_retrans dsack_dups reord_seen srtt"
    " timeout_rehash bytes_notsent edt ttl rehash"
).split()


def stats(one: Told) -> dict[str, int]:
    """The attributes by name, in their order; lengths, types and alignment are checked."""
    body, out = one.others[SOCKET, STATS], {}
    assert body == one.data, "the same is the data"
    while body:
        length, kind = struct.unpack_from("@HH", body)
        name = NAMES[kind]
        assert length == 4 + SIZES[name], name
        assert name not in out
        out[name] = int.from_bytes(body[4:length], "little")
        assert not any(body[length : -(-length // 4) * 4])
        body = body[-(-length // 4) * 4 :]
    return out


def test_of_each_stamp(net: Net) -> None:
    server, client = tcp_pair(net)
    client.sendall(b"before")
    assert server.recv(100) == b"before"
    server.sendall(b"x")
    assert client.recv(100) == b"x"
    flag(client, SEND | TX_SCHED | TX_ACK | OPT_ID | OPT_TSONLY | OPT_STATS)
    started = time.monotonic_ns()
    for number, data in enumerate((b"ten bytes!", b"five!"), 2):
        client.sendall(data)
        assert server.recv(100) == data
        found = some(client, 3)
        total = sum(map(len, (b"before", b"ten bytes!", b"five!")[:number]))
        assert [one.kind for one in found] == ["SCHED", "SND", "ACK"]
        for one in found:
            told = stats(one)
            acked = one.kind == "ACK"
            assert list(told) == [name for name in ORDER if name != "ttl" or acked]
            size = len(one.data)
            assert one.order == [(SOCKET, TIMESTAMPING, 48), (SOCKET, STATS, size), recverr(net)]
            known = {
                "rwnd_limited": 0,
                "sndbuf_limited": 0,
                "data_segs_out": number,
                "total_retrans": 0,
                "recur_retrans": 0,
                "delivered": number + acked,
                "delivered_ce": 0,
                "sndq_size": 0 if acked else len(data),
                "ca_state": 0,
                "bytes_sent": total,
                "bytes_retrans": 0,
                "dsack_dups": 0,
                "reord_seen": 0,
                "timeout_rehash": 0,
                "bytes_notsent": 0 if acked else len(data),
                "snd_ssthresh": 0x7FFFFFFF,
                "rehash": 0,
            }
            assert {name: told[name] for name in known} == known, one.kind
            assert told["reordering"] >= 3 and told["snd_cwnd"] >= 10 and 0 < told["srtt"] < 1_000_000 and 0 < told["min_rtt"] < 1_000_000
            assert told["delivery_rate"] > 0 and told["delivery_rate_app_lmt"] in (0, 1)
            assert told.get("ttl", 64) == 64
            assert started - SLACK_NS <= told["edt"] <= time.monotonic_ns() + SLACK_NS


def test_of_a_long_write(net: Net) -> None:
    """Its last byte is acknowledged when all of it is."""
    server, client = tcp_pair(net)
    flag(client, SOFTWARE | TX_ACK | OPT_ID | OPT_TSONLY | OPT_STATS)
    client.sendall(bytes(200_000))
    got = 0
    while got < 200_000:
        got += len(server.recv(70000))
    found: list[Told] = []

    def all_acknowledged() -> bool:
        found.extend(drain(client))
        return bool(found) and found[-1].number == 199_999

    wait_for("the last byte's", all_acknowledged)
    told = stats(found[-1])
    assert told["bytes_sent"] - told["bytes_retrans"] == 200_000
    assert (told["sndq_size"], told["bytes_notsent"]) == (0, 0)
    assert told["data_segs_out"] - told["total_retrans"] == told["delivered"] - 1
    assert told["busy"] >= told["rwnd_limited"] + told["sndbuf_limited"] and told["pacing_rate"] > 0


@pytest.mark.parametrize("asked", [TX_SOFTWARE, TX_SOFTWARE | TX_ACK])
def test_without_report(net: Net, asked: int) -> None:
    """Stamps that are not told bring no cmsg, but the data all the same."""
    _, client = tcp_pair(net)
    flag(client, asked | OPT_TSONLY | OPT_STATS)
    client.sendall(b"x")
    for one in some_plain(net, client, 2 if asked & TX_ACK else 1):
        assert one.order == [recverr(net)]
        assert struct.unpack_from("@HH", one.data) == (12, 1)


def some_plain(net: Net, sock: object, count: int) -> list[Told]:
    """As some(), of entries without a stamp, which once() could not tell apart from repetitions."""
    found = some(sock, count)
    assert [one.software for one in found] == [None] * count
    return found


def test_of_datagrams_there_are_none(net: Net) -> None:
    a, b = net.pair()
    flag(b, SEND | OPT_TSONLY | OPT_STATS)
    b.send(b"x")
    (found,) = drain(b)
    assert (found.order, found.data) == ([(SOCKET, TIMESTAMPING, 48), recverr(net)], b"")
    assert a.recv(10) == b"x"


def test_no_room_for_them(net: Net) -> None:
    _, client = tcp_pair(net)
    flag(client, SEND | OPT_TSONLY | OPT_STATS)
    client.sendall(b"x")
    client.setblocking(False)
    data, control, flags, _ = client.recvmsg(10, 100, std.MSG_ERRQUEUE)
    assert (len(data), flags) == (10, std.MSG_ERRQUEUE | std.MSG_TRUNC | std.MSG_CTRUNC)
    assert [(kind, len(body)) for _, kind, body in control] == [(TIMESTAMPING, 48), (STATS, 100 - 64 - 16)]
