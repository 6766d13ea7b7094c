"""The machine: one node's jobs, queues and sessions, and everything that can happen to them.

It has no clock, no socket, no file and no randomness of its own. Time is given (`set_time`), random bytes
come from a source given at birth, and what happens comes in as one of a few events:

    connect(address)          a client is there; it gets a Session
    execute(session, argv)    it sent a command
    disconnect(session)       it is gone
    link_up(facts)            there is a link with another node; it gets a Peer
    frame(peer, data)         that node said something
    link_down(peer)           the link is gone
    tick()                    the time `next_wake()` had asked for has come
    load(records)             before all others: what the journal kept
    flush()                   the end of a turn

What the machine wants done about it is described in effects.py. The same state, event, time and seed give
the same effects, which is why the server, the embedded queue and the simulator can all run this object.
`step(now, event)` in step.py is the same thing as one function, for tests and simulations.

This file is the life of a job: added, queued, handed out under a lease, and then acknowledged, refused, or
queued again because its consumer kept silent. The commands (commands/) parse and answer; they change a
job's state only through the methods here. What a session waits for is in waiting.py, which queues there are in
queues.py, what memory allows in memory.py; what other nodes have to do with it in the files talk.py names.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from traceback import format_exc
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i32, i64

from holdfast.core import (
    acks,
    asleep,
    batches,
    bounds,
    chores,
    dispatch,
    doubt,
    errors,
    expiry,
    federate,
    gates,
    history,
    leases,
    links,
    membership,
    memory,
    peers,
    queues,
    quota,
    records,
    recover,
    replicate,
    requeue,
    results,
    rules,
    slots,
    talk,
    times,
    tombs,
    users,
    waiting,
    whereabouts,
)
from holdfast.core.alarms import Alarm, Alarms, Chore
from holdfast.core.batches import Batches
from holdfast.core.books import Books
from holdfast.core.census import Census
from holdfast.core.claims import Claims
from holdfast.core.commands.table import COMMANDS
from holdfast.core.config import Config
from holdfast.core.cron import Entry as CronEntry
from holdfast.core.dispatch import Entry
from holdfast.core.effects import Request
from holdfast.core.errors import CommandError, Refused
from holdfast.core.fate import Spread
from holdfast.core.forward import Forwards
from holdfast.core.groups import Turns
from holdfast.core.heal import Healing
from holdfast.core.ids import ID_LENGTH, RandomPool, id_matches, id_seq, ttl_minutes, write_id
from holdfast.core.inquire import Question
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    ASKING,
    AWAY,
    BACKING_OFF,
    BOUNDED,
    COUNTED,
    FOLDED,
    GONE,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    QUEUED,
    QUEUED_BEFORE,
    SPECIAL,
    TOLD_UNTIL,
    UNSURE,
    WAIT_REPL,
    WATCHED,
    Job,
    Origin,
    Page,
    Run,
    special_cost,
)
from holdfast.core.limits import (
    ALARMS_PER_TICK,
    BODY_BYTES_EXTRA,
    JOB_BYTES,
    NEVER,
    SEQ_LEAP,
    SESSION_BYTES,
    SPENT_GONE_MAX,
)
from holdfast.core.meter import NO_METER, Meter
from holdfast.core.more import More
from holdfast.core.names import Names
from holdfast.core.overflow import Overflow
from holdfast.core.past import Past
from holdfast.core.peers import ME, Invitation, Peer, PeerFacts, Tomb
from holdfast.core.queue import PAUSE_IN, Queue
from holdfast.core.queues import NO_NAME, queue_cost
from holdfast.core.quota import Quota
from holdfast.core.reach import Reach
from holdfast.core.registers import Registers
from holdfast.core.remote import Borrowed
from holdfast.core.reply import write_error, write_number
from holdfast.core.requeue import Asking
from holdfast.core.rights import User
from holdfast.core.rows import Homes
from holdfast.core.salvage import Salvage
from holdfast.core.session import (
    FOR_COPIES,
    FOR_RESUME,
    NOTHING,
    REPLY_ON,
    REPLY_SKIP,
    Session,
    Slot,
)
from holdfast.core.stages import Stages
from holdfast.core.standstill import Standstill
from holdfast.core.takeover import Takeovers
from holdfast.core.tale import Tale
from holdfast.core.throttle import Domains, Throttle
from holdfast.core.times import Promised
from holdfast.core.unique import Taken, Windows
from holdfast.core.watch import Watch
from holdfast.core.workers import Worker

YOUNG_MS: Final = 20_000
"""A node that has just started, perhaps without its data, keeps acks for nodes it has not met yet this long."""

NOTICES_MAX: Final = 256
"""Words for the log in one turn."""

FAULTS_MAX: Final = 16
"""Tracebacks kept for the shell to log: our own mistakes, so one is already too many."""


class Node:
    def __init__(
        self, config: Config, node_id: bytes, random: Callable[[int], bytes], start_ms: int,
        meter: Meter = NO_METER, incarnation: int = 0,
    ) -> None:
        self.config: Config = config
        self.node_id: bytes = node_id
        self.meter: Meter = meter
        self.random: RandomPool = RandomPool(random)
        self.start: i64 = start_ms
        self.now: i64 = start_ms
        self.wall: i64 = start_ms
        # Effects.
        self.out: BytesWriter = BytesWriter()
        self.wakeups: list[tuple[Session, bytes]] = []
        self.requests: list[Request] = []
        self.frames: list[tuple[Peer, bytes]] = []
        self.log: BytesWriter = BytesWriter()  # the records of this turn (records.py)
        self.log_from: i64 = 0
        self.log_wall: i64 = 0  # the time on the wall that the journal knows
        self.tale: Tale = Tale()  # what happened in this turn (tale.py)
        self.faults: list[str] = []
        self.notices: list[tuple[bytes, str]] = []  # what an operator should know of other nodes: id, words
        # Jobs and queues.
        self.own: Origin = Origin(b"DI" + node_id[:8])
        self.origins: dict[bytes, Origin] = {self.own.prefix: self.own}
        # Of ids, and of questions to other nodes: an answer may come to the next life of a node, which must not take it
        # for one to a question of its own. So no number is used in two lives.
        first: i64 = start_ms * 1000
        self.seq: i64 = first
        self.last_ctime: i64 = 0
        self.queues: dict[bytes, Queue] = {}
        self.names: Names = Names()
        self.last_queue: Queue = Queue(NO_NAME, 0)
        self.nowhere: Queue = Queue(NO_NAME, 0)  # of ack-only entries: they are in no queue
        self.registers: Registers = Registers()  # settings of the whole cluster
        self.domains: Domains = Domains()
        self.quotas: dict[tuple[int, bytes], Quota] = {}  # parts of bounds that hold for all nodes
        self.cron: dict[bytes, CronEntry] = {}  # jobs on a schedule
        self.starts_empty: bool = False  # buckets: something may have been handed out just before this node started
        self.alarms: Alarms = Alarms()
        self.jobs: i64 = 0
        self.expired: i64 = 0
        # Sessions.
        self.sessions: dict[int, Session] = {}
        self.session_count: i64 = 0
        self.blocked: i64 = 0
        self.monitors: list[Session] = []
        self.held: list[Session] = []  # those whose commands wait until CLIENT PAUSE ends
        self.is_gathering: bool = False  # of replies: see slots.py
        self.gathered: dict[Session, None] = {}
        self.paused_until: i64 = 0
        self.pause_end: Alarm = Alarm()
        self.users: dict[bytes, User] = {}
        # Commands.
        self.entries: dict[bytes, Entry] = {command.name: Entry(command) for command in COMMANDS}
        self.no_command: Entry = Entry(COMMANDS[0])  # what was run when there is no such command
        self.running: Entry = self.no_command
        self.argv: list[bytes] = []
        self.watch: Watch = Watch(config)
        # The cluster.
        self.incarnation: int = incarnation or start_ms or 1  # which life of this node's data
        facts = PeerFacts(node_id, self.incarnation, "", config.number("port"), 0)
        self.peers: list[Peer] = [Peer(ME, facts)]  # by index; the first is this node
        self.by_id: dict[bytes, Peer] = {node_id: self.peers[0]}
        self.homes: Homes = Homes()
        self.batches: Batches = Batches()
        self.takeovers: Takeovers = Takeovers(first)
        self.forwards: Forwards = Forwards(first)
        self.borrowed: dict[bytes, Borrowed] = {}  # jobs of other homes that consumers here have
        self.taken: dict[bytes, Taken] = {}  # unique keys
        self.hinted: dict[Job, int] = {}  # jobs with keys that came from others: who is asked whether they live
        self.merged: dict[bytes, bytes] = {}  # jobs that turned out to be others
        self.windows: Windows = Windows()
        self.last_order: i64 = 0  # the last place given in any group
        self.turns: Turns = Turns()
        self.tombs: dict[bytes, Tomb] = {}
        self.last_tomb: Tomb = Tomb(0, 0, 0)
        self.tomb_ends: dict[int, list[bytes]] = {}  # by the second in which they go
        self.tombs_swept: i64 = start_ms // 1000  # up to which second
        self.doubted: dict[Job, bool] = {}  # loaded by a clock that may be wrong: does a delay seem over? (doubt.py)
        self.loaded_by: i64 = NEVER  # what it showed then, less our steady one; NEVER: there is no doubt
        self.endings: dict[Job, None] = {}  # ended jobs that are not collected yet
        self.filling: dict[Job, None] = {}  # accepted, and still short of copies
        self.healing: Healing = Healing()
        self.census: Census = Census()
        self.past: Past = Past()
        self.salvage: Salvage = Salvage()  # what a damaged journal has left, until all were asked
        self.reach: Reach = Reach()
        self.asking: dict[Job, Asking] = {}  # whose other holders were asked whether it may be queued
        self.requeued: dict[Job, None] = {}  # queued again while a holder was away
        self.announced: dict[Queue, bool] = {}  # queues for which peers know that consumers wait; whether once more
        self.interested: dict[Queue, None] = {}  # queues for which peers have told us
        self.moves: i64 = 0  # the number of the last move, never used twice; 0: there was none
        self.moving: dict[Job, int] = {}  # of the open moves of a job (peers.open_move) the last
        self.questions: dict[int, Question] = {}
        self.question_count: i64 = first
        self.dead: dict[Job, None] = {}
        self.claims: Claims = Claims()
        self.stages: Stages = Stages()
        self.spreading: dict[Job, Spread] = {}  # fates that not all holders have confirmed
        self.results: results.Results = results.Results()
        self.workers: dict[bytes, Worker] = {}
        self.beat: Alarm = Alarm()
        self.chores_at: i64 = 0
        self.nap_ms: i64 = NEVER  # a gap between two events longer than this is sleep; there is none while beats come
        self.awake: i64 = -NEVER  # since when, if it slept
        self.node_timeout: i64 = 15_000
        self.is_one_of_many: bool = config.number("cores") > 1  # nodes that share a port (shell/cores.py)
        self.is_alone: bool = True  # a plain ADDJOB asks nobody for a copy
        self.shares_hosts: bool = False  # there are other machines, and some of us are on the same one
        self.is_membership_changed: bool = False
        self.is_joining: bool = False  # was told of a cluster to join
        self.invitations: dict[bytes, Invitation] = {}  # by the address of a bus
        self.calls: Alarm = Alarm()
        self.is_recording: bool = False
        self.books: Books = Books()  # queues with journals of their own
        self.is_telling: bool = False  # history is on
        self.explained: i64 = 0  # nodes whose bit the journal knows
        self.logs_handouts: bool = True  # of all jobs, not only of those that must not be handed out twice
        self.syncs_adds: bool = False  # a turn that adds must be on disk before anything leaves
        self.is_loading: bool = False
        self.refusal: bytes = b""  # what commands are told while the journal is read, or cannot be written
        self.must_sync: bool = False  # this turn's records must be on disk before anything leaves, whatever the policy
        self.counters: dict[str, int] = {}
        self.refusals: dict[str, int] = {}  # by code
        self.promised: Promised = Promised()
        self.standstill: Standstill = Standstill()
        self.mutants: frozenset[str] = frozenset()
        self.force_holders: list[bytes] | None = None
        self.bus_bytes_out: i64 = 0
        self.bus_frames_out: i64 = 0
        self.bus_frames_in: i64 = 0
        # State of the node as a whole.
        self.is_leaving: bool = False
        self.is_plain: bool = True  # nothing special is going on: direct handlers may be used
        self.used: i64 = 0  # bytes, accounted
        self.peak: i64 = 0
        self.level: i64 = 0  # 0; 1 above 75 % of maxmemory; 2 above 95 %
        self.level_from: i64 = 0  # `used` within [level_from, level_until) needs no new look at the level
        self.level_until: i64 = 0
        self.full: i64 = 0
        self.body_bytes_max: i64 = 0
        self.spent: deque[Job] = deque()  # handed out at most once: what can be evicted, the oldest first
        self.spent_gone: i64 = 0  # of these, ended in some other way
        self.handouts: i64 = 0  # with a token, since the start
        self.overflow: Overflow = Overflow(self)
        self.apply_settings()

    # -- events --------------------------------------------------------------------------------------------

    def set_time(self, now_ms: i64, wall_ms: i64) -> None:
        """Say what time it is, before every event: a clock that never goes back, and the one on the wall.

        The first starts near unix time, so that creation times mean something; it alone drives the machine. A
        node that slept hears of it here, before the event: what was true when it fell asleep may not be any more.
        """
        slept = now_ms - self.now > self.nap_ms
        self.now = now_ms
        self.wall = wall_ms
        if slept:
            asleep.woke_up(self)

    def connect(self, address: str) -> Session:
        self.session_count += 1
        session = Session(self.session_count, address, self.now, not users.are_asked_for(self))
        self.sessions[session.number] = session
        self.account(SESSION_BYTES)
        return session

    def disconnect(self, session: Session) -> None:
        """The client is gone: it waits for nothing any more."""
        if self.sessions.pop(session.number, None) is None:
            return
        if session.blocked == FOR_COPIES:
            replicate.abort_all(self, session)
        waiting.unblock(self, session)
        if self.domains.has_places:
            rules.session_gone(self, session)
        session.is_closing = True
        session.settle()
        session.handle = None
        if session.is_monitor:
            self.monitors.remove(session)
            self.settle()
        self.account(-SESSION_BYTES)

    def execute(self, session: Session, argv: list[bytes]) -> bool:
        """Run one command. False: it was not run, keep it; the session is blocked, paused or closing."""
        if session.is_closing:
            return False
        if session.blocked != NOTHING and not (session.blocked == FOR_COPIES and argv[0].upper() == b"ADDJOB"):
            return False
        if self.paused_until != 0 and argv[0].upper() not in waiting.PASSES_PAUSE:
            waiting.block(self, session, FOR_RESUME)
            self.held.append(session)
            return False
        session.used = self.now
        out = self.out
        start = len(out)
        try:
            self.argv = argv
            self.running = self.no_command
            entry = dispatch.find_entry(self, session, argv)
            self.running = entry
            session.last_command = entry.command.name
            if not session.is_trusted and not entry.command.is_open:
                raise Refused(errors.NO_AUTH)
            if session.rights is not None:
                users.check(self, session, session.rights, entry.command.name, argv)
            if self.refusal and (not entry.command.is_for_loading if self.is_loading else entry.command.is_write):
                raise Refused(self.refusal)
            entry.calls += 1
            entry.command.run(self, session, argv)
        except bounds.Postponed as put_off:  # a name of its own: the compiled form gives each name one type
            out.truncate(start)
            entry.calls -= 1
            quota.postpone(self, put_off.quota, session)
            return False
        except CommandError as error:
            if isinstance(error, Refused):
                times.refused(self, error.text)
                history.refused(self, argv, error.text)
            out.truncate(start)
            write_error(out, dispatch.with_use(self.running, error.text))
        except Exception:
            out.truncate(start)
            write_error(out, b"ERR internal error, please report it: the log has the details")
            if len(self.faults) < FAULTS_MAX:
                self.faults.append(format_exc())
        if session.slots and len(out) > start:
            # Answered at once, behind others that still wait for their copies: its turn comes after theirs.
            session.slots.append(Slot(out.getvalue()[start:]))
            out.truncate(start)
        if session.replies != REPLY_ON:
            dispatch.mute(self, session, start)
        if self.monitors:
            dispatch.tell_monitors(self, session, argv)
        return True

    def tick(self) -> None:
        """Do what is due. Bounded: the rest, if there is any, is due again at once."""
        if self.is_loading:
            return
        for _ in range(ALARMS_PER_TICK):
            alarm = self.alarms.pop_due(self.now)
            if alarm is None:
                return
            if isinstance(alarm, Page):
                self.wake_page(alarm)
            elif isinstance(alarm, Session):
                waiting.give_up(self, alarm)
            elif isinstance(alarm, Queue):
                queues.look(self, alarm)
            elif isinstance(alarm, Throttle):
                rules.opened(self, alarm)
            elif isinstance(alarm, Chore):
                alarm.run(self)
            elif alarm is self.beat:
                chores.beat(self)
            elif alarm is self.calls:
                membership.call(self)
            else:
                waiting.resume_clients(self)

    def next_wake(self) -> i64:
        return NEVER if self.is_loading else self.alarms.next()

    def add_peer(self, facts: PeerFacts) -> Peer | None:
        """A node heard of for the first time; None if there are more than can be numbered."""
        return peers.number(self, facts)

    def link_up(self, facts: PeerFacts) -> Peer | None:
        """The shell has a link with a node. None: close it again."""
        return talk.link_up(self, facts)

    def link_down(self, peer: Peer) -> None:
        talk.link_down(self, peer)

    def frame(self, peer: Peer, data: bytes) -> bool:
        """A frame came over the link with that peer. False: close the link."""
        return talk.frame(self, peer, data)

    def flush(self) -> None:
        """The end of a turn: `frames` and `records` are complete."""
        links.flush(self)

    def load(self, kept: list[bytes]) -> None:
        """Before anything else after a restart: what the journal kept."""
        recover.load(self, kept)

    def refuse(self, why: bytes) -> None:
        """From now on: what commands are told that cannot be run; empty if they can."""
        self.refusal = why
        self.settle()

    # -- effects -------------------------------------------------------------------------------------------

    def take_output(self) -> bytes:
        """The replies to the commands run since the last call, for the session that sent them."""
        out = self.out
        data = out.getvalue()
        out.truncate(0)
        return data

    def take_log(self) -> bytes:
        """What the journal must have before anything of this turn leaves."""
        data = self.log.getvalue()
        self.log.truncate(0)
        earlier = self.books.earlier
        if earlier:
            data = b"".join([*earlier, data])
            earlier.clear()
        return data

    def take_records(self) -> list[bytes]:
        """The same, record by record."""
        return records.split(self.take_log())

    def answer(self, session: Session, reply: bytes) -> None:
        """The reply to a session that was blocked; it may go on."""
        waiting.unblock(self, session)
        if session.replies == REPLY_SKIP:
            session.replies = REPLY_ON
            session.settle()
            reply = b""
        elif session.replies != REPLY_ON:
            reply = b""
        self.wakeups.append((session, reply))

    def took(self, usec: i64) -> None:
        """The shell says how long the command just executed took."""
        self.running.usec += usec
        self.watch.took(usec, self.argv, self.wall)
        self.argv = []

    # -- commands ------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Work out again whether anything special is going on that direct handlers know nothing about."""
        is_special = self.is_leaving or self.paused_until != 0 or len(self.monitors) > 0 or self.refusal != b""
        self.is_plain = self.level < 2 and not is_special

    # -- queues --------------------------------------------------------------------------------------------

    def queue(self, name: bytes) -> Queue:
        """The queue of that name, made if need be."""
        last = self.last_queue
        if last.name is name:
            return last
        queue = self.queues.get(name)
        if queue is None:
            if self.used + queue_cost(name) > self.full:
                raise Refused(errors.OUT_OF_MEMORY)
            queue = queues.make_queue(self, name)
        self.last_queue = queue
        return queue

    # -- the life of a job ---------------------------------------------------------------------------------

    def add(
        self, queue: Queue, body: bytes, ttl_s: i64, retry_s: i64, delay_s: i64, priority: i64, replicate: i64,
        waits: bool, more: More | None,
    ) -> Job:
        """A new job, queued at once or after its delay. The caller has asked `admit` first.

        One that `waits` for copies is only made, not queued: see replicate.start.
        """
        now = self.now
        seq = self.seq + 1
        self.seq = seq
        ctime = now * 1_000_000
        if ctime <= self.last_ctime:
            ctime = self.last_ctime + 1
        self.last_ctime = ctime
        origin = self.own
        job = Job(
            seq, self.random.next(), origin, queue, body, ctime, now + ttl_s * 1000, ttl_minutes(ttl_s, retry_s)
        )
        job.retry = i32(retry_s)
        job.priority = int(priority)
        job.replicate = i32(replicate)
        page = origin.put(job)
        self.jobs += 1
        queue.held += 1
        queue.used = now
        self.account(JOB_BYTES + BODY_BYTES_EXTRA + len(body))
        if queue.total_most > 0:
            bounds.count(self, job)
        if more is not None:
            job.more = more
            job.flags |= SPECIAL
            self.account(more.cost())
        if waits:
            job.delay = i32(delay_s)
            if job.expire < page.wake:
                self.alarms.set(page, job.expire)
            return job
        queue.added += 1
        if delay_s > 0:
            job.delay = i32(delay_s)
            job.state = ACTIVE
            job.qtime = now + delay_s * 1000
            if job.qtime < page.wake:
                self.alarms.set(page, job.qtime)
        else:
            if job.expire < page.wake:
                self.alarms.set(page, job.expire)
            if self.is_recording:
                records.job(self, job)
            if self.is_telling:
                history.added(self, job)
            self.enqueue(job)
            return job
        records.job(self, job)
        history.added(self, job)
        return job

    def keep(self, job: Job) -> None:
        """A job that another node made, or an earlier life of this one, is known here from now on."""
        if job.origin is self.own and job.seq > self.seq:
            self.seq = job.seq + SEQ_LEAP  # of that life not all was kept, and its clock was ahead
        page = job.origin.put(job)
        self.jobs += 1
        job.queue.held += 1
        job.queue.used = self.now
        self.account(JOB_BYTES + BODY_BYTES_EXTRA + len(job.kept))
        if job.flags & SPECIAL:
            self.account(special_cost(job))
        self.alarms.at_latest(page, job.expire)

    def admit(self, queue_name: bytes, count: i64, body_bytes: i64, maxlen: i64) -> Queue:
        """The queue, if it takes `count` more jobs with bodies of `body_bytes` in all; raises Refused if not."""
        cost = count * (JOB_BYTES + BODY_BYTES_EXTRA) + body_bytes
        queue = self.queues.get(queue_name)
        if queue is None:
            cost += queue_cost(queue_name)
        if self.level >= 2 or self.used + cost > self.full:
            memory.evict(self, cost)
            self.overflow.make_room(cost)
            if self.used + cost > self.full:
                raise Refused(errors.OUT_OF_MEMORY)
        size: i64 = 0 if queue is None else queue.size + queue.lined + queue.adding
        if maxlen > 0 and size + count > maxlen:
            raise Refused(errors.MAXLEN)
        if queue is None:
            queue = self.queue(queue_name)
        if queue.maxlen > 0 or queue.total_most > 0:
            bounds.admit(self, queue, count)
        if queue.paused & PAUSE_IN:
            raise Refused(errors.PAUSED)
        return queue

    def enqueue(self, job: Job) -> None:
        """Queue a job that is not queued, and give it to a waiting session if there is one."""
        if job.flags & (SPECIAL | COUNTED):
            rules.let_go(self, job)
            if gates.holds(self, job):
                return
            rules.prepare(self, job)
        if self.is_telling:
            history.queued(self, job)
        job.flags = (job.flags | QUEUED_BEFORE) & ~TOLD_UNTIL
        queue = job.queue
        queue.used = self.now
        queue.push(job)
        if queue.waiting:
            waiting.serve(self, queue)
        elif queue.interest:
            federate.give(self, queue)

    def pop(self, queue: Queue) -> Job | None:
        """The next job of a queue that is still alive: one whose time has run out is not handed out."""
        if queue.rules is not None:
            return rules.pop(self, queue)
        while True:
            job = queue.pop()
            if job is None or job.expire > self.now:
                return job if job is None or not job.flags & AWAY else self.overflow.bring(job)
            job.state = ACTIVE
            self.expire(job)

    def dequeue(self, job: Job) -> None:
        """Take a job out of its queue without handing it out; it comes back after its retry time."""
        job.queue.remove(job)
        job.state = ACTIVE
        self.lease(job, i64(job.retry) * 1000)

    def hand_out(self, out: BytesWriter, job: Job, session: Session, form: i64, lease_ms: i64) -> None:
        """Write a job just taken from its queue into a reply; its lease begins now.

        `form` says what the consumer wants to know of it, `lease_ms` for how long it wants it; 0: its RETRY time.
        """
        queue = job.queue
        body = job.kept
        job.state = ACTIVE
        times.handed_out(self, job)
        job.flags |= HANDED_OUT
        job.taker = session.number
        if form != 0:
            out.write(b"*%d" % leases.elements(form) + queue.header[2:])
        else:
            out.write(queue.header)
        write_id(out, job.origin.prefix, job.seq, job.rnd, i64(job.minutes))
        out.write(b"\r\n$")
        write_number(out, len(body))
        out.write(body)
        out.write(b"\r\n")
        retry = i64(job.retry)
        if form != 0 or lease_ms != 0 or job.flags & SPECIAL:
            leases.begin(self, out, job, session, form, lease_ms)
            return
        if self.is_recording:
            records.handout(self, job, retry * 1000)
        if self.is_telling:
            history.handed_out(self, job, session, retry * 1000)
        if retry > 0:
            self.lease(job, retry * 1000)
        else:
            self.spend(job)

    def spend(self, job: Job) -> None:
        """At most once, and handed out: nobody will get it again, so its body need not stay.

        What remains knows the job until its ack or its end, or until memory is short.
        """
        self.free_body(job)
        self.spent.append(job)

    def lease(self, job: Job, ms: i64) -> None:
        """Queue the job again after `ms` unless somebody says otherwise; 0: never."""
        if ms == 0:
            job.qtime = 0
        else:
            self.wake_at(job, self.now + ms)
            whereabouts.went_out(self, job)

    def wake_at(self, job: Job, when: i64) -> None:
        """Look at the job at that time, whatever was planned for it before."""
        job.qtime = when
        page = job.origin.find_page(job.seq)
        assert page is not None
        if when < page.wake:
            self.alarms.set(page, when)

    def due(self, job: Job) -> None:
        """The time a job waited for has come."""
        if job.state == ACTIVE:
            requeue.due(self, job)
        elif job.state == ACKED:
            acks.collect_or_tell(self, job)
        elif job.state == WAIT_REPL:
            replicate.wake(self, job)

    def expire(self, job: Job) -> bool:
        """Its life is over. False: it is still to be seen to (expiry.py)."""
        if job in self.doubted:
            doubt.hold(self, job)
            return True
        return expiry.expire(self, job)

    def may_requeue(self, job: Job) -> bool:
        """Whether NACK and ENQUEUE may queue this job: not an at-most-once job that was handed out.

        One in doubt they may: whoever asks has decided what nobody can know.
        """
        if job.state != ACTIVE or job.flags & MOVING:
            return False
        if job.flags & IN_DOUBT:
            return True
        return not (job.retry == 0 and job.flags & HANDED_OUT)

    def queue_again(self, job: Job) -> None:
        """NACK and ENQUEUE: queue a job at once, and let the other holders know."""
        job.responsible = ME
        requeue.stop_asking(self, job)
        job.flags &= ~BACKING_OFF
        if job.flags & IN_DOUBT:
            job.flags &= ~(IN_DOUBT | HANDED_OUT)
            self.dead.pop(job, None)
        if job.flags & SPECIAL:
            leases.forget(self, job)
            records.fate(self, job)
        records.counts(self, job)
        records.back(self, job)
        self.enqueue(job)
        is_held = job.flags & SPECIAL != 0 and job.state == ACTIVE and not requeue.is_leased(self, job)
        if job.holders & ~1 and job.state != GONE and not is_held:
            requeue.tell_queued(self, job, job.holders & ~1)

    def end(self, job: Job, why: i64 = acks.DONE) -> None:
        """It is over for good. Alone we forget it; otherwise everybody who may hold a copy must know."""
        if why == acks.DONE:
            times.acked(self, job)
        if job.flags & WATCHED:
            results.tell_end(self, job, results.word_of(why))
        is_told = not job.flags & SPECIAL or not batches.must_tell(self, job, why)
        if job.holders == 1 and job.task is None and not job.flags & UNSURE and is_told:
            if job.origin is not self.own:  # its maker may ask for it once more, not having heard that we took it
                tombs.bury(self, self.id_text(job), why, 1, tombs.soon(self))
            if self.is_recording:
                records.gone(self, job)
            self.forget(job)
        elif not replicate.abandon(self, job):
            acks.end(self, job, why)

    def find(self, jid: bytes) -> Job | None:
        if len(jid) != ID_LENGTH:
            return None
        origin: Origin | None = self.own
        if not jid.startswith(self.own.prefix):
            origin = self.origins.get(jid[:10])
            if origin is None:
                return None
        seq = id_seq(jid)
        assert origin is not None
        job = origin.get(seq)
        if isinstance(job, Run):
            job = self.overflow.find(job, origin, seq)
        if job is None or not id_matches(jid, seq, job.rnd, i64(job.minutes)):
            return None
        return job

    def id_text(self, job: Job) -> bytes:
        text = BytesWriter()
        write_id(text, job.origin.prefix, job.seq, job.rnd, i64(job.minutes))
        return text.getvalue()

    def forget(self, job: Job) -> None:
        """The job leaves this node: acknowledged, deleted or expired."""
        queue = job.queue
        if job.state == QUEUED:
            queue.remove(job)
        elif job.retry == 0 and job.flags & HANDED_OUT:
            self.spent_gone += 1
        if job.flags & ASKING:
            self.asking.pop(job, None)
        job.state = GONE
        job.qtime = 0
        if self.spent_gone > SPENT_GONE_MAX + len(self.spent) // 2:
            memory.sweep_spent(self)
        queue.held -= 1
        self.jobs -= 1
        job.origin.remove(job)
        self.account(-(JOB_BYTES + BODY_BYTES_EXTRA + len(job.kept)))
        if job.flags & (SPECIAL | COUNTED | IN_DOUBT | AWAY | BOUNDED):
            self.overflow.drop(job)
            bounds.ended(self, job)
            rules.let_go(self, job)
            gates.ended(self, job, -1)
            self.account(-special_cost(job))
            if self.dead:
                self.dead.pop(job, None)
            if job.flags & WATCHED:
                results.lost_sight(self, job)
        job.kept = b""

    def wake_page(self, page: Page) -> None:
        """Look at every job of a page: some may have reached the end of a delay, a lease or their life."""
        now = self.now
        earliest: i64 = NEVER
        slots = page.slots
        for i in range(len(slots)):
            job = slots[i]
            if isinstance(job, Run):
                job = self.overflow.wake(page, i, job)
            if job is None:
                continue
            if job.expire <= now and self.expire(job):
                continue
            if job.qtime != 0:
                if job.qtime <= now:
                    self.due(job)
                    if job.state == GONE:
                        continue
                if job.qtime != 0 and job.qtime < earliest:
                    earliest = job.qtime
            look: i64 = job.expire if job.expire > now else now + expiry.LOOK_MS
            if look < earliest:
                earliest = look
        if page.live > 0:
            self.alarms.at_latest(page, earliest)

    def all_jobs(self) -> list[Job]:
        """Those in memory; the others are plain and queued (overflow.py)."""
        found: list[Job] = []
        for origin in self.origins.values():
            for page in list(origin.pages.values()):
                for job in page.slots:
                    if job is not None and job.state != FOLDED:
                        found.append(job)
        return found

    # -- what the cluster needs of a job -------------------------------------------------------------------

    def free_body(self, job: Job) -> None:
        self.account(-len(job.kept))
        self.overflow.drop(job)
        job.kept = b""

    def origin(self, prefix: bytes) -> Origin:
        found = self.origins.get(prefix)
        if found is None:
            found = Origin(prefix)
            found.store = self.overflow.store
            self.origins[prefix] = found
        return found

    def is_young(self) -> bool:
        """Whether this node may not have met all the others yet."""
        return self.now - self.start < YOUNG_MS and (self.is_joining or len(self.peers) > 1)

    def is_here(self, job: Job) -> bool:
        return job.state != GONE

    def fill_slot(self, session: Session | None, slot: Slot, reply: bytes) -> None:
        slots.fill(self, session, slot, reply)

    def random_below(self, n: int) -> int:
        return (self.random.next() & 0x7FFFFFFF) % n

    def jitter(self) -> i64:
        """Up to half a second, so that what two nodes do at the same time they do not do at the same moment."""
        return (self.random.next() & 0x7FFFFFFF) % 500

    def notice(self, node_id: bytes, words: str) -> None:
        if len(self.notices) < NOTICES_MAX:
            self.notices.append((node_id, words))

    def count(self, what: str) -> None:
        self.counters[what] = self.counters.get(what, 0) + 1

    def broken(self, rule: str) -> bool:
        """Whether a rule is to be broken on purpose; only ever in simulations (testing/sim/mutants.py)."""
        return rule in self.mutants

    def set_mutants(self, mutants: frozenset[str]) -> None:
        """Rules to break on purpose, for tests of the tests."""
        self.mutants = mutants

    # -- memory --------------------------------------------------------------------------------------------

    def account(self, change: i64) -> None:
        used = self.used + change
        self.used = used
        if used < self.level_from or used >= self.level_until:
            memory.relevel(self)

    def apply_settings(self) -> None:
        """Settings have changed: take over those the machine keeps at hand."""
        self.full = self.config.number("maxmemory")
        self.healing.after_ms = self.config.number("heal-after-ms")
        self.node_timeout = self.config.number("cluster-node-timeout")
        if self.beat.wake < NEVER:
            self.alarms.at_latest(self.beat, self.now + peers.beat_ms(self))
        self.logs_handouts = self.config.text("journal-handouts") == "all"
        self.syncs_adds = self.config.text("appendfsync") == "adds"
        self.body_bytes_max = self.config.number("max-body-bytes")
        self.tale.body_bytes = self.config.number("history-body-bytes")
        self.watch.apply_settings(self.config)
        self.overflow.apply_settings()
        results.apply_settings(self)
        users.apply_settings(self)
        memory.relevel(self)
