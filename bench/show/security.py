"""The list of security: each weakness that was found once, as the test that shows it is gone.

A row per finding, with the tests that failed before its repair. A row without a number belongs to no finding alone.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import seal
from bench.show.lines import ALL_PASS, Answer, Line, bench_lines, tests

FOLDER = "tests/proc/security"
NODE = f"{FOLDER}/test_strangers_at_a_node.py"
GATEWAY = f"{FOLDER}/test_strangers_at_a_gateway.py"
SERVE = f"{FOLDER}/test_strangers_at_serve.py"
OTHERS = f"{FOLDER}/test_what_others_are_told.py"
BUS = "tests/proc/test_closed_bus.py"
BETWEEN = "tests/proc/test_man_in_the_middle.py"
TLS = "tests/proc/test_tls.py"
CROWD = "2,000 strangers and 100 MiB of input: RSS ≤ 64 MiB more, p99 of others ≤ 2 ×"


@dataclass(frozen=True, slots=True)
class Finding:
    key: str
    title: str
    path: str
    """One file with tests, or several with a space between."""
    chosen: str = ""
    """Which tests of these, as pytest's -k has it."""
    goal: str = ALL_PASS


FINDINGS = (
    Finding("2-bodies", "gateway: nothing of a request but its head is read before it is known who asks", GATEWAY,
            "body or rubbish or head or message or line"),
    Finding("3-held-input", "node: 500 strangers send a MiB each behind a login that is under way", NODE, "behind"),
    Finding("9-logins", "logins at a node: few guesses per second, all logged; right secrets are never called wrong",
            NODE, "guess or known"),
    Finding("9-logins-http", "the same at a gateway, over HTTP and in the console", GATEWAY, "logins"),
    Finding("10-handshakes", "TLS: 400 silent handshakes leave descriptors, and end after 5 s", NODE,
            "handshakes or knock"),
    Finding("12-images", "an image on a page of another site takes no job", GATEWAY, "image"),
    Finding("13-logs", "names that others choose make no line of a log; a log file is for its owner", OTHERS,
            "log"),
    Finding("14-workers", "workers belong to users, are shown by queue, and forge no line of CLIENT LIST", OTHERS,
            "worker"),
    Finding("15-silent", "gateway: silent connections end, whoever comes gets in, streams are bounded", GATEWAY,
            "nothing or half or follow"),
    Finding("18-metrics", "metrics: on this machine or for a token, and broken scrapes are no alarm", OTHERS,
            "figures or scrape"),
    Finding("19-serve", "an embedded queue that is served: few guesses, silent strangers go, MONITOR at no door", SERVE,
            "guesses or nothing or others or behind or half"),
    Finding("21-low", "commands in TLS handshakes, endless pauses, long scans, waiting that is not counted", OTHERS,
            "pause or handshake or scan or port_of"),
    Finding("crowd-serve", f"an embedded queue that is served: {CROWD}", SERVE, "crowd_at"),
    Finding("crowd-node", f"node: {CROWD}", NODE, "crowd_that"),
    Finding("crowd-http", f"gateway, HTTP: {CROWD}", GATEWAY, "http_port"),
    Finding("crowd-grpc", f"gateway, gRPC: {CROWD}", GATEWAY, "grpc_port"),
    Finding("places", "node: the newest stranger comes in, and an admin where all places are taken", NODE,
            "newest or admin"),
)


def lines() -> list[Line]:
    found = [Line(each.key, each.title, each.goal, find_out(each)) for each in FINDINGS]
    return found + bench_lines("seal", seal.GOALS)


def find_out(each: Finding) -> Callable[[], Answer]:
    chosen = ["-k", each.chosen] if each.chosen else []
    return partial(tests, f"security-{each.key}", *each.path.split(), *chosen)
