"""The real node as a kind of machine for the simulator."""
from __future__ import annotations

from importlib import import_module
from typing import Any

from holdfast.core import delay, groups, requeue, states, views
from holdfast.core import job as core
from holdfast.core.federate import HOPS_MAX
from holdfast.core.node import Node
from holdfast.core.peers import ME
from holdfast.core.queue import PAUSE_OUT
from holdfast.testing.checkers import reach
from holdfast.testing.checkers.whitebox import ACKED, ACTIVE, DEAD, MOVING, QUEUED, TOMBSTONE, WAIT_REPL, Copy
from holdfast.testing.sim.clock import EPOCH_MS
from holdfast.testing.sim.decode import in_frame, in_record, in_tale
from holdfast.testing.sim.machine import Birth, Machine, Walking
from holdfast.testing.sim.store import Shelf, every_job

STATES = (WAIT_REPL, ACTIVE, QUEUED, ACKED, "gone", DEAD)


def state_of(job: Any) -> str:
    return MOVING if job.flags & core.MOVING and job.state == core.ACTIVE else STATES[job.state]


def standing(machine: Any, job: Any) -> tuple[str, int]:
    """What becomes of a copy, in the words of checkers/reach.py, and for how long."""
    flags, state, left = job.flags, job.state, max(0, int(job.qtime) - int(machine.now))
    if state == core.QUEUED:
        return ("kept" if is_kept(job) else reach.QUEUED), 0
    if state != core.ACTIVE:
        return ("adding" if state == core.WAIT_REPL else ""), 0
    if flags & core.IN_DOUBT:
        return "doubt", 0
    if flags & core.SPECIAL and groups.is_held(job):
        return reach.IN_LINE, 0
    if requeue.is_leased(machine, job):
        return reach.OUT, left
    if job.retry == 0 and flags & core.HANDED_OUT:
        return "spent", 0
    if job.responsible != ME and not flags & core.MOVING and delay.is_on(machine, job):
        return reach.DELAYED, int(delay.left(machine, job))  # whoever is to end it
    if flags & (core.MOVING | core.ASKING) or job.responsible != ME or not left:
        return "elsewhere", 0
    if flags & core.BACKING_OFF:
        return reach.WAITS, left
    return (reach.DELAYED, left) if delay.is_on(machine, job) else ("put-off", 0)


def turn_of(job: Any) -> int:
    number = 0 if job.lease is None else int(job.lease.number)
    return (number << 20) + int(job.nacks) + int(job.deliveries)


def is_kept(job: Any) -> bool:
    """Queued, and not for whoever asks next."""
    queue = job.queue
    has_domain = job.more is not None and job.more.domain != b""
    is_limited = queue.rules is not None and queue.rules.throttle is not None
    return has_domain or is_limited or queue.paused & PAUSE_OUT != 0 or job.hops >= HOPS_MAX


