"""For `pyvma run --stats`: stays beside the program, passes signals on, ends as it ended, and prints what its engines counted."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Plan

# What a terminal sends goes to the program, too: it is in the same process group. Only what was sent to us alone is passed on.
PASSED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGCONT,
    signal.SIGTSTP,
    signal.SIGWINCH,
)
FROM_KERNEL = 0x80
PROCESS = re.compile(r"[0-9]{1,10}")
COUNTER = re.compile(r"(?<!\S)([a-z0-9_.]+)=([0-9]{1,20})(?!\S)")
SHOWN = (
    ("tcp.opened_passive", "TCP connections accepted"),
    ("tcp.opened_active", "TCP connections made"),
    ("tcp.rx_bytes", "bytes received by TCP"),
    ("tcp.tx_bytes", "bytes sent by TCP"),
    ("udp.rx_datagrams", "datagrams received"),
    ("udp.tx_datagrams", "datagrams sent"),
    ("net.rx_frames", "frames received"),
    ("net.tx_packets", "packets sent"),
)


def _wait(child: int) -> int:
    """Until it has ended; its wait status."""
    while True:
        found = signal.sigwaitinfo({*PASSED, signal.SIGCHLD})
        if found.si_signo != signal.SIGCHLD:
            if found.si_code != FROM_KERNEL:
                with suppress(ProcessLookupError):
                    os.kill(child, found.si_signo)
            continue
        pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)
        elif pid:
            return status


def _dead(pid: int, folder: str) -> dict[str, int]:
    """Of a process that had no time to report: what the memory says that it left."""
    from ..stats import StatsError, attach, totals

    names = {"tcp_table": "tcp", "udp_table": "udp", "net": "net", "engine": "engine"}
    found: dict[str, int] = {}
    try:
        with attach(pid, folder) as process:
            for kind, values in totals(process.snapshot()).items():
                found |= {f"{names.get(kind, kind)}.{name}": value for name, value in values.items()}
    except StatsError:
        return {}
    return found


def read(text: str, folder: str) -> dict[int, tuple[str, dict[str, int]]]:
    """What a file of the setting exit_stats says, by process."""
    found: dict[int, tuple[str, dict[str, int]]] = {}
    for line in text.splitlines():
        number, name, rest = [*line.split("\t", 2), "", ""][:3]
        if not PROCESS.fullmatch(number):
            continue
        found[int(number)] = (name, {key: int(value) for key, value in COUNTER.findall(rest)})
    return {pid: (name, counters or _dead(pid, folder)) for pid, (name, counters) in found.items()}


def told(found: dict[int, tuple[str, dict[str, int]]]) -> list[str]:
    """Lines for a reader."""
    if not found:
        return ["no engine was started: every socket was the kernel's"]
    lines = []
    for pid, (name, counters) in sorted(found.items()):
        parts = [f"{counters[key]:,} {what}" for key, what in SHOWN if counters.get(key)]
        lines.append(f"{name} [{pid}]: {', '.join(parts) or 'nothing went by the stack'}")
    return lines


def _end_as(status: int) -> int:
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core is enough
    with suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number


def beside(plan: Plan, words: list[str]) -> int:
    """Runs it; the exit status, or the same death."""
    from .. import _config
    from .run import CANNOT_RUN, PYTHONS, say

    # For this user alone: who could write to it could say anything. A worker that gave up its privileges cannot, and is not in the report.
    descriptor, path = tempfile.mkstemp(prefix="pyvma-run-")
    env = plan.env | ({} if plan.reason else {"PYVMA_EXIT_STATS": path})
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED, signal.SIGCHLD})
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            child = os.posix_spawn(plan.target.path, words, env, setsigmask=before, setsigdef=PYTHONS)
        except OSError as error:
            say(f"{words[0]}: {error.strerror}")
            return CANNOT_RUN
        status = _wait(child)
        with open(descriptor, encoding="utf-8", errors="replace", closefd=False) as file:
            found = read(file.read(), _config.value_of("stats_dir"))
        for line in told(found):
            say(line)
        return _end_as(status)
    finally:
        os.close(descriptor)
        os.unlink(path)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
