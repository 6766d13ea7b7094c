"""Which jobs: the filters of `holdfast jobs` and of the commands that act on many jobs, and the walk over all nodes."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click

from holdfast.cli.common import named, plain
from holdfast.client.errors import Error
from holdfast.client.queue import Queue
from holdfast.core import states

F = TypeVar("F", bound=Callable[..., Any])
PAGE = 1000
LISTED = [each.decode() for each in states.LISTED]
STATES = [*LISTED, states.COPY.decode()]
DISQUES = ["active", "acked", "wait-repl"]
FILTERS = ("queue", "state", "tenant", "domain", "group")


class State(click.Choice[str]):
    """A status; Disque's words are taken as well, and not shown."""

    name = "state"

    def __init__(self) -> None:
        super().__init__([*STATES, *DISQUES])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "STATE"


def filters(command: F) -> F:
    """--queue, --state and the keys of jobs."""
    options = (
        click.option("--queue", default="", help="Of this queue."),
        click.option("--state", default=None, type=State(), help=f"In this state: {', '.join(STATES)}."),
        click.option("--tenant", default="", help="Of this tenant."),
        click.option("--domain", default="", help="Of this domain."),
        click.option("--group", default="", help="Of this group."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def listed(asked: Queue, wanted: Mapping[str, str | None], most: int) -> list[dict[str, Any]]:
    """Up to `most` jobs of all nodes that can be reached, each once: as the node has it that hands it out."""
    words: list[str] = []
    for name in FILTERS:
        value = wanted.get(name)
        if value:
            words += [name.upper(), value]
    if not wanted.get("state"):
        for each in LISTED:
            words += ["STATE", each]
    found: dict[str, dict[str, Any]] = {}
    for near in near_nodes(asked):
        for row in scan(asked, near, words, min(PAGE, most)):
            if len(found) >= most:
                return list(found.values())
            if row["id"] not in found or found[row["id"]]["status"] == "moving":
                found[row["id"]] = row
    return list(found.values())


def scan(asked: Queue, near: str, words: list[str], count: int) -> Iterator[dict[str, Any]]:
    """The jobs of one node, page by page."""
    cursor = "0"
    while True:
        argv: list[bytes | str | int] = ["JSCAN", cursor, "COUNT", count, "REPLY", "all", *words]
        cursor, page = answered(asked.channel.call(argv, near=near))
        for each in page:
            row = named(each)
            yield {**row, "status": row.get("status", row.get("state")), "node": near}
        if plain(cursor) == "0":
            return


def near_nodes(asked: Queue) -> list[str]:
    """The members that can be reached, each by the beginning of its id."""
    return [each.near for each in asked.nodes() if each.is_linked]


def answered(reply: Any) -> Any:
    if isinstance(reply, Error):
        raise reply
    return reply
