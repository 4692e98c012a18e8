"""The files of packaging/ for systemd."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import netns
import pytest
from daemon import NOBODY, PROGRAM

from pyvma import daemon
from pyvma.daemon import SOCKET, _paths

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


PATHS = {
    "too long": ("sub/" + 100 * "x", "too long"),
    "beneath a file": ("file/s", "file"),
    "no socket": ("file", "it is there, and no socket"),
    "a folder": ("folder", "it is there, and no socket"),
}


def started(env: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """A daemon that does not get far."""
    with netns.Namespace() as away:
        line = ["ip", "netns", "exec", away.name, sys.executable, "-c", PROGRAM, "run", *options]
        return subprocess.run(line, capture_output=True, text=True, env=env, timeout=60)


needs_namespaces = pytest.mark.skipif(not netns.usable(), reason="needs root and a working `ip` for network namespaces")


@needs_namespaces
@pytest.mark.parametrize("option", ["--socket", "--vma"])
@pytest.mark.parametrize("name", PATHS)
def test_sockets_that_cannot_be_are_wrong_options(name: str, option: str, tmp_path: Path, clean_env: dict[str, str]) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    path, words = PATHS[name]
    others = ["--socket", str(tmp_path / "s"), "--notify-dir", str(tmp_path / "notify")] if option == "--vma" else []
    done = started(clean_env, option, str(tmp_path / path), *others)
    assert done.returncode == 2, done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith("pyvmad: ") and words in said, said
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "s").exists()


@needs_namespaces
def test_a_socket_that_another_daemon_has(tmp_path: Path, clean_env: dict[str, str]) -> None:
    with open(tmp_path / "s.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = started(clean_env, "--socket", str(tmp_path / "s"))
    assert done.returncode == 2, done.stderr
    assert "a daemon is running there already" in done.stderr


@needs_namespaces
@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_folder_that_somebody_else_made_may_go(kind: str, tmp_path: Path, clean_env: dict[str, str]) -> None:
    """Anybody can make /tmp/vma: such a start fails, and systemd tries again."""
    notify = tmp_path / "notify"
    if kind == "directory":
        notify.mkdir()
    else:
        notify.touch()
    os.chown(notify, NOBODY, NOBODY)
    done = started(clean_env, "--socket", str(tmp_path / "s"), "--vma", str(tmp_path / "v"), "--notify-dir", str(notify))
    assert done.returncode == 1, done.stderr
    assert "it has to be a directory of root's" in done.stderr.splitlines()[-1]
    assert notify.stat().st_uid == NOBODY and not (tmp_path / "v").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)
def test_what_may_pass_is_tried_again(number: int, tmp_path: Path) -> None:
    error = OSError(number, os.strerror(number), str(tmp_path))
    with pytest.raises(OSError) as passing, _paths.usable(tmp_path):
        raise error
    assert passing.value is error


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_takes_them(tmp_path: Path) -> None:
    unit = tmp_path / "pyvmad.service"
    unit.write_text(UNIT.replace("/usr/local/bin/pyvmad", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert str(unit) not in done.stderr and "pyvmad.service" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
