"""The connection to Dask's scheduler, which is made again after a loss."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from distributed import Client, Scheduler, Security

from millrace import __version__
from millrace.cluster.dask.worker_plugin import RESOURCE
from millrace.core.errors import LostError
from millrace.core.text_format import format_duration
from millrace.core.wait_loop import WaitDeadline
from millrace.scheduler.worker_demand import RemainingWork

#: Seconds for one attempt to connect, and between two.
CONNECT_SECONDS, RETRY_SECONDS = 5.0, 0.5

#: Seconds without an answer after which a question to the scheduler is given up.
MAX_ANSWER_SECONDS = 10.0

#: Metadata of Dask's scheduler under which runs publish what they have left, by the id of their client.
WORK_KEY = "millrace-work"

#: Name in a scheduler file of the certificate with its key, as text, that all processes of the cluster have.
CERTIFICATE_KEY = "millrace_certificate"

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
        #: Client that has published what is left, and that.
        self._published: tuple[str, RemainingWork] | None = None
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
                self.client = self._make_client()
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

    async def publish_work(self, work: RemainingWork) -> None:
        """Publish what this run has left, as metadata of Dask's scheduler; see ``read_published_work``."""
        if self._published == (self.client.id, work):
            return
        with suppress(Exception):  # Dask's own, of many kinds; the next attempt comes soon
            keys, value = [WORK_KEY, self.client.id], msgspec.to_builtins(work)
            await asyncio.wait_for(self.client.scheduler.set_metadata(keys=keys, value=value), MAX_ANSWER_SECONDS)
            self._published = (self.client.id, work)

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

    def _make_client(self) -> Any:
        """Make Dask's client, with the certificate in the scheduler file if there is one.

        Raises:
            OSError: The scheduler file cannot be read.
            ValueError: It is none.
        """
        make: Any = Client  # not typed
        address, certificate = self._place, None
        if "://" not in self._place and (":" not in self._place or "/" in self._place):
            with open(self._place, encoding="utf-8") as file:
                content = json.load(file)
            address, certificate = str(content["address"]), content.get(CERTIFICATE_KEY)
        return make(
            address, asynchronous=True, set_as_default=False, timeout=CONNECT_SECONDS, name="millrace",
            security=make_security(certificate) if certificate else None,
        )  # fmt: skip


def make_security(certificate: str) -> Security:
    """Make Dask's settings of TLS for processes that all have this certificate and its key, as text."""
    fields = (
        "tls_ca_file",
        *(f"tls_{role}_{part}" for role in ("client", "scheduler", "worker") for part in ("cert", "key")),
    )
    make: Any = Security  # not typed
    made: Security = make(require_encryption=True, **dict.fromkeys(fields, certificate))
    return made


def read_published_work(scheduler: Scheduler) -> list[RemainingWork]:
    """Return what the runs that are connected to a scheduler in this process have left."""
    published = scheduler.get_metadata([WORK_KEY], {})
    return [msgspec.convert(work, RemainingWork) for client, work in published.items() if client in scheduler.clients]
