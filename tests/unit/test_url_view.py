"""Folders that look like the working directory."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from millrace.node import url_view


def test_concurrent_processes_create_one_folder(tmp_path: Path) -> None:
    view = url_view.plan_view(["cat", "set.bin"], tmp_path, [])

    def make(turn: int) -> None:
        # A run's folder comes and goes beside the files: its link is there for one of them, and not for the next.
        with suppress(FileExistsError):  # another one removed it just now
            (tmp_path / f"run{turn % 7}.millrace").mkdir(exist_ok=True)
        url_view.build_view(view, tmp_path, {})
        shutil.rmtree(tmp_path / f"run{turn % 7}.millrace", ignore_errors=True)

    try:
        with ThreadPoolExecutor(4) as pool:
            assert len(list(pool.map(make, range(100)))) == 100
    finally:
        shutil.rmtree(view.root, ignore_errors=True)


def test_folder_removed_by_others_does_not_fail_a_view(tmp_path: Path) -> None:
    view = url_view.plan_view(["cat", "set.bin"], tmp_path, [])

    def make(turn: int) -> None:
        other = view.root.with_name(f"{view.root.name}-{turn % 5}")
        with suppress(FileNotFoundError, FileExistsError):  # the next one removes it, at any moment
            (other / "deeper").mkdir(parents=True, exist_ok=True)
        url_view.build_view(view, tmp_path, {})
        shutil.rmtree(other, ignore_errors=True)

    try:
        with ThreadPoolExecutor(4) as pool:
            assert len(list(pool.map(make, range(100)))) == 100
    finally:
        for folder in view.root.parent.glob(f"{view.root.name}*"):
            shutil.rmtree(folder, ignore_errors=True)


def test_placeholder_of_a_remote_file_is_equal_everywhere(tmp_path: Path) -> None:
    """All processes make the same one."""
    copy = tmp_path / "copy"
    copy.write_bytes(b">a\nAC\n")
    view = url_view.plan_view(["cat", "db.fa"], tmp_path, [])
    there = view.folder / "db.fa"

    def make(_: int) -> tuple[int, int, int]:
        url_view.build_view(view, tmp_path, {}, {"db.fa": 6})
        found = there.stat()
        return found.st_size, found.st_ino, found.st_mtime_ns

    try:
        with ThreadPoolExecutor(4) as pool:
            assert len({*pool.map(make, range(20))}) == 1
        url_view.build_view(view, tmp_path, {"db.fa": str(copy)})
        assert there.read_bytes() == copy.read_bytes(), "it is here by now"
        assert make(0)[0] == 6 and there.read_bytes() == bytes(6)
    finally:
        shutil.rmtree(view.root, ignore_errors=True)
