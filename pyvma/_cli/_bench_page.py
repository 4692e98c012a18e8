"""The page of `pyvma bench report`: Markdown of what its sections measured. Nothing here measures; every number comes from the reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any

from . import _bench_host
from ._bench_compare import beside_veth, microseconds
from ._bench_sockperf_rows import FIGURES, SAYS

Report = dict[str, Any]
Found = tuple[str, str, dict[str, Any]]
"""A section's title, its text, its document."""


def md_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is text, the others are figures."""
    lines = [f"| {' | '.join(head)} |", "|" + "|".join(["---", *["---:"] * (len(head) - 1)]) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def us(value: float) -> str:
    """Microseconds for people: four digits that mean something."""
    return microseconds(value) if value < 1000 else f"{value:,.0f}"


def count(value: float) -> str:
    return f"{value:,.0f}"


# ---- a table for each kind ---------------------------------------------------------------------------------------------------


def compare(report: Report) -> Iterator[str]:
    bulk = "bulk_gbps" in report["rows"][0]
    head = ["half round trip, µs", "p50", "p99", "p99.9", "p99.99", "messages/s", *(["bulk, Gbit/s"] if bulk else []), "lost"]
    rows = []
    for row in report["rows"]:
        figures = [us(row[name]) for name in ("p50_us", "p99_us", "p99.9_us", "p99.99_us")]
        rows.append([row["who"], *figures, count(row["rate_mps"]), *([f"{row['bulk_gbps']:.2f}"] if bulk else []), count(row["lost"])])
    yield md_table(head, rows)
    if "veth_bulk_gbps" in report:
        beside = [f"{row['who']} {beside_veth(row, report['veth_bulk_gbps_runs']):.2f} times" for row in report["rows"] if ours(row["who"])]
        text = f"The kernel's bulk stream over a veth pair, in turns with these: {report['veth_bulk_gbps']:.2f} Gbit/s"
        yield f"{text}; {', '.join(beside)} that."
    if "wake" in report:
        both = [f"{who} {us(row['p50_us'])} µs (p99 {us(row['p99_us'])})" for who, row in report["wake"].items()]
        yield f"A sleeping receiver has a message of a kernel peer after: {', '.join(both)}."
    idle = report["idle"]
    yield f"An idle engine with an open socket: {idle['added_mb']:.1f} MB resident more, {idle['cpu_percent']:.2f} % of a CPU."


def loops(report: Report) -> Iterator[str]:
    http = "http_per_s" in report["rows"][0]
    rows = [
        [row["who"], us(row["p50_us"]), us(row["p99_us"]), count(row["echo_per_s"]), *([count(row["http_per_s"])] if http else [])]
        for row in report["rows"]
    ]
    yield md_table(["half round trip, µs", "p50", "p99", "echoes/s", *(["HTTP requests/s"] if http else [])], rows)


def gil(report: Report) -> Iterator[str]:
    rows = [
        [who, *(us(row[half][name]) for half in ("alone", "beside") for name in ("p50_us", "p99_us"))]
        for who, row in report["rows"].items()
    ]
    yield md_table(["half round trip, µs", "p50 alone", "p99 alone", "p50 beside it", "p99 beside it"], rows)


def mixed(report: Report) -> Iterator[str]:
    rows = []
    for stack, row in report["rows"].items():
        alone, bulk, both = row["requests"], row["bulk"], row["both"]
        figures = [us(part[name]) for name in ("p50_us", "p99_us") for part in (alone, both)]
        rows.append([f"{stack}-c", *figures, f"{bulk['gbps']:.2f}", f"{both['gbps']:.2f}", f"{100 * row['bulk_part']:.0f} %"])
    head = ["half round trip, µs", "p50 alone", "p50 beside", "p99 alone", "p99 beside", "bulk alone, Gbit/s", "bulk beside", "of it"]
    yield f"Over {report['ring']}:"
    yield md_table(head, rows)


def connections(report: Report) -> Iterator[str]:
    rows = []
    for row in report["rows"]:
        each = [count(row["bytes"][end]) for end in ("server", "client")]
        rows.append(
            [row["who"], count(row["count"]), count(row["fds"]), *each, count(row["opened_per_s"]), *map(count, churns(row["churn"]))]
        )
    if isinstance(report["veth"], dict):
        for stack, name in (("pyvma", "pyvma-c, AF_XDP on a veth pair"), ("kernel", "kernel-c, the same pair")):
            rows.append([name, "", "", "", "", "", *map(count, churns(report["veth"][stack]))])
    head = ["", "open", "fds", "bytes, server", "bytes, client", "opened/s", "opened, used, closed/s, 1 at a time", "32 at a time"]
    yield md_table(head, rows)
    beside = report["rows"][0]["beside"]
    figures = [f"beside {int(n):,}: {us(row['p50_us'])} and {us(row['p99_us'])} µs" for n, row in beside.items()]
    yield f"Half a round trip of a busy one, p50 and p99: {'; '.join(figures)}."
    if not isinstance(report["veth"], dict):
        yield f"Not over a veth pair: {report['veth']}."


def churns(rates: dict[str, Any]) -> list[float]:
    return [rates[window] for window in ("1", "32")]


SWEEP = {
    "size": (("p50_us", "p50, µs"), ("p99_us", "p99, µs"), ("rate_mps", "messages/s"), ("gbps", "Gbit/s")),
    "rate": (("p50_us", "p50, µs"), ("p99_us", "p99, µs"), ("sent_p99_us", "p99 from sending"), ("sent_mps", "sent/s"), ("lost", "lost")),
    "connections": (("p50_us", "p50, µs"), ("p99_us", "p99, µs"), ("opened_per_s", "opened/s")),
}


def sweep(report: Report) -> Iterator[str]:
    over = report["over"]
    rows = []
    for row in report["rows"]:
        for at in row["points"]:
            cells = ["-" if name not in at else us(at[name]) if name.endswith("_us") else one(name, at[name]) for name, _ in SWEEP[over]]
            rows.append([row["who"], count(at["value"]), *cells])
    what = {"size": "bytes", "rate": "due a second", "connections": "connections"}[over]
    yield f"{report['proto'].upper()} over {report['ring']}:"
    yield md_table(["", what, *(title for _, title in SWEEP[over])], rows)
    for row in report["rows"]:
        if "stopped" in row:
            yield f"{row['who']} ends before {row['stopped']['at']:,}: {row['stopped']['why']}."


def one(name: str, value: float) -> str:
    return f"{value:.2f}" if name == "gbps" else count(value)


def stacks(report: Report) -> Iterator[str]:
    rows = [[SAYS[row["who"]], *(us(row[name]) for name in FIGURES), count(row["sent"])] for row in report["rows"]]
    yield md_table([f"{report['proto'].upper()}: half round trip, µs", "avg", "p50", "p99", "p99.9", "messages"], rows)
    each = [f"{found['of']} {found['ratio']:.2f} times {found['to']}'s" for found in report["ratios"]]
    yield f"p50, the median of the turns: {', '.join(each)}."


def sockperf(report: Report) -> Iterator[str]:
    if report.get("stack") == "all":
        yield from stacks(report)
        return
    rows = []
    for row in report["rows"]:
        figures = [us(row[name]) if name in row else "-" for name in ("avg_us", "p50_us", "p99_us", "p99.9_us")]
        rows.append([row["mode"], *figures, count(row["rate_mps"]), count(row["sent"]), count(row["lost"])])
    program = f", sockperf {report['sockperf']}" if report.get("sockperf") else ""
    yield f"{report['proto'].upper()}, {report['size']} bytes{program}:"
    yield md_table(["latency, µs", "avg", "p50", "p99", "p99.9", "messages/s", "sent", "lost"], rows)


KINDS: dict[str, Callable[[Report], Iterator[str]]] = {
    "compare": compare,
    "loops": loops,
    "gil": gil,
    "mixed": mixed,
    "connections": connections,
    "sweep": sweep,
    "sockperf": sockperf,
}

# ---- where others are quicker ------------------------------------------------------------------------------------------------


LADDER = ("p50_us", "p99_us", "p99.9_us", "p99.99_us")
"""Of the tables of `compare`."""

SMALL = {"lost", "fds", "bytes of a connection, server", "bytes of a connection, client"}
"""Better small, beside latencies."""


def ours(who: str) -> bool:
    return who.startswith("pyvma")


def better(name: str, one_value: float, other: float) -> float:
    """How many times as good the other is: latencies, losses and costs are better small, rates large. Infinite beside a loss of none."""
    small = name.endswith("_us") or name in SMALL
    low, high = (other, one_value) if small else (one_value, other)
    return high / low if low else inf if high else 1.0


def rivals(who: str, rows: list[Report]) -> list[Report]:
    """The kernel's rows in the same language, or the loops that are not ours."""
    language = "-py" in who
    if "asyncio" in who:
        return [row for row in rows if not ours(row["who"])]
    return [row for row in rows if row["who"].startswith("kernel") and ("-py" in row["who"]) == language]


