"""Corners of the machine that random runs reach too seldom, and mistakes that must not come back."""
from __future__ import annotations

import pytest

from holdfast.core.commands.table import COMMANDS
from holdfast.core.direct import Direct
from holdfast.core.job import GONE, PAGE_SLOTS
from holdfast.core.limits import ALARMS_PER_TICK, NEVER, SPENT_GONE_MAX
from holdfast.core.step import Do, Gone, Tick, step

from .making import Bench


def jid_of(reply: bytes | None) -> bytes:
    assert reply is not None and reply.startswith(b"+DI")
    return reply[1:-2]


def test_the_empty_name_is_a_name_like_any_other() -> None:
    bench = Bench()
    jid = jid_of(bench.do("ADDJOB", "", "body", "0"))
    assert bench.do("QLEN", "") == b":1\r\n"
    assert bench.do("QSCAN") == b"*2\r\n$1\r\n0\r\n*1\r\n$0\r\n\r\n"
    assert jid in (bench.do("GETJOB", "NOHANG", "FROM", "") or b"")


def test_a_session_about_to_be_closed_gets_no_job() -> None:
    """Killed while it waits: the shell acts after its turn, and in the same turn a job comes in."""
    bench = Bench()
    bench.step(1, "GETJOB", "FROM", "q")
    assert bench.step(2, "CLIENT", "KILL", "ID", "1").requests == [("kill", 1, b"")]
    effects = bench.step(2, "ADDJOB", "q", "only once", "0", "RETRY", "0")
    assert effects.wakeups == []
    assert bench.step(2, "QLEN", "q").reply == b":1\r\n"
    step(bench.node, bench.now, Gone(1))
    assert bench.node.blocked == 0


@pytest.mark.parametrize("words", [
    ["ADDJOBS", "new", "0", "3", "a", "b", "c", "MAXLEN", "2"],
    ["ADDJOB", "n" * 65537, "body", "0"],
    ["GETJOB", "FROM", "new", "n" * 65537],
    ["ADDJOB", "new", "b" * 1_048_000, "0"],
    ["QUEUE", "SET", "new", "maxlen", "5", "paused", "perhaps"],
    ["PAUSE", "n" * 65537, "none", "bcast"],
])
def test_what_is_refused_changes_nothing(words: list[str]) -> None:
    bench = Bench(maxmemory="1mb")
    used = bench.node.used
    assert (bench.do(*words) or b"").startswith(b"-")
    assert not bench.node.queues and bench.node.used == used


OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


def full_bench() -> Bench:
    """Filled to the last byte, with one queue and one job."""
    bench = Bench(maxmemory="1mb", max_body_bytes="2mb")
    room = bench.node.full - bench.node.used
    assert (bench.do("ADDJOB", "q", "b" * (room - 208 - 2103), "0") or b"").startswith(b"+DI")
    assert bench.node.used == bench.node.full
    return bench


