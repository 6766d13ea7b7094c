"""Jobs that are over, for `holdfast jobs --ended` and `holdfast show`: out of the history of the nodes."""
from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.common import NOTHING, asking, fail, plain, show
from holdfast.cli.listing import near_nodes
from holdfast.client.errors import Error
from holdfast.client.queue import Queue
from holdfast.client.text import visible

if TYPE_CHECKING:
    from holdfast.ended import Event, Page

F = TypeVar("F", bound=Callable[..., Any])
COLUMNS = {"ended": "ended", "id": "id", "queue": "queue", "how": "how", "task": "task", "worker": "worker",
           "error": "error", "body": "body"}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
AGO = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
ROUNDS_MAX = 100
"""Portions that one call looks through: each is bounded, and so is all of it."""


class Moment(click.ParamType[str]):
    """A time: so long ago (90s, 30m, 2h, 1d), or a date and time of this machine."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text:
            return ""
        found = AGO.fullmatch(text)
        if found is not None:
            return str(int((time.time() - int(found[1]) * UNITS[found[2]]) * 1000))
        for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
            try:
                return str(int(time.mktime(time.strptime(text, form)) * 1000))
            except ValueError:
                continue
        self.fail("a time is 90s, 30m, 2h or 1d ago, or '2026-01-31 03:15'", param, ctx)


def searches(command: F) -> F:
    """What ended jobs are found by."""
    hows = ["done", "dead", "expired", "deleted", "cancelled", "evicted"]
    options = (
        click.option("--how", default="", type=click.Choice(["", *hows]), metavar="HOW",
                     help=f"With --ended: how they ended: {', '.join(hows)}."),
        click.option("--task", default="", help="With --ended: of this task."),
        click.option("--find", default="", metavar="TEXT", help="With --ended: with this in the body or the error."),
        click.option("--worker", default="", help="With --ended: whose worker has this in its name."),
        click.option("--id", "id", default="", help="With --ended: with this in the id."),
        click.option("--since", default="", type=Moment(), help="With --ended: from 2h ago on, or a date and time."),
        click.option("--until", default="", type=Moment(), help="With --ended: up to then."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def list_ended(
    connect: str, queue: str, limit: int, as_json: bool, *, how: str, task: str, find: str, worker: str, id: str,
    since: str, until: str,
) -> None:
    from holdfast import ended

    wanted = ended.Wanted(id, queue, how, task, find, worker, int(since or 0), int(until or 0))
    found: list[Event] = []
    cursor = ""
    with asking(connect) as asked:
        near = near_nodes(asked)
        for _ in range(ROUNDS_MAX):
            page = ended.drive(asked, ended.search(near, wanted, limit - len(found), cursor))
            found += page.jobs
            cursor = page.cursor
            if not cursor or len(found) >= limit:
                break
    show([row(each, as_json) for each in found], COLUMNS, as_json, "no ended job fits")
    tell_limits(page, bool(task or find), len(found) >= limit)


def tell_limits(page: Page, needs_bodies: bool, is_full: bool) -> None:
    from holdfast import ended

    for each in page.silent:
        click.echo(f"without node {each}: it keeps no history, or did not answer", err=True)
    if needs_bodies and not page.has_bodies:
        click.echo(ended.NO_BODIES, err=True)
    if page.cursor:
        why = "--limit says how many you want to see" if is_full else "--until says from when on to look further"
        click.echo(f"looked back to {clock(page.until_ms)}; there is more: {why}", err=True)


def row(each: Event, as_json: bool) -> dict[str, Any]:
    from holdfast.ended import task_of

    told = {"ended": each.at_ms if as_json else clock(each.at_ms), "id": each.job,
            "queue": each.queue if as_json else each.queue or "", "how": each.how, "task": task_of(each.body),
            "worker": each.texts.get("worker", ""),
            "error": each.texts.get("error", "") or each.texts.get("cause", ""), "node": each.node,
            "attempt": each.attempt, "body": (each.body or b"").decode("utf-8", "backslashreplace")}
    return {name: plain(value) for name, value in told.items()}


def clock(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))


def life_of(asked: Queue, job_id: str, as_json: bool) -> bool:
    """Tell what happened to a job that no node knows any more; whether there was anything to tell."""
    from holdfast import ended

    if not ended.IS_ID.fullmatch(job_id):
        return False
    near, cursor = near_nodes(asked), ""
    events: list[Event] = []
    try:
        for _ in range(ROUNDS_MAX):
            page = ended.drive(asked, ended.life(near, job_id, cursor))
            events += page.jobs
            cursor = page.cursor
            if not cursor:
                break
    except ended.HistoryOff as error:
        fail(f"no node that can be reached knows this job. Its life cannot be told: {error.text}", NOTHING)
    except Error:
        return False
    if not events:
        return False
    lines = [{"time": each.at_ms if as_json else clock(each.at_ms), "event": each.event, "attempt": each.attempt,
              "node": each.node if as_json else each.node[:8], "worker": each.texts.get("worker", ""),
              "error": visible(each.texts.get("error", "") or each.texts.get("cause", ""))}
             for each in reversed(events)]
    show(lines, {name: name for name in lines[0]}, as_json, "")
    return True