def beside(row: Report) -> Report:
    """The figures of a row of gil."""
    return {f"{name.removesuffix('_us')} {half}_us": row[half][name] for half in ("alone", "beside") for name in ("p50_us", "p99_us")}


def waking(row: Report) -> Report:
    """The figures of a sleeping receiver."""
    return {f"a sleeping receiver, {name}_us": row[f"{name}_us"] for name in ("p50", "p99")}


def holding(row: Report) -> Report:
    """The figures of a stack's connections."""
    sides = {f"bytes of a connection, {end}": row["bytes"][end] for end in ("server", "client")}
    return {"connections opened/s": row["opened_per_s"], "fds": row["fds"], **sides}


def turns(row: Report) -> list[tuple[str, Report]]:
    """The requests of a row of mixed, alone and beside the stream."""
    return [("alone", row["requests"]), ("beside", row["both"])]


def contests(report: Report) -> Iterator[tuple[str, str, list[Report], list[str]]]:
    """What is compared: where, who of ours, the others' rows, the figures."""
    kind = report["kind"]
    where = ", ".join(str(report[name]) for name in ("over", "proto", "ring") if report.get(name))
    if kind in ("compare", "loops"):
        shown = [*LADDER, "rate_mps", "bulk_gbps", "lost"] if kind == "compare" else ["p50_us", "p99_us", "echo_per_s", "http_per_s"]
        for row in filter(lambda row: ours(row["who"]), report["rows"]):
            yield f"{kind}, {where}", row["who"], [row, *rivals(row["who"], report["rows"])], shown
        if len(report.get("wake", {})) == 2:
            both = [{"who": who, **waking(report["wake"][who])} for who in ("pyvma-c", "kernel-c")]
            yield f"{kind}, {where}", "pyvma-c", both, list(waking(report["wake"]["pyvma-c"]))
        for row in filter(lambda row: ours(row["who"]), report["rows"] if "veth_bulk_gbps" in report else []):
            name = "bulk, times the kernel's over a veth pair"
            both = [{"who": row["who"], name: beside_veth(row, report["veth_bulk_gbps_runs"])}, {"who": "kernel-c", name: 1.0}]
            yield f"{kind}, {where}", row["who"], both, [name]
    elif kind == "gil":
        rows = [{"who": who, **beside(row)} for who, row in report["rows"].items()]
        for row in filter(lambda row: ours(row["who"]), rows):
            others = [other for other in rows if other["who"] == ("uvloop" if "asyncio" in row["who"] else "kernel-py")]
            yield f"gil, {where}", row["who"], [row, *others], [name for name in row if name != "who"]
    elif kind == "sweep":
        over = report["over"]
        for row in filter(lambda row: ours(row["who"]), report["rows"]):
            for at in row["points"]:
                others = [{**point, "who": other["who"]} for other in rivals(row["who"], report["rows"]) for point in other["points"]]
                same = [point for point in others if point["value"] == at["value"]]
                yield f"over {where}: {at['value']:,}", row["who"], [{**at, "who": row["who"]}, *same], [name for name, _ in SWEEP[over]]
    elif kind == "connections":
        each = [{"who": row["who"], **holding(row)} for row in report["rows"]]
        yield "connections over the software NIC", "pyvma-c", each, [name for name in each[0] if name != "who"]
        rates = [("over the software NIC", {row["who"].split("-")[0]: row["churn"] for row in report["rows"]})]
        rates += [("over AF_XDP", report["veth"])] if isinstance(report["veth"], dict) else []
        for name, of in rates:
            both = [
                {"who": f"{stack}-c", "1 at a time, opened/s": of[stack]["1"], "32 at a time, opened/s": of[stack]["32"]} for stack in of
            ]
            yield f"connections {name}", "pyvma-c", both, [key for key in both[0] if key != "who"]
    elif kind == "sockperf" and report.get("stack") == "all":
        rows = [row for row in report["rows"] if row["who"] != "raw"]
        mine = [row for row in rows if ours(row["who"])]
        yield f"sockperf over the stack, {where}", mine[0]["who"], [*mine, *(row for row in rows if row not in mine)], list(FIGURES)
    elif kind == "mixed" and len(report["rows"]) == 2:
        both = [
            {
                "who": f"{stack}-c",
                **{f"{name} {when}_us": part[f"{name}_us"] for name in ("p50", "p99") for when, part in turns(row)},
                "bulk alone, Gbit/s": row["bulk"]["gbps"],
                "bulk beside, Gbit/s": row["both"]["gbps"],
                "bulk kept": row["bulk_part"],
            }
            for stack, row in report["rows"].items()
        ]
        yield f"mixed, {where}", "pyvma-c", both, [name for name in both[0] if name != "who"]


