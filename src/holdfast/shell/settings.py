"""Where settings come from, and where they are kept.

    a flag  >  a HOLDFAST_… variable  >  what CONFIG REWRITE saved in the dir  >  the file  >  the default

What CONFIG REWRITE saved must hold after a restart with the same command line, also where that command line
names the setting. So a saved value remembers what the flag or variable said when it was saved, and wins as
long as that still says the same; a flag that has been changed since is a newer word than the saved one.

The file is TOML with the names of core/config.py as keys. The node's id is in the dir, too, and the nodes it
knows. The cluster's secret is taken out of the settings as soon as they are read: nothing that shows settings
can show it.
"""
from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.core.config import BY_NAME, BadSetting, Config
from holdfast.journal import identity
from holdfast.journal.folder import JournalError
from holdfast.journal.lock import lock, unlock
from holdfast.shell import clock, cluster_secret

log = logging.getLogger("holdfast")

SAVED = "settings.toml"
NODES = "nodes"
NODE_LINE = re.compile(r"([0-9a-f]{40}) ([A-Za-z0-9._:%-]+) ([0-9]{1,5}) ([0-9]{1,5})")
HIDDEN = "(hidden)"
PREFIX = "HOLDFAST_"
LOG_LEVELS = {
    "debug": logging.DEBUG, "verbose": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING,
}
# Variables that begin like a setting and are none.
NOT_SETTINGS = {"HOLDFAST_PURE", "HOLDFAST_COMPILE", "HOLDFAST_OPT", "HOLDFAST_SECRET", "HOLDFAST_URL", "HOLDFAST_LAKE"}


class SettingsError(Exception):
    """Settings that cannot be used; the message is for the person who started the node."""


class SecretError(SettingsError):
    """The cluster's secret cannot be used, or read."""


def variable(name: str) -> str:
    return PREFIX + name.upper().replace("-", "_")


