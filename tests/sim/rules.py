"""What can be done to a world, chosen by anything that can choose like random.Random.

The seeded runner gives these rules a Random, hypothesis one of its own that knows how to shrink; that is
why rare things are written as the last of n possibilities. Commands are right most of the time and wrong
in every way now and then.
"""
from __future__ import annotations

from collections.abc import Callable
from random import Random

from .world import BODY_BYTES_MAX, World

Rule = Callable[[World, Random], list[bytes]]

QUEUES = [b"jobs", b"mail", b"a", b"", b"\xff\r\n\x00"]
LONG_NAME = b"n" * 65537
FRESH_NAME_BYTES = [2, 5_000, 16_000, 17_500]  # the last is too much for a small node that is full
NOT_NUMBERS = [b"-1", b"x", b"", b"1.5", b"+1", b" 1", b"-", b"9" * 19]
SECONDS = [b"1", b"2", b"3", b"5", b"10", b"10", b"30", b"60", b"3600", b"2147483647"]
NOT_SECONDS = [*NOT_NUMBERS, b"2147483648"]
NOT_IDS = [b"", b"x", b"DI", b"D-0123456789-0123456789abcdef01234567-0001", b"DI" + b"0" * 43 + b"G" + b"SQ",
           b"DI" + b"A" * 44 + b"SQ"]
UNKNOWN_IDS = [b"DI" + b"0" * 44 + b"SQ", b"DI" + b"f" * 44 + b"SQ", b"DI01234567" + b"f" * 36 + b"SQ",
               b"DI01234567" + b"0" * 36 + b"SQ"]
PASSING_MS = [1, 250, 999, 1000, 1500, 5000, 12_000, 61_000, 400_000]
SESSIONS_MOST = 6


def rarely(rng: Random, n: int) -> bool:
    return rng.randrange(n) == n - 1


def queue_name(rng: Random) -> bytes:
    if rarely(rng, 100):
        return LONG_NAME
    name = rng.choice(QUEUES)
    return bytes(bytearray(name)) if rng.randrange(2) else name  # the same name need not be the same object


def fresh_names(rng: Random) -> list[bytes]:
    """Of queues that are hardly known, and take memory."""
    return [bytes([98 + rng.randrange(25)]) * rng.choice(FRESH_NAME_BYTES) for _ in range(rng.choice([1, 2, 3]))]


def number(rng: Random, good: list[bytes], bad: list[bytes] = NOT_NUMBERS) -> bytes:
    return rng.choice(bad) if rarely(rng, 25) else rng.choice(good)


def body(world: World, rng: Random) -> bytes:
    if rarely(rng, 60):
        return b"b" * (BODY_BYTES_MAX + 1)
    if world.is_small:
        return b"b" * rng.choice([10, 1000, 20_000, 60_000, BODY_BYTES_MAX - 1, BODY_BYTES_MAX])
    return rng.choice([b"", b"body", b"\x00\r\n$", b"b" * 1500])


def job_id(world: World, rng: Random) -> bytes:
    known = list(world.model.jobs)
    if known and not rarely(rng, 8):
        return rng.choice(known[-12:]) if rng.randrange(2) else rng.choice(known)
    if rarely(rng, 4):
        return rng.choice(NOT_IDS)
    if known and rarely(rng, 4):
        jid, i = rng.choice(known), rng.randrange(2, 46)
        return jid[:i] + (b"0" if jid[i:i + 1] != b"0" else b"1") + jid[i + 1:]  # right but for one digit
    return rng.choice(world.old_ids[-20:] + UNKNOWN_IDS)


def some_ids(name: bytes) -> Rule:
    def rule(world: World, rng: Random) -> list[bytes]:
        count = rng.choice([1, 1, 1, 2, 3, 0])
        return [name] + [job_id(world, rng) for _ in range(count)]

    return rule


def one_id(name: bytes) -> Rule:
    return lambda world, rng: [name, job_id(world, rng)]


def working(world: World, rng: Random) -> list[bytes]:
    jobs = world.model.jobs
    which = rng.randrange(4)
    if jobs and which == 3:
        return [b"WORKING", min(jobs, key=lambda jid: jobs[jid].expire)]  # perhaps too late
    if jobs and which == 2:
        return [b"WORKING", max(jobs, key=lambda jid: jobs[jid].when - jobs[jid].retry * 1000)]  # perhaps delayed
    return [b"WORKING", job_id(world, rng)]


def show(world: World, rng: Random) -> list[bytes]:
    if world.model.spent and rng.randrange(3) == 2:
        return [b"SHOW", rng.choice(world.model.spent)]  # its body is gone
    return [b"SHOW", job_id(world, rng)]


