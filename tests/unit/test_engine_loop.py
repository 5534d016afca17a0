"""Whole runs around slots that start no tool: what is dispatched, and what becomes of failures, signals and lost slots."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness
import pytest

from millrace import _core
from millrace.core.errors import CorruptError, ExitCode, MillraceError, ToolError, UnverifiedError
from millrace.core.job import JobSpec
from millrace.core.tasks import (
    PoolWoken,
    SlotEvent,
    SlotId,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
    TaskStarted,
    encode_task_kind,
)
from millrace.core.tool_use import ToolUse
from millrace.execution import plan_execution, run_wiring
from millrace.execution.resume import FinishedRun
from millrace.host.signals import StoppedBySignalError
from millrace.launch.supervisor_link import SupervisorLink
from millrace.node.batch_files import BatchLimits, SpooledBatch
from millrace.node.input_feeder import InputFeeder
from millrace.planning import run_plan as planner

N = 24


class ScriptedSlots:
    """Slots in which a function of the test stands for the tool; one task ends at a time.

    It gets the lines of a batch, and returns the output, or how the task ends otherwise.
    """

    n_nodes = 1

    def __init__(self) -> None:
        self.tool: Callable[[list[str]], str | dict[str, Any]] = "".join
        #: Which of the waiting tasks is next.
        self.next_index = 0
        #: Events to return before another task ends.
        self.events: deque[SlotEvent] = deque()
        #: Extents of the tasks in the order of their submission, and how many tasks waited then.
        self.submitted: list[tuple[int, int]] = []
        self.n_waiting: list[int] = []
        self.n_kills = 0
        self._waiting: list[tuple[SlotTask, SpooledBatch]] = []
        self._is_awake = threading.Event()

    def connect(self, _: ToolUse, *, journal: _core.Journal, **_settings: object) -> ScriptedSlots:
        """Take the place of ``LocalSlots``."""
        self._journal = journal
        return self

    def submit_task(self, task: SlotTask, batch: SpooledBatch) -> None:
        self._waiting.insert(0 if task.urgent else len(self._waiting), (task, batch))
        self.submitted.append((batch.first, batch.last))
        self.n_waiting.append(len(self._waiting))

    def wait_for_events(self, timeout_seconds: float) -> Sequence[SlotEvent]:
        if self.events:
            return [self.events.popleft()]
        if not self._waiting:
            self._is_awake.wait(timeout_seconds)
            self._is_awake.clear()
            return [PoolWoken()]
        task, batch = self._waiting.pop(self.next_index)
        return [TaskStarted(task.id, SlotId(0), 0.0), self._end_task(task, batch)]

    def _end_task(self, task: SlotTask, batch: SpooledBatch) -> TaskEnded:
        made = self.tool(batch.spooled[0].read_text().splitlines(keepends=True))
        if isinstance(made, dict):
            return TaskEnded(task=task.id, slot=SlotId(0), ago_seconds=0.0, **made)
        kind = encode_task_kind(task.kind)
        committed = self._journal.append_task(
            batch.first, batch.last, kind, list(batch.digests), [(0, b"", made.encode())]
        )
        return TaskEnded(task=task.id, slot=SlotId(0), ago_seconds=0.0, ending=TaskEnding.DONE, committed=committed)

    def withdraw_tasks(self) -> list[TaskId]:
        withdrawn, self._waiting = [task.id for task, _ in self._waiting], []
        return withdrawn

    def kill_all(self) -> None:
        self.n_kills += 1

    def build_argv(self, batch: SpooledBatch) -> list[bytes]:
        return [b"tool"]

    def end_input(self) -> None:
        pass

    def end_served_programs(self, patience_seconds: float = 0.0, look: Callable[[], object] = bool) -> str:
        return ""

    def wake_waiter(self) -> None:
        self._is_awake.set()

    def close(self) -> None:
        pass


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> ScriptedSlots:
    made = ScriptedSlots()
    monkeypatch.setattr(run_wiring, "LocalSlots", made.connect)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "in.txt").write_text("".join(f"{k:02}\n" for k in range(N)))
    return tmp_path


def run(folder: Path, **settings: Any) -> FinishedRun:
    """Run the tool on the lines of ``in.txt``, two a batch if nothing else is said."""
    job = JobSpec(
        command=("./tool", "in.txt", "out.txt"), input=("in.txt:lines",), output=("out.txt",), verbosity=-1, progress="none",
        **{"slots": 2, "batch": "2", "verify": 0.0, **settings},
    )  # fmt: skip
    return plan_execution.run_plan(planner.make_plan(job, folder, os.environ), SupervisorLink({}))


def fail_with(text: str, status: int = 3) -> Callable[[list[str]], str | dict[str, Any]]:
    """A tool that fails wherever this line is, and copies otherwise."""

    def tool(lines: list[str]) -> str | dict[str, Any]:
        failed = {"ending": TaskEnding.FAILED, "exit_status": status, "stderr": f"cannot do {text}".encode()}
        return failed if f"{text}\n" in lines else "".join(lines)

    return tool


def test_batches_of_one_size_are_dispatched_in_input_order(folder: Path, slots: ScriptedSlots) -> None:
    assert run(folder).code == ExitCode.DONE
    assert slots.submitted == [(first, first + 2) for first in range(0, N, 2)]
    assert (folder / "out.txt").read_text() == (folder / "in.txt").read_text()


@pytest.fixture
def prompt_feeder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each request of the engine for batches wait until they are cut."""
    request = InputFeeder.request_batches

    def request_and_wait(feeder: InputFeeder, limits: BatchLimits, n_batches: int = 1) -> None:
        is_served, wake = threading.Event(), feeder.wake
        feeder.wake = is_served.set
        request(feeder, limits, n_batches)
        assert is_served.wait(harness.LONGEST_SECONDS)
        feeder.wake = wake

    monkeypatch.setattr(InputFeeder, "request_batches", request_and_wait)


