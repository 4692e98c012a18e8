"""The contract of the preload library, with the kernel as the oracle: one program makes every call of its tables on every kind of socket
in every state, once over the kernel's sockets and once over the stack; each case must print the same line.

The peer is the kernel's in another namespace, the stack's ring AF_XDP over the pair's other end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import pytest
from netns import Namespace, usable
from veth import KERNEL, namespaces

from pyvma._cli import run

SOURCES = Path(__file__).with_name("contract")
LIMIT_S = 300.0

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contract") / "contract"
    sources = sorted(map(str, SOURCES.glob("*.c")))
    subprocess.run(["gcc", "-O1", "-w", "-D_GNU_SOURCE", "-o", str(path), *sources], check=True, timeout=LIMIT_S)
    return path


@contextlib.contextmanager
def beside_the_peer() -> Iterator[Namespace]:
    """A namespace with the peer on the other end of its pair."""
    with namespaces() as (here, there):
        for name in ("net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"):
            there.run("sysctl", "-qw", name)  # each is to be refused
        for name in ("net.ipv4.icmp_msgs_per_sec=1000000", "net.ipv4.icmp_msgs_burst=1000000"):
            there.run("sysctl", "-qw", name, check=False)  # older kernels have them for all namespaces
        for family, host in (("-4", "10.78.0.99"), ("-6", "fd78::99")):
            here.run("ip", family, "neigh", "replace", host, "lladdr", "02:00:00:00:00:99", "dev", "v0")  # nobody, who never answers
        script = str(SOURCES / "peer.py")
        command = ["ip", "netns", "exec", there.name, sys.executable, script, KERNEL[4], KERNEL[6]]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
            try:
                assert peer.stdin and peer.stdout and peer.stdout.readline() == "ready\n"
                yield here
            finally:
                peer.terminate()


def lines(program: Path, env: dict[str, str]) -> dict[str, str]:
    """By case what it printed; the program must get through all of them."""
    with beside_the_peer() as here:
        command = ["ip", "netns", "exec", here.name, "env", *(f"{k}={v}" for k, v in env.items())]
        done = subprocess.run([*command, str(program), KERNEL[4], KERNEL[6]], capture_output=True, text=True, timeout=LIMIT_S)
    text = done.stdout.splitlines()
    assert (done.returncode, text[-1:], done.stderr) == (0, ["end"], ""), f"{done.returncode}: {text[-1:]}: {done.stderr}"
    return dict(line.partition(":")[::2] for line in text[:-1])


def known() -> list[str]:
    rows = (SOURCES / "differences.txt").read_text().splitlines()
    return [row.split("\t")[0] for row in rows if row and not row.startswith("#")]


def test_every_call_answers_as_the_kernel_does(program: Path, clean_env: dict[str, str]) -> None:
    path = {"PATH": os.environ["PATH"]}
    stack = {**clean_env, "LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0"}
    with ThreadPoolExecutor(2) as pool:
        kernel, ours = pool.map(lambda env: lines(program, env), (path, stack))
    assert len(kernel) > 5000
    assert ours.keys() == kernel.keys()
    differ = {name.split(" ")[1]: name for name in kernel if ours[name] != kernel[name]}
    patterns = known()
    wrong = [name for case, name in differ.items() if not any(fnmatch(case, p.removeprefix("~ ")) for p in patterns)]
    told = "\n".join(f"{name}\n  kernel:{kernel[name]}\n  stack: {ours[name]}" for name in wrong[:50])
    assert not wrong, f"{len(wrong)} of {len(kernel)} cases:\n{told}"
    gone = [p for p in patterns if not p.startswith("~") and not any(fnmatch(case, p) for case in differ)]
    assert not gone, f"listed in differences.txt, and no difference any more: {gone}"
