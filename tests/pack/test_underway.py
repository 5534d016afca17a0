"""A packing that was stopped: the same command goes on, and nothing is left in the end."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from parameter_choice import some
from test_pack import MILLRACE, RESULTS, ask, blastp_6, link, tools  # noqa: F401 (fixtures)

from millrace.core.errors import MillraceError, RefusedError
from millrace.extensions.pack import result_packer
from millrace.extensions.pack.regeneration_run import RUN


@pytest.fixture
def result(blastp_6: Path, tmp_path: Path) -> Iterator[Path]:  # noqa: F811
    yield link(blastp_6, tmp_path)


@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], signal.SIGKILL))
def test_interrupted_packing_resumes(result: Path, number: signal.Signals) -> None:
    words = ["pack", "-o", "other.mrp", "--batch", "7", "--", *shlex.split(RESULTS["blastp-6"][0])]
    process = subprocess.Popen([*MILLRACE, *words], cwd=result, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not [*result.glob(".other.mrp.pack/*/run/job.json")]:
        pass
    process.send_signal(number)
    process.wait()
    assert not (result / "other.mrp").exists()
    assert [*result.glob(".other.mrp.pack/*/run/job.json")]
    told = ask(result, *words)
    assert told.returncode == 0, told.stderr
    assert (result / "other.mrp").read_bytes() == (result / "result.mrp").read_bytes()
    assert not [path for path in result.iterdir() if path.name.startswith(".other")]


def test_only_the_packing_of_the_same_result_resumes(tmp_path: Path) -> None:
    """A packing of another result is not continued."""
    dest = tmp_path / "hits.mrp"
    with pytest.raises(KeyboardInterrupt), result_packer.open_packing_folder(dest, "a") as folder:
        (folder / RUN).mkdir()
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), result_packer.open_packing_folder(dest, "a") as folder:
        assert (folder / RUN).is_dir()
        raise KeyboardInterrupt
    with result_packer.open_packing_folder(dest, "b") as folder:
        assert not [*folder.iterdir()]
        assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == ["b"]
    assert not [*tmp_path.iterdir()]


def test_refused_packing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RefusedError), result_packer.open_packing_folder(tmp_path / "hits.mrp", "a") as folder:
        (folder / RUN).mkdir()
        raise RefusedError("no")
    assert not [*tmp_path.iterdir()]


def test_concurrent_packings_into_one_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_packer, "LOCK_WAIT_SECONDS", 0.0)
    with result_packer.open_packing_folder(tmp_path / "hits.mrp", "a") as folder:
        with (
            pytest.raises(MillraceError, match="another millrace"),
            result_packer.open_packing_folder(tmp_path / "hits.mrp", "a"),
        ):
            pass
        assert folder.is_dir()
