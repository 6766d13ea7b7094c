"""`holdfast cli`: talk to a node by hand.

Three ways in, one way of sending:

    holdfast cli                         a prompt, with history, completion and help from the command table
    holdfast cli qlen emails             one command; its answer on standard output
    holdfast cli < commands.txt          one command per line

Answers look as in redis-cli: with types on a terminal, bare values in a pipe, JSON with --json. The exit
code is 0, 1 if a command was answered with an error, 2 if the node could not be reached or did not answer.

`help` and `help addjob` explain the commands, `exit` and `quit` leave, in all three.

Everything the prompt knows about commands comes from the node's own table through `command_table` below.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.common import fail
from holdfast.cli.where import node_at, node_options
from holdfast.client import errors, text
from holdfast.client.asks import give_back
from holdfast.client.connection import Connection
from holdfast.client.plain import PlainReader
from holdfast.client.resp import Argv, Reply, to_bytes, to_text
from holdfast.client.target import Target
from holdfast.doors import nodes_at

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History

OK: Final = 0
ERROR_REPLY: Final = 1
NOT_REACHED: Final = 2

HELP: Final = ("HELP", "?")
LEAVE: Final = ("exit", "quit")

AS_IT_IS: Final = {"INFO", "CLUSTER NODES", "CLUSTER INFO", "CLIENT LIST", "CLIENT INFO", "LATENCY DOCTOR",
                   "LATENCY GRAPH", "DISQUE INFO"}  # fmt: skip
"""Commands whose answer is a page of text, shown as such on a terminal."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A command as the prompt shows it."""

    name: str
    syntax: str
    summary: str
    group: str

    @property
    def usage(self) -> str:
        return f"{self.name} {self.syntax}".rstrip()

    def words(self) -> list[str]:
        """What can be typed after the name: options in capitals, and alternatives such as in|out."""
        found = re.findall(r"\b[A-Z][A-Z0-9-]+\b|[a-z]+(?=\|)|(?<=\|)[a-z]+", self.syntax)
        return list(dict.fromkeys(found))


def command_table() -> dict[str, Spec]:
    """The one place that knows where the commands are described."""
    from holdfast.core.commands.table import COMMANDS

    specs = (Spec(to_text(each.name), each.syntax, each.summary, each.group) for each in COMMANDS)
    return {spec.name: spec for spec in specs}


@click.command(
    "cli",
    context_settings={
        "allow_interspersed_args": False,
        "ignore_unknown_options": True,
        "help_option_names": ["--help"],  # -h is the host, as in redis-cli.
    },
    epilog="\b\nExamples:\n"
    "  holdfast cli                                               a prompt\n"
    "  holdfast cli --connect 10.0.0.1:7712 addjob emails hi 0    one command\n"
    "  holdfast cli --json qstat emails                           for scripts\n"
    "  holdfast cli getjob nohang from emails | cat\n"
    "  printf 'ping\\nqlen emails\\n' | holdfast cli                many commands",
)
@node_options
@click.option("-a", "--password", default="", envvar="HOLDFASTCLI_AUTH",
              help="Its password. Better in the variable HOLDFASTCLI_AUTH: others can see a command line.")
@click.option("--resp3", is_flag=True, help="Speak RESP3: maps, sets and numbers keep their types.")
@click.option("--json", "as_json", is_flag=True, help="Print answers as JSON.")
@click.option("--raw/--no-raw", default=None, help="Bare values, or types; otherwise bare in a pipe only.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def cli(
    connect: str, host: str, port: int, path: str, password: str, resp3: bool, as_json: bool, raw: bool | None,
    words: tuple[str, ...],
) -> None:
    """Send commands to a node, by hand or from a file.

    A prompt, or with WORDS one command.
    """
    target = replace(the_node(node_at(connect, host, port, path), password), resp3=resp3)
    is_raw = raw if raw is not None else not sys.stdout.isatty()
    line = Line(target, "json" if as_json else "raw" if is_raw else "terminal")
    if words:
        code = line.run([to_bytes(word) for word in words])
    elif not sys.stdin.isatty():
        code = line.run_all(sys.stdin.buffer)
    else:
        code = interactive(line)
    line.close()
    sys.exit(code)


def the_node(url: str, password: str) -> Target:
    """The first node of a url that can be reached; the last is taken as it is, and says why not."""
    try:
        found = nodes_at(url)
    except errors.BadRequest as error:
        fail(error.text, 2)
    if password:
        found = [replace(each, password=password) for each in found]
    for each in found[:-1]:
        with contextlib.suppress(errors.Error):
            Connection(each, PlainReader(errors.from_reply, exact=True)).close()
            return each
    return found[-1]


