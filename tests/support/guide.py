"""The guide's examples, as the reader runs them.

Fenced blocks are executed in the order of the page, in one scratch folder a page:

    python     a program of its own; an `output` block right after it is what it prints
    console    lines with `$ ` or `# ` are commands, each ends with status 0; lines after one are what it prints
    toml       a file of settings, which have to be in force afterwards

Of what is printed, a line `...` stands for any lines, and `...` within a line for any text. Alone it stands for one line at least.
All other kinds are left alone. A comment before a block says otherwise:

    <!-- file: NAME -->                      the block becomes this file, and nothing is run
    <!-- run: on eth0 -->                    in a network namespace with eth0, 192.0.2.1/24
    <!-- run: on peer -->                    in the namespace at the other end, 192.0.2.2/24
    <!-- run: background [until TEXT] -->    in the background; the page goes on when it has printed TEXT; it is ended with the page, or by:
    <!-- run: after that stop -->            the page's background programs get SIGINT after this block, and have to end
    <!-- run: status N -->                   the last command ends with this status
    <!-- run: from a bare system -->         by the test that starts from one, only
    <!-- not run: REASON -->
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from exchange import wait_for
from netns import Namespace, sh

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LIMIT_S = 60
KINDS = ("python", "console", "toml", "output", "bash")
FENCE = re.compile(r"^(?:<!-- ([^\n]*?) -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BARE = "run: from a bare system"
HOSTS = {"eth0": "192.0.2.1", "peer": "192.0.2.2"}
WAYS = re.compile(
    r"(?:on (?P<host>eth0|peer))?(?:, )?"
    r"(?:(?P<background>background)(?: until (?P<until>.+))?|after that stop|status (?P<status>\d+))?"
)


@dataclass
class Block:
    """One fenced block. `line` is that of its first line in the page."""

    page: str
    line: int
    kind: str
    text: str
    comment: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> str:
        """Why it is not run; empty when it is."""
        return self.comment.removeprefix("not run: ") if self.comment.startswith("not run: ") else ""


def blocks(path: Path) -> list[Block]:
    """The page's blocks that have a meaning here."""
    text = path.read_text()
    found = []
    for match in FENCE.finditer(text):
        comment, kind, body = match[1] or "", match[2], match[3]
        if kind in KINDS:
            line = text.count("\n", 0, match.start(3)) + 1
            found.append(Block(str(path.relative_to(ROOT)), line, kind, body, comment))
    return found


