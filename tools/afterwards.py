# SPDX-License-Identifier: BSD-3-Clause
"""Nothing of a tool is left behind, also when it was killed: a shell waits at the other end of a pipe, and then does what it was told."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

DIES_TOO = ("setpriv", "--pdeathsig", "KILL", "--")
"""Before the command of a process that is killed, from its own program's start on, when the one that started it has ended."""

# Who dies too may have another moment.
WAIT = 'all=$(cat); sleep 0.2; eval "$all"'


class Afterwards:
    """`with Afterwards() as later`: later(...) says a command, which runs when the block, or the process, has ended."""

    def __init__(self) -> None:
        # ^C is for the tool: this has what comes after it still to do.
        self.shell = subprocess.Popen(["sh", "-c", WAIT], stdin=subprocess.PIPE, text=True, start_new_session=True)

    def __call__(self, *command: str) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.write(f"{shlex.join(command)}\n")
        self.shell.stdin.flush()

    def folder(self, prefix: str) -> Path:
        """A new one in memory."""
        made = Path(tempfile.mkdtemp(dir="/dev/shm", prefix=prefix))
        self("rm", "-rf", str(made))
        return made

    def fabric(self, name: str) -> None:
        """A software NIC's of that name is going to be there."""
        self(sys.executable, "-I", "-c", f"from pyvma.ring import softnic; softnic.remove({name!r})")

    def __enter__(self) -> Afterwards:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.close()
        self.shell.wait()
