"""The README and the tutorial as somebody follows them who has nothing else: from a fresh clone, on the usual ports.

    make run                  on a terminal; the console it names answers, and the sample application does jobs
    the page's snippets       against that cluster, by tests/docs/snippets.py of the clone, in its environment
    Ctrl-C                    ends all of it, and it says so
    pip install .             into an environment of its own, compiled
    holdfast node …           each line that starts one, with what was installed; those that join find each other
    the tutorial              in the same way
    make                      lists what there is

A line of a page that nobody here knows how to run makes the run fall short, so no command is added unseen. `make test`
is left to the list of the node, which runs it.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import common
from bench.show.lines import LOGS, Answer, end_group

PAGES = ("README.md", "docs/tutorial/first-queue.md")
ELSEWHERE = {"make test"}
"""Run by another list."""
SH = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CONSOLE = re.compile(r"http://127\.0\.0\.1:\d+/")
DONE = re.compile(r"^all +\S+ +\S+ +\S+ +([\d,]+) ", re.MULTILINE)
"""In the table that `holdfast up` shows: all queues, and after queued, with workers and delayed those that are done."""
STOPPED = "stopped; everything is kept in holdfast-data"
SETUP_S = 3600.0
"""Compiling is some five minutes of one processor, of which a busy machine may have a tenth to spare.
What set-up may take is judged by the list `setup`."""
STEP_S = 900.0
PORTS = (7711, 7712, 7713, 7780)
# No proxy for this machine.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Short(Exception):
    """Something did not go as the page says."""


def commands(page: str) -> list[str]:
    """Lines for the reader's shell, without what a comment says about them."""
    found = []
    for block in SH.findall(page):
        found += [line.partition("  #")[0].strip() for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in found if line and not line.startswith("#")]


def wait_for(what: str, seconds: float, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise Short(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


class Terminal:
    """A command on a terminal, read by a thread so that it never waits for its reader."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.ours, theirs = pty.openpty()
        self.screen = ""
        self.process = subprocess.Popen(
            words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=plain(),
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        with contextlib.suppress(OSError):  # how the end of a terminal shows
            while piece := os.read(self.ours, 65536):
                self.screen += COLORS.sub("", piece.decode(errors="replace"))

    def is_there(self, pattern: re.Pattern[str]) -> bool:
        if self.process.poll() is not None:
            raise Short(f"ended with {self.process.returncode}: {self.screen.strip()[-300:]}")
        return pattern.search(self.screen) is not None

    def interrupt(self) -> str:
        """Ctrl-C: the terminal tells all of its foreground. What is on the screen then, when all have ended."""
        before = len(self.screen)
        os.write(self.ours, b"\x03")
        self.process.wait(60)
        self.reader.join(10)
        return self.screen[before:]

    def close(self) -> None:
        end_group(self.process)
        os.close(self.ours)


def plain() -> dict[str, str]:
    """The environment of somebody who has not got ours."""
    mine = ("VIRTUAL_ENV", "PYTHON", "HOLDFAST_", "MAKE", "MFLAGS")  # those of `make show PART=console`, too
    return {name: value for name, value in os.environ.items() if not name.startswith(mine)}


class Clone:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "holdfast"
        self.ran: list[str] = []
        self.log = (LOGS / "fresh-clone.log").open("w")
        self.sh(f"git clone -q {common.ROOT} {self.folder}", folder)

    def sh(self, line: str, where: Path | None = None, seconds: float = STEP_S) -> None:
        print(f"$ {line}", file=self.log, flush=True)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line], cwd=where or self.folder, env=plain(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=seconds,
        )
        print(done.stdout, done.stderr, file=self.log, flush=True)
        if done.returncode != 0:
            raise Short(f"{line}: exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}")

    def follow(self, page: str) -> None:
        """The snippets of a page, where a node is at the usual port."""
        self.sh(f"source .venv/bin/activate && cd $(mktemp -d) && python {self.folder}/tests/docs/snippets.py "
                f"{self.folder / page} {PORTS[0]}")

    def make_run(self) -> None:
        terminal = Terminal(["make", "run"], self.folder)
        try:
            wait_for("the address of the console", SETUP_S, lambda: terminal.is_there(CONSOLE))
            found = CONSOLE.search(terminal.screen)
            assert found is not None
            with OPENER.open(found[0], timeout=30) as page:
                if b"Holdfast" not in page.read():
                    raise Short("the console shows something else")
            wait_for("jobs of the sample application", 120, lambda: most_done(terminal.screen) > 0)
            self.follow(PAGES[0])
            # Make says that it was interrupted, however well that ended which it ran.
            if STOPPED not in (last := terminal.interrupt()):
                raise Short(f"after Ctrl-C make run did not say {STOPPED!r}: {last.strip()[-300:]}")
            if left := [str(port) for port in PORTS if is_listened_at(port)]:
                raise Short(f"after Ctrl-C somebody is at {', '.join(left)}")
        finally:
            print(terminal.screen, file=self.log, flush=True)
            terminal.close()
        self.ran += ["make run", "source .venv/bin/activate"]

    def install(self) -> None:
        self.sh(f"{sys.executable} -m venv env")
        self.sh("env/bin/pip --disable-pip-version-check -q install .", seconds=SETUP_S)
        self.sh("! env/bin/holdfast --version | grep 'pure Python'")  # there is a compiler: it is the fast form
        self.ran.append("pip install .")

    @contextlib.contextmanager
    def nodes(self, page: str) -> Iterator[None]:
        """Those that the lines of a page start, in its order."""
        with contextlib.ExitStack() as stack:
            for line in commands((self.folder / page).read_text("utf-8")):
                if not line.startswith("holdfast node"):
                    continue
                terminal = Terminal(["bash", "-c", f"PATH={self.folder}/env/bin:$PATH; exec {line}"], self.folder)
                stack.callback(terminal.close)
                wait_for(line, 60, lambda terminal=terminal: terminal.is_there(re.compile("ready on")))  # type: ignore[misc]
                self.ran.append(line)
            yield

    def everything(self) -> Answer:
        self.make_run()
        self.install()
        with self.nodes(PAGES[0]):
            wait_for("three nodes that know each other", 30, lambda: "cluster_reachable_nodes:2" in common.ask(
                PORTS[0], "CLUSTER", "INFO"))
        with self.nodes(PAGES[1]):
            self.follow(PAGES[1])
        self.sh("make")
        self.ran.append("make")
        wanted = {line for page in PAGES for line in commands((self.folder / page).read_text("utf-8"))}
        left = wanted - set(self.ran) - ELSEWHERE
        if left:
            return f"nobody ran: {', '.join(sorted(left))}", False
        return f"{len(wanted - ELSEWHERE)} commands of {len(PAGES)} pages, and their snippets", True


def is_listened_at(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((common.HOST, port)) == 0


def most_done(screen: str) -> int:
    return max([int(count.replace(",", "")) for count in DONE.findall(screen)], default=0)


def follow_the_readme() -> Answer:
    taken = [str(port) for port in PORTS if is_listened_at(port)]
    if taken:
        return f"ports that the pages name are taken: {', '.join(taken)}", None
    LOGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fresh-clone-") as folder:
        clone = Clone(Path(folder))
        try:
            return clone.everything()
        except Short as short:
            return str(short), False
        except subprocess.TimeoutExpired as error:
            return f"not finished after {error.timeout:.0f} s: {error.cmd[-1]}", False
        finally:
            clone.log.close()
