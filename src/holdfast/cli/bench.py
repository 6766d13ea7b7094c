"""`holdfast bench`: how fast is that node, from here?

Jobs are added, fetched and acknowledged over many connections at once, each with a window of `--pipeline`
commands under way, by the same asyncio client code applications use. So the figure is that of node, network
and this client together, and a Python client is often the slowest of the three: compare nodes by it, don't
take it for the node's limit.

Every answer is checked. An error, a missing job or an acknowledgement that was not counted ends the run:
figures of a run that did not do its work are worth nothing. Latency is the time from sending a window to its
last answer.

It leaves nothing behind: jobs it added and did not get to acknowledge (a mode that only adds, Ctrl-C) are
acknowledged at the end. It starts only on an empty queue, so that no one else's jobs are touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import click

from holdfast.cli.prompt import the_node
from holdfast.cli.where import node_at, node_options
from holdfast.client import values
from holdfast.client.connection import AsyncConnection
from holdfast.client.delivery import ID, entries
from holdfast.client.errors import Empty, Error
from holdfast.client.resp import Argv, Reply
from holdfast.client.target import Target

MODES: Final = ("add", "get", "ack", "cycle")
WAIT_MS: Final = 5000
TTL_S: Final = 3600
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
CLEAN_BATCH: Final = 500


@dataclass
class Phase:
    """One kind of command: how many, how long each window took, how long it all took."""

    name: str
    jobs: int = 0
    seconds: float = 0.0
    windows: list[float] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        ordered = sorted(self.windows)
        report: dict[str, Any] = {
            "name": self.name,
            "jobs": self.jobs,
            "seconds": round(self.seconds, 6),
            "jobs_per_second": round(self.jobs / self.seconds, 1) if self.seconds else 0.0,
        }
        for percentile in PERCENTILES:
            report[f"p{percentile:g}_ms"] = _percentile_ms(ordered, percentile)
        return {**report, "max_ms": _percentile_ms(ordered, 100.0)}


Step: TypeAlias = "Callable[[int, AsyncConnection], Coroutine[Any, Any, None]]"
"""Do so many commands of one kind on a connection."""


class Bench:
    """The run: connections, the jobs that are out there, and what was measured."""

    def __init__(
        self, target: Target, connections: int, jobs: int, body: int, pipeline: int, queue: str
    ) -> None:
        self.target = target
        self.jobs = jobs
        self.pipeline = pipeline
        self.queue = queue
        self.finished = 0
        self.total = 0
        self.is_stopping = False
        self._count = connections
        self._body = b"x" * body
        self._connections: list[AsyncConnection] = []
        self._ours: set[str] = set()
        """Ids that were added and not acknowledged yet."""
        self._fetched: list[str] = []

    async def run(self, mode: str) -> list[Phase]:
        """Measure, then clean up. Ctrl-C stops measuring; what was measured so far is reported."""
        try:
            await self._connect()
            return await self._measure(mode)
        finally:
            await self._clean()
            for connection in self._connections:
                await connection.close()

    async def _connect(self) -> None:
        self._connections = [await AsyncConnection.open(self.target)]
        waiting = values.whole(_checked(await self._connections[0].call(["QLEN", self.queue])))
        if waiting:
            raise click.ClickException(
                f"queue {self.queue!r} already holds {waiting} jobs; choose another with --queue"
            )
        await self._try_one()
        for _ in range(self._count - 1):
            self._connections.append(await AsyncConnection.open(self.target))

    async def _try_one(self) -> None:
        """One job alone: what the node refuses it says here. In a window, a node that answers a body over its
        limit with an error and hangs up would look like a lost connection. Delayed, so that nobody gets it."""
        command: Argv = ["ADDJOB", self.queue, self._body, WAIT_MS, "TTL", TTL_S, "DELAY", TTL_S // 2]
        job_id = values.text(_checked(await self._connections[0].call(command, WAIT_MS / 1000)))
        self._ours.add(job_id)
        _checked(await self._connections[0].call(["ACKJOB", job_id]))
        self._ours.discard(job_id)

    async def _measure(self, mode: str) -> list[Phase]:
        if mode == "cycle":
            self.total = self.jobs
            phases = [Phase("add"), Phase("get"), Phase("ack")]
            whole = Phase("cycle")
            await self._drive(whole, lambda count, at: self._cycle(count, at, phases))
            for phase in phases:
                phase.seconds = whole.seconds
            return [*phases, whole]
        every: list[Step] = [self._add, self._get, self._ack]
        steps = every[: MODES.index(mode) + 1]
        self.total = self.jobs * len(steps)
        phase = Phase(mode)
        for step in steps:
            phase = Phase(mode)  # Only the last step is measured; those before it prepare.
            await self._drive(phase, step)
        return [phase]

    async def _drive(self, phase: Phase, step: Step) -> None:
        """Let all connections do `step`, window by window, until every job had its turn."""
        left = self.jobs

        async def work(connection: AsyncConnection) -> None:
            nonlocal left
            while left > 0 and not self.is_stopping:
                count = min(self.pipeline, left)
                left -= count
                start = time.perf_counter()
                await step(count, connection)
                phase.windows.append(time.perf_counter() - start)
                phase.jobs += count
                self.finished += count

        start = time.perf_counter()
        workers = [asyncio.create_task(work(each)) for each in self._connections]
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
        finally:
            # Windows under way are finished, so that we know every id we made.
            self.is_stopping = self.is_stopping or left > 0
            outcomes = await asyncio.gather(*workers, return_exceptions=True)
            phase.seconds = time.perf_counter() - start
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _add(self, count: int, at: AsyncConnection) -> None:
        command: Argv = ["ADDJOB", self.queue, self._body, WAIT_MS, "TTL", TTL_S]
        for reply in await at.call_many([command] * count, patience=WAIT_MS / 1000):
            self._ours.add(values.text(_checked(reply)))

    async def _get(self, count: int, at: AsyncConnection) -> None:
        command: Argv = ["GETJOB", "TIMEOUT", WAIT_MS, "FROM", self.queue]
        for reply in await at.call_many([command] * count, patience=WAIT_MS / 1000):
            jobs = entries(_checked(reply))
            if not jobs:
                raise Empty(f"a job that was added did not come within {WAIT_MS / 1000:g} s")
            self._fetched.append(values.text(jobs[0][ID]))

    async def _ack(self, count: int, at: AsyncConnection) -> None:
        ids = [self._fetched.pop() for _ in range(count)]
        for job_id, reply in zip(ids, await at.call_many([["ACKJOB", each] for each in ids]), strict=True):
            if values.whole(_checked(reply)) != 1:
                raise Empty(f"job {job_id} was not there to be acknowledged")
            self._ours.discard(job_id)

    async def _cycle(self, count: int, at: AsyncConnection, phases: list[Phase]) -> None:
        for phase, step in zip(phases, (self._add, self._get, self._ack), strict=True):
            start = time.perf_counter()
            await step(count, at)
            phase.windows.append(time.perf_counter() - start)
            phase.jobs += count

    async def _clean(self) -> None:
        """Acknowledge what is left of ours."""
        if not self._ours:
            return
        ids = sorted(self._ours)
        connection = await AsyncConnection.open(self.target)
        for start in range(0, len(ids), CLEAN_BATCH):
            await connection.call(["ACKJOB", *ids[start : start + CLEAN_BATCH]])
        await connection.close()


def _checked(reply: Reply) -> Reply:
    if isinstance(reply, Error):
        raise reply
    return reply


def _percentile_ms(ordered: list[float], percentile: float) -> float:
    """Nearest rank."""
    if not ordered:
        return 0.0
    rank = max(1, math.ceil(round(percentile * len(ordered) / 100, 6)))
    return round(ordered[rank - 1] * 1000, 3)


@click.command(
    "bench",
    context_settings={"help_option_names": ["--help"]},  # -h is the host, as in redis-benchmark.
    epilog="\b\nExamples:\n"
    "  holdfast bench                               add, get and ack 100,000 jobs\n"
    "  holdfast bench --connect 10.0.0.1:7711       a node on another machine\n"
    "  holdfast bench --mode add --pipeline 1       the cost of single adds\n"
    "  holdfast bench --jobs 10000 --json > a.json  for scripts",
)
@node_options
@click.option("-a", "--password", default="", envvar="HOLDFASTCLI_AUTH",
              help="Its password; better in the variable HOLDFASTCLI_AUTH.")
@click.option("--connections", default=50, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--jobs", default=100_000, show_default=True, type=click.IntRange(1))
@click.option("--body", default=64, show_default=True, type=click.IntRange(0), help="Bytes per job.")
@click.option("--pipeline", default=16, show_default=True, type=click.IntRange(1, 1000),
              help="Commands under way per connection.")
@click.option("--queue", default="bench", show_default=True, help="A queue that is empty.")
@click.option("--mode", default="cycle", show_default=True, type=click.Choice(MODES),
              help="What to measure; cycle is add, get and ack together.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def bench(
    connect: str, host: str, port: int, path: str, password: str, connections: int, jobs: int, body: int, pipeline: int,
    queue: str, mode: str, as_json: bool,
) -> None:
    """Drive a node with jobs and print jobs per second and latency."""
    target = the_node(node_at(connect, host, port, path), password)
    run = Bench(target, min(connections, jobs), jobs, body, pipeline, queue)
    try:
        with progress(run):
            phases = run_loop(run, mode)
    except Error as error:
        click.echo(f"The run was given up: {error}", err=True)
        sys.exit(1)
    settings = {"node": str(target), "mode": mode, "connections": min(connections, jobs),
                "pipeline": pipeline, "body_bytes": body}
    reports = [phase.report() for phase in phases]
    if as_json:
        click.echo(json.dumps({**settings, "phases": reports}, indent=2))
    else:
        print_table(settings, reports)
    if run.is_stopping:
        click.echo("Stopped early: the figures are of the jobs done until then.", err=True)
        sys.exit(130)


def run_loop(run: Bench, mode: str) -> list[Phase]:
    """uvloop where there is one."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(run.run(mode))


@contextlib.contextmanager
def progress(run: Bench) -> Iterator[None]:
    """A bar on standard error, where that is a terminal. It reads a counter; the run does not know of it."""
    from rich import progress as rich
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return

    class Follow(rich.ProgressColumn):
        """Takes the figures from the run each time the bar is drawn."""

        def render(self, task: rich.Task) -> Text:
            task.completed, task.total = run.finished, run.total or None
            return Text("jobs")

    columns = (Follow(), rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=console, transient=True, refresh_per_second=10) as bar:
        bar.add_task("jobs", total=None)
        yield


def print_table(settings: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    title = "{node}   {connections} connections, pipeline {pipeline}, {body_bytes} bytes".format(**settings)
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("jobs/s", justify="right")
    for percentile in PERCENTILES:
        table.add_column(f"p{percentile:g} ms", justify="right")
    table.add_column("max ms", justify="right")
    for report in reports:
        figures = [f"{report[f'p{each:g}_ms']:.2f}" for each in PERCENTILES]
        rate = f"{report['jobs_per_second']:,.0f}"
        table.add_row(report["name"], rate, *figures, f"{report['max_ms']:.2f}")
    Console().print(table)
