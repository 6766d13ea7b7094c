"""HISTORY on a real node: every event of real clients, over kills, for readers that wait."""
from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from harness import Client, ErrorReply, Node, until

from holdfast.history import decode

KILLS = max(2, int(os.environ.get("KILLS", "25")) // 5)


def facts(client: Client) -> dict[bytes, Any]:
    reply = client.ask("HISTORY", "INFO")
    return dict(zip(reply[::2], reply[1::2]))


def read_all(client: Client, cursor: bytes = b"first") -> tuple[bytes, list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    while True:
        cursor, piece = client.ask("HISTORY", "READ", cursor, "COUNT", 500)
        if not piece:
            return cursor, rows
        rows += decode(piece).to_pylist()


@pytest.fixture
def told(tmp_path: Path) -> list[str]:
    return ["--dir", str(tmp_path), "--set", "history=yes"]


def test_what_clients_did_is_there_in_order(told: list[str]) -> None:
    with Node(*told) as node, node.client() as client:
        client.ask("CLIENT", "SETNAME", "w1")
        ids = [client.ask("ADDJOB", "q", f"body-{number}", 0).decode() for number in range(20)]
        for _ in ids:
            client.ask("GETJOB", "FROM", "q")
        client.ask("NACK", ids[0])
        client.ask("ACKJOB", *ids[1:])
        cursor, rows = read_all(client)
        assert [row["job"] for row in rows if row["event"] == "added"] == ids
        assert [row["job"] for row in rows if row["event"] == "handed-out"] == ids
        assert [row["job"] for row in rows if row["event"] == "acked"] == ids[1:]
        assert [row["event"] for row in rows if row["job"] == ids[0]] == ["added", "handed-out", "nacked", "queued"]
        assert {row["worker"] for row in rows if row["event"] == "handed-out"} == {"w1"}
        found = facts(client)
        assert found[b"history"] == b"yes" and found[b"last"] == cursor and int(found[b"records"]) == len(rows)
        assert found[b"readers"] == [[b"w1", cursor, 0]]
        client.ask("ADDJOB", "q", "more", 0)
        assert facts(client)[b"readers"][0][2] > 100, "it is behind now"


def test_a_reader_that_waits_is_woken_and_patience_ends(told: list[str]) -> None:
    with Node(*told) as node, node.client() as client, node.client() as reader:
        cursor, piece = reader.ask("HISTORY", "READ", "last", "COUNT", 10, "BLOCK", 20)
        assert piece == b""
        reader.send("HISTORY", "READ", cursor, "COUNT", 10, "BLOCK", 0)
        until(lambda: b"cmd=history" in client.ask("CLIENT", "LIST").lower())
        jid = client.ask("ADDJOB", "q", "x", 0)
        cursor, piece = reader.read()
        assert decode(piece).column("job").to_pylist() == [jid.decode()]
        reader.send("HISTORY", "READ", cursor, "BLOCK", 0)
        reader.close()
        assert client.ask("ADDJOB", "q", "x", 0), "whoever is gone does not disturb"


def test_replies_keep_their_order_around_a_read(told: list[str]) -> None:
    with Node(*told) as node, node.client() as client:
        for words in (("ADDJOB", "q", "x", 0), ("HISTORY", "READ", "first"), ("PING",), ("HISTORY", "INFO"), ("PING",)):
            client.send(*words)
        assert client.read().startswith(b"DI")
        assert decode(client.read()[1]).num_rows == 1
        assert client.read() == b"PONG"
        assert client.read()[0] == b"history"
        assert client.read() == b"PONG"


def test_until_and_seek_and_at(told: list[str]) -> None:
    with Node(*told) as node, node.client() as client:
        for number in range(10):
            client.ask("ADDJOB", "q", str(number), 0)
        middle = client.ask("HISTORY", "SEEK", "first", 4)
        _, piece = client.ask("HISTORY", "READ", "first", "COUNT", 100, "UNTIL", middle)
        assert decode(piece).num_rows == 4
        assert client.ask("HISTORY", "READ", middle, "UNTIL", middle) == [middle, b""]
        assert client.ask("HISTORY", "AT", 0) == facts(client)[b"first"]
        assert client.ask("HISTORY", "AT", 2**42) == facts(client)[b"last"]


def test_words_for_those_who_ask_wrongly(told: list[str]) -> None:
    with Node(*told) as node, node.client() as client:
        for words, code in (
            (("READ", "nonsense"), b"BADCURSOR"), (("READ", "first", "COUNT", 0), b"ERR"), (("READ",), b"ERR"),
            (("READ", "first", "BLOCK", -1), b"ERR"), (("NONSENSE",), b"ERR"), (("AT", "x"), b"ERR"),
            (("READ", "a b"), b"BADCURSOR"), (("SEEK", "first", "x"), b"ERR"),
        ):
            answer = client.ask("HISTORY", *words)
            assert isinstance(answer, ErrorReply) and answer.startswith(code), (words, answer)


def test_it_is_turned_on_and_off_while_the_node_runs(tmp_path: Path) -> None:
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        assert client.ask("HISTORY", "READ", "first").startswith(b"NOHISTORY")
        client.ask("ADDJOB", "q", "before", 0)
        assert client.ask("CONFIG", "SET", "history", "yes") == b"OK"
        jid = client.ask("ADDJOB", "q", "x", 0).decode()
        assert [row["job"] for row in read_all(client)[1]] == [jid]
        assert client.ask("CONFIG", "SET", "history", "no") == b"OK"
        client.ask("ADDJOB", "q", "after", 0)
        assert client.ask("HISTORY", "INFO").startswith(b"NOHISTORY")
        assert client.ask("CONFIG", "SET", "history", "yes") == b"OK"
        assert [row["job"] for row in read_all(client)[1]] == [jid]


def test_without_a_dir_it_is_refused_with_words() -> None:
    with Node() as node, node.client() as client:
        assert client.ask("CONFIG", "SET", "history", "yes") == b"ERR history needs a folder: start the node with --dir"
    with pytest.raises(AssertionError, match="history needs a folder"):
        Node("--set", "history=yes")


def test_it_works_without_a_journal(tmp_path: Path) -> None:
    with Node("--dir", str(tmp_path), "--set", "appendonly=no", "--set", "history=yes") as node, \
            node.client() as client:
        jid = client.ask("ADDJOB", "q", "x", 0).decode()
        assert [row["job"] for row in read_all(client)[1]] == [jid]


def work(port: int, told: list[tuple[str, str]]) -> None:
    """Do what clients do until the connection breaks, and note what was answered."""
    try:
        with Client(("127.0.0.1", port)) as client:
            while True:
                told.append(("added", client.ask("ADDJOB", "q", "x" * 50, 0, "RETRY", 3600).decode()))
                for _, jid, _ in client.ask("GETJOB", "NOHANG", "FROM", "q") or []:
                    told.append(("handed-out", jid.decode()))
                    if client.ask("ACKJOB", jid) == 1:
                        told.append(("acked", jid.decode()))
    except (OSError, EOFError):
        pass


def test_a_node_that_is_killed_has_told_all_that_was_answered(told: list[str]) -> None:
    """SIGKILL at random, again and again; one reader goes on from its cursor, another reads all at the end."""
    answered: list[tuple[str, str]] = []
    cursor, seen = b"first", []
    for _ in range(KILLS):
        node = Node(*told, "--set", "history-max-bytes=1mb", "--set", "history-days=0")
        with node.client() as client:
            cursor, rows = read_all(client, cursor)
            seen += rows
        notes: list[list[tuple[str, str]]] = [[], [], []]
        workers = [threading.Thread(target=work, args=(node.port, each)) for each in notes]
        for worker in workers:
            worker.start()
        until(lambda notes=notes: sum(map(len, notes)) > 300)
        node.signal(signal.SIGKILL)
        node.wait()
        for worker in workers:
            worker.join(15)
        node.stop()
        answered += [each for some in notes for each in some]
    with Node(*told) as node, node.client() as client:
        seen += read_all(client, cursor)[1]
    counted: dict[tuple[str, str], int] = {}
    for row in seen:
        counted[row["event"], row["job"]] = counted.get((row["event"], row["job"]), 0) + 1
    assert not [each for each in answered if each not in counted], "answered and not told"
    assert all(count == 1 for (event, _), count in counted.items() if event in ("added", "acked"))
    places = [(row["segment"], row["position"]) for row in seen]
    assert places == sorted(set(places))


def test_a_reader_that_fell_behind_is_told_what_is_gone(told: list[str]) -> None:
    with Node(*told, "--set", "history-max-bytes=1mb") as node, node.client() as client:
        cursor = client.ask("HISTORY", "SEEK", "first", 1)
        while facts(client)[b"first"].split(b":")[1] == cursor.split(b":")[1]:
            client.ask("ADDJOBS", "q", 0, 500, *["x"] * 500)
        answer = client.ask("HISTORY", "READ", cursor)
        assert answer.startswith(b"GONE from " + cursor + b" to " + facts(client)[b"first"] + b": up to ")
        assert read_all(client)[1]
