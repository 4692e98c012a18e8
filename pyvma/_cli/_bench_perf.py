"""`pyvma bench ping-pong`, `under-load`, `throughput`, `playback` and `server`: sockperf's modes, messages, options and words.

Either side may be sockperf itself. The same program measures pyvma's sockets and, with --kernel, the kernel's.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from . import UserError, _bench_host, _bench_output, _bench_plot, module
from ._bench_run import Peer, c_command, running
from ._help import seconds

LADDER = ("99.999", "99.99", "99.9", "99", "90", "75", "50", "25")
PREFIX = "pyvma bench:"
CLIENTS = ("ping-pong", "under-load", "throughput", "playback")
KINDS = (*CLIENTS, "server")
STYLES = {"r": "recvfrom", "recvfrom": "recvfrom", "b": "recv_batch", "recv_batch": "recv_batch", "s": "select", "select": "select"}
STYLES |= {"p": "poll", "poll": "poll", "e": "epoll", "epoll": "epoll", "a": "asyncio", "asyncio": "asyncio"}
PLAYED_S = 86400.0
"""A file may last so long."""

HELP = {
    "ping-pong": "half round trips, a message after the other",
    "under-load": "half round trips at a rate",
    "throughput": "messages one way",
    "playback": "half round trips of traffic in a file",
    "server": "answers clients; stop it with ^C",
}

DUE = """\
Messages leave by a timetable that does not wait for replies: one that the sender is late with is sent as soon as it can be, and none is
left out. Latencies are printed twice: from when a message was sent, as sockperf prints them, and from when it was due. A sender
that is held up for a millisecond sends ten messages late at 10,000 a second; the first figure says nothing of their delay, which a user
of the service would see (coordinated omission); the second one holds it.
"""

EXAMPLES = {
    "ping-pong": """\
examples:
  pyvma bench ping-pong -i 10.0.0.2 -t 5 --kernel           kernel sockets, against `sockperf server` or `pyvma bench server`
  pyvma bench ping-pong -i 10.0.0.2 --interface xdp:device=eth0 --tcp -m 1000
  pyvma bench ping-pong -f feed -F epoll --full-log log.csv   every endpoint in turn
""",
    "under-load": """\
examples:
  pyvma bench under-load -i 10.0.0.2 --mps 50000 --reply-every 10 --kernel
  pyvma bench under-load -i 239.1.1.1 --mps 1000 --mc-tx-if 10.0.0.1 --interface xdp:device=eth0
""",
    "throughput": """\
examples:
  pyvma bench throughput -i 10.0.0.2 -m 1472 -t 5 --interface xdp:device=eth0
  pyvma bench throughput -i 10.0.0.2 --mps 100000 --range 32 --kernel
  pyvma bench throughput -i 10.0.0.2 --batch 32 --window 512      as `compare` does it: batches, and nothing is lost
""",
    "playback": """\
examples:
  printf '0.0, 64\\n0.5, 1000\\n0.51, 64\\n' > traffic.csv        seconds, bytes
  pyvma bench playback -i 10.0.0.2 --data-file traffic.csv --reply-every 1 --kernel
""",
    "server": """\
examples:
  pyvma bench server -i 10.0.0.2 --interface xdp:device=eth0   and elsewhere: sockperf ping-pong -i 10.0.0.2
  pyvma bench server -f feed -F poll --kernel                  a line of the file: [T:|U:]ADDRESS:PORT