NOISE = 0.02
"""A part of the CPUs' time beyond which the page says that others had it."""

LEAST = 1.05
"""Another is quicker when its figure is better by more than this: less is what a run differs from the next."""


LABELS = {
    "rate_mps": "messages/s",
    "gbps": "Gbit/s",
    "sent_p99_us": "p99 from sending, µs",
    "sent_mps": "sent/s",
    "opened_per_s": "opened/s",
}
LABELS |= {"bulk_gbps": "bulk, Gbit/s", "echo_per_s": "echoes/s", "http_per_s": "HTTP requests/s"}


def slower(reports: Iterable[Report]) -> list[list[str]]:
    """Every figure of ours in a table that another's beats, the widest gap first."""
    found = []
    for report in reports:
        for where, who, rows, names in contests(report):
            mine = rows[0]
            for name in names:
                others = [row for row in rows[1:] if row.get(name) is not None]
                if mine.get(name) is None or not others:
                    continue
                best = max(others, key=lambda row: better(name, mine[name], row[name]))
                times = better(name, mine[name], best[name])
                if times > LEAST:
                    value = us if name.endswith("_us") else lambda v: f"{v:,.2f}" if v < 1000 and v % 1 else count(v)
                    label = LABELS.get(name, f"{name.removesuffix('_us')}, µs" if name.endswith("_us") else name)
                    found.append(
                        (
                            times,
                            [
                                where,
                                label,
                                f"{who} {value(mine[name])}",
                                f"{best['who']} {value(best[name])}",
                                f"{times:.1f}" if times < inf else "∞",
                            ],
                        )
                    )
    return [row for _, row in sorted(found, key=lambda item: -item[0])]


