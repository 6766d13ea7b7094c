"""Users on a real node: who gets in, what each may do, how guessers are slowed, and what the log never says."""
from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from harness import ErrorReply, Node, until
from users_file import SECRETS, users


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    for name, words in {
        "boss": ["--role", "admin"],
        "shop": ["--role", "produce", "--queue", "orders.*"],
        "mailer": ["--role", "consume", "--role", "read", "--queue", "mail", "--queue", "orders.new"],
    }.items():
        made = users(path, "add", name, *words, "--secret-stdin", secret=SECRETS[name])
        assert made.returncode == 0, made.stderr
    return path


@pytest.fixture(scope="module")
def node(path: Path) -> Iterator[Node]:
    with Node("--users-file", str(path)) as node:
        yield node


def test_the_file_has_no_secret_in_it_and_is_for_its_owner_alone(path: Path) -> None:
    text = path.read_text()
    assert not any(secret in text for secret in SECRETS.values())
    assert path.stat().st_mode & 0o777 == 0o600


def test_nobody_gets_in_without_saying_who_it_is(node: Node) -> None:
    with node.client() as client:
        assert client.ask("QLEN", "q").startswith(b"NOAUTH")
        assert client.ask("AUTH", "shop", "wrong-wrong-wrong").startswith(b"WRONGPASS")
        assert client.ask("AUTH", "nobody", "wrong-wrong-wrong").startswith(b"WRONGPASS")
        assert client.ask("QLEN", "q").startswith(b"NOAUTH")


@pytest.mark.parametrize(("name", "words", "is_allowed"), [
    ("boss", ("CONFIG", "GET", "port"), True),
    ("boss", ("ADDJOB", "anything", "x", 0), True),
    ("shop", ("ADDJOB", "orders.new", "x", 0), True),
    ("shop", ("ADDJOB", "mail", "x", 0), False),
    ("shop", ("GETJOB", "NOHANG", "FROM", "orders.new"), False),
    ("shop", ("CONFIG", "SET", "maxmemory", "2gb"), False),
    ("shop", ("SHUTDOWN",), False),
    ("shop", ("MONITOR",), False),
    ("shop", ("CLIENT", "LIST"), False),
    ("shop", ("CLIENT", "SETNAME", "me"), True),
    ("shop", ("PING",), True),
    ("mailer", ("GETJOB", "NOHANG", "FROM", "mail"), True),
    ("mailer", ("GETJOB", "NOHANG", "FROM", "mail", "other"), False),
    ("mailer", ("ADDJOB", "mail", "x", 0), False),
    ("mailer", ("QLEN", "mail"), True),
    ("mailer", ("QPEEK", "orders.old", 1), False),
    ("mailer", ("JSCAN", "0", "QUEUE", "mail"), True),
    ("mailer", ("JSCAN", "0"), False),
    ("mailer", ("CLUSTER", "NODES"), True),
    ("mailer", ("CLUSTER", "RESET"), False),
    ("mailer", ("QFLUSH", "mail"), False),
])
def test_each_may_do_what_its_roles_say(node: Node, name: str, words: tuple[str | int, ...], is_allowed: bool) -> None:
    with node.client() as client:
        assert client.ask("AUTH", name, SECRETS[name]) == b"OK"
        answer = client.ask(*words)
        assert (isinstance(answer, ErrorReply) and answer.startswith(b"NOPERM")) != is_allowed, answer


def test_a_job_is_touched_by_those_who_may_touch_its_queue(node: Node) -> None:
    with node.client() as boss, node.client() as mailer:
        assert boss.ask("AUTH", "boss", SECRETS["boss"]) == b"OK"
        assert mailer.ask("AUTH", "mailer", SECRETS["mailer"]) == b"OK"
        theirs, ours = boss.ask("ADDJOB", "private", "x", 0), boss.ask("ADDJOB", "mail", "x", 0)
        assert mailer.ask("ACKJOB", theirs).startswith(b"NOPERM")
        assert mailer.ask("SHOW", theirs).startswith(b"NOPERM")
        assert mailer.ask("ACKJOB", ours) == 1
        assert boss.ask("ACKJOB", theirs) == 1


def test_redis_clients_log_in_with_user_and_password(node: Node) -> None:
    client = redis.Redis(port=node.port, username="shop", password=SECRETS["shop"], protocol=3)
    assert str(client.execute_command("ADDJOB", "orders.new", "hello", 0)).find("DI") >= 0
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command("QFLUSH", "orders.new")
    client.close()


