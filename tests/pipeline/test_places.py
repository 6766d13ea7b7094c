"""Offsets of the events source: whatever the cluster does meanwhile, a batch read again is the same, or an error."""
from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast.client.errors import BadRequest, Unreachable
from holdfast.client.target import Target
from holdfast.pipeline.sources.events import EventsStreamReader
from holdfast.pipeline.sources.histories import DataLoss
from holdfast.pipeline.sources.places import INITIAL, NotReplayable, Offset, Place

HEAD = 64
"""Where the first record of a segment is."""


class FakeNode:
    """A history in memory: segments of records, one after the other; each record takes one place."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.target = Target("127.0.0.1", 1000 + number)
        self.is_up = True
        self.is_member = True
        self.segments: dict[int, list[int]] = {100: []}
        self.removed = 99
        self.written = 0

    @property
    def current(self) -> int:
        return max(self.segments)

    def end(self, segment: int) -> Place:
        return Place(segment, HEAD + len(self.segments[segment]))

    def write(self, count: int, clock: int) -> None:
        self.segments[self.current] += [clock] * count
        self.written += count

    def stretch(self, at: Place) -> Place:
        """As the node does: a finished segment that holds no more goes on with the next."""
        if at.segment <= self.removed:
            first = Place(min(self.segments), HEAD)
            raise BadRequest(f"from {self.name}:{at} to {self.name}:{first}: some records were removed", "GONE")
        for number in sorted(self.segments):
            if number == at.segment and (at < self.end(number) or number == self.current):
                return at
            if number > at.segment:
                return Place(number, HEAD)
        raise BadRequest("that is beyond the end", "BADCURSOR")


class FakeNodes:
    """What `Nodes` is, without connections. Pickled readers share it, as real ones share the cluster."""

    cluster: ClassVar[list[FakeNode]] = []
    clock = 1

    def __init__(self) -> None:
        self.named = [node.target for node in self.cluster]

    def members(self) -> dict[str, Target]:
        found = {node.name: node.target for node in self.cluster if node.is_member}
        if not any(node.is_up and node.is_member for node in self.cluster):
            raise Unreachable("no node answers")
        return found

    def close(self) -> None:
        pass

    def ask(self, target: Target, *words: Any) -> Any:
        (node,) = [each for each in self.cluster if each.target == target]
        if not node.is_up:
            raise Unreachable(f"no connection to {target}")
        if words[0] == "TIME":
            return [str(self.clock).encode(), b"0"]
        kind, rest = words[1], words[2:]
        if kind == "INFO":
            return [b"first", f"{node.name}:{Place(min(node.segments), HEAD)}".encode(),
                    b"last", f"{node.name}:{node.end(node.current)}".encode()]
        if kind == "AT":
            for number in sorted(node.segments):
                for index, time in enumerate(node.segments[number]):
                    if time * 1000 >= int(rest[0]):
                        return f"{node.name}:{Place(number, HEAD + index)}".encode()
            return f"{node.name}:{node.end(node.current)}".encode()
        at = node.stretch(Place.parse(rest[0]))
        most = at.position + int(rest[1] if kind == "SEEK" else rest[2])
        until = Place(at.segment, min(node.end(at.segment).position, most))
        if kind == "SEEK":
            return f"{node.name}:{until}".encode()
        goal = Place.parse(rest[4])
        until = min(until, goal) if goal.segment == at.segment else until
        rows = [] if goal <= at else [(node.name, at.segment, place) for place in range(at.position, until.position)]
        return [f"{node.name}:{max(at, until)}".encode(), json.dumps(rows).encode() if rows else b""]


def tuples(piece: bytes) -> Any:
    return [tuple(each) for each in json.loads(piece)]


class Reader(EventsStreamReader):
    """A stream whose rows are tuples of node, segment and place."""

    def __init__(self, **words: str) -> None:
        super().__init__(CaseInsensitiveDict({"url": "holdfast://127.0.0.1:1", "retrySeconds": "0", **words}))
        self.histories.nodes = FakeNodes()  # type: ignore[assignment]
        self.histories.rows = tuples  # type: ignore[method-assign]


def rows(reader: EventsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    return sorted(row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch)


class Replays(RuleBasedStateMachine):
    """A stream whose driver may die at any time, over nodes that come, go, forget and lose the ends of their files."""

    reader = Reader

    @initialize(count=st.integers(1, 3), starting=st.sampled_from(["earliest", "latest"]))
    def begin(self, count: int, starting: str) -> None:
        FakeNodes.cluster = [FakeNode(f"{number}" * 8, number) for number in range(count)]
        FakeNodes.clock = 1
        self.options = {"startingOffsets": starting, "recordsPerPartition": "3", "fetchSize": "2"}
        for node in FakeNodes.cluster:
            node.write(4, 1)
        self.driver = self.reader(**self.options)
        self.log: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.read: list[tuple[tuple[dict[str, Any], dict[str, Any]], list[Any]]] = []
        self.at = self.driver.initialOffset()

    nodes = st.integers(0, 3)

    def node(self, number: int) -> FakeNode:
        return FakeNodes.cluster[number % len(FakeNodes.cluster)]

    @rule(number=nodes, count=st.integers(1, 5))
    def writes(self, number: int, count: int) -> None:
        FakeNodes.clock += 1
        if self.node(number).is_up:
            self.node(number).write(count, FakeNodes.clock)

    @rule(number=nodes)
    def goes_or_comes(self, number: int) -> None:
        node = self.node(number)
        node.is_up = not node.is_up
        if node.is_up:  # a start is a new segment
            node.segments[node.current + 1000] = []
            node.write(1, FakeNodes.clock)

    @rule(number=nodes, count=st.integers(1, 3))
    def loses_power(self, number: int, count: int) -> None:
        node = self.node(number)
        del node.segments[node.current][-count:]
        node.segments[node.current + 1000] = []

    @rule(number=nodes)
    def removes_its_oldest(self, number: int) -> None:
        node = self.node(number)
        if len(node.segments) > 1:
            node.removed = min(node.segments)
            del node.segments[node.removed]

    @rule()
    def joins(self) -> None:
        if len(FakeNodes.cluster) < 4:
            node = FakeNode(f"{len(FakeNodes.cluster)}" * 8, len(FakeNodes.cluster))
            node.write(2, FakeNodes.clock)
            FakeNodes.cluster.append(node)

    @rule(number=nodes)
    def leaves(self, number: int) -> None:
        if len(FakeNodes.cluster) > 1:
            self.node(number).is_member = False

    @precondition(lambda self: any(node.is_up and node.is_member for node in FakeNodes.cluster))
    @rule()
    def driver_dies(self) -> None:
        self.driver = self.reader(**self.options)
        if not self.log:
            self.at = self.driver.initialOffset()

    @precondition(lambda self: any(node.is_up and node.is_member for node in FakeNodes.cluster))
    @rule(limit=st.sampled_from([2, 1000]))
    def plans_and_reads(self, limit: int) -> None:
        end = json.loads(json.dumps(self.driver.latestOffset(self.at, ReadMaxRows(limit))))
        if end == self.at:
            return
        self.log.append((self.at, end))
        try:
            found = rows(self.driver, self.at, end)
        except DataLoss:
            return  # told, and planned: it must stay an error or become the same rows
        self.read.append(((self.at, end), found))
        self.at = end

    @invariant()
    def a_batch_read_again_is_the_same_or_an_error(self) -> None:
        if not any(node.is_up and node.is_member for node in FakeNodes.cluster):
            return
        for (start, end), before in self.read:
            fresh = self.reader(**self.options)
            # Spark does not keep the initial offset: it asks for it again.
            start = fresh.initialOffset() if start == self.read[0][0][0] else start
            try:
                again = rows(fresh, start, end)
            except (DataLoss, Unreachable, BadRequest):
                continue
            assert again == before

    @invariant()
    def nothing_is_read_twice(self) -> None:
        found = [row for _, batch in self.read for row in batch]
        assert len(found) == len(set(found))


SETTINGS = settings(max_examples=150, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))


def test_a_batch_that_is_read_again_is_the_same_or_an_error() -> None:
    run_state_machine_as_test(Replays, settings=SETTINGS)


class NamesPlaces(Reader):
    """As it was: the first offset is where nodes are when it is asked for."""

    def initialOffset(self) -> dict[str, Any]:
        first = self.histories.start()
        return Offset(first.places, first.since).dump()


class TrustsTheEnd(Reader):
    """As it was: a node that the start does not name counts as read."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        joined = Offset.load(end)
        return super().partitions(start, Offset(joined.places, joined.since, frozenset(joined.places)).dump())


