"""Rights, without a node: which command needs which role, and which queues it touches."""
from __future__ import annotations

import pytest
from tests.unit.core.making import Bench

from holdfast.core.commands.table import COMMANDS
from holdfast.core.rights import ADMIN, ALL_ROLES, PRODUCE, READ, User
from holdfast.core.users import LESS, NEEDS, may_touch, needs, touched

# Commands for administrators alone, on purpose. A new command is here, in NEEDS, or fails the test below.
ADMINS = {
    b"BGREWRITEAOF", b"CLIENT", b"CLUSTER", b"CONFIG", b"DEBUG", b"DELJOB", b"DEQUEUE", b"DISQUE", b"ENQUEUE",
    b"MONITOR", b"LATENCY", b"PAUSE", b"QFLUSH", b"QUEUE", b"SHUTDOWN", b"DEAD", b"DOMAIN", b"TENANT", b"CRON",
    b"BATCH", b"MOVE", b"PRIORITY", b"CLAIM", b"STAGE",
}


def test_somebody_has_decided_who_may_run_each_command() -> None:
    undecided = {command.name for command in COMMANDS} - set(NEEDS) - ADMINS
    assert not undecided, "say in users.NEEDS which role it takes, or here that it takes admin"


@pytest.mark.parametrize(("words", "roles"), [
    (b"QUEUE GET q", READ), (b"QUEUE SET q maxlen 1", ADMIN), (b"queue get q", READ), (b"CLIENT ID", ALL_ROLES),
    (b"CLUSTER QSTAT q", READ), (b"CLUSTER FORGET x", ADMIN), (b"CLIENT SETNAME x", ALL_ROLES),
    (b"CLIENT KILL x", ADMIN), (b"ADDJOB q b 0", PRODUCE), (b"NOSUCH", ADMIN),
])
def test_a_command_takes_a_role(words: bytes, roles: int) -> None:
    argv = words.split()
    assert needs(argv[0].upper(), argv)[0] == roles


@pytest.mark.parametrize(("words", "queues"), [
    (b"ADDJOB q b 0", [b"q"]), (b"GETJOB NOHANG FROM a b", [b"a", b"b"]), (b"JSCAN 0", [b"*"]),
    (b"JSCAN 0 QUEUE q", [b"q"]), (b"QUEUE GET q maxlen", [b"q"]), (b"PING", []),
    (b"JSCAN queue q BUSYLOOP =x REPLY all", [b"q"]), (b"SCAN job 0 QUEUE q", [b"q"]), (b"SCAN queue 0", [b"*"]),
    (b"DEAD LIST COUNT 5 QUEUE q", [b"q"]), (b"DEAD LIST", [b"*"]),
])
def test_a_command_touches_queues(words: bytes, queues: list[bytes]) -> None:
    argv = words.split()
    assert touched(Bench().node, argv, needs(argv[0], argv)[1]) == queues


@pytest.mark.parametrize(("words", "queues"), [
    (b"JSCAN 0 QUEUE mine QUEUE other", [b"mine", b"other"]),
    (b"DEAD LIST QUEUE mine QUEUE other", [b"mine", b"other"]),
    (b"JSCAN BUSYLOOP 0 QUEUE mine queue other", [b"mine", b"other"]),
    (b"JSCAN TENANT QUEUE tenant t", [b"*"]), (b"DEAD LIST ERROR queue error x", [b"*"]),
    (b"STAGE ADD s other 2 QUEUE mine", [b"*"]), (b"CLAIM TAKE g 1 1 COUNT 1 LEASEMS 1 FROM queue mine other", [b"*"]),
])
def test_the_word_queue_does_not_lead_astray(words: bytes, queues: list[bytes]) -> None:
    """What is checked is what the command keeps to: named twice, the last; as a value, a body or a name, nothing."""
    argv = words.split()
    assert touched(Bench().node, argv, needs(argv[0], argv)[1]) == queues


def test_patterns_take_in_what_they_say_and_no_more() -> None:
    user = User(b"u", READ, [b"mail", b"orders.*"])
    assert [may_touch(user, name) for name in (b"mail", b"mail2", b"orders.", b"orders.new", b"*")] == [
        True, False, True, True, False,
    ]
    assert set(LESS) <= {command.name for command in COMMANDS} | ADMINS | set(NEEDS)
