"""A C program that asks the kernel by numbers (syscall) for what the C library has calls for, or by calls within the C library:
over AF_XDP with the kernel on the other end, and on the kernel alone."""

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

CASES = ("streams", "datagrams", "accepts", "closed", "clones", "clones_threads", "standard", "uncancelled")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs_in(tmp_path_factory.mktemp("numbers"), "numbers", "peer")


@pytest.mark.parametrize("case", CASES)
def test_by_number(programs: Path, tmp_path: Path, case: str) -> None:
    log = tmp_path / "log"
    with namespaces() as (here, there), peer(there, programs / "peer"):
        for env in ({}, {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0", "PYVMA_LOG_FILE": str(log)}):
            out = ran(here, env, str(programs / "numbers"), ENGINE[4], ENGINE[6], KERNEL[4], KERNEL[6], case)
            assert out == f"ok {case}\n"
    assert log.read_text() == ""
