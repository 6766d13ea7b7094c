"""holdfast queues, jobs, show, explain, peek, workers: look at what is there."""
from __future__ import annotations

import sys
import time
from fnmatch import fnmatchcase
from typing import Any

import click

from holdfast.cli.common import NOTHING, asking, connected, did_you_mean, fail, named, plain, show, show_one, some
from holdfast.cli.listing import answered, filters, listed, near_nodes
from holdfast.cli.over import life_of, list_ended, searches
from holdfast.client.figures import OLD_S, STATES, TITLES
from holdfast.client.members import NEAR, Away
from holdfast.client.text import visible
from holdfast.core import states

OF_QUEUES = {TITLES.get(name, name): name for name in (
    "name", "queued", "leased", "delayed", "retrying", "node_away", "other", "dead", "in_per_second",
    "out_per_second", "longest_wait", "idle_workers", "paused",
)}
OF_JOBS = {
    "id": "id", "queue": "queue", "status": "status", "node": "node", "nacks": "nacks",
    "again": "additional-deliveries", "ttl": "ttl", "body": "body",
}
OF_WORKERS = {
    "worker": "name", "host": "host", "queues": "queues", "running": "running", "of": "concurrency", "done": "done",
    "failed": "failed", "lost": "lost", "up": "up", "heard": "heard",
}
PAUSED_NAMED = 3
"""Paused queues for which the command that ends it is said."""


@click.command(epilog="""\b
Examples:
  holdfast queues                      all queues, summed over the cluster
  holdfast queues mail --json          one of them
  holdfast queues 'mail.*'             those whose names match
""")
@click.argument("name", default="*")
@connected
def queues(name: str, connect: str, as_json: bool) -> None:
    """Show queues with their figures.

    They are summed over all nodes that answer. NAME may be a pattern with * ? and [ ], or a queue's own name.
    """
    with asking(connect) as queue:
        figures = queue.figures(name)
        if not figures.queues and name != "*":
            figures = queue.figures()
        away = queue.away() if figures.total().node_away else []
    rows = [plain(each.row()) for each in figures.queues]
    found = rows if name == "*" else [each for each in rows if each["name"] == name or fits(each["name"], name)]
    if not found and name != "*":
        fail(f"no queue matches '{name}'{did_you_mean(name, [each['name'] for each in rows])}")
    shown = found if as_json else [for_a_table(row) for row in found]
    oldest = max((row["counted_ago"] for row in found), default=0)
    show(shown, OF_QUEUES, as_json, "there is no queue yet")
    if not as_json:
        say_paused([row for row in found if row["paused"] != "none"])
        say_away(away)
        if oldest > OLD_S:
            words = f"what is not queued was counted over the last {span(oldest)}: an estimate where it changes fast"
            click.echo(words, err=True)
    for node in figures.silent:
        click.echo(f"without node {node}: it did not answer", err=True)


def fits(name: str, pattern: str) -> bool:
    return any(each in pattern for each in "*?[") and fnmatchcase(name, pattern)


def for_a_table(row: dict[str, Any]) -> dict[str, Any]:
    paused = "-" if row["paused"] == "none" else row["paused"]
    other = sum(row[name] for name in STATES if name not in OF_QUEUES.values())
    return {**row, "name": row["name"] or "(empty)", "paused": paused, "longest_wait": span(row["longest_wait"]),
            "other": other}


def say_paused(rows: list[dict[str, Any]]) -> None:
    for row in rows[:PAUSED_NAMED]:
        click.echo(visible(f"{row['name']} is paused ({row['paused']}): holdfast resume {row['name']}"), err=True)
    if len(rows) > PAUSED_NAMED:
        click.echo(f"and {some(len(rows) - PAUSED_NAMED, 'more queue')} paused", err=True)


def say_away(nodes: list[Away]) -> None:
    for each in nodes:
        if each.jobs:
            words = f"{some(each.jobs, 'job')} {'waits' if each.jobs == 1 else 'wait'} for {each.words}: {each.next}"
            click.echo(visible(words), err=True)


