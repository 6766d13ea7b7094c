"""Meeting, gossip, forgetting and new lives, on nodes whose frames are carried by hand."""
from __future__ import annotations

import random

from holdfast.core import tombs
from holdfast.core.config import Config
from holdfast.core.effects import DIAL, DROP_LINK, MEET, NEW_ID, UNREACHED
from holdfast.core.errors import NO_REPL_REMOVED
from holdfast.core.limits import BODY_BYTES_EXTRA, JOB_BYTES, TOMB_BYTES, TOMBS_GIVEN_UP, TOMBS_MAX
from holdfast.core.membership import (
    DIAL_AT_ONCE_MS,
    DIAL_WAIT_MS_AWAY,
    DIAL_WAIT_MS_MAX,
    FORGET_MS,
    MEET_MS,
    STRANGERS_MAX,
    is_gone,
    is_stalled,
    met,
    places,
    refused,
    stalled_ms,
)
from holdfast.core.node import Node
from holdfast.core.peers import NODES_MAX, SOMEBODY, Peer, PeerFacts, Tomb
from holdfast.core.session import Session
from holdfast.core.snapshot import Walk

from .making import START_MS


class Member:
    """A node with a session, and what others see of it."""

    def __init__(self, letter: str, host: str = "127.0.0.1") -> None:
        self.id = letter.encode() * 40
        self.node = Node(Config(), self.id, random.Random(letter).randbytes, START_MS)
        self.facts = PeerFacts(self.id, START_MS, host, 7711, 17711)
        self.session: Session = self.node.connect("10.0.0.1:1")

    def do(self, *words: str | bytes) -> bytes:
        self.node.execute(self.session, [word.encode() if isinstance(word, str) else word for word in words])
        return self.node.take_output()

    def asked(self, kind: str) -> list[bytes]:
        """The arguments of the requests of that kind; all requests are carried out by this."""
        found = [request.argument for request in self.node.requests if request.kind == kind]
        self.node.requests.clear()
        return found

    def sleep(self, ms: int) -> None:
        """Time passes; the node is woken whenever it wants to be."""
        end = self.node.now + ms
        while (wake := self.node.next_wake()) <= end:
            self.node.set_time(max(wake, self.node.now), wake)
            self.node.tick()
        self.node.set_time(end, end)


def link(a: Member, b: Member, facts: PeerFacts | None = None) -> tuple[Peer, Peer]:
    """A link; `facts` in place of what `a` would see of `b`."""
    to_b, to_a = a.node.link_up(facts or b.facts), b.node.link_up(a.facts)
    assert to_b is not None and to_a is not None
    return to_b, to_a


def carry(a: Member, b: Member, to_a: Peer) -> None:
    """All that `a` has to say to `b` arrives there, as coming from the peer that `a` is for it."""
    a.node.flush()
    for peer, data in a.node.frames:
        if peer.node_id() == b.id:
            assert b.node.frame(to_a, data)
    a.node.frames.clear()


def talk(a: Member, b: Member, to_b: Peer, to_a: Peer) -> None:
    """Until neither has anything to say any more."""
    for _ in range(10):
        carry(a, b, to_a)
        carry(b, a, to_b)


def test_a_producer_that_waits_for_copies_is_answered_when_its_job_is_deleted() -> None:
    for words in (["QFLUSH", "q"], ["DISQUE", "FLUSHALL"], ["CLUSTER", "RESET"]):
        a, b = Member("a"), Member("b")
        link(a, b)
        producer = a.node.connect("10.0.0.1:2")
        a.node.execute(producer, [b"ADDJOB", b"q", b"body", b"0", b"REPLICATE", b"2"])
        assert a.node.take_output() == b"" and a.node.wakeups == []
        a.do(*words)
        assert a.node.wakeups == [(producer, b"-" + NO_REPL_REMOVED + b"\r\n")], words


def test_a_queue_flushed_at_one_holder_is_flushed_at_the_others() -> None:
    a, b = Member("a"), Member("b")
    to_b, to_a = link(a, b)
    a.do("ADDJOB", "q", "body", "0", "REPLICATE", "2", "RETRY", "1")
    talk(a, b, to_b, to_a)
    assert (a.node.jobs, b.node.jobs) == (1, 1)
    b.do("QFLUSH", "q")
    talk(a, b, to_b, to_a)
    assert [reply for _, reply in b.node.wakeups] == [b":1\r\n"]
    assert (a.node.jobs, b.node.jobs) == (0, 0)


