# SPDX-License-Identifier: BSD-3-Clause
"""Time stamps of sockets: the names of Linux's interface that `socket` lacks, and what a socket says of its device's clock."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from ._native import check, ffi, lib

_UNKNOWN = (1 << 64) - 1

# socket(7) and linux/net_tstamp.h, linux/errqueue.h: numbers of the generic ABI.
NUMBERS = {
    "SO_TIMESTAMP": 29,
    "SO_TIMESTAMPNS": 35,
    "SO_TIMESTAMPING": 37,
    "SO_TIMESTAMP_NEW": 63,
    "SO_TIMESTAMPNS_NEW": 64,
    "SO_TIMESTAMPING_NEW": 65,
    "SO_SELECT_ERR_QUEUE": 45,
    "SCM_TIMESTAMP": 29,
    "SCM_TIMESTAMPNS": 35,
    "SCM_TIMESTAMPING": 37,
    "SCM_TIMESTAMPING_PKTINFO": 58,
    "SCM_TS_OPT_ID": 81,
    "SCM_TSTAMP_SND": 0,
    "SCM_TSTAMP_SCHED": 1,
    "SCM_TSTAMP_ACK": 2,
    "SO_EE_ORIGIN_TIMESTAMPING": 4,
}
_FLAGS = (
    "TX_HARDWARE",
    "TX_SOFTWARE",
    "RX_HARDWARE",
    "RX_SOFTWARE",
    "SOFTWARE",
    "SYS_HARDWARE",
    "RAW_HARDWARE",
    "OPT_ID",
    "TX_SCHED",
    "TX_ACK",
    "OPT_CMSG",
    "OPT_TSONLY",
    "OPT_STATS",
    "OPT_PKTINFO",
    "OPT_TX_SWHW",
    "BIND_PHC",
    "OPT_ID_TCP",
    "OPT_RX_FILTER",
)
NUMBERS |= {f"SOF_TIMESTAMPING_{name}": 1 << bit for bit, name in enumerate(_FLAGS)}


class Timestamps(NamedTuple):
    """Where the time stamps of a socket's packets come from."""

    source: str
    """"hardware" when the device stamps what is received or sent and its stamps can be told, else "software"."""
    mode: str
    """The conversion in force (the setting `hw_ts_conversion`): "off", "raw", "sync", "ptp" or "rtc"."""
    receive: bool
    """The device stamps what is received."""
    transmit: bool
    """The device stamps what is sent."""
    error_bound_ns: int | None
    """What conversion may add to the device's own error, in nanoseconds; None while it is not known."""

    def __str__(self) -> str:
        if self.source != "hardware":
            return self.source
        bound = "error not known" if self.error_bound_ns is None else f"±{self.error_bound_ns} ns"
        return f"hardware, {self.mode}, {bound}"


SOFTWARE = Timestamps("software", "off", False, False, None)


def timestamps(sock: Any) -> Timestamps:
    """Of a handle of the engine's."""
    row = ffi.new("struct pyvma_sock_stamps *")
    rc = lib.pyvma_sock_stamps(sock, row)
    if rc == -errno.ENOTCONN:
        return SOFTWARE
    check(rc)
    mode = ffi.string(row.mode).decode()
    receive, transmit = bool(row.rx), bool(row.tx)
    source = "hardware" if mode != "off" and (receive or transmit) else "software"
    return Timestamps(source, mode, receive, transmit, None if row.error_bound_ns == _UNKNOWN else row.error_bound_ns)
