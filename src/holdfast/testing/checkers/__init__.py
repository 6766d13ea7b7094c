"""The promises of RELIABILITY.md as pure functions: a history in, violations out.

A checker is a function of `Facts`, the history in a handier order. It knows nothing of simulation: the same
functions judge histories of real processes. What only a look inside the nodes can tell (an acknowledgement
that nobody remembers, two queued copies) is written into the history as a mark `seen` by whoever looked
(whitebox.py has the predicates), and `seen` below turns the marks into violations.

    check(history)    everything that is wrong with it, earliest first
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from holdfast.testing.checkers import (
    acks,
    batches,
    counters,
    expiry,
    fairness,
    fates,
    honest,
    keys,
    leases,
    limits,
    loss,
    once,
    pause,
    promised_times,
    times,
    told,
)
from holdfast.testing.checkers.facts import Facts, Violation
from holdfast.testing.history import WATCH, History

__all__ = ["CHECKERS", "Checker", "Facts", "Violation", "check", "seen"]

Checker: TypeAlias = Callable[[Facts], list[Violation]]


def seen(facts: Facts) -> list[Violation]:
    """What a look inside the nodes had found: I5, I6, I10, one queued copy."""
    return [
        Violation(op.value["promise"], op.value["what"], op.value["job"], op.t, op.value["text"])
        for op in facts.history.ops
        if op.process == WATCH and op.f == "seen"
    ]


CHECKERS: Final[list[Checker]] = [
    loss.no_job_lost,
    once.at_most_once,
    once.nothing_from_nowhere,
    acks.acks_hold,
    acks.calm_is_once,
    leases.leases_are_kept,
    loss.no_job_stuck,
    expiry.expired_are_listed,
    times.ttl_ends_it,
    times.delay_is_kept,
    honest.refused_means_no,
    honest.no_ghosts,
    pause.pause_holds,
    counters.counters_grow,
    fates.stale_tokens_do_nothing,
    fates.dead_stay_dead,
    fates.attempts_are_kept,
    fates.results_are_true,
    told.history_agrees,
    batches.batches_are_kept,
    keys.unique_is_kept,
    keys.groups_are_kept,
    keys.one_at_a_time,
    limits.rates_hold,
    limits.schedules_are_kept,
    fairness.tenants_take_turns,
    promised_times.adds_are_answered,
    promised_times.copies_are_waited_for,
    seen,
]


def check(history: History, checkers: list[Checker] = CHECKERS) -> list[Violation]:
    facts = Facts(history)
    found = [violation for checker in checkers for violation in checker(facts)]
    return sorted(found, key=lambda each: (each.t, each.promise, each.job))
