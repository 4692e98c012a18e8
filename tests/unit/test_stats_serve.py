"""Metrics of live processes, as the official client's parsers read them, and what becomes of processes that end."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from exchange import wait_for
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from stats_file import Maker, type_of

from pyvma._cli import main
from pyvma.stats import Field
from pyvma.stats._metrics import Collector, family_name

LIMIT_S = 60
TYPES = [
    type_of("engine", ("polls", "counter"), ("mode", "enum", {"names": ["fd", "busy"]}), ("spin", "gauge", {"unit": "us"})),
    type_of(
        "ring",
        ("interface", "text", 16),
        ("rx_packets", "counter", {"unit": "packets"}),
        ("rx_bytes", "counter", {"unit": "bytes"}),
        ("busy", "counter", {"unit": "ns"}),
        ("up", "flag", {"mask": 1, "size": 1}),
        ("mac", "mac"),
        ("seen", "time"),
        ("depth", "max", {"unit": "frames"}),
        ("pool", "link"),
    ),
    type_of("pool", ("total", "gauge"), ("free", "gauge", {"unit": "buffers"})),
    type_of("socket", ("fd", "id", 4), ("transport", "link"), ("reason", "link"), ("eagain", "counter")),
    type_of("udp", ("rx_datagrams", "counter"), ("queued", "gauge"), ("local_addr", "addr"), ("sequence", "id", 4), ("rate", "gauge")),
    type_of("membership", ("group", "addr"), ("udp", "link"), ("sources", "gauge")),
    type_of("reason", ("text", "text", 32)),
    type_of("epoll", ("waits", "counter")),
]


@pytest.fixture
def others() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that the files say they are of."""
    made = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        yield made
    finally:
        for process in made:
            process.kill()
            process.wait(LIMIT_S)


def write(folder: Path, pid: int, packets: int, sockets: int = 3, program: str = 'a "quoted\\name"\n') -> Path:
    made = Maker(TYPES, pid=pid, program=program)
    made.add("engine", polls=7, mode="busy", spin=1000)
    for name in ("sn0", "sn1"):
        pool = made.add("pool", total=100, free=60)
        counts = {"rx_packets": packets, "rx_bytes": 64 * packets, "busy": 1_500_000_000}
        made.add("ring", interface=name, up=True, mac=bytes(range(6)), depth=9, pool=pool, **counts)
    reason = made.add("reason", text="a device of the kernel's")
    for i in range(sockets):
        udp = made.add("udp", rx_datagrams=i, queued=1, local_addr="10.0.0.1", sequence=12345, rate=2**64 - 1)
        made.add("membership", group="224.0.0.9", udp=udp, sources=1)
        made.add("socket", fd=i - 1, transport=udp, reason=reason if i == 2 else 0, eagain=i)
    made.add("epoll", waits=3)
    return made.write(folder)


def scrape(collector: Collector) -> dict[str, Metric]:
    """Both formats are valid and say the same; the families by name."""
    registry = CollectorRegistry()
    registry.register(collector)
    found = {family.name: family for family in parse_openmetrics(openmetrics.generate_latest(registry).decode())}
    plain = [sample for family in parse_text(generate_latest(registry).decode()) for sample in family.samples]
    strict = [sample for family in found.values() for sample in family.samples]
    assert {(sample.name, frozenset(sample.labels.items()), sample.value) for sample in plain} == {
        (sample.name, frozenset(sample.labels.items()), sample.value) for sample in strict
    }
    return found


def values(found: dict[str, Metric], family: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels[name] for name in labels): sample.value for sample in found[family].samples}


