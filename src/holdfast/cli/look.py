"""holdfast queues, jobs, show, explain, dead, cron, cluster, health: look at what is there, and put it right."""
from __future__ import annotations

import sys
import time
from fnmatch import fnmatchcase
from typing import Any

import click

from holdfast.cli.common import NOTHING, asking, connected, fail, named, plain, show, show_one, some
from holdfast.client.errors import Error, NotAllowed
from holdfast.client.pool import Pool
from holdfast.client.queue import Queue
from holdfast.client.states import STATES, state_of
from holdfast.client.text import visible

PAGE = 1000
LEFT = "cluster_leaving_"
OF_QUEUES = {
    "queue": "name", "queued": "len", "leased": "out", "delayed": "delayed", "dead": "dead-kept",
    "in/s": "in-per-second", "out/s": "out-per-second", "longest wait": "oldest-age", "idle workers": "blocked",
}
OF_JOBS = {
    "id": "id", "queue": "queue", "state": "state", "node": "node", "nacks": "nacks", "again": "additional-deliveries",
    "ttl": "ttl", "body": "body",
}
OF_DEAD = {name: name for name in ("id", "queue", "cause", "attempts", "died", "error")}
OF_SCHEDULES = {"name": "name", "schedule": "schedule", "zone": "tz", "queue": "queue", "next": "next"}
OF_NODES = {name: name for name in ("id", "address", "flags", "link")}


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
        reply: Any = queue.call("CLUSTER", "QSTAT", name)
        if not reply[0] and is_pattern(name):
            reply = queue.call("CLUSTER", "QSTAT", "*")
    rows, silent = reply
    found = [named(row) for row in rows]
    if is_pattern(name):
        found = [row for row in found if row["name"] == name or fnmatchcase(row["name"], name)]
    if not found and name != "*":
        fail(f"no queue matches '{name}'")
    shown = found if as_json else [{**row, "name": row["name"] or "(empty)"} for row in found]
    show(shown, OF_QUEUES, as_json, "there is no queue yet")
    for node in plain(silent):
        click.echo(f"without node {node}: it did not answer", err=True)


def is_pattern(name: str) -> bool:
    return any(each in name for each in "*?[")


