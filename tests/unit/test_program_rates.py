"""tools/program_rates.py: a short run, and nothing of it is left."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from netns import usable

from pyvma._cli import run

TOOL = Path(__file__).resolve().parents[2] / "tools" / "program_rates.py"

pytestmark = [
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
    pytest.mark.skipif(not usable(), reason="needs root and network namespaces"),
]


@pytest.mark.parametrize("program", ["redis", "nginx"])
def test_a_short_run(program: str, tmp_path: Path) -> None:
    if not all(map(shutil.which, {"redis": ("redis-server", "redis-benchmark"), "nginx": ("nginx", "wrk")}[program])):
        pytest.skip(f"{program} is not installed")
    file = tmp_path / "rates.json"
    line = [sys.executable, str(TOOL), "--rounds", "1", "--seconds", "0.02", "--cases", f"{program}/1", "--json", str(file)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(rf"^{program}/1 +[\d,]+ +[\d,]+ +[\d.]+  [\d.]+\.\.[\d.]+$", done.stdout, re.MULTILINE), done.stdout
    (found,) = json.loads(file.read_text()).values()
    assert all(rates[0] > 0 for rates in found["runs"].values())
    assert found["ratio"] == found["runs"]["pyvma"][0] / found["runs"]["kernel"][0]


def test_bad_arguments() -> None:
    done = subprocess.run([sys.executable, str(TOOL), "--rounds", "0"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("at least a round, and not more than a quarter of a minute")
