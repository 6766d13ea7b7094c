"""Makes .venv ready for what comes next: `python3.11 -m tools.prepare run compile`. Every make target begins with it.

    run      nodes, gateway, console, pipeline: what `make run` starts
    check    the same, and what `make check` needs: linter, type checker, unit tests
    sim      the same, and what the simulator needs
    test     the same, and what all tests need
    bench    the same, and what the benchmarks need
    docs     the same, and what the documentation is built with
    compile  beside any of them: Holdfast compiled, with only those C files compiled that changed

What does not depend on each other is done side by side: packages, the
compile, the console's JavaScript. What is there already costs nothing, and no network: a step is done again when the
files it was made from say something new. Only the standard library is used here: nothing is installed yet.

Without a compiler Holdfast runs uncompiled, without npm the console is less lively; a line says so, and what to
install.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tools.compile import NOTHING_TO_COMPILE_WITH

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STATE = VENV / ".prepared.json"
REPORT = ROOT / "build" / "prepare.json"
VENDOR = ROOT / "src" / "holdfast" / "console" / "static" / "vendor"
OLDEST_PYTHON = (3, 11)

COMPILE = "compile"
NEEDS = {"run": (), "check": ("check",), "sim": ("check",), "test": ("test",), "bench": ("bench",), "docs": ("docs",)}
"""The dependency groups of pyproject.toml that go with each need, beside holdfast[all] and the group `build`."""
TAIL_LINES = 30
FRAME_S = 0.1
PLAIN_EVERY_S = 10.0
"""How often a step that goes on says so where the screen is no terminal."""


class Failed(Exception):
    """A step that could not be done; the message is all that a person needs."""


# -- what is done already ---------------------------------------------------------------------------------


def fingerprint(*paths: Path) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def remembered() -> dict[str, str]:
    try:
        return dict(json.loads(STATE.read_text()))
    except (OSError, ValueError):
        return {}


MEMORY = threading.Lock()


def remember(**facts: str) -> None:
    with MEMORY:
        unfinished = STATE.with_suffix(".tmp")
        unfinished.write_text(json.dumps({**remembered(), **facts}, indent=2))
        unfinished.replace(STATE)


# -- steps ------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """A piece of work: what must be done before it, whether it is needed, and what it says of itself meanwhile."""

    name: str
    work: Callable[[Step], None]
    after: tuple[str, ...] = ()
    is_needed: Callable[[], bool] = lambda: True
    state: str = "waits"
    detail: str = ""
    began: float = 0.0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


def run(
    step: Step, words: Sequence[str | Path], env: Mapping[str, str] | None = None, allowed: Sequence[int] = (0,)
) -> int:
    """Run a program; its last line is the step's detail. Raise with its last lines when it fails."""
    process = subprocess.Popen(
        [str(word) for word in words], cwd=ROOT, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    RUNNING.add(process)
    last: deque[str] = deque(maxlen=TAIL_LINES)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip():
            last.append(line.rstrip())
            step.detail = line.strip()[:60]
    code = process.wait()
    RUNNING.discard(process)
    if code not in allowed:
        raise Failed("\n".join(last) or f"{words[0]} ended with {code}")
    return code


RUNNING: set[subprocess.Popen[str]] = set()


# -- the environment --------------------------------------------------------------------------------------


def is_ours() -> bool:
    """Is .venv there, whole, and of the Python that runs this?"""
    try:
        settings = (VENV / "pyvenv.cfg").read_text()
    except OSError:
        return False
    version = re.search(r"^version\s*=\s*(\d+)\.(\d+)", settings, re.MULTILINE)
    return PYTHON.exists() and version is not None and (int(version[1]), int(version[2])) == sys.version_info[:2]


def pinned(name: str) -> str:
    """The requirement of a tool that is only used here, with its version from constraints.txt."""
    found = re.search(rf"^{name}==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE | re.IGNORECASE)
    return found[0] if found else name


def make_environment(step: Step) -> None:
    run(step, [sys.executable, "-m", "venv", *(["--clear"] if VENV.exists() else []), VENV])


PIP = (PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input")


def fetch_installer(step: Step) -> None:
    """uv installs in a fifth of pip's time. Where there is none for this machine, a pip that knows groups does."""
    try:
        run(step, [*PIP, "install", "--quiet", pinned("uv")])
        remember(installer="uv")
    except Failed as why:
        try:
            run(step, [*PIP, "install", "--quiet", pinned("pip")])
        except Failed:
            raise why from None
        remember(installer="pip")


def install(step: Step, words: Sequence[str]) -> None:
    """Packages in the versions of constraints.txt."""
    words = [*words, "--constraint", "constraints.txt"]
    env = {"HOLDFAST_PURE": "1"}  # Holdfast is one of them; compiling is another step
    if remembered().get("installer") == "uv":
        try:
            run(step, [VENV / "bin" / "uv", "pip", "install", "--python", PYTHON, *words], {**env, **index_of_pip()})
            return
        except Failed:
            # pip knows of certificates, mirrors and folders that uv was not told about.
            run(step, [*PIP, "install", "--quiet", pinned("pip")])
    run(step, [*PIP, "install", *words], env)


def index_of_pip() -> dict[str, str]:
    """uv does not read pip's settings: an index that is named there holds for uv as well."""
    if any(name in os.environ for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX")):
        return {}
    done = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, cwd=ROOT)
    named = dict(re.findall(r"^(?:global|install|:env:)\.(index-url|cert)='(.*)'$", done.stdout, re.MULTILINE))
    return {
        variable: named[setting]
        for setting, variable in (("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE"))
        if setting in named
    }


def packages_for(need: str) -> list[str]:
    """Holdfast with all its extras, and what this need has of its own."""
    groups = [word for group in NEEDS[need] for word in ("--group", group)]
    return ["--no-build-isolation", "--editable", ".[all]", *groups]


def groups_of(need: str) -> set[str]:
    """Its groups, and those that they include."""
    with (ROOT / "pyproject.toml").open("rb") as text:
        groups = tomllib.load(text)["dependency-groups"]
    found: set[str] = set()
    look = list(NEEDS[need])
    while look:
        found.add(group := look.pop())
        look += [word["include-group"] for word in groups[group] if isinstance(word, dict)]
    return found


def is_installed(need: str, wanted: str) -> bool:
    """Was this need installed from these files, or another one that includes it?"""
    known = remembered()
    return any(
        known.get(f"packages-{other}") == wanted and groups_of(other) >= groups_of(need) for other in NEEDS
    )


def built_from() -> str:
    """What the installation of Holdfast itself was made from, sources aside: those are used where they lie."""
    texts = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "setup.py")]
    return fingerprint(*texts, *sorted(ROOT.glob("src/holdfast/gateway/proto/*.proto")))


# -- compile, assets --------------------------------------------------------------------------------------


def compile_it(step: Step) -> None:
    env = {"HOLDFAST_PURE": ""}
    code = run(step, [PYTHON, "-m", "tools.compile"], env, allowed=(0, NOTHING_TO_COMPILE_WITH))
    if code == NOTHING_TO_COMPILE_WITH:
        step.notes.append(
            "no C compiler: Holdfast runs uncompiled, complete but slower. On Debian: apt-get install gcc libc6-dev"
        )


def has_assets() -> bool:
    with contextlib.suppress(OSError):
        return (VENDOR / ".made-from").read_bytes() == (ROOT / "package.json").read_bytes()
    return False


def fetch_assets(step: Step) -> None:
    if shutil.which("npm") is None:
        step.notes.append(
            "no npm: the console has no live figures and no charts. On Debian: apt-get install nodejs npm"
        )
        return
    run(step, ["tools/assets.sh"])


def steps_for(need: str, is_compiled: bool) -> list[Step]:
    wanted = built_from()

    def packages(step: Step) -> None:
        install(step, packages_for(need))
        remember(**{f"packages-{need}": wanted})

    def build_tools(step: Step) -> None:
        install(step, ["--group", "build"])
        remember(build=wanted)

    return [
        Step("environment", make_environment, is_needed=lambda: not is_ours()),
        Step("installer", fetch_installer, ("environment",), lambda: "installer" not in remembered()),
        Step("assets", fetch_assets, is_needed=lambda: not has_assets()),
        Step("build tools", build_tools, ("installer",), lambda: remembered().get("build") != wanted),
        Step("packages", packages, ("build tools",), lambda: not is_installed(need, wanted)),
        Step("compile", compile_it, ("build tools",), lambda: is_compiled),
    ]


# -- the screen -------------------------------------------------------------------------------------------


class Screen:
    """What goes on, all the time: lines that are drawn anew on a terminal, else a line when something happened."""

    def __init__(self, steps: Sequence[Step], out: TextIO) -> None:
        self.steps = steps
        self.out = out
        self.is_live = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.start = time.monotonic()
        self.lines = 0
        self.said: dict[str, tuple[str, float]] = {}

    def draw(self) -> None:
        if self.is_live:
            self.draw_live()
        else:
            self.draw_plain()

    def draw_live(self) -> None:
        if not any(step.state == "runs" for step in self.steps) and self.lines == 0:
            return
        width = shutil.get_terminal_size().columns - 1
        rows = [self.row(step)[:width] for step in self.steps if step.state != "is there"]
        up = f"\x1b[{self.lines}A" if self.lines else ""
        self.out.write(up + "".join(f"\r\x1b[2K{row}\n" for row in rows))
        self.out.flush()
        self.lines = len(rows)

    def row(self, step: Step) -> str:
        sign = {"waits": "·", "runs": "▸", "done": "✓", "failed": "✗"}.get(step.state, " ")
        seconds = step.seconds or (time.monotonic() - step.began if step.began else 0.0)
        took = f"{seconds:6.1f} s" if step.began else " " * 8
        return f"  {sign} {step.name:<12}{took}  {step.detail if step.state == 'runs' else ''}"

    def draw_plain(self) -> None:
        now = time.monotonic()
        for step in self.steps:
            state, when = self.said.get(step.name, ("waits", 0.0))
            if step.state == state and (step.state != "runs" or now - when < PLAIN_EVERY_S):
                continue
            self.said[step.name] = (step.state, now)
            if step.state == "runs":
                self.say(f"{step.name}: {step.detail or ('begins' if state == 'waits' else 'goes on')}")
            elif step.state in ("done", "failed"):
                self.say(f"{step.name}: {step.state} in {step.seconds:.1f} s")

    def say(self, text: str) -> None:
        self.out.write(f"[{time.monotonic() - self.start:5.0f} s] {text}\n")
        self.out.flush()


# -- the whole --------------------------------------------------------------------------------------------


def carry_out(step: Step) -> None:
    step.began, step.state = time.monotonic(), "runs"
    try:
        step.work(step)
        step.state = "done"
    except Exception:
        step.state = "failed"
        raise
    finally:
        step.seconds = time.monotonic() - step.began


def carry_out_all(steps: Sequence[Step], screen: Screen) -> None:
    """Each step as soon as those before it are done. The first failure ends all of it."""
    with ThreadPoolExecutor(len(steps)) as pool:
        running: dict[Future[None], Step] = {}
        finished: set[str] = set()
        waiting = list(steps)
        try:
            while waiting or running:
                for step in [each for each in waiting if finished.issuperset(each.after)]:
                    waiting.remove(step)
                    if step.is_needed():
                        running[pool.submit(carry_out, step)] = step
                    else:
                        step.state = "is there"
                        finished.add(step.name)
                done, _ = wait(running, timeout=FRAME_S, return_when=FIRST_COMPLETED)
                screen.draw()
                for each in done:
                    step = running.pop(each)
                    try:
                        each.result()
                    except Failed as why:
                        raise Failed(f"{step.name} could not be done:\n{why}") from None
                    finished.add(step.name)
        except BaseException:
            for process in list(RUNNING):
                process.terminate()
            raise
        finally:
            screen.draw()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Two at once in one tree would take turns breaking it: the second waits."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "prepare.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("set-up goes on in another terminal; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(words: Sequence[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(__doc__)
        return 0
    needs = [word for word in words if word != COMPILE]
    need = needs[0] if needs else "run"
    if need not in NEEDS or len(needs) > 1:
        print(f"prepare: one of {', '.join(NEEDS)} is needed, not {' '.join(needs)}", file=sys.stderr)
        return 2
    if sys.version_info < OLDEST_PYTHON:
        have = ".".join(map(str, sys.version_info[:2]))
        print(
            f"prepare: Python 3.11 or newer is needed, this is {have}; name another: make {need} PYTHON=python3.12",
            file=sys.stderr,
        )
        return 1
    with alone():
        steps = steps_for(need, COMPILE in words)
        screen = Screen(steps, sys.stdout)
        try:
            carry_out_all(steps, screen)
        except Failed as why:
            print(f"\n{why}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nstopped; what is done is kept for the next time", file=sys.stderr)
            return 130
        for step in steps:
            for note in step.notes:
                print(f"  ! {note}")
        seconds = {step.name: round(step.seconds, 2) for step in steps if step.state == "done"}
        if seconds:
            REPORT.write_text(json.dumps({"need": need, "seconds": seconds}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
