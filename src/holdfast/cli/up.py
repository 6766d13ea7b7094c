"""holdfast up: a whole Holdfast on this machine, to look at and to develop against. Ctrl-C stops all of it.

The processes are the business of `holdfast.local`; here is what the terminal shows: on a screen a picture that is drawn
anew each second, anywhere else (a pipe, CI) a line per second.
"""
from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.cli.top import wrong_lines
from holdfast.client.figures import STATES, TITLES
from holdfast.client.text import visible
from holdfast.local.processes import Process
from holdfast.local.whole import (
    GRPC_OFFSET,
    HOST,
    HTTP_PORT,
    METRICS_OFFSET,
    NODE_PORT,
    Figures,
    Plan,
    StartError,
    Whole,
)

EVERY_S = 1.0
QUEUES_SHOWN = 12
RATES = ("in_per_second", "out_per_second")
COLUMNS = ("name", "queued", "leased", "delayed", "retrying", "node_away", "done", "failed", "dead", *RATES)

EXAMPLES = """
\b
Examples:
  holdfast up                              three nodes, gateway, console, a sample application, the Spark pipeline
  holdfast up --no-pipeline                without Spark; needs no Java
  holdfast up --nodes 1 --no-sample        a node and the console, for your own jobs
  holdfast up --for 20 --no-pipeline       for twenty seconds, say in CI
  holdfast up --dir b --port 7811 --http 7880 --grpc 7890      a second one beside the first
\b
Try it out: kill -9 one of the processes shown. It comes back, and no job is lost.
"""


class Ended(Exception):
    """Ctrl-C, SIGTERM or SIGHUP."""


def end(_signal: int, _frame: FrameType | None) -> None:
    raise Ended


@click.command(epilog=EXAMPLES)
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 9), help="Nodes of the cluster.")
@click.option("--dir", "folder", default="./holdfast-data", show_default=True, type=click.Path(path_type=Path),
              help="Where everything is kept.")
@click.option("--sample/--no-sample", "has_sample", default=True,
              help="A sample application that makes and works jobs.")
@click.option("--pipeline/--no-pipeline", "has_pipeline", default=True, help="The data pipeline; it needs Java.")
@click.option("--orders", default=5.0, show_default=True, type=click.FloatRange(0.1, 1000),
              help="Orders a second in the sample application; each is four or five jobs.")
@click.option("--port", default=NODE_PORT, show_default=True, type=click.IntRange(1, 55000), help="First node's port.")
@click.option("--http", default=HTTP_PORT, show_default=True, type=click.IntRange(1, 65000), help="Console's port.")
@click.option("--grpc", default=0, type=click.IntRange(0, 65535),
              help=f"Port for gRPC; {GRPC_OFFSET} above the console's, if none is named.")
@click.option("--for", "seconds", default=0.0, type=click.FloatRange(0), help="Stop after so many seconds.")
def up(
    nodes: int, folder: Path, has_sample: bool, has_pipeline: bool, orders: float, port: int, http: int, grpc: int,
    seconds: float,
) -> None:
    """Run a whole Holdfast on this machine.

    A local cluster with console, sample application and pipeline. Ctrl-C stops all of it.
    """
    if importlib.util.find_spec("fastapi") is None:
        raise click.ClickException("the console needs more packages: pip install 'holdfast[server]'")
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # SIGINT is ignored where a script starts us with &
        signal.signal(number, end)
    sys.exit(run(console, Plan(folder, nodes, has_sample, has_pipeline, orders, port, http, grpc), seconds))


def run(console: Console, plan: Plan, seconds: float) -> int:
    """The exit code: 0 if all started, and all stopped when told to."""
    code = 0
    whole = None
    try:
        whole = Whole(plan)
        for words in whole.start():
            console.print(f"{words} …", style="dim")
        tell(console, whole)
        watch(console, whole, seconds)
    except StartError as error:
        console.print(Text(str(error)), style="red")
        code = 1
    except Ended:
        pass
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # we are at it
        if whole is not None and whole.processes:
            console.print("stopping …", style="dim")
        for words in whole.stop() if whole is not None else ():
            console.print(words, style="red")
            code = 1
        if whole is not None and whole.processes:
            console.print(Text(f"stopped; everything is kept in {plan.folder}"))
    return code


