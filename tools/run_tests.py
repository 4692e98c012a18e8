"""Runs every check and test of the project, each step with its own time limit, and says what became of it.

    python tools/run_tests.py [--only STEP[,STEP...]] [--lanes N] [--list]

A step is a command. Its output goes to build/test-logs/STEP.log and is shown when the step fails. A step that does not end in time
is killed with its whole process group and counts as failed; the others still run, but for those that need what it makes.
As many steps run at a time as there are lanes. Tests that failed run once more when everything else is over, with the machine to
themselves: those that pass then are named, so that nothing unsteady goes unseen. The last line is `N passed, N failed`.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
PYTHON = str(ROOT / ".venv" / "bin" / "python")
BIN = ROOT / ".venv" / "bin"
TAIL_LINES = 120
KILL_GRACE_S = 5.0
POLL_S = 0.05
# All steps together: what is left then is not run, so that the report still comes.
TOTAL_LIMIT_S = 80 * 60
# Terms and identifiers that codespell takes for slips.
WORDS = "nd,ect,tha,wqs,upto,fro,tolen,reord"
# Not the oracles' side of the contracts, where nothing of ours runs; of addresses that are the kernel's one family; and no programs of
# ours, whose engine the others have, too.
PROGRAMS = (
    "bench",
    "bench_loops",
    "bench_output",
    "bench_perf",
    "bench_report",
    "bench_sockperf",
    "bench_tables",
    "bench_xdp",
    "cli",
    "commands",
    "packaging",
    "program_rates",
    "run",
    "sockperf_agreement",
    "stats_cli",
    "stats_top",
    "tools_afterwards",
    "tools_stats",
    "train",
)
LEFT_OUT = ("stdlib", "uvloop", "[asyncio", "loopback-ipv6")
ASAN_TESTS = ["tests/contract", "tests/unit", "-k", f"not ({' or '.join(LEFT_OUT)})"]
ASAN_TESTS += [f"--ignore=tests/unit/test_{name}.py" for name in PROGRAMS]
CPUS = os.cpu_count() or 2
# More would disturb each other: the tests of processes that poll have two CPUs' worth of work themselves.
LANES = min(CPUS, 2)


@dataclass(frozen=True)
class Step:
    """One command with its limit in seconds. `group` lets --only name several steps at once.

    It starts when the step `after` has passed, or is not among those that were asked for.
    """

    name: str
    command: list[str]
    limit_s: int
    group: str = ""
    env: dict[str, str] = field(default_factory=dict)
    after: str = ""
    again: tuple[str, ...] = ()
    """What makes the command run only the tests that failed; empty: it cannot."""
    waits: bool = False
    """That is most of what it does: it takes no lane, and one such step at a time goes beside the others."""

    @property
    def counts(self) -> bool:
        """Whether its last lines say how many tests passed."""
        return self.name.startswith(("ctest", "pytest", "fuzz"))


def build(preset: str, target: str = "all") -> Step:
    """Gives way to the tests beside it."""
    command = f"cmake --preset {preset} >/dev/null && nice ninja -j{CPUS} -C build/{preset} {target}"
    return Step(f"build-{preset}", ["bash", "-c", command], 1200)


def ctest(preset: str, env: dict[str, str], *more: str) -> Step:
    command = ["ctest", "--test-dir", f"build/{preset}", "--output-on-failure", "--timeout", "180", "-j1", *more]
    return Step(f"ctest-{preset}", command, 1500, env=env, after=f"build-{preset}", again=("--rerun-failed",))


def pytest(name: str, runner: list[str], *what: str, limit_s: int = 2400, after: str = "", waits: bool = False) -> Step:
    cache = f"cache_dir={LOGS / name}-cache"
    command = [PYTHON, *runner, "-q", "--durations=25", "-o", cache, *what]
    again = ("--last-failed", "--last-failed-no-failures=none")
    return Step(name, command, limit_s, "pytest", after=after, again=again, waits=waits)


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=True).stdout
    return [name for name in listed.decode().split("\0") if name]


def checks() -> list[Step]:
    """What looks at the sources only."""
    c_files = tracked("native/*.c", "native/*.h", "tests/*.c", "tests/*.h")
    prose = tracked("*.md", "native/*.[ch]", "pyvma/*.py")
    commands = {
        "layers": [PYTHON, "tools/check_layers.py", "includes"],
        "sizes": [PYTHON, "tools/check_sizes.py"],
        "generated": [PYTHON, "tools/gen_ffi.py", "--check"],
        "config-doc": [PYTHON, "tools/gen_config_doc.py", "--check"],
        "stats-doc": [PYTHON, "tools/gen_stats_doc.py", "--check"],
        "ruff": [str(BIN / "ruff"), "check", "pyvma", "tests", "tools"],
        "ruff-format": [str(BIN / "ruff"), "format", "--check", "pyvma", "tests", "tools"],
        "mypy": [str(BIN / "mypy"), "pyvma", "tools"],
        "clang-format": ["clang-format", "--dry-run", "-Werror", *c_files],
        "guide": [PYTHON, "tools/build_docs.py", "--out", str(LOGS / "guide")],
        "guide-names": [PYTHON, "-P", "-m", "pytest", "-q", "tests/unit/test_guide_names.py"],
        "codespell": ["codespell", "--quiet-level=2", f"--ignore-words-list={WORDS}", *prose],
    }
    # Scripts that import each other: the directory of a script is not that of the package.
    return [Step(name, command, 240, "checks", env={"PYTHONSAFEPATH": ""}) for name, command in commands.items()]


def steps() -> list[Step]:
    """In the order in which they are started; what takes longest comes early."""
    sanitizers = {
        "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": f"halt_on_error=1:second_deadlock_stack=1:suppressions={ROOT}/tests/native/tsan.supp",
        "LSAN_OPTIONS": f"suppressions={ROOT}/tests/native/lsan.supp",
    }
    return [
        *checks(),
        build("release"),
        pytest("pytest-interop", ["-m", "pytest"], "tests/interop"),
        pytest("pytest-stdlib", ["-m", "pytest"], "tests/stdlib", waits=True),
        Step("core-symbols", [PYTHON, "tools/check_layers.py", "symbols", "build/release"], 60, after="build-release"),
        Step("instructions", [PYTHON, "tools/instructions.py", "--check"], 300, after="build-release"),
        # What an injected failure leads to is the same in all builds; under ASAN nothing is left behind unseen.
        ctest("release", {}, "-E", "_fail_test$"),
        build("asan"),
        # Figures of the protocol are the same under ASAN; tcp_random_test goes the same ways.
        ctest("asan", sanitizers, "-E", "^tcp_goodput_test$"),
        build("tsan", "threaded_tests"),
        ctest("tsan", sanitizers, "-R", "^(rt|sock|softnic)_", "-E", "_fail_test$"),
        pytest("pytest", ["-m", "pytest"], "tests", "--ignore=tests/interop", "--ignore=tests/stdlib"),
        pytest("pytest-asan", ["tools/run_asan_pytest.py"], *ASAN_TESTS, limit_s=1200, after="build-asan"),
        build("fuzz"),
        Step("fuzz", [PYTHON, "tools/run_fuzz.py", "--seconds", "6"], 600, after="build-fuzz"),
        build("clang"),
        Step("install-bare", [PYTHON, "tools/check_bare_install.py"], 600),
    ]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the step's process group. A process that the kernel will not end is left behind rather than waited for."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        process.wait(KILL_GRACE_S)
    except subprocess.TimeoutExpired:
        print("  (still there after SIGKILL: left behind)", flush=True)


@dataclass
class Run:
    """A step under way. What it prints is in `log`."""

    step: Step
    process: subprocess.Popen[bytes]
    log: Path
    started: float
    limit_s: float

    @classmethod
    def start(cls, step: Step, limit_s: float) -> Run:
        log = LOGS / f"{step.name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                step.command,
                cwd=ROOT,
                env={**os.environ, "PYTHONSAFEPATH": "1", **step.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(step, process, log, time.monotonic(), limit_s)

    def ended(self) -> bool:
        return self.process.poll() is not None or time.monotonic() - self.started > self.limit_s

    def finish(self) -> bool:
        """Ends what is left of it and reports; True when it exited with 0 in time."""
        code, took_s = self.process.poll(), time.monotonic() - self.started
        kill_group(self.process)
        verdict = "ok" if code == 0 else f"FAILED: no end within {self.limit_s:.0f} s" if code is None else f"FAILED: exit status {code}"
        print(f"{self.step.name:<16} {verdict} ({took_s:.0f} s)", flush=True)
        text = self.log.read_text(errors="replace").splitlines()
        if code == 0:
            text = [line for line in text[-8:] if self.step.counts and ("passed" in line or "tests failed" in line)]
        print("".join(f"    {line}\n" for line in text[-TAIL_LINES:]), end="", flush=True)
        return code == 0


def failures(log: Path) -> list[str]:
    """The lines by which pytest and ctest name the tests that failed."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line.strip() for line in lines if re.match(r"(FAILED|ERROR) \S|\s+\d+ - \S+ \(", line)]


class Plan:
    """The steps that wait, those under way, and what became of the others."""

    def __init__(self, chosen: list[Step], lanes: int) -> None:
        self.chosen = chosen
        self.waiting = list(chosen)
        self.lanes = lanes
        self.end = time.monotonic() + TOTAL_LIMIT_S
        self.running: list[Run] = []
        self.passed: dict[str, bool] = {}
        self.unsteady: list[str] = []  # tests that failed, and passed at the second attempt
        self.broken: list[str] = []  # tests that failed twice

    def drop(self) -> None:
        """What cannot run any more has failed."""
        late = time.monotonic() >= self.end
        for step in [step for step in self.waiting if late or self.passed.get(step.after) is False]:
            why = f"{TOTAL_LIMIT_S} s are over" if late else f"{step.after} failed"
            print(f"{step.name:<16} FAILED: not run, {why}", flush=True)
            self.passed[step.name] = False
            self.waiting.remove(step)

    def start(self) -> None:
        """Fills the lanes with the first steps whose turn it is."""
        ahead = {run.step.name for run in self.running} | {step.name for step in self.waiting}
        for waits, room in ((False, self.lanes), (True, 1)):
            room -= sum(run.step.waits == waits for run in self.running)
            for step in [step for step in self.waiting if step.waits == waits and step.after not in ahead][:room]:
                self.waiting.remove(step)
                self.running.append(Run.start(step, min(step.limit_s, self.end - time.monotonic())))

    def second_attempts(self) -> None:
        """One step at a time, for those that can run just what failed."""
        for step in [step for step in self.chosen if step.again and self.passed.get(step.name) is False and time.monotonic() < self.end]:
            names = failures(LOGS / f"{step.name}.log")
            if not names:  # it did not end, or something else is wrong
                continue
            again = replace(step, name=f"{step.name}-again", command=[*step.command, *step.again])
            run = Run.start(again, min(step.limit_s, self.end - time.monotonic()))
            while not run.ended():
                time.sleep(POLL_S)
            self.passed[step.name] = run.finish()
            still = [] if self.passed[step.name] else failures(run.log)
            self.broken += still
            self.unsteady += [name for name in names if name not in still]

    def go(self) -> list[bool]:
        try:
            while self.waiting or self.running:
                self.drop()
                self.start()
                time.sleep(POLL_S)
                for run in [run for run in self.running if run.ended()]:
                    self.running.remove(run)
                    self.passed[run.step.name] = run.finish()
            self.second_attempts()
        finally:
            for run in self.running:
                kill_group(run.process)
        return list(self.passed.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="run the project's checks and tests")
    parser.add_argument("--only", help="steps or groups, separated by commas")
    parser.add_argument("--lanes", type=int, default=LANES, help=f"steps at a time (default: {LANES})")
    parser.add_argument("--list", action="store_true", help="name the steps and stop")
    arguments = parser.parse_args()
    chosen = steps()
    if arguments.only:
        wanted = set(arguments.only.split(","))
        unknown = wanted - {step.name for step in chosen} - {step.group for step in chosen}
        if unknown:
            parser.error(f"no such step: {', '.join(sorted(unknown))}")
        chosen = [step for step in chosen if step.name in wanted or step.group in wanted]
    if arguments.list:
        for step in chosen:
            print(f"{step.name:<16} {step.limit_s:>5} s  {' '.join(step.command)[:100]}")
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    # A shell has its background jobs ignore SIGINT, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Whoever ends this ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    started = time.monotonic()
    plan = Plan(chosen, max(arguments.lanes, 1))
    results = plan.go()
    failed = results.count(False)
    for title, names in (("passed at the second attempt only", plan.unsteady), ("failed twice", plan.broken)):
        print("".join(f"{title}: {name}\n" for name in names), end="")
    print(f"{time.monotonic() - started:.0f} s")
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
