"""What goes in and out by HTTP: the JSON shapes of /v1, and the way a body of bytes becomes JSON and back.

A job's body is bytes. In JSON it is `body` where it is text (UTF-8), and `body64` where it is not; a producer may
say `json` in their place, and what it says there is kept as compact JSON text. Times are seconds.
"""
from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.client.adding import AddOptions
from holdfast.client.errors import BadRequest
from holdfast.core.limits import COUNT_MAX, DURATION_S_MAX, KEY_BYTES_MAX, PRIORITY_MAX

TAKE_MAX = 1000
"""Jobs in one answer: a few megabytes at most bodies, and a lease that one worker can still keep."""
BATCH_MAX = 10_000
"""Jobs in one request; for more there is the stream."""


def no_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text must be Unicode without lone surrogates") from None
    return text


Text = Annotated[str, AfterValidator(no_surrogates)]
Key = Annotated[Text, Field(min_length=1, max_length=KEY_BYTES_MAX)]
Seconds = Annotated[float, Field(ge=0, le=DURATION_S_MAX)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="null")


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str | None = None


class Options(Model):
    """What a producer may say about a job."""

    delay: Seconds | None = None
    at: Annotated[float, Field(ge=1, le=2**33)] | None = Field(None, description="unix seconds")
    retry: Seconds | None = Field(None, description="seconds until it is handed out again; 0: at most once")
    ttl: Annotated[float, Field(ge=1, le=DURATION_S_MAX)] | Literal["none"] | None = Field(
        None, description="seconds until its time is over; none: never, unless its queue says when"
    )
    on_expire: Literal["dead", "drop"] | None = None
    replicate: Annotated[int, Field(ge=1, le=65535)] | None = None
    sync: Annotated[int, Field(ge=1, le=65535)] | None = None
    maxlen: Annotated[int, Field(ge=1, le=2**53)] | None = None
    priority: Annotated[int, Field(ge=0, le=PRIORITY_MAX)] | None = None
    timeout: Annotated[float, Field(gt=0, le=60)] = Field(5.0, description="seconds to wait for the copies")
    unique: Key | None = None
    until: Literal["done", "started"] | None = None
    window: Annotated[float, Field(ge=1, le=DURATION_S_MAX)] | None = None
    on_duplicate: Literal["existing", "replace", "reject"] | None = None
    idempotent: bool | None = None
    group: Key | None = None
    on_fail: Literal["hold", "skip"] | None = None
    domain: Key | None = None
    tenant: Key | None = None
    attempts: Annotated[int, Field(ge=1, le=DURATION_S_MAX)] | None = None
    backoff: Annotated[float, Field(ge=0, le=86400)] | None = None
    batch: tuple[Key, Annotated[int, Field(ge=0, lt=1_000_000)]] | None = None
    parent: Text | None = None
    headers: dict[Key, Text] | None = None

    def words(self) -> AddOptions:
        said = self.model_dump(exclude_none=True, include=set(Options.model_fields))
        if said.get("ttl") == "none":
            said["ttl"] = None
        return said  # type: ignore[return-value]  # the same names, checked by a test


