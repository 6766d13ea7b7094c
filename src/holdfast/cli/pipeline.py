"""holdfast pipeline: the data pipeline on Spark. The work is in `holdfast.pipeline`, the words and tables are here.

Spark is imported only by the commands that need it; the others read the lake without it. What goes wrong is told in one
sentence: Spark wraps an error of ours into pages of Java, and `plainly` takes it out again.
"""
from __future__ import annotations

import contextlib
import datetime as dt
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from holdfast.cli.groups import Group, examples
from holdfast.cli.where import connect_option
from holdfast.client.text import visible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.pipeline.lineage import Relative

CONNECT = connect_option("A node of the cluster; several with commas.", name="url")
LAKE = click.option("--lake", "folder", envvar="HOLDFAST_LAKE", default="./lake", show_default=True,
                    help="Where the tables are: a folder, or s3://bucket/prefix.")
MASTER = click.option("--master", default="local[*,4]", show_default=True,
                      help="Where Spark runs: local[cores,tries], spark://host:port, sc://host:port, yarn, k8s://…")
CONF = click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be given again.")
OURS = re.compile(r"^(?:holdfast[\w.]*\.)?(\w*(?:Error|Refused|DataLoss|BadOption|BadRows|NotAllowed|Unreachable"
                  r"|BadRequest|ConnectionLost|NoAnswer|Unknown|NoRepl|NoJava)): (.+)$", re.MULTILINE)


class Numbers(click.ParamType[list[Any]]):
    """Numbers above zero, with commas."""

    name = "numbers"

    def __init__(self, kind: type[int] | type[float]) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        words = str(value).split(",")
        pattern = r"\d{1,9}" if self.kind is int else r"\d{1,9}(\.\d+)?"
        for word in words:
            if not re.fullmatch(pattern, word.strip()) or not float(word) > 0:
                kind = "a whole number" if self.kind is int else "a number"
                self.fail(f"{word.strip()!r} is not {kind} above 0; several go with commas: 1,2,4", param, ctx)
        return [self.kind(word) for word in words]


@click.group(cls=Group)
def pipeline() -> None:
    """Run the data pipeline, on Spark.

    From history to tables, from tables to jobs.
    """