class Real:
    def build(self, birth: Birth) -> Machine:
        make: Any = Node
        node = make(
            birth.config(), birth.node_id, birth.random, birth.start_ms, incarnation=birth.incarnation
        )
        node.peers[0].facts = self.facts(birth)  # as the server does
        node.is_recording = True
        node.is_telling = node.config.is_on("history")
        node.overflow.least = node.overflow.body_min = 1
        node.overflow.near = 0
        node.overflow.begin(Shelf())
        if birth.mutants:
            node.set_mutants(birth.mutants)
        machine: Machine = node
        return machine

    def facts(self, birth: Birth) -> Any:
        peers = import_module("holdfast.core.peers")
        return peers.PeerFacts(
            birth.node_id, birth.incarnation, birth.host, birth.port, birth.bus_port, birth.host_id, birth.zone
        )

    def id_of(self, facts: Any) -> bytes:
        node_id: bytes = facts.node_id
        return node_id

    def must_sync(self, machine: Any) -> bool:
        must: bool = machine.must_sync
        machine.must_sync = False
        return must

    def take_told(self, machine: Any) -> list[tuple[str, str]]:
        if not machine.is_telling:
            return []
        return [each for records, _ in machine.tale.take() for each in in_tale(records)]

    def make_room(self, machine: Any) -> None:
        if machine.overflow.is_due():
            machine.overflow.step()

    def walk(self, machine: Any) -> Walking | None:
        machine.log_wall = 0
        walk: Walking = import_module("holdfast.core.snapshot").Walk(machine)
        return walk

    def refused(self, machine: Any, address: str) -> None:
        import_module("holdfast.core.membership").refused(machine, address.encode())

    def is_stalled(self, machine: Any, peer: Any) -> bool:
        found: bool = import_module("holdfast.core.membership").is_stalled(machine, peer)
        return found

    def expects(self, machine: Any, peer: Any, node_id: bytes) -> bool:
        return any(each.node_id() == node_id for each in machine.peers if each.is_member or each is peer)

    def refuse(self, machine: Any, why: bytes) -> None:
        machine.refuse(why)

    def remember(self, machine: Any, known: list[Any]) -> None:
        for facts in known:
            if facts.node_id not in machine.by_id:
                machine.add_peer(facts).is_member = True

    def all_records(self, machine: Any) -> list[bytes]:
        walk = self.walk(machine)
        assert walk is not None
        found: list[bytes] = []
        while not walk.is_done:
            found += walk.take_records(1 << 20)
        return found

    def force_holders(self, machine: Any, node_ids: list[bytes] | None) -> None:
        machine.force_holders = node_ids

    def look(self, machine: Any) -> dict[str, Copy]:
        view = {
            machine.id_text(job).decode(): Copy(
                state_of(job), int(job.retry), job.queue.name.decode("latin-1"), *standing(machine, job), turn_of(job)
            )
            for job in every_job(machine)
        }
        for jid in machine.tombs:
            view.setdefault(jid.decode(), Copy(TOMBSTONE, 1, ""))
        return view

    def tell(self, machine: Any, job: str) -> str:
        found = next((each for each in every_job(machine) if machine.id_text(each) == job.encode()), None)
        if found is None:
            tomb = machine.tombs.get(job.encode())
            return "" if tomb is None else f"tombstone, holders {tomb.holders:b}"
        return (
            f"{state_of(found)}, holders {found.holders:b}, responsible {found.responsible}, flags {found.flags:b} | "
            f"due {found.qtime - EPOCH_MS if found.qtime else 'never'}, flying {found.flying}"
        )

    def counters(self, machine: Any) -> dict[str, int]:
        return dict(machine.counters)

    def consumers(self, machine: Any) -> dict[str, list[tuple[int, int]]]:
        return {
            queue.name.decode("latin-1"): [(int(number), int(each.wake)) for number, each in queue.waiting.items()]
            for queue in machine.queues.values() if queue.waiting and not queue.paused & PAUSE_OUT
        } if not machine.is_leaving else {}

    def homes(self, machine: Any) -> list[bool]:
        opened: list[bool] = machine.homes.opened
        return opened

    def figures(self, machine: Any) -> dict[str, int]:
        wanted = [views.FIELDS.index(name) for name in states.COUNTED.values()]
        told = {queue.name.decode("latin-1"): views.figures(machine, queue) for queue in machine.queues.values()}
        return {name: sum(row[i] for i in wanted) for name, row in told.items()}

    def owned(self, machine: Any) -> list[bool]:
        return [epoch > 0 for epoch in machine.homes.epochs]

    def wrong_books(self, machine: Any, bounds: Any, is_whole: bool) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = import_module("holdfast.testing.sim.books").wrong(machine, bounds, is_whole)
        return found

    def digest(self, machine: Any) -> int:
        return int(machine.registers.digest)

    def merged(self, machine: Any) -> dict[str, str]:
        return {jid.decode(): into.decode() for jid, into in machine.merged.items()}

    def mentions(self, data: bytes, job: str) -> bool:
        number = int(job[10:26], 16).to_bytes(8, "little")  # which is how most records name it
        return job.encode() in data or number in data

    def describe(self, data: bytes, job: str, is_record: bool) -> str:
        return in_record(data, job) if is_record else in_frame(data, job)


KIND = Real()
