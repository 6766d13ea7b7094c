"""holdfast pause, resume, settings, flush, limit, tenant: what holds for a queue or a domain, at all nodes."""
from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.cli.common import NOTHING, asking, connected, did_you_mean, fail, named, plain, say, show, show_one, some
from holdfast.cli.groups import Group
from holdfast.client.queue import Queue

WAYS = {"all": "producers and workers", "in": "producers", "out": "workers", "none": "nobody"}
OF_DOMAINS = {"domain": "name", "rate": "rate", "burst": "burst", "concurrency": "concurrency", "adapt": "adapt",
              "waiting": "waiting", "out": "out"}
OF_TENANTS = {"tenant": "tenant", "weight": "weight", "queued": "queued"}
PAGE = 1000


def must_be_there(asked: Queue, queue: str, is_new: bool) -> None:
    """A mistyped name would make a queue of its own, and leave the one that was meant as it is."""
    if not is_new and not asked.figures(queue).queues:
        known = [each.name for each in asked.figures().queues]
        fail(f"there is no queue '{queue}' yet{did_you_mean(queue, known)} (--new says that it will come)")


new_option = click.option("--new", "is_new", is_flag=True, help="The queue need not be there yet.")


@click.command(epilog="""\b
Examples:
  holdfast pause mail                  nobody adds or takes until `holdfast resume mail`
  holdfast pause mail --out            workers get nothing, producers go on
  holdfast pause mail --in --for 600   no new jobs for ten minutes
""")
@click.argument("queue")
@click.option("--in", "way", flag_value="in", help="Stop producers only.")
@click.option("--out", "way", flag_value="out", help="Stop workers only.")
@click.option("--all", "way", flag_value="all", default="all", help="Stop both; the default.")
@click.option("--for", "seconds", type=click.FloatRange(1), help="Seconds until it goes on by itself.")
@new_option
@connected
def pause(queue: str, way: str, seconds: float | None, is_new: bool, connect: str, as_json: bool) -> None:
    """Stop a queue at all nodes, for producers, workers or both. Jobs that workers have stay with them."""
    with asking(connect) as asked:
        must_be_there(asked, queue, is_new)
        how = asked.pause(queue, way, seconds=seconds)
    until = f"for {seconds:g} s" if seconds else f"until `holdfast resume {queue}`"
    say(as_json, f"{queue} is paused for {WAYS[how]}, {until}", queue=queue, paused=how)


@click.command(epilog="""\b
Examples:
  holdfast resume mail
""")
@click.argument("queue")
@connected
def resume(queue: str, connect: str, as_json: bool) -> None:
    """Let a paused queue go on, at all nodes, whoever paused it."""
    with asking(connect) as asked:
        must_be_there(asked, queue, False)
        how = asked.resume(queue)
    say(as_json, f"{queue} goes on", queue=queue, paused=how)


@click.command(epilog="""\b
Examples:
  holdfast settings mail                         what is set
  holdfast settings mail attempts=5 backoff=10:600
  holdfast settings mail rate=10/s concurrency=20 --json
""")
@click.argument("queue")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]...")
@new_option
@connected
def settings(queue: str, changes: tuple[str, ...], is_new: bool, connect: str, as_json: bool) -> None:
    """Show the settings of a queue, the same at all nodes, and change some. See QUEUE in docs/reference/commands.md."""
    wanted = dict(each.partition("=")[::2] for each in changes)
    without = [each for each in changes if "=" not in each]
    if without:
        fail(f"a setting is changed by name=value, not '{without[0]}'", 2)
    with asking(connect) as asked:
        known = asked.settings(queue)
        for name in wanted:
            if name not in known:
                fail(f"there is no setting '{name}' of queues{did_you_mean(name, known)}", 2)
        if wanted:
            must_be_there(asked, queue, is_new)
            asked.configure(queue, **wanted)
        show_one(plain(asked.settings(queue)), as_json)


@click.command(epilog="""\b
Examples:
  holdfast flush mail          asks, on a terminal
  holdfast flush mail --yes
""")
@click.argument("queue")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected
def flush(queue: str, yes: bool, connect: str, as_json: bool) -> None:
    """Delete all jobs of a queue, whatever they are doing, at all nodes."""
    with asking(connect) as asked:
        must_be_there(asked, queue, False)
        if not yes:
            if not sys.stdin.isatty():
                fail(f"all jobs of {queue} would be deleted; --yes does it")
            if click.prompt(f"Type the queue's name to delete all its jobs [{queue}]", err=True) != queue:
                fail("nothing was deleted")
        count = asked.flush(queue)
    say(as_json, f"{some(count, 'job')} deleted", count=count)


