"""Every command, spelled out from its row in the table: what a new one names is checked and need not be listed.

`SET queue name value [name value ...] | GET queue [name ...]` are two phrases. A phrase has its fixed words, something
for each argument, and of what may be left out that which names a queue, once with it and once without.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from holdfast.core.commands.table import COMMANDS

SCHEDULE = "nightly"
FILLED = {"job|queue": "job", "schedule": "@daily", "name": SCHEDULE, "filters": "OLDER", "of": "1"}
"""For arguments that are not just any word; a schedule's name is as good as any other."""
TOKENS = re.compile(r"\[|\]|[^\s\[\]]+")


def alternatives(syntax: str) -> Iterator[list[str]]:
    """The phrases of a row, as tokens, with brackets."""
    depth, phrase = 0, list[str]()
    for token in TOKENS.findall(syntax):
        depth += (token == "[") - (token == "]")
        if token == "|" and depth == 0:
            yield phrase
            phrase = []
        else:
            phrase.append(token)
    yield phrase


def names_a_queue(token: str) -> bool:
    return token in ("queue", "queue|*")


def optional(phrase: list[str], names: bool) -> list[str]:
    """The phrase without what may be left out, but for what names a queue."""
    kept: list[str] = []
    group: list[str] = []
    depth = 0
    for token in phrase:
        if token == "[":
            depth += 1
        elif token == "]":
            depth -= 1
            if depth == 0:
                kept += group if names and any(map(names_a_queue, group)) else []
                group = []
        elif depth == 0:
            kept.append(token)
        elif depth == 1:
            group.append(token)
    return [token for token in kept if token != "..."]


def choices(token: str, queue: str, job: str) -> list[str]:
    if names_a_queue(token):
        return [queue]
    if token == "id":
        return [job]
    if token in FILLED:
        return [FILLED[token]]
    return token.split("|") if token.isupper() else ["1"]


def phrases(queue: str, job: str) -> Iterator[tuple[list[str], list[bytes]]]:
    """For each phrase what it is made of, and the words; `queue` and `job` where it names one."""
    seen: set[tuple[bytes, ...]] = set()
    for command in COMMANDS:
        for phrase in alternatives(command.syntax):
            for names in (False, True):
                tokens = optional(phrase, names)
                for words in product(*(choices(token, queue, job) for token in tokens)):
                    argv = [command.name, *(word.encode() for word in words)]
                    if tuple(argv) not in seen:
                        seen.add(tuple(argv))
                        yield tokens, argv
