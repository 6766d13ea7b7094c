"""The checker of sums on looks made by hand: kept, broken, and where it must not judge."""
from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.checkers.sums import QUIET_MS, Look, Sums
from holdfast.testing.checkers.whitebox import Copy

AT_A = {"A": {"j": Copy("queued", 5, "q", "queued"), "k": Copy("active", 5, "q", "elsewhere")},
        "B": {"j": Copy("active", 5, "q", "elsewhere"), "k": Copy("active", 5, "q", "out")}}
HELD = {"A": {"q": 1}, "B": {"q": 1}}


def found(looks: list[Look]) -> list[str]:
    sums = Sums()
    return [text for look in looks for _, text in sums.look(look)]


def looks(until: int, **more: Any) -> list[Look]:
    given = {"steady": 0, "jobs": AT_A, "figures": HELD, "given": {}, **more}
    return [Look(t=t, **given) for t in range(0, until, 900)]


@pytest.mark.parametrize(("figures", "is_wrong"), [
    (HELD, False),
    ({"A": {"q": 2}, "B": {"q": 1}}, True),  # one of them by both
    ({"A": {"q": 1}, "B": {"q": 0}}, True),  # one of them by nobody
    ({"A": {"q": 2}, "B": {"q": 0}}, False),  # whoever says so
    ({"A": {}, "B": {}}, False),  # a node of the tests
])
def test_each_job_is_counted_once(figures: Any, is_wrong: bool) -> None:
    assert bool(found(looks(2 * QUIET_MS, figures=figures))) == is_wrong


@pytest.mark.parametrize(("figures", "is_wrong"), [
    ({"A": {"q": 2}, "B": {"q": 1}}, False),
    ({"A": {"q": 1}, "B": {"q": 1}}, True),
    ({"A": {"q": 2}, "B": {"q": 2}}, True),
])
@pytest.mark.parametrize("stands", ["out", "in-line"])
def test_a_job_that_two_workers_have_is_two_hand_outs(stands: str, figures: Any, is_wrong: bool) -> None:
    jobs = {**AT_A, "A": {**AT_A["A"], "k": Copy("active", 5, "q", stands)}}
    assert bool(found(looks(2 * QUIET_MS, jobs=jobs, figures=figures))) == is_wrong


def test_figures_are_a_moment_old() -> None:
    wrong = {"A": {"q": 9}, "B": {"q": 1}}
    assert not found(looks(QUIET_MS, figures=wrong))
    apart = looks(3 * QUIET_MS, figures=wrong, steady=-1)
    assert not found(apart)
    busy = [look._replace(jobs={**AT_A, "A": {**AT_A["A"], "j": Copy("active", 5, "q", "out", turn=look.t)}})
            for look in looks(3 * QUIET_MS, figures=wrong)]
    assert not found(busy)
    assert not found(looks(2 * QUIET_MS - 900, figures=wrong, given={"q": QUIET_MS}))
    assert not found(looks(2 * QUIET_MS - 900, figures=wrong, steady=QUIET_MS))


@pytest.mark.parametrize("state", ["acked", "tombstone"])
def test_a_job_that_ends_leaves_one_node_after_the_other(state: str) -> None:
    jobs = {**AT_A, "B": {**AT_A["B"], "j": Copy(state, 5, "q")}}
    assert not found(looks(2 * QUIET_MS, jobs=jobs, figures={"A": {"q": 9}, "B": {"q": 9}}))


def test_time_left_is_no_change() -> None:
    wrong = {"A": {"q": 9}, "B": {"q": 1}}
    ticking = [look._replace(jobs={**AT_A, "B": {"k": Copy("active", 5, "q", "out", 60_000 - look.t)}})
               for look in looks(2 * QUIET_MS, figures=wrong)]
    assert found(ticking)
