"""A whole run as data: how many nodes, who adds what when, who consumes, what goes wrong.

Everything is drawn from the seed once, before the run. Shrinking edits the plan and runs it again; since each
part has dice of its own (`Random(f"{seed}/{what}/{number}")`), leaving one out does not change the others.
A plan survives JSON, so a shrunk one can be kept beside the bug it shows.
"""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Final

from holdfast.testing.not_yet import DRAWN
from holdfast.testing.sim import faults as faults_of
from holdfast.testing.sim.faults import CALM, Fault, Faults

FAULT_MS: Final = 30_000
DRAIN_MS: Final = 32_000
KEYED_DRAIN_MS: Final = 50_000
"""Jobs of a group come one after the other, and each may have a lease that has to end first."""

PATIENT_SHARE: Final = 0.25
"""Of all seeds, in so many the jobs have a long RETRY."""

PATIENT_MS: Final = 90_000
"""How much longer such a run goes on: two of its leases."""

CRON_S: Final = 5
NAMES: Final = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class Add:
    """An ADDJOB to come. Those with the same pipe go down one connection in one go."""

    number: int
    at_ms: int
    queue: str = "q0"
    replicate: int = 1  # 0: not said
    retry_s: int = 1  # -1: not said
    ttl_s: int = 600
    delay_s: int = 0
    timeout_ms: int = 2_000
    is_async: bool = False
    maxlen: int = 0
    size: int = 0  # bytes the body is filled up with
    group: str = ""
    skips: bool = False  # ONFAIL skip
    unique: str = ""
    until: str = ""  # started; otherwise done
    window_s: int = 0
    ondup: str = ""
    domain: str = ""
    tenant: str = ""
    batch: str = ""
    index: int = 0
    pipe: int = 0
    attempts: int = 0  # 0: any number
    backoff_s: int = 0
    share: int = 0  # those with the same, and acks of workers, go down one connection that stays; 0: one of its own
    onexpire: str = ""  # dead: to the dead letters when its time is over


@dataclass(frozen=True, slots=True)
class Close:
    """A BATCH CLOSE to come, with a job after THEN."""

    number: int
    at_ms: int
    name: str
    count: int
    queue: str


@dataclass(frozen=True, slots=True)
class Habits:
    """What consumers do with a job, as shares of one; what is left is a plain ack to the same node."""

    die: float = 0.15  # goes away without an ack
    elsewhere: float = 0.2  # acks at another node
    nack: float = 0.04
    working: float = 0.05  # says it is still at it, and acks later
    fastack: float = 0.03
    late: float = 0.08  # acks after the lease is over
    lose_reply: float = 0.01  # the connection breaks just when the reply comes
    impatient: float = 0.1  # goes away while it waits
    work_ms: int = 700  # an ack takes up to this long
    release: float = 0.0  # gives back without blame
    reject: float = 0.0  # makes it dead
    keepalive: float = 0.0  # asks for more time, and acks later; like the next two only where it has a token
    result: float = 0.0  # of acks: with a result


@dataclass(frozen=True, slots=True)
class Consumer:
    number: int
    queues: tuple[str, ...]
    count: int = 1
    timeout_ms: int = 2_000
    think_ms: int = 500
    with_counters: bool = True
    with_meta: bool = False  # asks for tokens, and uses them
    lease_ms: int = 0  # asks for a time of its own


