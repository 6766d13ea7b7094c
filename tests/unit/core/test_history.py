"""What the machine tells of its jobs: which events, in which order, with what in them; and the bytes, for good."""
from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.step import Tick, step
from holdfast.history import BadHistory, decode, schema
from holdfast.journal.history_format import Cursor, batch_head, pack_piece

from .making import NODE_ID, START_MS, Bench

SEGMENT = 1_700_000_000
BEGIN = 64


def telling(**settings: str) -> Bench:
    bench = Bench(**settings)
    bench.node.is_telling = True
    return bench


def piece_of(batches: list[tuple[bytes, int]]) -> bytes:
    data = b""
    for records, count in batches:
        data += batch_head(SEGMENT, BEGIN + len(data), count, records) + records
    return pack_piece(Cursor(NODE_ID.decode(), SEGMENT, BEGIN), data)


def rows(bench: Bench) -> list[dict[str, Any]]:
    """What it has told since the last time, without what is not there."""
    found = decode(piece_of(bench.node.tale.take()))
    found.validate(full=True)
    return [{name: value for name, value in row.items() if value is not None} for row in found.to_pylist()]


def told(bench: Bench) -> list[str]:
    return [row["event"] for row in rows(bench)]


def jid(reply: bytes | None) -> str:
    assert reply is not None
    return reply[1:-2].decode()


def tick(bench: Bench, ms: int) -> None:
    bench.now += ms
    while bench.node.next_wake() <= bench.now:
        step(bench.node, bench.now, Tick())


def test_without_history_nothing_is_collected() -> None:
    bench = Bench()
    bench.do("ADDJOB", "q", "x", "0")
    bench.do("GETJOB", "FROM", "q")
    assert len(bench.node.tale.out) == 0
    assert bench.node.tale.take() == []


def test_the_life_of_a_plain_job() -> None:
    bench = telling()
    bench.do("CLIENT", "SETNAME", "worker-7")
    job = jid(bench.do("ADDJOB", "mail", "hello", "0", "RETRY", "60", "TTL", "3600", "PRIORITY", "7"))
    bench.do("GETJOB", "FROM", "mail")
    bench.do("ACKJOB", job)
    added, out, acked = rows(bench)
    common = {"node": NODE_ID.decode(), "segment": SEGMENT, "job": job, "queue": "mail", "copy": False,
              "body_bytes": 5}
    assert {**added, **common} == added
    assert {**out, **common} == out
    assert (added["event"], out["event"], acked["event"]) == ("added", "handed-out", "acked")
    assert added["time"].timestamp() * 1000 == START_MS
    assert {name: added[name] for name in ("retry_s", "ttl_s", "delay_ms", "priority", "replicate", "attempts")} == {
        "retry_s": 60, "ttl_s": 3600, "delay_ms": 0, "priority": 7, "replicate": 1, "attempts": 0}
    assert (added["attempt"], out["attempt"], acked["attempt"]) == (0, 1, 1)
    assert (out["worker"], acked["worker"], out["lease_ms"]) == ("worker-7", "worker-7", 60_000)
    assert "worker" not in added and "lease_ms" not in acked and "retry_s" not in out
    assert added["position"] == BEGIN + 24 < out["position"] < acked["position"]


def test_a_job_that_is_refused_by_its_worker_and_forgotten_by_the_next() -> None:
    bench = telling()
    job = jid(bench.do("ADDJOB", "q", "x", "0", "RETRY", "10"))
    bench.do("GETJOB", "FROM", "q")
    bench.do("NACK", job)
    bench.do("GETJOB", "FROM", "q")
    bench.do("WORKING", job)
    tick(bench, 10_000)
    assert [(row["event"], row["attempt"]) for row in rows(bench)] == [
        ("added", 0), ("handed-out", 1), ("nacked", 1), ("queued", 1), ("handed-out", 2), ("extended", 2),
        ("lease-lost", 2), ("queued", 2),
    ]


def test_who_lost_the_lease_and_why() -> None:
    bench = telling()
    bench.do("CLIENT", "SETNAME", "sleepy")
    bench.do("ADDJOB", "q", "x", "0", "RETRY", "10")
    bench.do("GETJOB", "FROM", "q")
    tick(bench, 10_000)
    lost = rows(bench)[2]
    assert (lost["event"], lost["worker"], lost["cause"]) == ("lease-lost", "sleepy", "lease-ended")


def test_a_delayed_job_is_queued_later() -> None:
    bench = telling()
    bench.do("ADDJOB", "q", "x", "0", "DELAY", "5")
    assert [(row["event"], row["delay_ms"]) for row in rows(bench)] == [("added", 5000)]
    tick(bench, 5000)
    queued, = rows(bench)
    assert (queued["event"], queued["attempt"]) == ("queued", 0)
    assert queued["time"].timestamp() * 1000 == START_MS + 5000