""",
}


def add_common(parser: argparse.ArgumentParser, kind: str) -> None:
    """Options of both sides."""
    add = parser.add_argument
    add("-i", "--ip", default="127.0.0.1", help="the server's address, or a group's (default 127.0.0.1)")
    add("-p", "--port", type=int, default=11111, help="the server's port (default 11111)")
    add("-f", "--file", metavar="FILE", help="endpoints, one a line, as sockperf's: [T:|U:]ADDRESS:PORT; IPv6 in brackets")
    add("-F", "--iomux-type", choices=sorted(STYLES), metavar="STYLE", help=f"{styles(kind)} (default: epoll with --file, else recvfrom)")
    add("--interface", metavar="SPEC", help="go through pyvma on this interface, e.g. softnic:fabric=demo,port=0,addr=10.9.0.1/24")
    add("--stack", choices=["pyvma", "kernel"], help="default: pyvma when an interface is configured, else the kernel")
    add("--kernel", dest="stack", action="store_const", const="kernel", help="as --stack kernel")
    add("--proto", choices=["udp", "tcp"], default="udp", help="datagrams (default), or connections with TCP_NODELAY")
    add("--tcp", dest="proto", action="store_const", const="tcp", help="as sockperf says --proto tcp")
    add("--spin", "--nonblocked", action="store_true", help="kernel: ask again and again instead of sleeping")
    add("--block", action="store_true", help="pyvma: sleep instead of polling")
    add("--cpu", type=int, help="run on this CPU")
    add("--buffer-size", type=int, metavar="BYTES", help="SO_RCVBUF and SO_SNDBUF (default: the system's)")
    add("--rate-limit", type=int, metavar="BYTES", help="pacing: bytes a second that a socket may send (SO_MAX_PACING_RATE)")
    add("--mc-rx-if", metavar="IF", help="groups: address or name of the interface that joins")
    add("--mc-tx-if", metavar="IF", help="groups: address or name of the interface that sends")
    add("--mc-ttl", type=int, metavar="N", help="groups: hops that a message lives (default 2)")
    add("--mc-loopback-enable", action="store_true", help="groups: messages are received on this host, too")
    add("--tcp-avoid-nodelay", action="store_true", help="TCP_NODELAY the other way round: it is off in throughput only, as in sockperf")
    latency = kind not in ("server", "throughput")
    _bench_output.add_arguments(parser, plots=latency, hdr=latency)


def add_figures(parser: argparse.ArgumentParser, kind: str) -> None:
    """Options of a client."""
    add = parser.add_argument
    if kind != "playback":
        add("-t", "--time", type=seconds(0.001), default=1.0, help="seconds (default 1)")
        add("-m", "--msg-size", type=int, default=64, help="bytes of a message, at least 14 (default 64)")
        add("-r", "--range", type=int, metavar="N", help="sizes at random from --msg-size less N to --msg-size and N")
        add("-b", "--burst", type=int, metavar="N", help="messages at a time (default 1)")
        add("--mps", "--pps", metavar="N", help=f"messages a second, or max (default {'10000' if kind == 'under-load' else 'max'})")
    if kind in ("under-load", "playback"):
        add("--reply-every", type=int, metavar="N", help="every Nth message is answered (default 100)")
    if kind == "playback":
        add("--data-file", metavar="FILE", required=True, help='lines of "SECONDS, BYTES", as sockperf\'s')
    add("--sender-affinity", type=int, metavar="CPU", help="the thread that sends runs there")
    add(
        "--receiver-affinity",
        type=int,
        metavar="CPU",
        help="the thread that receives, where it is another: sleeping sockets with a timetable",
    )
    add("--connect", action="store_true", help="UDP: connected sockets (default: an address with each message, as sockperf)")
    add("--client_ip", metavar="ADDRESS", help="bind to this address")
    add("--client_port", type=int, metavar="PORT", help="bind to this port")
    if kind != "playback":
        parts = ("0", "0") if kind == "throughput" else ("400; 40 %% of a shorter run than 1 s", "50; 5 %%")
        add("--warmup-ms", type=int, metavar="N", help=f"first part, not in the figures (default {parts[0]})")
        add("--cooldown-ms", type=int, metavar="N", help=f"last part, not in the figures (default {parts[1]})")
    if kind == "throughput":
        return
    add("--data-integrity", action="store_true", help="compare every reply with what was sent")
    add("--full-rtt", action="store_true", help="round trips; default: half of them, as sockperf prints")
    add("--full-log", metavar="FILE", help="every answered message with its times, in sockperf's columns")


def styles(kind: str) -> str:
    """What -F takes."""
    text = "how to wait for sockets: r recvfrom, b recv_batch, s select, p poll, e epoll"
    return text + ", a asyncio" if kind == "server" else text


def add_parsers(kinds: Any) -> None:
    """The five commands."""
    for kind in KINDS:
        parser = kinds.add_parser(
            kind,
            help=HELP[kind],
            description=f"{HELP[kind]}.\n\n{DUE if kind in ('under-load', 'playback') else ''}",
            epilog=EXAMPLES[kind],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_common(parser, kind)
        if kind == "server":
            parser.add_argument("--force-unicast-reply", action="store_true", help="groups: answer who asked, not the group")
            parser.add_argument("--dont-reply", action="store_true", help="answer nobody")
        else:
            add_figures(parser, kind)
        if kind == "throughput":
            parser.add_argument("--batch", type=int, metavar="N", help="messages in one call, 1 to 64, to a server over one socket")
            parser.add_argument("--window", type=int, metavar="N", help="messages under way at most, to a server over one socket")


def endpoint(ip: str, port: int) -> str:
    """ADDRESS:PORT as the C program takes it."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        raise UserError(f"--ip: {ip!r} is no address") from None
    if not 0 < port < 65536:
        raise UserError("--port has to be from 1 to 65535")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def local(arguments: argparse.Namespace) -> str | None:
    """What a client binds to."""
    ip, port = arguments.client_ip, arguments.client_port
    if ip is None and port is None:
        return None
    any_address = "::" if ":" in arguments.ip else "0.0.0.0"
    try:
        address = ipaddress.ip_address(ip or any_address)
    except ValueError:
        raise UserError(f"--client_ip: {ip!r} is no address") from None
    if not 0 <= (port or 0) < 65536:
        raise UserError("--client_port has to be from 0 to 65535")
    return f"[{address}]:{port or 0}" if address.version == 6 else f"{address}:{port or 0}"


