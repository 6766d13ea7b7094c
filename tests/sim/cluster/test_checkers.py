"""Each checker on small histories made by hand: one that keeps the promise, one that breaks it."""
from __future__ import annotations

from typing import Any

from holdfast.core import home
from holdfast.testing.checkers import check
from holdfast.testing.checkers.whitebox import Copy, half_dead, orphans, queued_twice, uncollected
from holdfast.testing.history import History
from holdfast.testing.sim.books import wrong
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.keys import group_at


class Story:
    """Writes a history in few words. Calm from the start unless told otherwise."""

    def __init__(self, **settings: Any) -> None:
        self.history = History()
        self.history.mark(0, "nemesis", "", "settings", **{"settle_ms": 10_000, "slack_ms": 5_000, **settings})
        self.history.mark(0, "nemesis", "", "calm", on=True)

    def op(self, t: int, node: str, f: str, value: Any, type: str, result: Any, wait: int = 1) -> None:
        number = self.history.invoke(t, "p", node, f, value)
        self.history.complete(t + wait, number, "p", node, type, f, result)

    def add(self, t: int, body: str, type: str = "ok", wait: int = 1, error: str = "", **options: Any) -> None:
        value = {"queue": "q", "body": body, "replicate": 1, "retry": 1, "ttl": 600, "delay": 0, "async": False,
                 "timeout": 0, **options}
        self.op(t, "A", "add", value, type, {"id": f"id-{body}"} if type == "ok" else {"error": error}, wait)

    def get(self, t: int, body: str, node: str = "A", id: str = "", **counters: int | str) -> None:
        job = {"id": id or f"id-{body}", "queue": "q", "body": body, **counters}
        self.op(t - 1, node, "get", {"queues": ["q"]}, "ok", {"jobs": [job]})

    def about(self, t: int, f: str, body: str, node: str = "A", type: str = "ok") -> None:
        self.op(t, node, f, {"ids": [f"id-{body}"]}, type, {"count": 1})

    def mark(self, t: int, f: str, node: str = "", **value: Any) -> None:
        self.history.mark(t, "nemesis", node, f, **value)

    def classes(self, end: int = 100_000) -> set[str]:
        self.mark(end, "end")
        return {violation.what for violation in check(self.history)}


def test_a_job_delivered_and_acked_is_fine() -> None:
    story = Story()
    story.add(0, "x")
    story.get(100, "x")
    story.about(200, "ack", "x")
    story.mark(30_000, "heal")
    assert story.classes() == set()


def test_a_job_never_delivered_is_lost() -> None:
    story = Story()
    story.add(0, "x", replicate=2)
    story.mark(10, "loss", "B")
    story.mark(30_000, "heal")
    assert story.classes() == {"lost"}


def test_a_job_with_as_many_losses_as_copies_may_be_lost() -> None:
    story = Story()
    story.add(0, "x", replicate=2)
    story.mark(10, "loss", "A")
    story.mark(20, "loss", "B")
    story.mark(30_000, "heal")
    assert story.classes() == set()


def test_losses_that_were_made_good_in_between_do_not_add_up() -> None:
    story = Story()
    story.add(0, "x", replicate=2)
    story.mark(10, "loss", "A")
    story.mark(20, "restored", since=15)
    story.mark(30, "loss", "B")
    story.mark(30_000, "heal")
    assert story.classes() == {"lost"}


def test_an_ack_that_all_had_heard_of_holds_though_its_node_is_lost_later() -> None:
    for restored, found in ((250, {"ack-forgotten"}), (150, set())):
        story = Story()
        story.add(0, "x")
        story.get(100, "x")
        story.about(200, "ack", "x")
        story.mark(300, "restored", since=restored)
        story.mark(400, "loss", "A")
        story.mark(30_000, "heal")
        story.get(50_000, "x", node="B")
        assert story.classes() - {"calm-duplicate"} == found


def test_a_job_whose_life_is_over_may_be_undelivered() -> None:
    story = Story()
    story.add(0, "x", ttl=20)
    story.mark(30_000, "heal")
    assert story.classes() == set()


def test_a_job_may_be_replaced_by_an_add_that_was_not_over_when_it_came() -> None:
    """Which of the two was carried out first nobody can see; but what was over before did not replace anything."""
    for ended, type, found in ((4_000, "ok", {"lost"}), (6_000, "ok", set()), (2_500, "info", {"lost"})):
        story = Story()
        story.add(1_000, "old", type=type, wait=ended - 1_000, timeout=1_000, retry=0, unique="u", ondup="replace",
                  until="started")
        story.add(5_000, "new", unique="u", ondup="reject", until="started", timeout=1_000)
        story.mark(30_000, "heal")
        assert story.classes() == found, (ended, type)


