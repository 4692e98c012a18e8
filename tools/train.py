"""Has an instrumented build count what runs for a packet: pairs of processes of pyvma-bench, over the software NIC (cmake/pgo.cmake).

    python tools/train.py INSTRUMENTED BUILD

INSTRUMENTED is the build's directory; the counts of its object files (.gcda) go to the same places under BUILD. It is part of a build, so
it needs nothing but the standard library and no privilege. A machine where it does not work (no shared memory, no time) builds without
counts: this says so and leaves none.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SECONDS = 0.4
LIMIT_S = 60.0
HOSTS = ("10.99.0.1", "10.99.0.2")
ENDS = (f"{HOSTS[0]}:9000", f"{HOSTS[1]}:9001")
ORDERS = "open 64\nping 0.2\nchurn 300 1\nchurn 300 8\nclose\nquit\n"
"""For `pyvma-bench connections` (native/bench/conns.h)."""


def environment(instrumented: Path, build: Path, fabric: str, number: int, preload: bool) -> dict[str, str]:
    settings = {
        "LD_LIBRARY_PATH": str(instrumented),
        "GCOV_PREFIX": str(build),
        "GCOV_PREFIX_STRIP": str(len(instrumented.parts) - 1),
        "PYVMA_SOFTNIC_LIB": str(instrumented / "libpyvma-softnic.so"),
        "PYVMA_INTERFACES": f"softnic:fabric={fabric},port={number},addr={HOSTS[number]}/24",
        "PYVMA_PRESET": "latency",
        # Half of them as over AF_XDP, which leaves checksums to the stack.
        "PYVMA_NO_CSUM_OFFLOAD": str(int(preload)),
    }
    if preload:
        settings["LD_PRELOAD"] = str(instrumented / "libpyvma_preload.so")
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYVMA_", "VMA_", "LD_", "GCOV_"))} | settings


def pair(instrumented: Path, build: Path, lines: Sequence[list[str]], preload: bool, orders: str = "") -> None:
    """A server and a client, by their command lines. Both end by themselves or by SIGTERM, as they write their counts when they exit."""
    cpus = sorted(os.sched_getaffinity(0))
    fabric = f"train{secrets.token_hex(5)}"
    running: list[subprocess.Popen[str]] = []
    try:
        for number, line in enumerate(lines):
            command = [str(instrumented / "pyvma-bench"), *line]
            if "connections" not in line:
                command += ["--cpu", str(cpus[number % len(cpus)])]
            env = environment(instrumented, build, fabric, number, preload)
            process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            running.append(process)
            if number == 0:
                # Its line when it is up; it may end, or hang, before that.
                ready, _, _ = select.select([process.stdout], [], [], LIMIT_S)
                if not ready or not process.stdout.readline():  # type: ignore[union-attr]
                    raise ValueError(f"{' '.join(line)}: does not get ready")
        server, client = running
        client.communicate(orders, timeout=LIMIT_S)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=LIMIT_S)
        for process, line in zip(running, lines, strict=True):
            if process.returncode:
                raise ValueError(f"{' '.join(line)}: status {process.returncode}")
    finally:
        for process in running:
            process.kill()
            process.communicate()
        for left in Path("/dev/shm").glob(f"pyvma-softnic-*-{fabric}*"):
            left.unlink(missing_ok=True)


def train(instrumented: Path, build: Path) -> None:
    """Datagrams and streams, one at a time and in numbers, by the engine's own interface and by the C library's, preloaded."""
    for preload in (False, True):
        transport = ["--transport", "kernel" if preload else "pyvma"]
        client = [*transport, "--seconds", str(SECONDS)]

        for proto in ([], ["--tcp"]):
            there = ["server", *transport, *proto, "--local", ENDS[0], "--remote", ENDS[1]]
            here = [*client, *proto, "--local", ENDS[1], "--remote", ENDS[0]]
            pair(instrumented, build, (there, ["ping-pong", *here]), preload)
            pair(instrumented, build, (there, ["throughput", *here]), preload)
            pair(instrumented, build, ([*there, "--block"], ["ping-pong", *here, "--block"]), preload)
        bulk = ["--tcp", "--local", ENDS[1], "--remote", ENDS[0], "--size", "65536"]
        there = ["server", *transport, "--tcp", "--local", ENDS[0], "--remote", ENDS[1], "--size", "65536"]
        pair(instrumented, build, (there, ["throughput", *client, *bulk]), preload)
        for kind in "UT":
            for style in ("recvfrom", "epoll"):
                ends = ["--style", style, "--end", f"{kind}:{ENDS[0]}"]
                pair(instrumented, build, (["serve", *transport, *ends], ["client", "--mode", "ping-pong", *client, *ends]), preload)
        many = (["connections", *transport, "--local", ENDS[0]], ["connections", *transport, "--remote", ENDS[0]])
        pair(instrumented, build, many, preload, ORDERS)


def main() -> int:
    instrumented, build = (Path(name).resolve() for name in sys.argv[1:])
    # Of an older build.
    for count in build.glob("CMakeFiles/**/*.gcda"):
        count.unlink()
    try:
        train(instrumented, build)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"train: built without a profile: {error}", file=sys.stderr)
        for count in build.glob("CMakeFiles/**/*.gcda"):
            count.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
