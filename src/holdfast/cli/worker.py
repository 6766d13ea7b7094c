"""`holdfast worker module:app`: run the tasks of an app."""
from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from holdfast.cli import logs
from holdfast.cli.where import METAVAR, as_url
from holdfast.client.errors import Error
from holdfast.tasks.find import NoApp, find_app
from holdfast.worker.runtime import Worker, WorkerOptions
from holdfast.worker.supervise import Supervisor, own_command

EXAMPLES = """\b
Examples:
  holdfast worker shop.tasks:app                       all queues that the tasks of shop/tasks.py name
  holdfast worker shop.tasks:app -q mail,images -c 20  two of them, twenty jobs at a time
  holdfast worker shop.tasks:app --processes 4         four processes, one per core
  holdfast worker shop.tasks:app --reload              start again when a file changes
  holdfast worker shop.tasks:app --connect 10.0.0.1:7711,10.0.0.2:7711 --health-port 8080
"""


@click.command(epilog=EXAMPLES)
@click.argument("place", metavar="MODULE:APP")
@click.option("-q", "--queues", default=None, help="Queues to take jobs from, with commas; else all that tasks name.")
@click.option("-c", "--concurrency", default=10, show_default=True, type=click.IntRange(min=1), help="Jobs at a time.")
@click.option("--processes", default=1, show_default=True, type=click.IntRange(min=1), help="Worker processes.")
@click.option("--lease", default=30.0, show_default=True, help="Seconds until a dead worker's jobs come back.")
@click.option("--shutdown", default=25.0, show_default=True, help="Seconds that jobs may finish after SIGTERM.")
@click.option("--name", default="", help="What the cluster knows this worker by; else host and process.")
@click.option("--health-port", default=0, type=click.IntRange(0, 65535), help="Answer GET /healthz on this port.")
@click.option("--health-host", default="127.0.0.1", show_default=True, help="Where that port is opened.")
@click.option("--health-file", default="", help="A file that is refreshed every second while all is well.")
@click.option("--reload", "reloads", is_flag=True, help="Start again when a file here changes (for development).")
@click.option("--connect", default="", metavar=METAVAR, callback=as_url,
              help="Where the jobs are, in place of the app's own url, and of HOLDFAST_URL where it has none.")
@click.option("--url", default="", hidden=True, callback=as_url)
@click.option("--log-level", default="INFO", show_default=True,
              type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False))
@click.option("--log-format", default=logs.TEXT, show_default=True, type=click.Choice(logs.FORMS),
              help="Lines for people, or a JSON object per line.")
@click.option("--child", is_flag=True, hidden=True)
def worker(
    place: str, queues: str | None, concurrency: int, processes: int, lease: float, shutdown: float, name: str,
    health_port: int, health_host: str, health_file: str, reloads: bool, connect: str, url: str, log_level: str,
    log_format: str, child: bool,
) -> None:
    """Run the tasks of an app.

    Fetch jobs, run their handlers, acknowledge.

    MODULE:APP is where the app is, such as shop.tasks:app. SIGTERM stops it gently.
    """
    logs.start(log_format, log_level, "%(asctime)s %(process)d %(levelname)s %(message)s")
    names = tuple(filter(None, (each.strip() for each in (queues or "").split(","))))
    if queues is not None and not names:  # An empty variable in a script, say. Without -q it would be all queues.
        raise click.BadParameter("it names no queue; leave it out to take from all that tasks name", param_hint="-q")
    if not child and (processes > 1 or reloads):
        supervisor = Supervisor(
            own_command(sys.argv[sys.argv.index("worker") + 1:]), processes, shutdown_s=shutdown,
            health_host=health_host, health_port=health_port, health_file=health_file,
            reloads=Path.cwd() if reloads else None,
        )
        try:
            supervisor.run()
        except Error as error:
            raise click.ClickException(error.text) from None
        return
    try:
        app = find_app(place)
    except NoApp as missing:
        raise click.ClickException(str(missing)) from None
    if connect or url:
        app.url = connect or url
    options = WorkerOptions(
        queues=names, concurrency=concurrency, lease_s=lease, shutdown_s=shutdown,
        name=name if processes == 1 or not name else f"{name}:{os.getpid()}",
        health_port=0 if child else health_port, health_host=health_host, health_file=health_file,
    )
    try:
        Worker(app, options).run()
    except Error as error:
        raise click.ClickException(error.text) from None
