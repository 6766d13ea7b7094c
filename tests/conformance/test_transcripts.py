"""Runs the transcripts. One failure shows every line that differs, with the place to look at."""
from __future__ import annotations

from difflib import ndiff
from pathlib import Path

import pytest

from .trace import Reader, lines
from .transcript import Difference, files, parse, rewritten, run, split_words


@pytest.mark.parametrize("is_direct", [False, True], ids=["execute", "direct"])
def test_transcript(transcript: Path, is_direct: bool) -> None:
    differences = []
    for section in parse(transcript.read_text()):
        differences += run(section, is_direct)
    if differences:
        pytest.fail("\n\n".join(describe(transcript, each) for each in differences), pytrace=False)


def describe(path: Path, difference: Difference) -> str:
    entry = difference.entry
    place = f"{path.name}:{entry.line_no}: {difference.section.title}\n{entry.text}"
    return "\n".join([place, *ndiff(entry.expected, difference.got)])


def test_there_is_a_transcript_for_every_group() -> None:
    """Others may join them; none of these may be missing."""
    groups = (
        "acks addjob addjobs admin domains failures getjob leases memory nack-enqueue-dequeue options queues results "
        "scans show tenants time working"
    )
    assert set(groups.split()) <= {path.stem for path in files()}


def test_rewriting_replaces_what_is_wrong_and_keeps_the_rest() -> None:
    text = "# why\n\n=== title\n> PING\n+PONG\n# how\na> PING x | x\n\n=== other\nwith port=1\n> HELLO\n-wrong\nlines\n"
    wanted = text.replace("PING x | x\n", 'PING x | x\n"x"\n')
    wanted = wanted.replace("-wrong\nlines\n", '[:1 "<node>" ["<node>" "" "1" "1"]]\n')
    assert rewritten(text) == wanted
    assert rewritten(wanted) == wanted


def test_a_trace_shows_types_and_folds_what_is_long() -> None:
    def shown(data: bytes) -> list[str]:
        return [line for reply in Reader(data).all() for line in lines(reply, str)]

    assert shown(b"+OK\r\n:-1\r\n$-1\r\n*-1\r\n_\r\n") == ["+OK", ":-1", "$-1", "*-1", "_"]
    assert shown(b"*2\r\n$2\r\n+a\r\n*0\r\n%1\r\n+k\r\n$0\r\n\r\n") == ['["+a" []]', '{+k ""}']
    assert shown(b'$8\r\n\x00\r\n"\\\xff~\t\r\n') == [r'"\x00\r\n\"\\\xff~\t"']
    assert shown(b"$70\r\n" + b"x" * 70 + b"\r\n") == ['"{x*70}"']
    name = b"$60\r\n" + b"ab" * 30 + b"\r\n"
    assert shown(b"*2\r\n" + name + name) == ["[", f'  "{"ab" * 30}" "{"ab" * 30}"', "]"]


@pytest.mark.parametrize("data", [b"$3\r\nab\r\n", b"+a\nb\r\n", b":01\r\n", b"?\r\n", b"*1\r\n"])
def test_a_trace_refuses_what_is_not_resp(data: bytes) -> None:
    with pytest.raises((AssertionError, ValueError)):
        Reader(data).all()


def test_words_of_a_command() -> None:
    assert split_words('A  "b c\\x00\\"" {x*3} <1>|<node>', ["ID"]) == [
        b"A", b'b c\x00"', b"xxx", b"ID|c0ffee11" + b"0123456789abcdef" * 2,
    ]
