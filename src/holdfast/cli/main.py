"""The command line: what commands there are and where each is. A call loads the one it is for, and no other."""
from __future__ import annotations

import click

from holdfast import form
from holdfast.cli.groups import Lazy, Place
from holdfast.core.version import VERSION

SECTIONS = {
    "Run Holdfast": {
        "up": Place("up", "up", "Run a whole Holdfast on this machine."),
        "node": Place("node", "node", "Run a node in the foreground."),
        "gateway": Place("gateway", "gateway", "Open HTTP, gRPC and the console before nodes."),
        "worker": Place("worker", "worker", "Run the tasks of an app."),
        "pipeline": Place("pipeline_jobs", "pipeline", "Run the data pipeline, on Spark."),
    },
    "Look": {
        "queues": Place("look", "queues", "Show queues with their figures."),
        "jobs": Place("look", "jobs", "List the jobs of all nodes."),
        "show": Place("look", "show_job", "Show everything a node knows about a job."),
        "explain": Place("look", "explain", "Say why a job is not running, or ran twice."),
        "peek": Place("look", "peek", "Show the next jobs of a queue, and take none."),
        "workers": Place("look", "workers", "List the workers and what they do."),
        "top": Place("top", "top", "Watch queues and nodes, live."),
        "doctor": Place("doctor", "doctor", "Say what is wrong, and what to do about it."),
        "health": Place("cluster", "health", "Exit with 0 if a node answers."),
    },
    "Handle jobs": {
        "add": Place("handle", "add", "Add a job to a queue."),
        "take": Place("handle", "take", "Take jobs."),
        "ack": Place("handle", "ack", "Acknowledge jobs: their work is done."),
        "cancel": Place("change", "cancel", "Call jobs off."),
        "delete": Place("change", "delete", "Delete jobs, whatever they are doing."),
        "move": Place("change", "move", "Put waiting jobs into another queue."),
        "prioritize": Place("change", "prioritize", "Give waiting jobs another priority."),
        "run-now": Place("change", "run_now", "End the wait of delayed and retrying jobs."),
        "dead": Place("dead", "dead", "List, retry and delete dead jobs."),
        "cron": Place("cron", "cron", "Add jobs by the clock."),
    },
    "Rule queues": {
        "pause": Place("rule", "pause", "Stop a queue for producers, workers or both."),
        "resume": Place("rule", "resume", "Let a paused queue go on."),
        "settings": Place("rule", "settings", "Show and change the settings of a queue."),
        "flush": Place("rule", "flush", "Delete all jobs of a queue."),
        "limit": Place("rule", "limit", "Limit the rate of a domain."),
        "tenant": Place("rule", "tenant", "Share a queue among tenants by weight."),
    },
    "Look after the cluster": {
        "cluster": Place("cluster", "cluster", "List nodes; forget, meet and leave."),
        "users": Place("users", "users", "Say who may connect."),
        "secret": Place("secret", "secret", "Make the cluster's secret, and change it."),
        "journal": Place("journal", "journal", "Look at the journal of a stopped node; mend it."),
        "promote": Place("promote", "promote", "Move all pending jobs from a folder to a node."),
    },
    "Tools": {
        "cli": Place("prompt", "cli", "Send commands to a node, by hand or from a file."),
        "bench": Place("bench", "bench", "Drive a node with jobs and measure it."),
        "completion": Place("completion", "completion", "Complete commands with the Tab key."),
        "help": Place("main", "help_", "Show the help of a command."),
    },
}

EPILOG = """\b
Where the nodes are is said the same way everywhere: --connect holdfast://10.0.0.1,10.0.0.2 or --connect 10.0.0.1:7711,
or once in the variable HOLDFAST_URL. Each command has examples: holdfast COMMAND --help
"""


def version(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        click.echo(f"holdfast {VERSION} ({form.name()})")  # which form it is takes loading the machine
        ctx.exit()


@click.group(cls=Lazy, sections=SECTIONS, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=version,
              help="Show the version and exit.")
def main() -> None:
    """Holdfast: a job queue that does not let go."""


@click.command("help", epilog="""\b
Examples:
  holdfast help
  holdfast help dead retry
""")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
def help_(words: tuple[str, ...]) -> None:
    """Show the help of a command."""
    main([*words, "--help"], prog_name="holdfast")
