"""The story of one job: only the events that touched it, on all nodes, in order.

Runs a plan again with every machine behind a proxy that compares what the node knows of the job before and
after each event, and notes frames and records that are about it. The machines themselves know nothing of it,
and runs without a transcript pay nothing.
"""
from __future__ import annotations

from typing import Any

from holdfast.testing.checkers.whitebox import Copy
from holdfast.testing.history import INVOKE, NEMESIS, OK, Op
from holdfast.testing.sim.machine import Birth, Kind, Machine, Walking
from holdfast.testing.sim.plan import Plan
from holdfast.testing.sim.run import play, start
from holdfast.testing.sim.world import World


class Story:
    """The lines, and the kind of machine that writes them."""

    def __init__(self, kind: Kind, job: str) -> None:
        self.kind = kind
        self.job = job
        self.cluster: World | None = None  # before it is there, there are no jobs either
        self.lines: list[tuple[int, str]] = []

    def make_room(self, machine: Any) -> None:
        self.kind.make_room(machine.machine)

    def walk(self, machine: Any) -> Walking | None:
        return self.kind.walk(machine.machine)

    def tell(self, machine: Any, job: str) -> str:
        return self.kind.tell(machine.machine, job)

    def build(self, birth: Birth) -> Machine:
        proxy: Any = Proxy(self, birth)
        machine: Machine = proxy
        return machine

    def facts(self, birth: Birth) -> Any:
        return self.kind.facts(birth)

    def id_of(self, facts: Any) -> bytes:
        return self.kind.id_of(facts)

    def take_told(self, machine: Any) -> list[tuple[str, str]]:
        return self.kind.take_told(machine.machine)

    def refuse(self, machine: Any, why: bytes) -> None:
        self.kind.refuse(machine.machine, why)

    def refused(self, machine: Any, address: str) -> None:
        self.kind.refused(machine.machine, address)

    def is_stalled(self, machine: Any, peer: Any) -> bool:
        return self.kind.is_stalled(machine.machine, peer)

    def expects(self, machine: Any, peer: Any, node_id: bytes) -> bool:
        return self.kind.expects(machine.machine, peer, node_id)

    def remember(self, machine: Any, known: list[Any]) -> None:
        self.kind.remember(machine.machine, known)

    def all_records(self, machine: Any) -> list[bytes]:
        return self.kind.all_records(machine.machine)

    def must_sync(self, machine: Any) -> bool:
        return self.kind.must_sync(machine.machine)

    def force_holders(self, machine: Any, node_ids: list[bytes] | None) -> None:
        self.kind.force_holders(machine.machine, node_ids)

    def look(self, machine: Any) -> dict[str, Copy]:
        return self.kind.look(machine.machine)

    def consumers(self, machine: Any) -> dict[str, list[tuple[int, int]]]:
        return self.kind.consumers(machine.machine)

    def counters(self, machine: Any) -> dict[str, int]:
        return self.kind.counters(machine.machine)

    def figures(self, machine: Any) -> dict[str, int]:
        return self.kind.figures(machine.machine)

    def homes(self, machine: Any) -> list[bool]:
        return self.kind.homes(machine.machine)

    def owned(self, machine: Any) -> list[bool]:
        return self.kind.owned(machine.machine)

    def wrong_books(self, machine: Any, bounds: Any, is_whole: bool) -> list[tuple[str, str]]:
        return self.kind.wrong_books(machine.machine, bounds, is_whole)

    def digest(self, machine: Any) -> int:
        return self.kind.digest(machine.machine)

    def merged(self, machine: Any) -> dict[str, str]:
        return self.kind.merged(machine.machine)

    def mentions(self, data: bytes, job: str) -> bool:
        return self.kind.mentions(data, job)

    def describe(self, data: bytes, job: str, is_record: bool) -> str:
        return self.kind.describe(data, job, is_record)

    def name(self, node_id: bytes) -> str:
        hosts = self.cluster.hosts.values() if self.cluster is not None else []
        return next((host.name for host in hosts if host.node_id == node_id), "?")

    def note(self, node_id: bytes, text: str) -> None:
        if self.cluster is not None:
            self.lines.append((self.cluster.now, f"{self.name(node_id):>2}  {text}"))


