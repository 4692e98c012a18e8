"""The daemon's log: lines on stderr, which the journal takes; refusals of one user at a limited rate, however many processes it has."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

__all__ = ["Log", "where"]


def where(error: Exception) -> str:
    """What went wrong, and in which line."""
    trace = traceback.extract_tb(error.__traceback__)
    at = f" ({os.path.basename(trace[-1].filename)}:{trace[-1].lineno})" if trace else ""
    return f"{type(error).__name__}: {error!s:.200}{at}"


class Log:
    """`rate` refusals a second of each key, after the first `burst`; how many were left out is said with the next one."""

    def __init__(self, file: TextIO | None = None, rate: float = 2, burst: int = 10, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: dict[Any, tuple[float, float, int]] = {}  # left, when, suppressed
        self.refusals = 0
        self.suppressed = 0

    def info(self, text: str) -> None:
        """One line, where somebody still reads them."""
        with contextlib.suppress(OSError, ValueError):
            print(f"pyvmad: {' '.join(text.split())}", file=self._file or sys.stderr, flush=True)

    def refusal(self, key: Any, text: str) -> None:
        """One line, unless there were too many of this key; counted either way."""
        self.refusals += 1
        self.limited(key, text)

    def limited(self, key: Any, text: str) -> None:
        """The same of what is nobody's fault."""
        now = self._clock()
        left, when, suppressed = self._buckets.get(key, (float(self._burst), now, 0))
        left = min(self._burst, left + (now - when) * self._rate)
        if left < 1:
            self.suppressed += 1
            self._buckets[key] = left, now, suppressed + 1
            return
        self._buckets[key] = left - 1, now, 0
        self.info(f"{text} ({suppressed} more before were not logged)" if suppressed else text)
