"""Where copies go, and which of them count: zones, machines, nodes behind one port."""
from __future__ import annotations

import pytest

from holdfast.core import replicate
from holdfast.core.job import WAIT_REPL, Job
from holdfast.wire import bus

from .making import Mesh


@pytest.mark.parametrize(
    ("places", "copies", "asked"),
    [
        (("a", "b"), 1, [1]),
        (("a", "a", "b", "c"), 2, [2, 3]),
        (("a", "b", "a"), 3, [0, 1, 2]),
        (("b/x", "c/y", "d/x"), 1, [1]),
        (("a/y", "b/x", "b/x"), 1, [0]),
        (("b/x", "a/x"), 1, [0]),
    ],
)
def test_copies_go_to_other_zones_then_to_other_machines_then_anywhere(
    places: tuple[str, ...], copies: int, asked: list[int]
) -> None:
    """Where several are as good, chance decides; here only one choice is the best."""
    mesh = Mesh(*places, zone="x" if "/" in places[0] else "")
    assert mesh.asked(mesh.add("REPLICATE", str(copies + 1))) == asked


def test_two_copies_do_not_go_to_one_machine_while_there_is_another() -> None:
    for _ in range(20):
        mesh = Mesh("b", "b", "c")
        job = mesh.add("REPLICATE", "3")
        assert 2 in mesh.asked(job) and len(mesh.asked(job)) == 2


def test_a_copy_on_the_same_machine_does_not_count_while_another_machine_can_be_reached() -> None:
    """The other machine is slow, and after 50 ms the neighbour is asked as well and answers at once."""
    mesh = Mesh("a", "b")
    job = mesh.add("REPLICATE", "2")
    assert mesh.asked(job) == [1]
    mesh.wait(replicate.ONE_MORE_MS)
    assert mesh.asked(job) == [0, 1]
    assert not mesh.confirm(job, 0)
    assert mesh.confirm(job, 1)


def test_a_copy_on_the_same_machine_counts_once_the_other_machine_is_out_of_reach() -> None:
    mesh = Mesh("a", "b")
    job = mesh.add("REPLICATE", "2")
    mesh.wait(replicate.ONE_MORE_MS)
    assert not mesh.confirm(job, 0)
    mesh.node.link_down(mesh.peers[1])
    mesh.wait(replicate.ONE_MORE_MS)
    assert job.task is None


def test_more_copies_than_machines_are_made_on_some_twice() -> None:
    mesh = Mesh("a", "b")
    job = mesh.add("REPLICATE", "3")
    assert not mesh.confirm(job, 1)
    assert mesh.confirm(job, 0)


@pytest.mark.parametrize(
    ("cores", "places", "replicate"),
    [("1", ("a",), 2), ("2", ("a",), 1), ("2", ("a", "b", "b"), 2), ("1", ("a", "b"), 3)],
)
def test_nodes_behind_one_port_want_a_copy_per_machine(cores: str, places: tuple[str, ...], replicate: int) -> None:
    mesh = Mesh(*places, cores=cores)
    assert mesh.add().replicate == replicate


def test_sync_answers_after_so_many_copies_and_goes_on_with_the_rest() -> None:
    mesh = Mesh("b", "c")
    job = mesh.add("REPLICATE", "3", "SYNC", "2")
    mesh.confirm(job, 0)
    assert job in mesh.node.filling and mesh.node.wakeups[-1][1].startswith(b"+DI")
    mesh.confirm(job, 1)
    assert job not in mesh.node.filling


def test_replies_to_one_session_leave_as_one_piece_and_in_order() -> None:
    """A frame that answers for many jobs, the second before the first."""
    mesh = Mesh("b")
    first, second = (mesh.add("REPLICATE", "2"), mesh.add("REPLICATE", "2"))
    mesh.say(0, b"".join(bytes([bus.GOTJOB]) + mesh.node.id_text(job) + b"\x00" for job in (second, first)))
    expected = b"".join(b"+" + mesh.node.id_text(job) + b"\r\n" for job in (first, second))
    assert [data for _, data in mesh.node.wakeups] == [expected]


def acknowledge(mesh: Mesh, number: int) -> None:
    """The peer has had every frame of ours, and says no more than that."""
    mesh.node.flush()
    mesh.say(number, b"")


def test_a_producer_that_names_no_number_waits_three_looks_for_a_slow_node() -> None:
    mesh = Mesh("b", "c")
    job = mesh.add("SAYCOPIES")
    assert not mesh.confirm(job, 0)
    mesh.wait(replicate.ONE_MORE_MS)
    mesh.wait(replicate.ONE_MORE_MS)
    assert job.state == WAIT_REPL
    mesh.wait(replicate.ONE_MORE_MS)
    assert job.state != WAIT_REPL and job in mesh.node.filling
    assert mesh.node.wakeups[-1][1].endswith(b":2\r\n")
    assert mesh.node.counters["added-with-fewer-copies"] == 1


