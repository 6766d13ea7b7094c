"""Looks inside the nodes at intervals and writes into the history what no client could see.

I5   an acknowledgement is never orphaned: while some node would queue the job again, some node remembers
I6   after healing every acknowledgement is collected, and who is dead is dead everywhere
     at most one queued copy in calm times
I13  nodes that hear each other do not both decide about a slot: homes are no more than sides that cannot hear
     what a node counts is so (books.py), and the figures of all nodes add up (checkers/sums.py)

An ack counts while the disk of the node that took it lives: the one that was told, or the one that this asked because
its token was in the ack. A FASTACK or a DELJOB of the same job voids it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.limits import NEVER
from holdfast.testing.checkers.sums import Look, Sums
from holdfast.testing.checkers.whitebox import Copy, half_dead, orphans, queued_twice, uncollected
from holdfast.testing.history import INVOKE, OK, Op

if TYPE_CHECKING:
    from holdfast.testing.sim.books import Bounds
    from holdfast.testing.sim.host import Host
    from holdfast.testing.sim.world import World

PERIOD_MS: Final = 900
"""No multiple of anything the nodes do."""

CALM_MS: Final = 2_000
"""Two nodes that queued a job at the same moment hear of each other; after so long in calm one has it queued."""

ADD_MS_MAX: Final = 5_000
"""No ADDJOB waits longer for its copies."""

EXPIRY_MS: Final = 2_000
"""Nodes whose clocks differ let a job go at different times, by this much for the lives we give them."""

COLLECT_MS: Final = 30_000
"""An ack that is older than this, in a cluster healed as long ago, should be gone."""


RESUMED_MS: Final = 20_000
"""What was done with the jobs of a paused queue, and with what came back to it, is over so long after the last word."""


HOMES_MS: Final = 10_000
"""Two nodes that can hear each other have told each other of their slots, and the one whose epoch is lower has stopped.
"""

CLOCKS_APART_MS: Final = 15_000
"""Nodes whose clocks differ by more do not take over each other's settings (core/doubt.py)."""


