"""What a job has beyond the plain: as bytes and back, over the bus, and after a restart."""
from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import more as mores
from holdfast.core import unique
from holdfast.core.limits import BODY_BYTES_EXTRA, GROUP_BYTES, JOB_BYTES, KEY_BYTES_MAX, TAKEN_BYTES, TRIES_KEPT
from holdfast.core.more import More, Try
from holdfast.core.step import Tick, step
from holdfast.wire.bus import BadFrame

from .making import Bench

TEXT = st.binary(max_size=40)
NUMBER = st.integers(0, 2**31 - 1)


@st.composite
def mores_of_jobs(draw: st.DrawFn) -> More:
    more = More()
    more.headers = [part for pair in draw(st.lists(st.tuples(TEXT, TEXT), max_size=4)) for part in pair]
    for name in ("parent", "tenant", "domain", "group", "unique", "batch", "cause"):
        setattr(more, name, draw(TEXT))
    for name in ("window", "attempts", "backoff", "backoff_most", "index", "order", "round", "died", "failures",
                 "lost", "life", "changed"):
        setattr(more, name, draw(NUMBER))
    more.skips = draw(st.booleans())
    more.tries = [
        Try(draw(TEXT), draw(TEXT), draw(NUMBER), draw(NUMBER), draw(st.integers(0, 4)), draw(TEXT))
        for _ in range(draw(st.integers(0, 3)))
    ]
    return more


def told(more: More) -> list[object]:
    return [
        more.headers, more.parent, more.tenant, more.domain, more.group, more.skips, more.unique, more.until,
        more.window, more.attempts, more.backoff, more.backoff_most, more.batch, more.index, more.order, more.round,
        more.cause, more.died, more.failures, more.lost, more.life, more.changed,
        [(each.token, each.worker, each.began, each.ended, each.how, each.error) for each in more.tries],
    ]


@given(mores_of_jobs())
def test_bytes_and_back_are_the_same(more: More) -> None:
    assert told(mores.read(more.to_bytes())) == told(more)


def test_a_job_without_any_of_it_has_no_bytes() -> None:
    assert More().to_bytes() == b""


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read_but_never_crash(data: bytes) -> None:
    with contextlib.suppress(BadFrame):
        mores.read(data)


def test_a_key_that_no_client_could_have_given_is_refused() -> None:
    more = More()
    more.group = b"x" * (KEY_BYTES_MAX + 1)
    with pytest.raises(BadFrame):
        mores.read(more.to_bytes())


def test_a_try_is_known_once_and_the_oldest_go() -> None:
    more = More()
    for n in range(TRIES_KEPT + 3):
        assert more.note_try(Try(b"t%d" % n, b"w", n, n, mores.NACKED, b""))
        assert not more.note_try(Try(b"t%d" % n, b"w", n, n, mores.NACKED, b""))
    assert [each.token for each in more.tries] == [b"t%d" % n for n in range(3, TRIES_KEPT + 3)]


OPTIONS = [
    "TENANT", "t", "DOMAIN", "d", "GROUP", "g", "ONFAIL", "skip", "UNIQUE", "u", "UNTIL", "started", "WINDOW", "9",
    "ATTEMPTS", "3", "BACKOFF", "2:60", "BATCH", "b", "INDEX", "7", "HEADERS", "1", "content-type", "text/plain",
]


def test_what_a_client_asks_for_is_kept_through_a_restart_and_accounted() -> None:
    bench = Bench()
    bench.node.is_recording = True
    used = bench.node.used
    jid = (bench.do("ADDJOB", "q", "body", "0", *OPTIONS) or b"")[1:-2]
    job = bench.node.find(jid)
    assert job is not None and job.more is not None
    more = job.more
    assert told(more)[:13] == [
        [b"content-type", b"text/plain"], b"", b"t", b"d", b"g", True, b"u", mores.UNTIL_STARTED, 9, 3, 2000, 60_000,
        b"b",
    ]
    other = Bench()
    other.node.load(bench.node.take_records())
    again = other.node.find(jid)
    assert again is not None and again.more is not None and told(again.more) == told(more)
    bench.do("ACKJOB", jid)
    bench.do("ADDJOB", "q", "body", "0")
    plain = bench.node.used - used
    bench.do("ADDJOB", "q", "body", "0")
    jid = (bench.do("ADDJOB", "q", "body", "0", *OPTIONS, "UNIQUE", "v") or b"")[1:-2]  # u has its window still
    key = unique.key_of(b"q", more)
    keys = GROUP_BYTES + len(b"g") + TAKEN_BYTES + 2 * len(key)
    assert bench.node.used - used - plain == 2 * (JOB_BYTES + BODY_BYTES_EXTRA + 4) + more.cost() + keys


@pytest.mark.parametrize("options", [
    ["ONFAIL", "skip"], ["UNTIL", "done", "WINDOW", "5"], ["ONDUP", "reject"], ["BATCH", "b"], ["INDEX", "1"],
    ["GROUP", "x" * 65536], ["TENANT", ""], ["ATTEMPTS", "0"], ["BACKOFF", "-1"], ["BACKOFF", "9:3"],
    ["HEADERS", "1", "name"], ["HEADERS", "0"], ["HEADERS", "1", "name", "x" * 9000], ["PARENT", "nobody"],
    ["AT", "5", "DELAY", "5"], ["AT", "99999999999999"], ["INDEX", "1000000", "BATCH", "b"],
    ["UNIQUE", "u", "UNTIL", "x"],
])
def test_options_that_make_no_sense_are_refused_by_name_and_add_nothing(options: list[str]) -> None:
    bench = Bench()
    reply = bench.do("ADDJOB", "q", "body", "0", *options) or b""
    assert reply.startswith((b"-ERR ", b"-BADID ")), reply
    assert bench.do("QLEN", "q") == b":0\r\n"


def test_a_consumer_that_asks_is_told_the_keys_and_gets_a_token() -> None:
    bench = Bench()
    bench.do("ADDJOB", "q", "body", "0", "TENANT", "t", "PRIORITY", "7", "HEADERS", "1", "a", "b")
    first = bench.do("GETJOB", "WITHMETA", "LEASEMS", "1500", "FROM", "q") or b""
    assert b"$5\r\ntoken\r\n$22\r\n01234567.18bcfe56800.1\r\n$7\r\nattempt\r\n:1\r\n" in first
    assert b"$8\r\npriority\r\n:7\r\n$7\r\nheaders\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n" in first
    assert first.endswith(b"$4\r\nkeys\r\n*2\r\n$6\r\ntenant\r\n$1\r\nt\r\n")


def test_at_is_a_time_and_not_a_delay() -> None:
    bench = Bench()
    at = bench.now // 1000 + 60
    bench.do("ADDJOB", "q", "later", "0", "AT", str(at))
    assert bench.do("GETJOB", "NOHANG", "FROM", "q") == b"*-1\r\n"
    bench.now += 61_000
    step(bench.node, bench.now, Tick())
    assert b"later" in (bench.do("GETJOB", "NOHANG", "FROM", "q") or b"")
