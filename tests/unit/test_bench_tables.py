"""The tables of `pyvma bench`, of reports that were recorded: the same in a file as on a terminal, but for bold and colours."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 60
DATA = Path(__file__).resolve().parents[1] / "data" / "bench.json"
KINDS = ("compare", "connections", "sweep", "sockperf")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-7]|38|9[0-7])(;[0-9;]*)?m")
# What a command does with its report once it has measured.
SHOW = """
import argparse, importlib, inspect, json, sys
from pyvma._cli import _bench_output
kind, file = sys.argv[1:]
report = json.load(open(file))[kind]
show = importlib.import_module(f"pyvma._cli._bench_{kind}").show
options = argparse.Namespace(json=None, csv=None, proto=report.get("proto"), ring=report.get("ring"), size=report.get("size"),
    runs=report["run_count"])
more = (options,) if "arguments" in inspect.signature(show).parameters else ()
_bench_output.deliver(report, options, lambda console: show(console, report, *more))
"""


def environment(**more: str) -> dict[str, str]:
    wanted = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")}
    return {**wanted, "TERM": "xterm-256color", "PYTHONSAFEPATH": "1", **more}


def in_a_terminal(kind: str, **more: str) -> str:
    """What a command writes to a terminal."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW, kind, str(DATA)], env=environment(**more), stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    said = b""
    try:
        while piece := os.read(parent, 65536):
            said += piece
    except OSError:  # the terminal is gone with the program
        pass
    finally:
        os.close(parent)
        process.kill()
        process.wait(LIMIT_S)
    return said.decode()


@pytest.mark.parametrize("kind", KINDS)
def test_no_colour_where_none_is_wanted(kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", SHOW, kind, str(DATA)], env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    # Whole rows: nothing is cut off or broken because there is no terminal.
    for who in {"compare": ("raw", "kernel-py-spin"), "connections": ("100,000",), "sweep": ("50,000",), "sockperf": ("under-load",)}[kind]:
        assert re.search(rf"(?m)^.*{who} .*[0-9]", done.stdout), who
    plain = in_a_terminal(kind, NO_COLOR="1")
    assert not COLOUR.search(plain)
    assert ESCAPE.sub("", plain).replace("\r\n", "\n") == done.stdout
    # A terminal has more than plain text, or the comparison above would tell nothing.
    assert ESCAPE.search(in_a_terminal(kind))
