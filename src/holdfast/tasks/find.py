"""Finding the app that `module:name` names, for whoever runs its tasks: a worker, or Spark's executors."""

from __future__ import annotations

import importlib
import os
import sys

from .app import App


class NoApp(LookupError):
    """The words lead to no app."""


def find_app(place: str, folder: str = "") -> App:
    """`package.module:name` → the app of that name; without a name the one called `app`. Modules in `folder`, or where
    we are, are found, too."""
    module, _, name = place.partition(":")
    where = folder or os.getcwd()
    if where not in sys.path:
        sys.path.insert(0, where)
    try:
        found = getattr(importlib.import_module(module), name or "app")
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise NoApp(f"there is no module {module!r} here") from None
        raise
    except AttributeError:
        raise NoApp(f"{module} has no {name or 'app'!r}") from None
    if not isinstance(found, App):
        raise NoApp(f"{place} is no holdfast.App but a {type(found).__name__}")
    return found
