"""Harms the nodes of a lab, in rounds: some faults at once, then all is mended and must become whole.

    delay      all paths of one node are slow
    loss       packets are lost, everywhere
    duplicate  packets come twice, everywhere
    reorder    packets overtake each other, everywhere
    oneway     the others do not hear one node; it hears them
    deaf       one node does not hear the others; they hear it
    cut        a group and the rest hear nothing of each other
    bridge     two halves see each other only through the node in the middle
    flap       the paths between two nodes go down and up
    strand     clients and one node hear nothing of each other; connections stay half open
    pause      SIGSTOP, and SIGCONT after a while
    kill       SIGKILL of as many nodes as jobs may lose; they come back empty
    jump       one node's clock on the wall jumps

Kinds are drawn as from a deck of cards, so that each comes once before any comes twice. A fault counts as
applied only if it can be shown to have bitten: packets of its sort at the switch, a process that stood or was
gone, a clock that went wrong.

After a kill the round does not end before every job has its copies again: without a journal the next kill
would otherwise take more copies than were promised to be safe.
"""
from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from itertools import product
from random import Random
from typing import NamedTuple

from load import Load
from verdict import wait_until_restored

from netns.lab import CLIENTS, Lab, Rules, Tenant
from netns.switch import Rule

WHOLE_S = 60.0
"""After the faults of a round all links are there again in this time."""

JUMPS_MS = (-3_600_000, -7_000, -900, 900, 7_000, 3_600_000)
KILLS_MAX = 2
"""Jobs that promise to survive have three copies."""

ASKED = ("jump",)
"""Whether these have bitten only the node can tell: they end last, when it can be reached."""

Paths = list[tuple[str, str]]


class Trouble(NamedTuple):
    """A fault that is going on."""

    who: str
    undo: Callable[[], None]
    has_bitten: Callable[[], bool]


