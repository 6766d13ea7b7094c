"""Who looks at the pages: a login, a signed cookie, and a token on every form.

Nothing is kept at the gateway. The cookie says who and until when, signed with a key made from that user's hashed
secret; so every gateway with the same users file believes it, and none does after the secret was changed. Each form
carries a second token signed for that cookie, and a form that another site has sent is refused before that is even
looked at (gateway/sites.py). Without users everybody on this machine may look; forms are signed all the same.
"""
from __future__ import annotations

import hashlib
import hmac
import secrets
import time

from fastapi import Request, Response

from holdfast.core.rights import User
from holdfast.gateway.problems import Unauthorized
from holdfast.gateway.who import ANYBODY, Door

COOKIE = "holdfast"
LIFE_S = 12 * 3600
"""A working day: who comes back tomorrow logs in again."""
LOCAL_KEY = secrets.token_bytes(32)


class Forbidden(Exception):
    """A form that this console did not make."""


def sign(key: bytes, *words: str) -> str:
    return hmac.new(key, "\0".join(words).encode(), hashlib.sha256).hexdigest()


def key_of(door: Door, name: str) -> bytes:
    """What a user's cookies are signed with. Raises Unauthorized if there is no such user."""
    if door.logins is None:
        return LOCAL_KEY
    kept = door.logins.kept.get(name.encode())
    if kept is None:
        raise Unauthorized("there is no such user")
    return hashlib.sha256(b"console\0" + kept.salt + kept.digest).digest()


def make_cookie(door: Door, name: str, now: float) -> str:
    until, nonce = str(int(now) + LIFE_S), secrets.token_hex(16)
    return ".".join([name.encode().hex(), until, nonce, sign(key_of(door, name), name, until, nonce)])


def read_cookie(door: Door, cookie: str, now: float) -> User:
    """Raises Unauthorized."""
    try:
        coded, until, nonce, signature = cookie.split(".")
        name = bytes.fromhex(coded).decode()
        is_right = hmac.compare_digest(signature, sign(key_of(door, name), name, until, nonce)) and int(until) > now
    except (ValueError, UnicodeDecodeError):
        raise Unauthorized("log in first") from None
    if not is_right:
        raise Unauthorized("log in again")
    return ANYBODY if door.logins is None else door.logins.users[name.encode()]


def set_cookie(response: Response, request: Request, cookie: str) -> None:
    response.set_cookie(
        COOKIE, cookie, max_age=LIFE_S, httponly=True, samesite="strict", secure=request.url.scheme == "https",
        path="/console",
    )


def form_token(door: Door, user: User, cookie: str) -> str:
    """What every form of a page carries."""
    return sign(key_of(door, user.name.decode()), "form", cookie)


def check_form(door: Door, user: User, cookie: str, token: str) -> None:
    """Raises Forbidden."""
    if not hmac.compare_digest(token, form_token(door, user, cookie)):
        raise Forbidden("this page is too old, or was not made here: load it again")


def now() -> float:
    return time.time()
