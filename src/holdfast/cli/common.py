"""What the commands that talk to a node share: tables or JSON, errors in a sentence, words that were nearly right.

Exit codes: 0 done, 1 it did not work, 2 the command line is wrong, 3 there is nothing (no such job, no job to take).
Nothing is imported here that a table does not need: each call of the command starts anew.
"""
from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click

from holdfast import doors
from holdfast.cli.where import connect_option
from holdfast.client.errors import Error, Unreachable
from holdfast.client.queue import Queue
from holdfast.client.text import visible

WRONG, NOTHING = 1, 3
LAST_WIDTH = 20
"""Of the last column of a table, however narrow the terminal is."""
F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="For programs.")(command)


def connected(command: F) -> F:
    """The options of every command that asks a node."""
    return connect_option()(json_option(command))


@contextmanager
def asking(url: str) -> Iterator[Queue]:
    """The queue behind a url. What goes wrong ends the command in a sentence."""
    try:
        with doors.open(url) as queue:
            yield queue
    except Unreachable as error:
        fail(f"{error}. Start a node (`holdfast node`, or `holdfast up`), or say where one is: --connect HOST:PORT, or "
             "the variable HOLDFAST_URL")
    except Error as error:
        fail(str(error))


def fail(words: str, code: int = WRONG) -> NoReturn:
    click.echo(f"holdfast: {words}", err=True)
    sys.exit(code)


def nearest(word: str, known: Collection[str]) -> str:
    """The one that somebody may have meant; empty: none is near."""
    from difflib import get_close_matches

    found = get_close_matches(word.lower(), known, 1, 0.6)
    return found[0] if found else ""


def did_you_mean(word: str, known: Collection[str]) -> str:
    """To be put behind a sentence that says what there is none of."""
    meant = nearest(word, known)
    return f"; did you mean '{meant}'?" if meant else ""


def plain(value: Any) -> Any:
    """A reply as JSON has it; bytes as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    return value


def named(reply: Any) -> dict[str, Any]:
    """Names and values in a flat list."""
    return {plain(name): plain(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}


def show(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], as_json: bool, none: str) -> None:
    """A table for people, or all there is for programs. `columns`: title, and the name of what is in it."""
    if as_json:
        click.echo(json.dumps([dict(row) for row in rows], indent=2, default=str))
    elif not rows:
        click.echo(none, err=True)
    else:
        cells = [[visible(str(row.get(name, ""))) for name in columns.values()] for row in rows]
        for number, line in enumerate(lines_of([list(columns), *cells])):
            click.echo(click.style(line, bold=True) if number == 0 else line)


def cell_len(text: str) -> int:
    """How many columns of a terminal it takes."""
    if text.isascii():
        return len(text)
    from rich import cells

    return cells.cell_len(text)


def lines_of(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns under each other. Nothing is cut off, an id least of all, but for the last column on a terminal."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)][:-1]
    room = shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths) if sys.stdout.isatty() else 0
    for row in rows:
        last = row[-1]
        if room and cell_len(last) > max(room, LAST_WIDTH):
            from rich.cells import set_cell_size

            last = set_cell_size(last, max(room, LAST_WIDTH) - 1) + "…"
        cells = [each + " " * (width - cell_len(each)) for each, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, last]).rstrip()


def show_one(row: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dict(row), indent=2, default=str))
        return
    width = max(map(len, row), default=0)
    for name, value in row.items():
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {visible(str(value))}".rstrip())


def say(as_json: bool, words: str, **facts: Any) -> None:
    """What was done: in a sentence, or as an object."""
    click.echo(json.dumps(facts) if as_json else visible(words))


def some(count: int, what: str) -> str:
    """1 job, 2 jobs."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
