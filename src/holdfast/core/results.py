"""How jobs ended, for those who wait for it: results that outlive their jobs, and WAITJOB.

An ack may bring a result. It is kept where the ack came in and travels with the ending to every holder (RESULT before
SETACK, so whoever confirms the ending has it), and stays for its own time, `result-ttl`, whatever becomes of the
job's record. Results may take a part of the memory and no more; then the oldest go first, and are counted.

WAITJOB waits at any node. A node that knows the job hears of its end anyway, as a holder; one that does not asks all
others to tell (WATCH), again at each new link, and is told (ENDED). That nobody knows a job is believed when every
member has said so, never because some could not be asked: then the answer is `unknown` when the time is up.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import acks, failure, peers, records, waiting
from holdfast.core.alarms import Chore
from holdfast.core.job import ACK_ONLY, ACKED, SPECIAL, WAIT_REPL, WATCHED, Job
from holdfast.core.job import DEAD as IS_DEAD
from holdfast.core.limits import DURATION_S_MAX, NEVER, RESULT_BYTES, RESULT_BYTES_MAX, RESULTS_PERCENT
from holdfast.core.peers import MY_BIT, Peer
from holdfast.core.reply import write_array, write_bulk, write_null
from holdfast.core.session import FOR_END, Session
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

# How it is with a job.
WAITING: Final = 0
DONE: Final = 1
DEAD: Final = 2
EXPIRED: Final = 3
DELETED: Final = 4
UNKNOWN: Final = 5
LOOK_MS: Final = 1000
"""How long WAITJOB NOHANG waits for other nodes where it must ask them."""

NOT_IN_TIME: Final = b"its time was over before it was done"
"""What is told of a job that is dead since it has expired, and that nobody has said anything about."""

WORDS: Final = [b"waiting", b"done", b"dead", b"expired", b"deleted", b"unknown"]


WAIT_BYTES: Final = 144
"""What a WAITJOB takes for each job it waits for: the id, its place in a table, and who waits for it."""


class Result:
    """How a job ended, and what it came to: None if nobody said."""

    def __init__(self, word: i64, data: bytes | None, until: i64) -> None:
        self.word: i64 = word
        self.data: bytes | None = data
        self.until: i64 = until


class Watch:
    """Who wants to know how one job ends: sessions here, and peers."""

    def __init__(self) -> None:
        self.waits: dict[Wait, None] = {}
        self.peers: i64 = 0
        self.unknown: i64 = 0  # peers that said they do not know the job
        self.is_elsewhere: bool = False  # another node knows the job, and will tell


class Wait(Chore):
    """One WAITJOB."""

    def __init__(self, session: Session, ids: list[bytes], is_any: bool) -> None:
        super().__init__()
        self.session: Session = session
        self.ids: list[bytes] = ids
        self.is_any: bool = is_any
        self.found: dict[bytes, Result] = {}
        self.left: i64 = len(set(ids))

    def cost(self) -> i64:
        return WAIT_BYTES * len(self.ids)

    def run(self, node: Node) -> None:
        finish(node, self)


class Sweep(Chore):
    def run(self, node: Node) -> None:
        forget_old(node)


class Results:
    """What a node knows of ends, and who waits for which."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Result] = {}  # the oldest first
        self.bytes: i64 = 0
        self.most: i64 = 0  # how long one is kept at most, in milliseconds: `result-ttl`
        self.watches: dict[bytes, Watch] = {}
        self.waits: dict[int, Wait] = {}  # by session
        self.sweep: Sweep = Sweep()


# -- results ----------------------------------------------------------------------------------------------


def keep(node: Node, jid: bytes, data: bytes, left: i64) -> None:
    """The job is done and came to this. What was said first stays."""
    table = node.results
    if jid in table.kept:
        return
    left = min(left, table.most)
    table.kept[jid] = Result(DONE, data, node.now + left)
    change_size(node, RESULT_BYTES + len(data))
    records.result(node, jid, DONE, left, data)
    node.count("results")
    node.alarms.at_latest(table.sweep, node.now + left)
    while table.bytes > node.full // 100 * RESULTS_PERCENT:
        drop(node, next(iter(table.kept)))
        node.count("results-given-up")


def apply_settings(node: Node) -> None:
    """A shorter `result-ttl` is for those that are kept, too."""
    table = node.results
    was = table.most
    table.most = node.config.number("result-ttl") * 1000
    if table.most < was:
        for result in table.kept.values():
            result.until = min(result.until, node.now + table.most)
        forget_old(node)


def lengthen(node: Node, ms: i64) -> None:
    """All of them are kept that much longer."""
    for result in node.results.kept.values():
        result.until += ms


def known(node: Node, jid: bytes) -> Result | None:
    """A result whose time is not over."""
    result = node.results.kept.get(jid)
    return None if result is None or result.until <= node.now else result


def change_size(node: Node, change: i64) -> None:
    node.results.bytes += change
    node.account(change)


