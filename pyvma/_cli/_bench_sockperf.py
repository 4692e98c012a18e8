"""`pyvma bench sockperf`: the real sockperf as client and server, and what it prints in the same records as ours.

Over kernel sockets, on loopback or between the two ends of a veth pair; over pyvma's stack, by `pyvma run`, on such a pair; or over both
in turns, beside the bare ring (_bench_sockperf_rows.py).
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import UserError, _bench_hist, _bench_host, _bench_output, _bench_plot, module
from ._bench_compare import microseconds
from ._bench_run import GRACE_S, READY_S, cpus, free_ports
from ._help import seconds
from ._veth import VethPair
from .run import library

MODES = ("ping-pong", "under-load", "throughput", "playback")
STYLES = ("recvfrom", "select", "poll", "epoll")
LOOPBACK = "127.0.0.1"
VETH_PORT = 11111
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# "sockperf: ", and what some lines have between brackets after it.
PREFIX = re.compile(r"^sockperf(?:\[\w+\])?: ?")
NUMBER = r"(-?[0-9.]+|-?nan|-?inf)"
TOTAL = re.compile(r"\[(Total Run|Valid Duration)\] RunTime=([0-9.]+) sec;.*?SentMessages=(\d+); ReceivedMessages=(\d+)")
AVERAGE = re.compile(rf"====> avg-(?:latency|rtt|lat)=\s*{NUMBER} \(std-dev=\s*{NUMBER}")
VERSION = re.compile(r"version #?([0-9]+[0-9.]*)")
COUNTS = re.compile(r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)")
SUMMARY = re.compile(rf"Summary: (?:Latency|Round trip) is {NUMBER} usec")
OBSERVATIONS = re.compile(r"Total (\d+) observations")
STEP = re.compile(rf"---> (<MAX> observation|<MIN> observation|percentile +([0-9.]+)) = +{NUMBER}")
SENT = re.compile(r"Total of (\d+) messages sent in ([0-9.]+) sec")
RATE = re.compile(r"Summary: (?:Message|Packet) Rate is (\d+)")
WIDTH = re.compile(r"Summary: BandWidth is ([0-9.]+) ([MG])Bps")
HANDLED = re.compile(r"Total (\d+) messages received and handled")
WRONG = re.compile(r"ERROR|No messages were received|Invalid|Can[`']t |invalid|unrecognized|failed|unknown|does not|must be", re.IGNORECASE)
# Words of the usage text, which follows what was wrong.
USAGE = re.compile(r"^(Usage:|Options:|\S+ \(\w+\): Run sockperf|\s*-)", re.MULTILINE)


def clean(text: str) -> str:
    """Without colours."""
    return ESCAPES.sub("", text)


def complaint(text: str) -> str | None:
    """The line that says what was wrong, in sockperf's own words; None when none does."""
    if not USAGE.split(clean(text))[0].strip() and "Usage:" in text:
        return "sockperf knows no such option"
    lines = [PREFIX.sub("", line).strip() for line in USAGE.split(clean(text))[0].splitlines()]
    for number, line in enumerate(lines):
        if line and WRONG.search(line) and "messages = " not in line:
            # "ERROR: ... bind socket, IP to bind: ...", and the reason on the next line.
            after = lines[number + 1] if number + 1 < len(lines) else ""
            return f"{line} {after}" if after.startswith("(errno=") else line
    return None


def parse_client(text: str) -> dict[str, Any]:
    """The record of what a client printed: the names of our own program's, latencies as sockperf has them (half round trips, or whole
    ones after --full-rtt). UserError with its words when it measured nothing."""
    text = clean(text)
    if found := SENT.search(text):
        rate, width = RATE.search(text), WIDTH.search(text)
        if not rate or not width:
            raise UserError("sockperf printed no rate")
        bandwidth = float(width[1]) * (1024 if width[2] == "G" else 1)
        return {"sent": int(found[1]), "seconds": float(found[2]), "rate_mps": float(rate[1]), "bandwidth_mbytes": bandwidth}
    runs = {name: (float(seconds), int(sent), int(received)) for name, seconds, sent, received in TOTAL.findall(text)}
    average, counts, observations = AVERAGE.search(text), COUNTS.search(text), OBSERVATIONS.search(text)
    if not runs or not average or not observations or not int(observations[1]):
        raise UserError(complaint(text) or "sockperf measured nothing")
    seconds, sent, received = runs.get("Valid Duration", runs.get("Total Run", (0.0, 0, 0)))
    total = runs.get("Total Run", (seconds, sent, received))
    record: dict[str, Any] = {"sent": sent, "received": received, "seconds": seconds, "total_sent": total[1], "total_received": total[2]}
    for name, number in zip(("lost", "duplicated", "reordered"), counts.groups() if counts else ("0", "0", "0"), strict=True):
        record[name] = int(number)
    record |= {"observations": int(observations[1]), "avg_us": float(average[1]), "stddev_us": float(average[2])}
    record["rtt"] = "avg-rtt" in text
    for name, step, value in STEP.findall(text):
        key = "max_us" if name.startswith("<MAX>") else "min_us" if name.startswith("<MIN>") else f"p{float(step):g}_us"
        record[key] = float(value)
    if "p50_us" not in record:
        raise UserError("sockperf printed no percentiles")
    record["rate_mps"] = sent / seconds if seconds else 0.0
    return record


