"""Does the faults to the cluster: each begins at its time and ends by itself, or when the cluster is healed.

Begin and end are marked in the history, so that checkers know what the nodes had to live with.
"""
from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.testing.history import NEMESIS
from holdfast.testing.sim.faults import TAILS_MS, Fault
from holdfast.testing.sim.host import KILL, POWER, WIPE, Host

if TYPE_CHECKING:
    from holdfast.testing.sim.world import World

Undo: TypeAlias = Callable[[], None]
Pairs: TypeAlias = list[tuple[str, str]]

DOOM_MS: Final = 1_000
"""A crash in the middle of a turn waits this long for a turn that writes; then it is a plain power cut."""


SLOW_MS: Final = 3_000


def between(some: str, others: str) -> Pairs:
    """Paths from each of `some` to each of `others`, and back."""
    return [pair for a in some for b in others if a != b for pair in ((a, b), (b, a))]


class Nemesis:
    def __init__(self, cluster: World) -> None:
        self.cluster = cluster
        self.count = 0
        self.running: dict[int, tuple[Fault, Undo]] = {}

    def plan(self, schedule: tuple[Fault, ...], offset: int) -> None:
        for fault in schedule:
            self.cluster.push(offset + fault.at_ms, self.begin, fault)

    def begin(self, fault: Fault, undo: Undo | None = None) -> int:
        """Do it, unless it has been done; it ends after `for_ms`, or never by itself if that is 0."""
        cluster = self.cluster
        self.count += 1
        number = self.count
        cluster.counters[f"fault-{fault.kind}"] += 1
        cluster.history.mark(
            cluster.now, NEMESIS, "", "fault", number=number, kind=fault.kind, who=fault.who, phase="begin"
        )
        self.running[number] = (fault, lambda: None)
        self.running[number] = (fault, undo or getattr(self, f"do_{fault.kind}")(fault))
        if fault.for_ms:
            cluster.push(cluster.now + fault.for_ms, self.finish, number)
        cluster.update_calm()
        return number

    def finish(self, number: int) -> None:
        running = self.running.pop(number, None)
        if running is None:
            return
        fault, undo = running
        undo()
        cluster = self.cluster
        cluster.history.mark(
            cluster.now, NEMESIS, "", "fault", number=number, kind=fault.kind, who=fault.who, phase="end"
        )
        cluster.update_calm()

    def heal(self) -> None:
        for number in list(self.running):
            self.finish(number)
        for host in self.cluster.hosts.values():
            host.doom = ""
            host.resume()
            host.boot()

    # -- the network ---------------------------------------------------------------------------------------

    def block(self, pairs: Pairs, is_cut: bool = True) -> Undo:
        network = self.cluster.network
        network.block(pairs, is_cut)
        return lambda: network.unblock(pairs, is_cut)

    def hold(self, some: str, others: str, is_cut: bool, is_both: bool) -> int:
        """Block chosen paths until `finish` of the number returned: for directed scenarios."""
        pairs = between(some, others) if is_both else [(a, b) for a in some for b in others if a != b]
        return self.begin(Fault(self.cluster.now, "cut" if is_cut else "clog", some, 0), self.block(pairs, is_cut))

    def rest(self, some: str) -> str:
        return "".join(name for name in self.cluster.names if name not in some)

    def do_cut(self, fault: Fault) -> Undo:
        return self.block(between(fault.who, self.rest(fault.who)))

    def do_isolate(self, fault: Fault) -> Undo:
        return self.block(between(fault.who, self.rest(fault.who)))

    def do_oneway(self, fault: Fault) -> Undo:
        return self.block([(a, b) for a in fault.who for b in self.rest(fault.who)])

    def do_deaf(self, fault: Fault) -> Undo:
        return self.block([(b, a) for a in fault.who for b in self.rest(fault.who)])

    def do_bridge(self, fault: Fault) -> Undo:
        half = len(fault.who) // 2
        return self.block(between(fault.who[:half], fault.who[half + 1:]))

    def do_flap(self, fault: Fault) -> Undo:
        a, b = fault.who[0], fault.who[1]
        state: list[Undo] = []
        cluster = self.cluster

        def flip(number: int) -> None:
            if number not in self.running:
                return
            if state:
                state.pop()()
            else:
                state.append(self.block(between(a, b)))
            cluster.push(cluster.now + cluster.dice.randint(100, 2_500), flip, number)

        flip(self.count)
        return lambda: state.pop()() if state else None

    def do_break(self, fault: Fault) -> Undo:
        self.cluster.network.break_link(fault.who[0], fault.who[1])
        return lambda: None

    def do_clog(self, fault: Fault) -> Undo:
        return self.block([(fault.who[0], fault.who[1])], is_cut=False)

    def do_slow(self, fault: Fault) -> Undo:
        path = self.cluster.network.paths[fault.who[0], fault.who[1]]
        path.low, path.high = 200, SLOW_MS

        def faster() -> None:
            self.cluster.set_latency(path)
            self.cluster.moments.quieter(SLOW_MS + max(TAILS_MS))

        return faster

    # -- processes -----------------------------------------------------------------------------------------

    def do_pause(self, fault: Fault) -> Undo:
        host = self.cluster.hosts[fault.who]
        if host.node is None or host.is_paused:
            return lambda: None
        host.pause()
        return host.resume

    def do_kill(self, fault: Fault) -> Undo:
        return self.stop(fault.who, KILL)

    def do_power(self, fault: Fault) -> Undo:
        return self.stop(fault.who, POWER)

    def do_wipe(self, fault: Fault) -> Undo:
        return self.stop(fault.who, WIPE)

    def stop(self, who: str, how: str) -> Undo:
        for name in who:
            self.cluster.hosts[name].crash(how)
        return lambda: self.boot(who)

    def boot(self, who: str) -> None:
        for name in who:
            self.cluster.hosts[name].boot()

    def do_crash(self, fault: Fault) -> Undo:
        host = self.cluster.hosts[fault.who]
        epoch = host.epoch
        if host.node is None:
            return host.boot
        host.doom = POWER

        def now_then(_: None) -> None:
            if host.epoch == epoch and host.doom:
                host.crash(POWER)

        self.cluster.push(self.cluster.now + min(DOOM_MS, max(1, fault.for_ms - 1)), now_then, None)
        return host.boot

    def do_blackout(self, fault: Fault) -> Undo:
        return self.stop(fault.who, POWER)

    def do_rolling(self, fault: Fault) -> Undo:
        """One after the other goes down for a moment."""
        cluster = self.cluster
        number = self.count
        step = max(20, fault.for_ms // (2 * len(fault.who)))

        def down(host: Host) -> None:
            if number in self.running:
                host.crash(KILL)
                cluster.push(cluster.now + step, Host.boot, host)

        for i, name in enumerate(fault.who):
            cluster.push(cluster.now + 1 + 2 * i * step, down, cluster.hosts[name])
        return lambda: self.boot(fault.who)

    # -- clocks and people ---------------------------------------------------------------------------------

    def do_jump(self, fault: Fault) -> Undo:
        self.cluster.hosts[fault.who].clock.skew += fault.amount
        return lambda: None

    def do_leaving(self, fault: Fault) -> Undo:
        self.cluster.tell(fault.who, "CLUSTER", "LEAVING", "yes")
        return lambda: self.cluster.tell(fault.who, "CLUSTER", "LEAVING", "no")

    def do_forget(self, fault: Fault) -> Undo:
        cluster = self.cluster
        host = cluster.hosts[fault.who]
        host.crash(KILL)
        for name in self.rest(fault.who):
            cluster.tell(name, "CLUSTER", "FORGET", host.node_id)

        def come_back() -> None:
            host.boot()
            cluster.join(host)

        return come_back

    # -- membership that nobody tidies up, and restarts at a bad moment ------------------------------------

    def do_gone(self, fault: Fault) -> Undo:
        """It never comes back, not even when the cluster is healed, and nobody forgets it."""
        self.cluster.hosts[fault.who].leave_for_good(self.end_of_life())
        return lambda: None

    def do_stranger(self, fault: Fault) -> Undo:
        host = self.cluster.hosts[fault.who]
        host.make_stranger(self.end_of_life(), self.door(fault))
        return host.boot

    def do_strangers(self, fault: Fault) -> Undo:
        """One container after the other, none with a volume, at the same address."""
        cluster = self.cluster
        host = cluster.hosts[fault.who]
        step = max(100, fault.for_ms // (2 * max(1, fault.amount)))
        number = self.count

        def down(_: None) -> None:
            if number in self.running:
                host.make_stranger(self.end_of_life(), "")
                cluster.push(cluster.now + step, Host.boot, host)

        for i in range(fault.amount):
            cluster.push(cluster.now + 2 * i * step, down, None)
        return host.boot

    def do_join(self, fault: Fault) -> Undo:
        """A machine that was never there before."""
        if fault.who not in self.cluster.hosts:
            self.cluster.add_host(fault.who, self.door(fault))
        return lambda: None

    def end_of_life(self) -> str:
        """Its system may live to close its connections, or not."""
        return self.cluster.dice.choice([KILL, POWER])

    def door(self, fault: Fault) -> str:
        """Which nodes a newcomer is told of: all of them, or one that is up."""
        up = [name for name in self.rest(fault.who) if self.cluster.hosts[name].node is not None]
        return self.cluster.dice.choice(up) if fault.amount and up else ""

    def do_recrash(self, fault: Fault) -> Undo:
        """The power goes soon after a restart: of what an earlier life had not synced, too, some may be lost."""
        cluster = self.cluster
        host = cluster.hosts[fault.who]
        number = self.count
        host.crash(KILL)
        up_t = cluster.now + max(1, (fault.for_ms - fault.amount) // 2)

        def cut(_: None) -> None:
            if number in self.running:
                host.crash(POWER)

        cluster.push(up_t, Host.boot, host)
        cluster.push(up_t + fault.amount, cut, None)
        return host.boot

    def do_reclock(self, fault: Fault) -> Undo:
        host = self.cluster.hosts[fault.who]
        host.crash(KILL)
        host.clock.skew += fault.amount
        return host.boot

    # -- disks that fail -----------------------------------------------------------------------------------

    def do_damage(self, fault: Fault) -> Undo:
        host = self.cluster.hosts[fault.who]
        host.crash(KILL)
        host.damage_disk(Random(f"{self.cluster.seed}/damage/{self.count}"), fault.amount)
        return host.boot

    def do_full(self, fault: Fault) -> Undo:
        host = self.cluster.hosts[fault.who]
        host.disk.is_full = host.node is not None
        return host.make_room

    def do_slowsync(self, fault: Fault) -> Undo:
        disk = self.cluster.hosts[fault.who].disk
        disk.slow_ms = fault.amount

        def quick() -> None:
            disk.slow_ms = 0

        return quick

    def do_eio(self, fault: Fault) -> Undo:
        """It refuses everybody and ends its links, so it is as good as down until somebody starts it again."""
        return self.stop(fault.who, POWER)

    def do_freeze(self, fault: Fault) -> Undo:
        frozen = [host for host in map(self.cluster.hosts.__getitem__, fault.who) if not host.is_paused]
        frozen = [host for host in frozen if host.node is not None]
        for host in frozen:
            host.pause()

        def thaw() -> None:
            for host in frozen:
                host.resume()

        return thaw
