"""The network: paths with latency that can be cut or clogged, and connections that behave like TCP over them.

A connection delivers frames in order and once, or not at all: when it ends, what was on its way may still
arrive, but only a prefix of it. Nothing of an old connection arrives after a new one is up. The two ends
learn of the end at different times:

    polite       one end closes: the other hears of it behind the last frame, if the path lets it
    cut          packets stall. Each end gives up after its own patience, unless the path comes back before:
                 then everything arrives, late and in order. A one-way cut stalls one direction only. If ends back
                 off, as TCP does, what stalled is sent again after as long as it has stalled, or later
    break        both directions are dead at once, and each end notices some time later
    power cut    the far end notices when its patience ends, or when the node dials again

Dialling takes a handshake there and back. While the far end still believes in an older connection with the
same node, the new one replaces it: down first, then up. If both ends believe in the same one it stays, unless one of
them finds that it has said nothing for too long. Of two dials between the same nodes at the same time one is dropped,
as a shell does by comparing ids. Where a process was killed its machine refuses the connection.
"""
from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.testing.sim.host import KILL
from holdfast.testing.sim.machine import Peer

if TYPE_CHECKING:
    from holdfast.testing.sim.host import Host
    from holdfast.testing.sim.world import World

FRAMES_MAX: Final = 10_000
"""Frames one direction holds before the sender's buffer counts as full, which ends the connection."""

RETRY_MS: Final = 200
RETRY_MS_MAX: Final = 120_000
"""What was not acknowledged is sent again after the first of these, and then less and less often, as TCP does."""

CONNECT_MS: Final = 2_000
"""After so long another connection is tried, as a shell does."""

WELCOME: Final = "welcome"
FIN: Final = "fin"
Item: TypeAlias = "bytes | str"

HANDSHAKE, UP, CLOSED = 0, 1, 2


class Path:
    """One direction between two machines."""

    def __init__(self, src: str, dst: str) -> None:
        self.src, self.dst = src, dst
        self.low, self.high = 1, 3  # latency in ms
        self.tail = 0.0  # the share of frames that take up to `tail_ms` more
        self.tail_ms = 0
        self.blocks = 0  # cuts and clogs that hold it up
        self.cuts = 0  # how many of them are cuts, which make the ends give up
        self.generation = 0  # of cuts: an alarm for an older one means nothing
        self.stalled: list[Direction] = []

    def latency(self, dice: Random) -> int:
        low = self.low
        ms = low + int(dice.random() * (self.high - low + 1))
        if self.tail and dice.random() < self.tail:
            ms += int(dice.random() * self.tail_ms)
        return ms


class Direction:
    """What one end has sent and the other not yet got. `stalled` frames wait for the path to come back."""

    __slots__ = ("is_dead", "last", "path", "queue", "stalled", "stalled_t", "target")

    def __init__(self, path: Path, target: Endpoint) -> None:
        self.path = path
        self.target = target
        self.queue: deque[tuple[Item, int]] = deque()
        self.last = 0  # when the newest frame arrives: no later one may come before it
        self.stalled = 0
        self.stalled_t = 0  # since when
        self.is_dead = False  # nothing sent from now on arrives


class Endpoint:
    __slots__ = ("host", "host_epoch", "other", "out", "peer", "state")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.host_epoch = host.epoch
        self.state = HANDSHAKE
        self.peer: Peer = None
        self.other: Endpoint
        self.out: Direction


