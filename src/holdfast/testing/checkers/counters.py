"""I19: the counters a consumer is shown never go back on a node that lost nothing."""
from __future__ import annotations

from holdfast.testing.checkers.facts import Facts, Violation


def counters_grow(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    for job in facts.jobs.values():
        if any(told.f in ("fastack", "deljob") for told in job.told):
            continue  # forgotten here, and perhaps brought back by somebody who knows less
        last: dict[str, tuple[int, int, int]] = {}
        for d in job.deliveries:
            if d.nacks is None or d.deliveries is None:
                continue
            t, nacks, deliveries = last.get(d.node, (0, 0, 0))
            if (d.nacks < nacks or d.deliveries < deliveries) and not facts.was_lost(d.node, t):
                found.append(Violation(
                    "I19", "counters-back", job.name, d.t,
                    f"at {d.node}: nacks {nacks} -> {d.nacks}, additional {deliveries} -> {d.deliveries}",
                ))
            last[d.node] = (d.t, d.nacks, d.deliveries)
    return found
