"""Every command of the table with any words at all: no fault, no unparsable reply, and sound insides.

There is no model here. The words are those that mean something to some command, so that now and then a
line makes sense; most do not.
"""
from __future__ import annotations

import os
from random import Random

from holdfast.core.commands.table import COMMANDS
from holdfast.core.effects import CLOSE, KILL
from holdfast.core.step import Connect, Do, Effects, Gone, Tick, step

from .invariants import check_inside
from .rules import LONG_NAME, NOT_IDS, NOT_NUMBERS, PASSING_MS, QUEUES, SECONDS, UNKNOWN_IDS
from .world import START_MS, new_node, show

RUNS = max(20, int(os.environ.get("MODEL_RUNS", "150")) // 5)
STEPS = 300
NAMES = [command.name for command in COMMANDS]
SYNTAX = [
    word.encode() for command in COMMANDS for word in command.syntax.replace("[", " ").replace("]", " ")
    .replace("|", " ").split() if word.isalpha()
]
WORDS = [
    *SYNTAX, *QUEUES, *NOT_IDS, *NOT_NUMBERS, *SECONDS, *UNKNOWN_IDS, LONG_NAME, b"0", b"0", b"maxlen", b"paused",
    b"requirepass", b"maxmemory", b"2mb", b"max-body-bytes", b"slowlog-max-len", b"timeout", b"*", b"default",
    b"10.0.0.1:1", b"\xff\xfe", b"all", b"active", b"FROM", b"FROM", b"a\r\nb", b"lib-name", b"normal 1 1 1",
    b"client-output-buffer-limit", b"SKIPME", b"no", b"1e400", b"nan", b"bcast",
]


def parse(data: bytes) -> None:
    """Whether these bytes are whole replies and nothing else."""
    at = 0
    while at < len(data):
        at = skip(data, at)


def skip(data: bytes, at: int) -> int:
    end = data.index(b"\r\n", at)
    sign, rest = data[at:at + 1], data[at + 1:end]
    assert b"\r" not in rest and b"\n" not in rest and sign in b"+-:$*%_", data[:200]
    after = end + 2
    if sign in b"$" and rest != b"-1":
        after += int(rest)
        assert data[after:after + 2] == b"\r\n"
        return after + 2
    if sign in b"*%" and rest != b"-1":
        for _ in range(int(rest) * (2 if sign == b"%" else 1)):
            after = skip(data, after)
    return after


def noise(seed: int) -> None:
    rng = Random(seed)
    node = new_node(seed, rng.choice(["1gb", "1mb"]))
    node.config.set("enable-debug", "yes")
    now, log = START_MS, [b""]
    ids: list[bytes] = []

    def act(event: Connect | Do | Gone | Tick) -> Effects:
        effects = step(node, now, event)
        for who, data in [(effects.session, effects.reply or b""), *effects.wakeups]:
            parse(data)
            assert who in node.sessions or not data, "bytes for a session that is gone"
        for kind, who, _ in effects.requests:
            if kind in (CLOSE, KILL) and who in node.sessions:
                act(Gone(who))
            elif who in node.sessions and node.sessions[who].blocked:
                node.answer(node.sessions[who], b"+OK\r\n")
                node.wakeups.clear()
        return effects

    for _ in range(STEPS):
        free = [number for number, session in node.sessions.items() if not session.blocked]
        chance = rng.randrange(20)
        if chance == 0:
            now += rng.choice(PASSING_MS)
        elif chance == 1:
            now = max(now, node.paused_until)  # CLIENT PAUSE with a large number would end the noise
            act(Tick())
        elif chance == 2 and node.sessions:
            act(Gone(rng.choice(list(node.sessions))))
        elif chance == 3 or not free:
            act(Connect("10.0.0.1:1"))
        else:
            argv = [rng.choice(NAMES)]
            if rng.randrange(3) == 0:
                argv = [b"ADDJOB", rng.choice(QUEUES), b"body", b"0"]
            while rng.randrange(3):
                argv.append(rng.choice(ids) if ids and rng.randrange(4) == 0 else rng.choice(WORDS))
            log.append(show(argv).encode())
            reply = act(Do(rng.choice(free), argv)).reply or b""
            ids += [reply[1:-2]] * reply.startswith(b"+DI")
        try:
            check_inside(node)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error} after\n" + b"\n".join(log[-20:]).decode()) from error


def test_noise() -> None:
    for seed in range(RUNS):
        noise(seed)