def chosen(arguments: argparse.Namespace) -> tuple[str, bool]:
    """The stack, and whether it sleeps."""
    stack = arguments.stack or ("pyvma" if arguments.interface or os.environ.get("PYVMA_INTERFACES") else "kernel")
    if stack == "kernel" and arguments.interface:
        raise UserError("--interface is for --stack pyvma")
    return stack, arguments.block if stack == "pyvma" else not arguments.spin


def batched(arguments: argparse.Namespace, stack: str, sleeps: bool) -> list[str]:
    """The one-way load of `compare`: batches and a window, over one socket."""
    beyond = ("file", "iomux_type", "range", "burst", "mps", "connect", "client_ip", "client_port", "buffer_size", "rate_limit")
    for name in beyond:
        if getattr(arguments, name) not in (None, False):
            raise UserError(f"--batch and --window do not go with --{name.replace('_', '-')}")
    batch, window = 32 if arguments.batch is None else arguments.batch, arguments.window or 0
    if window and window < 2 * batch:
        raise UserError("--window has to be at least twice --batch")
    options: dict[str, Any] = {"interfaces": arguments.interface, "block": sleeps, "tcp": arguments.proto == "tcp"}
    options |= {"remote": endpoint(arguments.ip, arguments.port), "seconds": arguments.time, "size": arguments.msg_size}
    return c_command("throughput", stack, arguments.cpu, **options, batch=batch, window=window)


