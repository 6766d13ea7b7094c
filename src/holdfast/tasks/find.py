"""Finding the app that `module:name` names, for whoever runs its tasks: a worker, or Spark's executors."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType

from .app import App


class NoApp(LookupError):
    """The words lead to no app. Its text may have several lines, where the fault is one in the module."""


def imported(module: str) -> ModuleType:
    """The module. `NoApp` if there is none, or if it raises: then with the part of the trace that is about it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise NoApp(f"there is no module {module!r} here") from None
        raise NoApp(broken(module, error)) from error
    except Exception as error:
        raise NoApp(broken(module, error)) from error


def broken(module: str, error: Exception) -> str:
    """What the user wants to see of an import that failed: the lines of the module, not those of importing."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [each for each in frames if each.filename != __file__ and "importlib" not in each.filename]
    return "\n".join([
        f"{module} cannot be imported:",
        *"".join(traceback.format_list(theirs)).splitlines(),
        *"".join(traceback.format_exception_only(error)).splitlines(),
    ])


def find_app(place: str, folder: str = "") -> App:
    """`package.module:name` → the app of that name; without a name the one called `app`. Modules in `folder`, or where
    we are, are found, too."""
    module, _, name = place.partition(":")
    where = folder or os.getcwd()
    if where not in sys.path:
        sys.path.insert(0, where)
    if not module or "/" in module or module.endswith(".py"):
        meant = module.removesuffix(".py").strip("./").replace("/", ".") or "shop.tasks"
        raise NoApp(f"{place!r} is no module with an app: write it as in an import, {meant}:{name or 'app'}")
    try:
        found = getattr(imported(module), name or "app")
    except AttributeError:
        raise NoApp(f"{module} has no {name or 'app'!r}") from None
    if not isinstance(found, App):
        raise NoApp(f"{place} is no holdfast.App but a {type(found).__name__}")
    return found
