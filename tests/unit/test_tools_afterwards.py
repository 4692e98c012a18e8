"""tools/afterwards.py: a tool that is killed leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from exchange import wait_for

TOOLS = Path(__file__).resolve().parents[2] / "tools"
TOOL = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from afterwards import DIES_TOO, Afterwards
with Afterwards() as later:
    later.fabric("afterwards-it's")
    folder = later.folder("afterwards test-")
    later("touch", sys.argv[2])
    sleeper = subprocess.Popen([*DIES_TOO, "sleep", "1000"])
    print(folder, sleeper.pid, sep="\\n", flush=True)
    sys.stdin.readline()
    sleeper.kill()
"""


def gone(pid: int) -> bool:
    """Or nobody has asked for its end yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGKILL])
def test_all_of_it_is_gone(number: signal.Signals | None, tmp_path: Path) -> None:
    told = tmp_path / "it's told"
    command = [sys.executable, "-c", TOOL, str(TOOLS), str(told)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        assert tool.stdin is not None
        folder, sleeper = Path(tool.stdout.readline().strip()), int(tool.stdout.readline())
        (folder / "file").touch()
        wait_for("its own program", lambda: Path(f"/proc/{sleeper}/comm").read_text() == "sleep\n")
        assert not told.exists()
        if number:
            tool.send_signal(number)
        else:
            tool.stdin.write("\n")
            tool.stdin.flush()
        assert tool.wait(20) == -(number or 0)
        if number is None:
            assert told.exists()
            assert not folder.exists()
        wait_for("the folder to go", lambda: not folder.exists())
        wait_for("what comes last", told.exists)
        wait_for("the process that it started", lambda: gone(sleeper))
