"""Five seconds of the fuzzer, with a new seed each time; what it finds is written to a file and can be replayed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz_resp import Wrong, check_replies, fuzz

SECONDS = 5.0


def test_nothing_a_client_sends_harms_the_node(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # shown when the test fails
    run = fuzz(SECONDS, seed, tmp_path / "fuzz-failure.json")
    assert run.inputs > 50 and run.bytes_out > 0


def test_the_same_seed_gives_the_same_inputs(tmp_path: Path) -> None:
    first, second = (fuzz(0.0, 7, tmp_path / "unused.json") for _ in range(2))
    for run in (first, second):
        for _ in range(30):
            run.step()
    assert (first.inputs, first.bytes_in, first.bytes_out) == (second.inputs, second.bytes_in, second.bytes_out)


@pytest.mark.parametrize(
    "data", [b"+OK", b"+O\nK\r\n", b"$3\r\nab\r\n", b"*2\r\n:1\r\n", b":x\r\n", b"OK\r\n", b"$-2\r\n", b"%1\r\n+a\r\n"]
)
def test_it_knows_what_is_no_reply(data: bytes) -> None:
    with pytest.raises(Wrong):
        check_replies(data)


def test_it_knows_what_is_one() -> None:
    flat = b"+OK\r\n-ERR x\r\n:-1\r\n$-1\r\n*-1\r\n_\r\n$2\r\n\r\n\r\n"
    assert check_replies(flat + b"*2\r\n:1\r\n*0\r\n%1\r\n+a\r\n+b\r\n") == 9
