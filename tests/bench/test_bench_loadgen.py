"""The load generator must be believed, so it is tested against a server that lies."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fake_disque import NULL_ARRAY, NULL_BULK, FakeDisque, Lie, Words, bulk, job_id

from bench import common

REQUESTS = 60
OPTIONS = ["--connections", "3", "--requests", str(REQUESTS), "--stall-ms", "5000"]


@pytest.fixture(scope="session")
def loadgen() -> Path:
    try:
        return common.build_loadgen()
    except common.Missing as error:
        pytest.skip(str(error))


def drive(loadgen: Path, server: FakeDisque, mode: str, *more: str) -> tuple[int, dict[str, Any]]:
    command = [str(loadgen), "--mode", mode, "--port", str(server.port), *OPTIONS, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"usage": done.stderr}


@pytest.mark.parametrize("piece_bytes", [1, 5, 1 << 20])
@pytest.mark.parametrize("pipeline", ["1", "7"])
def test_right_replies_are_counted_however_they_are_cut(
    loadgen: Path, tmp_path: Path, pipeline: str, piece_bytes: int
) -> None:
    """60 requests do not divide by a pipeline of 7: the last batch is a short one."""
    ids = str(tmp_path / "ids")
    with FakeDisque(piece_bytes=piece_bytes) as server:
        for mode in ("ping", "lpush", "rpop", "addjob", "getjob", "ackjob", "cycle"):
            code, result = drive(loadgen, server, mode, "--pipeline", pipeline, "--ids", ids, "--once")
            assert (code, result["misses"], result["errors"]) == (0, 0, 0), (mode, result)
            assert result["ops"] == REQUESTS
            assert result["commands"] == (3 * REQUESTS if mode == "cycle" else REQUESTS)
        assert len(Path(ids).read_text().splitlines()) == REQUESTS
        assert not server.items and not server.jobs and not server.handed_out


def test_acknowledging_many_ids_at_once_counts_ids(loadgen: Path, tmp_path: Path) -> None:
    ids = str(tmp_path / "ids")
    with FakeDisque() as server:
        drive(loadgen, server, "addjob")
        drive(loadgen, server, "getjob", "--ids", ids)
        code, result = drive(loadgen, server, "ackjob", "--ids", ids, "--ids-per-ack", "9", "--pipeline", "2")
        assert (code, result["ops"]) == (0, REQUESTS)
        assert result["commands"] == 7  # batches of 18, 18, 18 and 6 ids: 2 + 2 + 2 + 1 commands
        code, again = drive(loadgen, server, "ackjob", "--ids", ids, "--ids-per-ack", "9")
        assert (code, again["misses"]) == (4, REQUESTS)


def test_options_of_addjob_arrive_word_by_word(loadgen: Path) -> None:
    with FakeDisque() as server:
        more = ("--add-options", "REPLICATE 3 RETRY 10", "--add-timeout-ms", "250", "--queue", "mail")
        code, _ = drive(loadgen, server, "addjob", "--body-bytes", "10", *more)
    assert code == 0
    name, queue, body, *rest = server.added[0]
    assert (name, queue, len(body)) == (b"ADDJOB", b"mail", 10)
    assert rest == [b"250", b"REPLICATE", b"3", b"RETRY", b"10"]


def always(reply: bytes) -> Lie:
    """Greetings stay honest, or there would be no run."""
    return lambda words, honest: honest if words[0] == b"PING" else reply


def change(before: bytes, after: bytes) -> Lie:
    return lambda words, honest: honest.replace(before, after)


ONE_JOB = b"*3\r\n" + bulk(b"q") + bulk(job_id(1)) + bulk(b"x" * 64)


@pytest.mark.parametrize(
    ("mode", "lie", "complaint"),
    [
        ("addjob", always(b"-NOREPL not enough nodes\r\n"), "addjob: -NOREPL not enough nodes"),
        ("addjob", always(b"+OK\r\n"), "addjob: +OK"),
        ("addjob", change(b"SQ\r\n", b"\r\n"), "addjob: +DI"),
        ("addjob", always(bulk(job_id(1))), "unexpected reply of type $"),
        ("getjob", change(b"$1\r\nq\r\n", b"$1\r\nz\r\n"), "getjob: job of queue z"),
        ("getjob", change(b"ijkl", b"ijkk"), "wrong content"),
        ("getjob", change(b"DI0", b"DIx"), "not a job id"),
        ("getjob", always(b"*2\r\n" + ONE_JOB + ONE_JOB), "unexpected reply of type *, 9 parts"),
        ("getjob", always(b"*1\r\n*3\r\n" + bulk(b"q") + bulk(job_id(1)) + bulk(b"")), "body of 0 bytes"),
        ("lpush", always(b":5\r\n"), "lpush: length 5 after 5"),
        ("rpop", always(b":1\r\n"), "unexpected reply of type :"),
        ("rpop", always(bulk(b"00000001" + b"x" * 56)), "wrong content"),
        ("ping", lambda words, honest: honest, None),
    ],
)
def test_a_wrong_reply_is_an_error(loadgen: Path, mode: str, lie: Lie, complaint: str | None) -> None:
    with FakeDisque() as server:
        for fill in ("addjob", "lpush"):
            assert drive(loadgen, server, fill)[0] == 0
        server.lie = lie
        code, result = drive(loadgen, server, mode)
    if complaint is None:
        assert code == 0
        return
    assert code == 4 and result["errors"] > 0 and complaint in result["first_error"], result


@pytest.mark.parametrize(
    ("mode", "reply"),
    [("getjob", NULL_ARRAY), ("getjob", NULL_BULK), ("getjob", b"*0\r\n"), ("rpop", NULL_BULK)],
)
def test_an_empty_queue_is_a_miss(loadgen: Path, mode: str, reply: bytes) -> None:
    with FakeDisque(lie=always(reply)) as server:
        code, result = drive(loadgen, server, mode)
    assert (code, result["misses"], result["errors"]) == (4, REQUESTS, 0)


def test_more_acknowledged_than_asked_is_an_error(loadgen: Path, tmp_path: Path) -> None:
    ids = tmp_path / "ids"
    ids.write_text("".join(f"{job_id(n).decode()}\n" for n in range(REQUESTS)))
    with FakeDisque(lie=always(b":2\r\n")) as server:
        code, result = drive(loadgen, server, "ackjob", "--ids", str(ids))
    assert code == 4 and result["first_error"] == "ackjob: 2 acknowledged of 1"


@pytest.mark.parametrize("mode", ["getjob", "rpop"])
def test_a_body_that_comes_twice_is_noticed(loadgen: Path, mode: str) -> None:
    first: list[bytes] = []

    def repeat(words: Words, honest: bytes) -> bytes:
        if words[0] == b"PING":
            return honest
        first.append(honest)
        return first[0]

    with FakeDisque() as server:
        drive(loadgen, server, "addjob" if mode == "getjob" else "lpush")
        server.lie = repeat
        code, result = drive(loadgen, server, mode, "--once")
    assert code == 4 and "came twice" in result["first_error"]
    assert result["errors"] == REQUESTS - 1


def test_silence_ends_the_run(loadgen: Path) -> None:
    silent: Lie = lambda words, honest: honest if words[0] == b"PING" else None  # noqa: E731
    with FakeDisque(lie=silent) as server:
        code, result = drive(loadgen, server, "addjob", "--stall-ms", "100")
    assert (code, result["stopped"], result["ops"]) == (2, "stalled, no reply", 0)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"hello\r\n", "a reply is not RESP"),
        (b"$x\r\n", "a reply is not RESP"),
        (b":1\r\n:2\r\n", "more replies than requests"),
    ],
)
def test_nonsense_ends_the_run(loadgen: Path, reply: bytes, why: str) -> None:
    with FakeDisque(lie=always(reply)) as server:
        code, result = drive(loadgen, server, "lpush")
    assert (code, result["stopped"]) == (3, why)


def test_a_server_that_hangs_up_ends_the_run(loadgen: Path) -> None:
    def hang_up(words: Words, honest: bytes) -> bytes:
        if words[0] != b"PING":
            raise ConnectionError
        return honest

    with FakeDisque(lie=hang_up) as server:
        code, result = drive(loadgen, server, "lpush")
    assert code == 3 and result["stopped"].startswith("connection")


def test_cpu_time_of_the_server_is_reported(loadgen: Path) -> None:
    with FakeDisque() as server:
        code, result = drive(loadgen, server, "lpush", "--server-pid", str(os.getpid()))
    assert code == 0 and result["server_cpu_us"] > 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--mode", "no-such"],
        ["--pipeline", "0"],
        ["--requests", "many"],
        ["--mode", "ackjob"],
        ["--mode", "ackjob", "--ids", os.devnull],
        ["--mode", "rpop", "--once", "--body-bytes", "7"],
        ["--no-such-option"],
    ],
)
def test_wrong_usage_is_told(loadgen: Path, wrong: list[str]) -> None:
    with FakeDisque() as server:
        code, result = drive(loadgen, server, "ping", *wrong)
    assert code == 1 and result["usage"]
