"""The coordinator's connection to a Dask cluster: a thread with an event loop, in which Dask's client lives.

Events go to a queue, in the order in which they happen. Workers are those that Dask's scheduler lists; one that is silent
for too long counts as gone, and as new when it is heard again. After a loss of the scheduler, all workers are gone, and
the connection is made again.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from millrace.cluster import messages as say
from millrace.cluster.dask.scheduler_connection import SchedulerConnection
from millrace.cluster.transport.message_encoding import decode_message, encode_message
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.tasks import TaskEnding
from millrace.scheduler.worker_demand import RemainingWork

#: Seconds between two looks at the list of workers.
POLL_INTERVAL_SECONDS = 0.5

#: Seconds without a heartbeat to Dask's scheduler after which a worker counts as gone; at least so many heartbeats.
MAX_SILENCE_SECONDS, MIN_HEARTBEATS = 10.0, 5

#: Longest time for the first connection, in seconds.
MAX_FIRST_CONNECT_SECONDS = 60.0

#: Failures of a worker in a row, without a result, after which it gets no more tasks.
MAX_FAILURES = 3

#: Endings that are the worker's fault: a full disk, a program that cannot be started, tools that are killed.
NOT_THE_TASKS = (TaskEnding.IO, TaskEnding.SPAWN, TaskEnding.KILLED)

#: Seconds for the last messages.
MAX_GOODBYE_SECONDS = 5.0


class WorkerJoined(NamedTuple):
    """A worker has slots from now on."""

    address: str
    #: For messages.
    name: str
    slots: int


class WorkerGone(NamedTuple):
    """A worker gives no more results; ``why`` in words."""

    address: str
    why: str


class WorkerRefused(NamedTuple):
    """A worker cannot take part."""

    name: str
    error: MillraceError


class TaskAnswered(NamedTuple):
    """A worker has answered: how the task with this number ended."""

    address: str
    number: int
    answer: say.WorkerTaskEnded


class LinkFailed(NamedTuple):
    """The connection is lost for good."""

    error: BaseException


#: What the thread reports; None only wakes the reader.
LinkEvent = WorkerJoined | WorkerGone | WorkerRefused | TaskAnswered | LinkFailed | None


class _KnownWorker(msgspec.Struct):
    """A worker in the list of Dask's scheduler."""

    name: str
    threads: int
    #: Dask's time of its last heartbeat, and ours when that changed last.
    last_seen: float
    heard: float
    state: Literal["new", "ready", "silent", "refused"] = "new"
    failures: int = 0
    #: How often it was set up again: one failure may show in several tasks.
    n_setups: int = 0
    slots: int = 1
    #: Its tasks that are out.
    tasks: dict[int, asyncio.Task[None]] = msgspec.field(default_factory=dict)


