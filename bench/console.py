"""What the console costs the nodes, and how it stands a big cluster: `make bench PART=console`.

    pages      a node under load (ADDJOB, GETJOB, ACKJOB from 50 connections) while people look at the console: each has
               the live figures open and goes from page to page. CPU time of the node per job, against the same load
               while the same people look at another node on the same core: both cores have the same to do both times,
               so that what differs is whose page work it is. Pairs in turn, every second one in the other order; the
               median of their ratios is judged, and their spread is told.
    scale      a thousand queues and a million jobs behind it: how long the slowest page takes, and how long the longest
               step of the node was meanwhile, in which everybody else had to wait.

The end is 0 if all goals are met, 1 if one falls short, 2 if the run was void. `--quick` does the same with few jobs
and judges nothing.
"""
from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from bench import common
from bench.common import HOST, Server, Void
from bench.goals import Goal, Judged, conduct, judge
from bench.scheduler import Cost, cycle, node_command, spread

RESULTS = common.ROOT / "bench" / "results"
PEOPLE = 5
CLICK_S = 2.0
"""Each of them opens a page this often."""
REQUEST_S = 30.0
KEPT = "kept"
"""The queue whose jobs stay, so that there is something to list; the load has its own."""
PAGES = (
    "/console/", "/console/queues", "/console/queues?page=2", f"/console/queue?name={KEPT}",
    f"/console/jobs?queue={KEPT}", "/console/jobs?state=leased", "/console/jobs?tenant=nobody", "/console/workers",
    "/console/scheduled", "/console/dead", "/console/limits", "/console/cluster", "/console/add",
)


@dataclass(frozen=True, slots=True)
class Size:
    pairs: int
    jobs: int  # of one load
    queues: int
    kept: int
    scale_queues: int
    scale_kept: int
    visits: int  # of each page


FULL = Size(12, 100_000, 200, 100_000, 1000, 1_000_000, 5)
QUICK = Size(2, 4_000, 20, 1_000, 50, 5_000, 1)

GOALS = (
    Goal("pages", "CPU of a node per job while people look at it, over when they look elsewhere", 1.02, at_least=False),
    Goal("page", "the slowest page with 1,000 queues and 1M jobs", 1000, at_least=False, unit=" ms"),
    Goal("step", "the longest that a page kept all clients of that node waiting", 25, at_least=False, unit=" ms"),
)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Gateway(Server):
    """The console before one node, on the core of the load."""

    def __init__(self, name: str, node: Server, folder: Path) -> None:
        command = [sys.executable, "-m", "holdfast", "gateway", "--connect", f"holdfast://{HOST}:{node.port}",
                   "--bind", HOST, "--http", "{port}", "--grpc", "-1"]
        super().__init__(name, command, folder, common.LOAD_CORE)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + common.START_SECONDS_MAX
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                if get(self.port, "/readyz")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise Void(f"{self.name} is not ready:\n{self.log_tail()}")


@contextmanager
def before(node: Server) -> Iterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        gateway = Gateway(f"gateway-{node.name}", node, Path(folder))
        try:
            gateway.wait_until_ready()
            yield gateway
        finally:
            gateway.stop()


def get(port: int, path: str) -> tuple[int, int]:
    """Status and size of a page."""
    connection = http.client.HTTPConnection(HOST, port, timeout=REQUEST_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, len(answer.read())
    finally:
        connection.close()


@dataclass(slots=True)
class People:
    """Threads that look at a console: the live figures all the time, and a page now and then."""

    port: int
    opened: int = 0
    trouble: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> People:
        for number in range(PEOPLE):
            for work in (self.click, self.follow):
                self.threads.append(threading.Thread(target=self.guarded, args=(work, number), daemon=True))
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(REQUEST_S)

    def guarded(self, work: Any, number: int) -> None:
        try:
            work(number)
        except (OSError, http.client.HTTPException) as error:
            if not self.stopping.is_set():
                self.trouble.append(f"{type(error).__name__}: {error}")

    def click(self, number: int) -> None:
        self.stopping.wait(CLICK_S * number / PEOPLE)  # not all at once
        at = number
        while not self.stopping.is_set():
            status, _ = get(self.port, PAGES[at % len(PAGES)])
            if status != 200:
                self.trouble.append(f"{PAGES[at % len(PAGES)]}: {status}")
            self.opened += 1
            at += 1
            self.stopping.wait(CLICK_S)

    def follow(self, _number: int) -> None:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=REQUEST_S)
        try:
            connection.request("GET", "/v1/events")
            answer = connection.getresponse()
            while not self.stopping.is_set() and answer.readline():
                pass
        finally:
            connection.close()


