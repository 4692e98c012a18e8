"""The error of everything that asks for RDMA devices."""

from __future__ import annotations


class DeviceError(OSError):
    """RDMA devices cannot be listed, asked or set; the text says why and what to do."""
