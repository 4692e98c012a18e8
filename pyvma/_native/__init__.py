"""The engine as Python sees it: `ffi` and `lib` of native/include/pyvma.h, and `check` for its results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ._ffi import ffi, lib

__all__ = ["FOLDER", "NO_INTERFACE", "check", "engine_error", "explain", "ffi", "is_started", "lib", "start"]

FOLDER = Path(__file__).resolve().parent
"""Where the shared libraries and programs of the package are."""
NO_INTERFACE = "there is no interface to offload to"

_started = False


def check(rc: int) -> int:
    """Returns `rc` when it is a result (>= 0); raises the OSError of -errno otherwise."""
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc))
    return rc


def engine_error(rc: int) -> OSError:
    """The OSError of -errno from a call that leaves a text."""
    text: Any = ffi.string(lib.pyvma_last_error())
    return OSError(-rc, text.decode(errors="replace") or os.strerror(-rc))


def start() -> None:
    """Starts the engine unless it runs. OSError with the engine's own words when the configuration cannot be had."""
    global _started
    if not _started:
        rc = lib.pyvma_start()
        if rc < 0:
            raise engine_error(rc)
        _started = True


def is_started() -> bool:
    """Whether start() has succeeded in this process."""
    return _started


def explain(why: str) -> str:
    """The same, unless a setting names an interface of the kernel's that has no ring: then that one's reason."""
    row = ffi.new("struct pyvma_kernel_interface *")
    if why != NO_INTERFACE or lib.pyvma_kernel_interface_get(1, row) < 0 or row.offloaded:
        return why
    name, reason = (ffi.string(field).decode() for field in (row.name, row.reason))
    return f"{name} is not offloaded: {reason}"
