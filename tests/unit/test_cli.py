"""The commands, as a user calls them."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest
from lab import softnic_reason

from pyvma._cli import main

Env = dict[str, str]
softnic = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there")
LIMIT_S = 60


def pyvma(env: Env, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyvma", *arguments], env={**env, **variables}, capture_output=True, text=True, timeout=LIMIT_S
    )


def test_help_names_every_command(clean_env: Env) -> None:
    done = pyvma(clean_env, "--help")
    assert done.returncode == 0
    for command in ("doctor", "devinfo", "roce", "capture", "config", "softnic", "stats", "bench", "demo"):
        assert command in done.stdout
    assert pyvma(clean_env).returncode == 2
    assert pyvma(clean_env, "nonsense").returncode == 2
    assert pyvma(clean_env, "--version").stdout == "pyvma 0.1.0\n"


def test_script_is_installed(clean_env: Env) -> None:
    script = os.path.join(os.path.dirname(sys.executable), "pyvma")
    done = subprocess.run([script, "--version"], env=clean_env, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout == "pyvma 0.1.0\n"


def test_doctor(clean_env: Env) -> None:
    done = pyvma(clean_env, "doctor")
    assert done.returncode == 0, done.stdout
    for subject in (
        "package",
        "engine",
        "ring softnic",
        "ring verbs",
        "ring xdp",
        "ring tap",
        "uplink",
        "huge pages",
        "locked memory",
        "shared memory",
    ):
        assert subject in done.stdout
    found = json.loads(pyvma(clean_env, "doctor", "--json").stdout)
    assert {item["state"] for item in found} <= {"ok", "note"}
    assert all(item["advice"] for item in found if item["state"] == "note")


@softnic
def test_doctor_shows_interfaces(clean_env: Env, fabric: str) -> None:
    done = pyvma(clean_env, "doctor", PYVMA_INTERFACES=f"softnic:fabric={fabric},port=3,addr=10.1.2.3/24,name=mine")
    assert done.returncode == 0, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "interface mine" in line]
    assert f"softnic_{fabric}_3" in line
    assert "10.1.2.3/24" in line


def test_doctor_says_what_is_wrong(clean_env: Env) -> None:
    done = pyvma(clean_env, "doctor", PYVMA_INTERFACES="nonsense:x=1")
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("bad")]
    assert "nonsense" in line


def test_an_interface_that_is_not_there(clean_env: Env) -> None:
    """Not an error of the engine's: it is offloaded as soon as it comes."""
    done = pyvma(clean_env, "doctor", PYVMA_INTERFACES="xdp:device=pvnone0")
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("bad")]
    assert "interface pvnone0" in line
    assert "not offloaded: " in line
    found = json.loads(pyvma(clean_env, "devinfo", "--json", PYVMA_INTERFACES="xdp:device=pvnone0").stdout)
    (entry,) = found["not_offloaded"]
    assert (entry["name"], entry["ring"], entry["index"], entry["offloaded"]) == ("pvnone0", "xdp", 0, False)
    assert entry["reason"] in line
    strict = pyvma(clean_env, "doctor", PYVMA_INTERFACES="xdp:device=pvnone0", PYVMA_STRICT="1")
    assert strict.returncode == 1
    assert "pvnone0" in strict.stdout
    assert "does not start" in strict.stdout


def test_doctor_without_the_software_nic(clean_env: Env, tmp_path: Any) -> None:
    """As after a build without the verbs headers."""
    found = json.loads(pyvma(clean_env, "doctor", "--json", PYVMA_SOFTNIC_LIB=str(tmp_path / "none.so")).stdout)
    told = {item["subject"]: item for item in found}
    assert told["ring softnic"]["state"] == "note"
    assert "libibverbs-dev" in told["ring softnic"]["advice"]


def test_doctor_without_the_daemon(clean_env: Env, tmp_path: Any) -> None:
    """A note for whoever needs it, which says where it was looked for, why it does not answer, and what it is for."""
    missing, dead = tmp_path / "missing.sock", tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(dead))
    for path, reason in ((missing, "not there"), (dead, "Connection refused"), ("none", "not asked (the setting daemon is none)")):
        done = pyvma(clean_env, "doctor", "--json", PYVMA_DAEMON=str(path))
        assert done.returncode == 0, done.stdout
        (found,) = [item for item in json.loads(done.stdout) if item["subject"] == "pyvmad"]
        assert (found["state"], found["text"]) == ("note", f"{path}: {reason}")
        assert "AF_XDP" in found["advice"] and "NetVSC" in found["advice"] and "pyvmad run" in found["advice"]


def test_config(clean_env: Env) -> None:
    rows = json.loads(pyvma(clean_env, "config", "--json", PYVMA_RX_POLL="12", VMA_RX_WRE="64").stdout)
    found = {row["name"]: row for row in rows}
    assert (found["rx_poll"]["value"], found["rx_poll"]["origin"]) == ("12", "PYVMA_RX_POLL")
    assert (found["rx_depth"]["value"], found["rx_depth"]["origin"]) == ("64", "VMA_RX_WRE")
    assert found["rx_batch"]["origin"] == "default"
    assert all(row["help"] and row["type"] for row in rows)
    done = pyvma(clean_env, "config", "rx_poll", PYVMA_RX_POLL="12")
    assert "rx_poll" in done.stdout
    assert "12" in done.stdout
    assert "rx_depth" not in done.stdout
    done = pyvma(clean_env, "config", "no_such")
    assert (done.returncode, done.stderr) == (1, "pyvma config: no such setting: no_such\n")


