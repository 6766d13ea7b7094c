"""Who the users are, and whether a secret is right: a file, a slow hash in a thread, and patience with guessers.

The file is TOML, one table per user, made by `holdfast users`:

    [users.alice]
    secret = "scrypt$14$8$1$<salt>$<hash>"
    roles = ["produce", "consume"]
    queues = ["mail.*"]

A secret is kept as an scrypt hash, which takes tens of milliseconds and 16 MB to try: in two threads, so that a crowd
of guessers costs the loop nothing. A secret that was right once is known again by a keyed hash in memory, so that a
client which connects often does not wait. An unknown name takes as long as a known one.

Before a secret is looked at, whoever gives it must have some of its allowance left (strangers.py): a host, a user, and
the pair of both may be wrong WRONG_AT_ONCE times, and then once a second. A secret that is known needs only that of
the pair, so nobody elsewhere can keep a user out by guessing. Without an allowance, or with too many in the queue, the
answer is LATER, and says nothing of the secret. Every door comes here: nodes with users or `requirepass`, gateways, and
embedded queues that are served.
"""
from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
import tomllib
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.core.rights import ADMIN, ALL_ROLES, ROLE_NAMES, User
from holdfast.core.users import DEFAULT, LATER, RIGHT, WRONG
from holdfast.shell.bounds import COMPLAINTS, NEWS
from holdfast.shell.few_lines import FewLines
from holdfast.shell.settings import SettingsError
from holdfast.shell.strangers import (
    HASH_THREADS,
    HASHES_FOR_ADMINS,
    HASHES_PER_HOST,
    HASHES_WAITING_MAX,
    REFUSED_S,
    Allowances,
    host_of,
    is_here,
)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
COST, BLOCK, LANES = 14, 8, 1
"""scrypt: 2**14 rounds over 16 MB, the numbers its author gives for logins."""
NAME_BYTES_MAX = 64
SALT_BYTES = 16
HASH_BYTES = 32
MEMORY_BYTES = 64 * 1024 * 1024
SECRET_CHARS_MIN = 12
"""A secret that people choose is at least this long; those we make have 32 characters."""