def test_one_of_a_group_is_out_at_a_time_and_what_is_out_only_once_does_not_count() -> None:
    for first, second, later, found in (
        ("x", "y", 0, {"group-two-out"}), ("once", "x", 0, set()), ("x", "once", 20, set()),
        ("x", "once", 50, {"group-two-out"}),
    ):
        story = Story(flight_ms=30)
        for i, body in enumerate([first, second]):
            story.add(i, body, group="g", skips=True, retry=0 if body == "once" else 10)
        story.get(100, first)
        story.get(100 + later, second)
        for body in (first, second):
            story.about(200, "ack", body)
        assert story.classes() == found, (first, second, later)


def test_a_job_of_a_group_that_ended_on_its_way_to_its_consumer_is_not_out() -> None:
    for ended, found in ((60, {"group-two-out"}), (80, set())):
        story = Story(flight_ms=30)
        for i, body in enumerate(["x", "y"]):
            story.add(i, body, group="g", skips=True, retry=10)
        story.about(ended, "release", "x")  # of the lease before, or of this one, whose job is not there yet
        story.get(100, "x")
        story.get(150, "y")
        for body in ("x", "y"):
            story.about(200, "ack", body)
        assert story.classes() == found, ended


def test_a_schedule_runs_at_each_of_its_times_where_nodes_hear_each_other() -> None:
    cases = (
        (True, "other maxlen", 0, {"run-missed"}), (False, "other maxlen", 0, set()), (True, "q maxlen", 0, set()),
        (True, "q totalmaxlen", 0, set()), (True, "q rate", 0, {"run-missed"}), (True, "other maxlen", 6, set()),
        (False, "other maxlen", 9, {"run-twice"}),
    )
    for is_calm, bounded, runs, found in cases:
        story = Story()
        words = ["QUEUE", "SET", *bounded.split(), "5"]
        story.op(100, "A", "rule", {"words": words}, "ok", {"reply": "OK"})
        words = ["CRON", "SET", "tick", "*/5 * * * * *", "q", "cron"]
        story.op(100, "A", "rule", {"words": words}, "ok", {"reply": "OK"})
        if not is_calm:
            story.mark(200, "calm", on=False)
        for i in range(runs):
            story.get(5_000 + i, "cron", id=f"DI00000000{i}")
        story.op(30_000, "A", "rule", {"words": ["CRON", "DEL", "tick"]}, "ok", {"reply": 1})
        assert story.classes() == found, (is_calm, bounded, runs)


def test_a_stale_token_counts_for_nothing_where_its_giver_could_be_asked() -> None:
    """B gives a job of a group to consumers at A; one without keys is given by the node its consumer is at."""
    for group, is_calm, found in (("", True, {"stale-token"}), ("", False, {"stale-token"}),
                                  ("g", True, {"stale-token"}), ("g", False, set())):
        story = Story()
        story.add(0, "x", retry=1, group=group, skips=False)
        if not is_calm:
            story.mark(50, "calm", on=False)
        for t, token in ((100, "bbbbbbbb.1.1"), (2_000, "bbbbbbbb.1.2")):
            job = {"id": "id-x", "queue": "q", "body": "x", "token": token}
            story.op(t - 1, "A", "get", {"queues": ["q"]}, "ok", {"jobs": [job]})
        story.op(4_000, "A", "ack", {"ids": ["id-x"], "token": "bbbbbbbb.1.1"}, "ok", {"count": 1})
        assert story.classes() == found, (group, is_calm)


def test_which_of_two_tokens_is_stale_their_numbers_say() -> None:
    """B lends a job to A, where it arrives when its lease is over and another consumer has it from B."""
    for token, found in (("bbbbbbbb.1.9", {"stale-token"}), ("bbbbbbbb.1.a", set[str]())):
        story = Story()
        story.add(0, "x", retry=1, group="g", skips=False)
        for t, node, each in ((2_000, "B", "bbbbbbbb.1.a"), (2_500, "A", "bbbbbbbb.1.9")):
            job = {"id": "id-x", "queue": "q", "body": "x", "token": each}
            story.op(t - 1, node, "get", {"queues": ["q"]}, "ok", {"jobs": [job]})
        story.op(4_000, "B", "ack", {"ids": ["id-x"], "token": token}, "ok", {"count": 1})
        assert story.classes() == found, token


