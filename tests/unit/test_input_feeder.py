"""Batches that are looked at a second time are cut short, whatever size is asked for."""

from __future__ import annotations

import threading
from pathlib import Path

from millrace.core.tool_use import InputUse
from millrace.node.batch_files import BatchLimits, EndOfInput, SpooledBatch, open_reader
from millrace.node.input_feeder import InputFeeder
from millrace.scheduler.verification_stretches import MAX_SHORT_BATCH_BYTES, SHARE, StretchChoice

LINE = "x" * 99 + "\n"
N = 20_000


def batches(folder: Path, short: StretchChoice | None) -> list[SpooledBatch]:
    """An input of 2 MB, cut as large as a batch may be, a quarter of it at once."""
    item = InputUse(path="in.txt", format="lines")
    (folder / "in.txt").write_text(LINE * N)
    ended = threading.Event()
    source = open_reader([str(folder / "in.txt")], item, "", "")
    feeder = InputFeeder([item], [source], folder, (), ended.set, short=short)
    feeder.start_thread()
    feeder.request_batches(BatchLimits(bytes=len(LINE) * N // 4), N)
    assert ended.wait(300)
    feeder.close()
    assert isinstance(feeder.results[-1], EndOfInput)
    return [each for each in feeder.results if isinstance(each, SpooledBatch)]


def test_little_of_a_large_input_is_verified(tmp_path: Path) -> None:
    found = batches(tmp_path, StretchChoice(SHARE, b"run"))
    assert found[0].first == 0 and found[-1].last == N
    assert all(each.bytes <= MAX_SHORT_BATCH_BYTES + len(LINE) for each in found[:2])
    assert sum(each.bytes for each in found[:2]) < len(LINE) * N / 50
    assert len(found) < 20, "others have the size that was asked for"
    assert [each.bytes for each in batches(tmp_path, None)] == [len(LINE) * N // 4] * 4
