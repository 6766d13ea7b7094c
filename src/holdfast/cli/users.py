"""holdfast users: the file that says who may connect to a node or a gateway, and what they may do there."""
from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path

import click

from holdfast.cli.common import json_option, show
from holdfast.cli.groups import Group, examples
from holdfast.core.rights import ROLE_NAMES
from holdfast.core.users import names_of
from holdfast.journal.identity import write_whole
from holdfast.shell.logins import NAME, SECRET_CHARS_MIN, hash_secret, read_users
from holdfast.shell.settings import SettingsError

EXAMPLES = """
\b
Examples:
  holdfast users add admin --role admin                      makes a secret and shows it, once
  holdfast users add shop --role produce --queue 'orders.*'
  holdfast users add mailer --role consume --queue mail --secret-stdin < secret
  holdfast users add shop --role produce --replace           a new secret for it, and other rights
  holdfast node --users-file users.toml --bind 0.0.0.0       then: AUTH shop <secret>
  holdfast users list

A running node reads the file again on SIGHUP.
"""

OF_USERS = {"user": "name", "roles": "roles", "queues": "queues"}
FILE = click.option("--file", "path", type=click.Path(path_type=Path), default=Path("users.toml"), show_default=True,
                    help="The file of users.")


@click.group(cls=Group, epilog=EXAMPLES)
def users() -> None:
    """Say who may connect.

    Users, their roles and queues, with hashed secrets.
    """


def fail(words: str) -> None:
    click.echo(f"holdfast users: {words}", err=True)
    sys.exit(1)


def entries(path: Path) -> dict[str, dict[str, object]]:
    """What is in the file, checked; nothing if there is none yet."""
    if not path.exists():
        return {}
    try:
        found, _ = read_users(path)
    except SettingsError as error:
        fail(str(error))
    import tomllib

    table: dict[str, dict[str, object]] = tomllib.loads(path.read_text("utf-8"))["users"]
    assert {name.encode() for name in table} == set(found)
    return table


def save(path: Path, table: dict[str, dict[str, object]]) -> None:
    lines = ["# Who may connect. Written by `holdfast users`; secrets are hashed."]
    for name in sorted(table):
        lines += ["", f"[users.{json.dumps(name)}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in table[name].items()]
    write_whole(path, "\n".join(lines) + "\n")


@users.command(epilog=examples(
    "holdfast users add shop --role produce --queue 'orders.*'",
    "holdfast users add mailer --role consume --queue mail --secret-stdin < secret",
))
@click.argument("name")
@click.option("--role", "roles", multiple=True, required=True, type=click.Choice([r.decode() for r in ROLE_NAMES]),
              help="What the user may do; repeatable.")
@click.option("--queue", "queues", multiple=True, help="A queue it may touch, or a pattern; repeatable. All, if none.")
@click.option("--secret-stdin", is_flag=True, help="Read the secret from standard input in place of making one.")
@click.option("--replace", is_flag=True, help="NAME may be there already: its secret, roles and queues are these now.")
@FILE
def add(
    name: str, roles: tuple[str, ...], queues: tuple[str, ...], secret_stdin: bool, replace: bool, path: Path
) -> None:
    """Add the user NAME."""
    if NAME.fullmatch(name) is None:
        fail("a name is made of letters, digits and . _ @ -, at most 64 of them")
    table = entries(path)
    is_new = name not in table
    if not is_new and not replace:
        fail(f"there is a user '{name}' in {path}; with --replace its secret, roles and queues are others")
    secret = sys.stdin.readline().rstrip("\r\n") if secret_stdin else secrets.token_urlsafe(24)
    if len(secret) < SECRET_CHARS_MIN:
        fail(f"a secret has at least {SECRET_CHARS_MIN} characters")
    table[name] = {"secret": hash_secret(secret), "roles": list(roles), **({"queues": list(queues)} if queues else {})}
    save(path, table)
    click.echo(f"{'added' if is_new else 'replaced'} {name} in {path}", err=True)
    if not secret_stdin:
        click.echo("the secret, which is not shown again:", err=True)
        click.echo(secret)


@users.command(epilog=examples("holdfast users remove shop"))
@click.argument("name")
@FILE
def remove(name: str, path: Path) -> None:
    """Remove the user NAME."""
    table = entries(path)
    if name not in table:
        fail(f"there is no user '{name}' in {path}")
    del table[name]
    if not table:
        fail("that is the last one; nobody could connect. Remove the file, and the node's users-file, in its place")
    save(path, table)
    click.echo(f"removed {name} from {path}", err=True)


@users.command(name="list", epilog=examples(
    "holdfast users list",
    "holdfast users list --file /etc/holdfast/users.toml --json",
))
@json_option
@FILE
def list_(as_json: bool, path: Path) -> None:
    """Show who is in the file."""
    if not path.exists():
        fail(f"there is no file {path}")
    entries(path)
    found, _ = read_users(path)
    rows = [
        {"name": user.name.decode(), "roles": [role.decode() for role in names_of(user.roles)],
         "queues": [pattern.decode() for pattern in user.patterns] or ["*"]}
        for user in found.values()
    ]
    for_people = [{**row, "roles": ", ".join(row["roles"]), "queues": ", ".join(row["queues"])} for row in rows]
    show(rows if as_json else for_people, OF_USERS, as_json, "there is no user")
