"""Jobs on a schedule: `CRON SET nightly "0 3 * * *" reports body TZ Europe/Berlin`.

An entry is a register (registers.py), the same at all nodes, and its stamp is its version. One node makes its jobs,
the home of its name (home.py); the others only watch the time. That there is one owner at a time is true in calm times
and not relied upon: the id of a job is a hash of the entry, its version and the instant for which it was scheduled, so
two owners make the same job, and one that was done already is known by its tombstone. For the same reason an entry
with RETRY 0 is refused: one id at two nodes would be handed out twice.

Up to which instant an entry has run is told to all nodes (CRONRAN); the latest counts. It goes along with the entry to
whoever has not heard of it, and with its slot to a new owner: one that lost its disk would run everything once more.
Schedules are of instants of the wall clock (schedule.py), never "so long after the last run", so nothing drifts. A
clock that is wrong is outvoted (doubt.py). It may be set: at least once a minute it is looked at again.

An instant that nobody saw to in time, since all nodes were down or the queue was full, is missed: `skip` leaves it out,
`one` runs the latest of them, `all` each, up to a hundred. What is a minute late or less is not missed.
"""
from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import home, keyed, records, registers, replicate, requeue, takeover, twins
from holdfast.core.alarms import Chore
from holdfast.core.commands.options import AddOptions
from holdfast.core.doubt import own_wall
from holdfast.core.errors import BadRequest, CommandError
from holdfast.core.ids import CRON_PREFIX
from holdfast.core.job import ACTIVE, QUEUED
from holdfast.core.limits import CRON_BYTES_MAX, CRON_CATCH_UP_MAX, KEY_BYTES_MAX, NEVER
from holdfast.core.peers import ME, Peer
from holdfast.core.schedule import BadSchedule, Schedule
from holdfast.core.session import Slot
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node
    from holdfast.core.registers import Register

KIND: Final = b"cron"
FIELD: Final = b"entry"

MISSED: Final = [b"skip", b"one", b"all"]
ON_TIME_MS: Final = 60_000
"""A run that is so late is still on time: a new owner needs a while to know that it is one."""

LOOK_MS: Final = 60_000
"""How long an entry sleeps at most, whatever its next instant: the clock on the wall may have been set."""

COPIES_MS: Final = 100
"""How often an owner looks whether a run has its copies."""

WATCH_MS: Final = 2_000
"""How often somebody who does not own an entry looks whether its owner has run it, and an owner tries again."""


