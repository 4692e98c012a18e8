"""What a connection of the engine's can do beside the standard library's calls: become the kernel's."""

from __future__ import annotations

from typing import Any

from ._native import engine_error, lib


class HandBack:
    """A part of `pyvma.socket.socket`."""

    __slots__ = ()

    _sock: Any

    def hand_back(self) -> None:
        """Makes a live connection of the engine's the kernel's, as it is; does nothing for a socket that is the kernel's.

        Sequence numbers, options and what waits in the queues go along, the peer notices nothing, and calls that wait go on. Errors:
        EOPNOTSUPP for what is no connection on an interface of the kernel's, EPERM without CAP_NET_ADMIN, EINPROGRESS, ENOTCONN, and
        EBUSY while urgent data is under way; nothing has changed then.
        """
        if self._sock is not None and (rc := lib.pyvma_sock_hand_back(self._sock)) < 0:
            raise engine_error(rc)
