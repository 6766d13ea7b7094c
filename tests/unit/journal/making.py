"""A node with a journal and no server, a disk that dies when it is told to, and what a test asks of them."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from holdfast.core.config import Config
from holdfast.core.node import Node
from holdfast.core.peers import PeerFacts
from holdfast.journal import identity
from holdfast.journal.disk import Disk
from holdfast.journal.journal import Journal

START_MS = 1_700_000_000_000
LIFE = 7
NODE_ID = b"0123456789abcdef" * 2 + b"01234567"


class Hasty(Disk):
    """Waits for nothing: for those who only look at what another disk has left."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_file(self, path: Path) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


class Life:
    """A node from its start to its end: commands in, replies out, each a turn of its own with its commit."""

    def __init__(
        self, folder: Path, disk: Disk | None = None, *, now: int = START_MS, policy: str = "always",
        settings: dict[str, str] | None = None, segment_bytes: int = 64 << 20, is_kept: bool = True,
        keep_bytes: int = 0, others: int = 0,
    ) -> None:
        """`others`: so many members beside it, that cannot be heard."""
        config = Config()
        for name, value in {"appendfsync": policy, "enable-debug": "yes", **(settings or {})}.items():
            config.set(name, value)
        life = [*identity.lives(folder), LIFE][0]
        self.node = Node(config, NODE_ID, Random(now).randbytes, now, incarnation=life)
        for number in range(others):
            peer = self.node.add_peer(PeerFacts(b"%040x" % (number + 1), 0, "127.0.0.1", 1 + number, 1001 + number))
            assert peer is not None
            peer.is_member = True
        self.node.set_time(now, now)
        self.session = self.node.connect("test")
        self.journal = Journal(self.node, folder, disk)
        self.journal.heals = others > 0
        self.journal.writer.policy = policy
        self.journal.writer.segment_bytes = segment_bytes
        self.journal.keep(keep_bytes)
        self.percents = list(self.journal.load()) if is_kept else []

    def at(self, now: int) -> None:
        self.node.set_time(now, now)
        self.node.tick()
        assert self.journal.commit()

    def do(self, *words: str | bytes) -> bytes:
        """The reply, if it may leave; nothing if it may not."""
        argv = [word if isinstance(word, bytes) else word.encode() for word in words]
        assert self.node.execute(self.session, argv)
        reply = self.node.take_output()
        return reply if self.journal.commit() else b""

    def add(self, body: str, *options: str) -> bytes:
        return self.do("ADDJOB", "q", body, "0", *options)[1:-2]

    def get(self) -> bytes:
        """The id of the next job, or nothing."""
        reply = self.do("GETJOB", "NOHANG", "FROM", "q")
        return reply.split(b"\r\n")[5] if reply.startswith(b"*1") else b""

    def bodies(self) -> list[bytes]:
        """What is queued, in order."""
        queue = self.node.queues.get(b"q")
        return [] if queue is None else [job.body for job in queue.oldest(10_000)]

    def close(self, with_snapshot: bool = False) -> None:
        self.journal.close(with_snapshot)

    def kill(self) -> None:
        """The process is gone; what it had written is there."""
        for writer in (self.journal.writer, *self.journal.own.writers()):
            writer.close()


class Crash(BaseException):
    """The power went off."""


class Watched:
    """A file as the disk sees it: what is in it, and how much of that is safe."""

    def __init__(self) -> None:
        self.data = b""
        self.synced = b""

    def left(self, torn: int) -> bytes:
        """What was synced and so many bytes more; if negative, all but so many."""
        extra = len(self.data) - len(self.synced)
        keep = min(extra, torn) if torn >= 0 else max(0, extra + torn)
        return self.data[: len(self.synced) + keep]


