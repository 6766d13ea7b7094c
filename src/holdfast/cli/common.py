"""What the commands that talk to a node share: where it is, tables or JSON, and errors in a sentence.

Exit codes: 0 done, 1 it did not work, 2 the command line is wrong, 3 there is nothing (no such job, no job to take).
"""
from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import click
from rich.cells import cell_len, set_cell_size

from holdfast import doors
from holdfast.client.errors import Error
from holdfast.client.queue import Queue
from holdfast.client.text import visible

WRONG, NOTHING = 1, 3
DEFAULT = "holdfast://127.0.0.1:7711"
LAST_WIDTH = 20
"""Of the last column of a table, however narrow the terminal is."""
F = TypeVar("F", bound=Callable[..., Any])


def connected(command: F) -> F:
    """The options of every command that asks a node."""
    where = click.option("--connect", default=DEFAULT, show_default=True, metavar="URL", envvar="HOLDFAST_URL",
                         help="The node, or a gateway. The secret of its user may be in HOLDFAST_SECRET.")
    form = click.option("--json", "as_json", is_flag=True, help="For programs.")
    return where(form(command))


@contextmanager
def asking(url: str) -> Iterator[Queue]:
    """The queue behind a url. What goes wrong ends the command in a sentence."""
    try:
        with doors.open(with_secret(url, os.environ.get("HOLDFAST_SECRET", ""))) as queue:
            yield queue
    except Error as error:
        fail(str(error))


def with_secret(url: str, secret: str) -> str:
    """The url with the secret for its user."""
    scheme, separator, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    if not secret or not separator or ":" in login:
        return url
    return f"{scheme}://{login}:{quote(secret, safe='')}@{place if at else rest}"


def fail(words: str, code: int = WRONG) -> NoReturn:
    click.echo(f"holdfast: {words}", err=True)
    sys.exit(code)


def plain(value: Any) -> Any:
    """A reply as JSON has it; bytes as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
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


def lines_of(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns under each other. Nothing is cut off, an id least of all, but for the last column on a terminal."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)][:-1]
    room = shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths) if sys.stdout.isatty() else 0
    for row in rows:
        last = row[-1]
        if room and cell_len(last) > max(room, LAST_WIDTH):
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


def some(count: int, what: str) -> str:
    """1 job, 2 jobs."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
