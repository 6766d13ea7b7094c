"""Unique jobs: a key that only one job of a queue has at a time.

The home of a key (home.py) knows which job has it. A key is taken until its job has ended, or with UNTIL started
until it is handed out; with WINDOW for at least so many seconds from when the job was added, whatever becomes of
it. An ADDJOB with a key that is taken is answered with the id of the job that has it, or refused, or its job takes
the place of the other, as it says (ONDUP); bodies never change under an id.

An id is answered only once its job is accepted. An ADDJOB that meets a job which still waits for its copies waits
for that job's fate: otherwise both producers could end up with the id of a job that is aborted.

Nothing of this is kept in records of its own except keys of jobs that are gone (`Taken` without a job): the rest
is read off the jobs.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from holdfast.core import acks, doubt, errors, home, keyed, records, requeue
from holdfast.core.alarms import Chore
from holdfast.core.job import ACKED, ACTIVE, GONE, HANDED_OUT, QUEUED, WAIT_REPL, Job
from holdfast.core.limits import DURATION_S_MAX, KEY_BYTES_MAX, QUEUE_NAME_BYTES_MAX, TAKEN_BYTES
from holdfast.core.more import EXISTING, REJECT, REPLACE, UNTIL_STARTED, More
from holdfast.core.peers import ME, Peer
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.keyed import Add
    from holdfast.core.node import Node

ADDED: Final = b"added"
HAD: Final = b"existing"
REPLACED: Final = b"replaced"

KEY_MAX: Final = QUEUE_NAME_BYTES_MAX + 2 * KEY_BYTES_MAX + 8
WINDOW_MS_MAX: Final = DURATION_S_MAX * 1000

MERGED_MAX: Final = 100_000
"""Jobs that were merged into another, of which it is remembered which: they are few, and for a while."""


NO_ADDS: Final[list[Add]] = []
"""Nobody waits for the fate of a job; never added to."""


@mypyc_attr(acyclic=True)
class Taken:
    """A key, and who has it."""

    def __init__(self, jid: bytes, job: Job | None) -> None:
        self.jid: bytes = jid  # of the job that had it; while it has it, the job knows
        self.job: Job | None = job  # None: ended, but its window is still open
        self.next: Job | None = None  # is to take its place, once it has its copies
        self.until: i64 = 0  # end of the window, where the job has ended
        self.parked: list[Add] = NO_ADDS  # wait for the fate of a job that is being added


def id_of(node: Node, taken: Taken) -> bytes:
    return taken.jid if taken.job is None else node.id_text(taken.job)


class Windows(Chore):
    """Once a second, while there are any: windows that are over."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[int, list[bytes]] = {}  # keys, by the second in which their window ends
        self.doubted: dict[bytes, None] = {}  # keys whose window was read by a clock that may be wrong (doubt.py)
        self.swept: i64 = 0

    def run(self, node: Node) -> None:
        second: i64 = node.now // 1000
        if self.swept == 0:
            self.swept = second - 1
        for each in sorted(self.ends):
            if each > second:
                break
            for key in self.ends.pop(each):
                taken = node.taken.get(key)
                if taken is not None and taken.job is None and taken.until <= node.now and key not in self.doubted:
                    drop(node, key)
        if self.ends:
            node.alarms.set(self, (min(self.ends) + 1) * 1000)


def key_of(queue: bytes, more: More) -> bytes:
    """A key is unique in its queue, and in its group where the job has one: then it has the home of the group.

    Made once for a job: it is asked for at every turn of its life.
    """
    if not more.key:
        out = BytesWriter()
        bus.write_name(out, queue)
        bus.write_name(out, more.group)
        out.write(more.unique)
        more.key = out.getvalue()
    return more.key


def key_of_job(job: Job) -> bytes:
    more = job.more
    assert more is not None
    return key_of(job.queue.name, more)


