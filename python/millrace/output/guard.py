"""Only results of the world as planned: held back until a look after them has found inputs, databases and program as they were."""

from __future__ import annotations

import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from millrace.committed import Committed
from millrace.errors import CorruptError, UnservedError
from millrace.output.stage import Stage
from millrace.plan import world

#: Says what has changed, in words; empty: nothing.
Look: TypeAlias = Callable[[], str]


class Guard:
    """Looks whether the world is as planned; from any thread.

    Args:
        files: What was planned with.
        where: What to put before a message: the node, in a job of several.
    """

    def __init__(self, files: Sequence[world.File], where: str = "") -> None:
        #: What has changed, in words. Once set it stays: nothing that came since the last good look is to be used.
        self.changed = ""
        self._files, self._where = files, where
        self._looking = threading.Lock()
        self._more: dict[tuple[int, int], Look] = {}
        self._put = 0
        #: How many of the results that were `told` had come before the last good look.
        self.sure = 0

    def told(self) -> int:
        """A result has come; returns its number, from 1."""
        self._put += 1
        return self._put

    @property
    def waits(self) -> bool:
        """Whether there are results that no look has followed."""
        return self._put > self.sure

    def also(self, first: int, last: int, look: Look) -> None:
        """From now on, until `done`, look at more: at what the records ``[first, last)`` alone depend on."""
        self._more.setdefault((first, last), look)

    def done(self, first: int, last: int) -> None:
        """See `also`."""
        self._more.pop((first, last), None)

    def look(self) -> float:
        """Look at everything once; returns the seconds that it took.

        Raises:
            CorruptError: Something is not what it was.
            UnservedError: A filesystem does not tell; it may do so at the next look.
        """
        with self._looking:
            begun, put = time.monotonic(), self._put
            if not self.changed:
                if point := world.unserved(self._files):
                    raise unserved(self._where, point)
                looks: list[Look] = [lambda: world.changed(self._files), *self._more.copy().values()]
                self.changed = next((found for look in looks if (found := look())), "")
            if self.changed:
                raise self.error()
            self.sure = put
            return time.monotonic() - begun

    def error(self) -> CorruptError:
        """What ends a run when something has changed."""
        name = world.named_file(self.changed)
        own = f"; if the command writes it, say so and start over: --output {shlex.quote(name)} --fresh" if name else ""
        return CorruptError(
            f"{self._where}{self.changed}: it changed while the run was on",
            "what was done before that is kept: put back what was there and type the same command again, "
            f"or start over with --fresh{own}",
        )


def unserved(where: str, point: str) -> UnservedError:
    """The error of a filesystem that nobody serves."""
    return UnservedError(
        f"{where}{point}: nobody serves what was mounted there any more",
        f"what is done is kept: umount {point}, mount it anew and type the same command again: it resumes",
    )


class GuardedWriter:
    """A stage that gets each result once a look after it was good. The face of a `Stage`.

    Args:
        waits: Whether it is not known yet that results are worth writing.
        begin: Called once, before the first result is passed on, or where there is none, at the end.
    """

    def __init__(self, stage: Stage, guard: Guard, waits: Callable[[], bool], begin: Callable[[], None]) -> None:
        self._stage, self._guard, self._waits, self._begin = stage, guard, waits, begin
        self._has_begun = False
        self._held: deque[tuple[int, Committed]] = deque()
        self._drained = False

    @property
    def error(self) -> BaseException | None:
        """See `Stage`."""
        return self._stage.error

    def put(self, task: Committed) -> None:
        """See `Stage`."""
        self._held.append((self._guard.told(), task))

    def turn(self) -> None:
        """Pass on what is sure by now."""
        while self._held and self._held[0][0] <= self._guard.sure and not self._waits():
            task = self._held.popleft()[1]
            self._guard.done(task.first, task.last)
            self._begin_once()
            self._stage.put(task)

    def _begin_once(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._begin()

    def drain(self, timeout_seconds: float) -> int | None:
        """See `Stage`; looks for the last time.

        Raises:
            CorruptError: Something is not what it was.
        """
        if not self._drained:
            self._guard.look()
            self.turn()
            self._drained = True
        return self._stage.drain(timeout_seconds)

    def finish(self) -> dict[str, int]:
        """See `Stage`."""
        self._begin_once()
        return self._stage.finish()

    def changed(self) -> dict[str, str]:
        """See `Stage`."""
        return self._stage.changed()
