"""The judge of times on looks made by hand: each promise once kept and once broken."""
from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.checkers.reach import FAILED_MS, GONE_MS, HOME_MS, REACH_MS, Absent, Judge, Moment, late_links
from holdfast.testing.checkers.whitebox import Copy

SLOT = 0xFF << 24


def copy(stands: str, left_ms: int = 0, state: str = "active") -> Copy:
    return Copy(state, 5, "q", stands, left_ms)


def moment(t: int, **more: Any) -> Moment:
    return Moment(**{"t": t, "steady": 0, "lag": 3, "node_timeout": 2_000, "accepted": frozenset("j"), **more})


def complaints(judge: Judge, *moments: Moment) -> list[str]:
    return [what for each in moments for what, _, _ in judge.look(each)]


def looks(until: int, **more: Any) -> list[Moment]:
    return [moment(t, **more) for t in range(10_000, until, 500)]


@pytest.mark.parametrize(("stands", "found"), [
    ({"A": "elsewhere", "B": "elsewhere"}, True),
    ({"A": "asking", "B": "put-off"}, True),
    ({"A": "elsewhere", "B": "queued"}, False),
    ({"A": "elsewhere", "B": "out"}, False),
    ({"A": "delayed", "B": "elsewhere"}, False),
    ({"A": "in-line"}, False),
])
def test_a_job_that_nobody_has_is_out_of_reach(stands: dict[str, str], found: bool) -> None:
    jobs = {name: {"j": copy(word)} for name, word in stands.items()}
    assert ("out-of-reach" in complaints(Judge(), *looks(14_000, jobs=jobs))) == found


@pytest.mark.parametrize("over", ["acked", "dead", "tombstone"])
def test_a_job_that_has_ended_or_died_is_nobodys(over: str) -> None:
    jobs = {"A": {"j": copy("elsewhere")}, "B": {"j": copy("", state=over)}}
    assert complaints(Judge(), *looks(20_000, jobs=jobs)) == []


def test_nobody_need_have_a_job_that_was_not_accepted_or_while_nodes_do_not_hear_each_other() -> None:
    jobs = {"A": {"j": copy("elsewhere")}}
    assert complaints(Judge(), *looks(20_000, jobs=jobs, accepted=frozenset())) == []
    assert complaints(Judge(), *looks(20_000, jobs=jobs, steady=-1)) == []
    assert complaints(Judge(), *looks(20_000, jobs=jobs, wishes=frozenset("q"))) == []


def test_what_was_out_at_a_node_that_died_is_out_until_its_time_ends() -> None:
    jobs = {"A": {"j": copy("elsewhere")}}
    judge = Judge()
    judge.dies(9_000, {"j": copy("out", 10_000)})
    assert complaints(judge, *looks(19_000, jobs=jobs)) == []
    assert complaints(judge, *[moment(t, jobs=jobs) for t in (22_000, 24_500)]) == ["out-of-reach"]


@pytest.mark.parametrize("is_told", [True, False])
def test_what_waited_at_a_node_that_died_is_back_when_that_has_failed(is_told: bool) -> None:
    jobs = {"A": {"j": copy("elsewhere")}}
    failed = 10_000 + (0 if is_told else 2_000) + FAILED_MS + GONE_MS
    found = {}
    for each in [moment(t, jobs=jobs, absent=(Absent(10_000, is_told),)) for t in range(10_000, failed + 1_000, 100)]:
        judge = found.setdefault("judge", Judge())
        if complaints(judge, each):
            assert each.t > failed
            return
    pytest.fail("it is out of reach, and nobody complains")


def test_a_job_is_not_put_off_by_a_restart() -> None:
    before, down, after = {"A": {"j": copy("out", 4_000)}}, {}, {"A": {"j": copy("out", 6_000)}}
    assert complaints(Judge(), moment(10_000, jobs=before), moment(11_000, jobs=down), moment(12_000, jobs=after)) == [
        "put-off"
    ]
    sooner = {"A": {"j": copy("out", 2_500)}}
    for excuse in ({"touched": frozenset("j")}, {"are_clocks_right": False}, {"jobs": sooner}):
        last = moment(12_000, **{"jobs": after, **excuse})
        assert complaints(Judge(), moment(10_000, jobs=before), moment(11_000, jobs=down), last) == []
    once_more = {"A": {"j": after["A"]["j"]._replace(turn=1)}}
    assert complaints(Judge(), moment(10_000, jobs=before), moment(12_000, jobs=once_more)) == [], "lent, and back"
    again = moment(15_000, jobs=after)
    assert complaints(Judge(), moment(10_000, jobs=before), again) == [], "its time was over: it is out once more"


def test_who_waits_gets_what_is_queued() -> None:
    queued, waiting = {"A": {"j": copy("queued", state="queued")}}, {"q": frozenset([("B", 7, 0)])}
    judge = Judge()
    assert complaints(judge, moment(10_000, jobs=queued, consumers=waiting)) == [] and judge.is_unsure()
    assert list(judge.not_handed_out(moment(10_090, jobs=queued, consumers=waiting))) == []
    assert [each[0] for each in judge.not_handed_out(moment(10_200, jobs=queued, consumers=waiting))] == [
        "not-handed-out"
    ]
    kept = {"A": {"j": copy("kept", state="queued")}}
    assert complaints(Judge(), *looks(20_000, jobs=kept, consumers=waiting)) == []
    assert complaints(Judge(), *looks(20_000, jobs=queued, consumers={"other": waiting["q"]})) == []
    assert complaints(Judge(), *[
        moment(t, jobs=queued, consumers={"q": frozenset([("B", 7, t)])}) for t in (10_000, 10_500, 11_000)
    ]) == [], "each time another wait"


def test_every_key_that_had_a_home_has_one_again() -> None:
    judge, gone = Judge(), (Absent(10_000, True),)
    assert complaints(judge, moment(9_000, homes=SLOT)) == []
    assert complaints(judge, *[moment(t, absent=gone) for t in (10_100, 10_000 + HOME_MS)]) == []
    assert complaints(judge, moment(10_200 + HOME_MS, absent=gone)) == ["no-home"]
    assert complaints(judge, moment(12_000, homes=SLOT)) == []
    assert complaints(judge, *[moment(t, steady=12_500, absent=gone) for t in (12_600, 12_400 + REACH_MS)]) == []


def test_keys_of_which_nobody_knows_any_more_have_no_home_to_miss() -> None:
    """All disks were lost: who uses such a key finds it a home."""
    judge, gone = Judge(), (Absent(10_000, True),)
    assert complaints(judge, moment(9_000, homes=SLOT)) == []
    assert complaints(judge, *[moment(t, known=0, absent=gone) for t in (10_100, 12_000, 20_000)]) == []
    assert complaints(judge, *[moment(t, known=SLOT, absent=gone) for t in (20_900, 21_800, 22_700)]) == ["no-home"]


def test_the_home_of_a_key_is_missed_later_if_nobody_said_that_it_is_gone() -> None:
    judge, silent = Judge(), (Absent(10_000, False),)
    times = (10_100, 12_000, 13_000, 13_100)
    assert complaints(judge, moment(9_000, homes=SLOT), *[moment(t, absent=silent) for t in times]) == ["no-home"]


def test_two_nodes_that_nothing_keeps_apart_have_a_link_soon() -> None:
    assert list(late_links(12_000, 3, {("A", "B"): 10_000})) == []
    assert [each[0] for each in late_links(12_100, 3, {("A", "B"): 10_000, ("A", "C"): 12_000})] == ["link-late"]
