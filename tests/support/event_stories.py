"""Makes event logs like those of real runs: heavy-tailed task times, a resume, failures."""

from __future__ import annotations

import random
from pathlib import Path

from millrace.report.event_log import EventLog
from millrace.report.events import AnyLogEvent, EndEvent, QuarantineEvent, RetryEvent, RunEvent, TaskEvent, WarningEvent


def story(
    n_tasks: int = 400,
    slots: int = 8,
    killed_at: float | None = 0.4,
    n_bad: int = 3,
    task_seconds: float = 2.0,
    seed: int = 7,
) -> list[AnyLogEvent]:
    """Tell a job of ``n_tasks`` batches of 5 records, killed after a share of them and resumed, if asked."""
    rng = random.Random(seed)
    bad = set(rng.sample(range(n_tasks), min(n_bad, n_tasks - 1))) if n_tasks > 1 else set()
    stop = int(n_tasks * killed_at) if killed_at else 0
    events: list[AnyLogEvent] = []
    for first, last in [(0, stop), (stop, n_tasks)] if stop else [(0, n_tasks)]:
        events += _run(rng, range(first, last), slots, bad, last < n_tasks, task_seconds, n_tasks)
    return events


def _run(
    rng: random.Random,
    batches: range,
    slots: int,
    bad: set[int],
    killed: bool,
    task_seconds: float,
    n_tasks: int,
) -> list[AnyLogEvent]:
    per_batch = 5
    free = [rng.uniform(0.0, 0.02) for _ in range(slots)]
    tasks: list[AnyLogEvent] = []
    for batch in batches:
        slot = min(range(slots), key=free.__getitem__)
        first, last = batch * per_batch, (batch + 1) * per_batch
        units = int(rng.lognormvariate(7.5, 0.7))
        seconds = task_seconds * (units / 2000) * rng.lognormvariate(-0.3, 0.8)
        if batch in bad:
            tasks += _culprit(rng, first, last, slot, free[slot], units)
            free[slot] += 2.2
            continue
        tasks.append(_task(rng, first, last, slot, free[slot], seconds, units))
        free[slot] += seconds + rng.uniform(0.001, 0.01)
    tasks.sort(key=lambda event: getattr(event, "t", 0.0))
    n_bad = sum(isinstance(event, QuarantineEvent) for event in tasks)
    head = RunEvent(
        time="2026-03-02T09:14:07+01:00" if not batches.start else "2026-03-02T10:02:51+01:00",
        argv=["blastp", "-query", "proteins.faa", "-db", "swissprot", "-evalue", "1e-5", "-outfmt", "6"],
        tool="blast",
        version="blastp: 2.12.0+",
        slots=slots,
        unit="residues",
        bytes_total=n_tasks * 2300,
        records_resumed=batches.start * per_batch - sum(batch < batches.start for batch in bad),
    )
    if killed:
        return [head, *tasks]
    end = EndEvent(
        t=max(free) + 0.05,
        status="quarantined" if bad else "done",
        records_done=batches.stop * per_batch - len(bad),
        quarantined=n_bad,
    )
    warning = WarningEvent(t=1.0, text="Warning: [blastp] Query is Empty!", count=2)
    return [head, *([warning] if len(batches) > 5 else []), *tasks, end]


def _task(rng: random.Random, first: int, last: int, slot: int, start: float, seconds: float, units: int) -> TaskEvent:
    return TaskEvent(
        t=start + seconds,
        start=start,
        slot=slot,
        first=first,
        last=last,
        units=units,
        bytes=int(units * 1.2),
        cpu=seconds * rng.uniform(0.9, 0.99),
        rss=int(rng.lognormvariate(18.5, 0.2)),
        out=int(units * rng.uniform(0.2, 3)),
    )


def _culprit(rng: random.Random, first: int, last: int, slot: int, start: float, units: int) -> list[AnyLogEvent]:
    """A batch that fails, is tried record by record, and loses one of them."""
    died = "killed by SIGSEGV"
    out: list[AnyLogEvent] = [
        TaskEvent(
            t=start + 0.9, start=start, slot=slot, first=first, last=last, units=units,
            bytes=units, cpu=0.8, rss=10**8, status="failed", detail=died,
        ),
        RetryEvent(t=start + 0.9, first=first, last=last, reason=died),
    ]  # fmt: skip
    for index in range(first, last):
        begin = start + 0.9 + 0.25 * (index - first)
        if index == first + 2:
            failed = _task(rng, index, index + 1, slot, begin, 0.24, units // 5)
            fields = {name: getattr(failed, name) for name in failed.__struct_fields__}
            out.append(TaskEvent(**{**fields, "status": "failed", "detail": died, "attempt": 2}))
            name = f"sp|P{index:05d}|BAD_<b>ECOLI</b>"
            out.append(QuarantineEvent(t=begin + 0.24, record=index, name=name, reason=died))
        else:
            out.append(_task(rng, index, index + 1, slot, begin, 0.24, units // 5))
    return out


def write(path: Path, events: list[AnyLogEvent]) -> Path:
    """Write ``events`` as a log and return its path."""
    with EventLog(path) as log:
        for now, event in enumerate(events):
            log.write(event, now / 1000)
    return path
