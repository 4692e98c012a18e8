"""Frames of live engines, read by other programs, against what a kernel peer sent and saw."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pcapng
import pytest
import uplink
import veth
from actor import Actor
from exchange import Ends, wait_for
from netns import usable
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether  # noqa: F401  what scapy takes a frame for
from scapy.utils import rdpcap

from pyvma import capture

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and a working `ip` for a network namespace with a TAP device")

LIMIT_S = 60
NETS = {"uplink": uplink.pair, "veth": veth.pair}
START = "import pyvma\npyvma.start()"
LISTEN_RAW = """
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
raw.bind((device, 0))
raw.setblocking(False)
"""
TAKE_RAW = """
seen = []
try:
    while True:
        seen.append(raw.recv(70000))
except BlockingIOError:
    pass
seen
"""


@pytest.fixture(scope="module", params=NETS)
def net(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with NETS[request.param]() as ends:
        # As they are on the wire: the kernel shows frames whose checksums its device would have filled in.
        device = "tap0" if request.param == "uplink" else "v1"
        ends.kernel_ns.run("ethtool", "-K", device, "tx", "off")
        ends.kernel(LISTEN_RAW, device=device)
        ends.engine(START)
        yield ends


@pytest.fixture(scope="module")
def pair() -> Iterator[Ends]:
    with uplink.pair() as ends:
        ends.engine(START)
        yield ends


started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """What a test that failed has not ended."""
    yield
    while started:
        process = started.pop()
        if process.returncode is None:
            process.kill()
            process.communicate(timeout=LIMIT_S)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "pyvma", "capture", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=LIMIT_S)


def start(engine: Actor, path: Path, *arguments: object) -> subprocess.Popen[str]:
    """A capture that runs: its file has begun."""
    process = subprocess.Popen(command("--pid", engine.process.pid, "-w", path, *arguments), stderr=subprocess.PIPE, text=True)
    started.append(process)
    wait_for("the capture", lambda: process.poll() is not None or (path.exists() and path.stat().st_size > 0))
    return process


def finish(process: subprocess.Popen[str], *, signalled: bool = True) -> str:
    """Ends it, unless it ends by itself; what it said."""
    if signalled:
        process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, text
    return text


def talk(net: Ends, sizes: list[int], family: int = 4) -> None:
    net.engine_serves(family, sizes)


def plain(frame: bytes) -> bytes:
    """Without the checksums of IPv4 and UDP, which a device fills in after the record of a sent frame was made; IPv4 without options."""
    data = bytearray(frame)
    if data[12:14] == b"\x08\x00":
        data[24:26] = b"\0\0"
        data[40:42] = b"\0\0"
    else:
        data[60:62] = b"\0\0"
    length = 14 + struct.unpack_from("!H", data, 16)[0] if data[12:14] == b"\x08\x00" else 54 + struct.unpack_from("!H", data, 18)[0]
    return bytes(data[:length])


@pytest.mark.parametrize("family", [4, 6])
def test_frames_are_those_of_the_wire(net: Ends, tmp_path: Path, family: int) -> None:
    """Each one that the kernel sent or got, once, in order, with its direction, between the times before and after."""
    path = tmp_path / "frames.pcapng"
    sizes = [17, 18, 100, 500, 1000, 1400] * 5
    net.kernel(TAKE_RAW)
    before = time.time_ns()
    process = start(net.engine, path, "udp", "and", "host", net.kernel_host[family])
    talk(net, sizes, family)
    text = finish(process)
    after = time.time_ns()
    assert f": {2 * len(sizes)} frames of" in text
    file = pcapng.read(path)
    version = {4: b"\x08\x00", 6: b"\x86\xdd"}[family]
    proto = {4: 23, 6: 20}[family]
    seen = [frame for frame in net.kernel(TAKE_RAW) if frame[12:14] == version and frame[proto] == 17]
    mac = seen[0][6:12]
    assert [plain(frame.data) for frame in file.received()] == [plain(frame) for frame in seen if frame[6:12] == mac]
    assert [plain(frame.data) for frame in file.sent()] == [plain(frame) for frame in seen if frame[6:12] != mac]
    stamps = [frame.stamp_ns for frame in file.frames]
    assert all(frame.length == len(frame.data) for frame in file.frames)
    assert before <= min(stamps)
    assert max(stamps) <= after
    assert any(stamp % 1000 for stamp in stamps)
    assert file.count(0, 4) >= file.count(0, 6) == file.count(0, 8) == 2 * len(sizes)
    assert file.count(0, 5) == file.count(0, 7) == 0


@pytest.mark.skipif(not shutil.which("tshark") or not shutil.which("capinfos"), reason="no tshark: Debian's tshark")
def test_other_programs_read_it(pair: Ends, tmp_path: Path) -> None:
    path = tmp_path / "read.pcapng"
    process = start(pair.engine, path)
    talk(pair, [100] * 10)
    finish(process)
    fields = ["-e", "frame.packet_flags_direction", "-e", "udp.length", "-e", "frame.interface_name"]
    done = subprocess.run(["tshark", "-r", path, "-Y", "udp", "-T", "fields", *fields], capture_output=True, text=True, timeout=LIMIT_S)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows == [["0x00000001", "108", "sn0"], ["0x00000002", "108", "sn0"]] * 10
    done = subprocess.run(["capinfos", path], capture_output=True, text=True, timeout=LIMIT_S)
    assert "nanoseconds (9)" in done.stdout
    assert "pyvma" in done.stdout
    assert "Number of stat entries = 1" in done.stdout
    frames = rdpcap(str(path))
    assert [frame[UDP].len for frame in frames if UDP in frame] == [108] * 20


def test_readers_come_and_go(pair: Ends, tmp_path: Path) -> None:
    """Two at once, each with its own filter; one is killed, and the other and the process notice nothing."""
    first = start(pair.engine, tmp_path / "first.pcapng", "src", "host", pair.kernel_host[4], "and", "udp")
    second = start(pair.engine, tmp_path / "second.pcapng", "udp", "--snaplen", "50")
    talk(pair, [300] * 10)
    first.kill()
    first.communicate(timeout=LIMIT_S)
    talk(pair, [300] * 10)
    third = start(pair.engine, tmp_path / "third.pcapng", "-c", "7", "-i", "sn0", "udp")
    talk(pair, [300] * 10)
    assert "7 frames of" in finish(third, signalled=False)
    finish(second)
    assert len(pcapng.read(tmp_path / "third.pcapng").frames) == 7
    whole = pcapng.read(tmp_path / "second.pcapng")
    assert len(whole.frames) == 60
    assert {(len(frame.data), frame.length) for frame in whole.frames} == {(50, 342)}
    (entry,) = [entry for entry in capture.processes() if entry.pid == pair.engine.process.pid]
    assert entry.interfaces == ["sn0"]


def test_to_a_pipe(pair: Ends) -> None:
    with subprocess.Popen(command("--pid", pair.engine.process.pid, "-c", "10", "-w", "-", "udp"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        head = process.stdout.read(28)
        talk(pair, [64] * 10)
        file = pcapng.parse(head + process.stdout.read())
    assert process.returncode == 0
    assert len(file.frames) == 10
    assert file.statistics


def test_a_slow_reader_loses_and_holds_up_nobody(pair: Ends) -> None:
    """Nothing is read until there is more than fits; then all that is missing is counted, in every way that the format has."""
    with capture.live(pair.engine.process.pid, capture.Options(filter="udp", buffer_bytes=1 << 20)) as slow:
        talk(pair, [1400] * 600)
        (stats,) = slow.stats()
        assert (stats.accepted, stats.dropped + stats.delivered) == (1200, 1200)
        assert stats.dropped > 300
        data = b""
        while piece := slow.read():
            data += piece
        talk(pair, [10])
        slow.stop()
        while piece := slow.read():
            data += piece
        file = pcapng.parse(data + slow.trailer())
    assert len(file.frames) == stats.delivered + 2
    assert sum(frame.lost for frame in file.frames) == stats.dropped == file.count(0, 7)


def test_the_process_is_killed(tmp_path: Path, fabric: str) -> None:
    """Its frames until then are in the file, which is complete; and its socket is cleared away by the next."""
    interface = f"softnic:fabric={fabric},port=0,addr=10.5.4.1/24,name=sn0"
    engine = Actor([interface])
    engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('10.5.4.1', 0))")
    process = start(engine, tmp_path / "killed.pcapng")
    engine("s.sendto(b'last words', ('10.5.4.2', 9))")  # asks for the neighbour
    wait_for("the frame", lambda: (tmp_path / "killed.pcapng").stat().st_size > 500)
    pid = engine.process.pid
    engine.kill()
    _, text = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, text
    file = pcapng.read(tmp_path / "killed.pcapng")
    assert file.frames[0].data[12:14] == b"\x08\x06"
    assert file.statistics
    done = run("--pid", pid, "-w", tmp_path / "none")
    assert (done.returncode, done.stderr) == (1, f"pyvma capture: there is no process {pid}\n")
    with Actor([interface]) as other:
        other(START)
        assert not any((folder / str(pid)).exists() for folder in capture.folders(os.geteuid()))


def test_device_stamps(pair: Ends) -> None:
    """The device's clock says when a frame came: before the poll that brought it did, and after it was sent."""
    with capture.live(pair.engine.process.pid, capture.Options(filter="udp", hw_stamps=True)) as reader:
        data = b""
        for _ in range(50):
            before = time.time_ns()
            talk(pair, [100])
            data += reader.read()
        reader.stop()
        file = pcapng.parse(data + reader.read())
    description = file.interfaces[0][3].decode()
    assert description.endswith("receive stamps of the device where it has one, else of the poll")
    stamps = [frame.stamp_ns for frame in file.frames]
    assert len(stamps) == 100
    # Each datagram is received before its echo is sent; clocks of one machine.
    assert all(got <= sent for got, sent in zip(stamps[::2], stamps[1::2], strict=True))
    assert stamps[-2] > before - 1_000_000