def test_names() -> None:
    def name(kind: str, field: str, unit: str = "") -> str:
        return family_name("ring", Field(field, kind, 0, 8, unit, ""))

    assert name("counter", "rx_bytes", "bytes") == "pyvma_ring_rx_bytes"
    assert name("counter", "drops_total") == "pyvma_ring_drops"
    assert name("gauge", "total") == "pyvma_ring_total_value"
    assert name("gauge", "srtt_us", "us") == "pyvma_ring_srtt_seconds"
    assert name("time", "seen") == "pyvma_ring_seen_timestamp_seconds"
    assert name("gauge", "rate", "1/s") == "pyvma_ring_rate_per_second"
    assert name("gauge", "odd-name", "a b") == "pyvma_ring_odd_name_a_b"


def test_values_and_labels(tmp_path: Path, others: list[subprocess.Popen[bytes]]) -> None:
    pids = [process.pid for process in others]
    for number, pid in enumerate(pids):
        write(tmp_path, pid, 2**40 + number)
    found = scrape(Collector(str(tmp_path)))
    rings = values(found, "pyvma_ring_rx_packets", "pid", "interface")
    assert rings == {(str(pid), name): 2**40 + number for number, pid in enumerate(pids) for name in ("sn0", "sn1")}
    assert found["pyvma_ring_rx_packets"].type == "counter"
    assert {sample.labels["program"] for sample in found["pyvma_ring_rx_packets"].samples} == {'a "quoted\\name"?'}
    assert set(values(found, "pyvma_ring_busy_seconds", "interface").values()) == {1.5}
    assert set(values(found, "pyvma_engine_spin_seconds", "pid").values()) == {0.001}
    assert values(found, "pyvma_engine_mode", "pid", "pyvma_engine_mode")[str(pids[0]), "busy"] == 1
    (info, *_) = found["pyvma_ring"].samples
    assert info.labels["mac"] == "00:01:02:03:04:05"
    assert values(found, "pyvma_objects", "pid", "type")[str(pids[0]), "socket"] == 3
    assert values(found, "pyvma_exporter_sockets_left_out", "pid")[(str(pids[0]),)] == 3
    assert not any(name.startswith(("pyvma_socket", "pyvma_udp_rx", "pyvma_epoll")) for name in found)
    assert "pyvma_ring_seen_timestamp_seconds" not in found
    assert set(values(found, "pyvma_pool_free_buffers", "interface")) == {("sn0",), ("sn1",)}


def test_sockets_are_bounded(tmp_path: Path) -> None:
    write(tmp_path, os.getpid(), 1, sockets=50)
    found = scrape(Collector(str(tmp_path), sockets=20))
    assert len(found["pyvma_socket_eagain"].samples) == 20
    assert len(found["pyvma_udp_rx_datagrams"].samples) == 20
    assert values(found, "pyvma_exporter_sockets_left_out", "pid")[(str(os.getpid()),)] == 30
    assert values(found, "pyvma_udp_rx_datagrams", "fd")[("5",)] == 6
    assert len(found["pyvma_epoll_waits"].samples) == 1
    assert len(found["pyvma_membership_sources"].samples) == 20
    told = {sample.labels["fd"]: sample.labels for sample in found["pyvma_socket"].samples}
    assert told["1"]["reason"] == "a device of the kernel's"
    (own,) = [sample.labels for sample in found["pyvma_udp"].samples if sample.labels["fd"] == "1"]
    assert (own["local_addr"], own["object"]) == ("10.0.0.1", told["1"]["object"])
    # What never stays the same is no label, and what means "none" no value.
    assert "sequence" not in own
    assert "pyvma_udp_rate" not in found


def test_a_process_that_ends_takes_its_series_along(tmp_path: Path, others: list[subprocess.Popen[bytes]]) -> None:
    first, second = others
    for process in others:
        write(tmp_path, process.pid, 1)
    (tmp_path / "pyvma-stats.1").write_bytes(b"nothing of the kind" * 1000)
    collector = Collector(str(tmp_path))
    assert set(values(scrape(collector), "pyvma_engine_polls", "pid")) == {(str(first.pid),), (str(second.pid),)}
    first.kill()
    first.wait(LIMIT_S)
    found = scrape(collector)
    assert set(values(found, "pyvma_engine_polls", "pid")) == {(str(second.pid),)}
    assert (tmp_path / f"pyvma-stats.{first.pid}").exists(), "who only looks leaves it"
    assert set(scrape(Collector(str(tmp_path / "none")))) == {"pyvma_exporter_unreadable_files"}


