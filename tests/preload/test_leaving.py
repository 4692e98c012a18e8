"""A C program whose signal handlers jump out of calls, after each instruction and in their last steps, over AF_XDP."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_programs import PROGRAMS, compiled, peer, programs_in, ran
from netns import usable
from veth import ENGINE, KERNEL, namespaces

from pyvma._cli import run

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]


def test_leaving(tmp_path: Path) -> None:
    folder = programs_in(tmp_path, "peer")
    # What it has in the C library's place is for the preload library, too.
    program = compiled(folder / "leaving", PROGRAMS / "leaving.c", options=("-rdynamic",))
    env = {"LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0"}
    with namespaces() as (here, there), peer(there, folder / "peer"):
        lines = ran(here, env, str(program), ENGINE[4], ENGINE[6], KERNEL[4], KERNEL[6]).splitlines()
    assert lines == ["ok from_each_instruction", "ok from_the_last_step", "ok from_each_step", "ok cancelled_at_each_instruction"]
