"""holdfast journal: look at the journal in a folder, and mend it. The node must not be running, but for old files."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.groups import Group, examples
from holdfast.journal import inspect, old, own
from holdfast.journal.disk import Disk
from holdfast.journal.folder import NAME, JournalError
from holdfast.journal.lock import InUse, lock, unlock


@click.group(cls=Group)
def journal() -> None:
    """Look at the journal of a stopped node; mend it.

    DIR is the folder that the node was given by --dir; journals that queues have for themselves are looked at, too.
    Or it is the folder of one journal in it; for dump and stats also the folder `old` of that, with what rewrites have
    replaced and `journal-keep-bytes` keeps, and then the node may run.
    """


@contextlib.contextmanager
def held(folder: Path, old_too: bool = False, to_read: bool = True) -> Iterator[list[Path]]:
    """The journals in a folder, that of the node first, for us alone.

    What is old nobody writes to any more, so it may be looked at while a node runs; no node starts with it, so there is
    nothing to check or to mend.
    """
    folder = folder.absolute()
    if folder.name == old.NAME:
        if not old_too:
            fail(f"no node starts with what is in {folder}: `holdfast journal dump` and `stats` show it")
        if not old.files(folder.parent):
            fail(f"there is no file of a journal in {folder}")
        with in_words(folder):
            yield [folder]
        return
    path = folder / NAME
    paths: list[Path] = []
    root = folder
    if folder.name == NAME:
        path, root = folder, folder.parent
    elif folder.parent.name == own.NAME:
        path, root, paths = folder, folder.parent.parent, [folder]
    if not path.is_dir():
        fail(f"there is no journal in {folder}")
    with in_words(path):
        try:
            held_lock = lock(root, to_read)
        except InUse:
            raise JournalError(f"{root} is in use: stop the node, or the program that has opened it, first") from None
        try:
            yield paths or [path, *inspect.own_folders(path)]
        finally:
            unlock(held_lock)


@contextlib.contextmanager
def in_words(path: Path) -> Iterator[None]:
    """What goes wrong is said, and ends the program."""
    try:
        yield
    except JournalError as error:
        fail(str(error))
    except BrokenPipeError:
        raise  # whoever reads what we print has seen enough
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror}")


def fail(words: str) -> None:
    click.echo(f"holdfast journal: {words}", err=True)
    sys.exit(1)


NEXT = """\
Next:
1. Start the node with this folder. In a cluster it asks all other nodes about each job before it hands one out.
2. Jobs with RETRY 0 that may have been handed out in what is missing are dead, with the cause `in doubt`. See
   `holdfast dead list --cause 'in doubt'`: `holdfast dead retry` those that may run again, delete the others.
3. Look at the disk (smartctl, dmesg). When all is well, remove the files that end in .damaged."""

FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))


@journal.command(epilog=examples("holdfast journal check ./data"))
@FOLDER
def check(folder: Path) -> None:
    """Read everything and say whether a node could start with it. The exit code is 0 if it could."""
    with held(folder) as paths:
        found = [inspect.check(path) for path in paths]
        files, size, batches = (sum(each) for each in zip(*((each.files, each.size, each.batches) for each in found)))
        if not any(each.files or each.error for each in found):
            click.echo(f"there is nothing in {paths[0]}: a node would start without jobs")
            return
        click.echo(f"{files} files, {size} bytes, {batches} batches are good")
        for cut in [each.cut for each in found if each.cut is not None]:
            click.echo(f"the last {cut.size} bytes of {cut.path}, from byte {cut.position} on, were not completely "
                       "written; the next start cuts them off")
        for health in found:
            if health.error:
                fail(health.error)


@journal.command(epilog=examples("holdfast journal repair ./data"))
@FOLDER
def repair(folder: Path) -> None:
    """Leave out what is damaged, so that a node can start with the rest. The damaged files are kept."""
    with held(folder, to_read=False) as paths:
        done = [words for path in paths for words in inspect.repair(path, Disk())]
        for words in done:
            click.echo(words)
        if not done:
            click.echo("nothing had to be repaired")
            return
        click.echo(NEXT)


@journal.command(epilog=examples(
    "holdfast journal dump ./data | less",
    "holdfast journal dump ./data/journal/old",
))
@FOLDER
def dump(folder: Path) -> None:
    """Print every record, one a line: where it is, when it was written, what it is."""
    with held(folder, old_too=True) as paths:
        for path in paths:
            for entry in inspect.entries(path):
                click.echo(entry.words())


@journal.command(epilog=examples("holdfast journal stats ./data"))
@FOLDER
def stats(folder: Path) -> None:
    """Count the records by kind, and say what is kept of what was replaced."""
    with held(folder, old_too=True) as paths:
        found = inspect.Stats()
        for path in paths:
            found.add(inspect.stats(path))
        click.echo(f"{'record':<12}{'count':>12}{'bytes':>14}")
        for name, count in found.counts.most_common():
            click.echo(f"{name:<12}{count:>12}{found.sizes[name]:>14}")
        click.echo(f"{'in all':<12}{found.counts.total():>12}{found.size:>14}")
        for path in paths:
            if kept := old.files(path):
                size = inspect.size_of(kept)
                click.echo(f"and in {path / old.NAME} {len(kept)} files of {size} bytes, replaced and kept")