def meet(node: Node, add: Add) -> bool:
    """An ADDJOB with a key: whether it need not, or must not yet, make a job. Then it is answered, or waits."""
    more = add.options.more
    assert more is not None
    key = key_of(add.queue, more)
    taken = node.taken.get(key)
    if taken is None:
        return False
    job = taken.job
    if job is None and taken.until <= node.now:
        drop(node, key)
        return False
    if taken.next is not None or (job is not None and is_undecided(node, job)):
        keyed.wait(node, add)
        taken.parked = [*taken.parked, add]
        return True
    ondup = add.options.ondup
    jid = id_of(node, taken)
    if jid == keyed.id_text(add, 0) and not node.broken("old-home-denies"):
        keyed.answer(node, add, jid, b"added", 1)  # we made it when we were first asked, and it has ended since
        return True
    if ondup == REJECT:
        keyed.refuse(node, add, errors.DUPLICATE % jid)
        return True
    if ondup == REPLACE and job is not None and is_waiting(job):
        return False
    assert ondup <= EXISTING or job is None or not is_waiting(job)
    keyed.answer(node, add, jid, HAD, 0)
    return True


def is_undecided(node: Node, job: Job) -> bool:
    """Whether nobody can say yet if the job is one: its copies are missing, or it may have ended long ago."""
    return (job.state == WAIT_REPL or job in node.hinted) and not node.broken("unique-unaccepted-answered")


def hint(node: Node, peer: Peer, job: Job) -> None:
    """A peer had a copy of a job that we knew nothing of. It may have been away when the job ended: ask the others."""
    if node.broken("stale-copy-believed"):
        return
    asked: i64 = 0
    for each in node.peers:
        if each.bit & job.holders and each.is_linked and each is not peer:
            requeue.write_willqueue(node, each, job, 0)
            asked |= each.bit
    if asked:
        node.hinted[job] = int(asked)


def heard(node: Node, peer: Peer, job: Job) -> None:
    """That peer does not know of its end."""
    asked = node.hinted.get(job)
    if asked is None:
        return
    asked &= ~int(peer.bit)
    if asked:
        node.hinted[job] = asked
        return
    del node.hinted[job]
    taken = node.taken.get(key_of_job(job))
    if taken is not None:
        unpark(node, taken)


def link_down(node: Node, peer: Peer) -> None:
    """It will not answer any more."""
    for job in list(node.hinted):
        heard(node, peer, job)


def is_waiting(job: Job) -> bool:
    """Nobody works on it: another may take its place."""
    return job.state == QUEUED or (job.state == ACTIVE and not job.flags & HANDED_OUT)


def take(node: Node, job: Job) -> bytes:
    """A job with a key is made; what the producer is told became of the key."""
    key = key_of_job(job)
    taken = node.taken.get(key)
    if taken is None:
        node.taken[key] = Taken(b"", job)
        node.account(TAKEN_BYTES + 2 * len(key))
        return ADDED
    if taken.job is None:
        taken.job = job
        return ADDED
    taken.next = job
    return REPLACED


def accepted(node: Node, job: Job) -> None:
    """It has its copies: those who wait for its fate can be told, and the one it replaces goes."""
    taken = node.taken.get(key_of_job(job))
    if taken is None:
        return
    if taken.next is job:
        old = taken.job
        taken.job = job
        taken.next = None
        if old is not None and old.state != ACKED and old.state != GONE and not node.broken("replaced-lives-on"):
            node.end(old, acks.REPLACED)
    unpark(node, taken)


def started(node: Node, job: Job) -> None:
    more = job.more
    assert more is not None
    if more.until == UNTIL_STARTED:
        give_up_key(node, job)


def ended(node: Node, job: Job, why: i64) -> None:
    """The key is free again, unless its window is still open."""
    if node.hinted:
        node.hinted.pop(job, None)
    key = key_of_job(job)
    taken = node.taken.get(key)
    if taken is None:
        if why == acks.DONE or why == -1:
            keep_window(node, job)
        return
    if taken.next is job:
        taken.next = None
        unpark(node, taken)
    elif taken.job is job and taken.next is not None:
        taken.job = taken.next  # what it should have replaced is gone by itself
        taken.next = None
    elif why == acks.ABORTED or why == acks.FLUSHED:
        if taken.job is job:
            drop(node, key)
    elif taken.job is job:
        give_up(node, job, key, taken)


