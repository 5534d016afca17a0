"""Fingerprints of inputs, and what is remembered of tools between runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.tool_use import CostSums
from millrace.planning import result_fingerprint
from millrace.planning.result_fingerprint import MAX_TOOLS, recall_learnt_cost, remember_learnt_cost


def test_fingerprint_depends_on_content_alone(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b">r\nACGT\n")
    second.write_bytes(b">r\nACGT\n")
    assert result_fingerprint.fingerprint_content(first) == result_fingerprint.fingerprint_content(second)
    second.write_bytes(b">r\nACGA\n")
    assert result_fingerprint.fingerprint_content(first) != result_fingerprint.fingerprint_content(second)


def test_a_large_file_is_sampled_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_fingerprint, "MAX_WHOLE_BYTES", 1000)
    monkeypatch.setattr(result_fingerprint, "SAMPLE_BYTES", 10)
    path = tmp_path / "large"
    path.write_bytes(bytes(5000))
    before = result_fingerprint.fingerprint_content(path)
    for at in (0, 4999):
        content = bytearray(5000)
        content[at] = 1
        path.write_bytes(content)
        assert result_fingerprint.fingerprint_content(path) != before
    path.write_bytes(bytes(5001))
    assert result_fingerprint.fingerprint_content(path) != before


def test_pipe_has_no_fingerprint(tmp_path: Path) -> None:
    assert result_fingerprint.fingerprint_content(Path("/dev/null")) == "not a regular file"


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
