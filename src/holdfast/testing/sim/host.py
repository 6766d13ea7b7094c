"""One simulated machine: a node with its clock, its disk and its connections, and the life of its process.

It does what the shell does, in the shell's order. Everything that happens to a node within the same
millisecond is one turn: the events first, then one flush, then the records go to the disk, and only then
frames, replies and wakeups leave. A crash in the middle of a turn (`doom`) keeps some of the records and
sends nothing, which is how real machines die, too.
"""
from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from holdfast.core.limits import NEVER
from holdfast.core.session import Session
from holdfast.testing.checkers.whitebox import Copy
from holdfast.testing.history import NEMESIS, WATCH
from holdfast.testing.sim.clock import Clock
from holdfast.testing.sim.disk import NONE, CrashDisk
from holdfast.testing.sim.machine import Birth, Machine, Peer, Walking

if TYPE_CHECKING:
    from holdfast.testing.sim.clients import Client
    from holdfast.testing.sim.network import Endpoint
    from holdfast.testing.sim.world import World

KILL: Final = "kill"  # the process dies; what it had written stays
POWER: Final = "power"  # the machine dies; what was not synced may be gone
WIPE: Final = "wipe"  # the machine dies and its disk with it

REWRITE_MS: Final = 3_000
SLICE_BYTES: Final = 500

NO_ROOM: Final = b"MISCONF the journal cannot be written (No space left on device)"

PORT: Final = 7711
BUS_PORT: Final = 17711


