"""What a task's job carries: the name of the task and the arguments of the call, as JSON or msgpack.

    {"task": "mail.send", "args": ["ada@example.com"], "kwargs": {"subject": "hello"}}

Any program can write that, in any language. The first byte tells JSON from msgpack, so a worker reads both, whatever
its app writes. Values are what the format knows: numbers, text, lists, maps, true, false, null; dates, UUIDs and
decimals become text; msgpack also has bytes, NaN and infinity. Nothing is ever unpickled: a body is data and no
program.

A *raw* task has no envelope: its one argument is the body, as bytes, whoever wrote it.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast.client.errors import BadRequest

Codec: TypeAlias = Literal["json", "msgpack"]

RESULT_BYTES_MAX: Final = 64 * 1024
"""Of what a task returned, as it is written: what a node keeps (core/limits.py)."""


class Envelope(msgspec.Struct, omit_defaults=True):
    """A call that has not been made yet."""

    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_to_json: Final = msgspec.json.Encoder()
_to_msgpack: Final = msgspec.msgpack.Encoder()
_from_json: Final = msgspec.json.Decoder(Envelope)
_from_msgpack: Final = msgspec.msgpack.Decoder(Envelope)
_value_from_json: Final = msgspec.json.Decoder()
_value_from_msgpack: Final = msgspec.msgpack.Decoder()


class NoTask(BadRequest):
    """The body of the job is no call of a task."""

    code = "NOTASK"


def write(codec: Codec, task: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """A call as the body of a job."""
    if codec == "json":
        for value in (*args, *kwargs.values()):
            if isinstance(value, bytes | bytearray | memoryview):
                raise TypeError(
                    f"{task}: JSON has no bytes; use App(…, codec='msgpack'), or a task with raw=True"
                )
    encoder = _to_json if codec == "json" else _to_msgpack
    try:
        body = encoder.encode(Envelope(task, list(args), kwargs))
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{task}: an argument cannot be written as {codec}: {error}") from None
    # The encoder writes null for them, so only a body with a null is looked at: the task would run with None.
    if codec == "json" and b"null" in body and has_no_number(msgspec.to_builtins([args, kwargs])):
        raise TypeError(f"{task}: JSON has neither NaN nor infinity; say None, or use App(…, codec='msgpack')")
    return body


def has_no_number(value: Any) -> bool:
    """Whether NaN or infinity is anywhere in what a format is made of."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(has_no_number, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(has_no_number, value))


def read(body: bytes) -> Envelope:
    """The call in the body of a job. `NoTask` if there is none."""
    try:
        return (_from_json if body[:1] == b"{" else _from_msgpack).decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise NoTask(f"the body is no call of a task: {error}") from None


def write_value(codec: Codec, value: Any) -> bytes:
    """What a task returned, as the result of a job."""
    if isinstance(value, bytes | bytearray | memoryview):
        if codec == "json":
            raise TypeError("JSON has no bytes; use App(…, codec='msgpack') to return them")
        value = bytes(value)
    try:
        return b"j" + _to_json.encode(value) if codec == "json" else b"m" + _to_msgpack.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"what it returned cannot be written as {codec}: {error}") from None


def read_value(result: bytes | None) -> Any:
    """The inverse; no result is None."""
    if not result:
        return None
    decoder = _value_from_json if result[:1] == b"j" else _value_from_msgpack
    return decoder.decode(result[1:])
