"""A statistics file of a process that has one of everything, with the names of native/base/stats_table.h."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stats_file import Maker, type_of

MS = 1_000_000
PID = 4711
TCP_STATES = "0,ESTABLISHED,SYN-SENT,SYN-RECEIVED,FIN-WAIT-1,FIN-WAIT-2,TIME-WAIT,CLOSED,CLOSE-WAIT,LAST-ACK,LISTEN,CLOSING".split(",")


def _counters(*names: str) -> list[tuple[str, str]]:
    return [(name, "counter") for name in names]


def _gauges(*names: str) -> list[tuple[str, str]]:
    return [(name, "gauge") for name in names]


_ENDS: list[tuple[Any, ...]] = [("local_addr", "addr"), ("local_port", "port"), ("remote_addr", "addr"), ("remote_port", "port")]
_CALLS = [f"{way}_{what}" for way in ("rx", "tx") for what in ("eagain", "errors")]
_MOVED = [f"{way}_{what}" for way in ("rx", "tx") for what in ("packets", "bytes")]
TYPES = [
    type_of("engine", *_counters("polls", "polling"), *_gauges("interfaces")),
    type_of(
        "ring",
        ("interface", "text", 16),
        ("name", "text", 32),
        ("link_up", "flag", {"mask": 1}),
        ("master", "link"),
        ("pool", "link"),
        *_counters("rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_errors", "rx_no_buf", "tx_errors", "tx_full", "interrupts"),
        *_counters("interrupts_asked", "rx_short", "rx_ip_csum", "rx_proto"),
        *_gauges("moderation_frames", "moderation_us"),
        ("stamps", "enum", {"names": ["off", "raw", "best", "sync", "ptp", "rtc"]}),
        *_gauges("rx_depth", "tx_depth", "dm_alloc", "rx_buffers"),
        ("rx_drained_max", "max"),
        *_counters("dm_packets", "dm_bytes", "dm_oob", "retransmits", "vf_plugouts"),
        ("tap_fd", "id", 4),
        ("tap_device", "text", 16),
    ),
    type_of("pool", *_gauges("total", "free", "low_water"), *_counters("exhausted")),
    type_of(
        "socket",
        ("fd", "id", 4),
        ("family", "enum", {"names": ["unspecified", "unix", "inet", *"3456789", "inet6"]}),
        ("type", "enum", {"names": ["0", "stream", "datagram"]}),
        ("state", "enum", {"names": ["undecided", "offloaded", "kernel", "lost"]}),
        ("transport", "link"),
        ("reason", "link"),
        ("nonblocking", "flag", {"mask": 1}),
        ("rx_thread", "id"),
        ("tx_thread", "id"),
        ("stamps", "enum", {"names": ["none", "software", "device", "both"]}),
        *_counters("poll_hits", "poll_misses", *_CALLS),
        ("kernel", "link"),
    ),
    type_of("kernel", *_counters(*_CALLS, *_MOVED)),
    type_of("reason", ("text", "text", 64)),
    type_of(
        "udp",
        *_ENDS,
        *_gauges("queued", "rx_memory", "rcvbuf"),
        ("rx_memory_max", "max"),
        *_counters(
            "rx_datagrams", "rx_bytes", "rx_bad_csum", "rx_short", "rx_queue_full", "rx_no_buf", "tx_datagrams", "tx_bytes", "tx_errors"
        ),
    ),
    type_of(
        "tcp",
        *_ENDS,
        ("state", "enum", {"names": TCP_STATES}),
        ("listener", "link"),
        *_gauges(
            "cwnd", "ssthresh", "in_flight", "srtt", "rttvar", "min_rtt", "rx_queue", "rx_out_of_order", "rcvbuf", "tx_queue", "sndbuf"
        ),
        *_counters("rx_data_segments", "rx_bytes", "tx_data_segments", "tx_bytes", "retransmits", "retransmitted_bytes"),
    ),
    type_of("listener", *_gauges("accept_queue", "backlog")),
    type_of("membership", ("group", "addr"), ("udp", "link")),
    type_of(
        "epoll",
        ("kind", "enum", {"names": ["epoll", "poll", "select", "loop"]}),
        ("fd", "id", 4),
        *_gauges("sockets", "kernel_fds"),
        *_counters("waits", "events_offloaded", "events_kernel", "poll_hits", "poll_misses", "timeouts", "errors", "polling"),
        ("thread", "id"),
    ),
]


def sample(**head: Any) -> Maker:
    """The process: a TAP and the ring behind it under one master, sockets of both transports on both sides."""
    made = Maker(TYPES, pid=PID, program="feed", head={"start_ticks": 1, **head})
    made.add("engine", polls=5_000_000_000, interfaces=2)
    pool = made.add("pool", total=4096, free=3000, low_water=2800, exhausted=2)
    traffic = {"tx_bytes": 4463 << 10, "tx_packets": 67209, "rx_bytes": 5977 << 10, "rx_packets": 90013}
    made.add(
        "ring",
        interface="eth1",
        name="tap:td34f15",
        link_up=True,
        master=pool,
        rx_buffers=256,
        vf_plugouts=1,
        tap_fd=21,
        tap_device="td34f15",
        **traffic,
    )
    traffic = {"tx_bytes": 858931 << 10, "tx_packets": 3402875, "rx_bytes": 865251 << 10, "rx_packets": 3402874}
    device = {"dm_alloc": 16384, "dm_bytes": 739074 << 10, "dm_packets": 1784935, "dm_oob": 0}
    queue = {"rx_depth": 1024, "tx_depth": 512, "rx_drained_max": 32, "rx_no_buf": 7, "interrupts": 120, "interrupts_asked": 125}
    device |= {"rx_short": 2, "rx_proto": 1, "moderation_frames": 64, "moderation_us": 8, "stamps": "sync"}
    made.add(
        "ring", interface="eth1", name="verbs:mlx5_0/1", link_up=True, master=pool, pool=pool, retransmits=1, **queue, **traffic, **device
    )
    _udp_sockets(made)
    _tcp_sockets(made)
    made.add(
        "epoll",
        fd=5,
        sockets=3,
        kernel_fds=1,
        waits=90,
        events_offloaded=70,
        events_kernel=10,
        poll_hits=60,
        poll_misses=20,
        timeouts=10,
        thread=4712,
    )
    return made


def _udp_sockets(made: Maker) -> None:
    udp = made.add(
        "udp",
        local_addr="::",
        local_port=6666,
        queued=3,
        rx_memory=6144,
        rx_memory_max=123456,
        rcvbuf=212992,
        rx_datagrams=9_876_543_210,
        rx_bytes=5_000_000_000_000,
        rx_queue_full=42,
        rx_bad_csum=1,
        tx_datagrams=12,
        tx_bytes=4096,
        tx_errors=1,
    )
    moved = {"rx_eagain": 5, "tx_eagain": 4, "tx_errors": 1, "stamps": "software"}
    moved |= {"poll_hits": 750, "poll_misses": 250, "rx_thread": 4712}
    moved["kernel"] = made.add("kernel", rx_packets=3, rx_bytes=3000, rx_eagain=6)
    made.add("socket", fd=7, family="inet6", type="datagram", state="offloaded", transport=udp, nonblocking=True, **moved)
    made.add("membership", group="239.1.2.3", udp=udp)
    made.add("membership", group="ff02::99", udp=udp)
    reason = made.add("reason", text="address 192.0.2.7 is not of an offloaded interface\x1b[2J")
    made.add(
        "socket",
        fd=12,
        family="inet",
        type="datagram",
        state="kernel",
        reason=reason,
        kernel=made.add("kernel", tx_packets=9, tx_bytes=9216, tx_errors=2),
    )
    made.add("socket", fd=-1, family="inet", type="datagram", state="undecided")


def _tcp_sockets(made: Maker) -> None:
    connection = made.add(
        "tcp",
        local_addr="10.0.0.1",
        local_port=443,
        remote_addr="10.0.0.9",
        remote_port=50000,
        state="ESTABLISHED",
        cwnd=10,
        ssthresh=2147483647,
        in_flight=3,
        srtt=int(0.25 * MS),
        rttvar=int(0.05 * MS),
        min_rtt=int(0.125 * MS),
        rx_queue=100,
        rcvbuf=131072,
        tx_queue=2048,
        sndbuf=87040,
        rx_data_segments=1000,
        rx_bytes=1460_000,
        tx_data_segments=501,
        tx_bytes=731_460,
        retransmits=1,
        retransmitted_bytes=1460,
    )
    made.add("socket", fd=9, family="inet", type="stream", state="offloaded", transport=connection, rx_thread=4712, tx_thread=4713)
    listener = made.add("listener", accept_queue=2, backlog=128)
    listening = made.add("tcp", local_addr="10.0.0.1", local_port=443, state="LISTEN", listener=listener)
    made.add("socket", fd=8, family="inet", type="stream", state="offloaded", transport=listening)
    made.add("tcp", local_addr="fd00::1", local_port=443, remote_addr="fd00::9", remote_port=4242, state="TIME-WAIT")


def write(directory: Path, **head: Any) -> Path:
    """The file, in a directory."""
    return sample(**head).write(directory)
