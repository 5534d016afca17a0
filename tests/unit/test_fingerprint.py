"""Fingerprints: equal for equal content, different for a change that they can see."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.planning import result_fingerprint


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
