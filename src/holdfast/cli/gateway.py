"""holdfast gateway: HTTP, gRPC and the console, in a process of its own."""
from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from holdfast.cli import logs
from holdfast.cli.common import fail
from holdfast.cli.where import connect_option

EXAMPLES = """
\b
Examples:
  holdfast gateway                                           before the node at 127.0.0.1:7711
  curl -d hello http://127.0.0.1:7780/push                   add a job to the queue `default`
  curl http://127.0.0.1:7780/get                             and take it
  holdfast gateway --connect a:7711,b:7711 --bind 0.0.0.0 --users-file users.toml
  holdfast gateway --size 1000 --queue work                  bounded: the 1001st job gets a 429
  HOLDFAST_SECRET=… holdfast gateway --connect holdfast://gateway@a:7711

/openapi.json describes everything below /v1. The secret of the url's user may be in HOLDFAST_SECRET, where no other
user of the machine can see it.
"""


@click.command(epilog=EXAMPLES)
@connect_option("The nodes, or an embedded queue such as file:./jobs.")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--http", default=7780, show_default=True, type=click.IntRange(0, 65535), help="Port for HTTP.")
@click.option("--grpc", default=7790, show_default=True, type=click.IntRange(-1, 65535),
              help="Port for gRPC; -1: none.")
@click.option("--queue", default="default", show_default=True, help="The queue of /push and /get.")
@click.option("--size", default=0, type=click.IntRange(0), help="Bound that queue to so many jobs in the cluster.")
@click.option("--users-file", "users", type=click.Path(path_type=Path), help="Who may come in; see `holdfast users`.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine although anybody may come in.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME",
              help="A name that browsers call this gateway by, such as that of a proxy before it; can be repeated.")
@click.option("--trusted-proxy", "proxies", multiple=True, metavar="ADDRESS",
              help="A proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; can be repeated.")
@click.option("--lake", type=click.Path(path_type=Path), help="The pipeline's tables, for the history page.")
@click.option("--console/--no-console", default=True, help="Serve the console's pages, too.")
@click.option("--tls-cert", "cert", default="", help="Certificate, PEM: HTTPS and gRPC with TLS.")
@click.option("--tls-key", "key", default="", help="Its private key.")
@click.option("--tls-ca", "ca", default="", help="Clients must show a certificate signed by this authority.")
@click.option("--log-format", default=logs.TEXT, show_default=True, type=click.Choice(logs.FORMS),
              help="Lines for people, or a JSON object per line.")
def gateway(
    connect: str, bind: str, http: int, grpc: int, queue: str, size: int, users: Path | None, insecure: bool,
    hosts: tuple[str, ...], proxies: tuple[str, ...], lake: Path | None, console: bool, cert: str, key: str, ca: str,
    log_format: str,
) -> None:
    """Open HTTP and gRPC before one or more nodes. Any number of gateways will do; they keep nothing."""
    from holdfast.client.errors import Error
    from holdfast.shell.settings import SettingsError

    try:
        from holdfast.gateway.serve import Plan, run
    except ModuleNotFoundError as error:
        fail(f"the gateway needs {error.name}: pip install 'holdfast[server]'")

    logs.start(log_format, "info")
    plan = Plan(connect, bind, http, grpc, queue, size, users,
                insecure, cert, key, ca, lake, console, hosts=hosts, proxies=proxies)
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(plan))
    except (SettingsError, Error) as error:
        click.echo(f"holdfast gateway: {error}", err=True)
        sys.exit(1)
