"""Files that a command names are parts of it, however it names them."""

from __future__ import annotations

from pathlib import Path

from millrace.adapters.argument_paths import add_argument_files
from millrace.core.tool_use import ToolUse, UserCommand


def test_each_file_that_is_named_is_there_once(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("db", "db.pin", "matrix", "list", "smarts", "../beside", "../nr", "../nr.phr", "7"):
        (folder / name).write_text("")
    argv = ("tool", "-db", "db", "matrix", "--list=list", "-ssmarts", "../beside", "-n", "7", "-d", "../nr", "matrix", "none")  # fmt: skip
    known = (folder / "db.pin", folder / "../nr.phr", folder / "../beside")
    use = ToolUse(adapter="x", argv=argv, inputs=(), outputs=(), databases=known)
    command = UserCommand(argv=argv, exe=Path("tool"), cwd=folder, environ={})
    assert add_argument_files(use, command).databases == (
        *known, folder / "matrix", folder / "list", folder / "smarts"
    )  # fmt: skip
