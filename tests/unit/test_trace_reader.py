"""The reader of flight recorders against files made from the page alone: what it finds, what it says of broken ones, what it prints."""

from __future__ import annotations

import json
import os
import struct
from ipaddress import IPv6Address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_file import Maker, check_trace_events

from pyvma import stats
from pyvma._cli import main
from pyvma.stats import StatsError
from pyvma.stats._trace_chrome import chrome

DROP, STATE, RECOVERY, SOCKET, ERROR, QUEUED = range(1, 7)
PEER = IPv6Address("::ffff:10.0.0.2").packed


def full(room: int = 32) -> Maker:
    made = Maker(room)
    made.add(SOCKET, 0, id=0xABC, proto=6)
    made.add(STATE, 3, 2, id=0xABC, proto=6, lport=4000, rport=80, peer=PEER)
    made.add(STATE, 2, 1, id=0xABC, proto=6, lport=4000, rport=80, peer=PEER)
    made.add(RECOVERY, 0, 3, id=0xABC, proto=6, lport=4000, rport=80, peer=PEER)
    made.add(DROP, 257, 60, iface=1, proto=17, count=12, span_us=400)
    made.add(ERROR, 111, id=0xDEF, proto=17)
    made.add(QUEUED, 1400, id=0xDEF, proto=17)
    made.add(STATE, 1, 3, id=0xABC, proto=6, lport=4000, rport=80, peer=PEER)
    made.add(SOCKET, 1, id=0xABC, proto=6)
    return made


