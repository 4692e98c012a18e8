"""`pyvma bench` and the real sockperf on the two ends of a veth pair: either is the server, ours over AF_XDP and over kernel sockets.

Counts, order and contents; what they measure is compared by tools/sockperf_agreement.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exchange import wait_for
from netns import Namespace, usable
from veth import ENGINE, KERNEL, namespaces

from pyvma._cli import _bench_run

SOCKPERF = shutil.which("sockperf")
LONG = bool(os.environ.get("PYVMA_TEST_LONG"))
GROUP = "239.7.8.9"
STACKS = {"kernel": ["--transport", "kernel", "--block"], "xdp": ["--transport", "pyvma", "--interfaces", "xdp:device=v0"]}
# So few that a receive buffer holds a second of them: a busy host may not run a process for as long.
MODES = {"ping-pong": ["--mps", "500"], "under-load": ["--mps", "300", "--reply-every", "5"], "throughput": ["--mps", "200"]}
TOTAL = re.compile(r"\[Total Run\].*SentMessages=(\d+); ReceivedMessages=(\d+)")
LIMIT_S = 60.0

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.skipif(SOCKPERF is None, reason="sockperf is not installed"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def net() -> Iterator[tuple[Namespace, Namespace]]:
    """Ours, and sockperf's."""
    with namespaces() as both:
        yield both


@contextlib.contextmanager
def ours(ns: Namespace, *options: str) -> Iterator[_bench_run.Peer]:
    """Our program, gone afterwards."""
    inside = ("ip", "netns", "exec", ns.name)
    with _bench_run.running(_bench_run.Peer([str(_bench_run.program()), *options], clean=True, inside=inside)) as peer:
        yield peer


def started(ns: Namespace, *command: str) -> subprocess.Popen[str]:
    """With both its streams in one pipe."""
    line = ["ip", "netns", "exec", ns.name, *command]
    return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@contextlib.contextmanager
def sockperf_server(ns: Namespace, *options: str, ports: list[tuple[str, int]]) -> Iterator[list[str]]:
    """sockperf's server; its output when it has ended is the list's one entry."""
    output: list[str] = []
    process = started(ns, "sockperf", "server", *options)
    try:
        for proto, port in ports:
            wait_for("sockperf's port", lambda proto=proto, port=port: f":{port} " in ns.run("ss", "-ln" + proto))
        yield output
    finally:
        process.send_signal(signal.SIGINT)
        output.append(process.communicate(timeout=LIMIT_S)[0])


def handled(output: list[str]) -> int:
    """Messages that sockperf's server says it had."""
    found = re.search(r"Total (\d+) messages received and handled", output[0])
    assert found is not None, output[0]
    return int(found[1])


def feed(tmp_path: Path, host: str, first: int, kinds: str) -> tuple[str, list[str]]:
    """A file of endpoints for ports from `first` on, and the endpoints."""
    ends = [f"{kind}:{host}:{first + number}" for number, kind in enumerate(kinds)]
    file = tmp_path / "feed"
    file.write_text("# endpoints\n\n" + "\n".join(ends) + "\n")
    return str(file), ends


def traffic(folder: Path, count: int, rate: int, sizes: list[int]) -> Path:
    """A file for --mode playback: so many messages, however slow the host."""
    data = folder / "traffic"
    lines = [f"{number / rate:.4f}, {sizes[number % len(sizes)]}\n" for number in range(count)]
    data.write_text("# seconds, bytes\n" + "".join(lines))
    return data


