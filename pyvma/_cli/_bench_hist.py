"""Distributions of latencies: pairs of nanoseconds and counts as the measuring processes report them, and HdrHistogram's files of them."""

from __future__ import annotations

import importlib
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from . import UserError

Pairs = Sequence[Sequence[float]]
"""[nanoseconds, how often], the shortest first."""

LADDER = (25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999)
"""sockperf's percentiles."""

BITS = 8
"""Steps of an octave, as a power of two: a value is off by 0.4 % at most."""

HIGHEST_NS = 3_600_000_000_000
DIGITS = 3


def pairs(values: Iterable[float]) -> list[list[float]]:
    """Of single observations in nanoseconds."""
    counts: Counter[float] = Counter()
    for value in values:
        whole = int(value)
        shift = max(whole.bit_length() - BITS - 1, 0)
        counts[((whole >> shift) << shift) + ((1 << shift) - 1) / 2] += 1
    return [[value, count] for value, count in sorted(counts.items())]


def merged(several: Iterable[Pairs]) -> list[list[float]]:
    """One distribution of several."""
    counts: Counter[float] = Counter()
    for one in several:
        for value, count in one:
            counts[value] += int(count)
    return [[value, count] for value, count in sorted(counts.items())]


class Distribution:
    """Looked up by percentile."""

    def __init__(self, of: Pairs) -> None:
        self.values = [float(value) for value, _ in of]
        self.below = list(accumulate(int(count) for _, count in of))
        self.count = self.below[-1] if self.below else 0

    def at(self, percent: float) -> float:
        """The smallest value in nanoseconds at or below which that many of a hundred lie; 0 when there are none."""
        if not self.count:
            return 0.0
        rank = max(1, -(-self.count * round(percent * 1000) // 100_000))
        return self.values[bisect_left(self.below, rank)]

    def shares(self) -> list[float]:
        """The part of all that lies at or below each value."""
        return [count / self.count for count in self.below]

    def ladder_us(self) -> dict[str, float]:
        """As the reports name them."""
        return {f"p{step:g}_us": self.at(step) / 1e3 for step in LADDER}


def hdr(of: Pairs) -> Any:
    """HdrHistogram's, of nanoseconds from 1 to an hour with three digits. UserError without the library."""
    try:
        histogram = importlib.import_module("hdrh.histogram").HdrHistogram(1, HIGHEST_NS, DIGITS)
    except ImportError:
        raise UserError("HdrHistogram's files need hdrhistogram: pip install 'pyvma[hdr]'") from None
    for value, count in of:
        histogram.record_value(min(max(round(value), 1), HIGHEST_NS), int(count))
    return histogram


def write_hgrm(of: Pairs, path: Path) -> None:
    """HdrHistogram's table of percentiles, values in nanoseconds."""
    histogram = hdr(of)
    with path.open("wb") as file:
        histogram.output_percentile_distribution(file, 1.0)


def write_hlog(tagged: dict[str, Pairs], path: Path, seconds: float) -> None:
    """HdrHistogram's log: an interval, compressed, with a tag for each distribution. Values in nanoseconds, Interval_Max in milliseconds
    by the format's convention. hdrhistogram's own writer cuts that to whole milliseconds and knows no tags."""
    now = time.time()
    day = time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(now))
    lines = [
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {now - seconds:.3f} (seconds since epoch), {day}]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for tag, of in tagged.items():
        histogram = hdr(of)
        payload = histogram.encode().decode()
        lines.append(f"Tag={tag},0.000,{seconds:.3f},{histogram.get_max_value() / 1e6:.6f},{payload}")
    path.write_text("\n".join(lines) + "\n")
