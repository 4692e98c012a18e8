"""`python -m pyvma PROGRAM`: the program sees, prints and leaves what it would under `python PROGRAM`, and has our sockets."""

from __future__ import annotations

import compileall
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from lab import softnic_reason

Env = dict[str, str]
LIMIT_S = 100
TELL = """
import __main__, json, os, socket, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "names": sorted(vars(__main__)), "name": __name__, "is main": __main__.__dict__ is globals(),
    "file": globals().get("__file__"), "package": globals().get("__package__"),
    "spec": repr(globals().get("__spec__")).partition(" object at ")[0],
    "loader": type(globals().get("__loader__")).__name__, "future": (lambda a: int).__code__.co_flags & 0x1000000,
    "stdin": sys.stdin.read() if sys.argv[0] != "-" else "",
}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script, a module, a package, an archive, a compiled script, and a link to the script from elsewhere."""
    (tmp_path / "tell.py").write_text(TELL)
    (tmp_path / "bench").write_text("print('the file named bench')")
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(TELL)
    (package / "inner.py").write_text(TELL)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", TELL)
    compileall.compile_file(tmp_path / "tell.py", quiet=1, legacy=True)
    (tmp_path / "tell.pyc").rename(tmp_path / "compiled.pyc")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.py").symlink_to(tmp_path / "tell.py")
    return tmp_path


def both(env: Env, folder: Path, *arguments: str, stdin: str = "", options: tuple[str, ...] = ()) -> list[subprocess.CompletedProcess[str]]:
    """What `python` and `python -m pyvma` make of the same command line."""
    commands = [[sys.executable, *arguments], [sys.executable, "-m", "pyvma", *options, *arguments]]
    return [
        subprocess.run(command, env=env, cwd=folder, input=stdin, capture_output=True, text=True, timeout=LIMIT_S) for command in commands
    ]


def ran(env: Env, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pyvma", *arguments], env=env, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("safe_path", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        ["tell.py"],
        ["./tell.py", "-m", "--verbose", "-"],
        ["elsewhere/link.py", "a b"],
        ["compiled.pyc"],
        ["pack"],
        ["archive.zip", "x"],
        ["-m", "tell", "-c", "x"],
        ["-m", "pack"],
        ["-m", "pack.inner", "--stats"],
        ["-c", TELL, "-m", "x"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]).replace(TELL, "CODE"),
)
def test_sees_the_same(clean_env: Env, folder: Path, arguments: list[str], safe_path: bool) -> None:
    if not safe_path:
        del clean_env["PYTHONSAFEPATH"]
    elif arguments[:2] == ["-m", "tell"] or "pack" in str(arguments):
        clean_env["PYTHONPATH"] = str(folder)
    expected, got = both(clean_env, folder, *arguments, stdin="input")
    assert expected.returncode == 0, expected.stderr
    assert (got.stdout, got.stderr, got.returncode) == (expected.stdout, expected.stderr, 0)


def test_from_stdin(clean_env: Env, folder: Path) -> None:
    expected, got = both(clean_env, folder, "-", "argument", stdin=TELL)
    assert (got.stdout, got.stderr, got.returncode) == (expected.stdout, expected.stderr, 0)


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit()",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('a word')",
        "raise SystemExit(3)",
        "import os; os._exit(9)",
        "def f():\n    1 / 0\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
        "not a program",
        "import no_such_module",
        "raise KeyboardInterrupt",
        "import sys\nsys.excepthook = lambda kind, error, tb: print(kind, error, tb.tb_frame.f_code.co_name, file=sys.stderr)\n1 / 0",
        "import atexit, threading, time\natexit.register(print, 'last')\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\nprint('main')",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    ],
)
def test_ends_the_same(clean_env: Env, folder: Path, code: str) -> None:
    (folder / "ends.py").write_text(code)
    expected, got = both(clean_env, folder, "ends.py")
    assert (got.stdout, got.stderr, got.returncode) == (expected.stdout, expected.stderr, expected.returncode)
    expected, got = both(clean_env, folder, "-c", code)
    assert (got.stdout, got.stderr, got.returncode) == (expected.stdout, expected.stderr, expected.returncode)


def test_modules_end_the_same(clean_env: Env, folder: Path) -> None:
    """But for the frames of runpy, which are told of neither."""
    clean_env["PYTHONPATH"] = str(folder)
    (folder / "fails.py").write_text("def f():\n    1 / 0\nf()\n")
    expected, got = both(clean_env, folder, "-m", "fails")
    shown = [line for line in expected.stderr.splitlines() if "<frozen runpy>" not in line]
    assert (got.stderr.splitlines(), got.returncode) == (shown, 1)
    expected, got = both(clean_env, folder, "-m", "no_such_module")
    assert (got.stderr, got.returncode) == (expected.stderr, expected.returncode)
    expected, got = both(clean_env, folder, "no/such/script.py")
    assert (got.stderr, got.returncode) == (expected.stderr, 2)


