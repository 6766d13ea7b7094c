"""Who may come in, and by which door: users and their secrets, certificates, the port that speaks TLS.

A part of the server, kept apart from it since most nodes have none of this. It is made with the settings, opens
its port when the node begins to listen, and answers the node's VERIFY requests.
"""
from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core import users
from holdfast.core.commands.clients import logged_in
from holdfast.core.config import Config
from holdfast.core.session import Session
from holdfast.shell import tls
from holdfast.shell.logins import Logins
from holdfast.shell.settings import SettingsError
from holdfast.shell.strangers import ADMIN_SLOTS

if TYPE_CHECKING:
    from holdfast.shell.server import Server

log = logging.getLogger("holdfast")


class Guard:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.config = server.config
        self.strangers = server.sockets.strangers
        self.listener: tls.Listener | None = None
        path = self.config.text("users-file")
        self.logins = Logins(Path(path) if path else None, self.answer)
        users.set_users(server.node, self.logins.users)
        self.apply_settings()
        self.to_clients: ssl.SSLContext | None = None

    def apply_settings(self) -> None:
        """The password of the node may be another one now, and whether there are strangers at all."""
        self.logins.set_password(self.config.text("requirepass").encode("utf-8", "surrogateescape"))
        self.server.sockets.reserve(ADMIN_SLOTS if users.are_asked_for(self.server.node) else 0)

    def is_strict(self) -> bool:
        """Whether nobody gets in who has not said who it is."""
        must_show = self.config.number("tls-port") > 0 and self.config.text("tls-auth-clients") == "yes"
        return users.are_asked_for(self.server.node) or (must_show and not self.config.text("bind"))

    async def open(self) -> None:
        """Listen for those who speak TLS."""
        port = self.config.number("tls-port")
        if port == 0:
            return
        self.to_clients = made = tls.context(self.config, True, self.config.text("tls-auth-clients"))
        hosts = [address.strip("[]") for address in self.config.text("bind").split()]
        hard = int(self.config.text("client-output-buffer-limit").split()[1])
        try:
            self.listener = tls.Listener(
                hosts, port, self.config.number("tcp-backlog"), made,
                lambda: tls.Client(self.server.sockets, self.server.note_wake, self.known, hard), self.is_full,
            )
        except SettingsError as error:
            raise SettingsError(f"no TLS for clients: {error}") from None
        log.info("TLS for clients on port %d", port)

    def verify(self, session: Session, argument: bytes) -> None:
        """The node wants to know whether a secret is right."""
        name, _, secret = argument.partition(b"\0")
        self.logins.check(session, session.address, name, secret)

    def answer(self, session: object, name: bytes, verdict: int) -> None:
        assert isinstance(session, Session)
        if session.number not in self.server.node.sessions:
            return
        if verdict == users.RIGHT:
            if self.is_full() and not self.logins.is_admin(name):
                verdict = users.FULL
            else:
                self.strangers.leave(session.number)
        logged_in(self.server.node, session, name, verdict)
        self.server.note_wake(self.server.sockets.turn())
        if verdict == users.FULL:  # it has been told so
            self.server.sockets.close_session(session, False)
            self.server.note_wake(self.server.sockets.turn())

    def is_full(self, besides: int = 0) -> bool:
        """Whether those we know, and so many others, have all connections there are but those for admins."""
        known = len(self.server.node.sessions) - len(self.strangers)
        return known + besides >= self.config.number("maxclients")

    def known(self, session: Any, name: str) -> None:
        """A client has shown a certificate with that name on it, signed by those we trust."""
        user = self.server.node.users.get(name.encode("utf-8", "surrogateescape"))
        if user is not None:
            users.become(session, user)
            self.strangers.leave(session.number)

    def reload(self) -> None:
        """SIGHUP: the users may be others now."""
        if self.logins.path is None:
            return
        try:
            changed = self.logins.reload()
            users.set_users(self.server.node, self.logins.users)
            log.info("users reloaded: %d (%s)", len(self.logins.users), changed)
        except SettingsError as error:
            log.error("users not reloaded: %s", error)

    def reload_certificate(self, config: Config) -> None:
        """SIGHUP: the certificate for clients may be another one. Raises SettingsError, and then it is as it was."""
        if self.to_clients is not None:
            tls.context(config, True, config.text("tls-auth-clients"))
            self.to_clients.load_cert_chain(config.text("tls-cert-file"), config.text("tls-key-file"))

    async def close(self) -> None:
        if self.listener is not None:
            self.listener.close()
        self.logins.close()
