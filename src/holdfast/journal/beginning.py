"""A journal for a node that has run without one: `CONFIG SET appendonly yes`.

    journal.new/00000002.log …       what happens from now on
    journal.new/00000002.snapshot    what is there, written slice by slice while the node goes on
    journal/                         the folder, renamed when both are whole and on the disk: the moment that counts

Until then there is no journal, since one with a part of the jobs would be worse than none. So nobody waits for it:
answers leave as before, and a disk that will not have it leaves the node without a journal, not without clients. After
a crash before that moment the next start finds none and removes what was begun; after it, everything.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from holdfast.journal.folder import JournalError, remove_folder, unfinished
from holdfast.journal.journal import Journal


class Beginning:
    """A work to be done in slices (own.py, Work).

    `confirm` is called when all is on the disk, before it counts: what is said there beside the journal holds with it.
    `give_up` is told why it came to nothing.
    """

    def __init__(self, journal: Journal, confirm: Callable[[], None], give_up: Callable[[OSError], None]) -> None:
        self.journal = journal
        self.confirm = confirm
        self.give_up = give_up
        self.place = journal.path
        self.is_begun = False
        journal.is_beginning = True
        journal.rename_folder(unfinished(journal.path.parent))

    def begin(self) -> None:
        self.is_begun = True
        journal = self.journal
        remove_folder(journal.path, journal.disk)
        with said_as_error():
            journal.disk.make_folder(journal.path)
            journal.begin_overflow()
            journal.begin(0)
        journal.begin_rewrite()

    def step(self) -> bool:
        journal = self.journal
        if journal.rewrite is None or journal.writer.trouble:
            raise OSError(0, journal.writer.trouble or "stopped")
        return journal.rewrite_some()

    def sync(self) -> None:
        if self.journal.rewrite is not None:
            self.journal.rewrite.sync()

    def end(self) -> None:
        journal = self.journal
        if journal.rewrite is None:
            raise OSError(0, "stopped")
        journal.end_rewrite()
        journal.commit()
        if journal.rewrite_error or not journal.writer.flush():
            raise OSError(0, journal.rewrite_error or journal.writer.trouble)
        with said_as_error():
            self.confirm()
        self.put_in_place()

    def put_in_place(self) -> None:
        """What may be there is of an earlier life of the node."""
        journal = self.journal
        journal.own.remove()
        remove_folder(self.place, journal.disk)
        journal.disk.rename(journal.path, self.place)
        journal.rename_folder(self.place)
        journal.is_beginning = False
        journal.disk.sync_folder(self.place.parent)

    def finish(self) -> None:
        """All that is left of it, with everybody waiting."""
        try:
            if not self.is_begun:
                self.begin()
            while not self.step():
                pass
            self.sync()
            self.end()
        except OSError as error:
            self.abandon(error)

    def abandon(self, error: OSError) -> None:
        self.stop()
        self.give_up(error)

    def stop(self) -> None:
        """There is no journal, and there will be none."""
        journal = self.journal
        journal.is_open = False
        journal.stop_rewrite()
        journal.node.is_recording = journal.node.must_sync = False
        journal.node.take_log()
        journal.writer.close()
        remove_folder(journal.path, journal.disk)

    def words(self) -> str:
        return "the journal is on"


@contextlib.contextmanager
def said_as_error() -> Iterator[None]:
    """Whatever stands in the way of a work is an OSError."""
    try:
        yield
    except JournalError as error:
        raise OSError(0, str(error)) from None
