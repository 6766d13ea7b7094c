"""Batches: jobs that belong together, and a job that runs when all of them are over.

Each member has an index (ADDJOB … BATCH name INDEX i). The home of the batch (home.py) has a bit for each index, set
when that job is acknowledged, dies, expires or is deleted: a bit, not a count, since the same end may be told twice.
When somebody has said how many there are (BATCH CLOSE) and all bits are set, the batch is complete, and the job
that CLOSE asked for is added. Its id is part of the batch, so two nodes that both think they are its home make the same
job. It is drawn once for each CLOSE, by the node that was asked, and goes to the home with it: a home that is silent
may carry the command out when another one has done so meanwhile, and then both have the same id.

The three first nodes in the order of the batch's slot keep the bits. An ended member is not collected (acks.py) before
the home and those of the three that can be heard have confirmed its bit; until then it is told again every
second (`Counting`). States of a batch that meet are united: bits by OR.

A home asks all it can reach when it takes over (takeover.py), and whoever was away then may know more: the home before
it, closed in, may have been told CLOSE and nobody else. So a node tells the home what it knows of a batch when it hears
that there is a new one, and whenever a link to it comes up (`tell_homes`, `link_up`).

A batch that is never closed is dropped with a word in the log when nothing has been heard of it for a week.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import acks, errors, home, keyed, records, takeover
from holdfast.core.alarms import Chore
from holdfast.core.commands import options as words
from holdfast.core.errors import BadRequest, CommandError
from holdfast.core.job import ACKED, DEAD, Job
from holdfast.core.limits import BATCH_BYTES, BATCH_IDLE_MS, BATCH_KEPT_MS, BATCH_MAX, BATCHES_MAX, KEY_BYTES_MAX
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.session import Slot
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

KEEPERS: Final = 3
"""Nodes that keep the bits of a batch: as many as keep copies of a job."""

# How a member ended.
WAS_DONE: Final = 0
WAS_DEAD: Final = 1
WAS_EXPIRED: Final = 2
WAS_DELETED: Final = 3  # or flushed, cancelled, replaced, merged
CAUSE_NAMES: Final = [b"done", b"dead", b"expired", b"deleted"]

LOOK_MS: Final = 60_000
AGAIN_MS: Final = 1000
WORDS_MAX: Final = 256
TOLD_MAX: Final = 1000


class Batch:
    def __init__(self, name: bytes, now: i64) -> None:
        self.name: bytes = name
        self.bits: bytearray = bytearray()
        self.set: i64 = 0  # how many
        self.causes: dict[int, int] = {}  # of those that were not done
        self.count: i64 = -1  # how many there are; -1: nobody has said so yet
        self.words: list[bytes] = []  # of the job to add in the end: queue, body, options; empty: none
        self.final: bytes = b""  # its id
        self.adding: Slot | None = None  # of that job, while it waits for its copies or for another node
        self.refusal: bytes = b""  # why the job in the end could not be added when that was last tried
        self.is_complete: bool = False
        self.heard: i64 = now  # when something last changed

    def has(self, index: i64) -> bool:
        byte = index >> 3
        return byte < len(self.bits) and self.bits[byte] >> (index & 7) & 1 != 0

    def note(self, index: i64, cause: i64) -> bool:
        """False if that was known."""
        if self.has(index):
            if cause == WAS_DONE and int(index) in self.causes:
                del self.causes[int(index)]  # it was dead, was sent back, and is done now
                return True
            return False
        byte = index >> 3
        if byte >= len(self.bits):
            self.bits.extend(bytes(int(byte) + 1 - len(self.bits)))
        self.bits[byte] |= 1 << (index & 7)
        self.set += 1
        if cause != WAS_DONE:
            self.causes[int(index)] = int(cause)
        return True

    def is_full(self) -> bool:
        """Whether all that there are have ended. Bits beyond the last are of jobs that should not be."""
        if self.count < 0 or self.set < self.count:
            return False
        whole = self.count >> 3
        if len(self.bits) < (self.count + 7) >> 3 or bytes(self.bits[:whole]) != b"\xff" * int(whole):
            return False
        rest = (1 << (self.count & 7)) - 1
        return rest == 0 or self.bits[whole] & rest == rest

    def last(self) -> i64:
        """The greatest index that has ended; -1: none has."""
        return 8 * len(self.bits) - 9 + self.bits[len(self.bits) - 1].bit_length() if self.bits else -1

    def size(self) -> i64:
        """Bytes of memory, accounted: the bits as many as there can be, so that it does not change."""
        return BATCH_BYTES + 2 * len(self.name)


class Counting:
    """A member that has ended: who has confirmed its bit."""

    def __init__(self, cause: i64) -> None:
        self.cause: i64 = cause
        self.confirmed: i64 = 0


class Batches(Chore):
    """All batches of which this node keeps the bits, and ends it has to tell of."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[bytes, Batch] = {}
        self.counting: dict[Job, Counting] = {}
        self.told: dict[bytes, None] = {}  # those whose homes have heard from us that there are such

    def run(self, node: Node) -> None:
        """Once a minute, while there are any: those of which nothing was heard for long. Sooner if the queue of a last
        job has refused it: then that is tried again."""
        for batch in list(self.by_name.values()):
            idle = node.now - batch.heard
            if batch.is_complete and idle > BATCH_KEPT_MS:
                drop(node, batch)
            elif idle > BATCH_IDLE_MS:
                why = "closed, and not all of its jobs have ended" if batch.count >= 0 else "never closed"
                name = batch.name.decode("utf-8", "backslashreplace")
                node.notice(node.node_id, f"batch {name} is given up after a week without news: {why}")
                node.count("batches-given-up")
                drop(node, batch)
        if self.by_name:
            node.alarms.set(self, node.now + LOOK_MS)
        look_at_all(node)