class Proxy:
    """A machine that tells what its events do to one job."""

    def __init__(self, story: Story, birth: Birth) -> None:
        self.story = story
        self.machine = story.kind.build(birth)
        self.node_id = birth.node_id
        self.peers: dict[Any, bytes] = {}  # their ids
        self.before = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)

    def peer(self, peer: Any) -> str:
        return self.story.name(self.peers.get(peer, b""))

    def compare(self, what: str, is_about: bool) -> None:
        after = self.story.kind.tell(self.machine, self.story.job)
        is_news = after.partition("|")[0] != self.before.partition("|")[0]
        if is_about or is_news:
            change = f"{self.before or '-'}  =>  {after or '-'}" if is_news else f"({after or '-'})"
            self.story.note(self.node_id, f"{what:<34} {change}")
        self.before = after

    def load(self, records: list[bytes]) -> None:
        self.machine.load(records)
        self.compare(f"loads {len(records)} records", False)

    def execute(self, session: Any, argv: list[bytes]) -> bool:
        ran = self.machine.execute(session, argv)
        if ran:
            words = " ".join(word.decode("utf-8", "replace")[:20] for word in argv[:3])
            self.compare(words, any(self.story.job.encode() == word for word in argv))
        return ran

    def disconnect(self, session: Any) -> None:
        self.machine.disconnect(session)
        self.compare("client gone", False)

    def tick(self) -> None:
        self.machine.tick()
        self.compare("tick", False)

    def link_up(self, facts: Any) -> Any:
        peer = self.machine.link_up(facts)
        node_id = self.story.kind.id_of(facts)
        if peer is not None:
            self.peers[peer] = node_id
        self.compare(f"link up {self.story.name(node_id)}", bool(self.before))
        return peer

    def link_down(self, peer: Any) -> None:
        self.machine.link_down(peer)
        self.compare(f"link down {self.peer(peer)}", bool(self.before))

    def frame(self, peer: Any, data: bytes) -> bool:
        story = self.story
        is_good = self.machine.frame(peer, data)
        is_about = story.mentions(data, story.job)
        what = story.describe(data, story.job, False) if is_about else "a frame"
        self.compare(f"<- {self.peer(peer)} {what}", is_about)
        return is_good

    def flush(self) -> None:
        self.machine.flush()
        story = self.story
        for peer, data in self.machine.frames:
            if story.mentions(data, story.job):
                story.note(self.node_id, f"-> {self.peer(peer)} {story.describe(data, story.job, False)}")
        self.compare("flush", False)

    def take_records(self) -> list[bytes]:
        taken = self.machine.take_records()
        story = self.story
        for record in taken:
            if story.mentions(record, story.job):
                story.note(self.node_id, f"   record {story.describe(record, story.job, True)}")
        return taken


def concerns(op: Op, job: str, body: str) -> bool:
    if op.process == NEMESIS:
        return op.f not in ("calm", "settings", "hears")
    if op.f == "add":
        return op.value.get("body") == body or op.value.get("id") == job
    if op.f == "get" and op.type != INVOKE:
        return any(each["id"] == job for each in op.value.get("jobs", []))
    return job in op.value.get("ids", []) or op.value.get("job") == job


def transcript(plan: Plan, job: str, kind: Kind, mutants: frozenset[str] = frozenset()) -> str:
    """Run the plan again and tell the story of that job."""
    story = Story(kind, job)
    cluster, workload = start(plan, mutants, story)
    story.cluster = cluster
    play(cluster, workload)
    return text_of(story)


def text_of(story: Story) -> str:
    """What machines and clients have to say about the job, in order."""
    job = story.job
    ops = story.cluster.history.ops if story.cluster is not None else []
    bodies = {op.number: op.value["body"] for op in ops if op.f == "add" and op.type == INVOKE}
    body = next((bodies[op.number] for op in ops if op.f == "add" and op.value.get("id") == job), "")
    for op in ops:
        if op.f == "get" and op.type == OK and not body:
            body = next((each["body"] for each in op.value["jobs"] if each["id"] == job), "")
    told = [(op.t, f" *  {op.process} {op.node} {op.type} {op.f} {op.value}") for op in ops if concerns(op, job, body)]
    lines = sorted([*story.lines, *told], key=lambda line: line[0])
    return "\n".join(f"{t:>8} {text}" for t, text in lines)
