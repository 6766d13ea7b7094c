"""A node to talk to, with a clock that moves only when it is told to and dice that always fall the same.

The world plays the shell: it keeps the commands of a session that is blocked and runs them when it may go
on, closes connections the node wants closed, and calls the node whenever it asked to be called. What comes
out is lines of text, in the order in which a shell would send them.

Commands go in by one of two doors: `execute`, or the direct handlers the shell prefers where there is one.
Nobody outside can tell the difference, which is why every transcript is run through both.
"""
from __future__ import annotations

import random
import re
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from holdfast.core import effects, users
from holdfast.core.commands.clients import logged_in
from holdfast.core.config import Config
from holdfast.core.direct import Direct
from holdfast.core.flush import flush_all
from holdfast.core.limits import REGISTER_BYTES, WORKER_TTL_S_MAX
from holdfast.core.node import Node
from holdfast.core.session import NOTHING, Session
from holdfast.core.version import VERSION
from holdfast.core.workers import forget_old

from .trace import Reader, lines

NODE_ID = "c0ffee11" + "0123456789abcdef" * 2
START_MS = 1_700_000_000_000
JOB_ID = re.compile(r"\bDI[0-9a-f]{8}([0-9a-f]{32})([0-9a-f]{4})SQ")
TICKS_MAX = 100_000
SILENT = {effects.APPLY_SETTINGS, effects.VERIFY}


