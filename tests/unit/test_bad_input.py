"""What is wrong from outside gets a clear message: rings, interfaces, privileges, settings, fabrics."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import pyvma.socket as socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.5.0.1', 0))
print(s.offload)
"""
NOBODY = 65534


def start(interfaces: str, user: int | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    """A process that starts the engine with these interfaces; other settings as PYVMA_* variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYVMA_", "VMA_"))}
    environment |= {"PYTHONSAFEPATH": "1", "PYVMA_INTERFACES": interfaces}
    environment |= {f"PYVMA_{name.upper()}": value for name, value in settings.items()}
    return subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, text=True, timeout=60, user=user)


def fabric_name() -> str:
    return f"t{secrets.token_hex(4)}"


GOOD = "softnic:fabric={},port=0,addr=10.5.0.1/24"


def test_the_good_one_starts() -> None:
    done = start(GOOD.format(fabric_name()))
    assert done.returncode == 0 and done.stdout.startswith("softnic:"), done.stderr


# interfaces -> what the message has to name
WRONG = {
    "nonsense:port=0,addr=10.5.0.1/24": "nonsense",
    "softnic": "softnic",
    "softnic:port=0,addr=10.5.0.1/24": "fabric",
    GOOD + ",colour=blue": "colour",
    GOOD + ",mtu=abc": "mtu.*abc",
    GOOD + ",mtu=200": "200",
    GOOD + ",mtu=100000": "100000",
    GOOD + ",addr=fd00::1/64,mtu=1000": "1280",
    "softnic:fabric={},port=0,addr=10.5.0.1": "10.5.0.1",
    "softnic:fabric={},port=0,addr=10.5.0.1/33": "33",
    "softnic:fabric={},port=0,addr=10.5.0.300/24": "10.5.0.300",
    "softnic:fabric={},port=0,addr=224.0.0.1/24": "224.0.0.1",
    "softnic:fabric={},port=4711,addr=10.5.0.1/24": "4711",
    "softnic:fabric=../../etc,port=0,addr=10.5.0.1/24": "\\.\\./\\.\\./etc",
    GOOD + ",vlan=5000": "5000",
    GOOD + ",mac=zz:00:00:00:00:01": "zz",
    GOOD + ",name=one;" + "softnic:fabric={},port=1,addr=10.5.1.1/24,name=one": "one",
    "verbs:device=no_such_device,addr=10.5.0.1/24": "no_such_device",
}


@pytest.mark.parametrize("interfaces", WRONG)
def test_wrong_interface(interfaces: str) -> None:
    done = start(interfaces.replace("{}", fabric_name()))
    assert done.returncode == 1, done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(WRONG[interfaces], last), last
    assert "Error" in last and "Traceback" not in last


SETTINGS = [("rx_bufs", "many"), ("rx_bufs", "-1"), ("rx_poll", "1e999"), ("strict", "perhaps"), ("no_such_setting", "1")]


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_wrong_setting(name: str, value: str) -> None:
    done = start(GOOD.format(fabric_name()), **{name: value})
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert name in last.lower()
    assert name == "no_such_setting" or value in last


def shared_file(fabric: str) -> Path:
    found = [path for path in Path("/dev/shm").iterdir() if path.name.endswith(fabric)]
    assert len(found) == 1, found
    return found[0]


HOLD = START + "\nimport sys\nprint('ready', flush=True)\nsys.stdin.read()"


@pytest.mark.parametrize(
    ("what", "offset", "data", "expected"),
    [
        ("another version", 8, b"\xff\xff\xff\xff", "version"),
        ("another magic", 0, b"\xff" * 8, "not a|damaged"),
        ("truncated", -1, b"", "damaged|truncated|shorter"),
        ("empty", -2, b"", "damaged|truncated|shorter|empty"),
    ],
)
def test_a_damaged_fabric_is_refused(what: str, offset: int, data: bytes, expected: str) -> None:
    fabric = fabric_name()
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYVMA_INTERFACES": GOOD.format(fabric)}
    holder = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().startswith(b"softnic:") and holder.stdout.readline() == b"ready\n"
        path = shared_file(fabric)
        # The holder keeps its mapping of the good file; the damaged one takes its name.
        with path.open("rb") as file:
            content = file.read(1 << 20)
        path.unlink()
        damaged = content[:100] if offset == -1 else b"" if offset == -2 else content[:offset] + data + content[offset + len(data) :]
        path.write_bytes(damaged)
        if len(damaged) > 100:
            os.truncate(path, int.from_bytes(content[16:24], "little"))
        path.chmod(0o600)
        done = start(f"softnic:fabric={fabric},port=1,addr=10.5.0.1/24")
        assert done.returncode == 1, f"{what}: {done.stdout}"
        assert re.search(expected, done.stderr.strip().splitlines()[-1]), done.stderr
        path.unlink()
    finally:
        holder.communicate(timeout=20)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_users_fabric_stays_his() -> None:
    """Fabrics are one user's own: another one of the same name is another fabric, and files are not readable for others."""
    fabric = fabric_name()
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYVMA_INTERFACES": GOOD.format(fabric)}
    holder = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert shared_file(fabric).stat().st_mode & 0o777 == 0o600
    finally:
        holder.communicate(timeout=20)
