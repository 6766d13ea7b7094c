"""Where a lake is: a folder, or a prefix in an S3-compatible store. Goes to executors as it is.

    ./lake   /mnt/lake   file:///mnt/lake      a folder of this machine, or one that driver and executors have mounted
    s3://bucket/prefix                         by the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
                                               AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL; or what the machine has

Files are read and written by pyarrow, commits are made by delta-rs; both are given the same credentials, those of the
driver. Any other scheme is refused.
"""
from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlparse

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL")
REGION: Final = "us-east-1"
"""Where neither AWS_REGION nor AWS_DEFAULT_REGION says it; stores that are compatible have one region, of any name."""


class BadPlace(ValueError):
    """A lake cannot be there."""


@dataclass(frozen=True)
class Store:
    """A folder or prefix."""

    root: str
    """An absolute path, or s3://bucket/prefix; without a slash at the end."""
    settings: Mapping[str, str]
    """What the driver's environment says of the store."""

    @classmethod
    def at(cls, place: str | Path) -> Store:
        words = str(place)
        found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", words)
        if not found or found[1] == "file":
            return cls(str(Path(re.sub(r"^file:/+", "/", words)).absolute()), {})
        if found[1] != "s3":
            raise BadPlace(
                f"a lake cannot be in {found[1]}: it is a folder, or s3://bucket/prefix (of any store that speaks S3, "
                "by AWS_ENDPOINT_URL); other stores can be mounted as a folder"
            )
        bucket, _, prefix = re.sub(r"^s3:/+", "", words).partition("/")
        if not bucket or not prefix.strip("/"):
            raise BadPlace(f"{words} names no bucket and prefix: s3://bucket/prefix")
        settings = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
        settings.setdefault("AWS_REGION", os.environ.get("AWS_DEFAULT_REGION") or REGION)
        return cls(f"s3://{bucket}/{prefix.strip('/')}", settings)

    def __repr__(self) -> str:
        return f"Store({self.root})"  # not the secrets

    def __str__(self) -> str:
        return self.root

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "settings": self.settings}

    @property
    def is_local(self) -> bool:
        return not self.root.startswith("s3://")

    @property
    def folder(self) -> Path:
        """Of one that is a folder."""
        if not self.is_local:
            raise BadPlace(f"{self.root} is no folder")
        return Path(self.root)

    def child(self, name: str) -> Store:
        return Store(f"{self.root}/{name}", self.settings)

    def full(self, path: str) -> str:
        """A path below it, as pyarrow wants to have it."""
        return f"{self.root.removeprefix('s3://')}/{path}"

    @cached_property
    def fs(self) -> FileSystem:
        from pyarrow import fs

        if self.is_local:
            return fs.LocalFileSystem()
        said = self.settings
        words: dict[str, Any] = {"region": said["AWS_REGION"]}
        if "AWS_ACCESS_KEY_ID" in said:
            words |= {"access_key": said["AWS_ACCESS_KEY_ID"], "secret_key": said.get("AWS_SECRET_ACCESS_KEY", ""),
                      "session_token": said.get("AWS_SESSION_TOKEN")}
        if "AWS_ENDPOINT_URL" in said:
            url = urlparse(said["AWS_ENDPOINT_URL"])
            words |= {"endpoint_override": url.netloc, "scheme": url.scheme}
        return fs.S3FileSystem(**words)

    def for_delta(self) -> dict[str, str] | None:
        """The same as delta-rs wants to have it."""
        if self.is_local:
            return None
        is_plain = self.settings.get("AWS_ENDPOINT_URL", "").startswith("http:")
        return {**self.settings, **({"AWS_ALLOW_HTTP": "true"} if is_plain else {})}

    def exists(self, path: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self.fs.get_file_info(self.full(path)).type != FileType.NotFound)

    def size(self, path: str) -> int:
        return int(self.fs.get_file_info(self.full(path)).size)

    def read_text(self, path: str) -> str:
        with self.fs.open_input_stream(self.full(path)) as file:
            return bytes(file.read()).decode()

    def write_text(self, path: str, text: str) -> None:
        """All of it or nothing."""
        if not self.is_local:
            with self.fs.open_output_stream(self.full(path)) as file:
                file.write(text.encode())
            return
        fresh = self.folder / f"{path}.{uuid.uuid4().hex}"
        fresh.write_text(text)
        fresh.replace(self.folder / path)

    def make(self, path: str = "") -> None:
        """A folder that files can be written to; a store needs none."""
        if self.is_local:
            (self.folder / path).mkdir(parents=True, exist_ok=True, mode=0o700)