def hash_secret(secret: str | bytes, salt: bytes | None = None) -> str:
    """As it is kept."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    digest = scrypt(secret if isinstance(secret, bytes) else secret.encode(), salt, COST, BLOCK, LANES)
    return "$".join(["scrypt", str(COST), str(BLOCK), str(LANES), text_of(salt), text_of(digest)])


def scrypt(secret: bytes, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(secret, salt=salt, n=1 << cost, r=block, p=lanes, maxmem=MEMORY_BYTES, dklen=HASH_BYTES)


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


class Kept:
    """A hash that is kept, taken apart."""

    def __init__(self, text: str) -> None:
        parts = text.split("$")
        if len(parts) != 6 or parts[0] != "scrypt" or not all(part.isdigit() for part in parts[1:4]):
            raise ValueError("its secret is no scrypt hash: make one with `holdfast users`")
        self.cost, self.block, self.lanes = (int(part) for part in parts[1:4])
        if not (10 <= self.cost <= 16 and 1 <= self.block <= 16 and 1 <= self.lanes <= 4):
            raise ValueError("its secret is hashed with numbers that no node would try")
        try:
            self.salt, self.digest = (base64.b64decode(part + "=" * (-len(part) % 4)) for part in parts[4:])
        except binascii.Error:
            raise ValueError("its secret is not written in base64") from None

    def is_right(self, secret: bytes) -> bool:
        found = scrypt(secret, self.salt, self.cost, self.block, self.lanes)
        return hmac.compare_digest(found, self.digest)


def read_users(path: Path) -> tuple[dict[bytes, User], dict[bytes, Kept]]:
    """The users in a file, and their hashes. Raises SettingsError."""
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("users", {})
    except OSError as error:
        raise SettingsError(f"cannot read the users-file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the users-file {path} is not TOML: {error}") from None
    users: dict[bytes, User] = {}
    kept: dict[bytes, Kept] = {}
    for name, entry in table.items():
        try:
            users[name.encode()] = read_user(name, entry)
            kept[name.encode()] = Kept(str(entry["secret"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            words = str(error) if isinstance(error, ValueError) else "it takes a secret, roles and perhaps queues"
            raise SettingsError(f"the users-file {path}, user '{name}': {words}") from None
    if not users:
        raise SettingsError(f"the users-file {path} has no users: nobody could connect")
    return users, kept


def read_user(name: str, entry: dict[str, object]) -> User:
    if NAME.fullmatch(name) is None:
        raise ValueError("a name is made of letters, digits and . _ @ -, at most 64 of them")
    unknown = set(entry) - {"secret", "roles", "queues"}
    if unknown:
        raise ValueError(f"there is no '{sorted(unknown)[0]}' of a user")
    return User(name.encode(), read_roles(entry["roles"]), read_patterns(entry.get("queues", [])))


def read_roles(words: object) -> int:
    if not isinstance(words, list) or not words:
        raise ValueError("roles is a list of read, produce, consume, admin")
    roles = 0
    for word in words:
        if str(word).encode() not in ROLE_NAMES:
            raise ValueError(f"there is no role '{word}': read, produce, consume, admin")
        roles |= ROLE_NAMES[str(word).encode()]
    return roles


def read_patterns(words: object) -> list[bytes]:
    if not isinstance(words, list):
        raise ValueError("queues is a list of names or patterns such as mail.*")
    patterns = [str(word).encode() for word in words]
    return [] if b"*" in patterns else patterns


def entries_of(users: dict[bytes, User], kept: dict[bytes, Kept]) -> dict[str, tuple[int, list[bytes], bytes]]:
    """What is said of each, to be compared."""
    return {name.decode(): (user.roles, user.patterns, kept[name].digest) for name, user in users.items()}


class Logins:
    """Finds out whether secrets are right, and says so to `answer` when it has. Without a path there are no users but
    DEFAULT, once it has a password."""

    def __init__(self, path: Path | None, answer: Callable[[object, bytes, int], None]) -> None:
        self.path = path
        self.answer = answer
        self.users: dict[bytes, User] = {}
        self.kept: dict[bytes, Kept] = {}
        if path is not None:
            self.users, self.kept = read_users(path)
        self.password: tuple[bytes, Kept] | None = None
        self.key = secrets.token_bytes(32)
        self.known: dict[bytes, bytes] = {}  # user -> keyed hash of the secret that was right
        self.nobody = Kept(hash_secret(secrets.token_hex()))
        self.threads = ThreadPoolExecutor(HASH_THREADS, "holdfast-login")
        self.waiting: Counter[str] = Counter()  # for a thread, by host
        self.of_pairs, self.of_hosts, self.of_users = Allowances(), Allowances(), Allowances()
        self.tasks: set[asyncio.Task[None]] = set()
        self.refusals = FewLines("logins", logging.WARNING, COMPLAINTS)
        self.successes = FewLines("logins", logging.INFO, NEWS)

    def reload(self) -> str:
        """Read the file again; who has changed. Raises SettingsError, and then all stays as it was."""
        assert self.path is not None
        before, hashes = entries_of(self.users, self.kept), self.kept
        self.users, self.kept = read_users(self.path)
        for name, kept in self.kept.items():
            if name not in hashes or (kept.salt, kept.digest) != (hashes[name].salt, hashes[name].digest):
                self.known.pop(name, None)
        for name in hashes.keys() - self.kept.keys():
            self.known.pop(name, None)
        after = entries_of(self.users, self.kept)
        groups = {
            "added": after.keys() - before.keys(), "removed": before.keys() - after.keys(),
            "changed": {name for name in after.keys() & before.keys() if after[name] != before[name]},
        }
        said = [f"{word} {', '.join(sorted(names))}" for word, names in groups.items() if names]
        return "; ".join(said) or "the same as before"

    def set_password(self, password: bytes) -> None:
        """The secret of DEFAULT, beside the users; none if it is empty."""
        if self.password is not None and hmac.compare_digest(self.password[0], password):
            return
        self.known.pop(DEFAULT, None)
        self.password = (password, Kept(hash_secret(password))) if password else None

    def kept_of(self, name: bytes) -> Kept | None:
        return self.password[1] if self.password is not None and name == DEFAULT else self.kept.get(name)

    def is_admin(self, name: bytes) -> bool:
        user = self.users.get(name, User(name, ALL_ROLES if name == DEFAULT and self.password else 0, []))
        return bool(user.roles & ADMIN)

    def check(self, session: object, address: str, name: bytes, secret: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self.find_out(session, address, name, secret))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def find_out(self, session: object, address: str, name: bytes, secret: bytes) -> None:
        verdict = await self.judge(host_of(address), name, secret)
        shown = f"{name[:64].decode('ascii', 'backslashreplace')!r} from {address}"
        if verdict == WRONG:
            self.refusals.say(shown, "the secret is wrong, or there is no such user")
        elif verdict == LATER:
            self.refusals.say(shown, "not looked at: too many logins were wrong or wait")
            await asyncio.sleep(REFUSED_S)
        self.answer(session, name, verdict)

    async def judge(self, host: str, name: bytes, secret: bytes) -> int:
        """RIGHT, WRONG, or LATER where nobody has looked."""
        asked = name[:NAME_BYTES_MAX]
        pair = host, asked
        if not self.of_pairs.has_some(pair):
            return LATER
        mark = hmac.digest(self.key, name + b"\0" + secret, "sha256")
        known = self.known.get(name)
        if known is not None and hmac.compare_digest(known, mark):
            return RIGHT
        allowances: list[tuple[Allowances, Hashable]] = [(self.of_pairs, pair), (self.of_hosts, host)]
        if not is_here(host):  # others may use up what is left for a user, but not for who sits at the machine itself
            allowances.append((self.of_users, asked))
        if not all(each.has_some(key) for each, key in allowances) or not self.has_room(host, name):
            return LATER
        kept = self.kept_of(name)
        for each, key in allowances:
            each.take(key)  # before it is known: else many at once would get in front of the answer to the first
        self.waiting[host] += 1
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self.threads, (kept or self.nobody).is_right, secret)
        finally:
            self.waiting[host] -= 1
            if not self.waiting[host]:
                del self.waiting[host]
        if not is_right or kept is None or self.kept_of(name) is not kept:
            return WRONG
        for each, key in allowances:
            each.give_back(key)
        self.known[name] = mark
        self.successes.say(repr(name.decode()), f"logged in, first from {host}")
        return RIGHT

    def has_room(self, host: str, name: bytes) -> bool:
        """Whether the queue before the threads takes one more."""
        most = HASHES_WAITING_MAX - (0 if self.is_admin(name) else HASHES_FOR_ADMINS)
        return self.waiting[host] < HASHES_PER_HOST and self.waiting.total() < most

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.threads.shutdown(wait=False, cancel_futures=True)
