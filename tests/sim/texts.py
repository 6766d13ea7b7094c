"""The error texts clients match on, written out a second time so that a slip in the machine shows."""
from __future__ import annotations

import re

SYNTAX = b"ERR syntax error"
NOT_A_NUMBER = b"ERR value is not an integer or out of range"
TIMEOUT_NUMBER = b"ERR timeout is not an integer or out of range"
TIMEOUT_NEGATIVE = b"ERR timeout is negative"
REPLICATE = b"ERR REPLICATE must be between 1 and 65535"
TTL = b"ERR TTL must be a number > 0"
RETRY = b"ERR RETRY time must be a non negative number"
DELAY = b"ERR DELAY time must be a non negative number"
DELAY_OVER_TTL = b"ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
MAXLEN = b"ERR MAXLEN must be a positive number"
PRIORITY = b"ERR PRIORITY must be between 0 and 9"
TOO_LONG = b"ERR a time in seconds must not exceed 2147483647"
RETRY_ZERO_COPIES = b"ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
COUNT = b"ERR COUNT must be a number greater than zero"
COUNT_RANGE = b"ERR COUNT must be between 1 and 100000"
FEWER_BODIES = b"ERR fewer bodies than COUNT says"
BODY_BYTES = b"ERR the body has %d bytes, the setting max-body-bytes allows %d"
NAME_BYTES = b"ERR the queue name has %d bytes, at most 65536 are allowed"
BAD_ID = b"BADID Invalid Job ID format."
NO_JOB = b"NOJOB Job not known in the context of this node."
TOO_LATE = b"TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
QUEUE_FULL = b"MAXLEN Queue is already longer than the specified MAXLEN count"
PAUSED = b"PAUSED Queue paused in input, try later"
OOM = b"OOM command not allowed when used memory > 'maxmemory'."
NO_REPL = b"NOREPL Not enough reachable nodes for the requested replication level"
CURSOR = b"ERR invalid cursor or option name"
STATE = b"ERR Invalid job state name"
REPLY_TYPE = b"ERR Invalid REPLY type, try ID or ALL"
SCAN_USE = b"ERR use SCAN job cursor ... or SCAN queue cursor ..."
QUEUE_USE = b"ERR use QUEUE SET q name value [name value ...] or QUEUE GET q [name ...] [WITHSTAMP]"
QUEUE_MAXLEN = b"ERR maxlen must be a non negative number"
QUEUE_PAUSED = b"ERR paused must be none, in, out or all"
QUEUE_JOURNAL = b"ERR journal must be own or shared"
QUEUE_NO_SETTING = b"ERR there is no queue setting '%b'"
UNKNOWN = b"ERR unknown command '%b'"
ARITY = b"ERR wrong number of arguments for '%b' command"

ALL = [text for name, text in list(globals().items()) if name.isupper()]
PATTERNS = [(text, re.compile(re.sub(rb"%(b|d)", b".+", re.escape(text)))) for text in ALL if b"%" in text]


def kind(text: bytes) -> str:
    """The text a reply was made from, for counting."""
    for made_from, pattern in PATTERNS:
        if pattern.fullmatch(text):
            return made_from.decode()
    assert text in ALL, text
    return text.decode()
