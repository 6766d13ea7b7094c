"""Pages that are written by programs are as the programs would write them now. If not: `make docs`."""
from __future__ import annotations

import pytest

from tools import architecture, figures, reference


@pytest.mark.parametrize("name", reference.pages())
def test_a_page_of_the_reference_is_up_to_date(name: str) -> None:
    path = reference.PAGES / name
    assert path.exists(), "run `make docs`"
    assert path.read_text("utf-8") == reference.pages()[name], "run `make docs`"


def test_the_figures_in_the_readme_are_those_of_the_last_result() -> None:
    text = figures.README.read_text("utf-8")
    assert figures.with_figures(text) == text, "run `make docs`"


def test_the_picture_of_the_whole_is_as_drawn_now() -> None:
    assert architecture.IMAGE.read_text("utf-8") == architecture.drawn(), "run `make docs`"
