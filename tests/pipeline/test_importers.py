"""Importers on data that the real libraries wrote into a real redis-server; Resque by its documented format."""
from __future__ import annotations

import json
import pickle
import shutil
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cluster_harness import free_ports, until

import holdfast
from holdfast.client.errors import Unreachable
from holdfast.pipeline.importers.bring import Wanted, bring
from holdfast.pipeline.importers.bullmq import bullmq
from holdfast.pipeline.importers.celery import call_of, celery
from holdfast.pipeline.importers.disque import disque
from holdfast.pipeline.importers.found import Found, Unreadable
from holdfast.pipeline.importers.rq import rq
from holdfast.pipeline.importers.sidekiq import resque, sidekiq
from holdfast.pipeline.nodes import Nodes
from holdfast.tasks.running import RunningJob, prepare, run_sync

if TYPE_CHECKING:
    from cluster_harness import Cluster
    from redis import Redis

WRITERS = Path(__file__).parent / "writers"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("redis")
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder)], stdout=subprocess.DEVNULL)
    yield f"redis://127.0.0.1:{port}/0"
    process.terminate()
    process.wait()


@pytest.fixture
def source(server: str) -> Iterator[Redis]:
    from redis import Redis

    redis = Redis.from_url(server)

    def is_there() -> bool:
        try:
            return bool(redis.ping())
        except OSError:
            return False
        except Exception:  # redis' own kind of a refused connection
            return False

    until(is_there)
    redis.flushall()
    yield redis
    redis.close()


@pytest.fixture
def nodes(three: Cluster) -> Cluster:
    three.clear()
    return three


