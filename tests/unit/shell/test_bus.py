"""Handshakes and who keeps which link: two ends of the bus in one event loop, with sockets but without nodes."""
from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.core.peers import PeerFacts
from holdfast.shell import bus as bus_module
from holdfast.shell import handshake
from holdfast.shell.bounds import COMPLAINTS, HANDSHAKES_PER_ADDRESS
from holdfast.shell.bus import Bus, Place, read_join, read_place
from holdfast.shell.credentials import Credentials
from holdfast.shell.handshake import ANSWER, DIALER, HEAD, LISTENER, Agreement, Hello
from holdfast.shell.seal import Seals

SECRET = b"a secret that nobody may see"
SMALL, LARGE, OTHER = b"1" * 40, b"9" * 40, b"5" * 40


def key(secret: bytes) -> bytes:
    """As cluster_secret.py makes it of a secret, only sooner."""
    return hashlib.sha256(secret).digest()


class StubPeer:
    def __init__(self, facts: PeerFacts) -> None:
        self.facts = facts


class Post:
    """A node's end of the bus; in place of a node it only notes which socket is the link with whom."""

    def __init__(self, node_id: bytes, *secrets: bytes, run: int = 1, path: str = "") -> None:
        secrets = secrets or (SECRET,)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        goes_by = handshake.SECRET if secrets[0] else handshake.MACHINE
        me = Hello(
            node_id, 7, run, 1234, self.port, path=path, host_id=b"host", zone=b"zone", goes_by=goes_by
        )
        self.met: list[bytes] = []
        self.refused: list[bytes] = []
        self.credentials = Credentials(goes_by, tuple(key(secret) for secret in secrets))
        self.bus = Bus(
            me, self.credentials, self.adopt, self.drop, self.met.append, self.refused.append,  # type: ignore[arg-type]
        )
        self.bus.listen(self.listener)
        self.links: dict[bytes, socket.socket] = {}
        self.seals: dict[bytes, Seals] = {}
        self.facts: dict[bytes, PeerFacts] = {}
        self.adopted = 0
        self.is_shy = False

    def place(self) -> Place:
        return Place("127.0.0.1", self.port)

    def adopt(self, sock: socket.socket, facts: PeerFacts, seals: Seals) -> Any:
        if self.is_shy:
            sock.close()
            return None
        assert facts.node_id not in self.links, "the old link must end first"
        self.adopted += 1
        self.links[facts.node_id] = sock
        self.seals[facts.node_id] = seals
        self.facts[facts.node_id] = facts
        return StubPeer(facts)

    def drop(self, peer: Any, why: str) -> None:
        self.links.pop(peer.facts.node_id).close()
        self.bus.lost(peer, why)

    def lose(self, node_id: bytes) -> None:
        """The link breaks, as seen from here only."""
        self.drop(self.bus.links[node_id].peer, "lost")

    async def close(self) -> None:
        await self.bus.close()
        for sock in self.links.values():
            sock.close()


Poster = Callable[..., Post]


