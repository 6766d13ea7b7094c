"""More jobs than memory: what goes to disk, what comes back, and what happens when the disk will not have it."""
from __future__ import annotations

import pytest

from holdfast.core.job import AWAY, Run
from holdfast.core.limits import MIB
from holdfast.testing.sim.store import Shelf, every_job

from .making import START_MS, Bench


class Full(Bench):
    """A node of a megabyte with a store; what a turn of it leaves behind is moved at the end of the turn."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**{"maxmemory": "1mb", **settings})
        self.shelf = Shelf()
        self.node.overflow.begin(self.shelf)

    def turn(self, *words: bytes | str) -> bytes | None:
        reply = self.do(*words)
        while self.node.overflow.is_due() and self.node.overflow.step():
            pass
        return reply

    def fill(self, count: int, size: int, *options: str, queue: str = "q") -> None:
        for number in range(count):
            reply = self.turn("ADDJOB", queue, b"%06d" % number + bytes(size - 6), "0", *options)
            assert reply is not None and reply.startswith(b"+DI"), reply

    def take(self, acks: bool = False) -> bytes:
        reply = self.turn("GETJOB", "NOHANG", "FROM", "q") or b""
        if not reply.startswith(b"*1"):
            return b""
        words = reply.split(b"\r\n")
        if acks:
            assert self.turn("ACKJOB", words[5]) == b":1\r\n"
        return words[7][:6]


@pytest.mark.parametrize("size", [64, 1000, 5000])
def test_ten_times_the_memory_is_queued_and_comes_in_order(size: int) -> None:
    node = (world := Full()).node
    count = 10 * MIB // (size + 208)
    world.fill(count, size)
    assert node.queues[b"q"].size == count and node.used < 0.65 * MIB
    assert node.overflow.folded > 0.6 * count
    for number in range(count):
        assert world.take(acks=True) == b"%06d" % number
        assert node.used < 0.7 * MIB
    assert world.take() == b"" and node.overflow.folded == node.overflow.away == 0 and not world.shelf.pieces


def test_adding_and_taking_go_on_together() -> None:
    world = Full()
    world.fill(8000, 200)
    for number in range(8000):
        world.turn("ADDJOB", "q", b"%06d" % (number + 8000), "0")
        assert world.take(acks=True) == b"%06d" % number
    assert world.node.queues[b"q"].size == 8000


def test_jobs_that_are_out_or_delayed_leave_their_bodies_on_disk() -> None:
    """None of them is queued, so there is no run to fold; bodies are what can go."""
    world = Full()
    world.fill(1500, 3000, "DELAY", "100")
    node = world.node
    assert node.used < 0.65 * MIB and node.overflow.away > 1000 and node.overflow.folded == 0
    world.now = START_MS + 100_000
    node.set_time(world.now, world.now)
    while node.next_wake() <= world.now:
        node.tick()
    for number in range(1500):
        assert world.take() == b"%06d" % number


def test_many_short_queues_go_to_disk_too() -> None:
    """No queue has a whole block of jobs."""
    world = Full()
    for number in range(40):
        world.fill(200, 64, queue=f"q{number}")
    assert world.node.overflow.folded > 5_000


def test_a_job_on_disk_is_found_by_its_id() -> None:
    world = Full()
    ids = []
    for number in range(5000):
        reply = world.turn("ADDJOB", "q", b"%06d" % number + bytes(300), "0")
        ids.append((reply or b"")[1:-2])
    in_memory = {world.node.id_text(job) for job in world.node.all_jobs()}
    away = [jid for jid in ids if jid not in in_memory]
    assert len(away) > 1000
    shown = world.do("SHOW", away[7]) or b""
    assert b"queued" in shown and b"%06d" % ids.index(away[7]) in shown
    assert world.do("ACKJOB", away[100], away[900]) == b":2\r\n"
    assert world.do("DELJOB", away[901]) == b":1\r\n"
    assert world.do("DEQUEUE", away[902]) == b":1\r\n"
    assert world.do("SHOW", away[100]) == b"$-1\r\n"
    assert world.node.queues[b"q"].size == 4996


def test_a_life_ends_on_disk_as_elsewhere() -> None:
    world = Full()
    world.fill(3000, 300, "TTL", "10")
    world.fill(100, 300)
    assert world.node.overflow.folded > 1500
    world.now = START_MS + 10_001
    world.node.set_time(world.now, world.now)
    while world.node.next_wake() <= world.now:
        world.node.tick()
    assert world.node.expired == 3000 and world.node.jobs == 100 and world.node.overflow.folded < 100


def test_looking_leaves_what_is_on_disk_there() -> None:
    world = Full()
    world.fill(5000, 200)
    folded = world.node.overflow.folded
    peeked = world.do("QPEEK", "q", "3000") or b""
    assert peeked.count(b"\r\n$48\r\n") == 3000 and b"002999" in peeked
    assert (world.do("QPEEK", "q", "-1000") or b"").split(b"\r\n")[7][:6] == b"004999"
    scanned = world.do("JSCAN", "0", "COUNT", "10000", "QUEUE", "q") or b""
    assert scanned.count(b"+DI") == 5000
    assert world.node.overflow.folded == folded


def test_a_queue_on_disk_can_be_flushed() -> None:
    world = Full()
    world.fill(5000, 200)
    assert world.do("QFLUSH", "q") == b":5000\r\n"
    assert world.node.jobs == 0 and not world.shelf.pieces and world.node.overflow.folded == 0


def test_without_room_on_disk_the_node_is_full_as_ever_and_recovers() -> None:
    world = Full()
    world.shelf.is_full = True
    replies = [world.turn("ADDJOB", "q", bytes(900), "0") or b"" for _ in range(1200)]
    assert replies[0].startswith(b"+DI") and replies[-1].startswith(b"-OOM")
    assert world.node.overflow.trouble == "No space left on device"
    assert any("No space left" in words for _, words in world.node.notices)
    queued = world.node.queues[b"q"].size
    world.shelf.is_full = False
    world.now += 1000
    assert (world.turn("ADDJOB", "q", bytes(900), "0") or b"").startswith(b"+DI")
    assert world.node.overflow.folded > 0 and world.node.overflow.trouble == ""
    assert world.node.queues[b"q"].size == queued + 1


def test_a_node_full_of_what_stays_in_memory_refuses_at_once() -> None:
    """Jobs with keys and short bodies are not moved. To find that out is a walk over all: not one for each refusal."""
    world = Full()
    replies = [world.do("ADDJOB", "q", b"short", "0", "TENANT", f"t{number % 7}") or b"" for number in range(3000)]
    assert replies[0].startswith(b"+DI") and replies[-1].startswith(b"-OOM")
    assert sum(reply.startswith(b"-OOM") for reply in replies) > 1000 and world.node.overflow.barren <= 1
    world.now += 1000
    world.turn("ADDJOB", "q", b"short", "0")
    assert world.node.overflow.barren == 2  # there might have been something by now


def test_what_cannot_be_read_stays_and_is_said() -> None:
    world = Full()
    world.fill(5000, 200)
    world.shelf.is_broken = True
    node = world.node
    taken = 0
    while world.take():
        taken += 1
    assert 0 < taken < 5000 and node.queues[b"q"].size == 5000 - taken and not node.faults
    run = next(job for page in node.own.pages.values() for job in page.slots if isinstance(job, Run))
    world.shelf.is_broken = False
    jid = node.id_text(node.overflow.read(run)[0])
    world.shelf.is_broken = True
    assert (world.do("SHOW", jid) or b"").startswith(b"-MISCONF a job that is on disk cannot be read")
    world.shelf.is_broken = False
    assert world.take() == b"%06d" % taken


def test_a_body_that_cannot_be_read_puts_its_job_back() -> None:
    world = Full()
    for number in range(400):
        world.do("ADDJOB", "q", b"%06d" % number + bytes(2000), "0")
    world.node.overflow.put_bodies(world.node.all_jobs(), 1)
    world.shelf.is_broken = True
    assert world.take() == b"" and world.node.queues[b"q"].size == 400
    world.shelf.is_broken = False
    assert [world.take() for _ in range(400)] == [b"%06d" % number for number in range(400)]


def test_a_job_that_comes_back_takes_its_old_place_on_disk() -> None:
    """A hundred jobs are out while the rest overflows; refused, they are first again."""
    world = Full()
    world.fill(300, 200, "RETRY", "1000")
    for _ in range(100):
        world.take()
    out = [world.node.id_text(job) for job in world.node.all_jobs() if job.state == 1]
    world.fill(5000, 200)
    world.do("NACK", *out)
    assert [world.take() for _ in range(100)] == [b"%06d" % number for number in range(100)]


def test_off_means_off() -> None:
    world = Full(overflow_from="0")
    replies = [world.turn("ADDJOB", "q", bytes(900), "0") or b"" for _ in range(1200)]
    assert replies[-1].startswith(b"-OOM") and not world.shelf.pieces


def test_every_job_is_one_wherever_it_is() -> None:
    world = Full()
    world.fill(4000, 300)
    jobs = every_job(world.node)
    assert len(jobs) == 4000 == len({job.seq for job in jobs})
    assert {bool(job.flags & AWAY) for job in jobs} == {False}
    assert all(job.body[:6].isdigit() for job in jobs)
