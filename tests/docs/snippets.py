"""Runs the snippets of one page, from top to bottom, as a reader would. `python snippets.py PAGE PORT`.

    ```python     All blocks of a page share one namespace. What a block prints must be what its comments
                  `# → …` say, line by line.
    ```console    `$ command` lines are run by bash on a terminal; the lines below one are what it must print.
    ```sh         For the reader to type; see test_snippets.py for what is checked about them.

In what is expected, `…` stands for anything on a line, a line `…` alone for any number of lines, and a job
id for any job id. Where a page says port 7711, or `holdfast cli` and means it, the node of the test is used.

A page may start nodes of its own, on ports 7711 to 7719, with `$ holdfast node … > file 2>&1 &`. Then the test
starts none; the ports become free ones (the bus ports 17711 to 17719 with them), and what comes next waits until
the node answers. The page stops its nodes itself; what is left over when it fails is killed with it.
"""
from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNABLE = ("python", "console")
JOB_ID = r"DI[0-9a-f]{44}SQ"
SHOWN_ID = re.compile(r"DI[0-9a-f…]+SQ")
PRINTS = re.compile(r"# → (.*)$", re.MULTILINE)
PORT = re.compile(r"\b(1?)(771[1-9])\b")
BUS_PORT_OFFSET = 10_000
CLIENT = re.compile(r"\bholdfast (cli|bench)\b(?! --connect)")
STARTS_NODE = re.compile(r"^\$ holdfast node .*--port (\d+).*&$", re.MULTILINE)
COMMAND_SECONDS_MAX = 30.0
START_SECONDS_MAX = 20.0


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
    is_about_one = PORT.search(text) is not None or CLIENT.search(text) is not None
    return is_about_one and STARTS_NODE.search(text) is None


def free_port() -> str:
    """A port for clients that is free, and the one for other nodes with it."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1] - BUS_PORT_OFFSET  # what the system gives is high, often too high to add to
            with contextlib.suppress(OSError):
                other.bind(("127.0.0.1", port))
                return str(port)


def localised(text: str, ports: dict[str, str]) -> str:
    """The same for nodes on other ports."""

    def other(found: re.Match[str]) -> str:
        name = found.group(2)
        if name not in ports:
            ports[name] = free_port()
        return str(int(ports[name]) + BUS_PORT_OFFSET) if found.group(1) else ports[name]

    moved = PORT.sub(other, text)
    return CLIENT.sub(lambda found: f"holdfast {found.group(1)} --connect :{ports['7711']}", moved)


def wait_for_node(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as client:
                client.sendall(b"PING\r\n")
                if client.recv(7):
                    return
        except OSError:
            if time.monotonic() > deadline:
                raise Different(f"nobody answers at port {port}") from None
            time.sleep(0.05)


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
            if started := STARTS_NODE.search(f"$ {command[0]}"):
                wait_for_node(int(started.group(1)))
        except Different as difference:
            raise Different(f"$ {command[0]}\n{difference}") from None


def run_page(path: Path, port: str) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    ports = {"7711": port}
    for block in blocks(path.read_text("utf-8")):
        block = Block(block.kind, localised(block.text, ports), block.line)
        try:
            if block.kind == "python":
                run_python(block, namespace, str(path))
            elif block.kind == "console":
                run_console(block)
        except Different as difference:
            sys.exit(f"{path.name}, line {block.line}: {difference}")


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), sys.argv[2])
