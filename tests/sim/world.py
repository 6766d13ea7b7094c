"""A machine and its model side by side, and the one way anything is done to both.

Every event goes to the machine through step() (or, for the commands that have one, through its direct
handler), then to the model; replies are compared byte by byte, and then the machine's insides are looked
at. Time is a number. What went before a mistake is in `log`, and in the message of the failure.
"""
from __future__ import annotations

import random
from typing import Any

from holdfast.core.config import Config
from holdfast.core.direct import Direct
from holdfast.core.node import Node
from holdfast.core.step import Connect, Do, Effects, Event, Gone, Tick, step
from holdfast.testing.sim.store import Shelf, spread, squeeze

from .commands import Commands
from .invariants import check, due_order
from .texts import SYNTAX
from .values import WAITS, encode

NODE_ID = b"0123456789abcdef0123456789abcdef01234567"
START_MS = 1_700_000_000_000
BODY_BYTES_MAX = 70_000
LOG_LINES_SHOWN = 60
TICKS_IN_TIME = 40  # on one way through time; what is left is done late, at its end


class Disagreement(AssertionError):
    pass


def new_node(seed: int = 0, maxmemory: str = "1gb", policy: str = "acks") -> Node:
    config = Config()
    config.set("maxmemory", maxmemory)
    config.set("maxmemory-policy", policy)
    config.set("max-body-bytes", str(BODY_BYTES_MAX))
    return Node(config, NODE_ID, random.Random(seed).randbytes, START_MS)


class World:
    def __init__(self, seed: int = 0, maxmemory: str = "1gb", policy: str = "acks", overflows: bool = False) -> None:
        self.overflows = overflows  # between any two events all jobs are moved to disk
        self.is_small = maxmemory != "1gb"
        self.bulk = 30  # jobs in a large ADDJOBS
        self.now = START_MS
        self.node = new_node(seed, maxmemory, policy)
        self.model = Commands(NODE_ID, seed, START_MS, self.node.full, BODY_BYTES_MAX, policy == "acks")
        if overflows:
            self.node.overflow.begin(Shelf())
        self.handlers: dict[bytes, list[Any]] = Direct(self.node).handlers()
        self.seen = self.model.seen
        self.old_ids: list[bytes] = []  # of jobs that are gone, perhaps
        self.log: list[str] = []
        self.events: list[tuple[int, Event]] = []
        self.effects: list[Effects] = []

    # -- events --------------------------------------------------------------------------------------------

    def connect(self) -> int:
        who = self.step("connect", Connect("10.0.0.1:1")).session
        self.model.connect(who)
        self.look()
        return who

    def speak_resp3(self, who: int) -> None:
        self.step("resp3", Do(who, [b"HELLO", b"3"]))
        self.model.sessions[who].resp3 = True

    def disconnect(self, who: int) -> None:
        self.step("disconnect", Gone(who))
        self.model.disconnect(who)
        self.look()

    def tick(self) -> None:
        self.node.set_time(self.now, self.now)
        order = due_order(self.node)
        effects = self.step("tick", Tick())
        self.model.tick(order)
        self.compare_wakeups(effects)
        self.look()
        self.expect(effects.next_wake > self.now, "after a tick something is still due")

    def pass_time(self, ms: int) -> None:
        """Ticks come when they were asked for."""
        until = self.now + ms
        for _ in range(TICKS_IN_TIME):
            wake = self.node.next_wake()
            if wake > until:
                break
            self.set_time(max(wake, self.now))
            self.tick()
        self.set_time(until)

    def set_time(self, now: int) -> None:
        """Without a tick: the shell was busy."""
        self.now = self.model.now = now

    def do(self, who: int, argv: list[bytes], is_direct: bool = False) -> Any:
        """One command; returns the model's reply, which is the machine's."""
        self.log.append(f"{self.now - START_MS:>9} {who}: {show(argv)}{' (direct)' if is_direct else ''}")
        event = Do(who, argv)
        effects = self.do_direct(who, argv) if is_direct else step(self.node, self.now, event)
        self.keep(event, effects)
        session = self.model.sessions[who]
        if session.waits_on:
            self.seen["command while waiting"] += 1
            self.expect(not effects.was_run and effects.reply is None and not effects.wakeups, "it was run")
            return WAITS
        value = self.model.do(who, argv)
        wanted = None if value is WAITS else encode(value, session.resp3)
        self.log.append(f"{'':>9} -> {wanted!r:.300}")
        self.expect(effects.was_run, "it was not run")
        said = effects.reply
        if said is not None and said.startswith(b"-" + SYNTAX) and b", use " + argv[0].upper() + b" " in said:
            said = b"-" + SYNTAX + b"\r\n"  # the rest is for people
        self.expect(said == wanted, f"the machine says {effects.reply!r}")
        self.compare_wakeups(effects)
        self.expect(not effects.requests, f"unasked for: {effects.requests}")
        self.look()
        return value

    def do_direct(self, who: int, argv: list[bytes]) -> Effects:
        """As the shell does: the handler by name and number of words, then what it left behind."""
        node = self.node
        node.set_time(self.now, self.now)
        session = node.sessions[who]
        was_run = self.handlers[argv[0]][len(argv)](session, *argv[1:])
        reply = node.take_output()
        wakeups = [(session.number, data) for session, data in node.wakeups]
        node.wakeups.clear()
        if not self.model.sessions[who].waits_on:
            self.seen[f"direct {argv[0].decode()}/{len(argv)}"] += 1
        return Effects(who, None if session.blocked or not was_run else reply, was_run, wakeups, [], node.next_wake())

    def has_direct(self, argv: list[bytes]) -> bool:
        row = self.handlers.get(argv[0], [])
        return len(argv) < len(row) and row[len(argv)] is not None

    # -- comparing -----------------------------------------------------------------------------------------

    def step(self, what: str, event: Event) -> Effects:
        self.log.append(f"{self.now - START_MS:>9} {what} {getattr(event, 'session', '')}")
        effects = step(self.node, self.now, event)
        self.keep(event, effects)
        return effects

    def keep(self, event: Event, effects: Effects) -> None:
        """So that the run can be played again."""
        self.events.append((self.now, event))
        self.effects.append(effects)

    def compare_wakeups(self, effects: Effects) -> None:
        wanted = [(who, encode(value, self.model.sessions[who].resp3)) for who, value in self.model.wakeups]
        self.model.wakeups.clear()
        for who, data in wanted:
            self.log.append(f"{'':>9} {who} -> {data!r:.300}")
        self.expect(effects.wakeups == wanted, f"the machine wakes {effects.wakeups}")

    def look(self) -> None:
        try:
            if self.overflows:
                spread(self.node)
            check(self.node, self.model)
            if self.overflows:
                squeeze(self.node)
                self.seen["overflowed jobs"] += int(self.node.overflow.folded)
                self.seen["overflowed bodies"] += int(self.node.overflow.away)
        except AssertionError as error:
            raise Disagreement(f"{error}\n{self.transcript()}") from error

    def expect(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            raise Disagreement(f"{otherwise}\n{self.transcript()}")

    def transcript(self) -> str:
        return "\n".join(self.log[-LOG_LINES_SHOWN:])


def show(argv: list[bytes]) -> str:
    return " ".join([repr(word[:60])[1:] + ("..." if len(word) > 60 else "") for word in argv])