def pages() -> list[Path]:
    """Of the guide, those with something to run."""
    return [path for path in sorted(DOCS.rglob("*.md")) if any(block.kind != "output" for block in blocks(path))]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Of a console block: each command, continued lines included, and what it prints as the page has it."""
    command, printed = "", ""
    for line in text.splitlines():
        if line[:2] in ("$ ", "# ") and not command.endswith("\\\n"):
            if command:
                yield command, printed
            command, printed = line[2:], ""
            command += "\n" if line.endswith("\\") else ""
        elif command.endswith("\\\n"):
            command += line + ("\n" if line.endswith("\\") else "")
        else:
            printed += line + "\n"
    if command:
        yield command, printed


def prints(expected: str, got: str) -> bool:
    """Whether a program printed what the page says."""
    if expected.strip() == "...":
        return bool(got.strip())
    parts = []
    for line in expected.strip().splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            pieces = [re.escape(" ".join(piece.split())) for piece in line.split("...")]
            parts.append(".*".join(pieces) + r"\s*\n")
    plain = "".join(" ".join(line.split()) + "\n" for line in got.strip().splitlines())
    return re.fullmatch("".join(parts), plain) is not None


@dataclass
class Scratch:
    """Where a page's blocks run. Names of fabrics are made unique, so that runs beside each other do not meet.

    `outer` is what to put before a command that is to run on another system than this one, where the folder is called `home`.
    """

    folder: Path
    env: dict[str, str]
    stack: ExitStack
    outer: list[str] = field(default_factory=list)
    home: str = ""
    limit_s: float = LIMIT_S
    token: str = field(default_factory=lambda: secrets.token_hex(3))
    jobs: list[tuple[Block, subprocess.Popen[bytes], Path]] = field(default_factory=list)
    namespaces: dict[str, Namespace] = field(default_factory=dict)

    def own(self, text: str) -> str:
        return re.sub(r"(fabric=|--fabric )(\w+)", rf"\g<1>\g<2>{self.token}", text)

    def shown(self, text: str) -> str:
        return text.replace(self.token, "")

    def inside(self, host: str | None) -> list[str]:
        if host is None:
            return self.outer
        if not self.namespaces:
            self.namespaces = self.stack.enter_context(wire())
        return ["ip", "netns", "exec", self.namespaces[host].name]

    def run(self, block: Block, following: Block | None) -> None:
        """Runs one block. AssertionError says what it printed instead of what the page says."""
        if block.reason or block.kind == "output" or (block.comment == BARE and not self.outer):
            return
        if block.comment.startswith("file: "):
            path = self.folder / block.comment.removeprefix("file: ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.own(block.text))
            return
        ways = WAYS.fullmatch(block.comment.removeprefix(BARE).removeprefix("run: "))
        assert ways, f"{block.where}: the comment {block.comment!r} is not known"
        inside = self.inside(ways["host"])
        if block.kind == "python":
            script = self.folder / f"example{block.line}.py"
            script.write_text(self.own(block.text))
            printed = following.text if following and following.kind == "output" else None
            self.call(block, [*inside, sys.executable, str(script)], printed)
        elif block.kind == "toml":
            self.settings(block)
        elif ways["background"]:
            self.begin(block, inside, ways["until"] or "")
        else:
            lines = list(commands(block.text))
            for number, (command, printed) in enumerate(lines):
                status = int(ways["status"] or 0) if number == len(lines) - 1 else 0
                self.call(block, [*inside, *self.shell(command)], printed or None, status)
        if block.comment.endswith("after that stop"):
            self.stop()

    def shell(self, command: str) -> list[str]:
        return ["bash", "-c", f"cd {self.home} && {self.own(command)}" if self.home else self.own(command)]

    def call(self, block: Block, command: list[str], printed: str | None, status: int = 0) -> None:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=self.limit_s
        )
        told = f"{block.where}: {shlex.join(command)}\n{done.stdout}{done.stderr}"
        assert done.returncode == status, f"exit status {done.returncode}: {told}"
        got = self.shown(done.stdout + done.stderr if status else done.stdout)
        assert printed is None or prints(printed, got), f"{told}\nand not, as the page says,\n{printed}"

    def settings(self, block: Block) -> None:
        path = self.folder / f"settings{block.line}.toml"
        path.write_text(self.own(block.text))
        check = "import sys, tomllib, pyvma; pyvma.configure(sys.argv[1]); found = pyvma.settings()\n"
        check += "for name, value in tomllib.load(open(sys.argv[1], 'rb')).items():\n    text = pyvma._text(name, value)\n"
        check += "    assert text in (found[name], {'yes': '1', 'no': '0'}.get(found[name])), (name, text, found[name])"
        self.call(block, [sys.executable, "-c", check, str(path)], None)

    def begin(self, block: Block, inside: list[str], until: str) -> None:
        ((command, _),) = commands(block.text)
        log = self.folder / f"background{block.line}.log"
        with log.open("wb") as out:
            job = subprocess.Popen(
                [*inside, *self.shell(command)],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.jobs.append((block, job, log))
        deadline = time.monotonic() + LIMIT_S
        while until not in self.shown(log.read_text()) and job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert until in self.shown(log.read_text()), f"{block.where}: no {until!r}, status {job.poll()}: {log.read_text()}"

    def stop(self) -> None:
        """As Ctrl-C does."""
        for block, job, log in reversed(self.jobs):
            os.killpg(job.pid, signal.SIGINT)
            status = job.wait(LIMIT_S)
            assert status in (0, 130, -signal.SIGINT), f"{block.where}: ended with status {status}: {log.read_text()}"
        self.jobs.clear()

    def kill(self) -> None:
        for _, job, _ in self.jobs:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
            job.wait(LIMIT_S)
        self.jobs.clear()


@contextmanager
def wire() -> Iterator[dict[str, Namespace]]:
    """Two hosts and a cable: `eth0` in both, with the guide's addresses."""
    with Namespace() as here, Namespace() as there:
        both = {"eth0": here, "peer": there}
        for ns in both.values():
            ns.run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        sh("ip", "link", "add", "eth0", "netns", here.name, "type", "veth", "peer", "name", "eth0", "netns", there.name)
        for name, ns in both.items():
            ns.ip("addr", "add", f"{HOSTS[name]}/24", "dev", "eth0")
            ns.ip("link", "set", "eth0", "up")
        for ns in both.values():
            wait_for("the carrier", lambda ns=ns: "LOWER_UP" in ns.ip("link", "show", "eth0"))  # type: ignore[misc]
        yield both


def environment(folder: Path, base: dict[str, str]) -> dict[str, str]:
    """Of the reader's shell: the commands of the environment that the tests run in, and no other process of pyvma's in sight."""
    env = {name: value for name, value in base.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    bin_folder = str(Path(sys.executable).parent)
    env |= {"PATH": f"{bin_folder}:{env['PATH']}", "PYTHONUNBUFFERED": "1", "PYVMA_CONTROL_DIR": str(folder), "COLUMNS": "120"}
    from pyvma import _config

    if any(row.name == "stats_dir" for row in _config.rows()):
        env["PYVMA_STATS_DIR"] = str(folder)
    return env


def execute(path: Path, folder: Path, base: dict[str, str]) -> None:
    """Everything on the page, with the package that is installed."""
    (folder / "env").symlink_to(sys.prefix)
    with ExitStack() as stack:
        follow(path, Scratch(folder, environment(folder, base), stack))


def follow(path: Path, scratch: Scratch) -> None:
    """The page from its beginning to its end."""
    scratch.stack.callback(scratch.kill)
    found = blocks(path)
    for block, following in zip(found, [*found[1:], None], strict=True):
        scratch.run(block, following)
    scratch.stop()