def test_a_batch_closed_elsewhere_does_not_say_whose_a_token_is() -> None:
    """B had closed the batch before A did, so the id of the final job is of B, which gave both leases. Across a cut A
    could not ask B, and takes the ack: work done is done. If B itself was told, it could not but know."""
    for told, found in (("A", set[str]()), ("B", {"stale-token"})):
        story = Story()
        for t, node, id, asked in (
            (0, "B", "DIbbbbbbbb01", {"body": "x", "group": "g", "skips": False}),
            (10, "A", "DIbbbbbbbb02", {"body": "f", "final_of": "b", "count": 0}),
        ):
            value = {"queue": "q", "replicate": 1, "retry": 1, "ttl": 600, "delay": 0, "async": False, "timeout": 0}
            story.op(t, node, "add", {**value, **asked}, "ok", {"id": id})
        story.mark(50, "calm", on=False)
        for t, token in ((100, "bbbbbbbb.1.1"), (2_000, "bbbbbbbb.1.2")):
            job = {"id": "DIbbbbbbbb01", "queue": "q", "body": "x", "token": token}
            story.op(t - 1, "A", "get", {"queues": ["q"]}, "ok", {"jobs": [job]})
        story.op(4_000, told, "ack", {"ids": ["DIbbbbbbbb01"], "token": "bbbbbbbb.1.1"}, "ok", {"count": 1})
        assert story.classes() == found, told


def test_the_dead_stay_dead_for_all_who_could_hear_of_it() -> None:
    """B is cut off when the job dies, and hands it out: before it could hear, or after."""
    for back, found in ((0, {"revived"}), (3_000, {"revived"}), (9_000, set[str]())):
        story = Story()
        story.add(0, "x", replicate=2)
        if back:
            story.mark(50, "calm", on=False)
            story.mark(back, "calm", on=True)
        story.get(100, "x")
        story.op(2_000, "A", "dead", {}, "ok", {"rows": [["id-x", "q", "rejected", 1]]})
        story.get(8_000, "x", node="B")
        assert story.classes() == found, back


def test_at_most_once() -> None:
    story = Story()
    story.add(0, "x", retry=0)
    story.get(100, "x")
    story.get(90_000, "x", node="B")
    assert story.classes() == {"twice"}


def test_at_most_once_counts_adds_nobody_knows_of() -> None:
    story = Story()
    story.add(0, "x", type="info", retry=0)
    story.get(100, "x")
    story.get(200, "x", node="B")
    assert story.classes() == {"twice"}


def test_nothing_comes_from_nowhere() -> None:
    story = Story()
    story.get(100, "x")
    assert story.classes() == {"from-nowhere"}


def test_one_job_has_one_id() -> None:
    story = Story()
    story.add(0, "x")
    story.get(100, "x", id="another")
    story.about(200, "ack", "x")
    assert story.classes() == {"two-ids"}


def test_two_jobs_have_two_ids() -> None:
    story = Story()
    story.add(0, "x")
    story.add(5, "y")
    story.get(100, "x")
    story.get(110, "y", id="id-x")
    assert "id-reused" in story.classes()


def test_an_ack_under_a_token_may_be_forgotten_with_the_node_that_gave_it() -> None:
    for lost, found in (("A", set()), ("B", set()), ("C", {"ack-forgotten"})):
        story = Story()
        story.add(0, "x")
        story.get(100, "x", token="aaaaaaaa.1.1")
        story.op(200, "B", "ack", {"ids": ["id-x"], "token": "aaaaaaaa.1.1"}, "ok", {"count": 1})
        story.mark(300, "calm", on=False)
        story.mark(300, "loss", lost)
        story.mark(1_000, "calm", on=True)
        story.get(60_000, "x")
        assert story.classes() == found, lost


def test_an_ack_holds_when_calm() -> None:
    story = Story()
    story.add(0, "x")
    story.get(100, "x")
    story.mark(150, "calm", on=False)
    story.about(200, "ack", "x")
    story.mark(1_000, "calm", on=True)
    story.get(5_000, "x")
    assert story.classes() == set()
    story.get(60_000, "x")
    assert story.classes() == {"ack-forgotten"}


