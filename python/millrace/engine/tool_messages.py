"""Messages of tools: each warning is passed on once and counted, failures are put into words."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable

from millrace.report.words import format_records
from millrace.tasks import TaskEnded, TaskEnding

#: Most different lines of standard error that are passed on; more are only counted.
MAX_PASSED_LINES = 20

#: Escape sequences of colours are removed; other control characters become a question mark.
_COLOUR = r"\x1b\[[0-9;]*[A-Za-z]"
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"

#: Fewest letters of a record's name that is replaced anywhere in a message, and of one replaced as a whole word.
MIN_NAME_LETTERS, MIN_WORD_LETTERS = 6, 3

#: Most lines of a failure's standard error that are shown, counted from its end.
MAX_SHOWN_LINES = 8


class ToolMessages:
    """Filter that passes on each different line of the tools' standard error once.

    Lines that differ only in numbers count as one. A line with numbers may be the sum of one task, so it names the
    records of that task.
    """

    def __init__(self, tool: str, message: Callable[[str], None]) -> None:
        self.tool, self._message = tool.rsplit("/", 1)[-1], message
        self.counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._extra: set[str] = set()
        self._results: Counter[int] = Counter()
        #: Lines for which tasks gave different numbers.
        self._of_tasks: set[str] = set()

    def add_stderr(self, stderr: bytes, first: int, last: int) -> None:
        """Add the standard error of the task on the records ``[first, last)``."""
        for line in split_terminal_lines(stderr):
            key = re.sub(r"\d+", "#", line)
            self.counts[key] += 1
            if key not in self._first:
                self._first[key] = line
                if len(self._first) <= MAX_PASSED_LINES:
                    of = f", of {format_records(first, last)}" if key != line else ""
                    self._message(f"{self.tool}{of}: {line}")
            elif line != self._first[key]:
                self._of_tasks.add(key)

    def add_exit_status(self, status: int) -> None:
        """Count a task that ended with a nonzero exit status that is a result."""
        self._results[status] += 1

    def list_result_statuses(self) -> list[tuple[str, int]]:
        """Return (text, count) for each nonzero exit status that is a result."""
        return [
            (f"exit status {status}, which is a result; the exit code of the run does not show it", count)
            for status, count in sorted(self._results.items())
        ]

    def select_new_paths(self, paths: Iterable[str]) -> list[str]:
        """Return those of ``paths`` that were not reported yet."""
        return [path for path in paths if path not in self._extra]

    def report_extra_files(self, paths: Iterable[str]) -> None:
        """Report once that the tool wrote files that no output collects."""
        for path in paths:
            if path not in self._extra and len(self._extra) < MAX_PASSED_LINES:
                self._extra.add(path)
                self._message(f"{self.tool} also wrote {path}, which is not kept; name it with --output to collect it")

    def list_repeated_lines(self) -> list[tuple[str, int]]:
        """Return (line, count) of all different lines, most frequent first."""
        return [(self._format_line(key), count) for key, count in self.counts.most_common()]

    def _format_line(self, key: str) -> str:
        line = self._first[key]
        if key == line:
            return line
        if key in self._of_tasks:
            return f"{line} [of one task; others gave other numbers]"
        return f"{line} [of one task{' each' if self.counts[key] > 1 else ''}]"


def split_terminal_lines(stderr: bytes) -> list[str]:
    """Return the lines as a terminal would show them, without text that a carriage return overwrote."""
    if not stderr:
        return []
    text = stderr.decode(errors="replace")
    text = re.sub(_CONTROL, "?", re.sub(_COLOUR, "", text))
    kept = (line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in text.split("\n"))
    return [line for line in kept if line]


def describe_failure(
    event: TaskEnded, record_timeout: float | None, cpu_limit: float | None = None, where: str = ""
) -> str:
    """Describe why an attempt failed, in one line, followed by the end of its standard error.

    Args:
        cpu_limit: CPU seconds that the task was allowed, from the cost of records of its size.
        where: The part that failed, if not the whole task.
    """
    if event.ending is TaskEnding.TIMEOUT and cpu_limit:
        how = (
            f"ended after {event.cpu_seconds:.0f} s of CPU, 100 times what the slowest records let expect of its size"
            " (--record-timeout SECONDS allows more)"
        )
    elif event.ending is TaskEnding.TIMEOUT:
        how = f"took longer than {record_timeout:g} s a record"
    elif event.ending is TaskEnding.STALLED:
        how = f"stood still: {event.detail}"
    elif event.ending is TaskEnding.MISSING:
        how = f"exit status {event.exit_status or 0}, but it did not write {event.detail}"
    elif event.ending is TaskEnding.CHANGED:
        how = f"it changes its input {event.detail}"
    elif event.ending in (TaskEnding.ERROR_REPORTED, TaskEnding.UNJOINABLE):
        how = f"exit status {event.exit_status or 0}, but {event.detail}"
    elif event.ending is TaskEnding.SPAWN:
        how = f"cannot be started: {event.detail}"
    elif event.signal is not None:
        how = f"killed by {name_signal(event.signal)}"
    else:
        how = f"exit status {event.exit_status}"
    if event.out_of_memory:
        how += (
            ", as memory ran out"
            if event.signal is not None
            else " (a process that it had started was killed, as memory ran out)"
        )
        how += " though nothing ran beside it" if event.side_by_side <= 1 else ""
    said = split_terminal_lines(event.stderr)
    return "\n".join([how + where, *(f"  {line}" for line in said[-MAX_SHOWN_LINES:])])


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def build_failure_signature(event: TaskEnded, names: Iterable[str]) -> str:
    """Return the text that failures of the same kind share: without names of records, numbers and paths."""
    text = "\n".join(split_terminal_lines(event.stderr))
    for name in sorted(names, key=len, reverse=True):
        if len(name) >= MIN_NAME_LETTERS:
            text = text.replace(name, "#")
        elif len(name) >= MIN_WORD_LETTERS:  # which could be part of another word
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "#", text)
    text = re.sub(r"\S*/\S*", "", text)
    return f"{event.ending.value} {event.exit_status} {event.signal} " + re.sub(r"\d+", "#", text)