@pytest.mark.parametrize("stack", STACKS)
def test_our_server(net: tuple[Namespace, Namespace], stack: str, tmp_path: Path) -> None:
    """Every mode over UDP and TCP, all at once to one server with an endpoint for each: sockperf starts and ends slowly."""
    here, there = net
    file, ends = feed(tmp_path, ENGINE[4], 7501, "UUUTTT")
    with ours(here, "serve", *STACKS[stack], "--file", file) as server, contextlib.ExitStack() as running:
        server.ready()
        clients = []
        for end, mode in zip(ends, [*MODES] * 2, strict=True):
            kind, host, port = end.split(":")
            line = ["sockperf", mode, "-i", host, "-p", port, "-t", "5" if LONG else "1", "-m", "100", *MODES[mode]]
            client = running.enter_context(started(there, *line, *["--tcp"] * (kind == "T")))
            running.callback(client.kill)
            clients.append((mode, client))
        sent = 0
        for mode, client in clients:
            text = client.communicate(timeout=LIMIT_S)[0]
            if mode == "throughput":
                found = re.search(r"Total of (\d+) messages sent", text)
                assert found is not None, text
            else:
                found = TOTAL.search(text)
                assert found is not None, text
                assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in text, text
                asked = int(found[1]) // (5 if mode == "under-load" else 1)
                # It stops listening when its time is over, with the last answer under way.
                assert 0 <= asked - int(found[2]) <= 50, text
            assert int(found[1]) > 50, text
            sent += int(found[1])
        # It has read what came before what it has answered.
        with ours(there, "client", *STACKS["kernel"], "--mode", "ping-pong", "--file", file, "--seconds", "0.1", "--mps", "200") as last:
            sent += last.result(0)["sent"]
        result = server.stop()
    assert result["received"] == sent
    assert (result["malformed"], result["connections"], result["timeouts"]) == (0, 6, 0)
    assert result["kernel_connections"] == (6 if stack == "kernel" else 0)


@pytest.mark.parametrize("stack", STACKS)
def test_our_client(net: tuple[Namespace, Namespace], stack: str, tmp_path: Path) -> None:
    """Every mode over UDP and TCP, one after the other, to one sockperf; contents are compared."""
    here, there = net
    file, ends = feed(tmp_path, KERNEL[4], 7511, "UT")
    sent = 0
    with sockperf_server(there, "-f", file, "-F", "epoll", ports=[("u", 7511), ("t", 7512)]) as output:
        for end in ends:
            for mode in MODES:
                options = ["--seconds", "2" if LONG else "0.3", "--size", "300", "--range", "200", "--data-integrity", *MODES[mode]]
                with ours(here, "client", *STACKS[stack], "--mode", mode, "--end", end, *options) as client:
                    result = client.result(0)
                assert result["sent"] > 0, result
                for name in ("lost", "duplicated", "reordered", "timeouts", "corrupt", "malformed", "refused"):
                    assert result[name] == 0, (name, result)
                if mode != "throughput":
                    assert result["received"] == result["unique"] == result["sent"] // (5 if mode == "under-load" else 1)
                    assert result["observations"] == result["valid_received"] > 0
                    assert result["min_us"] <= result["p50_us"] <= result["p99.999_us"] <= result["max_us"]
                sent += result["sent"]
    assert handled(output) == sent


@pytest.mark.parametrize("stack", STACKS)
def test_playback_over_all_endpoints(net: tuple[Namespace, Namespace], stack: str, tmp_path: Path) -> None:
    here, there = net
    file, _ = feed(tmp_path, KERNEL[4], 7521, "UTUT")
    data = traffic(tmp_path, 120, 500, [14, 64, 1472, 3000, 9000, 40000])
    with sockperf_server(there, "-f", file, "-F", "poll", ports=[("u", 7521), ("t", 7524)]) as output:
        line = ["--mode", "playback", "--file", file, "--data-file", str(data), "--reply-every", "1", "--data-integrity"]
        with ours(here, "client", *STACKS[stack], *line) as client:
            result = client.result(0)
    assert (result["sent"], result["unique"], result["corrupt"], result["lost"]) == (120, 120, 0, 0)
    assert result["seconds"] > 0.9 * 119 / 500  # from the first to the last, of which the first may be a little late
    assert result["due_observations"] == result["observations"] == 120
    assert handled(output) == 120


def group_options(device: str) -> list[str]:
    return ["--mc-rx-if", device, "--mc-tx-if", device]


