"""Unique keys at one node."""
from __future__ import annotations

import random

import pytest

from holdfast.core.node import Node
from holdfast.core.step import Tick, step

from .making import NODE_ID, Bench


def add(bench: Bench, body: str, *options: str) -> bytes:
    return bench.do("ADDJOB", "q", body, "0", "UNIQUE", "k", *options) or b""


def later(bench: Bench, seconds: int) -> None:
    bench.now += seconds * 1000
    step(bench.node, bench.now, Tick())


def restarted(bench: Bench) -> Bench:
    records = bench.node.take_records()
    again = Bench()
    again.now = bench.now + 1000
    again.node = Node(again.node.config, NODE_ID, random.Random(1).randbytes, again.now)
    again.node.set_time(again.now, again.now)
    again.node.load(records)
    again.node.connect("10.0.0.1:1")
    return again


def test_the_second_gets_the_id_of_the_first() -> None:
    bench = Bench()
    first = add(bench, "a")
    assert add(bench, "b") == first
    assert bench.do("QLEN", "q") == b":1\r\n"
    bench.do("ACKJOB", first[1:-2])
    assert add(bench, "c") != first


def test_the_reply_says_what_happened() -> None:
    bench = Bench()
    said = add(bench, "a", "SAYDUP")
    assert said.endswith(b"$5\r\nadded\r\n")
    jid = said.split(b"\r\n")[2]
    assert add(bench, "b", "SAYDUP") == b"*2\r\n$48\r\n%b\r\n$8\r\nexisting\r\n" % jid
    assert add(bench, "c", "SAYDUP", "ONDUP", "replace").endswith(b"$8\r\nreplaced\r\n")


def test_reject() -> None:
    bench = Bench()
    first = add(bench, "a")
    assert add(bench, "b", "ONDUP", "reject").startswith(b"-DUPLICATE " + first[1:-2])


def test_replace_makes_a_new_job_and_ends_the_old() -> None:
    bench = Bench()
    first = add(bench, "a")
    second = add(bench, "b", "ONDUP", "replace")
    assert second != first and second.startswith(b"+")
    assert bench.do("SHOW", first[1:-2]) == b"$-1\r\n"
    assert b"\r\nb\r\n" in (bench.do("GETJOB", "NOHANG", "FROM", "q") or b"")
    assert add(bench, "c", "ONDUP", "replace") == second, "one that is being worked on is not replaced"


def test_until_started() -> None:
    bench = Bench()
    first = add(bench, "a", "UNTIL", "started")
    assert add(bench, "b", "UNTIL", "started") == first
    bench.do("GETJOB", "FROM", "q")
    assert add(bench, "b", "UNTIL", "started") != first


def test_a_window_outlives_its_job() -> None:
    bench = Bench()
    first = add(bench, "a", "WINDOW", "10")
    bench.do("ACKJOB", first[1:-2])
    later(bench, 9)
    assert add(bench, "b", "WINDOW", "10") == first
    later(bench, 3)
    assert not bench.node.taken
    assert add(bench, "b", "WINDOW", "10") != first


def test_queues_and_groups_have_their_own_keys() -> None:
    bench = Bench()
    first = add(bench, "a")
    assert add(bench, "a", "GROUP", "g") != first
    assert bench.do("ADDJOB", "other", "a", "0", "UNIQUE", "k") != first


@pytest.mark.parametrize("is_done", [False, True])
def test_keys_are_known_after_a_restart(is_done: bool) -> None:
    bench = Bench()
    bench.node.is_recording = True
    first = add(bench, "a", "WINDOW", "60")
    if is_done:
        bench.do("ACKJOB", first[1:-2])
    again = restarted(bench)
    assert add(again, "b", "WINDOW", "60") == first
    assert bench.node.used >= 0


def test_many_at_once_have_no_common_key() -> None:
    bench = Bench()
    assert (bench.do("ADDJOBS", "q", "0", "2", "a", "b", "UNIQUE", "k") or b"").startswith(b"-ERR UNIQUE")
    assert (bench.do("ADDJOB", "q", "a", "0", "SAYDUP") or b"").startswith(b"-ERR UNTIL")


def test_expired_and_deleted_jobs_give_their_keys_back() -> None:
    bench = Bench()
    used = bench.node.used
    add(bench, "a", "TTL", "1")
    later(bench, 2)
    assert not bench.node.taken
    first = add(bench, "a")
    bench.do("DELJOB", first[1:-2])
    assert not bench.node.taken
    bench.do("DEBUG", "FLUSHALL")
    assert bench.node.used >= used