class World:
    def __init__(self, settings: dict[str, str], is_direct: bool) -> None:
        config = Config()
        for name, value in settings.items():
            config.set(name, value)
        self.node = Node(config, NODE_ID.encode(), random.Random(1).randbytes, START_MS, self)
        self.handlers: dict[bytes, list[Any]] = Direct(self.node).handlers() if is_direct else {}
        self.direct_calls: dict[bytes, int] = defaultdict(int)
        self.now = START_MS
        self.sessions: dict[str, Session] = {}
        self.kept: dict[Session, deque[list[bytes]]] = defaultdict(deque)
        self.opened = 0
        self.ids: list[str] = []  # by number, from 1
        self.is_naming = True
        self.lines: list[str] = []
        self.stamp = ""

    # -- the node's meter ----------------------------------------------------------------------------------

    def process(self) -> dict[str, str]:
        return {"os": "Transcript", "form": "either"}

    def direct(self) -> list[tuple[bytes, int, int]]:
        return [(name, calls, 0) for name, calls in self.direct_calls.items()]

    def why_alone(self) -> str:
        return ""

    def reset(self) -> None:
        self.direct_calls.clear()

    def connection(self, session: Session) -> dict[str, int]:
        return {}

    # -- what a transcript can do --------------------------------------------------------------------------

    def take_lines(self) -> list[str]:
        taken, self.lines = self.lines, []
        return taken

    def command(self, name: str, argv: list[bytes]) -> None:
        session = self.session(name)
        if self.kept[session]:
            self.kept[session].append(argv)
            self.lines.append("(kept)")
            return
        self.run(session, argv, "", keep_last=True)
        self.follow_up()

    def session(self, name: str) -> Session:
        if name not in self.sessions:
            self.opened += 1
            self.node.set_time(self.now, self.now)
            self.sessions[name] = self.node.connect(f"127.0.0.1:{50000 + self.opened}")
        return self.sessions[name]

    def disconnect(self, name: str) -> None:
        session = self.sessions.pop(name)
        self.node.set_time(self.now, self.now)
        self.node.disconnect(session)
        self.kept.pop(session, None)
        self.follow_up()

    def advance(self, ms: int) -> None:
        """Let time pass, calling the node exactly when it wants to be called."""
        began, end = self.now, self.now + ms
        for _ in range(TICKS_MAX):
            wake = self.node.next_wake()
            if wake > end:
                break
            self.now = max(self.now, wake)
            self.node.set_time(self.now, self.now)
            self.node.tick()
            self.stamp = f"@{self.now - began}ms "
            self.follow_up()
        else:
            raise AssertionError("the node wants to be called again and again")
        self.stamp = ""
        self.now = end
        self.node.set_time(self.now, self.now)

    # -- playing the shell ---------------------------------------------------------------------------------

    def run(self, session: Session, argv: list[bytes], before: str, keep_last: bool) -> bool:
        """Run one command and note its reply. False: the node would not run it now."""
        self.node.set_time(self.now, self.now)
        ran = self.door(argv)(session, argv)
        out = self.node.take_output()
        if ran and not out and self.node.requests and self.node.requests[-1].kind == effects.VERIFY:
            self.carry_out(self.node.requests.pop())  # here a login takes no time
            out = self.node.wakeups.pop()[1]
        if not ran:
            assert out == b""
            if keep_last:
                self.kept[session].append(argv)
            self.lines.append(before + "(kept)")
            return False
        if out:
            self.note(before, out)
        else:
            self.lines.append(before + ("(blocked)" if session.blocked != NOTHING else "(no reply)"))
        return True

    def door(self, argv: list[bytes]) -> Callable[[Session, list[bytes]], bool]:
        handlers = self.handlers.get(argv[0], [])
        handler = handlers[len(argv)] if len(argv) < len(handlers) else None
        if handler is None:
            return self.node.execute

        def through_handler(session: Session, argv: list[bytes]) -> bool:
            listed = self.node.entries[argv[0]]
            calls = listed.calls
            ran: bool = handler(session, *argv[1:])
            if ran and listed.calls == calls:
                self.direct_calls[argv[0]] += 1
            return ran

        return through_handler

    def follow_up(self) -> None:
        """Deliver to those who waited, and do what the node asks for, until nothing is left."""
        node = self.node
        while node.wakeups or node.requests:
            wakeups = node.wakeups[:]
            node.wakeups.clear()
            for session, data in wakeups:
                self.wake(session, data)
            requests = node.requests[:]
            node.requests.clear()
            for request in requests:
                self.carry_out(request)

    def wake(self, session: Session, data: bytes) -> None:
        before = f"{self.stamp}{self.name(session)}< "
        if data:
            self.note(before, data)
        queue = self.kept[session]
        while queue and session.blocked == NOTHING and not session.is_closing:
            if not self.run(session, queue[0], before, keep_last=False):
                break
            queue.popleft()

    def carry_out(self, request: effects.Request) -> None:
        session = request.session
        if request.kind not in SILENT:
            words = [request.kind, "" if session is None else self.name(session), request.argument.decode()]
            self.lines.append(f"{self.stamp}! " + " ".join(word for word in words if word))
        if session is None:
            return
        if request.kind in (effects.CLOSE, effects.KILL):
            self.disconnect(next(name for name, each in self.sessions.items() if each is session))
        elif request.kind in (effects.SAVE_SETTINGS, effects.SLEEP):
            self.node.answer(session, b"+OK\r\n")
        elif request.kind == effects.VERIFY:
            name, _, secret = request.argument.partition(b"\0")
            is_right = name == users.DEFAULT and secret == self.node.config.text("requirepass").encode()
            logged_in(self.node, session, name, users.RIGHT if is_right else users.WRONG)

    # -- names ---------------------------------------------------------------------------------------------

    def name(self, session: Session) -> str:
        return next((name for name, each in self.sessions.items() if each is session), "?")

    def note(self, before: str, data: bytes) -> None:
        for reply in Reader(data).all():
            self.lines += lines(reply, self.rename, before)

    def rename(self, text: str) -> str:
        """Texts that are different in every run, or too long to read, by their names."""
        text = JOB_ID.sub(self.number, text)
        return text.replace(NODE_ID, "<node>").replace(NODE_ID[:8], "<node8>").replace(VERSION, "<version>")

    def number(self, found: re.Match[str]) -> str:
        """A job id: DI, its number in the order of appearance, the TTL field, SQ."""
        jid = found[0]
        if jid not in self.ids:
            if jid[2:10] != NODE_ID[:8]:
                return jid
            if not self.is_naming:
                return f"DI<*>{found[2]}SQ"
            self.ids.append(jid)
        return f"DI<{self.ids.index(jid) + 1}>{found[2]}SQ"

    # -- the end -------------------------------------------------------------------------------------------

    def check_end(self) -> None:
        """Whatever happened: no fault, and when all is gone, nothing is left behind in the books."""
        node = self.node
        assert not node.faults, node.faults[0]
        flush_all(node)
        node.set_time(node.now + WORKER_TTL_S_MAX * 1000, node.wall)
        forget_old(node)
        for session in list(node.sessions.values()):
            node.disconnect(session)
        settings = REGISTER_BYTES * node.registers.count  # of the cluster: they outlive the jobs of a node
        books = {"jobs": node.jobs, "bytes": node.used - settings, "blocked": node.blocked, "queues": len(node.queues)}
        assert not any(books.values()), f"after everything was deleted there are still {books}"
