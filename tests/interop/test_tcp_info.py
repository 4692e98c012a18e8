"""TCP_INFO tells what Linux's tells: the same exchange with the roles changed, each role's struct of the engine's beside the kernel's."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from actor import Actor
from exchange import Ends
from netns import usable
from uplink import uplink

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")

ENGINE = {4: "10.79.0.1", 6: "fd79::1"}
KERNEL = {4: "10.79.0.2", 6: "fd79::2"}

# struct tcp_info of linux/tcp.h up to tcpi_snd_wnd; the two bit fields as they lie.
LAYOUT = struct.Struct("<8B24I4Q6I4Q2I2Q4I")
FIELDS = (
    "state ca_state retransmits probes backoff options wscales bits "
    "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets "
    "last_data_sent last_ack_sent last_data_recv last_ack_recv pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering "
    "rcv_rtt rcv_space total_retrans pacing_rate max_pacing_rate bytes_acked bytes_received "
    "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out "
    "delivery_rate busy_time rwnd_limited sndbuf_limited delivered delivered_ce bytes_sent bytes_retrans "
    "dsack_dups reord_seen rcv_ooopack snd_wnd"
).split()

OPEN = """
s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
s.settimeout(60)
"""
SERVE = OPEN + "l = s\nl.bind((host, 0))\nl.listen()\nl.getsockname()[1]"
CONNECT = OPEN + "s.connect((host, port))"
ACCEPT = "s, _ = l.accept()\ns.settimeout(60)\nl.close()"
ASK = """
for _ in range(100):
    s.sendall(bytes(1000))
    assert len(s.recv(10, socket.MSG_WAITALL)) == 10
"""
ANSWER = """
for _ in range(100):
    assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
    s.sendall(bytes(10))
"""
TELL = "time.sleep(0.3)\ns.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)"


@pytest.fixture(scope="module")
def net() -> Iterator[Ends]:
    with uplink(KERNEL) as (ns, fabric):
        interface = f"softnic:fabric={fabric},port=0,addr={ENGINE[4]}/24,addr={ENGINE[6]}/64,name=sn0"
        with Actor([interface]) as engine, Actor(netns=ns.name) as kernel:
            yield Ends(engine, kernel, ENGINE, KERNEL, ns)


def told(actor: Actor) -> dict[str, int]:
    raw = actor(TELL)
    assert len(raw) >= LAYOUT.size
    return dict(zip(FIELDS, LAYOUT.unpack(raw[: LAYOUT.size]), strict=True))


def exchange(net: Ends, family: int, engine_asks: bool) -> tuple[dict[str, int], dict[str, int]]:
    """100 questions of 1000 bytes with answers of 10; what the asking and the answering end are told."""
    asking, answering, host = (net.engine, net.kernel, KERNEL) if engine_asks else (net.kernel, net.engine, ENGINE)
    port = answering(SERVE, family=family, host=host[family])
    asking(CONNECT, family=family, host=host[family], port=port)
    answering(ACCEPT)
    answering.start(ANSWER)
    asking(ASK)
    answering.finish()
    found = told(asking), told(answering)
    asking("s.close()")
    answering("s.close()")
    return found


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("role", [0, 1], ids=["asks", "answers"])
def test_the_same_exchange(net: Ends, family: int, role: int) -> None:
    ours, kernels = exchange(net, family, role == 0)[role], exchange(net, family, role == 1)[role]
    same = (
        "state ca_state retransmits probes backoff options snd_mss unacked sacked lost retrans fackets pmtu snd_ssthresh advmss "
        "reordering total_retrans bytes_acked bytes_received notsent_bytes data_segs_in data_segs_out delivered delivered_ce "
        "bytes_sent bytes_retrans dsack_dups reord_seen rcv_ooopack max_pacing_rate"
    ).split()
    assert {name: ours[name] for name in same} == {name: kernels[name] for name in same}
    # Each answer carries an acknowledgement; how many go alone depends on who is quicker.
    for name in ("segs_out", "segs_in"):
        assert abs(ours[name] - kernels[name]) <= 110, (name, ours[name], kernels[name])
    for name in ("rtt", "min_rtt", "rttvar", "busy_time"):
        assert 0 < ours[name] < 1_000_000, (name, ours[name])
    assert ours["min_rtt"] <= ours["rtt"] + ours["rttvar"]
    assert 200_000 <= ours["rto"] < 600_000, ours["rto"]
    assert 0 < ours["ato"] <= 40_000
    assert ours["snd_cwnd"] == kernels["snd_cwnd"]
    for name in ("last_data_sent", "last_data_recv", "last_ack_recv"):
        assert 250 <= ours[name] < 60_000, (name, ours[name])
    for name in ("snd_wnd", "rcv_space", "rcv_ssthresh"):
        assert 10_000 < ours[name] < 1 << 26, (name, ours[name])
    assert ours["rwnd_limited"] == ours["sndbuf_limited"] == 0
    assert ours["rcv_mss"] == kernels["rcv_mss"]


def test_window_scales_are_the_ones_that_were_said(net: Ends) -> None:
    ours, kernels = exchange(net, 4, True)
    assert (ours["wscales"] & 15, ours["wscales"] >> 4) == (kernels["wscales"] >> 4, kernels["wscales"] & 15)
