"""A load by timetable: messages of a rate from the C client to the C server, as sockperf's under-load, over the wires of `compare`."""

from __future__ import annotations

from typing import Any

from . import UserError
from ._bench_compare import Load, Way
from ._bench_run import Peer, c_command, cpus, running
from ._bench_wire import Wire


def under_load(way: Way, wire: Wire, load: Load, rate: int) -> dict[str, Any]:
    """The client's report, whole round trips: "due_p99_us" and its like count each message from the moment when it was due, however late
    its sender came to send it; "p99_us" from when it left. Every message is answered."""
    pin, ends = cpus(), wire.ends(way.stack)
    where = "{}:{}:{}".format("T" if load.tcp else "U", *ends[0])

    def command(number: int, role: str, **more: Any) -> list[str]:
        interface = wire.interface(number) if way.stack == "pyvma" else None
        return c_command(role, way.stack, pin[number], end=where, interfaces=interface, block=way.block, **more)

    more = {"mode": "under-load", "mps": rate, "reply_every": 1, "size": load.size, "seconds": load.seconds, "full_rtt": True}
    if way.stack == "pyvma":
        more["local"] = "{}:{}".format(*ends[1])
    with running(Peer(command(0, "serve"), clean=True, inside=wire.inside(0))) as server:
        server.ready()
        with running(Peer(command(1, "client", **more), clean=True, inside=wire.inside(1))) as client:
            answer = client.result(load.seconds)
        server.stop()
    if "due_p50_us" not in answer:
        raise UserError("too short a run: nothing was measured")
    return answer
