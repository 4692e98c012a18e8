"""tools/train.py: the installed package is one that was trained, and a machine where that does not work builds all the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "tools" / "train.py"


def counts(build: Path) -> list[Path]:
    return sorted(build.glob("CMakeFiles/**/*.gcda"))


def train(instrumented: Path, build: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TRAIN), str(instrumented), str(build)], capture_output=True, text=True, timeout=300)


def test_the_package_was_built_by_what_was_counted() -> None:
    """Of everything that a datagram and a segment go through, by what make setup has left."""
    builds = [path.parent for path in (ROOT / "build").glob("cp*/profile.stamp")]
    if not builds:
        pytest.skip("no build of the package here, or one without libibverbs or GCC")
    for build in builds:
        files = {str(path.relative_to(build / "CMakeFiles")) for path in counts(build)}
        assert {
            "pv_core.dir/native/udp/rx.c.gcda",
            "pv_core.dir/native/tcp/input.c.gcda",
            "pv_core.dir/native/stack/stack.c.gcda",
            "pv_face.dir/native/sock/recv.c.gcda",
            "pyvma_preload.dir/native/preload/msg.c.gcda",
        } <= files, sorted(files)


@pytest.mark.parametrize("program", ["missing", "silent", "refuses"])
def test_what_does_not_work_leaves_no_counts(program: str, tmp_path: Path) -> None:
    instrumented, build = tmp_path / "instrumented", tmp_path / "build"
    old = build / "CMakeFiles" / "a.dir" / "a.c.gcda"
    for folder in (instrumented, old.parent):
        folder.mkdir(parents=True)
    old.touch()
    if program == "silent":
        shutil.copy("/bin/true", instrumented / "pyvma-bench")
    elif program == "refuses":
        bench = instrumented / "pyvma-bench"
        bench.write_text('#!/bin/sh\ncase "$*" in *ping-pong*) exit 3;; esac\necho "{}"\nexec sleep 1000\n')
        bench.chmod(0o755)
    done = train(instrumented, build)
    assert done.returncode == 0
    assert "built without a profile" in done.stderr
    assert not counts(build)
