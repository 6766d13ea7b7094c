"""What the commands that talk to a node share: where it is, tables or JSON, and errors in a sentence.

Exit codes: 0 done, 1 it did not work, 2 the command line is wrong, 3 there is nothing (no such job, no job to take).
"""
from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import click
from rich.console import Console
from rich.table import Table

from holdfast import doors
from holdfast.client.errors import Error
from holdfast.client.queue import Queue

WRONG, NOTHING = 1, 3
DEFAULT = "holdfast://127.0.0.1:7711"
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


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], as_json: bool, none: str) -> None:
    """A table for people, or all there is for programs."""
    if as_json:
        click.echo(json.dumps([dict(row) for row in rows], indent=2, default=str))
        return
    if not rows:
        click.echo(none, err=True)
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*[str(row.get(column, "")) for column in columns])
    Console(soft_wrap=True).print(table)


def show_one(row: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dict(row), indent=2, default=str))
        return
    table = Table("", "", box=None, show_header=False, pad_edge=False)
    for name, value in row.items():
        table.add_row(f"[bold]{name}[/bold]", str(value).replace("[", r"\["))
    Console(soft_wrap=True).print(table)
