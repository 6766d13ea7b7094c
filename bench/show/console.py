"""The list of the console and of operations: pages in a real browser, figures that are true, files that deploy."""
from __future__ import annotations

from bench import console
from bench.show.fresh_clone import follow_the_readme
from bench.show.lines import ALL_PASS, Line, bench_lines, tests

FIGURES = "tests/console/test_acts.py::test_figures_are_those_of_the_nodes_after_ten_thousand_jobs"


def lines() -> list[Line]:
    found = [
        Line(
            "pages",
            "every page in real Chromium, both themes, 100k jobs and 200 queues; axe-core; hostile HTML is text",
            ALL_PASS,
            lambda: tests("pages", "tests/console/test_pages.py"),
        ),
        Line(
            "acts",
            "every action in the browser; a login; somebody who may only read",
            ALL_PASS,
            lambda: tests("acts", "tests/console/test_acts.py", "tests/console/test_who.py"),
        ),
        Line(
            "incident",
            "a night on three nodes: one is killed, a queue paused, a worker gone, letters die; charts, ended jobs",
            ALL_PASS,
            lambda: tests("incident", "tests/console/test_incident.py"),
        ),
        Line(
            "figures",
            "the dashboard after 10,000 jobs of known outcome: its figures are those of the nodes",
            "equal",
            lambda: tests("figures", FIGURES),
        ),
        *bench_lines("console", console.GOALS),
        Line(
            "readme",
            "every snippet of README, tutorial and the other pages, run by a test",
            ALL_PASS,
            lambda: tests("readme", "tests/docs"),
        ),
        Line(
            "fresh-clone",
            "a fresh clone and the README: every command of it and of the tutorial, as written",
            "all work",
            follow_the_readme,
        ),
        Line(
            "deploy",
            "metrics, rules and dashboard (promtool), Dockerfile (hadolint), unit (systemd-analyze), chart, doctor",
            ALL_PASS,
            lambda: tests("deploy", "tests/deploy", "--ignore=tests/deploy/test_image.py"),
        ),
        Line(
            "image",
            "every line of the Dockerfile, compiled; the compose file, healthy, used, stopped; without an engine",
            ALL_PASS,
            lambda: tests("image", "tests/deploy/test_image.py", COMPILED="1"),
        ),
        Line(
            "up",
            "holdfast up: three nodes, console, sample application; Ctrl-C leaves nothing behind",
            ALL_PASS,
            lambda: tests("up", "tests/local"),
        ),
    ]
    return found
