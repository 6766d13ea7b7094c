"""Random commands against the model: seeded runs with a count of everything that occurred, and hypothesis.

    MODEL_RUNS=1000 pytest -s tests/sim/test_model.py     the long run, with its table
    MODEL_SEED=17 MODEL_RUNS=1 pytest tests/sim/...       one seed again

Both use the rules of rules.py. The seeded runs are many and long, and prove that nothing was left out: a
command, option, error or happening that never occurred fails them. Hypothesis has fewer and shorter ones,
but when it finds a mistake it shows the shortest way to it.
"""
from __future__ import annotations

import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.core import errors

from . import rules, texts
from .commands import ADD_OPTIONS, ARITY
from .world import World

RUNS = int(os.environ.get("MODEL_RUNS", "150"))
FIRST_SEED = int(os.environ.get("MODEL_SEED", "0"))
STEPS = 120

OPTIONS = [
    *[f"{name} {option.decode()}" for name in ("ADDJOB", "ADDJOBS") for option in [*ADD_OPTIONS, b"ASYNC"]],
    *[f"GETJOB {option}" for option in ("NOHANG", "TIMEOUT", "COUNT", "WITHCOUNTERS")],
    "GETJOB several queues", "GETJOB queue twice", "QPEEK oldest", "QPEEK newest",
    *[f"PAUSE {option}" for option in ("none", "in", "out", "all", "state", "bcast")],
    *[f"QUEUE {word} {setting}" for word in ("SET", "GET") for setting in ("maxlen", "paused")],
    *[f"QSCAN {option}" for option in ("0", "cursor", "COUNT", "BUSYLOOP", "MINLEN", "MAXLEN", "IMPORTRATE")],
    *[f"JSCAN {option}" for option in ("0", "cursor", "COUNT", "BUSYLOOP", "QUEUE", "STATE", "REPLY")],
    "SCAN queue", "SCAN job", "SCAN MAXIDLE", "SCAN STATE", "SCAN cursor",
]
HAPPENINGS = [
    "GETJOB waits", "waited and served", "waited in vain", "disconnect", "disconnect while waiting",
    "command while waiting", "delay ended", "lease ended", "requeue put off by pause", "job expired",
    "job expired instead of handed out", "job evicted", "idle queue forgotten", "scanned to the end",
    "memory level 1", "memory level 2", "waits beyond maxmemory", "no room even to wait",
    "WORKING leaves a delay", "SHOW without a body",
    "direct ADDJOB/4", "direct GETJOB/3", "direct GETJOB/4", "direct ACKJOB/2",
]
TRANSCRIPTS = Path(__file__).parents[1] / "conformance"
# Texts of errors.py that only commands outside this model can cause.
ELSEWHERE = [
    errors.NO_REPL_LEAVING, errors.LEAVING, errors.NO_AUTH, errors.BAD_PASSWORD, errors.NO_PASSWORD,
    errors.WRONG_PASS, errors.NO_PROTO, errors.NO_CONFIG_FILE, errors.DEBUG_OFF,
    errors.NO_REPL_TIMEOUT, errors.NO_REPL_REMOVED, errors.SYNC_RANGE, errors.LOADING, errors.JOURNAL_FAILS,
    errors.JOURNAL_LOST, errors.UNREADABLE, errors.WAIT_RANGE, errors.NO_PERM, errors.NO_HOME,
    errors.NO_ANSWER, errors.HISTORY_CURSOR, errors.CLAIM_GROUPS, errors.STAGE_ELSEWHERE, errors.STAGES_FULL,
    errors.NO_BOUND, errors.ADD_UNKNOWN, errors.ADD_ENDED, errors.DUPLICATE, errors.NOT_HOME, errors.BATCH_COUNT,
    errors.BATCH_CLOSED, errors.BATCHES_FULL, errors.BATCH_INDEX, errors.BATCH_SEEN, errors.THEN_UNIQUE,
    errors.THEN_ITSELF, errors.BATCH_ENDED, errors.LOGIN_LATER, errors.NO_PLACE,
]


def test_the_model_knows_every_text() -> None:
    """Or a transcript has it: the model is of Disque's commands, not of all of ours."""
    known = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, bytes)}
    transcripts = b"".join(path.read_bytes() for path in sorted(TRANSCRIPTS.glob("*.txt")))
    assert {text for text in known - set(ELSEWHERE) - set(texts.ALL) if text not in transcripts} == set()


def test_seeded_runs(capsys: pytest.CaptureFixture[str]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        try:
            seen += rules.random_run(seed, STEPS).seen
        except AssertionError as error:
            raise AssertionError(f"seed {seed} (MODEL_SEED={seed} MODEL_RUNS=1 runs it alone): {error}") from error
    groups = [
        ("command", list(ARITY)), ("option", OPTIONS), ("error", [f"-{text.decode()}" for text in texts.ALL]),
        ("happening", HAPPENINGS),
    ]
    with capsys.disabled() if "MODEL_RUNS" in os.environ else nullcontext():
        print(table(groups, seen))
    never = [key for _, keys in groups for key in keys if not seen[key]]
    assert RUNS < 100 or not never, f"never occurred: {never}"


def test_overflow_makes_no_difference() -> None:
    """Between any two events everything goes to disk that can; replies and insides are what they would be."""
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + max(10, RUNS // 5)):
        try:
            seen += rules.random_run(seed, STEPS, overflows=True).seen
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert seen["overflowed jobs"] > 1000 and seen["overflowed bodies"] > 1000


def table(groups: list[tuple[str, list[str]]], seen: Counter[str]) -> str:
    lines = [f"\n{RUNS} runs of {STEPS} steps"]
    for title, keys in groups:
        lines.append(f"  {title}")
        lines += [f"  {seen[key]:>9}  {key}" for key in sorted(keys, key=lambda key: (-seen[key], key))]
    return "\n".join(lines)


SHARES = [name for name, row in [*rules.COMMANDS.items(), *rules.OTHERS.items()] for _ in range(row[0])]


class Machine(RuleBasedStateMachine):
    """The same rules in the same shares, chosen by hypothesis."""

    world: World

    @initialize(memory=st.sampled_from(["1gb", "1mb"]), policy=st.sampled_from(["acks", "noeviction"]))
    def begin(self, memory: str, policy: str) -> None:
        self.world = World(0, memory, policy)

    @rule(kind=st.sampled_from(SHARES), rng=st.randoms(use_true_random=False))
    def act(self, kind: str, rng: Random) -> None:
        noted = len(self.world.log)
        try:
            rules.act(self.world, rng, kind)
        finally:
            for line in self.world.log[noted:]:
                note(line)


TestModel = Machine.TestCase
TestModel.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)
