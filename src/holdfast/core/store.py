"""Where the machine puts what memory has no room for: given by the shell, as its source of random bytes is.

The machine has no files. A store takes pieces of bytes and says the place of each; it gives them back by place and
size until they are dropped. It need not outlive the process: whatever is in it, the journal has as well. The real one
is journal/spill.py, the one of the simulator a dict.
"""
from __future__ import annotations

from typing import Final, Protocol

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from holdfast.core import errors
from holdfast.core.errors import Refused

PLACE_BYTES: Final = 16  # a place and a size, as a job whose body is away has them in place of its body


class Store(Protocol):
    def put(self, pieces: list[bytes]) -> list[int]:
        """The place of each. Raises OSError, and then none was put."""
        ...

    def get(self, place: int, size: int) -> bytes:
        """Raises OSError, also where the bytes are not the ones that were put."""
        ...

    def drop(self, place: int, size: int) -> None:
        """Nobody will ask for it any more."""
        ...

    def ahead(self, place: int, size: int) -> None:
        """Somebody will ask for it soon."""
        ...

    def facts(self) -> dict[str, int]:
        """For INFO."""
        ...

    def close(self) -> None:
        """The end of the node: nothing will be asked for any more."""
        ...


class NoStore:
    def put(self, pieces: list[bytes]) -> list[int]:
        raise OSError(0, "there is no store")

    def get(self, place: int, size: int) -> bytes:
        raise OSError(0, "there is no store")

    def drop(self, place: int, size: int) -> None:
        pass

    def ahead(self, place: int, size: int) -> None:
        pass

    def facts(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass


NO_STORE: Final = NoStore()


class Unreadable(Refused):
    """What is on disk cannot be read, at least not now."""


def write_place(place: i64, size: i64) -> bytes:
    out = BytesWriter()
    write_i64_le(out, place)
    write_i64_le(out, size)
    return out.getvalue()


def read_place(store: Store, kept: bytes) -> bytes:
    """The body that is there. Raises Unreadable."""
    try:
        return store.get(int(read_i64_le(kept, 0)), int(read_i64_le(kept, 8)))
    except OSError as error:
        raise Unreadable(errors.UNREADABLE % errors.printable(str(error).encode())) from None


def size_at(kept: bytes) -> i64:
    return read_i64_le(kept, 8)


def drop_place(store: Store, kept: bytes) -> None:
    store.drop(int(read_i64_le(kept, 0)), int(read_i64_le(kept, 8)))
