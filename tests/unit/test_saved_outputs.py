"""A run that a fresh start is to replace comes back whole, wherever the start and those that come after it are killed."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from millrace.core.tool_use import OutputUse
from millrace.output import saved_outputs
from millrace.rundir import ownership, paths
from millrace.rundir.paths import RunDir

OLD = {name: f"old {name}" for name in ("job.json", "journal.mrj", "journal-2-0.mrj", "events.jsonl", "complete.json")}
NEW = {name: f"new {name}" for name in ("job.json", "journal.mrj", "events.jsonl")}


class Killed(BaseException):
    """The process ends here."""


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != "lock"}


def killed_after(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    """From now on, so many files are moved or removed, and then the process is killed."""
    left = itertools.count(n_steps, -1)
    for name in ("rename", "unlink", "rmdir"):

        def step(self: Path, *more: object, do: object = getattr(Path, name), **named: object) -> object:
            if next(left) <= 0:
                raise Killed
            return do(self, *more, **named)  # type: ignore[operator]

        monkeypatch.setattr(Path, name, step)


@pytest.mark.parametrize("begun", [False, True], ids=["while it is set aside", "when others are in its place"])
def test_backed_up_run_is_restored_after_any_kill(tmp_path: Path, begun: bool) -> None:
    for first, second in itertools.product(range(12), range(12)):
        rundir = RunDir(tmp_path / f"{first}-{second}")
        rundir.path.mkdir()
        (rundir.path / "lock").touch()
        for name, text in OLD.items():
            (rundir.path / name).write_text(text)
        if begun:
            paths.back_up_run(rundir)
            for name, text in NEW.items():
                (rundir.path / name).write_text(text)
        begin = paths.restore_run if begun else paths.back_up_run
        for what, n_steps in ((begin, first), (paths.restore_run, second)):
            with pytest.MonkeyPatch.context() as patch, pytest.raises((Killed, StopIteration)):
                killed_after(patch, n_steps)
                what(rundir)
                raise StopIteration
        paths.restore_run(rundir)
        assert content(rundir.path) == OLD, (first, second)


def test_incomplete_run_is_not_backed_up(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    (tmp_path / "lock").touch()
    (tmp_path / "job.json").mkdir()
    (tmp_path / "journal.mrj").touch()
    paths.back_up_run(rundir)
    assert content(tmp_path) == {} and not paths.restore_run(rundir)


def test_full_disk_leaves_no_partial_output_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is cut would be damage, for which nothing helps but starting over."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    (tmp_path / "out").write_text("some\n")
    output = OutputUse(name="out", path="out")
    plan = SimpleNamespace(use=SimpleNamespace(outputs=[output]), command=SimpleNamespace(cwd=tmp_path))
    rundir = RunDir(tmp_path / "run")
    rundir.path.mkdir()
    saved_outputs.save_output_states(plan, rundir, SimpleNamespace(run_id="0" * 32))  # type: ignore[arg-type]
    assert not [*rundir.path.iterdir()]


def test_folder_at_the_path_of_the_lock_is_removed(tmp_path: Path) -> None:
    """Somebody made it there; the run ends without an error."""
    rundir = RunDir(tmp_path / "out.millrace")
    (rundir.path / "lock" / "more").mkdir(parents=True)
    (rundir.path / "job.json").touch()
    ownership.remove_run_directory(rundir)
    assert not [*tmp_path.iterdir()]
