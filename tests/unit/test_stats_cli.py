"""pyvma-stats as its users call it, over files made by the page alone."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import stats_sample
from stats_file import Maker, type_of

from pyvma._cli import main

DATA = Path(__file__).parents[1] / "data"
LIMIT_S = 60
PID = 4711


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process: a hundred interpreters would take a minute."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status: Any = main(["stats", "-k", str(directory), *arguments])
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(arguments, status or 0, out.getvalue(), err.getvalue())


def told(directory: Path, *arguments: str) -> str:
    done = run(directory, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def refused(directory: Path, *arguments: str, status: int = 1) -> str:
    done = run(directory, *arguments)
    assert done.returncode == status, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert status == 2 or done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    stats_sample.write(tmp_path)
    return tmp_path


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """This process, as it were, with a ring."""
    made = Maker([type_of("ring", ("name", "text", 16), ("rx_packets", "counter"), ("tx_packets", "counter"))], program="/usr/bin/some")
    made.add("ring", name="a", rx_packets=1, tx_packets=2)
    made.write(tmp_path)
    return tmp_path


@pytest.mark.parametrize("view", [1, 2, 3, 4, 5])
def test_view(sample: Path, view: int) -> None:
    """As it was agreed; WRITE_GOLDEN=1 writes the texts anew."""
    text = told(sample, "-p", str(PID), "-v", str(view))
    golden = DATA / f"stats_view{view}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert "\x1b" not in text


def test_fields_of_the_full_view_are_those_of_vma(sample: Path) -> None:
    """The lines that its documents show, a TAP and the ring behind it under one master."""
    text = told(sample, "-p", str(PID), "-v", "3")
    tap, ring = (text[text.index(f"\t{name}") :].split("=" * 54)[0] for name in ("RING_TAP=[0]", "RING_ETH=[1]"))
    for line in (
        "Tx Offload:          4463 / 67209 [kilobytes/packets]",
        "Rx Offload:          5977 / 90013 [kilobytes/packets]",
        "Rx Buffers:          256",
        "VF Plugouts:         1",
        "Tap fd:              21",
        "Tap Device:          td34f15",
    ):
        assert line in tap.splitlines()
    for line in (
        "Tx Offload:          858931 / 3402875 [kilobytes/packets]",
        "Rx Offload:          865251 / 3402874 [kilobytes/packets]",
        "Dev Mem Alloc:       16384",
        "Dev Mem Stats:       739074 / 1784935 / 0 [kilobytes/packets/oob]",
        "Retransmissions:     1",
    ):
        assert line in ring.splitlines()
    masters = [line for line in text.splitlines() if line.startswith("Master:")]
    assert len(masters) == 2
    assert len(set(masters)) == 1


def test_a_bond_in_the_full_view(tmp_path: Path) -> None:
    """The bond under its own heading, with the legs' sums and no queue; its legs name it, and which of them sends."""
    link, flag = "link", ("active", "flag", {"mask": 1})
    ring = type_of("ring", ("interface", "text", 16), ("name", "text", 32), ("master", link), flag, ("rx_packets", "counter"))
    made = Maker([ring], pid=PID, program="feed", head={"start_ticks": 1})
    bond = made.add("ring", interface="syn0", name="bond:syn0", rx_packets=30)
    made.add("ring", interface="syn0", name="tap:pvma0", master=bond, rx_packets=10)
    made.add("ring", interface="syn0", name="verbs:vf/1", master=bond, active=True, rx_packets=20)
    made.add("ring", interface="eth9", name="xdp:eth9", rx_packets=7)
    made.write(tmp_path)
    text = told(tmp_path, "-p", str(PID), "-v", "3")
    parts = [part.strip().splitlines() for part in text.split("=" * 54)]
    rings = {lines[0].split("=")[0]: lines for lines in parts if lines and lines[0].startswith("RING_")}
    numbers = [line.strip() for line in text.splitlines() if line.startswith(("\tRING_", "\tCQ="))]
    assert numbers == ["CQ=[2]", "CQ=[3]", "RING_BOND=[0]", "RING_TAP=[1]", "RING_ETH=[2]", "RING_ETH=[3]"]
    (place,) = [line.split()[-1] for line in rings["RING_BOND"] if line.startswith("Master of:")]
    masters = [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("Master:")]
    assert masters == [place, f"{place}, active"]
    assert any(line.startswith("Rx Offload:") and "0 / 30 " in line for line in rings["RING_BOND"])
    assert any(line.startswith("Interface:") and line.endswith("syn0, bond:syn0") for line in rings["RING_BOND"])


