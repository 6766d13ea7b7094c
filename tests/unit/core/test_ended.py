"""Ended jobs out of the history of nodes: found newest first, page by page, with bounded work, and the life of one."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import ended
from holdfast.client.errors import BadRequest
from holdfast.journal.history_format import Cursor, batch_head, pack_piece

from .making import Bench

SEGMENT = 1_700_000_000
HEADER = 64


class Keeper:
    """A node that keeps history, and answers HISTORY as the shell does: a batch for each turn."""

    def __init__(self, body_bytes: int = 512) -> None:
        self.bench = Bench(history_body_bytes=str(body_bytes))
        self.bench.node.is_telling = True
        self.id = self.bench.node.node_id.decode()
        self.log = b""
        self.heads: list[tuple[int, int, int]] = []  # place, time, records
        self.reads = 0

    def do(self, *words: str) -> Any:
        reply = self.bench.do(*words)
        for records, count in self.bench.node.tale.take():
            place = HEADER + len(self.log)
            self.heads.append((place, int(self.bench.node.wall), count))
            self.log += batch_head(SEGMENT, place, count, records) + records
        return reply

    def job(self, body: str = "x", queue: str = "q", ends: str = "ACKJOB") -> str:
        """Added, taken and ended, a second apart."""
        made = self.do("ADDJOB", queue, body, "0")[1:-2].decode()
        self.bench.wait(1000)
        self.do("GETJOB", "FROM", queue)
        self.bench.wait(1000)
        if ends == "DEAD":
            self.do("NACK", made, "ERROR", "SMTPError: 550 no such user", "DEAD")
        elif ends:
            self.do(ends, made)
        return str(made)

    def answer(self, argv: list[Any]) -> Any:
        word = argv[1]
        if word == "INFO":
            return [b"history", b"yes", b"first-ms", b"%d" % self.heads[0][1] if self.heads else b"0", b"last-ms",
                    b"%d" % self.heads[-1][1] if self.heads else b"0", b"records",
                    b"%d" % sum(each[2] for each in self.heads)]
        if word == "AT":
            at = next((place for place, time, _ in self.heads if time >= argv[2]), HEADER + len(self.log))
            return self.cursor(at).encode()
        self.reads += 1
        begin = int(argv[2].rpartition(":")[2])
        ends = [place for place, _, _ in self.heads if place > begin][2:3] or [HEADER + len(self.log)]
        data = self.log[begin - HEADER:ends[0] - HEADER]
        piece = pack_piece(Cursor(self.id, SEGMENT, begin), data)
        return [self.cursor(ends[0]).encode(), piece]

    def cursor(self, at: int) -> str:
        return f"{self.id}:{SEGMENT}:{at}"


def drive(steps: ended.Steps, keepers: dict[str, Keeper]) -> ended.Page:
    try:
        asked = next(steps)
        while True:
            asked = steps.send([keepers[near].answer(argv) if near in keepers else None for near, argv in asked])
    except StopIteration as found:
        page: ended.Page = found.value
        return page


def found(keeper: Keeper, count: int = 50, cursor: str = "", **wanted: Any) -> ended.Page:
    wanted.setdefault("until_ms", int(keeper.bench.node.wall) + 1)
    return drive(ended.search(["a"], ended.Wanted(**wanted), count, cursor), {"a": keeper})


def test_ended_jobs_come_newest_first_with_how_they_ended() -> None:
    keeper = Keeper()
    done = keeper.job('{"task": "mail.send", "args": ["ada"]}')
    dead = keeper.job('{"task": "mail.send", "args": ["bob"]}', ends="DEAD")
    gone = keeper.job(ends="DELJOB")
    keeper.job(ends="")
    page = found(keeper)
    assert [(each.job, each.how) for each in page.jobs] == [(gone, "deleted"), (dead, "dead"), (done, "done")]
    assert page.cursor == "" and page.has_bodies
    assert page.jobs[1].texts["error"] == "SMTPError: 550 no such user"
    assert page.jobs[2].body == b'{"task": "mail.send", "args": ["ada"]}'
    assert page.jobs[2].texts["worker"] and page.jobs[2].attempt == 1 and page.jobs[2].queue == "q"


ROWS: list[tuple[str, Callable[[list[str]], dict[str, Any]], list[int]]] = [
    ("its id", lambda ids: {"id": ids[1]}, [1]),
    ("the end of its id", lambda ids: {"id": ids[0][10:]}, [0]),
    ("its queue", lambda ids: {"queue": "letters"}, [2]),
    ("how it ended", lambda ids: {"how": "dead"}, [1]),
    ("its task", lambda ids: {"task": "mail.send"}, [1, 0]),
    ("a task that only begins so", lambda ids: {"task": "mail"}, []),
    ("an argument", lambda ids: {"find": "BOB"}, [1]),
    ("its error", lambda ids: {"find": "550 no such"}, [1]),
    ("its worker", lambda ids: {"worker": "10.0.0.1"}, [2, 1, 0]),
    ("another worker", lambda ids: {"worker": "10.0.0.9"}, []),
    ("several at once", lambda ids: {"task": "mail.send", "find": "ada"}, [0]),
]


@pytest.mark.parametrize(("name", "wanted", "which"), ROWS, ids=[row[0] for row in ROWS])
def test_an_ended_job_is_found_by(name: str, wanted: Callable[[list[str]], dict[str, Any]], which: list[int]) -> None:
    keeper = Keeper()
    ids = [keeper.job('{"task":"mail.send","args":["ada"]}'), keeper.job('{"task":"mail.send","args":["bob"]}',
                                                                         ends="DEAD"),
           keeper.job("plain text", queue="letters")]
    assert [each.job for each in found(keeper, **wanted(ids)).jobs] == [ids[i] for i in which]


def test_only_those_of_a_time_are_looked_at() -> None:
    keeper = Keeper()
    ids = [keeper.job() for _ in range(5)]
    times = [each.at_ms for each in reversed(found(keeper).jobs)]
    page = found(keeper, since_ms=times[1], until_ms=times[3])
    assert [each.job for each in page.jobs] == ids[3:0:-1]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_pages_have_every_job_once_also_those_of_one_moment(count: int) -> None:
    keeper = Keeper()
    made = [keeper.do("ADDJOB", "q", "x", "0")[1:-2].decode() for _ in range(9)]
    keeper.do("GETJOB", "COUNT", "9", "FROM", "q")
    keeper.do("ACKJOB", *made[:5])
    keeper.bench.wait(2000)
    keeper.do("ACKJOB", *made[5:])
    seen: list[str] = []
    cursor = ""
    for _ in range(20):
        page = found(keeper, count, cursor)
        seen += [each.job for each in page.jobs]
        cursor = page.cursor
        if not cursor:
            break
    assert sorted(seen) == sorted(made) and set(seen[:4]) == set(made[5:])


def test_one_request_does_bounded_work_and_says_where_to_look_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "LOOKED_MAX", 30)
    monkeypatch.setattr(ended, "WINDOW_RECORDS", 10)
    keeper = Keeper()
    first = keeper.job("the one that is wanted")
    for _ in range(60):
        keeper.job()
    page, requests, looked = found(keeper, find="wanted"), 1, 0
    while page.cursor and not page.jobs:
        assert page.looked_at <= 30 + 8 * 10 + 9
        looked += page.looked_at
        page, requests = found(keeper, cursor=page.cursor, find="wanted"), requests + 1
    assert [each.job for each in page.jobs] == [first] and requests > 2


def test_the_life_of_a_job_is_told_from_when_it_was_added() -> None:
    keeper = Keeper()
    keeper.job()
    job = keeper.do("ADDJOB", "q", "x", "0", "RETRY", "60")[1:-2].decode()
    keeper.do("GETJOB", "FROM", "q")
    keeper.bench.wait(1500)
    keeper.do("NACK", job, "ERROR", "no")
    keeper.do("GETJOB", "FROM", "q")
    keeper.do("ACKJOB", job)
    keeper.job()
    page = drive(ended.life(["a"], job, until_ms=int(keeper.bench.node.wall)), {"a": keeper})
    assert {each.event for each in page.jobs} == {"acked", "handed-out", "queued", "nacked", "added"}
    assert page.jobs[-1].event == "added" and page.cursor == "" and {each.job for each in page.jobs} == {job}


def test_without_history_it_is_said_what_turns_it_on_and_what_that_costs() -> None:
    for words in ("history yes", "--dir", "CPU", "history-max-bytes"):
        with pytest.raises(ended.HistoryOff, match=words):
            drive(ended.search(["a"], ended.Wanted()), {})
    keeper = Keeper(body_bytes=0)
    keeper.job('{"task": "mail.send"}')
    page = found(keeper)
    assert page.jobs[0].body is None and not page.has_bodies
    both = drive(ended.search(["a", "b"], ended.Wanted(until_ms=int(keeper.bench.node.wall) + 1)), {"a": keeper})
    assert both.silent == ["b"] and len(both.jobs) == 1


@pytest.mark.parametrize("cursor", ["x", "1", "1:2:3", "-1:0", "9" * 20 + ":0", "１:0"])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(BadRequest):
        found(Keeper(), cursor=cursor)
    with pytest.raises(BadRequest):
        drive(ended.life(["a"], "DI-nonsense"), {"a": Keeper()})


@pytest.mark.parametrize(("body", "task"), [
    (b'{"task":"a.b","args":[1', "a.b"), (b'{"task": "\\u00e4"}', "ä"), (b'{"args":[],"task":"no"}', ""), (b"", ""),
    (b"\x81\xa4task\xa3a.b", "a.b"), (b"\x82\xa4task\xd9\x03a.b\xa4args\x90", "a.b"), (b"\x82\xa4task", ""),
    (b'{"task":"cut', ""),
])
def test_the_task_of_a_body_is_read_also_from_its_beginning(body: bytes, task: str) -> None:
    assert ended.task_of(body) == task
