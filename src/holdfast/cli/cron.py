"""holdfast cron: jobs that are added again and again, by the clock."""
from __future__ import annotations

from typing import Any

import click

from holdfast.cli.common import NOTHING, asking, connected, did_you_mean, fail, named, say, show
from holdfast.cli.groups import Group
from holdfast.cli.look import when

OF_SCHEDULES = {"name": "name", "schedule": "schedule", "zone": "tz", "queue": "queue", "next": "next"}


@click.group(cls=Group, epilog="""\b
Examples:
  holdfast cron list
  holdfast cron set nightly "0 3 * * *" reports '{"kind": "daily"}' --zone Europe/Rome
  holdfast cron delete nightly
""")
def cron() -> None:
    """Add jobs by the clock.

    Schedules have a name; the same name again replaces one.
    """


@cron.command(name="list", epilog="""\b
Examples:
  holdfast cron list
  holdfast cron list --json
""")
@connected
def cron_list(connect: str, as_json: bool) -> None:
    """List schedules and when each runs next."""
    with asking(connect) as asked:
        reply: Any = asked.call("CRON", "LIST")
    rows = [named(each) for each in reply]
    shown = rows if as_json else [{**row, "next": when(row.get("next"))} for row in rows]
    show(shown, OF_SCHEDULES, as_json, "there is no schedule")


@cron.command(name="set", epilog="""\b
Examples:
  holdfast cron set nightly "0 3 * * *" reports '{"kind": "daily"}' --zone Europe/Rome
  holdfast cron set often "@every 30s" pings x
  holdfast cron set monthly "0 0 1 * *" bills x --missed one
""")
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
        coming = next((each.next_s for each in asked.schedules() if each.name == name), None)
    say(as_json, f"{name} is set; it runs next at {when(coming)}" if coming else f"{name} is set", next=coming)


@cron.command(name="delete", epilog="""\b
Examples:
  holdfast cron delete nightly
""")
@click.argument("name")
@connected
def cron_delete(name: str, connect: str, as_json: bool) -> None:
    """Give up a schedule. Jobs it has added stay."""
    with asking(connect) as asked:
        if not asked.unschedule(name):
            known = [each.name for each in asked.schedules()]
            fail(f"there is no schedule '{name}'{did_you_mean(name, known)}", NOTHING)
    say(as_json, f"{name} is gone", deleted=name)
