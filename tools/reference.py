"""Writes docs/reference/ from the tables in the code: commands, settings, errors, limits, metrics, job states, HTTP.

Each table stands in one place in src/, and these pages are made from it, so they cannot say anything else.
`python -m tools.reference` writes them (`make docs`); a test fails when a page is not what this would write.

Texts that are docstrings are read from the source by `ast`: compiled functions do not keep theirs.
"""
from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.client.errors import BadRequest, Error, Refused, Unknown, from_reply
from holdfast.core.commands.table import COMMANDS
from holdfast.core.config import CHOICE, NUMBER, OUTPUT_LIMIT, SETTINGS, SIZE, SWITCH, Setting
from holdfast.core.limits import DOMAINS_TOLD_MAX
from holdfast.core.states import ABOUT as JOB_STATES
from holdfast.shell.exposition import ABOUT
from holdfast.shell.metrics import OTHERS, QUEUES_MAX, TIMED_MAX
from holdfast.shell.settings import variable
from tools import http_api

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "holdfast"
PAGES = ROOT / "docs" / "reference"
COMMAND_FOLDER = PACKAGE / "core" / "commands"

WRITTEN = "<!-- Written by tools/reference.py from {sources}. Change it there, then `make docs`. -->"

FLAGS = {
    "w": "changes something",
    "r": "only looks",
    "a": "for administrators",
    "m": "may need memory",
    "l": "works while the node loads its journal",
    "o": "open to clients that have not said who they are",
}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def page(title: str, sources: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", WRITTEN.format(sources=sources), *parts]) + "\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def prose(text: str) -> str:
    """Text for a page: an angle bracket is not the beginning of HTML."""
    return text.replace("<", "\\<")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# -- commands ---------------------------------------------------------------------------------------------


def handlers() -> dict[str, str]:
    """By command, its function as `module.name`: what the table in table.py says, as source."""
    found = {}
    for node in ast.walk(parse(COMMAND_FOLDER / "table.py")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Command":
            name, run = node.args[0], node.args[-1]
            assert isinstance(name, ast.Constant)
            found[str(name.value)] = ast.unparse(run)
    return found


def manual(handler: str) -> str:
    """The docstring of a command's function."""
    module, _, name = handler.partition(".")
    for node in parse(COMMAND_FOLDER / f"{module}.py").body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
    return ""


def arity(count: int) -> str:
    """How many words after the name."""
    if count == 0:
        return "any number of arguments"
    least = abs(count) - 1
    noun = "argument" if least == 1 else "arguments"
    return f"at least {least} {noun}" if count < 0 else f"{least or 'no'} {noun}"


def commands_page() -> str:
    known = handlers()
    groups: dict[str, list[str]] = {}
    links: dict[str, list[str]] = {}
    for row in COMMANDS:
        name = row.name.decode()
        flags = ", ".join(FLAGS[letter] for letter in row.flags)
        module = known[name].partition(".")[0]
        groups.setdefault(row.group, []).append(
            f"### {name}\n\n```text\n{f'{name} {row.syntax}'.strip()}\n```\n\n{prose(manual(known[name]))}\n\n"
            f"*{arity(row.arity).capitalize()}; {flags}. Code: `core/commands/{module}.py`.*"
        )
        links.setdefault(row.group, []).append(f"[{name}](#{name.lower()})")
    index = table(["about", "commands"], [[group, " ".join(names)] for group, names in links.items()])
    parts = [f"## About {group}\n\n" + "\n\n".join(texts) for group, texts in groups.items()]
    return page(
        "Commands", "core/commands/",
        "Names of commands and options may be written in capitals or not. Queue names and bodies are any bytes. "
        "A square bracket is something that may be left out; a bar is a choice; `...` may be repeated. What is "
        "answered with an error is listed in [errors](errors.md), what is different from Disque in "
        "[differences](differences.md).",
        index, *parts,
    )


# -- settings ---------------------------------------------------------------------------------------------


def human_size(count: int) -> str:
    for unit, size in (("gb", 1024**3), ("mb", 1024**2), ("kb", 1024)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def default_of(setting: Setting) -> str:
    if setting.kind == SIZE:
        return human_size(int(setting.default))
    if setting.kind == OUTPUT_LIMIT:
        return " ".join(human_size(int(word)) if word.isdigit() else word for word in setting.default.split())
    return setting.default


def values_of(setting: Setting) -> str:
    if setting.kind == CHOICE:
        return ", ".join(setting.choices)
    if setting.kind == SWITCH:
        return "yes, no"
    if setting.kind in (NUMBER, SIZE):
        show = human_size if setting.kind == SIZE else str
        if setting.high >= 2**53:
            return f"{setting.kind}, at least {show(setting.low)}"
        return f"{setting.kind}, {show(setting.low)} to {show(setting.high)}"
    return setting.kind


def settings_page() -> str:
    rows = [
        [code(each.name), code(default_of(each)) or "empty", values_of(each), "yes" if each.live else "no",
         prose(each.about)]
        for each in SETTINGS
    ]
    example = next(each.name for each in SETTINGS if each.name == "maxmemory-policy")
    return page(
        "Settings", "core/config.py",
        "A setting comes from the first of these that names it:\n\n"
        "1. a flag: `--port`, `--bind`, `--dir`, or `--set name=value` for any setting;\n"
        f"2. a variable: `HOLDFAST_` and the name in capitals with underscores, for `{example}` "
        f"`{variable(example)}`;\n"
        "3. what CONFIG REWRITE has saved in the dir;\n"
        "4. the file named by `--config`: TOML, with the names below as keys;\n"
        "5. the default.\n\n"
        "One exception makes saved settings hold after a restart: a saved value also wins over a flag or variable "
        "that still says what it said when the value was saved. A flag that has been changed since is a newer "
        "word and wins ([why](../adr/0006-saved-settings-and-flags.md)).\n\n"
        "Sizes may be written as bytes or with a unit: `64kb`, `100mb`, `4gb`. Settings marked *live* can be "
        "changed while the node runs, by CONFIG SET or by changing the file and sending SIGHUP. An embedded "
        "queue takes settings in its url: `memory:?maxmemory=100mb`.",
        table(["setting", "default", "values", "live", "meaning"], rows),
    )


# -- errors -----------------------------------------------------------------------------------------------

NAMED = ("CommandError", "BadRequest", "Refused")
CONTINUED = "…"


def bytes_in(node: ast.expr, names: dict[str, bytes]) -> bytes | None:
    """The text an expression makes: a constant, a known name, a sum of them, or a template with gaps."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        return names.get(node.attr)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return bytes_in(node.left, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = bytes_in(node.left, names), bytes_in(node.right, names)
        return None if left is None or right is None else left + right
    return None


def constants(tree: ast.Module) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            text = bytes_in(node.value, found)
            if text is not None:
                found[node.target.id] = text
    return found


def command_errors() -> list[str]:
    """Every error reply in core/: those written in errors.py first, then those written where they occur."""
    names = constants(parse(PACKAGE / "core" / "errors.py"))
    texts = list(names.values())
    for path in sorted((PACKAGE / "core").rglob("*.py")):
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            position = {"write_error": 1}.get(node.func.id, 0 if node.func.id in NAMED else -1)
            if 0 <= position < len(node.args):
                text = bytes_in(node.args[position], names)
                if text is not None:
                    texts.append(text)
    for node in ast.walk(parse(PACKAGE / "core" / "commands" / "queues.py")):
        # Texts handed to a reader of numbers, which raises them.
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes) and node.value.startswith(b"ERR "):
            texts.append(node.value)
    for path in [*sorted((PACKAGE / "shell").glob("*.py")), PACKAGE / "embedded.py"]:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, bytes) and node.value.startswith(b"-ERR "):
                texts.append(node.value[1:].strip())
    texts = [text for text in texts if not text.startswith(b"ERR Protocol error")]
    shown = [re.sub("%[bd]", CONTINUED, text.decode()) for text in texts]
    return list(dict.fromkeys(shown))


def protocol_errors() -> list[str]:
    found = []
    for name, text in constants(parse(PACKAGE / "wire" / "resp.py")).items():
        if name.startswith(("BAD_", "TOO_")):
            found.append(f"ERR Protocol error: {text.decode()}")
    return [*found, f"ERR Protocol error: expected '$', got '{CONTINUED}'"]


def verdict(error: Error) -> str:
    if error.text.startswith("internal error"):
        return "it is a fault of ours"
    if isinstance(error, Refused):
        return "yes, later or elsewhere"
    if isinstance(error, Unknown):
        return "it may have been done: look, or repeat what may be done twice"
    assert isinstance(error, BadRequest)
    return "no, change the call"


UNKNOWN_FROM = [
    (
        "ADDJOB, ADDJOBS", "`NOREPL Timeout reached …`, `NOREPL job removed …`",
        "copies were made, fewer than wanted. They are taken back; a node that is cut off cannot hear that",
        "add again, with `UNIQUE` or if twice is fine; or look with SHOW",
    ),
    (
        "ADDJOB, ADDJOBS with `UNIQUE` or `GROUP`", "`UNKNOWN …`, with the id",
        "the node that decides about the key was asked, and went away before it answered",
        "SHOW the id; with `UNIQUE` add again",
    ),
    (
        "NACK, RELEASE, PROGRESS with `TOKEN`", "`UNKNOWN …` (KEEPALIVE answers with the word `unknown` for the job)",
        "the node that gave the lease was asked, and did not answer",
        "say it again, best at that node; the lease ends by itself",
    ),
    (
        "WORKING, BATCH", "`UNKNOWN …`", "the node that has to do it was asked, and did not answer",
        "say it again: twice does no harm",
    ),
    (
        "any that changes something", "none: the connection broke, or the node said nothing",
        "nobody knows how far it came",
        "the client repeats questions, KEEPALIVE and idempotent adds by itself. ACKJOB may be repeated, an add without "
        "`UNIQUE` only if twice is fine",
    ),
]
"""Which commands can end without anybody knowing whether they were carried out."""


def errors_page() -> str:
    rows = []
    for text in sorted(command_errors(), key=lambda each: (each.split()[0] != "ERR", each)):
        error = from_reply(text)
        rows.append([error.code, code(text.partition(" ")[2]), code(type(error).__name__), verdict(error)])
    protocol = [[code(text.partition(" ")[2])] for text in protocol_errors()]
    return page(
        "Errors", "core/errors.py, core/commands/ and wire/resp.py",
        "An error reply is a code in capitals and words. Codes and words are Disque's wherever Disque has them. A "
        "command that is answered with an error has changed nothing, unless the error is an internal one or is "
        "`Unknown` in the client: [what nobody can know](#what-nobody-can-know). `…` stands for something named at "
        "that place. The third column is the exception that Holdfast's own client raises, in `holdfast.client.errors`; "
        "the last column answers: may I try again?",
        table(["code", "text", "Python", "try again?"], rows),
        "## Protocol errors\n\nA client that breaks the protocol, or sends more of it than the "
        "[limits](limits.md) allow, gets one of these, and its connection is closed.",
        table(["ERR, then"], protocol),
        "## What only the client knows\n\nNot every failure is a reply. `Unknown` and the classes below it say that "
        "nobody can tell whether the command was carried out; they are never passed off as success or as failure.",
        "```text\n" + client_tree() + "\n```",
        "## What nobody can know\n\nWhat these commands end with is raised as `Unknown`, with the ids in `.jobs` where "
        "there are any. Every other error reply means that nothing was changed.",
        table(["command", "reply", "what has happened", "what to do"], [list(row) for row in UNKNOWN_FROM]),
    )


def client_tree() -> str:
    """The tree at the top of client/errors.py."""
    doc = ast.get_docstring(parse(PACKAGE / "client" / "errors.py")) or ""
    lines = [line for line in doc.splitlines() if line.startswith("    ")]
    return "\n".join(line[4:] for line in lines)


# -- limits -----------------------------------------------------------------------------------------------

LIMIT_MODULES = (
    ("holdfast.core.limits", "The machine", True),
    ("holdfast.wire.resp", "The protocol", False),  # a parser too: only what is explained there is a limit
    ("holdfast.shell.bounds", "Connections", True),
    ("holdfast.shell.strangers", "Before login, at every door", True),
    ("holdfast.gateway.doorkeeper", "Requests of the gateway", False),
)
UNITS = ("KIB", "MIB", "GIB")
HEADING = re.compile(r"# -- (.+?) -*$")


def documented(path: Path) -> Iterator[tuple[list[str], str, int]]:
    """(names, text, line): constants that stand together, and the string that follows them, if there is one."""
    source = path.read_text("utf-8").splitlines()
    names: list[str] = []
    last = 0
    for node in parse(path).body:
        if names and not source[node.lineno - 2].strip():
            yield names, "", last
            names = []
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.append(node.targets[0].id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and names:
            yield names, " ".join(str(node.value.value).split()), node.lineno
            names = []
        else:
            names = []
        last = node.lineno
    if names:
        yield names, "", last


def shown_value(name: str, value: object) -> str:
    if not isinstance(value, int):
        return code(str(value))
    if "BYTES" in name or name.endswith(("MEMORY_DEFAULT", "_WATER", "INPUT_MAX")):
        return code(human_size(value))
    return code(f"{value:,}") if value < 2**31 else code(f"2^{value.bit_length() - 1}")


def limits_of(module_name: str, is_whole: bool) -> str:
    path = PACKAGE.parent / Path(*module_name.split(".")).with_suffix(".py")
    module = importlib.import_module(module_name)
    headings = [
        (number, found.group(1))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (found := HEADING.match(line))
    ]
    parts: list[str] = []
    rows: list[list[str]] = []
    current = ""
    for names, text, line in documented(path):
        if not (text or is_whole):
            continue
        here = next((title for number, title in reversed(headings) if number < line), "")
        if here != current and rows:
            parts += [f"### {current.capitalize()}" if current else "", table(["name", "value", "why"], rows)]
            rows = []
        current = here
        kept = [name for name in names if name not in UNITS]
        for name in kept:
            why = text if name == kept[-1] else ""
            rows.append([code(name), shown_value(name, getattr(module, name)), prose(why)])
    parts += [f"### {current.capitalize()}" if current else "", table(["name", "value", "why"], rows)]
    return "\n\n".join(part for part in parts if part)


def limits_page() -> str:
    parts = []
    for module, title, is_whole in LIMIT_MODULES:
        where = module.removeprefix("holdfast.").replace(".", "/") + ".py"
        parts.append(f"## {title}\n\nCode: `{where}`.\n\n{limits_of(module, is_whole)}")
    return page(
        "Limits", "core/limits.py, wire/resp.py, shell/bounds.py, shell/strangers.py and gateway/doorkeeper.py",
        "Every bound has a name and a reason. Where an operator may move one, it is the default of a "
        "[setting](settings.md). Names that end in MS are milliseconds, in S seconds. A reason that stands once "
        "for several names stands at the last of them.",
        *parts,
    )


# -- metrics ----------------------------------------------------------------------------------------------


def metrics_page() -> str:
    rows = [[code(name), kind, prose(about)] for name, (kind, about) in ABOUT.items()]
    return page(
        "Metrics", "shell/exposition.py",
        "What a node tells Prometheus at its `metrics-port`, under `/metrics`. The dashboard is "
        "`deploy/grafana/holdfast.json`, the rules are in `deploy/prometheus`, and each of them has its place in "
        "[answer an alert](../how-to/answer-an-alert.md).",
        f"There are never more series than a Prometheus bears. Of queues, the {QUEUES_MAX:,} with most jobs have "
        f"figures of their own, and the {TIMED_MAX} that handed out most have histograms; all others are one, "
        f"`queue=\"{OTHERS}\"`. Of domains, the {DOMAINS_TOLD_MAX} that held up most have figures; "
        "`holdfast_throttled_total` counts for all of them, and for the rates of queues. A domain that had nothing to "
        "do may be forgotten, and counts from nothing when it is back: `rate()` and `increase()` reckon with that.",
        table(["name", "kind", "what it is"], rows),
    )


# -- states of jobs, and HTTP -----------------------------------------------------------------------------------


def states_page() -> str:
    return page(
        "States of jobs", "core/states.py",
        "What a job is doing, in one word: `status` in SHOW, in what JSCAN lists with `REPLY all`, in HTTP and in the "
        "command line, and the first word of EXPLAIN. `holdfast jobs --state WORD` and `JSCAN STATE word` find by it. "
        "Disque's own `state` stands beside it and says `active` of all that is neither queued nor over.",
        table(["status", "what it means"], [[code(word.decode()), prose(about)] for word, about in JOB_STATES.items()]),
        "Why a job is in its state, and until when, says [`EXPLAIN`](../how-to/why-does-my-job-not-run.md).",
    )


def http_page() -> str:
    return page("The HTTP interface", "the OpenAPI description of the gateway", *http_api.parts())


def pages() -> dict[str, str]:
    return {
        "commands.md": commands_page(),
        "settings.md": settings_page(),
        "errors.md": errors_page(),
        "limits.md": limits_page(),
        "metrics.md": metrics_page(),
        "job-states.md": states_page(),
        "http-api.md": http_page(),
    }


def main() -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = PAGES / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"written: docs/reference/{name}")


if __name__ == "__main__":
    main()
