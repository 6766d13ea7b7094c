"""An embedded queue, served from inside a process: to our client, to Redis clients, with a password, until it ends."""
from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
import redis
from tests.proc.harness import until

import holdfast
from holdfast.client import errors
from holdfast.serving import Serving


def test_both_sides_see_the_same_queue() -> None:
    with holdfast.open("memory:") as mine, holdfast.serve(mine) as serving, holdfast.open(serving.url) as theirs:
        job_id = mine.add("q", "from inside")
        job = theirs.next("q", timeout=5)
        assert (job.id, job.text) == (job_id, "from inside")
        assert job.done() and mine.length("q") == 0


def test_who_waits_inside_gets_a_job_from_outside_and_the_other_way_round() -> None:
    with holdfast.open("memory:") as mine, holdfast.serve(mine) as serving, holdfast.open(serving.url) as theirs:
        for waits, adds in ((mine, theirs), (theirs, mine)):
            got: list[str] = []
            thread = threading.Thread(target=lambda waits=waits, got=got: got.append(waits.next("q", timeout=10).text))
            thread.start()
            until(lambda: (stats := mine.stats("q")) is not None and stats.blocked == 1)
            adds.add("q", "x")
            thread.join(10)
            assert got == ["x"]


def test_one_who_hangs_up_while_it_waits_takes_no_job_with_it() -> None:
    with holdfast.open("memory:") as mine, holdfast.serve(mine) as serving:
        with redis.Redis(port=serving.port) as client:
            connection = client.connection_pool.get_connection()
            connection.send_command("GETJOB", "FROM", "q")
            until(lambda: (stats := mine.stats("q")) is not None and stats.blocked == 1)
            connection.disconnect()
            until(lambda: (stats := mine.stats("q")) is not None and stats.blocked == 0)
        mine.add("q", "x")
        assert mine.next("q", timeout=5).attempt == 1


def test_redis_clients_pipelines_and_resp3() -> None:
    with holdfast.open("memory:") as mine, holdfast.serve(mine) as serving:
        for protocol in (2, 3):
            with redis.Redis(port=serving.port, protocol=protocol) as client:
                pipe = client.pipeline(transaction=False)
                for number in range(500):
                    pipe.execute_command("ADDJOB", "q", str(number), 0)
                assert len(pipe.execute()) == 500
                assert client.execute_command("QLEN", "q") == 500
                with pytest.raises(redis.ResponseError, match="not available"):
                    client.execute_command("SHUTDOWN")
                mine.flush("q")


def test_a_password_is_asked_for() -> None:
    with holdfast.open("memory:") as mine:
        with pytest.raises(holdfast.BadRequest, match="pass a password"):
            holdfast.serve(mine, resp="0.0.0.0:0")
        with holdfast.serve(mine, password="secret") as serving:
            with pytest.raises(errors.NotAllowed):
                holdfast.open(serving.url).length("q")
            with holdfast.open(serving.url.replace("//", "//:secret@")) as theirs:
                theirs.add("q", "x")
            assert mine.length("q") == 1  # who is inside needs none


def test_http_and_grpc_see_the_same_queue() -> None:
    with holdfast.open("memory:") as mine, holdfast.serve(mine, resp=0, http=0, grpc=0) as serving:
        assert list(serving.ports) == ["resp", "http", "grpc"] and serving.url == serving.url_of("resp")
        for way in serving.ports:
            with holdfast.open(serving.url_of(way)) as theirs:
                job_id = mine.add("q", way)
                with theirs.next("q", timeout=5) as job:
                    assert (job.id, job.text) == (job_id, way)
                answered: list[str] = []
                waiting = threading.Thread(
                    target=lambda theirs=theirs, answered=answered: answered.append(theirs.next("q", timeout=10).text)
                )
                waiting.start()
                until(lambda: (stats := mine.stats("q")) is not None and stats.blocked == 1)
                mine.add("q", "waited for")
                waiting.join(10)
                assert answered == ["waited for"]
                mine.flush("q")
        assert httpx.post(f"{serving.url_of('http')}/push", content=b"plain").status_code == 201
        assert mine.next("default", timeout=5).body == b"plain"


