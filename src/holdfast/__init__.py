"""Holdfast: a distributed job queue that does not let go. Everything public is here."""
from holdfast import form as _form  # first: it decides which form of the other modules is imported
from holdfast.client.errors import (
    BadRequest,
    Empty,
    Error,
    Refused,
    Unknown,
)
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.core.version import VERSION as __version__
from holdfast.doors import aopen, open

__all__ = ["AsyncQueue", "BadRequest", "Empty", "Error", "Queue", "Refused", "Unknown", "__version__", "aopen", "open"]
del _form
