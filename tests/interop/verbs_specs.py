"""Flow specifications that libibverbs has and pyverbs has not: the bytes of <infiniband/verbs.h>, in pyverbs' own rules."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from pyverbs import enums
from pyverbs.spec import TcpUdpSpec


class _Bytes(TcpUdpSpec):
    """A specification of at most 16 bytes, which is what its base class leaves room for; a shorter one stands last."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(enums.IBV_FLOW_SPEC_UDP)
        assert len(raw) <= self.size
        self.raw = raw

    def _copy_data(self, address: int) -> None:
        ctypes.memmove(address, self.raw, len(self.raw))


def vxlan_spec(vni: int, vni_mask: int = 0xFFFFFF) -> Any:
    """struct ibv_flow_spec_tunnel"""
    return _Bytes(struct.pack("=IHxx", enums.IBV_FLOW_SPEC_VXLAN_TUNNEL, 16) + struct.pack("!II", vni, vni_mask))


def drop_spec() -> Any:
    """struct ibv_flow_spec_action_drop"""
    return _Bytes(struct.pack("=IHxx", enums.IBV_FLOW_SPEC_ACTION_DROP, 8))


def gre_spec() -> Any:
    """As much of struct ibv_flow_spec_gre as a device that does not know it looks at."""
    return _Bytes(struct.pack("=IHxx", enums.IBV_FLOW_SPEC_GRE, 24))
