"""Commands about what is set for the whole cluster: QUEUE, DOMAIN, TENANT."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import domains, errors, registers, settings, tenants
from holdfast.core.commands.jobs import check_queue_name
from holdfast.core.errors import BadRequest
from holdfast.core.limits import (
    BURST_MAX,
    CONCURRENCY_MAX,
    KEY_BYTES_MAX,
    SCAN_COUNT_DEFAULT,
    SCAN_COUNT_MAX,
    WEIGHT_MAX,
)
from holdfast.core.parse import at_least, value_of
from holdfast.core.queue import PAUSE_NAMES
from holdfast.core.reply import write_array, write_bulk, write_int, write_null
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

QUEUE_USE: Final = b"ERR use QUEUE SET q name value [name value ...] or QUEUE GET q [name ...] [WITHSTAMP]"
DOMAIN_USE: Final = (
    b"ERR use DOMAIN SET name RATE n/s|n/m|n/h|n/d|none [BURST n] [CONCURRENCY n] [ADAPT yes|no], DOMAIN GET name, "
    b"DOMAIN LIST [CURSOR c] [COUNT n] or DOMAIN DEL name"
)
TENANT_USE: Final = b"ERR use TENANT SET queue tenant weight or TENANT LIST queue"


def queue(node: Node, session: Session, argv: list[bytes]) -> None:
    """Settings of one queue, the same at all nodes: QUEUE SET q name value [name value ...], QUEUE GET q [name ...].

    maxlen: jobs the queue may hold at one node, whether queued, delayed or handed out; more are refused, none is ever
    dropped. totalmaxlen: the same for all nodes together. paused: none, in, out or all, as PAUSE. rate (10/s, 30/m,
    5/h, none) and burst: how fast jobs are handed out. concurrency: how many may be out at a time. attempts, backoff
    (seconds, or seconds:most), retention (seconds a dead job is kept), ttl (seconds a job lives) and onexpire (whether
    one whose time is over goes to the dead letters, dead, or is forgotten, drop): for jobs that do not say it
    themselves. 0 is no bound. journal: own gives the queue files of its own at each node with a journal, shared takes
    them away again, in the background. fsync: when these must be on the disk, as appendfsync; default is what the node
    has. Of two who set the same at once one wins; WITHSTAMP shows with each value when it was set, in unix
    milliseconds, and at which node.
    """
    word = argv[1].upper()
    if word == b"SET" and len(argv) >= 5 and len(argv) % 2 == 1:
        queue_set(node, argv)
        node.out.write(b"+OK\r\n")
    elif word == b"GET" and len(argv) >= 3:
        queue_get(node, session, argv)
    else:
        raise BadRequest(QUEUE_USE)


def check_setting(name: bytes) -> None:
    if name not in settings.NAMES:
        raise BadRequest(b"ERR there is no queue setting '%b'" % errors.printable(name))


def queue_set(node: Node, argv: list[bytes]) -> None:
    """All values are read before the first takes effect."""
    values: dict[bytes, bytes | None] = {}
    for i in range(3, len(argv), 2):
        name = argv[i].lower()
        check_setting(name)
        values[name] = settings.check(name, argv[i + 1])
    check_queue_name(argv[2])
    rate = values[b"rate"] if b"rate" in values else settings.queue_setting(node, argv[2], b"rate")
    burst = values[b"burst"] if b"burst" in values else settings.queue_setting(node, argv[2], b"burst")
    if rate is not None and burst is not None:
        settings.check_burst(rate, burst)
    node.queue(argv[2])
    registers.put(node, settings.KIND, argv[2], values)


def queue_get(node: Node, session: Session, argv: list[bytes]) -> None:
    asked = [name.lower() for name in argv[3:]]
    with_stamp = b"withstamp" in asked
    names = [name for name in asked if name != b"withstamp"] or settings.NAMES
    for name in names:
        check_setting(name)
    found = node.queues.get(argv[2])
    out = node.out
    write_array(out, (4 if with_stamp else 2) * len(names))
    for name in names:
        write_bulk(out, name)
        text = settings.shown(node, argv[2], name)
        if name == b"paused":
            write_bulk(out, PAUSE_NAMES[0 if found is None else found.paused])
        elif name in settings.NUMBERS:
            write_int(out, int(text))
        else:
            write_bulk(out, text)
        if with_stamp:
            write_stamp(node, session, settings.KIND, argv[2], name)


def write_stamp(node: Node, session: Session, kind: bytes, name: bytes, field: bytes) -> None:
    """When and where a register was written; two nulls if never."""
    register = node.registers.find(kind, name, field)
    if register is None:
        write_null(node.out, session)
        write_null(node.out, session)
    else:
        write_int(node.out, register.time >> registers.STEPS)
        write_bulk(node.out, register.writer)


# -- domains ---------------------------------------------------------------------------------------------------


def domain(node: Node, session: Session, argv: list[bytes]) -> None:
    """Limits of domains: how fast jobs with this DOMAIN are handed out, over all queues and nodes.

    DOMAIN SET name RATE 10/s (or 30/m, 5/h, 1/d, none), BURST n that may come at once after a pause, CONCURRENCY n
    that may be out at a time (0: any number), ADAPT yes: NACK … RETRYAFTERMS slows it down for everybody. A name of the
    form *.example.com is the default for every domain that ends so, each for itself; * is the default for all. GET and
    LIST say for each domain its limits, how many of its jobs wait and are out at this node, which share of its rate it
    has, in thousandths, and in how many milliseconds the next may go out. GET asks the node that keeps the domain's
    rate for the last two, and they are null if that does not answer. LIST is of the domains this node knows jobs of, in
    order of their names, and of what is set; there both are as this node sees them, which for a domain that another
    keeps is nothing: 1000 and 0.
    """
    word = argv[1].upper()
    if word == b"SET" and len(argv) >= 5 and len(argv) % 2 == 1:
        domain_set(node, argv)
        node.out.write(b"+OK\r\n")
    elif word == b"GET" and len(argv) == 3:
        check_key(b"DOMAIN", argv[2])
        domains.tell_of(node, session, argv[2])
    elif word == b"LIST":
        domain_list(node, session, argv)
    elif word == b"DEL" and len(argv) == 3:
        check_key(b"DOMAIN", argv[2])
        was = domains.is_set(node, argv[2])
        registers.put(node, domains.KIND, argv[2], dict.fromkeys(domains.FIELDS))
        write_int(node.out, 1 if was else 0)
    else:
        raise BadRequest(DOMAIN_USE)


def check_key(option: bytes, name: bytes) -> None:
    if not name or len(name) > KEY_BYTES_MAX:
        raise BadRequest(b"ERR %b takes a name of 1 to %d bytes, not of %d" % (option, KEY_BYTES_MAX, len(name)))


def domain_set(node: Node, argv: list[bytes]) -> None:
    name = argv[2]
    check_key(b"DOMAIN", name)
    if b"*" in name and name != b"*" and (not name.startswith(b"*.") or b"*" in name[1:]):
        raise BadRequest(b"ERR a pattern is * or begins with *. and has no other *")
    values: dict[bytes, bytes | None] = {}
    for i in range(3, len(argv), 2):
        field = argv[i].lower()
        value = argv[i + 1]
        if field == b"rate":
            values[field] = settings.check(field, value)
        elif field == b"burst":
            values[field] = settings.number(field, value, BURST_MAX)
        elif field == b"concurrency":
            values[field] = settings.number(field, value, CONCURRENCY_MAX)
        elif field == b"adapt":
            if value.lower() not in (b"yes", b"no"):
                raise BadRequest(b"ERR ADAPT must be yes or no")
            values[field] = value.lower()
        else:
            raise BadRequest(DOMAIN_USE)
    rate = values[b"rate"] if b"rate" in values else registers.value(node, domains.KIND, name, b"rate")
    burst = values[b"burst"] if b"burst" in values else registers.value(node, domains.KIND, name, b"burst")
    if rate is not None and burst is not None:
        settings.check_burst(rate, burst)
    registers.put(node, domains.KIND, name, values)


def domain_list(node: Node, session: Session, argv: list[bytes]) -> None:
    after = b""
    count: i64 = SCAN_COUNT_DEFAULT
    for i in range(2, len(argv), 2):
        option = argv[i].upper()
        if option == b"CURSOR":
            cursor = value_of(argv, i)
            if cursor != b"0" and not cursor.startswith(b"="):
                raise BadRequest(errors.BAD_CURSOR)
            after = cursor[1:]
        elif option == b"COUNT":
            count = min(at_least(value_of(argv, i), 1, errors.COUNT_RANGE), SCAN_COUNT_MAX)
        else:
            raise BadRequest(DOMAIN_USE)
    names = sorted([
        name for name in {*node.domains.table, *registers.names(node, domains.KIND)} if name > after
    ])
    page = names[:count]
    write_array(node.out, 2)
    write_bulk(node.out, b"0" if len(page) == len(names) else b"=" + page[-1])
    write_array(node.out, len(page))
    for name in page:
        domains.write(node, node.out, name, domains.bucket(node, name), session)


# -- tenants ---------------------------------------------------------------------------------------------------


def tenant(node: Node, session: Session, argv: list[bytes]) -> None:
    """Shares of tenants in a queue: TENANT SET queue tenant weight, TENANT LIST queue.

    A queue's hand-outs rotate over the tenants that have jobs in it; one with weight 3 gets three for each one of a
    tenant with weight 1, which is what a tenant has that was not told otherwise (0 makes it so again). LIST answers
    for each tenant with a weight or with jobs at this node its name, its weight and how many of its jobs wait here.
    """
    word = argv[1].upper()
    check_queue_name(argv[2])
    if word == b"SET" and len(argv) == 5:
        check_key(b"TENANT", argv[3])
        weight = at_least(argv[4], 0, b"ERR a weight is a number from 0 to %d" % WEIGHT_MAX)
        if weight > WEIGHT_MAX:
            raise BadRequest(b"ERR a weight is a number from 0 to %d" % WEIGHT_MAX)
        registers.put(node, tenants.KIND, argv[2], {argv[3]: None if weight == 0 else b"%d" % weight})
        node.out.write(b"+OK\r\n")
    elif word == b"LIST" and len(argv) == 3:
        tenant_list(node, argv[2])
    else:
        raise BadRequest(TENANT_USE)


def tenant_list(node: Node, name: bytes) -> None:
    found: dict[bytes, int] = {}
    fields = node.registers.things.get((tenants.KIND, name))
    if fields is not None:
        found.update({each: 0 for each, register in fields.items() if register.value is not None})
    known = node.queues.get(name)
    if known is not None and known.rules is not None:
        found.update({line.tenant: int(line.size) for line in known.rules.lines.values() if line.size > 0})
        found.pop(b"", None)
    write_array(node.out, len(found))
    for each in sorted(found):
        write_array(node.out, 3)
        write_bulk(node.out, each)
        write_int(node.out, tenants.weight(node, name, each))
        write_int(node.out, found[each])
