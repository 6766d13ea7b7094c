"""Commands that another node has to carry out: ADDJOBs of jobs whose home is elsewhere, and words about what it has.

An ADDJOB goes to the home of its key with the id already drawn (ADD); the home does all of it and answers with the
reply (ADDED). The session waits in a slot like any that waits for copies. Who is asked and is not the home passes
it on, so a producer whose node does not see the home is served through another; or says NOTHOME, and it is asked
again a little later, since a home may be on its way from one node to another.

If the link breaks after an ADD was sent, nobody here can say what became of it. The same node is asked again with the
same id when it is back: it knows. Another home is not asked: were the first one alive, it could yet abort the job,
and with it one of the same id that the second had accepted. When the producer's patience ends first, it is told
UNKNOWN, with the id: it may look, or add again with the same unique key.

A node that was killed meanwhile knows nothing of a job it had not accepted yet, and makes it anew; but copies from the
first time may be with others. So an ADD says that it is repeated, wherever it goes from then on: who makes the job does
not trust its own set of holders, and the ending is told to every member (acks.py). If it is refused, that is UNKNOWN to
its producer. An at-most-once job is not made a second time at all.

An ADD that arrives when that patience is over is not carried out, however long it was on its way: its producer has been
told by then, and may have gone on. Done late, an old ONDUP replace would end the job that was added since.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import acks, errors, home, keyed, replicate, takeover, waiting
from holdfast.core.alarms import Chore
from holdfast.core.commands import options as words
from holdfast.core.copies import read_more
from holdfast.core.errors import CommandError
from holdfast.core.ids import can_be_seq
from holdfast.core.job import ACKED, ACTIVE, QUEUED_BEFORE, WAIT_REPL, Job
from holdfast.core.limits import ADD_MANY_MAX, DURATION_S_MAX, NEVER, PRIORITY_MAX, QUEUE_NAME_BYTES_MAX, REPLICATE_MAX
from holdfast.core.peers import ME, MY_BIT, Peer, count_bits, linked
from holdfast.core.session import FOR_PEERS, Session, Slot
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.keyed import Add
    from holdfast.core.node import Node

AGAIN_MS: Final = 50
"""How often an ADDJOB looks for its home while there is none."""

GRACE_MS: Final = 200
"""How much longer than the producer's patience an answer is waited for: the home's own refusal may be on its way."""

HOPS_MAX: Final = 2
RUN_MS: Final = 5000
"""How long a command that another node carries out may take."""

RUN_WORDS_MAX: Final = 256
RUNNABLE: Final = (b"WORKING", b"BATCH")
"""None of these waits for anything. What is said under a token finds its own way (tokens.py)."""

TOKEN: Final = b"TOKEN"
TRY_AGAIN: Final = b"-TRYAGAIN"

# Flags of ADD.
IS_MANY: Final = 1
IS_ASYNC: Final = 2
SAYS: Final = 4
IS_SHARED: Final = 8
IS_REPEATED: Final = 16
SAYS_COPIES: Final = 32


class FarSlot(Slot):
    """The place of a reply that goes to another node."""

    def __init__(self, peer: i64, number: i64) -> None:
        super().__init__()
        self.peer: i64 = peer
        self.number: i64 = number


class Running:
    """A command that the home of a slot carries out."""

    def __init__(self, session: Session, slot: i64, argv: list[bytes], until: i64) -> None:
        self.session: Session = session
        self.slot: i64 = slot
        self.argv: list[bytes] = argv
        self.peer: i64 = keyed.NO_TARGET  # whom it was sent to
        self.was_sent: bool = False  # to anybody, ever
        self.until: i64 = until


class Forwards(Chore):
    """What waits for another node."""

    def __init__(self, first: i64) -> None:
        super().__init__()
        self.adds: dict[int, Add] = {}
        self.runs: dict[int, Running] = {}
        self.count: i64 = first

    def run(self, node: Node) -> None:
        look(node)


# -- asking -------------------------------------------------------------------------------------------------------


def send(node: Node, add: Add) -> None:
    """Its home is elsewhere, or nowhere yet."""
    keyed.wait(node, add)
    forwards = node.forwards
    forwards.count += 1
    add.number = forwards.count
    forwards.adds[int(add.number)] = add
    route(node, add)
    node.alarms.at_latest(forwards, node.now + AGAIN_MS)


def later(node: Node, add: Add) -> None:
    """It is for this node to do, but somebody else has to be heard first: it is tried again in a moment."""
    keyed.wait(node, add)
    forwards = node.forwards
    if add.number == 0:
        forwards.count += 1
        add.number = forwards.count
    forwards.adds[int(add.number)] = add
    node.alarms.at_latest(forwards, node.now + AGAIN_MS)


def route(node: Node, add: Add) -> None:
    """Ask the home, or somebody who may see it."""
    slot = keyed.slot_of(add)
    if add.target != keyed.NO_TARGET:
        return  # it was asked; when it is back it is asked again
    if home.is_open(node, slot):
        del node.forwards.adds[int(add.number)]
        if node.broken("old-home-denies") or not is_known(node, add):  # whom we asked may have begun and forgotten it
            keyed.perform(node, add)
        return
    owner = home.owner(node, slot)
    if owner == ME:
        takeover.want(node, slot)
        return
    if node.peers[owner].is_linked:
        ask(node, add, node.peers[owner])
    elif add.hops == 0:
        for index in home.order(node, slot):
            peer = node.peers[index]
            if index != ME and peer.is_reachable(node.now):
                ask(node, add, peer)
                return


def ask(node: Node, add: Add, peer: Peer) -> None:
    add.target = peer.index
    write_add(node, peer, add)
    node.count("adds-passed-on")


def look(node: Node) -> None:
    """What still waits: for a home, for an answer, or for nothing any more."""
    forwards = node.forwards
    for add in list(forwards.adds.values()):
        if int(add.number) not in forwards.adds:
            continue
        session = add.session
        if session is not None and session.is_closing:
            del forwards.adds[int(add.number)]
        elif add.until != 0 and node.now >= add.until + GRACE_MS:
            give_up(node, add)
        else:
            route(node, add)
    for number, running in list(forwards.runs.items()):
        if running.session.is_closing:
            del forwards.runs[number]
        elif node.now >= running.until:
            del forwards.runs[number]
            tell(node, running, b"-%b\r\n" % (errors.NO_ANSWER if running.was_sent else errors.NOT_HOME))
        elif running.peer == keyed.NO_TARGET:
            route_run(node, number, running)
    if forwards.adds or forwards.runs:
        node.alarms.set(forwards, node.now + AGAIN_MS)


def give_up(node: Node, add: Add) -> None:
    del node.forwards.adds[int(add.number)]
    if add.target == keyed.NO_TARGET:
        keyed.refuse(node, add, errors.NO_HOME)
    else:
        node.count("adds-unknown")
        jid = keyed.id_text(add, 0)
        keyed.refuse(node, add, errors.ADD_UNKNOWN % jid)


def link_down(node: Node, peer: Peer) -> None:
    """What it was asked to do it may have done or not; doing it again is no harm for what is asked like that."""
    for running in node.forwards.runs.values():
        if running.peer == peer.index:
            running.peer = keyed.NO_TARGET


def link_up(node: Node, peer: Peer) -> None:
    """Ask again: under the same numbers, and with the same ids."""
    for add in node.forwards.adds.values():
        if add.target == peer.index:
            add.is_repeated = True
            write_add(node, peer, add)


def write_add(node: Node, peer: Peer, add: Add) -> None:
    options = add.options
    more = options.more
    assert more is not None
    out = peer.out
    out.append(bus.ADD)
    bus.write_i64(out, add.number)
    bus.write_i8(out, add.hops)
    bus.write_i8(out, (
        (IS_MANY if add.is_many else 0) | (IS_ASYNC if options.is_async else 0) | (SAYS if options.says else 0)
        | (IS_SHARED if add.is_shared else 0) | (IS_REPEATED if add.is_repeated else 0)
        | (SAYS_COPIES if options.says_copies else 0)
    ))
    bus.write_i64(out, node.now - add.asked)
    bus.write_i64(out, 0 if add.until == 0 else max(1, add.until - node.now))
    bus.write_u32(out, options.ttl)
    bus.write_u32(out, options.retry)
    bus.write_u32(out, options.delay)
    bus.write_i64(out, add.replicate)
    bus.write_i64(out, add.sync)
    bus.write_i64(out, options.maxlen)
    bus.write_i8(out, options.priority)
    bus.write_i8(out, options.ondup + 1)
    bus.write_name(out, more.to_bytes())
    bus.write_name(out, add.queue)
    bus.write_name(out, add.prefix)
    bus.write_u32(out, len(add.bodies))
    for i in range(len(add.bodies)):
        bus.write_i64(out, add.seqs[i])
        bus.write_i64(out, add.rnds[i])
        bus.write_name(out, add.bodies[i])


# -- being asked --------------------------------------------------------------------------------------------------


def read_add(node: Node, peer: Peer, reader: Reader) -> Add:
    number = reader.long()
    hops = reader.u8()
    flags = reader.u8()
    age = reader.long() + peer.late
    left = reader.long()
    options = words.AddOptions()
    options.ttl = reader.u32()
    options.retry = reader.u32()
    options.delay = reader.u32()
    options.replicate = reader.long()
    options.sync = reader.long()
    options.maxlen = reader.long()
    options.priority = reader.u8()
    options.ondup = reader.u8() - 1
    options.is_async = flags & IS_ASYNC != 0
    options.says = flags & SAYS != 0
    options.says_copies = flags & SAYS_COPIES != 0
    options.more = read_more(reader.name())
    queue = reader.name()
    prefix = reader.name()
    count = reader.u32()
    if (
        age < 0 or left < 0 or options.ttl > DURATION_S_MAX or options.retry > DURATION_S_MAX
        or options.delay > DURATION_S_MAX or not -1 <= options.replicate <= REPLICATE_MAX or options.sync < 0
        or options.maxlen < 0 or options.priority > PRIORITY_MAX or options.ondup > 2 or count < 1
        or count > ADD_MANY_MAX or len(queue) > QUEUE_NAME_BYTES_MAX or not keyed.is_keyed(options)
        or len(prefix) != 10 or not prefix.startswith(b"DI") or not bus.is_hex(prefix, 2, 10)
    ):
        raise BadFrame("an ADDJOB that nobody can have asked for")
    until: i64 = 0 if left == 0 else max(1, node.now + left - peer.late)
    add = keyed.Add(None, queue, [], flags & IS_MANY != 0, options, node.now - age, until)
    add.slot = FarSlot(peer.index, number)
    add.hops = hops + 1
    add.is_shared = flags & IS_SHARED != 0
    add.is_repeated = flags & IS_REPEATED != 0
    add.prefix = prefix
    for _ in range(count):
        seq = reader.long()
        is_bad = not can_be_seq(prefix, seq) or (seq >= NEVER and node.broken("hash-is-no-number"))
        if is_bad or (prefix == node.own.prefix and seq > node.seq):
            raise BadFrame("an id that was never drawn")
        add.seqs.append(int(seq))
        add.rnds.append(int(reader.long()))
        add.bodies.append(reader.name())
    return add


def on_add(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer asks us, the home of a key, to add a job."""
    add = read_add(node, peer, reader)
    slot = keyed.slot_of(add)
    if node.refusal:
        keyed.refuse(node, add, node.refusal)  # the journal cannot be written
        return
    is_home = home.is_open(node, slot)
    if (is_home or not node.broken("old-home-denies")) and is_known(node, add):
        return  # also if we are not the home any more: who else could say what became of it?
    if is_home:
        if not is_drawn_twice(node, add):
            keyed.perform(node, add)
        return
    owner = home.owner(node, slot)
    if add.hops <= HOPS_MAX and owner != ME and owner != peer.index and node.peers[owner].is_linked:
        send(node, add)
        return
    if owner == ME:
        takeover.want(node, slot)
    far = add.slot
    assert isinstance(far, FarSlot)
    peer.out.append(bus.NOTHOME)
    bus.write_i64(peer.out, far.number)


