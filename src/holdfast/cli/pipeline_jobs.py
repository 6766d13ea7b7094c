"""holdfast pipeline backfill and import: jobs from tables and from other queues."""
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .groups import Group, examples
from .pipeline import CONF, CONNECT, MASTER, driver, ending, pipeline, plainly, session, show

if TYPE_CHECKING:
    from holdfast.pipeline.importers.bring import Brought
    from holdfast.pipeline.importers.found import Found, Schedule, Unreadable

REDIS = click.option("--redis", "redis_url", default="redis://127.0.0.1:6379/0", show_default=True,
                     help="The Redis of the other system.")
DRY = click.option("--dry-run", "dry", is_flag=True, help="Only say what would be done.")
SYSTEMS = ("sidekiq", "resque", "rq", "celery", "bullmq")
RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")


class Rate(click.ParamType[float]):
    """`5000/s`, `100/m`, `10/h`; jobs a second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = RATE.fullmatch(str(value))
        if found is None or float(found[1]) <= 0:
            self.fail(f"{value!r} is no rate; write 5000/s, 100/m or 10/h", param, ctx)
        return float(found[1]) / {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


@pipeline.command(epilog=examples(
    "holdfast pipeline backfill users.parquet --queue welcome --rate 5000/s",
    "holdfast pipeline backfill users.csv --queue welcome --dry-run",
))
@click.argument("source", metavar="FILE|TABLE")
@CONNECT
@MASTER
@CONF
@click.option("--queue", default="", help="Where rows do not say.")
@click.option("--rate", type=Rate(), help="At most so many jobs: 5000/s, 100/m.")
@click.option("--body", default="", help="The column that is the body; whole rows as JSON by default.")
@click.option("--format", "form", default="", type=click.Choice(["", "parquet", "csv", "json"]))
@click.option("--state", default="backfill", show_default=True, type=click.Path(path_type=Path),
              help="Where it is noted how far it is.")
@click.option("--at-least-once", is_flag=True, help="Add directly; interrupted, it may add jobs twice.")
@DRY
def backfill(
    source: str, url: str, master: str, conf: tuple[str, ...], queue: str, rate: float | None, body: str, form: str,
    state: Path, at_least_once: bool, dry: bool,
) -> None:
    """Add a job for every row of a Parquet, CSV or JSON file, or of a table. Interrupted, it goes on where it was."""
    from holdfast.pipeline.backfill import Backfill, Run

    job = Backfill(source, url, queue, rate or 0.0, body, state, form, not at_least_once)
    with plainly(), session(master, conf, "holdfast pipeline backfill") as spark:
        run = Run(spark, job)
        if dry:
            now, rows = run.look(3)
            click.echo(f"{now.total} jobs, {now.done} of them added already; nothing was added")
            for row in rows:
                click.echo(f"  {row}")
            return
        before = run.prepare()
        bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with bar:
            task = bar.add_task("adding", total=before.total, completed=before.done)
            for now in run.steps():
                bar.update(task, completed=now.done)
        click.echo(f"{run.progress().done} jobs added")


@pipeline.group("import", cls=Group)
def import_jobs() -> None:
    """Bring the jobs of another queue over. Nothing is taken out of it unless --remove is given."""


def options(command: Any) -> Any:
    """What all imports take."""
    for option in reversed((
        CONNECT, DRY,
        click.option("--remove", is_flag=True, help="Take each job out of the source once it is added here."),
        click.option("--dead-queue", default="", help="Bring dead jobs, too, into this queue."),
        click.option("--running", is_flag=True, help="Bring jobs that somebody runs, too; they may run twice."),
        click.option("--prefix", default="", help="Goes before the names of queues."),
    )):
        command = option(command)
    return command


def bring_all(
    system: str, found: Iterator[Found | Schedule | Unreadable], source: Any, url: str, dry: bool, remove: bool,
    dead_queue: str, running: bool, prefix: str,
) -> None:
    from holdfast.pipeline.importers.bring import Wanted, bring
    from holdfast.pipeline.nodes import Nodes

    wanted = Wanted(dry, remove, dead_queue, running, prefix)
    with Progress(TextColumn("{task.description}"), TextColumn("{task.completed} jobs"), transient=True) as bar:
        task = bar.add_task(system, total=None)
        brought = bring(found, None if dry else Nodes(url), wanted, source,
                        lambda so_far: bar.update(task, completed=so_far.added.total()))
    tell(system, brought, dry)


def tell(system: str, brought: Brought, dry: bool) -> None:
    rows = [[name, f"{count:,}"] for name, count in brought.queues.most_common()]
    show(f"{'Would be added' if dry else 'Added'} from {system}", ["queue", "jobs"], rows,
         "nothing new was added" if brought.there else f"{system} has no jobs to bring")
    if brought.there:
        click.echo(f"{brought.there} were here already: an earlier import brought them")
    states = ", ".join(f"{count} {name}" for name, count in brought.added.items())
    if states:
        click.echo(f"of these: {states}")
    if brought.tasks:
        named = ", ".join(f"{name} ({count:,})" for name, count in brought.tasks.most_common())
        click.echo(f"a worker runs them if its app has tasks of these names: {named}")
    for name, count in brought.left.items():
        how = "--dead-queue NAME brings them" if name == "dead" else "--running brings them"
        click.echo(f"left where they are: {count} {name} ({how})")
    for words in brought.schedules:
        click.echo(f"not brought, for it is no job: {words}. See docs/how-to/run-jobs-on-a-schedule.md")
    if brought.removed:
        click.echo(f"{brought.removed} were taken out of {system}")
    if brought.unreadable:
        click.echo(f"{brought.unreadable} entries could not be read and are left, such as:")
        for words in brought.examples:
            click.echo(f"  {words}")


def importer(system: str) -> click.Command:
    @click.command(
        system, help=f"Bring the jobs of {system} over: waiting, scheduled, to be tried again, dead.",
        epilog=examples(f"holdfast pipeline import {system} --redis redis://10.0.0.9/0 --dry-run",
                        f"holdfast pipeline import {system} --redis redis://10.0.0.9/0 --dead-queue morgue"),
    )
    @REDIS
    @click.option("--namespace", default="", help="What its keys begin with, where it is not the usual.")
    @options
    def command(redis_url: str, namespace: str, **words: Any) -> None:
        from importlib import import_module

        from redis import Redis

        module = import_module(f"holdfast.pipeline.importers.{'sidekiq' if system == 'resque' else system}")
        with plainly():
            source = Redis.from_url(redis_url)
            source.ping()
            find = getattr(module, system)
            bring_all(system, find(source, namespace) if namespace else find(source), source, **words)

    return command


for each in SYSTEMS:
    import_jobs.add_command(importer(each))


@import_jobs.command(epilog=examples("holdfast pipeline import disque --aof appendonly.aof"))
@click.option("--aof", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Its append-only file.")
@options
def disque(aof: Path, **words: Any) -> None:
    """Bring the jobs in an append-only file of Disque over."""
    from holdfast.pipeline.importers.disque import disque as find

    with plainly():
        bring_all("disque", find(aof), None, **words)


@pipeline.command(epilog=examples("holdfast pipeline work shop:app --checkpoint ./work --max-jobs 10000"))
@click.argument("name", metavar="MODULE:APP")
@CONNECT
@MASTER
@CONF
@click.option("--checkpoint", required=True, type=click.Path(path_type=Path), help="Where Spark keeps how far it is.")
@click.option("--max-jobs", default=10_000, show_default=True, help="Jobs per batch at most.")
@click.option("--lease", "lease_s", default=600.0, show_default=True, help="Seconds until a dead driver's jobs return.")
@click.option("--once", is_flag=True, help="What is there now, then end.")
def work(
    name: str, url: str, master: str, conf: tuple[str, ...], checkpoint: Path, max_jobs: int, lease_s: float, once: bool
) -> None:
    """Run the handlers of an App on Spark's executors. Jobs are acknowledged when their batch is done."""
    from holdfast.pipeline.work import start

    options = {"maxJobsPerTrigger": str(max_jobs), "leaseSeconds": f"{lease_s:g}"}
    with plainly(), driver(master, conf, f"holdfast pipeline work {name}") as spark:
        query = start(spark, url, name, str(checkpoint.absolute()), options, once,
                      lambda done, failed: click.echo(f"{done} jobs done, {failed} failed"))
        done = ending()
        while not query.awaitTermination(1):
            if done.is_set():
                query.stop()
