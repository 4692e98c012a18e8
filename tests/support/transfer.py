"""A TCP transfer between an application and a kernel peer that goes on while a test takes devices away: `transfer_ends.py` at both ends."""

from __future__ import annotations

from pathlib import Path

from actor import Actor

SEND_PAUSE_S = 0.002
ENDS = (
    f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom transfer_ends import *\n"
    "import threading\nstop = threading.Event()"
)


class Transfer:
    """From `app`, whose socket `t` is over a ring of ours, to the peer at `host`; it has begun."""

    def __init__(self, app: Actor, peer: Actor, host: str, *, size: int = 1 << 20, pause_s: float = SEND_PAUSE_S) -> None:
        self.app, self.peer = app, peer
        for actor in (app, peer):
            actor(ENDS)
        port = peer("l = socket.create_server((host, 0))\naccepting = Work(l.accept)\nl.getsockname()[1]", host=host)
        app("t = socket.create_connection((host, port), timeout=60)", host=host, port=port)
        state, self.ring = app("t.offload.state, t.offload.text")
        assert state == "offloaded", self.ring
        peer("c, _ = accepting.result()\nc.settimeout(60)\nreceiving = Work(tcp_receive, c)")
        app("sending = Work(tcp_send, t, size, stop, pause)", size=size, pause=pause_s)

    def check(self) -> None:
        """That it goes on; else what ended it."""
        self.app("if sending.error:\n    sending.result()")

    def end(self, limit_s: float = 120.0) -> int:
        """Once there are `size` bytes, which have the same hash at both ends; their number."""
        ends = limit_s + 20  # who does not end is to say so first
        sent, digest = self.app("stop.set()\nsending.result(limit)", limit_s=ends, limit=limit_s)
        assert self.peer("receiving.result(limit)", limit_s=ends, limit=limit_s) == (sent, digest)
        return int(sent)