def test_names_that_are_odd(tmp_path: Path) -> None:
    """Fields that begin with digits or two underscores; several objects of a type; some with a reason."""
    made = Maker([type_of("7th", ("1st", "text", 8), ("__name", "text", 8), ("2nd", "counter"), ("reason", "link")), TYPES[6]])
    for reason in (0, made.add("reason", text="why not")):
        made.add("7th", **{"1st": "a", "__name": "b", "2nd": 5, "reason": reason})
    made.write(tmp_path)
    found = scrape(Collector(str(tmp_path)))
    assert values(found, "pyvma_7th_2nd", "number") == {("0",): 5, ("1",): 5}
    assert {sample.labels["reason"] for sample in found["pyvma_7th"].samples} == {"", "why not"}
    assert {(sample.labels["_1st"], sample.labels["_name"]) for sample in found["pyvma_7th"].samples} == {("a", "b")}
    for family in found.values():
        assert len({frozenset(sample.labels) for sample in family.samples}) == 1


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "pyvma", "stats", "serve", "-k", str(folder), *arguments]


def test_over_http(tmp_path: Path, clean_env: dict[str, str]) -> None:
    write(tmp_path, os.getpid(), 5)
    process = subprocess.Popen(command(tmp_path, "--listen", "127.0.0.1:0"), env=clean_env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            families = {family.name: family for family in parse_text(answer.read().decode())}
        assert {sample.value for sample in families["pyvma_ring_rx_packets"].samples} == {5}
        request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert any(family.name == "pyvma_ring_rx_packets" for family in parse_openmetrics(answer.read().decode()))
        taken = subprocess.run(
            command(tmp_path, "--listen", url.split("/")[2]), env=clean_env, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert taken.returncode == 1
        assert "in use" in taken.stderr
        assert taken.stderr.count("\n") == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def test_textfile(tmp_path: Path, clean_env: dict[str, str]) -> None:
    """Whole at every moment, although it is written again and again; gone is only what was not finished."""
    (tmp_path / "files").mkdir()
    write(tmp_path / "files", os.getpid(), 5)
    path = tmp_path / "out" / "pyvma.prom"
    path.parent.mkdir()
    process = subprocess.Popen(command(tmp_path / "files", "--textfile", str(path), "--interval", "0.1"), env=clean_env)
    try:
        seen: set[int] = set()

        def written_again() -> bool:
            assert process.poll() is None
            if path.exists():
                assert any(family.name == "pyvma_ring_rx_packets" for family in parse_text(path.read_text()))
                seen.add(path.stat().st_mtime_ns)
            return len(seen) >= 3

        wait_for("three writings", written_again)
        assert path.stat().st_mode & 0o777 == 0o644
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait(LIMIT_S)
    assert [item.name for item in path.parent.iterdir()] == ["pyvma.prom"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--listen", "nowhere"), "ADDRESS:PORT"),
        (("--listen", "127.0.0.1:99999"), "ADDRESS:PORT"),
        (("--listen", "192.0.2.1:0"), "192.0.2.1:0"),
        (("--textfile", "/nonexistent/x.prom"), "/nonexistent/x.prom"),
        (("--textfile", "x", "--listen", ":1"), "either"),
        (("--sockets", "-1", "--once"), "--sockets"),
        (("--openmetrics",), "--once"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str) -> None:
    assert main(["stats", "serve", "-k", str(tmp_path), *arguments]) == 1
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1


def test_without_the_client(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "prometheus_client" else find(name, *more))
    assert main(["stats", "serve", "--once"]) == 1
    assert capsys.readouterr().err == "pyvma stats: needs prometheus-client: pip install 'pyvma[metrics]'\n"
