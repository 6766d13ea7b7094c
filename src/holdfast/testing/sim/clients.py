"""A client connection: real commands in, replies parsed and written into the history.

It may send many commands without waiting. What the node does not run yet (the session is blocked) stays with
the connection, as it stays with the shell, and is offered again after the reply. When the node dies, or the
client goes away, everything not yet answered ends as `info`: nobody can know.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from holdfast.client.resp import NOT_READY, new_reader
from holdfast.testing.history import FAIL, INFO, OK, Value

if TYPE_CHECKING:
    from holdfast.testing.sim.host import Host
    from holdfast.testing.sim.world import World

PADDING: Final = "."
"""What bodies are filled up with; the history does without it."""

Done: TypeAlias = Callable[[str, Value], None]
"""Called with how an operation ended (ok, fail, info) and its value."""


class Sent(NamedTuple):
    number: int
    f: str
    argv: list[bytes]
    done: Done | None


class Client:
    def __init__(self, cluster: World, process: str, host: Host) -> None:
        assert host.node is not None
        self.cluster = cluster
        self.process = process
        self.host = host
        self.session = host.touch().connect(f"10.1.0.1:{len(host.clients) + 1024}")
        host.clients[self.session] = self
        self.is_open = True
        self.loses_next = False  # the connection breaks just when the next reply is on its way
        self.unsent: deque[Sent] = deque()
        self.unanswered: deque[Sent] = deque()
        self.reader = new_reader()

    def send(self, f: str, argv: list[bytes], value: Value, done: Done | None = None) -> None:
        """Send a command; `f` and `value` are what the history says of it."""
        cluster = self.cluster
        number = cluster.history.invoke(cluster.now, self.process, self.host.name, f, value)
        self.unsent.append(Sent(number, f, argv, done))
        if self.host.is_paused:
            self.host.backlog.append(self.pump)
        else:
            self.pump()

    def pump(self) -> None:
        """Run what can be run."""
        if not self.is_open:
            return
        unsent = self.unsent
        while unsent:
            node = self.host.touch()
            if not node.execute(self.session, unsent[0].argv):
                return
            self.unanswered.append(unsent.popleft())
            out = node.take_output()
            if out:
                self.host.owed.append((self, out))

    def receive(self, data: bytes) -> None:
        if not self.is_open:
            return
        if self.loses_next and data:
            self.close()
            return
        reader = self.reader
        reader.feed(data)
        while (reply := reader.gets()) is not NOT_READY:
            sent = self.unanswered.popleft()
            type, value = meaning(sent.f, reply)
            self.end(sent, type, value)

    def woken(self, data: bytes) -> None:
        self.receive(data)
        if self.is_open and self.unsent:
            self.cluster.push(self.cluster.now, Client.pump, self)

    def end(self, sent: Sent, type: str, value: Value) -> None:
        cluster = self.cluster
        cluster.history.complete(cluster.now, sent.number, self.process, self.host.name, type, sent.f, value)
        if sent.done is not None:
            sent.done(type, value)

    def close(self) -> None:
        """The client goes away."""
        if not self.is_open:
            return
        host = self.host
        if host.clients.pop(self.session, None) is not None and host.node is not None:
            session = self.session
            if host.is_paused:
                epoch = host.epoch
                host.backlog.append(lambda: host.touch().disconnect(session) if host.epoch == epoch else None)
            else:
                host.touch().disconnect(session)
        self.cut_off()

    def cut_off(self) -> None:
        """The connection is gone, and with it the chance to learn what became of what was sent."""
        if not self.is_open:
            return
        self.is_open = False
        for sent in [*self.unanswered, *self.unsent]:
            self.end(sent, INFO, {"error": "connection lost"})
        self.unanswered.clear()
        self.unsent.clear()


def text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def meaning(f: str, reply: Any) -> tuple[str, Value]:
    """What a reply says, in the words of the history."""
    if f == "ack" and isinstance(reply, list):  # of ACKJOBS
        if len(reply) > 1:
            return OK, {"count": sum(each == 1 for each in reply), "replies": plain(reply)}
        reply = reply[0]
    if isinstance(reply, Exception):
        return INFO if str(reply).startswith("UNKNOWN") else FAIL, {"error": str(reply)}
    if f == "add" and isinstance(reply, list):
        said: Value = {"id": text(reply[0])}
        for each in reply[1:]:
            said["copies" if isinstance(each, int) else "dup"] = each if isinstance(each, int) else text(each)
        return OK, said
    if f == "add":
        return OK, {"id": text(reply)}
    if f == "get":
        return OK, {"jobs": [handed_out(each) for each in reply or []]}
    if f == "pause":
        return OK, {"state": text(reply)}
    if f == "wait":
        return OK, {"ends": [plain(each) for each in reply]}
    if f == "dead":
        return OK, {"rows": [[text(row[0]), text(row[1]), text(row[2]), row[4]] for row in reply[1]]}
    if f == "keepalive":
        word = text(reply[0])
        return OK if word in ("ok", "cancelled") else FAIL, {"words": [text(each) for each in reply], "error": word}
    if isinstance(reply, int):
        return OK, {"count": reply}
    return OK, {"reply": plain(reply)}


def handed_out(each: list[Any]) -> Value:
    job: Value = {"id": text(each[1]), "queue": text(each[0]), "body": text(each[2]).rstrip(PADDING)}
    if not isinstance(each[-2], bytes):
        return job  # of a claim
    said = {text(each[i]): each[i + 1] for i in range(3, len(each), 2)}
    if "nacks" in said:
        job["nacks"], job["deliveries"] = said["nacks"], said["additional-deliveries"]
    if "token" in said:
        job["token"], job["attempt"] = text(said["token"]), said["attempt"]
    return job


def plain(reply: Any) -> Any:
    if isinstance(reply, list):
        return [plain(each) for each in reply]
    return reply if isinstance(reply, int) or reply is None else text(reply)
