"""Builds the documentation site: `make docs`, or `python -m tools.site OUT`.

The pages in docs/ are plain Markdown that reads well where the repository is read; nothing in them is made for
Sphinx. What it needs beyond that is made here, in a copy: tables of contents from the headings and lists of index.md,
and the files at the top of the repository (README, CHANGELOG, …) as pages, so that links to them lead somewhere.
"""
from __future__ import annotations

import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
ABOUT = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"]
PAGE = re.compile(r"\]\(([\w./-]+)\.md(?:#[\w-]+)?\)")
OUTSIDE = re.compile(r"\]\((?:\.\./)+([A-Z]+\.md|LICENSE)")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
SETTINGS = {
    "project": "Holdfast",
    "version": VERSION,
    "release": VERSION,
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_title": f"Holdfast {VERSION}",
    "html_copy_source": False,
    "html_show_sphinx": False,
    "html_show_copyright": False,
    "highlight_language": "text",
    "suppress_warnings": ["misc.highlighting_failure"],
}


def page_of(name: str) -> str:
    """A file at the top of the repository, as a page."""
    return name.removesuffix(".md").lower()


def table(caption: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def contents(index: str) -> str:
    """A hidden table of contents per heading of the index, with the pages listed under it, in that order."""
    tables = []
    for part in re.split(r"^## ", "\n" + index, flags=re.MULTILINE):
        caption, _, rest = part.partition("\n")
        pages = list(dict.fromkeys(PAGE.findall(rest)))
        if pages:
            tables.append(table(caption.strip() or "Start here", pages))
    tables.append(table("About", [f"about/{page_of(name)}" for name in ABOUT]))
    return "\n".join(tables)


def gather(into: Path) -> None:
    """All pages, ready for Sphinx."""
    shutil.copytree(ROOT / "docs", into)
    for path in into.rglob("*.md"):
        up = "../" * (len(path.relative_to(into).parts) - 1)
        text = OUTSIDE.sub(lambda found, up=up: f"]({up}about/{page_of(found[1])}.md", path.read_text("utf-8"))
        if path == into / "index.md":
            text += "\n\n" + contents(text)
        path.write_text(text, "utf-8")
    (into / "about").mkdir()
    for name in ABOUT:
        text = (ROOT / name).read_text("utf-8")
        if name == "LICENSE":
            text = f"# Licence\n\n```text\n{text}```\n"
        text = re.sub(r"(\]\(|src=\")docs/", r"\1../", text)
        text = re.sub(r"\]\(([A-Z]+\.md|LICENSE)", lambda found: f"]({page_of(found[1])}.md", text)
        (into / "about" / f"{page_of(name)}.md").write_text(text, "utf-8")


def build(out: Path) -> None:
    """Raises where Sphinx would warn: a link that leads nowhere, a page in no table of contents."""
    with tempfile.TemporaryDirectory(prefix="holdfast-site-") as folder:
        pages = Path(folder) / "pages"
        gather(pages)
        app = Sphinx(
            str(pages), None, str(out), str(Path(folder) / "trees"), "html", confoverrides=SETTINGS, status=None,
            warningiserror=True, exception_on_warning=True, freshenv=True,
        )
        app.build()


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "build/site")
    build(target)
    print(f"the site: {target}/index.html")