def parse_server(text: str) -> int:
    """Messages that a server took."""
    found = HANDLED.search(clean(text))
    if not found:
        raise UserError(complaint(text) or "sockperf's server did not say what it received")
    return int(found[1])


def full_log(path: Path) -> list[list[float]]:
    """The distribution in a file of --full-log: its last column, microseconds, as pairs in nanoseconds."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    heads = [number for number, line in enumerate(lines) if line.startswith("packet,")]
    if not heads:
        return []
    found = []
    for line in lines[heads[-1] + 1 :]:
        with contextlib.suppress(ValueError, IndexError):
            found.append(1e3 * float(line.split(",")[3]))
    return _bench_hist.pairs(found)


def program() -> str:
    """sockperf. UserError without it."""
    path = shutil.which("sockperf")
    if path is None:
        raise UserError("sockperf is not installed (package sockperf)")
    return path


def version() -> str | None:
    """The installed one's; None when it does not tell."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run([program(), "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GRACE_S)
        if found := VERSION.search(clean(told.stdout + told.stderr)):
            return found[1]
    return None


def listens(process: subprocess.Popen[str], tcp: bool, port: int) -> bool:
    """Whether the process's namespace has a socket there. sockperf prints nothing into a pipe before it ends, and to ask it would be
    one message more."""
    kind = "tcp" if tcp else "udp"
    for name in (kind, f"{kind}6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process.pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port and (not tcp or fields[3] == "0A"):
                    return True
    return False


def ended(process: subprocess.Popen[str]) -> str:
    """A server's output after ^C, which may have come before it was heard."""
    for _ in range(50):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=0.2)[0]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.communicate()[0]