def test_an_ack_dies_with_the_disk_that_held_it() -> None:
    story = Story()
    story.add(0, "x")
    story.get(100, "x")
    story.mark(150, "calm", on=False)
    story.about(200, "ack", "x", node="B")
    story.mark(300, "loss", "B")
    story.mark(1_000, "calm", on=True)
    story.get(60_000, "x")
    assert story.classes() == set()


def test_calm_means_once() -> None:
    story = Story()
    story.add(0, "x")
    story.get(100, "x")
    story.about(200, "ack", "x")
    story.get(3_000, "x", node="B")
    assert story.classes() == {"calm-duplicate"}


def test_a_lease_is_kept_unless_the_network_is_cut() -> None:
    story = Story()
    story.add(0, "x", retry=10)
    story.get(100, "x")
    story.get(1_000, "x", node="B")
    assert story.classes() == {"lease-broken"}
    story = Story()
    story.mark(0, "fault", number=1, kind="cut", who="A", phase="begin")
    story.add(0, "x", retry=10)
    story.get(100, "x")
    story.get(1_000, "x", node="B")
    assert story.classes() == set()


def test_a_longer_lease_elsewhere_counts_only_if_its_giver_lived_to_hear_of_it() -> None:
    for crash, found in ((110, set()), (500, {"lease-broken"})):
        story = Story(flight_ms=30)
        story.add(0, "x", retry=1, group="g", skips=True)
        job = {"id": "id-x", "queue": "q", "body": "x", "token": "other.1.1"}
        story.op(99, "B", "get", {"queues": ["q"], "lease": 9_000}, "ok", {"jobs": [job]})
        story.mark(crash, "crash", "A")
        story.mark(crash + 50, "restart", "A")
        story.get(2_000, "x")
        story.about(2_100, "ack", "x")
        assert story.classes() == found, crash


def test_a_job_that_stays_away_after_heal_is_stuck() -> None:
    story = Story()
    story.add(0, "x")
    story.get(100, "x")
    story.mark(30_000, "heal")
    assert story.classes() == {"stuck"}


def test_ttl_and_delay() -> None:
    story = Story()
    story.add(0, "x", ttl=5)
    story.get(7_000, "x")
    story.add(0, "y", delay=3)
    story.get(2_000, "y")
    assert story.classes() == {"after-ttl", "before-delay"}


def test_clocks_that_drift_and_jump_are_forgiven() -> None:
    story = Story(rate_ppm=100_000, skew_ms=5_000)
    story.add(0, "x", ttl=5)
    story.mark(100, "restart", "A", new=False)
    story.get(7_000, "x")
    assert story.classes() == set()


def test_refused_means_it_never_happened() -> None:
    story = Story()
    story.add(0, "x", type="fail", error="PAUSED Queue paused")
    story.get(10, "x")
    assert story.classes() == {"refused-but-there"}


def test_a_refusal_that_took_its_time_means_it_too() -> None:
    """NOREPL is two things: one that timed out leaves doubt, as the client says, and every other one is certain."""
    story = Story()
    story.add(0, "x", type="fail", error="NOREPL The node that decides about its key could not be reached", wait=1_000)
    story.get(1_010, "x")
    assert story.classes() == {"refused-but-there"}


def test_a_ghost_in_calm_times() -> None:
    story = Story()
    story.add(0, "x", type="fail", error="NOREPL Timeout reached", wait=1_000)
    story.get(3_000, "x")
    assert story.classes() == set()
    story.get(30_000, "x")
    assert story.classes() == {"ghost"}


def test_a_paused_queue_hands_out_nothing() -> None:
    story = Story()
    story.add(0, "x")
    story.op(10, "A", "pause", {"queue": "q", "words": ["out"]}, "ok", {"state": "out"})
    story.get(20, "x", node="B")
    story.about(21, "ack", "x")
    assert story.classes() == set()
    story.get(25, "x", node="A")
    assert "paused-but-out" in story.classes()


def test_counters_do_not_go_back() -> None:
    story = Story()
    story.add(0, "x")
    story.get(100, "x", nacks=1, deliveries=2)
    story.get(5_000, "x", nacks=1, deliveries=1)
    assert story.classes() == {"counters-back"}


def test_what_a_look_inside_found_counts() -> None:
    story = Story()
    story.history.mark(5, "watch", "", "seen", promise="I5", what="orphan", job="x", text="")
    assert story.classes() == {"orphan"}


