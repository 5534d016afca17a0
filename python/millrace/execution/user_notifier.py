"""Notices to the user: a command of theirs is run at trouble and at the end of a run, and gets a JSON object.

Nothing that it does can harm the run: it has no open file of the run, is never waited for while the run lasts, and is
killed if it does not end in time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from millrace.core.job import JobSpec
from millrace.report.events import AnyLogEvent, QuarantineEvent, RunEvent, SlotsEvent
from millrace.rundir.checksummed_json import encode_json

#: Longest wait for the command at the end of a run, in seconds.
MAX_WAIT_SECONDS = 10.0


def describe_command(command: Sequence[str], cwd: str, run_dir: str) -> dict[str, Any]:
    """Return what each notice says of its run."""
    return {"argv": list(command), "cwd": cwd, "run_dir": run_dir, "host": os.uname().nodename}


def choose_wait(job: JobSpec, *, interrupted: bool) -> float:
    """Return how long the commands may take at the end, in seconds: after a signal, what is left of ``--grace``."""
    return min(0.1 * job.grace, MAX_WAIT_SECONDS) if interrupted else MAX_WAIT_SECONDS


class UserNotifier:
    """Starts the user's command, each time with another notice, and waits for all of them at the end.

    Args:
        command: A line for ``sh``.
        facts: What each notice says of the run.
        say: Called with a message about a command that failed or was killed.
    """

    def __init__(self, command: str, facts: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self._command, self._facts, self._say = command, facts, say
        self._started: list[subprocess.Popen[bytes]] = []
        #: Kinds of trouble that the user was told of: each is told once.
        self._kinds: set[str] = set()
        self._slots = 0

    def observe_event(self, event: AnyLogEvent) -> None:
        """Start the command if an event of the log is trouble of a kind that is new."""
        match event:
            case QuarantineEvent(record=record, name=name, reason=reason):
                self._report_trouble("quarantined", f"record {record + 1} ({name}) is quarantined: {reason}")
            case RunEvent(slots=slots) | SlotsEvent(slots=slots):
                if slots < self._slots:
                    self._report_trouble("slots", f"{slots} tools run side by side, of {self._slots} before")
                self._slots = slots

    def _report_trouble(self, kind: str, text: str) -> None:
        if kind not in self._kinds:
            self._kinds.add(kind)
            self.send_notice({"event": "trouble", "kind": kind, "message": text})

    def send_notice(self, notice: Mapping[str, Any]) -> None:
        """Start the command with a notice on its standard input, and do not wait."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            with tempfile.TemporaryFile() as file:  # a pipe could be full, and its reader asleep
                file.write(encode_json({**notice, "time": now, **self._facts}) + b"\n")
                file.seek(0)
                self._started.append(
                    subprocess.Popen(
                        ["/bin/sh", "-c", self._command], stdin=file, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL, start_new_session=True,
                    )
                )  # fmt: skip
        except OSError as error:
            self._say(f"--notify: the command could not be started: {error}")

    def wait_for_commands(self, seconds: float = MAX_WAIT_SECONDS) -> None:
        """Wait until all commands have ended, and kill those that take longer."""
        end = time.monotonic() + seconds
        for process in self._started:
            try:
                status = process.wait(max(end - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                self._say(f"--notify: the command had not ended after {seconds:.0f} s, and was killed")
                continue
            if status:
                self._say(f"--notify: the command ended with exit status {status}")
        self._started.clear()