@dataclass(frozen=True, slots=True)
class Errand:
    """Somebody at a prompt: pausing a queue, acking a strange id, looking around."""

    number: int
    at_ms: int
    kind: str
    node: str
    queue: str
    for_ms: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    names: str
    faults: Faults = CALM
    adds: tuple[Add, ...] = ()
    habits: Habits = Habits()
    consumers: tuple[Consumer, ...] = ()
    errands: tuple[Errand, ...] = ()
    closes: tuple[Close, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    rules: tuple[tuple[str, ...], ...] = ()  # commands that an operator gives before anything else: limits, schedules
    fault_ms: int = FAULT_MS
    drain_ms: int = DRAIN_MS

    @property
    def queues(self) -> list[str]:
        return sorted({add.queue for add in self.adds} | {q for each in self.consumers for q in each.queues})

    def retry_max_ms(self) -> int:
        return 1_000 * max([add.retry_s for add in self.adds], default=1)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        data: dict[str, Any] = json.loads(text)
        told: dict[str, Any] = data.pop("faults")
        for name in ("latency_ms", "patience_ms"):
            told[name] = tuple(told[name])
        told["schedule"] = tuple(Fault(**each) for each in told["schedule"])
        return cls(
            faults=Faults(**told),
            adds=tuple(Add(**each) for each in data.pop("adds")),
            habits=Habits(**data.pop("habits")),
            consumers=tuple(
                Consumer(**{**each, "queues": tuple(each["queues"])}) for each in data.pop("consumers")
            ),
            errands=tuple(Errand(**each) for each in data.pop("errands")),
            closes=tuple(Close(**each) for each in data.pop("closes", [])),
            settings=tuple((name, value) for name, value in data.pop("settings")),
            rules=tuple(tuple(words) for words in data.pop("rules", [])),
            **data,
        )


def draw(seed: int, is_tidy: bool = False) -> Plan:
    """The run of this seed. `is_tidy`: as it was before there were the faults of `draw_untidy`."""
    dice = Random(f"{seed}/plan/0")
    names = NAMES[: dice.randint(3, 5)]
    queues = [f"q{i}" for i in range(dice.choice([1, 1, 2, 3]))]
    is_tight = dice.random() < 0.05  # little memory and large bodies
    keys = Random(f"{seed}/keys/0")
    has_keys = keys.random() < 0.4
    is_rich = Random(f"{seed}/rich/0").random() < 0.5  # tokens, failures, results
    faults = faults_of.draw(seed, names, FAULT_MS, losses_max=2)
    is_quiet = has_keys and keys.random() < 0.25  # what is promised for calm times only is seen in calm times only
    adds = draw_adds(Random(f"{seed}/adds/0"), queues, 90_000 if is_tight else 0)
    closes: tuple[Close, ...] = ()
    if has_keys:
        adds, closes = draw_batch(Random(f"{seed}/batch/0"), tuple(draw_keys(keys, add) for add in adds))
    consumers = draw_consumers(Random(f"{seed}/consumers/0"), queues, len(names))
    limits = Random(f"{seed}/limits/0")
    rules = draw_rules(limits, queues) if limits.random() < 0.3 else ()
    rules = with_cron_keys(Random(f"{seed}/cronkeys/0"), rules)
    lengths = Random(f"{seed}/lengths/0")
    if rules and lengths.random() < 0.2:
        rules = (*rules, ("QUEUE", "SET", lengths.choice(queues), "maxlen", str(lengths.randint(3, 20))))
    if rules:
        adds = tuple(
            replace(add, domain=limits.choice(["", "d0", "d1", "d2"]), tenant=limits.choice(["", "", "t0", "t1"]))
            for add in adds
        )
    schedule = () if is_quiet else faults.schedule
    if not is_tidy:
        schedule = schedule if is_quiet else with_untidy(seed, names, has_keys or bool(rules), schedule)
        faults = replace(faults, backs_off="backs-off" not in DRAWN and Random(f"{seed}/backoff/0").random() < 0.3)
        adds = with_shares(Random(f"{seed}/shares/0"), adds)
    drain_ms = KEYED_DRAIN_MS if has_keys or rules else DRAIN_MS
    adds, drain_ms = with_patience(Random(f"{seed}/patience/0"), adds, drain_ms)
    return Plan(
        seed=seed,
        names=names,
        faults=replace(faults, schedule=schedule),
        adds=with_ends(Random(f"{seed}/ends/0"), with_rules(Random(f"{seed}/rules/0"), is_rich, adds)),
        closes=closes,
        drain_ms=drain_ms,
        rules=rules,
        habits=with_tokens(Random(f"{seed}/tokens/0"), is_rich, draw_habits(Random(f"{seed}/habits/0"))),
        consumers=with_leases(Random(f"{seed}/leases/0"), is_rich, consumers),
        errands=draw_errands(Random(f"{seed}/errands/0"), queues, names) + draw_fates(
            Random(f"{seed}/fates/0"), is_rich, queues, names
        ),
        settings=(
            ("cluster-node-timeout", str(dice.choice([2_000, 3_000, 5_000, 15_000]))),
            ("heal-after-ms", str(dice.choice([3_000, 8_000, 60_000]))),
            *draw_memory(Random(f"{seed}/memory/0"), is_tight),
            *([("history", "yes")] if Random(f"{seed}/history/0").random() < 0.3 else []),
        ),
    )


def with_untidy(seed: int, names: str, has_homes: bool, schedule: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The faults of the seed, and at times some of the kinds that came later."""
    kinds = [kind for kind in faults_of.UNTIDY if kind not in DRAWN]
    if has_homes and "members-with-keys" in DRAWN:
        kinds = [kind for kind in kinds if kind not in faults_of.MEMBERS]
    untidy = faults_of.draw_untidy(seed, names, NAMES[len(names):], FAULT_MS, tuple(kinds))
    disks = faults_of.draw_disks(seed, names, FAULT_MS)
    return tuple(sorted((*schedule, *untidy, *disks), key=lambda fault: fault.at_ms))


def draw_memory(dice: Random, is_tight: bool) -> tuple[tuple[str, str], ...]:
    """Little memory, or jobs that are on disk whenever they can be, or both."""
    overflows = dice.random() < (0.5 if is_tight else 0.15)
    if not is_tight and not overflows:
        return ()
    return ("maxmemory", "1mb"), ("overflow-from", "1" if overflows else "0")


def draw_adds(dice: Random, queues: list[str], size_max: int) -> tuple[Add, ...]:
    adds: list[Add] = []
    pipe = 0
    at_ms = 0
    left = 0
    for number in range(dice.choice([10, 20, 30, 50])):
        if left == 0:
            at_ms = dice.randrange(FAULT_MS)
            left = dice.randint(2, 8) if dice.random() < 0.1 else 1
            pipe += 1
        left -= 1
        is_once = dice.random() < 0.25
        adds.append(Add(
            number=number,
            at_ms=at_ms,
            queue=dice.choice(queues),
            replicate=1 if is_once else dice.choice([0, 1, 2, 2, 3, 3]),
            retry_s=0 if is_once else dice.choice([1, 1, 2, 3, 5]),
            ttl_s=dice.randint(2, 20) if dice.random() < 0.08 else 600,
            delay_s=dice.randint(1, 4) if dice.random() < 0.08 else 0,
            timeout_ms=dice.choice([200, 1_000, 2_000, 4_000]),
            is_async=not is_once and dice.random() < 0.05,
            maxlen=dice.randint(1, 5) if dice.random() < 0.03 else 0,
            size=dice.randint(0, size_max) if size_max else 0,
            pipe=pipe,
        ))
    return tuple(sorted(adds, key=lambda add: add.at_ms))


def with_patience(dice: Random, adds: tuple[Add, ...], drain_ms: int) -> tuple[tuple[Add, ...], int]:
    """At times jobs have a long RETRY, as they do by default: what only comes back after that is late. The end of such
    a run is as much later as the last leases."""
    if dice.random() >= PATIENT_SHARE:
        return adds, drain_ms
    patient = tuple(replace(add, retry_s=dice.choice([20, 30, 40])) if add.retry_s else add for add in adds)
    return patient, drain_ms + PATIENT_MS


def draw_keys(dice: Random, add: Add) -> Add:
    """The same job with a group, a unique key, both or none: few of each, so that jobs meet."""
    kind = dice.random()
    if kind < 0.5:
        add = replace(add, group=f"g{dice.randint(0, 2)}", skips=dice.random() < 0.2)
    if 0.4 < kind < 0.85:
        add = replace(
            add, unique=f"u{dice.randint(0, 3)}", until=dice.choice(["", "", "started"]),
            window_s=dice.choice([0, 0, 3, 10]), ondup=dice.choice(["", "existing", "reject", "replace"]),
        )
    return add


def with_shares(dice: Random, adds: tuple[Add, ...]) -> tuple[Add, ...]:
    """At times a program has one connection for many calls, plain ones and those that a home decides about."""
    if dice.random() >= 0.2:
        return adds
    shares = dice.randint(1, 2)
    return tuple(replace(add, share=dice.choice([0, *range(1, shares + 1)]), pipe=0) for add in adds)


def draw_rules(dice: Random, queues: list[str]) -> tuple[tuple[str, ...], ...]:
    """Limits of domains and queues, such that all jobs can go out before the end; and at times a schedule."""
    rules: list[tuple[str, ...]] = [
        ("DOMAIN", "SET", "d0", "RATE", f"{dice.randint(2, 6)}/s", "BURST", str(dice.randint(1, 3))),
        ("DOMAIN", "SET", "d1", "CONCURRENCY", str(dice.randint(2, 5))),
    ]
    queue = dice.choice(queues)
    if dice.random() < 0.3:
        rules.append(("QUEUE", "SET", queue, "rate", f"{dice.randint(4, 9)}/s", "burst", str(dice.randint(1, 4))))
    if dice.random() < 0.3:
        rules.append(("QUEUE", "SET", queue, "concurrency", str(dice.randint(4, 8))))
    if dice.random() < 0.3:
        rules.append(("QUEUE", "SET", queue, "totalmaxlen", str(dice.randint(5, 40))))
    if dice.random() < 0.5:
        rules.append(("CRON", "SET", "tick", f"*/{CRON_S} * * * * *", queue, "cron", "RETRY", "2", "TTL", "120"))
    return tuple(rules)


def with_cron_keys(dice: Random, rules: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """At times the jobs of the schedule have a key, and with it a home that is mostly another node."""
    words = dice.choice([(), (), (), ("GROUP", "g0"), ("GROUP", "ticks"), ("UNIQUE", "tick")])
    return tuple((*rule, *words) if rule[0] == "CRON" else rule for rule in rules)


def draw_batch(dice: Random, adds: tuple[Add, ...]) -> tuple[tuple[Add, ...], tuple[Close, ...]]:
    """Some of the jobs are a batch, and somebody closes it, before, while or after they are added."""
    members = [add.number for add in adds if not add.unique and add.retry_s > 0]
    if len(members) < 2 or dice.random() < 0.5:
        return adds, ()
    chosen = dice.sample(members, min(len(members), dice.randint(2, 6)))
    queue = dice.choice([add.queue for add in adds])
    joined = tuple(
        replace(add, batch="b", index=chosen.index(add.number)) if add.number in chosen else add for add in adds
    )
    return joined, (Close(0, dice.randrange(FAULT_MS), "b", len(chosen), queue),)


def draw_habits(dice: Random) -> Habits:
    if dice.random() < 0.2:
        return Habits(die=0, nack=0, fastack=0, late=0, lose_reply=0, impatient=0)
    return Habits(
        die=dice.choice([0.05, 0.15, 0.4]),
        elsewhere=dice.choice([0.05, 0.2, 0.6]),
        nack=dice.choice([0.0, 0.05, 0.2]),
        working=dice.choice([0.0, 0.05, 0.15]),
        fastack=dice.choice([0.0, 0.0, 0.05]),
        late=dice.choice([0.0, 0.1]),
        lose_reply=dice.choice([0.0, 0.02]),
        impatient=dice.choice([0.0, 0.1, 0.3]),
        work_ms=dice.choice([20, 300, 900]),
    )


def with_rules(dice: Random, is_rich: bool, adds: tuple[Add, ...]) -> tuple[Add, ...]:
    """Some jobs have a bound on failures, or wait after one."""
    if not is_rich:
        return adds
    return tuple(
        replace(add, attempts=dice.choice([0, 0, 1, 2, 3]), backoff_s=dice.choice([0, 0, 1, 2])) if add.retry_s else add
        for add in adds
    )


def with_ends(dice: Random, adds: tuple[Add, ...]) -> tuple[Add, ...]:
    """In half of all runs jobs go to the dead letters when their time is over, and some have little of it."""
    if dice.random() < 0.5:
        return adds
    return tuple(
        replace(add, onexpire="dead", ttl_s=dice.randint(2, 12) if dice.random() < 0.3 else add.ttl_s) for add in adds
    )


def with_tokens(dice: Random, is_rich: bool, habits: Habits) -> Habits:
    if not is_rich:
        return habits
    return replace(
        habits, release=dice.choice([0.0, 0.05, 0.1]), reject=dice.choice([0.0, 0.0, 0.05]),
        keepalive=dice.choice([0.0, 0.1, 0.2]), result=dice.choice([0.0, 0.3, 0.8]),
    )


def with_leases(dice: Random, is_rich: bool, consumers: tuple[Consumer, ...]) -> tuple[Consumer, ...]:
    if not is_rich:
        return consumers
    return tuple(
        replace(each, with_meta=dice.random() < 0.7, lease_ms=dice.choice([0, 0, 500, 1_500, 6_000]))
        for each in consumers
    )


FATES: Final = ("retry", "bury", "call-off", "wait", "wait", "explain", "priority", "list-dead", "keep-strange")


def draw_fates(dice: Random, is_rich: bool, queues: list[str], names: str) -> tuple[Errand, ...]:
    """Errands about what becomes of jobs; their numbers follow those of the others."""
    if not is_rich:
        return ()
    return tuple(
        Errand(100 + number, dice.randrange(FAULT_MS), dice.choice(FATES), dice.choice(names), dice.choice(queues),
               dice.randint(200, 6_000))
        for number in range(dice.randint(2, 12))
    )


def draw_consumers(dice: Random, queues: list[str], nodes: int) -> tuple[Consumer, ...]:
    return tuple(
        Consumer(
            number=number,
            queues=tuple(sorted(dice.sample(queues, dice.randint(1, len(queues))))),
            count=dice.choice([1, 1, 1, 3]),
            timeout_ms=dice.choice([100, 2_000, 5_000]),
            think_ms=dice.choice([100, 500, 2_000]),
            with_counters=dice.random() < 0.7,
        )
        for number in range(dice.randint(1, nodes + 1))
    )


ERRANDS: Final = ("pause-out", "pause-in", "pause-bcast", "strange-ack", "cancel", "enqueue", "dequeue", "look")


def draw_errands(dice: Random, queues: list[str], names: str) -> tuple[Errand, ...]:
    if dice.random() < 0.4:
        return ()
    return tuple(
        Errand(number, dice.randrange(FAULT_MS), dice.choice(ERRANDS), dice.choice(names), dice.choice(queues),
               dice.randint(200, 6_000))
        for number in range(dice.randint(1, 6))
    )
