"""Nobody waits: what must be within reach of consumers, and how soon, judged by looks inside the nodes.

A look is a Moment: what each node that is there knows of each job, who waits, and since when all that are there hear
each other. Judge remembers what it has seen and says what lasted too long. It is plain data in, words out, and knows
nothing of the simulator. Every bound here is a row of the table of promised times in docs/explanation/promises.md.

    out-of-reach   nobody has the job queued, out, or waiting for a time of its own, though its holders hear each other
    not-handed-out it is queued, a consumer waits, and they do not come together
    put-off        a time that a job waits for was moved to a later one, and nobody had asked for that
    no-home        keys of which no node decides, though those that are there hear each other and are most
    link-late      two nodes could have a link for long, and have none

What a network, clocks or a dead machine excuse is in the moment: the time a message may take, since when the nodes that
are there are the same and hear each other, and when the others were heard last.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from holdfast.testing.checkers.whitebox import ACKED, DEAD, TOMBSTONE, Copy

HAND_OUT_MS: Final = 100
"""From when a job is queued and a consumer waits until it is handed out."""

REACH_MS: Final = 2_000
"""From when its holders are up and linked until a job is within reach; and from an open network to a link."""

GONE_MS: Final = 5_000
"""From when a node counts as failed until jobs that waited there are within reach elsewhere."""

FAILED_MS: Final = 2_000
"""So much later than node-timeout all have heard that a node counts as failed: two beats."""

HOME_MS: Final = 1_000
"""From when a node is known to be gone until another decides about its keys and its schedules."""

PUT_OFF_MS: Final = 1_000
"""Two looks at the same time to come may differ by this much, and by what clocks run apart (RATE)."""
RATE: Final = 0.06

MESSAGES: Final = 8
"""So many messages, one after the other, the longest of these takes: a question to all holders, a second one to those
it told of, a move, and its answer."""

QUEUED: Final = "queued"  # and nothing keeps it from a consumer
OUT: Final = "out"
IN_LINE: Final = "in-line"
DELAYED: Final = "delayed"
WAITS: Final = "waits"  # it failed, and is tried again later
TIMED: Final = frozenset([OUT, DELAYED, WAITS])
WITHIN_REACH: Final = TIMED | {
    QUEUED,
    "kept",  # queued, and by somebody's wish not handed out: paused, limited, resting after its moves
    "in-line",  # behind another of its group
    "adding",
    "spent",  # at most once, and handed out
    "doubt",
}


class Absent(NamedTuple):
    since: int
    is_told: bool  # its connections were closed, so the others know at once


Consumer: TypeAlias = tuple[str, int, int]
"""Node, session, and until when it waits."""


class Moment(NamedTuple):
    t: int
    steady: int  # since when the nodes that are there are the same, hear each other, and are most; -1: they are not
    lag: int  # ms that a message may take
    node_timeout: int
    absent: tuple[Absent, ...] = ()
    lost: int = -1_000_000  # when a node last lost all that it had
    jobs: Mapping[str, Mapping[str, Copy]] = {}
    accepted: frozenset[str] = frozenset()  # jobs that are owed to consumers
    touched: frozenset[str] = frozenset()  # jobs of which somebody has said or got something lately
    consumers: Mapping[str, frozenset[Consumer]] = {}  # by queue
    homes: int = 0  # a byte for each slot: some node decides about it
    known: int = -1  # the same: some node has a row that says who does. Where all disks were lost, nobody has
    wishes: frozenset[str] = frozenset()  # queues that were paused lately: what is done with their jobs is as asked
    are_clocks_right: bool = True
    rate_ppm: int = 0  # clocks of nodes run fast or slow by this much

    @property
    def calm_down(self) -> int:
        """What the longest chain of messages takes, and by what a slow clock is late with the longest of the bounds."""
        return MESSAGES * self.lag + (REACH_MS + GONE_MS) * self.rate_ppm // 1_000_000

    def known_gone(self, told_ms: int, silent_ms: int) -> int:
        """When those that are not there are known to be gone, and a promised time is over."""
        return max([
            each.since + (told_ms if each.is_told else self.node_timeout + silent_ms) for each in self.absent
        ], default=-1)


Complaint: TypeAlias = tuple[str, str, str]
"""Its class, the job or nothing, and words."""


class Judge:
    def __init__(self) -> None:
        self.leases: dict[str, int] = {}  # of nodes that died: until when a consumer has the job, as far as we know
        self.lost_sight: dict[str, int] = {}  # jobs out of reach, and since when
        self.queued: dict[tuple[str, str], int] = {}  # node and job: queued, and since when
        self.waiting: dict[tuple[Consumer, str], int] = {}  # consumers and what they wait for, and since when
        self.times: dict[tuple[str, str], tuple[str, int, int]] = {}  # node and job: its word, its turn, until when
        self.homeless_t = -1
        self.homeless = 0
        self.used = 0  # slots that ever had a home

    def dies(self, t: int, copies: Mapping[str, Copy]) -> None:
        """A node is stopped: what it has out is out until its time ends, whoever knows of it."""
        for job, copy in copies.items():
            if copy.stands == OUT:
                self.leases[job] = max(self.leases.get(job, 0), t + int(copy.left_ms * (1 + RATE)) + PUT_OFF_MS)

    def look(self, moment: Moment) -> list[Complaint]:
        return [
            *self.out_of_reach(moment), *self.put_off(moment), *self.without_home(moment), *self.not_handed_out(moment)
        ]

    # -- jobs ----------------------------------------------------------------------------------------------

    def out_of_reach(self, moment: Moment) -> Iterator[Complaint]:
        before, self.lost_sight = self.lost_sight, {}
        if moment.steady < 0:
            return
        where: dict[str, dict[str, str]] = {}
        for node, copies in moment.jobs.items():
            for job, copy in copies.items():
                if copy.retry_s > 0 or copy.state in (ACKED, TOMBSTONE):
                    where.setdefault(job, {})[node] = copy.state if copy.state in OVER else copy.stands
                    if copy.queue in moment.wishes:
                        where[job]["wishes"] = "kept"
        gone = max(moment.lost + moment.node_timeout, moment.known_gone(0, 0)) + FAILED_MS + GONE_MS
        deadline = max(moment.steady + REACH_MS, gone) + moment.calm_down
        for job, stands in where.items():
            if job not in moment.accepted or not WITHIN_REACH.isdisjoint(stands.values()):
                continue
            if not OVER.isdisjoint(stands.values()) or self.leases.get(job, -1) > moment.t:
                continue
            since = self.lost_sight[job] = before.get(job, moment.t)
            latest = max(deadline, since + REACH_MS + moment.calm_down, self.leases.get(job, -1) + REACH_MS)
            if moment.t > latest:
                text = f"steady since {moment.steady} ms, and nobody has it since {since} ms: {stands}"
                yield "out-of-reach", job, text

    def not_handed_out(self, moment: Moment) -> Iterator[Complaint]:
        queued = {
            (node, job): copy.queue for node, copies in moment.jobs.items() for job, copy in copies.items()
            if copy.stands == QUEUED and copy.queue in moment.consumers and copy.queue not in moment.wishes
        } if moment.steady >= 0 else {}
        wanted = set(queued.values())
        self.queued = {key: self.queued.get(key, moment.t) for key in queued}
        self.waiting = {
            key: self.waiting.get(key, moment.t)
            for queue in wanted for consumer in moment.consumers[queue] for key in [(consumer, queue)]
        }
        first: dict[str, int] = {}
        for (_, queue), since in self.waiting.items():
            first[queue] = min(since, first.get(queue, since))
        for (node, job), queue in queued.items():
            since = max(self.queued[node, job], first[queue])
            latest = max(since + HAND_OUT_MS, moment.steady + REACH_MS) + moment.calm_down
            if moment.t > latest:
                text = f"queued at {node}, and somebody waits, both since {since} ms; steady since {moment.steady} ms"
                yield "not-handed-out", job, text

    def is_unsure(self) -> bool:
        """Whether another look, soon, may tell that somebody waits for what is queued."""
        return bool(self.queued)

    def put_off(self, moment: Moment) -> Iterator[Complaint]:
        before, self.times = self.times, {}
        for node, copies in moment.jobs.items():
            for job, copy in copies.items():
                if copy.stands not in TIMED or copy.retry_s == 0:
                    continue
                key, end = (node, job), moment.t + copy.left_ms
                self.times[key] = (copy.stands, copy.turn, end)
                stands, turn, was = before.get(key, ("", 0, 0))
                late = end - was - PUT_OFF_MS - RATE * copy.left_ms
                is_free = job not in moment.touched and moment.are_clocks_right and copy.queue not in moment.wishes
                if (stands, turn) == (copy.stands, copy.turn) and was > moment.t and late > 0 and is_free:
                    yield "put-off", job, f"at {node} it is {stands} until {end} ms, and was until {was} ms"
        for key, value in before.items():
            if key[0] not in moment.jobs and value[2] > moment.t:
                self.times[key] = value  # its node is down, and knows when it is back

    # -- keys ----------------------------------------------------------------------------------------------

    def without_home(self, moment: Moment) -> Iterator[Complaint]:
        self.used |= moment.homes
        homeless = self.used & moment.known & ~moment.homes
        if moment.steady < 0 or not homeless & self.homeless:
            self.homeless, self.homeless_t = homeless, moment.t
            return
        self.homeless &= homeless
        gone = max(moment.known_gone(HOME_MS, HOME_MS), moment.lost + moment.node_timeout + HOME_MS)
        latest = max(self.homeless_t + HOME_MS, moment.steady + REACH_MS, gone) + moment.calm_down
        if moment.t > latest:
            slots = [slot for slot in range(self.homeless.bit_length() // 8 + 1) if self.homeless >> 8 * slot & 1]
            text = f"nobody decides about slots {slots[:9]} since {self.homeless_t} ms; steady since {moment.steady} ms"
            yield "no-home", "", text


OVER: Final = frozenset([ACKED, TOMBSTONE, DEAD])


def late_links(t: int, lag: int, apart: Mapping[tuple[str, str], int]) -> Iterator[Complaint]:
    """Pairs that know each other and have no link, by since when nothing keeps them from having one."""
    for pair, since in apart.items():
        if t > since + REACH_MS + MESSAGES * lag:
            yield "link-late", "", f"nothing keeps {pair[0]} and {pair[1]} apart since {since} ms"
