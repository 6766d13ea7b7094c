"""Transcripts: text files of commands and the exact trace they give, as in etcd's raft.

    === ADDJOB: defaults                  a new node; what follows belongs to it
    with maxmemory=1mb                    settings it starts with
    > ADDJOB q body 0                     a command, words quoted as at the prompt
    +DI<1>05a1SQ                          its reply: see trace.py; ids get numbers as they appear
    > ACKJOB <1>                          ... by which later commands may name them; <node> is the node's id
    :1
    a> GETJOB FROM q                      session `a`, connected when first named
    (blocked)
    > ADDJOB q {x*1000} 0                 a body of a thousand x
    +DI<2>05a1SQ
    a< [["q" "DI<2>05a1SQ" "{x*1000}"]]   what `a` waited for
    advance 300s                          time passes: ms, s, m, h, d
    @300000ms a< *-1                      ... and what came when
    repeat 3 > QLEN q                     the same three times; equal replies are counted
    :0  (3 times)
    > INFO memory | level                 only the lines with that word
    "memory_level:0\\r\\n"
    disconnect a                          it hangs up
    ! close a                             the node asks its shell for something

Lines that begin with # are for the reader. A command gets `(blocked)` if its reply comes later, `(kept)` if
the session's commands are not run now, `(no reply)` if there is none.

The expected lines were written from Disque's behaviour (and docs/reference/differences.md), not recorded:
think before running `python -m tests.conformance.rewrite`, and read the diff after.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from .world import NODE_ID, World

HERE = Path(__file__).parent
INPUT = re.compile(
    r"(?:repeat (?P<times>\d+) )?(?P<name>[a-z][a-z0-9]*)?> (?P<words>.*?)(?: \| (?P<only>\S+))?"
)
ADVANCE = re.compile(r"advance (?P<count>\d+)(?P<unit>ms|s|m|h|d)")
DISCONNECT = re.compile(r"disconnect (?P<name>[a-z][a-z0-9]*)?")
UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"(?= |$)|([^ "]+)')
ESCAPE = re.compile(r'\\(?:x([0-9a-fA-F]{2})|([rnt"\\]))')
RUN = re.compile(r"\{(.)\*(\d+)\}")
NUMBER = re.compile(r"<(\d+)>")


@dataclass
class Entry:
    """An input line with the lines it is to give, or a line that is only kept."""

    line_no: int
    text: str
    expected: list[str] = field(default_factory=list)
    is_input: bool = True


@dataclass
class Section:
    title: str
    entries: list[Entry] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Difference:
    section: Section
    entry: Entry
    got: list[str]


def files() -> list[Path]:
    return sorted(HERE.glob("*.txt"))


def parse(text: str) -> list[Section]:
    """The first section is what stands before the first title; it has no inputs."""
    sections = [Section("")]
    last: Entry | None = None
    for line_no, line in enumerate(text.splitlines(), 1):
        section = sections[-1]
        entry = Entry(line_no, line, is_input=False)
        if line.startswith("=== "):
            section = Section(line[4:])
            sections.append(section)
            last = None
        elif line.startswith("with "):
            section.settings = dict(pair.split("=", 1) for pair in line[5:].split(" "))
            last = None
        elif line == "" or line.startswith("#"):
            last = None
        elif INPUT.fullmatch(line) or ADVANCE.fullmatch(line) or DISCONNECT.fullmatch(line):
            entry.is_input = True
            last = entry
        else:
            assert last is not None, f"line {line_no}: neither an input nor the output of one: {line}"
            last.expected.append(line)
            continue
        section.entries.append(entry)
    return sections


def split_words(text: str, ids: list[str]) -> list[bytes]:
    """The words of a command, with quotes, escapes, runs and the names of ids resolved."""
    words = []
    pos = 0
    while pos < len(text):
        if text[pos] == " ":
            pos += 1
            continue
        found = WORD.match(text, pos)
        assert found, f"unbalanced quotes: {text}"
        pos = found.end()
        if found[1] is not None:
            words.append(ESCAPE.sub(unescape, found[1]).encode("latin-1"))
        else:
            word = NUMBER.sub(lambda number: ids[int(number[1]) - 1], found[2].replace("<node>", NODE_ID))
            words.append(RUN.sub(lambda run: run[1] * int(run[2]), word).encode("latin-1"))
    return words


def unescape(found: re.Match[str]) -> str:
    if found[1] is not None:
        return chr(int(found[1], 16))
    return {"r": "\r", "n": "\n", "t": "\t"}.get(found[2], found[2])


def perform(world: World, line: str) -> list[str]:
    """Do what an input line says; the lines it gives."""
    if found := ADVANCE.fullmatch(line):
        world.advance(int(found["count"]) * UNIT_MS[found["unit"]])
    elif found := DISCONNECT.fullmatch(line):
        world.disconnect(found["name"] or "")
    elif found := INPUT.fullmatch(line):
        if found["times"] is None:
            world.command(found["name"] or "", split_words(found["words"], world.ids))
        else:
            return repeat(world, int(found["times"]), found["name"] or "", found["words"])
        return [line for line in world.take_lines() if (found["only"] or "") in line]
    return world.take_lines()


def repeat(world: World, times: int, name: str, words: str) -> list[str]:
    world.is_naming = False
    for _ in range(times):
        world.command(name, split_words(words, world.ids))
    world.is_naming = True
    counted = []
    for line, same in groupby(world.take_lines()):
        count = len(list(same))
        counted.append(line if count == 1 else f"{line}  ({count} times)")
    return counted


def run(section: Section, is_direct: bool) -> list[Difference]:
    """Run a section on a node of its own; the entries that gave other lines than they should."""
    world = World(section.settings, is_direct)
    differences = []
    for entry in section.entries:
        if entry.is_input:
            try:
                got = perform(world, entry.text)
            except Exception as error:
                raise AssertionError(f"line {entry.line_no}: {entry.text}\n{error!r}") from error
            if got != entry.expected:
                differences.append(Difference(section, entry, got))
    world.check_end()
    return differences


def rewritten(text: str) -> str:
    """The transcript with the outputs that the node gives now."""
    sections = parse(text)
    for section in sections:
        for difference in run(section, is_direct=False):
            difference.entry.expected = difference.got
    lines = []
    for section in sections:
        for entry in section.entries:
            lines += [entry.text, *entry.expected]
    return "\n".join(lines) + "\n"