@pytest_asyncio.fixture
async def post() -> AsyncIterator[Poster]:
    made: list[Post] = []

    def make(*args: Any, **kwargs: Any) -> Post:
        made.append(Post(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a test does, the secret is not in the log."""
    logger = logging.getLogger("holdfast")
    before = logger.propagate, logger.level
    logger.propagate = True
    logger.setLevel(logging.DEBUG)
    yield
    assert SECRET.decode() not in caplog.text
    logger.propagate, logger.level = before


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


async def settle(*posts: Post) -> None:
    """Until no handshake is going on."""
    await asyncio.sleep(0)  # calls begin when their tasks do
    await until(lambda: not any(each.bus.dialing or each.bus.handshakes for each in posts))


def is_one_link(a: Post, b: Post) -> bool:
    """Each has one link with the other, and it is the same connection."""
    mine, theirs = a.links[b.bus.me.node_id], b.links[a.bus.me.node_id]
    return bool(mine.getsockname() == theirs.getpeername() and mine.getpeername() == theirs.getsockname())


# -- one link per pair -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialer, listener", [(SMALL, LARGE), (LARGE, SMALL)])
async def test_two_nodes_meet(post: Poster, dialer: bytes, listener: bytes) -> None:
    a, b = post(dialer), post(listener)
    a.bus.dial(str(b.place()).encode())
    await until(lambda: len(a.links) == len(b.links) == 1)
    assert is_one_link(a, b)
    facts = a.facts[listener]
    assert (facts.node_id, facts.incarnation, facts.host, facts.port, facts.bus_port, facts.host_id, facts.zone) == (
        listener, 7, "127.0.0.1", 1234, b.port, b"host", b"zone",
    )
    a.links[listener].send(b"the first words")
    assert await asyncio.get_running_loop().sock_recv(b.links[dialer], 100) == b"the first words"


@pytest.mark.parametrize("seed", range(60))
async def test_of_two_calls_at_the_same_time_one_becomes_the_link(post: Poster, seed: int) -> None:
    rng = random.Random(seed)
    a, b = post(SMALL), post(LARGE)
    calls = [(a, b), (b, a)] * rng.choice([1, 1, 3])
    rng.shuffle(calls)
    for caller, called in calls:
        caller.bus.dial(str(called.place()).encode())
        for _ in range(rng.choice([0, 0, 1, 2, 3, 5, 8])):
            await asyncio.sleep(0)
    await settle(a, b)
    assert is_one_link(a, b)
    assert a.adopted == b.adopted == 1


async def test_a_call_nobody_needs_changes_nothing(post: Poster) -> None:
    a, b = post(SMALL), post(LARGE)
    for caller, called in ((a, b), (b, a), (a, b), (b, a)):
        await caller.bus.reach(called.place())
        await settle(a, b)
    assert is_one_link(a, b) and a.adopted == b.adopted == 1


@pytest.mark.parametrize("loser, caller", [(SMALL, SMALL), (SMALL, LARGE), (LARGE, SMALL), (LARGE, LARGE)])
async def test_a_link_that_one_side_has_lost_is_replaced(
    post: Poster, loser: bytes, caller: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other side still believes in it. Whoever of the two calls, both have one and the same link after."""
    monkeypatch.setattr(bus_module, "SETTLE_S", 0.0)
    ends = {SMALL: post(SMALL), LARGE: post(LARGE)}
    a, b = ends.values()
    await a.bus.reach(b.place())
    await settle(a, b)
    ends[loser].lose(LARGE if loser == SMALL else SMALL)
    called = b if caller == SMALL else a
    await ends[caller].bus.reach(called.place())
    await settle(a, b)
    assert is_one_link(a, b)


@pytest.mark.parametrize("misser, caller", [(SMALL, SMALL), (SMALL, LARGE), (LARGE, SMALL), (LARGE, LARGE)])
async def test_a_link_that_says_nothing_is_replaced(
    post: Poster, misser: bytes, caller: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends believe in it, and one finds that it has stalled. While none of them does, a call changes nothing."""
    monkeypatch.setattr(bus_module, "SETTLE_S", 0.0)
    ends = {SMALL: post(SMALL), LARGE: post(LARGE)}
    a, b = ends.values()
    await a.bus.reach(b.place())
    await settle(a, b)
    called = b if caller == SMALL else a
    await ends[caller].bus.reach(called.place())
    await settle(a, b)
    assert a.adopted == b.adopted == 1
    ends[misser].bus.is_stalled = lambda peer: True
    await ends[caller].bus.reach(called.place())
    await settle(a, b)
    assert is_one_link(a, b) and a.adopted == b.adopted == 2


async def test_the_node_is_told_where_nobody_listens(post: Poster) -> None:
    a, b = post(SMALL), post(LARGE)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = b"127.0.0.1:%d" % closed.getsockname()[1]
    a.bus.dial(str(b.place()).encode())
    a.bus.dial(nowhere)
    await until(lambda: a.refused == [nowhere] and len(a.links) == 1)


async def test_another_process_under_the_same_id_takes_the_place_of_the_first(post: Poster) -> None:
    a, b, again = post(SMALL, run=1), post(LARGE), post(SMALL, run=2)
    await a.bus.reach(b.place())
    await settle(a, b)
    await again.bus.reach(b.place())
    await settle(a, b, again)
    assert is_one_link(again, b) and b.adopted == 2


async def test_a_node_that_does_not_want_the_other_keeps_no_trace_of_a_link(post: Poster) -> None:
    a, b = post(SMALL), post(LARGE)
    b.is_shy = True
    await a.bus.reach(b.place())
    await settle(a, b)
    assert b.bus.links == {} and b.links == {}


async def test_of_two_granted_connections_the_later_grant_counts(post: Poster) -> None:
    """The words of the one who decides may arrive in another order than they were said: two connections."""
    a = post(LARGE)
    callers = [await Caller.connect(a), await Caller.connect(a)]
    for caller in callers:
        await caller.greet()
        await caller.prove()
    await callers[1].say(handshake.verdict(callers[1].agreed, 2))
    await until(lambda: SMALL in a.links)
    kept = a.links[SMALL]
    await callers[0].say(handshake.verdict(callers[0].agreed, 1))
    assert await callers[0].is_closed()
    assert a.links[SMALL] is kept and a.adopted == 1
    for caller in callers:
        caller.close()


async def test_at_a_members_address_nobody_else_is_made_one(post: Poster, caplog: pytest.LogCaptureFixture) -> None:
    """Another cluster has been started where a member was: neither side takes the other for one of its own. Whom an
    operator wants met is met, whoever it is, and hears that it is so."""
    a, b = post(SMALL), post(LARGE)
    there = str(b.place()).encode()
    for _ in range(3):
        a.bus.dial(there, frozenset([OTHER]))
        await settle(a, b)
    assert not a.links and not b.links
    assert caplog.text.count("left alone") == 1
    a.bus.dial(there, frozenset([OTHER, LARGE]))
    await until(lambda: len(a.links) == len(b.links) == 1)
    assert not b.facts[SMALL].is_invited
    a.lose(LARGE)
    b.lose(SMALL)
    a.bus.meet(there)
    await until(lambda: len(a.links) == len(b.links) == 1)
    assert b.facts[SMALL].is_invited and not a.facts[LARGE].is_invited


async def test_of_two_nodes_with_one_id_the_one_that_is_linked_stays(
    post: Poster, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has started a copy of a node's folder. When the first is not heard any more it may have moved."""
    for small, large in ((SMALL, LARGE), (LARGE, SMALL)):
        caplog.clear()
        a, b, copy = post(small), post(large, run=1), post(large, run=2)
        a.bus.dial(str(b.place()).encode())
        await until(lambda a=a, b=b: len(a.links) == len(b.links) == 1)  # type: ignore[misc]
        a.bus.is_heard = lambda peer: True
        for _ in range(3):
            copy.bus.dial(str(a.place()).encode())
            a.bus.dial(str(copy.place()).encode())
            await settle(a, b, copy)
        assert is_one_link(a, b) and not copy.links
        assert caplog.text.count("two nodes have the id") == 1
        a.bus.is_heard = lambda peer: False
        copy.bus.dial(str(a.place()).encode())
        await until(lambda copy=copy: bool(copy.links))  # type: ignore[misc]
        assert is_one_link(a, copy)


# -- places ------------------------------------------------------------------------------------------------


async def test_by_name_by_ipv6_and_by_unix_socket(post: Poster, tmp_path: Path) -> None:
    a, b = post(SMALL), post(LARGE)
    await a.bus.reach(Place("localhost", b.port))
    await settle(a, b)
    assert is_one_link(a, b)
    c = post(OTHER)
    six = socket.create_server(("::1", 0), family=socket.AF_INET6)
    c.bus.listen(six)
    a.bus.dial(b"[::1]:%d" % six.getsockname()[1])
    await until(lambda: OTHER in a.links and SMALL in c.links)
    assert a.facts[OTHER].host == "::1" and c.facts[SMALL].host == "::1"
    d = post(b"7" * 40)
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "bus"))
    unix.listen()
    d.bus.listen(unix)
    a.bus.dial(b"unix:%b" % bytes(tmp_path / "bus"))
    await until(lambda: b"7" * 40 in a.links and SMALL in d.links)
    assert a.links[b"7" * 40].family == socket.AF_UNIX and a.facts[b"7" * 40].host == "127.0.0.1"


async def test_a_node_of_this_host_is_dialed_by_its_unix_socket_once_it_is_known(post: Poster, tmp_path: Path) -> None:
    path = tmp_path / "bus"
    a, b = post(SMALL), post(LARGE, path=str(path))
    await a.bus.reach(b.place())
    await settle(a, b)
    assert a.links[LARGE].family == socket.AF_INET
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(path))
    unix.listen()
    b.bus.listen(unix)
    for family in (socket.AF_UNIX, socket.AF_INET):
        a.lose(LARGE)
        b.lose(SMALL)
        await a.bus.reach(b.place())
        await settle(a, b)
        assert a.links[LARGE].family == family
        path.unlink(missing_ok=True)


