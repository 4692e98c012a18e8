"""Settings: by call, by file, by variable; what is wrong is named. Each in a process of its own: settings end when the engine starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

Env = dict[str, str]


def run(env: Env, code: str, **variables: str) -> str:
    """What the code prints; a failure shows its last line."""
    command = [sys.executable, "-W", "error", "-c", "import pyvma\n" + code]
    done = subprocess.run(command, env={**env, **variables}, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def test_call(clean_env: Env) -> None:
    told = run(clean_env, "pyvma.configure(rx_poll=77, offload=False)\ns = pyvma.settings()\nprint(s['rx_poll'], s['offload'])")
    assert told == "77 0"


def test_list(clean_env: Env) -> None:
    code = "pyvma.configure(interfaces=['softnic:fabric=a,port=0', 'softnic:fabric=a,port=1'])\nprint(pyvma.settings()['interfaces'])"
    assert run(clean_env, code) == "softnic:fabric=a,port=0;softnic:fabric=a,port=1"


def test_file(clean_env: Env, tmp_path: Path) -> None:
    path = tmp_path / "pyvma.toml"
    path.write_text('rx_poll = 5\nprogress = false\ninterfaces = ["softnic:fabric=a,port=0"]\n')
    code = "pyvma.configure(path, progress=True)\ns = pyvma.settings()\nprint(s['rx_poll'], s['progress'], s['interfaces'])"
    assert run(clean_env, f"path = {str(path)!r}\n" + code) == "5 1 softnic:fabric=a,port=0"


def test_file_by_variable(clean_env: Env, tmp_path: Path) -> None:
    path = tmp_path / "pyvma.toml"
    path.write_text("rx_poll = 5\nrx_batch = 7\n")
    code = "s = pyvma.settings()\nprint(s['rx_poll'], s['rx_batch'])"
    assert run(clean_env, code, PYVMA_CONFIG=str(path), PYVMA_RX_BATCH="9") == "5 9"


def test_order(clean_env: Env) -> None:
    """Variables beat VMA's names, a call beats both."""
    code = "print(pyvma.settings()['rx_depth'])"
    assert run(clean_env, code, VMA_RX_WRE="64") == "64"
    assert run(clean_env, code, VMA_RX_WRE="64", PYVMA_RX_DEPTH="128") == "128"
    assert run(clean_env, "pyvma.configure(rx_depth=256)\n" + code, VMA_RX_WRE="64", PYVMA_RX_DEPTH="128") == "256"


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        ("no_such_setting=1", "ValueError", "no_such_setting"),
        ("rx_poll='often'", "ValueError", "often"),
        ("rx_batch=1000", "ValueError", "1000"),
        ("progress='perhaps'", "ValueError", "perhaps"),
        ("rx_poll=None", "TypeError", "rx_poll"),
        ("interfaces=[1]", "TypeError", "interfaces"),
        ("interfaces={'a': 1}", "TypeError", "interfaces"),
        (r"interfaces='a\0b'", "ValueError", "null"),
        ("config='/no/such/file'", "FileNotFoundError", "/no/such/file"),
    ],
)
def test_wrong(clean_env: Env, call: str, error: str, named: str) -> None:
    told = run(clean_env, f"pyvma.configure({call})")
    assert told.startswith(error), told
    assert named in told


@pytest.mark.parametrize(
    ("text", "named"),
    [("rx_poll = ", "pyvma.toml"), ("nonsense = 1", "nonsense"), ("rx_poll = 'x'", "rx_poll"), ("rx_poll = 1979-05-27", "rx_poll")],
)
def test_wrong_file(clean_env: Env, tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "pyvma.toml"
    path.write_text(text)
    told = run(clean_env, f"pyvma.configure({str(path)!r})")
    assert told.startswith(("ValueError", "TypeError")), told
    assert named in told


def test_too_late(clean_env: Env) -> None:
    told = run(clean_env, "pyvma.start()\npyvma.start()\npyvma.configure(rx_poll=1)")
    assert "OSError: [Errno 16]" in told


def test_import_starts_nothing(clean_env: Env) -> None:
    code = (
        "import os, sys\n"
        "assert 'pyvma._native' not in sys.modules\n"
        "import pyvma.socket\n"
        "assert 'rich' not in sys.modules and 'ctypes' not in sys.modules and 'dataclasses' not in sys.modules\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "print(pyvma.version)"
    )
    assert run(clean_env, code, PYVMA_INTERFACES="nonsense:x") == "0.1.0"


def test_offload_of_any_socket(clean_env: Env) -> None:
    code = (
        "import socket, pyvma.socket as ours\n"
        "with socket.socket() as a, ours.socket() as b:\n"
        "    print(pyvma.offload(a), '|', pyvma.offload(b), '|', pyvma.counters() == {})"
    )
    told = run(clean_env, code).split(" | ")
    assert told[0] == "not a socket of pyvma"
    assert told[1] == "there is no interface to offload to"
