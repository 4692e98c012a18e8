"""Somebody else's XDP program on the interface, attached by libxdp as xdp-tools do it: it stays, the sockets there are the kernel's,
and both the socket and the doctor say why. Once it is gone the interface is offloaded again."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from actor import Actor
from exchange import wait_for
from netns import usable
from veth import ENGINE, namespaces

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces"),
    pytest.mark.skipif(ctypes.util.find_library("xdp") is None, reason="needs libxdp"),
    pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang for a program of the BPF target"),
]

SOURCE = """
#include <linux/bpf.h>
#define SEC(name) __attribute__((section(name), used))
SEC("xdp") int NAME(struct xdp_md *ctx) { return XDP_PASS; }
char _license[] SEC("license") = "GPL";
"""
# libxdp keeps its dispatcher's programs in the BPF file system; `ip netns exec` gives each process a /sys of its own.
LIBXDP = """
import ctypes, subprocess
GENERIC = 2
if subprocess.run(['mountpoint', '-q', '/sys/fs/bpf']).returncode:
    subprocess.run(['mount', '-t', 'bpf', 'bpf', '/sys/fs/bpf'], check=True)
libxdp = ctypes.CDLL(library)
libxdp.xdp_program__open_file.restype = ctypes.c_void_p
libxdp.xdp_program__open_file.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
for call in (libxdp.xdp_program__attach, libxdp.xdp_program__detach):
    call.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint]
foreign = libxdp.xdp_program__open_file(path.encode(), b'xdp', None)
libxdp.xdp_program__attach(foreign, socket.if_nametoindex('v0'), GENERIC, 0)
"""
BIND = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((host, 0))
"""


def compiled(folder: Path, name: str = "somebody_elses") -> Path:
    program = folder / "other.o"
    headers = f"/usr/include/{os.uname().machine}-linux-gnu"
    command = ["clang", "-O2", "-g", "-target", "bpf", f"-I{headers}", f"-DNAME={name}", "-x", "c", "-", "-c", "-o", str(program)]
    subprocess.run(command, input=SOURCE, text=True, check=True, timeout=60)
    return program


@pytest.mark.timeout(120)
def test_a_program_of_libxdp(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    settings = ["xdp:device=v0"]
    with namespaces() as (here, _), Actor(netns=here.name) as other:
        assert other(LIBXDP, library=ctypes.util.find_library("xdp"), path=str(program)) == 0
        number = here.ip("-d", "link", "show", "dev", "v0").split("prog/xdp id ")[1].split()[0]
        with Actor(settings, netns=here.name) as engine:
            engine(BIND, host=ENGINE[4])
            assert engine("s.offload.state") == "kernel"
            reason = engine("str(s.offload)")
            # Where its dispatcher does not load, libxdp attaches the program by itself.
            assert f"XDP program {number} already" in reason
            environment = {**os.environ, "PYVMA_INTERFACES": settings[0], "PYTHONSAFEPATH": "1"}
            doctor = ["ip", "netns", "exec", here.name, sys.executable, "-m", "pyvma", "doctor"]
            told = subprocess.run(doctor, env=environment, capture_output=True, text=True, timeout=60).stdout
            assert "interface v0" in told and f"XDP program {number} already" in " ".join(told.split())
            # Ours was refused, theirs is as it was.
            assert f"prog/xdp id {number} " in here.ip("-d", "link", "show", "dev", "v0")
            assert other("libxdp.xdp_program__detach(foreign, socket.if_nametoindex('v0'), GENERIC, 0)") == 0
            here.ip("link", "set", "v0", "down")
            here.ip("link", "set", "v0", "up")

            def offloaded() -> bool:
                engine(BIND, host=ENGINE[4])
                return bool(engine("s.offload.state") == "offloaded")

            wait_for("the ring", offloaded)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("somebody_elses", "XDP program {} already; take it off (ip link set v0 xdp off) or stop who attached it"),
        ("xdp_dispatcher", "XDP program {} already, libxdp's dispatcher: what it calls outlives its process"),
    ],
)
def test_a_program_by_itself(tmp_path: Path, name: str, said: str) -> None:
    """What libxdp calls its dispatcher is known by that name: we could not join it, and the reason says so."""
    program = compiled(tmp_path, name)
    with namespaces() as (here, _), Actor(["xdp:device=v0"], netns=here.name) as engine:
        here.ip("link", "set", "v0", "xdpgeneric", "obj", str(program), "sec", "xdp")
        number = here.ip("-d", "link", "show", "dev", "v0").split("prog/xdp id ")[1].split()[0]
        engine(BIND, host=ENGINE[4])
        assert said.format(number) in engine("str(s.offload)")
