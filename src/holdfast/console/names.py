"""Names of queues, tenants, domains and groups, which are bytes: how a page writes them, for people and in its links.

A name may be empty, a blank, no text at all, or hold characters that nobody sees or that turn the text around them.
In Python such a name is a `str` with surrogates, as everywhere in the client. On the way to a browser and back it is
*coded*: itself where it is text, and otherwise `hex:` with its bytes, as in `hex:fffe`. The empty one is `hex:`, since
no name at all means something else in a filter; and a name that looks as if it were coded is coded. So every name has
one coded form, which may be typed into any field as well. To people a name is *called* what can be seen of it.
"""
from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any

from markupsafe import Markup
from pydantic import AfterValidator

from holdfast.client.resp import to_bytes, to_text

CODED = re.compile(r"hex:((?:[0-9a-f]{2})*)")
SIMPLE = re.compile(r"(?!hex:)[!-~]+")
"""Most names: they are themselves in every form."""
UNSEEN = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols by their kind, and yet nothing to see."""
KEPT = frozenset("\u200c\u200d")
"""Joiners: parts of words in some scripts."""
CODED_MAX = 2100
"""Characters of a coded name: the longest name there is, as hex."""


def coded(name: Any) -> str:
    text = str(name)
    if SIMPLE.fullmatch(text):
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"hex:{to_bytes(text).hex()}"
    is_plain = text and not CODED.fullmatch(text) and not any(unicodedata.category(each) == "Cc" for each in text)
    return text if is_plain else f"hex:{text.encode().hex()}"


def decoded(text: str) -> str:
    found = CODED.fullmatch(text)
    return to_text(bytes.fromhex(found[1])) if found else text


def is_unseen(text: str, at: int) -> bool:
    each = text[at]
    if each == " ":
        return at == 0 or at == len(text) - 1 or text[at - 1] == " " or text[at + 1] == " "
    if each in KEPT:
        return len(text) == 1
    return each in UNSEEN or unicodedata.category(each)[0] in "CZ"


def visible(each: str) -> str:
    """A character that nobody sees, as others write it."""
    code = ord(each)
    if each == " ":
        return "␠"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def called(name: Any) -> str:
    """A name in characters that can be seen."""
    text = str(name)
    if not text:
        return "(empty)"
    if SIMPLE.fullmatch(text):
        return text
    return "".join(visible(each) if is_unseen(text, at) else each for at, each in enumerate(text))


def shown(name: Any) -> Markup:
    """The same on a page: by itself, so that what is written from right to left turns nothing else around, and marked
    where it is not the name letter by letter."""
    words = called(name)
    return Markup('<bdi class="odd">{}</bdi>' if words != str(name) else "<bdi>{}</bdi>").format(words)


def marked(row: dict[str, Any], name: str) -> dict[str, Any]:
    """A row of live figures with what console.js needs where a name is not simply itself."""
    if SIMPLE.fullmatch(name):
        return row
    more = {"key": coded(name), "shown": called(name)}
    return row if set(more.values()) == {name} else {**row, **more}


Decoded = AfterValidator(decoded)
Named = Annotated[str, Decoded]