@softnic
def test_config_file_is_an_origin(clean_env: Env, tmp_path: Any) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("rx_batch = 5\n")
    (row,) = json.loads(pyvma(clean_env, "config", "--json", "rx_batch", PYVMA_CONFIG=str(path)).stdout)
    assert (row["value"], row["origin"]) == ("5", str(path))


def test_devinfo_without_pyverbs(clean_env: Env) -> None:
    code = "import sys\nsys.modules['pyverbs'] = None\nfrom pyvma._cli import main\nsys.exit(main(['devinfo']))"
    done = subprocess.run([sys.executable, "-c", code], env=clean_env, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert "python3-pyverbs" in done.stderr


@softnic
@pytest.mark.skipif(importlib.util.find_spec("pyverbs") is None, reason="apt install python3-pyverbs")
def test_devinfo(clean_env: Env, fabric: str) -> None:
    done = pyvma(clean_env, "devinfo", "--json", "--softnic", f"{fabric}/0", "--softnic", f"{fabric}/1,mtu=4096")
    assert done.returncode == 0, done.stderr
    devices = {device["name"]: device for device in json.loads(done.stdout)["devices"]}
    first, second = devices[f"softnic_{fabric}_0"], devices[f"softnic_{fabric}_1"]
    assert first["guid"] != second["guid"]
    assert first["capabilities"]["max_qp"] > 0
    assert first["capabilities"]["flow_steering"] is True
    assert [gid["type"] for gid in first["ports"][0]["gids"]] == ["RoCE v1"]
    assert first["ports"][0]["state"].lower().startswith(("active", "port_active"))
    text = pyvma(clean_env, "devinfo", f"softnic_{fabric}_0", PYVMA_SOFTNIC=f"{fabric}/0")
    assert text.returncode == 0
    assert f"device softnic_{fabric}_0" in text.stdout
    missing = pyvma(clean_env, "devinfo", "no_such_0", PYVMA_SOFTNIC=f"{fabric}/0")
    assert missing.returncode == 1
    assert "no_such_0" in missing.stderr


@softnic
def test_interfaces_in_devinfo(clean_env: Env, fabric: str) -> None:
    done = pyvma(clean_env, "devinfo", "--json", PYVMA_INTERFACES=f"softnic:fabric={fabric},port=0,addr=10.3.2.1/24,addr=fd00::9/64")
    (interface,) = json.loads(done.stdout)["interfaces"]
    assert interface["addresses"][:2] == ["10.3.2.1/24", "fd00::9/64"]
    assert interface["mtu"] == 1500
    assert interface["link_up"] is True


@softnic
def test_softnic(clean_env: Env, fabric: str) -> None:
    port = ("--fabric", fabric, "--port", "0")
    done = pyvma(clean_env, "softnic", "counters", *port, "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout).values()) == {0}
    assert pyvma(clean_env, "softnic", "impair", *port, "loss=0.5,delay=10us").returncode == 0
    assert pyvma(clean_env, "softnic", "impair", *port).returncode == 0
    assert pyvma(clean_env, "softnic", "link", *port, "down").returncode == 0
    for wrong in (
        ("impair", *port, "loss=lots"),
        ("counters", "--fabric", "../x", "--port", "0"),
        ("counters", "--fabric", fabric, "--port", "999"),
    ):
        done = pyvma(clean_env, "softnic", *wrong)
        assert done.returncode == 1
        assert done.stderr.startswith("pyvma softnic: ")
        assert "Traceback" not in done.stderr


@softnic
@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/net/tun"), reason="needs root and /dev/net/tun")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_uplink_ends_on_a_signal(clean_env: Env, fabric: str, number: int) -> None:
    name = f"t{fabric[-8:]}"
    command = [sys.executable, "-m", "pyvma", "softnic", "uplink", "--fabric", fabric, "--port", "1", "--dev", name]
    process = subprocess.Popen(command, env=clean_env, stderr=subprocess.PIPE, text=True)
    try:
        while not os.path.exists(f"/sys/class/net/{name}"):
            assert process.poll() is None, process.communicate()[1]
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.communicate()
    assert not os.path.exists(f"/sys/class/net/{name}")


@softnic
def test_uplink_says_why_not(clean_env: Env, fabric: str) -> None:
    done = pyvma(clean_env, "softnic", "uplink", "--fabric", fabric, "--port", "1", "--dev", "a-name-that-is-too-long-for-a-device")
    assert done.returncode == 1
    assert "a-name-that-is-too-long" in done.stderr


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e300", "-1", "0", "soon"])
@pytest.mark.parametrize(
    "command",
    [
        ("stats", "-i"),
        ("stats", "explain", "--interval"),
        ("stats", "serve", "--textfile", "/nonexistent/x.prom", "--interval"),
        ("stats", "top", "-i"),
        ("bench", "compare", "--seconds"),
        ("bench", "sweep", "--seconds"),
        ("bench", "sockperf", "--time"),
        ("bench", "ping-pong", "-t"),
        ("demo", "--seconds"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_seconds_are_a_number(command: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is none, or more than a day, is refused before anything is done."""
    with pytest.raises(SystemExit) as over:
        main([*command[:-1], f"{command[-1]}{'=' if command[-1].startswith('--') else ''}{text}"])
    assert over.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("usage:")
    assert f"{text!r} is no number of seconds from 0." in error
