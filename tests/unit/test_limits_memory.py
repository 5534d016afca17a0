"""Memory that runs out, without a process: every record that fits alone is done, every other one is found, in the end."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifecycle_builders import ended, lives_of, part

from millrace.core.tool_use import CostHint
from millrace.host.memory_limits import find_oom_kill_counter
from millrace.scheduler.batch_lifecycle import BatchLifecycle, BatchStep, RunBatch
from millrace.scheduler.limits import MIN_DONE_IN_A_ROW, MemoryAllowance, QuarantineLimit
from millrace.scheduler.protocol import AttemptResult, QuarantineBatch, SplitBatch, StopReason, StopRun

#: Memory of each node.
LIMIT = 100


@dataclass
class Node:
    """Slots and their memory."""

    allowance: MemoryAllowance
    queued: deque[RunBatch] = field(default_factory=deque)
    #: What runs, and how many ran at once with it.
    running: dict[RunBatch, int] = field(default_factory=dict)

    def fill(self) -> None:
        while self.queued and not any(task.alone for task in self.running):
            if len(self.running) >= (1 if self.queued[0].alone else self.allowance.allowed):
                return
            self.running[self.queued.popleft()] = 0
            self.running = {task: max(most, len(self.running)) for task, most in self.running.items()}


@dataclass
class World:
    """Records that need so much memory, of ``LIMIT``; a batch needs as much as the worst of them."""

    needs: list[int]
    lives: BatchLifecycle
    nodes: list[Node]
    batches: dict[int, tuple[int, int]] = field(default_factory=dict)
    cut_to: int = 0
    serial: int = 0
    done: list[int] = field(default_factory=list)
    quarantined: list[int] = field(default_factory=list)
    stopped: StopRun | None = None
    kills: int = 0

    def run(self, choose: random.Random) -> None:
        for _ in range(60 * len(self.needs) + 100):
            if self.stopped or self.lives.is_done:
                return
            self.feed()
            for node in self.nodes:
                node.fill()
            busy = [node for node in self.nodes if node.running]
            if busy:
                self.end(choose.choice(busy), choose)
        raise AssertionError("no end")

    def feed(self) -> None:
        if self.lives.request_batches(None) is None:
            return
        if self.cut_to == len(self.needs):
            self.do(self.lives.end_input())
            return
        last = min(self.cut_to + 4, len(self.needs))
        self.do(self.lives.add_cut_batch(part(self.named(self.cut_to, last), last - self.cut_to, last - self.cut_to)))
        self.cut_to = last

    def named(self, first: int, last: int) -> int:
        self.serial += 1
        self.batches[self.serial] = (first, last)
        return self.serial

    def need(self, task: RunBatch) -> int:
        first, last = self.batches[task.batch]
        return max(self.needs[first:last])

    def end(self, node: Node, choose: random.Random) -> None:
        over = sum(map(self.need, node.running)) > LIMIT
        task = choose.choice(list(node.running))
        beside = node.running.pop(task)
        node.allowance.record_task(out_of_memory=over, side_by_side=beside, peak_bytes=self.need(task))
        assert 1 <= node.allowance.allowed <= node.allowance.slots
        assert beside <= node.allowance.slots
        result = (
            AttemptResult.DONE
            if not over
            else AttemptResult.OUT_OF_MEMORY_SHARED
            if beside > 1
            else AttemptResult.OUT_OF_MEMORY_ALONE
        )
        self.kills += over
        if result is AttemptResult.DONE:
            self.done += range(*self.batches[task.batch])
        self.do(ended(self.lives, task.batch, result, "memory" if over else ""))

    def do(self, actions: list[BatchStep]) -> None:
        for action in actions:
            match action:
                case RunBatch(_, _, urgent):
                    # As `TaskPlacement` does: to the node with the least to do.
                    queue = min(self.nodes, key=lambda node: len(node.queued) + len(node.running)).queued
                    queue.appendleft(action) if urgent else queue.append(action)
                case SplitBatch(batch, records):
                    first, last = self.batches[batch]
                    cuts = [(first, first + records), (first + records, last)]
                    parts = [(self.named(*cut), cut[1] - cut[0], cut[1] - cut[0]) for cut in cuts]
                    self.do(self.lives.replace_split_batch(batch, [part(*each) for each in parts]))
                case QuarantineBatch(batch):
                    self.quarantined += range(*self.batches[batch])
                    self.do(self.lives.drop_quarantined_batch(batch))
                case StopRun():
                    self.stopped = action
                case _:
                    pass


def world(needs: list[int], slots: list[int], retries: int = 1) -> World:
    lives = lives_of(sum(slots), CostHint(unit="records"), retries, (4, 0), limit=QuarantineLimit(share=1.0))
    return World(needs, lives, [Node(MemoryAllowance(n, LIMIT)) for n in slots])


@settings(max_examples=100)
@given(
    needs=st.lists(st.one_of(st.integers(1, 30), st.integers(30, LIMIT), st.just(LIMIT + 50)), min_size=1, max_size=40),
    slots=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    retries=st.integers(0, 2),
    seed=st.integers(0, 2**32),
)
def test_record_is_quarantined_only_if_it_fails_alone(
    needs: list[int], slots: list[int], retries: int, seed: int
) -> None:
    scene = world(needs, slots, retries)
    scene.run(random.Random(seed))
    never = {record for record, need in enumerate(needs) if need > LIMIT}
    if scene.stopped:
        assert scene.stopped.why is StopReason.MEMORY and never
        return
    assert sorted(scene.quarantined) == sorted(never)
    assert sorted(scene.done) == sorted(set(range(len(needs))) - never)


@pytest.mark.parametrize("seed", range(5))
def test_tasks_that_never_fit_in_pairs_are_rarely_killed(seed: int) -> None:
    scene = world([60] * 80, [8])
    scene.run(random.Random(seed))
    assert len(scene.done) == 80 and not scene.quarantined
    assert scene.kills < 25


def test_most_records_that_never_fit_stop_the_run() -> None:
    scene = world([1, 1, 1, 1] + [LIMIT + 1] * 400, [1])
    lives = scene.lives
    for _ in range(2000):
        if scene.stopped:
            break
        scene.feed()
        (node,) = scene.nodes
        node.fill()
        (task,) = node.running
        beside = node.running.pop(task)
        result = AttemptResult.OUT_OF_MEMORY_ALONE if scene.need(task) > LIMIT else AttemptResult.DONE
        assert beside == 1
        scene.do(ended(lives, task.batch, result, "memory"))
    assert scene.stopped and scene.stopped.why is StopReason.MEMORY
    assert len(scene.quarantined) == 9


def test_slots_return_after_the_large_record_is_done() -> None:
    """One record needed the memory of several slots."""
    allowance = MemoryAllowance(8, LIMIT)
    assert allowance.record_task(out_of_memory=True, side_by_side=8, peak_bytes=90)
    assert allowance.allowed == 4
    for _ in range(MIN_DONE_IN_A_ROW * 4):
        assert allowance.allowed == 4
        allowance.record_task(out_of_memory=False, side_by_side=4, peak_bytes=5)
    assert allowance.allowed == 8


def test_large_tasks_keep_the_number_of_slots_low() -> None:
    """Tasks that need more than half of the memory are not run in pairs again."""
    allowance = MemoryAllowance(2, LIMIT)
    allowance.record_task(out_of_memory=True, side_by_side=2, peak_bytes=50)
    for _ in range(1000):
        assert not allowance.record_task(out_of_memory=False, side_by_side=1, peak_bytes=60)
    assert allowance.allowed == 1


@pytest.mark.parametrize(
    ("cgroup", "files", "found"),
    [
        ("0::/job/step", ["job/step/memory.events", "job/memory.events"], ("job/step/memory.events", True)),
        ("0::/job/step", ["job/memory.events"], ("job/memory.events", False)),
        ("0::/", ["memory.events"], ("memory.events", True)),
        ("0::/", [], ("vmstat", False)),
        ("4:memory:/job", ["memory/job/memory.oom_control"], ("memory/job/memory.oom_control", True)),
        # A container sees its group as the first one, and not under the name that it has outside.
        ("4:memory:/docker/1", ["memory/memory.oom_control"], ("memory/memory.oom_control", True)),
        ("4:memory:/", ["memory/memory.oom_control"], ("memory/memory.oom_control", False)),
        ("4:memory:/job\n0::/", ["memory/job/memory.oom_control", "memory.events"], ("memory/job/memory.oom_control", True)),
    ],
)  # fmt: skip
def test_oom_kills_are_read_from_the_innermost_group(
    cgroup: str, files: list[str], found: tuple[str, bool], tmp_path: Path
) -> None:
    """The innermost control group that can be seen."""
    (tmp_path / "cgroup").write_text(cgroup + "\n")
    for name in (*files, "vmstat"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("under_oom 0\noom_kill 3\n")
    assert find_oom_kill_counter(tmp_path / "cgroup", tmp_path, tmp_path / "vmstat") == (
        str(tmp_path / found[0]),
        found[1],
    )
