"""Makes _ffi.c from _ffi_cdef.txt; run by tools/gen_ffi.py, not at build time."""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
SOURCE = """
#include <sys/socket.h>
#include <sys/uio.h>
#include "pyvma.h"
"""


def emit(target: Path) -> None:
    """Writes the C source of the module pyvma._native._ffi to `target`."""
    builder = FFI()
    builder.cdef((HERE / "_ffi_cdef.txt").read_text())
    builder.set_source("pyvma._native._ffi", SOURCE)
    builder.emit_c_code(str(target))
