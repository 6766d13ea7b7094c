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
from mypy_extensions import i64

from holdfast.core import acks, keyed, records
from holdfast.core.alarms import Chore
from holdfast.core.commands.options import EXISTING, REJECT, REPLACE
from holdfast.core.job import ACKED, ACTIVE, GONE, HANDED_OUT, QUEUED, WAIT_REPL, Job
from holdfast.core.limits import TAKEN_BYTES
from holdfast.core.more import UNTIL_STARTED, More
from holdfast.wire import bus

if TYPE_CHECKING:
    from holdfast.core.keyed import Add
    from holdfast.core.node import Node

ADDED: Final = b"added"
HAD: Final = b"existing"
REPLACED: Final = b"replaced"


class Taken:
    """A key, and who has it."""

    def __init__(self, jid: bytes, job: Job | None) -> None:
        self.jid: bytes = jid
        self.job: Job | None = job  # None: ended, but its window is still open
        self.next: Job | None = None  # is to take its place, once it has its copies
        self.until: i64 = 0  # end of the window, where the job has ended
        self.parked: list[Add] = []  # wait for the fate of a job that is being added


class Windows(Chore):
    """Once a second, while there are any: windows that are over."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[int, list[bytes]] = {}  # keys, by the second in which their window ends
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
                if taken is not None and taken.job is None and taken.until <= node.now:
                    drop(node, key)
        if self.ends:
            node.alarms.set(self, (min(self.ends) + 1) * 1000)


def key_of(queue: bytes, more: More) -> bytes:
    """A key is unique in its queue, and in its group where the job has one: then it has the home of the group."""
    out = BytesWriter()
    bus.write_name(out, queue)
    bus.write_name(out, more.group)
    out.write(more.unique)
    return out.getvalue()


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
        taken.parked.append(add)
        return True
    ondup = add.options.ondup
    if ondup == REJECT:
        keyed.refuse(node, add, b"DUPLICATE %b has this key already" % taken.jid)
        return True
    if ondup == REPLACE and job is not None and is_waiting(job):
        return False
    assert ondup <= EXISTING or job is None or not is_waiting(job)
    keyed.answer(node, add, taken.jid, HAD)
    return True


def is_undecided(node: Node, job: Job) -> bool:
    """Whether nobody can say yet if the job is one."""
    return job.state == WAIT_REPL and not node.broken("unique-unaccepted-answered")


def is_waiting(job: Job) -> bool:
    """Nobody works on it: another may take its place."""
    return job.state == QUEUED or (job.state == ACTIVE and not job.flags & HANDED_OUT)


def take(node: Node, job: Job) -> bytes:
    """A job with a key is made; what the producer is told became of the key."""
    key = key_of_job(job)
    taken = node.taken.get(key)
    if taken is None:
        node.taken[key] = Taken(node.id_text(job), job)
        node.account(TAKEN_BYTES + 2 * len(key))
        return ADDED
    if taken.job is None:
        taken.job = job
        taken.jid = node.id_text(job)
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
        taken.jid = node.id_text(job)
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
    taken = node.taken.get(key_of_job(job))
    if taken is None:
        return
    if taken.next is job:
        taken.next = None
        unpark(node, taken)
    elif taken.job is job and taken.next is not None:
        taken.job = taken.next  # what it should have replaced is gone by itself
        taken.jid = node.id_text(taken.next)
        taken.next = None
    elif why == acks.ABORTED or why == acks.FLUSHED:
        if taken.job is job:
            drop(node, key_of_job(job))
    else:
        give_up_key(node, job)


def give_up_key(node: Node, job: Job) -> None:
    key = key_of_job(job)
    taken = node.taken.get(key)
    if taken is None or taken.job is not job:
        return
    more = job.more
    assert more is not None
    until: i64 = job.ctime // 1_000_000 + more.window * 1000
    if more.window == 0 or until <= node.now or node.broken("window-ends-with-job"):
        drop(node, key)
        return
    taken.job = None
    taken.until = until
    remember(node, key, taken)
    unpark(node, taken)


def remember(node: Node, key: bytes, taken: Taken) -> None:
    """A key whose job is gone: see that it goes when its window is over."""
    windows = node.windows
    second = int(taken.until // 1000)
    windows.ends.setdefault(second, []).append(key)
    node.alarms.at_latest(windows, (second + 1) * 1000)
    records.taken_key(node, key, taken.jid, taken.until - node.now)


def drop(node: Node, key: bytes) -> None:
    taken = node.taken.pop(key)
    node.account(-(TAKEN_BYTES + 2 * len(key)))
    unpark(node, taken)


def unpark(node: Node, taken: Taken) -> None:
    """Those who waited for the fate of a job: as if they came only now, in the order in which they came."""
    if taken.parked and (taken.job is None or taken.job.state != WAIT_REPL) and taken.next is None:
        parked = taken.parked
        taken.parked = []
        for add in parked:
            keyed.perform(node, add)


def load_key(node: Node, key: bytes, jid: bytes, ms: i64) -> None:
    """A key whose job was gone already, from the journal or from another node."""
    if ms <= 0 or key in node.taken:
        return
    taken = Taken(jid, None)
    taken.until = node.now + ms
    node.taken[key] = taken
    node.account(TAKEN_BYTES + 2 * len(key))
    remember(node, key, taken)


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
        node.taken[key] = Taken(node.id_text(job), job)
        node.account(TAKEN_BYTES + 2 * len(key))
    elif taken.job is None or (taken.job.state != WAIT_REPL and node.id_text(job) < taken.jid):
        taken.job = job
        taken.jid = node.id_text(job)


def forget_all(node: Node) -> None:
    for key in list(node.taken):
        drop(node, key)
    node.windows.ends.clear()
