# SPDX-License-Identifier: BSD-3-Clause
"""Figures of things that took turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> tuple[float, float, float]:
    """It, and the bounds between which that of all there could be is with 95 % at least: by the sign test, whatever the distribution. Fewer
    than six values have no such bounds: the least and the greatest then."""
    ordered = sorted(values)
    outside, below = -1, 0.0
    while (below := below + math.comb(len(ordered), outside + 1) / 2 ** len(ordered)) <= 0.025:
        outside += 1
    edge = max(outside, 0)
    return statistics.median(ordered), ordered[edge], ordered[-1 - edge]
