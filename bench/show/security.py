"""The list of security: each weakness that was found once, as the test that shows it is gone.

A row per finding: its number, the name for --only, what is shown, and the tests. Each of them failed before its repair.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.show.lines import ALL_PASS, Answer, Line, tests

FOLDER = "tests/proc/security"
NODE = f"{FOLDER}/test_strangers_at_a_node.py"
GATEWAY = f"{FOLDER}/test_strangers_at_a_gateway.py"
SERVE = f"{FOLDER}/test_strangers_at_serve.py"
NAMES = f"{FOLDER}/test_what_others_are_told.py"

# number, key, title, tests
FINDINGS: tuple[tuple[int, str, str, str], ...] = (
    (3, "held-input", "node: 500 strangers send a MiB behind a login under way, at most 64 MiB is kept", f"{NODE} -k behind"),
    (9, "logins", "logins: few guesses per second, the right secret is never called wrong, all refusals are logged",
     f"{NODE} -k 'guess or known'"),
    (10, "handshakes", "TLS: 400 silent handshakes leave descriptors, and end after 5 s", f"{NODE} -k 'handshakes or knock'"),
    (0, "crowd-node", "node: 2,000 strangers, 100 MiB of input: RSS ≤ 64 MiB more, p99 of others ≤ 2 ×", f"{NODE} -k crowd_that"),
    (0, "admin-slots", "node: the newest stranger comes in, an admin gets in where all places are taken",
     f"{NODE} -k 'newest or admin'"),
)


def lines() -> list[Line]:
    return [Line(key, told(number, title), ALL_PASS, finding(key, words)) for number, key, title, words in FINDINGS]


def told(number: int, title: str) -> str:
    return f"{number}. {title}" if number else title


def finding(key: str, words: str) -> Callable[[], Answer]:
    path, _, chosen = words.partition(" -k ")
    arguments = [path, "-k", chosen.strip("'")] if chosen else [path]
    return partial(tests, f"security-{key}", *arguments)
