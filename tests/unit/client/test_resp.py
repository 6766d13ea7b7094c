"""Both readers give the same values, however the bytes are cut, and refuse the same nonsense."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import errors, plain, resp
from holdfast.client.resp import NOT_READY, Reader, Reply

hiredis = pytest.importorskip("hiredis")

MAKERS: dict[str, Callable[[], Reader]] = {
    "hiredis": resp.new_reader,
    "plain": lambda: plain.PlainReader(errors.from_reply),
}

STREAMS: list[tuple[bytes, list[Reply]]] = [
    (b"+OK\r\n", [b"OK"]),
    (b"+\r\n", [b""]),
    (b":0\r\n:-7\r\n:9223372036854775807\r\n", [0, -7, 2**63 - 1]),
    (b"$5\r\nhello\r\n$0\r\n\r\n$-1\r\n", [b"hello", b"", None]),
    (b"$4\r\n\r\n\r\n\r\n", [b"\r\n\r\n"]),
    (b"$3\r\n\x00\xff\r\r\n", [b"\x00\xff\r"]),
    (b"*0\r\n*-1\r\n*2\r\n:1\r\n$1\r\na\r\n", [[], None, [1, b"a"]]),
    (b"*2\r\n*2\r\n:1\r\n*0\r\n*1\r\n*1\r\n$-1\r\n", [[[1, []], [[None]]]]),
    (b"*1\r\n*7\r\n$1\r\nq\r\n$2\r\nid\r\n$1\r\nb\r\n$5\r\nnacks\r\n:1\r\n+x\r\n:2\r\n+OK\r\n",
     [[[b"q", b"id", b"b", b"nacks", 1, b"x", 2]], b"OK"]),
    (b"_\r\n#t\r\n#f\r\n,3.25\r\n,-inf\r\n,1e3\r\n", [None, True, False, 3.25, -math.inf, 1000.0]),
    (b"(123456789012345678901234567890\r\n", [b"123456789012345678901234567890"]),
    (b"=8\r\ntxt:some\r\n", [b"some"]),
    (b"%2\r\n+a\r\n:1\r\n$1\r\nb\r\n*1\r\n:2\r\n%0\r\n", [{b"a": 1, b"b": [2]}, {}]),
    (b"~3\r\n:1\r\n:1\r\n+a\r\n", [[1, 1, b"a"]]),
    (b">2\r\n+note\r\n:1\r\n:5\r\n", [[b"note", 1], 5]),
]


def read_all(reader: Reader) -> list[Reply]:
    replies: list[Reply] = []
    while (reply := reader.gets()) is not NOT_READY:
        replies.append(reply)
    return replies


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("stream", "values"), STREAMS, ids=[repr(s[0][:20]) for s in STREAMS])
def test_a_stream_reads_the_same_cut_anywhere(name: str, stream: bytes, values: list[Reply]) -> None:
    """Once in two pieces for every place to cut, and once byte by byte."""
    for cut in range(len(stream) + 1):
        reader = MAKERS[name]()
        reader.feed(stream[:cut])
        first = read_all(reader)
        reader.feed(stream[cut:])
        assert first + read_all(reader) == values
    reader, replies = MAKERS[name](), []
    for at in range(len(stream)):
        reader.feed(stream[at : at + 1])
        replies += read_all(reader)
    assert replies == values


def test_the_readers_agree_on_types_as_well_as_values() -> None:
    whole = b"".join(stream for stream, _ in STREAMS)
    kinds = []
    for make in MAKERS.values():
        reader = make()
        reader.feed(whole)
        kinds.append([type(reply).__name__.replace("PushNotification", "Push") for reply in read_all(reader)])
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("name", MAKERS)
def test_an_error_reply_is_a_value_and_already_the_right_exception(name: str) -> None:
    reader = MAKERS[name]()
    reader.feed(b"-BADID Invalid Job ID format.\r\n*2\r\n-NOJOB gone\r\n:1\r\n-\xff\r\n")
    bad, nested, odd = read_all(reader)
    assert isinstance(bad, errors.BadId)
    assert isinstance(nested, list) and isinstance(nested[0], errors.NoJob) and nested[1] == 1
    assert isinstance(odd, errors.BadRequest)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "nonsense",
    [b"?what\r\n", b":abc\r\n", b":\r\n", b":99999999999999999999\r\n", b"$x\r\n", b"$-2\r\n", b"*-2\r\n",
     b"*5000000000\r\n", b"#x\r\n", b"_x\r\n", b",abc\r\n", b"(abc\r\n", b"=2\r\nab\r\n",
     b"HTTP/1.1 200 OK\r\n"],
)
def test_bytes_that_are_no_resp_are_refused(name: str, nonsense: bytes) -> None:
    reader = MAKERS[name]()
    reader.feed(nonsense)
    with pytest.raises(resp.ProtocolError):
        reader.gets()


def test_the_plain_reader_stays_broken() -> None:
    reader = plain.PlainReader(errors.from_reply)
    reader.feed(b"?\r\n")
    for _ in range(2):
        with pytest.raises(resp.ProtocolError):
            reader.gets()
        reader.feed(b"+OK\r\n")


def test_the_plain_reader_has_bounds() -> None:
    deep = plain.PlainReader(errors.from_reply)
    deep.feed(b"*1\r\n" * (plain.DEPTH_MAX + 1))
    with pytest.raises(resp.ProtocolError, match="nested"):
        deep.gets()
    long = plain.PlainReader(errors.from_reply)
    long.feed(b"+" + b"x" * (plain.LINE_BYTES_MAX + 1))
    with pytest.raises(resp.ProtocolError, match="long"):
        long.gets()
    cut = plain.PlainReader(errors.from_reply)
    cut.feed(b"$3\r\nabcde")
    with pytest.raises(resp.ProtocolError, match="end"):
        cut.gets()
    mapped = plain.PlainReader(errors.from_reply)
    mapped.feed(b"%1\r\n*1\r\n:1\r\n:2\r\n")
    with pytest.raises(resp.ProtocolError, match="key"):
        mapped.gets()


def test_the_plain_reader_can_tell_what_a_prompt_must_show() -> None:
    reader = plain.PlainReader(errors.from_reply, exact=True)
    reader.feed(b"+OK\r\n$2\r\nOK\r\n~1\r\n:1\r\n*1\r\n:1\r\n")
    simple, bulk, elements, array = read_all(reader)
    assert isinstance(simple, plain.Simple) and not isinstance(bulk, plain.Simple)
    assert isinstance(elements, plain.Elements) and not isinstance(array, plain.Elements)


def test_a_large_reply_in_small_pieces_costs_no_more_than_its_size() -> None:
    """Counted, not timed: every byte is searched for a line end about once."""
    count = 20_000
    reader = plain.PlainReader(errors.from_reply)
    stream = b"*%d\r\n" % count + b"$4\r\nbody\r\n" * count
    replies: list[Reply] = []
    for at in range(0, len(stream), 100):
        reader.feed(stream[at : at + 100])
        replies += read_all(reader)
        assert len(reader._buffer) <= 200
    assert replies == [[b"body"] * count]


@pytest.mark.parametrize("word", ["plain", "größe", b"\x00\xff\r\n".decode("utf-8", "surrogateescape"), ""])
def test_text_survives_the_way_there_and_back(word: str) -> None:
    assert resp.to_text(resp.to_bytes(word)) == word


@pytest.mark.parametrize("encode", [resp.encode, resp.encode_plain])
def test_a_command_is_an_array_of_bulk_strings(encode: Callable[[resp.Argv], bytes]) -> None:
    assert encode(["GETJOB", b"a\r\n", 12]) == b"*3\r\n$6\r\nGETJOB\r\n$3\r\na\r\n\r\n$2\r\n12\r\n"
    assert encode(["größe", "\udcff", -1]) == b"*3\r\n$7\r\ngr\xc3\xb6\xc3\x9fe\r\n$1\r\n\xff\r\n$2\r\n-1\r\n"
    assert encode([2**70]) == b"*1\r\n$22\r\n1180591620717411303424\r\n"


def test_without_hiredis_the_plain_twin_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resp, "_hiredis", None)
    reader = resp.new_reader()
    assert isinstance(reader, plain.PlainReader)
    reader.feed(b"-NOJOB gone\r\n")
    assert isinstance(reader.gets(), errors.NoJob)
    assert resp.encode(["PING", "\udcff"]) == b"*2\r\n$4\r\nPING\r\n$1\r\n\xff\r\n"


def wire(value: Reply) -> bytes:
    """A value as a node would send it; bytes sometimes as a simple string."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, bool):
        return b"#t\r\n" if value else b"#f\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        is_simple = len(value) % 2 == 0 and b"\r" not in value and b"\n" not in value
        return b"+%b\r\n" % value if is_simple else b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, dict):
        pairs = b"".join(wire(key) + wire(each) for key, each in value.items())
        return b"%%%d\r\n" % len(value) + pairs
    assert isinstance(value, list)
    return b"*%d\r\n" % len(value) + b"".join(map(wire, value))


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40)
replies = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.binary(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(replies, min_size=1, max_size=4), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_any_replies_in_any_pieces_read_back_as_they_were(values: list[Reply], pieces: list[int]) -> None:
    stream = b"".join(map(wire, values))
    for make in MAKERS.values():
        reader, read, at, turn = make(), [], 0, 0
        while at < len(stream):
            size = pieces[turn % len(pieces)]
            reader.feed(stream[at : at + size])
            at, turn = at + size, turn + 1
            read += read_all(reader)
        assert read == values