@contextlib.contextmanager
def server(command: Sequence[str], tcp: bool, port: int) -> Iterator[subprocess.Popen[str]]:
    """sockperf's server, up; gone afterwards."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        deadline = time.monotonic() + READY_S
        while not listens(process, tcp, port):
            if process.poll() is not None:
                text = process.communicate()[0]
                raise UserError(complaint(text) or f"sockperf's server ended with status {process.returncode}")
            if time.monotonic() > deadline:
                raise UserError("sockperf's server did not come up")
            time.sleep(0.01)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        with contextlib.suppress(ValueError):
            process.communicate()


def options(arguments: argparse.Namespace, mode: str) -> list[str]:
    """What the client is told beside where the server is."""
    given: list[str] = []
    if mode == "playback":
        if not arguments.data_file:
            raise UserError("playback needs --data-file")
        given += ["--data-file", arguments.data_file]
    else:
        given += ["-t", f"{arguments.time:g}", "-m", str(arguments.msg_size)]
        given += ["--mps", arguments.mps] if arguments.mps else []
        given += ["-b", str(arguments.burst)] if arguments.burst else []
    if arguments.reply_every and mode != "throughput" and mode != "ping-pong":
        given += ["--reply-every", str(arguments.reply_every)]
    return given + split("--client-options", arguments.client_options)


def over(stack: str, veth: VethPair | None) -> list[str]:
    """What comes before sockperf."""
    if stack == "kernel":
        return []
    assert veth is not None
    options = ["--quiet", "--strict", "--preset", "latency", "--interfaces", f"xdp:device={veth.device}"]
    return module("pyvma", "run", *options, "--")


def address(arguments: argparse.Namespace, host: str, port: int, folder: Path) -> list[str]:
    """Where the server is, for both. Other ways to wait than recvfrom go by a file."""
    tcp = arguments.proto == "tcp"
    if arguments.style == "recvfrom":
        return ["-i", host, "-p", str(port), *(["--tcp"] if tcp else [])]
    file = folder / "feed"
    file.write_text(f"{'T' if tcp else 'U'}:{host}:{port}\n")
    return ["-f", str(file), "-F", arguments.style[0]]


def measure(arguments: argparse.Namespace, mode: str, veth: VethPair | None, stack: str = "kernel", *both: str) -> dict[str, Any]:
    """One run of both sides, with the options `both`."""
    tcp, path, pin = arguments.proto == "tcp", program(), cpus()
    host, port = (veth.hosts[0], VETH_PORT) if veth else (LOOPBACK, free_ports(LOOPBACK)[0])
    prefix = over(stack, veth)
    inside = [veth.inside(number) if veth else [] for number in (0, 1)]
    affinity = [["taskset", "-c", str(cpu)] if cpu is not None and shutil.which("taskset") else [] for cpu in pin]
    limit = arguments.time + GRACE_S if mode != "playback" else 3600.0
    with contextlib.ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        where = [*address(arguments, host, port, folder), *both]
        process = open_.enter_context(server([*inside[0], *affinity[0], *prefix, path, "server", *where], tcp, port))
        log = folder / "log.csv"
        more = [] if mode == "throughput" or "--full-log" in arguments.client_options else ["--full-log", str(log)]
        command = [*inside[1], *affinity[1], *prefix, path, mode, *where, *options(arguments, mode), *more]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=limit)
        except subprocess.TimeoutExpired:
            raise UserError("sockperf did not end") from None
        text = done.stdout + done.stderr
        # Its status is 0 after many an error.
        if done.returncode and not TOTAL.search(clean(text)) and not SENT.search(clean(text)):
            raise UserError(complaint(text) or f"sockperf ended with status {done.returncode}")
        if mode == "throughput" and not SENT.search(clean(text)):
            raise UserError(complaint(text) or "sockperf measured nothing")
        record = parse_client(text)
        if histogram := full_log(log):
            record["histogram_ns"] = histogram
        record["server_received"] = parse_server(ended(process))
    if mode == "throughput":
        record["lost"] = max(record["sent"] - record["server_received"], 0)
    return record


def combine(who: str, mode: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the figures, sums of the counts."""
    row: dict[str, Any] = {"who": who, "mode": mode}
    summed = {"sent", "received", "lost", "duplicated", "reordered", "observations", "server_received", "total_sent", "total_received"}
    for name in runs[0]:
        values = [run[name] for run in runs if name in run]
        if name == "histogram_ns":
            row[name] = _bench_hist.merged(values)
        elif name == "rtt":
            row[name] = values[0]
        else:
            row[name] = sum(values) if name in summed else statistics.median(values)
    row["runs"] = [{name: value for name, value in run.items() if name != "histogram_ns"} for run in runs]
    return row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command: sockperf's own names."""
    parser.add_argument(
        "mode", choices=[*MODES, "all"], nargs="?", default="ping-pong", help="sockperf's (default ping-pong); all: all but playback"
    )
    parser.add_argument(
        "--stack",
        choices=["kernel", "pyvma", "all"],
        default="kernel",
        help="whose sockets both sides have; pyvma: AF_XDP on the veth pair, by `pyvma run`; all: a table of ping-pongs by both, by the "
        "kernel's that do not block and by the bare ring",
    )
    parser.add_argument("--style", choices=STYLES, default="recvfrom", help="how sockperf waits (default recvfrom)")
    parser.add_argument("--wire", choices=["loopback", "veth"], default="loopback", help="where the two sides are (veth: needs root)")
    parser.add_argument("--proto", choices=["udp", "tcp"], default="udp", help="datagrams (default), or one connection")
    parser.add_argument("--tcp", dest="proto", action="store_const", const="tcp", help="as sockperf says --proto tcp")
    parser.add_argument("-t", "--time", type=seconds(0.001), default=1.0, help="whole seconds of a run (default 1)")
    parser.add_argument("-m", "--msg-size", type=int, default=64, help="bytes of a message, at least 14 (default 64)")
    parser.add_argument("--mps", help="messages a second, or max")
    parser.add_argument("-b", "--burst", type=int, help="messages at a time")
    parser.add_argument("--reply-every", type=int, help="under-load and playback: every so manieth message is answered")
    parser.add_argument("--data-file", metavar="FILE", help="playback: lines of seconds and sizes")
    parser.add_argument("--runs", type=int, default=1, help="figures are medians of so many (default 1)")
    parser.add_argument(
        "--client-options", metavar="TEXT", default="", help="what the client is told besides, as in --client-options='--full-rtt'"
    )
    _bench_output.add_arguments(parser, plots=True, hdr=True)