class StopsQuietly(Reader):
    """As it was: what a power cut took ends a piece without a word."""

    def read(self, part: Any) -> Iterator[Any]:
        try:
            yield from super().read(part)
        except DataLoss as error:
            if "power cut" not in str(error):
                raise


class NamesPlacesAndTrusts(NamesPlaces, TrustsTheEnd):
    """Both together are the fault that lost a first batch."""


@pytest.mark.parametrize("mutant", [NamesPlacesAndTrusts, StopsQuietly])
def test_readers_that_lost_events_in_silence_are_found(mutant: type[Reader]) -> None:
    class Broken(Replays):
        reader = mutant

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Broken, settings=settings(
            SETTINGS, max_examples=1500, database=None, print_blob=False, report_multiple_bugs=False,
            phases=[Phase.generate]))


def test_the_first_batch_read_again_without_a_node_is_an_error() -> None:
    """Two nodes; the first batch is planned; node b goes away; a fresh reader reads that batch."""
    FakeNodes.cluster = [FakeNode("a" * 8, 1), FakeNode("b" * 8, 2)]
    for node in FakeNodes.cluster:
        node.write(100, 1)
    for starting in ("earliest", "latest"):
        reader = Reader(startingOffsets=starting)
        first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1000))
        for node in FakeNodes.cluster:
            node.write(100, 1)
        end = reader.latestOffset(first, ReadMaxRows(1000))
        planned = rows(reader, first, end)
        assert len(planned) == (200 if starting == "latest" else 400)
        assert rows(Reader(startingOffsets=starting), first, end) == planned
        assert rows(Reader(startingOffsets=starting), Reader().initialOffset(), first) == []
        FakeNodes.cluster[1].is_up = False
        with pytest.raises(DataLoss, match="cannot be reached for its events"):
            rows(Reader(startingOffsets=starting), first, end)
        FakeNodes.cluster[1].is_up = True


