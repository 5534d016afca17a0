"""The connection to Dask's scheduler, which is made again after a loss."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from distributed import Client

from millrace import __version__
from millrace.cluster.dask.worker_plugin import RESOURCE
from millrace.core.errors import LostError
from millrace.core.text_format import format_duration
from millrace.core.wait_loop import WaitDeadline

#: Seconds for one attempt to connect, and between two.
CONNECT_SECONDS, RETRY_SECONDS = 5.0, 0.5

#: Seconds without an answer after which a question to the scheduler is given up.
MAX_ANSWER_SECONDS = 10.0

#: Seconds for the end of the connection.
MAX_CLOSE_SECONDS = 5.0


class SchedulerConnection:
    """Dask's client, and whether it still has its tasks. For one event loop.

    Args:
        place: Address of Dask's scheduler, or the path of a scheduler file.
        closing: Set: nobody waits for the connection any more.
    """

    def __init__(self, place: str, closing: asyncio.Event) -> None:
        self._place, self._closing = place, closing
        self.client: Any = None
        self._is_broken = False
        #: Time of the last answer.
        self._answered = time.monotonic()
        for name in ("distributed", "distributed.client", "tornado"):
            # What matters is reported in our words.
            logging.getLogger(name).setLevel(logging.CRITICAL)

    @property
    def is_running(self) -> bool:
        """Whether Dask's client has its connection, and has not made another one since, without its tasks."""
        return not self._is_broken and self.client is not None and self.client.status == "running"

    @property
    def silence_seconds(self) -> float:
        """Seconds since the scheduler's last answer."""
        return time.monotonic() - self._answered

    def note_lost_tasks(self) -> None:
        """Count the connection as broken, with all tasks, even if Dask's client makes another one."""
        self._is_broken = True

    async def connect(self, patience_seconds: float) -> None:
        """Connect, in place of any connection before.

        Raises:
            LostError: The scheduler does not answer in time.
        """
        deadline = WaitDeadline(patience_seconds)
        while not self._closing.is_set():
            await self.close()
            self._is_broken = False
            try:
                self.client = _make_client(self._resolve_address())
                await self.client
            except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
                if deadline.is_over:
                    raise LostError(
                        f"{self._place}: Dask's scheduler does not answer for {format_duration(patience_seconds)}: {error}",
                        "start it, and type the same command: it resumes",
                    ) from error
            else:
                self._answered = time.monotonic()
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), RETRY_SECONDS)

    async def close(self) -> None:
        """End the connection, if there is one."""
        client, self.client = self.client, None
        if client is not None:
            with suppress(Exception):
                await asyncio.wait_for(client.close(), MAX_CLOSE_SECONDS)

    async def list_workers(self) -> Mapping[str, Mapping[str, Any]] | None:
        """Return what the scheduler knows of its workers; None: it does not answer."""
        if self._is_broken:
            return None
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                about = await self.client.scheduler.identity(n_workers=-1)
        except Exception:  # Dask's own, of many kinds
            return None
        self._answered = time.monotonic()
        return dict(about["workers"])

    # What runs on workers is sent by value: they import millrace only then, and an ImportError is theirs.

    async def set_up_slots(self, run: str, address: str, content: bytes) -> bytes:
        """Have a worker make its slots; return its answer.

        Args:
            content: A ``SetUpWorker``, encoded.

        Raises:
            ImportError: The worker has no millrace.
            Exception: Dask's own, of many kinds.
        """

        async def set_up_slots(run: str, release: str, content: bytes, dask_worker: Any) -> bytes:
            from millrace.cluster.dask import worker_plugin

            return await worker_plugin.set_up_slots(run, release, content, dask_worker)

        found = await self.client.run(set_up_slots, run, __version__, content, workers=[address])
        return bytes(found[address])

    def submit_task(self, run: str, address: str, number: int, content: bytes, n_threads: int) -> Any:
        """Submit a task to one worker; return Dask's future of the answer.

        Args:
            content: A ``RunWorkerTask``, encoded.
            n_threads: Threads of the worker that the task takes.
        """

        async def run_task(run: str, key: str, number: int, content: bytes) -> bytes:
            from millrace.cluster.dask import worker_plugin

            return await worker_plugin.run_task(run, key, number, content)

        key = f"millrace-{run}-{number}"
        return self.client.submit(
            run_task, run, key, number, content, key=key, workers=[address], pure=False, resources={RESOURCE: n_threads}
        )

    async def end_slots(self, run: str, addresses: Sequence[str]) -> None:
        """End the slots of workers; those that do not answer are left out."""

        async def end_slots(run: str, dask_worker: Any) -> None:
            from millrace.cluster.dask import worker_plugin

            await worker_plugin.end_slots(run, dask_worker)

        await self.client.run(end_slots, run, workers=addresses, on_error="ignore")

    def _resolve_address(self) -> str:
        """Return the address of Dask's scheduler.

        Raises:
            OSError: The scheduler file cannot be read.
            ValueError: It is none.
        """
        if "://" in self._place or (":" in self._place and "/" not in self._place):
            return self._place
        with open(self._place, encoding="utf-8") as file:
            return str(json.load(file)["address"])


def _make_client(address: str) -> Any:
    make: Any = Client  # not typed
    return make(address, asynchronous=True, set_as_default=False, timeout=CONNECT_SECONDS, name="millrace")