class Host:
    def __init__(self, cluster: World, name: str, number: int) -> None:
        self.cluster = cluster
        self.name = name
        self.generation = 0  # nodes that had this machine's address before
        self.node_id = self.draw_id()
        self.door = ""  # the one node that it is told of when it joins; empty: all of them
        self.is_gone = False  # for good
        self.died = ""  # how, the last time
        self.ip = f"10.0.0.{number + 1}"
        self.clock = Clock()
        self.disk = CrashDisk()
        self.node: Machine | None = None
        self.birth: Birth | None = None
        self.host_id = name.encode()
        self.zone = b""
        self.epoch = 0  # counts starts
        self.incarnation = 0
        self.has_met = False  # somebody, in this life of its data
        self.is_paused = False
        self.backlog: list[Callable[[], None]] = []  # what happened while it was paused
        self.links: dict[Peer, Endpoint] = {}
        self.linked: dict[str, Endpoint] = {}  # the same by name
        self.clients: dict[Session, Client] = {}
        self.owed: list[tuple[Client, bytes]] = []  # replies of this turn
        self.is_dirty = False
        self.alarm = NEVER  # when the one live alarm goes off
        self.walk: Walking | None = None  # a rewrite of the disk that is going on
        self.rewrite_t = 0
        self.doom = ""  # how it dies at the end of its next turn that writes something
        self.ghost: dict[str, Copy] | None = None  # what it would know after a restart; while it is down

    # -- the life of the process ---------------------------------------------------------------------------

    def draw_id(self) -> bytes:
        number = f"/{self.generation}" if self.generation else ""
        return Random(f"{self.cluster.seed}/id/{self.name}{number}").randbytes(20).hex().encode()

    def boot(self) -> None:
        """Start the process: with what the disk kept, or as a new incarnation where it kept nothing."""
        if self.node is not None or self.is_gone:
            return
        cluster = self.cluster
        self.epoch += 1
        self.clock.reboot(cluster.now)
        is_new = self.incarnation == 0 or self.disk.policy == NONE
        is_damaged = self.disk.is_damaged and "damage-keeps-life" not in cluster.mutants
        if is_new or is_damaged:
            self.incarnation = self.epoch  # a later life has a higher number
        self.birth = self.new_birth()
        node = cluster.kind.build(self.birth)
        self.node = node
        self.ghost = None
        self.alarm = NEVER
        node.set_time(self.clock.mono(cluster.now), self.clock.wall(cluster.now))
        records = self.disk.load("loaded-not-synced" not in cluster.mutants)
        if is_damaged:
            cluster.kind.remember(node, [cluster.kind.facts(birth) for birth in self.met()])
        if records or not is_new:
            node.load(records)
        if is_damaged:
            self.disk.replace(cluster.kind.all_records(node))
        if self.epoch > 1:
            cluster.counters["restarts"] += 1
            cluster.history.mark(cluster.now, NEMESIS, self.name, "restart", new=is_new)
        self.touch()
        self.has_met = self.has_met and not is_new
        if self.epoch > 1 and not self.has_met:
            cluster.join(self)  # as its command line says; who has met somebody has that on its disk
        cluster.update_calm()

    def met(self) -> list[Birth]:
        """Nodes that it has met: their names are in a file of their own, whatever has become of the journal."""
        cluster = self.cluster
        met = cluster.moments.has_met
        others = [host for host in cluster.hosts.values() if frozenset((self.node_id, host.node_id)) in met]
        return [host.birth for host in others if host.birth is not None]

    def new_birth(self) -> Birth:
        cluster = self.cluster
        return Birth(
            self.node_id, self.incarnation, self.ip, PORT, BUS_PORT, self.host_id, self.zone, self.clock.start,
            Random(f"{cluster.seed}/node/{self.name}/{self.epoch}").randbytes, self.settings(), cluster.mutants,
        )

    def settings(self) -> tuple[tuple[str, str], ...]:
        """A node knows how its disk is synced."""
        policy = () if self.disk.policy == NONE else (("appendfsync", self.disk.policy),)
        return *policy, *self.cluster.settings

    def crash(self, how: str) -> None:
        """The process ends without a word. What the disk keeps depends on how."""
        if self.node is None:
            return
        cluster = self.cluster
        lost = 0
        cluster.moments.dies(self)
        self.died = how
        if self.disk.waiting:
            cluster.history.mark(cluster.now, NEMESIS, self.name, "loss", wiped=False, records=len(self.disk.waiting))
        self.disk.stop(cluster.now)
        if how == WIPE or self.disk.policy == NONE:
            self.lose_disk()
        elif how == POWER:
            lost = self.disk.power_cut(cluster.now, Random(f"{cluster.seed}/disk/{self.name}/{self.epoch}"))
            if lost:
                cluster.history.mark(cluster.now, NEMESIS, self.name, "loss", wiped=False, records=lost)
        cluster.history.mark(cluster.now, NEMESIS, self.name, "crash", how=how, lost=lost)
        cluster.keep_counters(self)
        self.node = None
        self.walk = None
        self.disk.drop_rewrite()
        self.epoch += 1  # whatever is still under way for the old process means nothing to the new one
        self.doom = ""
        self.is_paused = False
        self.backlog.clear()
        self.owed.clear()
        clients = list(self.clients.values())
        self.clients.clear()
        cluster.network.gone(self, is_polite=how == KILL)
        for client in clients:
            client.cut_off()

    def lose_disk(self) -> None:
        cluster = self.cluster
        cluster.history.mark(cluster.now, NEMESIS, self.name, "loss", wiped=True, records=len(self.disk.records))
        cluster.moments.lost_t = cluster.now
        self.disk.wipe()
        self.incarnation = 0

    def damage_disk(self, dice: Random, places: int) -> None:
        """The process is down, and some of what it had synced is not any more as it was."""
        if self.node is not None or self.is_gone or not self.disk.records:
            return
        self.note_damage(self.disk.damage(dice, places))

    def note_damage(self, lost: int) -> None:
        """So many records are not what they were."""
        cluster = self.cluster
        self.disk.is_damaged = True
        self.ghost = None
        cluster.history.mark(cluster.now, NEMESIS, self.name, "loss", wiped=True, records=lost)
        cluster.moments.lost_t = cluster.now

    def make_room(self) -> None:
        """The disk was full and is not any more: what waited is written."""
        disk = self.disk
        if disk.is_full:
            disk.is_full = False
            waiting, disk.waiting = disk.waiting, []
            if self.node is not None:
                disk.write(waiting, self.cluster.now, disk.owes)
                disk.owes = False
                self.cluster.kind.refuse(self.node, b"")

    def make_stranger(self, how: str, door: str) -> None:
        """The node is gone for good, though its cluster counts it in, and another will have its address."""
        if self.is_gone:
            return
        self.crash(how)
        self.lose_disk()
        self.cluster.abandoned.add(self.node_id)
        self.generation += 1
        self.node_id = self.draw_id()
        self.has_met = False
        self.door = door
        self.cluster.meet_newcomer(self)

    def leave_for_good(self, how: str) -> None:
        if self.is_gone:
            return
        self.crash(how)
        self.lose_disk()
        self.is_gone = True
        self.cluster.abandoned.add(self.node_id)
        self.cluster.names = self.cluster.names.replace(self.name, "")
        self.cluster.update_calm()

    def pause(self) -> None:
        self.cluster.moments.dies(self)
        self.is_paused = True
        self.cluster.update_calm()

    def resume(self) -> None:
        """SIGCONT: all that piled up is there at once; whether timers or sockets come first is anybody's guess."""
        if not self.is_paused:
            return
        self.is_paused = False
        backlog, self.backlog = self.backlog, []
        is_timer_first = self.cluster.dice.random() < 0.5
        if is_timer_first:
            self.tick()
        for action in backlog:
            action()
        if not is_timer_first:
            self.tick()
        self.cluster.update_calm()

    # -- events --------------------------------------------------------------------------------------------

    def touch(self) -> Machine:
        """The node, told what time it is, and to be flushed at the end of the turn."""
        cluster = self.cluster
        node = self.node
        assert node is not None
        cluster.steps += 1
        now = cluster.now
        wall = self.clock.wall(now)
        node.set_time(wall if "life-on-the-wall" in cluster.mutants else self.clock.mono(now), wall)
        if not self.is_dirty:
            self.is_dirty = True
            cluster.dirty.append(self)
        return node

    def tick(self) -> None:
        if self.node is not None:
            self.touch().tick()

    def alarmed(self, what: tuple[int, int]) -> None:
        epoch, when = what
        if epoch != self.epoch or when != self.alarm:
            return  # an earlier start's, or there was an earlier one
        self.alarm = NEVER
        if self.is_paused:
            return  # `resume` ticks
        self.touch().tick()

    def link_up(self, end: Endpoint) -> Peer | None:
        other = end.other.host
        assert other.birth is not None
        self.has_met = True
        return self.touch().link_up(self.cluster.kind.facts(other.birth))

    def link_down(self, end: Endpoint) -> None:
        self.cluster.counters["link-downs"] += 1
        self.touch().link_down(end.peer)

    def refused(self, other: Host) -> None:
        """Its system could not connect to that of the other machine's node: there is none."""
        self.cluster.kind.refused(self.touch(), f"{other.ip}:{BUS_PORT}")

    def is_stalled(self, name: str) -> bool:
        """Whether its link with that machine's node has said nothing for too long."""
        end = self.linked.get(name)
        return end is not None and self.cluster.kind.is_stalled(self.node, end.peer)

    def frame(self, end: Endpoint, data: bytes) -> bool:
        was_linked = getattr(end.peer, "is_linked", True)  # or it has ended the link itself, and this was still to come
        is_good = self.touch().frame(end.peer, data)
        if not is_good and was_linked:
            self.cluster.seen("protocol", "bad-frame", "", f"{self.name} refused a frame of {end.other.host.name}")
        return is_good

    # -- the end of a turn ---------------------------------------------------------------------------------

    def finish_turn(self) -> None:
        self.is_dirty = False
        node = self.node
        if node is None:
            return
        cluster = self.cluster
        node.flush()
        if node.faults:
            cluster.seen("error", "internal-error", "", f"at {self.name}: {node.faults[0]}")
            node.faults.clear()
        records = node.take_records()
        must_sync = cluster.kind.must_sync(node)
        if self.doom and records:
            self.die_in_turn(records)
            return
        if self.disk.is_full and self.disk.policy != NONE:
            if records:
                self.disk.waiting += records
                self.disk.owes = self.disk.owes or self.disk.needs_sync(must_sync)
                cluster.kind.refuse(node, NO_ROOM)
            is_told = len(records) > 0 or (len(node.frames) > 0 and "owed-words-leave" not in cluster.mutants)
            if self.disk.owes and is_told:
                self.break_off(node)
                return
        elif records:
            self.disk.write(records, cluster.now, must_sync)
            if cluster.rewrites:
                self.rewrite_some(node)
            cluster.kind.make_room(node)
            if self.disk.slow_ms and self.disk.needs_sync(must_sync):
                self.wait_for_sync(node)
                return
        self.speak(node)

    def wait_for_sync(self, node: Machine) -> None:
        """Nothing of the turn leaves before its records are on the disk, and that takes long."""
        cluster = self.cluster
        self.is_paused = True
        cluster.update_calm()

        def synced(_: None) -> None:
            if self.node is node:
                self.speak(node)
                self.resume()

        cluster.push(cluster.now + self.disk.slow_ms, synced, None)

    def break_off(self, node: Machine) -> None:
        """What this turn would have said is not on the disk and should be: nothing is said, to nobody."""
        owed, self.owed = self.owed, []
        woken = [self.clients.get(session) for session, _ in node.wakeups]
        del node.wakeups[:], node.frames[:]
        for client in [*[client for client, _ in owed], *woken]:
            if client is not None:
                client.close()
        for end in list(self.linked.values()):
            self.cluster.network.close(end, is_polite=True)
        self.arm(node)

    def speak(self, node: Machine) -> None:
        """What the turn came to leaves."""
        cluster = self.cluster
        for event, job in cluster.kind.take_told(node):
            cluster.history.mark(cluster.now, WATCH, self.name, "told", event=event, job=job)
        frames = node.frames
        if frames:
            links = self.links
            send = cluster.network.send
            for peer, data in frames:
                end = links.get(peer)
                if end is not None:
                    send(end, data)
            del frames[:]
        if self.owed:
            owed, self.owed = self.owed, []
            for client, data in owed:
                client.receive(data)
        wakeups = node.wakeups
        if wakeups:
            woken = wakeups[:]
            del wakeups[:]
            for session, data in woken:
                woken_client = self.clients.get(session)
                if woken_client is not None:
                    woken_client.woken(data)
        if node.requests:
            requests = node.requests[:]
            del node.requests[:]
            for request in requests:
                cluster.carry_out(self, request)
        if self.node is node:
            self.arm(node)

    def rewrite_some(self, node: Machine) -> None:
        """Every few seconds the disk is rewritten, with one slice a turn: faults come between any two of them."""
        cluster = self.cluster
        if self.walk is None:
            if cluster.now >= self.rewrite_t and self.disk.policy != NONE:
                self.rewrite_t = cluster.now + REWRITE_MS
                self.walk = cluster.kind.walk(node)
                if self.walk is not None:
                    self.disk.begin_rewrite()
            return
        self.disk.snapshot += self.walk.take_records(SLICE_BYTES)
        if self.walk.is_done:
            self.walk = None
            self.disk.end_rewrite()
            cluster.counters["rewrites"] += 1

    def die_in_turn(self, records: list[bytes]) -> None:
        """Power off between the first record and the first frame of a turn."""
        cluster = self.cluster
        keep = cluster.dice.randint(0, len(records))
        self.disk.write(records[:keep], cluster.now, False)
        cluster.counters["mid-turn"] += 1
        how, self.doom = self.doom, ""
        self.crash(how)

    def arm(self, node: Machine) -> None:
        """One live alarm: a new one only if it is earlier than the one that is set."""
        wake = node.next_wake()
        if wake >= NEVER:
            return
        cluster = self.cluster
        when = self.clock.when(wake)
        if when <= cluster.now:
            when = cluster.now + 1
        if when < self.alarm:
            self.alarm = when
            cluster.push(when, self.alarmed, (self.epoch, when))
