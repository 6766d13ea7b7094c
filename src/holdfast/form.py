"""Which form of Holdfast this is: compiled, or the same files as plain Python.

The package's __init__ imports this module before any other of ours. With HOLDFAST_PURE set (and not
to 0, no, false or off), the compiled files beside the plain ones are passed over, so that one
installation can be run, tested and debugged in both forms.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

OFF = ("", "0", "no", "false", "off")


def is_on(variable: str) -> bool:
    """Is this variable of the environment set, to something that does not mean no?"""
    return os.environ.get(variable, "").strip().lower() not in OFF


PURE = is_on("HOLDFAST_PURE")


class SourceOnly:
    """Finds the modules of this package as .py files, whatever compiled files lie beside them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not name.startswith("holdfast."):
            return None
        for folder in path:
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name, target)
            if spec is not None:
                return spec
        return None


if PURE:
    sys.meta_path.insert(0, SourceOnly())


def is_compiled() -> bool:
    from holdfast.core import node

    return not str(node.__file__).endswith(".py")


def name() -> str:
    return "compiled" if is_compiled() else "pure Python"
