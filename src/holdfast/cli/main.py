"""The command line: one subcommand per file beside this one."""
from __future__ import annotations

import importlib

import click

from holdfast import form
from holdfast.core.version import VERSION

# Loaded when they are asked for, so that `holdfast node` does not wait for the prompt's libraries.
SUBCOMMANDS = {
    "up": ("holdfast.cli.up", "up"),
    "node": ("holdfast.cli.node", "node"),
    "worker": ("holdfast.cli.worker", "worker"),
    "promote": ("holdfast.cli.promote", "promote"),
    "queues": ("holdfast.cli.look", "queues"),
    "jobs": ("holdfast.cli.look", "jobs"),
    "show": ("holdfast.cli.look", "show_job"),
    "explain": ("holdfast.cli.look", "explain"),
    "add": ("holdfast.cli.handle", "add"),
    "take": ("holdfast.cli.handle", "take"),
    "ack": ("holdfast.cli.handle", "ack"),
    "dead": ("holdfast.cli.look", "dead"),
    "cron": ("holdfast.cli.look", "cron"),
    "cluster": ("holdfast.cli.look", "cluster"),
    "health": ("holdfast.cli.look", "health"),
    "top": ("holdfast.cli.top", "top"),
    "doctor": ("holdfast.cli.doctor", "doctor"),
    "cli": ("holdfast.cli.prompt", "cli"),
    "journal": ("holdfast.cli.journal", "journal"),
    "gateway": ("holdfast.cli.gateway", "gateway"),
    "users": ("holdfast.cli.users", "users"),
    "bench": ("holdfast.cli.bench", "bench"),
    "pipeline": ("holdfast.cli.pipeline_jobs", "pipeline"),
    "completion": ("holdfast.cli.completion", "completion"),
}


class Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module, name = SUBCOMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, "-V", "--version", message=f"holdfast %(version)s ({form.name()})")
def main() -> None:
    """Holdfast: a job queue that does not let go."""