def test_a_guesser_is_told_to_try_again_and_others_are_not(node: Node) -> None:
    with node.client() as guesser:
        answers = [guesser.ask("AUTH", "mailer", "guess-guess-guess") for _ in range(22)]
        assert answers[0].startswith(b"WRONGPASS") and answers[-1].startswith(b"TRYAGAIN")
    with node.client() as boss:
        began = time.monotonic()
        assert boss.ask("AUTH", "boss", SECRETS["boss"]) == b"OK"
        assert time.monotonic() - began < 0.7, "who was right before is known again at once"


def test_a_user_that_is_there_is_not_replaced_by_mistake(path: Path, tmp_path: Path) -> None:
    """Its programs would be locked out by a secret that nobody gave them."""
    copy = tmp_path / "users.toml"
    copy.write_text(path.read_text())
    again = users(copy, "add", "shop", "--role", "produce")
    assert again.returncode == 1 and "--replace" in again.stderr and again.stdout == ""
    assert copy.read_text() == path.read_text()
    replaced = users(copy, "add", "shop", "--role", "produce", "--replace")
    assert replaced.returncode == 0 and "replaced shop" in replaced.stderr
    assert copy.read_text() != path.read_text()


def test_sighup_takes_users_in_and_out(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "users.toml"
    copy.write_text(path.read_text())
    with Node("--users-file", str(copy)) as node, node.client() as shop, node.client() as boss:
        assert shop.ask("AUTH", "shop", SECRETS["shop"]) == b"OK"
        assert boss.ask("AUTH", "boss", SECRETS["boss"]) == b"OK"
        assert users(copy, "remove", "shop").returncode == 0
        node.signal(signal.SIGHUP)
        until(lambda: "users reloaded: 2 (removed shop)" in node.log())
        until(lambda: "settings reloaded: no setting has changed" in node.log())
        assert shop.read_to_end() == b""
        assert boss.ask("PING") == b"PONG"
        copy.write_text("nonsense [")
        node.signal(signal.SIGHUP)
        until(lambda: "users not reloaded" in node.log())
        assert boss.ask("PING") == b"PONG"


def test_no_secret_is_logged_monitored_or_remembered(node: Node) -> None:
    with node.client() as boss, node.client() as monitor, node.client() as shop:
        assert monitor.ask("AUTH", "boss", SECRETS["boss"]) == b"OK"
        assert boss.ask("AUTH", "boss", SECRETS["boss"]) == b"OK"
        boss.ask("CONFIG", "SET", "slowlog-log-slower-than", 0)
        assert monitor.ask("MONITOR") == b"OK"
        assert shop.ask("HELLO", 3, "AUTH", "shop", SECRETS["shop"])[b"server"] == b"holdfast"
        assert shop.ask("ECHO", "the-end") == b"the-end"
        seen = b""
        while b"the-end" not in seen:
            seen += monitor.read_line()
        kept = repr(boss.ask("SLOWLOG", "GET", 100)).encode()
        boss.ask("CONFIG", "SET", "slowlog-log-slower-than", 10000)
        for secret in SECRETS.values():
            assert secret.encode() not in seen + kept + node.log().encode()


def test_bad_files_are_refused_with_words(tmp_path: Path, path: Path) -> None:
    for text, words in {
        "": "has no users",
        "[users.x]\nroles=['read']\n": "it takes a secret",
        "[users.x]\nsecret='plain'\nroles=['read']\n": "no scrypt hash",
        path.read_text().replace('"admin"', '"king"'): "there is no role 'king'",
        path.read_text().replace("[users.\"boss\"]", "[users.\"b oss\"]"): "a name is made of",
    }.items():
        file = tmp_path / "bad.toml"
        file.write_text(text)
        node = Node("--users-file", str(file), wait=False)
        assert node.wait() == 1
        assert words in node.log(), (words, node.log())
        node.stop()


def test_a_node_with_users_may_listen_beyond_this_machine(path: Path) -> None:
    refused = Node("--bind", "0.0.0.0", wait=False)
    assert refused.wait() == 1 and "without users or a password" in refused.log()
    refused.stop()
    with Node("--bind", "0.0.0.0", "--users-file", str(path)) as node, node.client() as client:
        assert client.ask("PING").startswith(b"NOAUTH")
    with Node("--bind", "0.0.0.0", "--insecure") as node, node.client() as client:
        assert client.ask("PING") == b"PONG"


def test_the_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    assert "at least 12" in users(path, "add", "x", "--role", "read", "--secret-stdin", secret="short").stderr
    assert "a name is made of" in users(path, "add", "x y", "--role", "read").stderr
    made = users(path, "add", "x", "--role", "read")
    assert made.returncode == 0 and len(made.stdout.strip()) >= 32
    assert "last one" in users(path, "remove", "x").stderr
    listed = users(path, "list", "--json")
    assert '"name": "x"' in listed.stdout
