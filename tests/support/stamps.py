"""Reads what SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING tell, of any socket: Linux's layouts, written down once more."""

from __future__ import annotations

import socket as std
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

(
    TX_HARDWARE,
    TX_SOFTWARE,
    RX_HARDWARE,
    RX_SOFTWARE,
    SOFTWARE,
    SYS_HARDWARE,
    RAW_HARDWARE,
    OPT_ID,
    TX_SCHED,
    TX_ACK,
    OPT_CMSG,
    OPT_TSONLY,
    OPT_STATS,
    OPT_PKTINFO,
    OPT_TX_SWHW,
    BIND_PHC,
    OPT_ID_TCP,
    OPT_RX_FILTER,
) = (1 << bit for bit in range(18))

TIMESTAMP, TIMESTAMPNS, TIMESTAMPING = 29, 35, 37
TIMESTAMP_NEW, TIMESTAMPNS_NEW, TIMESTAMPING_NEW = 63, 64, 65
TS_OPT_ID = 81
SND, SCHED, ACK = range(3)
KINDS = ("SND", "SCHED", "ACK")

_ERRORS = {(std.IPPROTO_IP, 11): std.AF_INET, (std.IPPROTO_IPV6, 25): std.AF_INET6}
ENOMSG, ORIGIN_TIMESTAMPING = 42, 4


@dataclass
class Told:
    """What came with one message; times are nanoseconds since the epoch, None where there is none."""

    data: bytes
    flags: int
    address: Any
    order: list[tuple[int, int, int]] = field(default_factory=list)
    """Level, type and length of every cmsg, in order."""
    plain: int | None = None
    software: int | None = None
    raw: int | None = None
    error: tuple[int, ...] | None = None
    """ee_errno, ee_origin, ee_type, ee_code, ee_info, ee_data."""
    offender: str = ""
    others: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Which stamp of what was sent: "SND", "SCHED" or "ACK"."""
        assert self.error is not None
        assert self.error[:4] == (ENOMSG, ORIGIN_TIMESTAMPING, 0, 0), self.error
        return KINDS[self.error[4]]

    @property
    def number(self) -> int:
        assert self.error is not None
        return self.error[5]


def _three(data: bytes) -> list[int | None]:
    seconds = struct.unpack("@6q", data)
    times = [a * 1_000_000_000 + b for a, b in zip(seconds[::2], seconds[1::2], strict=True)]
    assert times[1] == 0
    return [time or None for time in times]


def told(message: tuple[bytes, Iterable[tuple[int, int, bytes]], int, Any]) -> Told:
    """Of what recvmsg() returned."""
    data, control, flags, address = message
    out = Told(data, flags, address)
    for level, kind, body in control:
        out.order.append((level, kind, len(body)))
        if level == std.SOL_SOCKET and kind in (TIMESTAMP, TIMESTAMP_NEW):
            s, us = struct.unpack("@qq", body)
            out.plain = s * 1_000_000_000 + us * 1000
        elif level == std.SOL_SOCKET and kind in (TIMESTAMPNS, TIMESTAMPNS_NEW):
            s, ns = struct.unpack("@qq", body)
            out.plain = s * 1_000_000_000 + ns
        elif level == std.SOL_SOCKET and kind in (TIMESTAMPING, TIMESTAMPING_NEW):
            out.software, _, out.raw = _three(body)
        elif (level, kind) in _ERRORS:
            number, *four, info, extra = struct.unpack_from("@IBBBBII", body)
            out.error = (number, *four[:3], info, extra)
            out.offender = _host(body[16:])
        else:
            out.others[level, kind] = body
    return out


def _host(packed: bytes) -> str:
    family = struct.unpack_from("@H", packed)[0]
    if family == std.AF_INET:
        return std.inet_ntop(family, packed[4:8])
    return std.inet_ntop(family, packed[8:24]) if family == std.AF_INET6 else ""


def drain(sock: Any, room: int = 70000) -> list[Told]:
    """The whole error queue as it is now."""
    out: list[Told] = []
    timeout = sock.gettimeout()
    sock.setblocking(False)
    try:
        while True:
            out.append(told(sock.recvmsg(room, 1024, std.MSG_ERRQUEUE)))
    except BlockingIOError:
        return out
    finally:
        sock.settimeout(timeout)


def once(found: list[Told]) -> list[Told]:
    """Without repetitions: what is sent again is stamped again, and on a busy machine now and then something is."""
    seen: dict[tuple[str, int, bool], Told] = {}
    for one in found:
        seen.setdefault((one.kind, one.number, one.raw is None), one)
    return list(seen.values())


def ask(*flags: int) -> tuple[int, int, bytes]:
    """The cmsg that asks for stamps of one message."""
    return std.SOL_SOCKET, TIMESTAMPING, struct.pack("@I", sum(flags))