def fill(node: Server, queues: int, kept: int) -> None:
    with holdfast.open(f"holdfast://{HOST}:{node.port}") as queue:
        for number in range(queues):
            queue.add(f"queue-{number:04d}", "a job")
        for first in range(0, kept, 5000):
            queue.add_many(KEPT, [f"body {number}" for number in range(first, min(kept, first + 5000))])
        queue.take(KEPT, count=min(kept, 20), timeout=5)


# ---------------------------------------------------------------- what looking costs


def measure_pages(size: Size) -> dict[str, Any]:
    costs = {"looked at": Cost(), "not": Cost()}
    ratios: list[float] = []
    opened = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        node = stack.enter_context(common.running("node", node_command()))
        other = stack.enter_context(common.running("other", node_command()))
        for each in (node, other):
            fill(each, size.queues, size.kept)
        ports = {"looked at": stack.enter_context(before(node)).port, "not": stack.enter_context(before(other)).port}
        for number in range(-1, size.pairs):
            for name in ("looked at", "not") if number % 2 == 0 else ("not", "looked at"):
                with People(ports[name]) as people:
                    loads = cycle(node, size.jobs, folder / "ids")
                if people.trouble:
                    raise Void(f"a page did not come: {people.trouble[0]}")
                if people.opened == 0:
                    raise Void("nobody opened a page in time: the load is too short")
                if number >= 0:  # the first pair is to warm up
                    costs[name].add(loads)
                    opened += people.opened if name == "looked at" else 0
            if number >= 0:
                ratios.append(costs["looked at"].us[-1] / costs["not"].us[-1])
                say(f"pages: pair {number + 1} of {size.pairs}: {costs['looked at'].us[-1]:.2f} us a job while looked "
                    f"at, {costs['not'].us[-1]:.2f} while not")
        compiled = node.compiled_modules()
    return {
        "pages": statistics.median(ratios), "spread": spread(ratios), "us": {n: spread(c.us) for n, c in costs.items()},
        "pages opened": opened, "compiled modules": compiled,
    }


# ---------------------------------------------------------------- a big cluster behind it


def measure_scale(size: Size) -> dict[str, Any]:
    took: dict[str, list[float]] = {path: [] for path in PAGES}
    with common.running("big", node_command()) as node, before(node) as gateway:
        fill(node, size.scale_queues, size.scale_kept)
        common.ask(node.port, "CONFIG", "RESETSTAT")
        for _ in range(size.visits):
            for path in PAGES:
                began = time.perf_counter()
                status, _ = get(gateway.port, path)
                took[path].append((time.perf_counter() - began) * 1000)
                if status != 200:
                    raise Void(f"{path}: {status}")
        longest = node.info_number("step_longest_usec")
    medians = {path: round(statistics.median(each), 1) for path, each in took.items()}
    found: dict[str, Any] = {"page": max(medians.values()), "ms": medians}
    return found if longest is None else {**found, "step": longest / 1000}


def measure(size: Size, is_quick: bool) -> tuple[dict[str, Any], list[Judged]]:
    parts = {"pages": measure_pages(size), "scale": measure_scale(size)}
    values = {**parts["scale"], **parts["pages"]}
    judged = judge(GOALS, values.get)
    spreads = {"pages": parts["pages"]["spread"]}
    document = {
        "machine": common.machine(),
        "settings": {"quick": is_quick, "pairs": size.pairs, "jobs": size.jobs, "people": PEOPLE, "click_s": CLICK_S,
                     "queues": size.scale_queues, "kept": size.scale_kept},
        "figures": {
            each.goal.key: {
                "title": each.goal.title, "value": round(each.value or 0, 4), "unit": each.goal.unit.strip(),
                "goal": each.goal.text(), "limit": each.goal.limit, "verdict": each.verdict,
                **({"spread": spreads[each.goal.key]} if each.goal.key in spreads else {}),
            }
            for each in judged
        },
        "parts": parts,
    }
    return document, judged


def publish(document: dict[str, Any], folder: Path) -> None:
    for name, part in document["parts"].items():
        print(f"{name}: {json.dumps(part, indent=1)}")
    for item in document["figures"].values():
        between = f", from {item['spread']['least']} to {item['spread']['most']}" if "spread" in item else ""
        print(f"{item['title']}: {item['value']} {item['unit']}{between} (goal {item['goal']}): {item['verdict']}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "console.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description="What the console costs the nodes.")
    parser.add_argument("--quick", action="store_true", help="few jobs; judges nothing")
    parser.add_argument("--json", action="store_true", help="print the document in place of tables; write nothing")
    parser.add_argument("--out", type=Path, help="folder for console.json (bench/results)")
    given = parser.parse_args(words)
    folder = given.out or (common.BUILD / "quick" if given.quick else RESULTS)
    return conduct(
        lambda: measure(QUICK if given.quick else FULL, given.quick), lambda document: publish(document, folder),
        json_only=given.json, is_quick=given.quick,
    )


if __name__ == "__main__":
    sys.exit(main())
