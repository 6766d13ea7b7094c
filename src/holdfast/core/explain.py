"""EXPLAIN: why a job is not handed out now, and why it was handed out more than once.

Every reason not to hand a job out has a code, for programs, and words, for people; where it ends by itself, when. The
reasons of each part of the scheduler are found by a function in REASONS: whoever adds a rule that can keep a job
back adds its function there, and EXPLAIN knows it. A node that does not know the job, or knows it only as a copy,
asks the others and gives the answer of the one that hands it out.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import absence, believers, delay, groups, home, inquire, orphans, peek, peers, states, status
from holdfast.core.acks import Ending
from holdfast.core.believers import Key
from holdfast.core.inquire import Question
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    ASKING,
    BACKING_OFF,
    DEAD,
    IN_DOUBT,
    MOVING,
    QUEUED,
    QUEUED_BEFORE,
    WAIT_REPL,
    Job,
)
from holdfast.core.more import TRY_NAMES
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.queue import PAUSE_IN, PAUSE_NAMES, PAUSE_OUT
from holdfast.core.reply import write_array, write_bulk, write_bulks, write_int, write_null
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

NO_END: Final = -1  # in place of a time: it does not end by itself

UNTOLD: Final = -2  # that is for another node to say
UNASKED: Final = -3  # the same, and nobody has wanted to know so far: it may be none
FROM: Final = b" has its tokens from "
OTHERWISE: Final = b"; if it stays away, a node that has a copy asks the other holders and queues the job"
NOWHERE: Final = b"no node that can be asked has it queued or with a worker: those with copies settle who queues it"

ENDINGS: Final = [
    b"acknowledged", b"given up before it was accepted", b"flushed with its queue", b"replaced",
    b"merged with another of the same key", b"cancelled", b"deleted",
    b"expired",
]

TEXTS_MAX: Final = 1000
"""Reasons and lines of history that one node tells of one job."""


class Reason:
    def __init__(self, code: bytes, words: bytes, ms: i64 = NO_END) -> None:
        self.code: bytes = code
        self.words: bytes = words
        self.ms: i64 = ms  # until it ends, as far as is known now


class Explanation:
    """What one node says of a job."""

    def __init__(self, state: bytes) -> None:
        self.state: bytes = state  # a word of states.py, or `unknown`
        self.weight: i64 = 0  # how much it should know: the node that hands a job out knows more than one with a copy
        self.reasons: list[Reason] = []
        self.history: list[bytes] = []
        self.keys: list[Key] = []  # about which one node decides
        self.at: bytes = b""  # of a mere copy: the node that is taken to have the job, by the beginning of its id

    def summary(self) -> bytes:
        if not self.reasons:
            return b"nothing keeps it: it is handed out to whoever asks next"
        return b"; ".join([reason.words for reason in self.reasons])


Finder = Callable[["Node", Job], list[Reason]]


# -- reasons ----------------------------------------------------------------------------------------------


def is_waiting(node: Node, job: Job) -> bool:
    """Whether this node is to hand it out, as soon as nothing keeps it: more than one thing may.

    Of a job that has ended, that a worker has or that another node hands out there is nothing more to say.
    """
    if job.flags & IN_DOUBT or job.responsible != ME:
        return False
    if job.state == ACTIVE:
        return not job.flags & MOVING and not status.is_out(node, job)
    return job.state == QUEUED or job.state == WAIT_REPL


def of_state(node: Node, job: Job) -> list[Reason]:
    """What the state of the copy here says by itself."""
    if job.state == ACKED:
        task = job.task
        why = task.why if isinstance(task, Ending) else 0
        return [Reason(b"ended", b"it has ended: " + ENDINGS[why])]
    if job.state == DEAD:
        more = job.more
        assert more is not None
        failures = b"%d failure%b" % (int(more.failures), b"" if more.failures == 1 else b"s")
        return [Reason(b"dead", b"it is dead, cause %b, after %b; DEAD RETRY sends it back" % (more.cause, failures))]
    if job.flags & IN_DOUBT:
        return [Reason(b"in-doubt", b"at most once, and nobody can say whether it was handed out; ENQUEUE is your word "
                                    b"that it was not")]
    if job.state == WAIT_REPL:
        copies = Reason(b"copies", b"not enough nodes hold a copy yet: it is not accepted")
        return [copies, *of_delay(node, job)]
    return [] if job.state == QUEUED else of_absence(node, job)


def of_absence(node: Node, job: Job) -> list[Reason]:
    """It is known here and not queued: handed out, delayed, or with another node."""
    left = max(0, job.qtime - node.now) if job.qtime else NO_END
    if groups.is_held(job):
        return []  # of_group knows
    if job.flags & MOVING:
        peer = node.peers[job.responsible]
        if absence.is_there(node, job):
            return [Reason(b"moving", b"it is on its way to node " + peer_name(node, peer.index))]
        words = b"it was on its way to " + absence.words(node, peer) + b": that node says whether it arrived"
        return [Reason(states.NODE_AWAY, words if left == NO_END else words + OTHERWISE, left)]
    if job.responsible != ME:
        peer = node.peers[job.responsible]
        if peer.is_linked:
            name = peer_name(node, peer.index)
            words = b"node %b has this job, and hands it out or knows which worker has it; here is a copy" % name
        else:
            left = min(left, orphans.taken_up_in(node, peer, job))
            return [Reason(states.NODE_AWAY, absence.words(node, peer) + b" has this job" + OTHERWISE, left)]
        return [Reason(b"elsewhere", words, left)]
    if status.is_out(node, job) and job.retry == 0:
        return [Reason(b"leased", b"at most once, and it was handed out%b: it is not queued again" % ago(node, job))]
    if status.is_out(node, job):
        return [Reason(b"leased", b"a worker has it" + holder(node, job), left)]
    delayed = of_delay(node, job)
    if delayed or of_home(node, job):
        return delayed  # of_home knows why it does not come to be queued
    if job.flags & BACKING_OFF:
        return [Reason(b"backing-off", b"it failed, and waits before it is tried again", left)]
    if job.flags & ASKING:
        return [Reason(b"asking", b"the other holders are asked whether one of them has it", left)]
    if home.is_keyed(job) and left > 0 and job.holders & ~MY_BIT & ~peers.linked(node):
        return [Reason(b"put-off", b"a node that had it cannot be reached, and may have given it to a worker: it is "
                                   b"queued when the time of that worker would be over", left)]
    if not job.flags & QUEUED_BEFORE:
        return [Reason(b"put-off", b"it could not be queued when its time came, and is tried again", left)]
    return [Reason(b"put-off", b"it was taken out of its queue for a while", left)]


def of_delay(node: Node, job: Job) -> list[Reason]:
    if not delay.is_on(node, job):
        return []
    return [Reason(b"delayed", b"its delay has not ended", delay.left(node, job))]


def holder(node: Node, job: Job) -> bytes:
    lease = job.lease
    if lease is None:
        return b""
    name = lease.worker or lease.address
    told = b", called off" if lease.is_cancelled else b""
    return b": %b, for %d s%b" % (name, int((node.now - lease.since) // 1000), told)


def ago(node: Node, job: Job) -> bytes:
    lease = job.lease
    if lease is None:
        return b""
    return b" to %b, %d s ago" % (lease.worker or lease.address, int((node.now - lease.since) // 1000))


def peer_name(node: Node, index: i64) -> bytes:
    return node.peers[index].node_id()[:8]


def of_group(node: Node, job: Job) -> list[Reason]:
    """It stands in line, or will have to when its time comes."""
    more = job.more
    if more is None or not more.group or not (is_waiting(node, job) or groups.is_held(job)):
        return []
    ahead = groups.ahead(job)
    if ahead == 0:
        return []
    count = b"1 job of group %b is" if ahead == 1 else b"%d jobs of group %%b are" % int(ahead)
    return [Reason(b"group", count % more.group + b" before it")]


def of_home(node: Node, job: Job) -> list[Reason]:
    """It has a key, and another node decides when it is queued."""
    if job.state != ACTIVE or not home.is_keyed(job) or home.is_home_of(node, job):
        return []
    index = home.owner(node, home.slot_of_job(job))
    if index == ME:
        return [Reason(b"home", b"this node is to decide about its key, and asks the others what they know of it")]
    if node.peers[index].is_linked:
        return []  # that one knows better
    words = b"node %b decides about its key and cannot be reached; if that lasts, another takes over"
    return [Reason(b"home", words % peer_name(node, index))]


def of_pause(node: Node, job: Job) -> list[Reason]:
    """`out` keeps every job back, `in` those that are not queued now."""
    queue = job.queue
    is_kept_out = job.state == ACTIVE and job.retry > 0 and queue.paused & PAUSE_IN != 0 and not groups.is_held(job)
    if not is_waiting(node, job) or not (queue.paused & PAUSE_OUT or is_kept_out):
        return []
    words = b"its queue is paused (%b)" % PAUSE_NAMES[queue.paused]
    if not queue.paused & PAUSE_OUT:
        words += b": it is not queued again" if job.flags & QUEUED_BEFORE else b": it is not queued"
    return [Reason(b"paused", words, queue.pause_until - node.now if queue.pause_until else NO_END)]


def of_place(node: Node, job: Job) -> list[Reason]:
    """It is queued here: who is before it, and whether anybody asks."""
    if job.state != QUEUED:
        return []
    queue = job.queue
    found: list[Reason] = []
    ahead = peek.ahead(node, job)
    if ahead > peek.AHEAD_MOST:
        found.append(Reason(b"behind", b"more than %d jobs are before it in its queue" % peek.AHEAD_MOST))
    elif ahead > 0:
        found.append(Reason(b"behind", b"%d job%b before it in its queue" % (
            int(ahead), b" is" if ahead == 1 else b"s are")))
    if node.is_leaving:
        found.append(Reason(b"leaving", b"its node is leaving, and gives it to another"))
    elif not queue.waiting and not queue.interest:
        found.append(Reason(b"nobody-waits", b"nobody asks for jobs of its queue"))
    return found


REASONS: Final[list[Finder]] = [of_state, of_group, of_home, of_pause, of_place]
"""All that can keep a job back. A finder looks at one job of this node and says what it knows, whatever others say: a
job that is delayed in a queue that is paused has both reasons."""


# -- history ----------------------------------------------------------------------------------------------


def history(node: Node, job: Job) -> list[bytes]:
    """How its hand-outs ended, as far as that was kept."""
    found: list[bytes] = []
    more = job.more
    if more is not None:
        for each in more.tries:
            who = b" by %b" % each.worker if each.worker else b""
            said = b": " + each.error if each.error else b""
            found.append(b"handed out%b, %b after %d ms%b" % (
                who, TRY_NAMES[each.how], max(0, int(each.ended - each.began)), said))
        trace = more.trace()
        if trace:
            found.append(b"where it failed:\n" + trace)
        if more.round > 0:
            found.append(b"sent back from the dead " + times(i64(more.round)))
    if job.replicate == 1 and home.is_keyed(job) and not home.is_alone(node):
        found.append(b"one copy: if its node is lost, or away for long, nobody knows that its key is taken")
    if job.nacks > 0 or job.deliveries > 0:
        found.append(b"given back by workers %b, queued again for other reasons %b" % (
            times(i64(job.nacks)), times(i64(job.deliveries))))
    return found


def times(count: i64) -> bytes:
    return b"once" if count == 1 else b"%d times" % int(count)


# -- the command ------------------------------------------------------------------------------------------


def look(node: Node, jid: bytes) -> Explanation:
    """What this node knows of a job."""
    job = node.find(jid)
    if job is None:
        found = Explanation(b"unknown")
        tomb = node.tombs.get(jid)
        if tomb is not None:
            found.state = states.ENDED
            found.weight = 1
            found.reasons.append(Reason(b"ended", b"it has ended: " + ENDINGS[min(tomb.why, len(ENDINGS) - 1)]))
        elif jid in node.results.kept:
            found.state = states.ENDED
            found.weight = 1
            found.reasons.append(Reason(b"ended", b"it has ended: acknowledged; its result is kept"))
        return found
    found = Explanation(status.of(node, job))
    if found.state == states.COPY and not absence.is_there(node, job):
        found.state = states.NODE_AWAY  # another holder counts it; here nobody is asked for a number
    found.weight = 3
    if job.responsible != ME and job.state == ACTIVE:
        found.weight = 2
        found.at = b"" if job.flags & MOVING else peer_name(node, i64(job.responsible))
    for finder in REASONS:
        found.reasons += finder(node, job)
    found.history = history(node, job)
    found.keys = believers.keys_of(node, job)
    return found


class Explaining(Question):
    def __init__(self, session: Session, jid: bytes, best: Explanation) -> None:
        super().__init__(session)
        self.jid: bytes = jid
        self.best: Explanation = best
        self.keys: list[Key] = best.keys  # as this node knows them

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        heard = read(reader)
        believers.hear(peer, reader, self.keys)
        if heard.weight > self.best.weight:
            self.best = heard

    def is_circle(self, node: Node) -> bool:
        """Whether the best there is names a node that has answered, and does not have the job either."""
        if self.best.weight != 2 or not self.best.at:
            return False
        peer = inquire.find_peer(node, self.best.at)
        return peer is not None and peer.bit & self.answered != 0

    def reply(self, node: Node, out: BytesWriter) -> None:
        if self.best.weight == 0:
            missing = inquire.missing(node, self)
            words = b"no node that can be asked knows it"
            if missing:
                words += b"; %d node%b cannot be reached" % (len(missing), b"" if len(missing) == 1 else b"s")
            self.best.reasons.append(Reason(b"unknown", words))
        elif self.is_circle(node) and not node.broken("circle-told"):
            ms: i64 = min([reason.ms for reason in self.best.reasons])
            self.best.reasons = [Reason(b"nowhere", NOWHERE, ms)]
        settle_rates(self.best, self.keys)
        add_believers(node, self.best, self.keys)
        write_explanation(out, self.session, self.jid, self.best)


def add_believers(node: Node, found: Explanation, keys: list[Key]) -> None:
    for key in keys:
        words = believers.words_of(key, believers.missing(node))
        if words:
            found.reasons.append(Reason(b"believers", words))


def settle_rates(found: Explanation, keys: list[Key]) -> None:
    """Whoever keeps the tokens of a rate has said when there is one; if there is, that is no reason. Where it was not
    asked, since who asks does not know the keys of the job, it is said who that is, if a token was wanted."""
    reasons: list[Reason] = []
    for reason in found.reasons:
        if reason.ms < NO_END:
            what, _, keeper = reason.words.partition(FROM)
            ms: i64 = -1
            for key in keys:
                is_of_queue = key.name == b"the rate of its queue"
                if key.throttle is not None and (b"its queue" if is_of_queue else key.name) == what:
                    ms = max(0, key.ms)  # that nobody keeps them is so until one is wanted
            if ms == 0 or (ms < 0 and reason.ms == UNASKED):
                continue
            if ms > 0:
                reason.words = b"%b has its next token in %d.%d s, at %b" % (
                    what, int(ms // 1000), int(ms % 1000 // 100), keeper)
            reason.ms = ms if ms > 0 else NO_END
        reasons.append(reason)
    found.reasons = reasons


def explain(node: Node, session: Session, jid: bytes) -> None:
    found = look(node, jid)
    if len(node.peers) > 1 and (found.weight < 3 or found.keys):
        question = BytesWriter()
        question.write(jid)
        believers.write_slots(question, found.keys)
        inquire.ask(node, Explaining(session, jid, found), inquire.EXPLAINED, question.getvalue(), -1)
        return
    if found.weight == 0:
        found.reasons.append(Reason(b"unknown", b"this node does not know it"))
    write_explanation(node.out, session, jid, found)


def write_explanation(out: BytesWriter, session: Session, jid: bytes, found: Explanation) -> None:
    write_array(out, 5)
    write_bulk(out, jid)
    write_bulk(out, found.state)
    write_bulk(out, found.summary())
    write_array(out, len(found.reasons))
    for reason in found.reasons:
        write_array(out, 3)
        write_bulk(out, reason.code)
        write_bulk(out, reason.words)
        if reason.ms == NO_END:
            write_null(out, session)
        else:
            write_int(out, reason.ms)
    write_bulks(out, found.history)


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    found = look(node, reader.job_id())
    if not reader.more():
        add_believers(node, found, found.keys)  # who asks does not know its keys, and cannot tell
    bus.write_name(out, found.state)
    bus.write_name(out, found.at)
    bus.write_i8(out, found.weight)
    bus.write_u32(out, len(found.reasons))
    for reason in found.reasons:
        bus.write_name(out, reason.code)
        bus.write_name(out, reason.words)
        bus.write_i64(out, reason.ms)
    bus.write_u32(out, len(found.history))
    for line in found.history:
        bus.write_name(out, line)
    believers.write_answer(node, reader, out)


def read(reader: Reader) -> Explanation:
    found = Explanation(reader.name())
    found.at = reader.name()
    found.weight = reader.u8()
    count = reader.u32()
    if count > TEXTS_MAX:
        raise BadFrame("more reasons than there are")
    for _ in range(count):
        code = reader.name()
        words = reader.name()
        found.reasons.append(Reason(code, words, reader.long()))
    count = reader.u32()
    if count > TEXTS_MAX:
        raise BadFrame("a longer history than is kept")
    found.history = [reader.name() for _ in range(count)]
    return found