class Network:
    def __init__(self, cluster: World, names: str) -> None:
        self.cluster = cluster
        self.dice = Random(f"{cluster.seed}/network/0")
        self.paths = {(a, b): Path(a, b) for a in names for b in names if a != b}
        self.current: dict[tuple[str, str], Endpoint] = {}  # by ordered pair: the dialling end
        self.dialling: dict[tuple[str, str], int] = {}  # since when
        self.up_count = 0
        self.patience_ms = (2_000, 8_000)
        self.backs_off = False
        self.flight_max = 0
        self.frames = 0

    def add_host(self, name: str) -> list[Path]:
        """Paths from and to a machine that was not there before."""
        others = sorted({a for a, _ in self.paths})
        added = [Path(a, b) for other in others for a, b in ((name, other), (other, name))]
        self.paths.update({(path.src, path.dst): path for path in added})
        return added

    # -- dialling ------------------------------------------------------------------------------------------

    def dial(self, host: Host, address: str) -> None:
        cluster = self.cluster
        other = cluster.by_address.get(address)
        if other is None or other is host or self.is_in_use(host, other):
            return
        pair = (min(host.name, other.name), max(host.name, other.name))
        if pair in self.dialling and cluster.now < self.dialling[pair] + CONNECT_MS:
            return
        there, back = self.paths[host.name, other.name], self.paths[other.name, host.name]
        a, b = Endpoint(host), Endpoint(other)
        a.other, b.other = b, a
        a.out, b.out = Direction(there, b), Direction(back, a)
        self.dialling[pair] = cluster.now
        dice = self.dice
        ms = there.latency(dice) + back.latency(dice) + there.latency(dice)
        cluster.push(cluster.now + ms, self.accept, (pair, a))

    def accept(self, what: tuple[tuple[str, str], Endpoint]) -> None:
        """The dialled node has seen the handshake through. The dialler learns it from what comes back."""
        pair, a = what
        b = a.other
        self.dialling.pop(pair, None)
        if a.host.epoch != a.host_epoch or a.host.node is None or a.out.path.blocks or b.out.path.blocks:
            return
        if b.host.node is None and b.host.died == KILL:
            self.cluster.push(self.cluster.now + b.out.path.latency(self.dice), self.refuse, a)
        if b.host.node is None or b.host.is_paused:
            return
        if self.is_in_use(a.host, b.host) and self.is_in_use(b.host, a.host):
            return
        b.host_epoch = b.host.epoch
        old = self.current.get(pair)
        if old is not None:
            self.bury(old)
            self.bury(old.other)
        self.current[pair] = a
        if self.up(b):
            self.send(b, WELCOME)
        else:
            self.close(b, is_polite=True)

    def is_in_use(self, host: Host, other: Host) -> bool:
        """Whether it has a link with the other that says something now and then."""
        return other.name in host.linked and not host.is_stalled(other.name)

    def refuse(self, end: Endpoint) -> None:
        host = end.host
        if host.epoch != end.host_epoch or end.other.host.node is not None:
            return
        if host.is_paused:
            host.backlog.append(lambda: self.refuse(end))
        else:
            host.refused(end.other.host)

    def up(self, end: Endpoint) -> bool:
        """Tell the node that the link is there; False if it does not want it."""
        peer = end.host.link_up(end)
        if peer is None:
            return False
        end.peer = peer
        end.state = UP
        end.host.links[peer] = end
        end.host.linked[end.other.host.name] = end
        self.up_count += 1
        self.cluster.update_calm()
        return True

    # -- frames --------------------------------------------------------------------------------------------

    def send(self, end: Endpoint, item: Item) -> None:
        direction = end.out
        if direction.is_dead:
            return
        cluster = self.cluster
        now = cluster.now
        when = now + direction.path.latency(self.dice)
        if when < direction.last:
            when = direction.last
        direction.last = when
        direction.queue.append((item, now))
        cluster.push(when, self.arrive, direction)
        if len(direction.queue) > FRAMES_MAX:
            self.close(end, is_polite=False)

    def arrive(self, direction: Direction) -> None:
        queue = direction.queue
        if not queue:
            return  # cut off when its connection ended
        if direction.stalled or direction.path.blocks:
            if not direction.stalled:
                direction.path.stalled.append(direction)
                direction.stalled_t = self.cluster.now
            direction.stalled += 1
            return
        item, sent = queue.popleft()
        self.deliver(direction.target, item, sent)

    def resume(self, direction: Direction) -> None:
        """The path is open again: what was stalled arrives in one go."""
        if direction.path.blocks:
            direction.path.stalled.append(direction)
            return
        count, direction.stalled = direction.stalled, 0
        for _ in range(min(count, len(direction.queue))):
            item, sent = direction.queue.popleft()
            self.deliver(direction.target, item, sent)
        self.cluster.update_calm()

    def deliver(self, end: Endpoint, item: Item, sent: int) -> None:
        host = end.host
        if end.state == CLOSED or host.epoch != end.host_epoch:
            return
        if host.is_paused:
            host.backlog.append(lambda: self.deliver(end, item, sent))
            return
        flight = self.cluster.now - sent
        if flight > self.flight_max:
            self.flight_max = flight
        if item is WELCOME:
            if end.state == HANDSHAKE and not self.up(end):
                self.close(end, is_polite=True)
        elif item is FIN:
            self.close(end, is_polite=False)
        elif end.state == UP:
            assert isinstance(item, bytes)
            self.frames += 1
            if not host.frame(end, item):
                self.close(end, is_polite=True)

    # -- ending --------------------------------------------------------------------------------------------

    def close(self, end: Endpoint, is_polite: bool) -> None:
        """This end is done with the connection, and its node is told."""
        if end.state == CLOSED:
            return
        host = end.host
        was_up = end.state == UP and host.epoch == end.host_epoch
        if is_polite:
            self.send(end, FIN)
        end.out.is_dead = True
        end.state = CLOSED
        if was_up:
            self.forget(end)
            host.link_down(end)
            self.cluster.update_calm()

    def forget(self, end: Endpoint) -> None:
        self.up_count -= 1
        end.host.links.pop(end.peer, None)
        if end.host.linked.get(end.other.host.name) is end:
            del end.host.linked[end.other.host.name]

    def bury(self, end: Endpoint) -> None:
        """A newer connection takes the place of this one: it is down now, and nothing of it arrives later."""
        self.close(end, is_polite=False)
        end.out.queue.clear()
        end.out.stalled = 0

    def lose_tail(self, direction: Direction) -> None:
        """Of what is on its way a prefix arrives."""
        queue = direction.queue
        if queue and self.dice.random() < 0.7:
            for _ in range(len(queue) - self.dice.randrange(len(queue))):
                queue.pop()
        if direction.stalled > len(queue):
            direction.stalled = len(queue)

    def break_link(self, a: str, b: str) -> None:
        """Both directions die at once; each end finds out in its own time."""
        end = self.current.get((min(a, b), max(a, b)))
        if end is None:
            return
        for each in (end, end.other):
            if each.state != CLOSED:
                self.lose_tail(each.out)
                each.out.is_dead = True
                self.notice_later(each, 0, 2_000)

    def gone(self, host: Host, is_polite: bool) -> None:
        """The process is no more. Killed, its system says so; with the power off nobody does."""
        for end in list(host.linked.values()):
            self.forget(end)
            if is_polite:
                self.send(end, FIN)
            else:
                self.lose_tail(end.out)
                if end.out.path.blocks:  # what did not get through, nobody sends again
                    end.out.queue.clear()
                    end.out.stalled = 0
                self.notice_later(end.other, *self.patience_ms)
            end.out.is_dead = True
            end.state = CLOSED
        host.links.clear()
        self.cluster.update_calm()

    def notice_later(self, end: Endpoint, low: int, high: int) -> None:
        self.cluster.push(self.cluster.now + self.dice.randint(low, high), self.notice, end)

    def notice(self, end: Endpoint) -> None:
        if end.host.is_paused and end.host.epoch == end.host_epoch:
            end.host.backlog.append(lambda: self.notice(end))
        else:
            self.close(end, is_polite=False)

    # -- cuts and clogs ------------------------------------------------------------------------------------

    def block(self, pairs: list[tuple[str, str]], is_cut: bool) -> None:
        """Hold up the paths. If it is a cut the ends give up after a while; a clog only delays."""
        for pair in pairs:
            path = self.paths[pair]
            path.blocks += 1
            if is_cut:
                path.cuts += 1
                path.generation += 1
                self.watch(path)
        self.cluster.update_calm()

    def watch(self, path: Path) -> None:
        end = self.current.get((min(path.src, path.dst), max(path.src, path.dst)))
        if end is None:
            return
        low, high = self.patience_ms
        for each in (end, end.other):
            if each.state != CLOSED:
                when = self.cluster.now + self.dice.randint(low, high)
                self.cluster.push(when, self.give_up, (each, path, path.generation))

    def give_up(self, what: tuple[Endpoint, Path, int]) -> None:
        """A cut has lasted as long as this end's patience."""
        end, path, generation = what
        if path.cuts and path.generation == generation and end.state != CLOSED:
            if end.out.path.blocks:  # what did not get through never will; that the end is closed may, later
                end.out.queue.clear()
                end.out.stalled = 0
                self.send(end, FIN)
            self.notice(end)

    def sent_again(self, direction: Direction) -> int:
        """When its system tries once more, with twice the pause each time."""
        pause, when = RETRY_MS, direction.stalled_t + RETRY_MS
        while when < self.cluster.now:
            pause = min(2 * pause, RETRY_MS_MAX)
            when += pause
        return when

    def unblock(self, pairs: list[tuple[str, str]], is_cut: bool) -> None:
        for pair in pairs:
            path = self.paths[pair]
            path.blocks -= 1
            path.cuts -= is_cut
            if path.blocks == 0:
                stalled, path.stalled = path.stalled, []
                for direction in stalled:
                    again = self.sent_again(direction) if self.backs_off else self.cluster.now
                    when = max(again + path.latency(self.dice), direction.last)
                    direction.last = when
                    self.cluster.push(when, self.resume, direction)
        self.cluster.update_calm()
