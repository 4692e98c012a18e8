"""The full-screen view: by textual's own pilot, and as a program in a terminal of tmux."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from exchange import wait_for
from stats_file import Maker, type_of
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from pyvma._cli import main
from pyvma._cli._stats_top_app import Details, Table, Top
from pyvma._cli._stats_watch import PROCESSES, SOCKETS, Watch, figure, sorted_rows, sparkline

LIMIT_S = 60
COUNTERS = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_no_buf")
TYPES = [
    type_of("engine", ("polls", "counter")),
    type_of("udp_table", ("rx_datagrams", "counter"), ("tx_datagrams", "counter"), ("rx_bytes", "counter"), ("rx_no_port", "counter")),
    type_of("ring", ("interface", "text", 16), ("name", "text", 32), ("link_up", "flag", {"mask": 1, "size": 1}),
            *((name, "counter") for name in COUNTERS)),
    type_of("socket", ("fd", "id", 4), ("type", "enum", {"names": ["0", "stream", "datagram"]}),
            ("state", "enum", {"names": ["undecided", "offloaded", "kernel"]}), ("transport", "link"), ("eagain", "counter")),
    type_of("udp", ("local_addr", "addr"), ("local_port", "port"), ("remote_addr", "addr"), ("remote_port", "port"),
            ("rx_datagrams", "counter"), ("tx_datagrams", "counter"), ("queued", "gauge"), ("rx_queue_full", "counter")),
]  # fmt: skip


def write(folder: Path, count: int, pid: int | None = None, sockets: int = 8) -> None:
    """A process that has done `count` units of work; the same objects in the same places each time."""
    made = Maker(TYPES, pid=pid or os.getpid(), program="a service")
    made.add("engine", polls=count)
    made.add("udp_table", rx_datagrams=50 * count, tx_datagrams=10 * count, rx_bytes=5000 * count, rx_no_port=count)
    for name in ("sn0", "sn1"):
        made.add("ring", interface=name, name=f"softnic:{name}", link_up=True, rx_packets=100 * count, tx_packets=1, rx_no_buf=count)
    for i in range(sockets):
        place = {"local_addr": "10.0.0.1", "local_port": 1000 + i, "remote_addr": "10.0.0.2", "remote_port": 9}
        udp = made.add("udp", **place, rx_datagrams=i * count, queued=sockets - i)
        made.add("socket", fd=i + 3, type="datagram", state="kernel" if i == 5 else "offloaded", transport=udp)
    made.write(folder)


def drive(folder: Path, work: Callable[[Top, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (150, 40)) -> None:
    """The view of that folder; rounds only when `work` asks for them."""

    async def main() -> None:
        watch = Watch(str(folder))
        app = Top(watch, interval_s=3600)
        try:
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                await work(app, pilot)
        finally:
            watch.close()
        assert app.return_code in (0, None)

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def shown(app: Top, which: str) -> list[list[str]]:
    table = app.screen_stack[0].query_one(f"#{which}", DataTable)
    return [[str(cell).strip() for cell in table.get_row_at(i)] for i in range(table.row_count)]


def fds(app: Top) -> list[str]:
    return [row[0] for row in shown(app, "sockets")]


def test_small_things() -> None:
    assert [figure(value) for value in (0, 3, 3.25, 999.4, 999.6, 12345, 1e6, 2.5e9)] == [
        "0", "3", "3.25", "999", "1k", "12.3k", "1M", "2.5G",
    ]  # fmt: skip
    assert sparkline([0, 1, 4, 8], 6) == "   ▁▄█"
    assert sparkline([], 3) == "   "
    assert sparkline([0, 0], 2) == "  "


def test_a_loss_counts_once(tmp_path: Path) -> None:
    """Whichever layer it is in, and although others hear of it."""
    types = [
        type_of("tcp_table", ("rx_segments", "counter"), ("tx_no_buf", "counter"), ("tx_errors", "counter")),
        type_of("net", ("tx_ring_full", "counter")),
        type_of("pool", ("exhausted", "counter")),
    ]
    watch = Watch(str(tmp_path))
    try:
        for count in (0, 1000):
            made = Maker(types, program="a service")
            made.add("tcp_table", tx_no_buf=3 * count, tx_errors=count)
            made.add("net", tx_ring_full=count)
            made.add("pool", exhausted=3 * count)
            made.write(tmp_path)
            watch.update()
        (row,) = watch.processes()
        taken = watch.snapshot(os.getpid())
    finally:
        watch.close()
    assert taken is not None and taken[1] is not None
    loss = row.cells[[column.name for column in PROCESSES].index("loss/s")]
    assert loss == pytest.approx(4000 / taken[1].interval_s)


def test_rates_and_curves(tmp_path: Path) -> None:
    watch = Watch(str(tmp_path))
    try:
        for count in (1, 2, 4):
            write(tmp_path, count)
            watch.update()
            (row,) = watch.processes()
            rings = watch.rings(os.getpid())
            watch.rings(os.getpid())  # shown twice, counted once
        assert row.cells[:5] == (os.getpid(), "a service", "live", 8, 7)
        assert len(rings[0].history) == 2
        taken = watch.snapshot(os.getpid())
        assert taken is not None
        assert taken[1] is not None
        seconds = taken[1].interval_s
        assert row.cells[5:10] == pytest.approx((100 / seconds, 20 / seconds, 10000 / seconds, 0, 6 / seconds))
        assert rings[0].cells[2] == pytest.approx(200 / taken[1].interval_s)
        assert rings[0].cells[6] == pytest.approx(2 / taken[1].interval_s)
        rows = watch.sockets(os.getpid())
        assert [row.cells[0] for row in sorted_rows(rows, 5, True)] == [10, 9, 8, 7, 6, 5, 4, 3]
        assert [row.cells[0] for row in sorted_rows(rows, 5, False, "kernel")] == [8]
        write(tmp_path, 5, sockets=2)
        watch.update()
        assert len(watch.sockets(os.getpid())) == 2
    finally:
        watch.close()


def test_tables_sort_and_filter(tmp_path: Path) -> None:
    write(tmp_path, 1)

    async def work(app: Top, pilot: Pilot[None]) -> None:
        write(tmp_path, 2)
        app.tick()
        await pilot.pause()
        assert shown(app, "processes")[0][:5] == [str(os.getpid()), "a service", "live", "8", "7"]
        assert [row[0] for row in shown(app, "rings")] == ["sn0", "sn1"]
        assert fds(app) == ["10", "9", "8", "7", "6", "5", "4", "3"]
        await pilot.press("tab", "tab", "1")
        await pilot.pause()
        assert fds(app) == ["10", "9", "8", "7", "6", "5", "4", "3"]
        await pilot.press("1")
        await pilot.pause()
        assert fds(app) == ["3", "4", "5", "6", "7", "8", "9", "10"]
        await pilot.press("slash", *"kernel", "enter")
        await pilot.pause()
        assert fds(app) == ["8"]
        await pilot.press("slash", "escape")
        await pilot.pause()
        assert len(fds(app)) == 8
        assert isinstance(app.focused, Table)
        assert not app.query_one("#filter", Input).has_class("open")

    drive(tmp_path, work)


def test_the_line_follows_its_row_into_the_details(tmp_path: Path) -> None:
    write(tmp_path, 1)

    async def work(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "1", "1", "down", "down")
        sockets = app.query_one("#sockets", Table)
        row = sockets.selected()
        assert row is not None
        fd = row.cells[0]
        await pilot.press("1")
        await pilot.pause()
        again = sockets.selected()
        assert again is not None
        assert again.cells[0] == fd
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Details)
        table = app.screen.query_one("#fields", DataTable)
        values = {str(table.get_row_at(i)[0]): str(table.get_row_at(i)[1]) for i in range(table.row_count)}
        assert values["fd"] == str(fd)
        assert values["udp.remote_addr"] == "10.0.0.2"
        write(tmp_path, 9, sockets=0)
        app.tick()
        await pilot.pause()
        assert "is closed" in str(app.screen.query_one("#head", Static).render())
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(app.screen, Details)
        await pilot.press("q")

    drive(tmp_path, work)


def test_pause_and_interval(tmp_path: Path) -> None:
    write(tmp_path, 1)

    async def work(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("space")
        write(tmp_path, 2, sockets=1)
        app.tick()
        await pilot.pause()
        assert len(fds(app)) == 8
        assert "paused" in str(app.query_one("#status", Static).render())
        await pilot.press("space")
        app.tick()
        await pilot.pause()
        assert len(fds(app)) == 1
        app.interval_s = 1.0
        await pilot.press("plus", "plus", "minus")
        assert app.interval_s == 0.5
        app.interval_s = 3600

    drive(tmp_path, work)


def test_any_size(tmp_path: Path) -> None:
    write(tmp_path, 1)

    async def work(app: Top, pilot: Pilot[None]) -> None:
        for width, height in ((8, 3), (300, 80), (20, 8)):
            await pilot.resize_terminal(width, height)
            app.tick()
            await pilot.press("tab", "enter", "escape")
        await pilot.pause()
        assert len(fds(app)) == 8

    drive(tmp_path, work, (1, 1))


def test_no_process_and_one_that_ends(tmp_path: Path) -> None:
    async def work(app: Top, pilot: Pilot[None]) -> None:
        assert "no process" in str(app.query_one("#status", Static).render())
        process = subprocess.Popen(["sleep", "600"])
        try:
            write(tmp_path, 1, process.pid)
            app.tick()
            await pilot.pause()
            assert [row[0] for row in shown(app, "processes")] == [str(process.pid)]
            await pilot.press("tab", "tab", "enter")
            await pilot.pause()
            assert isinstance(app.screen, Details)
        finally:
            process.kill()
            process.wait(LIMIT_S)
        app.tick()
        await pilot.pause()
        assert shown(app, "processes")[0][2] == "dead"
        app.tick()
        await pilot.pause()
        assert shown(app, "processes") == []
        assert fds(app) == []
        assert "the process has ended" in str(app.screen.query_one("#head", Static).render())

    drive(tmp_path, work)


# ---- as a program, in a terminal ----


class Terminal:
    """A terminal of tmux with one program in it."""

    def __init__(self, command: list[str], env: dict[str, str], columns: int = 130, lines: int = 40) -> None:
        self.server = f"pyvma-test-{secrets.token_hex(6)}"
        self.env = env
        size = ["-x", str(columns), "-y", str(lines)]
        self.tmux("-f", "/dev/null", "new-session", "-d", *size, *command)
        self.tmux("set-option", "remain-on-exit", "on")

    def tmux(self, *arguments: str) -> str:
        line = ["tmux", "-u", "-L", self.server, *arguments]
        return subprocess.run(line, env=self.env, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def wait(self, what: str) -> str:
        try:
            wait_for(f"{what!r} on the screen", lambda: what in self.text())
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None
        return self.text()

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self.server, "kill-server"], env=self.env, capture_output=True, timeout=LIMIT_S)


@pytest.fixture
def terminal(tmp_path: Path, clean_env: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        # The shell tells the exit status, and keeps the screen.
        command = f"{sys.executable} -m pyvma stats top -k {tmp_path} {' '.join(arguments)}; echo over, status $?; exec sleep 600"
        opened.append(Terminal(["sh", "-c", command], {**clean_env, "TERM": "screen-256color", "LC_ALL": "C.UTF-8"}))
        return opened[-1]

    try:
        yield start
    finally:
        for item in opened:
            item.close()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="apt install tmux")
def test_in_a_terminal(tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    write(tmp_path, 1)
    screen = terminal("-i", "0.1")
    assert "a service" in screen.wait("sockets: 8")
    screen.press("Tab", "Tab", "/")
    screen.wait("text that lines hold")
    screen.press("-l", "10.0.0.1:1005")
    screen.wait("sockets: 1 of 8")
    screen.press("Enter")
    wait_for("the end of the question", lambda: "10.0.0.1:1005" not in screen.text().splitlines()[-2])
    screen.press("Enter")
    assert "rx_queue_full" in screen.wait("udp.local_port")
    screen.tmux("resize-window", "-x", "30", "-y", "6")
    screen.tmux("resize-window", "-x", "120", "-y", "30")
    screen.wait("udp.local_port")
    screen.press("Escape")
    screen.wait("sockets: 1 of 8")
    screen.press("q")
    screen.wait("over, status 0")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="apt install tmux")
def test_a_process_that_ends_in_a_terminal(tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        write(tmp_path, 1, process.pid)
        screen = terminal("-i", "0.1", "-p", str(process.pid))
        screen.wait("sockets: 8")
    finally:
        process.kill()
        process.wait(LIMIT_S)
    screen.wait("has ended")
    screen.press("C-c")
    screen.wait("over, status 0")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "needs a terminal"),
        (("-p", "999999999"), "there is no process 999999999"),
        (("--sort", "nothing"), f"is none of {', '.join(column.name for column in SOCKETS)}"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str) -> None:
    assert main(["stats", "top", "-k", str(tmp_path), *arguments]) == 1
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1
