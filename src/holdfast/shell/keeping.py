"""The journal of a server: when it is loaded, switched on and off, rewritten and closed.

It is on where the node has a dir and the setting appendonly says so. A node that comes back with its journal is
the same life of that node (its incarnation) as before; without one it has lost everything, and must not be taken
for one that has not. So the number of the life is written down beside the journal, and a journal whose number is
not the one written down is never loaded: the node has run without it since.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from holdfast.core import salvage
from holdfast.core.node import Node
from holdfast.core.session import Session
from holdfast.journal import identity
from holdfast.journal.beginning import Beginning
from holdfast.journal.folder import JournalError
from holdfast.journal.history import History
from holdfast.journal.journal import Journal
from holdfast.journal.own import Rewriting, Work
from holdfast.journal.scrub import Scrub
from holdfast.journal.writer import EVERYSEC
from holdfast.shell.settings import Settings, SettingsError
from holdfast.shell.telling import Telling

log = logging.getLogger("holdfast")

NO_JOURNAL: Final = b"-ERR there is no journal: it takes a node with a dir, and the setting appendonly\r\n"
STARTED: Final = b"+Background append only file rewriting started\r\n"
IN_PROGRESS: Final = b"-ERR Background append only file rewriting already in progress\r\n"


class Keeping:
    def __init__(self, settings: Settings, node: Node) -> None:
        self.settings = settings
        self.config = settings.config
        self.node = node
        self.journal: Journal | None = None
        self.is_loading_once = settings.loads_once()
        self.is_saved_at_end = True
        self.rewriting: asyncio.Task[None] | None = None
        self.beginning: Beginning | None = None  # of a journal that does not count yet
        self.percent = 100
        self.history: History | None = None
        self.telling = Telling(node)
        self.scrub: Scrub | None = None  # of the journal that is loaded
        self.scrubbing: asyncio.Task[None] | None = None
        self.on_switch: Callable[[], None] = lambda: None  # `commit` is another one than before

    def folder(self) -> Path:
        assert self.settings.dir is not None
        return self.settings.dir

    def new_journal(self) -> Journal:
        journal = Journal(self.node, self.folder())
        journal.heals = salvage.others(self.node) != 0
        self.journal = journal
        self.scrub = Scrub(journal.all, journal.note)
        self.apply_settings()
        return journal

    async def load(self) -> None:
        """At the start: come back with what the journal has. Clients are told meanwhile how far that is."""
        if self.config.is_on("history") and self.settings.dir is None:
            raise SettingsError("history needs a folder: give the node a --dir, or say history no")
        if self.settings.keeps_journal():
            await self.load_journal()
        if self.config.is_on("history"):
            self.begin_history()

    async def load_journal(self) -> None:
        if self.is_loading_once:
            self.config.set("requeue-on-load", "yes")
        journal = self.new_journal()
        try:
            for self.percent in journal.load():
                await asyncio.sleep(0)
        except JournalError as error:
            raise SettingsError(str(error)) from None
        self.percent = 100
        if self.node.jobs:
            log.info("%d jobs loaded from the journal in %.1f s", self.node.jobs, journal.load_seconds)
        if self.is_loading_once:
            self.load_no_more()

    def load_no_more(self) -> None:
        """aof-enqueue-jobs-once was for this start alone."""
        self.config.set("aof-enqueue-jobs-once", "no")
        self.config.changed.add("aof-enqueue-jobs-once")
        try:
            self.settings.save()
        except SettingsError as error:
            log.error("aof-enqueue-jobs-once is not turned off: %s", error)
        if not self.config.is_on("appendonly"):
            self.switch_off()

    def commit(self) -> Callable[[], bool] | None:
        """What the sockets call before they send; None: there is no journal to wait for."""
        if self.history is not None:
            return self.commit_both
        return None if self.journal is None else self.journal.commit

    def commit_both(self) -> bool:
        """First the journal, then what is told of it: nobody reads of what has not happened."""
        journal, history = self.journal, self.history
        is_kept = journal is None or journal.commit()
        if history is not None:
            history.commit(journal is not None and len(journal.writer.pending) > 0)
        return is_kept

    def tick(self) -> None:
        """Once a second."""
        journal = self.journal
        if self.history is not None:
            self.history.tick()
            self.telling.tick()
        if journal is None or not journal.is_open:
            return
        journal.tick()
        number = self.config.number
        if self.rewriting is None:
            work = journal.next_work(number("auto-aof-rewrite-percentage"), number("auto-aof-rewrite-min-size"))
            if work is not None:
                self.begin_work([work])
        if self.scrubbing is None and number("journal-scrub-bytes") and not journal.is_beginning:
            self.scrubbing = asyncio.create_task(self.scrub_some(number("journal-scrub-bytes")))

    async def scrub_some(self, size: int) -> None:
        """The bytes of this second: a thread reads them, since a disk may take its time."""
        try:
            scrub = self.scrub
            reading = None if scrub is None else scrub.next()
            if scrub is not None and reading is not None and await asyncio.to_thread(reading.step, size):
                scrub.end(reading)
        finally:
            self.scrubbing = None

    def has_failed(self) -> bool:
        """Whether what is on the disk is not known, and will not be before another start."""
        return self.journal is not None and any(each.writer.is_lost for each in self.journal.all())

    # -- settings ------------------------------------------------------------------------------------------

    def apply_settings(self) -> None:
        if self.journal is not None:
            writer = self.journal.writer
            writer.policy = EVERYSEC if self.journal.is_beginning else self.config.text("appendfsync")
            writer.buffer_bytes = self.config.number("journal-buffer")
            writer.segment_bytes = self.config.number("journal-segment-bytes")
            self.journal.keep(0 if self.journal.is_beginning else self.config.number("journal-keep-bytes"))
        if self.history is not None:
            self.history.policy = self.config.text("appendfsync")
            self.history.max_bytes = self.config.number("history-max-bytes")
            self.history.days = self.config.number("history-days")

    def begin_history(self) -> None:
        self.history = History(self.node, self.folder())
        self.apply_settings()
        try:
            self.history.open()
        except JournalError as error:
            self.history = None
            raise SettingsError(str(error)) from None
        self.telling.begin(self.history)

    def switch_history(self) -> None:
        """CONFIG SET history."""
        is_on = self.config.is_on("history") and self.settings.dir is not None
        if is_on and self.history is None:
            try:
                self.begin_history()
                log.info("history is on")
            except SettingsError as error:
                self.config.set("history", "no")
                log.error("history stays off: %s", error)
        elif not is_on and self.history is not None:
            self.telling.end()
            self.history.close()
            self.history = None
            log.info("history is off; what is there stays in its folder")

    def switch(self) -> None:
        """CONFIG SET appendonly."""
        if self.node.is_loading:
            return
        self.switch_history()
        is_on = self.config.is_on("appendonly") and self.settings.dir is not None
        if is_on and self.journal is None:
            self.switch_on()
        elif not is_on and self.journal is not None:
            self.switch_off()
            log.info("the journal is off: what happens from now on does not survive a restart")

    def switch_on(self) -> None:
        """In the background: the node goes on, and has no journal until all that is there has been written."""
        self.beginning = Beginning(self.new_journal(), self.confirm_journal, self.stay_off)
        self.apply_settings()
        self.begin_work([self.beginning])
        log.info("the journal is being written")

    def confirm_journal(self) -> None:
        """It is whole, and of this life."""
        identity.save_incarnation(self.folder(), self.node.incarnation)

    def stay_off(self, error: OSError) -> None:
        journal, self.journal = self.journal, None
        assert journal is not None
        self.config.set("appendonly", "no")
        log.error("the journal stays off: %s", error.strerror or error)
        self.disown(journal)
        self.on_switch()

    def switch_off(self) -> None:
        """What is in it gets old from now on, and must not be loaded."""
        journal, self.journal = self.journal, None
        assert journal is not None
        self.scrub = None
        self.stop_rewriting()
        if self.beginning is not None:
            self.beginning.stop()
            self.beginning = None
            return
        journal.close(with_snapshot=False)
        self.disown(journal)

    def disown(self, journal: Journal) -> None:
        """Its files are of an earlier life from now on, and go."""
        try:
            identity.save_incarnation(self.folder(), self.node.incarnation + 1)
            journal.remove()
        except (JournalError, OSError) as error:
            log.error("the journal is off, and its files are still there: %s", error)

    def finish_beginning(self) -> None:
        """A journal that is being begun is a journal now, or there is none; everybody waits."""
        beginning, self.beginning = self.beginning, None
        if beginning is not None:
            self.stop_rewriting()
            beginning.finish()
            self.apply_settings()

    def rename(self, node_id: bytes) -> None:
        """The node has another id, and its journal and history with it."""
        self.finish_beginning()
        if self.journal is not None:
            self.stop_rewriting()
            self.journal.rename(node_id)
        if self.history is not None:
            self.history.rename()

    # -- rewriting -----------------------------------------------------------------------------------------

    def rewrite(self, session: Session) -> None:
        """BGREWRITEAOF"""
        if self.journal is None:
            self.node.answer(session, NO_JOURNAL)
        elif self.rewriting is not None:
            self.node.answer(session, IN_PROGRESS)
        else:
            self.begin_work([Rewriting(files) for files in self.journal.all()])
            self.node.answer(session, STARTED)

    def begin_work(self, works: Sequence[Work]) -> None:
        self.rewriting = asyncio.create_task(self.do_all(works))

    async def do_all(self, works: Sequence[Work]) -> None:
        """Slice by slice, so that between two of them everybody has a turn. The sync is done by a thread."""
        try:
            for work in works:
                try:
                    work.begin()
                    while not work.step():
                        await asyncio.sleep(0)
                    await asyncio.to_thread(work.sync)
                    work.end()
                    log.info("%s", work.words())
                except OSError as error:
                    work.abandon(error)
            if self.beginning is not None and self.beginning in works:
                self.beginning = None
                self.apply_settings()  # from now on answers wait for it, if they are to
        finally:
            if self.rewriting is asyncio.current_task():
                self.rewriting = None

    def stop_rewriting(self) -> None:
        if self.rewriting is not None:
            self.rewriting.cancel()
            self.rewriting = None

    # -- the end -------------------------------------------------------------------------------------------

    async def close(self) -> None:
        rewriting = self.rewriting
        if rewriting is not None:
            rewriting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await rewriting
        if self.scrubbing is not None:
            await self.scrubbing
        if self.scrub is not None:
            self.scrub.stop()
        self.finish_beginning()
        if self.journal is not None:
            self.journal.close(with_snapshot=self.is_saved_at_end and not self.node.is_loading)
        self.node.overflow.store.close()
        if self.history is not None:
            self.history.close()

    def save_for_restart(self) -> None:
        """SHUTDOWN REWRITE-AOF: everything is in a fresh journal at the end, also where there was none."""
        if self.journal is None and self.settings.dir is not None:
            self.switch_on()  # the end waits for it
        self.is_saved_at_end = True

    def facts(self) -> dict[str, str]:
        journal = self.journal
        if journal is None:
            return {}
        writer = journal.writer
        return {
            "loading": str(int(self.node.is_loading)),
            "loading_loaded_perc": str(self.percent),
            "aof_enabled": "1",
            "aof_state": "beginning" if journal.is_beginning else "on",
            "aof_rewrite_in_progress": str(int(self.rewriting is not None)),
            "aof_last_rewrite_time_sec": str(int(journal.rewrite_seconds)),
            "aof_last_bgrewrite_status": "err" if journal.rewrite_error else "ok",
            "aof_last_sync_status": "err" if self.has_failed() else "ok",
            "aof_last_write_status": "err" if writer.trouble else "ok",
            "aof_current_size": str(journal.size()),
            "aof_base_size": str(journal.base_bytes),
            "aof_kept_bytes": str(sum(files.kept_bytes for files in journal.all())),
            "aof_pending_bytes": str(writer.pending_bytes),
            "aof_written_bytes": str(writer.written),
            "aof_syncs": str(writer.syncs),
            "aof_damages_found": str(self.node.counters.get("journal-damaged", 0)),
            "aof_damaged_files": str(sum(len(files.wounded) for files in journal.all())),
            "aof_set_aside_files": str(journal.set_aside()),
            "aof_jobs_doubtful": str(self.node.salvage.count()),
            "aof_scrubbed_files": str(0 if self.scrub is None else self.scrub.files_read),
            "aof_scrubbed_bytes": str(0 if self.scrub is None else self.scrub.bytes_read),
            "aof_load_usec": str(int(journal.load_seconds * 1e6)),
        }