class Nemesis:
    def __init__(self, lab: Lab, load: Load, seed: int, say: Callable[[str], None]) -> None:
        self.lab = lab
        self.load = load
        self.dice = Random(f"{seed}/nemesis/0")
        self.say = say
        self.kinds = [name.removeprefix("do_") for name in dir(self) if name.startswith("do_")]
        self.deck: list[str] = []
        self.rules: dict[int, Rules] = {}  # by number of the fault
        self.count = 0
        self.victims: list[Tenant] = []  # nodes something is done to in this round: one thing each
        self.lost: set[Tenant] = set()  # nodes whose copies are not made anew yet
        self.applied: Counter[str] = Counter()
        self.unfelt: Counter[str] = Counter()

    def missing(self) -> list[str]:
        return [kind for kind in self.kinds if not self.applied[kind]]

    def draw(self) -> str:
        if not self.deck:
            self.deck = self.dice.sample(self.kinds, len(self.kinds))
        return self.deck.pop()

    # -- a round -------------------------------------------------------------------------------------------

    def round(self, kinds: list[str], seconds: float) -> None:
        """These faults for so long; then everything as it was."""
        load = self.load
        load.mark("calm", on=False)
        self.victims = []
        running: list[tuple[int, str, Trouble]] = []
        for kind in kinds:
            self.count += 1
            load.mark("fault", number=self.count, kind=kind, phase="begin")
            trouble = getattr(self, f"do_{kind}")()
            running.append((self.count, kind, trouble))
            self.say(f"{kind} {trouble.who}")
        load.is_over.wait(seconds)
        running.sort(key=lambda each: each[1] in ASKED)
        for number, kind, trouble in running:
            (self.applied if trouble.has_bitten() else self.unfelt)[kind] += 1
            trouble.undo()
            load.mark("fault", number=number, kind=kind, who=trouble.who, phase="end")
        self.become_whole()

    def become_whole(self) -> None:
        load = self.load
        began = time.monotonic()
        for node in self.lab:
            node.wait_until_ready()
        end = time.monotonic() + WHOLE_S
        while not self.lab.is_whole():
            load.check()
            if time.monotonic() > end:
                flags = {node: [*node.flags().values()] for node in self.lab}
                load.seen("calm", "not-whole", "", f"{WHOLE_S:.0f} s after all was mended: {flags}")
                return
            time.sleep(0.05)
        load.mark("calm", on=True)
        whole_s = time.monotonic() - began
        if self.lost:
            is_restored = wait_until_restored(load, self.lab, len(self.lost))
            text = f"copies made anew after {time.monotonic() - began:.1f} s" if is_restored else "NOT restored"
            self.say(f"whole after {whole_s:.1f} s, {text}")
            if is_restored:
                self.lost.clear()

    # -- the network ---------------------------------------------------------------------------------------

    def victim(self, count: int = 1) -> list[Tenant]:
        """Nodes that are not stopped, killed or confused yet in this round."""
        chosen = self.dice.sample([node for node in self.lab.tenants if node not in self.victims], count)
        self.victims += chosen
        return chosen

    def order(self) -> list[str]:
        """All nodes, by address, in any order."""
        return self.dice.sample(self.lab.addresses, len(self.lab.addresses))

    def disturb(self, who: str, paths: Paths, rule: Rule, effect: str) -> Trouble:
        number = self.count
        before = self.apply()[effect]
        self.rules[number] = {(a, b): rule for a, b in paths if a != b}
        self.apply()

        def undo() -> None:
            del self.rules[number]
            self.apply()

        return Trouble(who, undo, lambda: self.apply()[effect] > before)

    def apply(self) -> Counter[str]:
        """Give the switch the rules of all faults that are going on; what it did so far."""
        together: Rules = {}
        for rules in self.rules.values():
            for path, rule in rules.items():
                together[path] = together.get(path, Rule()).and_also(rule)
        return self.lab.wire.set(together)

    def everywhere(self) -> Paths:
        everybody = [*self.lab.addresses, CLIENTS]
        return list(product(everybody, everybody))

    def do_delay(self) -> Trouble:
        one, *rest = self.order()
        rule = Rule(delay_ms=self.dice.randint(10, 150), jitter_ms=30)
        return self.both_ways([one], rest, rule, "delayed")

    def do_loss(self) -> Trouble:
        return self.disturb("all", self.everywhere(), Rule(loss=self.dice.uniform(0.01, 0.1)), "lost")

    def do_duplicate(self) -> Trouble:
        return self.disturb("all", self.everywhere(), Rule(double=self.dice.uniform(0.05, 0.5)), "doubled")

    def do_reorder(self) -> Trouble:
        rule = Rule(jitter_ms=self.dice.randint(5, 40), shuffle=True)
        return self.disturb("all", self.everywhere(), rule, "overtook")

    def do_oneway(self) -> Trouble:
        one, *rest = self.order()
        return self.disturb(names([one]), list(product([one], rest)), Rule(cut=True), "cut")

    def do_deaf(self) -> Trouble:
        one, *rest = self.order()
        return self.disturb(names([one]), list(product(rest, [one])), Rule(cut=True), "cut")

    def both_ways(self, some: list[str], others: list[str], rule: Rule, effect: str) -> Trouble:
        who = f"{names(some)} | {names(others)}"
        return self.disturb(who, [*product(some, others), *product(others, some)], rule, effect)

    def do_cut(self) -> Trouble:
        order = self.order()
        half = self.dice.randint(1, len(order) // 2)
        return self.both_ways(order[:half], order[half:], Rule(cut=True), "cut")

    def do_bridge(self) -> Trouble:
        order = self.order()
        half = len(order) // 2
        return self.both_ways(order[:half], order[half + 1:], Rule(cut=True), "cut")

    def do_flap(self) -> Trouble:
        one, two, *_ = self.order()
        return self.both_ways([one], [two], Rule(flap_ms=self.dice.randint(100, 1_500)), "flapped")

    def do_strand(self) -> Trouble:
        return self.both_ways([CLIENTS], self.order()[:1], Rule(cut=True), "cut")

    # -- processes and clocks ------------------------------------------------------------------------------

    def do_pause(self) -> Trouble:
        (node,) = self.victim()
        node.freeze()
        return Trouble(str(node.number), node.thaw, lambda: state_of(node.process.pid) == "T")

    def do_kill(self) -> Trouble:
        nodes = self.victim(self.dice.randint(1, KILLS_MAX))
        for node in nodes:
            node.kill()
            self.lost.add(node)
            self.load.mark("loss", str(node.number))

        def restart() -> None:
            for node in nodes:
                node.launch()
                self.load.mark("restart", str(node.number))

        who = " ".join(str(node.number) for node in nodes)
        return Trouble(who, restart, lambda: not any(node.is_running() for node in nodes))

    def do_jump(self) -> Trouble:
        (node,) = self.victim()
        amount = self.dice.choice(JUMPS_MS)
        node.set_skew(amount)

        def is_wrong() -> bool:
            with contextlib.suppress(OSError, EOFError):
                node.hang_up()
                return abs(node.wall_s() - time.time() - amount / 1000) < 0.8
            return False

        return Trouble(f"{node.number} by {amount} ms", lambda: node.set_skew(0), is_wrong)


def names(addresses: list[str]) -> str:
    """Nodes as numbers."""
    return " ".join("clients" if each == CLIENTS else str(int(each.rpartition(".")[2]) - 1) for each in addresses)


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