def test_some_sockets_only(sample: Path) -> None:
    text = told(sample, "-p", str(PID), "-s", "3,8-9")
    assert [line.split()[0] for line in text.splitlines() if " Rx: " in line] == ["8", "9"]
    found = json.loads(told(sample, "-p", str(PID), "--json", "-s", "7"))["objects"]
    assert [len(found[name]) for name in ("socket", "udp", "tcp", "membership", "ring")] == [1, 1, 0, 2, 2]


def test_json(sample: Path) -> None:
    found = json.loads(told(sample, "-p", str(PID), "--json"))
    assert (found["pid"], found["program"], found["state"], found["interval_s"], found["hidden"]) == (PID, "feed", "dead", 0, 0)
    (udp,) = found["objects"]["udp"]
    assert (udp["local_addr"], udp["rx_datagrams"]) == ("::", 9_876_543_210)
    assert found["totals"]["ring"]["rx_packets"] == 90013 + 3402874
    sockets = {item["fd"]: item for item in found["objects"]["socket"]}
    assert set(sockets) == {7, 8, 9, 12, None}
    assert sockets[7]["transport"] == udp["id"]
    assert sockets[7]["nonblocking"] is True


def test_csv(sample: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(told(sample, "-p", str(PID), "--csv", "ring"))))
    assert [(row["interface"], row["rx_packets"]) for row in rows] == [("eth1", "90013"), ("eth1", "3402874")]
    tables = told(sample, "-p", str(PID), "--csv").split("\n\n")
    assert [table.splitlines()[0] for table in tables if table] == [f"# {item['name']}" for item in stats_sample.TYPES]
    assert "there are engine, ring" in refused(sample, "-p", str(PID), "--csv", "nothing")


def test_rounds(live: Path) -> None:
    text = told(live, "--json", "-c", "3", "-i", "0.05", "-d", "2")
    rounds = [json.loads(line) for line in text.splitlines()]
    assert len(rounds) == 3
    assert all(item["interval_s"] > 0 for item in rounds)
    assert rounds[0]["objects"]["ring"][0]["rx_packets"] == 0
    assert json.loads(told(live, "--json", "--once"))["totals"]["ring"] == {"rx_packets": 1, "tx_packets": 2}


def test_rates_in_the_views(live: Path) -> None:
    text = told(live, "-c", "2", "-i", "0.05", "-d", "2")
    assert text.splitlines()[0].startswith(f"/usr/bin/some (pid {os.getpid()}, per second over 0.")
    assert text.count("pkt/s") == 2
    assert text.count("some (pid") == 1


def test_header_comes_back(live: Path) -> None:
    text = told(live, "-c", "30", "-i", "0.01")
    assert text.count("total offloaded") == 2


def test_choosing(live: Path) -> None:
    for arguments in ((), ("-f",), ("-n", "some"), ("-p", str(os.getpid()))):
        assert f"/usr/bin/some (pid {os.getpid()})" in told(live, *arguments, "-c", "1")
    assert "no process named other shows statistics" in refused(live, "-n", "other", "-c", "1")
    Maker([], pid=1, program="init").write(live)
    assert f"2 processes: 1 init, {os.getpid()} /usr/bin/some; choose one by -p" in refused(live, "-c", "1")
    assert f"(pid {os.getpid()})" in told(live, "-n", "some", "-c", "1")


def test_dead_files(tmp_path: Path) -> None:
    path = stats_sample.write(tmp_path)
    assert "no process shows statistics" in refused(tmp_path, "-F")
    assert path.exists()
    assert "no process shows statistics" in refused(tmp_path)
    assert not path.exists()


def test_errors_are_a_line(tmp_path: Path, live: Path) -> None:
    assert refused(tmp_path / "missing") == f"pyvma stats: {tmp_path}/missing: No such file or directory\n"
    assert "there is no process 4194999" in refused(tmp_path, "-p", "4194999")
    assert "process 1 shows no statistics" in refused(tmp_path, "-p", "1")
    (tmp_path / "pyvma-stats.1").write_bytes(b"\x1b[2J" * 2000)
    assert "not a statistics file of pyvma" in refused(tmp_path, "-p", "1", "-c", "1")
    for arguments in (
        ("-v", "6"),
        ("-i", "0"),
        ("-i", "nan"),
        ("-c", "-1"),
        ("-s", "a"),
        ("-d", "3"),
        ("-p", "0"),
        ("--json", "--csv"),
        ("nonsense",),
    ):
        assert "usage:" in refused(tmp_path, *arguments, status=2)


def test_the_dead_change_nothing(sample: Path) -> None:
    for arguments in (("-z",), ("-l", "debug"), ("-D", "2"), ("-S", "7")):
        assert f"process {PID} is dead" in refused(sample, "-p", str(PID), *arguments)


