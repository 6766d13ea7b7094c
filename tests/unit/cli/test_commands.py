"""The command line as a whole: one way to say where, help with examples everywhere, words for who mistyped."""
from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.groups import MEANT
from holdfast.cli.main import SECTIONS, main
from holdfast.cli.where import VARIABLE

RUN = CliRunner()
SPEAK_TO_NO_NODE = {"up", "node", "worker", "journal", "secret", "users", "promote", "completion", "help", "pipeline"}
"""They start something, look into files, or name both ends themselves; a worker's place is that of its app."""


def walk(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            under = command.get_command(context, name)
            assert under is not None
            yield from walk(under, *path, name)


ALL = list(walk(main))
LEAVES = [(path, command) for path, command in ALL if not isinstance(command, click.Group)]


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_each_command_has_examples_of_itself(path: tuple[str, ...], command: click.Command) -> None:
    shown = RUN.invoke(main, [*path, "--help"]).stdout
    examples = shown.partition("Examples:\n")[2]
    assert f"holdfast {' '.join(path)}" in examples, shown


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_where_is_said_the_same_way_everywhere(path: tuple[str, ...], command: click.Command) -> None:
    options = {name: each for each in command.params if isinstance(each, click.Option) for name in each.opts}
    shown = [name for name, each in options.items() if not each.hidden]
    assert not {"--url", "--host", "--unix"} & set(shown)
    if path[0] in SPEAK_TO_NO_NODE:
        return
    where = options["--connect"]
    assert (where.metavar, where.envvar) == ("URL|HOST:PORT", VARIABLE)


def test_a_list_of_commands_says_what_each_says_of_itself() -> None:
    """It is made without loading them, so the two could grow apart."""
    shown = RUN.invoke(main, ["--help"]).stdout
    for title, places in SECTIONS.items():
        assert f"\n{title}:\n" in shown
        for name, place in places.items():
            assert f"  {name} " in shown and len(place.about) <= 60 and place.about.endswith(".")
            command = main.get_command(click.Context(main), name)
            assert command is not None and command.help, name


@pytest.mark.parametrize(("typed", "meant"), [
    (["queus"], "queues"), (["canel"], "cancel"), (["retry"], "dead retry"), (["nodes"], "cluster nodes"),
    (["cluster", "forgt"], "cluster forget"), (["dead", "lst"], "dead list"), (["unpause"], "resume"),
    (["limits"], "limit list"), (["QUEUES"], "queues"),
])
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(typed: list[str], meant: str) -> None:
    answer = RUN.invoke(main, typed, prog_name="holdfast")
    assert answer.exit_code == 2
    assert f"there is no command '{typed[-1]}'; did you mean `holdfast {meant}`?" in answer.stderr


def test_what_other_tools_call_it_leads_to_a_command_that_there_is() -> None:
    known = {" ".join(path) for path, _ in ALL}
    assert set(MEANT.values()) <= known
    assert not set(MEANT) & {path[0] for path, _ in ALL if path}


def test_what_is_like_no_command_is_not_guessed() -> None:
    answer = RUN.invoke(main, ["xyzzy"])
    assert answer.exit_code == 2 and "there is no command 'xyzzy'\n" in answer.stderr


def test_a_mistyped_option_is_answered_with_the_one_that_was_meant() -> None:
    answer = RUN.invoke(main, ["queues", "--conect", "x"])
    assert answer.exit_code == 2 and "--connect" in answer.stderr


def test_help_is_a_command_too() -> None:
    assert RUN.invoke(main, ["help", "dead", "retry"]).stdout == RUN.invoke(
        main, ["dead", "retry", "--help"], prog_name="holdfast").stdout