def test_interrupt_ends_it_as_the_signal(clean_env: Env, folder: Path) -> None:
    (folder / "sleeps.py").write_text("import time\nprint('there', flush=True)\ntime.sleep(100)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "pyvma", "sleeps.py"], env=clean_env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == -signal.SIGINT
    lines = told.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{folder}/sleeps.py", line ')
    assert lines[-1] == "KeyboardInterrupt"


def test_spawned_children_find_the_program(clean_env: Env, folder: Path) -> None:
    (folder / "spawns.py").write_text(
        "import multiprocessing\n\ndef work(x):\n    return x * 2\n\n"
        "if __name__ == '__main__':\n    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(work, [1, 2]))\n"
    )
    clean_env["PYTHONPATH"] = str(folder)
    for arguments in (["spawns.py"], ["-m", "spawns"]):
        _, got = both(clean_env, folder, *arguments)
        assert (got.stdout, got.stderr) == ("[2, 4]\n", "")


def test_commands_and_files_of_their_names(clean_env: Env, folder: Path) -> None:
    expected, got = both(clean_env, folder, "./bench")
    assert got.stdout == expected.stdout == "the file named bench\n"
    done = subprocess.run(
        [sys.executable, "-m", "pyvma", "bench"], env=clean_env, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert "the file" not in done.stdout
    assert done.returncode == 2
    _, got = both(clean_env, folder, "bench", options=("--verbose",))
    assert got.stdout == "the file named bench\n"


def test_verbose_says_what_is_replaced(clean_env: Env, folder: Path) -> None:
    code = "import socket; print(socket.socket.__module__)"
    _, got = both(clean_env, folder, "-c", code, options=("--verbose", "--only", "socket,select"))
    names = ["socket.socket", "select.select", "select.poll", "select.epoll"]
    assert (got.stdout, got.stderr.splitlines()) == ("pyvma.socket\n", [f"pyvma: replaced {name}" for name in names])
    _, got = both(clean_env, folder, "-c", code, options=("--only=selectors",))
    assert (got.stdout, got.stderr) == ("socket\n", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "socket,nonsense", "x.py"], "'nonsense' is none of socket, select, selectors, ssl, asyncio"),
        (["--rx-poll", "soon", "x.py"], "rx_poll"),
        (["--config", "no/such/file.toml", "x.py"], "no/such/file.toml"),
        (["--nonsense", "x.py"], "--nonsense"),
        (["--verbose"], "which program?"),
        (["-m"], "which program?"),
        (["-c", "-m", "x"], "not allowed with"),
    ],
)
def test_bad_options(clean_env: Env, folder: Path, options: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyvma", *options], env=clean_env, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_help(clean_env: Env, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyvma", "--stats", "--help"], env=clean_env, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0
    assert "SCRIPT | -m MODULE | -c CODE" in done.stdout
    assert "--interfaces TEXT" in done.stdout
    assert "python -m pyvma [OPTION...] SCRIPT" in " ".join(ran(clean_env, tmp_path, "--help").stdout.split())


@pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there")
def test_settings_and_counters(clean_env: Env, folder: Path, fabric: str) -> None:
    (folder / "talks.py").write_text(
        "import socket\n"
        "with socket.create_server(('10.78.0.1', 0)) as server, socket.create_connection(server.getsockname()) as client:\n"
        "    peer, _ = server.accept()\n"
        "    with peer:\n"
        "        client.sendall(b'x' * 1000)\n"
        "        print(len(peer.recv(1000, socket.MSG_WAITALL)), bool(client.offload))\n"
    )
    (folder / "settings.toml").write_text("rx_poll = 7\nrx_batch = 16\n")
    interface = f"softnic:fabric={fabric},port=0,addr=10.78.0.1/24"
    options = ("--stats", "--config", "settings.toml", "--rx-batch=8", "--interfaces", interface)
    _, got = both(clean_env, folder, "talks.py", options=options)
    assert (got.stdout, got.returncode) == ("1000 True\n", 0), got.stderr
    assert "pyvma: tcp.opened_passive 1" in got.stderr.splitlines()
    code = "import pyvma; found = pyvma.settings(); print(found['rx_poll'], found['rx_batch'])"
    _, got = both(clean_env, folder, "-c", code, options=options)
    assert (got.stdout, got.stderr) == ("7 8\n", "pyvma: the engine has done nothing\n")


def test_the_environment_stays(clean_env: Env, folder: Path) -> None:
    expected, got = both(clean_env, folder, "-c", "import os; print(sorted(os.environ))", options=("--rx-poll", "5"))
    assert got.stdout == expected.stdout
    assert "PYVMA_RX_POLL" not in os.environ
