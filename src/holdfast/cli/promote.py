"""`holdfast promote file:./jobs holdfast://…`: move the jobs of an embedded queue into a cluster."""
from __future__ import annotations

import sys

import click

from holdfast import doors
from holdfast.client.errors import Error
from holdfast.client.promote import Promotion

EXAMPLES = """\b
Examples:
  holdfast promote file:./jobs holdfast://10.0.0.1,10.0.0.2 --dry-run   how many are there?
  holdfast promote file:./jobs holdfast://10.0.0.1,10.0.0.2             move them
  holdfast promote file:./jobs holdfast://10.0.0.1 --queue mail         those of one queue
"""


@click.command(epilog=EXAMPLES)
@click.argument("source")
@click.argument("target")
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be given several times.")
@click.option("--dry-run", is_flag=True, help="Only count.")
def promote(source: str, target: str, queues: tuple[str, ...], dry_run: bool) -> None:
    """Move all pending jobs from a folder to a node.

    SOURCE is file:folder, TARGET holdfast://host.

    It may be stopped and started again at any time: what was moved stays moved, and nothing is moved twice.
    """
    try:
        there_is(source)
        with doors.open(source) as old, doors.open(target) as new:
            promotion = Promotion(old, new, queues)
            if dry_run:
                click.echo(f"{promotion.count()} jobs would be moved")
                return
            move(promotion)
    except Error as error:
        raise click.ClickException(error.text) from None


def there_is(source: str) -> None:
    """A folder with jobs. Opening one that is not there would make it, and find nothing to move."""
    scheme, _, rest = source.partition(":")
    if scheme != "file":
        raise click.BadParameter("jobs are moved out of a folder: file:./jobs", param_hint="SOURCE")
    folder, _ = doors.folder_settings(rest)
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {folder}", param_hint="SOURCE")


def move(promotion: Promotion) -> None:
    """All of them, with a figure that counts up where somebody looks at it."""
    counts = sys.stderr.isatty()
    try:
        for moved in promotion.run():
            if counts:
                click.echo(f"\r{moved} jobs moved", nl=False, err=True)
    except KeyboardInterrupt:
        click.echo(f"\nstopped: {promotion.summary()}; start it again to go on", err=True)
        raise SystemExit(130) from None
    if counts:
        click.echo("", err=True)
    click.echo(promotion.summary())
