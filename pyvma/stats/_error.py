"""The one exception of the reader."""

from __future__ import annotations

__all__ = ["StatsError"]


class StatsError(Exception):
    """A statistics file that cannot be read, and why; or no such process. `str()` is one line for people."""