def command(arguments: argparse.Namespace) -> tuple[list[str], str]:
    """The command line of what measures, and how the stack is called in the report."""
    stack, sleeps = chosen(arguments)
    how = f"{stack}, {'sleeping' if sleeps else 'polling'}"
    if arguments.kind == "throughput" and (arguments.batch is not None or arguments.window):
        return batched(arguments, stack, sleeps), how
    style = STYLES[arguments.iomux_type] if arguments.iomux_type else None
    where = endpoint(arguments.ip, arguments.port)
    options: dict[str, Any] = {"interfaces": arguments.interface, "block": sleeps, "style": style}
    options |= {"file": arguments.file} if arguments.file else {"end": f"{'T' if arguments.proto == 'tcp' else 'U'}:{where}"}
    for name in ("buffer_size", "rate_limit", "mc_rx_if", "mc_tx_if", "mc_ttl", "mc_loopback_enable", "tcp_avoid_nodelay"):
        options[name] = getattr(arguments, name)
    if arguments.kind == "server":
        if style == "asyncio":
            return asyncio_command(arguments, stack, sleeps, where), how
        options |= {"force_unicast_reply": arguments.force_unicast_reply, "dont_reply": arguments.dont_reply}
        return c_command("serve", stack, arguments.cpu, **options), how
    if style == "asyncio":
        raise UserError("--iomux-type asyncio is the server's")
    given = vars(arguments)
    options |= {"mode": arguments.kind, "seconds": given.get("time"), "size": given.get("msg_size"), "local": local(arguments)}
    names = ("range", "burst", "mps", "reply_every", "data_file", "connect", "data_integrity", "full_rtt", "full_log")
    for name in (*names, "warmup_ms", "cooldown_ms", "sender_affinity", "receiver_affinity"):
        options[name] = given.get(name)
    options["histogram"] = any(given.get(name) for name in ("json", "plot", "hdr"))
    return c_command("client", stack, arguments.cpu, **options), how


def asyncio_command(arguments: argparse.Namespace, stack: str, sleeps: bool, where: str) -> list[str]:
    """The Python server's."""
    if arguments.file:
        raise UserError("--iomux-type asyncio serves one endpoint")
    if ipaddress.ip_address(arguments.ip).is_multicast:
        raise UserError("--iomux-type asyncio serves no groups")
    ends = [[arguments.proto == "tcp", arguments.ip, arguments.port]]
    task = {"ends": ends, "ours": stack == "pyvma", "interface": arguments.interface, "block": sleeps, "cpu": arguments.cpu}
    return module("pyvma._cli._bench_perf_async", json.dumps({**task, "reply": not arguments.dont_reply}))


# ---- in sockperf's words -------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(PREFIX, text, flush=True)


def report_counts(result: dict[str, Any], lost: str = "lost") -> None:
    """Messages that something happened to."""
    say(
        f"# dropped messages = {result[lost]}; # duplicated messages = {result['duplicated']}; "
        f"# out-of-order messages = {result['reordered']}"
    )
    if result.get("corrupt"):
        say(f"# replies that were not what was sent = {result['corrupt']}")
    if result.get("malformed"):
        say(f"# packets that were no messages = {result['malformed']}")


def report_ladder(result: dict[str, Any], prefix: str) -> None:
    """The percentiles, highest first."""
    observations = result[f"{prefix}observations"]
    say(f"Total {observations} observations; each percentile contains {observations / 100:.2f} observations")
    say(f"---> <MAX> observation = {result[f'{prefix}max_us']:8.3f}")
    for step in LADDER:
        say(f"---> percentile {float(step):6.3f} = {result[f'{prefix}p{step}_us']:8.3f}")
    say(f"---> <MIN> observation = {result[f'{prefix}min_us']:8.3f}")


def report_latency(result: dict[str, Any]) -> None:
    """Half round trips, or whole ones, in sockperf's words and order."""
    what = "rtt" if result["figures"] == "round trip" else "latency"
    say(
        f"[Total Run] RunTime={result['seconds']:.3f} sec; Warm up time={result['warmup_ms']:.0f} msec; "
        f"SentMessages={result['sent']}; ReceivedMessages={result['received']}"
    )
    if not result.get("observations"):
        raise UserError("nothing was measured: a longer --time or a smaller --reply-every is needed")
    seconds, sent, received = result["valid_seconds"], result["valid_sent"], result["valid_received"]
    say(f"[Valid Duration] RunTime={seconds:.3f} sec; SentMessages={sent}; ReceivedMessages={received}")
    say(f"====> avg-{what}={result['avg_us']:.3f} (std-dev={result['stddev_us']:.3f})")
    report_counts(result, "dropped")
    say(f"Summary: {'Round trip' if what == 'rtt' else 'Latency'} is {result['avg_us']:.3f} usec")
    report_ladder(result, "")
    if result.get("due_observations"):
        say(f"====> from when each message was due: avg-{what}={result['due_avg_us']:.3f} (std-dev={result['due_stddev_us']:.3f})")
        report_ladder(result, "due_")


