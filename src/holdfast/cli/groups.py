"""Groups of commands: one that loads a command when it is called, and words for somebody who mistyped its name."""
from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click

MEANT: Final = {
    "list": "queues", "ls": "queues", "stats": "queues", "stat": "queues", "qstat": "queues", "queue": "queues",
    "status": "doctor", "ps": "top", "nodes": "cluster nodes", "forget": "cluster forget", "leave": "cluster leave",
    "start": "up", "run": "run-now", "serve": "node", "server": "node", "http": "gateway", "web": "gateway",
    "console": "up", "retry": "dead retry", "revive": "dead retry", "requeue": "dead retry", "dlq": "dead list",
    "unpause": "resume", "stop": "pause", "config": "settings", "set": "settings", "get": "take", "pop": "take",
    "rm": "delete", "remove": "delete", "purge": "flush", "clear": "flush", "push": "add", "enqueue": "add",
    "send": "add", "done": "ack", "shell": "cli", "schedule": "cron", "limits": "limit list", "rate": "limit set",
    "domain": "limit", "priority": "prioritize", "why": "explain", "inspect": "show", "ping": "health",
    "expire": "delete", "kill": "cancel", "import": "pipeline import",
}
"""What other tools call it, and what it is called here."""


def examples(*lines: str) -> str:
    """The end of a help text."""
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines)


class Place(NamedTuple):
    """Where a command is, and its summary: a list of all of them loads none."""

    module: str
    name: str
    about: str


class Group(click.Group):
    """Says which command was perhaps meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not (ctx.resilient_parsing or word.startswith("-")) and self.get_command(ctx, word) is None:
            ctx.fail(self.unknown(ctx, word))
        return super().resolve_command(ctx, args)

    def unknown(self, ctx: click.Context, word: str) -> str:
        from holdfast.cli.common import nearest

        meant = self.meant(word) or nearest(word, self.list_commands(ctx))
        return f"there is no command '{word}'" + (f"; did you mean `{ctx.command_path} {meant}`?" if meant else "")

    def meant(self, word: str) -> str:
        return ""


class Lazy(Group):
    """The commands of SECTIONS, by title."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, Place]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections = sections
        self.places = {name: place for places in sections.values() for name, place in places.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self.places.get(cmd_name)
        if place is None:
            return None
        command = getattr(importlib.import_module(f"holdfast.cli.{place.module}"), place.name)
        assert isinstance(command, click.Command)
        return command

    def meant(self, word: str) -> str:
        return MEANT.get(word.lower(), "")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.places))
        for title, places in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), place.about) for name, place in places.items()])
