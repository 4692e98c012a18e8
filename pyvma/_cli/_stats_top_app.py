"""The full-screen view: what `_stats_watch` finds, in tables of textual."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from ._stats_watch import PROCESSES, RINGS, SOCKETS, Cell, Column, Row, Watch, details, figure, sorted_rows, sparkline

__all__ = ["Top"]

# Lines of a table; the first by its order.
LINES = 500
FASTEST_S, SLOWEST_S = 0.05, 60.0


def _cell(column: Column, value: Cell, row: Row) -> Text:
    if column.history:
        return Text(sparkline(row.history), no_wrap=True)
    if value is None:
        return Text("-", justify="right" if column.number or column.rate else "left")
    if column.rate:
        return Text(figure(float(value)), justify="right")
    if column.number:
        return Text(str(value), justify="right")
    return Text(str(value), no_wrap=True)


class Table(DataTable[Text]):
    """Rows by a column, a line to stand on that stays with its row."""

    def __init__(self, columns: tuple[Column, ...], title: str, sort: int, **more: Any) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, **more)
        self.titles = columns
        self.sort_column = sort
        self.descending = not self._texts(sort)
        self.border_title = self.name_of_it = title
        self.rows_shown: list[Row] = []
        self._heads: list[Any] = []

    def _texts(self, column: int) -> bool:
        found = self.titles[column]
        return not (found.number or found.rate or found.history)

    def on_mount(self) -> None:
        for i, column in enumerate(self.titles):
            self._heads.append(self.add_column(self._head(i), key=column.name))

    def _head(self, i: int) -> Text:
        mark = ("▼" if self.descending else "▲") if i == self.sort_column else " "
        return Text(f"{self.titles[i].name}{mark}", no_wrap=True)

    def sort_by(self, column: int) -> None:
        """By that column; by the same once more: the other way round."""
        if not 0 <= column < len(self.titles):
            return
        self.descending = not self.descending if column == self.sort_column else not self._texts(column)
        self.sort_column = column
        for i, key in enumerate(self._heads):
            self.columns[key].label = self._head(i)

    def selected(self) -> Row | None:
        """The row under the cursor."""
        return self.rows_shown[self.cursor_row] if 0 <= self.cursor_row < len(self.rows_shown) else None

    def show(self, rows: list[Row], text: str = "") -> None:
        """These rows from now on."""
        if not self._heads:  # not on the screen yet
            return
        before = self.selected() if self.cursor_row else None  # the first line stays the first
        ordered = sorted_rows(rows, self.sort_column, self.descending, text)
        self.rows_shown = ordered[:LINES]
        at = self.scroll_offset
        self.clear()
        for row in self.rows_shown:
            cells = [_cell(column, value, row) for column, value in zip(self.titles, row.cells, strict=True)]
            self.add_row(*cells, key=row.key)
        line = next((i for i, row in enumerate(self.rows_shown) if before is not None and row.key == before.key), self.cursor_row)
        self.move_cursor(row=max(0, min(line, len(self.rows_shown) - 1)), animate=False, scroll=False)
        self.scroll_to(at.x, at.y, animate=False, force=True)
        count = str(len(rows)) if len(self.rows_shown) == len(rows) else f"{len(self.rows_shown)} of {len(rows)}"
        self.border_title = f"{self.name_of_it}: {count}"


class Details(Screen[None]):
    """One ring or socket: every field, with rates."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,backspace", "app.pop_screen", "back"), Binding("q", "app.quit", "quit")]

    def __init__(self, watch: Watch, pid: int, key: str) -> None:
        super().__init__()
        self.feed = watch
        self.pid = pid
        self.key = key
        self.ready = False

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable(id="fields", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        table = self.query_one("#fields", DataTable)
        for name in ("field", "value", "a second", "meaning"):
            table.add_column(name, key=name)
        self.ready = True
        self.refresh_data()
        table.focus()

    def refresh_data(self) -> None:
        """As it is now; what it was at last when it is gone."""
        if not self.ready:  # a round came before the screen was there
            return
        found = self.feed.find(self.pid, self.key)
        head = self.query_one("#head", Static)
        kind = self.key.partition("-")[0]
        state = self.feed.state(self.pid)
        if found is None:
            ended = "the process has ended" if state in ("dead", "gone") else f"this {kind} is closed"
            head.update(Text(f"process {self.pid}, {kind}: {ended}; these are its last figures", style="bold"))
            return
        total, rates, history = found
        taken = self.feed.snapshot(self.pid)
        seconds = taken[1].interval_s if taken is not None and taken[1] is not None else 0.0
        curve = sparkline(history, max(8, self.size.width - 40))
        head.update(Text(f"process {self.pid}, {kind}, {state}   packets/s {curve} {figure(history[-1]) if history else ''}"))
        table = self.query_one("#fields", DataTable)
        at, line = table.scroll_offset, table.cursor_row
        table.clear()
        for name, value, rate, text in details(total, rates, seconds):
            table.add_row(Text(name), Text(value), Text(rate, justify="right"), Text(text))
        table.move_cursor(row=line, animate=False, scroll=False)
        table.scroll_to(at.x, at.y, animate=False, force=True)


class Top(App[None]):
    """Processes above, rings and sockets of the chosen one below."""

    TITLE = "pyvma top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #status { height: 1; }
    #filter { height: 1; border: none; display: none; }
    #filter.open { display: block; }
    Table { border: round $primary; height: auto; }
    Table:focus { border: round $accent; }
    #processes { max-height: 30%; min-height: 4; }
    #rings { max-height: 30%; min-height: 4; }
    #sockets { height: 1fr; min-height: 4; }
    #head { height: 1; }
    #fields { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("space", "pause", "pause"),
        Binding("slash", "filter", "filter"),
        Binding("plus", "interval(0.5)", "faster"),
        Binding("minus", "interval(2)", "slower"),
        *[Binding(str(number % 10), f"sort({number - 1})", "sort", show=number == 1, key_display="1-9,0") for number in range(1, 11)],
    ]

    def __init__(self, watch: Watch, *, interval_s: float = 1.0, sort: int = len(SOCKETS) - 1, text: str = "") -> None:
        super().__init__()
        self.feed = watch
        self.interval_s = interval_s
        self.socket_sort = sort
        self.text = text
        self.paused = False
        self._timer: Any = None

    def compose(self) -> ComposeResult:
        yield Static(id="status")
        with Vertical():
            yield Table(PROCESSES, "processes", len(PROCESSES) - 1, id="processes")
            yield Table(RINGS, "rings", len(RINGS) - 1, id="rings")
            yield Table(SOCKETS, "sockets", self.socket_sort, id="sockets")
        yield Input(value=self.text, placeholder="text that lines hold", id="filter", compact=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#processes").focus()
        self._begin()
        self.tick()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_interval(self.interval_s, self.tick)

    def tick(self) -> None:
        """A round, unless it is paused."""
        if self.paused:
            return
        self.feed.update()
        self.show_all()

    def show_all(self) -> None:
        """What was found last, on the screen that is up."""
        base = self.screen_stack[0]
        processes = base.query_one("#processes", Table)
        processes.show(self.feed.processes())
        self._show_process(self.chosen())
        if isinstance(self.screen, Details):
            self.screen.refresh_data()
        self._show_status()

    def chosen(self) -> int | None:
        """The process whose rings and sockets are shown."""
        row = self.screen_stack[0].query_one("#processes", Table).selected()
        return int(row.key) if row is not None else None

    def _show_process(self, pid: int | None) -> None:
        base = self.screen_stack[0]
        base.query_one("#rings", Table).show(self.feed.rings(pid) if pid is not None else [], self.text)
        base.query_one("#sockets", Table).show(self.feed.sockets(pid) if pid is not None else [], self.text)

    def _show_status(self) -> None:
        said = [f"pyvma top  every {self.interval_s:g} s"]
        if self.paused:
            said.append("paused")
        if self.text:
            said.append(f"filter: {self.text}")
        if self.feed.trouble:
            said.append(self.feed.trouble)
        elif not self.query("#processes").first(Table).rows_shown:
            said.append("no process on pyvma" if self.feed.pid is None else f"process {self.feed.pid} has ended")
        self.screen_stack[0].query_one("#status", Static).update(Text("  ".join(said), style="reverse"))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another process was chosen."""
        row = self.chosen()
        if event.data_table.id == "processes" and row is not None and event.data_table.has_focus:
            self._show_process(row)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter: into the ring or socket; from the processes to the sockets."""
        table = event.data_table
        pid = self.chosen()
        if not isinstance(table, Table) or pid is None:
            return
        row = table.selected()
        if table.id == "processes":
            self.query_one("#sockets").focus()
        elif row is not None:
            self.push_screen(Details(self.feed, pid, row.key))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """A click on a column's head."""
        if isinstance(event.data_table, Table):
            event.data_table.sort_by(event.column_index)
            self.show_all()

    def action_sort(self, column: int) -> None:
        """By a column of the table that has the focus."""
        if isinstance(self.focused, Table):
            self.focused.sort_by(column)
            self.show_all()

    def action_pause(self) -> None:
        """Stops looking, or looks again."""
        self.paused = not self.paused
        self._show_status()

    def action_interval(self, factor: float) -> None:
        """Faster or slower."""
        self.interval_s = max(FASTEST_S, min(SLOWEST_S, self.interval_s * factor))
        self._begin()
        self._show_status()

    def action_filter(self) -> None:
        """Asks for the filter."""
        if not isinstance(self.screen, Details):
            field = self.query_one("#filter", Input)
            field.add_class("open")
            field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """The filter, letter by letter."""
        self.text = event.value
        self.show_all()

    def on_input_submitted(self) -> None:
        """Back to the sockets."""
        self._close_filter()

    def on_key(self, event: Any) -> None:
        """Escape ends the filter."""
        if event.key == "escape" and isinstance(self.focused, Input):
            self.focused.value = ""
            self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("open")
        self.query_one("#sockets").focus()