def write(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr


def by_id(found: Iterator[Found | Unreadable]) -> dict[str, Found]:
    jobs: dict[str, Found] = {}
    for each in found:
        assert isinstance(each, Found), each
        assert each.id not in jobs
        jobs[each.id] = each
    return jobs


def bring_over(nodes: Cluster, find: Any, source: Redis, **words: Any) -> Any:
    """Bring all over, twice: the second time adds nothing, and says so."""
    cluster = Nodes("holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes))
    brought = bring(find(source), cluster, Wanted(**words), source)
    known = sum(len(nodes.copies(queue)) for queue in brought.queues)
    again = bring(find(source), cluster, Wanted(**words), source)
    assert (again.added.total(), again.there, again.queues) == (0, brought.added.total(), {})
    assert sum(len(nodes.copies(queue)) for queue in brought.queues) == known == brought.added.total()
    return brought


def test_sidekiq(nodes: Cluster, server: str, source: Redis) -> None:
    if shutil.which("sidekiq") is None:
        pytest.skip("ruby-sidekiq is not installed")
    write("ruby", str(WRITERS / "sidekiq.rb"), server)
    jobs = list(by_id(sidekiq(source)).values())
    assert sorted((job.queue, job.state) for job in jobs) == [
        ("low", "waiting"), ("mailers", "dead"), ("mailers", "retrying"), ("mailers", "scheduled"),
        ("mailers", "waiting"), ("mailers", "waiting"), ("mailers", "waiting")]
    users = [json.loads(job.body)["args"][0] for job in jobs if (job.queue, job.state) == ("mailers", "waiting")]
    assert users == ["user0", "user1", "user2"]
    (again,) = [job for job in jobs if job.state == "retrying"]
    assert (again.attempts, again.error, again.headers["class"]) == (3, "Timeout::Error: took 31 s", "Mail")
    assert again.at == pytest.approx(time.time() + 600, abs=60)
    brought = bring_over(nodes, sidekiq, source, dead_queue="morgue")
    assert brought.queues == {"mailers": 5, "low": 1, "morgue": 1}
    assert source.llen("queue:mailers") == 3
    row = nodes[0].ask("GETJOB", "WITHMETA", "FROM", "low")[0]
    headers = row[row.index(b"headers") + 1]
    told = dict(zip(headers[::2], headers[1::2], strict=True))
    assert (told[b"imported-from"], told[b"class"], told[b"tags"]) == (b"sidekiq", b"Report", b'["slow"]')
    assert json.loads(row[2])["args"] == [{"day": 1}]


def test_what_was_brought_is_taken_out_only_if_asked_and_a_dry_run_does_nothing(
    nodes: Cluster, source: Redis
) -> None:
    def job(name: str) -> str:
        return json.dumps({"class": "A", "args": [], "jid": name, "queue": "q", "retry": True})

    source.sadd("queues", "q")
    source.lpush("queue:q", job("1"), "no json", job("2"), json.dumps({"class": "without an id"}))
    source.zadd("schedule", {job("3"): time.time() + 99})
    dry = bring(sidekiq(source), None, Wanted(dry=True, remove=True), source)
    assert (dry.added, dry.unreadable, dry.removed) == ({"waiting": 2, "scheduled": 1}, 2, 0)
    assert "queue:q: JSONDecodeError" in dry.examples[0]
    assert nodes.copies("q") == {} and source.llen("queue:q") == 4
    cluster = Nodes(f"holdfast://127.0.0.1:{nodes[0].port}")
    done = bring(sidekiq(source), cluster, Wanted(remove=True, prefix="old."), source)
    assert (done.removed, len(nodes.copies("old.q"))) == (3, 3)
    assert source.llen("queue:q") == 2 and source.zcard("schedule") == 0


def test_what_a_process_of_sidekiq_runs_is_told_and_comes_only_if_asked(nodes: Cluster, source: Redis) -> None:
    """As Sidekiq 7 keeps it: a set of processes, and for each a hash of what its threads run."""
    job = {"class": "Mail", "args": [1], "jid": "r" * 24, "queue": "mailers", "retry": True}
    source.sadd("processes", "host:1:abc")
    source.hset("host:1:abc:work", "tid1", json.dumps(
        {"queue": "mailers", "payload": json.dumps(job), "run_at": int(time.time())}))
    cluster = Nodes(f"holdfast://127.0.0.1:{nodes[0].port}")
    assert bring(sidekiq(source), cluster, Wanted(remove=True), source).left == {"running": 1}
    done = bring(sidekiq(source), cluster, Wanted(running=True, remove=True), source)
    assert (done.queues, done.removed) == ({"mailers": 1}, 0)
    assert json.loads(nodes[0].ask("GETJOB", "FROM", "mailers")[0][2])["args"] == [1]


def test_schedulers_of_bullmq_are_named_and_what_goes_takes_its_hash_with_it(nodes: Cluster, source: Redis) -> None:
    """A scheduler by cron and one by an interval, as version 5 keeps them, and one of version 3; a job and its hash."""
    source.hset("bull:mail:meta", "version", "bullmq:5")
    source.zadd("bull:mail:repeat", {"nightly": 1, "often": 2, "old:::UTC:0 5 * * *": 3})
    source.hset("bull:mail:repeat:nightly", mapping={"name": "report", "pattern": "0 3 * * *", "tz": "Europe/Rome"})
    source.hset("bull:mail:repeat:often", mapping={"name": "poll", "every": "5000"})
    source.lpush("bull:mail:wait", "1")
    source.hset("bull:mail:1", mapping={"name": "welcome", "data": "{}", "opts": "{}", "timestamp": "1"})
    done = bring(bullmq(source), Nodes(f"holdfast://127.0.0.1:{nodes[0].port}"), Wanted(remove=True), source)
    assert done.schedules == ["report into mail, cron 0 3 * * * in Europe/Rome", "poll into mail, every 5 s",
                              "old into mail, cron 0 5 * * *"]
    assert (done.added, done.removed) == ({"waiting": 1}, 1)
    assert not source.exists("bull:mail:1") and source.exists("bull:mail:repeat:often")


def test_a_cluster_that_is_not_there_is_told_before_anything_is_read(source: Redis) -> None:
    (port,) = free_ports(1)
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="no connection"):
        bring(iter([]), Nodes(f"holdfast://127.0.0.1:{port}"), Wanted(), source)
    assert time.monotonic() - begun < 5


def test_resque(nodes: Cluster, source: Redis) -> None:
    """As its README and resque-scheduler's say: lists of class and args, failures with a payload, delayed:<time>."""
    due = int(time.time()) + 500
    same = json.dumps({"class": "Archive", "args": [1, "x"]})
    source.sadd("resque:queues", "files")
    source.rpush("resque:queue:files", same, same)
    source.rpush("resque:failed", json.dumps({
        "failed_at": "2026/03/01 10:00:00 UTC", "payload": {"class": "Archive", "args": [2]}, "exception": "IOError",
        "error": "disk full", "backtrace": [], "worker": "host:1:files", "queue": "files"}))
    source.zadd("resque:delayed_queue_schedule", {str(due): due})
    source.rpush(f"resque:delayed:{due}", json.dumps({"class": "Archive", "args": [3], "queue": "files"}))
    jobs = list(by_id(resque(source)).values())
    assert [(job.state, json.loads(job.body)["args"]) for job in jobs] == [
        ("waiting", [1, "x"]), ("waiting", [1, "x"]), ("dead", [2]), ("scheduled", [3])]
    assert jobs[2].error == "IOError: disk full" and jobs[3].at == due
    assert bring_over(nodes, resque, source).queues == {"files": 3}


def test_rq(nodes: Cluster, server: str, source: Redis) -> None:
    pytest.importorskip("rq")
    write(sys.executable, str(WRITERS / "rq_jobs.py"), server)
    jobs = by_id(rq(source))
    assert {name: job.state for name, job in jobs.items()} == {
        "waiting-1": "waiting", "waiting-2": "waiting", "later": "scheduled", "failing": "dead", "again": "retrying"}
    assert jobs["failing"].error == "ZeroDivisionError: division by zero"
    assert jobs["later"].at == pytest.approx(time.time() + 3600, abs=120)
    assert pickle.loads(jobs["waiting-2"].body)[0].endswith("print")
    assert jobs["waiting-2"].headers["description"] == "greets"
    assert bring_over(nodes, rq, source, dead_queue="dead").queues == {"mail": 4, "dead": 1}
    source.lpush("rq:queue:mail:intermediate", source.lpop("rq:queue:mail") or b"")
    assert Counter(job.state for job in by_id(rq(source)).values())["running"] == 1
    assert bring(rq(source), Nodes(f"holdfast://127.0.0.1:{nodes[0].port}"), Wanted(remove=True, running=True),
                 source).removed == 4
    assert list(source.scan_iter("rq:job:*")) == [b"rq:job:failing"], "hashes go with their jobs"


def test_celery(nodes: Cluster, server: str, source: Redis) -> None:
    pytest.importorskip("celery")
    write(sys.executable, str(WRITERS / "celery_jobs.py"), server)
    jobs = by_id(each for each in celery(source) if isinstance(each, Found))
    assert {name: (job.queue, job.state) for name, job in jobs.items()} == {
        "first": ("celery", "waiting"), "second": ("celery", "waiting"), "hurried": ("celery", "waiting"),
        "later": ("celery", "scheduled"), "slow": ("slow", "running")}
    assert [name for name in jobs if name in ("first", "second")] == ["first", "second"]
    assert json.loads(jobs["second"].body) == {"task": "shop.mail", "args": ["b"], "kwargs": {}}
    assert jobs["second"].headers["task"] == "shop.mail"
    assert jobs["later"].at == pytest.approx(time.time() + 3600, abs=120)
    brought = bring_over(nodes, celery, source)
    assert brought.queues == {"celery": 4} and brought.left == {"running": 1} and brought.tasks == {"shop.mail": 4}
    (words,) = brought.examples
    assert "has callbacks, which nothing here would run: shop.log, shop.slow" in words
    done: list[str] = []
    app = holdfast.App(f"holdfast://127.0.0.1:{nodes[0].port}")
    app.task(name="shop.mail")(done.append)
    for _ in range(3):
        running = RunningJob(app.queue.next("celery", timeout=20).entry, None)
        assert prepare(app, running) is None and run_sync(app, running).kind == "done"
    assert sorted(done) == ["a", "b", "c"]
    app.close()


def test_a_call_of_celery_that_is_no_json_is_left_with_words() -> None:
    kind = "application/x-python-serialize"
    with pytest.raises(ValueError, match=rf"the arguments of shop.mail \(x\) are {kind}, not JSON"):
        call_of({"task": "shop.mail", "id": "x"}, kind, b"")


def test_bullmq(nodes: Cluster, server: str, source: Redis, pytestconfig: pytest.Config) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = pytestconfig.rootpath / "build" / "bullmq"
    if not (folder / "node_modules" / "bullmq").exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(WRITERS / "package.json", folder)
        write("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=folder)
    shutil.copy(WRITERS / "bullmq.js", folder)
    write("node", "bullmq.js", server, cwd=folder)
    jobs = list(by_id(bullmq(source)).values())
    assert sorted((job.queue, job.headers["name"], job.state) for job in jobs) == [
        ("flaky", "again", "retrying"), ("flaky", "once", "dead"), ("mail", "later", "scheduled"),
        ("mail", "urgent", "waiting"), ("mail", "welcome", "waiting"), ("mail", "welcome", "waiting")]
    named = {job.headers["name"]: job for job in jobs}
    assert (named["once"].error, named["once"].attempts) == ("boom 42", 1)
    assert named["later"].at == pytest.approx(time.time() + 3600, abs=120)
    assert [json.loads(job.body)["user"] for job in jobs if job.headers["name"] == "welcome"] == [1, 2]
    assert bring_over(nodes, bullmq, source, dead_queue="dead").queues == {"mail": 4, "flaky": 1, "dead": 1}


def test_disque(nodes: Cluster, tmp_path: Path) -> None:
    """Three jobs, one deleted, one whose life is over, one delayed; the file ends in the middle of a command."""
    now = int(time.time())

    def job(number: int, ends: int, delay: int = 0) -> bytes:
        job_id = f"D-dcb833cf-{number:024d}-05a1".encode()
        texts = b"".join(struct.pack("<I", len(text)) + text for text in (b"mail", b"body %d" % number))
        data = struct.pack("<40sBBHIQIIHH", job_id, 2, 0, 1, ends, now * 10**9, delay, 60, 1, 2) + texts
        return struct.pack("<I", len(data)) + data + struct.pack("<I", 0)

    def command(*words: bytes) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

    whole = b"".join(command(b"LOADJOB", job(number, now + 999)) for number in (1, 2))
    whole += command(b"LOADJOB", job(3, now - 5)) + command(b"LOADJOB", job(4, now + 999, 500))
    whole += command(b"DELJOB", job(2, 0)[4:44])
    path = tmp_path / "disque.aof"
    path.write_bytes(whole + command(b"LOADJOB", job(5, now + 999))[:-20])
    found = [each for each in disque(path) if isinstance(each, Found)]
    assert [(each.queue, each.body, each.state, each.attempts) for each in found] == [
        ("mail", b"body 1", "waiting", 3), ("mail", b"body 4", "scheduled", 3)]
    assert found[1].at == now + 500
    done = bring(disque(path), Nodes(f"holdfast://127.0.0.1:{nodes[0].port}"), Wanted())
    assert done.added.total() == len(nodes.copies("mail")) == 2
    path.write_bytes(b"not a file of Disque\r\n")
    with pytest.raises(ValueError, match="no append-only file of Disque"):
        list(disque(path))
