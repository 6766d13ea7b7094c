"""A job found in another system, and what may go wrong with one."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

WAITING: Final = "waiting"
SCHEDULED: Final = "scheduled"
RETRYING: Final = "retrying"
DEAD: Final = "dead"
RUNNING: Final = "running"
STATES: Final = (WAITING, SCHEDULED, RETRYING, DEAD, RUNNING)


@dataclass(frozen=True)
class Found:
    """One job of another system."""

    system: str
    id: str
    """The other system's own id: the job is added once per id."""
    queue: str
    body: bytes
    state: str = WAITING
    at: float = 0.0
    """Unix seconds before which it is not to run; 0: now."""
    priority: int | None = None
    attempts: int = 0
    """How often it was tried there."""
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    place: tuple[str, bytes] | None = None
    """Where it lies there, for taking it out: the key, and the raw value in it."""
    also: tuple[str, ...] = ()
    """Keys of its own that go with it when it is taken out."""


class Unreadable(ValueError):
    """An entry of the other system that cannot be understood; it is counted, shown and left where it is."""


@dataclass(frozen=True)
class Schedule:
    """Something that makes jobs again and again there. It is no job, so it is named and left."""

    name: str
    queue: str
    when: str

    def __str__(self) -> str:
        return f"{self.name} into {self.queue}, {self.when}"
