"""What is remembered of tools between runs."""

from __future__ import annotations

from pathlib import Path

from millrace.core.tool_use import CostSums
from millrace.planning.result_fingerprint import MAX_TOOLS, recall_learnt_cost, remember_learnt_cost


def learnt(largest: int) -> CostSums:
    return CostSums(sums=(1.0,) * 5, plain=(1.0,) * 4, shortest=0.5, largest=largest)


def test_latest_tools_are_remembered(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for number in range(MAX_TOOLS + 5):
        remember_learnt_cost(f"tool{number}", learnt(number + 1), environ)
        remember_learnt_cost("often", learnt(number + 1), environ)
    assert recall_learnt_cost("often", environ) == learnt(MAX_TOOLS + 5)
    assert recall_learnt_cost(f"tool{MAX_TOOLS + 4}", environ) == learnt(MAX_TOOLS + 5)
    assert recall_learnt_cost("tool0", environ) is None
    assert [path.name for path in (tmp_path / "millrace").iterdir()] == ["learnt.json"]


def test_implausible_learnt_numbers_are_ignored(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    remember_learnt_cost("tool", learnt(7), environ)
    path = tmp_path / "millrace" / "learnt.json"
    text = path.read_text()
    for wrong in (text.replace("0.5", "-0.5"), text.replace("0.5", "null"), text.replace('"largest":7', '"largest":0')):
        assert wrong != text
        path.write_text(wrong)
        assert recall_learnt_cost("tool", environ) is None
    path.write_text(text)
    assert recall_learnt_cost("tool", environ)
