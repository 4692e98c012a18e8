"""pyvmad, the privileged daemon: it makes TAP devices, attaches XDP programs and keeps redirect rules for processes that may not.

`pyvmad run` is the daemon, `pyvmad status` asks a running one. How it works and what it promises: docs/daemon.md; its protocol:
native/doc/netvsc.md.
"""

from __future__ import annotations

from ._client import Connection, status
from ._main import main

__all__ = ["SOCKET", "Connection", "main", "status"]

SOCKET = "/run/pyvmad/pyvmad.sock"
