"""Queues with a journal of their own: which record goes where, and at what cost."""
from __future__ import annotations

import time

from holdfast.core import records
from holdfast.core.books import Book, bind

from .making import Bench

OTHERS_BYTES = 20_000_000
"""What other queues write in the same turn."""
DEARER_MOST = 30
"""A full turn may cost the next record so many times that of an empty one: it costs a thousand times that where each
record copies the turn."""


def with_own_journal(queue: str = "own") -> tuple[Bench, Book]:
    bench = Bench()
    bench.node.is_recording = True
    bench.do("ADDJOB", queue, "first", "0")
    book = Book(queue.encode(), 1)
    book.is_both = False
    bind(bench.node, book)
    bench.node.take_log()
    return bench, book


def bodies(log: bytes) -> list[bytes]:
    return [each[-4:] for each in records.split(log) if each[0] == records.ADD]


def test_records_of_one_turn_are_in_the_journal_of_their_queue_and_in_order() -> None:
    bench, book = with_own_journal()
    for number in range(50):
        bench.do("ADDJOB", "own" if number % 3 else "other", f"b{number:03}", "0")
    assert bodies(bench.node.take_log()) == [b"b%03d" % number for number in range(50) if number % 3 == 0]
    assert bodies(book.take_log()) == [b"b%03d" % number for number in range(50) if number % 3]
    assert bench.node.take_log() == b""


def test_a_turn_with_nothing_but_an_own_journal_leaves_the_common_one_empty() -> None:
    bench, book = with_own_journal()
    bench.now += 1000
    for number in range(3):
        bench.do("ADDJOB", "own", f"b{number:03}", "0")
    assert bench.node.take_log() == b""
    assert len(bodies(book.take_log())) == 3


def test_what_others_wrote_in_the_turn_makes_no_record_dearer() -> None:
    """Each record used to copy all that the turn had written before it."""

    def cost(bench: Bench) -> float:
        began = time.process_time()
        for _ in range(200):
            bench.do("ADDJOB", "own", "body", "0")
        return time.process_time() - began

    bench, _ = with_own_journal()
    empty = min(cost(bench) for _ in range(3))
    body = "x" * 1_000_000
    for _ in range(OTHERS_BYTES // len(body)):
        bench.do("ADDJOB", "other", body, "0")
    assert cost(bench) < DEARER_MOST * empty + 0.1
