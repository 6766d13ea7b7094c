"""holdfast node: one node in the foreground, or several behind one port."""
from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from holdfast.core.config import BY_NAME

if TYPE_CHECKING:
    from holdfast.shell.server import Server

Result = TypeVar("Result")

LOOK_S = 0.5
"""A start that takes longer than this shows a bar."""

EPILOG = """
\b
Examples:
  holdfast node                                      port 7711, this machine only, in memory
  holdfast node --port 7712 --dir ./data             keeps its jobs, its id and saved settings in ./data
  holdfast node --set maxmemory=4gb --set requirepass=secret --bind 0.0.0.0
  HOLDFAST_MAXMEMORY=4gb holdfast node --config holdfast.toml
  holdfast node --port 7712 --join 127.0.0.1:7711    a second node on this machine, in one cluster with the first
  holdfast node --cores 4 --dir ./data               four nodes behind port 7711, each also at its own: 7712 to 7715
  holdfast node --bind 10.0.0.2 --set requirepass=… --cluster-secret-file secret --join 10.0.0.1:7711
\b
A flag wins over a HOLDFAST_… variable, that over what CONFIG REWRITE saved in the dir, that over the file.
Settings and their meaning: CONFIG GET '*' at a running node, or the reference in docs/.
"""


@click.command(epilog=EPILOG)
@click.option("--port", type=int, help="TCP port for clients (7711); 0 chooses a free one.")
@click.option("--bind", "bind", help="Address to listen on (127.0.0.1).")
@click.option("--dir", "folder", help="Folder for what must outlive the process.")
@click.option("--join", "joins", multiple=True, metavar="HOST:PORT",
              help="A node whose cluster to join; repeatable. HOST:PORT@BUSPORT if its bus is not at port + 10000.")
@click.option("--cluster-secret-file", "secret_file", help="File with the secret that all nodes of the cluster share.")
@click.option("--users-file", "users_file", help="File of users who may connect; see `holdfast users`.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine although nobody has to say who it is.")
@click.option("--cores", type=int, help="Nodes to run behind one port, to use so many cores (1).")
@click.option("--config", "file", type=click.Path(path_type=Path), help="Settings file (TOML).")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Any setting; repeatable.")
@click.option("--control", type=int, default=-1, hidden=True)
def node(
    port: int | None, bind: str | None, folder: str | None, joins: tuple[str, ...], secret_file: str | None,
    users_file: str | None, insecure: bool, cores: int | None, file: Path | None, pairs: tuple[str, ...], control: int,
) -> None:
    """Run a node in the foreground until SIGTERM or Ctrl-C. SIGHUP reads the settings file again."""
    flags: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            fail(f"--set takes name=value, not '{pair}'")
        if name not in BY_NAME:
            from holdfast.cli.common import did_you_mean

            fail(f"there is no setting '{name}'{did_you_mean(name, BY_NAME)}")
        flags[name] = value
    given_by_flag = (
        ("port", port), ("bind", bind), ("dir", folder), ("join", " ".join(joins) or None),
        ("cluster-secret-file", secret_file), ("cores", cores), ("users-file", users_file),
        ("protected-mode", "no" if insecure else None),
    )
    for name, given in given_by_flag:
        if given is not None:
            if flags.get(name, str(given)) != str(given):
                fail(f"--{name} says {given} and --set {name} says {flags[name]}: which is it to be?")
            flags[name] = str(given)
    sys.exit(run(flags, file, control))


def fail(words: str) -> NoReturn:
    """Say in a sentence why the node does not start."""
    click.echo(f"holdfast node: {words}", err=True)
    sys.exit(1)


def run(flags: dict[str, str], file: Path | None, control: int = -1) -> int:
    """Run a node until it is stopped; again if DEBUG RESTART asked for it. `control`: it is one of several."""
    from holdfast.shell.cores import Cores
    from holdfast.shell.server import Server, banner
    from holdfast.shell.settings import Settings, SettingsError

    while True:
        try:
            settings = Settings(flags, file)
            core = settings.config.number("core")
            start_log(settings.config.text("logfile"), settings.config.text("log-format"), core)
            if (core > 0) != (control >= 0):
                raise SettingsError("the setting core is not for you: say how many nodes you want with --cores")
            settings.lock()
            log = logging.getLogger("holdfast")

            async def serve(settings: Settings = settings, log: logging.Logger = log) -> tuple[int, bool]:
                server = Server(settings, control)
                serving = asyncio.ensure_future(server.run())
                await until_ready(server, serving)
                if not serving.done():
                    log.info("%s", banner(server))
                    if control < 0:  # else it is ready when all are
                        log.info("ready on %s, process %d", server.where(), os.getpid())
                return await serving, server.restart

            try:
                if settings.config.number("cores") > 1 and core == 0:
                    return run_loop(Cores(settings, flags, file).run())
                code, again = run_loop(serve())
            finally:
                settings.unlock()
        except SettingsError as error:
            click.echo(f"holdfast node: {error}", err=True)
            return 1
        if not again:
            return code


async def until_ready(server: Server, serving: asyncio.Future[int]) -> None:
    """Until commands are run, or it has failed. While a long journal is loaded, a terminal shows how far it is."""
    from rich.console import Console
    from rich.progress import Progress

    ready: asyncio.Future[Any] = asyncio.ensure_future(server.ready.wait())
    either: set[asyncio.Future[Any]] = {serving, ready}
    bar: Progress | None = None
    while not (await asyncio.wait(either, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED))[0]:
        if not sys.stderr.isatty():
            continue  # a bar in a log is rubbish
        if bar is None:
            bar = Progress(console=Console(stderr=True))
            bar.start()
            task = bar.add_task("loading the journal", total=100)
        bar.update(task, completed=server.keeping.percent)
    if bar is not None:
        bar.stop()
    ready.cancel()


def run_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """uvloop where it can be had; it is what the figures were measured with."""
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main)
    except ImportError:
        return asyncio.run(main)


def start_log(path: str, form: str, core: int) -> None:
    from holdfast.cli import logs
    from holdfast.shell.settings import SettingsError

    try:
        handler = logs.file_handler(path) if path else logging.StreamHandler(sys.stderr)
    except OSError as error:
        raise SettingsError(f"cannot write the log {path}: {error.strerror}") from None
    who, about = (f"node {core}: ", {"core": core}) if core > 0 else ("", {})
    handler.setFormatter(logs.formatter(form, f"%(asctime)s %(levelname)s {who}%(message)s", **about))
    root = logging.getLogger("holdfast")
    root.handlers[:] = [handler]
    root.propagate = False
