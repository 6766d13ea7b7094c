"""The site of the documentation. It takes Sphinx, which is not among what `make check` needs."""
from pathlib import Path

from tools import site


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Links that lead nowhere, pages in no table of contents, headings out of order: each is a warning, and fails."""
    site.build(tmp_path)
    assert "first-queue" in (tmp_path / "index.html").read_text("utf-8")
