"""What the machine answers when it will not, or can not.

    CommandError         the reply is an error; nothing was changed
    ├─ BadRequest        the caller's fault: the same command will fail again (ERR, BADID, NOJOB, TOOLATE, NOPERM)
    └─ Refused           not now: later, or at another node, it may work (OOM, MAXLEN, PAUSED, NOREPL, LEAVING,
                         LOADING, MISCONF, UNREACHED)

Codes and texts are Disque's to the letter wherever Disque has one: clients match on them. They are written
once, here; the reference in docs/ is made from this file.
"""
from __future__ import annotations

from typing import Final


class CommandError(Exception):
    """An error reply. `text` is what follows the minus sign: a code in capitals, then words."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text: bytes = text


class BadRequest(CommandError):
    pass


class Refused(CommandError):
    pass


SYNTAX: Final = b"ERR syntax error"
NOT_AN_INTEGER: Final = b"ERR value is not an integer or out of range"
TIMEOUT_NOT_AN_INTEGER: Final = b"ERR timeout is not an integer or out of range"
TIMEOUT_NEGATIVE: Final = b"ERR timeout is negative"
REPLICATE_RANGE: Final = b"ERR REPLICATE must be between 1 and 65535"
TTL_RANGE: Final = b"ERR TTL must be a number > 0"
ONEXPIRE_WORDS: Final = b"ERR ONEXPIRE must be dead or drop"
RETRY_RANGE: Final = b"ERR RETRY time must be a non negative number"
DELAY_RANGE: Final = b"ERR DELAY time must be a non negative number"
DELAY_OVER_TTL: Final = (
    b"ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
)
MAXLEN_RANGE: Final = b"ERR MAXLEN must be a positive number"
PRIORITY_RANGE: Final = b"ERR PRIORITY must be between 0 and 9"
AT_RANGE: Final = b"ERR AT must be a time in unix seconds, at most 68 years ahead"
AT_AND_DELAY: Final = b"ERR use AT or DELAY, not both"
HEADERS_RANGE: Final = b"ERR HEADERS must be followed by a number from 1 to 64, then so many names and values"
HEADERS_FEW: Final = b"ERR fewer names and values than HEADERS says"
HEADERS_LONG: Final = b"ERR HEADERS must not exceed 8192 bytes in all"
ONFAIL_WORDS: Final = b"ERR ONFAIL must be hold or skip"
UNTIL_WORDS: Final = b"ERR UNTIL must be done or started"
ONDUP_WORDS: Final = b"ERR ONDUP must be existing, replace or reject"
WINDOW_RANGE: Final = b"ERR WINDOW must be a number of seconds > 0"
UNIQUE_MISSING: Final = b"ERR UNTIL, WINDOW, ONDUP and SAYDUP go with UNIQUE"
ATTEMPTS_RANGE: Final = b"ERR ATTEMPTS must be a number > 0"
BACKOFF_RANGE: Final = b"ERR BACKOFF must be seconds or seconds:most, at most 24 days"
INDEX_RANGE: Final = b"ERR INDEX must be between 0 and 999999"
LEASEMS_RANGE: Final = b"ERR LEASEMS must be a number of milliseconds > 0"
BAD_TOKEN: Final = b"ERR that is no token: use the one that GETJOB WITHMETA gave"
CLAIM_NAME: Final = b"ERR a group has a name of 1 to 1024 bytes without colons and spaces"
CLAIM_GROUP: Final = b"NOGROUP nobody has opened this group here: CLAIM OPEN it first"
CLAIM_FENCED: Final = b"FENCED somebody else has opened this group since: this reader must stop"
CLAIM_GONE: Final = b"CLAIMGONE this claim has ended: committed, or its lease was over and its jobs were queued again"
CLAIM_GROUPS: Final = b"CLAIMGROUPS too many groups hold claims at this node"
STAGE_NAME: Final = b"ERR stages, sinks and runs have names of 1 to 1024 bytes without spaces"
STAGE_GONE: Final = b"STAGEGONE a stage is not here: write the batch again"
STAGE_KEYS: Final = b"ERR a job with UNIQUE, GROUP or BATCH cannot be staged: add it directly"
STAGE_ELSEWHERE: Final = b"STAGEGONE this node keeps no jobs at the moment: use another"
STAGES_FULL: Final = b"STAGESFULL as many stages are open at this node as there can be"
LEASE_LOST: Final = b"LEASELOST this lease has ended: the job may be with another worker"
UNREACHED: Final = b"UNREACHED the node that gave this lease cannot be reached: ask again, or at that node"
ACK_PAIRS: Final = b"ERR ACKJOBS takes ids and tokens in turn; ACKJOB takes ids alone"
KEEP_RANGE: Final = b"ERR KEEPALIVE takes a number of milliseconds > 0, then ids and tokens in turn"
FRACTION_RANGE: Final = b"ERR PROGRESS takes a fraction from 0 to 1"
RETRY_AFTER_RANGE: Final = b"ERR RETRYAFTERMS must be a number of milliseconds > 0"
RESULT_LONG: Final = b"ERR RESULT must not exceed 65536 bytes"
WORKER_RANGE: Final = b"ERR WORKER BEAT takes a name, a number of seconds from 1 to 86400, then fields and values"
WAIT_RANGE: Final = b"ERR WAITJOB takes 1 to 10000 ids"
MOVE_KEYED: Final = b"ERR a job with a group or a unique key stays in its queue"
COUNT_RANGE: Final = b"ERR COUNT must be a number greater than zero"
TOO_LONG: Final = b"ERR a time in seconds must not exceed 2147483647"
RETRY_ZERO_COPIES: Final = (
    b"ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
)
BAD_ID: Final = b"BADID Invalid Job ID format."
NO_JOB: Final = b"NOJOB Job not known in the context of this node."
TOO_LATE: Final = (
    b"TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
)
MAXLEN: Final = b"MAXLEN Queue is already longer than the specified MAXLEN count"
NO_BOUND: Final = b"TRYAGAIN The node that keeps the bound of this queue for the whole cluster cannot be reached"
PAUSED: Final = b"PAUSED Queue paused in input, try later"
OUT_OF_MEMORY: Final = b"OOM command not allowed when used memory > 'maxmemory'."
NO_REPL: Final = b"NOREPL Not enough reachable nodes for the requested replication level"
NO_REPL_TIMEOUT: Final = b"NOREPL Timeout reached before replicating to the requested number of nodes"
NO_REPL_REMOVED: Final = b"NOREPL job removed (expired?) before the requested replication level was achieved"
SYNC_OVER_REPLICATE: Final = b"ERR SYNC must not be greater than REPLICATE"
SYNC_RANGE: Final = b"ERR SYNC must be a number > 0"
NO_REPL_LEAVING: Final = (
    NO_REPL
    + b", since I'm unable to hold a copy of the message for the following reason: I'm leaving the cluster"
)
LEAVING: Final = b"LEAVING This node is leaving the cluster, please connect to a different one"
NO_HOME: Final = b"NOREPL The node that decides about its key could not be reached in time; nothing was added"
ADD_UNKNOWN: Final = (
    b"UNKNOWN %b may have been added or not: the node that decides about its key went away before it answered"
)
ADD_ENDED: Final = b"UNKNOWN %b was added and has ended, or was given up"
DUPLICATE: Final = b"DUPLICATE %b has this key already"
NO_ANSWER: Final = b"UNKNOWN the node that has to do this did not answer; it may have done it or not"
NOT_HOME: Final = b"TRYAGAIN the node that decides about this is being found"
BATCH_COUNT: Final = b"ERR BATCH CLOSE takes a number of jobs from 0 to 1000000"
BATCH_CLOSED: Final = b"ERR this batch was closed already, with another count or another job after THEN"
BATCH_ENDED: Final = (
    b"BATCHENDED a batch of this name, of %d, is complete since %d s. Use another name; this one can be used again an "
    b"hour after that end"
)
BATCH_INDEX: Final = b"ERR this batch was closed with a count of %d: INDEX must be below that"
BATCH_SEEN: Final = b"ERR the job with INDEX %d of this batch has ended already: the count must be above that"
THEN_UNIQUE: Final = b"ERR the job after THEN is added once anyway: it cannot be UNIQUE"
THEN_ITSELF: Final = b"ERR the job after THEN cannot be one of those that it waits for"
BATCHES_FULL: Final = b"OOM this node counts for as many batches as it can"
NO_AUTH: Final = b"NOAUTH Authentication required."
BAD_PASSWORD: Final = b"ERR invalid password"
NO_PASSWORD: Final = b"ERR Client sent AUTH, but no password is set"
PAUSE_RANGE: Final = b"ERR CLIENT PAUSE lasts 600000 milliseconds at most"
LOGIN_LATER: Final = b"TRYAGAIN too many logins were wrong or wait; this secret was not looked at. Try again later"
NO_PLACE: Final = b"ERR max number of clients reached"
WRONG_PASS: Final = b"WRONGPASS invalid username-password pair or user is disabled."
NO_PERM: Final = b"NOPERM this user has no permission to run that"
NO_PROTO: Final = b"NOPROTO unsupported protocol version"
BAD_CURSOR: Final = b"ERR invalid cursor or option name"
HISTORY_CURSOR: Final = b"BADCURSOR that is no cursor: HISTORY READ gives them, first and last are two more"
BAD_STATE: Final = b"ERR Invalid job state name"
BAD_REPLY_TYPE: Final = b"ERR Invalid REPLY type, try ID or ALL"
NO_CONFIG_FILE: Final = b"ERR The server is running without a config file"
LOADING: Final = b"LOADING the node is reading its journal, %d %% done"
JOURNAL_FAILS: Final = (
    b"MISCONF the journal cannot be written (%b). Commands that change something are refused until it can"
)
JOURNAL_LOST: Final = (
    b"MISCONF the disk failed to keep the journal (%b). Commands that change something are refused, and other nodes go "
    b"on without this one, until it is started again: look at its disk first, and at its log"
)
UNREADABLE: Final = b"MISCONF a job that is on disk cannot be read (%b). It is tried again"
DEBUG_OFF: Final = b"ERR DEBUG is off. Start the node with the setting enable-debug yes to use it"


ESCAPED: Final = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}


def printable(text: bytes, most: int = 128) -> bytes:
    """Words of a client made fit for one line of an error reply or of a log."""
    shown: list[str] = []
    for c in text[:most]:
        if c in ESCAPED:
            shown.append(ESCAPED[c])
        else:
            shown.append(chr(c) if 32 <= c < 127 else f"\\x{c:02x}")
    return "".join(shown).encode() + (b"..." if len(text) > most else b"")