class Content(Model):
    body: Text | None = None
    body64: Text | None = None
    json_: Any = Field(None, alias="json")
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    def content(self) -> bytes:
        """The bytes of the job. Raises BadRequest."""
        said = [name for name in ("body", "body64", "json_") if name in self.model_fields_set]
        if len(said) != 1:
            raise BadRequest("a job has one of body (text), body64 (bytes in base64) and json")
        if self.body64 is not None:
            try:
                return base64.b64decode(self.body64, validate=True)
            except (binascii.Error, ValueError):
                raise BadRequest("body64 is not base64") from None
        if "json_" in self.model_fields_set:
            return json.dumps(self.json_, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        if self.body is None:
            raise BadRequest("body is text, not null")
        return self.body.encode()


class NewJob(Options, Content):
    """One job to add."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class NewJobs(Options):
    """Many jobs to add, with the same options: all or none of them."""

    jobs: Annotated[list[Content], Field(min_length=1, max_length=BATCH_MAX)]


class Added(Model):
    id: str
    copies: Annotated[int, Field(description="nodes that hold the job now; 0: its unique key was taken")]


class AddedMany(Model):
    ids: list[str]
    copies: Annotated[int, Field(description="nodes that hold each of the jobs now, at least")]


class Body(Model):
    """What has a body: text, or bytes in base64."""

    body: Annotated[str | None, Field(description="where it is text")]
    body64: Annotated[str | None, Field(description="where it is not: base64")]


class Taken(Body):
    """A job in a worker's hands. Answer for it with its token before its lease ends."""

    id: str
    queue: str
    token: str
    attempt: int
    priority: int
    nacks: int
    additional_deliveries: int
    headers: dict[str, str]
    keys: dict[str, str]


class TakenMany(Model):
    jobs: list[Taken]


class Take(Model):
    queues: Annotated[list[Key], Field(min_length=1, max_length=100)]
    count: Annotated[int, Field(ge=1, le=TAKE_MAX)] = 1
    timeout: Annotated[float, Field(ge=0, le=300)] = Field(0.0, description="seconds to wait for the first")
    lease: Annotated[float, Field(gt=0, le=DURATION_S_MAX)] | None = None


class Held(Model):
    id: Annotated[str, Field(min_length=48, max_length=48)]
    token: Annotated[Text, Field(max_length=100)]


class Done(Model):
    token: Annotated[Text, Field(max_length=100)] = ""
    result: Text | None = None
    result64: Text | None = None

    def content(self) -> bytes | None:
        if self.result is not None and self.result64 is not None:
            raise BadRequest("one of result and result64")
        if self.result64 is not None:
            try:
                return base64.b64decode(self.result64, validate=True)
            except (binascii.Error, ValueError):
                raise BadRequest("result64 is not base64") from None
        return None if self.result is None else self.result.encode()


class Fail(Model):
    token: Annotated[Text, Field(max_length=100)] = ""
    error: Annotated[Text, Field(max_length=65536)] = ""
    after: Annotated[float, Field(ge=0, le=DURATION_S_MAX)] | None = None
    dead: bool = False
    throttled: bool = False


class Release(Model):
    token: Annotated[Text, Field(max_length=100)] = ""
    after: Annotated[float, Field(ge=0, le=DURATION_S_MAX)] | None = None


class Extend(Model):
    token: Annotated[Text, Field(min_length=1, max_length=100)]
    seconds: Annotated[float, Field(gt=0, le=DURATION_S_MAX)]


class Progress(Model):
    token: Annotated[Text, Field(min_length=1, max_length=100)]
    fraction: Annotated[float, Field(ge=0, le=1)]
    text: Annotated[Text, Field(max_length=1024)] = ""


class Keep(Model):
    seconds: Annotated[float, Field(gt=0, le=DURATION_S_MAX)]
    jobs: Annotated[list[Held], Field(min_length=1, max_length=TAKE_MAX)]


class Wait(Model):
    ids: Annotated[list[Annotated[str, Field(min_length=48, max_length=48)]], Field(min_length=1, max_length=1000)]
    timeout: Annotated[float, Field(ge=0, le=300)] = 0.0
    any: bool = False


class Change(Model):
    """What may be changed of a job that waits."""

    priority: Annotated[int, Field(ge=0, le=PRIORITY_MAX)] | None = None
    queue: Key | None = None
    run_now: bool = False


class Count(Model):
    count: int


class Pause(Model):
    how: Literal["in", "out", "all", "none"] = "all"
    seconds: Annotated[float, Field(ge=1, le=DURATION_S_MAX)] | None = None


class DeadOnes(Model):
    """Dead jobs by id, or those that fit."""

    ids: Annotated[list[Annotated[str, Field(min_length=48, max_length=48)]], Field(max_length=1000)] = []
    queue: Key | None = None
    cause: Key | None = None
    error: Key | None = None
    older: Seconds | None = None


class Schedule(NewJob):
    """A job to add again and again."""

    schedule: Annotated[Text, Field(min_length=1, max_length=256)]
    queue: Key
    zone: Annotated[Text, Field(max_length=64)] = ""
    missed: Literal["", "skip", "one", "all"] = ""


class Limit(Model):
    rate: Annotated[Text, Field(min_length=1, max_length=32, examples=["10/s"])]
    burst: Annotated[int, Field(ge=1, le=COUNT_MAX)] | None = None
    concurrency: Annotated[int, Field(ge=0, le=COUNT_MAX)] | None = None
    adapt: bool | None = None


def body_fields(data: bytes | None) -> dict[str, str | None]:
    """`body` where it is text, `body64` where it is not."""
    if data is None:
        return {"body": None, "body64": None}
    try:
        return {"body": data.decode(), "body64": None}
    except UnicodeDecodeError:
        return {"body": None, "body64": base64.b64encode(data).decode()}


def plain(reply: Any) -> Any:
    """A reply of a node as JSON: bytes as text (what is no text shown with backslashes), names and values kept."""
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "backslashreplace")
    if isinstance(reply, list | tuple):
        return [plain(each) for each in reply]
    if isinstance(reply, dict):
        return {str(plain(name)): plain(value) for name, value in reply.items()}
    if isinstance(reply, str):
        return reply.encode("utf-8", "backslashreplace").decode()
    return reply


def named(reply: Any) -> Any:
    """Names and values in a flat list, as an object."""
    if isinstance(reply, list) and len(reply) % 2 == 0 and all(isinstance(name, bytes) for name in reply[::2]):
        return {plain(name): plain(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}
    return plain(reply)