def one_queue(name: bytes) -> Rule:
    return lambda world, rng: [name, queue_name(rng)]


def add_options(rng: Random) -> list[bytes]:
    words: list[bytes] = []
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        option = rng.choice([b"TTL", b"TTL", b"RETRY", b"RETRY", b"DELAY", b"PRIORITY", b"MAXLEN", b"ASYNC",
                             b"REPLICATE"])
        words.append(option if rng.randrange(4) else option.lower())
        if option == b"REPLICATE":
            words.append(number(rng, [b"1", b"1", b"1", b"2", b"65535"], [*NOT_NUMBERS, b"0", b"65536"]))
        elif option == b"TTL":
            words.append(number(rng, SECONDS, [*NOT_SECONDS, b"0"]))
        elif option in (b"RETRY", b"DELAY"):
            words.append(number(rng, [b"0", *SECONDS[:5]], NOT_SECONDS))
        elif option == b"MAXLEN":
            words.append(number(rng, [b"1", b"2", b"5", b"100"], [*NOT_NUMBERS, b"0"]))
        elif option == b"PRIORITY":
            words.append(number(rng, [b"0", b"1", b"5", b"9"], [*NOT_NUMBERS, b"10"]))
    if words and rarely(rng, 30):
        words.pop()  # an option without its value
    if rarely(rng, 40):
        words.append(b"NOSUCH")
    return words


def addjob(world: World, rng: Random) -> list[bytes]:
    timeout = number(rng, [b"0", b"0", b"0", b"100"], [*NOT_NUMBERS, b"9007199254740993"])
    once = [b"RETRY", b"0"] if world.is_small and rng.randrange(3) == 2 else []  # these can be evicted
    return [b"ADDJOB", queue_name(rng), body(world, rng), timeout, *once, *add_options(rng)]


def plain_addjob(world: World, rng: Random) -> list[bytes]:
    return [b"ADDJOB", rng.choice(QUEUES), rng.choice([b"x", b"yy", b""]), b"0"]


def addjobs(world: World, rng: Random) -> list[bytes]:
    bodies = [body(world, rng)] * rng.choice([1, 2, 3, 3, world.bulk])
    count = b"%d" % len(bodies)
    if rarely(rng, 12):
        count = rng.choice([b"0", b"-1", b"x", b"100001", b"%d" % (len(bodies) + 1)])
    return [b"ADDJOBS", queue_name(rng), number(rng, [b"0", b"50"]), count, *bodies, *add_options(rng)]


def getjob(world: World, rng: Random) -> list[bytes]:
    words = [b"GETJOB"]
    if rng.randrange(2):
        words.append(b"NOHANG")
    for option in (b"COUNT", b"TIMEOUT", b"WITHCOUNTERS"):
        if rng.randrange(3) == 2:
            words.append(option if rng.randrange(4) else option.lower())
            if option == b"COUNT":
                words.append(number(rng, [b"1", b"2", b"3", b"10", b"1000000"], [*NOT_NUMBERS, b"0"]))
            elif option == b"TIMEOUT":
                words.append(number(rng, [b"0", b"1", b"100", b"1000", b"10000", b"10000"], NOT_NUMBERS))
    if rarely(rng, 40):
        words.append(b"NOSUCH")
    if not rarely(rng, 40):
        words.append(b"FROM")
    if world.is_small and rng.randrange(3) == 2:
        return words + fresh_names(rng)
    return words + [queue_name(rng) for _ in range(rng.choice([1, 1, 1, 2, 3] * 5 + [0]))]


def plain_getjob(world: World, rng: Random) -> list[bytes]:
    return [b"GETJOB", *rng.choice([[b"NOHANG"], []]), b"FROM", rng.choice(QUEUES)]


def qpeek(world: World, rng: Random) -> list[bytes]:
    return [b"QPEEK", queue_name(rng), number(rng, [b"1", b"3", b"100", b"0", b"-1", b"-2", b"-100"], [b"x", b""])]


def pause(world: World, rng: Random) -> list[bytes]:
    words = [rng.choice([b"none", b"none", b"in", b"out", b"all", b"state", b"bcast", b"NONE"])
             for _ in range(rng.choice([1, 1, 1, 2]))]
    return [b"PAUSE", queue_name(rng), *words, *([b"nosuch"] if rarely(rng, 15) else [])]