def tell(console: Console, whole: Whole) -> None:
    console.print()
    console.print(f"  The console     [bold]{whole.console}[/bold]")
    console.print(f"  The nodes       {whole.url}")
    console.print(f"  gRPC            grpc://{HOST}:{whole.grpc}")
    metrics = [f"http://{HOST}:{port + METRICS_OFFSET}/metrics" for port in whole.ports]
    console.print(f"  Metrics         {', '.join(metrics)}")
    if not console.is_terminal:  # where there is one, the picture has them
        console.print(f"  Processes       {', '.join(f'{each.name} {each.pid}' for each in whole.processes)}")
    console.print(f"  Try             {program()} queues --connect holdfast://{whole.processes[0].where}")
    console.print(f"  Everything is kept in {whole.plan.folder}, what the processes say in {whole.logs}")
    for note in whole.notes:
        console.print(Text(f"  Note: {note}"), style="yellow")
    console.print("  Ctrl-C stops all of it.")
    console.print()


def program() -> str:
    """How this command is called here: a fresh clone has it in .venv, and that is not on the path."""
    beside = Path(sys.executable).parent / "holdfast"
    if shutil.which("holdfast") or not beside.exists():
        return "holdfast"
    with contextlib.suppress(ValueError):
        return str(beside.relative_to(Path.cwd()))
    return str(beside)


def watch(console: Console, whole: Whole, seconds: float) -> None:
    deadline = time.monotonic() + seconds if seconds else float("inf")
    with contextlib.ExitStack() as stack:
        screen = None
        if console.is_terminal:
            screen = stack.enter_context(Live(console=console, auto_refresh=False))
        for _ in seconds_until(deadline):
            if screen is not None:
                screen.update(picture(whole), refresh=True)
            else:
                console.print(line(whole.look(), whole.figures()))


def seconds_until(deadline: float) -> Iterator[None]:
    following = time.monotonic()
    while following < deadline:
        yield
        following = max(following + EVERY_S, time.monotonic())
        time.sleep(max(0.0, min(following, deadline) - time.monotonic()))


def line(looks: list[tuple[Process, str]], figures: Figures) -> str:
    """All of a second in one line."""
    when = time.strftime("%H:%M:%S")
    away = [f"{process.name}: {words}" for process, words in looks if words != "running"]
    if figures.silent:
        away.insert(0, without(figures.silent))
    end = f"   ({'; '.join(away)})" if away else ""
    if not figures.totals:
        return f"{when}  no figures: {figures.words}{end}"
    of = figures.totals
    return (
        f"{when}  since start: added {of['added']:,}  done {of['done']:,}  failed {of['failed']:,}  "
        f"now: queued {of['queued']:,}  leased {of['leased']:,}  delayed {of['delayed']:,}  "
        f"retrying {of['retrying']:,}  dead {of['dead']:,}  "
        f"in {of['in_per_second']}/s  out {of['out_per_second']}/s{end}"
    )


def picture(whole: Whole) -> Group:
    """What the terminal shows: processes, then queues."""
    running = Table("process", "where", "pid", "", box=None, pad_edge=False, header_style="bold")
    looks = whole.look()
    for process, words in looks:
        colour = "green" if words == "running" else "red"
        running.add_row(process.name, process.where, str(process.pid), Text(words, style=colour))
    figures = whole.figures()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(TITLES[name], justify="left" if name == "name" else "right")
    for row in busiest(figures.queues):
        table.add_row(*[Text(cell(row.get(name, 0))) for name in COLUMNS])
    more = len(figures.queues) - QUEUES_SHOWN
    if more > 0:
        table.add_row(Text(f"and {more:,} more", style="dim"))
    if figures.totals:
        table.add_row("all", *[cell(figures.totals.get(name, 0)) for name in COLUMNS[1:]], style="bold")
    words = figures.words or (f"The figures are {without(figures.silent)}." if figures.silent else "")
    note = "Done and failed are counted since the start."
    return Group(wrong_lines(whole.problems()), running, Text(), table, Text(note, style="dim"),
                 Text(words, style="red"))


def busiest(queues: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those in which most happens or waits, as many as there is room for, by name."""
    def rank(row: dict[str, Any]) -> tuple[int, int]:
        return -sum(int(row.get(name) or 0) for name in RATES), -sum(int(row.get(name) or 0) for name in STATES)

    return sorted(sorted(queues, key=rank)[:QUEUES_SHOWN], key=lambda row: str(row["name"]))


def without(silent: list[str]) -> str:
    return f"without {' and '.join(silent)}"


def cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else visible(str(value))