class Entry(Chore):
    def __init__(self, name: bytes, words: list[bytes], register: Register) -> None:
        super().__init__()
        self.name: bytes = name
        self.text: bytes = words[0]
        self.zone: bytes = words[1]
        self.missed: bytes = words[2]
        self.queue: bytes = words[3]
        self.body: bytes = words[4]
        self.options: list[bytes] = words[5:]
        self.version: i64 = register.time
        self.writer: bytes = register.writer
        self.schedule: Schedule = Schedule(self.text.decode("utf-8", "replace"), self.zone.decode("utf-8", "replace"))
        self.ran: i64 = register.time >> registers.STEPS  # unix ms: up to then everything was seen to
        self.next_at: i64 = 0  # unix ms; 0: not worked out
        self.trying: dict[int, Slot] = {}  # runs that wait for their copies, by instant

    def run(self, node: Node) -> None:
        look(node, self)

    def next_ms(self) -> i64:
        if self.next_at == 0:
            found = self.schedule.next(self.ran // 1000)
            self.next_at = NEVER if found < 0 else i64(found) * 1000
        return self.next_at


# -- entries ---------------------------------------------------------------------------------------------------


def check(
    name: bytes, schedule: bytes, queue: bytes, body: bytes, zone: bytes, missed: bytes, options: list[bytes]
) -> list[bytes]:
    """The words of an entry, if they can be one. Raises BadRequest."""
    if not name or len(name) > KEY_BYTES_MAX:
        raise BadRequest(b"ERR CRON takes a name of 1 to %d bytes, not of %d" % (KEY_BYTES_MAX, len(name)))
    if missed not in MISSED:
        raise BadRequest(b"ERR MISSED must be skip, one or all")
    read = AddOptions()
    read.read(options, 0)
    read.settle_more()
    if read.retry == 0:
        raise BadRequest(b"ERR a cron entry cannot have RETRY 0: after a failure two nodes may make the same job")
    if read.at > 0:
        raise BadRequest(b"ERR a cron entry says when by its schedule, not by AT")
    if read.more is not None and read.more.batch:
        raise BadRequest(b"ERR a cron entry cannot have a BATCH: each of its jobs would be the same one")
    try:
        Schedule(schedule.decode("utf-8", "replace"), zone.decode("utf-8", "replace"))
    except BadSchedule as error:
        raise BadRequest(b"ERR " + str(error).encode()) from None
    words = [schedule, zone, missed, queue, body, *options]
    if sum([len(word) + 4 for word in words]) > CRON_BYTES_MAX:
        raise BadRequest(b"ERR a cron entry has at most %d bytes, body and options together" % CRON_BYTES_MAX)
    return words


def to_bytes(words: list[bytes]) -> bytes:
    out = BytesWriter()
    for word in words:
        bus.write_name(out, word)
    return out.getvalue()


def from_bytes(data: bytes) -> list[bytes]:
    reader = Reader(data)
    words: list[bytes] = []
    while reader.more():
        words.append(reader.name())
    return words


def is_legal(name: bytes, field: bytes, value: bytes) -> bool:
    """Whether a register that a peer tells of is an entry that CRON SET could have made, but for its zone."""
    try:
        words = from_bytes(value)
        if field != FIELD or len(words) < 5 or len(value) > 2 * CRON_BYTES_MAX:
            return False
        check(name, b"@daily", words[3], words[4], b"UTC", words[2], words[5:])
    except (BadRequest, BadFrame):
        return False
    return True


def apply(node: Node, name: bytes) -> None:
    """An entry was set, changed or deleted."""
    register = node.registers.find(KIND, name, FIELD)
    known = node.cron.get(name)
    if known is not None and (register is None or register.value is None or register.time != known.version):
        node.alarms.set(known, NEVER)
        del node.cron[name]
        known = None
    if known is not None or register is None or register.value is None:
        return
    try:
        entry = Entry(name, from_bytes(register.value), register)
    except BadSchedule as error:
        node.count("cron-unknown")  # a zone that this machine does not know, or words of a later version
        node.notice(register.writer, f"set a cron entry that cannot be run here: {error}")
        return
    node.cron[name] = entry
    node.alarms.set(entry, node.now)


def is_owner(node: Node, entry: Entry) -> bool:
    """Whether this node makes its jobs. A slot that nobody has is asked for."""
    slot = home.slot_of(home.CRON, b"", entry.name)
    if home.is_open(node, slot):
        return True
    if home.owner(node, slot) == ME:
        takeover.want(node, slot)
    return False


def open_slots(node: Node, slots: set[int]) -> None:
    """This node owns the entries of these slots now: what was due meanwhile is not left to the next look."""
    for entry in node.cron.values():
        if int(home.slot_of(home.CRON, b"", entry.name)) in slots and not node.broken("schedule-left-to-watch"):
            node.alarms.set(entry, node.now)


# -- running ---------------------------------------------------------------------------------------------------


def look(node: Node, entry: Entry) -> None:
    """The time of an entry may have come."""
    if node.cron.get(entry.name) is not entry or node.is_loading:
        return
    wall = own_wall(node)
    if entry.ran > wall + LOOK_MS and not node.broken("cron-ran-ahead"):
        entry.ran = wall  # clocks were ahead, and what comes up to then is not seen to
        entry.next_at = 0
    is_due = entry.next_ms() <= wall
    if is_due and is_owner(node, entry):
        run_due(node, entry, wall)
        is_due = entry.next_ms() <= wall
    wait: i64 = min(LOOK_MS, entry.next_ms() - wall)
    if is_due:
        wait = COPIES_MS if entry.trying else WATCH_MS
    node.alarms.set(entry, node.now + wait)


def run_due(node: Node, entry: Entry, wall: i64) -> None:
    """Make the jobs of all instants that have come, as far as they are wanted."""
    found = entry.schedule.between(int(entry.ran // 1000), int(wall // 1000), CRON_CATCH_UP_MAX)
    late = [instant for instant in found if wall - instant * 1000 > ON_TIME_MS]
    wanted = found[len(late):]
    if entry.missed == b"one":
        wanted = late[-1:] + wanted
    elif entry.missed == b"all":
        wanted = late + wanted
    if len(late) > len(wanted) or (late and entry.missed == b"skip"):
        node.count("cron-missed")
    for instant in wanted:
        if not make(node, entry, instant):
            return  # not now: the queue is full, or copies cannot be had; it is tried again until it is too late
        note_ran(node, entry, i64(instant) * 1000)
    if found:
        note_ran(node, entry, i64(found[-1]) * 1000)


def make(node: Node, entry: Entry, instant: int) -> bool:
    """The job of one instant. True if it is there, or was."""
    slot = entry.trying.get(instant)
    if slot is not None and (is_made(node, entry, instant, slot) or slot.reply is None):
        return slot.reply is not None
    options = AddOptions()
    options.read(entry.options, 0)
    options.asked()
    add = keyed.Add(None, entry.queue, [entry.body], False, options, node.now, 0)
    add.slot = Slot()
    add.prefix = CRON_PREFIX
    add.is_shared = True
    number, rnd = numbers(node, entry, instant)
    add.seqs.append(number)
    add.rnds.append(rnd)
    try:
        options.settle_words(node)
        jid = keyed.id_text(add, 0)
        if node.find(jid) is not None or jid in node.tombs:
            return True  # another owner has made it
        if keyed.is_keyed(options):
            add.until = node.now + ON_TIME_MS
            keyed.perform(node, add)
        else:
            keyed.try_here(node, add)
    except CommandError:
        return False
    entry.trying[instant] = add.slot
    return is_made(node, entry, instant, add.slot)


def is_made(node: Node, entry: Entry, instant: int, slot: Slot) -> bool:
    """Whether a run that was begun has its copies. One that was refused is no longer under way."""
    reply = slot.reply
    if reply is None:
        return False
    del entry.trying[instant]
    if reply.startswith(b"-"):
        return False
    node.count("cron-runs")
    node.promised.cron.note(own_wall(node) - i64(instant) * 1000)
    return True


def numbers(node: Node, entry: Entry, instant: int) -> tuple[int, int]:
    """The two numbers in the id of a job: the same wherever it is made, and of no other job."""
    text = b"%d:%b%d %b %d" % (len(entry.name), entry.name, int(entry.version), entry.writer, instant)
    if node.broken("cron-id-random"):
        text += b"%d" % node.random.next()
    digest = blake2b(text, digest_size=16).digest()
    number = int.from_bytes(digest[:8], "little") >> 1 | 1
    rnd = int.from_bytes(digest[8:], "little", signed=True)
    return number, rnd


def note_ran(node: Node, entry: Entry, ms: i64) -> None:
    """Everything up to that instant was seen to: tell all nodes."""
    if ms <= entry.ran:
        return
    entry.ran = ms
    entry.next_at = 0
    entry.trying = {instant: slot for instant, slot in entry.trying.items() if instant * 1000 > ms}
    records.ran(node, entry.name, entry.version, ms)
    for peer in node.peers:
        if peer.is_linked:
            write_ran(peer, entry)


def write_ran(peer: Peer, entry: Entry) -> None:
    peer.out.append(bus.CRONRAN)
    bus.write_name(peer.out, entry.name)
    bus.write_i64(peer.out, entry.version)
    bus.write_i64(peer.out, entry.ran)


def tell_ran(node: Node, peer: Peer, slots: set[int]) -> None:
    """To the new home of some slots: how far we know the entries there to have run."""
    for entry in node.cron.values():
        if int(home.slot_of(home.CRON, b"", entry.name)) in slots and not node.broken("cron-ran-untold"):
            write_ran(peer, entry)


def on_ran(node: Node, peer: Peer, reader: Reader) -> None:
    """The owner of an entry has seen to it: the latest instant counts."""
    name = reader.name()
    version = reader.long()
    ms = reader.long()
    if len(name) > KEY_BYTES_MAX or ms < 0 or ms >= NEVER:
        raise BadFrame("a run at a time that no clock shows")
    entry = node.cron.get(name)
    if entry is None or entry.version != version or ms <= entry.ran or ms > own_wall(node) + LOOK_MS:
        return
    entry.ran = ms
    entry.next_at = 0
    records.ran(node, name, version, ms)
    node.alarms.set(entry, node.now)


def link_up(node: Node, peer: Peer) -> None:
    """How far we are; and which of these jobs are here, queued, out or delayed. A peer that could not hear us may have
    made the same. Neither is in what the other knows of its holders, so nobody would ever ask.
    """
    for entry in node.cron.values():
        write_ran(peer, entry)
    made = node.origins.get(CRON_PREFIX)
    if made is None or node.broken("cron-twins-unmet"):
        return
    for page in list(made.pages.values()):
        for job in page.slots:
            if job is not None and (job.state == QUEUED or requeue.is_leased(node, job)):
                requeue.write_queued(node, peer, job)
            elif job is not None and job.state == ACTIVE and twins.is_new(job):
                replicate.write_holders(node, peer, job)


# -- the journal -----------------------------------------------------------------------------------------------


def load_ran(node: Node, reader: Reader) -> None:
    entry = node.cron.get(reader.name())
    version = reader.long()
    ms = reader.long()
    if entry is not None and entry.version == version:
        entry.ran = max(entry.ran, ms)
        entry.next_at = 0


def write_all(node: Node) -> None:
    for entry in node.cron.values():
        records.ran(node, entry.name, entry.version, entry.ran)


def names(node: Node) -> list[bytes]:
    return registers.names(node, KIND)