def queue_settings(world: World, rng: Random) -> list[bytes]:
    if rng.randrange(3) == 0:
        names = [rng.choice([b"maxlen", b"PAUSED", b"maxlen", b"paused", b"nosuch"]) for _ in range(rng.randrange(3))]
        return [b"QUEUE", b"GET", queue_name(rng), *names]
    words: list[bytes] = []
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice([b"maxlen", b"maxlen", b"MaxLen", b"paused", b"paused", b"journal", b"nosuch"])
        if name.lower() == b"maxlen":
            words += [name, number(rng, [b"0", b"0", b"1", b"4", b"50"])]
        else:
            words += [name, number(rng, [b"none", b"none", b"in", b"out", b"All"], [b"x", b""])]
    if rarely(rng, 20):
        words.pop()
    return [b"QUEUE", rng.choice([b"SET"] * 9 + [b"nosuch"]), queue_name(rng), *words]


def scan_options(rng: Random, of_jobs: bool, is_scan: bool) -> list[bytes]:
    words: list[bytes] = []
    if rng.randrange(2):
        words += [b"COUNT", number(rng, [b"1", b"2", b"5", b"100", b"1000000"], [*NOT_NUMBERS, b"0"])]
    if rng.randrange(4) == 3:
        words.append(b"BUSYLOOP")
    numbers = [b"0", b"1", b"2", b"-1"]
    for _ in range(rng.choice([0, 0, 1, 2])):
        if of_jobs:
            option = rng.choice([b"QUEUE", b"STATE", b"REPLY"])
            words.append(option)
            if option == b"QUEUE":
                words.append(rng.choice(QUEUES))
            elif option == b"STATE":
                words.append(number(rng, [b"active", b"queued", b"ACKED", b"wait-repl"], [b"gone", b""]))
            else:
                words.append(number(rng, [b"all", b"ALL", b"id"], [b"some"]))
        else:
            option = rng.choice([b"MINLEN", b"MAXLEN", b"IMPORTRATE", b"MAXIDLE"] if is_scan
                                else [b"MINLEN", b"MAXLEN", b"IMPORTRATE"])
            bad = [b"x", b"", b"-1"] if option == b"MAXIDLE" else [b"x", b""]
            words += [option, number(rng, numbers[:3] if option == b"MAXIDLE" else numbers, bad)]
    if words and rarely(rng, 30):
        words.pop()
    return words


def cursor(world: World, rng: Random, of_jobs: bool) -> bytes:
    if rng.randrange(3) < 2:
        return b"0"
    if rarely(rng, 4):
        return rng.choice([b"", b"x", b"1", b"-1", b"="])
    return b"=" + (job_id(world, rng) if of_jobs else rng.choice([*QUEUES, b"b"]))


def scan(name: bytes) -> Rule:
    def rule(world: World, rng: Random) -> list[bytes]:
        of_jobs = name == b"JSCAN" or (name == b"SCAN" and rng.randrange(2) == 1)
        words = scan_options(rng, of_jobs, name == b"SCAN")
        place = rng.choice([0, len(words)])
        if not rarely(rng, 5) or name == b"SCAN":
            words.insert(place, cursor(world, rng, of_jobs))
        if rarely(rng, 30):
            words.append(b"0")
        if name != b"SCAN":
            return [name, *words]
        return [name, rng.choice([b"job" if of_jobs else b"QUEUE"] * 11 + [b"nosuch"]), *words]

    return rule


def echo(world: World, rng: Random) -> list[bytes]:
    return [rng.choice([b"ECHO", b"echo"]), rng.choice([b"", b"hello", b"\x00\r\n$", LONG_NAME])]


def no_command(world: World, rng: Random) -> list[bytes]:
    """No such command, or one with too few or too many words."""
    name = rng.choice([b"NOSUCH", b"ADDJOB", b"ADDJOBS", b"GETJOB", b"WORKING", b"SHOW", b"QLEN", b"QPEEK",
                       b"QSTAT", b"PAUSE", b"QUEUE", b"QFLUSH", b"SCAN", b"ECHO"])
    return [name] if rng.randrange(2) else [name.lower(), b"x"]


# Each command with its share in a run.
COMMANDS: dict[str, tuple[int, Rule]] = {
    "addjob": (12, addjob), "plain_addjob": (8, plain_addjob), "addjobs": (4, addjobs),
    "getjob": (9, getjob), "plain_getjob": (8, plain_getjob),
    "ackjob": (4, some_ids(b"ACKJOB")), "plain_ackjob": (3, one_id(b"ACKJOB")),
    "fastack": (2, some_ids(b"FASTACK")), "deljob": (2, some_ids(b"DELJOB")),
    "nack": (4, some_ids(b"NACK")), "enqueue": (4, some_ids(b"ENQUEUE")), "dequeue": (4, some_ids(b"DEQUEUE")),
    "working": (4, working), "show": (3, show),
    "qlen": (2, one_queue(b"QLEN")), "qpeek": (3, qpeek), "qstat": (3, one_queue(b"QSTAT")),
    "qflush": (1, one_queue(b"QFLUSH")), "pause": (5, pause), "queue": (5, queue_settings),
    "qscan": (3, scan(b"QSCAN")), "jscan": (3, scan(b"JSCAN")), "scan": (3, scan(b"SCAN")),
    "echo": (1, echo), "no_command": (1, no_command),
}