def give_up_key(node: Node, job: Job) -> None:
    key = key_of_job(job)
    taken = node.taken.get(key)
    if taken is not None and taken.job is job:
        give_up(node, job, key, taken)


def give_up(node: Node, job: Job, key: bytes, taken: Taken) -> None:
    more = job.more
    assert more is not None
    if more.window == 0:
        drop(node, key)
        return
    until: i64 = job.ctime // 1_000_000 + more.window * 1000
    if until <= node.now or node.broken("window-ends-with-job"):
        drop(node, key)
        return
    taken.jid = node.id_text(job)
    taken.job = None
    taken.until = until
    remember(node, key, taken)
    unpark(node, taken)


def keep_window(node: Node, job: Job) -> None:
    """A copy of a job ends here, and its home is elsewhere: should we be the next one, the key is taken still."""
    more = job.more
    assert more is not None
    left: i64 = job.ctime // 1_000_000 + more.window * 1000 - node.now
    if more.window > 0 and left > 0 and job.state != WAIT_REPL and not node.broken("window-ends-with-job"):
        learn_key(node, key_of_job(job), node.id_text(job), left)


def remember(node: Node, key: bytes, taken: Taken) -> None:
    """A key whose job is gone: see that it goes when its window is over."""
    windows = node.windows
    second = int(taken.until // 1000)
    windows.ends.setdefault(second, []).append(key)
    node.alarms.at_latest(windows, (second + 1) * 1000)
    records.taken_key(node, key, taken.jid, taken.until - node.now)


def drop(node: Node, key: bytes) -> None:
    taken = node.taken.pop(key)
    node.windows.doubted.pop(key, None)
    node.account(-(TAKEN_BYTES + 2 * len(key)))
    unpark(node, taken)


def unpark(node: Node, taken: Taken) -> None:
    """Those who waited for the fate of a job: as if they came only now, in the order in which they came."""
    if taken.parked and (taken.job is None or not is_undecided(node, taken.job)) and taken.next is None:
        parked = taken.parked
        taken.parked = NO_ADDS
        for add in parked:
            if add.session is None or not add.session.is_closing:
                keyed.perform(node, add)


def learn_key(node: Node, key: bytes, jid: bytes, ms: i64) -> None:
    """A key whose job is gone already: its window is open for so long."""
    known = node.taken.get(key)
    if known is not None and known.job is None and known.until <= node.now:
        drop(node, key)
        known = None
    if ms > 0 and known is None:
        keep_key(node, key, jid, ms)


def keep_key(node: Node, key: bytes, jid: bytes, ms: i64) -> None:
    taken = Taken(jid, None)
    taken.until = node.now + ms
    node.taken[key] = taken
    node.account(TAKEN_BYTES + 2 * len(key))
    remember(node, key, taken)


def load_key(node: Node, key: bytes, jid: bytes, ms: i64) -> None:
    """One from the journal, read by a clock that may be wrong: if it seems to be free again that is not sure yet."""
    if not doubt.is_possible(node) or node.broken("window-ends-by-bad-clock"):
        learn_key(node, key, jid, ms)
    else:
        known = node.taken.get(key)
        if known is not None and known.job is None:
            drop(node, key)  # another job had it before
        if known is None or known.job is None:
            keep_key(node, key, jid, ms)
            node.windows.doubted[key] = None


def settle(node: Node, ahead: i64) -> None:
    """Peers have said what time it is: windows were read by a clock that was so much ahead."""
    doubted, node.windows.doubted = node.windows.doubted, {}
    for key in doubted:
        taken = node.taken.get(key)
        if taken is not None and taken.job is None:
            taken.until += ahead
            if taken.until > node.now:
                remember(node, key, taken)
            else:
                drop(node, key)


def index(node: Node, job: Job) -> None:
    """A job that is here again, after a restart or from another node, has its key; of two the one with the smaller id.
    """
    more = job.more
    if more is None or not more.unique or node.broken("unique-lost-on-restart"):
        return
    if more.until == UNTIL_STARTED and job.flags & HANDED_OUT:
        return
    key = key_of_job(job)
    taken = node.taken.get(key)
    if taken is None:
        node.taken[key] = Taken(b"", job)
        node.account(TAKEN_BYTES + 2 * len(key))
    elif taken.job is None or (taken.job.state != WAIT_REPL and node.id_text(job) < node.id_text(taken.job)):
        taken.job = job


def merges(node: Node, job: Job) -> bool:
    """It is about to be queued, here at home: whether it ends, since another with its key waits as well.

    Both were accepted, on two sides of a cut. The one with the smaller id stays: everybody would choose the same.
    One that a consumer has, or had, is left alone.
    """
    more = job.more
    assert more is not None
    taken = node.taken.get(key_of_job(job))
    if taken is None or taken.job is None or taken.job is job or taken.next is job or job.flags & HANDED_OUT:
        return False
    other = taken.job
    if other.state == WAIT_REPL or not is_waiting(other) or other.responsible != ME or node.broken("never-merged"):
        return False
    jid = node.id_text(job)
    theirs = node.id_text(other)
    if theirs < jid:
        end_as_merged(node, job, jid, theirs)
        return True
    end_as_merged(node, other, theirs, jid)
    taken.job = job
    return False


def end_as_merged(node: Node, job: Job, jid: bytes, into: bytes) -> None:
    """Who asks for this job is told of the other from now on."""
    node.count("merged")
    note_merged(node, jid, into)
    for peer in node.peers:
        if peer.bit & job.holders and peer.is_linked:
            peer.out.append(bus.MERGED)
            peer.out.write(jid)
            peer.out.write(into)
    if job.state == QUEUED:
        job.queue.remove(job)
        job.state = ACTIVE
    taken = node.taken.get(key_of_job(job))
    if taken is not None and taken.job is job:
        taken.jid = jid
        taken.job = None  # the other one has the key: it is not given up
    node.end(job, acks.MERGED)


def note_merged(node: Node, jid: bytes, into: bytes) -> None:
    node.merged[jid] = into
    if len(node.merged) > MERGED_MAX:
        del node.merged[next(iter(node.merged))]
    records.merged(node, jid, into)


def on_merged(node: Node, peer: Peer, reader: Reader) -> None:
    jid = reader.job_id()
    into = reader.job_id()
    if jid not in node.merged:
        note_merged(node, jid, into)


def slot_of_key(key: bytes) -> i64:
    """The slot of the home of a key as `key_of` makes it."""
    reader = Reader(key)
    queue = reader.name()
    group = reader.name()
    if group:
        return home.slot_of(home.GROUP, queue, group)
    return home.slot_of(home.UNIQUE, queue, key[reader.pos:])


def write_taken(node: Node, peer: Peer, key: bytes, taken: Taken) -> None:
    """A key whose job is gone, for its new home."""
    if taken.until > node.now:
        peer.out.append(bus.KEYTAKEN)
        peer.out.write(taken.jid)
        bus.write_i64(peer.out, taken.until - node.now)
        bus.write_name(peer.out, key)


def on_taken(node: Node, peer: Peer, reader: Reader) -> None:
    jid = reader.job_id()
    ms = reader.long()
    key = reader.name()
    if ms > WINDOW_MS_MAX or len(key) > KEY_MAX or slot_of_key(key) < 0:
        raise BadFrame("a key that no job can have")
    learn_key(node, key, jid, ms)


def close(node: Node, slots: set[int]) -> None:
    """This node is not the home of these any more. Keys of jobs that are gone stay: the next home may ask for them."""
    for key in list(node.taken):
        taken = node.taken.get(key)
        if taken is not None and taken.job is not None and int(slot_of_key(key)) in slots:
            taken.job = None
            taken.next = None
            drop(node, key)


def forget_all(node: Node) -> None:
    for key in list(node.taken):
        drop(node, key)
    node.windows.ends.clear()
