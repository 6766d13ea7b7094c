"""Reading the arguments of commands: numbers as strict as Disque reads them, and option words."""
from __future__ import annotations

from mypy_extensions import i64

from holdfast.core import errors
from holdfast.core.errors import BadRequest
from holdfast.core.ids import is_id
from holdfast.core.limits import DURATION_S_MAX, TIMEOUT_MS_MAX

# More digits than this cannot be a sensible number, and would not fit 64 bits.
DIGITS_MAX = 18


def integer(text: bytes, error: bytes) -> i64:
    """A decimal integer: digits, perhaps a minus sign, nothing else. Raises BadRequest(error)."""
    n: i64 = len(text)
    i: i64 = 0
    negative = n > 0 and text[0] == 45
    if negative:
        i = 1
    if i >= n or n - i > DIGITS_MAX:
        raise BadRequest(error)
    value: i64 = 0
    while i < n:
        digit: i64 = text[i] - 48
        if digit < 0 or digit > 9:
            raise BadRequest(error)
        value = value * 10 + digit
        i += 1
    return -value if negative else value


def at_least(text: bytes, low: i64, error: bytes) -> i64:
    value = integer(text, error)
    if value < low:
        raise BadRequest(error)
    return value


def seconds(text: bytes, low: i64, error: bytes) -> i64:
    """A duration in seconds; refused rather than wrapped when it does not fit."""
    value = at_least(text, low, error)
    if value > DURATION_S_MAX:
        raise BadRequest(errors.TOO_LONG)
    return value


def timeout_ms(text: bytes) -> i64:
    """A client's patience in milliseconds; 0 is for ever."""
    value = integer(text, errors.TIMEOUT_NOT_AN_INTEGER)
    if value < 0:
        raise BadRequest(errors.TIMEOUT_NEGATIVE)
    if value > TIMEOUT_MS_MAX:
        raise BadRequest(errors.TIMEOUT_NOT_AN_INTEGER)
    return value


def value_of(argv: list[bytes], i: int) -> bytes:
    """The value that must follow the option at `i`."""
    if i + 1 >= len(argv):
        raise BadRequest(b"%b after '%b'" % (errors.SYNTAX, errors.printable(argv[i])))
    return argv[i + 1]


def no_option(word: bytes) -> BadRequest:
    """For a word that is no option, or not here."""
    return BadRequest(b"%b at '%b'" % (errors.SYNTAX, errors.printable(word)))


def check_ids(argv: list[bytes], first: int = 1) -> None:
    """All ids of a command are looked at before anything is done about one of them."""
    for i in range(first, len(argv)):
        if not is_id(argv[i]):
            raise BadRequest(errors.BAD_ID)
