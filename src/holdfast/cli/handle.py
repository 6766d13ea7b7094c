"""holdfast add, take, ack: handle jobs from the shell."""
from __future__ import annotations

import json
import sys
from typing import Any

import click

from holdfast.cli.common import NOTHING, asking, connected, fail
from holdfast.client.text import visible


@click.command(epilog="""\b
Examples:
  holdfast add mail hello
  holdfast add mail '{"to": "a@b"}' --delay 60 --priority 9 --attempts 5 --unique welcome-17
  generate | holdfast add mail -                 one job per line that is not empty
""")
@click.argument("queue")
@click.argument("body")
@click.option("--delay", type=float, help="Seconds before it may run.")
@click.option("--retry", type=float, help="Seconds until it is handed out again; 0: at most once.")
@click.option("--ttl", type=float, help="Seconds until its time is over; 0: never, unless its queue says when.")
@click.option("--on-expire", type=click.Choice(["dead", "drop"]), help="What becomes of it then.")
@click.option("--priority", type=click.IntRange(0, 9), help="9 first.")
@click.option("--replicate", type=click.IntRange(1), help="Nodes that must hold it.")
@click.option("--attempts", type=click.IntRange(1), help="Failures until it is dead.")
@click.option("--backoff", type=float, help="Seconds to the second attempt, doubled each time.")
@click.option("--unique", help="At most one job of the queue has this key.")
@click.option("--group", help="Jobs of a group run one at a time, in order.")
@click.option("--domain", help="Rate-limit key.")
@click.option("--tenant", help="Fair-share key.")
@connected
def add(queue: str, body: str, connect: str, as_json: bool, **options: Any) -> None:
    """Add a job to QUEUE.

    BODY may be - : one job per line of standard input. Lines with nothing in them are passed over.
    """
    if not queue:
        fail("the name of the queue is empty", 2)
    chosen = {name: value for name, value in options.items() if value is not None}
    if chosen.get("ttl") == 0:
        chosen["ttl"] = None
    lines = (line.rstrip("\r\n") for line in sys.stdin)
    bodies = (line for line in lines if line.strip()) if body == "-" else [body]
    with asking(connect) as asked:
        for each in bodies:
            made = asked.add(queue, each, **chosen)
            click.echo(json.dumps({"id": made}) if as_json else made)


@click.command(epilog="""\b
Examples:
  holdfast take mail                     one job; it stays leased, answer with `holdfast ack`
  holdfast take mail --count 10 --ack    and they are done at once
  holdfast take a b --wait 30 --json
""")
@click.argument("queues", nargs=-1, required=True)
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@click.option("--wait", default=0.0, type=click.FloatRange(0), help="Seconds to wait for the first.")
@click.option("--lease", type=float, help="Seconds we have them.")
@click.option("--ack", is_flag=True, help="Acknowledge them at once.")
@connected
def take(
    queues: tuple[str, ...], count: int, wait: float, lease: float | None, ack: bool, connect: str, as_json: bool
) -> None:
    """Take jobs. Exit code 3 if there was none."""
    with asking(connect) as asked:
        jobs = asked.take(*queues, count=count, timeout=wait, lease=lease)
        for job in jobs:
            text = job.body.decode("utf-8", "backslashreplace")
            row = {"id": job.id, "queue": job.queue, "token": job.token, "attempt": job.attempt, "body": text}
            shown = visible(text) if sys.stdout.isatty() else text
            click.echo(json.dumps(row) if as_json else f"{job.id}  {shown}")
        if ack and jobs:
            asked.done(*jobs)
    if not jobs:
        fail("no job", NOTHING)


@click.command(epilog="""\b
Examples:
  holdfast take mail                     shows the id of the job
  holdfast ack DI…SQ DI…SQ
""")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@connected
def ack(ids: tuple[str, ...], connect: str, as_json: bool) -> None:
    """Acknowledge jobs: their work is done."""
    with asking(connect) as asked:
        count = asked.done(*ids)
    click.echo(json.dumps({"count": count}) if as_json else f"{count} of {len(ids)} were still open")
    if count == 0:
        sys.exit(NOTHING)