def table(report: dict[str, Any]) -> Table:
    """A line a mode."""
    size = f"{report['size']} bytes" if report["size"] else "sizes of the file"
    stack = {"kernel": "kernel sockets", "pyvma": "pyvma's stack by AF_XDP"}[report["stack"]]
    title = f"sockperf, {report['proto'].upper()}, {size}, {stack}, {report['ring']}; latency in µs"
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    out.add_column("mode", no_wrap=True)
    for name in ("avg", "p50", "p99", "p99.9", "messages/s", "MB/s", "sent", "answered or taken", "lost", "duplicated", "reordered"):
        out.add_column(name, justify="right", no_wrap=True)
    for row in report["rows"]:
        figures = [microseconds(row[name]) if name in row else "-" for name in ("avg_us", "p50_us", "p99_us", "p99.9_us")]
        width = f"{row['bandwidth_mbytes']:,.1f}" if "bandwidth_mbytes" in row else "-"
        counts = [f"{row['sent']:,}", f"{row.get('received', row['server_received']):,}"]
        counts += [f"{row[name]:,}" if name in row else "-" for name in ("lost", "duplicated", "reordered")]
        out.add_row(row["mode"], *figures, f"{row['rate_mps']:,.0f}", width, *counts)
    return out


def ladder(row: dict[str, Any]) -> Iterator[str]:
    """The percentiles in sockperf's words and order."""
    yield f"---> <MAX> observation = {row['max_us']:8.3f}"
    for step in reversed(_bench_hist.LADDER):
        yield f"---> percentile {step:6.3f} = {row[f'p{step:g}_us']:8.3f}"
    yield f"---> <MIN> observation = {row['min_us']:8.3f}"


def show(console: Console, report: dict[str, Any]) -> None:
    """Prints the report."""
    console.print(_bench_host.said(report["host"]), highlight=False)
    console.print(table(report))
    if len(report["rows"]) == 1 and "p50_us" in report["rows"][0]:
        for line in ladder(report["rows"][0]):
            console.print(line, highlight=False, markup=False)
    _bench_host.show_distance(console, report["cache_line_ns"])


def plots(report: dict[str, Any]) -> Iterable[_bench_plot.Plot]:
    """The distributions of all modes that have one."""
    found, stem = _bench_output.distributions(report), _bench_output.stem_of(report)
    title = f"sockperf, {report['proto'].upper()}, {report['ring']}"
    figures = "round trip" if any(row.get("rtt") for row in report["rows"]) else "half round trip"
    yield _bench_plot.cdf(stem, f"{title}: distribution of {figures}s", found, figures)
    yield _bench_plot.percentiles(stem, f"{title}: {figures}s by percentile", found, figures)


def split(option: str, text: str) -> list[str]:
    """As a shell takes them apart. UserError: a quotation that does not end."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{option}: {str(error).lower()}") from None


def check(arguments: argparse.Namespace) -> None:
    """Before anything runs."""
    split("--client-options", arguments.client_options)
    if arguments.stack != "kernel":
        arguments.wire = "veth"
        if not library().exists():
            raise UserError("sockperf over pyvma's sockets needs the preload library, which was not built; --stack kernel works")
    if arguments.stack == "all" and arguments.mode != "ping-pong":
        raise UserError("--stack all is for ping-pong")
    if arguments.time < 1 or arguments.time != int(arguments.time):
        raise UserError("--time: sockperf takes whole seconds, 1 at least")
    if arguments.msg_size < 14 or arguments.runs < 1:
        raise UserError("--msg-size has to be 14 (the header) at least, --runs above 0")
    if arguments.mode == "playback" and arguments.data_file and not Path(arguments.data_file).is_file():
        raise UserError(f"--data-file: there is no file {arguments.data_file}")
    _bench_output.check(arguments)
    program()


def run(arguments: argparse.Namespace) -> int:
    """Runs sockperf and prints."""
    check(arguments)
    if arguments.stack == "all":
        from . import _bench_sockperf_rows

        return _bench_sockperf_rows.run(arguments)
    modes = [mode for mode in MODES if mode != "playback"] if arguments.mode == "all" else [arguments.mode]
    report = _bench_output.head("sockperf", arguments) | {"host": _bench_host.host(), "run_count": arguments.runs}
    report |= {"sockperf": version(), "stack": arguments.stack, "ring": arguments.wire, "proto": arguments.proto, "seconds": arguments.time}
    report["size"] = None if arguments.mode == "playback" else arguments.msg_size
    floors: list[float | None] = []
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    with VethPair() if arguments.wire == "veth" else contextlib.nullcontext() as veth:
        for _ in range(arguments.runs):
            floors.append(_bench_host.line(0.2))
            for mode in modes:
                runs[mode].append(measure(arguments, mode, veth, arguments.stack))
    report["rows"] = [combine(f"sockperf-{mode}" if len(modes) > 1 else "sockperf", mode, runs[mode]) for mode in modes]
    report["cache_line_ns"] = _bench_host.distance(floors)
    return _bench_output.deliver(report, arguments, lambda console: show(console, report), draw=plots)
