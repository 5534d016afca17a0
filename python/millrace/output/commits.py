"""Group commit: a thread syncs the journal at intervals, and delays results until inputs are checked.

No slot waits for a disk. Synced results are final. So before each sync, the thread checks that inputs, databases and
program have not changed.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from millrace import _core
from millrace.core.errors import CorruptError, UnservedError
from millrace.core.tasks import CommittedRecords
from millrace.output.output_parts import OutputWriter
from millrace.planning import dependency_files

#: Returns a description of what has changed; empty: nothing.
ChangeCheck: TypeAlias = Callable[[], str]


class ChangeGuard:
    """Checks that the planned files have not changed; usable from any thread.

    Args:
        files: Files of the plan.
        where: Prefix of messages: the node, in a job of several.
    """

    def __init__(self, files: Sequence[dependency_files.DependencyFile], where: str = "") -> None:
        #: Description of the change. Once set it stays: no result since the last good check may be used.
        self.changed = ""
        self._files, self._where = files, where
        self._looking = threading.Lock()
        self._more: dict[tuple[int, int], ChangeCheck] = {}
        self._put = 0
        #: Number of results counted before the last good check.
        self.sure = 0

    def count_result(self) -> int:
        """Count a result; return its number, from 1."""
        self._put += 1
        return self._put

    @property
    def has_unchecked_results(self) -> bool:
        """Return whether there are results that no check has followed."""
        return self._put > self.sure

    def add_check(self, first: int, last: int, look: ChangeCheck) -> None:
        """Add a check for the records ``[first, last)``, for files that only they depend on, until ``ChangeGuard.remove_check``."""
        self._more.setdefault((first, last), look)

    def remove_check(self, first: int, last: int) -> None:
        """Remove the check of ``ChangeGuard.add_check``."""
        self._more.pop((first, last), None)

    def check_unchanged(self) -> float:
        """Check everything once; return the seconds that it took.

        Raises:
            CorruptError: A file has changed.
            UnservedError: A filesystem does not answer; it may do so at the next check.
        """
        with self._looking:
            begun, put = time.monotonic(), self._put
            if not self.changed:
                if point := dependency_files.find_unserved_mount(self._files):
                    raise build_unserved_error(self._where, point)
                looks: list[ChangeCheck] = [
                    lambda: dependency_files.describe_first_change(self._files),
                    *self._more.copy().values(),
                ]
                self.changed = next((found for look in looks if (found := look())), "")
            if self.changed:
                raise self.build_change_error()
            self.sure = put
            return time.monotonic() - begun

    def build_change_error(self) -> CorruptError:
        """Build the error that ends a run when a file has changed."""
        name = dependency_files.parse_named_file(self.changed)
        own = f"; if the command writes it, say so and start over: --output {shlex.quote(name)} --fresh" if name else ""
        return CorruptError(
            f"{self._where}{self.changed}: it changed while the run was on",
            "what was done before that is kept: put back what was there and type the same command again, "
            f"or start over with --fresh{own}",
        )


def build_unserved_error(where: str, point: str) -> UnservedError:
    """Build the error for a mounted filesystem that no process serves."""
    return UnservedError(
        f"{where}{point}: nobody serves what was mounted there any more",
        f"what is done is kept: umount {point}, mount it anew and type the same command again: it resumes",
    )


class GuardedWriter:
    """A ``OutputWriter`` that passes each result on once a check after it was good.

    Args:
        waits: Returns whether results must not be written yet.
        begin: Called once, before the first result is passed on, or at the end if there is none.
    """

    def __init__(
        self, stage: OutputWriter, guard: ChangeGuard, waits: Callable[[], bool], begin: Callable[[], None]
    ) -> None:
        self._stage, self._guard, self._waits, self._begin = stage, guard, waits, begin
        self._has_begun = False
        self._held: deque[tuple[int, CommittedRecords]] = deque()
        self._drained = False

    @property
    def error(self) -> BaseException | None:
        """Return the error of the ``OutputWriter``."""
        return self._stage.error

    def add_task(self, task: CommittedRecords) -> None:
        """Add a result, which is held until a check has followed."""
        self._held.append((self._guard.count_result(), task))

    def write_checked_tasks(self) -> None:
        """Pass on the results that a check has confirmed."""
        while self._held and self._held[0][0] <= self._guard.sure and not self._waits():
            task = self._held.popleft()[1]
            self._guard.remove_check(task.first, task.last)
            self._begin_writing_once()
            self._stage.add_task(task)

    def _begin_writing_once(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._begin()

    def drain_tasks(self, timeout_seconds: float) -> int | None:
        """Check for the last time, pass the rest on, and drain the ``OutputWriter``.

        Raises:
            CorruptError: A file has changed.
        """
        if not self._drained:
            self._guard.check_unchanged()
            self.write_checked_tasks()
            self._drained = True
        return self._stage.drain_tasks(timeout_seconds)

    def finish_outputs(self) -> dict[str, int]:
        """Finish the ``OutputWriter``; see ``OrderedWriter.finish_outputs``."""
        self._begin_writing_once()
        return self._stage.finish_outputs()

    def find_changed_outputs(self) -> dict[str, str]:
        """Return changes of the output files; see ``OutputStreams.find_changed_outputs``."""
        return self._stage.find_changed_outputs()


#: Unsynced bytes above which the journal is synced before the interval ends.
MAX_UNSYNCED_BYTES = 64 << 20

#: Shortest and longest pause between checks of the journal, in seconds.
PAUSE_RANGE_SECONDS = (0.01, 0.25)

#: Longest time between two checks of the planned files, in seconds, with nothing to commit; and the shortest pause
#: between two checks, as a multiple of the duration of one.
MAX_CHECK_INTERVAL_SECONDS, MIN_REST_FACTOR = 4.0, 100.0


class GroupCommit:
    """A thread that syncs ``journal`` within ``seconds`` of an append.

    ``error`` is set if that fails, or if ``guard`` finds a change.
    """

    def __init__(self, journal: _core.Journal, seconds: float, wake: Callable[[], None], guard: ChangeGuard) -> None:
        self.error: BaseException | None = None
        self._journal, self._seconds, self._wake, self._guard = journal, seconds, wake, guard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_commits, name="group commit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; the caller syncs the rest."""
        self._stop.set()
        self._thread.join()

    def _run_commits(self) -> None:
        synced, took = time.monotonic(), 0.0
        while not self._stop.wait(min(max(self._seconds / 4, PAUSE_RANGE_SECONDS[0]), PAUSE_RANGE_SECONDS[1])):
            now = time.monotonic()
            waiting, idle = self._journal.unsynced, now - synced
            due = (waiting or self._guard.has_unchecked_results) and idle >= max(self._seconds, MIN_REST_FACTOR * took)
            if (
                due
                or waiting > MAX_UNSYNCED_BYTES
                or idle >= max(MAX_CHECK_INTERVAL_SECONDS, self._seconds, MIN_REST_FACTOR * took)
            ):
                try:
                    took = commit_journal(self._journal, self._guard)
                except UnservedError:
                    pass  # nothing is final until it is mounted again; else failing tools end the run
                except (OSError, _core.CorruptJournal, CorruptError) as error:
                    self.error = error
                    self._wake()
                    return
                synced = now


def commit_journal(journal: _core.Journal, guard: ChangeGuard) -> float:
    """Check that nothing has changed, and sync the journal; return the seconds that the check took.

    Raises:
        CorruptError: A planned file has changed.
    """
    sure = journal.end  # blocks up to here were computed before the check
    took = guard.check_unchanged()
    if journal.unsynced:
        journal.sync(sure)
    return took
