"""What is remembered of tools between runs."""

from __future__ import annotations

from pathlib import Path

from millrace.model import Learnt
from millrace.plan.learnt import MOST, recall, remember


def learnt(largest: int) -> Learnt:
    return Learnt(sums=(1.0,) * 5, plain=(1.0,) * 4, shortest=0.5, largest=largest)


def test_the_latest_are_remembered(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for number in range(MOST + 5):
        remember(f"tool{number}", learnt(number + 1), environ)
        remember("often", learnt(number + 1), environ)
    assert recall("often", environ) == learnt(MOST + 5)
    assert recall(f"tool{MOST + 4}", environ) == learnt(MOST + 5)
    assert recall("tool0", environ) is None
    assert [path.name for path in (tmp_path / "millrace").iterdir()] == ["learnt.json"]


def test_numbers_that_no_run_writes_are_not_believed(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    remember("tool", learnt(7), environ)
    path = tmp_path / "millrace" / "learnt.json"
    text = path.read_text()
    for wrong in (text.replace("0.5", "-0.5"), text.replace("0.5", "null"), text.replace('"largest":7', '"largest":0')):
        assert wrong != text
        path.write_text(wrong)
        assert recall("tool", environ) is None
    path.write_text(text)
    assert recall("tool", environ)