def test_a_waiting_call_that_finds_no_memory_makes_no_queue() -> None:
    """Five per cent beyond the limit for those who wait, to the byte; all queues or none."""
    bench = full_bench()
    more = bench.node.full // 100 * 5
    name = "n" * ((more - 2100 - 2103) // 3)
    assert bench.do("GETJOB", "FROM", "x", name + "n") == OOM
    assert list(bench.node.queues) == [b"q"] and bench.node.used == bench.node.full
    assert bench.do("GETJOB", "FROM", "x", name) is None
    assert bench.node.used == bench.node.full + 2103 + 2100 + 3 * len(name) <= bench.node.full + more
    assert bench.step(2, "GETJOB", "FROM", "yy" * 2).reply == OOM
    assert bench.step(2, "GETJOB", "FROM", "x").reply is None  # a known queue takes no memory


def test_only_those_who_wait_may_go_beyond_the_limit() -> None:
    bench = full_bench()
    for words in (["ADDJOB", "q", "", "0"], ["ADDJOBS", "new", "0", "1", ""], ["PAUSE", "new", "in"],
                  ["QUEUE", "SET", "new", "maxlen", "1"]):
        assert bench.do(*words) == OOM
    assert bench.do("GETJOB", "NOHANG", "FROM", "new") == b"*-1\r\n"
    assert list(bench.node.queues) == [b"q"]


def test_memory_does_not_grow_beyond_its_bound_with_a_new_queue() -> None:
    bench = Bench(maxmemory="1mb")
    room = bench.node.full - bench.node.used
    assert (bench.do("ADDJOB", "new", "b" * (room - 208), "0") or b"").startswith(b"-OOM")
    assert (bench.do("ADDJOB", "new", "b" * (room - 208 - 2109), "0") or b"").startswith(b"+DI")
    assert bench.node.used == bench.node.full


def test_whoever_can_be_evicted_is_before_anybody_is_refused() -> None:
    """Nothing there to evict at first; then somebody fetches a job that can be."""
    bench = Bench(maxmemory="1mb", max_body_bytes="2mb")
    bench.do("ADDJOB", "once", "", "0", "RETRY", "0")
    bench.do("ADDJOB", "kept", "", "0")
    assert (bench.do("ADDJOB", "kept", "b" * bench.node.full, "0") or b"").startswith(b"-OOM")
    bench.do("GETJOB", "NOHANG", "FROM", "once")
    room = bench.node.full - bench.node.used
    assert (bench.do("ADDJOB", "kept", "b" * room, "0") or b"").startswith(b"+DI")
    assert bench.node.queues[b"once"].held == 0 and bench.node.used == bench.node.full


def spend(bench: Bench, count: int) -> list[bytes]:
    """At-most-once jobs added and handed out; their ids, the oldest hand-out first."""
    ids = [jid_of(bench.do("ADDJOB", "once", "", "0", "RETRY", "0")) for _ in range(count)]
    for jid in ids:
        assert jid in (bench.do("GETJOB", "NOHANG", "FROM", "once") or b"")
    return ids


def test_the_oldest_hand_out_is_evicted_first_and_no_more_than_needed() -> None:
    bench = Bench(maxmemory="1mb", max_body_bytes="2mb")
    node = bench.node
    first = jid_of(bench.do("ADDJOB", "once", "", "0", "RETRY", "0", "PRIORITY", "1"))  # the oldest by age
    ids = [*spend(bench, 5), first]
    assert first in (bench.do("GETJOB", "NOHANG", "FROM", "once") or b"")
    goal = node.full // 100 * 95
    bench.do("ADDJOB", "q", "b" * (goal - node.used - 208 - 2103), "0")
    assert node.level == 2 and node.used == goal
    assert [node.find(jid) is not None for jid in ids] == [True] * 6
    bench.do("ADDJOB", "q", "", "0")  # 208 bytes more, and the sum must be below 95 %
    assert [node.find(jid) is not None for jid in ids] == [False, False, True, True, True, True]
    bench.do("ACKJOB", ids[2])
    bench.do("ADDJOB", "q", "b" * 208, "0")  # to 95 % again, from below: nothing is evicted for that
    assert node.used == goal and [job.seq for job in node.spent if job.state != GONE] == [
        int(jid[10:26], 16) for jid in ids[3:]]
    bench.do("ADDJOB", "q", "", "0")
    assert [node.find(jid) is not None for jid in ids] == [False, False, False, False, False, True]
    assert [job.seq for job in node.spent] == [int(first[10:26], 16)] and node.spent_gone == 0


def test_nothing_is_evicted_that_somebody_may_still_get_or_if_the_policy_forbids_it() -> None:
    for policy, held in (("acks", 1), ("noeviction", 3)):
        bench = Bench(maxmemory="1mb", max_body_bytes="2mb", maxmemory_policy=policy)
        spend(bench, 2)
        bench.do("ADDJOB", "once", "", "0", "RETRY", "0")
        assert bench.do("ADDJOB", "q", "b" * bench.node.full, "0") == OOM
        assert bench.node.queues[b"once"].held == held


def test_jobs_that_ended_do_not_stay_in_memory_because_they_could_have_been_evicted() -> None:
    """At most once each, handed out, then acknowledged, and no such job after them."""
    bench = Bench()
    count = 3 * SPENT_GONE_MAX
    bench.do("ADDJOBS", "once", "0", str(count), *["b"] * count, "RETRY", "0")
    bench.do("GETJOB", "NOHANG", "COUNT", str(count), "FROM", "once")
    assert len(bench.node.spent) == count
    bench.do("QFLUSH", "once")
    assert len(bench.node.spent) <= 2 * SPENT_GONE_MAX


def test_evicting_while_ended_jobs_are_swept_out() -> None:
    bench = Bench(maxmemory="4mb", max_body_bytes="8mb")
    ids = spend(bench, 2 * SPENT_GONE_MAX + 100)
    bench.do("ACKJOB", *ids[-SPENT_GONE_MAX:])
    assert len(bench.node.spent) == len(ids)  # not swept yet: the evictions below make it so
    assert bench.do("ADDJOB", "q", "b" * bench.node.full, "0") == OOM
    assert bench.node.jobs == 0 and not bench.node.spent and bench.node.spent_gone == 0


def test_when_memory_gets_short_idle_queues_are_forgotten_sooner() -> None:
    for percent, idle_ms in ((80, 10_000), (96, 2_000)):
        bench = Bench(maxmemory="1mb", max_body_bytes="2mb")
        bench.do("QUEUE", "SET", "idle", "maxlen", "0")
        assert bench.node.next_wake() == bench.now + 300_000
        bench.now += 1000
        bench.do("ADDJOB", "q", "b" * (bench.node.full // 100 * percent - bench.node.used), "0")
        assert bench.node.queues[b"idle"].wake == bench.now + idle_ms
        bench.now += idle_ms
        step(bench.node, bench.now, Tick())
        assert list(bench.node.queues) == [b"q"]


def test_a_job_past_its_life_is_not_handed_out_though_no_tick_came() -> None:
    bench = Bench()
    direct = Direct(bench.node)
    for _ in range(3):
        bench.do("ADDJOB", "q", "old", "0", "TTL", "1")
        bench.do("PAUSE", "p", "out")
        bench.do("ADDJOB", "p", "old", "0", "TTL", "1")
    bench.now += 1000
    bench.node.set_time(bench.now, bench.now)
    assert direct.get(bench.node.sessions[1], b"NOHANG", b"FROM", b"q") and bench.node.take_output() == b"*-1\r\n"
    assert bench.do("GETJOB", "FROM", "p", "q") is None
    assert bench.step(2, "PAUSE", "p", "none").wakeups == []
    assert bench.node.jobs == 0 and bench.node.expired == 6
    assert len(bench.step(2, "ADDJOB", "p", "new", "0").wakeups) == 1


def test_working_does_not_bring_a_delayed_job_forward() -> None:
    bench = Bench()
    jid = jid_of(bench.do("ADDJOB", "q", "b", "0", "DELAY", "100", "RETRY", "30"))
    bench.now += 60_000
    assert bench.do("WORKING", jid) == b":30\r\n"
    assert bench.node.next_wake() == bench.now + 40_000
    bench.now += 20_000
    assert bench.do("WORKING", jid) == b":30\r\n"
    job = bench.node.find(jid)
    assert job is not None and job.qtime == bench.now + 30_000


def test_what_queues_a_job_uses_its_queue() -> None:
    bench = Bench()
    jid = jid_of(bench.do("ADDJOB", "q", "b", "0", "DELAY", "100", "RETRY", "30"))
    bench.now += 100_000
    assert b"idle\r\n:100\r\n" in (bench.do("QSTAT", "q") or b"")
    step(bench.node, bench.now, Tick())
    assert b"idle\r\n:0\r\n" in (bench.do("QSTAT", "q") or b"")
    for words in (["DEQUEUE", jid], ["ENQUEUE", jid], ["DEQUEUE", jid], ["NACK", jid]):
        bench.now += 7000
        bench.do(*words)
        idle = b":7" if words[0] == "DEQUEUE" else b":0"
        assert b"idle\r\n" + idle + b"\r\n" in (bench.do("QSTAT", "q") or b"")


def test_what_show_says_of_time_left_and_of_a_body_that_is_gone() -> None:
    bench = Bench()
    jid = jid_of(bench.do("ADDJOB", "q", "once", "0", "RETRY", "0", "TTL", "10"))
    for after, ttl in ((1, b":10"), (999, b":9"), (1, b":9")):
        bench.now += after
        shown = bench.do("SHOW", jid) or b""
        assert b"ttl\r\n" + ttl + b"\r\n" in shown and b"$4\r\nbody\r\n$4\r\nonce\r\n" in shown
    bench.do("GETJOB", "FROM", "q")
    assert b"$4\r\nbody\r\n$-1\r\n" in (bench.do("SHOW", jid) or b"")
    bench.do("HELLO", "3")
    assert b"$4\r\nbody\r\n_\r\n" in (bench.do("SHOW", jid) or b"")


def test_of_two_mistakes_in_options_the_copies_are_named_first() -> None:
    words = ["ADDJOB", "q", "b", "0", "DELAY", "9", "TTL", "5"]
    bench = Bench()
    assert b"explicitly set  REPLICATE to 1" in (bench.do(*words, "REPLICATE", "2", "RETRY", "0") or b"")
    assert b"DELAY is greater than TTL" in (bench.do(*words, "REPLICATE", "2") or b"")


def test_giving_jobs_back_takes_no_memory_and_echo_says_what_it_hears() -> None:
    bench = Bench()
    assert {command.name: command.flags for command in COMMANDS if command.name in (b"NACK", b"ENQUEUE", b"ECHO")} == {
        b"NACK": "w", b"ENQUEUE": "w", b"ECHO": "r"}
    assert bench.do("ECHO", b"\x00\r\n") == b"$3\r\n\x00\r\n\r\n"
    assert bench.do("ECHO") == bench.do("ECHO", "a", "b") == b"-ERR wrong number of arguments for 'echo' command\r\n"


def test_eviction_finds_what_is_many_pages_away() -> None:
    bench = Bench(maxmemory="1mb")
    for _ in range(12 * PAGE_SLOTS):
        bench.do("ADDJOB", "kept", "", "0")
    for _ in range(2 * PAGE_SLOTS):
        bench.do("ADDJOB", "once", "", "0", "RETRY", "0")
    bench.do("GETJOB", "NOHANG", "COUNT", "100000", "FROM", "once")
    body = "b" * (bench.node.full - bench.node.used - 208 - 2109 + 100)
    assert (bench.do("ADDJOB", "big", body, "0") or b"").startswith(b"+DI")


def test_a_tick_is_bounded_and_the_rest_is_due_at_once() -> None:
    bench = Bench()
    pages = ALARMS_PER_TICK + 10
    for _ in range(pages):
        bench.do("ADDJOBS", "q", "0", str(PAGE_SLOTS), *["b"] * PAGE_SLOTS, "TTL", "5")
    bench.now += 5000
    first = step(bench.node, bench.now, Tick())
    assert first.next_wake <= bench.now and bench.node.jobs > 0
    second = step(bench.node, bench.now, Tick())
    assert second.next_wake > bench.now and bench.node.jobs == 0
    assert bench.node.expired == pages * PAGE_SLOTS


def test_direct_handlers_leave_the_unusual_to_execute() -> None:
    """A session or a node about which anything is special, command by command."""
    bench = Bench(sessions=3)
    node = bench.node
    direct = Direct(node)
    first, second = node.sessions[1], node.sessions[2]
    bench.step(2, "CLIENT", "REPLY", "OFF")
    assert direct.add(second, b"q", b"body", b"0") and node.take_output() == b""
    bench.step(3, "MONITOR")
    assert direct.add(first, b"q", b"body", b"0")
    assert [session.number for session, _ in node.wakeups] == [3]
    node.wakeups.clear()
    node.take_output()
    step(node, bench.now, Gone(3))
    bench.step(1, "CLIENT", "PAUSE", "100")
    assert not direct.get(first, b"NOHANG", b"FROM", b"q")
    assert not direct.ack(second, b"x")
    assert node.take_output() == b"" and node.blocked == 2
    bench.now += 100
    assert step(node, bench.now, Tick()).wakeups == [(1, b""), (2, b"")]
    bench.step(1, "CLUSTER", "LEAVING", "yes")
    assert direct.add(first, b"q", b"body", b"0") and node.take_output().startswith(b"-NOREPL")


def test_a_flood_of_sessions_that_come_and_wait_and_go_leaves_nothing() -> None:
    bench = Bench(sessions=0)
    node = bench.node
    for i in range(3000):
        who = node.connect("a").number
        step(node, bench.now, Do(who, [b"GETJOB", b"TIMEOUT", b"%d" % (1000 + i), b"FROM", b"a", b"b"]))
        step(node, bench.now, Gone(who))
    assert node.blocked == 0 and not node.queues[b"a"].waiting and not node.queues[b"b"].waiting
    assert len(node.alarms.heap) < 3000
    bench.now += 10**6
    for _ in range(20):
        step(node, bench.now, Tick())
    assert node.next_wake() == NEVER and node.used == 0


def test_passwords_are_not_shown_to_monitors() -> None:
    bench = Bench()
    bench.step(2, "MONITOR")
    bench.do("CONFIG", "SET", "requirepass", "sesame")
    for words in (["AUTH", "sesame"], ["AUTH", "default", "sesame"], ["HELLO", "2", "AUTH", "default", "sesame"]):
        for _, line in bench.step(1, *words).wakeups:
            assert b"sesame" not in line


def renumbered(jid: bytes, ahead: int) -> bytes:
    return jid[:10] + b"%016x" % (int(jid[10:26], 16) + ahead) + jid[26:]


@pytest.mark.parametrize("ahead", [1, 3_600_000_000])
def test_an_ack_for_a_job_that_an_earlier_life_made_takes_no_later_jobs_place(ahead: int) -> None:
    """The clock was set back between the two: to this life the number is still to come. It is never given out."""
    bench = Bench()
    bench.do("CLUSTER", "MEET", "127.0.0.1", "7712")
    first = (bench.do("ADDJOB", "q", "b", "0") or b"")[1:49]
    acked = renumbered(first, ahead)
    assert bench.do("ACKJOB", acked) == b":0\r\n"
    assert bench.node.jobs == 2, "kept for whoever holds a copy"
    second = (bench.do("ADDJOB", "q", "b", "0") or b"")[1:49]
    assert second[10:26] > acked[10:26]
    assert bench.node.jobs == 3 and bench.do("QLEN", "q") == b":2\r\n"


def test_an_ack_for_a_number_that_no_clock_can_have_given_out_is_kept_for_nobody() -> None:
    bench = Bench()
    bench.do("CLUSTER", "MEET", "127.0.0.1", "7712")
    first = (bench.do("ADDJOB", "q", "b", "0") or b"")[1:49]
    for ahead in (2 * 86_400_000_000, (1 << 62), (1 << 63) - 1 - int(first[10:26], 16)):
        assert bench.do("ACKJOB", renumbered(first, ahead)) == b":0\r\n"
    second = (bench.do("ADDJOB", "q", "b", "0") or b"")[1:49]
    assert second[:26] == renumbered(first, 1)[:26]
    assert bench.node.jobs == 2
