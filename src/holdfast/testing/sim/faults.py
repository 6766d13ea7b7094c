"""The faults of one run: drawn from its seed, printable, editable, shrinkable.

Each seed draws its own mix (swarm testing): some axes are off, some wild, because runs with everything on
hide bugs from each other. What is drawn here is data; nemesis.py does it to the cluster.

    kind        who                      what
    cut         a group                  the group and the rest hear nothing of each other
    isolate     one node                 nobody hears it, it hears nobody
    oneway      one node                 the others do not hear it; it hears them
    deaf        one node                 it does not hear the others; they hear it
    bridge      all, in an order         two halves that see each other only through the node in the middle
    flap        two nodes                their paths go up and down
    break       two nodes                their connection dies; each end notices later
    clog        two nodes                frames from the first to the second wait, then come all at once
    slow        two nodes                frames from the first to the second take seconds
    pause       one node                 SIGSTOP; what comes in waits
    kill        one node                 SIGKILL, restart after a while
    power       one node                 power cut: what was not synced may be lost
    crash       one node                 power cut in the middle of a turn
    wipe        one node                 comes back with an empty disk, as a new incarnation
    blackout    all                      power cut of everything at once
    rolling     all                      restarts one after the other
    jump        one node                 its wall clock jumps by `amount` ms
    leaving     one node                 says it leaves, and after a while that it stays
    forget      one node                 goes down, is forgotten by the others, and comes back

Membership that nobody tidies up, and machines that come back at a bad moment (`draw_untidy`):

    gone        one node                 dies for good: it stays a member that nobody forgets
    stranger    one node                 dies for good, and a new node takes its address
    strangers   one node                 the same `amount` times, one after the other
    join        a letter of no node yet  a new node joins, and stays
    recrash     one node                 kill, restart, and a power cut `amount` ms after the restart
    reclock     one node                 kill; its wall clock is wrong by `amount` ms when it restarts
    freeze      some nodes               SIGSTOP of them all, for longer than node-timeout as well as shortly

Disks that fail (`draw_disks`). What was synced is damaged at a minority of the nodes only:

    damage      one node                 kill; `amount` places of what was synced are not as they were written, since
                                         bits flipped, or a write was lost or went elsewhere. 0: a header is gone
    full        one node                 nothing can be written
    slowsync    one node                 each sync takes `amount` ms, with everybody waiting
    eio         one node                 a sync fails: the node gives up its place, and what it had not synced is lost
"""
from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from holdfast.testing.sim.disk import ALWAYS, EVERYSEC, NONE

PARTITIONS: Final = ("cut", "isolate", "oneway", "deaf", "bridge", "flap")
LINKS: Final = ("break", "clog", "slow")
STOPS: Final = ("kill", "power", "crash", "rolling", "blackout")
LOSSES: Final = ("wipe",)
OTHERS: Final = ("pause", "jump")
ADMIN: Final = ("leaving", "forget")
MEMBERS: Final = ("gone", "stranger", "strangers", "join")
RESTARTS: Final = ("recrash", "reclock")
FREEZES: Final = ("freeze",)
UNTIDY: Final = (*MEMBERS, *RESTARTS, *FREEZES)
DISKS: Final = ("damage", "full", "slowsync", "eio")
KINDS: Final = (*PARTITIONS, *LINKS, *STOPS, *LOSSES, *OTHERS, *ADMIN, *UNTIDY, *DISKS)
CLOCKS: Final = ("jump", "reclock")
"""Kinds whose `amount` is what a wall clock is wrong by."""

DISKS_SHARE: Final = 0.25
"""Of all seeds, so many have faults of `draw_disks`."""

UNTIDY_SHARE: Final = 0.3
"""Of all seeds, so many have faults of `draw_untidy`."""

TAILS_MS: Final = (300, 3_000)
LATENCIES: Final = ((1, 3), (1, 3), (1, 40), (5, 400), (1, 2500))


@dataclass(frozen=True, slots=True)
class Fault:
    at_ms: int
    kind: str
    who: str  # names of nodes, one letter each; what they mean depends on the kind
    for_ms: int
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    latency_ms: tuple[int, int] = (1, 3)
    tail: float = 0.0  # the share of frames that are slow
    tail_ms: int = 0  # by up to this much
    patience_ms: tuple[int, int] = (2_000, 8_000)  # how long an end believes in a connection that is cut
    backs_off: bool = False  # after a cut, what stalled is sent again after as long as it had stalled (network.py)
    sync: str = ALWAYS
    skew_ms: dict[str, int] = field(default_factory=dict)
    rate_ppm: dict[str, int] = field(default_factory=dict)
    shared_host: str = ""  # nodes that run on one machine, as far as they say
    schedule: tuple[Fault, ...] = ()

    @property
    def has_partition(self) -> bool:
        return any(fault.kind in (*PARTITIONS, *STOPS, *UNTIDY, *DISKS) for fault in self.schedule)


CALM: Final = Faults()


