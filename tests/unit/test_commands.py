"""Every command and sub-command: help with examples, exit statuses, one line for what a user can mend, completion by three shells."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from exchange import wait_for

from pyvma import _cli, daemon
from pyvma._cli import UserError, _help, completion, stats
from pyvma._cli._help import guarded, walk
from pyvma.daemon._main import parser as daemon_parser

LIMIT_S = 60
ALL = {" ".join(("pyvma", *words)): words for words, _ in walk(_cli.parser())}
STATS = {" ".join(("pyvma-stats", *words)): words for words, _ in walk(stats.parser())}
DAEMON = {" ".join(("pyvmad", *words)): words for words, _ in walk(daemon_parser())}
MAINS = {"pyvma": _cli.main, "pyvma-stats": stats.main, "pyvmad": daemon.main}
# Commands that have a word of the user's between theirs.
BETWEEN = {"control": "4711"}
Env = dict[str, str]


def typed(words: tuple[str, ...]) -> tuple[str, ...]:
    """As a user writes them."""
    found: list[str] = []
    for i, word in enumerate(words):
        found.append(word)
        if word in BETWEEN and i + 1 < len(words):
            found.append(BETWEEN[word])
    return tuple(found)


def call(program: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command line, in this process."""
    try:
        status = MAINS[program](list(words))
    except SystemExit as over:  # the parser's
        status = over.code if isinstance(over.code, int) else 1
    said = capsys.readouterr()
    return status, said.out, said.err


def test_there_are_the_commands_that_there_should_be() -> None:
    assert len(ALL) > 40
    assert {"pyvma stats top", "pyvma stats serve", "pyvma stats explain", "pyvma stats control set", "pyvma completion"} <= set(ALL)
    assert {name.replace("pyvma-stats", "pyvma stats") for name in STATS} <= set(ALL)
    assert {name.replace("pyvmad", "pyvma daemon") for name in DAEMON} <= set(ALL)
    assert set(completion.PROGRAMS) == set(MAINS)


def test_a_command_imports_no_other() -> None:
    """`pyvma run` is in front of every start of a program: what draws tables is another command's."""
    code = "import sys; from pyvma._cli import main; main(['run', '--dry-run', '--', 'true']); print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("name", [*ALL, *STATS, *DAEMON])
