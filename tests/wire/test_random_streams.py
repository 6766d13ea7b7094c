"""Random streams: whatever the bytes and wherever they are cut, all parsers say the same and none fails.

Streams are valid conversations, spoilt: bytes changed, taken out, put in, repeated, or pieces of the
protocol in an order that makes no sense. The first parser's answer to the whole stream is what every parser
must say to any pieces of it.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twins import MIB, READERS, USUAL, Bounds, array, cut

# Strangers, and a command limit that random streams can reach.
BOUNDS = [USUAL, Bounds(is_stranger=True), Bounds(body_bytes=1, command_bytes=64)]

words = st.sampled_from([
    b"PING", b"ADDJOB", b"GETJOB", b"ACKJOB", b"AUTH", b"FROM", b"q", b"0", b"", b"\r\n", b"*1\r\n", b"$4\r\n",
    b"x" * 70,
]) | st.binary(max_size=20)
arrays = st.lists(words, max_size=11).map(lambda argv: array(*argv))
line_words = st.sampled_from([
    b"PING", b"a", b'"a b"', b"'a b'", rb'"\x41\n\\"', rb"'\''", b'"', b"'", b"\\", b"\x00", b"\t", b"\x7f\xff", b'""x',
])
lines = st.builds(
    lambda text, end: b" ".join(text) + end, st.lists(line_words, max_size=6), st.sampled_from([b"\r\n", b"\n", b"\r"])
)
numbers = st.integers(-3, 12).map(lambda n: b"%d" % n) | st.sampled_from([
    b"", b"-", b"+1", b"1048576", b"1048577", b"4096", b"4097", b"65536", b"65537", b"1048577", b"999999999999999",
    b"9999999999999999", b"-999999999999999", b"00000000000001", b"0000000000000001", b"1x", b" 1", b"\x00",
])
heads = st.builds(
    lambda sign, number, end: sign + number + end,
    st.sampled_from([b"*", b"$", b":", b"+"]), numbers, st.sampled_from([b"\r\n", b"\r\n", b"\n", b"\r", b"\rx", b""]),
)
parts = st.one_of(arrays, arrays, arrays, lines, heads, st.binary(max_size=6))
streams = st.lists(parts, min_size=1, max_size=12).map(b"".join)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(streams))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        what = draw(st.integers(0, 3))
        if what == 0:
            data[place] = draw(st.sampled_from(b"\r\n*$-0123456789\x00\xff\"' x"))
        elif what == 1:
            del data[place:place + draw(st.integers(1, 4))]
        elif what == 2:
            data[place:place] = draw(st.binary(min_size=1, max_size=3))
        else:
            data[place:place] = data[place:place + draw(st.integers(1, 20))]
    return bytes(data)


@settings(max_examples=250, deadline=None)
@given(data=spoilt(), bounds=st.sampled_from(BOUNDS), places=st.lists(st.integers(0, 400), max_size=12))
@example(data=b"PING\r\n*1\r\n$4\r\nPING\r\n", bounds=USUAL, places=[7])
@example(data=b"PING\r\n*1\r\n$4\r\nPING\r\n", bounds=USUAL, places=[6, 8])
def test_all_parsers_agree(data: bytes, bounds: Bounds, places: list[int]) -> None:
    if not data:
        return
    expected = READERS["requests"]([data], bounds)
    for read in READERS.values():
        assert read([data], bounds) == expected
        assert read(cut(data, places), bounds) == expected
        assert read([data[i:i + 1] for i in range(len(data))], bounds) == expected


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 15, 16, 17, 4095, 4096, 4097, 65535, 65536, 65537]), min_size=1, max_size=9),
    step=st.sampled_from([1000, 4096, 65536, 100_000]),
)
def test_sizes_at_the_edges(sizes: list[int], step: int) -> None:
    """Short arguments are remembered, long ones are not; reads are 64 KiB; both ends of each limit."""
    data = array(*[bytes([65 + i]) * size for i, size in enumerate(sizes)]) * 2 + array(b"PING")
    for bounds in (*BOUNDS, Bounds(body_bytes=1, command_bytes=70_000)):
        expected = READERS["requests"]([data], bounds)
        for read in READERS.values():
            assert read(cut(data, range(step, len(data), step)), bounds) == expected


def test_random_bytes_never_cost_more_than_a_bound() -> None:
    """Two streams without an end: nobody keeps more of them than a line, or one command."""
    for start in (b"*", b"*3\r\n$", b"x", b"*1\r\n$99999\r\n"):
        for read in READERS.values():
            pieces = [start, *[b"1" * 65536] * 32]
            result = read(pieces, Bounds(body_bytes=MIB, command_bytes=MIB))
            assert result.commands in ([], [[b"1" * 99999]]) and result.error is not None