def joins(node: Node, name: bytes, last: i64) -> None:
    """Jobs are about to be added, up to this index: whether the batch can have them, as far as is known here."""
    if last >= BATCH_MAX:
        raise BadRequest(errors.INDEX_RANGE)
    batch = node.batches.by_name.get(name)
    if batch is None:
        introduce(node, name)
    elif batch.is_complete:
        raise name_is_taken(node, batch)
    elif 0 <= batch.count <= last:
        raise BadRequest(errors.BATCH_INDEX % int(batch.count))


def name_is_taken(node: Node, batch: Batch) -> BadRequest:
    """By one that is complete, and is kept so that it can be asked about."""
    return BadRequest(errors.BATCH_ENDED % (int(batch.count), int((node.now - batch.heard) // 1000)))


def introduce(node: Node, name: bytes) -> None:
    """Whoever asks about a batch hears of it from its first job on. Not a promise: a home that dies may forget it until
    a job has ended."""
    peer = node.peers[home.owner(node, slot_of(name))]
    told = node.batches.told
    if peer.index == ME:
        batch = find_or_make(node, name)
        if batch is not None:
            records.batch(node, batch, False)
    elif peer.is_linked and name not in told:
        if len(told) >= TOLD_MAX:
            told.clear()
        told[name] = None
        write_state(node, peer, Batch(name, node.now))


def slot_of(name: bytes) -> i64:
    return home.slot_of(home.BATCH, b"", name)


def find_or_make(node: Node, name: bytes) -> Batch | None:
    """None if there are too many."""
    batches = node.batches
    batch = batches.by_name.get(name)
    if batch is None:
        if len(batches.by_name) >= BATCHES_MAX:
            node.count("batches-refused")
            return None
        batch = Batch(name, node.now)
        batches.by_name[name] = batch
        node.account(batch.size())
        node.alarms.at_latest(batches, node.now + LOOK_MS)
    return batch


def drop(node: Node, batch: Batch) -> None:
    del node.batches.by_name[batch.name]
    node.account(-batch.size())
    records.batch(node, batch, True)


def forget_all(node: Node) -> None:
    for batch in list(node.batches.by_name.values()):
        drop(node, batch)
    node.batches.counting.clear()


# -- ends of members ----------------------------------------------------------------------------------------------


def cause_of(why: i64) -> i64:
    """What the ending of a job (acks.py) is to its batch."""
    if why == acks.DONE:
        return WAS_DONE
    return WAS_EXPIRED if why == acks.EXPIRED else WAS_DELETED


def must_tell(node: Node, job: Job, why: i64) -> bool:
    """A member is about to be forgotten at once: whether it has to stay, as others are still to be told."""
    more = job.more
    if more is None or not more.batch or job in node.batches.counting:
        return False
    counting = Counting(cause_of(why))
    if count_in(node, job, counting):
        return False
    await_confirmation(node, job, counting)
    return True


def ended(node: Node, job: Job, why: i64) -> None:
    """A member has ended, and stays until that is confirmed."""
    if why != acks.ABORTED and job not in node.batches.counting:
        tell(node, job, Counting(cause_of(why)))


def died(node: Node, job: Job) -> None:
    tell(node, job, Counting(WAS_DEAD))


def tell(node: Node, job: Job, counting: Counting) -> None:
    if not count_in(node, job, counting):
        await_confirmation(node, job, counting)


def await_confirmation(node: Node, job: Job, counting: Counting) -> None:
    node.batches.counting[job] = counting
    if job.state != DEAD:
        job.expire = max(job.expire, node.now + BATCH_IDLE_MS)


def tell_once(node: Node, job: Job, why: i64) -> None:
    """It is forgotten here on somebody's word (FASTACK, DELJOB): said, and not waited for."""
    more = job.more
    if more is not None and more.batch and job not in node.batches.counting:
        count_in(node, job, Counting(cause_of(why)))


def keepers(node: Node, slot: i64) -> list[int]:
    """The home of a slot and the next ones in its order that can be heard, three in all."""
    found = [int(home.owner(node, slot))]
    for index in home.order(node, slot):
        if len(found) >= KEEPERS:
            break
        if index not in found and (index == ME or node.peers[index].is_reachable(node.now)):
            found.append(index)
    return found


def count_in(node: Node, job: Job, counting: Counting) -> bool:
    """Tell those who keep the bits and have not confirmed; True if all have."""
    more = job.more
    assert more is not None
    missing: i64 = 0
    for index in keepers(node, slot_of(more.batch)):
        peer = node.peers[index]
        if index == ME:
            if not counting.confirmed & MY_BIT:
                counting.confirmed |= MY_BIT
                set_bit(node, more.batch, more.index - 1, counting.cause)
        elif not counting.confirmed & peer.bit:
            missing |= peer.bit
            if peer.is_linked:
                write_bit(node, peer, job, counting.cause)
    return missing == 0


def write_bit(node: Node, peer: Peer, job: Job, cause: i64) -> None:
    more = job.more
    assert more is not None
    out = peer.out
    out.append(bus.BATCHBIT)
    out.write(node.id_text(job))
    bus.write_u32(out, more.index - 1)
    bus.write_i8(out, cause)
    bus.write_name(out, more.batch)


def on_bit(node: Node, peer: Peer, reader: Reader) -> None:
    """A member has ended at a peer."""
    jid = reader.job_id()
    index = reader.u32()
    cause = reader.u8()
    name = reader.name()
    if index >= BATCH_MAX or cause >= len(CAUSE_NAMES) or not name or len(name) > KEY_BYTES_MAX:
        raise BadFrame("an end that no member of a batch can have")
    if set_bit(node, name, index, cause):
        node.must_sync = True  # the answer says that it is kept
        peer.out.append(bus.BATCHGOT)
        peer.out.write(jid)


def set_bit(node: Node, name: bytes, index: i64, cause: i64) -> bool:
    """False: there are too many batches, and it cannot be kept now."""
    batch = find_or_make(node, name)
    if batch is None:
        return False
    if batch.note(index, cause) or node.broken("batch-counts-twice"):
        if node.broken("batch-counts-twice"):
            batch.set += 1
        batch.heard = node.now
        records.batch_bit(node, name, index, cause)
        look(node, batch)
    return True


def on_got(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer has kept a bit."""
    job = node.find(reader.job_id())
    counting = None if job is None else node.batches.counting.get(job)
    if job is None or counting is None:
        return
    counting.confirmed |= peer.bit
    more = job.more
    assert more is not None
    for index in keepers(node, slot_of(more.batch)):
        if not counting.confirmed & node.peers[index].bit:
            return
    forget(node, job)
    if job.state == ACKED:
        acks.collect_or_tell(node, job)


def forget(node: Node, job: Job) -> None:
    node.batches.counting.pop(job, None)


def holds_up(node: Node, job: Job) -> bool:
    """Whether an ended job must not be collected yet."""
    return job in node.batches.counting and not node.broken("batch-bit-not-awaited")


def beat(node: Node) -> None:
    """Once a second: tell again what was not confirmed, and see to what a change of home has left undone."""
    for job, counting in list(node.batches.counting.items()):
        if not node.is_here(job):
            forget(node, job)
        elif count_in(node, job, counting):
            forget(node, job)
            if job.state == ACKED:
                acks.collect_or_tell(node, job)
    look_at_all(node)


def look_at_all(node: Node) -> None:
    for batch in list(node.batches.by_name.values()):
        if batch.count >= 0 and not batch.is_complete:
            look(node, batch)


def recount(node: Node) -> None:
    """After a restart: dead members may have died just before it."""
    for job in node.dead:
        more = job.more
        if more is not None and more.batch and job.state == DEAD:
            died(node, job)


# -- closing ------------------------------------------------------------------------------------------------------


def draw(node: Node, final: list[bytes]) -> bytes:
    """The id of the job that is to be added in the end."""
    node.seq += 1
    out = BytesWriter()
    keyed.write_new_id(out, node.own.prefix, node.seq, node.random.next(), read_options(final))
    return out.getvalue()


def close(node: Node, name: bytes, count: i64, final: list[bytes], jid: bytes) -> Batch | None:
    """Somebody says how many there are, and what is to be done in the end, under which id if that was drawn.

    None: there are too many batches.
    """
    batch = find_or_make(node, name)
    if batch is None:
        return None
    batch.count = count
    batch.words = final
    batch.heard = node.now
    if final:
        batch.final = jid if jid and not node.broken("batch-id-by-home") else draw(node, final)
    keep(node, batch)
    look(node, batch)
    return batch


def read_options(final: list[bytes]) -> words.AddOptions:
    options = words.AddOptions()
    options.read(final, 2)
    return options


def keep(node: Node, batch: Batch) -> None:
    """In the journal, and at the others who keep the bits."""
    records.batch(node, batch, False)
    node.must_sync = True
    for index in keepers(node, slot_of(batch.name)):
        peer = node.peers[index]
        if index != ME and peer.is_linked:
            write_state(node, peer, batch)


def look(node: Node, batch: Batch) -> None:
    """If all of its jobs have ended, and this node is its home, it is complete."""
    is_full = batch.is_full() or (node.broken("batch-counts-twice") and 0 <= batch.count <= batch.set)
    if batch.is_complete or not is_full or not home.is_open(node, slot_of(batch.name)):
        return
    if batch.words and not add_final(node, batch):
        if batch.refusal:
            node.count("batch-ends-put-off")
        node.alarms.at_latest(node.batches, node.now + AGAIN_MS)
        return
    batch.is_complete = True
    batch.heard = node.now
    node.count("batches-complete")
    keep(node, batch)


def add_final(node: Node, batch: Batch) -> bool:
    """The job that was to be added in the end. True if it is there, or was; else this is called again."""
    if batch.adding is not None:
        return is_added(batch, batch.adding)
    if node.find(batch.final) is not None or batch.final in node.tombs:
        return True
    options = read_options(batch.words)
    more = options.asked()
    more.headers = [*more.headers, b"batch", batch.name, b"batch-failed", b"%d" % len(batch.causes)]
    add = keyed.with_id(node, batch.words[0], batch.words[1], options, batch.final)
    slot = Slot()
    add.slot = slot
    try:
        options.settle_words(node)
        keyed.add_anywhere(node, add)
    except CommandError as error:
        batch.refusal = error.text
        return False
    batch.adding = slot
    return is_added(batch, slot) or node.broken("batch-end-not-awaited")


def is_added(batch: Batch, slot: Slot) -> bool:
    """Whether the job that was asked for is accepted. The home of its group may be elsewhere, and refuse it."""
    reply = slot.reply
    if reply is None:
        return False
    batch.adding = None
    batch.refusal = reply[1:-2] if reply.startswith(b"-") else b""
    if reply == b"-%b\r\n" % (errors.ADD_ENDED % batch.final):
        batch.refusal = b""
    elif reply.startswith(b"-UNKNOWN") and read_options(batch.words).retry == 0:
        batch.refusal = b""  # it may have been made and handed out: at most once
    return not batch.refusal


# -- states that meet ---------------------------------------------------------------------------------------------


def state(batch: Batch, now: i64) -> bytes:
    out = BytesWriter()
    bus.write_name(out, batch.name)
    bus.write_i64(out, batch.count)
    bus.write_i8(out, 1 if batch.is_complete else 0)
    bus.write_i64(out, max(0, now - batch.heard))
    bus.write_name(out, batch.final)
    bus.write_u16(out, len(batch.words))
    for word in batch.words:
        bus.write_name(out, word)
    bus.write_name(out, bytes(batch.bits))
    bus.write_u32(out, len(batch.causes))
    for index, cause in batch.causes.items():
        bus.write_u32(out, index)
        bus.write_i8(out, cause)
    return out.getvalue()


def unite(node: Node, data: bytes, passed: i64) -> Batch | None:
    """What another node, or an earlier life of this one, knows of a batch. Raises BadFrame."""
    reader = Reader(data)
    name = reader.name()
    count = reader.long()
    is_complete = reader.u8() != 0
    idle = reader.long()
    final = reader.name()
    said = [reader.name() for _ in range(reader.u16())]
    bits = reader.name()
    causes: dict[int, int] = {}
    for _ in range(reader.u32()):
        index = int(reader.u32())
        causes[index] = int(reader.u8())
    if (
        not name or len(name) > KEY_BYTES_MAX or count < -1 or count > BATCH_MAX or idle < 0 or len(said) > WORDS_MAX
        or len(bits) > BATCH_MAX // 8 + 1 or (len(final) != bus.ID and final) or (len(said) < 2 and said)
        or any([cause >= len(CAUSE_NAMES) for cause in causes.values()])
    ):
        raise BadFrame("a batch that there cannot be")
    check_words(said)
    batch = find_or_make(node, name)
    if batch is None:
        return None
    if count >= 0 and (batch.count < 0 or final < batch.final):
        batch.count, batch.words, batch.final = count, said, final
    for i in range(len(bits)):
        byte = bits[i]
        for bit in range(8):
            if byte >> bit & 1:
                index = 8 * i + bit
                batch.note(index, causes.get(index, WAS_DONE))
    batch.is_complete = batch.is_complete or is_complete
    batch.heard = max(batch.heard if batch.set else 0, node.now - idle - passed)
    return batch


def check_words(said: list[bytes]) -> None:
    if said:
        try:
            read_options(said)
        except CommandError:
            raise BadFrame("options that no job can have") from None


def write_state(node: Node, peer: Peer, batch: Batch) -> None:
    peer.out.append(bus.BATCHSTATE)
    bus.write_name(peer.out, state(batch, node.now))


def on_state(node: Node, peer: Peer, reader: Reader) -> None:
    data = reader.name()
    batch = unite(node, data, peer.late)
    if batch is not None:
        records.batch(node, batch, False)
        look(node, batch)
        if batch.is_complete and not says_complete(data):
            write_state(node, peer, batch)  # it has missed that, and must not bring it up again when it is forgotten


def says_complete(data: bytes) -> bool:
    reader = Reader(data)
    reader.name()
    reader.long()
    return reader.u8() != 0


def give_all(node: Node, peer: Peer, slots: set[int]) -> None:
    """To a new home."""
    for batch in node.batches.by_name.values():
        if int(slot_of(batch.name)) in slots:
            write_state(node, peer, batch)


def tell_homes(node: Node, slots: set[int]) -> None:
    """Slots have another home, which may not have been able to ask us."""
    for batch in node.batches.by_name.values():
        slot = slot_of(batch.name)
        if int(slot) in slots:
            tell_home(node, node.peers[home.owner(node, slot)], batch)


def link_up(node: Node, peer: Peer) -> None:
    for batch in node.batches.by_name.values():
        if home.owner(node, slot_of(batch.name)) == peer.index:
            tell_home(node, peer, batch)


def tell_home(node: Node, peer: Peer, batch: Batch) -> None:
    """Not what is old: a home that has made the last job knows of that for BATCH_KEPT_MS, and would make it again."""
    is_fresh = node.now - batch.heard < BATCH_KEPT_MS
    if is_fresh and peer.index != ME and peer.is_linked and not node.broken("batch-home-untold"):
        write_state(node, peer, batch)


def want(node: Node, name: bytes) -> bool:
    """Whether this node is the home of a batch; if nobody is, it is being seen to."""
    slot = slot_of(name)
    if home.is_open(node, slot):
        return True
    if home.owner(node, slot) == ME:
        takeover.want(node, slot)
    return False
