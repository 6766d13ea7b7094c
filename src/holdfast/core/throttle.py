"""A throttle: what passes it comes out at a rate, and only so many are out at a time.

Each domain has one (domains.py), and each queue for which a rate or a concurrency is set. The rate is a bucket of
tokens, kept as a single time: `full_at`, when the bucket will be full again if nobody takes any. Each token taken moves
it on by one interval, and there is one to take as long as it is no more than `burst` intervals ahead, less one. So
filling the bucket is no work, "when is the next one" is a subtraction, and in no window of w seconds come out more than
rate × w + burst. Times are nanoseconds since the node started, so that a rate of a million a second is not rounded away
and one a day with a burst of a thousand still fits 64 bits; an interval is rounded up, never a rate.

A throttle at which somebody was turned away waits for its time among the node's alarms: these are the index of closed
domains by next available time. Nobody ever walks over them.

A domain may adapt: a worker that was told to slow down (NACK … RETRYAFTERMS) halves the rate, and it grows back by a
twentieth of the full rate each second.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core.alarms import Alarm
from holdfast.core.limits import DOMAINS_SWEEP, DOMAINS_TOLD_MAX, NEVER, RATE_BURST_NS_MAX, RATE_MAX

if TYPE_CHECKING:
    from holdfast.core.grants import Share
    from holdfast.core.node import Node
    from holdfast.core.queue import Queue
    from holdfast.core.rules import Bin

NS: Final = 1_000_000
"""Nanoseconds in a millisecond."""

FULL: Final = 1000
"""The whole of a rate, in thousandths."""

SHARE_LEAST: Final = 10
SHARE_GROWTH: Final = 50
"""Thousandths of its rate that a throttle which had to slow down gets back each second."""

SLOW_AGAIN_NS: Final = 1000 * NS
"""Words to slow down that come so soon after each other are one."""

UNITS: Final = {b"s": 1000, b"m": 60_000, b"h": 3_600_000, b"d": 86_400_000}


class Throttle(Alarm):
    def __init__(self, name: bytes, queue: Queue | None) -> None:
        super().__init__()
        self.name: bytes = name
        self.queue: Queue | None = queue  # all of whose jobs pass here; None: the throttle is a domain's
        self.is_limited: bool = False  # it has a rate or a concurrency; else it only counts
        self.interval: i64 = 0  # nanoseconds for a token; 0: any number
        self.burst: i64 = 1
        self.most: i64 = 0  # out at a time; 0: any number
        self.adapts: bool = False
        self.full_at: i64 = 0
        self.lent: i64 = 0  # tokens that other nodes have and have not used: still in the bucket (grants.py)
        self.shared: Share | None = None  # what it has to do with other nodes
        self.share: i64 = FULL  # of the rate, while it adapts
        self.slowed_at: i64 = -SLOW_AGAIN_NS  # when it last had to slow down
        self.share_at: i64 = 0  # when that was worked out
        self.out: i64 = 0  # jobs handed out here and not ended
        self.waiting: i64 = 0  # queued here, of a domain
        self.has_plenty: bool = False  # when a job was last queued: a token for each that waits, and for it
        self.bins: dict[Bin, None] = {}  # of a domain: where they wait for it, the one served last at the end
        self.no_token: i64 = 0  # how often it was asked and closed: by its rate
        self.no_place: i64 = 0  # or by its concurrency
        self.is_told: bool = False  # it is among `Domains.told`

    # -- the bucket ----------------------------------------------------------------------------------------

    def step(self, now: i64) -> i64:
        """Nanoseconds for a token at present."""
        if self.share == FULL:
            return self.interval
        grown = (now - self.share_at) // (1000 * NS) * SHARE_GROWTH
        if grown > 0:
            self.share_at += grown // SHARE_GROWTH * 1000 * NS
            self.share = min(FULL, self.share + grown)
        return self.interval * FULL // self.share

    def fill(self, now: i64) -> None:
        """As long as tokens are lent the bucket is not filled up to where they belong."""
        if self.lent > 0:
            self.full_at = max(self.full_at, now + self.lent * self.step(now))

    def next_at(self, now: i64) -> i64:
        """When there is a token: now or earlier if there is one."""
        self.fill(now)
        return self.full_at - (self.burst - 1) * self.step(now)

    def has_token(self, now: i64) -> bool:
        return self.interval == 0 or self.next_at(now) <= now

    def take(self, now: i64) -> None:
        if self.interval != 0:
            self.full_at = max(self.full_at, now) + self.step(now)

    def give_back(self, now: i64) -> None:
        """A token that was taken and not used."""
        if self.interval != 0:
            self.full_at -= self.step(now)

    def empty(self, now: i64) -> None:
        """Nothing is in it: the first token comes after one interval."""
        self.full_at = max(self.full_at, now + self.burst * self.interval)

    def tokens(self, now: i64) -> i64:
        """Whole ones that are there."""
        if self.interval == 0:
            return NEVER
        self.fill(now)
        step = self.step(now)
        return min(self.burst, max(0, (now + self.burst * step - self.full_at) // step))

    def set_rate(self, interval: i64, burst: i64, now: i64) -> None:
        """Another rate: tokens that are there stay, as far as the bucket holds them."""
        had: i64 = self.tokens(now)
        was: i64 = self.interval
        self.interval = interval
        self.burst = burst
        if was != 0 and interval != 0 and (was != interval or had < burst):
            self.full_at = now + (burst - min(had, burst)) * interval
        elif was == 0:
            self.full_at = 0
        self.share = FULL

    def slow_down(self, now: i64, ms: i64) -> None:
        """The other side has had enough: nothing for so long, then half of what it was.

        Many are told so at the same moment: it is one word, not many.
        """
        step = self.step(now)
        if now - self.slowed_at >= SLOW_AGAIN_NS:
            self.share = max(SHARE_LEAST, self.share // 2)
            self.slowed_at = now
        self.share_at = now + ms * NS
        self.full_at = max(self.full_at, now + ms * NS + self.burst * step)

    def is_shut(self) -> bool:
        """Whether it is known to be closed until its alarm, so that nobody need look before.

        Where tokens come from other nodes, an alarm may be for something else: that one which is not used must go back,
        or that the node which was asked for one, and has given it, would have to be asked again.
        """
        share = self.shared
        return self.wake < NEVER and (share is None or (share.asked > 0 and share.granted == 0))

    def has_room(self) -> bool:
        return self.most == 0 or self.out < self.most

    def times_closed(self) -> i64:
        return self.no_token + self.no_place


class Domains:
    """The domains a node knows, by name."""

    def __init__(self) -> None:
        self.table: dict[bytes, Throttle] = {}
        self.sweep_above: i64 = DOMAINS_SWEEP
        self.has_places: bool = False  # a concurrency was set for something, at some time
        self.no_token: i64 = 0  # how often a throttle, of a queue too, was asked and closed: by its rate
        self.no_place: i64 = 0  # or by its concurrency
        self.told: dict[bytes, Throttle] = {}  # those that were closed most often: they have figures of their own
        self.least: i64 = 0  # how often one must have been closed, and once more, to be among them

    def was_closed(self, throttle: Throttle) -> None:
        """Somebody was turned away. Nearly always this is a comparison: `least` rises with those that are told of."""
        if throttle.is_told or throttle.queue is not None or throttle.times_closed() <= self.least:
            return
        if len(self.told) >= DOMAINS_TOLD_MAX:
            last: Throttle | None = None
            self.least = NEVER
            for each in self.told.values():
                if each.times_closed() < self.least:
                    self.least = each.times_closed()
                    last = each
            if last is None or throttle.times_closed() <= self.least:
                return
            self.no_more(last)
        self.told[throttle.name] = throttle
        throttle.is_told = True

    def no_more(self, throttle: Throttle) -> None:
        """One of those that are told of is not any longer."""
        throttle.is_told = False
        del self.told[throttle.name]


def now_ns(node: Node) -> i64:
    return (node.now - node.start) * NS


def read_rate(text: bytes) -> i64:
    """`10/s`, `30/m`, `5/h` or `1/d` as nanoseconds for one; 0 if it is none of these."""
    count, slash, unit = text.lower().partition(b"/")
    if not slash or unit not in UNITS or not count.isdigit() or len(count) > 7:
        return 0
    number = int(count)
    if number == 0 or number > RATE_MAX:
        return 0
    return (UNITS[unit] * NS + number - 1) // number


def default_burst(interval: i64) -> i64:
    """A tenth of a second's worth: enough that the grain of clocks and messages does not cost rate."""
    return max(1, (100 * NS + interval - 1) // interval)


def fits(interval: i64, burst: i64) -> bool:
    """Whether a bucket of that size can be reckoned with."""
    return burst <= RATE_BURST_NS_MAX // interval
