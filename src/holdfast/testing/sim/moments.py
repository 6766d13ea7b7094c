"""What the simulator knows of a moment: who is there, who hears whom and since when, and what each node has.

It gives the judge of times (checkers/reach.py) its moments, and marks in the history which nodes each node hears, for
the checkers of what clients were answered (checkers/promised_times.py). A node hears another if both run, nothing holds
up the paths between them, and both ends of their link are up.
"""
from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from holdfast.testing.checkers.reach import Absent, Complaint, Consumer, Judge, Moment, late_links
from holdfast.testing.history import NEMESIS
from holdfast.testing.not_yet import JUDGED
from holdfast.testing.sim.faults import LINKS, PARTITIONS
from holdfast.testing.sim.host import KILL, Host

if TYPE_CHECKING:
    from holdfast.testing.sim.network import Endpoint
    from holdfast.testing.sim.world import World

DISTURBING: Final = frozenset([*PARTITIONS, *LINKS, "leaving", "forget"])
"""Faults under which nobody is promised a time: some nodes do not hear each other, or somebody wants it so."""

MUTING: Final = frozenset(["full", "eio"])
"""A node whose disk takes nothing ends its links: it must not say what it could not write."""

Pair = tuple[str, str]


class Moments:
    def __init__(self, cluster: World) -> None:
        self.cluster = cluster
        self.judge = Judge()
        self.there: frozenset[str] = frozenset()
        self.absent: dict[str, Absent] = {}
        self.steady_t = -1
        self.quiet_t = 0  # messages that were sent before the network became faster have arrived
        self.apart: dict[Pair, int] = {}  # nodes that nothing keeps from having a link, and have none: since when
        self.linked: frozenset[Pair] = frozenset()
        self.has_met: set[frozenset[bytes]] = set()  # ids of two nodes that had a link
        self.hears: dict[str, str] = {}
        self.lost_t = -1_000_000
        self.told: set[tuple[str, str]] = set()
        self.node_timeout = int(dict(cluster.settings).get("cluster-node-timeout", "15000"))

    # -- who hears whom --------------------------------------------------------------------------------------

    def changed(self) -> None:
        """A node, a link, a path or a fault has come or gone."""
        cluster = self.cluster
        now = cluster.now
        up = {name: host for name, host in cluster.hosts.items() if host.node is not None and not host.is_paused}
        there = frozenset(up)
        for name in self.there - there:
            host = cluster.hosts[name]
            self.absent[name] = Absent(now, host.node is None and host.died == KILL)
        for name in there:
            self.absent.pop(name, None)
        kinds = {fault.kind for fault, _ in cluster.nemesis.running.values()}
        mute = {fault.who for fault, _ in cluster.nemesis.running.values() if fault.kind in MUTING}
        is_disturbed = not DISTURBING.isdisjoint(kinds)
        pairs = list(combinations(sorted(there), 2))
        is_open = [pair for pair in pairs if not self.is_blocked(pair)]
        self.linked = frozenset(pair for pair in is_open if self.is_linked(up, pair))
        self.apart = {
            pair: self.apart.get(pair, now) for pair in is_open if pair not in self.linked and mute.isdisjoint(pair)
        } if not is_disturbed else {}
        for a, b in self.linked:
            self.has_met.add(frozenset((up[a].node_id, up[b].node_id)))
        is_steady = len(self.linked) == len(pairs) and 2 * len(there) > len(cluster.hosts) and not is_disturbed
        if not is_steady:
            self.steady_t = -1
        elif self.steady_t < 0 or there != self.there:
            self.steady_t = now
        self.there = there
        self.mark(up)

    def is_blocked(self, pair: Pair) -> bool:
        paths = self.cluster.network.paths
        return paths[pair].blocks > 0 or paths[pair[1], pair[0]].blocks > 0

    def is_linked(self, up: dict[str, Host], pair: Pair) -> bool:
        a, b = up[pair[0]].linked.get(pair[1]), up[pair[1]].linked.get(pair[0])
        if a is None or b is None or a.other is not b or a.out.is_dead or b.out.is_dead:
            return False
        return not self.is_late(a) and not self.is_late(b)

    def is_late(self, end: Endpoint) -> bool:
        """Whether it is up, but what is sent now arrives late: after the next try, or behind something slow."""
        lag = self.lag()
        return end.out.stalled > 0 or end.out.path.high > lag or end.out.last > self.cluster.now + lag

    def mark(self, up: dict[str, Host]) -> None:
        cluster = self.cluster
        for name in cluster.hosts:
            who = "".join(sorted(
                b if a == name else a for a, b in self.linked if name in (a, b)
            )) if name in up else "-"
            if self.hears.get(name) != who:
                self.hears[name] = who
                cluster.history.mark(cluster.now, NEMESIS, name, "hears", who=who, lag=self.lag())

    def have_met(self, a: str, b: str) -> bool:
        """Whether the nodes that are now at these machines ever had a link."""
        ids = frozenset(self.cluster.hosts[name].node_id for name in (a, b))
        return a == b or ids in self.has_met

    def lag(self) -> int:
        """What a message may take."""
        faults = self.cluster.faults
        return faults.latency_ms[1] + (faults.tail_ms if faults.tail else 0)

    def quieter(self, ms: int) -> None:
        """The network is faster from now on, and what was sent before takes as long as it did then."""
        self.quiet_t = max(self.quiet_t, self.cluster.now + ms)
        self.cluster.at(self.quiet_t, self.cluster.update_calm)

    # -- what each node has ----------------------------------------------------------------------------------

    def dies(self, host: Host) -> None:
        """About to stop, for a while or for good."""
        if host.node is not None:
            self.judge.dies(self.cluster.now, self.cluster.kind.look(host.node))

    def take(self) -> Moment:
        cluster = self.cluster
        up = {name: cluster.hosts[name] for name in sorted(self.there) if cluster.hosts[name].node is not None}
        consumers: dict[str, set[Consumer]] = {}
        homes = known = 0
        for name, host in up.items():
            for queue, sessions in cluster.kind.consumers(host.node).items():
                consumers.setdefault(queue, set()).update((name, *session) for session in sessions)
            homes |= int.from_bytes(bytes(cluster.kind.homes(host.node)), "little")
            known |= int.from_bytes(bytes(cluster.kind.owned(host.node)), "little")
        watcher = cluster.watcher
        watcher.catch_up()
        lag = self.lag()
        rate = max([abs(ppm) for ppm in cluster.faults.rate_ppm.values()], default=0)
        return Moment(
            t=cluster.now, steady=max(self.steady_t, self.quiet_t) if self.steady_t >= 0 else -1, lag=lag,
            node_timeout=self.node_timeout, absent=tuple(self.absent.values()), lost=self.lost_t, rate_ppm=rate,
            jobs={name: cluster.kind.look(host.node) for name, host in up.items()},
            accepted=watcher.owed(), touched=watcher.touched_since(cluster.now - TOUCH_MS - 4 * lag),
            consumers={queue: frozenset(who) for queue, who in consumers.items()}, homes=homes, known=known,
            wishes=watcher.wishes(), are_clocks_right=cluster.skew == 0,
        )

    def look(self) -> None:
        """A look at everything; and if somebody may wait for what is there, soon another."""
        cluster = self.cluster
        moment = self.take()
        self.tell(self.judge.look(moment))
        known = {
            pair: max(since, self.quiet_t) for pair, since in self.apart.items()
            if self.have_met(*pair) and not any(cluster.hosts[name].node_id in cluster.forgotten for name in pair)
        }
        self.tell(list(late_links(cluster.now, moment.lag, known)))
        if self.judge.is_unsure():
            cluster.push(cluster.now + AGAIN_MS + moment.calm_down, self.look_again, None)

    def last_look(self) -> None:
        """At the end of a run everybody has found everybody, also those that nobody was told of."""
        self.changed()
        unlinked = [pair for pair in combinations(sorted(self.there), 2) if pair not in self.linked]
        self.tell([("never-linked", "", f"{' and '.join(pair)} never found each other") for pair in unlinked])

    def look_again(self, _: None) -> None:
        self.tell(list(self.judge.not_handed_out(self.take())))

    def tell(self, complaints: list[Complaint]) -> None:
        """Once of each class and job; those that wait for a mending are counted only."""
        cluster = self.cluster
        for what, job, text in complaints:
            if (what, job) in self.told:
                continue
            self.told.add((what, job))
            cluster.counters[f"late-{what}"] += 1
            if what not in JUDGED:
                cluster.seen("time", what, job, text)


AGAIN_MS: Final = 101
"""Then what is promised within 100 ms is late."""

TOUCH_MS: Final = 3_000
"""What clients say of a job may move its times, so much later, too."""
