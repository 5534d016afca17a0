"""Batches that are looked at a second time are cut short, whatever size is asked for."""

from __future__ import annotations

import threading
from pathlib import Path

from millrace.model import InputUse
from millrace.node.batch import Batch, End, Limits
from millrace.node.feed import Feeder
from millrace.node.spool import open_reader
from millrace.schedule.stretches import SHARE, SHORT_BYTES, Choice

LINE = "x" * 99 + "\n"
N = 20_000


def batches(folder: Path, short: Choice | None) -> list[Batch]:
    """An input of 2 MB, cut as large as a batch may be, a quarter of it at once."""
    item = InputUse(path="in.txt", format="lines")
    (folder / "in.txt").write_text(LINE * N)
    ended = threading.Event()
    source = open_reader([str(folder / "in.txt")], item, "", "")
    feeder = Feeder([item], [source], folder, (), ended.set, short=short)
    feeder.start()
    feeder.request(Limits(bytes=len(LINE) * N // 4), N)
    assert ended.wait(300)
    feeder.close()
    assert isinstance(feeder.results[-1], End)
    return [each for each in feeder.results if isinstance(each, Batch)]


def test_what_is_run_again_is_little_of_a_large_input(tmp_path: Path) -> None:
    found = batches(tmp_path, Choice(SHARE, b"run"))
    assert found[0].first == 0 and found[-1].last == N
    assert all(each.bytes <= SHORT_BYTES + len(LINE) for each in found[:2])
    assert sum(each.bytes for each in found[:2]) < len(LINE) * N / 50
    assert len(found) < 20, "others have the size that was asked for"
    assert [each.bytes for each in batches(tmp_path, None)] == [len(LINE) * N // 4] * 4