class Line:
    """The line to the node: connects when it must, sends, prints. Its `run` answers with an exit code."""

    def __init__(self, target: Target, form: str = "terminal") -> None:
        self.target = target
        self.form = form
        self._connection: Connection | None = None

    def run_all(self, lines: Iterable[bytes]) -> int:
        """Commands from a file or a pipe. The worst exit code of all; stops when the node is gone."""
        worst = OK
        for line in lines:
            if to_text(line).strip().lower() in LEAVE:
                break
            code = self.run_line(to_text(line))
            if code == NOT_REACHED:
                return code
            worst = max(worst, code)
        return worst

    def run_line(self, line: str) -> int:
        try:
            words = text.split(line)
        except errors.BadRequest as error:
            self._complain(error.text)
            return ERROR_REPLY
        return self.run(words) if words else OK

    def run(self, words: list[bytes]) -> int:
        """Send one command and print what comes back. Help is ours: no node is needed for it."""
        name = to_text(words[0]).upper()
        if name in HELP:
            return self._help(to_text(words[1]) if len(words) > 1 else "")
        if name == "EXIT":
            return OK
        try:
            connection = self.connect()
            reply = connection.call(words, None, give_back if name == "GETJOB" else None)
            self._learn(name, words, reply)
            self._print(reply, words)
            if name == "MONITOR" and not isinstance(reply, errors.Error):
                self._stream(connection)
        except errors.Unknown as error:
            self.close()
            if name == "SHUTDOWN":
                return OK  # A node that stops closes the connection in place of an answer.
            self._complain(error.text)
            return NOT_REACHED
        except errors.Unreachable as error:
            self._complain(self.advice(error))
            return NOT_REACHED
        except errors.Error as error:  # The node does not want us: a wrong password, too many clients.
            self._print(error, words)
            return ERROR_REPLY
        return ERROR_REPLY if isinstance(reply, errors.Error) else OK

    def _help(self, name: str) -> int:
        table = command_table()
        is_there = not name or name.upper() in table
        click.echo(help_text(table, name), err=not is_there)
        return OK if is_there else ERROR_REPLY

    def connect(self) -> Connection:
        """The connection, made anew if there is none or the old one is gone."""
        if self._connection is None or self._connection.is_stale():
            self.close()
            self._connection = Connection(self.target, PlainReader(errors.from_reply, exact=True))
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def advice(self, error: errors.Error) -> str:
        if self.target.path:
            return f"{error.text}. Is a node running with that Unix socket?"
        return (
            f"{error.text}. Start a node with `holdfast node --port {self.target.port}`, "
            "or say where one is: --connect HOST:PORT."
        )

    def _learn(self, name: str, words: list[bytes], reply: Reply) -> None:
        """Remember what was agreed on by hand, for the next time we connect."""
        if isinstance(reply, errors.Error):
            return
        if name == "AUTH" and len(words) in (2, 3):
            user = to_text(words[1]) if len(words) == 3 else ""
            self.target = replace(self.target, user=user, password=to_text(words[-1]))
        elif name == "HELLO" and len(words) > 1:
            self.target = replace(self.target, resp3=words[1] == b"3")

    def _stream(self, connection: Connection) -> None:
        """MONITOR: print whatever comes, until Ctrl-C."""
        try:
            while True:
                self._print(connection.receive(), [])
        except KeyboardInterrupt:
            self.close()  # There is no other way out of MONITOR.

    def _print(self, reply: Reply, words: Argv) -> None:
        if self.form == "json":
            click.echo(text.to_json(reply))
        elif self.form == "raw":
            click.echo(text.raw(reply))
        elif isinstance(reply, bytes) and is_page(words):
            click.echo("\n".join(map(text.visible, to_text(reply).splitlines())))
        else:
            click.echo(text.for_terminal(reply))

    def _complain(self, sentence: str) -> None:
        click.echo(sentence[:1].upper() + sentence[1:], err=True)


def is_page(words: Argv) -> bool:
    """Is the answer to this command a page of text?"""
    names = [to_text(to_bytes(word)).upper() for word in words[:2]]
    return " ".join(names[:1]) in AS_IT_IS or " ".join(names) in AS_IT_IS


# -- the prompt ----------------------------------------------------------------------------------------------


