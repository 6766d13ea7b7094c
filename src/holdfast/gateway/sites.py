"""Whose page a request comes from: one of another site must not use a gateway that its reader happens to reach.

A browser sends what any page tells it to, from where its reader is and with what its reader may do. Two rules:

* What changes something is refused if the browser says that another site's page asked for it: by Sec-Fetch-Site, or
  by Origin where it does not say that much. A page can't leave these out, and programs have no reason to send them.
  X-Forwarded-Host is believed: a page of another site can't send that either.
* Where nobody has to log in, the gateway must have been called by a name of its own. Somebody may let their name point
  to this machine for a moment; to the browser, page and gateway are then the same site. An address is nobody's name,
  and a name without a dot nobody can buy; other names are allowed by --allow-host.
"""
from __future__ import annotations

import ipaddress
from typing import Annotated

from fastapi import Depends, Request

from holdfast.client.errors import NotAllowed
from holdfast.gateway.asking import Behind, behind

HARMLESS = ("GET", "HEAD", "OPTIONS")
Gate = Annotated[Behind, Depends(behind)]


async def may_ask(request: Request, gate: Gate) -> None:
    """Stands before every path. Raises NotAllowed."""
    called = name_of(request.headers.get("host", ""))
    if gate.door.is_open and called not in gate.hosts and not is_nobodys(called):
        raise NotAllowed(
            f"this gateway is not known as {called!r}; if it is to be, start it with --allow-host {called}", "NOPERM"
        )
    if request.method not in HARMLESS:
        await may_change(request, gate)


async def may_change(request: Request, gate: Gate) -> None:
    """Raises NotAllowed where another site's page asks."""
    said = request.headers
    site, origin = said.get("sec-fetch-site"), said.get("origin")
    asking = (origin or "").partition("://")[2]
    if site is not None:
        is_ours = site in ("same-origin", "none")
    else:
        is_ours = origin is None or asking in (said.get("host"), said.get("x-forwarded-host"))
    if not is_ours and name_of(asking) not in gate.hosts:
        raise NotAllowed(
            f"a page of another site ({origin or 'not named'}) asked for this; if it is this gateway's own name, start "
            "the gateway with --allow-host", "NOPERM",
        )


async def may_take(request: Request, gate: Gate) -> None:
    """Before what changes something although it is asked for by GET. An image of any page is such a request, and over
    plain HTTP to another machine a browser does not even say whose page it is. So a browser has to say that here.
    Raises NotAllowed."""
    await may_change(request, gate)
    said = request.headers
    is_browser = (
        said.get("user-agent", "").startswith("Mozilla/") or "referer" in said
        or said.get("accept", "").startswith(("image/", "text/html", "text/css", "video/", "audio/"))
    )
    if request.method in HARMLESS and is_browser and "sec-fetch-site" not in said:
        raise NotAllowed("a browser may not take a job by GET, as any page could make it: use POST /get", "NOPERM")


def name_of(host: str) -> str:
    """Without the port, and without the brackets of an IPv6 address."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isdigit() else host).strip("[]").lower()


def is_nobodys(name: str) -> bool:
    """Whether no site of others can have this name."""
    if "." not in name and ":" not in name:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
