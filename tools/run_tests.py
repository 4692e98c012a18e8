"""Runs every check and test of the project, each step with its own time limit, and says what became of it.

    python tools/run_tests.py [--only STEP[,STEP...]] [--list]

A step is a command. Its output goes to build/test-logs/STEP.log and is shown when the step fails. A step that does not end in time
is killed with its whole process group and counts as failed; the others still run. The last line is `N passed, N failed`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
PYTHON = str(ROOT / ".venv" / "bin" / "python")
BIN = ROOT / ".venv" / "bin"
TAIL_LINES = 120
KILL_GRACE_S = 5.0
# All steps together: what is left then is not run, so that the report still comes.
TOTAL_LIMIT_S = 80 * 60
# Terms and identifiers that codespell takes for slips.
WORDS = "nd,ect,tha,wqs,upto,fro,tolen,reord"
ASAN_TESTS = ["tests/contract", "tests/unit", "-m", "not heavy"]
JOBS = str(os.cpu_count() or 2)


@dataclass(frozen=True)
class Step:
    """One command with its limit in seconds. `group` lets --only name several steps at once.

    `again` runs after a failure, what failed only: a machine that stalls for seconds can fail a test that waits, a fault fails twice.
    What needed it is said in the report.
    """

    name: str
    command: list[str]
    limit_s: int
    group: str = ""
    env: dict[str, str] = field(default_factory=dict)
    again: list[str] | None = None


def build(preset: str) -> list[str]:
    return ["bash", "-c", f"cmake --preset {preset} >/dev/null && ninja -j{JOBS} -C build/{preset}"]


def ctest(preset: str, limit_s: int, env: dict[str, str], *more: str) -> Step:
    command = ["ctest", "--test-dir", f"build/{preset}", "--output-on-failure", "--timeout", "180", "-j1"]
    return Step(f"ctest-{preset}", [*command, *more], limit_s, env=env, again=[*command, "--rerun-failed"])


def pytest(name: str, command: list[str], limit_s: int) -> Step:
    return Step(name, command, limit_s, again=[*command, "--lf", "--lfnf=none"])


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=True).stdout
    return [name for name in listed.decode().split("\0") if name]


def steps() -> list[Step]:
    c_files = tracked("native/*.c", "native/*.h", "tests/*.c", "tests/*.h")
    sanitizers = {
        "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": f"halt_on_error=1:second_deadlock_stack=1:suppressions={ROOT}/tests/native/tsan.supp",
        "LSAN_OPTIONS": f"suppressions={ROOT}/tests/native/lsan.supp",
    }
    return [
        Step("layers", [PYTHON, "tools/check_layers.py", "includes"], 60, "checks"),
        Step("sizes", [PYTHON, "tools/check_sizes.py"], 60, "checks"),
        Step("generated", [PYTHON, "tools/gen_ffi.py", "--check"], 60, "checks"),
        Step("config-doc", [PYTHON, "tools/gen_config_doc.py", "--check"], 60, "checks"),
        Step("ruff", [str(BIN / "ruff"), "check", "pyvma", "tests", "tools"], 60, "checks"),
        Step("ruff-format", [str(BIN / "ruff"), "format", "--check", "pyvma", "tests", "tools"], 60, "checks"),
        Step("mypy", [str(BIN / "mypy"), "pyvma", "tools"], 240, "checks"),
        Step("clang-format", ["clang-format", "--dry-run", "-Werror", *c_files], 120, "checks"),
        Step(
            "codespell",
            ["codespell", "--quiet-level=2", f"--ignore-words-list={WORDS}", *tracked("*.md", "native/*.[ch]", "pyvma/*.py")],
            60,
            "checks",
        ),
        Step("build-release", build("release"), 900),
        Step("core-symbols", [PYTHON, "tools/check_layers.py", "symbols", "build/release"], 60, "checks"),
        ctest("release", 900, {}),
        Step("instructions", [PYTHON, "tools/instructions.py", "--check"], 300),
        Step("build-asan", build("asan"), 900),
        ctest("asan", 1200, sanitizers),
        Step("build-tsan", build("tsan"), 900),
        ctest("tsan", 1200, sanitizers, "-R", "^(rt|sock|softnic)_"),
        Step("build-clang", build("clang"), 900),
        Step("build-fuzz", build("fuzz"), 900),
        Step("fuzz", [PYTHON, "tools/run_fuzz.py", "--seconds", "10"], 600),
        pytest("pytest", [PYTHON, "-m", "pytest", "-q", "--durations=25"], 2400),
        pytest("pytest-asan", [PYTHON, "tools/run_asan_pytest.py", *ASAN_TESTS], 900),
        Step("install-bare", [PYTHON, "tools/check_bare_install.py"], 400),
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


def attempt(step: Step, command: list[str], log: Path, limit_s: float) -> int | None:
    """Exit status of the command, None when it did not end in time. What it printed is in `log`."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", **step.env}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill_group(process)


def run(step: Step, left_s: float) -> bool:
    """Runs one step, and what failed of it once more; True when the last attempt exited with 0 in time."""
    started = time.monotonic()
    code: int | None = 1
    for number, command in enumerate([step.command, *([step.again] if step.again else [])]):
        limit_s = min(step.limit_s, left_s - (time.monotonic() - started))
        if limit_s <= 0:
            print(f"{step.name:<16} FAILED: not run, {TOTAL_LIMIT_S} s are over", flush=True)
            return False
        log = LOGS / f"{step.name}{'-again' if number else ''}.log"
        code = attempt(step, command, log, limit_s)
        verdict = "ok" if code == 0 else f"FAILED: no end within {limit_s:.0f} s" if code is None else f"FAILED: exit status {code}"
        print(f"{step.name:<16} {verdict} ({time.monotonic() - started:.0f} s){' at the second attempt' if number else ''}", flush=True)
        text = log.read_text(errors="replace").splitlines()
        if code != 0:
            print("\n".join(f"    {line}" for line in text[-TAIL_LINES:]), flush=True)
        else:
            if step.again:
                print("\n".join(f"    {line}" for line in text[-8:] if "passed" in line or "tests failed" in line), flush=True)
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description="run the project's checks and tests")
    parser.add_argument("--only", help="steps or groups, separated by commas")
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
    end = time.monotonic() + TOTAL_LIMIT_S
    results = [run(step, end - time.monotonic()) for step in chosen]
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