def run_command(world: World, rng: Random, rule: Rule) -> None:
    """A session, mostly one that may speak, says what the rule says."""
    sessions = world.model.sessions
    free = [who for who in sessions if not sessions[who].waits_on]
    if sessions and rarely(rng, 30):
        who = rng.choice(list(sessions))
    elif free:
        who = rng.choice(free)
    else:
        who = connect(world, rng)
    argv = rule(world, rng)
    before = list(world.model.jobs)
    world.do(who, argv, is_direct=world.has_direct(argv) and rng.randrange(2) == 1)
    world.old_ids += [jid for jid in before if jid not in world.model.jobs]


def connect(world: World, rng: Random) -> int:
    """One more session; when there are many, an old one leaves."""
    if len(world.model.sessions) >= SESSIONS_MOST:
        world.disconnect(next(iter(world.model.sessions)))
    who = world.connect()
    if rng.randrange(4) == 3:
        world.speak_resp3(who)
    return who


def free_session(world: World, rng: Random) -> int:
    sessions = world.model.sessions
    return next((who for who in sessions if not sessions[who].waits_on), 0) or connect(world, rng)


def leave(world: World, rng: Random) -> None:
    if world.model.sessions:
        world.disconnect(rng.choice(list(world.model.sessions)))


def pass_time(world: World, rng: Random) -> None:
    world.pass_time(rng.choice(PASSING_MS))


def be_late(world: World, rng: Random) -> None:
    """Time passes without a tick, as when the shell is busy; commands may come before it."""
    world.set_time(world.now + rng.choice(PASSING_MS))


def tick(world: World, rng: Random) -> None:
    world.tick()


def scan_to_the_end(world: World, rng: Random) -> None:
    """Page by page, every queue and every job exactly once."""
    who = free_session(world, rng)
    for words, items in (
        ([b"QSCAN"], world.model.queues), ([b"SCAN", b"queue"], world.model.queues),
        ([b"JSCAN"], world.model.jobs), ([b"SCAN", b"job"], world.model.jobs),
    ):
        at, found = b"0", []
        while True:
            count = b"%d" % rng.choice([1, 3, 7])
            at, page = world.do(who, [*words, at, b"COUNT", count])
            found += page
            if at == b"0":
                break
        world.expect(found == sorted(items), f"{words} found {found}")
        world.seen["scanned to the end"] += 1


def fill_up(world: World, rng: Random) -> None:
    """A node short of memory takes jobs until it is full, or all but; then perhaps somebody waits for more."""
    if not world.is_small:
        return
    who = free_session(world, rng)
    left = rng.choice([0, 1, 2_000])
    for _ in range(20):
        room = world.model.full - world.model.used() - left - 208
        if room < 0:
            break
        world.do(who, [b"ADDJOB", rng.choice(QUEUES), b"b" * min(room, BODY_BYTES_MAX), b"0"])
    if rng.randrange(2):
        world.do(who, [b"GETJOB", b"TIMEOUT", b"1000", b"FROM", *fresh_names(rng)])


OTHERS: dict[str, tuple[int, Callable[[World, Random], object]]] = {
    "connect": (1, connect), "leave": (1, leave), "pass_time": (9, pass_time), "be_late": (3, be_late),
    "tick": (3, tick), "scan_to_the_end": (1, scan_to_the_end), "fill_up": (1, fill_up),
}


def act(world: World, rng: Random, kind: str) -> None:
    if kind in COMMANDS:
        run_command(world, rng, COMMANDS[kind][1])
    else:
        OTHERS[kind][1](world, rng)


def random_run(seed: int, steps: int, overflows: bool = False) -> World:
    """One run of the seeded runner: some short of memory, some with very many jobs, or with all of them on disk."""
    rng = Random(seed)
    is_small = seed % 5 == 4 and not overflows
    world = World(seed, "1mb" if is_small else "1gb", "noeviction" if seed % 4 == 3 else "acks", overflows)
    shares = {name: row[0] for name, row in [*COMMANDS.items(), *OTHERS.items()]}
    if seed % 40 == 7:
        world.bulk = 400
    elif seed % 5 == 3:
        world.bulk = 120
        shares |= {"qflush": 12, "pass_time": 20}  # pages come and go
    if is_small:
        shares |= {"addjob": 40, "pass_time": 2, "be_late": 1, "qflush": 0, "fill_up": 4}
    for kind in rng.choices(list(shares), list(shares.values()), k=steps):
        act(world, rng, kind)
    return world
