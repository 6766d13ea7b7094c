"""Names in paths: any queue, schedule or domain can be named there, one with a slash in it, too: /v1/queues/a%2Fb.

Servers undo the percent signs of a path before anybody looks at its parts, and then a slash in a name is like one
between names. Here two escapes stay as they were sent, that of the slash and, so that there is no doubt about it, that
of the percent sign itself; `Name` undoes them when the path has been taken apart.
"""
from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote

from fastapi import Path
from pydantic import BeforeValidator
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.gateway.models import Key

KEPT = re.compile(r"(%2[Ff5])")


def name_in(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")


Name = Annotated[Key, BeforeValidator(name_in), Path()]


class SlashesInNames:
    """Plain ASGI, around all else: what looks at the path sees what is routed by."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or b""
        if b"%2" in raw:
            pieces = KEPT.split(raw.decode("latin-1"))
            path = "".join(piece.upper() if at % 2 else unquote(piece) for at, piece in enumerate(pieces))
            scope = {**scope, "path": path}
        await self.app(scope, receive, send)