async def test_a_node_is_told_whether_somebody_was_met(post: Poster, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is there at first: the log says so, and the node is told nothing. The second call is answered."""
    a = post(SMALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = b"127.0.0.1:%d" % port
    a.bus.meet(address)
    await until(lambda: "cannot meet the node at" in caplog.text)
    await until(lambda: not a.bus.tasks)
    assert a.met == []
    b = post(LARGE)
    b.bus.listen(socket.create_server(("127.0.0.1", port)))
    a.bus.meet(address)
    await until(lambda: not a.bus.tasks)
    assert a.met == [address] and LARGE in a.links and a.facts[LARGE].dialed == address
    a.bus.meet(address)
    await until(lambda: not a.bus.tasks)
    assert a.met == [address] * 2 and a.adopted == 1, "we are linked with who is there: that is met, too"


async def test_who_meets_itself_has_met(post: Poster, caplog: pytest.LogCaptureFixture) -> None:
    a = post(SMALL)
    a.bus.meet(str(a.place()).encode())
    await until(lambda: not a.bus.tasks)
    assert a.links == {} and len(a.met) == 1 and "WARNING" not in caplog.text


async def test_a_node_with_a_new_id_is_another_one(post: Poster) -> None:
    a, b = post(SMALL), post(LARGE)
    a.bus.rename(b"5" * 40)
    await b.bus.reach(a.place())
    await until(lambda: len(a.links) == len(b.links) == 1)
    assert set(b.links) == {b"5" * 40}


async def test_one_call_per_place_at_a_time(post: Poster) -> None:
    a = post(SMALL)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for _ in range(20):
            a.bus.dial(b"127.0.0.1:%d" % silent.getsockname()[1])
        await until(lambda: len(a.bus.dialing) == 1)
        await asyncio.sleep(0.01)
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize("text, shown", [
    ("h:1", "h:1"), ("10.0.0.1:17711", "10.0.0.1:17711"), ("[::1]:17711", "[::1]:17711"), ("::1:17711", "[::1]:17711"),
    ("fe80::1%eth0:5", "[fe80::1%eth0]:5"), ("a-b.example_1.org:65535", "a-b.example_1.org:65535"),
    ("unix:/run/x", "unix:/run/x"), ("unix:/run/x:0", "unix:/run/x"),
    ("h:0", None), ("h:65536", None), ("h", None), (":1", None), ("", None), ("h:x", None), ("a b:1", None),
    ("h\n:1", None), ("[::1]", None), ("[]:1", None), ("unix:", None), ("h:1:", None), ("h:²", None),
])
def test_places(text: str, shown: str | None) -> None:
    place = read_place(text)
    assert (None if place is None else str(place)) == shown


@pytest.mark.parametrize("text, shown", [
    ("h:7711", "h:17711"), ("h:7711@5", "h:5"), ("[::1]:7711", "[::1]:17711"), ("unix:/a@b", "unix:/a@b"),
    ("h:7711@", "h:17711"), ("h:60000", None), ("h:60000@1", "h:1"), ("h:7711@x", None), ("h:7711@65536", None),
    ("h", None),
])
def test_what_join_takes(text: str, shown: str | None) -> None:
    place = read_join(text)
    assert (None if place is None else str(place)) == shown


# -- strangers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one, other", [(SECRET, b"wrong"), (SECRET, b""), (b"", SECRET), (SECRET, SECRET[:-1])])
async def test_no_link_without_the_same_secret(
    post: Poster, one: bytes, other: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = post(SMALL, one), post(LARGE, other)
    await a.bus.reach(b.place())
    await b.bus.reach(a.place())
    await settle(a, b)
    assert a.adopted == b.adopted == 0
    assert "secret" in caplog.text


async def test_without_a_secret_only_this_machine_is_dialed(post: Poster, caplog: pytest.LogCaptureFixture) -> None:
    a, b = post(SMALL, b""), post(LARGE, b"")
    assert await a.bus.reach(Place("192.0.2.1", 7)) == b""
    assert "only nodes of this machine" in caplog.text
    assert await a.bus.reach(b.place()) == LARGE


async def test_another_node_with_my_id_is_refused_with_words(post: Poster, caplog: pytest.LogCaptureFixture) -> None:
    a, copy = post(SMALL, run=1), post(SMALL, run=2)
    await copy.bus.reach(a.place())
    await settle(a, copy)
    assert a.adopted == copy.adopted == 0
    assert "own id" in caplog.text


class Caller:
    """A handshake by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: bytes) -> None:
        self.reader = reader
        self.writer = writer
        self.hello = Hello(node_id, 1, 1, 1, 1).anew()
        self.mine = self.hello.pack()
        self.theirs = b""
        self.agreed: Agreement

    @classmethod
    async def connect(cls, to: Post, node_id: bytes = SMALL) -> Caller:
        return cls(*await asyncio.open_connection("127.0.0.1", to.port), node_id)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def greet(self) -> None:
        await self.say(self.mine)
        head = await self.reader.readexactly(HEAD.size)
        self.theirs = head + await self.reader.readexactly(handshake.read_head(head)[1])

    async def prove(self, secret: bytes = SECRET) -> None:
        share = handshake.read_hello(self.theirs[HEAD.size:]).share
        agreements = handshake.agree([key(secret)], self.hello, share, self.mine, self.theirs)
        said = handshake.answer(agreements, DIALER, 0)
        await self.say(said)
        given = await self.reader.readexactly(ANSWER.size)
        self.agreed = handshake.check_answer(agreements, LISTENER, given)[1].after(said, given)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(5):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


