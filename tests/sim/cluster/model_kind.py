"""The model as a kind of machine for the simulator."""
from __future__ import annotations

import json
from typing import Any

from holdfast.testing.checkers.whitebox import Copy
from holdfast.testing.sim.machine import Birth

from .model_node import Model


class ModelKind:
    def build(self, birth: Birth) -> Any:
        return Model(birth)

    def facts(self, birth: Birth) -> Any:
        return (birth.node_id.decode(), birth.incarnation, f"{birth.host}:{birth.bus_port}")

    def id_of(self, facts: Any) -> bytes:
        return facts[0].encode()

    def walk(self, machine: Any) -> None:
        return None

    def take_told(self, machine: Any) -> list[tuple[str, str]]:
        return []

    def make_room(self, machine: Any) -> None:
        return None

    def refuse(self, machine: Any, why: bytes) -> None:
        return None

    def remember(self, machine: Any, known: list[Any]) -> None:
        return None

    def all_records(self, machine: Any) -> list[bytes]:
        return list(machine.loaded)

    def must_sync(self, machine: Any) -> bool:
        return False

    def force_holders(self, machine: Any, node_ids: list[bytes] | None) -> None:
        machine.force_holders = node_ids and [each.decode() for each in node_ids]

    def look(self, machine: Any) -> dict[str, Copy]:
        return {id: Copy(j.state, j.retry // 1000, j.queue) for id, j in machine.jobs.items()}

    def tell(self, machine: Any, job: str) -> str:
        j = machine.jobs.get(job)
        if j is None:
            return ""
        holders, confirmed = (sorted(name[:4] for name in names) for names in (j.may_have, j.confirmed))
        return f"{j.state} may_have={holders} confirmed={confirmed}"

    def counters(self, machine: Any) -> dict[str, int]:
        return machine.counters

    def consumers(self, machine: Any) -> dict[str, list[tuple[int, int]]]:
        return {}

    def figures(self, machine: Any) -> dict[str, int]:
        return {}

    def homes(self, machine: Any) -> list[bool]:
        return []

    def owned(self, machine: Any) -> list[bool]:
        return []

    def refused(self, machine: Any, address: str) -> None:
        """It does not ask why nobody is there."""

    def is_stalled(self, machine: Any, peer: Any) -> bool:
        return False

    def expects(self, machine: Any, peer: Any, node_id: bytes) -> bool:
        return True

    def wrong_books(self, machine: Any, bounds: Any, is_whole: bool) -> list[tuple[str, str]]:
        return []

    def digest(self, machine: Any) -> int:
        return 0

    def merged(self, machine: Any) -> dict[str, str]:
        return {}

    def mentions(self, data: bytes, job: str) -> bool:
        return job.encode() in data

    def describe(self, data: bytes, job: str, is_record: bool) -> str:
        return str(json.loads(data)[0])


KIND = ModelKind()