def report_throughput(result: dict[str, Any]) -> None:
    """Rate in sockperf's words."""
    rate = result.get("rate_mps", result["sent"] / result["seconds"] if result["seconds"] else 0.0)
    bandwidth = rate * result["size"] / (1 << 20)
    say(f"Total of {result['sent']} messages sent in {result['seconds']:.3f} sec")
    say(f"Summary: Message Rate is {rate:.0f} [msg/sec]")
    say(f"Summary: BandWidth is {bandwidth:.3f} MBps ({bandwidth * 8:.3f} Mbps), {rate * result['size'] * 8 / 1e9:.2f} Gbit/s")


def report_server(result: dict[str, Any]) -> None:
    """What a server had."""
    say(f"Total {result['received']} messages received and handled")
    report_counts(result)


# ---- running -------------------------------------------------------------------------------------------------------------


def quiet(arguments: argparse.Namespace) -> bool:
    """Whether standard output is for a program."""
    return "-" in (arguments.json, arguments.csv)


def plots(report: dict[str, Any]) -> Iterator[_bench_plot.Plot]:
    """The distributions of latencies."""
    found, stem = _bench_output.distributions(report), _bench_output.stem_of(report)
    figures = report["rows"][0]["figures"]
    what = f"{report['kind']}, {report['proto'].upper()}, {report['size']} bytes: {figures}s"
    yield _bench_plot.cdf(stem, f"{what}, distribution", found, figures)
    yield _bench_plot.percentiles(stem, f"{what} by percentile", found, figures)


def deliver(arguments: argparse.Namespace, how: str, result: dict[str, Any], show: Callable[[dict[str, Any]], None]) -> int:
    """The figures in words, or as a file. 0."""
    stack, _, waits = how.partition(", ")
    ends = arguments.file or endpoint(arguments.ip, arguments.port)
    row = {"who": f"{stack}-c", "stack": stack, "waits": waits, "ends": ends, **result}
    report = _bench_output.head(arguments.kind, arguments) | {"host": _bench_host.host(), "rows": [row]}
    report |= {"proto": arguments.proto, "size": result.get("size"), "seconds": result["seconds"]}
    return _bench_output.deliver(report, arguments, lambda console: show(result), draw=plots)


def announce(arguments: argparse.Namespace, how: str) -> None:
    """Where it goes."""
    if quiet(arguments):
        return
    side = "[SERVER] listen on" if arguments.kind == "server" else "[CLIENT] send on"
    if arguments.file:
        say(f"{side}: the endpoints in {arguments.file} ({how})")
    else:
        say(f"{side}: IP = {arguments.ip}  PORT = {arguments.port} # {arguments.proto.upper()} ({how})")


def serve(arguments: argparse.Namespace) -> int:
    """Until ^C or SIGTERM."""
    line, how = command(arguments)
    stopped = []
    with running(Peer(line)) as peer:
        peer.ready()
        before = [signal.signal(number, lambda number, frame: stopped.append(number)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            announce(arguments, how)
            while not stopped and peer.process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    peer.process.wait(0.2)
            result = peer.stop() if stopped else peer.result(0)
        finally:
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
                signal.signal(number, handler)
    return deliver(arguments, how, result, report_server)


def run(arguments: argparse.Namespace) -> int:
    """Runs the kind asked for."""
    _bench_output.check(arguments)
    if arguments.kind == "server":
        return serve(arguments)
    line, how = command(arguments)
    announce(arguments, how)
    with running(Peer(line)) as peer:
        result = peer.result(PLAYED_S if arguments.kind == "playback" else arguments.time)
    return deliver(arguments, how, result, report_throughput if arguments.kind == "throughput" else report_latency)
