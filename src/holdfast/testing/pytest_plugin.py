"""Fixtures for pytest; they are there as soon as Holdfast is installed.

    holdfast_app     an app on a queue in memory, for tasks made in the test
    holdfast_kit     a function: takes your app, gives a `Kit` (see `holdfast.testing.kit`) until the test ends
    holdfast_chaos   a function: makes a `Chaos`; its seed is shown when the test fails

Nothing of Holdfast is imported before a test asks for one of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.tasks.app import App
    from holdfast.testing.chaos import Chaos
    from holdfast.testing.kit import Kit

CHAOS_KEY = pytest.StashKey[list[Any]]()


@pytest.fixture
def holdfast_kit() -> Iterator[Callable[[App], Kit]]:
    """A kit for an app, until the test ends."""
    from holdfast.testing.kit import Kit

    kits: list[Kit] = []

    def make(app: App) -> Kit:
        kits.append(Kit(app))
        return kits[-1]

    yield make
    for kit in kits:
        kit.close()


@pytest.fixture
def holdfast_app(holdfast_kit: Callable[[App], Kit]) -> App:
    """A new app on a queue in memory. `holdfast_kit(holdfast_app)` is its kit."""
    from holdfast.tasks.app import App

    app = App("memory:")
    holdfast_kit(app)
    return app


@pytest.fixture
def holdfast_chaos(request: pytest.FixtureRequest) -> Callable[..., Chaos]:
    """Makes chaos, from HOLDFAST_CHAOS_SEED or a seed of its own."""
    from holdfast.testing.chaos import Chaos

    made: list[Chaos] = request.node.stash.setdefault(CHAOS_KEY, [])
    given = os.environ.get("HOLDFAST_CHAOS_SEED")

    def make(seed: int | None = None, **rates: float) -> Chaos:
        made.append(Chaos(int(given) if given and seed is None else seed, **rates))
        return made[-1]

    return make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """A test that fails under chaos says how to play it again."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for chaos in item.stash.get(CHAOS_KEY, []):
            report.sections.append(("chaos", "\n".join([chaos.recipe(), *chaos.story])))