def test_a_fork_is_not_captured(pair: Ends) -> None:
    """The child's sockets are the kernel's, and its end ends nothing."""
    with capture.live(pair.engine.process.pid, capture.Options(filter="udp")) as reader:
        pair.engine("pid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)[1]")
        talk(pair, [200] * 3)
        reader.stop()
        (stats,) = reader.stats()
        assert stats.delivered == 6


def test_a_device_port(pair: Ends, tmp_path: Path) -> None:
    """The sniffer rule sees what the engine behind it sees, in the same directions and each in the same order."""
    label = pair.engine("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind((host, 0))\nstr(s.offload)", host=uplink.ENGINE[4])
    fabric = label.split("softnic_")[1].rpartition("_")[0]
    live, port = tmp_path / "live.pcapng", tmp_path / "port.pcapng"
    device = command("--device", f"softnic:fabric={fabric},port=0", "-w", port, "udp")
    sniffer = subprocess.Popen(device, stderr=subprocess.PIPE, text=True)
    started.append(sniffer)
    wait_for("the sniffer", lambda: sniffer.poll() is not None or (port.exists() and port.stat().st_size > 0))
    process = start(pair.engine, live, "udp")
    talk(pair, [30, 300, 1400] * 5)
    finish(process)
    wait_for("the frames", lambda: port.stat().st_size > 2 * 5 * (30 + 300 + 1400 + 3 * (42 + 44)))  # frames and blocks
    finish(sniffer)
    ours, its = pcapng.read(live), pcapng.read(port)
    # What comes and what goes meet at different moments here and there.
    for way in {frame.direction for frame in ours.frames}:
        seen, wanted = ([plain(frame.data) for frame in capture.frames if frame.direction == way] for capture in (its, ours))
        assert seen == wanted
    assert len(its.frames) == len(ours.frames)
    assert its.statistics