# ---- the page ----------------------------------------------------------------------------------------------------------------


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def facts(reports: list[Report], found: list[Found]) -> Iterator[str]:
    """The host, which all sections have to agree about, and how far the CPUs were apart."""
    host = reports[0]["host"]
    same = ("cpu", "cpus", "pinned", "hypervisor", "governor", "kernel", "python", "pyvma", "uvloop")
    rows = [[name, ", ".join(map(str, host[name])) if isinstance(host[name], list) else str(host[name] or "-")] for name in same]
    for report in reports[1:]:
        rows += [[f"{name}, later", str(report["host"][name])] for name in same if report["host"][name] != host[name]]
    lines = [value for report in reports if report["cache_line_ns"] for value in report["cache_line_ns"]["runs"]]
    if lines:
        lines.sort()
        text = f"{lines[0]:.0f} to {lines[-1]:.0f} ns, median {lines[len(lines) // 2]:.0f}, of {len(lines)} looks"
        rows.append(["a cache line from one CPU to the other", text])
    begun, ended = min(document["begun"] for *_, document in found), max(document["ended"] for *_, document in found)
    busy = sum(document["ended"] - document["begun"] for *_, document in found)
    rows.append(["build", ", ".join(sorted({str(document.get("build") or "not recorded") for *_, document in found}))])
    rows.append(["measured", f"{stamp(begun)} to {stamp(ended)}, {busy / 60:.1f} minutes of it"])
    others = sum(document["others"] * (document["ended"] - document["begun"]) for *_, document in found) / max(busy, 1e-9)
    rows.append(["CPU time that other programs had meanwhile", f"{others:.1%}"])
    yield md_table(["host", "of all figures"], rows).replace("---:", "---")


