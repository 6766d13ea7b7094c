"""Draws the picture of the whole for README and docs: `python -m tools.architecture` writes it to docs/images.

The picture is a table of boxes and lines below, so that a change of it can be read in a diff; tests/docs checks that
the file is what this program draws.
"""
from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

IMAGE = Path(__file__).resolve().parents[1] / "docs" / "images" / "architecture.svg"
WIDTH, HEIGHT = 960, 600
LINE_PX = 17
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
COLOURS = {  # of a box: fill and edge
    "yours": ("#fff7e6", "#b7791f"), "door": ("#e8f1fd", "#2b6cb0"), "node": ("#e9f7ef", "#2f855a"),
    "part": ("#ffffff", "#2f855a"), "disk": ("#f1f3f5", "#718096"), "after": ("#f5ecfb", "#6b46c1"),
}


@dataclass(frozen=True, slots=True)
class Box:
    x: int
    y: int
    width: int
    height: int
    kind: str
    title: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """From point to point; words stand beside its middle."""

    points: tuple[tuple[int, int], ...]
    words: str = ""
    both: bool = False
    shift: tuple[int, int] = (6, 4)


def node(x: int, name: str) -> list[Box]:
    return [
        Box(x, 235, 230, 175, "node", name),
        Box(x + 15, 265, 200, 38, "part", "sockets, clock", ("shell/: the only I/O",)),
        Box(x + 15, 309, 200, 38, "part", "the machine", ("core/: jobs, queues, leases, rules",)),
        Box(x + 15, 353, 95, 44, "disk", "journal", ("what it needs",)),
        Box(x + 120, 353, 95, 44, "disk", "history", ("what happened",)),
    ]


BOXES = [
    Box(30, 20, 270, 70, "yours", "Your programs",
        ("producers, and workers of @app.task", "Python, or any Redis client")),
    Box(345, 20, 270, 70, "yours", "Anything with HTTP or gRPC",
        ("curl, other languages", "/push, /get, /v1, streams")),
    Box(660, 20, 270, 70, "yours", "You, in a browser",
        ("console: queues, jobs, why one waits,", "dead letters, limits, cluster")),
    Box(345, 135, 585, 48, "door", "Gateway", ("any number of them; they keep nothing",)),
    *node(30, "Node"), *node(365, "Node"), *node(700, "Node"),
    Box(30, 480, 285, 70, "after", "Spark pipeline",
        ("history to tables (a lake of Parquet files),", "tables to jobs, imports from others")),
    Box(345, 480, 285, 70, "after", "Prometheus, Grafana",
        ("/metrics, /healthz, /readyz of each node;", "alert rules with a runbook")),
    Box(660, 480, 270, 70, "after", "OpenTelemetry", ("spans from producer to worker", "by traceparent in headers")),
]
ARROWS = [
    Arrow(((110, 90), (110, 235)), "RESP: add, take, ack"),
    Arrow(((480, 90), (480, 135))),
    Arrow(((795, 90), (795, 135))),
    Arrow(((480, 183), (480, 235)), "RESP"),
    Arrow(((815, 183), (815, 235))),
    Arrow(((260, 325), (365, 325)), "bus", True, (-14, -8)),
    Arrow(((595, 325), (700, 325)), "copies, acks", True, (-38, -8)),
    Arrow(((100, 410), (100, 445), (815, 445), (815, 410)), "every node with every other", True, (-80, -6)),
    Arrow(((250, 410), (250, 480)), "", False),
    Arrow(((560, 410), (560, 480)), "", False),
]


def drawn() -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{escape(FONT)}" '
        'role="img" aria-labelledby="title">',
        '<title id="title">Programs speak RESP to nodes, or HTTP and gRPC to a gateway before them; nodes copy jobs to '
        "each other and keep a journal and a history; a pipeline and metrics look on</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="#4a5568"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#fcfcfd"/>',
        *[arrow(each) for each in ARROWS], *[box(each) for each in BOXES],
        f'<text x="{WIDTH // 2}" y="{HEIGHT - 18}" text-anchor="middle" font-size="13" fill="#4a5568">A job is at '
        "three nodes before its producer is answered. No leader; any node will do for anything.</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def box(each: Box) -> str:
    fill, edge = COLOURS[each.kind]
    middle = each.x + each.width // 2
    is_small = each.kind in ("part", "disk")
    first = each.y + (16 if is_small else 22)
    step = 14 if is_small else LINE_PX
    lines = [
        f'<rect x="{each.x}" y="{each.y}" width="{each.width}" height="{each.height}" rx="6" fill="{fill}" '
        f'stroke="{edge}"/>',
        text(middle, first, 12 if is_small else 14, "600", each.title),
    ]
    lines += [text(middle, first + step * (at + 1), 11 if is_small else 12, "400", words)
              for at, words in enumerate(each.words)]
    return "".join(lines)


def text(x: int, y: int, size: int, weight: str, words: str) -> str:
    return (f'<text x="{x}" y="{y}" text-anchor="middle" font-size="{size}" font-weight="{weight}" fill="#1a202c">'
            f"{escape(words)}</text>")


def arrow(each: Arrow) -> str:
    start = ' marker-start="url(#tip)"' if each.both else ""
    at = " ".join(f"{x},{y}" for x, y in each.points)
    line = f'<polyline points="{at}" fill="none" stroke="#4a5568" stroke-width="1.4"{start} marker-end="url(#tip)"/>'
    if not each.words:
        return line
    inner = each.points if len(each.points) == 2 else each.points[1:-1]
    x = sum(point[0] for point in inner) // len(inner) + each.shift[0]
    y = sum(point[1] for point in inner) // len(inner) + each.shift[1]
    return f'{line}<text x="{x}" y="{y}" font-size="12" fill="#4a5568">{escape(each.words)}</text>'


if __name__ == "__main__":
    IMAGE.write_text(drawn(), "utf-8")
    print(f"written: {IMAGE}")