class DaskLink:
    """The connection, from its start to ``close``.

    Args:
        place: Address of Dask's scheduler, or the path of a scheduler file.
        run: Names this start of the run.
        patience_seconds: Longest time without Dask's scheduler.
        make_setup: Makes the message that sets up a worker, from its name and its number of threads.
    """

    def __init__(
        self, place: str, run: str, patience_seconds: float, make_setup: Callable[[str, int], say.SetUpWorker]
    ) -> None:
        self._run, self._patience_seconds, self._make_setup = run, patience_seconds, make_setup
        self.events: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
        self._workers: dict[str, _KnownWorker] = {}
        self._work = RemainingWork(None, 1)
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._connection = SchedulerConnection(place, self._closing)
        self._background: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run_loop, name="dask", daemon=True)
        self._thread.start()

    # For the engine's thread

    def submit_task(self, address: str, number: int, message: say.RunWorkerTask) -> None:
        """Send a task to a worker. ``number`` is unique in this run."""
        content = bytes(encode_message(message))
        self._call_soon(lambda: self._start_task(address, number, content))

    def cancel_task(self, address: str, number: int) -> None:
        """Cancel a task: nothing is reported of it any more. Its tool is killed if the worker has no other task."""
        self._call_soon(lambda: self._stop_tasks(address, [number]))

    def renew_worker(self, address: str, why: str) -> None:
        """Set up a worker again, whose slots do not do their work."""
        self._call_soon(lambda: self._fail_worker(address, why))

    def publish_work(self, work: RemainingWork) -> None:
        """Publish what this run has left: the owner of the cluster knows from it how many workers have work."""
        self._work = work

    @property
    def are_all_refused(self) -> bool:
        """Whether no worker that is there can take part."""
        return all(worker.state == "refused" for worker in [*self._workers.values()])

    def close(self) -> None:
        """End the slots of all workers, and the connection."""
        self._call_soon(self._closing.set)
        self._thread.join(4 * MAX_GOODBYE_SECONDS)

    def _call_soon(self, call: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the last event has said why
            self._loop.call_soon_threadsafe(call)

    # The loop

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of other versions of Dask's packages, or a large task
                self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self.events.put(LinkFailed(error))
        finally:
            with suppress(Exception):
                self._loop.run_until_complete(self._end_loop())
            self._loop.close()

    async def _serve(self) -> None:
        connection = self._connection
        await connection.connect(min(self._patience_seconds, MAX_FIRST_CONNECT_SECONDS))
        while not self._closing.is_set():
            if (found := await connection.list_workers()) is not None:
                self._compare_workers(found)
                await connection.publish_work(self._work)
            else:
                # A scheduler that only stands still goes on with all that it has.
                patience = self._patience_seconds - connection.silence_seconds
                if not connection.is_running or patience < 0:
                    for address in [*self._workers]:
                        self._lose_worker(address, "Dask's scheduler is lost")
                    self._workers.clear()
                    await connection.connect(patience)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), POLL_INTERVAL_SECONDS)
        await self._say_goodbye()

    async def _end_loop(self) -> None:
        await self._connection.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _say_goodbye(self) -> None:
        """End the slots in the workers that answer."""
        ready = [address for address, worker in self._workers.items() if worker.state == "ready"]
        for address in [*self._workers]:
            self._stop_tasks(address, [*self._workers[address].tasks])
        if ready:
            with suppress(Exception):
                await asyncio.wait_for(self._connection.end_slots(self._run, ready), MAX_GOODBYE_SECONDS)

    # Workers

    def _compare_workers(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Compare the workers with the list of Dask's scheduler."""
        now = time.monotonic()
        limit = max(MAX_SILENCE_SECONDS, MIN_HEARTBEATS * _estimate_heartbeat_seconds(len(found)))
        for address in [*self._workers]:
            if address not in found or found[address]["status"] != "running":
                self._lose_worker(address, "it has left")
                del self._workers[address]
        for address, about in found.items():
            worker = self._workers.get(address)
            if worker is None:
                if about["status"] == "running":
                    self._add_worker(address, about, now)
            elif about["last_seen"] != worker.last_seen:
                worker.last_seen, worker.heard = about["last_seen"], now
                if worker.state == "silent":
                    worker.state = "new"
                    self._run_in_background(self._set_up(address, worker))
            elif now - worker.heard > limit and worker.state == "ready":
                self._lose_worker(address, f"no sign of life for {limit:.0f} s")
                worker.state = "silent"

    def _add_worker(self, address: str, about: Mapping[str, Any], now: float) -> None:
        place = address.rpartition("://")[2]
        self._workers[address] = worker = _KnownWorker(
            f"worker {place}", int(about["nthreads"]), about["last_seen"], now
        )
        self._run_in_background(self._set_up(address, worker))

    def _run_in_background(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _set_up(self, address: str, worker: _KnownWorker) -> None:
        """Have a worker make its slots, and report that it has them, or why not."""
        setup = self._make_setup(worker.name, worker.threads)
        content = bytes(encode_message(setup))
        try:
            # As long as it takes: the worker may fetch a database.
            answer = decode_message(await self._connection.set_up_slots(self._run, address, content))
        except ImportError as error:
            self._refuse(
                address, RefusedError(f"{worker.name} cannot load millrace: {error}", "install 'millrace[dask]' there")
            )
            return
        except Exception as error:
            await self._judge_worker(address, worker, f"its slots cannot be made: {error or type(error).__name__}")
            return
        if self._workers.get(address) is not worker or worker.state != "new":
            return
        if isinstance(answer, say.AgentFailed):
            self._refuse(address, answer.rebuild_error(worker.name))
            return
        worker.state, worker.slots = "ready", setup.slots
        self.events.put(WorkerJoined(address, worker.name, setup.slots))

    def _lose_worker(self, address: str, why: str) -> None:
        """Cancel the tasks of a worker, and report that it is gone if it had slots."""
        worker = self._workers[address]
        self._stop_tasks(address, [*worker.tasks])
        if worker.state == "ready":
            self.events.put(WorkerGone(address, why))

    def _fail_worker(self, address: str, why: str, *, counts: bool = True) -> None:
        """Set up a worker again after a failure that is none of a record; refuse it after several in a row.

        Args:
            counts: Whether it is the worker's failure, and not that of Dask's scheduler.
        """
        if (worker := self._workers.get(address)) is None or worker.state not in ("new", "ready"):
            return
        worker.n_setups += 1
        worker.failures += counts
        if worker.failures >= MAX_FAILURES:
            self._refuse(address, MillraceError(f"{worker.name}: {why}", "look at the log of the worker"))
            return
        self._lose_worker(address, why)
        worker.state = "new"
        self._run_in_background(self._set_up_later(address, worker))

    async def _judge_worker(self, address: str, worker: _KnownWorker, why: str) -> None:
        """Find out whether a worker that has failed at something has left, or does not work."""
        if not self._connection.is_running:
            self._connection.note_lost_tasks()  # all workers are set up again
            return
        n_setups = worker.n_setups
        found = await self._connection.list_workers()
        if found is not None:
            self._compare_workers(found)
        if self._workers.get(address) is worker and worker.n_setups == n_setups:
            self._fail_worker(address, why, counts=found is not None)

    async def _set_up_later(self, address: str, worker: _KnownWorker) -> None:
        await asyncio.sleep(POLL_INTERVAL_SECONDS)
        if self._workers.get(address) is worker and worker.state == "new":
            await self._set_up(address, worker)

    def _refuse(self, address: str, error: MillraceError) -> None:
        if worker := self._workers.get(address):
            self._lose_worker(address, error.message)
            worker.state = "refused"
            self.events.put(WorkerRefused(worker.name, error))

    # Tasks

    def _start_task(self, address: str, number: int, content: bytes) -> None:
        worker = self._workers.get(address)
        if worker is not None and worker.state == "ready":
            worker.tasks[number] = self._loop.create_task(self._follow_task(address, worker, number, content))

    def _stop_tasks(self, address: str, numbers: list[int]) -> None:
        if worker := self._workers.get(address):
            for number in numbers:
                if task := worker.tasks.pop(number, None):
                    task.cancel()

    async def _follow_task(self, address: str, worker: _KnownWorker, number: int, content: bytes) -> None:
        """Submit a task, and report its end; on cancellation, Dask forgets it."""
        n_threads = max(1, worker.threads // worker.slots)
        future = self._connection.submit_task(self._run, address, number, content, n_threads)
        try:
            answer = decode_message(await future)
            worker.tasks.pop(number, None)
            if isinstance(answer, say.WorkerTaskEnded):
                if answer.ended.ending not in NOT_THE_TASKS:
                    worker.failures = 0
                self.events.put(TaskAnswered(address, number, answer))
            elif isinstance(answer, say.AgentFailed) and worker.state == "ready":
                self._refuse(address, answer.rebuild_error(worker.name))
        except Exception as error:  # Dask's, such as KilledWorker, or that of a lost slot: never the record's
            worker.tasks.pop(number, None)
            why = f"a task was lost: {error or type(error).__name__}"
            self._run_in_background(self._judge_worker(address, worker, why))
        finally:
            with suppress(Exception):
                future.release()


def _estimate_heartbeat_seconds(n_workers: int) -> float:
    """Return the interval at which Dask's workers send heartbeats, which grows with their number."""
    return max(0.5, math.ceil(n_workers / 200) + 1.0) if n_workers > 10 else 0.5
