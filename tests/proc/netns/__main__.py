"""`make netns MINUTES=10`: five nodes, a seeded switch, faults of all kinds, and the verdict over what clients saw.

    python -m netns --minutes 10 [--seed N] [--out FOLDER]

Two phases, as in the simulator: faults, with producers and consumers at work; then everything is mended, and
within a minute all that was accepted must have been delivered and every ack collected. The run falls short if
a checker finds anything, if a kind of fault was never applied, or if there were too few operations to mean much.
What was found goes to FOLDER with the whole history.

The seed gives the schedule and the dice of switch and clients. Real processes and real time do the rest, so a
second run with it is alike, not the same.
"""
from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom

from load import Load, loaded
from verdict import Verdict, finish

from netns.lab import INSIDE, Lab, environment, why_not
from netns.nemesis import Nemesis

NODES = 5
SETTINGS = {"heal-after-ms": "5000"}
OPS_PER_S_MIN = 300
FAULTS_AT_ONCE = (1, 2, 2, 3)
FAULT_S = (2.0, 7.0)
SHORT_RUN_S = 120.0
SHORT_FAULT_S = (2.0, 3.0)
"""In a short run faults are short, too, so that each kind has its turn."""

SHOWN_MAX = 20
CANNOT = 3
"""The exit code where there can be no namespaces."""


class Run:
    def __init__(self, seed: int, minutes: float, folder: Path) -> None:
        self.seed = seed
        self.seconds = minutes * 60
        self.dice = Random(f"{seed}/rounds/0")
        self.lab = Lab(folder, NODES, seed, SETTINGS)
        self.load: Load | None = None

    def say(self, text: str) -> None:
        print(f"{self.load.now() / 1000 if self.load else 0:7.1f} s  {text}", flush=True)

    def play(self) -> tuple[Load, Nemesis, Verdict, float]:
        """All of it; the figure at the end is operations per second while there were faults."""
        load = self.load = Load(self.lab.nodes, self.seed, producers=16, consumers=24, adds_per_s=200, kept=0.02)
        with loaded(load):
            load.mark("calm", on=True)
            nemesis = Nemesis(self.lab, load, self.seed, self.say)
            done = 0
            end = time.monotonic() + self.seconds
            while time.monotonic() < end or nemesis.missing():
                self.one_round(nemesis)
                told, done = done, load.operations()
                self.say(f"{done} operations, {done - told} more; {len(load.open)} jobs open")
                if time.monotonic() > end + self.seconds:
                    break
            per_s = 1000 * load.operations() / load.now()
            self.say("healed: draining")
            verdict = finish(load, self.lab)
        return load, nemesis, verdict, per_s

    def one_round(self, nemesis: Nemesis) -> None:
        least, most = SHORT_FAULT_S if self.seconds < SHORT_RUN_S else FAULT_S
        at_once = 3 if self.seconds < SHORT_RUN_S else self.dice.choice(FAULTS_AT_ONCE)
        kinds = list(dict.fromkeys(nemesis.draw() for _ in range(at_once)))
        nemesis.round(kinds, self.dice.uniform(least, most))


def complaints(nemesis: Nemesis, verdict: Verdict, per_s: float, lab: Lab) -> list[str]:
    found = [str(violation) for violation in verdict.violations]
    found += [f"never applied: {kind}" for kind in nemesis.missing()]
    if per_s < OPS_PER_S_MIN:
        found.append(f"only {per_s:.0f} operations per second")
    return found + [f"{node} logged: {line}" for node in lab for line in node.faults()[:SHOWN_MAX]]


def summary(load: Load, nemesis: Nemesis, verdict: Verdict, per_s: float, found: list[str]) -> str:
    applied = ", ".join(f"{kind} {count}" for kind, count in sorted(nemesis.applied.items()))
    ends = Counter((op.f, op.type) for op in load.history.ops if op.f in ("add", "ack") and op.number)
    switch = ", ".join(f"{what} {count}" for what, count in sorted(nemesis.apply().items()))
    lines = [
        f"seed        {load.seed}",
        f"operations  {per_s:.0f} a second while there were faults",
        f"adds        {ends['add', 'ok']} ok, {ends['add', 'fail']} refused, {ends['add', 'info']} unknown",
        f"deliveries  {verdict.delivered} of {verdict.accepted} accepted jobs; {ends['ack', 'ok']} acks answered",
        f"collected   {verdict.collected_s:.1f} s after the faults",
        f"faults      {applied or 'none'}",
        f"unfelt      {', '.join(f'{kind} {count}' for kind, count in sorted(nemesis.unfelt.items())) or 'none'}",
        f"packets     {switch}",
        f"violations  {Counter(each.what for each in verdict.violations).most_common() or 'none'}",
    ]
    lines += [f"  {each}" for each in found[:SHOWN_MAX]]
    lines.append("netns: " + (f"falls short, {len(found)} complaints" if found else "pass"))
    return "\n".join(lines)


def keep(run: Run, load: Load, found: list[str], out: Path) -> None:
    """The history, the complaints and the logs of a run that fell short."""
    folder = out / f"seed-{run.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "history.jsonl").write_text(load.history.to_jsonl())
    (folder / "complaints").write_text("\n".join(found) + "\n")
    for node in run.lab:
        for log in node.folder.glob("log*"):
            (folder / f"node{node.number}-{log.name}").write_bytes(log.read_bytes())
    print(f"kept in {folder}", flush=True)


def inside(seed: int, minutes: float, out: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="holdfast-netns-") as folder:
        run = Run(seed, minutes, Path(folder))
        load, nemesis, verdict, per_s = run.play()
        found = complaints(nemesis, verdict, per_s, run.lab)
        print(summary(load, nemesis, verdict, per_s, found), flush=True)
        if found:
            keep(run, load, found, out)
        run.lab.stop()
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m netns", description="Real nodes under network faults.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    parser.add_argument("--out", type=Path, default=Path("build/netns"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        return inside(given.seed, given.minutes, given.out)
    if reason := why_not():
        print(f"SKIPPED: {reason}")
        return CANNOT
    words = ["--minutes", str(given.minutes), "--seed", str(given.seed), "--out", str(given.out), "--inside"]
    os.execvpe(INSIDE[0], [*INSIDE, sys.executable, "-m", "netns", *words], environment())


if __name__ == "__main__":
    sys.exit(main())
