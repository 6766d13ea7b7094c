"""holdfast journal: look at the journal in a folder, and mend it. The node must not be running."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.journal import inspect
from holdfast.journal.disk import Disk
from holdfast.journal.folder import NAME, JournalError
from holdfast.journal.lock import lock, unlock


@click.group()
def journal() -> None:
    """Look at the journal of a node that is not running, and mend it.

    DIR is the folder that the node was given by --dir.
    """


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Path]:
    """The journal in a folder, for us alone."""
    path = folder if folder.name == NAME else folder / NAME
    if not path.is_dir():
        fail(f"there is no journal in {folder}")
    held_lock = -1
    try:
        held_lock = lock(path.parent)
        yield path
    except JournalError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    finally:
        unlock(held_lock)


def fail(words: str) -> None:
    click.echo(f"holdfast journal: {words}", err=True)
    sys.exit(1)


FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))


@journal.command()
@FOLDER
def check(folder: Path) -> None:
    """Read everything and say whether a node could start with it. The exit code is 0 if it could."""
    with held(folder) as path:
        health = inspect.check(path)
        click.echo(f"{health.files} files, {health.size} bytes, {health.batches} batches are good")
        if health.cut is not None:
            cut = health.cut
            click.echo(f"the last {cut.size} bytes of {cut.path}, from byte {cut.position} on, were not completely "
                       "written; the next start cuts them off")
        if health.error:
            fail(health.error)


@journal.command()
@FOLDER
def repair(folder: Path) -> None:
    """Leave out what is damaged, so that a node can start with the rest. The damaged files are kept."""
    with held(folder) as path:
        done = inspect.repair(path, Disk())
        for words in done:
            click.echo(words)
        if not done:
            click.echo("nothing had to be repaired")


@journal.command()
@FOLDER
def dump(folder: Path) -> None:
    """Print every record, one a line: where it is, when it was written, what it is."""
    with held(folder) as path:
        for entry in inspect.entries(path):
            click.echo(entry.words())


@journal.command()
@FOLDER
def stats(folder: Path) -> None:
    """Count the records by kind."""
    with held(folder) as path:
        found = inspect.stats(path)
        click.echo(f"{'record':<10}{'count':>12}{'bytes':>14}")
        for name, count in found.counts.most_common():
            click.echo(f"{name:<10}{count:>12}{found.sizes[name]:>14}")
        click.echo(f"{'in all':<10}{found.counts.total():>12}{found.size:>14}")
