"""Figures of a run in the text form of OpenMetrics, which Prometheus and the textfile collector of node_exporter read, too.

All are gauges: a counter has another name in each of the two forms.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from millrace.core.errors import RefusedError
from millrace.core.text_format import escape_unprintable
from millrace.core.tool_use import ProgressSnapshot
from millrace.host.permissions import replace_file
from millrace.host.signals import StoppedBySignalError
from millrace.report.progress import ProgressDisplay

#: Least seconds between two writes of the file.
WRITE_SECONDS = 5.0

#: Description of each metric, by its name without ``millrace_``.
METRICS = {
    "status": "1 for the status of the run: running, done, quarantined, interrupted, stopped, killed or waiting",
    "update_time_seconds": "When these figures were taken, in seconds since 1970",
    "elapsed_seconds": "Time since the start of the run",
    "slots": "Tool processes that may run side by side",
    "slots_busy": "Slots that have a task",
    "records_done": "Records that are done, by earlier starts, too",
    "records_resumed": "Part of these that earlier starts had done",
    "records_quarantined": "Records without a result, as the tool fails on them",
    "retries": "Tasks that were tried again",
    "input_bytes_done": "Bytes of the input in records that are done",
    "input_bytes": "Bytes of the input",
    "tool_cpu_seconds": "CPU time of the tool",
    "remaining_seconds": "Likely time to the end of the run",
}


class RunMetrics(msgspec.Struct, frozen=True):
    """The figures of one run or phase, by the names of ``METRICS``; None: not known."""

    labels: Mapping[str, str]
    status: str
    figures: Mapping[str, float | None]


def format_metrics(runs: Sequence[RunMetrics]) -> str:
    """Format the figures of runs.

    >>> print(format_metrics([RunMetrics({"run": "a"}, "done", {"slots": 2, "slots_busy": None})]), end="")
    # HELP millrace_status 1 for the status of the run: running, done, quarantined, interrupted, stopped, killed or waiting
    # TYPE millrace_status gauge
    millrace_status{run="a",status="done"} 1
    # HELP millrace_slots Tool processes that may run side by side
    # TYPE millrace_slots gauge
    millrace_slots{run="a"} 2
    # EOF
    """
    lines = []
    for name, description in METRICS.items():
        samples = [
            ({**run.labels, "status": run.status} if name == "status" else run.labels, value)
            for run in runs
            if (value := 1.0 if name == "status" else run.figures.get(name)) is not None
        ]
        if samples:
            lines += [f"# HELP millrace_{name} {description}", f"# TYPE millrace_{name} gauge"]
        lines += [f"millrace_{name}{{{_format_labels(labels)}}} {value:.15g}" for labels, value in samples]
    return "\n".join([*lines, "# EOF", ""])


def _format_labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels.items())


def _escape_label(value: str) -> str:
    return escape_unprintable(value).replace("\\", "\\\\").replace('"', '\\"')


def list_figures(snapshot: ProgressSnapshot) -> dict[str, float | None]:
    """Return the figures of a snapshot, by the names of ``METRICS``."""
    return {
        "update_time_seconds": time.time(),
        "elapsed_seconds": snapshot.elapsed,
        "slots": snapshot.slots,
        "slots_busy": snapshot.slots_busy,
        "records_done": snapshot.records_done,
        "records_resumed": snapshot.records_resumed,
        "records_quarantined": snapshot.quarantined,
        "retries": snapshot.retries,
        "input_bytes_done": snapshot.bytes_done,
        "input_bytes": snapshot.bytes_total,
        "tool_cpu_seconds": snapshot.cpu,
        "remaining_seconds": snapshot.eta[1] if snapshot.eta else None,
    }


def check_metrics_path(path: Path) -> None:
    """Check that the file for metrics can be written.

    Raises:
        RefusedError: It cannot, or it would replace something else than such a file.
    """
    hint = "name a file in a folder that you may write to"
    if path.is_dir():
        raise RefusedError(f"--metrics {path}: is a folder", hint)
    try:
        tempfile.TemporaryFile(dir=path.parent).close()  # permissions do not say it: /proc lets nobody make a file
    except OSError as error:
        raise RefusedError(f"--metrics {path}: cannot be written: {error.strerror}", hint) from error
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(b"# HELP millrace_")):
        raise RefusedError(f"--metrics {path}: is there, and no file of metrics", "name another file")


class MetricsDisplay(ProgressDisplay):
    """A display that also keeps a file with the latest figures, replaced as a whole; a write error ends only that.

    Args:
        shown: The display for the user.
        path: Absolute path of the file.
        say: Called once with a warning if the file cannot be written.
    """

    def __init__(
        self, shown: ProgressDisplay, path: Path, labels: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        super().__init__(None)
        self._shown, self._path, self._labels, self._say = shown, path, labels, say
        self._is_failing = False
        self._last: ProgressSnapshot | None = None
        self._written_at: float | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._last:
            status = "quarantined" if self._last.quarantined else "done"
            if error:
                status = "interrupted" if isinstance(error, StoppedBySignalError) else "stopped"
            self._write_file(status)

    def update(self, snapshot: ProgressSnapshot) -> None:
        self._record_snapshot(snapshot)
        eta = self._get_eta(snapshot)
        self._last = msgspec.structs.replace(snapshot, eta=eta)
        self._shown.update(snapshot)
        if self._written_at is None or snapshot.elapsed - self._written_at >= WRITE_SECONDS:
            self._written_at = snapshot.elapsed
            self._write_file("running")

    def write_message(self, text: str) -> None:
        self._shown.write_message(text)

    def close(self) -> None:
        self._shown.close()

    def _write_file(self, status: str) -> None:
        assert self._last
        figures = list_figures(self._last)
        if status != "running":
            figures |= {"slots_busy": 0, "remaining_seconds": None}
        try:
            replace_file(self._path, format_metrics([RunMetrics(self._labels, status, figures)]).encode(), 0o644)
        except OSError as error:  # a full disk, or a folder that is gone: the run goes on without the file
            if not self._is_failing:
                self._is_failing = True
                self._say(f"--metrics {self._path}: cannot be written: {error.strerror}; the run goes on without it")
