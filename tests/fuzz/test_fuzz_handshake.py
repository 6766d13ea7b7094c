"""Some seconds of bad handshakes, a new seed each time; `python -m tests.fuzz.fuzz_handshake` goes on for longer."""
from __future__ import annotations

import random

import fuzz_handshake
import pytest
from fuzz_handshake import Wrong, fuzz

from holdfast.shell import handshake

SECONDS = 5.0


async def test_nothing_a_stranger_says_makes_a_link_or_harms_one() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # shown when the test fails
    run = await fuzz(SECONDS, seed)
    assert run.linked > 5 and run.inputs > 5 * run.linked


async def test_it_notices_a_proof_that_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer can fail: answers and verdicts pass unseen."""
    monkeypatch.setattr(handshake.hmac, "compare_digest", lambda one, other: True)
    with pytest.raises(Wrong, match="has a link"):
        await fuzz(60.0, 7, most=2_000)


def test_it_spoils_what_it_is_to_spoil() -> None:
    world = fuzz_handshake.World(3)
    words = bytes(100)
    assert sum(world.spoil(words) != words for _ in range(100)) > 80
    world.listener.close()
