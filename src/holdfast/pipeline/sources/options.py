"""Options of the data source, read and checked: names in camelCase as the Kafka connector has them.

Spark gives options as text, under lower-cased names, and says nothing of one that nobody reads: a misspelt option would
be silently without effect. So whoever reads options here names all it knows, and an unknown one is an error that says
which was meant.
"""
from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

URL: Final = ("url", "servers", "connect")
WHAT: Final = ("path", "table")
SPARKS: Final = ("checkpointlocation", "outputmode", "queryname")
"""Options that Spark hands on though they are its own."""
YES: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class BadOption(ValueError):
    """An option is missing, unknown or wrong."""


class Options:
    """What the user gave, with lower-cased names."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self.given = {name.lower(): value for name, value in given.items()}
        self.known = {name.lower(): name for name in (*known, *URL, *WHAT)}
        for name in self.given:
            if name not in self.known and name not in SPARKS and not name.startswith("__"):
                near = difflib.get_close_matches(name, self.known, 1)
                meant = f"did you mean {self.known[near[0]]}?" if near else f"there are {', '.join(sorted(known))}"
                raise BadOption(f"holdfast has no option {name!r} here: {meant}")

    def url(self) -> str:
        """Where the cluster is: `holdfast://…`, or as Kafka has it a list of host:port."""
        for name in URL:
            if value := self.given.get(name):
                return value if re.match(r"[a-z]+:(//|$|[^\d])", value) else f"holdfast://{value}"
        raise BadOption("say where the cluster is: .option('url', 'holdfast://host:port')")

    def text(self, name: str, default: str = "") -> str:
        return self.given.get(name.lower(), default)

    def names(self, name: str) -> list[str]:
        """A list with commas."""
        return [each.strip() for each in self.text(name).split(",") if each.strip()]

    def number(self, name: str, default: int, least: int = 1) -> int:
        text = self.text(name)
        if not text:
            return default
        if not re.fullmatch(r"\d{1,18}", text) or int(text) < least:
            raise BadOption(f"{name} takes a whole number of at least {least}, not {text!r}")
        return int(text)

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name)
        try:
            value = float(text) if text else default
        except ValueError:
            value = -1.0
        if value < 0:
            raise BadOption(f"{name} takes seconds, not {text!r}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name).lower()
        if text and text not in YES:
            raise BadOption(f"{name} takes true or false, not {text!r}")
        return YES[text] if text else default

    def word(self, name: str, words: tuple[str, ...]) -> str:
        """One of these; the first is the default."""
        text = self.text(name, words[0])
        if text not in words:
            raise BadOption(f"{name} takes {', '.join(words)}, not {text!r}")
        return text