@click.command(epilog="""\b
Examples:
  holdfast jobs --queue mail --state dead
  holdfast jobs --state leased --limit 20
  holdfast jobs --domain example.org --json
  holdfast jobs --ended --since 2h --how dead                what died in the last two hours
  holdfast jobs --ended --task mail.send --find ada@x.org    by task and argument
""")
@filters
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="At most so many.")
@click.option("--ended", "is_ended", is_flag=True,
              help="Those that are over, the newest first, where the nodes keep history.")
@searches
@connected
def jobs(
    queue: str, state: str | None, tenant: str, domain: str, group: str, limit: int, is_ended: bool, connect: str,
    as_json: bool, **searched: str,
) -> None:
    """List the jobs of all nodes.

    Of those that can be reached; each job as the node has it that hands it out.
    """
    if is_ended:
        if state or tenant or domain or group:
            fail("ended jobs are found by --queue, --how, --task, --find, --worker, --id, --since and --until")
        list_ended(connect, queue, limit, as_json, **searched)
        return
    if any(searched.values()):
        fail("--how, --task, --find, --worker, --id, --since and --until go with --ended")
    wanted = {"queue": queue, "state": state, "tenant": tenant, "domain": domain, "group": group}
    with asking(connect) as asked:
        found = listed(asked, wanted, limit + 1)
    shown = found[:limit] if as_json else [{**row, "status": standing(row)} for row in found[:limit]]
    show(shown, OF_JOBS, as_json, "no job fits")
    if len(found) > limit:
        click.echo(f"these are the first {limit}; --limit says how many you want to see", err=True)


def standing(row: dict[str, Any]) -> str:
    """What a job is doing; and whom it waits for."""
    node = row.get("waits-for")
    if not node:
        return str(row["status"])
    return f"waits for node {str(node)[:NEAR]} (away {span(row['away-ms'] / 1000)})"


@click.command(name="show", epilog="""\b
Examples:
  holdfast show DI…SQ
  holdfast show DI…SQ --json
""")
@click.argument("job_id", metavar="ID")
@connected
def show_job(job_id: str, connect: str, as_json: bool) -> None:
    """Show everything a node knows about a job: the node that has it, or one with a copy."""
    best: dict[str, Any] | None = None
    with asking(connect) as asked:
        for near in near_nodes(asked):
            reply = answered(asked.channel.call(["SHOW", job_id], near=near))
            if reply is not None and (best is None or best["status"] in ("copy", "moving")):
                best = {"status": "", **named(reply), "node": near}
        if best is None and life_of(asked, job_id, as_json):
            return
    if best is None:
        fail("no node that can be reached knows this job", NOTHING)
    if as_json:
        show_one(best, True)
        return
    trace = str(best.pop("trace", ""))
    show_one(for_people(best), False)
    for line in trace.splitlines():
        click.echo(visible(line))


LABELS = {
    "repl": "copies asked for", "ttl": "expires in", "ctime": "added", "retry": "time of a worker",
    "nacks": "given back", "additional-deliveries": "queued again", "nodes-delivered": "holders",
    "nodes-confirmed": "confirmed by", "next-requeue-within": "queued again in", "next-awake-within": "looked at in",
"waits-for": "waits for node", "away-ms": "which is away for",
    "backoff-ms": "first backoff", "backoff-most-ms": "longest backoff", "leased-ms": "with the worker for",
}
SECONDS = ("ttl", "delay", "retry")


def for_people(row: dict[str, Any]) -> dict[str, str]:
    """What SHOW says in words; what a job does not have is left out."""
    found = {LABELS.get(name, name): in_words(name, value) for name, value in row.items() if name != "tries"}
    for number, each in enumerate(row.get("tries") or (), 1):
        how, _, worker, began, ended, error = each[:6]
        by, why = f" by {worker}" if worker else "", f": {error}" if error else ""
        found[f"try {number}"] = f"{when(began / 1000)}{by}, {how} after {span((ended - began) / 1000)}{why}"
    return {name: words for name, words in found.items() if words}


