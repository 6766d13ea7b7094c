"""The engine: one heap of events, the hosts, the network between them, and what they ask of the world.

The same seed gives the same run, to the last byte of the last frame: randomness comes from
`Random(f"{seed}/{what}/{epoch}")` only, one per component, so that changing one of them does not shift the
dice of the others. The heap orders by time and then by when an event was pushed, which leaves no ties.

Everything that happens to a node in one millisecond is one turn (host.py); a turn ends before time moves on.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from holdfast.core.effects import CLOSE, KILL, MEET, Request
from holdfast.testing.checkers import Violation, check
from holdfast.testing.checkers.whitebox import TOMBSTONE, Copy
from holdfast.testing.history import NEMESIS, WATCH, History
from holdfast.testing.sim import real
from holdfast.testing.sim.clients import Client
from holdfast.testing.sim.faults import CALM, CLOCKS, Faults
from holdfast.testing.sim.host import BUS_PORT, PORT, Host
from holdfast.testing.sim.machine import Kind
from holdfast.testing.sim.moments import Moments
from holdfast.testing.sim.nemesis import Nemesis
from holdfast.testing.sim.network import Network, Path
from holdfast.testing.sim.plan import NAMES
from holdfast.testing.sim.watcher import Watcher

FORM_MS_MAX: Final = 20_000
"""A cluster that does not come together in this time, without a fault, never will."""

SETTLE_MS: Final = 20_000

DIAL: Final = "dial"
DROP_LINK: Final = "drop-link"


class World:
    def __init__(
        self,
        *,
        nodes: int | str,
        seed: int = 0,
        faults: Faults | None = None,
        mutants: frozenset[str] = frozenset(),
        settings: tuple[tuple[str, str], ...] = (("cluster-node-timeout", "2000"),),
        retry_max_ms: int = 5_000,
        kind: Kind | None = None,
    ) -> None:
        self.names: str = NAMES[:nodes] if isinstance(nodes, int) else nodes  # of those that are not gone for good
        self.lives = self.names  # the same, and again for each stranger: as many as may ever have decided something
        self.seed = seed
        self.faults = faults or CALM
        self.mutants = mutants
        self.settings = settings
        self.kind: Kind = kind or real.KIND
        self.now = 0
        self.steps = 0
        self.heap: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self.pushed = 0
        self.dirty: list[Host] = []
        self.dice = Random(f"{seed}/cluster/0")
        self.history = History()
        self.counters: Counter[str] = Counter()
        self.merged: dict[str, str] = {}  # jobs that turned out to be the same as others
        self.rewrites = False  # disks from time to time; it would bring back what a broken rule did not record
        self.forgotten: set[bytes] = set()  # ids of nodes that an operator had forgotten at some time
        self.abandoned: set[bytes] = set()  # ids of nodes that are gone for good, and that nobody forgets
        self.is_calm = False
        self.calm_t = 0  # when that last changed
        self.hosts = {name: Host(self, name, i) for i, name in enumerate(self.names)}
        self.by_address = {f"{host.ip}:{BUS_PORT}": host for host in self.hosts.values()}
        self.network = Network(self, self.names)
        self.nemesis = Nemesis(self)
        self.moments = Moments(self)
        self.watcher = Watcher(self)
        self.skew = self.skew_bound()
        self.apply(self.faults)
        self.history.mark(
            0, NEMESIS, "", "settings", seed=seed, nodes=self.names, mutants=sorted(mutants),
            settle_ms=SETTLE_MS + retry_max_ms, slack_ms=10_000, node_timeout=self.moments.node_timeout,
            maxmemory=int("maxmemory" in dict(settings)),
            skew_ms=self.skew, rate_ppm=2 * max([abs(r) for r in self.faults.rate_ppm.values()], default=0),
        )
        self.form()

    def apply(self, faults: Faults) -> None:
        for name, host in self.hosts.items():
            host.clock.skew = faults.skew_ms.get(name, 0)
            host.clock.rate += faults.rate_ppm.get(name, 0)
            host.disk.policy = faults.sync
            if name in faults.shared_host:
                host.host_id = b"shared"
        self.network.patience_ms = faults.patience_ms
        self.network.backs_off = faults.backs_off

    def skew_bound(self) -> int:
        skews = [self.faults.skew_ms.get(name, 0) for name in self.names]
        jumps = sum(abs(fault.amount) for fault in self.faults.schedule if fault.kind in CLOCKS)
        return max(skews) - min(skews) + jumps

    def form(self) -> None:
        """Start all nodes and let the first meet the others; returns when everybody is linked with everybody."""
        for host in self.hosts.values():
            host.boot()
        for name in self.names[1:]:
            self.tell(self.names[0], "CLUSTER", "MEET", self.hosts[name].ip, str(PORT))
        while not self.is_calm and self.now < FORM_MS_MAX and len(self.names) > 1:
            self.run_until(self.now + 100)
        self.update_calm()
        assert self.is_calm, f"the nodes did not come together in {FORM_MS_MAX} ms"
        self.set_latencies()
        self.watcher.start()

    # -- time ----------------------------------------------------------------------------------------------

    def push(self, t: int, action: Callable[[Any], object], argument: Any) -> None:
        self.pushed += 1
        heappush(self.heap, (t, self.pushed, action, argument))

    def at(self, t_ms: int, action: Callable[[], None]) -> None:
        """Do something at that time of the run."""
        self.push(t_ms, lambda _: action(), None)

    def run_until(self, t: int) -> None:
        heap = self.heap
        dirty = self.dirty
        while True:
            if dirty and (not heap or heap[0][0] > self.now):
                turn = dirty[:]
                dirty.clear()
                for host in turn:
                    host.finish_turn()
                continue
            if not heap or heap[0][0] > t:
                break
            self.now, _, action, argument = heappop(heap)
            action(argument)
        self.now = t

    def run_for(self, *, seconds: float) -> None:
        self.run_until(self.now + int(seconds * 1000))

    def update_calm(self) -> None:
        """Everything is up, connected and undisturbed, or it is not any more."""
        self.moments.changed()
        n = len(self.names)
        calm = (
            self.network.up_count == n * (n - 1) and not self.nemesis.running
            and all(host.node is not None and not host.is_paused for host in map(self.hosts.__getitem__, self.names))
        )
        if calm != self.is_calm:
            self.is_calm = calm
            self.calm_t = self.now
            self.history.mark(self.now, NEMESIS, "", "calm", on=calm)

    # -- what nodes ask of their shells --------------------------------------------------------------------

    def carry_out(self, host: Host, request: Request) -> None:
        if request.kind in (DIAL, MEET):
            address = request.argument.decode()
            other = self.by_address.get(address)
            peer = getattr(request, "peer", None)
            if request.kind == MEET or other is None or self.kind.expects(host.node, peer, other.node_id):
                self.network.dial(host, address)
        elif request.kind == DROP_LINK:
            end = host.links.get(getattr(request, "peer", None))
            if end is not None:
                self.network.close(end, is_polite=True)
        elif request.kind in (CLOSE, KILL) and request.session is not None:
            client = host.clients.get(request.session)
            if client is not None:
                client.close()

    def join(self, host: Host) -> None:
        """What `--join` does for a node that starts with nothing, or was forgotten."""
        for other in self.hosts.values():
            if other is not host and (host.door not in self.names or other.name in host.door or not host.door):
                self.tell(host.name, "CLUSTER", "MEET", other.ip, str(PORT))

    def add_host(self, name: str, door: str) -> None:
        """A machine that was never there before joins, and is told of one node, or of all."""
        host = Host(self, name, len(self.hosts))
        host.door = door
        host.disk.policy = self.faults.sync
        self.hosts[name] = host
        self.by_address[f"{host.ip}:{BUS_PORT}"] = host
        self.names += name
        for path in self.network.add_host(name):
            self.set_latency(path)
        self.meet_newcomer(host)
        host.boot()
        self.join(host)

    def meet_newcomer(self, host: Host) -> None:
        """A node that was never there before: its tokens and its counts are its own."""
        self.lives += host.name
        self.watcher.meet(host)
        self.history.mark(self.now, NEMESIS, "", "settings", nodes=self.lives)

    def tell(self, name: str, *words: str | bytes) -> None:
        """An operator's command, if the node is there; whatever it answers is for the history."""
        host = self.hosts[name]
        if host.node is None:
            return
        client = Client(self, "op", host)
        argv = [word.encode() if isinstance(word, str) else word for word in words]
        if argv[:2] == [b"CLUSTER", b"FORGET"]:
            self.forgotten.add(argv[2])
        value = {"words": [word.decode() for word in argv]}
        client.send("admin", argv, value, lambda *_: self.push(self.now, Client.close, client))

    def pick(self, dice: Random) -> Host | None:
        """A node that clients can connect to."""
        up = [host for host in self.hosts.values() if host.node is not None and not host.is_paused]
        return dice.choice(up) if up else None

    # -- latency -------------------------------------------------------------------------------------------

    def set_latency(self, path: Path) -> None:
        path.low, path.high = self.faults.latency_ms
        path.tail, path.tail_ms = self.faults.tail, self.faults.tail_ms

    def set_latencies(self) -> None:
        for path in self.network.paths.values():
            self.set_latency(path)

    def heal(self) -> None:
        """Everything is up and connected again, and stays so."""
        self.moments.quieter(self.moments.lag())
        self.faults = replace(CALM, sync=self.faults.sync, rate_ppm=self.faults.rate_ppm)
        self.set_latencies()
        self.nemesis.heal()
        self.history.mark(self.now, NEMESIS, "", "heal")

    # -- looking inside ------------------------------------------------------------------------------------

    def views(self) -> dict[str, dict[str, Copy]]:
        """What each node holds; of one that is down, what it would know after a restart."""
        views: dict[str, dict[str, Copy]] = {}
        for name, host in self.hosts.items():
            if host.node is not None:
                views[name] = self.kind.look(host.node)
            else:
                if host.ghost is None:
                    host.ghost = self.ghost(host)
                views[name] = host.ghost
        return views

    def ghost(self, host: Host) -> dict[str, Copy]:
        if not host.disk.records:
            return {}
        node = self.kind.build(host.new_birth())
        node.set_time(host.clock.mono(self.now), host.clock.wall(self.now))
        node.load(list(host.disk.records))
        return self.kind.look(node)

    def copies(self, job: str) -> dict[str, str]:
        """The state of the job at each node that knows it, tombstones aside."""
        found = {name: view.get(job) for name, view in self.views().items()}
        return {name: copy.state for name, copy in found.items() if copy is not None and copy.state != TOMBSTONE}

    def seen(self, promise: str, what: str, job: str, text: str) -> None:
        """A white-box checker found something."""
        self.history.mark(self.now, WATCH, "", "seen", promise=promise, what=what, job=job, text=text)

    def keep_counters(self, host: Host) -> None:
        """A process ends: its counts are kept for the run's sum."""
        if host.node is not None:
            self.counters.update(self.kind.counters(host.node))
            self.merged.update(self.kind.merged(host.node))

    def finish(self) -> list[Violation]:
        """The end of the run: a last look inside, and the verdict."""
        self.watcher.look()
        self.watcher.last_look()
        for host in self.hosts.values():
            self.keep_counters(host)
        for id, into in sorted(self.merged.items()):
            self.history.mark(self.now, WATCH, "", "merged", id=id, into=into)
        self.counters["flight-ms-max"] = self.network.flight_max
        self.history.mark(self.now, NEMESIS, "", "settings", flight_ms=self.network.flight_max)
        self.history.mark(self.now, NEMESIS, "", "end", frames=self.network.frames, steps=self.steps)
        return check(self.history)