places = st.builds(Place, st.integers(1, 3), st.integers(HEAD, HEAD + 3))
offsets = st.builds(Offset, st.dictionaries(st.sampled_from("abc"), places), st.none() | st.integers(0, 9),
                    st.frozensets(st.sampled_from("abc")))


@given(offsets)
def test_an_offset_is_the_same_after_it_was_written_down(offset: Offset) -> None:
    assert Offset.load(json.loads(json.dumps(offset.dump()))) == offset
    assert pickle.loads(pickle.dumps(offset)) == offset


@given(offsets, offsets)
def test_what_lies_between_two_offsets_is_said_for_every_node_or_refused(begin: Offset, end: Offset) -> None:
    try:
        pieces = begin.until(end)
    except NotReplayable:
        assert (any(node not in end.places for node in begin.places)
                or any(node not in begin.places and node not in end.joined for node in end.places)
                or any(end.places[node] < place for node, place in begin.places.items()))
        return
    for node, last in end.places.items():
        if node in begin.places:
            assert pieces.get(node, (last, last)) == (begin.places[node], last)
        else:
            assert node in end.joined and node not in pieces


def test_an_offset_of_an_earlier_version_is_not_guessed_at() -> None:
    """Its first batch began where nodes were then, which is written down nowhere."""
    old = Offset.load({"@since": 0, "a": "1:70", "b": "1:80"})
    with pytest.raises(NotReplayable, match="does not say from where node"):
        Offset.load(INITIAL).until(old)
    assert Offset.load({"@since": 0, "a": "1:64", "b": "1:80"}).until(old) == {"a": (Place(1, 64), Place(1, 70))}