def in_words(name: str, value: Any) -> str:
    if name == "headers":
        return ", ".join(f"{key}: {text}" for key, text in zip(value[::2], value[1::2], strict=True))
    if isinstance(value, list):
        return ", ".join(each[:NEAR] for each in value)
    if name == "waits-for":
        return str(value)[:NEAR]
    if value is None:
        return ""
    if name == "status" and value.encode() in states.ABOUT:
        return f"{value}: {states.ABOUT[value.encode()]}"
    if name in ("ctime", "died"):
        return when(value / (1e9 if name == "ctime" else 1e3))
    if name in SECONDS:
        return span(value)
    if name.endswith(("-within", "-ms")):
        return span(value / 1000)
    return str(value)


def span(seconds: float) -> str:
    """A time in its largest unit, with the next one."""
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= 2 * size:
            rest = int(seconds % size // small)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"


def when(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


@click.command(epilog="""\b
Examples:
  holdfast explain DI…SQ
  holdfast explain DI…SQ --json
""")
@click.argument("job_id", metavar="ID")
@connected
def explain(job_id: str, connect: str, as_json: bool) -> None:
    """Say why a job is not running, or why it ran more than once."""
    with asking(connect) as queue:
        found = queue.explain(job_id)
    if found is None or (found.state == "unknown" and not as_json):
        fail("nobody knows this job" if found is None else found.summary, NOTHING)
    if as_json:
        show_one({"id": found.id, "status": found.state, "summary": found.summary, "history": list(found.history),
                  "reasons": [{"code": r.code, "words": r.words, "ms_until": r.ms_until} for r in found.reasons]}, True)
        sys.exit(NOTHING if found.state == "unknown" else 0)
    click.echo(visible(f"{found.state}: {found.summary}"))
    for reason in found.reasons:
        until = f" (ends in {span(reason.ms_until / 1000)})" if reason.ms_until is not None else ""
        said = "" if reason.words == found.summary else f": {reason.words}"  # of one reason the summary has said it
        click.echo(visible(f"  {reason.code}{said}{until}"))
    for line in found.history:
        first, *further = line.splitlines()
        click.echo(visible(f"  · {first}"))
        for each in further:  # of a traceback
            click.echo(visible(f"    {each}"))


@click.command(epilog="""\b
Examples:
  holdfast peek mail                     the next ten jobs
  holdfast peek mail --count 3 --newest  the last three that were added
""")
@click.argument("name", metavar="QUEUE")
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@click.option("--newest", is_flag=True, help="From the other end.")
@connected
def peek(name: str, count: int, newest: bool, connect: str, as_json: bool) -> None:
    """Show the next jobs of a queue, as one node would hand them out, and take none."""
    with asking(connect) as queue:
        found = queue.peek(name, -count if newest else count)
    rows = [{"id": each.id, "body": plain(each.body)} for each in found]
    show(rows, {"id": "id", "body": "body"}, as_json, "nothing waits in it at this node")


@click.command(epilog="""\b
Examples:
  holdfast workers
  holdfast workers --json
  holdfast jobs --state leased           what they are working on
""")
@connected
def workers(connect: str, as_json: bool) -> None:
    """List the workers that said they are there, and what they have done."""
    with asking(connect) as queue:
        rows = [{"name": each.name, **numbered(dict(each.facts))} for each in queue.workers()]
    shown = [{**row, "up": ago(row.get("since-ms")), "heard": f"{ago(row.get('heard-ms'))} ago"} for row in rows]
    show(plain(rows if as_json else shown), OF_WORKERS, as_json, "no worker has said that it is there")


def numbered(facts: dict[str, str]) -> dict[str, str | int]:
    """What a worker says of itself: all of it is text, and most of it counts something."""
    return {name: int(value) if value.isascii() and value.isdigit() else value for name, value in facts.items()}


def ago(ms: Any) -> str:
    return span(ms // 1000) if isinstance(ms, int) else "-"
