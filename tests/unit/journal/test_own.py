"""Queues with journals of their own: files, policies, moving there and back, and a crash at any point of it."""
from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from holdfast.journal.folder import Folder, JournalError
from holdfast.journal.own import Work

from .making import START_MS, Crash, CrashDisk, Hasty, Life

LATER = START_MS + 1000
SEEDS = int(os.environ.get("OWN_SEEDS", "15"))


def work(life: Life) -> Work | None:
    return life.journal.next_work(0, 0)


def settle(life: Life) -> None:
    """All that the settings ask for is done."""
    while (each := work(life)) is not None:
        each.begin()
        while not each.step():
            pass
        each.sync()
        each.end()


def own(life: Life, *settings: str) -> None:
    assert life.do("QUEUE", "SET", "q", "journal", "own", *settings) == b"+OK\r\n"
    settle(life)


def shared(life: Life) -> None:
    assert life.do("QUEUE", "SET", "q", "journal", "shared") == b"+OK\r\n"
    settle(life)


def names(life: Life, queue: bytes = b"q") -> list[bytes]:
    found = life.node.queues.get(queue)
    return [] if found is None else [job.body for job in found.oldest(1000)]


def folders(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "queues").glob("*"))


def test_a_queue_has_its_own_files_and_comes_back_from_them(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    life.add("before")
    life.do("ADDJOB", "other", "elsewhere", "0")
    own(life)
    shared_size = life.journal.size()
    out = life.get()
    for number in range(100):
        life.add(str(number))
    assert life.journal.size() == shared_size, "what happens to q is not in the journal of the node"
    assert len(folders(tmp_path)) == 1
    life.kill()
    life = Life(tmp_path, policy="no", now=LATER)
    assert names(life) == [b"%d" % number for number in range(100)]
    assert names(life, b"other") == [b"elsewhere"]
    assert life.node.find(out) is not None and life.node.jobs == 102
    life.add("after")
    life.kill()
    life = Life(tmp_path, policy="no", now=LATER + 1000)
    assert names(life)[-1] == b"after"
    life.kill()


def test_it_syncs_as_it_is_told_and_the_others_do_not_wait(tmp_path: Path) -> None:
    disk = CrashDisk(tmp_path)
    life = Life(tmp_path, disk, policy="no")
    own(life, "fsync", "always")
    writer = life.journal.own.by_name[b"q"].writer
    life.add("synced")
    assert writer.synced == writer.position
    life.do("ADDJOB", "other", "not synced", "0")
    assert life.journal.writer.synced < life.journal.writer.position
    life.do("QUEUE", "SET", "q", "fsync", "default")
    life.journal.tick()
    life.add("not synced")
    assert writer.synced < writer.position
    shown = life.do("QUEUE", "GET", "q", "journal", "fsync")
    assert shown == b"*4\r\n$7\r\njournal\r\n$3\r\nown\r\n$5\r\nfsync\r\n$7\r\ndefault\r\n"
    life.kill()


def test_back_to_the_journal_of_the_node(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    own(life)
    jid = life.add("acknowledged")
    life.add("kept", "RETRY", "0")
    life.add("delayed", "DELAY", "100")
    shared(life)
    assert folders(tmp_path) == [] and not life.node.books.by_name
    assert life.do("ACKJOB", jid) == b":1\r\n"
    life.kill()
    life = Life(tmp_path, policy="no", now=LATER)
    assert names(life) == [b"kept"] and life.node.jobs == 2
    life.kill()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_a_rewrite_of_either_leaves_the_other_alone(tmp_path: Path, is_clean: bool) -> None:
    life = Life(tmp_path, policy="no")
    own(life)
    for number in range(300):
        life.add(str(number))
        life.do("ADDJOB", "other", str(number), "0")
    for _ in range(200):
        life.do("ACKJOB", life.get())
    before = life.journal.own.by_name[b"q"].size()
    assert life.journal.rewrite_now() and life.journal.own.by_name[b"q"].rewrite_now()
    assert life.journal.own.by_name[b"q"].size() < before
    life.add("after")
    life.close(with_snapshot=True) if is_clean else life.kill()
    life = Life(tmp_path, policy="no", now=LATER)
    assert names(life) == [*[b"%d" % number for number in range(200, 300)], b"after"]
    assert len(names(life, b"other")) == 300
    life.kill()


def test_a_job_that_changes_its_queue_changes_its_journal(tmp_path: Path) -> None:
    """There and back, and each time a restart finds it once, where it was last."""
    life = Life(tmp_path, policy="no")
    own(life)
    jid = life.add("wanderer", "RETRY", "0")
    stays = life.add("stays")
    for turn, queue in enumerate(["other", "q", "other"]):
        assert life.do("MOVE", jid, queue) == b":1\r\n"
        life.kill()
        life = Life(tmp_path, policy="no", now=LATER + turn)
        here = life.node.find(jid)
        assert here is not None and here.queue.name == queue.encode() and here.body == b"wanderer"
        assert life.node.jobs == 2 and life.node.find(stays) is not None
    assert life.do("DELJOB", jid) == b":1\r\n"
    life.kill()
    life = Life(tmp_path, policy="no", now=LATER + 10)
    assert life.node.jobs == 1
    life.kill()


@pytest.mark.parametrize("way", [("q", "other"), ("other", "q")], ids=["away", "in"])
def test_a_job_that_a_crash_left_in_two_journals_ends_in_both(tmp_path: Path, way: tuple[str, str]) -> None:
    """The power fails between the two words that change its queue. Its ack in the next life holds in the one after."""
    seen = 0
    for step in range(1000):
        folder = tmp_path / str(step)
        folder.mkdir()
        disk = CrashDisk(folder)
        life = Life(folder, disk)
        own(life)
        jid = life.do("ADDJOB", way[0], "wanderer", "0", "RETRY", "3600")[1:-2]
        disk.dies_at = disk.steps + step
        with contextlib.suppress(Crash):
            life.do("MOVE", jid, way[1])
            break
        life.kill()
        left = tmp_path / f"{step}.left"
        disk.left(left, True, 0)
        life = Life(left, Hasty(), now=LATER)
        assert life.node.find(jid) is not None
        life.add("a turn of its own")
        assert life.do("ACKJOB", jid) == b":1\r\n"
        life.kill()
        life = Life(left, Hasty(), now=LATER + 1000)
        assert life.node.find(jid) is None, f"acknowledged, and back (step {step})"
        life.kill()
        seen += 1
    assert seen >= 4


def test_what_a_move_that_was_cut_short_left_behind_stands_in_nobodys_way(tmp_path: Path) -> None:
    """The jobs of q are on their way back to the journal of the node when the power fails. Then one of them is put
    into another queue with a journal of its own: it is there, whatever the first still says of it."""
    life = Life(tmp_path)
    assert life.do("QUEUE", "SET", "other", "journal", "own") == b"+OK\r\n"
    settle(life)
    own(life)
    jid = life.add("wanderer")
    life.do("QUEUE", "SET", "q", "journal", "shared")
    each = work(life)
    assert each is not None
    each.begin()
    while not each.step():
        pass
    life.kill()
    life = Life(tmp_path, now=LATER)
    assert life.do("MOVE", jid, "other") == b":1\r\n"
    life.kill()
    life = Life(tmp_path, now=LATER + 1000)
    job = life.node.find(jid)
    assert job is not None and job.queue.name == b"other"
    life.kill()


def cut_short(life: Life) -> Work:
    """The jobs of q are on their way back to the journal of the node, all but the last word."""
    assert life.do("QUEUE", "SET", "q", "journal", "shared") == b"+OK\r\n"
    each = work(life)
    assert each is not None
    each.begin()
    while not each.step():
        pass
    return each


@pytest.mark.parametrize("how", ["killed", "put off"])
def test_what_ended_since_a_move_was_cut_short_stays_ended_after_the_next(tmp_path: Path, how: str) -> None:
    """The journal of the node has the job from the first try, and hears of its ack nowhere, since only the queue's own
    has to. The second try does not write a job that is gone. Nobody takes the first one's word then."""
    life = Life(tmp_path)
    own(life)
    jid, other, stays = life.add("acknowledged"), life.add("put elsewhere"), life.add("stays")
    each = cut_short(life)
    if how == "killed":
        life.kill()
        life = Life(tmp_path, now=LATER)
    else:
        each.abandon(OSError(0, "put off"))
    assert life.do("ACKJOB", jid) == b":1\r\n"
    assert life.do("MOVE", other, "elsewhere") == b":1\r\n"
    if how == "killed":
        life.kill()
        life = Life(tmp_path, now=LATER + 500)
        assert names(life) == [b"stays"] and names(life, b"elsewhere") == [b"put elsewhere"]
    settle(life)
    assert folders(tmp_path) == []
    life.kill()
    life = Life(tmp_path, now=LATER + 1000)
    assert life.node.find(jid) is None, "acknowledged, and back"
    assert names(life) == [b"stays"] and names(life, b"elsewhere") == [b"put elsewhere"]
    assert life.node.find(stays) is not None and life.node.jobs == 2
    life.kill()


def test_a_flush_of_everything_is_one_of_the_own_journal_too(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    own(life)
    life.add("gone")
    life.do("ADDJOB", "other", "gone", "0")
    assert life.do("DEBUG", "FLUSHALL") == b"+OK\r\n"
    life.add("after")
    life.kill()
    life = Life(tmp_path, policy="no", now=LATER)
    assert names(life) == [b"after"] and life.node.jobs == 1
    life.kill()


def test_a_missing_journal_of_a_queue_is_named(tmp_path: Path) -> None:
    life = Life(tmp_path, policy="no")
    own(life)
    life.add("lost")
    life.kill()
    for path in Folder.look(tmp_path / "queues" / folders(tmp_path)[0]).files():
        path.unlink()
    with pytest.raises(JournalError, match="the journal of the queue q is missing"):
        Life(tmp_path, now=LATER)


def live(life: Life, told: dict[str, set[bytes]]) -> None:
    """Moves of the queue to its own journal and back, with jobs added, taken and acknowledged at every step."""
    def act(number: int) -> None:
        jid = life.add(f"{number:04d}", *(["RETRY", "0"] if number % 5 == 4 else []))
        told["added"].add(jid)
        if number % 3 == 0:
            got = life.get()
            job = life.node.find(got)
            if got and job is not None and job.retry == 0:
                told["once"].add(got)
            elif got:
                told["asked"].add(got)
                if life.do("ACKJOB", got) == b":1\r\n":
                    told["ended"].add(got)

    number = 0
    for way in ("own", "shared", "own"):
        for _ in range(4):
            act(number := number + 1)
        life.do("QUEUE", "SET", "q", "journal", way)
        each = work(life)
        assert each is not None
        each.begin()
        is_done = False
        while not is_done:
            act(number := number + 1)
            is_done = each.step()
        act(number := number + 1)
        each.sync()
        each.end()
        act(number := number + 1)
    life.journal.rewrite_now()
    act(number + 1)


def steps_of(folder: Path) -> int:
    disk = CrashDisk(folder)
    folder.mkdir()
    live(Life(folder, disk, segment_bytes=400), {"added": set(), "once": set(), "asked": set(), "ended": set()})
    return disk.steps


@pytest.mark.parametrize("halfway", [False, True], ids=["before", "halfway"])
def test_a_crash_at_any_step_of_moving_loses_nothing_and_doubles_nothing(tmp_path: Path, halfway: bool) -> None:
    """With each write and sync of it in turn the power fails; of what was not synced nothing is left, or all."""
    steps = steps_of(tmp_path / "whole")
    assert steps > 150
    for dies_at in range(steps):
        told: dict[str, set[bytes]] = {"added": set(), "once": set(), "asked": set(), "ended": set()}
        before = tmp_path / f"{dies_at}"
        before.mkdir()
        disk = CrashDisk(before, dies_at, halfway)
        with contextlib.suppress(Crash):
            live(Life(before, disk, segment_bytes=400), told)
        for are_names_safe, torn in ((True, 0), (True, 10_000), (False, 0), (False, 10_000)):
            after = tmp_path / f"{dies_at}.{torn}.{are_names_safe}"
            disk.left(after, are_names_safe, torn)
            check(Life(after, Hasty(), now=LATER), told)


def check(life: Life, told: dict[str, set[bytes]]) -> None:
    node = life.node
    for jid in told["added"] - told["asked"]:
        assert node.find(jid) is not None, f"{jid!r} was answered and is gone"
    for jid in told["ended"]:
        assert node.find(jid) is None, f"{jid!r} was acknowledged and is back"
    queued = {node.id_text(job) for queue in node.queues.values() for job in queue.oldest(1000)}
    assert not told["once"] & queued, "at most once, and queued again"
    life.kill()


class Schedule:
    """Anything in any order, from a seed: jobs come, go and change queues, journals are moved, rewritten, put off."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.told: dict[str, set[bytes]] = {"added": set(), "once": set(), "asked": set(), "ended": set()}
        self.where: dict[bytes, set[bytes]] = {}  # by job, the queues it may be in
        self.work: Work | None = None
        self.seen: Counter[str] = Counter()

    def live(self, life: Life, disk: CrashDisk) -> None:
        self.work = None
        while disk.steps <= disk.dies_at:  # what was to be done halfway may be no write
            step = self.dice.choice((self.add, self.add, self.take, self.move, self.change, self.go_on, self.go_on,
                                     self.rewrite))
            step(life)

    def add(self, life: Life) -> None:
        options = ["RETRY", "0"] if self.dice.random() < 0.3 else ["RETRY", "3600"]
        queue = self.dice.choice(("q", "other"))
        jid = life.do("ADDJOB", queue, "x" * self.dice.randrange(300), "0", *options)[1:-2]
        self.told["added"].add(jid)
        self.where[jid] = {queue.encode()}

    def take(self, life: Life) -> None:
        reply = life.do("GETJOB", "NOHANG", "FROM", "q", "other")
        if reply.startswith(b"*1"):
            jid = reply.split(b"\r\n")[5]
            job = life.node.find(jid)
            assert jid not in self.told["once"] and jid not in self.told["ended"]
            if job is not None and job.retry == 0:
                self.told["once"].add(jid)
            elif self.dice.random() < 0.8:
                self.told["asked"].add(jid)
                if life.do("ACKJOB", jid) == b":1\r\n":
                    self.told["ended"].add(jid)

    def move(self, life: Life) -> None:
        jids = sorted(self.told["added"] - self.told["asked"] - self.told["once"])
        if jids:
            jid, queue = self.dice.choice(jids), self.dice.choice((b"q", b"other"))
            self.where[jid] |= {queue}
            if life.do("MOVE", jid, queue) == b":1\r\n":
                self.where[jid] = {queue}
                self.seen["moved"] += 1

    def change(self, life: Life) -> None:
        for queue in ("q", "other"):
            assert life.do("QUEUE", "SET", queue, "journal", self.dice.choice(("own", "shared"))) == b"+OK\r\n"

    def go_on(self, life: Life) -> None:
        """A slice of what goes on in the background, or the end of it, good or bad."""
        journal = life.journal
        journal.tick()
        each = self.work
        try:
            if each is None:
                self.work = journal.next_work(0, 0)
                if self.work is not None:
                    self.work.begin()
            elif each.step():
                if self.dice.random() < 0.25:
                    raise OSError(0, "put off, when all but the last word was said")
                each.sync()
                each.end()
                self.work = None
                self.seen[type(each).__name__] += 1
        except OSError as error:
            assert self.work is not None
            self.work.abandon(error)
            self.work = None
            self.seen["abandoned"] += 1

    def rewrite(self, life: Life) -> None:
        for name in [b"", *life.journal.own.by_name]:
            files = life.journal.own.by_name.get(name) if name else life.journal
            if files is not None and self.dice.random() < 0.2 and files.rewrite is None:
                assert files.rewrite_now()
                self.seen["rewritten"] += 1

    def check(self, life: Life) -> None:
        check(life, self.told)
        for jid in self.told["added"] - self.told["asked"]:
            job = life.node.find(jid)
            assert job is not None and job.queue.name in self.where[jid], f"{jid!r} is in another queue"


def test_crash_after_crash_in_any_order_of_moves(tmp_path: Path) -> None:
    """Five lives on the same files, each with a crash somewhere, and of each file any part of what was not synced."""
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        dice = Random(seed)
        schedule = Schedule(dice)
        folder = tmp_path / str(seed)
        folder.mkdir()
        for number in range(5):
            disk = CrashDisk(folder, dice.randrange(10, 300), halfway=dice.random() < 0.3)
            with contextlib.suppress(Crash):
                schedule.live(Life(folder, disk, now=LATER + number * 1000, segment_bytes=1500), disk)
            folder = tmp_path / f"{seed}.{number}"
            disk.left(folder, dice.random() < 0.5, lambda dice=dice: dice.choice((0, 0, 1, 30, 1 << 30)))
            looked_at = tmp_path / f"{seed}.{number}.seen"
            shutil.copytree(folder, looked_at)
            schedule.check(Life(looked_at, Hasty(), now=LATER + number * 1000 + 500))
        seen += schedule.seen
    assert all(seen[what] > SEEDS for what in ("moved", "ToOwn", "ToShared", "rewritten")) and seen["abandoned"] > 0
