"""Bounds of connections, each with its reason; those that operators may move are settings."""
from __future__ import annotations

READ_BYTES = 64 * 1024
"""Read from one client per turn: a busy one cannot keep the others waiting."""

EVENTS_PER_ROUND = 256
ROUNDS_PER_STEP = 4
"""Ready clients served in one call of step(), before everything else in the process has its turn."""

OUTPUT_HIGH_WATER = 256 * 1024
"""A client that is owed this much gets no further command run until it has read. One reply may exceed it."""

HELD_INPUT_MAX = 1024 * 1024
"""What a blocked client may send ahead; then its socket is left unread, and TCP tells it to wait."""

ACCEPTS_PER_ROUND = 64
"""New connections taken in one go: a storm of them must not keep those who are connected waiting."""

LINGER_MS = 3000
"""After an error that ends a connection: how long we read on and drop it, so that the client sees the error."""

STRANGER_MS = 30_000
"""A client must have said who it is after this time, where that is asked for."""
