"""A user, as the machine knows one: a name, roles, and patterns of queues. What they mean is in users.py."""
from __future__ import annotations

from typing import Final

READ: Final = 1
PRODUCE: Final = 2
CONSUME: Final = 4
ADMIN: Final = 8
ALL_ROLES: Final = READ | PRODUCE | CONSUME | ADMIN
ROLE_NAMES: Final[dict[bytes, int]] = {b"read": READ, b"produce": PRODUCE, b"consume": CONSUME, b"admin": ADMIN}


class User:
    def __init__(self, name: bytes, roles: int, patterns: list[bytes], within: list[bytes] | None = None) -> None:
        self.name: bytes = name
        self.roles: int = roles
        self.patterns: list[bytes] = patterns  # empty: all queues
        self.within: list[bytes] = within or []  # of those, only what fits one of these, too; empty: all of them

    def may_all(self) -> bool:
        """Nothing needs to be looked up for this one."""
        return self.roles & ADMIN != 0 and not self.patterns
