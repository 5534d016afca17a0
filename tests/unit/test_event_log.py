"""The event log: what is written is read back, whatever a killed run left."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from millrace.core.errors import CorruptError
from millrace.report.event_log import EventLog
from millrace.report.events import AnyLogEvent, EndEvent, RunEvent, TaskEvent, decode_events, read_events


def test_events_round_trip_in_documented_order(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.write(RunEvent(time="2026-01-01T00:00:00Z", argv=["blastp"], slots=2), 0.0)
        log.write(TaskEvent(t=1.5, start=0.5, first=0, last=10, cpu=0.9), 0.1)
        log.write(EndEvent(t=2.0, records_done=10), 0.2)
    run, task, end = map(json.loads, path.read_text().splitlines())
    assert run["event"] == "run" and run["argv"] == ["blastp"] and run["bytes_total"] is None
    assert task == {
        "event": "task", "t": 1.5, "start": 0.5, "slot": 0, "first": 0, "last": 10, "units": 0, "bytes": 0,
        "cpu": 0.9, "rss": 0, "out": 0, "attempt": 1, "fragment": 0, "status": "done", "detail": "",
    }  # fmt: skip
    assert (end["event"], end["status"], end["records_done"]) == ("end", "done", 10)


def test_the_file_is_written_about_once_a_second(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    sizes = []
    for tenth in range(25):
        log.write(EndEvent(), tenth / 10)
        sizes.append(path.stat().st_size)
    assert len(set(sizes)) == 3
    log.close()
    assert len(list(read_events(path))) == 25


def test_torn_last_event_is_dropped_and_log_continues(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.write(RunEvent(), 0.0)
        log.write(TaskEvent(t=1.0, first=0, last=3, detail="ärger"), 0.0)
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, whole.index(b"\n"), -1):
        path.write_bytes(whole[:cut])
        assert isinstance(next(read_events(path)), RunEvent)
        with EventLog(path) as log:
            log.write(RunEvent(records_resumed=3), 0.0)
        events = list(read_events(path))
        assert [event.records_resumed for event in events if isinstance(event, RunEvent)] == [0, 3]


def test_full_disk_stops_the_log_and_is_reported(full_disk: Path) -> None:
    log = EventLog(full_disk)
    log.write(RunEvent(), 0.0)
    log.write(RunEvent(), 5.0)
    log.close()
    assert log.failure is not None and log.failure.strerror == "No space left on device"


def test_events_of_a_later_version_are_skipped() -> None:
    lines = [b'{"event": "run", "slots": 3, "colour": "red"}', b'{"event": "moonrise"}', b'{"event": "end", "t": 1}']
    assert [*decode_events(lines)] == [RunEvent(slots=3), EndEvent(t=1)]


def test_folder_at_the_path_of_the_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match=r"is a folder, not the log of a run(?s:.*)--fresh"):
        EventLog(tmp_path)


def test_page_of_events_names_each_event_and_field() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "events.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    kinds = {kind.__struct_config__.tag: set(kind.__struct_fields__) for kind in get_args(AnyLogEvent)}
    kinds["tasks"] -= kinds["task"]  # "fields as of `task`"
    assert set(rows) == set(kinds)
    missing = {tag: {name for name in fields if f"`{name}`" not in rows[tag]} for tag, fields in kinds.items()}
    assert not any(missing.values()), missing
