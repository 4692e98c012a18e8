"""`pyvma bench`: round trips and rates, by hand between two terminals or all ways compared.

Messages have sockperf's header (sequence number 64 bits, flags 16, length 32, big-endian), so `sockperf` itself may be the peer of
`server`, `ping-pong` and `throughput` over kernel sockets.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import signal
import subprocess
from typing import Any

from . import UserError, _bench_compare, _bench_connections, _bench_gil, _bench_mixed, _bench_sockperf, _bench_sweep
from ._bench_run import Peer, c_command, running

LADDER = ("99.999", "99.99", "99.9", "99", "90", "75", "50", "25")
PREFIX = "pyvma bench:"
KINDS: dict[str, Any] = {
    "compare": _bench_compare,
    "sweep": _bench_sweep,
    "sockperf": _bench_sockperf,
    "connections": _bench_connections,
    "mixed": _bench_mixed,
    "gil": _bench_gil,
}


def add_parser(commands: Any) -> None:
    """Adds the command."""
    bench = commands.add_parser("bench", help="measure round trips and message rates", description=__doc__.splitlines()[0])
    kinds = bench.add_subparsers(dest="kind", metavar="KIND", required=True)
    server = kinds.add_parser("server", help="answers (TCP: one connection); stop it with ^C")
    ping_pong = kinds.add_parser("ping-pong", help="half round trips to a server")
    throughput = kinds.add_parser("throughput", help="one-way message rate to a server")
    for parser in (server, ping_pong, throughput):
        parser.add_argument("-i", "--ip", default="127.0.0.1", help="the server's address (default 127.0.0.1)")
        parser.add_argument("-p", "--port", type=int, default=11111, help="the server's port (default 11111)")
        parser.add_argument(
            "--interface", metavar="SPEC", help="go through pyvma on this interface, e.g. softnic:fabric=demo,port=0,addr=10.9.0.1/24"
        )
        parser.add_argument("--stack", choices=["pyvma", "kernel"], help="default: pyvma when an interface is configured, else the kernel")
        parser.add_argument(
            "--proto", choices=["udp", "tcp"], default="udp", help="datagrams (default), or one connection with TCP_NODELAY"
        )
        parser.add_argument("--tcp", dest="proto", action="store_const", const="tcp", help="as sockperf says --proto tcp")
        parser.add_argument("--spin", action="store_true", help="kernel: ask again and again instead of sleeping")
        parser.add_argument("--block", action="store_true", help="pyvma: sleep instead of polling")
        parser.add_argument("--cpu", type=int, help="run on this CPU")
    for parser in (ping_pong, throughput):
        parser.add_argument("-t", "--time", type=float, default=1.0, help="seconds (default 1)")
        parser.add_argument("-m", "--msg-size", type=int, default=64, help="bytes of a message, at least 14 (default 64)")
    throughput.add_argument("--batch", type=int, default=32, help="messages in one call, 1 to 64 (default 32)")
    throughput.add_argument("--window", type=int, default=0, help="messages under way at most; 0: send blindly, as sockperf (default)")
    compare = kinds.add_parser(
        "compare", help="raw ring, pyvma and the kernel, from C and Python, in one table", description=_bench_compare.__doc__
    )
    _bench_compare.add_arguments(compare)
    sweep = kinds.add_parser("sweep", help="over sizes, rates or numbers of connections", description=_bench_sweep.__doc__)
    _bench_sweep.add_arguments(sweep)
    sockperf = kinds.add_parser("sockperf", help="the real sockperf, both sides, in the same records", description=_bench_sockperf.__doc__)
    _bench_sockperf.add_arguments(sockperf)
    many = kinds.add_parser("connections", help="memory, latency and rates of many TCP connections", description=_bench_connections.__doc__)
    _bench_connections.add_arguments(many)
    mixed = kinds.add_parser("mixed", help="short requests beside a bulk stream, against each alone", description=_bench_mixed.__doc__)
    _bench_mixed.add_arguments(mixed)
    gil = kinds.add_parser("gil", help="an echo server beside a busy Python thread", description=_bench_gil.__doc__)
    _bench_gil.add_arguments(gil)


def endpoint(ip: str, port: int) -> str:
    """ADDRESS:PORT as the C program takes it."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        raise UserError(f"--ip: {ip!r} is no address") from None
    if not 0 < port < 65536:
        raise UserError("--port has to be from 1 to 65535")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def command(arguments: argparse.Namespace) -> tuple[list[str], str]:
    """The C program's command line and how the stack is called in the report."""
    stack = arguments.stack or ("pyvma" if arguments.interface or os.environ.get("PYVMA_INTERFACES") else "kernel")
    if stack == "kernel" and arguments.interface:
        raise UserError("--interface is for --stack pyvma")
    sleeps = arguments.block if stack == "pyvma" else not arguments.spin
    options: dict[str, Any] = {"interfaces": arguments.interface, "block": sleeps, "tcp": arguments.proto == "tcp"}
    where = endpoint(arguments.ip, arguments.port)
    if arguments.kind == "server":
        options["local"] = where
    else:
        options |= {"remote": where, "seconds": arguments.time, "size": arguments.msg_size}
    if arguments.kind == "server" and arguments.proto == "tcp":
        # What is there, by one call: the messages of a throughput client follow each other without a gap.
        options["batch"] = 2
    if arguments.kind == "throughput":
        if arguments.window and arguments.window < 2 * arguments.batch:
            raise UserError("--window has to be at least twice --batch")
        options |= {"batch": arguments.batch, "window": arguments.window}
    return c_command(arguments.kind, stack, arguments.cpu, **options), f"{stack}, {'sleeping' if sleeps else 'polling'}"


