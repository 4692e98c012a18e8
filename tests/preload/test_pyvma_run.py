"""`pyvma run`: how a program starts and ends under it, what is said, and that there is one engine in a process."""

from __future__ import annotations

import secrets
import shutil
import signal
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from exchange import wait_for

from pyvma._cli import _run_elf, _run_stats, run

LIMIT_S = 60.0
Env = dict[str, str]

pytestmark = pytest.mark.skipif(not run.library().exists(), reason="built without the preload library")


@pytest.fixture
def env(clean_env: Env, fabric: str) -> Env:
    """Two ports of a software NIC: what is sent from one comes to the other, in one process."""
    net = secrets.randbelow(200) + 20
    ports = ";".join(f"softnic:fabric={fabric},port={n},addr=10.{net}.3.{n + 1}/24,name=sn{n}" for n in range(2))
    return {**clean_env, "PYVMA_INTERFACES": ports, "NET": f"10.{net}.3."}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "pyvma", "run", *words]


def called(env: Env, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), env=env, capture_output=True, text=True, timeout=LIMIT_S)


SAID = "TCP and UDP sockets on"


def test_the_program_is_this_process(env: Env) -> None:
    process = subprocess.Popen(
        command("--", "sh", "-c", "echo $$; exit 7"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, err = process.communicate(timeout=LIMIT_S)
    assert (int(out), process.returncode) == (process.pid, 7)
    assert err.count("\n") == 1
    assert err.startswith(f"pyvma run: sh: {SAID} ")


@pytest.mark.parametrize("more", [(), ("--stats",)])
def test_how_programs_end(env: Env, more: tuple[str, ...]) -> None:
    for status in (0, 1, 77, 255):
        assert called(env, "--quiet", *more, "sh", "-c", f"exit {status}").returncode == status
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        assert called(env, "--quiet", *more, "sh", "-c", f"kill -{int(number)} $$").returncode == -number


@pytest.mark.parametrize("more", [(), ("--stats",)])
def test_signals_that_python_ignores_are_not_ignored(env: Env, more: tuple[str, ...]) -> None:
    done = called(env, "--quiet", *more, "grep", "SigIgn", "/proc/self/status")
    assert int(done.stdout.split()[1], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0
    assert called(env, "--quiet", *more, "sh", "-c", "kill -PIPE $$").returncode == -signal.SIGPIPE


def test_nothing_to_say(env: Env) -> None:
    done = called(env, "--quiet", "--", "echo", "a", "--stats")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a --stats\n", "")


def test_programs_that_cannot_be(env: Env, tmp_path: Path) -> None:
    """As env(1) has it."""
    plain = tmp_path / "plain"
    plain.write_text("#!/nonexistent/interpreter\n")
    for words, status, text in (
        (["no-such-program-anywhere"], 127, "No such file"),
        ([str(tmp_path / "none")], 127, "No such file"),
        ([str(plain)], 126, "Permission denied"),
        ([str(tmp_path)], 126, "Permission denied"),
        ([], 125, "which program?"),
        (["--set", "nonsense", "true"], 125, "NAME=VALUE"),
        (["--set", "no_such=1", "true"], 125, "no such setting"),
        (["--preset", "fast", "true"], 125, "preset"),
        (["--rules", str(tmp_path / "none"), "true"], 125, "rules_file"),
        (["--config", str(tmp_path / "none"), "true"], 125, "No such file"),
    ):
        for more in ([], ["--stats"]):
            done = called(env, *more, *words)
            assert (done.returncode, done.stdout) == (status, ""), (words, done.stderr)
            assert text in done.stderr and done.stderr.count("\n") == 1, (words, done.stderr)
    plain.chmod(0o755)
    assert called(env, str(plain)).returncode == 126


def test_settings_are_the_program_s(env: Env, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("rx_batch = 7\n")
    options = ["--preset", "latency", "--strict", "--set", "log-level=info", "--config", str(config), "--app-id", "me"]
    done = called({**env, "LD_PRELOAD": "libm.so.6"}, "--quiet", *options, "--interfaces", env["PYVMA_INTERFACES"].split(";")[0], "env")
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert found["LD_PRELOAD"] == f"{run.library()}:libm.so.6"
    assert found["PYVMA_PRESET"] == "latency"
    assert found["PYVMA_STRICT"] == "1"
    assert found["PYVMA_LOG_LEVEL"] == "info"
    assert found["PYVMA_APP_ID"] == "me"
    assert found["PYVMA_CONFIG"] == str(config)
    assert ";" not in found["PYVMA_INTERFACES"]
    # Within one another: once is enough.
    done = called(env, "--quiet", *command("--quiet", "env"))
    assert f"LD_PRELOAD={run.library()}\n" in done.stdout


def test_strict_refuses_what_would_be_the_kernels(clean_env: Env) -> None:
    done = called(clean_env, "true")
    assert done.returncode == 0
    assert "runs on the kernel's sockets: no interface is configured" in done.stderr
    done = called(clean_env, "--strict", "true")
    assert done.returncode == 125
    assert "--strict: no interface is configured" in done.stderr


# ---- beside the program -------------------------------------------------------------------------------------------------------

TALK = """
import os, socket, sys
net = os.environ["NET"]
a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
a.bind((net + "1", 0)), b.bind((net + "2", 0))
for _ in range(10):
    a.sendto(b"x" * 100, b.getsockname())
    assert len(b.recv(200)) == 100
"""


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)"], ids=["orderly", "_exit", "killed"])
def test_statistics(env: Env, fabric: str, end: str) -> None:
    done = called(env, "--stats", sys.executable, "-c", TALK + end)
    assert done.returncode == (-9 if "kill" in end else 0), done.stderr
    lines = done.stderr.splitlines()
    assert SAID in lines[0]
    assert "10 datagrams received, 10 datagrams sent" in lines[-1], lines
    if end:  # the next one to open the fabric would
        for left in Path("/dev/shm").glob(f"*{fabric}*"):
            left.unlink()


def test_statistics_of_nothing(env: Env) -> None:
    done = called(env, "--stats", "true")
    assert done.stderr.splitlines()[1:] == ["pyvma run: no engine was started: every socket was the kernel's"]


def test_signals_are_passed_on(env: Env) -> None:
    script = "trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        command("--stats", "--quiet", "sh", "-c", script), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "usr1\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "term\n"
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == 3
    finally:
        process.kill()
        process.wait(LIMIT_S)


def test_a_stopped_program_stops_both(env: Env) -> None:
    process = subprocess.Popen(command("--stats", "--quiet", "sh", "-c", "kill -STOP $$; exit 5"), env=env, stderr=subprocess.DEVNULL)

    def stopped() -> bool:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    try:
        wait_for("the stop", stopped)
        process.send_signal(signal.SIGCONT)
        assert process.wait(LIMIT_S) == 5
    finally:
        process.kill()
        process.wait(LIMIT_S)


# ---- one engine ---------------------------------------------------------------------------------------------------------------

BOTH = """
import os, socket as plain
import pyvma, pyvma.socket as ours
net = os.environ["NET"]
maps = {line.split()[-1] for line in open("/proc/self/maps") if "libpyvma" in line}
assert sum(path.endswith("libpyvma.so") for path in maps) == 1, maps
a = plain.socket(plain.AF_INET, plain.SOCK_DGRAM)
a.bind((net + "1", 0))
b = ours.socket(ours.AF_INET, ours.SOCK_DGRAM)
b.bind((net + "2", 0))
assert b.offload.state == "offloaded", b.offload
a.settimeout(30), b.settimeout(30)
b.sendto(b"from pyvma", a.getsockname())
text, peer = a.recvfrom(100)
assert (text, peer) == (b"from pyvma", b.getsockname()), (text, peer)
a.sendto(b"from libc", b.getsockname())
assert b.recv(100) == b"from libc"
c = ours.fromfd(a.fileno(), ours.AF_INET, ours.SOCK_DGRAM)
assert c.offload.state == "offloaded", c.offload
assert c.getsockname() == a.getsockname()
counters = pyvma.counters()
assert counters["udp.rx_datagrams"] == 2, counters
l = plain.socket(); l.bind((net + "1", 0)); l.listen()
s = ours.create_connection(l.getsockname(), timeout=30)
t, _ = l.accept()
s.sendall(b"stream"); t.settimeout(30)
assert t.recv(6) == b"stream"
print("one engine")
"""


def test_import_pyvma_uses_the_engine_that_is_there(env: Env) -> None:
    done = called(env, "--quiet", sys.executable, "-c", BOTH)
    assert (done.returncode, done.stdout, done.stderr) == (0, "one engine\n", "")


# ---- dry runs -----------------------------------------------------------------------------------------------------------------


def test_a_dry_run(env: Env, tmp_path: Path) -> None:
    rules = tmp_path / "r.conf"
    rules.write_text(
        "application-id other *\nuse os tcp_server *:1\napplication-id sl* *\n\nuse os udp_connect *:53\nuse vma tcp_server *:80\n"
    )
    done = called(
        env, "--dry-run", "--rules", str(rules), "--socket", f"tcp_server {env['NET']}1:8080", "--socket", "nonsense", "sleep", "1000"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"sleep: {SAID} ") and lines[0].endswith(f"2 rules of {rules}")
    assert f"  udp_connect  the kernel's rule 2 of {rules}, line 5: use os udp_connect *:53" in lines
    assert f"  tcp_server   offloaded    rule 3 of {rules}, line 6: use vma tcp_server *:80" in lines
    assert "  udp_sender   offloaded    no rule" in lines
    assert any(line.startswith(f"  tcp_server {env['NET']}1:8080: softnic:") for line in lines), lines
    assert any(line.startswith("  nonsense: cannot be made: a role is one of") for line in lines)
    assert f"  LD_PRELOAD={run.library()}" in lines


# ---- what a program is --------------------------------------------------------------------------------------------------------


def test_what_scripts_are(tmp_path: Path) -> None:
    script = tmp_path / "script"
    for first, image in (
        ("#!/bin/sh", "/bin/sh"),
        ("#! /bin/sh -e", "/bin/sh"),
        ("#!/usr/bin/env sh", shutil.which("sh")),
        ("# none", str(script)),
    ):
        script.write_text(f"{first}\ntrue\n")
        found = _run_elf.examine(str(script))
        assert (found.path, found.image, found.reason) == (str(script), image, ""), first
    script.write_text(f"#!{script}\n")
    with pytest.raises(_run_elf.CannotRunError):
        _run_elf.examine(str(script))


def image(interpreter: bytes = b"/lib64/ld-linux-x86-64.so.2\0", note: bytes = b"", bits: int = 2, machine: int | None = None) -> bytes:
    """An ELF file that is only headers."""
    machine = struct.unpack_from("<H", Path(sys.executable).resolve().read_bytes()[:64], 18)[0] if machine is None else machine
    parts = [(3, interpreter), (4, note)]
    head = (
        b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, len(parts), 0, 0, 0)
    )
    at = 64 + 56 * len(parts)
    table, rest = b"", b""
    for kind, data in parts:
        table += struct.pack("<IIQQQQQQ", kind if data else 0, 0, at + len(rest), 0, 0, len(data), len(data), 1)
        rest += data
    return head + table + rest


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (image(), ""),
        (image(b""), "is static"),
        (image(b"/lib/ld-musl-x86_64.so.1\0"), "another C library"),
        (image(bits=1), "32-bit"),
        (image(machine=8), "another machine"),
        (image(note=struct.pack("<III", 4, 4, 4) + b"Go\0\0" + b"id42"), "is a Go program"),
        (image()[:40], "not a whole ELF file"),
        (b"\x7fELF", "not a whole ELF file"),
    ],
)
def test_what_elf_files_are(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "prog"
    path.write_bytes(data)
    path.chmod(stat.S_IRWXU)
    found = _run_elf.examine(str(path))
    assert (reason in found.reason) if reason else not found.reason


@pytest.mark.parametrize(
    "line",
    ["9\tx\ttcp.rx_bytes=many", "\u0663\tx\t", "\u00b2\tx\t", "9" * 5000, "9\tx\ta=" + "9" * 5000, "\0\t=\t=="],
    ids=["value", "digit", "superscript", "number", "counter", "nothing"],
)
def test_a_report_with_garbage(line: str) -> None:
    found = _run_stats.read(f"7\tnginx\ttcp.rx_bytes=5\n{line}\n", "/nonexistent")
    assert found.pop(7) == ("nginx", {"tcp.rx_bytes": 5})
    assert found in ({}, {9: ("x", {})})


def test_the_report_of_many_processes() -> None:
    text = "7\tnginx\tstarted\n8\tnginx\tstarted\n7\tnginx\ttcp.rx_bytes=5 tcp.opened_passive=1 \nnonsense\n"
    found = _run_stats.read(text, "/nonexistent")
    assert found == {7: ("nginx", {"tcp.rx_bytes": 5, "tcp.opened_passive": 1}), 8: ("nginx", {})}
    assert _run_stats.told(found) == [
        "nginx [7]: 1 TCP connections accepted, 5 bytes received by TCP",
        "nginx [8]: nothing went by the stack",
    ]
