"""Commands of workers about the jobs they have: acknowledging with a result, giving back, asking for more time."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import cancel, errors, handback, tokens
from holdfast.core.errors import BadRequest
from holdfast.core.ids import is_id
from holdfast.core.limits import DURATION_S_MAX, LEASES_AT_ONCE, PROGRESS_BYTES_MAX, RESULT_BYTES_MAX
from holdfast.core.more import cut
from holdfast.core.parse import at_least, check_ids, no_option, seconds, value_of
from holdfast.core.reply import write_int
from holdfast.core.session import Session
from holdfast.core.tokens import Deed

if TYPE_CHECKING:
    from holdfast.core.node import Node

ACK_WORDS: Final = (b"TOKEN", b"RESULT")
BACK_WORDS: Final = (b"TOKEN", b"DELAY", b"ERROR", b"RETRYAFTERMS", b"DEAD")


def has_options(argv: list[bytes], words: tuple[bytes, ...]) -> bool:
    """Whether one job with options is meant, not many ids."""
    return len(argv) > 2 and argv[2].upper() in words


def ack_one(node: Node, session: Session, argv: list[bytes]) -> None:
    """ACKJOB id [TOKEN t] [RESULT bytes]"""
    check_ids(argv[:2])
    deed = Deed(tokens.ACK, argv[1], b"")
    for i in range(2, len(argv), 2):
        word = argv[i].upper()
        value = value_of(argv, i)
        if word == b"TOKEN":
            deed.token = value
        elif word == b"RESULT":
            if len(value) > RESULT_BYTES_MAX:
                raise BadRequest(errors.RESULT_LONG)
            deed.text = value
            deed.has_text = True
        else:
            raise no_option(word)
    deed.session = session
    if deed.token:
        tokens.do(node, session, deed)
    else:
        write_int(node.out, 1 if tokens.take_ack(node, deed) == tokens.DONE else 0)


def ackjobs(node: Node, session: Session, argv: list[bytes]) -> None:
    """Acknowledge many jobs, each under the token that GETJOB WITHMETA gave.

    Answers with one reply for each, what ACKJOB id TOKEN token would answer: 1, 0 if the job had ended before, or the
    error LEASELOST, which concerns that job alone.
    """
    tokens.do_all(node, session, read_pairs(argv, 1, tokens.ACK, errors.ACK_PAIRS))


def nack(node: Node, session: Session, argv: list[bytes]) -> None:
    """Give jobs back because they could not be done. Answers how many.

    Plain ids are queued again at once, and their count of nacks grows; without a token, too, the node that gave the job
    is told, if it can be reached. With options it is about one job: TOKEN is the
    one that GETJOB WITHMETA gave, and a stale one is refused with LEASELOST. The job is queued again after DELAY
    seconds; without it, as its BACKOFF or that of its queue says: between half of the time and all of it, and the time
    doubles with each failure. Where the job or its queue sets ATTEMPTS, the last of them makes it dead; DEAD makes it
    dead at once. ERROR is kept with the job, up to 1024 bytes of it. RETRYAFTERMS says for how long whoever the worker
    called wants to be left alone: the job waits for so long at least, and with DOMAIN SET … ADAPT yes its whole domain
    does, and is slower after that.
    """
    give_back(node, session, argv, tokens.NACK)


def release(node: Node, session: Session, argv: list[bytes]) -> None:
    """Give jobs back without blame, because the worker stops: that uses up no attempt. Answers how many.

    With TOKEN it is about one job, which is queued again after DELAY seconds, at once without it.
    """
    give_back(node, session, argv, tokens.RELEASE)


def give_back(node: Node, session: Session, argv: list[bytes], what: i64) -> None:
    if has_options(argv, BACK_WORDS):
        deed = read_deed(argv, what)
        if deed.token:
            tokens.do(node, session, deed)
        else:
            handback.do_all(node, session, [deed])
        return
    check_ids(argv)
    handback.do_all(node, session, [Deed(what, jid, b"") for jid in argv[1:]])


def read_deed(argv: list[bytes], what: i64) -> Deed:
    check_ids(argv[:2])
    deed = Deed(what, argv[1], b"")
    i = 2
    while i < len(argv):
        word = argv[i].upper()
        if word == b"DEAD" and what == tokens.NACK:
            deed.is_final = True
            i += 1
            continue
        value = value_of(argv, i)
        if word == b"TOKEN":
            deed.token = value
        elif word == b"DELAY":
            deed.ms = seconds(value, 0, errors.DELAY_RANGE) * 1000
        elif word == b"ERROR" and what == tokens.NACK:
            deed.text = cut(value)
        elif word == b"RETRYAFTERMS" and what == tokens.NACK:
            deed.number = at_least(value, 1, errors.RETRY_AFTER_RANGE)
            if deed.number > DURATION_S_MAX:
                raise BadRequest(errors.RETRY_AFTER_RANGE)
        else:
            raise no_option(word)
        i += 2
    return deed


def keepalive(node: Node, session: Session, argv: list[bytes]) -> None:
    """Say that jobs are being worked on: the lease of each ends that many milliseconds from now, whatever was left.

    Answers with a word for each: ok; cancelled, which is ok, but somebody has called the job off (CANCEL); lost, if the
    lease has ended and the job may be with another worker; unknown, if the node that gave it cannot be asked now.
    A lease can be made longer as often as wanted, up to the end of the job's life.
    """
    ms = at_least(argv[1], 1, errors.KEEP_RANGE)
    if ms > DURATION_S_MAX:
        raise BadRequest(errors.KEEP_RANGE)
    deeds = read_pairs(argv, 2, tokens.KEEP, errors.KEEP_RANGE)
    for deed in deeds:
        deed.ms = ms
    tokens.do_all(node, session, deeds)


def read_pairs(argv: list[bytes], first: i64, what: i64, wrong: bytes) -> list[Deed]:
    """The same deed for many: id and token of each."""
    words = i64(len(argv)) - first
    if words % 2 == 1 or words < 2 or words > 2 * LEASES_AT_ONCE:
        raise BadRequest(wrong)
    deeds: list[Deed] = []
    for i in range(first, len(argv), 2):
        if not is_id(argv[i]):
            raise BadRequest(errors.BAD_ID)
        deeds.append(Deed(what, argv[i], argv[i + 1]))
    return deeds


def progress(node: Node, session: Session, argv: list[bytes]) -> None:
    """Say how far the work on a job is: a fraction from 0 to 1, and a line of text, which SHOW tells.

    Answers ok, or cancelled if somebody has called the job off. It does not make the lease longer.
    """
    check_ids(argv[:2])
    deed = Deed(tokens.PROGRESS, argv[1], argv[2])
    deed.number = thousandths(argv[3])
    deed.text = argv[4][:PROGRESS_BYTES_MAX]
    tokens.do(node, session, deed)


def thousandths(text: bytes) -> i64:
    """A fraction from 0 to 1 as people write it."""
    whole, _, rest = text.partition(b".")
    digits = whole + rest
    if not digits or not digits.isdigit() or len(text) > 20:
        raise BadRequest(errors.FRACTION_RANGE)
    value = int(whole or b"0") * 1000 + int((rest + b"000")[:3])
    if value > 1000:
        raise BadRequest(errors.FRACTION_RANGE)
    return value


def cancel_job(node: Node, session: Session, argv: list[bytes]) -> None:
    """Call a job off, wherever in the cluster it is.

    cancelled: it waited, and is ended. asked: a worker has it, and is told at its next KEEPALIVE or PROGRESS; if it
    comes back without an ack it is ended then. unknown: no node that can be heard knows it.
    """
    check_ids(argv)
    cancel.cancel(node, session, argv[1])