def test_help_and_version(tmp_path: Path) -> None:
    for command in ([sys.executable, "-m", "pyvma", "stats"], [os.path.join(os.path.dirname(sys.executable), "pyvma-stats")]):
        text = subprocess.run([*command, "-h"], capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        for option in (
            "-p",
            "-k",
            "-n",
            "-f",
            "-F",
            "-i",
            "-c",
            "-v",
            "-d",
            "-z",
            "-l",
            "-S",
            "-s",
            "-D",
            "-V",
            "--json",
            "--csv",
            "examples:",
        ):
            assert option in text
        text = subprocess.run([*command, "-V"], capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        assert text == "pyvma-stats 0.1.0\n"
    assert told(tmp_path, "control", "--help").startswith("usage: pyvma stats control")


def test_netstat_of_all(live: Path) -> None:
    stats_sample.write(live)
    text = told(live, "-v", "5")
    assert len(text.splitlines()) == 1, "the live one has no sockets, the dead one is gone"
    assert text.startswith("Proto Offloaded Recv-Q Send-Q Local Address Foreign Address State Inode PID/Program name")


def test_kernel_sockets_in_netstat(live: Path) -> None:
    """Of a socket that the kernel has, names and state are the kernel's."""
    import socket

    kinds = {item["name"]: item for item in stats_sample.TYPES}
    made = Maker([kinds["socket"], kinds["reason"]])
    with socket.create_server(("127.0.0.1", 0)) as server:
        made.add("socket", fd=server.fileno(), family="inet", type="stream", state="kernel")
        made.write(live)
        (row,) = told(live, "-v", "5").splitlines()[1:]
        inode = str(os.fstat(server.fileno()).st_ino)
        assert row.split() == [
            "tcp",
            "No",
            "0",
            "0",
            f"127.0.0.1:{server.getsockname()[1]}",
            "*:*",
            "LISTEN",
            inode,
            f"{os.getpid()}/a",
            "program",
        ]


def test_on_a_terminal_the_screen_is_cleared(live: Path) -> None:
    """Nowhere else, and colours nowhere."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pyvma", "stats", "-k", str(live), "-v", "3", "-c", "2", "-i", "0.05"]
    try:
        done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        seen = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert seen.count("\x1b[H\x1b[2J") == seen.count("\x1b[") / 2 == 2
    assert "\x1b" not in told(live, "-v", "3", "-c", "2", "-i", "0.05")


def test_a_reader_that_goes_away(live: Path) -> None:
    command = [sys.executable, "-m", "pyvma", "stats", "-k", str(live), "-i", "0.01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(LIMIT_S) == 0
        assert process.stderr.read() == ""


def test_netstat_takes_the_same_options(live: Path) -> None:
    Maker([], pid=1, program="init").write(live)
    assert len(told(live, "-v", "5", "-n", "some", "-c", "3", "-i", "0.01").splitlines()) == 3
    assert "no process named other" in refused(live, "-v", "5", "-n", "other")
    assert "shows no rates" in refused(live, "-v", "5", "-d", "2", status=2)


def test_options_before_a_command_are_its_own(live: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    Maker([], pid=1, program="init").write(live)
    found = json.loads(told(live, "-p", "1", "--json", "explain"))
    assert [item["pid"] for item in found] == [1]
    found = json.loads(told(live, "-p", "1", "explain", "-p", str(os.getpid()), "--json"))
    assert [item["pid"] for item in found] == [os.getpid()]
    assert "no process 4194999, and it left no " + str(live) in refused(live, "-p", "4194999", "trace")
    assert "--interval is 0.1 to" in refused(live, "-i", "0.02", "serve", "--once")
    told(live, "-p", "1", "serve", "--once", "--textfile", str(live / "metrics"))
    assert 'pid="1"' in (live / "metrics").read_text()
    assert f'pid="{os.getpid()}"' not in (live / "metrics").read_text()


def test_one_bad_file_does_not_hide_the_others(live: Path) -> None:
    made = Maker([type_of("ring", ("rx_packets", "counter"))], pid=1, program="broken")
    made.add("ring")
    data = made.content()
    entry = int.from_bytes(data[48:56], "little") + 16
    data[entry + 8 : entry + 16] = (1 << 50).to_bytes(8, "little")
    (live / "pyvma-stats.1").write_bytes(data)
    for more in ((), ("--interval", "0.01")):
        done = run(live, "explain", *more)
        assert done.returncode == 0
        assert f"process {os.getpid()} (/usr/bin/some)" in done.stdout
        assert done.stderr.startswith(f"pyvma stats explain: {live}/pyvma-stats.1: ")
        assert done.stderr.count("\n") == 1


def test_a_file_that_only_says_whose_it_is(live: Path) -> None:
    """Whoever asks for one process does not change another one."""
    os.rename(live / f"pyvma-stats.{os.getpid()}", live / "pyvma-stats.1")
    assert f"it says that it is of process {os.getpid()}" in refused(live, "-p", "1", "-z")