@click.command(epilog="""\b
Examples:
  holdfast jobs --queue mail --state dead
  holdfast jobs --state leased --limit 20
""")
@click.option("--queue", default="", help="Of this queue.")
@click.option("--state", type=click.Choice([*STATES, "active", "acked", "wait-repl"]), help="In this state.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="At most so many.")
@connected
def jobs(queue: str, state: str | None, limit: int, connect: str, as_json: bool) -> None:
    """List the jobs of all nodes.

    Of those that can be reached; each job as the node sees it that sees to it.
    """
    words: list[str | int] = ["QUEUE", queue] if queue else []
    for each in [state] if state else STATES:
        words += ["STATE", each]
    found: dict[str, dict[str, Any]] = {}
    with asking(connect) as asked:
        for near in nodes_of(asked):
            cursor = "0"
            while len(found) <= limit:
                scan: list[bytes | str | int] = [b"JSCAN", cursor, "COUNT", min(PAGE, limit), "REPLY", "all", *words]
                cursor, page = answered(asked.channel.call(scan, near=near))
                for row in map(named, page):
                    found.setdefault(row["id"], {**row, "state": state_of(row), "node": near})
                if plain(cursor) == "0":
                    break
    show(list(found.values())[:limit], OF_JOBS, as_json, "no job fits")
    say_more(len(found), limit)


def nodes_of(asked: Queue) -> list[str]:
    """The members that can be reached, each by the beginning of its id."""
    lines = [line.split() for line in plain(asked.call("CLUSTER", "NODES")).splitlines()]
    return [words[0][:8] for words in lines if "connected" in words]


def answered(reply: Any) -> Any:
    if isinstance(reply, Error):
        raise reply
    return reply


def say_more(found: int, limit: int) -> None:
    if found > limit:
        click.echo(f"these are the first {limit}; --limit says how many you want to see", err=True)


@click.command(name="show", epilog="""\b
Examples:
  holdfast show DI…SQ
  holdfast show DI…SQ --json
""")
@click.argument("job_id", metavar="ID")
@connected
def show_job(job_id: str, connect: str, as_json: bool) -> None:
    """Show everything a node knows about a job."""
    with asking(connect) as queue:
        reply = queue.call("SHOW", job_id)
    if reply is None:
        fail("the node that was asked does not know this job", NOTHING)
    row = named(reply)
    show_one(row if as_json else {name: for_people(name, value) for name, value in row.items()}, as_json)


def for_people(name: str, value: Any) -> str:
    """A value of SHOW in words."""
    if name == "headers" and isinstance(value, list):
        return ", ".join(f"{key}: {text}" for key, text in zip(value[::2], value[1::2], strict=True))
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if value is None:
        return "-"
    if name == "ctime":
        return when(value / 1e9)
    if name in ("ttl", "delay", "retry"):
        return f"{value} s"
    if isinstance(value, int) and (name.endswith(("-within", "-ms"))):
        return f"{value / 1000:g} s"
    return str(value)


@click.command(epilog="""\b
Examples:
  holdfast explain DI…SQ
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
        show_one({"id": found.id, "state": found.state, "summary": found.summary, "history": list(found.history),
                  "reasons": [{"code": r.code, "words": r.words, "ms_until": r.ms_until} for r in found.reasons]}, True)
        sys.exit(NOTHING if found.state == "unknown" else 0)
    click.echo(visible(f"{found.state}: {found.summary}"))
    for reason in found.reasons:
        until = f" (in {reason.ms_until / 1000:.1f} s)" if reason.ms_until is not None else ""
        click.echo(visible(f"  {reason.code}: {reason.words}{until}"))
    for line in found.history:
        click.echo(visible(f"  · {line}"))


@click.group(epilog="""\b
Examples:
  holdfast dead list --queue mail
  holdfast dead retry --queue mail --error '*timeout*'
  holdfast dead delete DI…SQ
""")
def dead() -> None:
    """Jobs that nobody will try again unless told to."""


def filters(command: Any) -> Any:
    for name, words in (("--queue", "Of this queue."), ("--cause", "With this cause; may have *."),
                        ("--error", "With this error; may have *.")):
        command = click.option(name, default="", help=words)(command)
    return command


def said(**wanted: str) -> Any:
    return {name: value for name, value in wanted.items() if value}


@dead.command(name="list")
@filters
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="At most so many.")
@connected
def dead_list(queue: str, cause: str, error: str, limit: int, connect: str, as_json: bool) -> None:
    """List dead jobs, with what killed them."""
    with asking(connect) as asked:
        found = asked.dead(count=limit + 1, **said(queue=queue, cause=cause, error=error))
    rows = [{"id": each.id, "queue": each.queue, "cause": each.cause, "attempts": each.attempts, "error": each.error,
             "died": when(each.died_ms / 1000)} for each in found]
    show(rows[:limit], OF_DEAD, as_json, "no dead jobs")
    say_more(len(rows), limit)


@dead.command(name="retry")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filters
@connected
def dead_retry(ids: tuple[str, ...], queue: str, cause: str, error: str, connect: str, as_json: bool) -> None:
    """Queue dead jobs again: those named, or those that fit."""
    settle("retry_dead", ids, said(queue=queue, cause=cause, error=error), connect)


@dead.command(name="delete")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filters
@connected
def dead_delete(ids: tuple[str, ...], queue: str, cause: str, error: str, connect: str, as_json: bool) -> None:
    """Delete dead jobs for good: those named, or those that fit."""
    settle("delete_dead", ids, said(queue=queue, cause=cause, error=error), connect)


def settle(method: str, ids: tuple[str, ...], wanted: Any, connect: str) -> None:
    if not ids and not wanted:
        fail("name jobs, or say which with --queue, --cause or --error", 2)
    with asking(connect) as asked:
        count = getattr(asked, method)(*ids, **wanted)
    click.echo(some(count, "job"))
    if ids and count == 0:
        sys.exit(NOTHING)


@click.group(epilog="""\b
Examples:
  holdfast cron list
  holdfast cron set nightly "0 3 * * *" reports '{"kind": "daily"}' --zone Europe/Rome
""")
def cron() -> None:
    """Jobs that are added again and again."""


@cron.command(name="list")
@connected
def cron_list(connect: str, as_json: bool) -> None:
    """List schedules and when each runs next."""
    with asking(connect) as asked:
        reply: Any = asked.call("CRON", "LIST")
    rows = [named(each) for each in reply]
    shown = rows if as_json else [{**row, "next": when(row.get("next"))} for row in rows]
    show(shown, OF_SCHEDULES, as_json, "there is no schedule")


def when(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


@cron.command(name="set")
@click.argument("name")
@click.argument("schedule")
@click.argument("queue")
@click.argument("body")
@click.option("--zone", default="", help="Time zone; UTC if none is named.")
@click.option("--missed", type=click.Choice(["skip", "one", "all"]), help="Runs that were missed.")
@connected
def cron_set(
    name: str, schedule: str, queue: str, body: str, zone: str, missed: str | None, connect: str, as_json: bool
) -> None:
    """Add a job by a schedule: five fields as in crontab, six with seconds, or @daily and the like."""
    with asking(connect) as asked:
        asked.schedule(name, schedule, queue, body, zone=zone, missed=missed or "")


@cron.command(name="delete")
@click.argument("name")
@connected
def cron_delete(name: str, connect: str, as_json: bool) -> None:
    """Give up a schedule."""
    with asking(connect) as asked:
        if not asked.unschedule(name):
            fail("there is no schedule of that name", NOTHING)


@click.group(epilog="""\b
Examples:
  holdfast cluster nodes
  holdfast cluster leave --wait 60        before a node is stopped for good
""")
def cluster() -> None:
    """The nodes of the cluster."""


@cluster.command(name="nodes")
@connected
def cluster_nodes(connect: str, as_json: bool) -> None:
    """List the nodes as the one that is asked sees them."""
    with asking(connect) as asked:
        text = plain(asked.call("CLUSTER", "NODES"))
        host = asked.channel.nodes.order()[0].host if isinstance(asked.channel, Pool) else ""
    rows = []
    for line in text.splitlines():
        words = line.split()
        if words[1].startswith(":"):  # nobody has told it how it is called from outside; we do know how we came
            words[1] = host + words[1]
        rows.append(dict(zip(("id", "address", "flags", "ping", "pong", "link"), words, strict=False)))
    show(rows, OF_NODES, as_json, "there is no node")


@cluster.command(name="info")
@connected
def cluster_info(connect: str, as_json: bool) -> None:
    """What the node that is asked knows of the cluster."""
    with asking(connect) as asked:
        text = plain(asked.call("CLUSTER", "INFO"))
    show_one(dict(line.split(":", 1) for line in text.splitlines() if ":" in line), as_json)


@cluster.command(name="leave")
@click.option("--wait", default=0.0, type=click.FloatRange(0), help="Seconds to wait until it is safe to stop.")
@connected
def cluster_leave(wait: float, connect: str, as_json: bool) -> None:
    """Have a node give its jobs away; exit code 1 if it is not done in time."""
    deadline = time.monotonic() + wait
    with asking(connect) as asked:
        asked.call("CLUSTER", "LEAVING", "yes")
        while True:
            status = plain(asked.call("CLUSTER", "LEAVING", "status"))
            if "safe" in str(status) and "not" not in str(status).split("safe")[0]:
                click.echo("safe to stop")
                return
            if time.monotonic() >= deadline:
                fail(f"not done yet: {status}{what_is_left(str(plain(asked.call('CLUSTER', 'INFO'))))}")
            time.sleep(0.2)


def what_is_left(info: str) -> str:
    """What keeps a node from being stopped, as words behind `draining`."""
    facts = [line.removeprefix(LEFT).partition(":") for line in info.splitlines() if line.startswith(LEFT)]
    found = [f"{count} {name.replace('_', ' ')}" for name, _, count in facts if count.strip() != "0"]
    return f" ({', '.join(found)})" if found else ""


@click.command(epilog="""\b
Examples:
  holdfast health && echo it is there
  holdfast health --connect holdfast://10.0.0.1
""")
@click.option("--connect", default="holdfast://127.0.0.1:7711", show_default=True, metavar="URL", help="The node.")
def health(connect: str) -> None:
    """Exit with 0 if a node answers, 1 if not. A node that asks who we are is there, too."""
    from holdfast import doors

    try:
        with doors.open(connect, connect_timeout=2, answer_timeout=2):
            pass
    except NotAllowed:
        pass
    except Error as error:
        click.echo(f"holdfast: {error}", err=True)
        sys.exit(1)
