"""A Dask cluster of processes: a scheduler, and workers that come and go, each in a view of the disk of its own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Self

import free_ports
import harness
from namespace_nodes import Nodes

#: Dask's commands, without Dask's own start program, which loads more.
SCHEDULER = (sys.executable, "-m", "distributed.cli.dask_scheduler")
WORKER = (sys.executable, "-m", "distributed.cli.dask_worker")


class DaskSite:
    """The cluster; use as a context.

    Args:
        folder: For scheduler file, logs, and the own folders of workers.
        hidden: Folder of which workers see no more than ``shown``, in a file system of their own; None: they see all.
        shown: Names of files in it, which may be in folders of it.
        environ: For Dask's processes, and for the coordinator.
        nodes: Each worker is on one of them, in turn; None: all are on this machine.
    """

    def __init__(
        self, folder: Path, hidden: Path | None = None, shown: Sequence[str] = (), environ: dict[str, str] | None = None,
        protocol: str = "tcp", nodes: Nodes | None = None,
    ) -> None:  # fmt: skip
        self._nodes = nodes
        self.folder, self._hidden, self._shown, self._protocol = folder, hidden, shown, protocol
        folder.mkdir(parents=True, exist_ok=True)
        self.environ = environ or {}
        self.mark = f"dask-{folder.name}-{os.getpid()}"
        self._stack = ExitStack()
        self._n_started = 0
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.port = self._stack.enter_context(free_ports.taken(1))[0]
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, *([self.scheduler] if self.scheduler else ())):
            self.end(process)
        self._stack.close()

    @property
    def address(self) -> str:
        return f"{self._protocol}://{self._nodes.gateway if self._nodes else '127.0.0.1'}:{self.port}"

    def start_scheduler(self) -> None:
        self.scheduler = self._start([*SCHEDULER, "--host", self.address, "--no-dashboard", "--no-show"], "scheduler")

    def start_worker(self, threads: int = 1, *, shares_folder: bool = False) -> subprocess.Popen[bytes]:
        """Start a worker; it may join before the scheduler is there."""
        self._n_started += 1
        name = f"w{self._n_started}"
        own = self.folder / name
        own.mkdir()
        command = [
            *WORKER, self.address, "--nthreads", str(threads), "--no-nanny", "--no-dashboard", "--name", name,
            "--local-directory", str(own), "--death-timeout", "60",
        ]  # fmt: skip
        if self._hidden and not shares_folder:
            command = self._hide_folder(command, own)
        if self._nodes:
            node = self._nodes.names[self._n_started % len(self._nodes.names)]
            inside = ("--net", "--uts", "--ipc")
            command = ["nsenter", "--target", str(self._nodes.network(node)), *inside, "--", *command]
        process = self._start(command, name)
        self.workers.append(process)
        return process

    def _hide_folder(self, command: Sequence[str], own: Path) -> list[str]:
        """Return the command in a mount namespace in which the hidden folder has copies of the shown files alone."""
        assert self._hidden
        here, there = shlex.quote(str(self._hidden)), shlex.quote(str(own))
        names = " ".join(shlex.quote(name) for name in self._shown)
        lines = [
            f"cd {here}", f"mkdir {there}/shown", f"for f in {names}; do cp -a --parents $f {there}/shown; done",
            f"mount --bind {there}/shown {here}", "mount -t tmpfs none /dev/shm", f"cd {there}", f"exec {shlex.join(command)}",
        ]  # fmt: skip
        return ["unshare", "-rm", "sh", "-ec", "\n".join(lines)]

    def _start(self, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self.environ, harness.MARK: self.mark},
            )  # fmt: skip

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process of the cluster, also one that is stopped; its children have sessions of their own."""
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()

    def logs(self) -> str:
        """The ends of all logs, for messages."""
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-3000:]}" for path in sorted(self.folder.glob("*.log"))
        )

    def command(self, case: harness.Case, *more: str) -> list[str]:
        return [
            sys.executable, "-m", "millrace", "run", "--dask", self.address, *case.options, *more, "--", *case.tool,
        ]  # fmt: skip

    def start_run(
        self, case: harness.Case, *more: str, stdin: IO[bytes] | int = subprocess.DEVNULL, stdout: IO[bytes] | int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:  # fmt: skip
        """Start the coordinator."""
        return subprocess.Popen(
            self.command(case, *more), cwd=case.folder, text=True, stdin=stdin, stdout=stdout,
            stderr=subprocess.PIPE, start_new_session=True, env={**os.environ, **self.environ, harness.MARK: self.mark},
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for the coordinator; return its exit code, and what it said."""
        try:
            _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{process.communicate()[1]}\n{self.logs()}") from None
        return process.returncode, said
