"""Each thing that can be wrong with a cluster, by figures made by hand; and what is no problem."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.client.figures import Figures, QueueFigures
from holdfast.client.members import Away, Member
from holdfast.client.past import COUNTS, Sums
from holdfast.client.sight import NodeSight, Sight, with_figures_of
from holdfast.client.trouble import BAD, REMARK, Problem, what_is_wrong

A, B, C = "a" * 40, "b" * 40, "c" * 40
WELL: Mapping[str, str] = {
    "used_memory": "1", "maxmemory": "1000", "aof_enabled": "1", "aof_last_sync_status": "ok",
    "aof_last_write_status": "ok", "aof_disk_free": str(1 << 40), "faults": "0",
}


def member(node: str, flags: str = "noflags", is_linked: bool = True) -> Member:
    return Member(node, "10.0.0.1", 7711, flags, is_linked, heard_ms=1_000_000)


def node(name: str = A, ahead: float = 0.0, cluster: Mapping[str, str] | None = None, **info: str) -> NodeSight:
    return NodeSight(name, {**WELL, **info}, cluster or {}, ahead=ahead)


def seen(**given: Any) -> Sight:
    nodes = given.pop("nodes", (node(),))
    given.setdefault("members", (member(A, "myself"),))
    return Sight(now=2000.0, nodes={each.id: each for each in nodes}, **given)


def queue(**figures: Any) -> Sight:
    return seen(figures=Figures((QueueFigures("mail", **figures),), ()))


def counted(**counts: int) -> Sight:
    sums = (Sums("mail", 1999, {**dict.fromkeys(COUNTS, 0), **counts}),)
    nodes = tuple(NodeSight(each, WELL, {}, sums) for each in (A, B))
    return seen(nodes=nodes, figures=Figures((QueueFigures("mail", dead=9),), ()))


ROWS = [
    ("node-away", BAD, "1 of 2 nodes is away: bbbbbbbb at 10.0.0.1:7711",
     seen(members=(member(A, "myself"), member(B, "fail", is_linked=False)))),
    ("jobs-wait-for-node", BAD, "7 jobs wait for node bbbbbbbb at 10.0.0.1:7711 (away 12 s)",
     seen(members=(member(A, "myself"),), away=(Away(B, "10.0.0.1", 7711, 12.0, 3.0, 7),))),
    ("node-not-met", REMARK, "nobody of the cluster answers at 10.0.0.1:7711",
     seen(members=(member(A, "myself"), member(B, "handshake", is_linked=False)))),
    ("node-silent", BAD, "node bbbbbbbb at 10.0.0.1:7711 does not answer",
     seen(members=(member(A, "myself"), member(B)), silent=(B,))),
    ("queue-paused", REMARK, "the queue mail is paused (out): 3 jobs wait", queue(queued=3, paused="out")),
    ("queue-paused", REMARK, "the queue mail is paused (in)", queue(paused="in")),
    ("nobody-works", BAD, "nobody works the queue mail: 2 jobs wait, the oldest for 30 s",
     queue(queued=2, longest_wait=30)),
    ("jobs-wait", REMARK, "a job of the queue mail waits for 15 min, 2 in all",
     queue(queued=2, leased=1, longest_wait=901)),
    ("jobs-die", BAD, "2 jobs of the queue mail failed for good in the last 10 minutes", counted(dead=1)),
    ("jobs-expire", BAD, "4 jobs of the queue mail expired in the last 10 minutes", counted(expired=2)),
    ("memory", BAD, "memory of node aaaaaaaa: 96% of", seen(nodes=(node(used_memory="960"),))),
    ("memory", REMARK, "memory of node aaaaaaaa: 80% of", seen(nodes=(node(used_memory="800"),))),
    ("sync-failed", BAD, "the disk of the node aaaaaaaa has failed", seen(nodes=(node(aof_last_sync_status="err"),))),
    ("journal-fails", BAD, "the journal of node aaaaaaaa cannot be written",
     seen(nodes=(node(aof_last_write_status="err"),))),
    ("disk-full", BAD, "5 MiB free on the disk of node aaaaaaaa", seen(nodes=(node(aof_disk_free=str(5 << 20)),))),
    ("overflow-fails", BAD, "cannot keep jobs on its disk", seen(nodes=(node(overflow_status="err"),))),
    ("jobs-doubtful", REMARK, "1 job of a damaged journal", seen(nodes=(node(aof_jobs_doubtful="1"),))),
    ("journal-damaged", REMARK, "1 file of the journal changed on the disk",
     seen(nodes=(node(aof_damaged_files="1"),))),
    ("files-set-aside", REMARK, "2 damaged files of the journal are set aside",
     seen(nodes=(node(aof_set_aside_files="2"),))),
    ("short-of-copies", BAD, "1 job with fewer copies",
     seen(nodes=(node(cluster={"cluster_jobs_short_of_copies": "1"}),))),
    ("other-timeouts", BAD, "different cluster-node-timeout",
     seen(nodes=(node(cluster={"cluster_other_node_timeouts": "1"}),))),
    ("clock", BAD, "the clock of node bbbbbbbb is 60 s ahead of that of the others",
     seen(nodes=(node(A), node(B, ahead=60), node(C, ahead=0.2)))),
    ("credentials-unread", BAD, "node aaaaaaaa could not read its secret or certificate again",
     seen(nodes=(node(credentials_reload_failed="1"),))),
    ("frames-changed", BAD, "2 frames of other nodes changed on the way to node aaaaaaaa",
     seen(nodes=(node(bus_frames_refused="2"),))),
    ("faults", BAD, "the node aaaaaaaa met 1 fault", seen(nodes=(node(faults="1"),))),
]


@pytest.mark.parametrize(("kind", "level", "words", "sight"), ROWS, ids=[f"{row[0]}: {row[2]}" for row in ROWS])
def test_what_is_wrong_is_said_with_its_cause_and_what_helps(kind: str, level: str, words: str, sight: Sight) -> None:
    found = what_is_wrong(sight)
    assert [(each.kind, each.level) for each in found] == [(kind, level)]
    assert words in found[0].what
    assert found[0].cause and found[0].do


@pytest.mark.parametrize("sight", [
    seen(), queue(queued=5, longest_wait=29), queue(queued=5, longest_wait=100, idle_workers=1),
    queue(queued=5, longest_wait=100, leased=1), queue(queued=5, longest_wait=100, out_per_second=1),
    queue(dead=7), counted(added=5, acked=5), seen(nodes=(node(A), node(B, ahead=4.9))),
    seen(nodes=(node(used_memory="700"),)), seen(nodes=()),
], ids=str)
def test_a_cluster_that_is_well_has_no_problem(sight: Sight) -> None:
    assert what_is_wrong(sight) == []


def test_the_worst_comes_first_and_what_two_nodes_say_is_said_once() -> None:
    short = {"cluster_jobs_short_of_copies": "3"}
    found = what_is_wrong(seen(
        nodes=(node(A, cluster=short), node(B, cluster=short, aof_damaged_files="1")),
        figures=Figures((QueueFigures("mail", paused="all"),), ())))
    assert [each.kind for each in found] == ["short-of-copies", "queue-paused", "journal-damaged"]


def test_commands_can_be_typed_and_problems_name_what_they_are_about() -> None:
    sight = seen(figures=Figures((QueueFigures("a b; rm", paused="all"),), ()))
    [found] = what_is_wrong(sight)
    assert (found.command, found.queue) == ("holdfast resume 'a b; rm'", "a b; rm")
    away = what_is_wrong(seen(members=(member(A, "myself"), member(B, is_linked=False))))[0]
    assert isinstance(away, Problem) and (away.node, away.since) == (B, 1000)


def test_who_may_see_some_queues_hears_of_no_other() -> None:
    both = Figures((QueueFigures("mail", paused="all"), QueueFigures("pay", paused="all")), ())
    found = what_is_wrong(with_figures_of(seen(figures=both), ["pay"]))
    assert [each.queue for each in found] == ["pay"]
    assert what_is_wrong(with_figures_of(counted(dead=1), [])) == []
