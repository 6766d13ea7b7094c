"""The list of the doors: one interface over memory, file, RESP, HTTP and gRPC, workers in trouble, who may come in."""
from __future__ import annotations

import re

from bench import clients
from bench.show.lines import ALL_PASS, PYTHON, Answer, Line, bench_lines, pytest_counts, run, tests

SUITE = ("tests/doors/test_jobs.py", "tests/doors/test_queues.py")
DOORS = ("memory", "file", "resp", "served", "http", "grpc")
FACES = ("sync", "async")
BEHAVIOURS = 60
TROUBLE = "tests/worker/test_trouble.py"
OPENAPI_EXAMPLES = 50
"""Per operation of the description; `make test` has fewer."""
PASSED = re.compile(r"^PASSED \S+::(test_\w+)\[(\S+)\]", re.MULTILINE)


def conformance() -> Answer:
    """The same behaviours at every door with every face: the fewest that passed at one of them."""
    done = run("conformance", [PYTHON, "-m", "pytest", "-rp", "-p", "no:cacheprovider", *SUITE])
    passed: dict[str, set[str]] = {f"{door}-{face}": set() for door in DOORS for face in FACES}
    for behaviour, where in PASSED.findall(done.output):
        for pair, found in passed.items():
            if all(word in where.split("-") for word in pair.split("-")):
                found.add(behaviour)
    fewest = min(map(len, passed.values()))
    if fewest == 0:
        return f"a door was not tried, exit code {done.code}", None
    figure = f"≥ {fewest} behaviours at each of {len(passed)} doors and faces; {pytest_counts(done.output).text()}"
    return figure, done.code == 0 and fewest >= BEHAVIOURS


def lines() -> list[Line]:
    found = [
        Line(
            "conformance",
            "one suite, unchanged, against memory, file, RESP, HTTP and gRPC, sync and async",
            f"≥ {BEHAVIOURS} behaviours at each, all pass",
            conformance,
        ),
        Line(
            "serving",
            "an embedded queue served over RESP, HTTP and gRPC from inside a program; moved into a cluster",
            ALL_PASS,
            lambda: tests("serving", "tests/doors/test_serving.py", "tests/doors/test_promote.py"),
        ),
        Line(
            "openapi",
            f"schemathesis on the description, {OPENAPI_EXAMPLES} examples per operation; rubbish to every path",
            "no 5xx, no answer of another shape",
            lambda: tests("openapi", "tests/gateway/test_openapi.py", OPENAPI_EXAMPLES=str(OPENAPI_EXAMPLES)),
        ),
        Line(
            "grpc",
            "the gRPC door: calls, streams, health, reflection, random bytes to every method",
            "nothing but refusals",
            lambda: tests("grpc", "tests/gateway/test_grpc.py"),
        ),
        Line(
            "gateway",
            "the simple door, /v1, and nginx before three gateways of which one dies",
            ALL_PASS,
            lambda: tests(
                "gateway", "tests/gateway/test_simple_door.py", "tests/gateway/test_v1.py",
                "tests/gateway/test_proxy.py",
            ),
        ),
        Line(
            "security",
            "users, roles and queue patterns, slow logins, TLS and client certificates at every door, refusing to bind",
            ALL_PASS,
            lambda: tests(
                "security", "tests/gateway/test_who_may.py", "tests/doors/test_tls.py", "tests/proc/test_tls.py",
                "tests/proc/test_users.py",
            ),
        ),
        Line(
            "workers",
            "real workers: SIGKILL, SIGTERM, blocked loop, blocked thread, lost connection, node switch, health",
            "nothing lost, nothing twice in calm times",
            lambda: tests("workers", "tests/worker"),
        ),
        Line(
            "long",
            "a job of 2 minutes under a lease of 5 s, whatever its handler blocks",
            "its lease is kept, it runs once",
            lambda: tests("long", f"{TROUBLE}::test_a_lease_is_kept_whatever_the_handler_blocks", LONG="1"),
        ),
        Line(
            "kit",
            "tasks, and the kit for users' tests: inline, manual, fake clock, chaos that can be replayed",
            ALL_PASS,
            lambda: tests("kit", "tests/unit/tasks/test_tasks.py", "tests/unit/tasks/test_kit.py"),
        ),
        Line(
            "misuse",
            "an untyped misuse of the public interface is a type error",
            "mypy finds each of them",
            lambda: tests("misuse", "tests/unit/tasks/test_types.py"),
        ),
    ]
    found += bench_lines("clients", clients.GOALS)
    return found
