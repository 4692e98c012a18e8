"""What processes on pyvma do: their sockets, rings, pools and counters, read from the memory that they work in.

    import pyvma.stats

    for found in pyvma.stats.processes():
        with pyvma.stats.attach(found.pid) as process:
            before = process.snapshot()
            time.sleep(1)
            after = process.snapshot()
            rates = pyvma.stats.delta(before, after)
            for ring in rates.rings:
                print(ring.name, rates.per_second(ring, "rx_packets"))

There is no call into the process, and nothing is copied or published for readers: what reading costs it is the cache lines that are
shared, a miss at its next write to each. The names, units and meanings of all fields come with the file (`Snapshot.types`) and are
listed in docs/reference/statistics.md. The native library is not needed.

`pyvma.stats.trace(pid)` has the last events of a process, also of one that died.

Whatever is wrong with a file, the exception is :class:`StatsError`.
"""

from __future__ import annotations

from ._error import StatsError
from ._file import Head
from ._model import Record, Snapshot, delta, totals
from ._process import Found, Process, attach, default_directory, own, processes
from ._schema import Field, Type, Value
from ._trace import Event, Trace, trace, traces

__all__ = [
    "Event",
    "Field",
    "Found",
    "Head",
    "Process",
    "Record",
    "Snapshot",
    "StatsError",
    "Trace",
    "Type",
    "Value",
    "attach",
    "default_directory",
    "delta",
    "own",
    "processes",
    "totals",
    "trace",
    "traces",
]
