"""Which counters are losses, what brings them about, and what helps: for `pyvma stats explain` and the full-screen view."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..stats import Field

if TYPE_CHECKING:
    from ..stats import Record

__all__ = ["BROKEN", "DROPS", "HARMLESS", "LOSSES", "REASONS", "TWICE", "WHOLES", "Advice", "Whole", "advice_for", "is_loss", "share_of"]


class Advice(NamedTuple):
    """What a counter means in plain words, and what to do."""

    cause: str
    remedy: str


class Whole(NamedTuple):
    """Of what a loss is a share: a counter of the same object, and whether what was lost is counted there, too."""

    field: str
    includes_lost: bool


# What the network layer drops of what came: counted of all rings together, and of each.
DROPS = (
    "rx_short", "rx_not_ours", "rx_vlan", "rx_ethertype", "rx_ip_header", "rx_ip_csum", "rx_ip_src", "rx_ip_options", "rx_proto",
    "rx_icmp_bad", "rx_arp_bad", "rx_nd_bad", "reass_bad",
)  # fmt: skip
# Counted elsewhere as well: by the layer that refused, or of all rings together.
TWICE = frozenset({("tcp_table", "tx_errors"), ("socket", "tx_errors"), *(("ring", name) for name in DROPS)})

# (type, field): those that are worth more than the help of the schema. An empty type: of any.
LOSSES: dict[tuple[str, str], Advice] = {
    ("", "rx_queue_full"): Advice(
        "datagrams came faster than the program read them: its receive buffer was full",
        "read in batches (recv_batch), give the reading thread a CPU, or enlarge SO_RCVBUF (the setting rcvbuf is a floor for all sockets)",
    ),
    ("", "rx_no_buf"): Advice(
        "the ring's buffers were used up: the device or the stack had nowhere to put what came",
        "raise rx_bufs and buf_max (the pool), rx_depth (the queue), or have the program read sooner; lent buffers count until released",
    ),
    ("tcp_table", "rx_handed_back"): Advice(
        "segments were on their way to the stack while their connection became the kernel's",
        "nothing to do: their peers send them again, to the kernel",
    ),
    ("", "tx_no_buf"): Advice("the pool had no buffer for sending", "raise tx_bufs and buf_max, or send less at a time"),
    ("pool", "exhausted"): Advice(
        "a buffer was asked for when none was free",
        "raise rx_bufs or tx_bufs, and buf_max so that the pool may grow (buf_chunk not 0)",
    ),
    ("ring", "tx_full"): Advice(
        "the send queue was full: the device takes no more for the moment; the stack tries again",
        "raise tx_depth, pace the senders (SO_MAX_PACING_RATE), or send in batches",
    ),
    ("net", "tx_ring_full"): Advice(
        "the device's send queue was full, and the program was told so (EAGAIN or ENOBUFS) or waited", "raise tx_depth, or pace the senders"
    ),
    ("ring", "rx_errors"): Advice(
        "the device reported a broken, truncated or oversized frame", "look at the cable, the peer's MTU, and the setting mtu"
    ),
    ("ring", "tx_errors"): Advice(
        "the device did not send a frame", "the log says which completion it was: pyvma stats control PID log-level info"
    ),
    ("", "tx_errors"): Advice(
        "the network layer or the ring refused what was to be sent, and the program was told so, or TCP tries again",
        "the tx_ counters of the network layer say why: the ring was full, the pool empty, the neighbour silent, or the path's MTU less",
    ),
    ("", "rx_bad_csum"): Advice(
        "a checksum was wrong: the frame was damaged on the way, or a sender left it to a device that did not fill it in",
        "on veth, TAP and bridges switch off the sender's offload: ethtool -K DEVICE tx off",
    ),
    ("", "rx_no_port"): Advice(
        "datagrams for ports that nobody has bound (ICMP tells the sender)", "is the service running, and bound to that address?"
    ),
    ("tcp_table", "rx_no_socket"): Advice(
        "segments for connections or ports that are not there (a reset tells the sender)", "is the service listening on that address?"
    ),
    ("", "rx_filtered"): Advice(
        "multicast that no socket has joined, or of a source that it excludes", "IP_ADD_MEMBERSHIP on the right interface; IP_MULTICAST_ALL"
    ),
    ("net", "rx_not_ours"): Advice(
        "frames for other hosts reached the ring", "harmless on a hub, a TAP device or in promiscuous mode; else check addr= in the setting"
    ),
    ("net", "rx_vlan"): Advice("frames of another VLAN than the interface's", "set vlan= of the interface, or filter at the switch"),
    ("net", "rx_ethertype"): Advice("frames of other protocols, e.g. LLDP", "nothing to do"),
    ("net", "rx_ip_csum"): Advice("an IPv4 header was damaged", "look at the cable and the switch"),
    ("net", "rx_proto"): Advice("IP packets of protocols other than UDP, TCP and ICMP", "nothing to do; leave those to the kernel"),
    ("net", "reass_timeout"): Advice(
        "a fragment was lost on the way, and with it its datagram", "send datagrams that fit the MTU; raise reass_timeout on slow paths"
    ),
    ("net", "reass_full"): Advice("too many datagrams were in reassembly", "raise reass_max and reass_bytes, or send what fits the MTU"),
    ("net", "tx_no_neigh"): Advice(
        "the next hop did not answer ARP or neighbour discovery",
        "is the peer up and in the same network? check addr= and gw= of the interface",
    ),
    ("net", "tx_neigh_queue"): Advice("too many packets waited for one neighbour's address", "raise neigh_queue, or begin more slowly"),
    ("net", "tx_too_big"): Advice("longer than the path's MTU, and fragments forbidden", "send less, or allow fragments (IP_MTU_DISCOVER)"),
    ("net", "tx_icmp_limited"): Advice("ICMP errors beyond the rate limit were not sent", "harmless; icmp_rate is the limit"),
    ("net", "tx_pace_dropped"): Advice("frames waited for their rate when their interface went", "they are lost with the interface"),
    ("net", "tx_stamps_lost"): Advice(
        "stamps of sent packets found the error queue full", "read MSG_ERRQUEUE more often, or enlarge SO_RCVBUF"
    ),
    ("tcp_table", "rx_no_room"): Advice("a connection's receive buffer was full", "the program reads too slowly, or enlarge SO_RCVBUF"),
    ("tcp_table", "rx_ooo_dropped"): Advice("no memory for data that came out of order", "enlarge SO_RCVBUF, raise buf_max"),
    ("tcp_table", "accept_overflow"): Advice(
        "connections were complete and found the accept queue full", "accept faster (several in a turn), or listen() with a greater backlog"
    ),
    ("tcp_table", "syn_overflow"): Advice(
        "more half-open connections than the backlog: cookies were sent instead", "a greater backlog; or it is a SYN flood"
    ),
    ("net", "reass_bad"): Advice(
        "fragments overlapped, or could not be of one datagram", "a broken or hostile sender: send datagrams that fit the MTU"
    ),
    ("tcp_table", "rx_out_of_window"): Advice(
        "segments outside the receive window: what came twice, and keepalives, are such",
        "nothing to do unless there are many: then see losses",
    ),
    ("tcp_table", "rx_paws"): Advice(
        "segments older than what has come already: late duplicates",
        "nothing to do unless there are many: then see the path and the peer's clock",
    ),
    ("tcp_table", "rx_far"): Advice(
        "segments from further away than IP_MINTTL or IPV6_MINHOPCOUNT lets", "nothing to do: that is what it is for; or see the peer's TTL"
    ),
    ("tcp_table", "rx_old_ack"): Advice(
        "acknowledgements of long ago: late duplicates, or of an earlier connection",
        "nothing to do unless there are many: then somebody may be guessing sequence numbers",
    ),
    ("tcp", "retransmits"): Advice(
        "segments were sent again: lost on the way, or acknowledged late",
        "see drops at the receiver and the switch; pace the sender (SO_MAX_PACING_RATE)",
    ),
    ("tcp_table", "tx_retransmits"): Advice(
        "segments were sent again: lost on the way, or acknowledged late",
        "see drops at the receiver and the switch; pace the sender (SO_MAX_PACING_RATE)",
    ),
    ("ring", "dm_oob"): Advice(
        "the device's own memory was full, so that frames went from the host's", "raise ring_dev_mem_tx if the device has more"
    ),
}

# The remedy for frames that are malformed; what else is lost has its own above.
BROKEN = "nothing to do here: what comes from the network is broken, see its sender"

# Where it is known of what a loss is a share. The network layer and TCP count what comes before they look at it; sockets and rings only
# what they take. That of a ring's errors differs by the device.
WHOLES: dict[tuple[str, str], Whole] = {
    **{
        ("net", name): Whole("rx_frames", True)
        for name in DROPS
        if name != "reass_bad"
    },
    **{
        ("tcp_table", name): Whole("rx_segments", True)
        for name in (
            "rx_bad_csum", "rx_malformed", "rx_no_socket", "rx_out_of_window", "rx_paws", "rx_far", "rx_old_ack", "rx_bad_flags",
            "rx_ooo_dropped", "rx_no_room",
        )
    },
    **{(kind, name): Whole("rx_datagrams", False) for kind in ("udp", "udp_table") for name in ("rx_queue_full", "rx_no_buf")},
    **{(kind, "tx_errors"): Whole("tx_datagrams", False) for kind in ("udp", "udp_table")},
    **{("net", name): Whole("tx_packets", False) for name in ("tx_too_big", "tx_ring_full", "tx_no_buf", "tx_no_neigh", "tx_neigh_queue")},
    ("net", "tx_stamps_lost"): Whole("tx_stamps", False),
    ("net", "tx_icmp_limited"): Whole("tx_icmp", False),
    ("tcp", "retransmits"): Whole("tx_segments", True),
    ("tcp_table", "tx_retransmits"): Whole("tx_segments", True),
    ("ring", "rx_no_buf"): Whole("rx_packets", False),
    ("ring", "dm_oob"): Whole("dm_packets", False),
}  # fmt: skip

# Counted, and nothing is wrong.
HARMLESS = frozenset(
    {
        ("net", "rx_not_ours"),
        ("net", "rx_ethertype"),
        ("net", "tx_icmp_limited"),
        ("net", "rx_vlan"),
        ("ring", "tx_full"),
        ("ring", "dm_oob"),
    }
)

# What the reason for which a socket is the kernel's begins with or holds, and what to do. The first that fits counts.
REASONS: tuple[tuple[str, str], ...] = (
    ("interfaces is empty", "set PYVMA_INTERFACES (see `pyvma config interfaces`), or offload=1"),
    ("forked child", "use spawn or forkserver instead of fork, or have the child exec a program of its own"),
    ("lost in fork", "open sockets in the child after it has exec'd; connections of the parent stay with the parent"),
    ("not decided yet", "nothing to do: bind, connect or send decides it"),
    ("engine was stopped", "the program stopped the engine: open sockets again after it has started"),
    ("AF_UNIX", "nothing to do: local sockets are the kernel's"),
    ("raw sockets", "nothing to do: raw sockets are the kernel's"),
    ("SOCK_SEQPACKET", "nothing to do: such sockets are the kernel's"),
    ("address family", "nothing to do: only IPv4 and IPv6 are offloaded"),
    ("another protocol", "nothing to do: of streams only TCP is offloaded"),
    ("is not offloaded:", "`pyvma doctor` says what that interface lacks; the socket is offloaded when it works"),
    ("option that only the kernel", "do without that option, or leave this socket to the kernel; strict=1 makes setting it an error"),
    ("device of the kernel", "bind to an interface that `pyvma devinfo` lists, or add that device to the setting interfaces"),
    ("bound or connected by the kernel before", "open the socket after the engine has started, and by pyvma"),
    ("port is in use", "another socket of this process has that port: close it, or use SO_REUSEPORT in both"),
    ("not known to be an offloaded", "wait until the interface has that address, or bind to one that it has"),
    ("no memory for the stack", "give the process more memory"),
    ("no flow rule", "the device took no rule for this socket: fewer sockets, or a device with more rules (`pyvma devinfo`)"),
    (
        "not all of the interface's receive queues",
        "have the ring take all queues of the device (queues= of the interface), or set its RSS to those",
    ),
    ("no address of an offloaded interface", "bind to, or connect by, an address of an interface that `pyvma devinfo` lists"),
    ("127.", "nothing to do: loopback is the kernel's, and fastest there"),
    ("address ::1 ", "nothing to do: loopback is the kernel's, and fastest there"),
    ("is the kernel's", "add that network to an interface of the setting interfaces (addr=, or gw= for what is behind a router)"),
)


def advice_for(kind: str, name: str) -> Advice | None:
    """What is known about a counter."""
    return LOSSES.get((kind, name)) or LOSSES.get(("", name))


def share_of(record: Record, name: str) -> float | None:
    """How much of what came or went there was lost, 0 to 1; None: that is not known."""
    whole = WHOLES.get((record.schema.name, name))
    if whole is None or whole.field not in record.schema.fields:
        return None
    lost = record.figure(name)
    total = record.figure(whole.field) + (0 if whole.includes_lost else lost)
    return min(1.0, lost / total) if total > 0 else None


def is_loss(kind: str, found: Field) -> bool:
    """A counter of what did not get where it should, or was late; by the table above, or by what its help begins with."""
    if found.kind != "counter" or (kind, found.name) in TWICE:
        return False
    return advice_for(kind, found.name) is not None or found.help.startswith(("dropped", "refused", "datagrams given up"))
