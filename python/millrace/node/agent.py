"""The slots of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millrace import _core
from millrace.ids import TaskId
from millrace.model import Fragmented, HdfsRead, OutputUse, Token, ToolUse, View
from millrace.node import mirror
from millrace.node.batch import Batch
from millrace.node.execution import Execution
from millrace.node.executions import Executions
from millrace.node.lent import Lender, Share
from millrace.node.slot_view import choose_view
from millrace.node.slots import FAREWELL_SECONDS
from millrace.node.workdir import WorkDir
from millrace.plan import memory, world
from millrace.task_numbers import number_of
from millrace.tasks import Compare, Ended, Ending, News, Search, SlotsChanged, Started, Task, Whole, Woken, news_of
from millrace.waiting import until

#: Interval between checks while programs end, in seconds.
LOOK_SECONDS = 0.1

if TYPE_CHECKING:
    from millrace.node.absence import Absence
    from millrace.node.memory import Memory
    from millrace.node.search import Searcher


class Node:
    """Slots that run batches and commit their output to the journal.

    Args:
        use: The tool, its arguments, inputs and outputs.
        work: The work directory.
        journal: The journal for results.
        hidden: Real paths that the tool must not see.
        staged: (copy, file): the tool reads the copy in place of the file; see ``millrace.storage.mounts``.
        names: Copies that the tool sees in the working directory, by name.
        lender: Lender of the slots; None: they are this run's own.
        view: Says which parts of a database are fetched later.
        shared: Folder that all nodes see, for files that the coordinator's node makes for all.
        files: Files that the tools read; failures while the filesystem of one is not served are delayed.

    Raises:
        OSError: The copies cannot take the place of the files.
    """

    n_nodes = 1

    def __init__(
        self, use: ToolUse, *, cwd: Path, exe: Path, environ: Mapping[str, str], work: WorkDir, slots: int,
        journal: _core.Journal, nice: int, hidden: frozenset[Path],
        staged: Sequence[tuple[str, str]] | None = None, names: Mapping[str, str] | None = None,
        lender: Lender | None = None, view: View | None = None, files: Sequence[world.File] = (),
        shared: Path = Path(),
    ) -> None:  # fmt: skip
        self._use = use
        seen = names
        if names and use.fragmented and use.fragmented.volumes:
            from millrace.node.volumes import without_volumes  # few runs need it

            seen = without_volumes(names, use.fragmented)
        mounted = None
        if staged:
            from millrace.storage import mounts  # as below

            mounted = mounts.View(staged)
        namespaces = mounted.namespaces if mounted else ()
        shown = choose_view(
            use, cwd, work.path, hidden, seen, environ.get("PWD", ""), namespaces, [file for _, file in staged or ()]
        )
        self._mirror, self._pwd = shown.layout, environ.get("PWD")
        self._executions = Executions(use, self._mirror)
        #: The same for verification tasks, which run in the user's own folder.
        self._apart = Executions(use, shown.apart) if shown.apart else None
        self._cwd = cwd
        roots = [work.slot(number) for number in range(slots)]
        for root in roots:
            self._mirror.build(root, shown.apart)
        tool_environ = {**environ, **use.env, work.token.partition("=")[0]: work.secret}
        own = {} if self._mirror.pwd is None else {"PWD": os.fsdecode(self._mirror.pwd)}
        in_slot = {**tool_environ, **own}
        tool_environ.pop("PWD", None)  # it names the user's folder, not that of programs that make fragments
        self._searcher: Searcher | None = None
        if use.fragmented:
            self._searcher = self._make_searcher(
                use, use.fragmented, cwd, tool_environ, work, slots, names or {}, view, shared
            )
        self._pool = _core.Pool(
            journal, roots=[str(root) for root in roots], directory=self._mirror.directory,
            skeleton=[*self._mirror.skeleton, *(shown.apart.skeleton if shown.apart else ())], exe=_in_slot(exe, use.argv[0], roots[0] / self._mirror.directory),
            environ=[os.fsencode(f"{name}={value}") for name, value in in_slot.items()],
            nice=nice, slot_mark=mirror.SLOT_MARK, secret=work.secret.encode(),
            substitutions=_pairs(self._mirror, shown.apart), streams=[_stream(output) for output in use.outputs],
            records_said=use.records_said, failures_said=list(use.failures_said), ok_statuses=use.ok_statuses, namespaces=shown.opened.namespaces if shown.opened else namespaces,
            kills=memory.kills_counter(),
            still_seconds=use.still_seconds, links=list(self._mirror.links), ignored=mirror.written_by_us(use, cwd, self._mirror, hidden),
            view=shown.opened.core if shown.opened else None,
            records=(use.inputs[0].format, use.served.record_start, use.served.record_end) if use.served else None,
        )  # fmt: skip
        shown.close()  # the pool has copies
        if mounted:
            mounted.close()
        self.kill_all = self._pool.kill_all
        self._slots = slots
        #: Number of slots in use.
        self._allowed = slots
        self._memory: Memory | None = None
        self._share = Share(lender, self._pool.allow, slots) if lender else None
        self._words: list[str] = []
        self._absence: Absence | None = None
        if any(file.mount for file in files):
            from millrace.node.absence import Absence  # as with the searcher

            self._absence = Absence(lambda: world.unserved(files), self._words.append)

    def _make_searcher(
        self, use: ToolUse, fragmented: Fragmented, cwd: Path, environ: Mapping[str, str], work: WorkDir, slots: int,
        names: Mapping[str, str], view: View | None, shared: Path,
    ) -> Searcher:  # fmt: skip
        from millrace.node.search import Searcher  # few runs need it, and the threads that it imports

        volumes = None
        if fragmented.volumes and view:
            from millrace.node.volumes import Volumes  # as above

            volumes = Volumes(fragmented, view, names, work.path / "volumes", shared)
        return Searcher(
            use, fragmented, self._mirror, cwd=cwd, environ=environ, work=work, threads=slots, volumes=volumes
        )

    def wake(self) -> None:
        """Let ``Node.events`` return now; the threads of feeder and output call this, and may outlive the pool."""
        with suppress(ValueError):  # closed: no thread waits any more
            self._pool.wake()

    def no_more(self) -> None:
        """Do nothing: local slots need not know; see ``Slots.no_more``."""

    def part(self, patience_seconds: float = FAREWELL_SECONDS, look: Callable[[], object] = bool) -> str:
        """End the programs that stay alive between tasks; see ``Slots.part``."""
        if not self._use.served:
            return ""
        from concurrent.futures import ThreadPoolExecutor, wait  # few runs need it

        with ThreadPoolExecutor(1) as threads:
            parting = threads.submit(self._pool.part, patience_seconds)
            try:
                until(lambda: wait([parting], LOOK_SECONDS).done or look())
            except BaseException:
                self.kill_all()
                raise
        return "".join(parting.result()[:1])  # the other processes most likely end alike

    def submit(self, task: Task, batch: Batch) -> None:
        """Queue a task for the first free slot."""

        def queue(execution: Execution) -> None:
            self._pool.submit(
                task.id, execution.argv, execution.placements, execution.outputs, timeout_seconds=task.timeout_seconds, cpu_limit_seconds=task.cpu_limit_seconds,
                first=batch.first, last=batch.last, attempt=task.attempt, inputs=list(batch.digests), urgent=task.urgent,
                fragment=number_of(task.kind), exe=execution.exe,
                substitutions=execution.substitutions, patches=execution.patches, within=execution.within,
                own_folder=execution.own_folder, alone=task.alone, warm=self._use.warm and isinstance(task.kind, Whole),
            )  # fmt: skip

        if self._share:
            self._share.submitted(task.id)
        match task.kind:
            case Whole() | Compare() if self._searcher:
                self._searcher.whole(
                    task, self._executions.of(batch), list(batch.files), batch.last - batch.first, queue, self.wake
                )
            case Compare(over) if self._apart:
                execution = self._apart.of(batch, again=True, over=over)
                queue(msgspec.structs.replace(execution, own_folder=(str(self._cwd), self._own_pwd)))
            case Compare(over):
                queue(self._executions.of(batch, again=True, over=over))
            case Whole():
                queue(self._executions.of(batch))
            case Search(fragment):
                self._fragments.search(
                    task.id, fragment, list(batch.files), self._executions.inputs(batch), queue, self.wake
                )
            case _:
                self._fragments.finish(task, self._executions.of(batch), list(batch.files), queue, self.wake)

    @property
    def _own_pwd(self) -> bytes | None:
        """Return the ``PWD`` of a task that runs in the user's own folder."""
        return None if self._pwd is None else os.fsencode(self._pwd)

    @property
    def _fragments(self) -> Searcher:
        assert self._searcher  # such tasks exist only for a database in fragments
        return self._searcher

    def events(self, timeout_seconds: float) -> list[News]:
        """Wait for events, at most ``timeout_seconds``; return all that are there.

        Raises:
            MillraceError: The candidates of a batch could not be put together.
        """
        found: list[News] = [self._as_typed(news_of(event)) for event in self._pool.events(timeout_seconds)]
        ended = [news for news in found if isinstance(news, Ended)]
        if self._share:
            self._tell(self._share, found, ended)
        if self._searcher:
            for news in ended:
                self._searcher.ended(news.task)
            if self._searcher.error:
                raise self._searcher.error
        changed = self._slots_changed(ended)
        if self._absence:
            found = self._absence.pass_on(found, time.monotonic())
        return [*found, *changed, *self._said()]

    def _as_typed(self, news: Started | Ended | Woken) -> Started | Ended | Woken:
        """Replace the name of a changed input by the path that the user typed."""
        if isinstance(news, Ended) and news.ending is Ending.CHANGED:
            places = zip(self._use.inputs, self._mirror.inputs, strict=True)
            typed = next(item.path for item, place in places if place.path == news.detail)
            return msgspec.structs.replace(news, detail=typed)
        return news

    def _said(self) -> list[News]:
        words, self._words[:] = [*self._words], []
        return [SlotsChanged(self._allowed, each) for each in words]

    def _tell(self, share: Share, found: Sequence[News], ended: Sequence[Ended]) -> None:
        for news in found:
            if isinstance(news, Started):
                share.started(news.task)
        share.over([news.task for news in ended])

    def _slots_changed(self, ended: Sequence[Ended]) -> list[SlotsChanged]:
        if not self._memory:
            if not any(news.out_of_memory for news in ended):
                return []
            from millrace.node.memory import Memory  # as with the searcher

            self._memory = Memory(self._share.by_memory if self._share else self._pool.allow, self._slots)
        changed = self._memory.look(ended)
        self._allowed = changed[-1].slots if changed else self._allowed
        return changed

    @property
    def read(self) -> HdfsRead:
        """Return the bytes that were read from HDFS."""
        return self._searcher.read if self._searcher else HdfsRead()

    def withdraw(self) -> list[TaskId]:
        """Remove the tasks that no slot has started; return their ids."""
        if self._absence:
            self._absence.give_up()
        waiting = self._searcher.withdraw() if self._searcher else []
        queued = [*map(TaskId, self._pool.withdraw())]
        if self._searcher:
            for task in queued:
                self._searcher.ended(task)
        found = [*waiting, *queued]
        if self._share:
            self._share.over([*found])
        return found

    def close(self) -> None:
        """Kill and reap running tools, and free the slots."""
        self._pool.close()
        if self._searcher:
            self._searcher.close()

    def argv(self, batch: Batch) -> list[bytes]:
        """Return the tool's arguments for ``batch``; ``mirror.SLOT_MARK`` in them stands for the slot."""
        return self._executions.argv(batch)


def _in_slot(exe: Path, typed: Token, place: Path) -> str:
    """Return the program's path in a slot: a relative path if the user typed one, as a script finds it in ``$0``."""
    if isinstance(typed, str) and "/" in typed and not os.path.isabs(typed):
        with suppress(OSError):
            if os.path.samefile(place / typed, exe):
                return typed
    return str(exe)


def _pairs(layout: mirror.Mirror, apart: mirror.Mirror | None) -> list[tuple[bytes, bytes]]:
    found = {*layout.substitutions, *(apart.substitutions if apart else ())}
    return sorted(found, key=lambda pair: -len(pair[0]))


def _stream(output: OutputUse) -> tuple[str, str, list[str]]:
    name = "standard output" if output.path == "-" else output.path
    # For messages: a name need not be UTF-8.
    return os.fsencode(name).decode(errors="replace"), output.join, list(output.volatile)
