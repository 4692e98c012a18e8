"""Steering rules of the application's own."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .._native import engine_error, ffi, lib, start

_TOS, _LABEL, _VXLAN = 1, 2, 4
_PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}
_VXLAN_PORT = 4789
_QUEUE_MAX = 62
_REFUSED = {
    "geneve": "libibverbs has no specification for Geneve headers",
    "nvgre": "NVGRE is GRE with a key (RFC 7637), which rules of the ring do not look at",
}


@dataclass(frozen=True)
class FlowRule:
    """What frames a rule takes: all that is named must agree.

    `dst` alone takes all of an address, with `protocol` and `dst_port` what goes to one port, with `src` and `src_port` one flow.
    Without `dst` it takes what goes to a MAC (that of the interface when none is named), of one ethertype if that is given.
    """

    dst: str | None = None
    """Destination address; a group's or one of the interface's."""
    src: str | None = None
    """Source address; wants all four of the ports and addresses."""
    protocol: str | None = None
    """"udp" or "tcp"; goes with `dst_port`."""
    dst_port: int = 0
    src_port: int = 0
    dst_mac: str | None = None
    """Six bytes, "02:53:4e:00:00:01"."""
    ethertype: int = 0
    """0: any."""
    vlan: int = 0
    """1 to 4094; 0: untagged."""
    tos: int | None = None
    """Type of service, or traffic class of IPv6: 0 to 255."""
    tos_mask: int = 0xFF
    """Which of its bits count; 0xfc is the DSCP."""
    flow_label: int | None = None
    """Of IPv6: 20 bits."""
    tunnel: str | None = None
    """"vxlan": wants `vni` and `dst`; the outer frame is UDP to port 4789."""
    vni: int = 0
    """Number of the virtual network: 24 bits."""
    inner: FlowRule | None = None
    """Of the frame inside: addresses, ports and MAC."""


def _mac(text: str | None) -> bytes:
    if text is None:
        return bytes(6)
    mac = bytes.fromhex(text.replace(":", "").replace("-", ""))
    if len(mac) != 6:
        raise ValueError(f"{text!r} is not a MAC address")
    return mac


def _fits(name: str, value: int, bits: int) -> int:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} has {bits} bits, {value} is out of range")
    return value


def _address(storage: Any, text: str | None, port: int) -> None:
    _fits("a port", port, 16)
    if text is None:
        if port:
            raise ValueError("a port goes with an address")
        return
    address = ipaddress.ip_address(text)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    head = int(family).to_bytes(2, sys.byteorder) + port.to_bytes(2, "big")
    ffi.memmove(
        ffi.addressof(storage), head + (b"" if address.version == 4 else bytes(4)) + address.packed, 4 + (4 if address.version == 4 else 20)
    )


def _tuple(out: Any, rule: FlowRule, protocol: str | None, dst_port: int) -> None:
    if protocol is not None and protocol not in _PROTOCOLS:
        raise ValueError(f"protocol is 'udp' or 'tcp', not {protocol!r}")
    _address(out.dst, rule.dst, dst_port)
    _address(out.src, rule.src, rule.src_port)
    out.dst_mac[0:6] = list(_mac(rule.dst_mac))
    out.l4_proto = _PROTOCOLS[protocol] if protocol else 0


def _flow(rule: FlowRule) -> Any:
    flow = ffi.new("struct pyvma_flow *")
    protocol, port = rule.protocol, rule.dst_port
    if rule.tunnel is not None:
        if rule.tunnel in _REFUSED:
            raise OSError(errno.EOPNOTSUPP, _REFUSED[rule.tunnel])
        if rule.tunnel != "vxlan":
            raise ValueError(f"tunnel is 'vxlan', not {rule.tunnel!r}")
        protocol, port = protocol or "udp", port or _VXLAN_PORT
        flow.match |= _VXLAN
        flow.vni = _fits("vni", rule.vni, 24)
        if rule.inner is not None:
            _tuple(flow.inner, rule.inner, rule.inner.protocol, rule.inner.dst_port)
    elif rule.inner is not None or rule.vni:
        raise ValueError("inner and vni go with a tunnel")
    _tuple(flow.outer, rule, protocol, port)
    flow.ethertype = _fits("ethertype", rule.ethertype, 16)
    flow.vlan = _fits("vlan", rule.vlan, 16)
    if rule.tos is not None:
        flow.match |= _TOS
        flow.tos, flow.tos_mask = _fits("tos", rule.tos, 8), _fits("tos_mask", rule.tos_mask, 8)
    if rule.flow_label is not None:
        flow.match |= _LABEL
        flow.flow_label = _fits("flow_label", rule.flow_label, 20)
    return flow


class Rule:
    """A rule in force. Closing it, or leaving it as a context manager, takes it out; it also ends with its interface."""

    def __init__(self, row: Any) -> None:
        self._row = row

    @property
    def queue(self) -> int:
        """The receive queue of its own, or of another rule's, that it leads to; 0: the ring's first ones."""
        return int(self._row.queue) if self._row is not None else 0

    def move(self, to: Rule | int | None = None) -> None:
        """Leads the rule to a receive queue of its own; `to`: to that of another rule of the interface, or with 0 to the first ones.

        What came by the old queue is received before anything that comes by the new one. Nothing ever moves by itself. Wants a setting
        `ring_logic_rx` other than 0, a verbs or softnic ring and a rule by ports, else OSError with EOPNOTSUPP. ENOSPC when all queues
        are in use (setting `ring_limit`), ENOBUFS without buffers for one more, EINVAL for a rule of another interface,
        EEXIST when another rule, or a socket with a queue of its own, takes the same frames to such a queue already, EAGAIN when frames
        come faster than they are received, ENODEV when the interface is gone. With any error the rule leads where it
        led.
        """
        if self._row is None:
            raise OSError(errno.EBADF, "the rule is closed")
        if isinstance(to, Rule):
            if to._row is None:
                raise OSError(errno.EBADF, "the rule whose queue is meant is closed")
            if (to._row.index, to._row.serial) != (self._row.index, self._row.serial):
                raise OSError(errno.EINVAL, "the rule whose queue is meant is of another interface")
        elif to is not None and not 0 <= to <= _QUEUE_MAX:
            raise OSError(errno.ENOENT, f"there is no receive queue {to}")
        number = -1 if to is None else to.queue if isinstance(to, Rule) else to
        rc = lib.pyvma_rule_move(self._row, number)
        if rc < 0:
            raise engine_error(rc)

    def close(self) -> None:
        """Takes the rule out of the device; the second time does nothing."""
        row, self._row = self._row, None
        if row is not None:
            rc = lib.pyvma_rule_del(row)
            if rc < 0:
                raise engine_error(rc)

    def __enter__(self) -> Rule:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def steer(interface: int, rule: FlowRule) -> Rule:
    """Steers the frames of a rule to an interface of the engine (`Interface.index`), beside those that its sockets ask for.

    They go the way of all frames: to the socket that they are for, else they are counted and dropped. Starts the engine. ValueError
    when the rule contradicts itself; OSError with EOPNOTSUPP when the device cannot match by it, ENODEV when there is no such interface.
    """
    start()
    flow = _flow(rule)
    row = ffi.new("struct pyvma_rule *")
    rc = lib.pyvma_rule_add(interface, flow, row)
    if rc < 0:
        raise engine_error(rc)
    return Rule(row)
