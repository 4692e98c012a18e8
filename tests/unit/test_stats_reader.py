"""The reader of statistics files against files made by the page alone: what it finds, and what it says of broken ones."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exchange import wait_for
from memory import limited
from stats_file import BASE, Maker, start_ticks, type_of

from pyvma import stats
from pyvma.stats import StatsError

LIMIT_S = 60
NOBODY = 65534
RING = type_of(
    "ring",
    ("name", "text", 16),
    ("rx_packets", "counter"),
    ("up", "flag", {"mask": 1, "size": 1}),
    ("stamps", "flag", {"mask": 4, "size": 1, "offset": 24}),
    ("mac", "mac"),
    ("kind", "enum", {"names": ["softnic", "xdp"]}),
    ("most", "max"),
)
SOCKET = type_of(
    "socket", ("fd", "id", 4), ("local", "addr"), ("port", "port"), ("ring", "link"), ("drift", "signed", 4), ("rx", "counter", 2)
)


def maker(sockets: int = 40, **head: Any) -> Maker:
    made = Maker([RING, SOCKET], head=head)
    ring = made.add("ring", name="sn0", rx_packets=2**40, up=True, stamps=True, mac=bytes(range(6)), kind="xdp", most=9)
    for i in range(sockets):
        made.add("socket", fd=i - 1, local="10.0.0.1" if i % 2 else "fd00::1", port=80 + i, ring=ring, drift=-i, rx=i)
    return made


def failure(path: Path) -> str:
    with pytest.raises(StatsError) as caught:
        with stats.attach(path) as process:
            process.snapshot()
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_values(tmp_path: Path) -> None:
    with stats.attach(maker().write(tmp_path)) as process:
        snapshot = process.snapshot()
    assert (process.pid, process.program, process.version, process.uid) == (os.getpid(), "a program", "0.1.0", os.getuid())
    (ring,) = snapshot.rings
    assert dict(ring) == {
        "name": "sn0",
        "rx_packets": 2**40,
        "up": True,
        "stamps": True,
        "mac": "00:01:02:03:04:05",
        "kind": "xdp",
        "most": 9,
    }
    assert len(snapshot.sockets) == 40
    first, last = snapshot.sockets[0], snapshot.sockets[39]
    assert first.fd is None
    assert snapshot.sockets[1].fd == 0
    assert (last.fd, last.port, last.drift, last.rx) == (38, 119, -39, 39)
    assert first.local == ipaddress.IPv6Address("fd00::1")
    assert last.local == ipaddress.IPv4Address("10.0.0.1")
    assert last.linked("ring") is ring
    assert last.linked("drift") is None
    assert last.ring == ring.place
    assert last.figure("nothing", 7) == 7
    with pytest.raises(AttributeError, match="socket has no field 'nothing'"):
        last.nothing
    assert snapshot.engine is None
    assert stats.totals(snapshot) == {"ring": {"rx_packets": 2**40}, "socket": {"rx": sum(range(40))}}
    assert (snapshot.changing, snapshot.head.hidden, snapshot.interval_s) == (0, 0, 0)
    kind = snapshot.type("socket")
    assert kind is not None
    assert kind.fields["port"].help == "what port is"


def test_unknown_kinds_and_keys_are_left_alone(tmp_path: Path) -> None:
    newer = type_of("ring", ("name", "text", 16), ("odd", "histogram", 8), ("rx_packets", "counter"))
    newer["colour"] = "blue"
    made = Maker([newer])
    made.add("ring", name="a", rx_packets=5)
    with stats.attach(made.write(tmp_path)) as process:
        assert dict(process.rings[0]) == {"name": "a", "rx_packets": 5}


def test_fields_that_overlap(tmp_path: Path) -> None:
    union = type_of(
        "ring",
        ("whole", "gauge", 8),
        ("low", "gauge", {"size": 4, "offset": 0}),
        ("high", "gauge", {"size": 4, "offset": 4}),
        ("more", "gauge", 2),
    )
    union["size"] = 24  # of which some is nobody's
    made = Maker([union])
    made.add("ring", whole=(7 << 32) + 3, more=11)
    with stats.attach(made.write(tmp_path)) as process:
        assert dict(process.rings[0]) == {"whole": (7 << 32) + 3, "low": 3, "high": 7, "more": 11}


def test_links(tmp_path: Path) -> None:
    made = maker(sockets=0)
    for link in (0, BASE - 64, BASE + 2**40):
        made.add("socket", ring=link)
    with stats.attach(made.write(tmp_path)) as process:
        found = process.sockets
    assert [item.ring for item in found] == [0, None, 2**40]
    assert [item.linked("ring") for item in found] == [None] * 3


def test_delta_is_of_the_time_that_passed(tmp_path: Path) -> None:
    path = maker().write(tmp_path)
    with stats.attach(path) as process:
        before = process.snapshot()
        data = bytearray(path.read_bytes())
        place = before.rings[0].place + 16
        data[place : place + 8] = struct.pack("=Q", 2**40 + 500)
        other = before.sockets[5].place + 36
        data[other : other + 2] = struct.pack("=H", 2)
        other = before.sockets[7].place + 36
        data[other : other + 2] = struct.pack("=H", 65530)
        path.write_bytes(data)
        again = process.snapshot()
        data[other : other + 2] = struct.pack("=H", 4)
        path.write_bytes(data)
        after = process.snapshot()
    assert stats.delta(again, after).sockets[7].rx == 10, "a short counter that began again"
    change = stats.delta(before, after)
    assert change.interval_ns == after.taken_ns - before.taken_ns > 0
    assert change.rings[0].rx_packets == 500
    assert change.rings[0].most == 9
    assert change.per_second(change.rings[0], "rx_packets") == pytest.approx(500 / change.interval_s)
    assert change.sockets[5].rx == 2, "a counter that went back counts from zero"
    assert change.sockets[6].rx == 0
    assert change.sockets[6].linked("ring") is change.rings[0]
    with pytest.raises(StatsError, match="earlier"):
        stats.delta(after, before)
    with pytest.raises(StatsError, match="of a delta"):
        after.per_second(after.rings[0], "rx_packets")


def test_object_that_came_in_between_counts_from_zero(tmp_path: Path) -> None:
    path = maker().write(tmp_path)
    with stats.attach(path) as process:
        before = process.snapshot()
        data = bytearray(path.read_bytes())
        entry = data.index(struct.pack("=IHHQ", 14, 2, 0, before.sockets[5].place))
        data[entry : entry + 4] = struct.pack("=I", 16 + 4096)
        path.write_bytes(data)
        change = stats.delta(before, process.snapshot())
    assert change.sockets[5].rx == 5
    assert change.sockets[6].rx == 0


def test_delta_of_two_processes(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with stats.attach(maker().write(tmp_path)) as one, stats.attach(maker(start_ticks=5).write(tmp_path / "b")) as two:
        first, second = one.snapshot(), two.snapshot()
    with pytest.raises(StatsError, match="same process"):
        stats.delta(first, second)


def test_entry_that_changes_is_left_out(tmp_path: Path) -> None:
    data = maker().content()
    entry = data.index(struct.pack("=IHHQ", 4, 2, 0, struct.unpack_from("=Q", data, data.index(struct.pack("=IHH", 4, 2, 0)) + 8)[0]))
    data[entry] = 5
    path = tmp_path / "f"
    path.write_bytes(data)
    with stats.attach(path) as process:
        assert len(process.sockets) == 39


def patched(at: int, form: str, *values: Any) -> Callable[[bytearray], bytearray]:
    def patch(data: bytearray) -> bytearray:
        struct.pack_into("=" + form, data, at, *values)
        return data

    return patch


def in_directory(at: int, form: str, *values: Any) -> Callable[[bytearray], bytearray]:
    def patch(data: bytearray) -> bytearray:
        return patched(struct.unpack_from("=Q", data, 48)[0] + at, form, *values)(data)

    return patch


def circle(data: bytearray) -> bytearray:
    first = struct.unpack_from("=Q", data, 48)[0]
    second = struct.unpack_from("=Q", data, first)[0]
    return patched(second, "Q", first)(data)


BROKEN: dict[str, tuple[Callable[[bytearray], bytes], str]] = {
    "empty": (lambda data: b"", "it is empty"),
    "short head": (lambda data: data[:100], "cut short: 100 bytes"),
    "cut short": (lambda data: data[:-4096], "cut short"),
    "not ours": (patched(0, "8s", b"#!/bin/s"), "not a statistics file"),
    "no head yet": (lambda data: bytes(8192), "being made"),
    "being made": (patched(16, "I", 0), "being made"),
    "other version": (patched(8, "I", 2), "layout is of version 2; this reader knows 1"),
    "other byte order": (patched(12, "I", 0x04030201), "other byte order"),
    "some byte order": (patched(12, "I", 0x01020403), "byte order is 0x1020403"),
    "odd state": (patched(16, "I", 77), "state is 77"),
    "another user's": (patched(72, "Q", 4242), "but says user 4242"),
    "schema outside": (patched(32, "QQ", 1 << 40, 100), "schema is outside"),
    "schema past 2**64": (patched(32, "QQ", (1 << 64) - 1, (1 << 64) - 1), "schema is outside"),
    "directory outside": (patched(48, "Q", 1 << 50), "directory is outside"),
    "directory crooked": (lambda data: patched(48, "Q", struct.unpack_from("=Q", data, 48)[0] + 4)(data), "no multiple of 8"),
    "directory in a circle": (circle, "in a circle"),
    "segment outside": (in_directory(0, "Q", 1 << 60), "segment of its directory is outside"),
    "too many entries": (in_directory(8, "I", 0xFFFFFFFF), "more than"),
    "entries outside": (in_directory(8, "I", 0xFFFFF), "outside"),
    "object outside": (in_directory(24, "Q", 1 << 61), "object (ring) at 2305843009213693952"),
    "object crooked": (in_directory(24, "Q", 4101), "object (ring) at 4101"),
    "object in the head": (in_directory(24, "Q", 64), "object (ring) at 64"),
    "unknown type": (in_directory(16, "IH", 2, 900), "object (unknown type)"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file(tmp_path: Path, case: str) -> None:
    breaks, expected = BROKEN[case]
    path = tmp_path / f"pyvma-stats.{os.getpid()}"
    path.write_bytes(breaks(maker().content()))
    assert expected in failure(path)


FIELD = {"name": "x", "kind": "counter", "offset": 0, "size": 8}
SCHEMAS: dict[str, Any] = {
    "no JSON": b"{",
    "no UTF-8": b"\xff\xfe{}",
    "deep": b"[" * 100000,
    "a list": b"[]",
    "no types": b"{}",
    "types no list": b'{"types": 3}',
    "long number": b'{"types": ' + b"9" * 10000 + b"}",
    "type no object": [3],
    "no name": [{"size": 8, "fields": []}],
    "name with control characters": [{"name": "\x1b[2J", "size": 8, "fields": []}],
    "size 0": [{"name": "a", "size": 0, "fields": []}],
    "huge": [{"name": "a", "size": 1 << 40, "fields": []}],
    "two of a name": [{"name": "a", "size": 8, "fields": []}] * 2,
    "fields no list": [{"name": "a", "size": 8, "fields": {}}],
    "field no object": [{"name": "a", "size": 8, "fields": [1]}],
    "field twice": [{"name": "a", "size": 8, "fields": [FIELD, FIELD]}],
    "field outside": [{"name": "a", "size": 8, "fields": [{**FIELD, "offset": 8}]}],
    "field before": [{"name": "a", "size": 8, "fields": [{**FIELD, "offset": -8}]}],
    "field crooked": [{"name": "a", "size": 16, "fields": [{**FIELD, "offset": 4}]}],
    "field of 3 bytes": [{"name": "a", "size": 8, "fields": [{**FIELD, "size": 3}]}],
    "offset no number": [{"name": "a", "size": 8, "fields": [{**FIELD, "offset": 1.5}]}],
    "offset a bool": [{"name": "a", "size": 8, "fields": [{**FIELD, "offset": False}]}],
    "names no texts": [{"name": "a", "size": 8, "fields": [{**FIELD, "kind": "enum", "names": [1]}]}],
    "no mask": [{"name": "a", "size": 8, "fields": [{**FIELD, "kind": "flag"}]}],
    "short address": [{"name": "a", "size": 8, "fields": [{**FIELD, "kind": "addr"}]}],
    "empty text": [{"name": "a", "size": 8, "fields": [{**FIELD, "kind": "text", "size": 0}]}],
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_schema_that_makes_no_sense(tmp_path: Path, case: str) -> None:
    import json

    given = SCHEMAS[case]
    made = Maker([], schema=given if isinstance(given, bytes) else json.dumps({"types": given}).encode())
    assert "schema makes no sense" in failure(made.write(tmp_path))


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    """The directory goes on behind what the head said when reading began."""
    data = maker(sockets=0).content()
    old = len(data)
    path = tmp_path / "f"
    path.write_bytes(data)
    with stats.attach(path) as process:
        assert len(process.snapshot().rings) == 1
        held = process._file.read_head

        def grown() -> Any:
            process._file.read_head = held  # type: ignore[method-assign]
            head = held()
            more = bytearray(data) + data[process.snapshot().rings[0].place :][:64] + bytes(4032)
            directory = head.directory
            struct.pack_into("=Q", more, 24, len(more))
            struct.pack_into("=IHHQ", more, directory + 32, 2, 1, 0, old)
            path.write_bytes(more)
            return head

        process._file.read_head = grown  # type: ignore[method-assign]
        assert [ring.name for ring in process.snapshot().rings] == ["sn0", "sn0"]


def test_cut_short_while_it_is_attached(tmp_path: Path) -> None:
    """With a mapping this would be SIGBUS."""
    path = maker().write(tmp_path)
    with stats.attach(path) as process:
        os.truncate(path, 4096)
        with pytest.raises(StatsError, match="cut short"):
            process.snapshot()
        os.truncate(path, 0)
        with pytest.raises(StatsError, match="empty"):
            process.snapshot()
    with pytest.raises(StatsError, match="closed"):
        process.snapshot()


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    for name in ("fifo", "link", "dir", "missing"):
        assert failure(tmp_path / name)
    with pytest.raises(StatsError, match="there is no process"):
        stats.attach(2**22 + 5, str(tmp_path))
    with pytest.raises(StatsError, match="shows no statistics"):
        stats.attach(os.getpid(), str(tmp_path))
    with pytest.raises(StatsError, match="No such file"):
        stats.processes(str(tmp_path / "missing"))


def test_a_huge_sparse_file_costs_nothing(tmp_path: Path) -> None:
    data = maker().content()
    struct.pack_into("=Q", data, 24, 1 << 40)
    path = tmp_path / "f"
    path.write_bytes(data)
    os.truncate(path, 1 << 40)
    with limited(64 << 20), stats.attach(path) as process:
        assert len(process.sockets) == 40
    struct.pack_into("=QQ", data, 32, 4096, 1 << 39)
    path.write_bytes(data)
    os.truncate(path, 1 << 40)
    with limited(64 << 20):
        assert "schema is of" in failure(path)


def many_entries(tmp_path: Path, made: Maker, offset: int, count: int) -> Path:
    """The file with another directory: so many entries, all for the object at `offset`."""
    data = made.content()
    directory = len(data)
    data += struct.pack("=QII", 0, count, 0) + struct.pack("=IHHQ", 2, 1, 0, offset) * count
    struct.pack_into("=Q", data, 24, len(data))
    struct.pack_into("=Q", data, 48, directory)
    path = tmp_path / "f"
    path.write_bytes(data)
    return path


def test_claims_are_bounded(tmp_path: Path) -> None:
    """Ten thousand entries for one object of a megabyte: ten gigabytes to read."""
    big = type_of("big", ("first", "gauge", 8), ("last", "gauge", {"size": 8, "offset": (1 << 20) - 8}))
    made = Maker([big])
    offset = made.add("big") - BASE
    assert "claims 10000 objects" in failure(many_entries(tmp_path, made, offset, 10000))


TEXTS = [{"name": f"t{i}", "kind": "text", "offset": 0, "size": 65536} for i in range(2000)]
OVERLAPPING = {
    "texts": TEXTS,
    "texts that begin elsewhere": [{**item, "offset": i} for i, item in enumerate(TEXTS)],
    "bytes": [{"name": f"b{i}", "kind": "gauge", "offset": i % 8, "size": 1} for i in range(4096)],
}


@pytest.mark.parametrize("case", OVERLAPPING)
def test_fields_that_overlap_are_bounded(tmp_path: Path, case: str) -> None:
    size = 70000 if case.startswith("texts") else 8
    with limited(64 << 20):
        made = Maker([{"name": "a", "help": "", "size": size, "fields": OVERLAPPING[case]}])
        assert f"type a of {size} bytes has fields of" in failure(made.write(tmp_path))


@pytest.mark.parametrize(("size", "width"), [(4096, 1), (65536, 65536)])
def test_values_are_bounded(tmp_path: Path, size: int, width: int) -> None:
    """Sixteen thousand entries at one object of many fields, or of a long one."""
    kind = "gauge" if width == 1 else "text"
    fields = [{"name": f"f{i}", "kind": kind, "offset": i, "size": width} for i in range(size // width)]
    made = Maker([{"name": "a", "help": "", "size": size, "fields": fields}])
    offset = made.add("a") - BASE
    path = many_entries(tmp_path, made, offset, 16000)
    with limited(128 << 20):
        assert "it claims" in failure(path)


def test_two_entries_for_one_object(tmp_path: Path) -> None:
    """The first counts; views take the place and the generation for an identity."""
    made = maker(sockets=0)
    data = made.content()
    entry = struct.unpack_from("=Q", data, 48)[0] + 16
    data[entry + 16 : entry + 32] = data[entry : entry + 16]
    path = tmp_path / "f"
    path.write_bytes(data)
    with stats.attach(path) as process:
        assert len(process.rings) == 1


def test_what_a_file_says_is_printable(tmp_path: Path) -> None:
    evil = "\x1b]0;x\x07\n"
    kind = type_of("ring", ("name", "text", 16), ("state", "enum", {"names": [evil], "unit": evil, "help": evil}))
    kind["help"] = evil
    made = Maker([kind], program=evil)
    made.add("ring", name=evil)
    with stats.attach(made.write(tmp_path)) as process:
        snapshot = process.snapshot()
    field = snapshot.types[0].fields["state"]
    assert (snapshot.rings[0].name, snapshot.rings[0].state, process.program) == ("?]0;x??",) * 3
    assert (field.unit, field.help, snapshot.types[0].help) == ("?]0;x??",) * 3


def test_a_file_under_another_number(tmp_path: Path) -> None:
    """Whoever asks for one process is not led to another one."""
    path = maker().write(tmp_path, "pyvma-stats.1")
    assert f"it says that it is of process {os.getpid()}" in failure(path)
    (found,) = stats.processes(str(tmp_path), everything=True)
    assert (found.pid, found.state) == (1, "unreadable")
    with stats.attach(path.rename(tmp_path / "kept")) as process:
        assert process.pid == os.getpid()


def test_who_may_be_asked(tmp_path: Path) -> None:
    with stats.attach(maker(start_ticks=5).write(tmp_path)) as process, pytest.raises(StatsError, match="is dead"):
        process.reachable()
    with stats.attach(maker().write(tmp_path)) as process:
        process.reachable()
    if os.getuid() == 0:
        path = maker(uid=NOBODY).write(tmp_path)  # another user's, with a number of this one's
        os.chown(path, NOBODY, NOBODY)
        with stats.attach(path) as process, pytest.raises(StatsError, match="not of the user whose process"):
            process.reachable()


def test_files_of_others_are_left(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root makes files of other users")
    path = maker(start_ticks=5, uid=NOBODY).write(tmp_path)
    os.chown(path, NOBODY, NOBODY)
    assert stats.processes(str(tmp_path), clean=True) == []
    assert path.exists()


def test_processes_and_stale_files(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    live = maker().write(tmp_path)
    reused = maker(start_ticks=start_ticks(1) + 1, pid=1).write(tmp_path, "pyvma-stats.1")
    rebooted = maker(boot_id=b"0" * 36, pid=2).write(tmp_path, "pyvma-stats.2")
    gone = Maker([RING], pid=ended.pid).write(tmp_path)
    unfinished = tmp_path / "pyvma-stats.4194999"
    unfinished.write_bytes(b"")
    foreign = tmp_path / "pyvma-stats.4194998"
    foreign.write_bytes(b"somebody's own notes")
    (tmp_path / "pyvma-stats.x").write_bytes(b"")
    before = sorted(tmp_path.iterdir())
    everything = stats.processes(str(tmp_path), everything=True)
    assert {item.path: item.state for item in everything} == {
        str(live): "live",
        str(reused): "dead",
        str(rebooted): "dead",
        str(gone): "dead",
        str(unfinished): "unreadable",
        str(foreign): "unreadable",
    }
    assert sorted(tmp_path.iterdir()) == before
    (found,) = stats.processes(str(tmp_path), clean=True)
    assert (found.pid, found.path, found.program) == (os.getpid(), str(live), "a program")
    assert {path.name for path in tmp_path.iterdir()} == {live.name, foreign.name, "pyvma-stats.x"}


def test_a_file_that_is_locked_is_of_a_live_process(tmp_path: Path) -> None:
    """One in another pid namespace, where its number says nothing here."""
    path = maker(start_ticks=5).write(tmp_path)
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert [item.state for item in stats.processes(str(tmp_path))] == ["live"]
    assert stats.processes(str(tmp_path), clean=True) == []
    assert not path.exists()


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        made = Maker([RING], pid=process.pid)
        made.add("ring", name="kept")
        path = made.write(tmp_path)
        with stats.attach(process.pid, str(tmp_path)) as attached:
            assert attached.state == "live"
            process.kill()
            wait_for("the end of the process", lambda: attached.state == "dead")
            assert attached.rings[0].name == "kept"
            assert path.exists()
    finally:
        process.kill()
        process.communicate()


def test_stopped(tmp_path: Path) -> None:
    maker(state=2).write(tmp_path)
    assert [item.state for item in stats.processes(str(tmp_path))] == ["stopped"]


def test_other_users_are_refused(tmp_path: Path) -> None:
    path = maker().write(tmp_path)
    code = (
        "import os, sys; sys.modules['pyvma._native'] = None\n"
        "from pyvma import stats\n"
        f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try: stats.attach(sys.argv[1])\n"
        "except stats.StatsError as error: print(error)"
    )
    if os.getuid():
        pytest.skip("only root becomes another user")
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout == f"{path}: it is of user root: only that user and root may read it\n", done.stderr


def test_without_the_native_library(tmp_path: Path) -> None:
    maker().write(tmp_path)
    code = (
        "import sys; sys.modules['pyvma._native'] = None\n"
        "import pyvma.stats as stats\n"
        "(found,) = stats.processes(sys.argv[1])\n"
        "print(found.pid, len(stats.attach(found.pid, sys.argv[1]).sockets), stats.default_directory())\n"
        "from pyvma._cli.stats import main\n"
        "sys.exit(main(['-k', sys.argv[1], '-p', str(found.pid), '--csv', 'ring']))"
    )
    environment = {**os.environ, "VMA_STATS_SHMEM_DIR": "/some/where"}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{os.getpid()} 40 /some/where"
    assert lines[1] == "id,name,rx_packets,up,stamps,mac,kind,most"
    assert lines[2].endswith(",sn0,1099511627776,True,True,00:01:02:03:04:05,xdp,9")


def test_read_while_objects_come_and_go(tmp_path: Path) -> None:
    """Every object that is seen is one that was there: a writer keeps two fields equal and changes type and place by the rules."""
    pair = type_of("pair", ("one", "gauge", 8), ("number", "gauge", 8))
    made = Maker([pair])
    for i in range(32):
        made.add("pair", one=i, number=i)
    path = made.write(tmp_path)
    ends = threading.Event()

    def write() -> None:
        import mmap

        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            first = struct.unpack_from("=Q", memory, 48)[0] + 16
            words = memoryview(memory).cast("I")
            seq = 100
            place = struct.unpack_from("=Q", memory, first + 8)[0]
            numbers = memoryview(memory).cast("Q")
            while not ends.is_set():
                words[first // 4] = seq + 1
                numbers[place // 8] = numbers[place // 8 + 1] = seq
                words[first // 4] = seq = (seq + 2) & 0xFFFFFFFE
            numbers.release()
            words.release()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with stats.attach(path) as process:
            for _ in range(300):
                snapshot = process.snapshot()
                assert 31 <= len(snapshot.of("pair")) <= 32
                assert all(item.one == item.number for item in snapshot.of("pair"))
    finally:
        ends.set()
        thread.join()
