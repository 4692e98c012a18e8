"""The transports of pyvma.asyncio against asyncio over the kernel's sockets, either way round, behind the software NIC's uplink."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab import softnic_reason
from uplink import ENGINE, KERNEL, uplink

PROGRAM = str(Path(__file__).with_name("asyncio_ends.py"))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
needs_softnic = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there")


@needs_root
@needs_softnic
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("mode", ["fd", "busy"])
@pytest.mark.parametrize("role", ["serve", "connect"])
def test_peers_of_the_kernel(role: str, mode: str, version: int, clean_env: dict[str, str]) -> None:
    with uplink(KERNEL) as (ns, fabric), contextlib.ExitStack() as stack:
        interface = f"softnic:fabric={fabric},port=0,addr={ENGINE[4]}/24,addr={ENGINE[6]}/64,name=sn0"

        def run(*arguments: str) -> subprocess.Popen[str]:
            std = "std" in arguments
            process = subprocess.Popen(
                [*(("ip", "netns", "exec", ns.name) if std else ()), sys.executable, PROGRAM, *arguments],
                env=clean_env if std else {**clean_env, "PYVMA_INTERFACES": interface},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        host = (ENGINE if role == "serve" else KERNEL)[version]
        kinds = (mode, "std") if role == "serve" else ("std", mode)
        server = run("serve", kinds[0], host)
        assert server.stdout is not None
        ports = server.stdout.readline().split()
        assert len(ports) == 3
        client = run("connect", kinds[1], host, *ports)
        assert client.communicate(timeout=80)[0] == "ok\n"
        assert client.returncode == 0
        server.communicate(timeout=20)
        assert server.returncode == 0