def test_each_way_in_asks_for_the_password_and_ends_with_the_serving() -> None:
    with holdfast.open("memory:") as mine:
        for way in ("http", "grpc"):
            elsewhere: Any = {way: "0.0.0.0:0"}
            with pytest.raises(holdfast.BadRequest, match="pass a password"):
                holdfast.serve(mine, **elsewhere)
            here: Any = {way: 0}
            with holdfast.serve(mine, password="secret", **here) as serving:
                assert list(serving.ports) == [way]
                with pytest.raises(holdfast.BadRequest, match="not served by resp"):
                    serving.url_of("resp")
                for login in ("", "any:wrong@"):
                    with pytest.raises(errors.NotAllowed):
                        holdfast.open(serving.url.replace("//", f"//{login}"))
                with holdfast.open(serving.url.replace("//", "//any:secret@")) as theirs:
                    theirs.add("q", "x")
                taken: Any = {way: serving.port}
                with pytest.raises(errors.Unreachable, match="cannot listen"):
                    holdfast.serve(mine, **taken)
            with pytest.raises(errors.Unreachable):
                holdfast.open(serving.url.replace("//", "//any:secret@"))
        assert mine.length("q") == 2


def test_closing_sends_everybody_away_and_leaves_the_queue_open() -> None:
    with holdfast.open("memory:") as mine:
        serving = holdfast.serve(mine)
        theirs = holdfast.open(serving.url)
        theirs.add("q", "x")
        serving.close()
        serving.close()
        with pytest.raises(holdfast.Error):
            theirs.length("q")
        theirs.close()
        assert mine.length("q") == 1


def test_what_cannot_be_served_says_why() -> None:
    with holdfast.open("memory:") as mine, holdfast.serve(mine) as serving:
        with pytest.raises(errors.Unreachable, match="cannot listen"):
            holdfast.serve(mine, resp=serving.port)
        with holdfast.open(serving.url) as theirs, pytest.raises(holdfast.BadRequest, match="at a node already"):
            holdfast.serve(theirs)


def test_what_is_no_resp_is_answered_and_sent_away() -> None:
    import socket

    with holdfast.open("memory:") as mine, holdfast.serve(mine) as serving:
        with socket.create_connection(("127.0.0.1", serving.port)) as sock:
            sock.settimeout(10)
            sock.sendall(b"PING\r\n*1\r\n!3\r\n")
            data = b""
            while chunk := sock.recv(100):
                data += chunk
        assert data.startswith(b"+PONG\r\n-ERR Protocol error")


@pytest.mark.parametrize("wrong", [65536, -1, "127.0.0.1:x", "70000"])
def test_a_port_that_is_none_is_said(wrong: int | str) -> None:
    with holdfast.open("memory:") as mine, pytest.raises(holdfast.BadRequest):
        holdfast.serve(mine, resp=wrong)


def test_a_fault_while_it_begins_is_not_kept_from_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*args: object) -> int:
        raise RuntimeError("no loop today")

    monkeypatch.setattr(Serving, "_begin_resp", fails)
    with holdfast.open("memory:") as mine, pytest.raises(errors.Unreachable, match="no loop today"):
        holdfast.serve(mine)


def test_it_ends_without_a_word_while_guests_are_there(capfd: pytest.CaptureFixture[str]) -> None:
    with holdfast.open("memory:") as mine:
        serving = holdfast.serve(mine, resp="0")
        with redis.Redis(port=serving.port) as client:
            connection = client.connection_pool.get_connection()
            connection.send_command("GETJOB", "FROM", "q")
            until(lambda: (stats := mine.stats("q")) is not None and stats.blocked == 1)
            serving.close()
    assert "Traceback" not in capfd.readouterr().err
