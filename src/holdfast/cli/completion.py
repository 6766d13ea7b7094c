"""holdfast completion: what a shell needs to complete commands and options with the Tab key."""
from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_HOLDFAST_COMPLETE"
"""Through which the shell's function asks; click reads it before anything else."""
SHELLS = ("bash", "zsh", "fish")

EPILOG = """
\b
Examples:
  source <(holdfast completion bash)                                       for this shell
  holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast
  holdfast completion zsh > ~/.zfunc/_holdfast                             a folder of your fpath
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion of commands and options for SHELL."""
    from holdfast.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "holdfast", VARIABLE).source())