def test_a_nap_of_the_node_itself_makes_nobody_slow() -> None:
    """Half a second passes in one look: the answers are here, and have yet to be read."""
    mesh = Mesh("b", "c")
    job = mesh.add()
    mesh.wait(500)
    assert job.state == WAIT_REPL and not any(peer.is_slow() for peer in mesh.peers)


def test_two_copies_are_waited_for_while_another_node_is_heard() -> None:
    mesh = Mesh("b", "c")
    job = mesh.add()
    for _ in range(10):
        mesh.wait(replicate.ONE_MORE_MS)
    assert job.state == WAIT_REPL
    mesh.confirm(job, 1)
    assert job.state != WAIT_REPL


def test_a_slow_node_is_not_waited_for_again_until_it_acknowledges() -> None:
    mesh = Mesh("b", "c")
    first = mesh.add()
    mesh.node.flush()
    mesh.confirm(first, 0)
    for _ in range(replicate.PATIENCE):
        mesh.wait(replicate.ONE_MORE_MS)
    assert [peer.is_slow() for peer in mesh.peers] == [False, True]
    second = mesh.add()
    assert mesh.asked(second) == [0, 1], "it gets its copy all the same"
    mesh.confirm(second, 0)
    assert second.state != WAIT_REPL
    acknowledge(mesh, 1)
    third = mesh.add()
    mesh.confirm(third, 0)
    assert third.state == WAIT_REPL, "it is quick again, and waited for"


def test_an_add_whose_time_is_over_has_the_copies_that_are_there() -> None:
    """The producer gives 60 ms and names no number: two copies are a reply, and one is none."""
    mesh = Mesh("b", "c")
    mesh.do("ADDJOB", "q", "body", "60")
    job = mesh.node.all_jobs()[-1]
    mesh.confirm(job, 0)
    mesh.wait(60)
    assert job.state != WAIT_REPL and mesh.node.wakeups[-1][1].startswith(b"+DI")
    mesh.step(2, "ADDJOB", "q", "body", "60")
    mesh.wait(60)
    assert mesh.node.wakeups[-1][1].startswith(b"-NOREPL Timeout")


@pytest.mark.parametrize(("words", "waits"), [(("REPLICATE", "3"), True), (("REPLICATE", "4"), False)])
def test_a_node_that_has_just_gone_counts_until_it_is_suspect(words: tuple[str, ...], waits: bool) -> None:
    mesh = Mesh("b", "c")
    mesh.node.link_down(mesh.peers[1])
    refused = mesh.do("ADDJOB", "q", "body", "5000", *words)
    assert (refused is None) is waits
    mesh.peers[1].is_suspect = True
    again = mesh.step(2, "ADDJOB", "q", "body", "5000", *words).reply
    assert again is not None and again.startswith(b"-NOREPL Not enough reachable nodes")


def add_two(mesh: Mesh, *options: str) -> tuple[Job, Job]:
    mesh.do("ADDJOBS", "q", "0", "2", "a", "b", *options)
    first, second = mesh.node.all_jobs()[-2:]
    return first, second


def test_jobs_of_one_call_are_accepted_together_whatever_copies_come_meanwhile() -> None:
    """The first has all its copies, more than are waited for, before the second has enough."""
    mesh = Mesh("b", "c")
    first, second = add_two(mesh, "REPLICATE", "3", "SYNC", "2", "SAYCOPIES")
    mesh.confirm(first, 0)
    mesh.confirm(first, 1)
    assert first.state == WAIT_REPL, "handed out although the second may be refused"
    mesh.confirm(second, 0)
    assert first.state != WAIT_REPL and second.state != WAIT_REPL
    assert mesh.node.wakeups[-1][1].startswith(b"*2\r\n*2\r\n+DI") and mesh.node.wakeups[-1][1].endswith(b":2\r\n")
    assert first not in mesh.node.filling and second in mesh.node.filling


def test_a_job_of_one_call_that_ends_before_the_others_are_accepted_counts_as_one_of_them() -> None:
    mesh = Mesh("b", "c")
    first, second = add_two(mesh, "REPLICATE", "2")
    id = mesh.node.id_text(first)
    assert mesh.step(2, "DELJOB", id).reply == b":1\r\n"
    assert not mesh.node.wakeups, "an id in place of the list of ids"
    mesh.confirm(second, mesh.asked(second)[0])
    assert [data for _, data in mesh.node.wakeups] == [b"*2\r\n+%b\r\n+%b\r\n" % (id, mesh.node.id_text(second))]


def test_a_turn_fills_up_the_copies_of_so_many_jobs_and_the_next_goes_on() -> None:
    mesh = Mesh("b", "c")
    while len(mesh.node.filling) <= replicate.FILLED_AT_ONCE:
        mesh.do("ADDJOBS", "q", "0", "1000", *["x"] * 1000, "REPLICATE", "3", "ASYNC")
    before = list(mesh.node.filling)
    replicate.fill(mesh.node)
    most = replicate.FILLED_AT_ONCE
    assert list(mesh.node.filling) == before[most:] + before[:most]