def is_too_late(node: Node, add: Add) -> bool:
    """Whether the producer, at another node, waits no longer: whatever is done now, nobody expects it any more."""
    is_far = isinstance(add.slot, FarSlot)
    return is_far and add.until != 0 and node.now >= add.until and not node.broken("late-add-done")


def is_drawn_twice(node: Node, add: Add) -> bool:
    """No honest node makes two jobs of one number."""
    origin = node.origin(add.prefix)
    return any([origin.get(seq) is not None for seq in add.seqs])


def is_known(node: Node, add: Add) -> bool:
    """Whether it was asked for before, over a link that broke: then the answer is what became of it."""
    jid = keyed.id_text(add, 0)
    job = node.find(jid)
    if job is None:
        if jid not in node.tombs:
            return False
        keyed.refuse(node, add, errors.ADD_ENDED % jid)
        return True
    task = job.task
    if job.state == WAIT_REPL and isinstance(task, replicate.Adding):
        assert add.slot is not None
        add.slot.jobs = task.slot.jobs
        add.slot.says = task.slot.says
        add.slot.says_copies = task.slot.says_copies
        task.slot = add.slot
        task.session = add.session
        return True
    if is_only_a_copy(job) and not node.broken("copy-vouches"):
        if not home.is_open(node, keyed.slot_of(add)):
            return False  # who makes it is elsewhere
        keyed.refuse(node, add, errors.ADD_UNKNOWN % jid)
        return True
    answer_known(node, add, jid, job)
    return True


