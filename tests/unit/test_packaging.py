"""The files of packaging/ for systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pyvma import daemon
from pyvma.daemon import SOCKET

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
UNIT = (PACKAGING / "pyvmad.service").read_text()


def test_the_unit_and_the_command_agree() -> None:
    (words,) = re.findall(r"(?m)^ExecStart=/usr/local/bin/pyvmad (.*)$", UNIT)
    assert words == "run"
    assert f"/run/{re.findall(r'(?m)^RuntimeDirectory=(.*)$', UNIT)[0]}/" in SOCKET
    assert "Type=notify" in UNIT
    # Back at once, and never given up: rules of the dead are to go within a second.
    assert "Restart=always\n" in UNIT and "StartLimitIntervalSec=0\n" in UNIT
    assert int(re.findall(r"(?m)^RestartSec=(\d+)ms$", UNIT)[0]) <= 200
    # Unless it would be the same the next time: wrong options, no such program (EXIT_EXEC of systemd.exec).
    assert set(re.findall(r"(?m)^RestartPreventExitStatus=(.*)$", UNIT)[0].split()) == {"2", "203"}
    assert re.search(r"(?m)^g pyvma ", (PACKAGING / "pyvma.sysusers").read_text())


@pytest.mark.parametrize("words", [["--max-flows", "0"], ["--max-flows", "1e3"], ["--max-flows", "1048577"], ["--no-such-option"]])
def test_wrong_options_are_told_by_the_exit_status(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as over:
        daemon.main(["run", *words])
    assert over.value.code == 2
    assert words[0] in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_takes_them(tmp_path: Path) -> None:
    unit = tmp_path / "pyvmad.service"
    unit.write_text(UNIT.replace("/usr/local/bin/pyvmad", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert str(unit) not in done.stderr and "pyvmad.service" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