@pytest.mark.usefixtures("prompt_feeder")
def test_largest_waiting_batch_is_dispatched_first(folder: Path, slots: ScriptedSlots) -> None:
    lines = (folder / "in.txt").read_text().splitlines()
    lines[20] *= 100
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    run(folder)
    assert slots.submitted.index((20, 22)) < slots.submitted.index((8, 10)), "it would end last"
    assert (folder / "out.txt").read_text() == (folder / "in.txt").read_text()


def test_tasks_that_end_out_of_order_are_output_in_order(folder: Path, slots: ScriptedSlots) -> None:
    ended = []
    slots.next_index = -1
    slots.tool = lambda lines: ended.append(lines[0]) or "".join(lines)  # type: ignore[func-returns-value]
    run(folder)
    assert ended != sorted(ended, key=int)
    assert (folder / "out.txt").read_text() == (folder / "in.txt").read_text()


def test_failing_batch_is_split_and_the_culprit_quarantined(folder: Path, slots: ScriptedSlots) -> None:
    slots.tool = fail_with("05")
    assert run(folder, batch="8", retries=0).code == ExitCode.QUARANTINED
    assert (folder / "out.txt").read_text() == "".join(f"{k:02}\n" for k in range(N) if k != 5)
    assert (5, 6) in slots.submitted and (0, 8) in slots.submitted
    records = folder / "out.txt.millrace" / "quarantine"
    assert [path.name for path in records.iterdir()] == ["record-6"]
    assert (records / "record-6" / "in.txt").read_text() == "05\n"
    assert "cannot do 05" in (records / "record-6" / "stderr.txt").read_text()


def test_tool_that_fails_everywhere_stops_the_run(folder: Path, slots: ScriptedSlots) -> None:
    slots.tool = lambda _: {"ending": TaskEnding.FAILED, "exit_status": 1, "stderr": b"no database"}
    with pytest.raises(ToolError, match="no database"):
        run(folder)
    assert not (folder / "out.txt.millrace" / "quarantine").exists(), "it is not the records' fault"


def test_input_changed_while_a_record_fails_ends_the_run(folder: Path, slots: ScriptedSlots) -> None:
    def tool(lines: list[str]) -> str | dict[str, Any]:
        if "05\n" in lines:
            (folder / "in.txt").write_text("changed\n")
        return fail_with("05")(lines)

    slots.tool = tool
    with pytest.raises(CorruptError, match=r"in\.txt"):
        run(folder, retries=0)
    assert not (folder / "out.txt.millrace" / "quarantine").exists()


def test_signal_withdraws_waiting_tasks_and_a_resume_goes_on(folder: Path, slots: ScriptedSlots) -> None:
    def tool(lines: list[str]) -> str:
        if lines[0] == "04\n":
            signal.raise_signal(signal.SIGTERM)
        return "".join(lines)

    slots.tool = tool
    with pytest.raises(StoppedBySignalError) as caught:
        run(folder)
    assert caught.value.status == 128 + signal.SIGTERM and not slots.n_kills
    slots.tool, slots.submitted = "".join, []
    run(folder)
    assert slots.submitted[0] == (6, 8), "what was running at the signal is kept, nothing else was begun"
    assert (folder / "out.txt").read_text() == (folder / "in.txt").read_text()


def test_second_signal_kills_the_running_tools(folder: Path, slots: ScriptedSlots) -> None:
    def tool(_: list[str]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        return {"ending": TaskEnding.KILLED}

    slots.tool = tool
    with pytest.raises(StoppedBySignalError) as caught:
        run(folder)
    assert caught.value.status == 128 + signal.SIGINT and slots.n_kills == 1


def test_lost_slots_shorten_the_queue_and_warn(folder: Path, slots: ScriptedSlots) -> None:
    (folder / "in.txt").write_text("".join(f"{k:03}\n" for k in range(400)))
    slots.events.append(SlotsChanged(1, "node b is lost"))
    run(folder, slots=16, keep_run_dir=True)
    few = max(slots.n_waiting[50:])
    assert "node b is lost" in (folder / "out.txt.millrace" / "events.jsonl").read_text()
    slots.n_waiting = []
    run(folder, slots=16, fresh=True)
    assert few < max(slots.n_waiting[50:])


def test_output_that_depends_on_the_batch_ends_the_run(folder: Path, slots: ScriptedSlots) -> None:
    slots.tool = lambda lines: "".join(f"{number} {line}" for number, line in enumerate(lines))
    with pytest.raises(UnverifiedError):
        run(folder, verify=1.0)
    out = folder / "out.txt"
    assert not out.exists() or not out.read_text(), "nothing is written before the start is verified"


def test_batches_are_run_again_at_other_boundaries(folder: Path, slots: ScriptedSlots) -> None:
    finished = run(folder, verify=1.0)
    cut = {(first, first + 2) for first in range(0, N, 2)}
    again = [extent for extent in slots.submitted if extent not in cut]
    assert {record for first, last in again for record in range(first, last)} == set(range(N))
    assert "all bytes equal" in finished.text
    assert (folder / "out.txt").read_text() == (folder / "in.txt").read_text()


def test_result_that_cannot_be_saved_ends_the_run(folder: Path, slots: ScriptedSlots) -> None:
    slots.tool = lambda _: {"ending": TaskEnding.IO, "detail": "journal: no space left", "disk_full": True}
    with pytest.raises(MillraceError, match="no space left"):
        run(folder)