def drop(node: Node, jid: bytes) -> None:
    data = node.results.kept.pop(jid).data
    change_size(node, -(RESULT_BYTES + (0 if data is None else len(data))))


def forget_one(node: Node, jid: bytes) -> None:
    if jid in node.results.kept:
        drop(node, jid)


def forget_old(node: Node) -> None:
    """Those whose time is over. Each is kept for as long as the others, so the first are the oldest, or nearly so."""
    table = node.results
    for jid in list(table.kept):
        result = table.kept[jid]
        if result.until > node.now:
            node.alarms.at_latest(table.sweep, result.until)
            return
        drop(node, jid)


def tell_result(node: Node, peer: Peer, jid: bytes) -> None:
    """Before a peer is told that the job has ended: what it came to."""
    result = known(node, jid)
    if result is None or result.data is None or node.broken("result-stays-behind"):
        return
    peer.out.append(bus.RESULT)
    peer.out.write(jid)
    bus.write_i64(peer.out, max(0, result.until - node.now))
    bus.write_name(peer.out, result.data)


def on_result(node: Node, peer: Peer, reader: Reader) -> None:
    jid = reader.job_id()
    left = reader.long()
    data = reader.name()
    if left < 0 or left > DURATION_S_MAX * 1000 or len(data) > RESULT_BYTES_MAX:
        raise BadFrame("a result that no job can have")
    keep(node, jid, data, left)


# -- waiting for an end -----------------------------------------------------------------------------------


def begin(node: Node, session: Session, ids: list[bytes], is_any: bool, timeout_ms: i64, waits: bool) -> None:
    """WAITJOB: answer at once if that is possible, else when enough of the jobs have ended or time is up."""
    wait = Wait(session, ids, is_any)
    node.account(wait.cost())
    strange: list[bytes] = []
    for jid in dict.fromkeys(ids):
        word = look(node, jid)
        if word == WAITING or word == UNKNOWN:
            if word == UNKNOWN:
                strange.append(jid)
            watch(node, jid).waits[wait] = None
        else:
            wait.found[jid] = result_of(node, jid, word)
            wait.left -= 1
    node.results.waits[int(session.number)] = wait
    for jid in strange:
        ask(node, jid)
    if is_over(wait) or (not waits and not strange):
        stop(node, session)
        write_reply(node, wait, node.out)
        return
    waiting.block(node, session, FOR_END)
    if not waits:
        node.alarms.set(wait, node.now + LOOK_MS)
    elif timeout_ms > 0:
        node.alarms.set(wait, node.now + timeout_ms)


def look(node: Node, jid: bytes) -> i64:
    """How it is with a job as far as this node can say."""
    job = node.find(jid)
    if job is not None and job.state != ACKED:
        return DEAD if job.state == IS_DEAD else WAITING
    if known(node, jid) is not None or (job is not None and job.flags & ACK_ONLY):
        return DONE
    if job is not None:
        return word_of(why_of(job))
    tomb = node.tombs.get(jid)
    return UNKNOWN if tomb is None else word_of(tomb.why)


def why_of(job: Job) -> i64:
    task = job.task
    return 0 if task is None else task.why


def word_of(why: i64) -> i64:
    """By how an ending is called (acks.py): acknowledged is done, anything else is a deletion."""
    if why == acks.EXPIRED:
        return EXPIRED
    return DONE if why == 0 else DELETED


def result_of(node: Node, jid: bytes, word: i64) -> Result:
    kept = known(node, jid)
    if word == DONE and kept is not None:
        return kept
    job = node.find(jid)
    if word == DEAD and job is not None:
        return Result(word, last_error(job), NEVER)
    return Result(word, None, NEVER)


def last_error(job: Job) -> bytes | None:
    """What is told of a dead job in place of a result."""
    more = job.more
    if more is None:
        return None
    for each in reversed(more.tries):
        if each.error:
            return each.error
    return NOT_IN_TIME if more.cause == failure.EXPIRED else None


def watch(node: Node, jid: bytes) -> Watch:
    """Somebody waits for the end of this job."""
    found = node.results.watches.get(jid)
    if found is None:
        found = Watch()
        node.results.watches[jid] = found
    job = node.find(jid)
    if job is not None:
        job.flags |= WATCHED | SPECIAL
    return found


def arrived(node: Node, job: Job) -> None:
    """A job that somebody here waits for has come to this node: its end is seen here from now on."""
    if node.id_text(job) in node.results.watches:
        job.flags |= WATCHED | SPECIAL


def is_over(wait: Wait) -> bool:
    return wait.left == 0 or (wait.is_any and bool(wait.found))


def settle(node: Node, jid: bytes, result: Result) -> None:
    """The end of the job is known: tell all who wait for it."""
    found = node.results.watches.pop(jid, None)
    if found is None:
        return
    for peer in node.peers:
        if peer.bit & found.peers and peer.is_linked:
            write_ended(node, peer, jid, result)
    for wait in list(found.waits):
        wait.found[jid] = result
        wait.left -= 1
        if is_over(wait) and wait.session.blocked == FOR_END:
            finish(node, wait)


