"""Found by a Python that a test starts with this folder in PYTHONPATH: at its end the process writes the engine's counters, if it has had
one, to $COUNTERS_FOLDER/PID.json. The program itself knows nothing of that."""

from __future__ import annotations

import atexit
import json
import os
import sys

OWNER = os.getpid()


def write() -> None:
    native, folder = sys.modules.get("pyvma._native"), os.environ.get("COUNTERS_FOLDER")
    if native is None or folder is None or os.getpid() != OWNER or not native.is_started():
        return
    import pyvma

    path = os.path.join(folder, f"{OWNER}.json")
    with open(path + ".part", "w") as file:
        json.dump(pyvma.counters(), file)
    os.rename(path + ".part", path)


# Registered first, run last: what the program itself does at its end is counted, too.
atexit.register(write)