def console() -> Console:
    return Console(highlight=False)


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Errors as one sentence, and no traceback."""
    try:
        yield
    except (KeyboardInterrupt, click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        words = str(error)
        inside = OURS.findall(words)
        if inside:  # wrapped by Spark, the innermost last
            words = inside[-1][1]
        elif type(error).__module__.startswith(("pyspark", "py4j")):
            words = words.partition("\n")[0]
        click.echo(f"holdfast pipeline: {words}", err=True)
        sys.exit(1)


@contextlib.contextmanager
def session(master: str, conf: tuple[str, ...], name: str) -> Iterator[SparkSession]:
    from holdfast.pipeline.session import open_session

    settings = dict(each.partition("=")[::2] for each in conf)
    spark = open_session(master, name, settings)
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def driver(master: str, conf: tuple[str, ...], name: str) -> Iterator[SparkSession]:
    """A session whose driver is this process: batches of a stream are handled here. Over Connect they would not be."""
    if master.startswith("sc://"):
        raise click.ClickException(f"{name} is a driver of its own: --master local[*], spark://…, yarn or k8s://…; "
                                   "your own programs can use the source over Spark Connect")
    with session(master, conf, name) as spark:
        yield spark


def ending() -> threading.Event:
    """Set by Ctrl-C or SIGTERM. To be called with the session there: PySpark has taken SIGINT for itself by then."""
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: done.set())
    return done


def show(title: str, head: list[str], rows: list[list[str]], empty: str) -> None:
    if not rows:
        click.echo(empty)
        return
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*[Text(visible(each)) for each in row])
    console().print(table)


def ms(value: float | None) -> str:
    if value is None:
        return "–"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} ms"


@pipeline.command(epilog=examples(
    "holdfast pipeline run --lake ./lake",
    "holdfast pipeline run --connect 10.0.0.1:7711 --lake ./lake --once      up to now, for cron",
))
@CONNECT
@LAKE
@MASTER
@CONF
@click.option("--once", is_flag=True, help="Up to where the histories are now, then end.")
@click.option("--every", "every_s", default=10.0, show_default=True, help="Seconds between batches.")
@click.option("--refresh", "refresh_s", default=60.0, show_default=True, help="Seconds between updates of gold.")
@click.option("--max-events", default=2_000_000, show_default=True, help="Events per batch at most.")
@click.option("--starting", default="earliest", show_default=True, help="Where a new stream begins, or latest.")
@click.option("--allow-loss", is_flag=True, help="Go on where a history was removed before it was read.")
@click.option("--keep-silver", default=400, show_default=True, help="Days of events and jobs.")
@click.option("--keep-gold", default=4000, show_default=True, help="Days of figures.")
def run(
    url: str, folder: str, master: str, conf: tuple[str, ...], once: bool, every_s: float, refresh_s: float,
    max_events: int, starting: str, allow_loss: bool, keep_silver: int, keep_gold: int,
) -> None:
    """Read the history of all nodes into the lake, and keep silver and gold up to date.

    Ctrl-C and SIGTERM end it soon; the next run goes on where it was.
    """
    with plainly(), driver(master, conf, "holdfast pipeline run") as spark:
        from holdfast.pipeline.lake import Lake
        from holdfast.pipeline.run import Plan
        from holdfast.pipeline.run import run as run_plan

        done = ending()
        keep = (keep_silver, keep_gold)
        plan = Plan(url, once, every_s, refresh_s, max_events, starting, not allow_loss, *keep)
        count = run_plan(spark, Lake(folder), plan, lambda words: click.echo(words), done)
        click.echo(f"{count} events read into {folder}")


@pipeline.command(epilog=examples("holdfast pipeline migrate --lake ./lake"))
@LAKE
def migrate(folder: str) -> None:
    """Make Delta tables of a lake that an earlier version wrote. No file is copied; needs no Spark."""
    from holdfast.pipeline.lake import Lake
    from holdfast.pipeline.migrate import migrate as migrate_lake

    with plainly():
        for name, rows in migrate_lake(Lake(folder)).items():
            click.echo(f"{name}: {rows} rows")


@pipeline.command(epilog=examples("holdfast pipeline report --lake ./lake --out report.html --png report.png"))
@LAKE
@click.option("--out", default="report.html", show_default=True, type=click.Path(path_type=Path))
@click.option("--png", type=click.Path(path_type=Path), help="The first plot as an image, too.")
@click.option("--days", default=7, show_default=True, help="The last days that have data.")
def report(folder: str, out: Path, png: Path | None, days: int) -> None:
    """Write a page with plots of what the queues did. Needs no Spark."""
    from holdfast.pipeline.lake import lake_at
    from holdfast.pipeline.report import write

    with plainly():
        click.echo(f"written to {write(lake_at(folder), out, days, png)}")


@pipeline.command(epilog=examples("holdfast pipeline stuck --lake ./lake"))
@LAKE
@MASTER
@CONF
@click.option("--limit", default=50, show_default=True)
def stuck(folder: str, master: str, conf: tuple[str, ...], limit: int) -> None:
    """Jobs that are held or wait for far longer than is usual in their queue."""
    def find(spark: SparkSession) -> DataFrame:
        from holdfast.pipeline.frames import load
        from holdfast.pipeline.stages import jobs
        from holdfast.pipeline.stages.stuck import stuck as find_stuck

        return find_stuck(load(spark, lake_at(folder).table("silver/jobs"), jobs.JOBS), dt.datetime.now(dt.UTC))

    from holdfast.pipeline.lake import lake_at

    found = collect(folder, master, conf, find, limit)
    show("Stuck jobs", ["job", "queue", "why", "for", "usually at most", "attempts", "worker", "last error"], [
        [row.job_id, row.queue or "–", row.why, ms(row.for_ms), ms(row.usual_ms), str(row.attempts), row.worker or "–",
         (row.error or "–")[:60]] for row in found
    ], "no job is stuck")


@pipeline.command(epilog=examples("holdfast pipeline anomalies --lake ./lake"))
@LAKE
@MASTER
@CONF
@click.option("--least", default=5.0, show_default=True, help="Sigmas from the usual.")
@click.option("--limit", default=50, show_default=True)
def anomalies(folder: str, master: str, conf: tuple[str, ...], least: float, limit: int) -> None:
    """Hours in which a queue was unlike the same hours of other weeks: busier, slower, or silent."""
    def find(spark: SparkSession) -> DataFrame:
        from holdfast.pipeline.frames import load
        from holdfast.pipeline.stages import queues
        from holdfast.pipeline.stages.anomalies import anomalies as find_anomalies

        lake = lake_at(folder)
        return find_anomalies(
            load(spark, lake.table("gold/queue_minute"), queues.QUEUE_MINUTE), complete_until(lake), least)

    from holdfast.pipeline.lake import complete_until, lake_at

    found = collect(folder, master, conf, find, limit)
    show("Anomalies", ["queue", "hour (UTC)", "what", "value", "usual", "sigmas"], [
        [row.queue, f"{row.hour:%Y-%m-%d %H}h", row.what, f"{row.value:,.0f}", f"{row.usual:,.0f}", f"{row.score:+.1f}"]
        for row in found
    ], "nothing unusual")


def collect(
    folder: str, master: str, conf: tuple[str, ...], find: Callable[[SparkSession], DataFrame], limit: int
) -> list[Any]:
    """The first rows of what `find` makes of a lake that is there."""
    from holdfast.pipeline.lake import lake_at

    with plainly():
        lake_at(folder)
        with session(master, conf, "holdfast pipeline") as spark:
            return find(spark).limit(limit).collect()


@pipeline.command(epilog=examples("holdfast pipeline lineage DI…SQ --lake ./lake"))
@click.argument("job")
@LAKE
def lineage(job: str, folder: str) -> None:
    """Where a job came from and what came of it, as a tree. Needs no Spark."""
    from holdfast.pipeline.lake import lake_at
    from holdfast.pipeline.lineage import family

    def words(each: Relative) -> Text:
        row = each.job
        error = f", {row['error'][:60]}" if row["error"] else ""
        told = f"{row['job_id']} {row['queue']}: {row['outcome'] or 'open'}{error}"
        return Text(visible(told), style="bold" if row["job_id"] == job else "")

    def grow(tree: Tree, each: Relative) -> Tree:
        for child in each.children:
            grow(tree.add(words(child)), child)
        return tree

    with plainly():
        top = family(lake_at(folder), job)
        console().print(grow(Tree(words(top)), top))


@pipeline.command(epilog=examples(
    "holdfast pipeline dead",
    "holdfast pipeline dead --matching 'timeout after' --retry --yes",
))
@CONNECT
@click.option("--queue", default="", help="Only of this queue.")
@click.option("--matching", default="", metavar="REGEX", help="Only kinds whose signature has this.")
@click.option("--retry", "is_retry", is_flag=True, help="Bring those shown back to their queues.")
@click.option("--yes", is_flag=True, help="Do not ask before bringing them back.")
def dead(url: str, queue: str, matching: str, is_retry: bool, yes: bool) -> None:
    """The dead jobs of the cluster by what they died of; with --retry, brought back."""
    from holdfast.pipeline.dead import retry, triage
    from holdfast.pipeline.nodes import Nodes

    with plainly():
        nodes = Nodes(url)
        kinds = triage(nodes, queue, matching)
        show("Dead jobs", ["died of", "queue", "jobs", "last", "for example"], [
            [kind.signature, kind.queue, f"{len(kind.jobs):,}",
             f"{dt.datetime.fromtimestamp(max(job.died_ms for job in kind.jobs) / 1000, dt.UTC):%Y-%m-%d %H:%M}",
             kind.jobs[0].id] for kind in kinds
        ], "no job is dead")
        jobs = [job for kind in kinds for job in kind.jobs]
        if is_retry and jobs and (yes or click.confirm(f"bring {len(jobs)} jobs back?")):
            click.echo(f"{retry(nodes, jobs)} jobs are queued again")


@pipeline.command(epilog=examples("holdfast pipeline plan --lake ./lake --workers 2,4,8 --rate 1,2"))
@LAKE
@click.option("--day", default="", help="The day to replay, YYYY-MM-DD; the last by default.")
@click.option("--queue", default="", help="Only this queue.")
@click.option("--workers", type=Numbers(int), default="1,2,4,8,16", show_default=True, help="Counts to try.")
@click.option("--rate", "rates", type=Numbers(float), default="1", show_default=True,
              help="How much faster jobs come; several with commas.")
def plan(folder: str, day: str, queue: str, workers: list[int], rates: list[float]) -> None:
    """How long jobs would have waited with other workers and other rates. Needs no Spark."""
    import pyarrow.dataset as ds

    from holdfast.pipeline.lake import LakeError, lake_at
    from holdfast.pipeline.plan import COLUMNS, replay, runs

    with plainly():
        table = lake_at(folder).table("silver/events")
        days = table.names()
        if not days or (day and day not in days):
            raise LakeError(f"the lake has no events of {day or 'any day'}; it has {', '.join(days[-5:]) or 'none'}")
        where = ds.field("queue") == queue if queue else None
        trace = runs(table.to_arrow(COLUMNS, [day or days[-1]], where).to_pylist())
        if not trace:
            raise LakeError(f"no job was run on {day or days[-1]}{f' in {queue}' if queue else ''}: nothing to replay")
        outcomes = [replay(trace, count, rate) for rate in rates for count in workers]
        head = ["workers", "rate", "wait p50", "p95", "p99", "max", "busy", "drain"]
        show(f"{len(trace)} runs of {day or days[-1]}", head, [
            [str(each.workers), f"x{each.rate:g}", ms(each.wait_p50_ms), ms(each.wait_p95_ms), ms(each.wait_p99_ms),
             ms(each.wait_max_ms), f"{each.busy:.0%}", ms(each.drain_ms)] for each in outcomes
        ], "")
