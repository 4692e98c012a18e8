"""A limit of memory for a piece of a test."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def limited(bytes_more: int) -> Iterator[None]:
    """No more address space than now and that. Without effect under ASAN, which keeps what was freed and ends the process."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + bytes_more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
