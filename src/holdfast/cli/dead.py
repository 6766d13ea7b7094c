"""holdfast dead: jobs that nobody will try again unless told to."""
from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.cli.common import NOTHING, asking, connected, fail, plain, say, show, some
from holdfast.cli.groups import Group
from holdfast.cli.look import when

OF_DEAD = {name: name for name in ("id", "queue", "cause", "attempts", "died", "error")}


@click.group(cls=Group, epilog="""\b
Examples:
  holdfast dead list --queue mail
  holdfast dead retry --queue mail --error '*timeout*'
  holdfast dead delete DI…SQ
""")
def dead() -> None:
    """List, retry and delete dead jobs.

    Those that failed for good, and are kept until somebody says what is to become of them.
    """


def filters(command: Any) -> Any:
    for name, words in (("--older", "Dead for at least so many seconds."), ("--error", "With this error; may have *."),
                        ("--cause", "With this cause; may have *."), ("--queue", "Of this queue.")):
        kind = float if name == "--older" else str
        command = click.option(name, default=None, type=kind, help=words)(command)
    return command


def said(wanted: dict[str, Any]) -> Any:
    return {name: value for name, value in wanted.items() if value not in (None, "")}


@dead.command(name="list", epilog="""\b
Examples:
  holdfast dead list
  holdfast dead list --queue mail --error '*timeout*' --limit 20
""")
@filters
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="At most so many.")
@connected
def dead_list(limit: int, connect: str, as_json: bool, **wanted: Any) -> None:
    """List dead jobs, with what killed them."""
    with asking(connect) as asked:
        found = asked.dead(count=limit + 1, **said(wanted))
    rows = [{"id": each.id, "queue": each.queue, "cause": each.cause, "attempts": each.attempts, "error": each.error,
             "died": when(each.died_ms / 1000)} for each in found]
    show(plain(rows[:limit]), OF_DEAD, as_json, "no dead jobs")
    if len(rows) > limit:
        click.echo(f"these are the first {limit}; --limit says how many you want to see", err=True)


@dead.command(name="retry", epilog="""\b
Examples:
  holdfast dead retry DI…SQ
  holdfast dead retry --queue mail --error '*timeout*'
""")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filters
@connected
def dead_retry(ids: tuple[str, ...], connect: str, as_json: bool, **wanted: Any) -> None:
    """Queue dead jobs again: those named, or those that fit."""
    settle("retry_dead", "queued again", ids, said(wanted), connect, as_json)


@dead.command(name="delete", epilog="""\b
Examples:
  holdfast dead delete DI…SQ
  holdfast dead delete --queue mail --older 604800
""")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filters
@connected
def dead_delete(ids: tuple[str, ...], connect: str, as_json: bool, **wanted: Any) -> None:
    """Delete dead jobs for good: those named, or those that fit."""
    settle("delete_dead", "deleted", ids, said(wanted), connect, as_json)


def settle(method: str, done: str, ids: tuple[str, ...], wanted: Any, connect: str, as_json: bool) -> None:
    if not ids and not wanted:
        fail("name jobs, or say which with --queue, --cause, --error or --older", 2)
    with asking(connect) as asked:
        count = getattr(asked, method)(*ids, **wanted)
    say(as_json, f"{some(count, 'job')} {done}", count=count)
    if ids and count == 0:
        sys.exit(NOTHING)
