"""A model of the protocol as a machine for the simulator: what the simulator and the checkers are tested on.

It is the lab prototype behind the interface of the real node: good enough to run clusters without a
violation, small enough to read in one go, and with the holes of the published protocol as switches, so that
we know what our checkers see. It promises nothing else: no membership, no memory bound, few options.
"""

from __future__ import annotations

import heapq
import json
from random import Random

from holdfast.core.effects import Request
from holdfast.core.limits import NEVER
from holdfast.core.session import FOR_JOB, NOTHING, Session
from holdfast.testing.sim.machine import Birth

from .model_job import Job, Peer

WAIT, ACTIVE, QUEUED, ACKED, TOMB = "wait-repl", "active", "queued", "acked", "tombstone"
WILLQUEUE_MS, GC_MIN, GC_MAX, NEED_EVERY, REDIAL = 500, 1000, 8000, 400, 500


class Model:
    def __init__(self, birth: Birth):
        self.me = birth.node_id.decode()
        self.birth = birth
        self.mutants = birth.mutants
        self.rng = Random(birth.random(16))
        self.wakeups, self.requests, self.frames, self.records, self.faults = [], [], [], [], []
        self.counters = {}
        self.jobs, self.queue, self.wakes, self.seq = {}, [], [], 0
        self.waiting, self.need_at = {}, NEVER
        self.peers, self.known = {}, {}  # up: id -> Peer; known: id -> bus address
        self.met, self.redial_at = set(), NEVER
        self.out = b""
        self.deadlines = {}
        self.sessions = 0
        self.incarnations = {}

    # -- events
    def set_time(self, now, wall):
        self.now, self.wall = now, wall

    def connect(self, address):
        self.sessions += 1
        return Session(self.sessions, address, self.now, True)

    def disconnect(self, session):
        self.waiting.pop(session, None)
        self.deadlines.pop(session, None)
        for j in [j for j in self.jobs.values() if j.session is session]:
            self.abort(j)
        session.is_closing = True

    def take_output(self):
        out, self.out = self.out, b""
        return out

    def flush(self):
        pass

    def next_wake(self):
        while self.wakes and ((j := self.jobs.get(self.wakes[0][1])) is None or j.wake != self.wakes[0][0]):
            heapq.heappop(self.wakes)
        return min(
            [
                self.wakes[0][0] if self.wakes else NEVER,
                self.redial_at,
                self.need_at if self.waiting else NEVER,
                *self.deadlines.values(),
            ]
        )

    def count(self, what):
        self.counters[what] = self.counters.get(what, 0) + 1

    # -- links
    def link_up(self, facts):
        name = facts[0]
        if self.incarnations.get(name, facts[1]) != facts[1] and "incarnation-ignored" not in self.mutants:
            for j in self.jobs.values():  # it has lost its copies and acks
                j.may_have.discard(name)
                j.confirmed.discard(name)
                self.persist("may-not", j.id, name)
        if self.incarnations.get(name) != facts[1]:
            self.incarnations[name] = facts[1]
            self.persist("met", name, facts[1], facts[2])
        peer = self.peers[name] = Peer(name)
        self.known[name] = facts[2]
        self.met.discard(facts[2])
        if self.waiting:
            self.need_at = self.now
        self.cast(self.peers, "GOSSIP", sorted(self.known.values()))
        return peer

    def on_GOSSIP(self, src, addresses):
        new = set(addresses) - set(self.known.values()) - {f"{self.birth.host}:{self.birth.bus_port}"}
        if new:
            self.met |= new
            self.redial_at = self.now

    def link_down(self, peer):
        if self.peers.get(peer.name) is peer:
            del self.peers[peer.name]
        self.redial_at = min(self.redial_at, self.now + REDIAL)

    def redial(self):
        self.redial_at = NEVER
        missing = [a for n, a in sorted(self.known.items()) if n not in self.peers] + sorted(self.met)
        for address in missing:
            self.requests.append(Request("dial", None, address.encode()))
        if missing:
            self.redial_at = self.now + REDIAL

    def on_NOOP(self, src, number):
        pass

    def frame(self, peer, data):
        kind, *args = json.loads(data)
        getattr(self, "on_" + kind)(peer.name, *args)
        return True

    # -- effects
    def send(self, name, *m):
        if (peer := self.peers.get(name)) is not None:
            self.frames.append((peer, json.dumps(m).encode()))

    def cast(self, names, *m):
        for name in sorted(names):
            if name != self.me:
                self.send(name, *m)

    def take_records(self):
        taken, self.records = self.records, []
        return taken

    def persist(self, *rec):
        self.records.append(json.dumps(rec).encode())

    def reply(self, session, data):
        session.blocked = NOTHING
        self.deadlines.pop(session, None)
        self.wakeups.append((session, data))

    # -- commands
    def execute(self, session, argv):
        if session.blocked != NOTHING:
            return False
        command = getattr(self, "cmd_" + argv[0].decode().lower(), self.cmd_unknown)
        self.out += command(session, [a.decode() for a in argv[1:]])
        return True

    def cmd_unknown(self, session, a):
        """It knows plain jobs only."""
        return b"-ERR unknown command\r\n"

    def cmd_cluster(self, session, a):
        if a[0] == "MEET":
            self.met.add(f"{a[1]}:{int(a[2]) + 10000}")
            self.redial()
        return b"+OK\r\n"

    def cmd_pause(self, session, a):
        return b"+none\r\n"

    def cmd_qlen(self, session, a):
        return b":0\r\n"

    cmd_qpeek = cmd_qstat = cmd_info = cmd_qlen

    def cmd_addjob(self, session, a):
        options = {a[i]: int(a[i + 1]) for i in range(3, len(a) - 1) if a[i] in ("REPLICATE", "RETRY", "TTL", "DELAY")}
        repl, retry, ttl = options.get("REPLICATE", 1), options.get("RETRY", 1), options["TTL"]
        if repl - 1 > len(self.peers):
            return b"-NOREPL Not enough reachable nodes\r\n"
        self.seq += 1
        minutes = (ttl // 60) | 1 if retry else (ttl // 60) & ~1
        id = (
            f"DI{self.me[:8]}{self.birth.start_ms * 1000 + self.seq:016x}{self.rng.getrandbits(63):016x}{minutes:04x}SQ"
        )
        j = Job(
            id,
            a[0],
            a[1],
            repl,
            retry * 1000,
            self.now + ttl * 1000,
            self.now * 1000 + self.seq % 1000,
            WAIT,
            {self.me},
        )
        j.confirmed = {self.me}
        j.qtime = self.now + max(1, options.get("DELAY", 0) * 1000)
        self.jobs[id] = j
        if repl == 1:
            self.accept(j)
            self.rewake(j)
            if not options.get("DELAY"):
                self.enqueue(j)
            return f"+{id}\r\n".encode()
        forced = getattr(self, "force_holders", None)
        j.may_have |= set(forced or self.rng.sample(sorted(self.peers), repl - 1))
        j.session, session.blocked = session, FOR_JOB
        self.deadlines[session] = self.now + int(a[2])
        self.cast(j.may_have, "REPLJOB", *self.wire(j))
        self.rewake(j)
        return b""

    def cmd_getjob(self, session, a):
        i = a.index("FROM")
        self.waiting[session] = ("WITHCOUNTERS" in a, a[i + 1 :])
        session.blocked = FOR_JOB
        self.deadlines[session] = self.now + int(a[a.index("TIMEOUT") + 1])
        self.need_at = self.now
        self.serve()
        if session in self.waiting:
            self.tick()
        return b""

    def cmd_ackjob(self, session, a):
        for id in a[:1] if "RESULT" in a else a:
            j = self.jobs.get(id)
            if j is None and int(id[42:46], 16) & 1:
                j = self.jobs[id] = Job(id, "", "", 0, 1000, self.now + 600_000, 0, ACKED)
                self.rewake(j)
                if "h3-acks-not-durable" not in self.mutants:
                    self.persist("ackonly", id, j.expire - self.now + self.wall)
            elif j is not None and j.state not in (ACKED, TOMB):
                self.acknowledge(j)
            if j is not None and j.state == ACKED:
                self.try_gc(j)
        return b":%d\r\n" % len(a)

    cmd_fastack = cmd_ackjob

    def cmd_working(self, session, a):
        j = self.jobs.get(a[0])
        if j is None or j.state == TOMB:
            return b"-NOJOB\r\n"
        if j.state == ACTIVE and j.qtime:
            self.postpone(j)
            self.rewake(j)
        return b":%d\r\n" % (j.retry // 1000)

    def cmd_nack(self, session, a):
        j = self.jobs.get(a[0])
        if j is not None and j.state == ACTIVE and j.retry:
            j.nacks += 1
            self.enqueue(j)
        return b":1\r\n"

    def cmd_enqueue(self, session, a):
        return b":0\r\n"

    cmd_dequeue = cmd_enqueue

    # -- time
    def rewake(self, j):
        at = j.expire
        if j.state == ACKED:
            at = min(at, self.now + min(GC_MIN << j.gc_retry, GC_MAX) + self.rng.randrange(500))
        elif j.state in (ACTIVE, QUEUED) and j.qtime:
            at = min(at, j.qtime - (0 if j.warned else WILLQUEUE_MS))
        j.wake = max(at, self.now + 1)
        heapq.heappush(self.wakes, (j.wake, j.id))

    def tick(self):
        while self.wakes and self.wakes[0][0] <= self.now:
            at, id = heapq.heappop(self.wakes)
            j = self.jobs.get(id)
            if j and j.wake == at:
                self.wake_job(j)
        for session, at in list(self.deadlines.items()):
            if at <= self.now:
                if session in self.waiting:
                    del self.waiting[session]
                    self.reply(session, b"*-1\r\n")
                for j in [j for j in self.jobs.values() if j.session is session]:
                    self.reply(session, b"-NOREPL Timeout reached\r\n")
                    self.abort(j)
        if self.waiting and self.need_at <= self.now:
            self.need_at = self.now + NEED_EVERY
            self.cast(self.peers, "NEEDJOBS", sorted({q for _, qs in self.waiting.values() for q in qs}))
        if self.redial_at <= self.now:
            self.redial()

    def wake_job(self, j):
        if j.expire <= self.now:
            return self.forget(j)
        if j.state in (ACTIVE, QUEUED) and j.qtime and not j.warned and j.qtime - WILLQUEUE_MS <= self.now:
            j.warned = True
            if j.state == ACTIVE:
                self.cast(j.may_have, "WILLQUEUE", j.id)
        if j.state == ACTIVE and j.qtime and j.qtime <= self.now:
            self.count("requeues")
            j.deliveries += j.handed_out
            self.enqueue(j, announce=True)
        elif j.state == QUEUED and j.qtime and j.qtime <= self.now:
            self.postpone(j)
        if j.state == ACKED:
            self.try_gc(j)
        if j.id in self.jobs:
            self.rewake(j)

    def postpone(self, j):
        if j.retry:
            j.qtime, j.warned = self.now + j.retry + self.rng.randrange(500), False

    # -- queue
    def enqueue(self, j, announce=False):
        if j.state == QUEUED or not j.qtime or (not j.retry and j.handed_out):
            return
        if j.state == ACKED and "h2-give-unacks" not in self.mutants:
            return
        j.state = QUEUED
        if j.retry:
            self.postpone(j)
        else:
            j.qtime = 0
        if announce:
            self.cast(j.may_have, "QUEUED", j.id)
        heapq.heappush(self.queue, (j.ctime, j.id))
        self.rewake(j)
        self.serve()

    def pop(self, queues):
        skipped, found = [], None
        while self.queue and found is None:
            entry = heapq.heappop(self.queue)
            j = self.jobs.get(entry[1])
            if j is None or j.state != QUEUED:
                continue
            if j.queue not in queues:
                skipped.append(entry)
                continue
            found = j
        for entry in skipped:
            heapq.heappush(self.queue, entry)
        if found is not None:
            found.state, found.handed_out = ACTIVE, True
            if found.retry:
                self.postpone(found)
                self.rewake(found)
        return found

    def serve(self):
        for session, (counters, queues) in list(self.waiting.items()):
            j = self.pop(queues)
            if j is None:
                continue
            del self.waiting[session]
            if not j.retry:
                self.persist("del", j.id)
            parts = [j.queue, j.id, j.body]
            data = b"*1\r\n*%d\r\n" % (7 if counters else 3) + b"".join(
                b"$%d\r\n%b\r\n" % (len(p), p.encode()) for p in parts
            )
            if counters:
                data += b"+nacks\r\n:%d\r\n+additional-deliveries\r\n:%d\r\n" % (j.nacks, j.deliveries)
            self.reply(session, data)

    def forget(self, j):
        if j.state != ACKED or "h3-acks-not-durable" not in self.mutants:
            self.persist("del", j.id)
        self.jobs.pop(j.id, None)

    def learn(self, j, nodes):
        new = set(nodes) - j.may_have
        if new:
            j.may_have |= new
            if j.state != WAIT:
                self.persist("may", j.id, sorted(new))

    def save(self, j):
        self.persist(
            "load", j.id, j.queue, j.body, j.repl, j.retry, j.expire - self.now + self.wall, j.ctime, sorted(j.may_have)
        )

    def accept(self, j):
        j.state, j.session, j.confirmed = ACTIVE, None, set()
        self.save(j)

    def abort(self, j):
        self.cast(j.may_have, "DELJOB", j.id, "abort")
        may = set(j.may_have)
        self.forget(j)
        self.tomb(j.id, may)

    def acknowledge(self, j):
        if j.session is not None:
            self.finish_add(j)
        j.state, j.confirmed, j.gc_retry = ACKED, {self.me}, 0
        self.persist("del" if "h3-acks-not-durable" in self.mutants else "ack", j.id)
        self.rewake(j)

    def finish_add(self, j):
        session = j.session
        self.accept(j)
        self.reply(session, f"+{j.id}\r\n".encode())

    # -- acks
    def all_reached(self, j):
        if "h1-sizes-not-sets" in self.mutants:
            return len(j.confirmed) >= len(j.may_have)
        return j.confirmed >= j.may_have

    def try_gc(self, j):
        j.gc_retry = min(j.gc_retry + 1, 10)
        j.confirmed.add(self.me)
        if (j.may_have and self.all_reached(j)) or not self.known:
            return self.forget(j)
        self.count("setacks")
        self.cast((j.may_have or set(self.known)) - j.confirmed, "SETACK", j.id, len(j.may_have))

    def on_SETACK(self, src, id, count):
        j = self.jobs.get(id)
        if j is None:
            if "h4-no-tombstone-for-unknown" not in self.mutants:
                self.tomb(id)
            return self.send(src, "GOTACK", id, 0, [])
        if j.state == TOMB:
            return self.send(src, "GOTACK", id, int(bool(j.may_have)), sorted(j.may_have))
        if j.state != ACKED:
            self.acknowledge(j)
        if "h8-gotack-without-set" not in self.mutants:
            return self.send(src, "GOTACK", id, int(bool(j.may_have)), sorted(j.may_have))
        if len(j.may_have) <= count:
            return self.send(src, "GOTACK", id, 1, [])
        if count == 0:
            self.send(src, "GOTACK", id, 1, [])
        self.try_gc(j)

    def on_GOTACK(self, src, id, known, holders):
        j = self.jobs.get(id)
        if j is None or j.state != ACKED:
            return
        ack_only = not j.may_have
        if known:
            if ack_only and "h8-gotack-without-set" in self.mutants:
                return self.forget(j)
            j.confirmed -= (set(holders) - j.may_have) - {self.me}
            self.learn(j, {*holders, src})
            ack_only = False
        if known or src in j.may_have:
            j.may_have.add(src)
            j.confirmed.add(src)
        if ack_only:
            j.confirmed.add(src)
            if j.confirmed >= set(self.known):
                self.forget(j)
        elif self.all_reached(j):
            self.cast(j.may_have, "DELJOB", id, "gc")
            self.forget(j)
            self.tomb(id)

    def on_DELJOB(self, src, id, why):
        j = self.jobs.get(id)
        if j is None or j.state == TOMB:
            return
        if why == "abort" and j.state == ACKED and "h5-abort-erases-ack" not in self.mutants:
            return
        may = j.may_have if why == "abort" else ()
        self.forget(j)
        self.tomb(id, may)

    def tomb(self, id, may=()):
        self.persist("tomb", id, self.wall + 20_000, sorted(may))
        self.jobs[id] = j = Job(id, "", "", 0, 1000, self.now + 20_000, 0, TOMB, may)
        self.rewake(j)

    # -- replication and requeue
    def wire(self, j):
        return [
            j.id,
            j.queue,
            j.body,
            j.repl,
            j.retry,
            j.expire - self.now,
            j.ctime,
            sorted(j.may_have),
            j.nacks,
            max(0, j.qtime - self.now),
        ]

    def unwire(self, id, queue, body, repl, retry, ttl, ctime, may, nacks, delay):
        j = self.jobs[id] = Job(id, queue, body, repl, retry, self.now + ttl, ctime, ACTIVE, may)
        j.qtime = self.now + delay + retry + self.rng.randrange(500) if retry else 0
        j.nacks = nacks
        self.rewake(j)
        self.save(j)
        return j

    def on_REPLJOB(self, src, *w):
        j = self.jobs.get(w[0])
        if j is None:
            self.unwire(*w)
        elif j.state == TOMB:
            return self.send(src, "SETACK", j.id, 0)
        else:
            self.learn(j, w[7])
        self.send(src, "GOTJOB", w[0])

    def on_GOTJOB(self, src, id):
        j = self.jobs.get(id)
        if j and j.state == WAIT:
            j.confirmed.add(src)
            if len(j.confirmed) >= j.repl:
                self.finish_add(j)
                if j.qtime <= self.now + 1:
                    self.enqueue(j)
                else:
                    self.rewake(j)

    def on_QUEUED(self, src, id):
        j = self.jobs.get(id)
        if j is None:
            return
        if j.state == ACKED and "h9-deaf-while-acked" not in self.mutants:
            self.learn(j, {src})
        if j.state in (ACKED, TOMB):
            return self.send(src, "SETACK", id, len(j.may_have))
        if j.state == QUEUED and src > self.me:
            j.state = ACTIVE
        if j.qtime:
            self.postpone(j)
        self.rewake(j)

    def on_WILLQUEUE(self, src, id):
        j = self.jobs.get(id)
        if j is None:
            return
        if j.state in (ACTIVE, QUEUED) or (j.state == ACKED and "h9-deaf-while-acked" not in self.mutants):
            self.learn(j, {src})
        if j.state == QUEUED:
            self.cast(j.may_have, "QUEUED", id)
        elif j.state in (ACKED, TOMB):
            self.send(src, "SETACK", id, len(j.may_have))

    # -- federation
    def on_NEEDJOBS(self, src, queues):
        give = []
        while len(give) < 2 and (j := self.pop(queues)) is not None:
            give.append(j)
        for j in give:
            self.count("moves")
            if "h1-taker-not-recorded" not in self.mutants and "h1-sizes-not-sets" not in self.mutants:
                self.learn(j, {src})
            if not j.retry:
                self.forget(j)  # at most once: it leaves us before it is sent
        if give:
            self.send(src, "YOURJOBS", [self.wire(j) for j in give])

    def on_YOURJOBS(self, src, jobs):
        for w in jobs:
            j = self.jobs.get(w[0])
            if j is not None and j.state == TOMB:
                self.send(src, "SETACK", j.id, 0)
                continue
            if j is None:
                j = self.unwire(*w)
            else:
                self.learn(j, {*w[7], src, self.me})
            if not j.retry:
                j.qtime = self.now
            self.enqueue(j)

    # -- restart
    def load(self, records):
        self.loaded = [each for each in records if each.startswith(b"[")]  # what is damaged is something else
        for rec in map(json.loads, self.loaded):
            op, id = rec[0], rec[1]
            if op == "met":
                self.incarnations[id] = rec[2]
                self.known[id] = rec[3]
                continue
            if op == "load":
                _, id, queue, body, repl, retry, expire, ctime, may = rec
                j = self.jobs[id] = Job(id, queue, body, repl, retry, expire - self.wall + self.now, ctime, ACTIVE, may)
                j.qtime = self.now + retry if retry else 0
                j.handed_out = not retry
            elif op == "ack" and id in self.jobs:
                self.jobs[id].state = ACKED
                self.jobs[id].confirmed = {self.me}
            elif op == "ackonly" and id not in self.jobs:
                self.jobs[id] = Job(id, "", "", 0, 1000, rec[2] - self.wall + self.now, 0, ACKED)
            elif op == "may" and id in self.jobs:
                self.jobs[id].may_have |= set(rec[2])
            elif op == "may-not" and id in self.jobs:
                self.jobs[id].may_have.discard(rec[2])
            elif op == "del":
                self.jobs.pop(id, None)
            elif op == "tomb":
                self.jobs[id] = Job(id, "", "", 0, 1000, rec[2] - self.wall + self.now, 0, TOMB, rec[3])
        for j in self.jobs.values():
            self.rewake(j)
        if self.known:
            self.redial_at = self.now
