"""Copies in the place of files, for those that enter the namespaces, and nobody else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from millrace.storage.bind_mounts import CopyMounts, find_mount_problem

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def possible(tmp_path_factory: pytest.TempPathFactory) -> None:
    if reason := find_mount_problem(str(tmp_path_factory.mktemp("trial"))):
        pytest.skip(reason)


@pytest.mark.usefixtures("possible")
def test_copy_is_visible_at_the_path_and_links_of_its_file(tmp_path: Path) -> None:
    for name in ("a b", "file", "other"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("file")
    view = CopyMounts([(str(tmp_path / "a b"), str(tmp_path / "file"))])
    mount = f"/proc/self/fd/{view.namespaces[-1]}"
    seen = subprocess.run(
        ["nsenter", f"--mount={mount}", "cat", *(str(tmp_path / name) for name in ("file", "link", "other"))],
        pass_fds=view.namespaces, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert seen.stdout == "a ba bother"
    assert (tmp_path / "file").read_text() == "file"
    view.close()
    assert view.namespaces == []


@pytest.mark.usefixtures("possible")
def test_failed_mount_is_an_error_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        CopyMounts([(str(tmp_path / "absent"), str(tmp_path / "file"))])
    assert os.listdir(tmp_path) == []