def is_only_a_copy(job: Job) -> bool:
    """Whether nobody has said yet that it is accepted: who makes it may give it up, and end it with all its copies."""
    is_alive = job.state == ACTIVE or job.state == WAIT_REPL
    return is_alive and job.responsible != ME and not job.flags & QUEUED_BEFORE


def answer_known(node: Node, add: Add, jid: bytes, job: Job) -> None:
    """It is accepted if this node has accepted it, or if enough others have a copy."""
    have = count_bits(job.holders & (linked(node) | MY_BIT))
    is_aborted = job.state == ACKED and isinstance(job.task, acks.Ending) and job.task.why == acks.ABORTED
    if is_aborted or (job.state != ACKED and have < max(1, add.replicate)):
        keyed.refuse(node, add, errors.ADD_UNKNOWN % jid)
    elif add.is_many:
        keyed.answer_many(node, add, max(1, add.replicate))
    else:
        keyed.answer(node, add, jid, b"added", max(1, add.replicate))


def fill(node: Node, slot: Slot, reply: bytes) -> None:
    """A reply is there for a slot that belongs to no session: it goes to the node that asked."""
    if isinstance(slot, FarSlot):
        peer = node.peers[slot.peer]
        if peer.is_linked:
            peer.out.append(bus.ADDED)
            bus.write_i64(peer.out, slot.number)
            bus.write_name(peer.out, reply)


