"""What tasks of an ordinary user see of a folder, and that nothing of it is written."""

from __future__ import annotations

import os
from pathlib import Path

from machine_users import Machine

SCRIPT = """#!/bin/sh
while read x; do
  echo "$x $(pwd) $(cat ../beside/note) $(find . -type f -name '*.ini' | sort | tr '\\n' ' ') $(stat -c '%U %a' a.ini) $(id -un)"
  echo more >> made.txt
done
"""


def test_ordinary_user_sees_the_folder_and_writes_nothing(machine: Machine) -> None:
    user = machine.user
    folder = user.home / "proj"
    for path in (folder, user.home / "beside"):
        path.mkdir()
    (user.home / "beside/note").write_text("note\n")
    for k in range(2100):
        (folder / f"old{k}").touch()
    for name, text in (("a.ini", "key\n"), ("in.txt", "".join(f"{k}\n" for k in range(9))), ("tool", SCRIPT)):
        (folder / name).write_text(text)
    (folder / "tool").chmod(0o755)
    for path in (user.home, *user.home.rglob("*")):
        os.chown(path, user.uid, user.uid)
    before = entries(folder)
    millrace = f"{user.python} -m millrace"
    done = user.run(
        "sh", "-c", f"{millrace} run -q --format lines --batch 2 --run-dir ../run -- ./tool < in.txt", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert entries(folder) == before
    alone = user.run("sh", "-c", "./tool < in.txt", cwd=folder)
    assert done.stdout == alone.stdout and alone.stdout
    said = user.run("sh", "-c", f"{millrace} doctor", cwd=folder).stdout
    assert "tasks see this folder as it is" in said, said


def entries(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times."""
    found = ((path, path.lstat()) for path in sorted(folder.rglob("*")))
    return [(path.name, about.st_size, about.st_mtime_ns) for path, about in found]
