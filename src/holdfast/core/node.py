"""The machine: one node's jobs, queues and sessions, and everything that can happen to them.

It has no clock, no socket, no file and no randomness of its own. Time is given (`set_time`), random bytes
come from a source given at birth, and what happens comes in as one of four events:

    connect(address)          a client is there; it gets a Session
    execute(session, argv)    it sent a command
    disconnect(session)       it is gone
    tick()                    the time `next_wake()` had asked for has come

What the machine wants done about it is described in effects.py. The same state, event, time and seed give
the same effects, which is why the server, the embedded queue and the simulator can all run this object.
`step(now, event)` in step.py is the same thing as one function, for tests and simulations.

This file is the life of a job: added, queued, handed out under a lease, and then acknowledged, refused, or
queued again because its consumer kept silent. The commands (commands/) parse and answer; they change a
job's state only through the methods here.
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
    chores,
    doubt,
    errors,
    federate,
    links,
    membership,
    records,
    recover,
    replicate,
    requeue,
    talk,
    views,
)
from holdfast.core.alarms import Alarm, Alarms
from holdfast.core.commands.table import COMMANDS, Command
from holdfast.core.config import Config
from holdfast.core.effects import CLOSE, Request
from holdfast.core.errors import BadRequest, CommandError, Refused
from holdfast.core.ids import ID_LENGTH, RandomPool, id_matches, id_seq, ttl_minutes, write_id
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    ASKING,
    GONE,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    QUEUED,
    QUEUED_BEFORE,
    WAIT_REPL,
    Job,
    Origin,
    Page,
)
from holdfast.core.limits import (
    ALARMS_PER_TICK,
    BODY_BYTES_EXTRA,
    EVICT_PER_COMMAND,
    JOB_BYTES,
    MEMORY_LEVEL1_PERCENT,
    MEMORY_LEVEL2_PERCENT,
    MONITOR_ARG_BYTES_MAX,
    NEVER,
    QUEUE_BYTES,
    QUEUE_IDLE_MS,
    QUEUE_IDLE_MS_LEVEL1,
    QUEUE_IDLE_MS_LEVEL2,
    QUEUES_HURRIED,
    SESSION_BYTES,
    SPENT_GONE_MAX,
    WAITING_PERCENT,
)
from holdfast.core.meter import NO_METER, Meter
from holdfast.core.names import Names
from holdfast.core.peers import ME, NODES_MAX, Invitation, Peer, PeerFacts, Tomb
from holdfast.core.queue import PAUSE_IN, PAUSE_OUT, Queue
from holdfast.core.reply import write_error, write_int, write_null_array, write_number
from holdfast.core.session import (
    FOR_COPIES,
    FOR_JOB,
    FOR_RESUME,
    NOTHING,
    REPLY_OFF,
    REPLY_ON,
    REPLY_SKIP,
    REPLY_SKIP_NEXT,
    Session,
    Slot,
)
from holdfast.core.views import View
from holdfast.core.watch import Watch, without_secrets

NO_NAME: Final = b"no queue"
"""The name of the queue that is none. `last_queue` is compared by `is`, and all empty names are one object."""

YOUNG_MS: Final = 20_000
"""A node that has just started, perhaps without its data, keeps acks for nodes it has not met yet this long."""

HTTP_WORDS: Final = (b"POST", b"PUT", b"HOST:")
"""What a request of a browser has in it before its body. No command has such a name, and none will."""

FAULTS_MAX: Final = 16
"""Tracebacks kept for the shell to log: our own mistakes, so one is already too many."""


class Entry:
    """A command as this node knows it: its row in the table, and how often it was run."""

    def __init__(self, command: Command) -> None:
        self.command: Command = command
        self.calls: i64 = 0
        self.usec: i64 = 0


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
        self.records: list[bytes] = []
        self.faults: list[str] = []
        # Jobs and queues.
        self.own: Origin = Origin(b"DI" + node_id[:8])
        self.origins: dict[bytes, Origin] = {self.own.prefix: self.own}
        self.seq: i64 = start_ms * 1000
        self.last_ctime: i64 = 0
        self.queues: dict[bytes, Queue] = {}
        self.names: Names = Names()
        self.last_queue: Queue = Queue(NO_NAME, 0)
        self.nowhere: Queue = Queue(NO_NAME, 0)  # of ack-only entries: they are in no queue
        self.alarms: Alarms = Alarms()
        self.jobs: i64 = 0
        self.expired: i64 = 0
        # Sessions.
        self.sessions: dict[int, Session] = {}
        self.session_count: i64 = 0
        self.blocked: i64 = 0
        self.monitors: list[Session] = []
        self.held: list[Session] = []  # those whose commands wait until CLIENT PAUSE ends
        self.paused_until: i64 = 0
        self.pause_end: Alarm = Alarm()
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
        self.tombs: dict[bytes, Tomb] = {}
        self.last_tomb: Tomb = Tomb(0, 0, 0)
        self.tomb_ends: dict[int, list[bytes]] = {}  # by the second in which they go
        self.tombs_swept: i64 = start_ms // 1000  # up to which second
        self.doubted: dict[Job, None] = {}  # loaded at a start, when our clock may have been wrong (doubt.py)
        self.endings: dict[Job, None] = {}  # ended jobs that are not collected yet
        self.filling: dict[Job, None] = {}  # accepted, and still short of copies
        self.heal_origin: bytes = b""  # where the healer is on its way through all jobs
        self.heal_seq: i64 = 0
        self.heal_after: i64 = 60_000
        self.is_unhealed: bool = False  # the last walk found something to do
        self.alone_until: i64 = 0  # until then what we had before a restart is not queued unless a holder was asked
        self.asking: dict[Job, int] = {}  # holders asked whether it may be queued who have not answered yet
        self.requeued: dict[Job, None] = {}  # queued again while a holder was away
        self.requeued_most: i64 = 0  # look through them when there are more
        self.announced: dict[Queue, None] = {}  # queues for which we have told peers that consumers wait
        self.interested: dict[Queue, None] = {}  # queues for which peers have told us
        self.moves: i64 = start_ms * 1000  # numbers of moves, never used twice
        self.views: dict[int, View] = {}
        self.view_count: i64 = 0
        self.beat: Alarm = Alarm()
        self.chores_at: i64 = 0
        self.nap_ms: i64 = NEVER  # a gap between two events longer than this is sleep; there is none while beats come
        self.awake: i64 = -NEVER  # since when, if it slept
        self.node_timeout: i64 = 15_000
        self.is_membership_changed: bool = False
        self.is_joining: bool = False  # was told of a cluster to join
        self.invitations: dict[bytes, Invitation] = {}  # by the address of a bus
        self.calls: Alarm = Alarm()
        self.is_recording: bool = False
        self.explained: i64 = 0  # nodes whose bit the journal knows
        self.must_sync: bool = False  # this turn's records must be on disk before anything leaves, whatever the policy
        self.counters: dict[str, int] = {}
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
            requeue.woke_up(self)

    def connect(self, address: str) -> Session:
        self.session_count += 1
        session = Session(self.session_count, address, self.now, not self.config.text("requirepass"))
        self.sessions[session.number] = session
        self.account(SESSION_BYTES)
        return session

    def disconnect(self, session: Session) -> None:
        """The client is gone: it waits for nothing any more."""
        if self.sessions.pop(session.number, None) is None:
            return
        if session.blocked == FOR_COPIES:
            replicate.abort_all(self, session)
        self.unblock(session)
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
        if self.paused_until != 0:
            self.block(session, FOR_RESUME)
            self.held.append(session)
            return False
        session.used = self.now
        out = self.out
        start = len(out)
        try:
            self.argv = argv
            self.running = self.no_command
            entry = self.entry(session, argv)
            self.running = entry
            session.last_command = entry.command.name
            if not session.is_trusted and not entry.command.is_open:
                raise Refused(errors.NO_AUTH)
            entry.calls += 1
            entry.command.run(self, session, argv)
        except CommandError as error:
            out.truncate(start)
            write_error(out, error.text)
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
            self.mute(session, start)
        if self.monitors:
            self.tell_monitors(session, argv)
        return True

    def tick(self) -> None:
        """Do what is due. Bounded: the rest, if there is any, is due again at once."""
        for _ in range(ALARMS_PER_TICK):
            alarm = self.alarms.pop_due(self.now)
            if alarm is None:
                return
            if isinstance(alarm, Page):
                self.wake_page(alarm)
            elif isinstance(alarm, Session):
                self.give_up(alarm)
            elif isinstance(alarm, Queue):
                self.forget_if_idle(alarm)
            elif isinstance(alarm, View):
                views.finish(self, alarm)
            elif alarm is self.beat:
                chores.beat(self)
            elif alarm is self.calls:
                membership.call(self)
            else:
                self.resume_clients()

    def next_wake(self) -> i64:
        return self.alarms.next()

    def add_peer(self, facts: PeerFacts) -> Peer | None:
        """A node heard of for the first time; None if there are more than can be numbered."""
        if len(self.peers) > NODES_MAX:
            self.count("too-many-nodes")
            return None
        peer = Peer(len(self.peers), facts)
        peer.is_member = False
        peer.heard = self.now
        self.peers.append(peer)
        self.by_id[facts.node_id] = peer
        return peer

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

    # -- effects -------------------------------------------------------------------------------------------

    def take_output(self) -> bytes:
        """The replies to the commands run since the last call, for the session that sent them."""
        out = self.out
        data = out.getvalue()
        out.truncate(0)
        return data

    def answer(self, session: Session, reply: bytes) -> None:
        """The reply to a session that was blocked; it may go on."""
        self.unblock(session)
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

    def entry(self, session: Session, argv: list[bytes]) -> Entry:
        name = argv[0]
        entry = self.entries.get(name)
        if entry is None:
            entry = self.entries.get(name.upper())
            if entry is None and name.upper() in HTTP_WORDS:
                # A web page can make a browser send this here, with commands in the body.
                self.close_session(session)
                raise BadRequest(b"ERR this is not an HTTP server: possible attack, closing the connection")
            if entry is None:
                raise BadRequest(b"ERR unknown command '%b'" % errors.printable(name))
        arity = entry.command.arity
        if (arity > 0 and len(argv) != arity) or len(argv) < -arity:
            raise BadRequest(b"ERR wrong number of arguments for '%b' command" % entry.command.name.lower())
        return entry

    def mute(self, session: Session, start: i64) -> None:
        """CLIENT REPLY OFF or SKIP: drop what the command has written."""
        if session.replies == REPLY_OFF or session.replies == REPLY_SKIP:
            self.out.truncate(start)
            if session.replies == REPLY_SKIP and session.blocked == NOTHING:
                session.replies = REPLY_ON
        elif session.replies == REPLY_SKIP_NEXT:
            self.out.truncate(start)
            session.replies = REPLY_SKIP
        session.settle()

    def tell_monitors(self, session: Session, argv: list[bytes]) -> None:
        words = b" ".join([quoted(word) for word in without_secrets(argv)])
        line = b"+%d.%06d [%b] %b\r\n" % (
            self.wall // 1000, (self.wall % 1000) * 1000, session.address.encode(), words,
        )
        for monitor in self.monitors:
            if monitor is not session:
                self.wakeups.append((monitor, line))

    def settle(self) -> None:
        """Work out again whether anything special is going on that direct handlers know nothing about."""
        self.is_plain = self.level < 2 and not self.monitors and self.paused_until == 0 and not self.is_leaving

    # -- sessions that wait --------------------------------------------------------------------------------

    def block(self, session: Session, why: i64) -> None:
        session.blocked = why
        session.settle()
        self.blocked += 1

    def unblock(self, session: Session) -> None:
        if session.blocked == NOTHING:
            return
        if session.blocked == FOR_JOB:
            for queue in session.waits_on:
                queue.waiting.pop(session.number, None)
            session.waits_on = []
            session.wake = NEVER
        session.blocked = NOTHING
        session.settle()
        self.blocked -= 1

    def wait_for_job(self, session: Session, queues: list[Queue], timeout_ms: i64, with_counters: bool) -> None:
        """Block until one of the queues has a job; 0 waits for ever."""
        self.block(session, FOR_JOB)
        session.waits_on = queues
        session.with_counters = with_counters
        for queue in queues:
            queue.waiting[session.number] = session
        if timeout_ms > 0:
            self.alarms.set(session, self.now + timeout_ms)
        if len(self.peers) > 1:
            for queue in queues:
                federate.announce(self, queue)

    def give_up(self, session: Session) -> None:
        """A session's patience has ended."""
        if session.blocked == FOR_JOB:
            reply = BytesWriter()
            write_null_array(reply, session)
            self.answer(session, reply.getvalue())

    def serve(self, queue: Queue) -> None:
        """Give queued jobs to those who wait, one each, first come first served."""
        while queue.waiting and queue.size > 0 and queue.paused & PAUSE_OUT == 0:
            job = self.pop(queue)
            if job is None:
                return
            session = queue.waiting.popitem(last=False)[1]
            reply = BytesWriter()
            reply.write(b"*1\r\n")
            self.hand_out(reply, job, session.with_counters)
            self.answer(session, reply.getvalue())

    def resume_clients(self) -> None:
        """CLIENT PAUSE is over."""
        self.paused_until = 0
        self.settle()
        held = self.held
        self.held = []
        for session in held:
            if session.blocked == FOR_RESUME:
                self.unblock(session)
                self.wakeups.append((session, b""))

    def close_session(self, session: Session) -> None:
        """Run nothing more from this session, and have its connection closed once it has its replies."""
        session.is_closing = True
        session.settle()
        self.requests.append(Request(CLOSE, session))

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
            queue = self.make_queue(name)
        self.last_queue = queue
        return queue

    def queues_to_wait_on(self, names: list[bytes]) -> list[Queue]:
        """Queues for a consumer, made if need be: all, or none if there is no memory.

        Consumers may wait at a full node, since they make room.
        """
        cost: i64 = 0
        for name in names:
            if name not in self.queues:
                cost += queue_cost(name)
        if cost > 0 and self.used + cost > self.full + self.full // 100 * WAITING_PERCENT:
            raise Refused(errors.OUT_OF_MEMORY)
        found: list[Queue] = []
        for name in names:
            queue = self.queues.get(name)
            found.append(self.make_queue(name) if queue is None else queue)
        return found

    def make_queue(self, name: bytes) -> Queue:
        cost = queue_cost(name)
        queue = Queue(name, self.now)
        self.queues[name] = queue
        self.names.add(name)
        self.account(cost)
        self.alarms.set(queue, self.now + self.queue_idle())
        return queue

    def queue_idle(self) -> i64:
        if self.level == 0:
            return QUEUE_IDLE_MS
        return QUEUE_IDLE_MS_LEVEL1 if self.level == 1 else QUEUE_IDLE_MS_LEVEL2

    def forget_if_idle(self, queue: Queue) -> None:
        until = queue.used + self.queue_idle()
        if until <= self.now and queue.is_unused():
            self.forget_queue(queue)
        else:
            self.alarms.set(queue, max(until, self.now + self.queue_idle() // 4))

    def forget_queue(self, queue: Queue) -> None:
        del self.queues[queue.name]
        self.names.remove(queue.name)
        queue.wake = NEVER
        if self.last_queue is queue:
            self.last_queue = Queue(NO_NAME, 0)
        self.account(-queue_cost(queue.name))

    def set_paused(self, queue: Queue, paused: i64) -> None:
        was = queue.paused
        queue.paused = paused
        if was & PAUSE_OUT and not paused & PAUSE_OUT:
            self.serve(queue)

    # -- the life of a job ---------------------------------------------------------------------------------

    def add(
        self, queue: Queue, body: bytes, ttl_s: i64, retry_s: i64, delay_s: i64, priority: i64, replicate: i64,
        waits: bool,
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
        if waits:
            job.delay = i32(delay_s)
            if job.expire < page.wake:
                self.alarms.set(page, job.expire)
            return job
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
            self.enqueue(job)
            return job
        if self.is_recording:
            records.job(self, job)
        return job

    def keep(self, job: Job) -> None:
        """A job that another node made is known here from now on."""
        page = job.origin.put(job)
        self.jobs += 1
        job.queue.held += 1
        job.queue.used = self.now
        self.account(JOB_BYTES + BODY_BYTES_EXTRA + len(job.body))
        if job.expire < page.wake:
            self.alarms.set(page, job.expire)

    def admit(self, queue_name: bytes, count: i64, body_bytes: i64, maxlen: i64) -> Queue:
        """The queue, if it takes `count` more jobs with bodies of `body_bytes` in all; raises Refused if not."""
        cost = count * (JOB_BYTES + BODY_BYTES_EXTRA) + body_bytes
        queue = self.queues.get(queue_name)
        if queue is None:
            cost += queue_cost(queue_name)
        if self.level >= 2 or self.used + cost > self.full:
            self.evict(cost)
            if self.used + cost > self.full:
                raise Refused(errors.OUT_OF_MEMORY)
        size: i64 = 0 if queue is None else queue.size + queue.adding
        if maxlen > 0 and size + count > maxlen:
            raise Refused(errors.MAXLEN)
        if queue is None:
            return self.queue(queue_name)
        if queue.maxlen > 0 and queue.held + count > queue.maxlen:
            raise Refused(errors.MAXLEN)
        if queue.paused & PAUSE_IN:
            raise Refused(errors.PAUSED)
        return queue

    def enqueue(self, job: Job) -> None:
        """Queue a job that is not queued, and give it to a waiting session if there is one."""
        job.flags |= QUEUED_BEFORE
        queue = job.queue
        queue.used = self.now
        queue.push(job)
        if queue.waiting:
            self.serve(queue)
        elif queue.interest:
            federate.give(self, queue)

    def pop(self, queue: Queue) -> Job | None:
        """The next job of a queue that is still alive: one whose time has run out is not handed out."""
        while True:
            job = queue.pop()
            if job is None or job.expire > self.now:
                return job
            job.state = ACTIVE
            self.expire(job)

    def dequeue(self, job: Job) -> None:
        """Take a job out of its queue without handing it out; it comes back after its retry time."""
        job.queue.remove(job)
        job.state = ACTIVE
        self.lease(job, i64(job.retry) * 1000)

    def hand_out(self, out: BytesWriter, job: Job, with_counters: bool) -> None:
        """Write a job just taken from its queue into a reply; its lease begins now."""
        queue = job.queue
        body = job.body
        job.state = ACTIVE
        job.flags |= HANDED_OUT
        queue.jobs_out += 1
        if with_counters:
            out.write(b"*7" + queue.header[2:])
        else:
            out.write(queue.header)
        write_id(out, job.origin.prefix, job.seq, job.rnd, i64(job.minutes))
        out.write(b"\r\n$")
        write_number(out, len(body))
        out.write(body)
        out.write(b"\r\n")
        if with_counters:
            out.write(b"$5\r\nnacks\r\n")
            write_int(out, i64(job.nacks))
            out.write(b"$21\r\nadditional-deliveries\r\n")
            write_int(out, i64(job.deliveries))
        retry = i64(job.retry)
        if self.is_recording:
            records.handout(self, job)
        if retry > 0:
            self.lease(job, retry * 1000)
        else:
            # At most once: nobody will get it again, so its body need not stay. What remains knows the
            # job until its ack or its end, or until memory is short.
            job.body = b""
            self.account(-len(body))
            self.spent.append(job)

    def lease(self, job: Job, ms: i64) -> None:
        """Queue the job again after `ms` unless somebody says otherwise; 0: never."""
        if ms == 0:
            job.qtime = 0
        else:
            self.wake_at(job, self.now + ms)

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

    def expire(self, job: Job) -> None:
        if job in self.doubted:
            doubt.hold(self, job)
            return
        self.expired += 1
        if isinstance(job.task, replicate.Adding) and job.state == WAIT_REPL:
            replicate.abort(self, job, replicate.REMOVED)
            if job.state == GONE:
                return
        self.endings.pop(job, None)
        records.gone(self, job)
        self.forget(job)

    def may_requeue(self, job: Job) -> bool:
        """Whether NACK and ENQUEUE may queue this job: not an at-most-once job that was handed out."""
        if job.state != ACTIVE or job.flags & MOVING:
            return job.state == ACTIVE and job.flags & IN_DOUBT != 0  # an operator may decide what nobody knows
        return not (job.retry == 0 and job.flags & HANDED_OUT)

    def queue_again(self, job: Job) -> None:
        """NACK and ENQUEUE: queue a job at once, and let the other holders know."""
        job.responsible = ME
        requeue.stop_asking(self, job)
        job.flags &= ~IN_DOUBT
        records.counts(self, job)
        self.enqueue(job)
        if job.holders & ~1 and job.state != GONE:
            requeue.tell_queued(self, job, job.holders & ~1)

    def end(self, job: Job, why: i64 = acks.DONE) -> None:
        """It is over for good. Alone we forget it; otherwise everybody who may hold a copy must know."""
        if job.holders == 1 and job.task is None:
            if self.is_recording:
                records.gone(self, job)
            self.forget(job)
        elif not self.abandon_adding(job):
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
            self.sweep_spent()
        queue.held -= 1
        self.jobs -= 1
        job.origin.remove(job)
        self.account(-(JOB_BYTES + BODY_BYTES_EXTRA + len(job.body)))
        job.body = b""

    def wake_page(self, page: Page) -> None:
        """Look at every job of a page: some may have reached the end of a delay, a lease or their life."""
        now = self.now
        earliest: i64 = NEVER
        slots = page.slots
        for i in range(len(slots)):
            job = slots[i]
            if job is None:
                continue
            if job.expire <= now:
                self.expire(job)
                continue
            if job.qtime != 0:
                if job.qtime <= now:
                    self.due(job)
                    if job.state == GONE:
                        continue
                if job.qtime != 0 and job.qtime < earliest:
                    earliest = job.qtime
            if job.expire < earliest:
                earliest = job.expire
        if page.live > 0:
            self.alarms.at_latest(page, earliest)

    def flush_queue(self, queue: Queue) -> i64:
        """Delete every job of a queue, in whatever state; returns how many."""
        count: i64 = 0
        for job in self.jobs_of(queue):
            count += 0 if job.state == ACKED else 1
            if job.state == WAIT_REPL:
                replicate.abort(self, job, replicate.REMOVED)
            elif job.state == ACTIVE or job.state == QUEUED:
                self.end(job, acks.FLUSHED)
        return count

    def jobs_of(self, queue: Queue) -> list[Job]:
        return [job for job in self.all_jobs() if job.queue is queue]

    def all_jobs(self) -> list[Job]:
        found: list[Job] = []
        for origin in self.origins.values():
            for page in list(origin.pages.values()):
                for job in page.slots:
                    if job is not None:
                        found.append(job)
        return found

    def flush_all(self) -> None:
        """Delete every job and every queue of this node; sessions that wait get nothing and may go on."""
        for job in self.all_jobs():
            if job.state == WAIT_REPL:
                replicate.abort(self, job, replicate.REMOVED)
        for job in self.all_jobs():
            records.gone(self, job)
            self.forget(job)
        self.endings.clear()
        for queue in list(self.queues.values()):
            for session in list(queue.waiting.values()):
                self.give_up(session)
            self.forget_queue(queue)

    # -- what the cluster needs of a job -------------------------------------------------------------------

    def free_body(self, job: Job) -> None:
        self.account(-len(job.body))
        job.body = b""

    def abandon_adding(self, job: Job) -> bool:
        """A job that waits for its copies has ended elsewhere: a replica was delivered and acknowledged.

        It was accepted, then, as far as anybody can tell; its producer gets the id.
        """
        task = job.task
        if not isinstance(task, replicate.Adding):
            return False
        job.task = None
        if job.state != WAIT_REPL:
            return False
        job.queue.adding -= 1
        acks.mark(self, job, acks.DONE)
        self.fill_slot(task.session, task.slot, b"+" + self.id_text(job) + b"\r\n")
        self.wake_at(job, self.now + acks.TAKE_OVER_MS)
        return True

    def origin(self, prefix: bytes) -> Origin:
        found = self.origins.get(prefix)
        if found is None:
            found = Origin(prefix)
            self.origins[prefix] = found
        return found

    def is_young(self) -> bool:
        """Whether this node may not have met all the others yet."""
        return self.now - self.start < YOUNG_MS and (self.is_joining or len(self.peers) > 1)

    def queue_or_none(self, name: bytes) -> Queue | None:
        """The queue of that name, made if there is room for it."""
        try:
            return self.queue(name)
        except Refused:
            return None

    def is_full_for(self, body_bytes: i64) -> bool:
        return self.used + JOB_BYTES + BODY_BYTES_EXTRA + body_bytes > self.full

    def is_here(self, job: Job) -> bool:
        return job.state != GONE

    def fill_slot(self, session: Session | None, slot: Slot, reply: bytes) -> None:
        """The reply to one of a session's ADDJOBs; it leaves when those before it have left."""
        slot.reply = reply
        if session is None:
            return
        ready = BytesWriter()
        while session.slots:
            first = session.slots[0].reply
            if first is None:
                break
            ready.write(first)
            session.slots.popleft()
        if not session.slots and session.blocked == FOR_COPIES:
            self.answer(session, ready.getvalue())
        elif len(ready) > 0:
            self.wakeups.append((session, ready.getvalue()))

    def everybody(self) -> i64:
        """All members, this node among them."""
        mask: i64 = 1
        for peer in self.peers:
            if peer.is_member:
                mask |= peer.bit
        return mask

    def linked(self) -> i64:
        mask: i64 = 0
        for peer in self.peers:
            if peer.is_linked:
                mask |= peer.bit
        return mask

    def forgotten(self) -> i64:
        """Nodes that were members. They are told nothing; their copies die with their jobs.

        Not those we have only heard of: they may be members that we are still to meet.
        """
        mask: i64 = 0
        for peer in self.peers:
            if peer.is_forgotten():
                mask |= peer.bit
        return mask

    def reachable(self) -> i64:
        """Other nodes that can be given copies."""
        n: i64 = 0
        for peer in self.peers:
            if peer.is_reachable(self.now):
                n += 1
        return n

    def random_below(self, n: int) -> int:
        return (self.random.next() & 0x7FFFFFFF) % n

    def jitter(self) -> i64:
        """Up to half a second, so that what two nodes do at the same time they do not do at the same moment."""
        return (self.random.next() & 0x7FFFFFFF) % 500

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
            self.relevel()

    def relevel(self) -> None:
        """`used` left the range for which the level was worked out."""
        level1 = self.full // 100 * MEMORY_LEVEL1_PERCENT
        level2 = self.full // 100 * MEMORY_LEVEL2_PERCENT
        was = self.level
        if self.used >= level2:
            self.level, self.level_from, self.level_until = 2, level2, NEVER
        elif self.used >= level1:
            self.level, self.level_from, self.level_until = 1, level1, level2
        else:
            self.level, self.level_from, self.level_until = 0, 0, level1
        self.settle()
        if self.level > was:
            self.hurry_queues()

    def hurry_queues(self) -> None:
        """Memory is short: unused queues are forgotten sooner."""
        until = self.now + self.queue_idle()
        for queue in list(self.queues.values())[:QUEUES_HURRIED]:
            self.alarms.at_latest(queue, until)

    def evict(self, cost: i64) -> None:
        """Make room for `cost` bytes below 95 %: forget at-most-once jobs that were handed out, oldest first.

        Nobody will get them again. Then acks that a holder who is away has not heard of: it may deliver such a
        job once more when it is back, which is counted. Bounded per command; the next one goes on.
        """
        if self.config.text("maxmemory-policy") != "acks":
            return
        goal = self.full // 100 * MEMORY_LEVEL2_PERCENT
        for _ in range(EVICT_PER_COMMAND):
            if not self.spent or self.used + cost < goal:
                break
            job = self.spent[0]
            if job.state != GONE:
                self.forget(job)  # which may sweep it out
            if self.spent and self.spent[0] is job:
                self.spent.popleft()
                self.spent_gone -= 1
        for _ in range(EVICT_PER_COMMAND):
            if not self.endings or self.used + cost < goal:
                break
            self.count("acks-evicted")
            acks.forget(self, next(iter(self.endings)))

    def sweep_spent(self) -> None:
        """Let go of evictable jobs that have ended otherwise."""
        self.spent = deque([job for job in self.spent if job.state != GONE])
        self.spent_gone = 0

    def apply_settings(self) -> None:
        """Settings have changed: take over those the machine keeps at hand."""
        self.full = self.config.number("maxmemory")
        self.heal_after = self.config.number("heal-after-ms")
        self.node_timeout = self.config.number("cluster-node-timeout")
        if self.beat.wake < NEVER:
            self.alarms.at_latest(self.beat, self.now + membership.beat_ms(self))
        self.body_bytes_max = self.config.number("max-body-bytes")
        self.watch.apply_settings(self.config)
        if not self.config.text("requirepass"):
            for session in self.sessions.values():
                session.is_trusted = True
                session.settle()
        self.relevel()


def queue_cost(name: bytes) -> i64:
    """What a queue is accounted for: itself, and its name in three places."""
    return QUEUE_BYTES + 3 * len(name)


def quoted(word: bytes) -> bytes:
    """A word as MONITOR shows it."""
    return b'"%b"' % errors.printable(word, MONITOR_ARG_BYTES_MAX).replace(b"\\'", b"'")