def on_added(node: Node, peer: Peer, reader: Reader) -> None:
    number = int(reader.long())
    reply = reader.name()
    add = node.forwards.adds.get(number)
    if add is None or add.target != peer.index:
        return
    del node.forwards.adds[number]
    session = add.session
    if session is None or not session.is_closing:
        keyed.reply(node, add, reply)


def on_nothome(node: Node, peer: Peer, reader: Reader) -> None:
    """It was not the home, and did nothing: look for it again."""
    add = node.forwards.adds.get(int(reader.long()))
    if add is not None and add.target == peer.index:
        add.target = keyed.NO_TARGET


# -- other commands -----------------------------------------------------------------------------------------------


def run_at_home(node: Node, session: Session, slot: i64, argv: list[bytes]) -> None:
    """Have the home of a slot carry out a command; its reply is the session's."""
    forwards = node.forwards
    forwards.count += 1
    running = Running(session, slot, argv, node.now + RUN_MS)
    forwards.runs[int(forwards.count)] = running
    waiting.block(node, session, FOR_PEERS)
    route_run(node, int(forwards.count), running)
    node.alarms.at_latest(forwards, node.now + AGAIN_MS)


def route_run(node: Node, number: int, running: Running) -> None:
    owner = home.owner(node, running.slot)
    if owner == ME:
        takeover.want(node, running.slot)
        if home.is_open(node, running.slot):
            del node.forwards.runs[number]
            tell(node, running, carry_out(node, running.argv))
    elif node.peers[owner].is_linked:
        running.peer = owner
        running.was_sent = True
        write_run(node.peers[owner], number, running.argv)


def pass_on(node: Node, peer: Peer, argv: list[bytes]) -> None:
    """Have a peer carry out a command; what comes of it nobody here waits for."""
    node.forwards.count += 1
    write_run(peer, node.forwards.count, argv)


def write_run(peer: Peer, number: i64, argv: list[bytes]) -> None:
    out = peer.out
    out.append(bus.RUN)
    bus.write_i64(out, number)
    bus.write_u16(out, len(argv))
    for word in argv:
        bus.write_name(out, word)


def carry_out(node: Node, argv: list[bytes]) -> bytes:
    """The reply to a command that waits for nothing."""
    out = node.out
    node.out = BytesWriter()
    try:
        node.entries[argv[0].upper()].command.run(node, Session(0, "", node.now, True), argv)
        return node.out.getvalue()
    except CommandError as error:
        return b"-%b\r\n" % error.text
    finally:
        node.out = out


def on_run(node: Node, peer: Peer, reader: Reader) -> None:
    number = reader.long()
    argv = [reader.name() for _ in range(reader.u16())]
    entry = node.entries.get(argv[0].upper()) if argv else None
    if entry is None or entry.command.name not in RUNNABLE or len(argv) > RUN_WORDS_MAX or TOKEN in argv:
        raise BadFrame("a command that is not for others to carry out")
    if len(argv) < -entry.command.arity or (entry.command.arity > 0 and len(argv) != entry.command.arity):
        raise BadFrame("a command with too few words")
    reply = carry_out(node, argv)
    peer.out.append(bus.RAN)
    bus.write_i64(peer.out, number)
    bus.write_name(peer.out, reply)


def on_ran(node: Node, peer: Peer, reader: Reader) -> None:
    number = int(reader.long())
    reply = reader.name()
    running = node.forwards.runs.get(number)
    if running is None or running.peer != peer.index:
        return
    if reply.startswith(TRY_AGAIN):
        running.peer = keyed.NO_TARGET
        return
    del node.forwards.runs[number]
    tell(node, running, reply)


def tell(node: Node, running: Running, reply: bytes) -> None:
    if not running.session.is_closing:
        node.answer(running.session, reply)
