"""Promises with times, measured on real processes: each test prints its figure beside the bound it asserts.

`make show PART=promises` reads the lines that `figure` prints.
"""
from __future__ import annotations

from collections.abc import Callable

import pytest

Figure = Callable[[str, float, float], None]


@pytest.fixture
def figure() -> Figure:
    """`figure("handed out again, s", took, 2.0)`: print the figure, then demand that it keeps its bound."""

    def show(what: str, value: float, bound: float) -> None:
        print(f"\nfigure: {what} {value:.3g} (bound {bound:g})", flush=True)
        assert value <= bound, f"{what}: {value:.3g}, and the bound is {bound:g}"

    return show
