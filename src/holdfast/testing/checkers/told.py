"""A node's history agrees with what clients saw: marks `told`, one for each record of it, where history is on.

    every ADDJOB that was answered with an id      has an `added`, between command and answer; of another node where
                                                   the command was passed on, to a home or to who gave a lease
    every job a client got                         has a `handed-out`
    every ACKJOB that was answered with 1          has an `acked`; and none without one that was sent
    nothing is added twice

A job with keys is added and handed out by its home, which tells so, perhaps a little later than the node that was
asked answers; and one of the two may die in between. Such a job, and one on a schedule, has the same id wherever it is
made: two nodes add it if both take themselves for its home, which they do not in calm times; one node does only if it
had to start anew.
"""
from __future__ import annotations

from itertools import combinations

from holdfast.testing.checkers.facts import CRON_PREFIX, ENDINGS, Facts, Violation
from holdfast.testing.checkers.keys import was_calm
from holdfast.testing.history import INVOKE, OK, WATCH, Op

ID_LENGTH = 48


def is_at_most_once(job: str) -> bool:
    """As its id says, if it is one: jobs of a model have others."""
    return len(job) == ID_LENGTH and int(job[42:46], 16) % 2 == 0


class Agreement:
    def __init__(self, facts: Facts) -> None:
        self.found: list[Violation] = []
        self.homed = {id for id, job in facts.by_id.items() if job.group or job.key or "final_of" in job.add}
        self.is_smooth = not facts.losses and not facts.restarts
        self.told: dict[tuple[str, str, str], list[int]] = {}  # node, event, job: when
        self.nodes = sorted({op.node for op in facts.history.ops if op.process == WATCH and op.f == "told"})
        self.asked: dict[int, Op] = {}
        self.ended: set[str] = set()  # jobs that somebody wanted to end
        self.fastacked: set[tuple[str, str]] = set()  # node and job: the node forgets it, and may be given it again
        for op in facts.history.ops:
            if op.process == WATCH and op.f == "told":
                self.told.setdefault((op.node, op.value["event"], op.value["job"]), []).append(op.t)
            elif op.number and op.type == INVOKE:
                self.asked[op.number] = op
                if op.f in ENDINGS:
                    self.ended.update(op.value["ids"])
                elif op.f == "admin":
                    self.ended.update(op.value["words"])  # an operator at a prompt, perhaps with an ACKJOB
                if op.f == "fastack":
                    self.fastacked.update((op.node, job) for job in op.value["ids"])

    def wrong(self, what: str, job: str, t: int, text: str) -> None:
        self.found.append(Violation("history", what, job, t, text))

    def nothing_untrue(self) -> None:
        for (node, event, job), times in self.told.items():
            if event == "acked" and job not in self.ended:
                self.wrong("told-and-untrue", job, times[0], f"acked, says {node}, and nobody had asked it to")

    def added_once(self, facts: Facts) -> None:
        """One that more than one node may make: not by two in calm times, nor twice by one that remembers. At most once
        means that nobody makes it again; but who has lost all may."""
        added: dict[str, list[tuple[int, str]]] = {}
        for (node, event, job), times in self.told.items():
            if event == "added":
                added.setdefault(job, []).extend((t, node) for t in times)
        for job, tellings in added.items():
            is_shared = job.startswith(CRON_PREFIX) or job in self.homed
            if is_shared and self.is_smooth and is_at_most_once(job):
                is_shared = False
            for (first, one), (last, two) in combinations(sorted(tellings), 2):
                has_forgotten = (one, job) in self.fastacked or any(
                    first <= t <= last and node == one for t, node in facts.restarts)
                if not is_shared or (not has_forgotten if one == two else was_calm(facts, first, last)):
                    self.wrong("told-twice", job, last, f"added at {one} at {first} ms, and once more at {two}")
                    break

    def expect(self, op: Op, event: str, job: str) -> None:
        """An answer says that it happened; each telling is for one answer."""
        if job in self.homed:
            is_told = any(told[1:] == (event, job) for told in self.told)
            if event == "added" and not is_told and self.is_smooth and "final_of" not in self.asked[op.number].value:
                self.wrong("untold-added", job, op.t, f"{op.node} answered, and nobody told")
            return
        begin = self.asked[op.number].t
        for node in [op.node, *self.nodes]:
            times = self.told.get((node, event, job), [])
            for i, t in enumerate(times):
                if begin <= t <= op.t:
                    del times[i]
                    return
        self.wrong(f"untold-{event}", job, op.t, f"{op.node} answered {op.f} and told nothing since {begin}")

    def nothing_untold(self, facts: Facts) -> None:
        for op in facts.history.ops:
            if not op.number or op.type != OK:
                continue
            if op.f == "add" and op.value.get("dup", "added") == "existing":
                continue  # nothing was added
            if op.f == "add":
                self.expect(op, "added", op.value["id"])
            elif op.f == "get":
                for each in op.value["jobs"]:
                    if not is_lent(facts, each["id"]):
                        self.expect(op, "handed-out", each["id"])
            elif op.f == "ack":
                ids = self.asked[op.number].value["ids"]
                if len(ids) == op.value["count"] == 1:
                    self.expect(op, "acked", ids[0])


def is_lent(facts: Facts, id: str) -> bool:
    """A job with keys may be handed out by another node than its home, which hears of it later, or never."""
    if id.startswith(CRON_PREFIX):
        rules = [op.value["words"] for op in facts.history.ops if op.f == "rule" and op.type == INVOKE]
        return any(words[0] == "CRON" and ("GROUP" in words or "UNIQUE" in words) for words in rules)
    job = facts.by_id.get(id)
    return job is not None and bool(job.add.get("group") or job.add.get("unique"))


def history_agrees(facts: Facts) -> list[Violation]:
    agreement = Agreement(facts)
    if agreement.told:  # or no node has a history
        agreement.nothing_untrue()
        agreement.added_once(facts)
        agreement.nothing_untold(facts)
    return agreement.found
