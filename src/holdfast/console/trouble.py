"""What is wrong now, for a page: the problems of client/trouble.py, each with a link or a button that helps."""
from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from holdfast.client.errors import Error, NotAllowed
from holdfast.client.trouble import BAD, Problem, what_is_wrong
from holdfast.console import names
from holdfast.console.view import View
from holdfast.gateway import past

QUEUE = "queue?name={}"
PLACES = {
    "node-away": ("cluster", "Cluster"), "jobs-wait-for-node": ("cluster", "Cluster"),
    "node-silent": ("cluster", "Cluster"), "node-not-met": ("cluster", "Cluster"),
    "short-of-copies": ("cluster", "Cluster"), "clock": ("cluster", "Cluster"), "memory": ("cluster", "Cluster"),
    "queue-paused": (QUEUE, "The queue"), "nobody-works": ("workers", "Workers"), "jobs-wait": (QUEUE, "The queue"),
    "jobs-die": ("dead?queue={}", "Read the errors, retry"),
    "jobs-expire": (QUEUE, "The queue"),
}
"""Where on the console one sees more of a problem; of others there is nothing more to see than they say."""


@dataclass(frozen=True)
class Shown:
    """A problem on a page."""

    problem: Problem
    place: str
    words: str
    """Of the link to that place; nothing: there is none."""
    resumes: str | None
    """A queue that a button can set going."""


def shown(problem: Problem) -> Shown:
    place, words = PLACES.get(problem.kind, ("", ""))
    queue = quote(names.coded(problem.queue), safe="") if problem.queue is not None else ""
    return Shown(problem, place.format(queue), words, problem.queue if problem.kind == "queue-paused" else None)


async def now(seen: View) -> list[Shown]:
    """For whoever looks at this page. That no node answers is what is wrong then. Raises NotAllowed."""
    try:
        return [shown(each) for each in what_is_wrong(await past.look(seen.gate, seen.user))]
    except NotAllowed:
        raise
    except Error as error:
        return [shown(Problem(
            "no-answer", BAD, f"the nodes do not answer: {error.text}",
            "they are down or stopped, or the gateway cannot reach them",
            "look at the nodes, and at the network between them and the gateway: `holdfast doctor`"))]
