"""How the pages look for jobs, without a node: who is slow, and who does not answer."""
from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.client.errors import NoAnswer
from holdfast.client.queue import AsyncQueue
from holdfast.console import data
from holdfast.gateway.members import NodeView

ONE, TWO, AWAY = (NodeView(digit * 40, "h", 1, "noflags", digit != "c") for digit in "abc")
JOB = [b"id", b"D-1", b"state", b"queued"]


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Nothing here waits; and the browser's loop is in this thread, so there can be no other."""
    with pytest.raises(StopIteration) as done:
        work.send(None)
    return done.value.value


class Cluster:
    """Answers scans in place of nodes; `pages` has what each has to say, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pages: dict[str, list[Any]]) -> None:
        self.pages = pages
        for name, value in (("nodes", self.nodes), ("at", self.at), ("expected", self.expected)):
            monkeypatch.setattr(data, name, value)

    async def nodes(self, asking: AsyncQueue) -> list[NodeView]:
        return [ONE, TWO, AWAY]

    async def expected(self, asking: AsyncQueue, filters: dict[str, str]) -> None:
        return None

    async def at(self, asking: AsyncQueue, near: str, *words: str | int) -> Any:
        page = self.pages[near].pop(0)
        if isinstance(page, Exception):
            raise page
        return page

    def jobs(self, without: set[str] | None = None) -> tuple[str, list[str]]:
        asking: Any = None
        cursor, rows = finished(data.jobs(asking, {"queue": "q"}, "0", without=without))
        return cursor, [row["id"] for row in rows]


def test_a_look_that_is_slow_goes_on_until_it_finds_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time at all it would show a page without a job, as if there were none."""
    monkeypatch.setattr(data, "LOOK_S", 0.0)
    cluster = Cluster(monkeypatch, {ONE.near: [[b"=x", []], [b"0", []]], TWO.near: [[b"=y", [JOB]], [b"0", []]]})
    assert cluster.jobs() == ("1:=y", ["D-1"])
    monkeypatch.setattr(data, "LOOK_MOST_S", 0.0)
    cluster = Cluster(monkeypatch, {ONE.near: [[b"=x", []], [b"0", []]], TWO.near: [[b"0", [JOB]]]})
    assert cluster.jobs() == ("0:=x", [])  # with a link to look on


def test_a_count_without_a_node_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be enough too early: the jobs may all be where nobody has counted."""
    asking: Any = None
    for silent, counted in (([], 2), ([ONE.id], None)):
        async def figures(asking: AsyncQueue, name: str, silent: list[str] = silent) -> Any:
            return [{"delayed": 2}], silent

        monkeypatch.setattr(data, "figures", figures)
        assert finished(data.expected(asking, {"state": "delayed"})) == counted


def test_who_wants_all_jobs_is_told_whose_are_not_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    without: set[str] = set()
    cluster = Cluster(monkeypatch, {ONE.near: [NoAnswer("not in time")], TWO.near: [[b"0", [JOB]]]})
    assert cluster.jobs(without) == ("0", ["D-1"])
    assert without == {ONE.near, AWAY.near}


def test_queues_are_ranked_by_any_figure_and_the_busiest_by_what_goes_on() -> None:
    """A heap of dead jobs is not busy; two that are alike stay by name."""
    rows: list[dict[str, Any]] = [
        {"name": "a", "dead-kept": 900, "held": 900}, {"name": "b", "len": 5, "oldest-age": 9}, {"name": "c", "len": 7},
        {"name": "d", "in-per-second": 1, "out-per-second": 2}, {"name": "e", "len": 5, "oldest-age": 90},
    ]

    def order(by: str) -> str:
        return "".join(row["name"] for row in data.ranked(rows, by))

    assert order(data.BUSY) == "dceba"
    assert order("len") == "cbead" and order("-len") == "adbec"
    assert order("name") == "abcde" and order("-name") == "edcba"
    assert order("dead-kept")[0] == "a" and order("oldest-age")[:2] == "eb" and order("in-per-second")[0] == "d"


@pytest.mark.parametrize(("one", "other"), [
    ("ValueError: bad number 1", "ValueError: bad number 22"),
    ("no job 0x7f01 at 10.0.0.1", "no job 0x7f99 at 10.0.0.2"),
    ("550 no such user 'ada'", "550 no such user 'bob'"),
])
def test_errors_that_differ_by_a_number_or_a_name_are_one_heap(one: str, other: str) -> None:
    assert data.signature(one) == data.signature(other)


@pytest.mark.parametrize(("error", "code"), [
    ("SMTPRecipientsRefused: 550 no such user", "550"), ("(550, b'no')", "550"), ("550 mailbox unavailable", "550"),
    ("HTTP 503 from upstream", "503"), ("status code: 403", "403"), ("OSError: [Errno 28] No space", "28"),
    ("exit code 137", "137"),
])
def test_a_code_stays_in_the_heading_of_a_heap(error: str, code: str) -> None:
    assert code in data.signature(error)
    assert data.signature(error) != data.signature(error.replace(code, code[::-1]))