def test_help(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    words = (ALL | STATS | DAEMON)[name]
    status, out, err = call(name.split()[0], (*typed(words), "--help"), capsys)
    assert (status, err) == (0, "")
    assert out.startswith("usage: ")
    flat = " ".join(out.split())
    assert re.search(r"examples?: ", flat), "no example"
    assert "exit status: 0" in flat
    assert "\x1b" not in out
    # An example is a command line of this very command.
    if len(words) > 0 and name in ALL:
        shown = " ".join(("pyvma", *typed(words)))
        assert f"{shown} " in f"{out} ".replace("pyvma-stats", "pyvma stats").replace("\n", " \n")
    parser = dict(walk(_cli.parser()))[words] if name in ALL else None
    if parser is not None and words:
        assert parser.description


@pytest.mark.parametrize("name", [*(name for name in ALL if ALL[name]), *STATS, *(name for name in DAEMON if DAEMON[name])])
def test_wrong_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (ALL | STATS | DAEMON)[name]
    status, out, err = call(name.split()[0], (*typed(words), "--no-such-option"), capsys)
    assert (status, out) == (2, "")
    assert err.startswith("usage: ")
    assert f"{name.split()[0]}" in err.splitlines()[-1]
    assert ": error: " in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("config no_such", "no such setting: no_such"),
        ("capture --pid 999999999", "there is no process 999999999"),
        ("capture --pid 1 --snaplen -1", "--snaplen"),
        ("stats -p 999999999", "there is no process 999999999"),
        ("stats -k /nonexistent", "/nonexistent"),
        ("stats explain -p 999999999", "there is no process 999999999"),
        ("stats control 999999999", "there is no process 999999999"),
        ("stats top", "needs a terminal"),
        ("bench ping-pong -i nowhere", "'nowhere' is no address"),
        ("bench server -p 0", "--port"),
        ("daemon status --socket /nonexistent", "/nonexistent: no daemon is there"),
        ("roce --root /nonexistent status nothing", "nothing"),
    ],
)
def test_what_a_user_can_mend_is_one_line(line: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = tuple(line.split())
    if words[:2] == ("roce", "--root"):
        words = ("roce", "status", "nothing", "--root", "/nonexistent")
    status, _, err = call("pyvma", words, capsys)
    assert status == 1
    assert err.startswith(f"pyvma {words[0]}: ")
    assert text in err
    assert err.count("\n") == 1


def test_how_a_command_ends(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(error: BaseException) -> int:
        raise error

    assert guarded("x", lambda: 3) == 3
    assert guarded("x", lambda: fails(KeyboardInterrupt())) == 130
    assert guarded("x", lambda: fails(UserError("two\nlines"))) == 1
    assert capsys.readouterr().err == "x: two lines\n"
    with pytest.raises(ZeroDivisionError):  # a fault of ours is shown whole
        guarded("x", lambda: fails(ZeroDivisionError()))


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "pyvma", *words]


@pytest.mark.parametrize("words", [("config",), ("--help",), ("completion", "bash")])
def test_who_reads_may_go(words: tuple[str, ...], clean_env: Env) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(program(*words), env=clean_env, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_device(clean_env: Env) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(program("config"), env=clean_env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (1, "pyvma config: No space left on device\n")


@pytest.mark.parametrize("words", [("devinfo",), ("demo", "--seconds", "0.1", "--no-xdp")])
def test_a_setting_that_is_wrong(words: tuple[str, ...], clean_env: Env) -> None:
    env = {**clean_env, "PYVMA_RX_POLL": "soon", "PYVMA_INTERFACES": "nonsense:x=1"}
    done = subprocess.run(program(*words), env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "PYVMA_RX_POLL" in done.stderr.splitlines()[-1]


def in_a_terminal(words: tuple[str, ...], env: Env) -> str:
    """What a command writes to a terminal."""
    parent, child = pty.openpty()
    process = subprocess.Popen(program(*words), env={**env, "TERM": "xterm-256color"}, stdout=child, stderr=child, stdin=child)
    os.close(child)
    said = b""
    try:
        while True:
            piece = os.read(parent, 65536)
            said += piece
            if not piece:
                break
    except OSError:  # the terminal is gone with the program
        pass
    finally:
        os.close(parent)
        process.kill()
        process.wait(LIMIT_S)
    return said.decode(errors="replace")


COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-7]|38|9[0-7])(;[0-9;]*)?m")


@pytest.mark.parametrize("words", [("config", "rx_poll"), ("doctor",)])
def test_no_colour_where_none_is_wanted(words: tuple[str, ...], clean_env: Env) -> None:
    assert not COLOUR.search(in_a_terminal(words, {**clean_env, "NO_COLOR": "1"}))
    done = subprocess.run(program(*words), env=clean_env, capture_output=True, text=True, timeout=LIMIT_S)
    assert "\x1b" not in done.stdout


# ---- completion ----


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of both programs for three shells."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        for name in MAINS:
            with (folder / f"{name}.{shell}").open("w") as file, contextlib.redirect_stdout(file):
                assert _cli.main(["completion", shell, "--program", name]) == 0
    return folder


def bash_completes(scripts: Path, line: str) -> set[str]:
    name = line.split()[0]
    code = f"""
        source {scripts}/{name}.bash
        words=({line}); [[ "{line}" == *" " ]] && words+=("")
        COMP_WORDS=("${{words[@]}}"); COMP_CWORD=$((${{#words[@]}} - 1)); COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}
        function=$(complete -p {name} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        "$function" {name} "${{words[-1]}}" ""
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def fish_completes(scripts: Path, line: str) -> set[str]:
    code = f"source {scripts}/{line.split()[0]}.fish; complete -C '{line}'"
    env = {**os.environ, "HOME": str(scripts), "XDG_CONFIG_HOME": str(scripts), "XDG_DATA_HOME": str(scripts)}
    done = subprocess.run(["fish", "--no-config", "-c", code], env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("pyvma ", {"doctor", "devinfo", "roce", "capture", "config", "softnic", "stats", "bench", "demo", "completion"}),
        ("pyvma stats con", {"control"}),
        ("pyvma bench compare --ri", {"--ring"}),
        ("pyvma-stats ex", {"explain"}),
        ("pyvmad run --max", {"--max-flows"}),
        ("pyvma capture --pid 1 -w /etc/host", {"/etc/hosts"}),
    ],
)
def test_bash_and_fish_complete(scripts: Path, shell: str, line: str, wanted: set[str]) -> None:
    assert shutil.which(shell), f"apt install {shell}"
    complete = bash_completes if shell == "bash" else fish_completes
    assert wanted <= complete(scripts, line)


@pytest.mark.skipif(shutil.which("tmux") is None or shutil.which("zsh") is None, reason="apt install tmux zsh")
def test_zsh_completes(scripts: Path) -> None:
    """As a person has it: by Tab, in a terminal."""
    (scripts / "functions").mkdir(exist_ok=True)
    shutil.copy(scripts / "pyvma.zsh", scripts / "functions" / "_pyvma")
    (scripts / ".zshrc").write_text(f"fpath=({scripts}/functions $fpath)\nautoload -U compinit; compinit -D -u\nPS1='ready> '\n")
    server = f"pyvma-test-{secrets.token_hex(6)}"
    env = {**os.environ, "ZDOTDIR": str(scripts), "TERM": "screen-256color", "LC_ALL": "C.UTF-8"}

    def tmux(*arguments: str) -> str:
        line = ["tmux", "-u", "-L", server, *arguments]
        return subprocess.run(line, env=env, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout

    tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "zsh", "-i")
    try:
        wait_for("the shell", lambda: "ready>" in tmux("capture-pane", "-p"))
        tmux("send-keys", "pyvma comp", "Tab")
        wait_for("a command", lambda: "ready> pyvma completion" in tmux("capture-pane", "-p"))
    finally:
        tmux("kill-server")


def test_examples_are_of_commands_that_there_are() -> None:
    assert {name for name in _help.EXAMPLES if name not in {" ".join(words) for words in ALL.values()}} <= {
        "bench under-load",
        "bench playback",
        "stats trace",
    }