def say(text: str) -> None:
    print(PREFIX, text, flush=True)


def report_latency(result: dict[str, Any]) -> None:
    """Half round trips in sockperf's words and order."""
    say(f"[Total Run] RunTime={result['seconds']:.3f} sec; SentMessages={result['sent']}; ReceivedMessages={result['received']}")
    if not result.get("observations"):
        raise UserError("nothing was measured")
    say(f"====> avg-latency={result['avg_us']:.3f} (std-dev={result['stddev_us']:.3f})")
    say(
        f"# dropped messages = {result['lost']}; # duplicated messages = {result['duplicated']}; "
        f"# out-of-order messages = {result['reordered']}"
    )
    say(f"Summary: Latency is {result['avg_us']:.3f} usec")
    say(f"Total {result['observations']} observations; each percentile contains {result['observations'] / 100:.2f} observations")
    say(f"---> <MAX> observation = {result['max_us']:8.3f}")
    for step in LADDER:
        say(f"---> percentile {float(step):6.3f} = {result[f'p{step}_us']:8.3f}")
    say(f"---> <MIN> observation = {result['min_us']:8.3f}")


def report_throughput(result: dict[str, Any]) -> None:
    """Rate in sockperf's words."""
    rate = result["sent"] / result["seconds"] if result["seconds"] else 0.0
    bandwidth = rate * result["size"] / (1 << 20)
    say(f"Total of {result['sent']} messages sent in {result['seconds']:.3f} sec")
    say(f"Summary: Message Rate is {rate:.0f} [msg/sec]")
    say(f"Summary: BandWidth is {bandwidth:.3f} MBps ({bandwidth * 8:.3f} Mbps), {rate * result['size'] * 8 / 1e9:.2f} Gbit/s")


def serve(arguments: argparse.Namespace) -> int:
    """Until ^C or SIGTERM."""
    line, how = command(arguments)
    stopped = []
    with running(Peer(line)) as peer:
        peer.ready()
        say(f"[SERVER] listen on: IP = {arguments.ip}  PORT = {arguments.port} # {arguments.proto.upper()} ({how})")
        before = [signal.signal(number, lambda number, frame: stopped.append(number)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            while not stopped and peer.process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    peer.process.wait(0.2)
            result = peer.stop() if stopped else peer.result(0)
        finally:
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
                signal.signal(number, handler)
    say(f"Total {result['received']} messages received and handled")
    say(
        f"# dropped messages = {result['lost']}; # duplicated messages = {result['duplicated']}; "
        f"# out-of-order messages = {result['reordered']}"
    )
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Runs the kind asked for."""
    if arguments.kind in KINDS:
        status: int = KINDS[arguments.kind].run(arguments)
        return status
    if arguments.kind == "server":
        return serve(arguments)
    line, how = command(arguments)
    say(f"[CLIENT] send on: IP = {arguments.ip}  PORT = {arguments.port} # {arguments.proto.upper()} ({how})")
    with running(Peer(line)) as peer:
        result = peer.result(arguments.time)
    (report_latency if arguments.kind == "ping-pong" else report_throughput)(result)
    return 0
