"""holdfast secret: the file with what the nodes of a cluster know of each other."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from holdfast.cli.groups import Group, examples
from holdfast.journal.folder import JournalError
from holdfast.journal.identity import write_whole
from holdfast.shell import cluster_secret
from holdfast.shell.cluster_secret import BadSecret, new_secret

EXAMPLES = """
\b
Examples:
  holdfast secret new cluster-secret            then: holdfast node --cluster-secret-file cluster-secret
  holdfast secret rotate cluster-secret         a new one, and the old one stays valid
  holdfast secret retire cluster-secret         the old one is valid no longer
  holdfast secret check cluster-secret          says what is in it; exits with 1 if a node could not use it

A running node reads the file again on SIGHUP.
"""

FILE = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))


@click.group(cls=Group, epilog=EXAMPLES)
def secret() -> None:
    """Make the cluster's secret, and change it.

    Nodes that have the same secret join each other. It can be changed while they run.
    """


def fail(words: str) -> NoReturn:
    click.echo(f"holdfast secret: {words}", err=True)
    sys.exit(1)


def secrets_in(path: Path) -> list[str]:
    try:
        return [line.decode("utf-8", "surrogateescape") for line in cluster_secret.read_file(str(path))]
    except BadSecret as error:
        fail(str(error))


def save(path: Path, secrets: list[str]) -> None:
    """With the owner and mode that the file has: nodes of another user may read it by its group."""
    text = "\n".join(secrets) + "\n"
    try:
        before = path.stat()
        write_whole(path, text)
        os.chmod(path, before.st_mode & 0o7777)
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(path, before.st_uid, before.st_gid)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
    except JournalError as error:
        fail(str(error))


@secret.command(epilog=examples("holdfast secret new cluster-secret"))
@FILE
def new(path: Path) -> None:
    """Make FILE with a secret of 32 random bytes.

    For its owner alone (mode 0600). A file that is there stays as it is.
    """
    try:
        if not cluster_secret.write_new(path, [new_secret().encode()]):
            fail(f"there is a file {path}; `holdfast secret rotate` puts a new secret into it")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
    click.echo(f"made {path}; bring it to each node, and keep it from others", err=True)


@secret.command(epilog=examples("holdfast secret rotate cluster-secret"))
@FILE
def rotate(path: Path) -> None:
    """Put a new secret into FILE, before the one that is there.

    Both are valid then. Bring the file to each node, send each node a SIGHUP, and retire the old one.
    """
    found = secrets_in(path)
    if len(found) >= cluster_secret.SECRETS_MAX:
        fail(f"{path} has two secrets already: `holdfast secret retire` first, when all nodes have both")
    save(path, [new_secret(), *found])
    click.echo(f"{path} has a new secret and the old one; bring it to each node, then SIGHUP", err=True)


@secret.command(epilog=examples("holdfast secret retire cluster-secret"))
@FILE
def retire(path: Path) -> None:
    """Take the older of the two secrets out of FILE.

    Only when every node has both: links under the old one end when a node reads this file.
    """
    found = secrets_in(path)
    if len(found) == 1:
        fail(f"{path} has one secret alone: there is none to retire")
    save(path, found[:1])
    click.echo(f"{path} has the newer secret alone; bring it to each node, then SIGHUP", err=True)


@secret.command(epilog=examples("holdfast secret check cluster-secret"))
@FILE
def check(path: Path) -> None:
    """Say whether a node could use FILE, and what is in it.

    Shows no secret. Exits with 1 if a node could not use it.
    """
    found = secrets_in(path)
    mode = path.stat().st_mode & 0o777
    if mode & 0o007:
        fail(f"{path} can be read by everybody on this machine (mode {mode:04o}): chmod 0600 {path}")
    made = [cluster_secret.KEY.fullmatch(each.encode("utf-8", "surrogateescape")) is not None for each in found]
    kinds = ["32 random bytes" if is_made else "a text, hashed slowly when it is read" for is_made in made]
    for number, kind in enumerate(kinds, 1):
        click.echo(f"{number}. {kind}{' (the older one)' if number > 1 else ''}")