def draw(seed: int, names: str, fault_ms: int, losses_max: int) -> Faults:
    """The mix of this seed. `losses_max` disks may be lost in all."""
    dice = Random(f"{seed}/faults/0")
    kinds = [kind for family in (PARTITIONS, LINKS, STOPS, OTHERS) for kind in family if dice.random() < 0.4]
    skewed = dice.random() < 0.3
    drifting = dice.random() < 0.2
    is_wild = dice.random() < 0.15
    skew = {name: dice.randint(-5_000, 5_000) for name in names} if skewed else {}
    rate = {name: dice.randint(-50_000, 50_000) for name in names} if drifting else {}
    faults: list[Fault] = []
    for i in range(dice.choice([0, 1, 2, 3, 4, 6, 8]) if kinds else 0):
        faults.append(draw_fault(Random(f"{seed}/fault/{i}"), kinds, names, fault_ms))
    if dice.random() < 0.15:
        for i in range(dice.randint(1, max(1, losses_max))):
            faults.append(draw_fault(Random(f"{seed}/wipe/{i}"), list(LOSSES), names, fault_ms))
    if dice.random() < 0.1:
        faults.append(draw_fault(Random(f"{seed}/admin/0"), ["leaving"], names, fault_ms))
    return Faults(
        latency_ms=dice.choice(LATENCIES),
        tail=dice.choice([0.0, 0.0, 0.0, 0.01, 0.1]),
        tail_ms=dice.choice(TAILS_MS),
        patience_ms=(500, 1_500) if is_wild else (2_000, 8_000),
        sync=dice.choice([ALWAYS, ALWAYS, ALWAYS, EVERYSEC, EVERYSEC, NONE if dice.random() < 0.3 else ALWAYS]),
        skew_ms=skew,
        rate_ppm=rate,
        shared_host="".join(dice.sample(names, 2)) if dice.random() < 0.15 else "",
        schedule=tuple(sorted(faults, key=lambda fault: fault.at_ms)),
    )


def draw_fault(dice: Random, kinds: list[str], names: str, fault_ms: int) -> Fault:
    kind = dice.choice(kinds)
    order = "".join(dice.sample(names, len(names)))
    at_ms, for_ms = dice.randrange(fault_ms), dice.choice([dice.randint(50, 1_000), dice.randint(500, 12_000)])
    if kind == "cut":
        who = order[: dice.randint(1, len(names) - 1)]
    elif kind in ("bridge", "rolling", "blackout"):
        who = order
    elif kind in ("flap", "break", "clog", "slow"):
        who = order[:2]
    else:
        who = order[0]
    amount = dice.choice([-3_600_000, -7_000, -900, 900, 7_000, 3_600_000]) if kind == "jump" else 0
    return Fault(at_ms, kind, who, for_ms, amount)


def draw_untidy(seed: int, names: str, spare: str, fault_ms: int, kinds: tuple[str, ...]) -> tuple[Fault, ...]:
    """Faults of the kinds that came later: they have dice of their own, so that all else of a seed stays as it was.

    `spare` are letters for nodes that join. At most one node in three dies for good, since what is left must still be a
    majority of the machines.
    """
    dice = Random(f"{seed}/untidy/0")
    if dice.random() >= UNTIDY_SHARE:
        return ()
    chosen = [kind for kind in kinds if dice.random() < 0.4]
    faults: list[Fault] = []
    may_go = len(names) // 3
    for i in range(dice.choice([1, 1, 2, 3, 4]) if chosen else 0):
        own = Random(f"{seed}/untidy/{i + 1}")
        kind = own.choice(chosen)
        if (kind == "gone" and may_go == 0) or (kind == "join" and not spare):
            continue
        may_go -= kind == "gone"
        joins = spare[0] if kind == "join" else ""
        spare = spare[len(joins):]
        faults.append(draw_untidy_fault(own, kind, names, joins, fault_ms))
    return tuple(faults)


def draw_untidy_fault(dice: Random, kind: str, names: str, joins: str, fault_ms: int) -> Fault:
    who, at_ms, amount = joins or dice.choice(names), dice.randrange(fault_ms), 0
    for_ms = dice.choice([dice.randint(50, 2_000), dice.randint(2_000, 15_000)])
    if kind in ("stranger", "join"):
        amount = dice.choice([0, 1])
    elif kind == "strangers":
        amount, for_ms = dice.randint(2, 4), dice.randint(4_000, 20_000)
    elif kind == "recrash":
        amount = dice.choice([3, 50, 500, 3_000, 10_000])
        for_ms = amount + dice.randint(200, 6_000)
    elif kind == "reclock":
        amount = dice.choice([-3_600_000, -60_000, 60_000, 3_600_000])
    elif kind == "freeze":
        who = "".join(dice.sample(names, dice.choice([1, 1, 1, len(names) - 1])))
        for_ms = dice.choice([dice.randint(100, 3_000), dice.randint(3_000, 25_000)])
    return Fault(at_ms, kind, who, for_ms, amount)


def draw_disks(seed: int, names: str, fault_ms: int) -> tuple[Fault, ...]:
    """Disks that fail: with dice of their own, too. Damage is done to fewer than half of the nodes."""
    dice = Random(f"{seed}/disks/0")
    if dice.random() >= DISKS_SHARE:
        return ()
    damaged = dice.sample(names, (len(names) - 1) // 2)
    kinds = [kind for kind in DISKS if dice.random() < 0.5 and (kind != "damage" or damaged)]
    faults: list[Fault] = []
    for i in range(dice.choice([1, 1, 2, 3]) if kinds else 0):
        own = Random(f"{seed}/disks/{i + 1}")
        kind = own.choice(kinds)
        who, at_ms, amount = own.choice(damaged if kind == "damage" else names), own.randrange(fault_ms), 0
        for_ms = own.choice([own.randint(50, 2_000), own.randint(2_000, 15_000)])
        if kind == "damage":
            amount = own.choice([0, 1, 1, 2, 5])
        elif kind == "slowsync":
            amount = own.choice([20, 200, 1_000, 3_000])
        faults.append(Fault(at_ms, kind, who, for_ms, amount))
    return tuple(faults)
