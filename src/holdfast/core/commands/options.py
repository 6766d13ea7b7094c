"""What follows the fixed arguments of ADDJOB and ADDJOBS: options, read and checked before anything is done.

Those of Disque first, then ours: AT, PRIORITY, keys (DOMAIN, GROUP, UNIQUE, TENANT, BATCH), rules for failure
(ATTEMPTS, BACKOFF), and what travels with a job (HEADERS, PARENT). A job with any of the latter has a `More`.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i32, i64, mypyc_attr

from holdfast.core import doubt, errors, peers, placement
from holdfast.core.errors import BadRequest, Refused
from holdfast.core.ids import is_id
from holdfast.core.limits import (
    BACKOFF_MOST_S,
    BATCH_MAX,
    DURATION_S_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    REPLICATE_MAX,
    RETRY_S_DEFAULT_MAX,
    TTL_S_DEFAULT,
    TTL_S_ENDLESS,
)
from holdfast.core.more import TO_DEAD, UNTIL_DONE, UNTIL_STARTED, More
from holdfast.core.parse import at_least, integer, no_option, seconds, value_of
from holdfast.core.peers import ME

if TYPE_CHECKING:
    from holdfast.core.node import Node

ONDUP_NAMES: Final = [b"existing", b"replace", b"reject"]


@mypyc_attr(acyclic=True)
class AddOptions:
    def __init__(self) -> None:
        self.ttl: i64 = TTL_S_DEFAULT
        self.life: i64 = UNSAID
        self.retry: i64 = -1
        self.delay: i64 = 0
        self.replicate: i64 = 0
        self.maxlen: i64 = 0
        self.priority: i64 = PRIORITY_DEFAULT
        self.sync: i64 = 0  # copies to wait for, if not all
        self.is_async: bool = False
        self.is_external: bool = False  # this node keeps no copy of its own
        self.is_default: bool = False  # as many copies as can be had
        self.at: i64 = 0  # unix seconds
        self.ondup: i64 = -1
        self.says: bool = False  # the reply says what became of the unique key
        self.says_copies: bool = False  # the reply says how many copies there are
        self.more: More | None = None

    def read(self, argv: list[bytes], i: int) -> None:
        """Options from argv[i] on, in any order; the last of a kind wins."""
        while i < len(argv):
            option = argv[i].upper()
            if self.read_word(option):
                i += 1
                continue
            if option == b"REPLICATE":
                self.replicate = read_replicate(value_of(argv, i))
            elif option == b"SYNC":
                self.sync = at_least(value_of(argv, i), 1, errors.SYNC_RANGE)
            elif option == b"TTL":
                is_endless = value_of(argv, i).lower() == b"none"
                self.ttl = TTL_S_ENDLESS if is_endless else seconds(value_of(argv, i), 1, errors.TTL_RANGE)
                self.life = ENDLESS if is_endless else SAID
            elif option == b"RETRY":
                self.retry = seconds(value_of(argv, i), 0, errors.RETRY_RANGE)
            elif option == b"DELAY":
                self.delay = seconds(value_of(argv, i), 0, errors.DELAY_RANGE)
            elif option == b"MAXLEN":
                self.maxlen = at_least(value_of(argv, i), 1, errors.MAXLEN_RANGE)
            elif option == b"PRIORITY":
                self.priority = at_least(value_of(argv, i), 0, errors.PRIORITY_RANGE)
                if self.priority > PRIORITY_MAX:
                    raise BadRequest(errors.PRIORITY_RANGE)
            elif option == b"AT":
                self.at = at_least(value_of(argv, i), 1, errors.AT_RANGE)
            elif option == b"HEADERS":
                i = self.read_headers(argv, i)
                continue
            else:
                self.read_more(option, value_of(argv, i))
            i += 2

    def read_word(self, option: bytes) -> bool:
        """An option that has no value; whether it is one."""
        if option == b"ASYNC":
            self.is_async = True
        elif option == b"SAYDUP":
            self.says = True
        elif option == b"SAYCOPIES":
            self.says_copies = True
        else:
            return False
        return True

    def asked(self) -> More:
        """The part of the options that plain jobs do not have."""
        if self.more is None:
            self.more = More()
        return self.more

    def read_headers(self, argv: list[bytes], i: int) -> int:
        """HEADERS n name value [name value ...]; where the next option is."""
        count = integer(value_of(argv, i), errors.HEADERS_RANGE)
        if count < 1 or count > HEADERS_MAX:
            raise BadRequest(errors.HEADERS_RANGE)
        pairs = argv[i + 2:i + 2 + 2 * count]
        if len(pairs) < 2 * count:
            raise BadRequest(errors.HEADERS_FEW)
        if sum([len(text) for text in pairs]) > HEADERS_BYTES_MAX:
            raise BadRequest(errors.HEADERS_LONG)
        self.asked().headers = pairs
        return i + 2 + 2 * count

    def read_more(self, option: bytes, value: bytes) -> None:
        """An option that only some jobs have."""
        if option == b"TENANT":
            self.asked().tenant = key(option, value)
        elif option == b"DOMAIN":
            self.asked().domain = key(option, value)
        elif option == b"GROUP":
            self.asked().group = key(option, value)
        elif option == b"ONFAIL":
            self.asked().skips = word(value, ONFAIL_NAMES, errors.ONFAIL_WORDS) == 1
        elif option == b"UNIQUE":
            self.asked().unique = key(option, value)
        elif option == b"UNTIL":
            is_started = word(value, UNTIL_NAMES, errors.UNTIL_WORDS) == 1
            self.asked().until = UNTIL_STARTED if is_started else UNTIL_DONE
        elif option == b"WINDOW":
            self.asked().window = seconds(value, 1, errors.WINDOW_RANGE)
        elif option == b"ONDUP":
            self.ondup = word(value, ONDUP_NAMES, errors.ONDUP_WORDS)
        elif option == b"ONEXPIRE":
            self.asked().onexpire = TO_DEAD + word(value, ONEXPIRE_NAMES, errors.ONEXPIRE_WORDS)
        elif option == b"ATTEMPTS":
            attempts = at_least(value, 1, errors.ATTEMPTS_RANGE)
            if attempts > DURATION_S_MAX:
                raise BadRequest(errors.ATTEMPTS_RANGE)
            self.asked().attempts = i32(attempts)
        elif option == b"BACKOFF":
            more = self.asked()
            first, colon, most = value.partition(b":")
            more.backoff = backoff_ms(first)
            more.backoff_most = backoff_ms(most) if colon else max(more.backoff, BACKOFF_MOST_S * 1000)
            if more.backoff_most < more.backoff:
                raise BadRequest(errors.BACKOFF_RANGE)
        elif option == b"BATCH":
            self.asked().batch = key(option, value)
        elif option == b"INDEX":
            index = at_least(value, 0, errors.INDEX_RANGE)
            if index >= BATCH_MAX:
                raise BadRequest(errors.INDEX_RANGE)
            self.asked().index = index + 1
        elif option == b"PARENT":
            if not is_id(value):
                raise BadRequest(errors.BAD_ID)
            self.asked().parent = value
        else:
            raise no_option(option)

    def settle_more(self) -> None:
        """Words that mean something only beside another."""
        more = self.more
        if more is None:
            if self.ondup >= 0 or self.says:
                raise BadRequest(errors.UNIQUE_MISSING)
            return
        if more.skips and not more.group:
            raise BadRequest(b"ERR ONFAIL goes with GROUP")
        if not more.unique and (self.ondup >= 0 or self.says or more.window > 0 or more.until != UNTIL_DONE):
            raise BadRequest(errors.UNIQUE_MISSING)
        if (more.batch == b"") != (more.index == 0):
            raise BadRequest(b"ERR BATCH and INDEX go together")

    def settle_words(self, node: Node) -> None:
        """Options that do not go together, and defaults that are the same at every node."""
        self.settle_more()
        self.settle_at(node)
        if self.retry < 0:
            self.retry = default_retry(self.ttl)

    def settle_at(self, node: Node) -> None:
        """A point in time is a delay from here on."""
        if self.at > 0:
            if self.delay > 0:
                raise BadRequest(errors.AT_AND_DELAY)
            self.delay = max(0, (self.at * 1000 - doubt.own_wall(node) + 999) // 1000)
            self.at = 0
            if self.delay > DURATION_S_MAX:
                raise BadRequest(errors.AT_RANGE)

    def settle_life(self, node: Node, of_queue: i64) -> None:
        """How long a job lives that does not say it: as its queue says, else a day, or without end; from when its delay
        is over, or one that is delayed for longer could not be added. Not for jobs that the cluster makes: their ids,
        which tell of their lives, are the same at all nodes, and a setting need not be."""
        if self.life == SAID:
            return
        self.settle_at(node)
        if of_queue > 0:
            self.ttl = of_queue
        self.ttl = min(self.ttl + self.delay, DURATION_S_MAX)

    def check_numbers(self, node: Node) -> None:
        if self.replicate > 1 and self.retry == 0 and not node.broken("once-copied"):
            raise BadRequest(errors.RETRY_ZERO_COPIES)
        if self.delay > 0 and self.delay >= self.ttl:
            raise BadRequest(errors.DELAY_OVER_TTL)

    def settle_later(self, node: Node) -> None:
        """Of a job that is added when others have ended: what can be said now. Members that are away may be back."""
        self.settle_words(node)
        self.check_numbers(node)
        if self.sync > self.replicate > 0:
            raise BadRequest(errors.SYNC_OVER_REPLICATE)
        if self.replicate > sum([1 for peer in node.peers if peer.index == ME or peer.is_member]):
            raise Refused(errors.NO_REPL)

    def settle_copies(self, node: Node) -> None:
        """How many copies there will be depends on who is there."""
        if len(node.peers) == 1 and self.replicate == 0 and self.sync == 0 and self.delay == 0 and not node.is_leaving:
            self.replicate = self.sync = 1  # nobody else is
            return
        self.is_external = node.is_leaving
        if self.replicate == 0 and (self.retry > 0 or node.broken("once-copied")):
            self.settle_default(node)
        else:
            self.settle_number(node)
        if self.is_external and self.retry == 0:
            raise Refused(errors.NO_REPL_LEAVING)

    def settle_default(self, node: Node) -> None:
        """As many copies as can be had without waiting for a slow node, and the rest later."""
        had = placement.copies_by_default(node)
        needed = had  # copies that must be had now
        if node.is_leaving:
            self.replicate = needed = max(1, min(had, placement.awake(node)))
        elif node.level >= 1 and placement.awake(node) >= had:
            self.is_external = True
            self.replicate = had
        else:
            self.replicate = placement.copies_in_the_end(node)
            self.is_default = self.sync == 0
        self.check_numbers(node)
        self.settle_sync(needed)
        if self.is_external and peers.reachable(node) < self.replicate:
            raise Refused(errors.NO_REPL_LEAVING)

    def settle_number(self, node: Node) -> None:
        """A number was said. A node that has just gone counts until it is suspect: it may be back in time."""
        there = peers.reachable(node) if node.broken("refused-at-once") else peers.expected(node)
        if self.replicate == ALL_NODES:
            self.replicate = peers.reachable(node) + 1
        elif self.replicate == 0:
            self.replicate = 1
        self.check_numbers(node)
        self.settle_sync(self.replicate)
        if node.level >= 1 and self.retry > 0 and peers.reachable(node) >= self.replicate:
            self.is_external = True
        if self.is_external and there < self.replicate:
            raise Refused(errors.NO_REPL_LEAVING if there + 1 == self.replicate else errors.NO_REPL)
        if self.replicate - 1 > there:
            raise Refused(errors.NO_REPL)

    def settle_sync(self, needed: i64) -> None:
        if self.sync == 0:
            self.sync = needed
        elif self.sync > self.replicate:
            raise BadRequest(errors.SYNC_OVER_REPLICATE)

    def waits(self) -> bool:
        """Whether the answer has to wait for other nodes."""
        return self.is_external or (self.replicate > 1 and self.sync > 1 and not self.is_async)


ALL_NODES: Final = -1

# Who says how long a job lives.
UNSAID: Final = 0
ENDLESS: Final = 1  # TTL none: nobody, or its queue
SAID: Final = 2


def default_retry(ttl: i64) -> i64:
    return min(RETRY_S_DEFAULT_MAX, max(1, ttl // 10))


def read_replicate(text: bytes) -> i64:
    if text.lower() == b"all":
        return ALL_NODES
    value = at_least(text, 1, errors.REPLICATE_RANGE)
    if value > REPLICATE_MAX:
        raise BadRequest(errors.REPLICATE_RANGE)
    return value


ONFAIL_NAMES: Final = [b"hold", b"skip"]
UNTIL_NAMES: Final = [b"done", b"started"]
ONEXPIRE_NAMES: Final = [b"dead", b"drop"]


def key(option: bytes, value: bytes) -> bytes:
    """The name of something that many jobs share."""
    if not value or len(value) > KEY_BYTES_MAX:
        raise BadRequest(b"ERR %b takes a name of 1 to %d bytes, not of %d" % (option, KEY_BYTES_MAX, len(value)))
    return value


def word(value: bytes, names: list[bytes], error: bytes) -> i64:
    if value.lower() not in names:
        raise BadRequest(error)
    return names.index(value.lower())


def backoff_ms(text: bytes) -> i64:
    ms = seconds(text, 0, errors.BACKOFF_RANGE) * 1000
    if ms > DURATION_S_MAX:
        raise BadRequest(errors.BACKOFF_RANGE)
    return ms
