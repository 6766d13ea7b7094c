"""The list of security: who gets in by which door, what strangers cost, and what is seen on the way."""
from __future__ import annotations

from bench import seal
from bench.show.lines import ALL_PASS, Line, bench_lines, tests

BUS = "tests/proc/test_closed_bus.py"
BETWEEN = "tests/proc/test_man_in_the_middle.py"
CERTIFICATES = ("tests/proc/test_tls.py", "tests/unit/shell/test_credentials.py")


def lines() -> list[Line]:
    found = [
        Line(
            "closed-bus",
            "a guarded node without a secret has no bus; others meet nodes of the same user and machine alone",
            ALL_PASS,
            lambda: tests("closed-bus", BUS, "-k", "not three and not secret_under_load and not read_again"),
        ),
        Line(
            "between",
            "somebody between two nodes flips, cuts, leaves out, repeats, reorders and puts in frames",
            "link closed, counted, logged; every job as it was added",
            lambda: tests("between", BETWEEN, "tests/wire/test_sealed_frames.py"),
        ),
        Line(
            "certificates",
            "a client's certificate is not a node's; certificates are read again on SIGHUP",
            ALL_PASS,
            lambda: tests("certificates", *CERTIFICATES),
        ),
        Line(
            "other-secret",
            "three nodes change their secret under load; one that cannot be read closes the bus to new links",
            "no job refused or lost, the old secret is turned away",
            lambda: tests("other-secret", BUS, "-k", "secret_under_load or read_again"),
        ),
        Line(
            "handshakes",
            "malformed handshakes with the right secret",
            "no link, node unharmed",
            lambda: tests("handshakes", "tests/fuzz/test_fuzz_handshake.py"),
        ),
    ]
    return found + bench_lines("seal", seal.GOALS)
