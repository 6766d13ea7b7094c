"""How long ADDJOB may take, on histories made by hand: each promise once kept and once broken."""
from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.checkers.facts import Facts
from holdfast.testing.checkers.promised_times import adds_are_answered, copies_are_waited_for

from .test_checkers import Story


def story(*heard: tuple[int, str], node_timeout: int = 15_000) -> Story:
    """What the node A hears, from when on."""
    found = Story(node_timeout=node_timeout)
    for t, who in heard:
        found.mark(t, "hears", "A", who=who, lag=3)
    return found


def classes(told: Story) -> list[str]:
    facts = Facts(told.history)
    return [each.what for each in (*adds_are_answered(facts), *copies_are_waited_for(facts))]


@pytest.mark.parametrize(("wait", "type", "error", "found"), [
    (200, "ok", "", []),
    (400, "ok", "", ["add-late"]),
    (100, "fail", "NOREPL Not enough reachable nodes", ["add-refused"]),
    (100, "fail", "MAXLEN Queue is already longer than the specified MAXLEN count", []),
    (4_000, "info", "", ["add-late"]),
])
def test_a_default_add_is_answered_soon(wait: int, type: str, error: str, found: list[str]) -> None:
    told = story((0, "BC"), (5_000, "B"))
    told.add(5_000, "x", type=type, wait=wait, error=error, replicate=0, timeout=5_000)
    assert classes(told) == found


@pytest.mark.parametrize(("heard", "more"), [
    ([(0, "")], {}),  # it hears nobody
    ([(0, "B"), (5_100, "")], {}),  # not for long enough
    ([(0, "B"), (5_100, "C")], {}),  # no one of them for long enough
    ([(0, "-")], {}),
    ([(0, "B")], {"timeout": 200}),  # its client did not want to wait
    ([(0, "B")], {"group": "g"}),  # its home decides
    ([(0, "B")], {"replicate": 2}),
])
def test_a_default_add_may_take_longer(heard: list[tuple[int, str]], more: dict[str, Any]) -> None:
    told = story(*heard)
    told.add(5_000, "x", wait=400, **{"replicate": 0, "timeout": 5_000, **more})
    assert classes(told) == []


def test_a_slow_network_and_an_add_before_it_on_its_connection_take_their_time() -> None:
    told = Story()
    told.mark(0, "hears", "A", who="B", lag=500)
    told.add(5_000, "x", wait=1_000, replicate=0, timeout=5_000)
    told.mark(9_000, "hears", "A", who="B", lag=3)
    told.add(10_000, "y", wait=2_000, replicate=3, timeout=5_000)
    told.add(10_000, "z", wait=2_100, replicate=0, timeout=5_000)
    assert classes(told) == []


@pytest.mark.parametrize(("heard", "wait", "copies", "found"), [
    ([(0, "BC"), (5_000, "B")], 100, 3, ["too-soon"]),  # C was heard a moment ago
    ([(0, "BC"), (5_000, "B")], 4_000, 3, []),  # it waited
    ([(0, "BC"), (5_000, "B")], 100, 4, []),  # there never were so many
    ([(0, "B")], 100, 3, []),
])
def test_copies_are_waited_for_while_their_nodes_may_come_back(
    heard: list[tuple[int, str]], wait: int, copies: int, found: list[str]
) -> None:
    told = story(*heard)
    told.add(10_000, "x", type="fail", wait=wait, error="NOREPL Not enough", replicate=copies, timeout=4_000)
    assert classes(told) == found


def test_a_node_that_was_away_for_longer_than_node_timeout_does_not_count() -> None:
    told = story((0, "BC"), (5_000, "B"), node_timeout=3_000)
    told.add(10_000, "x", type="fail", wait=100, error="NOREPL Not enough", replicate=3, timeout=4_000)
    assert classes(told) == []


def test_who_leaves_takes_no_copies() -> None:
    told = story((0, "BC"))
    told.mark(4_000, "fault", number=1, kind="leaving", who="B", phase="begin")
    told.add(5_000, "x", wait=400, replicate=0, timeout=5_000)
    assert classes(told) == []
