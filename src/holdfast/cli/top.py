"""holdfast top: what a cluster does now, in the terminal: queues with their figures, and nodes, drawn each second."""
from __future__ import annotations

import sys
from typing import Any, ClassVar

import click
from rich.text import Text

from holdfast.cli.common import fail, some
from holdfast.cli.where import connect_option
from holdfast.client import sight, trouble
from holdfast.client.errors import Error
from holdfast.client.figures import TITLES, Figures
from holdfast.client.members import Member
from holdfast.client.text import visible

COLUMNS = (
    "name", "queued", "leased", "delayed", "retrying", "node_away", "dead", "in_per_second",
    "out_per_second", "longest_wait", "done", "failed", "idle_workers", "paused",
)

NAME_MAX = 41
"""Characters of a queue's name."""
STYLES = {trouble.BAD: "red", trouble.REMARK: "yellow"}
PROBLEMS_MAX = 5
"""Lines about what is wrong: the figures must stay in sight."""


@click.command(epilog="""\b
Examples:
  holdfast top
  holdfast top --connect 10.0.0.1:7711,10.0.0.2:7711 --every 5
\b
Keys: s sorts by the next column, r the other way round, / finds, q ends.
""")
@connect_option()
@click.option("--every", default=1.0, show_default=True, type=click.FloatRange(0.2), help="Seconds between looks.")
def top(connect: str, every: float) -> None:
    """Watch queues and nodes, live."""
    if not sys.stdout.isatty():
        fail("this draws on a terminal, and here is none: `holdfast queues` is for pipes")
    try:
        app = make_app(connect, every)
    except ImportError:
        fail("this needs one more package: pip install 'holdfast[server]'")
    except Error as error:
        fail(str(error))
    app.run()


def make_app(url: str, every: float) -> Any:
    """The application; textual is imported only here, it is not always there. Raises what `open` does."""
    from textual.app import App, ComposeResult
    from textual.binding import Binding
    from textual.widgets import DataTable, Footer, Header, Input, Static

    from holdfast import doors

    class Top(App[None]):
        TITLE = "holdfast top"
        CSS = "#totals, #nodes, #wrong { padding: 0 1; } #nodes { color: $text-muted; } #find { display: none; }"
        BINDINGS: ClassVar[list[Any]] = [
            Binding("q", "quit", "quit"), Binding("s", "sort", "sort by next"), Binding("r", "turn", "other way"),
            Binding("slash", "find", "find"),
        ]

        def __init__(self) -> None:
            super().__init__()
            self.queue = doors.open(url)
            self.sorted_by = 1
            self.is_descending = True
            self.words = ""

        def compose(self) -> ComposeResult:
            yield Header()
            yield Static(id="wrong")
            yield Static(id="totals")
            yield Static(id="nodes")
            yield Input(placeholder="part of a queue's name", id="find")
            yield DataTable(id="queues", cursor_type="row", zebra_stripes=True)
            yield Footer()

        def on_mount(self) -> None:
            self.query_one(DataTable).add_columns(*[TITLES[name] for name in COLUMNS])
            self.query_one(DataTable).focus()
            self.set_interval(every, self.look)
            self.look()

        def look(self) -> None:
            self.run_worker(self.ask, thread=True, exclusive=True)

        def ask(self) -> None:
            """In a thread: a node that is slow does not make the screen so."""
            try:
                seen = sight.look(self.queue)
            except Error as error:
                self.call_from_thread(self.show_trouble, str(error))
                return
            self.call_from_thread(self.show, seen.figures, list(seen.members), trouble.what_is_wrong(seen))

        def show_trouble(self, words: str) -> None:
            self.query_one("#totals", Static).update(Text(f"no answer: {visible(words)}", style="red"))

        def show(self, figures: Figures, nodes: list[Member], wrong: list[trouble.Problem]) -> None:
            self.query_one("#wrong", Static).update(wrong_lines(wrong))
            rows = [each.row() for each in figures.queues]
            total = figures.total()
            self.query_one("#totals", Static).update(
                f"queued [b]{total.queued:,}[/b]   leased [b]{total.leased:,}[/b]   delayed "
                f"[b]{total.delayed:,}[/b]   retrying [b]{total.retrying:,}[/b]   dead [b]{total.dead:,}[/b]   "
                + (f"[red]node away {total.node_away:,}[/red]   " if total.node_away else "") +
                f"in [b]{total.in_per_second:,}[/b]/s   "
                f"out [b]{total.out_per_second:,}[/b]/s   done [b]{total.done:,}[/b]"
                + (f"   [red]{some(len(figures.silent), 'node')} silent[/red]" if figures.silent else "")
            )
            self.query_one("#nodes", Static).update("nodes  " + "   ".join(
                f"{each.near} {each.where} " + (each.state if each.state == "up" else f"[red]{each.state}[/red]")
                for each in nodes
            ))
            name = COLUMNS[self.sorted_by]
            shown = [row for row in rows if self.words in str(row["name"])]
            shown.sort(key=lambda row: (row.get(name) or 0, row["name"]), reverse=self.is_descending)
            table: DataTable[Text] = self.query_one(DataTable)
            place = table.cursor_row
            table.clear()
            for row in shown:
                table.add_row(*[Text(short(cell(row.get(field)))) for field in COLUMNS])
            table.move_cursor(row=min(place, max(0, len(shown) - 1)))
            self.sub_title = f"{len(rows)} queues, by {TITLES[COLUMNS[self.sorted_by]]}"

        def action_sort(self) -> None:
            self.sorted_by = (self.sorted_by + 1) % len(COLUMNS)
            self.look()

        def action_turn(self) -> None:
            self.is_descending = not self.is_descending
            self.look()

        def action_find(self) -> None:
            box = self.query_one("#find", Input)
            box.display = True
            box.focus()

        def on_input_changed(self, event: Input.Changed) -> None:
            self.words = event.value
            self.look()

        def on_input_submitted(self, _event: Input.Submitted) -> None:
            self.query_one(DataTable).focus()

        def on_unmount(self) -> None:
            self.queue.close()

    return Top()


def wrong_lines(wrong: list[trouble.Problem]) -> Text:
    """What is wrong now, the worst first; where there is more than fits, how much."""
    lines = Text()
    for number, each in enumerate(wrong[:PROBLEMS_MAX]):
        helps = f"  → {each.command or each.do}"
        lines.append(("\n" if number else "") + visible(each.what), style=STYLES[each.level])
        lines.append(visible(helps), style="dim")
    if len(wrong) > PROBLEMS_MAX:
        lines.append(f"\nand {len(wrong) - PROBLEMS_MAX} more: holdfast doctor", style="dim")
    return lines


def short(text: str) -> str:
    """What is too long to leave room for the figures is cut in its middle: names differ at either end."""
    if len(text) <= NAME_MAX:
        return text
    half = (NAME_MAX - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else visible(str(value))