def test_white_box_predicates() -> None:
    active, queued, acked, tomb = (Copy(state, 1, "q") for state in ("active", "queued", "acked", "tombstone"))
    once = Copy("active", 0, "q")
    assert orphans(["j"], {"A": {"j": active}, "B": {"j": tomb}}) == ["j"]
    assert orphans(["j"], {"A": {"j": active}, "B": {"j": acked}}) == []
    assert orphans(["j"], {"A": {"j": once}, "B": {}}) == []
    assert uncollected(["j"], {"A": {"j": acked, "k": acked}, "B": {"j": tomb}}) == [("j", "A", "acked")]
    assert queued_twice({"A": {"j": queued}, "B": {"j": queued}, "C": {"j": active}}) == [("j", ["A", "B"])]


def test_who_is_dead_is_dead_everywhere() -> None:
    dead, active, acked = (Copy(state, 1, "q") for state in ("dead", "active", "acked"))
    assert half_dead({"A": {"j": dead, "k": dead}, "B": {"j": active, "k": dead}}) == [
        ("j", {"A": "dead", "B": "active"})
    ]
    assert half_dead({"A": {"j": dead}, "B": {"j": acked}, "C": {"k": active}}) == []


def test_a_history_survives_jsonl() -> None:
    story = Story()
    story.add(0, "x")
    story.get(100, "x", nacks=1, deliveries=2)
    again = History.from_jsonl(story.history.to_jsonl().splitlines())
    assert again.ops == story.history.ops
    assert again.sha256() == story.history.sha256()


def test_a_scheduled_job_is_added_twice_by_two_owners_or_by_one_that_started_anew() -> None:
    for mark, other, found in (
        ("", "A", {"told-twice"}), ("restart", "A", set()), ("", "B", {"told-twice"}), ("calm", "B", set()),
        ("calm", "A", {"told-twice"}),
    ):
        story = Story()
        story.history.mark(100, "watch", "A", "told", event="added", job="DI00000000x")
        if mark:
            story.mark(200, mark, "A", on=False)
        story.history.mark(300, "watch", other, "told", event="added", job="DI00000000x")
        assert story.classes() == found, (mark, other)


def told(story: Story, t: int, event: str, body: str, node: str = "A") -> None:
    story.history.mark(t, "watch", node, "told", event=event, job=f"id-{body}")


def test_a_history_that_agrees_with_what_clients_saw() -> None:
    story = Story()
    story.add(0, "x")
    told(story, 1, "added", "x")
    story.get(100, "x")
    told(story, 100, "handed-out", "x")
    story.about(200, "ack", "x")
    told(story, 201, "acked", "x")
    assert story.classes() == set()


def test_a_history_in_which_something_is_missing() -> None:
    for missing in ("added", "handed-out", "acked"):
        story = Story()
        story.add(0, "x")
        story.get(100, "x")
        story.about(200, "ack", "x")
        for t, event in ((1, "added"), (100, "handed-out"), (201, "acked")):
            told(story, t if event != missing else t + 7, event, "x", "A")
        assert story.classes() == {f"untold-{missing}"}


def test_a_history_that_says_what_did_not_happen() -> None:
    story = Story()
    story.add(0, "x")
    told(story, 1, "added", "x")
    told(story, 5, "added", "x")
    told(story, 9, "acked", "x")
    story.get(100, "x")
    told(story, 100, "handed-out", "x")
    assert story.classes() == {"told-twice", "told-and-untrue"}


def test_a_tenant_whose_one_job_waits_for_many_of_another() -> None:
    """Twenty of `many` are there when `one` comes. Of two tenants one hand-out of the other is fair, two are slack."""
    for place, expected in ((4, set()), (12, {"tenant-waits"})):
        story = Story()
        for number in range(20):
            story.add(100, f"m{number}", tenant="many", retry=600)
        story.add(200, "one", tenant="one", retry=600)
        order = [f"m{number}" for number in range(20)]
        order.insert(place - 1, "one")
        for number, body in enumerate(order):
            story.get(1_000 + 10 * number, body)
            story.about(1_005 + 10 * number, "ack", body)
        assert story.classes() == expected, place


