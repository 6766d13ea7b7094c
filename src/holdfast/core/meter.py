"""What only the shell can know, and INFO and CLIENT LIST want to tell.

The machine has no clock, no process and no sockets of its own. It asks its meter, which the shell provides;
NO_METER answers where there is no shell, in a simulation or an embedded queue.
"""
from __future__ import annotations

from typing import Final, Protocol

from holdfast.core.session import Session


class Meter(Protocol):
    def process(self) -> dict[str, str]:
        """Fields of INFO about the process: pid, memory, processor time, bytes in and out, pauses."""
        ...

    def direct(self) -> list[tuple[bytes, int, int]]:
        """(command, calls, microseconds) of commands that were run by their direct handlers."""
        ...

    def reset(self) -> None:
        """Begin to count anew, at once: commands behind CONFIG RESETSTAT in one batch count already."""
        ...

    def connection(self, session: Session) -> dict[str, int]:
        """Fields of CLIENT LIST: fd, qbuf, qbuf-free, obl, oll, omem."""
        ...

    def are_siblings_safe(self) -> bool:
        """Whether all other nodes that share our port have said that they are leaving and could be stopped."""
        ...

    def why_alone(self) -> str:
        """Why no other node can be met; empty where that is possible."""
        ...


class NoMeter:
    def process(self) -> dict[str, str]:
        return {}

    def direct(self) -> list[tuple[bytes, int, int]]:
        return []

    def reset(self) -> None:
        pass

    def connection(self, session: Session) -> dict[str, int]:
        return {}

    def are_siblings_safe(self) -> bool:
        return True

    def why_alone(self) -> str:
        return ""


NO_METER: Final = NoMeter()
