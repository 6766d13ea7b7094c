"""Who is told of an ending, and what its answer is worth, by when it was given."""
from __future__ import annotations

from holdfast.core import acks
from holdfast.core.job import Job
from holdfast.wire import bus

from .making import Mesh

HOLDER, OTHER = 0, 1


def acked(mesh: Mesh) -> Job:
    """A job of which one peer has a copy; whether the other has one, too, nobody knows for sure."""
    mesh.node.force_holders = [mesh.peers[HOLDER].node_id()]
    job = mesh.add("REPLICATE", "2")
    assert mesh.confirm(job, HOLDER)
    acks.distrust(mesh.node, job)
    mesh.do("ACKJOB", mesh.node.id_text(job))
    assert told(mesh) == [HOLDER, OTHER]
    return job


def told(mesh: Mesh) -> list[int]:
    """Who is told of it in this turn."""
    mesh.node.flush()
    frames = list(mesh.node.frames)
    mesh.node.frames.clear()
    return [mesh.peers.index(peer) for peer, data in frames if bytes([bus.SETACK]) + b"DI" in data]


def answer(mesh: Mesh, job: Job, number: int, kind: int, named: int) -> None:
    """GOTACK of a peer, which names another as a holder and has the same numbers for nodes as we do."""
    peer = mesh.peers[named]
    explained = bytes([bus.NODE, int(peer.index)]) + peer.node_id() + (1).to_bytes(8, "little")
    mask = int(peer.bit).to_bytes(8, "little")
    mesh.say(number, explained + bytes([bus.GOTACK]) + mesh.node.id_text(job) + bytes([kind]) + mask)


def test_nobody_is_told_twice_over_one_link_before_it_has_answered() -> None:
    mesh = Mesh("b", "c")
    job = acked(mesh)
    answer(mesh, job, HOLDER, acks.NOT_YET, HOLDER)
    mesh.wait(2 * acks.RETRY_MS)
    assert told(mesh) == [HOLDER]
    mesh.node.link_up(mesh.peers[OTHER].facts)
    assert told(mesh) == [OTHER]


def test_who_knew_nothing_is_asked_again_if_it_was_named_while_its_word_was_on_its_way() -> None:
    for named, is_asked_again in ((HOLDER, False), (OTHER, True)):
        mesh = Mesh("b", "c")
        job = acked(mesh)
        answer(mesh, job, HOLDER, acks.HOLDS, named)
        answer(mesh, job, OTHER, acks.NO_IDEA, HOLDER)
        assert mesh.node.is_here(job) == is_asked_again
        if is_asked_again:
            assert told(mesh) == [OTHER]
            answer(mesh, job, OTHER, acks.NO_IDEA, HOLDER)
            assert not mesh.node.is_here(job)