def failure(path: Path) -> str:
    with pytest.raises(StatsError) as caught:
        stats.trace(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_values(tmp_path: Path) -> None:
    full().write(tmp_path)
    found = stats.trace(os.getpid(), str(tmp_path))
    assert (found.pid, found.program, found.state, found.lost, found.torn, found.packets) == (os.getpid(), "maker", "live", 0, 0, False)
    assert [event.name for event in found.events[:5]] == ["socket", "tcp_state", "tcp_state", "recovery", "drop"]
    drop, refused, queued = found.events[4:7]
    assert drop.values == {"reason": "udp.rx_no_port", "bytes": 60}
    assert (drop.count, drop.span_ns, drop.interface, drop.protocol, drop.peer) == (12, 400_000, 1, "udp", "")
    assert refused.values == {"errno": "ECONNREFUSED"}
    assert queued.station and not refused.station
    state = found.events[1]
    assert (state.local_port, state.remote_port, state.peer) == (4000, 80, "10.0.0.2")
    assert state.realtime_ns == 1_700_000_000_000_001_000
    assert state.text() == "tcp_state old=CLOSE new=SYN_SENT tcp :4000 - 10.0.0.2:80 id=abc"
    assert drop.text() == "drop reason=udp.rx_no_port bytes=60 udp if=1 x12 in 0.400 ms"


def test_a_ring_that_has_come_round(tmp_path: Path) -> None:
    made = Maker(8)
    for number in range(21):
        made.add(QUEUED, number)
    found = stats.trace(made.write(tmp_path))
    assert [event.values["bytes"] for event in found.events] == list(range(13, 21))
    assert [event.number for event in found.events] == list(range(13, 21))
    assert found.lost == 13


def test_records_in_the_making_are_left_out(tmp_path: Path) -> None:
    made = Maker(8)
    made.add(QUEUED, 1)
    made.add(QUEUED, 2, seq=0)
    made.add(QUEUED, 3, seq=77)
    found = stats.trace(made.write(tmp_path))
    assert ([event.values["bytes"] for event in found.events], found.torn) == ([1], 2)


def test_numbers_beyond_32_bits(tmp_path: Path) -> None:
    made = Maker(8)
    made.count = 2**32 - 3
    for number in range(6):
        made.add(QUEUED, number, **({"seq": 1} if made.count == 2**32 - 1 else {}))
    found = stats.trace(made.write(tmp_path))
    assert [event.values["bytes"] for event in found.events] == list(range(6))


def test_states_of_the_process(tmp_path: Path) -> None:
    assert stats.trace(Maker(state=2).write(tmp_path)).state == "stopped"
    assert stats.trace(Maker(start_ticks=1).write(tmp_path)).state == "dead"
    assert stats.trace(Maker(boot_id=b"another").write(tmp_path)).state == "dead"
    assert [item.pid for item in stats.traces(str(tmp_path))] == [os.getpid()]


def test_predecessors_of_the_same_number(tmp_path: Path) -> None:
    path = Maker(start_ticks=1).write(tmp_path)
    path.rename(tmp_path / f"{path.name}.1")
    (tmp_path / f"{path.name}.").write_bytes(b"")
    (tmp_path / f"{path.name}.1.2").write_bytes((tmp_path / f"{path.name}.1").read_bytes())
    Maker().write(tmp_path)
    assert [(item.path, item.state) for item in stats.traces(str(tmp_path))] == [(str(path), "live"), (f"{path}.1", "dead")]
    assert stats.trace(os.getpid(), str(tmp_path)).state == "live"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"magic": b"NOTATRCE"}, "no flight recorder"),
        ({"version": 9}, "version 9"),
        ({"order": 0x04030201}, "byte order"),
        ({"state": 5}, "state is 5"),
        ({"event_size": 32}, "32 bytes"),
        ({"events": 3}, "3 events"),
        ({"events": 0}, "0 events"),
        ({"events": 2**40}, "room for"),
        ({"events_at": 2**62}, "events"),
        ({"events_at": 2**64 - 1}, "events"),
        ({"schema_at": 2**40}, "schema"),
        ({"schema_size": 2**30}, "schema is of"),
        ({"schema_size": 10}, "schema is none"),
    ],
)
def test_broken_heads(tmp_path: Path, change: dict[str, object], says: str) -> None:
    made = full()
    made.head.update(change)
    assert says in failure(made.write(tmp_path))


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "No such file" in failure(tmp_path / "none")
    assert "no file" in failure(tmp_path)
    (tmp_path / "empty").touch()
    assert "cut short" in failure(tmp_path / "empty")
    os.mkfifo(tmp_path / "pipe")
    assert "no file" in failure(tmp_path / "pipe")
    with pytest.raises(StatsError, match="no process 999999999"):
        stats.trace(999999999, str(tmp_path))
    with pytest.raises(StatsError, match="has no flight recorder"):
        stats.trace(os.getpid(), str(tmp_path))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever the bytes: a trace, or the one exception with one line; both forms can be made of any trace."""
    raw = bytearray(full().bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        where = data.draw(st.one_of(st.integers(0, 300), st.integers(4096, 5200), st.integers(8192, len(raw) - 8)))
        piece = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.integers(0, 2**64 - 1).map(lambda n: struct.pack("=Q", n))))
        raw[where : where + len(piece)] = piece
    raw = raw[: data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))]
    path = tmp_path / "damaged"
    path.write_bytes(raw)
    try:
        found = stats.trace(path)
    except StatsError as error:
        said = str(error)
    else:
        said = ""
        json.dumps(chrome(found))
    assert "\n" not in said
    assert said or all("\n" not in event.text() for event in found.events)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.booleans())
def test_random_files(tmp_path: Path, noise: bytes, magic: bool) -> None:
    path = tmp_path / "noise"
    path.write_bytes((b"PYVMATRC" if magic else b"") + noise)
    assert failure(path)


def test_chrome(tmp_path: Path) -> None:
    document = chrome(stats.trace(full().write(tmp_path)))
    events = check_trace_events(json.dumps(document))
    tracks = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    assert {"engine", "interface 1", "tcp :4000 - 10.0.0.2:80", "udp def"} <= set(tracks)
    states = [event for event in events if event.get("cat") == "tcp_state"]
    assert [(event["name"], event["ts"], event["dur"]) for event in states] == [("SYN_SENT", 1.0, 1.0), ("ESTABLISHED", 2.0, 5.0)]
    assert {event["tid"] for event in states} == {tracks["tcp :4000 - 10.0.0.2:80"]}
    drop = next(event for event in events if event["name"] == "drop udp.rx_no_port")
    assert (drop["tid"], drop["ph"], drop["args"]["span_us"], drop["args"]["count"]) == (tracks["interface 1"], "i", 400.0, 12)
    assert [event["ph"] for event in events if event.get("cat") == "recovery"] == ["b", "e"]


def test_an_address_that_is_used_again(tmp_path: Path) -> None:
    made = Maker(16)
    for _ in range(2):
        made.add(SOCKET, 0, id=5, proto=17)
        made.add(QUEUED, 1, id=5, proto=17)
        made.add(SOCKET, 1, id=5, proto=17)
    events = check_trace_events(json.dumps(chrome(stats.trace(made.write(tmp_path)))))
    assert len({event["tid"] for event in events if event["name"] == "queued"}) == 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = full().write(tmp_path)
    assert main(["stats", "trace", str(path)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith(f"# maker {os.getpid()}, live")
    assert len(lines) == 9 and "drop reason=udp.rx_no_port" in lines[4]
    assert (
        main(["stats", "trace", "-p", str(os.getpid()), "-k", str(tmp_path), "--format", "perfetto", "-o", str(tmp_path / "t.json")]) == 0
    )
    assert check_trace_events((tmp_path / "t.json").read_text())
    assert main(["stats", "trace", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"][4]["values"]["reason"] == "udp.rx_no_port"
    kept = tmp_path / "kept"
    kept.write_text("of yesterday")
    before = path.read_bytes()
    assert main(["stats", "trace", str(tmp_path / "missing"), "-o", str(kept)]) == 1
    assert main(["stats", "trace", str(path), "-o", str(path)]) == 1
    assert main(["stats", "trace", str(path), "-f", "-o", str(path)]) == 1
    assert (kept.read_text(), path.read_bytes()) == ("of yesterday", before)
    capsys.readouterr()
    assert main(["stats", "trace", "-k", str(tmp_path)]) == 0
    assert f"{os.getpid()}  maker" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["/nonexistent"], ["-p", "999999999"], ["x", "-p", "1"], ["x", "-f", "--format", "json"], ["--packets", "on"], ["-k", "/nonexistent"]],
)
def test_user_errors_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "trace", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