async def test_a_handshake_has_a_time_in_which_it_must_be_over(post: Poster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not help."""
    monkeypatch.setattr(bus_module, "HANDSHAKE_S", 0.2)
    a = post(LARGE)
    caller = await Caller.connect(a)
    for i in range(100):
        if caller.reader.at_eof() or caller.reader.exception() is not None:  # an end, or a reset for a byte too late
            break
        caller.writer.write(caller.mine[i:i + 1])
        await asyncio.sleep(0.01)
    assert await caller.is_closed() and i < 60
    caller.close()
    for step in range(3):
        caller = await Caller.connect(a)
        if step > 0:
            await caller.greet()
        if step > 1:
            await caller.prove()
        assert await caller.is_closed()
        caller.close()
    await settle(a)
    assert a.adopted == 0


async def test_unfinished_handshakes_of_one_address_are_few(post: Poster, caplog: pytest.LogCaptureFixture) -> None:
    a = post(LARGE)
    callers = [await Caller.connect(a) for _ in range(HANDSHAKES_PER_ADDRESS + 8)]
    for caller in callers[HANDSHAKES_PER_ADDRESS:]:
        assert await caller.is_closed()
    assert "too many unfinished handshakes" in caplog.text
    for caller in callers:
        caller.close()
    await until(lambda: not a.bus.handshakes)
    b = post(SMALL)
    await b.bus.reach(a.place())
    await settle(a, b)
    assert is_one_link(a, b)


async def test_strangers_cannot_fill_the_log(post: Poster, caplog: pytest.LogCaptureFixture) -> None:
    a = post(LARGE)
    for _ in range(5 * COMPLAINTS):
        caller = await Caller.connect(a)
        await caller.say(b"GET / HTTP/1.1\r\n\r\n")
        assert await caller.is_closed()
        caller.close()
    assert caplog.text.count("WARNING") == COMPLAINTS
    assert a.bus.complaints.unsaid == 4 * COMPLAINTS
