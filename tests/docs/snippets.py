"""Runs the snippets of one page, from top to bottom, as a reader would. `python snippets.py PAGE PORT`.

    ```python     All blocks of a page share one namespace. What a block prints must be what its comments
                  `# → …` say, line by line.
    ```console    `$ command` lines are run by bash on a terminal; the lines below one are what it must print.
    ```sh         For the reader to type; see test_snippets.py for what is checked about them.

In what is expected, `…` stands for anything on a line, a line `…` alone for any number of lines, and a job
id for any job id. Where a page says port 7711, or `holdfast cli` and means it, the node of the test is used.
"""
from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNABLE = ("python", "console")
JOB_ID = r"DI[0-9a-f]{44}SQ"
SHOWN_ID = re.compile(r"DI[0-9a-f…]+SQ")
PRINTS = re.compile(r"# → (.*)$", re.MULTILINE)
PORT = re.compile(r"\b7711\b")
CLIENT = re.compile(r"\bholdfast (cli|bench)\b(?! -p)")
COMMAND_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Block:
    kind: str
    text: str
    line: int


class Different(Exception):
    """A snippet does not do what the page says."""


def blocks(page: str) -> Iterator[Block]:
    for found in FENCE.finditer(page):
        yield Block(found.group(1), found.group(2), page.count("\n", 0, found.start()) + 2)


def pattern(expected: str) -> str:
    """One expected line as a regular expression."""
    pieces = []
    at = 0
    for found in re.finditer(f"{SHOWN_ID.pattern}|…", expected):
        pieces.append(re.escape(expected[at:found.start()]))
        pieces.append(".*" if found.group() == "…" else JOB_ID)
        at = found.end()
    return "".join([*pieces, re.escape(expected[at:])])


def compare(expected: list[str], printed: list[str]) -> None:
    whole = "".join(r"(?:.*\n)*" if line == "…" else pattern(line) + r"\n" for line in expected)
    if re.fullmatch(whole, "".join(f"{line}\n" for line in printed)) is None:
        wanted, got = "\n".join(expected), "\n".join(printed)
        raise Different(f"the page says:\n{wanted}\n\nbut this was printed:\n{got}")


def needs_node(text: str) -> bool:
    return PORT.search(text) is not None or CLIENT.search(text) is not None


def localised(text: str, port: str) -> str:
    """The same for a node on another port."""
    return CLIENT.sub(rf"holdfast \1 -p {port}", PORT.sub(port, text))


def run_python(block: Block, namespace: dict[str, object], file: str) -> None:
    # Empty lines before it, so that a traceback names the line of the page.
    code = compile("\n" * (block.line - 1) + block.text, file, "exec")
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen):
        exec(code, namespace)
    compare(PRINTS.findall(block.text), screen.getvalue().splitlines())


def on_terminal(command: str) -> list[str]:
    """Run a command with its output on a terminal, where programs show what a person would see."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", command],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "dumb", "COLUMNS": "120"},
    )
    os.close(theirs)
    pieces = []
    with contextlib.suppress(OSError):  # how the end of a terminal shows
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    os.close(ours)
    code = process.wait(COMMAND_SECONDS_MAX)
    printed = b"".join(pieces).decode().replace("\r\n", "\n").splitlines()
    if code != 0:
        raise Different("\n".join([f"exit code {code}: {command}", *printed]))
    while printed and not printed[-1]:
        printed.pop()
    return printed


def run_console(block: Block) -> None:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        command = [lines.pop(0)]
        while command[-1].endswith("\\"):
            command.append(lines.pop(0))
        try:
            compare(lines, on_terminal("\n".join(command)))
        except Different as difference:
            raise Different(f"$ {command[0]}\n{difference}") from None


def run_page(path: Path, port: str) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text("utf-8")):
        block = Block(block.kind, localised(block.text, port), block.line)
        try:
            if block.kind == "python":
                run_python(block, namespace, str(path))
            elif block.kind == "console":
                run_console(block)
        except Different as difference:
            sys.exit(f"{path.name}, line {block.line}: {difference}")


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), sys.argv[2])
