"""Things that go wrong, on purpose and by a seed, in tests of your tasks.

    def test_an_order_is_booked_once(holdfast_kit, holdfast_chaos):
        kit = holdfast_kit(app)
        with kit.under(holdfast_chaos(kill_worker=0.2, drop_acks=0.2)):
            for number in range(50):
                book.add(number)
            kit.settle()
        assert bookings == set(range(50))            # however often each handler ran

What can go wrong is what can go wrong in production:

    drop_acks     the handler ran, and nobody hears that it did: the job comes back
    kill_worker   the worker dies, before the handler or after it: the job comes back when its lease has ended
    skew          time jumps while the handler runs (a suspended machine, a wrong clock): the lease is lost, and what
                  the handler did is refused
    partition     no node can be reached for a few calls: `Unreachable`, nothing was done
    lose_answers  the command was executed, and its answer is lost: `Unknown`

Each is a probability. Everything follows from the seed: it is printed with a failing test, and HOLDFAST_CHAOS_SEED=seed
plays the same again. `story` tells what was done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Protocol

from holdfast.client.asks import Undo
from holdfast.client.errors import ConnectionLost, Unreachable
from holdfast.client.queue import AsyncChannel, Channel
from holdfast.client.resp import Argv, Reply
from holdfast.tasks.running import RunningJob

PARTITION_CALLS: Final = 3
"""For how many calls a partition lasts."""
RUNS_MAX: Final = 5
"""A job that was struck so often is left in peace: what is tested is that it is done in the end."""


class Killed(Exception):
    """The worker died; in tests only."""


class Moves(Protocol):
    """A clock that can be moved."""

    def advance(self, seconds: float) -> None: ...


class Chaos:
    """What goes wrong, and when: drawn from one seed."""

    def __init__(
        self, seed: int | None = None, *, drop_acks: float = 0.0, kill_worker: float = 0.0, partition: float = 0.0,
        skew: float = 0.0, lose_answers: float = 0.0,
    ) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.story: list[str] = []
        """What was done, in words."""
        self.rates = {
            "drop_acks": drop_acks, "kill_worker": kill_worker, "partition": partition, "skew": skew,
            "lose_answers": lose_answers,
        }
        self._random = random.Random(self.seed)
        self._cut_for = 0
        self._strikes: dict[str, int] = {}

    def recipe(self) -> str:
        """How to play the same again."""
        rates = ", ".join(f"{name}={rate}" for name, rate in self.rates.items() if rate)
        return f"Chaos({self.seed}, {rates}); HOLDFAST_CHAOS_SEED={self.seed} plays it again"

    def kills_before(self, job: RunningJob) -> bool:
        return self._strikes_job("kill_worker", job, "the worker died before it ran", 0.5)

    def kills_after(self, job: RunningJob) -> bool:
        return self._strikes_job("kill_worker", job, "the worker died after it ran", 0.5)

    def drops_ack(self, job: RunningJob) -> bool:
        return self._strikes_job("drop_acks", job, "nobody heard how it went with")

    def meddle(self, job: RunningJob, clock: Moves, lease_s: float) -> None:
        """While a handler runs: time may jump."""
        if self._strikes_job("skew", job, "time jumped during"):
            clock.advance(lease_s * self._random.uniform(0.5, 2.0))

    def around(self, channel: Channel) -> Channel:
        """A channel through which calls go wrong."""
        return _Bad(channel, self)

    def _strikes_job(self, what: str, job: RunningJob, words: str, share: float = 1.0) -> bool:
        if self._random.random() >= self.rates[what] * share:
            return False
        count = self._strikes.get(job.id, 0) + 1
        if count > RUNS_MAX:
            return False
        self._strikes[job.id] = count
        name = job.task.name if job.task else job.queue
        self.story.append(f"{words} {name} {list(job.args)} (attempt {job.attempt})")
        return True

    def is_cut(self, argv: Argv) -> bool:
        """Is this call one that reaches nobody?"""
        if self._cut_for == 0 and self._random.random() < self.rates["partition"]:
            self._cut_for = self._random.randint(1, PARTITION_CALLS)
            self.story.append(f"no node can be reached for {self._cut_for} calls")
        if self._cut_for == 0:
            return False
        self._cut_for -= 1
        return True

    def loses_answer(self, argv: Argv) -> bool:
        """Is this call executed, and nobody hears of it?"""
        if self._random.random() >= self.rates["lose_answers"]:
            return False
        self.story.append(f"the answer to {argv[0]!s} was lost")
        return True


class _Bad:
    """A `Channel` around another."""

    def __init__(self, inner: Channel, chaos: Chaos) -> None:
        self._inner = inner
        self._chaos = chaos

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        if self._chaos.is_cut(argv):
            raise Unreachable("no connection: a partition, by chaos")
        reply = self._inner.call(argv, patience, undo, near)
        if self._chaos.loses_answer(argv):
            raise ConnectionLost("the answer was lost, by chaos; it is not known whether the command was executed")
        return reply

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return [self.call(argv, near=near) for argv in commands]

    def twin(self) -> AsyncChannel:
        return self._inner.twin()

    def close(self) -> None:
        self._inner.close()