def test_a_node_known_by_a_loopback_address_is_on_the_machine_of_who_told_of_it() -> None:
    """A and C share a machine and know each other as 127.0.0.1; B, elsewhere, hears of C from A."""
    a, b, c = Member("a", "10.0.0.1"), Member("b", "10.0.0.2"), Member("c")
    link(a, c)
    _, to_a = link(a, b)
    b.asked(DIAL)
    carry(a, b, to_a)
    assert b.asked(DIAL) == [b"10.0.0.1:17711"]


def test_an_address_of_the_network_is_told_as_it_is() -> None:
    a, b, c = Member("a"), Member("b"), Member("c", "10.0.0.3")
    link(a, c)
    _, to_a = link(a, b)
    b.asked(DIAL)
    carry(a, b, to_a)
    assert b.asked(DIAL) == [b"10.0.0.3:17711"]


def test_meet_is_tried_less_and_less_often_and_given_up() -> None:
    a = Member("a")
    assert a.do("CLUSTER", "MEET", "10.0.0.2", "7712") == b"+OK\r\n"
    calls = 0
    for _ in range(MEET_MS // 1000 - 1):
        calls += len(a.asked(MEET))
        assert b" 10.0.0.2:7712 handshake 0 0 disconnected" in a.do("CLUSTER", "NODES")
        a.sleep(1000)
    assert 10 <= calls <= 20
    a.asked(MEET)
    a.sleep(DIAL_WAIT_MS_MAX + 1000)
    assert a.asked(UNREACHED) == [b"10.0.0.2:17712"]
    assert b"handshake" not in a.do("CLUSTER", "NODES")
    a.sleep(MEET_MS)
    assert a.asked(MEET) == []


def test_a_meeting_that_nobody_keeps_can_be_taken_back() -> None:
    """By the number that stands in for the id, and that stays the same when another has been met."""
    a = Member("a")
    for name in ("one", "wrong", "three"):
        assert a.do("CLUSTER", "MEET", name, "7712") == b"+OK\r\n"
    met(a.node, b"one:17712")
    assert b"%040x wrong:7712 handshake" % 2 in a.do("CLUSTER", "NODES")
    assert a.do("CLUSTER", "FORGET", f"{2:040x}") == b"+OK\r\n"
    assert a.asked(UNREACHED) == [b"wrong:17712"]
    assert a.do("CLUSTER", "NODES").count(b"handshake") == 1 and b"three" in a.do("CLUSTER", "NODES")
    assert a.do("CLUSTER", "FORGET", f"{2:040x}").startswith(b"-ERR Unknown node")
    a.asked(MEET)
    a.sleep(MEET_MS // 2)
    assert {*a.asked(MEET)} == {b"three:17712"}


def test_there_is_a_bound_to_how_many_are_met_at_once() -> None:
    a = Member("a")
    for i in range(NODES_MAX):
        assert a.do("CLUSTER", "MEET", f"10.0.0.{i}", "7712") == b"+OK\r\n"
    assert a.do("CLUSTER", "MEET", "10.0.1.0", "7712").startswith(b"-ERR ")


def test_an_address_in_brackets_is_met_like_one_without() -> None:
    a = Member("a")
    assert a.do("CLUSTER", "MEET", "[fe80::1%eth0]", "7712") == b"+OK\r\n"
    assert a.do("CLUSTER", "MEET", "fe80::1%eth0", "7712") == b"+OK\r\n"
    assert {*a.asked(MEET)} == {b"[fe80::1%eth0]:17712"}


def test_meet_is_over_when_somebody_was_met() -> None:
    """By its address, by the name it was dialed at, or because the shell says that it is nobody new."""
    a, b = Member("a"), Member("b", "10.0.0.2")
    a.do("CLUSTER", "MEET", "10.0.0.2", "7711")
    a.do("CLUSTER", "MEET", "b.example", "7711")
    a.do("CLUSTER", "MEET", "myself.example", "7711")
    assert a.do("CLUSTER", "NODES").count(b"handshake") == 3
    met(a.node, b"myself.example:17711")
    assert a.do("CLUSTER", "NODES").count(b"handshake") == 2
    link(a, b, PeerFacts(b.id, START_MS, "10.0.0.2", 7711, 17711, dialed=b"b.example:17711"))
    assert a.do("CLUSTER", "NODES").count(b"handshake") == 0
    a.asked(MEET)
    a.do("CLUSTER", "MEET", "10.0.0.2", "7711")
    assert a.asked(MEET) == [], "we have a link with that node"


def test_a_forgotten_node_stays_out_for_a_while_unless_an_operator_wants_it_back() -> None:
    a, b, c = Member("a"), Member("b", "10.0.0.2"), Member("c")
    link(a, b)
    to_c, _ = link(a, c)
    link(c, b)
    a.do("CLUSTER", "FORGET", b.id)
    assert a.asked(DROP_LINK) == [b""]
    a.node.link_down(a.node.by_id[b.id])
    carry(c, a, to_c)
    assert a.asked(DIAL) == [], "gossip does not bring it back"
    assert a.node.link_up(b.facts) is None, "nor does its own call"
    a.do("CLUSTER", "MEET", "10.0.0.2", "7711")
    assert a.node.link_up(b.facts) is not None
    assert b.id in a.do("CLUSTER", "NODES")

    a.do("CLUSTER", "FORGET", b.id)
    a.node.link_down(a.node.by_id[b.id])
    a.sleep(FORGET_MS - 1)
    assert a.node.link_up(b.facts) is None
    a.sleep(1)
    assert a.node.link_up(b.facts) is not None


def test_a_forgotten_node_that_missed_too_much_needs_an_operators_word() -> None:
    a, b = Member("a"), Member("b", "10.0.0.2")
    to_b, _ = link(a, b)
    a.do("CLUSTER", "FORGET", b.id)
    a.node.link_down(to_b)
    until = a.node.now + 10**9
    tombs.bury(a.node, b"the first", 0, to_b.bit, until)
    a.node.tombs.update(dict.fromkeys([b"%d" % i for i in range(TOMBS_MAX - 1)], Tomb(0, 1, until)))
    tombs.bury(a.node, b"the last", 0, 1, until)
    assert TOMBS_MAX - TOMBS_GIVEN_UP <= len(a.node.tombs) <= TOMBS_MAX and b"the first" not in a.node.tombs
    a.node.tombs.clear()
    a.sleep(FORGET_MS)
    assert a.node.link_up(b.facts) is None
    a.do("CLUSTER", "MEET", "10.0.0.2", "7711")
    assert a.node.link_up(b.facts) is not None


def test_another_node_timeout_is_told_once_counted_and_allowed_for() -> None:
    """B waits ten times as long before it gives up a link: what A forgets must stay as long as B may still say it."""
    a, b = Member("a"), Member("b")
    to_b, to_a = link(a, b)
    talk(a, b, to_b, to_a)
    assert a.node.notices == [] and b"cluster_other_node_timeouts:0\r\n" in a.do("CLUSTER", "INFO")
    usual = tombs.soon(a.node) - a.node.now
    b.do("CONFIG", "SET", "cluster-node-timeout", "150000")
    for _ in range(3):
        a.sleep(1000)
        b.sleep(1000)
        talk(a, b, to_b, to_a)
    [(who, words)] = a.node.notices
    assert who == b.id and "150000" in words and "15000" in words
    assert b"cluster_other_node_timeouts:1\r\n" in a.do("CLUSTER", "INFO")
    assert tombs.soon(a.node) - a.node.now == usual + 2 * 135_000
    a.do("CONFIG", "SET", "cluster-node-timeout", "150000")
    assert b"cluster_other_node_timeouts:0\r\n" in a.do("CLUSTER", "INFO")


def test_tombstones_are_part_of_used_memory_and_no_longer_when_they_go() -> None:
    a, b = Member("a"), Member("b")
    to_b, to_a = link(a, b)
    a.do("ADDJOB", "q", "body", "0", "REPLICATE", "2", "RETRY", "1")
    talk(a, b, to_b, to_a)
    used = a.node.used - JOB_BYTES - BODY_BYTES_EXTRA - len(b"body")
    a.do("ACKJOB", a.node.id_text(next(iter(a.node.all_jobs()))))
    talk(a, b, to_b, to_a)
    assert a.node.jobs == 0 and len(a.node.tombs) == 1 and a.node.used == used + TOMB_BYTES
    tombs.lengthen(a.node, 1000)
    assert a.node.used == used + TOMB_BYTES
    a.sleep(tombs.soon(a.node) + 5000 - a.node.now)
    assert not a.node.tombs and a.node.used == used


def test_a_reset_node_is_alone_and_a_hard_one_has_another_id() -> None:
    a, b = Member("a"), Member("b")
    link(a, b)
    assert a.do("CLUSTER", "RESET") == b"+OK\r\n"
    assert a.asked(DROP_LINK) == [b""]
    assert a.do("CLUSTER", "MYID") == b"$40\r\n%b\r\n" % a.id and b.id not in a.do("CLUSTER", "NODES")
    assert a.do("CLUSTER", "RESET", "HARD") == b"+OK\r\n"
    [new_id] = a.asked(NEW_ID)
    assert new_id != a.id and len(new_id) == 40
    assert a.do("CLUSTER", "MYID") == b"$40\r\n%b\r\n" % new_id
    job = a.do("ADDJOB", "q", "body", "0", "REPLICATE", "1")[1:-2]
    assert job[2:10] == new_id[:8] and a.do("ACKJOB", job) == b":1\r\n"


def test_an_older_life_of_a_node_is_not_let_in() -> None:
    """Somebody has started a copy of its folder that is older than the one we know."""
    a, b = Member("a"), Member("b")
    link(a, b)
    assert a.node.link_up(PeerFacts(b.id, START_MS - 1, "127.0.0.1", 7711, 17711)) is None
    assert a.node.by_id[b.id].is_linked
    assert a.node.link_up(PeerFacts(b.id, START_MS + 1, "127.0.0.1", 7711, 17711)) is not None


def test_nodes_that_cannot_be_numbered_are_somebody_and_the_link_goes_on() -> None:
    """A has forgotten many that held its job. B, who has met none of them, can name some; for the others one stands
    that never answers: B does not collect, and A, who knows them all, does."""
    a, b = Member("a"), Member("b")
    a.do("ADDJOB", "q", "body", "0", "REPLICATE", "1", "RETRY", "60")
    [job] = a.node.all_jobs()
    jid = a.node.id_text(job)
    for i in range(40):
        gone = a.node.add_peer(PeerFacts(b"%040x" % (i + 1), 1, "", 0, 0))
        assert gone is not None
        gone.forgotten_until = a.node.now
        job.holders |= gone.bit
    to_b, to_a = link(a, b)
    job.replicate = 2
    a.sleep(2000)
    talk(a, b, to_b, to_a)
    [copy] = b.node.all_jobs()
    assert SOMEBODY in b.node.by_id and copy.holders & b.node.by_id[SOMEBODY].bit
    assert len(b.node.peers) == 1 + 1 + STRANGERS_MAX + 1
    assert b.do("ACKJOB", jid) == b":1\r\n"
    talk(a, b, to_b, to_a)
    assert b.node.jobs == 1, "collected without somebody"
    for _ in range(20):
        a.sleep(1000)
        b.sleep(1000)
        talk(a, b, to_b, to_a)
    assert a.node.jobs == b.node.jobs == 0
    assert a.node.notices == b.node.notices == []


def test_a_node_that_can_know_no_more_nodes_says_so_once() -> None:
    a = Member("a")
    for i in range(NODES_MAX + 3):
        a.node.link_up(PeerFacts(b"%040x" % (i + 1), 1, "10.0.0.2", 7711, 17711))
    assert len(a.node.peers) == NODES_MAX
    [(who, words)] = a.node.notices
    assert who == a.id and f"knows {NODES_MAX} nodes" in words


def test_why_a_frame_is_refused_is_told() -> None:
    a, b = Member("a"), Member("b")
    to_b, _ = link(a, b)
    assert not a.node.frame(to_b, bytes(7))
    [(who, words)] = a.node.notices
    assert who == b.id and "refused" in words


def test_a_leaving_node_says_what_keeps_it() -> None:
    a, b = Member("a"), Member("b")
    to_b, to_a = link(a, b)
    a.do("ADDJOB", "q", "body", "0", "REPLICATE", "1", "RETRY", "60")
    assert a.do("GETJOB", "FROM", "q").startswith(b"*1")
    assert b"cluster_leaving" not in a.do("CLUSTER", "INFO")
    assert a.do("CLUSTER", "LEAVING", "maybe").endswith(b"Use 'yes', 'no' or 'status'\r\n")
    a.do("CLUSTER", "LEAVING", "yes")
    info = a.do("CLUSTER", "INFO")
    assert b"cluster_leaving_leases:1\r\n" in info and b"cluster_leaving_copies_short:0\r\n" in info
    assert a.do("CLUSTER", "LEAVING", "status") == b"+draining\r\n"
    [job] = a.node.all_jobs()
    a.do("ACKJOB", a.node.id_text(job))
    talk(a, b, to_b, to_a)
    assert a.do("CLUSTER", "LEAVING", "status") == b"+safe\r\n"


def test_a_reset_node_stays_alone_until_an_operator_brings_it_together_with_somebody() -> None:
    """The others have it for a member, and call it: also a new one, which it never knew."""
    a, b, c, new = Member("a"), Member("b", "10.0.0.2"), Member("c", "10.0.0.3"), Member("d", "10.0.0.4")
    for other in (b, c):
        link(a, other)
    a.do("CLUSTER", "RESET")
    for other in (b, c):
        a.node.link_down(a.node.by_id[other.id])
    a.sleep(10 * FORGET_MS)
    assert [a.node.link_up(other.facts) for other in (b, c, new)] == [None] * 3
    assert "was reset" in a.node.notices[0][1]
    a.do("CLUSTER", "MEET", "10.0.0.2", "7711")
    assert a.node.link_up(b.facts) is not None
    assert a.node.link_up(c.facts) is not None, "it is of the cluster of the node that was to be met"


def test_a_reset_node_that_is_brought_into_another_cluster_is_not_pulled_back_into_the_first() -> None:
    a, b, other = Member("a"), Member("b", "10.0.0.2"), Member("d", "10.0.0.4")
    link(a, b)
    a.do("CLUSTER", "RESET")
    a.node.link_down(a.node.by_id[b.id])
    facts = PeerFacts(other.id, START_MS, "10.0.0.4", 7711, 17711, is_invited=True)
    assert a.node.link_up(facts) is not None, "the operator of the other has said so"
    a.sleep(10 * FORGET_MS)
    assert a.node.link_up(b.facts) is None
    [(who, _)] = [each for each in a.node.notices if "was reset" in each[1]]
    assert who == b.id


def test_who_is_told_of_after_a_reset_is_called() -> None:
    """A new node of the old cluster has called because its operator said so: the others are where it is."""
    a, b, new = Member("a"), Member("b", "10.0.0.2"), Member("d", "10.0.0.4")
    link(a, b)
    a.do("CLUSTER", "RESET")
    a.node.link_down(a.node.by_id[b.id])
    link(new, b)
    to_new = a.node.link_up(PeerFacts(new.id, START_MS, "10.0.0.4", 7711, 17711, is_invited=True))
    assert to_new is not None and new.node.link_up(a.facts) is not None
    a.asked(DIAL)
    carry(new, a, to_new)
    assert a.asked(DIAL) == [b"10.0.0.2:17711"]
    assert a.node.link_up(b.facts) is not None


def test_that_a_node_was_reset_is_known_after_a_restart() -> None:
    a, b = Member("a"), Member("b", "10.0.0.2")
    a.node.is_recording = True
    link(a, b)
    a.do("CLUSTER", "RESET")
    kept = a.node.take_records()
    again = Member("a")
    again.node.load(kept)
    again.sleep(10 * FORGET_MS)
    assert again.node.link_up(b.facts) is None


def test_a_node_that_was_told_of_and_does_not_answer_is_told_to_the_log_once() -> None:
    a, b, c = Member("a"), Member("b"), Member("c", "10.0.0.3")
    to_b, to_a = link(a, b)
    link(b, c)
    for _ in range(120):
        a.sleep(1000)
        b.sleep(1000)
        talk(a, b, to_b, to_a)
    [(who, words)] = [each for each in a.node.notices if "cannot be reached" in each[1]]
    assert who == c.id and "node bbbbbbbb" in words and "10.0.0.3:17711" in words


def test_a_restart_lets_go_of_forgotten_nodes_that_no_job_names() -> None:
    a = Member("a")
    a.node.is_recording = True
    for i in range(NODES_MAX - 1):
        facts = PeerFacts(b"%040x" % (i + 1), 1, "10.0.0.2", 7711, 17711)
        assert a.node.link_up(facts) is not None
        a.do("CLUSTER", "FORGET", facts.node_id)
    a.node.link_down(a.node.peers[5])
    a.do("ADDJOB", "q", "body", "0", "REPLICATE", "1", "RETRY", "60", "DELAY", "30")
    [job] = a.node.all_jobs()
    named = a.node.peers[40]
    job.holders |= named.bit
    assert a.node.add_peer(PeerFacts(b"b" * 40, 1, "10.0.0.2", 7711, 17711)) is None
    again = Member("a")
    again.node.load(Walk(a.node).take_records(1 << 30))
    assert [peer.node_id() for peer in again.node.peers[1:]] == [named.node_id()]
    [job] = again.node.all_jobs()
    [kept] = again.node.peers[1:]
    assert job.holders == 1 | kept.bit and kept.is_forgotten() and kept.has_missed


# -- who is gone ----------------------------------------------------------------------------------------------


def at(letter: str, number: int) -> PeerFacts:
    """A node at an address of its own."""
    return PeerFacts(letter.encode() * 40, START_MS, f"10.0.0.{number}", 7711, 17711)


def test_a_node_whose_link_has_ended_is_called_at_once_and_then_every_second() -> None:
    a = Member("a")
    to_b = a.node.link_up(at("b", 2))
    assert to_b is not None
    a.sleep(5_000)
    to_b.received = 1  # it has spoken
    a.node.link_down(to_b)
    a.asked(DIAL)
    a.sleep(DIAL_AT_ONCE_MS)
    assert a.asked(DIAL) == [b"10.0.0.2:17711"]
    a.sleep(20 * DIAL_WAIT_MS_AWAY)
    assert 19 <= len(a.asked(DIAL)) <= 22


def test_a_link_that_says_nothing_is_called_anew_and_kept_meanwhile() -> None:
    a = Member("a")
    to_b = a.node.link_up(at("b", 2))
    assert to_b is not None
    a.sleep(stalled_ms(a.node))
    assert not is_stalled(a.node, to_b) and a.asked(DIAL) == []
    a.sleep(10)
    assert is_stalled(a.node, to_b) and a.asked(DIAL) == [b"10.0.0.2:17711"] and to_b.is_linked


def test_a_refused_connection_counts_where_most_are_there() -> None:
    """Of three, B and C: where C can be heard B is gone; where it cannot, that may be a firewall."""
    a = Member("a")
    to_b, to_c = a.node.link_up(at("b", 2)), a.node.link_up(at("c", 3))
    assert to_b is not None and to_c is not None
    refused(a.node, b"10.0.0.2:17711")
    assert not to_b.has_stopped, "it is linked: somebody else was refused"
    a.node.link_down(to_b)
    assert not is_gone(a.node, to_b)
    refused(a.node, b"10.0.0.2:17711")
    assert is_gone(a.node, to_b)
    a.node.link_down(to_c)
    assert not is_gone(a.node, to_b)
    assert a.node.link_up(at("b", 2)) is to_b and not to_b.has_stopped


def test_of_nodes_that_had_one_address_after_the_other_one_counts() -> None:
    a = Member("a")
    for letter in "bcd":
        peer = a.node.link_up(at(letter, 2))
        assert peer is not None
        a.node.link_down(peer)
    assert places(a.node, a.node.peers) == {b"", b"10.0.0.2:17711"}
    assert a.node.link_up(at("e", 2)) is not None
    assert all(is_gone(a.node, peer) for peer in a.node.peers[1:4]), "another node is where they were"


def test_who_is_suspect_takes_nobodys_place_in_what_is_told() -> None:
    """A tells a newcomer of B, though five members of its are dead."""
    a, b, n = Member("a"), Member("b", "10.0.0.2"), Member("9", "10.0.0.9")
    link(a, b)
    for number, letter in enumerate("cdef0", 3):
        peer = a.node.link_up(at(letter, number))
        assert peer is not None
        a.node.link_down(peer)
        peer.is_suspect = True
    _, to_a = link(a, n)
    n.asked(DIAL)
    carry(a, n, to_a)
    assert b"10.0.0.2:17711" in n.asked(DIAL)