def interactive(line: Line) -> int:
    """Read, send, print, until exit or Ctrl-D. A command that waits ends with Ctrl-C."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory

    table = command_table()
    try:
        line.connect()
    except errors.Unreachable as error:
        click.echo(line.advice(error), err=True)
    except errors.Error as error:
        click.echo(str(error), err=True)
    session: PromptSession[str] = PromptSession(
        history=history(),
        completer=completer(table),
        auto_suggest=AutoSuggestFromHistory(),
        complete_while_typing=False,
        bottom_toolbar=lambda: toolbar(table, session.default_buffer.text),
    )
    while True:
        try:
            typed = session.prompt(f"{line.target}> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return OK
        if typed.lower() in LEAVE:
            return OK
        try:
            line.run_line(typed)
        except KeyboardInterrupt:
            click.echo("(interrupted)")


def help_text(table: dict[str, Spec], name: str) -> str:
    """`help` lists the commands; `help addjob` explains one."""
    if name:
        spec = table.get(name.split()[0].upper())
        if spec is None:
            return f"There is no command {name.split()[0].upper()}. `help` alone lists them all."
        explained = manual(spec.name) or spec.summary
        return f"\n  {spec.usage}\n\n{textwrap.indent(explained, '  ')}\n\n  group: {spec.group}\n"
    width = max(map(len, table))
    groups: dict[str, list[str]] = {}
    for spec in table.values():
        groups.setdefault(spec.group, []).append(f"    {spec.name:<{width}}  {spec.summary}")
    lists = "\n\n".join(f"  {group}\n" + "\n".join(lines) for group, lines in groups.items())
    return f"\n{lists}\n\n  `help NAME` shows a command's options; Tab completes; Ctrl-D leaves.\n"


def manual(name: str) -> str:
    """The long text of a command: its function's docstring, read from the source, since compiled functions do
    not keep theirs. Empty where the source is not installed."""
    from holdfast.core import commands

    folder = Path(commands.__file__).parent
    try:
        rows = ast.walk(ast.parse((folder / "table.py").read_text("utf-8")))
        calls = (each for each in rows if isinstance(each, ast.Call) and ast.unparse(each.func) == "Command")
        handler = next(ast.unparse(each.args[-1]) for each in calls if ast.literal_eval(each.args[0]) == name)
        module, _, function = handler.partition(".")
        source = ast.parse((folder / f"{module}.py").read_text("utf-8"))
    except (OSError, StopIteration, SyntaxError, ValueError):
        return ""
    for node in source.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node) or ""
    return ""


def toolbar(table: dict[str, Spec], typed: str) -> str:
    """What the line at the bottom says while a command is being typed."""
    words = typed.split(maxsplit=1)
    spec = table.get(words[0].upper()) if words else None
    if spec is not None:
        return f" {spec.usage}\n {spec.summary}"
    return " help: the commands   Tab: complete   Ctrl-C: stop waiting   Ctrl-D: leave"


def suggestions(table: dict[str, Spec], typed: str) -> Iterator[tuple[str, str]]:
    """Words that may come where the cursor is, each with a note. In the case the user types in."""
    before, _, word = typed.rpartition(" ")
    given = before.split()
    if not given:
        choices = {name: spec.summary for name, spec in table.items()}
        choices |= {"HELP": "The commands, or one of them.", "EXIT": "Leave."}
    elif given[0].upper() == "HELP":
        choices = {name: spec.summary for name, spec in table.items()} if len(given) == 1 else {}
    elif [each.upper() for each in given] in (["CONFIG", "GET"], ["CONFIG", "SET"]):
        choices = settings()
    else:
        spec = table.get(given[0].upper())
        taken = {each.upper() for each in given}
        choices = {} if spec is None else {each: "" for each in spec.words() if each.upper() not in taken}
    is_lower = word.islower() or (not word and before.islower())
    for choice, note in choices.items():
        if choice.upper().startswith(word.upper()):
            yield choice.lower() if is_lower else choice, note


def settings() -> dict[str, str]:
    """Names of settings, with a sentence each."""
    from holdfast.core.config import SETTINGS

    return {setting.name: setting.about for setting in SETTINGS}


def completer(table: dict[str, Spec]) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Words(Completer):
        def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
            typed = document.text_before_cursor.lstrip()
            back = -len(typed.rpartition(" ")[2])
            for word, note in suggestions(table, typed):
                yield Completion(word, start_position=back, display_meta=note)

    return Words()


def history() -> History:
    """Kept in the user's state folder; without secrets. In memory where that folder can't be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Discreet(FileHistory):
        def store_string(self, string: str) -> None:
            if not is_secret(string):
                super().store_string(string)

    try:
        path = history_path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return Discreet(str(path))


def history_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "holdfast" / "cli-history"


def is_secret(line: str) -> bool:
    """Does it carry a password?"""
    words = line.lower().split()
    return "auth" in words or any("requirepass" in word for word in words)
