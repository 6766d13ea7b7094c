"""A module that is loaded when something in it is first used.

asyncio takes longer to load than all of this client, and most who use it from threads never need it: the command line
above all, which starts anew with each call.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """Stands for a module of that name. What was used once is found without a call from then on."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)
        return found
