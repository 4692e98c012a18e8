"""Which counters are losses, what brings them about, and what helps: for `pyvma stats explain` and the full-screen view."""

from __future__ import annotations

from typing import NamedTuple

from ..stats import Field

__all__ = ["HARMLESS", "LOSSES", "REASONS", "Advice", "advice_for", "is_loss"]


class Advice(NamedTuple):
    """What a counter means in plain words, and what to do."""

    cause: str
    remedy: str


# (type, field): those that are worth more than the help of the schema. An empty type: of any.
LOSSES: dict[tuple[str, str], Advice] = {
    ("udp", "rx_queue_full"): Advice(
        "datagrams came faster than the program read them: its receive buffer was full",
        "read in batches (recv_batch), give the reading thread a CPU, or enlarge SO_RCVBUF (the setting rcvbuf is a floor for all sockets)",
    ),
    ("", "rx_no_buf"): Advice(
        "the ring's buffers were used up: the device or the stack had nowhere to put what came",
        "raise rx_bufs and buf_max (the pool), rx_depth (the queue), or have the program read sooner; lent buffers count until released",
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


def is_loss(kind: str, found: Field) -> bool:
    """A counter of what did not get where it should, or was late; by the table above, or by what its help begins with."""
    if found.kind != "counter":
        return False
    return advice_for(kind, found.name) is not None or found.help.startswith(("dropped", "refused", "datagrams given up"))
