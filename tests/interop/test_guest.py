"""tests/guest, in a virtual machine with a newer kernel: what this machine's may not be trusted with (XDP programs bound to a device)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab import LONG

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "guest.py"
TESTS = ["tests/guest", "tests/interop/test_xdp_csum.py"]


def why_not() -> str:
    spec = importlib.util.spec_from_file_location("guest", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.missing())


# Four minutes where the processor is emulated.
@pytest.mark.skipif(not LONG, reason="PYVMA_TEST_LONG is not set")
@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.timeout(1200)
def test_in_a_guest() -> None:
    command = [sys.executable, str(TOOL), "--", sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONSAFEPATH": "1"}, timeout=1100)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