def finish(node: Node, wait: Wait) -> None:
    """The reply: how it is with each job now."""
    session = wait.session
    if not stop(node, session) or session.is_closing:
        return
    out = BytesWriter()
    write_reply(node, wait, out)
    node.answer(session, out.getvalue())


def write_reply(node: Node, wait: Wait, out: BytesWriter) -> None:
    write_array(out, len(wait.ids))
    for jid in wait.ids:
        result = wait.found.get(jid)
        if result is None:
            word = look(node, jid)
            result = result_of(node, jid, wait_word(node, jid) if word == UNKNOWN else word)
        write_array(out, 3)
        write_bulk(out, jid)
        write_bulk(out, WORDS[result.word])
        if result.data is None:
            write_null(out, wait.session)
        else:
            write_bulk(out, result.data)


def wait_word(node: Node, jid: bytes) -> i64:
    """Of a job that is not known here: whether one of those that were asked knows that it waits."""
    found = node.results.watches.get(jid)
    return WAITING if found is not None and found.is_elsewhere else UNKNOWN


def stop(node: Node, session: Session) -> bool:
    """The session waits no longer. False: it did not."""
    wait = node.results.waits.pop(int(session.number), None)
    if wait is None:
        return False
    node.account(-wait.cost())
    wait.wake = NEVER
    for jid in wait.ids:
        found = node.results.watches.get(jid)
        if found is not None:
            found.waits.pop(wait, None)
            if not found.waits and found.peers == 0:
                del node.results.watches[jid]
    return True


def tell_end(node: Node, job: Job, word: i64) -> None:
    """A job that may be watched has ended here, or is dead."""
    if not job.flags & WATCHED:
        return
    stop_watching(job)
    jid = node.id_text(job)
    settle(node, jid, result_of(node, jid, word))


def stop_watching(job: Job) -> None:
    job.flags &= ~WATCHED
    if job.more is None and job.lease is None:
        job.flags &= ~SPECIAL


def lost_sight(node: Node, job: Job) -> None:
    """A watched job leaves this node without having ended: it is elsewhere now."""
    job.flags &= ~WATCHED
    jid = node.id_text(job)
    if jid in node.results.watches:
        ask(node, jid)


# -- other nodes ------------------------------------------------------------------------------------------


def ask(node: Node, jid: bytes) -> None:
    """Have all others tell us how the job ends."""
    for peer in node.peers:
        if peer.is_linked:
            write_watch(peer, jid)
    note_unknown(node, jid, 0)


def write_watch(peer: Peer, jid: bytes) -> None:
    peer.out.append(bus.WATCH)
    peer.out.write(jid)


def on_watch(node: Node, peer: Peer, reader: Reader) -> None:
    jid = reader.job_id()
    word = look(node, jid)
    if word == WAITING:
        job = node.find(jid)
        if job is not None and job.state != WAIT_REPL:
            watch(node, jid).peers |= peer.bit
    write_ended(node, peer, jid, result_of(node, jid, word))


def write_ended(node: Node, peer: Peer, jid: bytes, result: Result) -> None:
    data = result.data
    peer.out.append(bus.ENDED)
    peer.out.write(jid)
    bus.write_i8(peer.out, result.word)
    bus.write_i8(peer.out, 0 if data is None else 1)
    bus.write_name(peer.out, b"" if data is None else data)


def on_ended(node: Node, peer: Peer, reader: Reader) -> None:
    jid = reader.job_id()
    word = reader.u8()
    has_data = reader.u8() != 0
    data = reader.name()
    if word > UNKNOWN or len(data) > RESULT_BYTES_MAX:
        raise BadFrame("an end that no job can have")
    found = node.results.watches.get(jid)
    if found is None:
        return
    if word == UNKNOWN:
        note_unknown(node, jid, peer.bit)
    elif word == WAITING:
        found.unknown &= ~peer.bit
        found.is_elsewhere = True
    elif node.find(jid) is None:
        settle(node, jid, Result(word, data if has_data else None, NEVER))


def note_unknown(node: Node, jid: bytes, bit: i64) -> None:
    """When every member has said that it does not know the job, nobody does."""
    found = node.results.watches.get(jid)
    if found is None:
        return
    found.unknown |= bit
    if peers.everybody(node) & ~found.unknown == MY_BIT and node.find(jid) is None:
        settle(node, jid, Result(UNKNOWN, None, NEVER))


def link_up(node: Node, peer: Peer) -> None:
    for jid, found in node.results.watches.items():
        if found.waits and node.find(jid) is None:
            write_watch(peer, jid)


def link_down(node: Node, peer: Peer) -> None:
    for found in node.results.watches.values():
        found.peers &= ~peer.bit
        found.unknown &= ~peer.bit
