"""Where the nodes are: one option and one variable for every command, `--connect URL|HOST:PORT` and HOLDFAST_URL.

What commands used to have for it stays as hidden aliases: `-h`, `-p` and `--unix` of `holdfast cli` and `bench`, and
`--url` of `holdfast worker`.
"""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT: Final = "holdfast://127.0.0.1:7711"
VARIABLE: Final = "HOLDFAST_URL"
SECRET: Final = "HOLDFAST_SECRET"
METAVAR: Final = "URL|HOST:PORT"
ABOUT: Final = "A node, several with commas, or a gateway. The secret of its user may be in HOLDFAST_SECRET."


def connect_option(words: str = ABOUT, name: str = "connect") -> Callable[[F], F]:
    """`--connect`; the command gets a url, as the argument `name`."""
    return click.option(
        "--connect", name, default=DEFAULT, show_default=True, metavar=METAVAR, envvar=VARIABLE, show_envvar=True,
        callback=as_url, help=words,
    )


def as_url(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """What was said as a url, with the secret for its user."""
    if not value:
        return value
    from holdfast.doors import url_of

    return with_secret(url_of(value), os.environ.get(SECRET, ""))


def with_secret(url: str, secret: str) -> str:
    """The url with the secret for its user."""
    scheme, separator, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    if not secret or not separator or ":" in login:
        return url
    from urllib.parse import quote

    return f"{scheme}://{login}:{quote(secret, safe='')}@{place if at else rest}"


def node_options(command: F) -> F:
    """`--connect` of what speaks to a node itself, and its aliases as redis-cli has them; read them with `node_at`."""
    options = (
        connect_option("A node: holdfast://host:port, holdfasts:// with TLS, unix:///path; several with commas."),
        click.option("-h", "--host", default="", hidden=True),
        click.option("-p", "--port", default=0, type=click.IntRange(0, 65535), hidden=True),
        click.option("--unix", "path", default="", hidden=True),
    )
    for option in options:
        command = option(command)
    return command


def node_at(connect: str, host: str, port: int, path: str) -> str:
    """The url that the options of `node_options` say; an alias wins over the variable and the default."""
    if path:
        return f"unix://{os.path.abspath(path)}"
    if not host and not port:
        return connect
    host = host or "127.0.0.1"
    return f"holdfast://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port or 7711}"
