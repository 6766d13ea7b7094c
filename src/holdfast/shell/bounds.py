"""Bounds of connections and links, each with its reason; those that operators may move are settings."""
from __future__ import annotations

import errno

from holdfast.shell import strangers

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What accept() says when there is no room for one more."""

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

STRANGER_MS = 1000 * strangers.LOGIN_S

# -- links with other nodes (bus.py) ------------------------------------------------------------------------

LINK_READ_BYTES = 256 * 1024
"""A link's own buffer, and what is read from a peer per turn: many frames of many jobs, or part of one long frame."""

LINK_CHUNK_BYTES = 16 * 1024
"""A frame shorter than this is copied behind its length; a longer one is sent from where it lies."""

LINK_CHUNKS_PER_SEND = 64
"""Pieces handed to the system in one call, below what any system takes."""

HANDSHAKE_S = 5.0
"""From a connection to a link. Who needs longer is no node of ours, or one that is better asked again."""

CONNECT_S = 0.9
"""Connecting to a node: less than the second after which it is called again, since after a cut a new attempt is heard
before the old one is repeated."""

RESOLVE_S = 2.0
"""Finding the address of a name."""

HELLO_BYTES_MAX = 2048
"""Names of at most 255 bytes, and some numbers."""

HANDSHAKES_MAX = 256
HANDSHAKES_PER_ADDRESS = 32
"""Strangers may hold this many connections to the bus open, for HANDSHAKE_S at most. More are closed at once."""

DIALS_MAX = 64
"""Attempts to reach other nodes at one time: more than a full mesh has nodes."""

SETTLE_S = 2.0
"""A link younger than this is not replaced by another with the same process: its other end may just not know yet."""

COMPLAINTS = 10
NEWS = 200
LINES_S = 10.0
"""Lines about strangers, and about links that come and go, that the log gets in this many seconds; the rest is
counted. A full mesh of 62 nodes that starts is news, and fits."""

# -- nodes behind one port (cores.py) -----------------------------------------------------------------------

CORE_AGAIN_S = 0.5
CORE_AGAIN_S_MAX = 10.0
"""Before a node that has ended is started again: doubled each time, from the first again once it has lasted."""

CORE_STOP_S = 15.0
"""A node that was asked to stop and has not: longer than it gives its clients to read what they are owed."""

CORE_PORTS_TRIES = 100
"""With port 0, places in which to look for a free port and as many free ones behind it."""

LINE_BYTES_MAX = 1024 * 1024
"""A message between the nodes of a machine: a setting of any sensible length."""
