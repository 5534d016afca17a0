"""Files of outputs, before anything is written to them."""

from __future__ import annotations

from pathlib import Path

from millrace.core.tool_use import OutputUse
from millrace.output.output_streams import OutputStreams

STEADY, VOLATILE = OutputUse(name="out", path="out"), OutputUse(name="log", path="log", volatile=("^# Date.*$",))


def test_output_that_may_differ_is_a_new_file_for_a_resume(tmp_path: Path) -> None:
    """A process of an earlier start may still write to the old one."""
    for output in (STEADY, VOLATILE):
        (tmp_path / output.path).write_text("of an earlier start\n")
        (tmp_path / output.path).chmod(0o640)
    with (tmp_path / "log").open("r+") as earlier, (tmp_path / "out").open("r+") as kept:
        OutputStreams((STEADY, VOLATILE), tmp_path, replaces=True)
        for file in (earlier, kept):
            file.write("LATE")
    assert (tmp_path / "log").read_bytes() == b""
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "out").read_text() == "LATEn earlier start\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out"]


def test_output_with_a_second_name_stays_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of an earlier start\n")
    (tmp_path / "second-name").hardlink_to(tmp_path / "log")
    OutputStreams((VOLATILE,), tmp_path, replaces=True)
    assert (tmp_path / "log").samefile(tmp_path / "second-name")