def read_toml(path: Path) -> dict[str, str]:
    """The settings in a file, as text."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"there is no file {path}") from None
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    settings = {}
    for name, value in table.items():
        if name == "said" and isinstance(value, dict):
            continue
        if isinstance(value, bool):
            settings[name] = "yes" if value else "no"
        elif isinstance(value, (str, int)):
            settings[name] = str(value)
        else:
            raise SettingsError(f"{path}: the value of '{name}' is neither text nor a number nor true or false")
        if name not in BY_NAME:
            raise SettingsError(f"{path}: there is no setting '{name}'")
    return settings


class Settings:
    """The settings of a node to be started, and what it takes to save them again."""

    def __init__(
        self, flags: Mapping[str, str], file: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self.config = Config()
        self.held_lock = -1
        self.file = file
        environ = os.environ if environ is None else environ
        self.said = {**from_environment(environ), **flags}  # flags and variables: what was said at this start
        from_file = read_toml(file) if file is not None else {}
        folder = self.said.get("dir", from_file.get("dir", ""))
        self.dir = Path(folder) if folder else None
        saved: dict[str, str] = {}
        said_before: dict[str, str] = {}
        if self.dir is not None and (self.dir / SAVED).exists():
            saved = read_toml(self.dir / SAVED)
            said_before = {str(k): str(v) for k, v in read_said(self.dir / SAVED).items()}
        self.saved = saved
        for name in {**from_file, **saved, **self.said}:
            value = from_file.get(name)
            source = str(file)
            if name in saved and (name not in self.said or said_before.get(name) == self.said[name]):
                value, source = saved[name], f"{self.dir}/{SAVED}"
            elif name in self.said:
                value, source = self.said[name], f"--set, its flag, or {variable(name)}"
            assert value is not None
            try:
                self.config.set(name, value)
            except BadSetting as error:
                raise SettingsError(f"{name}: {error} ({source})") from None
        self.secrets = self.take_secrets()

    def take_secrets(self) -> tuple[bytes, ...]:
        """The cluster's secrets, the newest first; empty: none was given."""
        text, path = self.config.text("cluster-secret"), self.config.text("cluster-secret-file")
        if text and path:
            raise SettingsError("both cluster-secret and cluster-secret-file are set; one is enough")
        try:
            if text:
                self.config.set("cluster-secret", HIDDEN)
                return (cluster_secret.checked(text.encode("utf-8", "surrogateescape"), "cluster-secret"),)
            return cluster_secret.read_file(path) if path else ()
        except cluster_secret.BadSecret as error:
            raise SecretError(str(error)) from None

    def save(self) -> None:
        """Keep what CONFIG SET has changed, so that it holds after a restart. Raises SettingsError."""
        if self.dir is None:
            raise SettingsError("The server is running without a config file")
        self.saved.update({name: self.config.text(name) for name in self.config.changed})
        lines = ["# Written by CONFIG REWRITE. What holds over what: see the reference of settings."]
        lines += [f"{name} = {quoted(value)}" for name, value in sorted(self.saved.items())]
        said = {name: self.said[name] for name in self.saved if name in self.said}
        if said:
            lines += ["", "# What the command line and the environment said when this was saved.", "[said]"]
            lines += [f"{name} = {quoted(value)}" for name, value in sorted(said.items())]
        write_whole(self.dir / SAVED, "\n".join(lines) + "\n")
        self.config.changed.clear()

    def lock(self) -> None:
        """Take the dir for this process: two nodes with one id would be one too many. Raises SettingsError.

        Several behind one port have a folder each, and who starts them has the one around these.
        """
        if self.dir is not None:
            with said_to_the_user():
                self.held_lock = lock(self.dir)
                is_one_of_many = self.config.number("core") > 0
                identity.check_cores(self.dir, 1 if is_one_of_many else self.config.number("cores"))

    def unlock(self) -> None:
        unlock(self.held_lock)
        self.held_lock = -1

    def node_id(self) -> bytes:
        """This node's id: kept in the dir, or a new one each time where there is none."""
        folder = self.dir
        if folder is None and self.config.number("core") > 0:
            # One of several behind one port that is started again: to the others it is the same node.
            folder = Path(self.config.text("cluster-bus-unixsocket") + ".kept")
        if folder is None:
            return identity.new_node_id()
        with said_to_the_user():
            return identity.node_id(folder)

    def save_node_id(self, node_id: bytes) -> None:
        """This node has another id from now on."""
        if self.dir is not None:
            write_whole(self.dir / identity.NODE_ID, node_id.decode() + "\n")

    def keeps_journal(self) -> bool:
        """Whether there is a journal to load and to write."""
        return self.dir is not None and (self.config.is_on("appendonly") or self.loads_once())

    def loads_once(self) -> bool:
        return self.dir is not None and self.config.is_on("aof-enqueue-jobs-once")

    def incarnation(self) -> int:
        """Which life of the node's data this is: the same as before, if it comes back with its journal."""
        if self.dir is None:
            return clock.wall_ms()
        with said_to_the_user():
            return identity.incarnation(self.dir, self.keeps_journal(), clock.wall_ms())

    def save_nodes(self, text: str) -> None:
        if self.dir is not None:
            write_whole(self.dir / NODES, text)

    def known_nodes(self) -> list[tuple[bytes, str, int, int]]:
        """The nodes that were known when this one last ran: id, host, port, bus port."""
        if self.dir is None or not (self.dir / NODES).exists():
            return []
        try:
            lines = (self.dir / NODES).read_text("ascii", "replace").splitlines()
        except OSError as error:
            raise SettingsError(f"cannot read {self.dir / NODES}: {error.strerror}") from None
        matches = [NODE_LINE.fullmatch(line) for line in lines]
        for number, match in enumerate(matches, 1):
            if match is None:
                raise SettingsError(
                    f"{self.dir / NODES}, line {number}: this is no node; without the file the node starts alone"
                )
        return [(m[1].encode(), m[2], int(m[3]), int(m[4])) for m in matches if m is not None]


@contextlib.contextmanager
def said_to_the_user() -> Iterator[None]:
    """What is wrong with the folder is wrong with the settings: it ends the start in the same way."""
    try:
        yield
    except JournalError as error:
        raise SettingsError(str(error)) from None


told: set[str] = set()  # variables that were complained about once


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    names = {variable(name): name for name in BY_NAME}
    found = {}
    for key, value in environ.items():
        if key in names:
            found[names[key]] = value
            if value.startswith("tcp://"):  # put there by Kubernetes for a service of our name
                del found[names[key]]
        elif key.startswith(PREFIX) and key not in NOT_SETTINGS and key not in told:
            told.add(key)
            log.warning("the variable %s names no setting and is ignored", key)
    return found


def read_said(path: Path) -> dict[str, object]:
    said = tomllib.loads(path.read_text("utf-8")).get("said", {})
    return said if isinstance(said, dict) else {}


def quoted(value: str) -> str:
    """A TOML string: JSON's rules, and the one character that TOML wants escaped and JSON does not."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_whole(path: Path, text: str) -> None:
    with said_to_the_user():
        identity.write_whole(path, text)
