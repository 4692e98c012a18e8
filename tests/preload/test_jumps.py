"""A C program whose signal handlers leave the calls that they interrupt by siglongjmp, and that is told of input by SIGIO: over AF_XDP
with the kernel on the other end, and on the kernel alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_programs import peer, programs_in, ran
from netns import usable
from veth import ENGINE, KERNEL, namespaces

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs_in(tmp_path_factory.mktemp("jumps"), "jumps", "peer")


def test_jumps(programs: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for env in ({}, {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0", "PYVMA_LOG_FILE": str(log)}):
        with namespaces() as (here, there), peer(there, programs / "peer"):
            lines = ran(here, env, str(programs / "jumps"), ENGINE[4], ENGINE[6], KERNEL[4], KERNEL[6]).splitlines()
        assert len(lines) == 9
        assert all(line.startswith("ok ") for line in lines), lines
    assert log.read_text() == ""