FOREIGN = """
import os, sys
from pyvma import capture
os.setgroups([]); os.setegid(65534); os.seteuid(65534)
try:
    capture.live(int(sys.argv[1]))
except PermissionError as error:
    print(error.strerror)
"""
ASK_BY_SOCKET = """
import socket, sys
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.settimeout(30)
link.connect(sys.argv[1])
print(link.recv(4096).decode(), end="")
print(link.recv(4096))
"""


def test_another_user_is_refused(fabric: str, tmp_path_factory: pytest.TempPathFactory, pair: Ends) -> None:
    """By the directory, and where somebody opened that by who it is that asks."""
    pid = pair.engine.process.pid
    done = subprocess.run([sys.executable, "-c", FOREIGN, str(pid)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout == f"process {pid} belongs to another user: run as that one, or as root\n", done.stderr
    folder = Path("/tmp") / f"pvc-{fabric}"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "999999999").write_text("somebody's file")
    try:
        interface = f"softnic:fabric={fabric},port=0,addr=10.5.4.1/24"
        with Actor([interface], env={"PYVMA_CONTROL_DIR": str(folder)}) as engine:
            engine(START)
            path = folder / str(engine.process.pid)
            assert path.stat().st_mode & 0o777 == 0o600
            path.chmod(0o666)
            nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", ASK_BY_SOCKET, str(path)]
            done = subprocess.run(nobody, capture_output=True, text=True, timeout=LIMIT_S, cwd="/")
            assert done.stdout.splitlines()[:2] == ["pyvma 1 error", "code=1"], done.stderr
            assert "another user" in done.stdout
            assert done.stdout.endswith("b''\n")
        assert [path.name for path in folder.iterdir()] == ["999999999"]  # its own is gone, others' files are not
    finally:
        shutil.rmtree(folder)


def test_nonsense_by_the_socket(pair: Ends) -> None:
    """Answered or hung up on; the engine goes on."""
    for message, answer in ((b"x", b"code=74"), (b"pyvma 9 hello\n", b"code=93"), (b"pyvma 1 dance\n", b"code=95"),
                            (b"pyvma 1 hello\nwhy=1\n", b"why"), (b"pyvma 1 stop\n", b"code=22"), (b"x" * 5000, b"code=74"),
                            (b"pyvma 1 capture\nbytes=4294967295\n", b"MiB"), (b"pyvma 1 capture\ncount=-1\n", b"count")):  # fmt: skip
        control = capture.Control(pair.engine.process.pid)
        control.socket.send(message)
        assert answer in control.socket.recv(4096)
        control.close()
    many: list[capture.Control] = []

    def seated() -> bool:
        """Those that just hung up keep their places until the process has noticed."""
        control = capture.Control(pair.engine.process.pid)
        try:
            assert control.ask("hello")[0]["interfaces"] == "sn0"
        except OSError:
            control.close()
            return False
        many.append(control)
        return True

    try:
        for _ in range(16):
            wait_for("a place", seated)
        many.append(capture.Control(pair.engine.process.pid))
        with pytest.raises(OSError, match="connections are open"):
            many[-1].ask("hello")
    finally:
        for control in many:
            control.close()
    talk(pair, [5])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-i", "nope"), "no interface nope in that process: it has sn0"),
        (("tcp", "or", "udp"), 'filter: "or" is not known here'),
        (("port", "http"), "filter: port needs a number"),
        (("--snaplen", "-1"), "--snaplen: 0 to"),
        (("--duration", "0"), "--duration: more than 0"),
        (("--buffer", "0"), "--buffer: 1 to"),
        (("-w", "/no/such/folder/x"), "/no/such/folder/x: No such file"),
    ],
)
def test_errors_are_one_line(pair: Ends, tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    done = run("--pid", pair.engine.process.pid, *([] if "-w" in arguments else ["-w", tmp_path / "x"]), *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"pyvma capture: {told}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_errors_of_sources(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "1000"])
    started.append(other)
    for arguments, told in (
        (("--pid", other.pid), f"process {other.pid} has no control socket"),
        (("--pid", 0), "there is no process 0"),
        (("--device", "nosuch_0"), "nosuch_0"),
        (("--device", "xdp:device=lo"), "only devices of verbs have sniffer rules"),
        (("--device", "softnic:fabric=x"), "port=NUMBER is missing"),
        (("--device", "mlx5_0", "-i", "x"), "--interface is for --pid"),
    ):
        done = run(*arguments, "-w", tmp_path / "x")
        assert done.returncode == 1
        assert told in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