class Watcher:
    def __init__(self, cluster: World) -> None:
        self.cluster = cluster
        self.read = 0  # how much of the history has been read
        self.asked: dict[int, Op] = {}
        self.acks: dict[str, dict[str, int]] = {}  # by job: nodes of which one took it, and when it was answered
        self.givers: dict[str, str] = {}  # nodes as tokens name them
        self.void: set[str] = set()
        self.added: dict[str, int] = {}  # when each job was accepted
        self.lives: dict[int, int] = {}  # by number of the ADDJOB: when the job's life is over
        self.bodies: dict[str, int] = {}  # the same by body
        self.until: dict[str, int] = {}  # the same by job
        self.wiped_t = -ADD_MS_MAX  # when a disk was last lost
        self.told: set[tuple[str, str]] = set()
        self.doubled: dict[str, int] = {}  # jobs queued at two nodes in calm times, and since when
        self.homes: dict[tuple[str, str], int] = {}  # pairs that hear each other and share a slot, and since when
        self.lossy: dict[str, int] = {}  # nodes that have lost something, and when they last did
        self.touched: dict[str, int] = {}  # jobs of which clients said or got something, and when
        self.given: dict[str, int] = {}  # queues of which somebody got a job, and when that last was
        self.got: dict[str, str] = {}  # jobs, and at which node a client got them last
        self.taken_out: set[str] = set()  # jobs that somebody took out of their queue by hand
        self.paused: dict[str, int] = {}  # queues that somebody paused, and when that was over
        self.bounds: dict[str, Bounds] = {}
        self.sums = Sums()
        for host in cluster.hosts.values():
            self.meet(host)

    def meet(self, host: Host) -> None:
        """A node that is there for the first time."""
        self.givers[host.node_id[:8].decode()] = host.name
        self.bounds[host.name] = {}

    def start(self) -> None:
        self.cluster.push(self.cluster.now + PERIOD_MS, self.go, None)

    def go(self, _: None) -> None:
        self.look()
        self.start()

    def catch_up(self) -> None:
        ops = self.cluster.history.ops
        for i in range(self.read, len(ops)):
            op = ops[i]
            if op.number:
                self.note(op)
            if op.f == "loss":
                self.lossy[op.node] = op.t
                for id, acks in self.acks.items():
                    self.acks[id] = {nodes: t for nodes, t in acks.items() if op.node not in nodes}
                if op.value["wiped"]:
                    self.wiped_t = op.t
            elif op.f == "add" and op.type == INVOKE:
                self.lives[op.number] = self.bodies[op.value["body"]] = op.t + 1_000 * int(op.value["ttl"])
            elif op.f == "add" and op.type == OK and op.value.get("dup") != "existing":
                self.added[op.value["id"]] = op.t
                self.until[op.value["id"]] = self.lives[op.number]
            elif op.type == INVOKE:
                if op.f == "ack":
                    self.asked[op.number] = op
                elif op.f in ("fastack", "deljob"):
                    self.void.update(op.value["ids"])
            elif op.f == "get" and op.type == OK:
                for each in op.value["jobs"]:
                    self.got[each["id"]] = op.node
                    if each["body"] in self.bodies:  # whether or not its producer ever heard that it was accepted
                        self.until.setdefault(each["id"], self.bodies[each["body"]])
            elif op.f == "ack" and op.type == OK:
                asked = self.asked[op.number]
                have_met = self.cluster.moments.have_met
                if not all(have_met(op.node, self.got.get(id, op.node)) for id in asked.value["ids"]):
                    continue  # of a newcomer that the node has never heard of
                takers = self.takers(asked, op)
                if any(self.lossy.get(name, -1) >= asked.t for name in takers):
                    continue  # its answer was on its way when it lost what it had answered
                for id in asked.value["ids"]:
                    self.acks.setdefault(id, {})[takers] = op.t
        self.read = len(ops)

    def note(self, op: Op) -> None:
        """What clients did that may change where a job is, and when its time comes."""
        value = op.value
        words = [str(word) for word in value.get("words", ())]
        jobs = [each["id"] for each in value.get("jobs", ())] if op.f == "get" else value.get("ids", ())
        renewed = self.added if words[:2] == ["CLAIM", "RENEW"] else ()  # it names none of its jobs
        for id in (*jobs, *words, *renewed):
            self.touched[id] = op.t
        self.given.update((each["queue"], op.t) for each in value.get("jobs", ()) if op.f == "get")
        if op.f == "dequeue" and op.type == INVOKE:
            self.taken_out.update(value["ids"])
        queue = value["queue"] if op.f == "pause" and "queue" in value else words[1] if words[:1] == ["PAUSE"] else ""
        if queue and op.type == INVOKE and (queue in self.paused or "none" not in words):
            self.paused[queue] = op.t if "none" in words else NEVER

    def owed(self) -> frozenset[str]:
        """Jobs that were accepted, that nobody wanted to end or took away, and that live a while yet."""
        soon = self.cluster.now + EXPIRY_MS + self.cluster.skew
        return frozenset(
            id for id in self.added
            if id not in self.acks and id not in self.void and id not in self.taken_out and self.until[id] >= soon
        )

    def touched_since(self, t: int) -> frozenset[str]:
        return frozenset(id for id, when in self.touched.items() if when >= t)

    def wishes(self) -> frozenset[str]:
        """Queues that are paused, or were a moment ago."""
        since = self.cluster.now - RESUMED_MS
        return frozenset(queue for queue, t in self.paused.items() if t >= since)

    def takers(self, asked: Op, answered: Op) -> str:
        """The nodes of which one took an ack. Under the token of another node that one is asked first, and takes it if
        it can be heard; an answer at once was given without asking."""
        giver = self.givers.get(asked.value.get("token", "")[:8], "")
        return answered.node if giver == answered.node or answered.t == asked.t else answered.node + giver

    def acked(self) -> list[str]:
        """Jobs whose acknowledgement must be remembered: not when their life is over, or nearly so."""
        self.catch_up()
        soon = self.cluster.now + EXPIRY_MS
        return [
            id for id, nodes in self.acks.items()
            if nodes and id not in self.void and self.until.get(id, soon) >= soon
        ]

    def followed_up(self) -> list[str]:
        """Those that are collected once all have heard of them: not where a node that is gone for good may have a copy,
        and nobody has said that it is forgotten."""
        return [] if self.cluster.abandoned else self.acked()

    def look(self) -> None:
        cluster = self.cluster
        views = cluster.views()
        cluster.counters["looks"] += 1
        acked = self.acked()
        weak = {id for id in acked if self.wiped_t > self.added.get(id, 0) - ADD_MS_MAX}
        away = {name for name, host in cluster.hosts.items() if host.node_id in cluster.forgotten}
        for view in [views[name] for name in away]:
            weak.update(view)  # what a forgotten node holds, tombstones wait for
        for id in orphans(acked, views, weak):
            where = {name: view[id].state for name, view in views.items() if id in view}
            what = "orphan" if id in self.added else "orphan-unaccepted"
            self.tell("I5", what, id, f"acked at {self.acks[id]}, held {where}")
        # There and back; a message that was sent before the network was healed takes as long as they did then.
        flight = max(cluster.faults.latency_ms[1] + cluster.faults.tail_ms, cluster.network.flight_max)
        wait = CALM_MS + 2 * flight
        doubled = dict(queued_twice(views)) if cluster.is_calm else {}
        self.doubled = {id: self.doubled.get(id, cluster.now) for id in doubled}
        for id, since in self.doubled.items():
            if cluster.now - max(since, cluster.calm_t) > wait:
                self.tell("calm", "queued-twice", id, f"queued at {', '.join(doubled[id])} since {since} ms")

        cluster.moments.look()
        self.look_at_sums(views)
        self.look_at_homes(wait)
        self.look_at_books()

    def look_at_homes(self, wait: int) -> None:
        """Two that have been linked for a while agree on who decides."""
        up = [host for host in self.cluster.hosts.values() if host.node is not None and not host.is_paused]
        # A byte for each slot, as one number: what two have in common is quickly found.
        opened = {host.name: int.from_bytes(bytes(self.cluster.kind.homes(host.node)), "little") for host in up}
        since, self.homes = self.homes, {}
        for host in up:
            for end in host.links.values():
                pair = (host.name, end.other.host.name)
                shared = opened[pair[0]] & opened.get(pair[1], 0)
                if pair[0] < pair[1] and shared:
                    began = self.homes[pair] = since.get(pair, self.cluster.now)
                    if self.cluster.now - began > wait + HOMES_MS:
                        slot = (shared.bit_length() - 1) // 8
                        text = f"{pair[0]} and {pair[1]} are linked, and both home of slot {slot} since {began} ms"
                        self.tell("I13", "two-homes", "", text)

    def look_at_sums(self, views: dict[str, dict[str, Copy]]) -> None:
        """Every job is in some figure, when nothing has happened for a while."""
        cluster = self.cluster
        there = cluster.moments.there
        up = {name: cluster.hosts[name] for name in sorted(there)}
        is_whole = not any(set(host.linked) - there for host in up.values())
        steady = cluster.moments.steady_t if is_whole else -1
        figures = {name: cluster.kind.figures(host.node) for name, host in up.items()} if steady >= 0 else {}
        look = Look(cluster.now, steady, {name: views[name] for name in up}, figures, self.given)
        for queue, text in self.sums.look(look):
            self.tell("figures", "miscounted", queue, text)
        cluster.counters["sums"] = self.sums.judged

    def look_at_books(self) -> None:
        for name, host in self.cluster.hosts.items():
            if host.node is not None:
                for what, text in self.cluster.kind.wrong_books(host.node, self.bounds[name], name not in self.lossy):
                    self.tell("books", what, "", f"at {name}: {text}")

    def tell(self, promise: str, what: str, job: str, text: str) -> None:
        if (what, job) not in self.told:
            self.told.add((what, job))
            self.cluster.seen(promise, what, job, text)

    def last_look(self) -> None:
        """At the end, in a healed cluster: nothing is left of what was acknowledged long enough ago."""
        cluster = self.cluster
        healed = max((op.t for op in cluster.history.ops if op.f == "heal"), default=None)
        if healed is None or cluster.now - healed < COLLECT_MS:
            return
        cluster.moments.last_look()
        up = {name: host for name, host in cluster.hosts.items() if host.node is not None}
        digests = {name: cluster.kind.digest(host.node) for name, host in up.items()}
        walls = [host.clock.wall(cluster.now) for host in up.values()]
        if len(set(digests.values())) > 1 and max(walls) - min(walls) <= CLOCKS_APART_MS:
            self.tell("settings", "settings-differ", "", f"the nodes do not agree on what is set: {digests}")
        old = [id for id in self.followed_up() if min(self.acks[id].values()) < cluster.now - COLLECT_MS]
        for id, name, state in uncollected(old, cluster.views()):
            self.tell("I6", "uncollected", id, f"{state} at {name}, acked at {self.acks[id]}")
        for id, held in half_dead(cluster.views()):
            self.tell("dead", "half-dead", id, f"held {held}")
