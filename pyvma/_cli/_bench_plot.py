"""Plots of `pyvma bench`, by matplotlib without a display: distributions, percentiles, figures against sizes, rates and counts."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import UserError
from ._bench_hist import Distribution, Pairs

FORMATS = ("svg", "png")
PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
# One colour a way in all plots (Okabe and Ito's, which most colour-blind people tell apart); the kernel's lines are broken.
COLOURS = {
    "raw": "#000000",
    "pyvma-c": "#0072b2",
    "pyvma-py": "#56b4e9",
    "kernel-c": "#d55e00",
    "kernel-c-spin": "#d55e00",
    "kernel-c-block": "#e69f00",
    "kernel-py-spin": "#cc79a7",
    "kernel-py-block": "#f0e442",
    "sockperf": "#009e73",
}
MARKERS = "osD^vPX*"
SETTINGS = {
    "figure.figsize": (7.2, 4.2),
    "figure.dpi": 100,
    "savefig.dpi": 120,
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.35,
    "axes.axisbelow": True,
    "legend.frameon": False,
    # The same figures give the same file: ids of an SVG come from this, not from chance, and text stays text.
    "svg.hashsalt": "pyvma",
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Plot:
    """One picture. `lines`: (x, y) of each way. `stem`: the file's name without its ending."""

    stem: str
    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    x_log: bool = True
    y_log: bool = True
    ticks: Sequence[tuple[float, str]] = field(default_factory=tuple)
    steps: bool = False
    note: str = ""


def formats(text: str) -> list[str]:
    """The endings asked for. UserError when there is another."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found or any(name not in FORMATS for name in found):
        raise UserError(f"--format: one or more of {', '.join(FORMATS)}")
    return found


def library() -> Any:
    """matplotlib, drawing into files. UserError without it."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError:
        raise UserError("plots need matplotlib: pip install 'pyvma[plots]'") from None
    matplotlib.use("Agg")
    return matplotlib


def thinned(points: Sequence[tuple[float, float]], most: int = 120) -> list[tuple[float, float]]:
    """Not more points than a picture can show: the first and the last stay."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(number * step)] for number in range(most)]


def cdf(stem: str, title: str, rows: dict[str, Pairs], what: str = "half round trip") -> Plot:
    """How many took at most so long. `what`: what the figures are."""
    lines = {}
    for who, of in rows.items():
        found = Distribution(of)
        lines[who] = thinned([(value / 1e3, 100 * share) for value, share in zip(found.values, found.shares(), strict=True)])
    return Plot(f"{stem}-cdf", title, f"{what}, µs", "of the messages at most, %", lines, y_log=False, steps=True)


def percentiles(stem: str, title: str, rows: dict[str, Pairs], what: str = "half round trip") -> Plot:
    """`what` by percentile: the rarer, the further to the right. A percentile that less than one observation would be beyond is left
    out."""
    lines = {}
    for who, of in rows.items():
        found = Distribution(of)
        steps = [1 - 10 ** (-number / 12) for number in range(61)]
        lines[who] = [(1 / (1 - q), found.at(100 * q) / 1e3) for q in steps if found.count * (1 - q) >= 1]
    ticks = [(1 / (1 - percent / 100), f"{percent:g} %") for percent in PERCENTS]
    return Plot(f"{stem}-percentiles", title, "percentile", f"{what}, µs", lines, ticks=ticks)


def style(who: str, number: int, steps: bool) -> dict[str, Any]:
    """Of one way's line."""
    colour = COLOURS.get(who, f"C{number}")
    more = {"drawstyle": "steps-post"} if steps else {}
    return {"color": colour, "linestyle": "--" if who.startswith(("kernel", "asyncio", "uvloop")) else "-", "linewidth": 1.4, **more}


def picture(plot: Plot, figure: Any) -> None:
    """Draws on matplotlib's figure."""
    axes = figure.add_subplot()
    plotted = {who: points for who, points in plot.lines.items() if points}
    for number, (who, points) in enumerate(plotted.items()):
        few = len(points) < 30
        marker = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4} if few else {}
        axes.plot([x for x, _ in points], [y for _, y in points], label=who, **style(who, number, plot.steps), **marker)
    if plot.x_log:
        axes.set_xscale("log")
    if plot.y_log:
        axes.set_yscale("log")
    ticker = importlib.import_module("matplotlib.ticker")
    if plot.ticks:
        axes.set_xticks([at for at, _ in plot.ticks], [name for _, name in plot.ticks])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    for axis, log in ((axes.xaxis, plot.x_log and not plot.ticks), (axes.yaxis, plot.y_log)):
        if log:
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axis.set_minor_formatter(ticker.NullFormatter())
    if not plot.y_log:
        axes.set_ylim(bottom=0)
    axes.set_title(plot.title, fontsize=9, loc="left")
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    if plotted:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    if plot.note:
        figure.text(0.01, 0.005, plot.note, fontsize=7, color="#555555")


def draw(plots: Iterable[Plot], into: Path, endings: Sequence[str]) -> list[Path]:
    """Writes each picture in each format; the files."""
    matplotlib = library()
    figures = importlib.import_module("matplotlib.figure")
    written = []
    with matplotlib.rc_context(SETTINGS):
        for plot in plots:
            figure = figures.Figure(layout="constrained")
            picture(plot, figure)
            for ending in endings:
                path = into / f"{plot.stem}.{ending}"
                figure.savefig(path, metadata={"Date": None} if ending == "svg" else {"Software": None})
                written.append(path)
    return written
