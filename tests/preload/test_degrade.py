"""Programs into which the library cannot get, and processes in which the engine may not start: they run on the kernel as if pyvma were not
there, and one line says why."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from c_programs import compiled
from netns import Namespace, usable

from pyvma._cli import run

SOURCE = Path(__file__).with_name("sandboxed.c")
LIMIT_S = 60.0
CALLS = ("xdp", "netlink", "bpf", "eventfd", "memfd", "epoll", "ppoll", "thread", "getrandom")
Env = dict[str, str]

pytestmark = [
    pytest.mark.skipif(not shutil.which("cc"), reason="no compiler"),
    pytest.mark.skipif(not run.library().exists(), reason="built without the preload library"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = compiled(tmp_path_factory.mktemp("sandboxed") / "sandboxed", SOURCE)
    for parent in (path.parent, path.parent.parent, path.parent.parent.parent):
        parent.chmod(0o755)
    return path


@pytest.fixture
def softnic(clean_env: Env, fabric: str) -> Env:
    """A software NIC, for which no privilege is needed, and the library under the program."""
    net = f"10.{secrets.randbelow(200) + 20}.9.1/24"
    return {**clean_env, "LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": f"softnic:fabric={fabric},port=0,addr={net}"}


def works(env: Env, *command: str) -> list[str]:
    """It does; its lines on stderr, which are pyvma's."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "works\n"), (done.returncode, done.stdout, done.stderr)
    return done.stderr.splitlines()


def test_nothing_is_in_the_way(program: Path, softnic: Env) -> None:
    assert works(softnic, str(program)) == []


@pytest.mark.parametrize("action", ["kill", "errno", "trap"])
@pytest.mark.parametrize("how", ["prctl", "seccomp"])
def test_a_sandbox_of_its_own(program: Path, softnic: Env, how: str, action: str) -> None:
    found = works(softnic, str(program), how, action, *CALLS)
    assert found == ["pyvma: the program has a seccomp filter of its own: this program has kernel sockets only"]


@pytest.mark.parametrize("call", ["xdp", "netlink", "bpf", "eventfd", "memfd", "epoll", "ppoll", "thread", "getsockopt", "getdents"])
def test_started_in_a_sandbox_that_kills(program: Path, softnic: Env, call: str) -> None:
    for action in ("kill", "trap"):
        found = works(softnic, str(program), "exec", action, call)
        assert len(found) == 1
        assert found[0].startswith("pyvma: the seccomp sandbox here forbids ")


def test_started_in_a_sandbox_that_is_not_in_the_way(program: Path, softnic: Env) -> None:
    """As containers have one."""
    assert works(softnic, str(program), "exec", "kill", "chroot") == []


@pytest.mark.parametrize("call", CALLS)
def test_started_in_a_sandbox_that_refuses(program: Path, softnic: Env, call: str) -> None:
    """What the engine can do without is not missed; else it does not start."""
    found = works(softnic, str(program), "exec", "errno", call)
    assert len(found) <= 1, found
    assert all(line.startswith("pyvma") for line in found)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    "break_it",
    ["mount -t tmpfs -o ro none /dev/shm", "mount -t tmpfs none /proc", "mount -t tmpfs -o ro none /dev/shm; mount -t tmpfs none /proc"],
)
def test_a_bare_container(program: Path, softnic: Env, break_it: str) -> None:
    found = works(softnic, "unshare", "-m", "sh", "-c", f'{break_it}; exec "$0"', str(program))
    if "ro none" in break_it:  # what lives there is named, and at the end that it is needed
        assert all("/dev/shm" in line for line in found), found
        assert found[-1].startswith("pyvma: ")
    else:
        assert len(found) <= 1, found


@pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for network namespaces")
def test_no_privilege(program: Path, clean_env: Env) -> None:
    with Namespace() as ns:
        ns.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
        ns.ip("addr", "add", "10.77.1.1/24", "dev", "v0")
        ns.ip("link", "set", "v0", "up")
        env = {**clean_env, "LD_PRELOAD": str(run.library()), "PYVMA_INTERFACES": "xdp:device=v0"}
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        found = works(env, "ip", "netns", "exec", ns.name, *nobody, str(program))
        assert len(found) == 1
        assert found[0].startswith("pyvma")
        for device in ("none-such", "v1"):  # no such interface; one that is down
            env["PYVMA_INTERFACES"] = f"xdp:device={device}"
            found = works(env, "ip", "netns", "exec", ns.name, str(program))
            assert len(found) <= 1, found


@pytest.mark.parametrize("setting", ["PYVMA_INTERFACES=nonsense", "PYVMA_NO_SUCH=1", "PYVMA_RULES_FILE=/nonexistent"])
def test_settings_that_are_wrong(program: Path, softnic: Env, setting: str) -> None:
    name, _, value = setting.partition("=")
    found = works({**softnic, name: value}, str(program))
    assert len(found) == 1
    assert "kernel sockets only" in found[0]


# ---- what pyvma run sees before -----------------------------------------------------------------------------------------------


def by_run(env: Env, *command: str) -> list[str]:
    return works({**env, "LD_PRELOAD": ""}, sys.executable, "-m", "pyvma", "run", "--", *command)


def test_a_static_program(program: Path, softnic: Env, tmp_path: Path) -> None:
    static = compiled(tmp_path / "static", SOURCE, options=("-static",))
    assert works(softnic, str(static)) == []  # without us to tell it is just as it would be
    assert by_run(softnic, str(static)) == ["pyvma run: static runs on the kernel's sockets: static is static: it loads no libraries"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(("mode", "says"), [(0o4755, "is setuid"), (0o2755, "is setgid")])
def test_a_setuid_program(program: Path, softnic: Env, mode: int, says: str) -> None:
    privileged = program.with_name(f"privileged{mode}")
    shutil.copy(program, privileged)
    os.chown(privileged, 65534, 65534)
    privileged.chmod(mode)
    found = by_run(softnic, str(privileged))
    assert found == [f"pyvma run: {privileged.name} runs on the kernel's sockets: {privileged.name} {says}"]


def test_the_library_is_missing(program: Path, softnic: Env) -> None:
    found = works({**softnic, "LD_PRELOAD": "/nonexistent/libpyvma_preload.so"}, str(program))
    assert len(found) == 1  # the dynamic linker's
    assert "cannot be preloaded" in found[0]
