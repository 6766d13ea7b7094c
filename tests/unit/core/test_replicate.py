"""Where copies go, and which of them count: zones, machines, nodes behind one port."""
from __future__ import annotations

import pytest

from holdfast.core import replicate
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