class Names:
    """A folder as the disk sees it: the names in it, and those of them that are safe."""

    def __init__(self) -> None:
        self.all: dict[str, Watched | Names] = {}
        self.safe: dict[str, Watched | Names] = {}

    def keep(self) -> None:
        """All of them are safe."""
        self.safe = dict(self.all)
        for each in self.all.values():
            if isinstance(each, Names):
                each.keep()

    def left(self, folder: Path, are_names_safe: bool, torn: Callable[[], int]) -> None:
        folder.mkdir(exist_ok=True)
        for name, each in (self.safe if are_names_safe else self.all).items():
            if isinstance(each, Names):
                each.left(folder / name, are_names_safe, torn)
            else:
                (folder / name).write_bytes(each.left(torn()))


class CrashDisk(Disk):
    """A disk that counts what is done to it, and stops at one point. It knows what would be left of its files."""

    def __init__(self, root: Path, dies_at: int = -1, halfway: bool = False) -> None:
        self.root = root  # which is there and stays
        self.dies_at = dies_at
        self.halfway = halfway  # it dies in the middle of a write, not before it
        self.steps = 0
        self.open: dict[int, Watched] = {}
        self.names = Names()
        for path in sorted(root.rglob("*")) if root.exists() else []:
            if path.is_dir():  # it has been there before
                self.folder(path)
            else:
                file = Watched()
                file.data = file.synced = path.read_bytes()
                self.folder(path.parent).all[path.name] = file
        self.names.keep()

    def folder(self, path: Path) -> Names:
        """It is there as soon as anybody speaks of it; whether that is safe, its own folder knows."""
        found = self.names
        for name in path.relative_to(self.root).parts:
            inside = found.all.setdefault(name, Names())
            assert isinstance(inside, Names)
            found = inside
        return found

    def step(self) -> bool:
        """Count; whether this one is the last and only half done."""
        self.steps += 1
        if self.steps - 1 != self.dies_at:
            return False
        if self.halfway:
            return True
        raise Crash

    def create(self, path: Path) -> int:
        self.step()
        descriptor = super().create(path)
        self.folder(path.parent).all[path.name] = self.open[descriptor] = Watched()
        return descriptor

    def write(self, descriptor: int, pieces: Sequence[bytes], position: int) -> None:
        is_half = self.step()
        whole = b"".join(pieces)
        done = whole[: len(whole) // 2] if is_half else whole
        file = self.open[descriptor]
        file.data = file.data[:position] + done
        if is_half:
            raise Crash
        super().write(descriptor, [done], position)

    def sync(self, descriptor: int) -> None:
        self.step()
        self.open[descriptor].synced = self.open[descriptor].data

    def sync_file(self, path: Path) -> None:
        self.step()
        file = self.folder(path.parent).all[path.name]
        assert isinstance(file, Watched)
        file.synced = file.data

    def overwrite(self, path: Path, data: bytes, position: int) -> None:
        self.step()
        super().overwrite(path, data, position)
        file = self.folder(path.parent).all[path.name]
        assert isinstance(file, Watched)
        file.data = file.synced = path.read_bytes()

    def sync_folder(self, folder: Path) -> None:
        self.step()
        names = self.folder(folder)
        for path in folder.iterdir():
            if path.is_dir():
                self.folder(path)
        names.safe = dict(names.all)

    def cut(self, path: Path, size: int) -> None:
        self.step()
        super().cut(path, size)
        file = self.folder(path.parent).all[path.name]
        assert isinstance(file, Watched)
        file.data = file.synced = file.data[:size]

    def rename(self, old: Path, new: Path) -> None:
        self.step()
        super().rename(old, new)
        self.folder(new.parent).all[new.name] = self.folder(old.parent).all.pop(old.name)

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)
        self.folder(path.parent).all.pop(path.name, None)

    def close(self, descriptor: int) -> None:
        del self.open[descriptor]
        os.close(descriptor)

    def left(self, folder: Path, are_names_safe: bool, torn: int | Callable[[], int]) -> None:
        """Write to `folder` what is left, of each file the more or less that `torn` says: see Watched."""
        self.names.left(folder, are_names_safe, torn if callable(torn) else lambda: torn)