INTRO = """# Performance

Written by `make bench` (`pyvma bench report`); not by hand. All numbers are of one machine, medians of as many runs as each command
says, and say nothing about another machine: run it there. Where another way is quicker than ours, [a list](#where-others-are-quicker) says
so first.

Rows: `raw` is the ring without a stack, `pyvma-c` and `pyvma-py` our sockets from C and Python, `kernel-` the kernel's; `-spin` asks again
and again, `-block` sleeps. Ours and raw poll; where ways are compared ours have `preset=latency` for half round trips. Those are
half of the time from a message's sending to its answer, as sockperf has them; how much of a run is warm-up stands with each section. Two
processes run on two CPUs, and a cache line has to get from one to the other for every message: on a virtual machine that distance changes
by the second, so it was measured along with everything else."""

METHOD = """## How it is measured

- The rows of a table take turns, every second run the other way round, so that what drifts does not favour one; figures are medians of the
  runs. Lost, duplicated and reordered messages are counted by number and are sums.
- One-way rates are what the receiver counted, with as many messages under way as the wire holds, so that none has to be lost.
- In the sections with a load by the clock nothing is left out because the sender was held up (coordinated omission): the time of a message
  begins when it was due by the timetable.
- The files behind this page have every run: `pyvma bench report --into DIR`. [The schema](../native/doc/bench.md)."""


def page(found: list[Found], missing: Sequence[str] = ()) -> str:
    """The whole page. `missing`: sections that were not measured."""
    reports = [part["report"] for *_, document in found for part in document["parts"] if "failed" not in part["report"]]
    blocks = [INTRO]
    if any(document["quick"] for *_, document in found):
        blocks.append("**These figures are of a short run that only shows that everything works.**")
    if reports:
        blocks += facts(reports, found)
    if missing:
        blocks.append(f"Not measured: {', '.join(missing)}.")
    blocks += whens(found)
    beaten = slower(reports)
    blocks.append("## Where others are quicker")
    if beaten:
        blocks.append(
            f"Every figure of the tables below in which the best of the others is ahead by more than {LEAST - 1:.0%}: the kernel's in the "
            "same language, for event loops asyncio's and uvloop's. Small is better for latencies, losses, file descriptors and memory. "
            "What has no counterpart is not here: raw rings, idle engines, the busy connection beside many, sockperf's own figures."
        )
        blocks.append(md_table(["where", "figure", "ours", "the other", "times"], beaten))
    else:
        blocks.append("In these measurements, nowhere.")
    for title, text, document in found:
        blocks += [f"## {title}", text]
        if document["others"] > NOISE:
            blocks.append(
                f"Other programs had {document['others']:.0%} of the CPUs' time meanwhile: rates and rare latencies are worse for it."
            )
        for part in document["parts"]:
            blocks.append(f"`{part['command']}`")
            if "failed" in part["report"]:
                blocks.append(f"Not measured: {part['report']['failed']}.")
                continue
            blocks += KINDS[part["report"]["kind"]](part["report"])
            blocks += near(part["report"])
            blocks += [f"![{name.removesuffix('.svg').replace('-', ' ')}](img/{name})" for name in part["pictures"]]
    blocks.append(METHOD)
    return "\n\n".join(blocks) + "\n"


def whens(found: list[Found]) -> Iterator[str]:
    """Whether one run measured all sections; when each was, and how long it took."""
    runs = {document.get("run") for *_, document in found}
    if len(runs) == 1 and None not in runs:
        lasted = max(document["ended"] for *_, document in found) - min(document["begun"] for *_, document in found)
        yield f"One run measured all sections, one after the other, in {lasted / 60:.1f} minutes."
    else:
        yield (
            "**The sections are not of one run**: they were measured in several, at the times below, and what the machine did between them "
            "is not known. Figures of a table belong together; those of two sections do less."
        )
    rows = []
    for title, _, document in sorted(found, key=lambda one: float(one[2]["begun"])):
        seconds = document["ended"] - document["begun"]
        rows.append([title, stamp(document["begun"]), f"{seconds:.0f}", f"{document['others']:.1%}", document.get("build") or "-"])
    yield md_table(["section", "begun", "seconds", "CPU time of other programs", "build"], rows)


def near(report: Report) -> Iterator[str]:
    """The distance during this command."""
    line = report["cache_line_ns"]
    if line:
        span = f"{line['median']:.0f} ns ({line['min']:.0f} to {line['max']:.0f})"
        yield f"A cache line from CPU to CPU meanwhile: {span}; {_bench_host.when(report)}."