def test_two_that_are_linked_and_both_decide_are_seen() -> None:
    for is_wrong in (False, True):
        sim = Cluster(nodes="ABC", seed=9)
        group = group_at(sim, "ABC")
        sim.add_keyed(at="C", group=group, replicate=2, retry_s=60)
        node: Any = sim.hosts["B"].node
        for _ in range(400):
            if is_wrong:  # again and again: nodes mend it as soon as they notice
                node.homes.open(home.slot_of(home.GROUP, b"q", group.encode()))
            sim.run_for(seconds=0.1)
        assert {violation.what for violation in sim.finish()} == ({"two-homes"} if is_wrong else set())


def test_books_that_are_wrong_are_seen() -> None:
    """A tenant without a turn, a line that is longer than it says, more jobs than a bound allows."""
    for is_wrong in (False, True):
        sim = Cluster(nodes="A", seed=10)
        for tenant in ("a", "b"):
            sim.add_keyed(at="A", tenant=tenant, retry_s=60)
        node: Any = sim.hosts["A"].node
        queue = node.queues[b"q"]
        assert wrong(node, {}, True) == []
        if is_wrong:
            line = queue.rules.lines[b"a"]
            queue.rules.turns.remove(line)
            line.size += 1
        found = {what for what, _ in wrong(node, {}, True)}
        assert found == ({"tenant-left-out", "books-wrong"} if is_wrong else set())


def test_a_queue_that_is_longer_than_its_bound_is_seen_if_it_got_so_under_the_bound() -> None:
    """What was accepted before the node knew the bound may stay; a job that comes after it must find room."""
    for mutant, before, expected in (
        ("", 4, set()), ("maxlen-not-asked", 4, {"maxlen-passed"}), ("maxlen-not-asked", 0, {"maxlen-passed"}),
        ("maxlen-not-asked", 1, {"maxlen-passed"}),
    ):
        sim = Cluster(nodes="AB", seed=11, mutants=frozenset({mutant} - {""}))
        for _ in range(before):
            sim.add_job(at="B", retry_s=60)
        sim.do("A", "QUEUE", "SET", "q", "maxlen", "2")
        sim.run_for(seconds=2)
        sim.watcher.look()
        taken = [sim.try_add(at="B", retry_s=60)[0] for _ in range(3 - min(before, 2))]
        sim.run_for(seconds=2)
        assert all(taken) == bool(mutant)
        assert {violation.what for violation in sim.finish()} == expected, (mutant, before)


def test_an_at_most_once_job_that_comes_back_may_make_a_queue_longer_than_its_bound() -> None:
    sim = Cluster(nodes="AB", seed=12)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "1")
    sim.run_for(seconds=2)
    sim.wait_for_job(at="B", timeout_ms=500)
    sim.run_for(seconds=0.1)
    late = sim.hold("A", "B")
    given = sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=1)
    sim.end_fault(late)
    sim.run_for(seconds=1)
    assert sim.copies(given) == {"B": "queued"}, "nobody waits there any more"
    sim.add_job(at="A", retry_s=0)
    gone = [sim.wait_for_job(at="A") for _ in range(2)]
    sim.run_for(seconds=1)
    assert gone[1] == [given]
    node: Any = sim.hosts["A"].node
    assert node.queues[b"q"].held == 2
    assert {violation.what for violation in sim.finish()} == set()


def test_an_ack_under_a_token_lives_with_the_disk_of_the_node_that_took_it() -> None:
    """B gave the job out, D was told. If B can be asked the ack is B's: lost with the end of its disk, and wrongly
    forgotten otherwise. If it cannot be the ack is D's, whatever becomes of B."""
    for lost, is_cut, is_forgotten, expected in (
        ("B", False, True, set()), ("", False, True, {"orphan"}), ("", False, False, set()),
        ("B", True, True, {"orphan"}), ("D", True, True, set()), ("B", True, False, set()),
    ):
        sim = Cluster(nodes="BD", seed=13)
        job = sim.add_job(at="B", retry_s=60)
        taken, token = sim.take(at="B")
        assert taken == job
        if is_cut:
            sim.cut("B")
            sim.run_for(seconds=30)
        assert sim.under("ack", job, token, at="D") == "1"
        taker: Any = sim.hosts["D" if is_cut else "B"]
        taker.crash("kill")
        if is_forgotten:
            del taker.disk.records[-1]
        if lost:
            sim.history.mark(sim.now, "nemesis", lost, "loss", wiped=False, records=1)
        taker.boot()
        sim.watcher.look()
        seen = {op.value["what"] for op in sim.history.ops if op.f == "seen"}
        assert seen == expected, (lost, is_cut, is_forgotten)