@click.group(cls=Group, epilog="""\b
Examples:
  holdfast limit list
  holdfast limit set example.org 10/s --burst 20 --concurrency 5
  holdfast limit set '*.example.org' 1/s
  holdfast limit delete example.org
""")
def limit() -> None:
    """Limit the rate of a domain.

    Jobs that were added with a domain are handed out no faster, over all queues and nodes.
    """


@limit.command(name="list", epilog="""\b
Examples:
  holdfast limit list
  holdfast limit list --json
""")
@connected
def limit_list(connect: str, as_json: bool) -> None:
    """List domains that have a limit or jobs, with how many wait and are out at the node that is asked."""
    rows: list[dict[str, Any]] = []
    with asking(connect) as asked:
        cursor: Any = "0"
        while True:
            reply: Any = asked.call("DOMAIN", "LIST", "CURSOR", cursor, "COUNT", PAGE)
            cursor, page = reply
            rows += map(named, page or [])
            if cursor == b"0":
                break
    show(rows, OF_DOMAINS, as_json, "no domain has a limit")


@limit.command(name="set", epilog="""\b
Examples:
  holdfast limit set example.org 10/s
  holdfast limit set '*' 100/m --concurrency 3          every domain that has no limit of its own
  holdfast limit set api.example.org none --concurrency 2
""")
@click.argument("domain")
@click.argument("rate")
@click.option("--burst", type=click.IntRange(1), help="Jobs that may come at once after a pause.")
@click.option("--concurrency", type=click.IntRange(0), help="Jobs that workers may have at a time; 0: no bound.")
@click.option("--adapt/--no-adapt", default=None, help="Let workers that are told to slow down slow all down.")
@connected
def limit_set(
    domain: str, rate: str, burst: int | None, concurrency: int | None, adapt: bool | None, connect: str, as_json: bool
) -> None:
    """Limit a domain, or with *.example.org all that end so. RATE is 10/s, 30/m, 5/h, 1/d or none."""
    with asking(connect) as asked:
        asked.limit(domain, rate, burst=burst, concurrency=concurrency, adapt=adapt)
    say(as_json, f"{domain} is limited to {rate}", domain=domain, rate=rate)


@limit.command(name="delete", epilog="""\b
Examples:
  holdfast limit delete example.org
""")
@click.argument("domain")
@connected
def limit_delete(domain: str, connect: str, as_json: bool) -> None:
    """Lift a limit."""
    with asking(connect) as asked:
        if asked.call("DOMAIN", "DEL", domain) == 0:
            fail(f"{domain} has no limit", NOTHING)
    say(as_json, f"{domain} is not limited any more", domain=domain)


@click.group(cls=Group, epilog="""\b
Examples:
  holdfast tenant list mail
  holdfast tenant set mail acme 3
""")
def tenant() -> None:
    """Share a queue among tenants by weight."""


@tenant.command(name="list", epilog="""\b
Examples:
  holdfast tenant list mail
""")
@click.argument("queue")
@connected
def tenant_list(queue: str, connect: str, as_json: bool) -> None:
    """List the tenants of a queue with their weights, and how many jobs of each wait at the node that is asked."""
    with asking(connect) as asked:
        must_be_there(asked, queue, False)
        reply: Any = asked.call("TENANT", "LIST", queue)
    rows = [dict(zip(("tenant", "weight", "queued"), plain(each), strict=False)) for each in reply]
    show(rows, OF_TENANTS, as_json, "no job of it has a tenant")


@tenant.command(name="set", epilog="""\b
Examples:
  holdfast tenant set mail acme 3
""")
@click.argument("queue")
@click.argument("tenant")
@click.argument("weight", type=click.IntRange(0))
@connected
def tenant_set(queue: str, tenant: str, weight: int, connect: str, as_json: bool) -> None:
    """Give a tenant so many turns where others have one; 0 is what all have that were not told otherwise."""
    with asking(connect) as asked:
        asked.weigh(queue, tenant, weight)
    say(as_json, f"{tenant} has weight {weight} in {queue}", tenant=tenant, weight=weight)