def test_endings_that_are_not_acks() -> None:
    bench = telling()
    bench.do("ADDJOB", "q", "x", "0", "TTL", "5", "RETRY", "1")
    bench.do("PAUSE", "q", "out")
    tick(bench, 6000)
    assert told(bench) == ["added", "expired"]
    gone = jid(bench.do("ADDJOB", "q", "x", "0"))
    bench.do("DEQUEUE", gone)
    bench.do("DELJOB", gone)
    bench.do("ADDJOB", "q", "x", "0")
    bench.do("QFLUSH", "q")
    found = rows(bench)
    assert [row["event"] for row in found] == ["added", "dequeued", "deleted", "added", "deleted"]
    assert (found[2]["cause"], found[4]["cause"]) == ("deleted", "flushed")


def test_an_add_that_is_refused_is_told_without_a_job() -> None:
    bench = telling()
    bench.do("ADDJOB", "q", "x", "0")
    bench.do("ADDJOB", "q", "body", "0", "MAXLEN", "1")
    bench.do("PAUSE", "q", "in")
    bench.do("ADDJOBS", "q", "0", "2", "a", "b")
    bench.do("ADDJOB", "q", "x", "0", "RETRY", "nonsense")
    _, full, paused = rows(bench)
    assert (full["event"], full["cause"], full["queue"], full["count"]) == ("refused", "MAXLEN", "q", 1)
    assert full["body_bytes"] == 4
    assert full["error"] == "Queue is already longer than the specified MAXLEN count"
    assert (paused["cause"], paused["count"]) == ("PAUSED", 2)
    assert "job" not in full and "job" not in paused


def test_keys_are_with_every_event_and_headers_with_the_first() -> None:
    bench = telling()
    job = jid(bench.do(
        "ADDJOB", "q", "x", "0", "TENANT", "t", "DOMAIN", "d.example", "GROUP", "g", "BATCH", "b", "INDEX", "3",
        "ATTEMPTS", "4", "HEADERS", "2", "type", "json", "trace", b"\xff\x00",
    ))
    bench.do("GETJOB", "FROM", "q")
    bench.do("ACKJOB", job)
    found = rows(bench)
    for row in found:
        assert (row["tenant"], row["domain"], row["group"]) == ("t", "d.example", "g")
    assert (found[0]["batch"], found[0]["batch_index"], found[0]["attempts"]) == ("b", 3, 4)
    assert found[0]["headers"] == [("type", "json"), ("trace", "\\xff\x00")]
    assert "headers" not in found[1]


def test_names_that_are_no_text() -> None:
    bench = telling()
    bench.do("ADDJOB", b"\xc3\x28", "x", "0")
    bench.do("ADDJOB", "größe", "x", "0")
    assert [row["queue"] for row in rows(bench)] == ["\\xc3(", "größe"]


def test_a_long_turn_is_cut_into_batches() -> None:
    bench = telling()
    for number in range(2000):
        bench.do("ADDJOB", f"queue-{number}", "x", "0")
    batches = bench.node.tale.take()
    assert len(batches) > 3
    assert all(len(records) < 34_000 for records, _ in batches)
    found = decode(piece_of(batches))
    assert found.column("queue").to_pylist() == [f"queue-{number}" for number in range(2000)]
    positions = found.column("position").to_pylist()
    assert positions == sorted(set(positions))


def test_an_empty_piece_is_no_rows() -> None:
    found = decode(b"")
    assert found.num_rows == 0
    assert found.schema == schema()


GOLDEN = (
    "48466870010000000123456789abcdef0123456789abcdef012345670000000000f15365000000004000000000000000b748"
    "4668ac00000080694199020000000068e5cf8b01000060000000010000000068e5cf8b0100006745230101401e18240a0600"
    "cd072cd8be6f9f62a10500000500000000000000000000000100000071000000180000092c01000000000000805101000100"
    "050000000000000000000400000461636d654c000000030001000068e5cf8b0100006745230101401e18240a0600cd072cd8"
    "be6f9f62a105000005000000e093040000000000010000007100000001000001770000000400000461636d65"
)


def test_the_bytes_are_those_of_the_reference() -> None:
    """Made once and read since: a change here is another version of the format."""
    bench = telling()
    bench.do("CLIENT", "SETNAME", "w")
    job = jid(bench.do("ADDJOB", "q", "hello", "0", "TENANT", "acme"))
    bench.do("GETJOB", "FROM", "q")
    piece = piece_of(bench.node.tale.take())
    assert piece.hex() == GOLDEN
    assert decode(bytes.fromhex(GOLDEN)).column("job").to_pylist() == [job, job]


def test_every_broken_byte_is_found() -> None:
    bench = telling()
    bench.do("ADDJOB", "q", "hello", "0", "TENANT", "acme")
    piece = piece_of(bench.node.tale.take())
    good = decode(piece)
    for at in range(len(piece)):
        bad = piece[:at] + bytes([piece[at] ^ 0x40]) + piece[at + 1:]
        try:
            found = decode(bad)
        except BadHistory:
            continue
        # Only the name of the node and zeros are not covered: everything else is known to be wrong.
        assert 8 <= at < 32 or 5 <= at < 8, at
        assert found.drop_columns(["node"]) == good.drop_columns(["node"])
    for size in range(1, len(piece)):
        with pytest.raises(BadHistory):
            decode(piece[:size])


