"""`holdfast promote file:./jobs holdfast://…`: move the jobs of an embedded queue into a cluster."""
from __future__ import annotations

import click

from holdfast import doors
from holdfast.client.errors import Error
from holdfast.client.promote import Promotion


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be given several times.")
@click.option("--dry-run", is_flag=True, help="Only count.")
def promote(source: str, target: str, queues: tuple[str, ...], dry_run: bool) -> None:
    """Move all pending jobs from SOURCE (file:folder) to TARGET (holdfast://host).

    It may be stopped and started again at any time: what was moved stays moved, and nothing is moved twice.
    """
    try:
        with doors.open(source) as old, doors.open(target) as new:
            promotion = Promotion(old, new, queues)
            if dry_run:
                click.echo(f"{promotion.count()} jobs would be moved")
                return
            for moved in promotion.run():
                click.echo(f"\r{moved} jobs moved", nl=False, err=True)
            click.echo("", err=True)
            click.echo(promotion.summary())
    except Error as error:
        raise click.ClickException(str(error)) from None