def test_group(net: tuple[Namespace, Namespace]) -> None:
    """Answers go to the group; sockperf on both sides in turn."""
    here, there = net
    with sockperf_server(there, "-i", GROUP, "-p", "7531", *group_options(KERNEL[4]), ports=[("u", 7531)]) as output:
        sent = 0
        for stack in STACKS.values():
            line = ["--mode", "ping-pong", "--end", f"{GROUP}:7531", "--seconds", "0.2", "--mps", "1000", *group_options(ENGINE[4])]
            with ours(here, "client", *stack, *line) as client:
                result = client.result(0)
            assert result["sent"] == result["unique"] > 0
            sent += result["sent"]
    assert handled(output) == sent
    with ours(here, "serve", *STACKS["xdp"], "--end", f"{GROUP}:7532", *group_options(ENGINE[4])) as server:
        server.ready()
        text = there.run(
            "sockperf", "ping-pong", "-i", GROUP, "-p", "7532", "-t", "1", "--mps", "1000", *group_options(KERNEL[4]), limit_s=60
        )
        # Who has answered this has read what came before.
        line = ["--mode", "ping-pong", "--end", f"{GROUP}:7532", "--seconds", "0.1", "--mps", "100", *group_options(KERNEL[4])]
        with ours(there, "client", *STACKS["kernel"], *line) as last:
            more = last.result(0)["sent"]
        result = server.stop()
    found = TOTAL.search(text)
    assert found is not None, text
    assert result["received"] == result["sent"] == int(found[1]) + more > 10
    assert 0 <= int(found[1]) - int(found[2]) <= 1


V6 = {"udp": f"U:[{ENGINE[6]}]:7541", "tcp": f"T:[{ENGINE[6]}]:7541", "group": "U:[ff15::7:8]:7541"}


@pytest.mark.parametrize("kind", V6)
def test_ipv6_and_styles(net: tuple[Namespace, Namespace], kind: str, tmp_path: Path) -> None:
    """Ours on both sides: sockperf 3.7 has no IPv6. Over AF_XDP, with every way to wait."""
    here, there = net
    data = str(traffic(tmp_path, 200, 2000, [64]))
    for style in ("recvfrom", "recv_batch", "select", "poll", "epoll"):
        with ours(here, "serve", *STACKS["xdp"], "--end", V6[kind], "--style", style, "--mc-rx-if", "v0", "--mc-tx-if", "v0") as server:
            server.ready()
            line = ["--mode", "playback", "--end", V6[kind], "--data-file", data, "--reply-every", "1"]
            line += ["--style", style, "--data-integrity", "--mc-rx-if", "v1", "--mc-tx-if", "v1"]
            with ours(there, "client", *STACKS["kernel"], *line) as client:
                result: dict[str, Any] = client.result(0)
            served = server.stop()
        assert result["corrupt"] == result["lost"] == result["reordered"] == 0, (style, result)
        assert result["unique"] == result["sent"] == 200, (style, result)
        assert (served["received"], served["unique"], served["lost"]) == (result["sent"], result["sent"], 0), (style, served)
        assert served["style"] == style


def test_pacing_by_option(net: tuple[Namespace, Namespace]) -> None:
    """--rate-limit reaches the socket of either stack: no more leaves than that, but what may leave at once."""
    here, there = net
    with ours(there, "serve", *STACKS["kernel"], "--end", f"{KERNEL[4]}:7551") as server:
        server.ready()
        line = ["--mode", "throughput", "--end", f"{KERNEL[4]}:7551", "--seconds", "0.5", "--size", "1000", "--rate-limit", "1000000"]
        with ours(here, "client", *STACKS["xdp"], *line) as client:
            result = client.result(0)
        served = server.stop()
    assert served["received"] == result["sent"] > 1
    assert served["received"] * 1042 <= 1000000 * (served["seconds"] + 0.1) + 65536


def test_json_of_the_command(net: tuple[Namespace, Namespace]) -> None:
    """The record that the command writes says which figures it has."""
    here, there = net
    with sockperf_server(there, "-i", KERNEL[4], "-p", "7561", ports=[("u", 7561)]):
        line = [
            sys.executable,
            "-m",
            "pyvma",
            "bench",
            "under-load",
            "-i",
            KERNEL[4],
            "-p",
            "7561",
            "-t",
            "0.3",
            "--full-rtt",
            "--json",
            "-",
        ]
        text = here.run(*line, "--interface", "xdp:device=v0", "--reply-every", "3", limit_s=60)
    report = json.loads(text)
    (row,) = report["rows"]
    assert (report["kind"], row["who"], row["figures"], row["reply_every"], row["mps"]) == ("under-load", "pyvma-c", "round trip", 3, 10000)
    assert sum(count for _, count in row["histogram_ns"]) == row["observations"] > 0
    assert sum(count for _, count in row["due_histogram_ns"]) == row["due_observations"]
