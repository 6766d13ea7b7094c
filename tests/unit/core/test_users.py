"""Rights, without a node: which command needs which role, and which queues it touches."""
from __future__ import annotations

import pytest
from tests.unit.core.making import Bench
from tests.unit.core.spelled import SCHEDULE, names_a_queue, phrases

from holdfast.core.commands.table import COMMANDS
from holdfast.core.errors import BadRequest
from holdfast.core.rights import ADMIN, ALL_ROLES, PRODUCE, READ, User
from holdfast.core.users import LESS, NEEDS, check, may_touch, needs, touched

# Commands for administrators of everything, on purpose. A new command is here, in NEEDS, or fails the test below.
ADMINS = {
    b"BGREWRITEAOF", b"CLIENT", b"CLUSTER", b"CONFIG", b"DEBUG", b"DISQUE", b"MONITOR", b"LATENCY", b"SHUTDOWN",
    b"DOMAIN", b"BATCH",
}
# Names queues, but stands for more than these: claims and stages have names that are nobody's.
WHOLE = {b"CLAIM", b"STAGE"}
# What somebody bound to queues may say that names none, and no job or schedule of one. A new command is not among them.
HARMLESS = {
    b"WORKER BEAT", b"WORKER LIST", b"BATCH CLOSE", b"BATCH GET", b"HELLO", b"CLUSTER NODES", b"CLUSTER INFO",
    b"CLUSTER MYID", b"CLUSTER AWAY", b"AUTH", b"PING", b"ECHO", b"QUIT", b"CLIENT SETNAME", b"CLIENT GETNAME",
    b"CLIENT ID", b"CLIENT INFO", b"CLIENT SETINFO", b"CLIENT REPLY", b"INFO", b"TIME", b"COMMAND", b"DISQUE HELLO",
    b"DISQUE INFO",
}


def keeper(queue: str) -> tuple[Bench, User, str]:
    """An admin of the queues mine.*, at a node where a job and a schedule are of that queue; the job."""
    bench = Bench()
    job = (bench.do("ADDJOB", queue, "body", "0") or b"").decode().strip("+\r\n")
    assert bench.do("CRON", "SET", SCHEDULE, "@daily", queue, "body") == b"+OK\r\n"
    return bench, User(b"keeper", ALL_ROLES, [b"mine.*"]), job


def is_refused(bench: Bench, user: User, argv: list[bytes]) -> bool:
    try:
        check(bench.node, bench.node.sessions[1], user, argv[0], argv)
    except BadRequest as error:
        assert error.text.startswith(b"NOPERM the user 'keeper' may not touch ")
        return True
    return False


def test_somebody_has_decided_who_may_run_each_command() -> None:
    undecided = {command.name for command in COMMANDS} - set(NEEDS) - ADMINS
    assert not undecided, "say in users.NEEDS which role it takes, or here that it takes admin"


def test_an_admin_of_some_queues_gets_at_no_other_by_any_command() -> None:
    """All the table has, about a queue of others, a job in it and a schedule for it."""
    bench, user, job = keeper("other")
    let_by = {b" ".join(argv[:2]) if argv[1:2] and argv[1].isupper() else argv[0]
              for _, argv in phrases("other", job) if not is_refused(bench, user, argv)}
    assert let_by == HARMLESS, "say in core/users.py which queue it is about; if it is about none, here"


def test_an_admin_of_some_queues_may_do_to_them_what_an_admin_may() -> None:
    bench, user, job = keeper("mine.x")
    for tokens, argv in phrases("mine.x", job):
        if any(map(names_a_queue, tokens)) or ("id" in tokens and argv[0] != b"CLUSTER"):
            assert is_refused(bench, user, argv) == (argv[0] in WHOLE), argv
    for word in (b"GET", b"DEL", b"NEXT"):
        assert not is_refused(bench, user, [b"CRON", word, SCHEDULE.encode()])


@pytest.mark.parametrize("words", [
    b"MOVE %b other", b"CRON SET nightly @daily other b", b"DEAD RETRY QUEUE mine.x QUEUE other",
    b"DEAD DELETE CAUSE x", b"DEAD RETRY OLDER 1 ERROR queue ERROR mine.x", b"BATCH CLOSE b 1 THEN other b",
    b"queue set other maxlen 1", b"GETJOB FROM mine.x other",
])
def test_nor_from_a_queue_of_its_own(words: bytes) -> None:
    bench, user, job = keeper("mine.x")
    argv = (words % job.encode() if b"%b" in words else words).split()
    assert is_refused(bench, user, [argv[0].upper(), *argv[1:]])


def test_a_schedule_that_this_node_cannot_read_is_everybodys() -> None:
    """A node of a later version has set it: whose it is cannot be told here."""
    bench, user, _ = keeper("mine.x")
    del bench.node.cron[SCHEDULE.encode()]
    assert is_refused(bench, user, [b"CRON", b"DEL", SCHEDULE.encode()])
    assert not is_refused(bench, user, [b"CRON", b"DEL", b"there-is-none"])


@pytest.mark.parametrize(("pattern", "gets_all"), [
    (b"?", False), (b"[*]", False), (b"[!a]", False), (b"[)-+]", False), (b"*?", False), (b"?*", False),
    (b"*[*]", False), (b"[*]*", False), (b"", False), (b"*", True), (b"**", True),
])
def test_no_pattern_but_the_asterisk_stands_for_all_queues(pattern: bytes, gets_all: bool) -> None:
    """Each of them fits the word *, by which a command is told all queues; they mean a name that looks like it."""
    bench = Bench()
    user = User(b"keeper", ALL_ROLES, [b"mine", pattern])
    for words in (b"CLUSTER QSTAT *", b"JSCAN", b"DEAD LIST", b"QSCAN", b"DEAD RETRY OLDER 1", b"CONFIG GET x"):
        assert is_refused(bench, user, words.split()) != gets_all, words


def test_a_refused_command_does_nothing() -> None:
    bench, user, _ = keeper("other")
    bench.node.sessions[2].rights = user
    assert bench.step(2, "QFLUSH", "other").reply == b"-NOPERM the user 'keeper' may not touch the queue 'other'\r\n"
    assert bench.step(2, "DISQUE", "FLUSHALL").reply == b"-NOPERM the user 'keeper' may not touch all queues\r\n"
    assert bench.do("QLEN", "other") == b":1\r\n"


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
    assert may_touch(User(b"u", READ, [b"[*]x", b"?"]), b"*x") and may_touch(User(b"u", READ, [b"?"]), b"q")
    assert set(LESS) <= {command.name for command in COMMANDS} | ADMINS | set(NEEDS)
