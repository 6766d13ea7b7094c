"""What a producer may say about a job: the options of ADDJOB, in Python's words.

`AddOptions` is a TypedDict, so that `add`, `add_many` and the tasks take the same options by name and a type
checker knows them. `words` turns them into the words of the command, each through a check of its own.

An *idempotent* add is one that may be sent twice: it carries a unique key, made here, that is taken for
`IDEMPOTENT_WINDOW_S` whatever becomes of the job. When the answer to it is lost, the queue asks again, and the
second answer is the id that the first made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal, TypedDict

from . import checks
from .checks import Seconds
from .errors import BadRequest
from .resp import Arg

ADD_TIMEOUT_S: Final = 5.0
"""How long a producer waits for copies unless it says otherwise."""
IDEMPOTENT_WINDOW_S: Final = 600
"""Longer than any client keeps trying, short enough to be forgotten."""


class AddOptions(TypedDict, total=False):
    """What a producer may say about a job; all optional.

    timeout     seconds to wait for the copies (5); None waits as long as it takes
    replicate   how many nodes must hold the job before the answer
    sync        answer when so many hold it, the others follow
    delay       seconds, or a timedelta, before it may be handed out
    at          the same as a time: unix seconds, or a datetime with a zone
    retry       seconds after a hand-out without an answer until it is handed out again; 0: at most once
    ttl         seconds until its time is over; None: never, unless its queue says when; left out: as its queue says,
                else a day from the end of its delay
    on_expire   what becomes of it then: "dead", it goes to the dead letters, or "drop"; left out: as its queue says
    maxlen      refuse (`MaxLen`) if the queue already holds this many
    priority    0 to 9, 9 first
    is_async    answer before the copies are made
    say_copies  the id that is returned is an `AddedId`: its `.copies` says how many nodes hold the job now
    unique      at most one pending job of the queue has this key; adding again answers with the id that is there
    until       how long the key is taken: until the job is "done", or "started"
    window      seconds for which the key stays taken even if the job has ended
    on_duplicate  "existing": answer its id; "replace": the new body counts; "reject": raise `Duplicate`
    idempotent  may be sent twice, and is when an answer was lost: see the top of `adding`
    group       jobs of a group run one at a time, in order
    on_fail     a job of the group that fails: "hold" the others until it is done, or "skip" it
    domain      rate-limit key
    tenant      fair share key
    attempts    how many failures before it is dead
    backoff     seconds to the second attempt, doubled each time; or (first, most)
    batch       (name, index): a member of a batch; of many at once the first has this index, each other the next
    parent      id of the job that made this one
    headers     short strings that travel with the job
    """

    timeout: float | None
    replicate: int
    sync: int
    delay: Seconds
    at: float | datetime
    retry: Seconds
    ttl: Seconds | None
    on_expire: Literal["dead", "drop"]
    maxlen: int
    priority: int
    is_async: bool
    say_copies: bool
    unique: str
    until: Literal["done", "started"]
    window: Seconds
    on_duplicate: Literal["existing", "replace", "reject"]
    idempotent: bool
    group: str
    on_fail: Literal["hold", "skip"]
    domain: str
    tenant: str
    attempts: int
    backoff: Seconds | tuple[Seconds, Seconds]
    batch: tuple[str, int]
    parent: str
    headers: Mapping[str, str]


ADD_OPTIONS: Final = frozenset(AddOptions.__annotations__)


def _count(what: str) -> Callable[[int], list[Arg]]:
    return lambda value: [what.upper(), checks.count(what, value)]


def _seconds(what: str) -> Callable[[Seconds], list[Arg]]:
    return lambda value: [what.upper(), checks.rounded_up(what, value)]


def _ttl(value: Seconds | None) -> list[Arg]:
    return ["TTL", "none" if value is None else checks.rounded_up("ttl", value)]


def _key(what: str, option: str = "") -> Callable[[str], list[Arg]]:
    return lambda value: [(option or what).upper(), checks.key(what, value)]


def _backoff(value: Seconds | tuple[Seconds, Seconds]) -> list[Arg]:
    if isinstance(value, tuple):
        return ["BACKOFF", ":".join(str(checks.rounded_up("backoff", each)) for each in value)]
    return ["BACKOFF", checks.rounded_up("backoff", value)]


def _batch(value: tuple[str, int]) -> list[Arg]:
    given: object = value
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"batch is a name and an index, as in ('holiday', 0), not {checks.kind(given)}")
    batch, index = value
    return ["BATCH", checks.key("batch", batch), "INDEX", checks.count("index", index)]


def _headers(value: Mapping[str, str]) -> list[Arg]:
    given: object = value
    if not isinstance(given, Mapping):
        raise TypeError(f"headers is a dict of names and texts, not {checks.kind(given)}")
    flat: list[Arg] = []
    for header, text in value.items():
        flat += [checks.key("a header's name", header), checks.key("a header", text)]
    return ["HEADERS", len(value), *flat] if flat else []


_WORDS: Final[dict[str, Callable[..., list[Arg]]]] = {
    "replicate": _count("replicate"),
    "sync": _count("sync"),
    "delay": _seconds("delay"),
    "at": lambda value: ["AT", checks.unix_seconds("at", value)],
    "retry": _seconds("retry"),
    "ttl": _ttl,
    "on_expire": _key("on_expire", "onexpire"),
    "maxlen": _count("maxlen"),
    "priority": _count("priority"),
    "is_async": lambda value: ["ASYNC"] if value else [],
    "say_copies": lambda value: ["SAYCOPIES"] if value else [],
    "unique": _key("unique"),
    "until": _key("until"),
    "window": _seconds("window"),
    "on_duplicate": _key("on_duplicate", "ondup"),
    "group": _key("group"),
    "on_fail": _key("on_fail", "onfail"),
    "domain": _key("domain"),
    "tenant": _key("tenant"),
    "attempts": _count("attempts"),
    "backoff": _backoff,
    "batch": _batch,
    "parent": _key("parent"),
    "headers": _headers,
}


def words(options: AddOptions) -> list[Arg]:
    """The words that follow the fixed arguments of ADDJOB and ADDJOBS."""
    argv: list[Arg] = []
    for option, value in options.items():
        made = _WORDS.get(option)
        if made is not None:
            argv += made(value)
    return argv


def settled(method: str, options: AddOptions) -> AddOptions:
    """Options that are known, and with a key where the job is to be idempotent."""
    if not options:
        return options
    checks.known(method, options, ADD_OPTIONS)
    if not options.get("idempotent"):
        return options
    if method != "add":
        raise BadRequest("a unique key is one job's: add_many cannot be idempotent")
    if options.get("on_duplicate", "existing") != "existing":
        raise BadRequest("an idempotent add takes the job that is there: leave on_duplicate out")
    safe = options.copy()
    import uuid

    safe.setdefault("unique", "add:" + uuid.uuid4().hex)
    safe["window"] = max(float(IDEMPOTENT_WINDOW_S), checks.seconds("window", options.get("window", 0.0)))
    return safe
