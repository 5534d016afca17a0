"""``python -m millrace.launch.guard``: a process that outlives the supervisor, and then cleans up its job.

It reads the job from standard input, and waits for the end of that, which comes when the supervisor ends or dies. Every
supervised run is cleaned up in this way alone, so every run exercises it.
"""

from __future__ import annotations

import os

from millrace.host.python_launch import make_python_command, move_user_modules_last

if __name__ == "__main__":
    move_user_modules_last(os.environ)  # before anything is imported that may be there, too

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from millrace.host.signals import STOPPING
from millrace.launch import node_sweeps
from millrace.launch.node_allocation import NodeAllocation
from millrace.rundir.ownership import remove_folder

#: The guard has few files open.
MAX_DESCRIPTOR = 256


class JobGuard:
    """The running guard process; to be closed.

    Args:
        folder: Removed at the end.
        lock: Descriptor that holds the lock of the folder until that is removed.
        token: Processes that carry it are killed at the end, on all nodes.
    """

    def __init__(
        self, folder: Path, lock: int, token: str, allocation: NodeAllocation, environ: Mapping[str, str]
    ) -> None:
        self._process = subprocess.Popen(
            make_python_command("-m", "millrace.launch.guard"), stdin=subprocess.PIPE, cwd="/", env=dict(environ),
            start_new_session=True, pass_fds=(lock,),
        )  # fmt: skip
        self.pid = self._process.pid
        self._environ = environ
        self._guarded = {"folder": str(folder), "token": token, "kind": allocation.kind, "nodes": allocation.nodes}
        assert self._process.stdin
        self._process.stdin.write(json.dumps(self._guarded).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the job; block until nothing of it is left."""
        assert self._process.stdin
        self._process.stdin.close()
        if self._process.wait():
            end_guarded_job(self._guarded, self._environ)  # the guard was killed


def end_guarded_job(guarded: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """End the job on all nodes, and remove the folder."""
    allocation = NodeAllocation(guarded["kind"], tuple(guarded["nodes"]))
    node_sweeps.sweep_all_nodes(allocation, allocation.nodes, guarded["token"], environ)
    shutil.rmtree(guarded["folder"], ignore_errors=True)


def remove_empty_launch_folder(folder: Path) -> None:
    """Remove the folder if it still exists, with files that NFS kept in it under another name while they were open."""
    with suppress(OSError):
        remove_folder(folder)


def main() -> None:
    """Wait for the end of the supervisor, and clean up."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    line = sys.stdin.buffer.readline()
    if not line:
        return
    guarded = json.loads(line)
    # Standard streams are the supervisor's: their reader must not wait for the guard.
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    sys.stdin.buffer.read()
    end_guarded_job(guarded, os.environ)
    os.closerange(3, MAX_DESCRIPTOR)  # the lock: while it is open, NFS keeps it in the folder under another name
    remove_empty_launch_folder(Path(guarded["folder"]))


if __name__ == "__main__":
    main()
