"""What is passed on of the outputs of a job."""

from __future__ import annotations

import os
from pathlib import Path

from millrace.launch.job_start import LauncherOutputRelay, StdoutRelay


def test_file_of_output_is_recorded_before_its_first_byte(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"")
    with (tmp_path / "to").open("wb") as to:
        sizes: list[int] = []
        output = StdoutRelay(tmp_path / "stdout", to.fileno(), lambda: sizes.append((tmp_path / "to").stat().st_size))
        output.relay_new_output()
        assert sizes == [], "nothing of the tool's stands there"
        for content in (b"one", b"one, two"):
            (tmp_path / "stdout").write_bytes(content)
            output.relay_new_output()
    assert sizes == [0]
    assert (tmp_path / "to").read_bytes() == b"one, two"


def test_repeated_output_is_forwarded_once(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    reader, writer = os.pipe()
    output = StdoutRelay(path, writer)
    for content in (b"one ", b"one two", b"", b"one", b"one two three"):  # the third is a new start
        path.write_bytes(content)
        output.relay_new_output()
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"one two three"


def test_exit_message_of_the_launcher_is_kept_for_errors() -> None:
    """The relay hides it, and quotes it if the start fails."""
    reader, writer = os.pipe()
    words = LauncherOutputRelay(writer, all_of_it=False)
    frame = b"-" * 76 + b"\n"
    for part in (
        b"millrace: 10 %\n",
        b"\0[node1:17] PMIX ERROR\nhal",
        b"f\n" + frame,
        b"PRTE has lost\n",
        frame,
        b"millrace: 20 %",
    ):
        words.relay_content(part)
    words.relay_content(b"")
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"millrace: 10 %\nhalf\nmillrace: 20 %"
    assert words.quote_kept_lines() == "\n  [node1:17] PMIX ERROR\n  PRTE has lost"
    words.reset_for_start()
    assert not words.quote_kept_lines(), "it was of another start"
