"""The part of Millrace in a Dask worker: a plugin with a process that holds the slots of one run.

The coordinator has ``set_up_slots`` called in each worker that joins, and submits tasks that call ``run_task``. Nothing
stays with Dask's scheduler. When Dask drops all tasks that run, as after a loss of the coordinator, their tools are killed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker

from millrace import __version__
from millrace.cluster import messages as say
from millrace.cluster.dask.message_pipe import LENGTH
from millrace.cluster.transport.message_encoding import decode_message, encode_message
from millrace.core.errors import LostError, MillraceError, RefusedError
from millrace.core.tasks import TaskId
from millrace.host.python_launch import make_python_command

#: Resource of a Dask worker with slots: as many as its threads.
RESOURCE = "millrace"

#: Seconds that the process with the slots gets to kill its tools and end.
MAX_END_SECONDS = 5.0


def format_plugin_name(run: str) -> str:
    """Return the name of the plugin of one start of a run."""
    return f"millrace-{run}"


class SlotsPlugin(WorkerPlugin):
    """The slots of one run in this worker.

    Args:
        run: Names the start of the run.
    """

    def __init__(self, run: str) -> None:
        self.name = format_plugin_name(run)
        self._process: asyncio.subprocess.Process | None = None
        #: The answers that tasks wait for, and the Dask keys of those that Dask still wants.
        self._answers: dict[TaskId, asyncio.Future[bytes]] = {}
        self._wanted: dict[str, TaskId] = {}
        self._reader: asyncio.Task[None] | None = None
        self._failure, self._is_ended = b"", False

    @property
    def is_alive(self) -> bool:
        """Whether the process can take tasks."""
        return self._reader is not None and not self._reader.done() and not self._is_ended

    async def start_process(self, setup: bytes) -> bytes:
        """Start the process with the slots; return its first message."""
        command = make_python_command("-m", "millrace.cluster.dask.slot_process")
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
        self._send_content(setup)
        answer = await self._read_content()
        self._reader = asyncio.create_task(self._read_answers())
        return answer

    def _send_content(self, content: bytes) -> None:
        assert self._process and self._process.stdin
        self._process.stdin.write(LENGTH.pack(len(content)) + content)

    async def _read_content(self) -> bytes:
        assert self._process and self._process.stdout
        (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
        return await self._process.stdout.readexactly(length)

    async def _read_answers(self) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                content = await self._read_content()
                message = decode_message(content)
                if isinstance(message, say.WorkerTaskEnded):
                    if (answer := self._answers.pop(message.ended.task, None)) and not answer.done():
                        answer.set_result(content)
                elif isinstance(message, say.AgentFailed):
                    self._failure = content
        for answer in self._answers.values():
            if answer.done():
                continue
            if self._failure:
                answer.set_result(self._failure)
            else:
                answer.set_exception(LostError("the process with the slots has ended"))
        self._answers.clear()

    async def run_task(self, key: str, task: TaskId, content: bytes) -> bytes:
        """Run a task in a slot; return the message of its end.

        Raises:
            LostError: The process with the slots has ended.
        """
        if not self.is_alive:
            if self._failure:
                return self._failure
            raise LostError("the process with the slots has ended")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[task] = answer
        self._wanted[key] = task
        try:
            self._send_content(content)
            return await answer
        finally:
            self._wanted.pop(key, None)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """End the process, and so the tools, if Dask wants none of their tasks any more; a new one is set up if needed."""
        if (
            finish in ("released", "cancelled", "forgotten")
            and self._wanted.pop(key, None) is not None
            and not self._wanted
        ):
            self._end_input()

    def _end_input(self) -> None:
        """End the pipe to the process, which then kills its tools and ends."""
        self._is_ended = True
        if self._process and self._process.stdin:
            self._process.stdin.close()

    async def teardown(self, worker: Worker) -> None:
        """End the process."""
        self._end_input()
        if self._process:
            try:
                await asyncio.wait_for(self._process.wait(), MAX_END_SECONDS)
            except TimeoutError:
                self._process.kill()


async def set_up_slots(run: str, release: str, content: bytes, worker: Worker) -> bytes:
    """Start the slots of a run in this worker, unless they are there; return the message that says so, or why not."""
    if release != __version__:
        return encode_error(
            RefusedError(
                f"has millrace {__version__}, the coordinator has {release}", "install the same release on all workers"
            )
        )
    name = format_plugin_name(run)
    found = worker.plugins.get(name)
    if isinstance(found, SlotsPlugin) and found.is_alive:
        return bytes(encode_message(say.AgentHeartbeat()))
    plugin = SlotsPlugin(run)
    try:
        answer = await plugin.start_process(content)
    except asyncio.IncompleteReadError:
        return encode_error(
            MillraceError("the process with the slots ended at its start", "look at the log of the worker")
        )
    if not isinstance(decode_message(answer), say.AgentFailed):
        await worker.plugin_add(plugin, name=name)
        await worker.set_resources(**{RESOURCE: float(worker.state.nthreads)})
    return answer


def encode_error(error: MillraceError) -> bytes:
    """Encode the message of an error."""
    return bytes(encode_message(say.AgentFailed.from_error(error)))


async def run_task(run: str, key: str, task: int, content: bytes) -> bytes:
    """Run a task in a slot of this worker; return the message of its end.

    Raises:
        LostError: The slots are not there any more.
    """
    plugin = get_worker().plugins.get(format_plugin_name(run))
    if not isinstance(plugin, SlotsPlugin):
        raise LostError("the slots are not there any more")
    return await plugin.run_task(key, TaskId(task), content)


async def end_slots(run: str, worker: Worker) -> None:
    """End the slots of a run in this worker."""
    if format_plugin_name(run) in worker.plugins:
        await worker.plugin_remove(name=format_plugin_name(run))
