"""`holdfast promote`: everything pending moves, nothing is lost or doubled, however often it is interrupted."""
from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.proc.harness import Node

import holdfast
from holdfast.cli.main import main
from holdfast.client.promote import Promotion
from holdfast.client.values import JobView


def test_jobs_are_what_they_were(tmp_path: Path) -> None:
    with holdfast.open(f"file:{tmp_path}/jobs") as old, holdfast.open("memory:") as new:
        old.add("q", "plain", retry=77, priority=8)
        old.add("q", "keys", group="g", domain="d", tenant="t", headers={"h": "v"}, attempts=5, backoff=(2, 60))
        old.add("q", "unique", unique="k", until="started")
        old.add("q", "skips", group="h", on_fail="skip")
        old.add("later", "delayed", delay=1000, ttl=5000)
        assert Promotion(old, new).count() == 5
        assert list(Promotion(old, new).run()) == [1, 2, 3, 4, 5]
        assert old.length("q") == 0
        jobs = {job.text: job for job in new.take("q", count=10)}
        assert jobs["plain"].priority == 8
        view = new.show(jobs["plain"].id)
        assert view is not None and view.retry == 77
        keys = jobs["keys"]
        assert keys.headers == {"h": "v"}
        assert {name: keys.keys[name] for name in ("group", "domain", "tenant")} == {
            "group": "g", "domain": "d", "tenant": "t",
        }
        assert jobs["unique"].keys["unique"] == "k"
        told = {name: view.more for name, job in jobs.items() if (view := new.show(job.id)) is not None}
        assert told["unique"]["until"] == b"started" and told["skips"]["onfail"] == b"skip"
        assert "onfail" not in told["keys"]
        assert new.try_next("later") is None
        ((delayed,),) = new.call("JSCAN", 0, "QUEUE", "later", "REPLY", "all")[1:]  # type: ignore[index,misc]
        fields = dict(zip(delayed[::2], delayed[1::2], strict=True))  # type: ignore[index]
        assert 990 < fields[b"next-requeue-within"] / 1000 <= 1000
        assert 4990 < fields[b"ttl"] <= 5000


def test_a_run_that_died_after_the_add_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job was added there and not yet deleted here when the power went."""
    with holdfast.open(f"file:{tmp_path}/jobs") as old, holdfast.open("memory:") as new:
        for number in range(10):
            old.add("q", str(number))
        deleted = 0

        def delete(self: holdfast.Queue, *ids: str) -> int:
            nonlocal deleted
            deleted += 1
            if deleted == 4:
                raise KeyboardInterrupt
            return original(self, *ids)

        original = holdfast.Queue.delete
        monkeypatch.setattr(holdfast.Queue, "delete", delete)
        with pytest.raises(KeyboardInterrupt):
            list(Promotion(old, new).run())
        new.done(*new.take("q", count=4))  # A worker was fast, too.
        list(Promotion(old, new).run())
        assert sorted(job.text for job in new.take("q", count=100)) == list("456789")


def test_a_job_somebody_had_taken_moves_and_a_dead_one_stays(tmp_path: Path) -> None:
    with holdfast.open(f"file:{tmp_path}/jobs") as old:
        old.add("q", "taken")
        old.next("q", timeout=5)
        old.add("q", "dead")
        old.next("q", timeout=5).fail(dead=True)
        old.add("q", "once", retry=0, replicate=1)
        old.next("q", timeout=5)
        with holdfast.open("memory:") as new:
            promotion = Promotion(old, new)
            list(promotion.run())
            assert [job.text for job in new.take("q")] == ["taken"]
            assert (promotion.moved, promotion.dead) == (1, 1)
            assert "1 jobs moved" in promotion.summary() and "dead" in promotion.summary()


def test_the_command(tmp_path: Path) -> None:
    source = f"file:{tmp_path}/jobs"
    with holdfast.open(source) as old:
        old.add_many("q", [str(n) for n in range(250)])
        old.add("other", "x")
    with Node() as node:
        target = f"holdfast://127.0.0.1:{node.port}"
        dry = CliRunner().invoke(main, ["promote", source, target, "--queue", "q", "--dry-run"])
        assert dry.exit_code == 0 and dry.stdout == "250 jobs would be moved\n"
        real = CliRunner().invoke(main, ["promote", source, target, "--queue", "q"])
        assert real.exit_code == 0 and real.stdout == "250 jobs moved\n"
        with holdfast.open(target) as new:
            assert new.length("q") == 250 and new.length("other") == 0
        again = CliRunner().invoke(main, ["promote", source, target])
        assert again.stdout == "1 jobs moved\n"


def test_a_job_of_a_batch_stays_and_its_batch_does_not_end_early(tmp_path: Path) -> None:
    with holdfast.open(f"file:{tmp_path}/jobs") as old, holdfast.open("memory:") as new:
        for index in range(2):
            old.add("q", str(index), batch=("b", index))
        old.call("BATCH", "CLOSE", "b", 2, "THEN", "after", "all done")
        old.add("q", "alone")
        promotion = Promotion(old, new)
        assert list(promotion.run()) == [1]
        assert (old.length("q"), old.length("after"), new.length("q")) == (2, 0, 1)
        assert "2 jobs of batches stay" in promotion.summary()


@pytest.mark.parametrize(("source", "words"), [
    ("file:{}/typo", "there is no folder"), ("memory:", "out of a folder"), ("file:", "needs a folder"),
])
def test_a_source_that_is_not_there_is_not_made(tmp_path: Path, source: str, words: str) -> None:
    done = CliRunner().invoke(main, ["promote", source.format(tmp_path), "memory:"])
    assert done.exit_code != 0 and words in done.output
    assert list(tmp_path.iterdir()) == []


def test_one_who_stops_it_is_told_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"file:{tmp_path}/jobs"
    with holdfast.open(source) as old:
        old.add_many("q", ["a", "b", "c"])
    original = Promotion._move

    def move(self: Promotion, view: JobView) -> None:
        if self.moved == 2:
            raise KeyboardInterrupt
        original(self, view)

    monkeypatch.setattr(Promotion, "_move", move)
    stopped = CliRunner().invoke(main, ["promote", source, f"file:{tmp_path}/there"])
    assert stopped.exit_code == 130 and "stopped: 2 jobs moved; start it again to go on" in stopped.output
    monkeypatch.undo()
    assert CliRunner().invoke(main, ["promote", source, f"file:{tmp_path}/there"]).stdout == "1 jobs moved\n"
