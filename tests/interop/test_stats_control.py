"""A live process that is changed, measured, explained and watched from outside."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from actor import Actor
from exchange import wait_for
from lab import softnic_reason
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from textual.widgets import DataTable

from pyvma import stats
from pyvma._cli import main
from pyvma._cli._stats_explain import explain
from pyvma._cli._stats_top_app import Top
from pyvma._cli._stats_watch import Watch
from pyvma.stats._control import Control
from pyvma.stats._metrics import Collector

pytestmark = pytest.mark.skipif(bool(softnic_reason()), reason=softnic_reason() or "there")

LIMIT_S = 60
SETUP = """
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("10.9.0.1", 7000))
b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); b.bind(("10.9.0.1", 0))
kernels = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); kernels.bind(("127.0.0.1", 0))
listener = socket.socket(); listener.bind(("10.9.0.1", 7002)); listener.listen()
client = socket.create_connection(("10.9.0.1", 7002)); server, _ = listener.accept()
"""
TALK = """
for i in range(count):
    b.sendto(b"x" * 100, ("10.9.0.1", 7000))
    assert len(a.recv(200)) == 100
client.sendall(b"y" * count)
left = count
while left:
    left -= len(server.recv(left))
"""


@pytest.fixture
def service(fabric: str, tmp_path: Path) -> Iterator[Actor]:
    """A process with sockets of every kind; its log is in tmp_path/log."""
    interface = f"softnic:fabric={fabric},port=0,addr=10.9.0.1/24,name=sn0"
    with Actor([interface], env={"PYVMA_LOG_FILE": str(tmp_path / "log")}) as found:
        found(SETUP)
        yield found


def test_settings_of_a_live_process(service: Actor, tmp_path: Path) -> None:
    pid = service.process.pid
    with Control(pid) as control:
        found = {item.name: item for item in control.tunables()}
        assert {"rx_poll", "kernel_poll_ratio", "rx_batch", "progress_interval", "log_level", "log_details"} <= set(found)
        assert (found["rx_batch"].low, found["rx_batch"].high, found["rx_batch"].unit) == (1, 64, "frames")
        assert control.set("rx_poll", 7) == ("1000", "7")
        assert control.get("rx_poll") == "7"
        for name, value, number in (("rx_batch", 65, errno.EINVAL), ("no_such", 1, errno.ENOENT), ("rx_depth", 64, errno.EPERM)):
            with pytest.raises(OSError) as caught:
                control.set(name, value)
            assert caught.value.errno == number
        with pytest.raises(OSError):
            control.set("rx_poll", "1\nvalue=2")
        with pytest.raises(KeyError):
            control.get("rx_depth")
        assert control.log("info", 3) == ("info", 3)
        with stats.attach(pid) as process:
            assert process.snapshot().engine is not None
            assert process.snapshot().engine["spin"] == 7000
        service(TALK, count=100)  # nothing was upset
        assert control.set("rx_poll", -1)[1] == "-1"
    text = (tmp_path / "log").read_text()
    assert f"pyvma[{pid}/" in text
    assert "rx_poll is -1 now" in text


def test_counters_begin_again_and_sockets_are_logged(service: Actor, tmp_path: Path) -> None:
    pid = service.process.pid
    service(TALK, count=250)
    fd = service("a.fileno()")

    def received() -> int:
        with stats.attach(pid) as process:
            return sum(item["rx_datagrams"] for item in process.snapshot().of("udp_table"))

    assert received() == 250
    with Control(pid) as control:
        assert control.dump(fd, "warn") == (1, True)
        assert control.dump(0, "debug") == (6, False)
        with pytest.raises(OSError, match="is no socket"):
            control.dump(54321)
        control.zero()
    assert received() == 0
    (line,) = [line for line in (tmp_path / "log").read_text().splitlines() if "rx_datagrams" in line]
    assert f"socket fd {fd}: local_addr=10.9.0.1 local_port=7000" in line
    assert "rx_datagrams=250 rx_bytes=25000bytes" in line
    service(TALK, count=5)
    assert received() == 5


def test_the_command(service: Actor, capsys: pytest.CaptureFixture[str]) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        status = main(["stats", "control", str(service.process.pid), *words])
        said = capsys.readouterr()
        return status, said.out, said.err

    assert command("set", "kernel_poll_ratio", "10") == (0, "kernel_poll_ratio: 10 (was 100)\n", "")
    assert command("get", "kernel_poll_ratio") == (0, "10\n", "")
    status, out, _ = command("get")
    assert status == 0
    assert "kernel_poll_ratio  10 " in out
    assert command("log-level", "4") == (0, "log level debug, details 0\n", "")
    assert command("zero") == (0, "", "")
    assert command("dump", "0") == (0, "", "")
    for words, text in (
        (("set", "rx_batch", "many"), "whole number"),
        (("set", "mtu", "9000"), "cannot change"),
        (("dump", "1"), "no socket"),
    ):
        status, _, err = command(*words)
        assert (status, err.count("\n")) == (1, 1)
        assert err.startswith("pyvma stats: ")
        assert text in err


def families(pid: int) -> dict[str, Metric]:
    """As both parsers of the official client read them."""
    registry = CollectorRegistry()
    registry.register(Collector(pid=pid, sockets=100))
    names = {family.name for family in parse_text(generate_latest(registry).decode())}
    found = {family.name: family for family in parse_openmetrics(openmetrics.generate_latest(registry).decode())}
    assert {"pyvma_ring_rx_packets", "pyvma_engine_polls"} <= names & set(found)
    return found


def test_metrics_are_the_process_own_counts(service: Actor) -> None:
    pid = service.process.pid
    service(TALK, count=321)
    found = families(pid)
    (datagrams,) = found["pyvma_udp_table_rx_datagrams"].samples
    assert (datagrams.value, datagrams.labels["pid"]) == (321, str(pid))
    by_fd = {sample.labels["fd"]: sample for sample in found["pyvma_udp_rx_datagrams"].samples}
    sample = by_fd[str(service("a.fileno()"))]
    assert (sample.value, sample.labels["program"]) == (321, datagrams.labels["program"])
    assert sum(sample.value for sample in found["pyvma_tcp_rx_bytes"].samples) == 321
    states = [sample for sample in found["pyvma_tcp_state"].samples if sample.value]
    assert sorted(sample.labels["pyvma_tcp_state"] for sample in states) == ["ESTABLISHED", "ESTABLISHED", "LISTEN"]
    assert {sample.labels["interface"] for sample in found["pyvma_ring_rx_packets"].samples} == {"sn0"}
    service.close()  # by itself, so that its fabric goes, too
    wait_for("the end of its series", lambda: set(registry_names(pid)) == set())


def registry_names(pid: int) -> list[str]:
    return [family.name for family in Collector(pid=pid).collect() if family.name.startswith(("pyvma_ring", "pyvma_engine"))]


def test_what_is_explained(service: Actor) -> None:
    """A receiver that does not read: how many are lost is what it lacks."""
    pid = service.process.pid
    service('a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)\nfor i in range(400): b.sendto(b"x" * 100, ("10.9.0.1", 7000))')
    got = service("a.setblocking(False)\nn = 0\ntry:\n    while True: a.recv(200); n += 1\nexcept BlockingIOError: pass\nn")
    with stats.attach(pid) as process:
        found = explain(process.snapshot(), process.state)
    assert (found.sockets, found.offloaded) == (6, 5)
    (group,) = found.groups
    assert group.reason == "address 127.0.0.1 is the kernel's"
    (loss,) = [loss for loss in found.losses if loss.where.startswith("udp socket")]
    assert (loss.counter, loss.count) == ("rx_queue_full", 400 - got)
    assert "10.9.0.1 port 7000" in loss.where


def test_the_view_of_a_live_process(service: Actor) -> None:
    pid = service.process.pid

    async def main() -> None:
        watch = Watch(pid=pid)
        app = Top(watch, interval_s=3600)
        try:
            async with app.run_test(size=(160, 40)) as pilot:
                service(TALK, count=50)
                app.tick()
                await pilot.pause()
                table = app.query_one("#sockets", DataTable)
                rows = [[str(cell).strip() for cell in table.get_row_at(i)] for i in range(table.row_count)]
                assert len(rows) == 6
                assert {row[4] for row in rows} == {"offloaded", "kernel"}
                (own,) = [row for row in rows if row[2] == "10.9.0.1:7000"]
                assert own[1] == "udp"
                assert float(own[5].rstrip("kM")) > 0
                service.close()  # by itself, so that its fabric goes, too
                app.tick()
                app.tick()
                await pilot.pause()
                assert table.row_count == 0
        finally:
            watch.close()

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))
