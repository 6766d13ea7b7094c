"""holdfast cancel, delete, move, prioritize, run-now: change jobs, by their ids or all that a filter finds.

A filter is applied when the command is called: first the jobs are counted, and what cannot be undone wants a yes.
"""
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from holdfast.cli.common import NOTHING, asking, connected, fail, say, some
from holdfast.cli.listing import filters, listed
from holdfast.client.errors import BadRequest, Refused
from holdfast.client.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])
MOST = 100_000
"""Jobs of one call: as many as the console acts on in one go. The command says when there may be more."""
Deed = Callable[[Queue, str], str]
"""What is done to a job; what it answers is counted, and nothing is that it was not done."""


def chosen(command: F) -> F:
    """IDs, or filters."""
    ids = click.argument("ids", nargs=-1, metavar="[ID]...")
    yes = click.option("--yes", is_flag=True, help="Do not ask whether all that the filter finds are meant.")
    return ids(filters(yes(connected(command))))


def act(
    done: str, deed: Deed, ids: tuple[str, ...], yes: bool, connect: str, as_json: bool, wanted: dict[str, str | None]
) -> None:
    """Do it to each. `done`: what the jobs are then. Exit code 3 if there was nothing to do it to."""
    wanted = {name: value for name, value in wanted.items() if value}
    if bool(ids) == bool(wanted):
        fail("name jobs by their ids, or say which with --queue, --state and the like", 2)
    with asking(connect) as asked:
        if wanted:
            found = listed(asked, wanted, MOST)
            ids = tuple(row["id"] for row in found)
            if ids and not yes:
                confirm(done, len(ids))
        counts, refused = do_all(asked, deed, ids)
    count = counts.total()
    words = [f"{some(count, 'job')} {done}"]
    words += [f"{number} of them {what}" for what, number in counts.items() if what != done]
    say(as_json, ", ".join(words), count=count, outcomes=dict(counts), refused=dict(refused))
    for why, number in refused.items():
        click.echo(f"{some(number, 'job')} not: {why}", err=True)
    if len(ids) == MOST:
        click.echo(f"these were the first {MOST:,}; there may be more", err=True)
    if not count:
        sys.exit(NOTHING)


def do_all(asked: Queue, deed: Deed, ids: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """What came of it, and why jobs were refused."""
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for each in ids:
        try:
            outcome = deed(asked, each)
        except (BadRequest, Refused) as error:
            refused[error.text] += 1
        else:
            if outcome:
                counts[outcome] += 1
            else:
                refused["not known, or not in a state for that; `holdfast show` says which it is in"] += 1
    return counts, refused


def confirm(done: str, count: int) -> None:
    question = f"{some(count, 'job')} will be {done}. Go on?"
    if not sys.stdin.isatty():
        fail(f"{some(count, 'job')} would be {done}; --yes does it")
    if not click.confirm(question, err=True):
        sys.exit(1)


@click.command(epilog="""\b
Examples:
  holdfast cancel DI…SQ
  holdfast cancel --queue mail --state delayed --yes
""")
@chosen
def cancel(ids: tuple[str, ...], yes: bool, connect: str, as_json: bool, **wanted: str | None) -> None:
    """Call jobs off: those that wait end, and workers are asked to stop those they have."""
    def deed(asked: Queue, job_id: str) -> str:
        outcome = asked.cancel(job_id)
        return "" if outcome == "unknown" else str(outcome)

    act("cancelled", deed, ids, yes, connect, as_json, wanted)


@click.command(epilog="""\b
Examples:
  holdfast delete DI…SQ
  holdfast delete --queue mail --state dead --yes
""")
@chosen
def delete(ids: tuple[str, ...], yes: bool, connect: str, as_json: bool, **wanted: str | None) -> None:
    """Delete jobs at all nodes, whatever they are doing. A worker that has one finds its lease lost."""
    def deed(asked: Queue, job_id: str) -> str:
        return "deleted" if asked.delete_dead(job_id) or asked.done(job_id) else ""

    act("deleted", deed, ids, yes, connect, as_json, wanted)


@click.command(name="run-now", epilog="""\b
Examples:
  holdfast run-now DI…SQ
  holdfast run-now --queue mail --state retrying --yes
""")
@chosen
def run_now(ids: tuple[str, ...], yes: bool, connect: str, as_json: bool, **wanted: str | None) -> None:
    """Queue delayed and retrying jobs now. One that a worker has stays with it."""
    def deed(asked: Queue, job_id: str) -> str:
        return "queued" if asked.run_now(job_id) else ""

    act("queued", deed, ids, yes, connect, as_json, wanted)


@click.command(epilog="""\b
Examples:
  holdfast move DI…SQ --to mail.slow
  holdfast move --queue mail --state queued --to mail.slow --yes
""")
@click.option("--to", "target", required=True, metavar="QUEUE", help="Where to.")
@chosen
def move(ids: tuple[str, ...], target: str, yes: bool, connect: str, as_json: bool, **wanted: str | None) -> None:
    """Put waiting jobs into another queue."""
    if wanted["queue"] and wanted["queue"] == target:
        fail(f"{target} is where they are", 2)

    def deed(asked: Queue, job_id: str) -> str:
        return "moved" if asked.move(job_id, target) else ""

    act("moved", deed, ids, yes, connect, as_json, wanted)


@click.command(epilog="""\b
Examples:
  holdfast prioritize DI…SQ --priority 9          before the others
  holdfast prioritize --queue mail --tenant acme --priority 1 --yes
""")
@click.option("--priority", required=True, type=click.IntRange(0, 9), help="9 first; jobs have 5 unless told.")
@chosen
def prioritize(
    ids: tuple[str, ...], priority: int, yes: bool, connect: str, as_json: bool, **wanted: str | None
) -> None:
    """Give waiting jobs another priority."""
    def deed(asked: Queue, job_id: str) -> str:
        return "reordered" if asked.prioritize(job_id, priority) else ""

    act("reordered", deed, ids, yes, connect, as_json, wanted)
